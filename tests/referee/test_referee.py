"""SPIN on the Promela model against core on the same projection (docs/referee.md): equal graphs, equal counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvproof.spec import faults
from tests.referee import spin
from tests.referee.exploring import difference, explore
from tests.referee.projection import Projection, Size
from tests.referee.sizes import COUNTED, FLAT, LARGE, SMALL, WHOLE, Pinned

# `make deep` and `make referee` ask for both programs before they begin, so nothing is skipped there.
pytestmark = [
    pytest.mark.deep,
    pytest.mark.skipif(bool(spin.missing()), reason=f"{' and '.join(spin.missing())} missing: {spin.INSTALL}"),
]

DEPTH = 200_000
"""Far above how deep the search of a small size goes; SPIN's report is refused if it is not."""


def printed(size: Size, folder: Path, model: str | None = None) -> tuple[spin.Verdict, spin.Edges]:
    """Return the whole graph that SPIN makes of a model, with its invariants asserted in every state."""
    spin.build(size, folder, model, ("EDGES", "CHECK"))
    verdict, text = spin.search(folder, DEPTH)
    return verdict, spin.edges(text)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> spin.Edges:
    return printed(SMALL.size, tmp_path_factory.mktemp("small"))[1]


@pytest.mark.parametrize("pinned", WHOLE, ids=lambda pinned: pinned.name)
def test_the_graphs_are_equal_edge_by_edge(pinned: Pinned, tmp_path: Path):
    verdict, edges = printed(pinned.size, tmp_path)
    assert verdict.agrees(pinned.states, pinned.edges)
    assert len(edges) == pinned.states
    assert sum(len(out) for out in edges.values()) == pinned.edges
    assert difference(Projection(pinned.size), edges) is None


@pytest.mark.parametrize("pinned", COUNTED, ids=lambda pinned: pinned.name)
def test_the_counts_are_equal(pinned: Pinned, tmp_path: Path):
    counts = explore(Projection(pinned.size))
    assert (counts.nodes, counts.states, counts.edges) == (pinned.orbits, pinned.states, pinned.edges)
    spin.build(pinned.size, tmp_path, optimize="-O3")
    large = pinned is LARGE
    verdict, _ = spin.search(tmp_path, 50 * DEPTH if large else DEPTH, 24 if large else 20)
    assert verdict.agrees(counts.states, counts.edges)


SEEN = {
    "M-COW-1": 4, "M-COW-2": 4, "M-COW-3": 4, "M-COW-5": 4, "M-COW-8": 6, "M-COW-9": 4, "M-PROMO-1": 3, "M-PROMO-2": 3,
    "M-HASH-1": 2, "M-POOL-1": 1, "M-POOL-2": 3, "M-EVICT-1": 6, "M-LRU-1": 2, "M-PUB-14": 1, "M-PUB-32": 3, "M-PUB-170": 5,
}  # fmt: skip
"""Faults of core in what is projected, and the steps after which core first leaves the referee's graph."""


@pytest.mark.parametrize("fault", SEEN)
def test_a_fault_of_core_is_seen(fault: str, small: spin.Edges):
    with faults.planted(faults.by_id(fault)):
        found = difference(Projection(SMALL.size), small)
    assert found is not None
    assert len(found.way) == SEEN[fault]


def replaced(old: str, new: str) -> str:
    model = spin.MODEL.read_text(encoding="utf-8")
    assert model.count(old) == 1, old
    return model.replace(old, new)


WRONG = {
    "a table is freed from its head": (
        "b = table_at[r * L + table_len[r]];\n        table_at[r * L + table_len[r]] = 0;",
        "b = table_at[r * L]; table_at[r * L] = table_at[r * L + L - 1]; table_at[r * L + L - 1] = 0;",
    ),
    "the last inserted block is adopted": ("b = map_at[FULL(n, t) * N];", "b = map_at[FULL(n, t) * N + map_len[FULL(n, t)] - 1];"),
    "no block is demanded for the copy": (":: inside != 0 ->\n        need++;\n", ":: inside != 0 ->\n"),
    "a destination may be a source": ("inside != 0 && end_at[2 * i + 1] == inside", "false"),
    "a full entry leaves what the block stood for": (":: primary[b] != 0 -> remove_all()\n    :: else\n    fi;\n    k = FULL", ":: true\n    fi;\n    k = FULL"),
    "a boundary inside a full block takes its place": (":: !found && primary[b] != 0 && TOKENS", ":: !found && primary[b] != 0 && 0 * TOKENS"),
    "a reset looks at no reference": (":: free_len == N ->", ":: true ->"),
    "keyed blocks go in front, too": ("back_at[back_len] = b; back_len++", "front_at[front_len] = b; front_len++"),
    "an evicted block keeps its other keys": ("BEFORE b = block; remove_all();", "BEFORE b = block; primary[b] = 0;"),
    "the copy has no reference until the drain": ("copies = copies + 1;\n            ref[b] = ref[b] + 1", "copies = copies + 1"),
}  # fmt: skip
NEEDS_ROOM = ("a destination may be a source",)


def verdict_on(model: str, pinned: Pinned, folder: Path) -> str:
    """Return how a model is refuted: by an error that SPIN finds in it, or by an edge that core does not have; else ""."""
    try:
        _, edges = printed(pinned.size, folder, model)
    except spin.SpinError as error:
        return str(error)
    found = difference(Projection(pinned.size), edges)
    return "" if found is None else "another edge"


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_model_is_seen(name: str, tmp_path: Path):
    found = verdict_on(replaced(*WRONG[name]), FLAT if name in NEEDS_ROOM else SMALL, tmp_path)
    assert found == "another edge" or "assertion violated" in found


def test_a_search_that_is_cut_off_at_its_depth_limit_is_refused(tmp_path: Path):
    spin.build(SMALL.size, tmp_path)
    whole, _ = spin.search(tmp_path, DEPTH)
    assert whole.agrees(SMALL.states, SMALL.edges)
    with pytest.raises(spin.SpinError, match="cut off at depth 100"):
        spin.search(tmp_path, 100)
    # SPIN itself finds nothing wrong with what it saw.
    text, code = spin.run([str(tmp_path / "pan"), "-m100", "-w20", "-n"], tmp_path)
    assert code == 0
    assert "errors: 0" in text


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("Warning: Search not completed", "not completed"),
        ("\t+ Partial Order Reduction", "Partial Order Reduction"),
        ("Bit statespace search for:", "Bit statespace"),
        ("pan: reached -DMEMLIM bound", "reached -DMEMLIM"),
    ],
)
def test_a_report_that_does_not_count_every_state_is_refused(line: str, why: str, tmp_path: Path):
    spin.build(SMALL.size, tmp_path)
    _, text = spin.search(tmp_path, DEPTH)
    spin.read(text, 0, DEPTH)
    with pytest.raises(spin.SpinError, match=why):
        spin.read(f"{text}\n{line}\n", 0, DEPTH)


def test_an_error_of_the_model_is_refused(tmp_path: Path):
    spin.build(SMALL.size, tmp_path, replaced("assert(ref[b] == 0);", "assert(ref[b] == 1);"))
    with pytest.raises(spin.SpinError, match="assertion violated"):
        spin.search(tmp_path, DEPTH)
