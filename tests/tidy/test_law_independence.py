"""A law computes its truth itself: it imports data types of the model and never the code that it judges."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.tidy.sources import ROOT, name

# Data of the model, readable by any law. Everything else in core decides something.
DATA = {
    "kvproof.core.actions": None,
    "kvproof.core.errors": None,
    "kvproof.core.records": None,
    "kvproof.core.world": None,
    "kvproof.core.prefixes": {"Prefixes"},
    "kvproof.core.pool": {"Pool", "NULL_BLOCK", "NO_KEY"},
    "kvproof.core.contents": {"GARBAGE", "UNWRITTEN"},
    "kvproof.core.config": {"Config", "Group", "Profile"},
    "kvproof.core.offload.state": None,
}
# Laws about a function of the model call it as the thing judged; module -> what, and why.
JUDGED = {
    "spec/laws/scaling.py": {"geometry": "DS-1 to DS-4, DS-10 compare it with counting", "reachability": "DS-1"},
    "spec/laws/native.py": {"native": "DS-6, DS-7 and LV-9 compare it with counting", "reachability": "DS-7"},
    "spec/laws/boundaries.py": {"config": "HB-1 asks which configurations are accepted"},
    "spec/laws/hits.py": {"config": "HB-11 asks which gate a configuration gets"},
}
FILES = [
    *sorted((ROOT / "spec" / "laws").glob("*.py")),
    *(ROOT / "spec" / file for file in ("ground.py", "ground_host.py", "naive.py", "naive_hits.py")),
]


def forbidden(path: Path) -> list[str]:
    """Imports of a file that it may not have."""
    found = []
    allowed = JUDGED.get(name(path), {}) if ROOT in path.parents else {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.startswith("kvproof.core")]
        if not isinstance(node, ast.ImportFrom) or node.module is None or not node.module.startswith("kvproof.core"):
            continue
        for alias in node.names:
            if node.module == "kvproof.core":
                if alias.name not in allowed:
                    found.append(f"kvproof.core.{alias.name}")
            elif node.module not in DATA or (DATA[node.module] is not None and alias.name not in (DATA[node.module] or ())):
                found.append(f"{node.module}.{alias.name}")
    return found


@pytest.mark.parametrize("path", FILES, ids=name)
def test_laws_import_no_transition_and_no_geometry(path: Path) -> None:
    """Otherwise a wrong formula would change both sides, and nothing would bite."""
    assert forbidden(path) == []


def test_the_check_sees_a_forbidden_import(tmp_path: Path) -> None:
    """A planted import of a transition, of geometry and of a pool function is found."""
    file = tmp_path / "law.py"
    file.write_text(
        "from kvproof.core import geometry\nfrom kvproof.core.pool import Pool, find\nimport kvproof.core.step\n"
        "from kvproof.core.lookup import lookup\nfrom kvproof.core.world import World\n"
    )
    assert sorted(forbidden(file)) == [
        "kvproof.core.geometry",
        "kvproof.core.lookup.lookup",
        "kvproof.core.pool.find",
        "kvproof.core.step",
    ]
