"""docs/gpu.md names every formula that both sides share: what only one side of a comparison computes can differ, they cannot."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
DATA_PATH = ("world", "step", "pool", "rows", "keys", "copies", "offload", "tables", "forward", "freeing", "geometry")
"""The modules that hold and change a world on tensors; the others drive or compare both sides."""
TYPES = {"actions", "config", "base", "pool", "world"}
"""Modules of which only names of types and constants are used."""


def shared(module):
    """The (module of core, function) that a module of the tensor layer reaches through an imported module."""
    tree = ast.parse((ROOT / "gpu" / f"{module}.py").read_text(encoding="utf-8"))
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kvproof.core"):
            known |= {name.asname or name.name: name.name for name in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in known:
            yield known[node.value.id], node.attr


@pytest.mark.parametrize("module", DATA_PATH)
def test_every_shared_formula_is_named(module):
    for owner, name in sorted(set(shared(module))):
        if owner not in TYPES and (owner, name) != ("kinds", "of"):
            assert f"`{name}`" in PAGE, f"gpu/{module}.py uses core's {owner}.{name}: docs/gpu.md does not say so"


def test_the_page_names_no_formula_that_nobody_shares():
    used = {name for module in DATA_PATH for owner, name in shared(module) if owner not in TYPES}
    listed = PAGE.partition("They are, in `core/`:")[2].partition("The formulas of slots")[0]
    names = set(listed.split("`")[1::2]) - {
        "core/",
        "geometry",
        "retention",
        "kinds",
        "lookup",
        "offload.external",
    }
    assert names - used <= {"skipped_tokens", "find_hit", "Config", "lookup"}
    assert len(used) > 20
