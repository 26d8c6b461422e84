"""The oracle of the mutation run: goldens, worked numbers, recordings and laws. Nothing else may kill a mutant."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

GOLDENS = (
    "test_goldens",
    "test_geometry_examples",
    "test_worked_scenarios",
    "test_findings",
    "test_lookup",
    "test_kinds",
    "test_recurrent",
    "test_checkpoints",
    "test_execute",
    "test_outputs",
    "test_async",
    "test_late_outputs",
    "test_deferred_frees",
    "test_events",
)
"""Modules of tests whose numbers are those of the semantics."""
HOST_GOLDENS = (
    "offload.test_golden_stores",
    "offload.test_upstream_offload",
    "offload.test_positional",
    "offload.test_finishing",
    "offload.test_handoffs",
    "offload.test_completion",
    "offload.test_loads",
    "offload.test_external",
    "offload.test_transfers",
    "offload.test_finish_tables",
    "offload.test_reset_host",
    "offload.test_lost_keys",
    "offload.test_lazy",
    "offload.test_host_events",
    "offload.test_corrections",
    "test_failed_loads",
    "test_native",
    "test_upstream_facts",
    "test_reconciliation",
)
"""Those of the host tier and of connectors."""
HELPERS = {
    "tests.driving",
    "tests.in_flight",
    "tests.recurrent",
    "tests.core.offload.loading",
    "tests.hosting",
    "tests.offloading",
}
FIXTURES = {"monkeypatch", "capsys", "tmp_path"}
KEPT = {
    "kvproof.spec.exits",
    "kvproof.spec.output",
    *(f"kvproof.spec.traces.{name}" for name in ("archive", "read", "format", "state", "errors")),
}
WALK_SEEDS = ("one", "two")
WALK_STEPS = 400
_recordings: list[Any] = []
_of_host = [False]
"""Whether only what has to do with a host tier judges: nothing else runs the code of its mutants."""


def depends_on_core(module: str) -> bool:
    """Whether a module must be imported again for a mutated core."""
    if module in HELPERS or module.rpartition(".")[2] in {name.rpartition(".")[2] for name in (*GOLDENS, *HOST_GOLDENS)}:
        return True
    return module.startswith("kvproof.") and module not in KEPT


def prepare(host: bool = False) -> None:
    """Read the recordings once, for every mutant; ``host``: those with a host tier, and judge by what belongs to it."""
    from kvproof.spec.traces import archive, project

    _of_host[0] = host
    for _, recording in archive.recordings(archive.entries() if host else archive.selection()):
        if project.uncovered(recording.header) is None and not (host and recording.config.host is None):
            _recordings.append(recording)
    _recordings.sort(key=lambda recording: len(recording.operations))


def judge() -> str | None:
    """What refutes the model that is importable now, or None."""
    for name in HOST_GOLDENS if _of_host[0] else (*GOLDENS, *HOST_GOLDENS):
        found = _goldens(f"tests.spec.{name}" if name == "test_findings" else f"tests.core.{name}")
        if found:
            return found
    return _replays() or _laws()


def _goldens(name: str) -> str | None:
    module = importlib.import_module(name)
    for name, function in vars(module).items():
        if not name.startswith("test_") or FIXTURES & set(inspect.signature(function).parameters):
            continue
        for arguments in _parameters(function):
            try:
                function(**arguments)
            except (Exception, pytest.fail.Exception):
                return f"golden: {name}"
    return None


def _parameters(function: Any) -> list[dict[str, Any]]:
    marks = [mark for mark in getattr(function, "pytestmark", ()) if mark.name == "parametrize"]
    found: list[dict[str, Any]] = [{}]
    for mark in marks:
        names = mark.args[0] if isinstance(mark.args[0], tuple) else tuple(mark.args[0].replace(" ", "").split(","))
        rows = [_row(row, len(names)) for row in mark.args[1]]
        found = [one | dict(zip(names, row, strict=True)) for one in found for row in rows]
    assert set(found[0]) == set(inspect.signature(function).parameters), function
    return found


def _row(row: Any, names: int) -> tuple[Any, ...]:
    if hasattr(row, "values") and hasattr(row, "marks"):
        return tuple(row.values)
    return tuple(row) if names > 1 else (row,)


def _replays() -> str | None:
    replay = importlib.import_module("kvproof.spec.traces.replay")
    for recording in _recordings:
        outcome = replay.replay(recording)
        if outcome.divergence is not None:
            return f"recording: {recording.name}"
    return None


def _laws() -> str | None:
    laws = importlib.import_module("kvproof.spec.laws").ALL
    scopes = importlib.import_module("kvproof.spec.engines.scopes").ALL
    walk = importlib.import_module("kvproof.spec.engines.walk").walk
    for seed in WALK_SEEDS:
        for scope in scopes:
            config = scope.config()
            if _of_host[0] and not (config.offload or config.connectors):
                continue
            found = walk(config, f"{seed}/{scope.name}", WALK_STEPS, laws, scope.limits(config)).violations
            if found:
                return f"law {found[0].law}: {scope.name}"
    return None
