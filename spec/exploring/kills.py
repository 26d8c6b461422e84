"""The shortest counterexample to each fault: the scope where the explorer finds it, the law that it breaks, and its length.

The lengths are pinned: another one is a change of the model, of a law, of a fault or of the bounds of a scope. The tables stand
in ``kills_device`` and ``kills_host``.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvproof.spec import faults
from kvproof.spec import laws as all_laws
from kvproof.spec.exploring import kills_device, kills_host
from kvproof.spec.exploring.kill import Kill as Kill
from kvproof.spec.exploring.search import Options
from kvproof.spec.faults import Fault


def table() -> dict[str, Kill]:
    """Return the pinned kills by fault, in the order of the faults."""
    found = kills_device.KILLS | kills_host.KILLS
    return {fault.id: found[fault.id] for fault in faults.ALL if fault.id in found}


def unpinned() -> tuple[Fault, ...]:
    """Return the faults that no table names."""
    known = table()
    return tuple(fault for fault in faults.ALL if fault.id not in known)


def command(fault: str) -> str:
    """Return the command that finds the pinned counterexample to a fault; empty where none is pinned."""
    kill = table().get(fault)
    return "" if kill is None else f"kvproof explore --fault {fault} --scope {kill.scope} --law {kill.law}"


def options(ids: Sequence[str], most_edges: int = 0) -> Options:
    """Return how the explorer looks for a fault by its laws: nothing else ends the search.

    One that looks at whole runs is asked about the run to every orbit, so that the first violation is a shortest one, whichever
    of the laws it breaks.
    """
    judged = [law for law in all_laws.ALL if law.id in ids]
    by_run = any(law.check_run for law in judged)
    return Options(laws=judged, only=tuple(law.id for law in judged), all_runs=by_run, most_edges=most_edges)
