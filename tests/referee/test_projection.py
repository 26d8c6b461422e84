"""The projection alone, without SPIN: its reduction counts what is there, and nothing that it has is missing in it."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.referee.exploring import explore, reduced, states
from tests.referee.projection import IDLE, Projection, Size
from tests.referee.sizes import SMALL, WHOLE, Pinned

QUICK = [pinned for pinned in WHOLE if pinned.states < 10_000]


@pytest.mark.parametrize("pinned", WHOLE, ids=lambda pinned: pinned.name)
def test_the_orbits_stand_for_as_many_states_and_edges_as_are_pinned(pinned: Pinned):
    counts = explore(Projection(pinned.size))
    assert (counts.nodes, counts.states, counts.edges) == (pinned.orbits, pinned.states, pinned.edges)


@pytest.mark.parametrize("pinned", QUICK, ids=lambda pinned: pinned.name)
def test_every_orbit_is_as_large_as_the_reduction_says(pinned: Pinned):
    projection = Projection(pinned.size)
    found: Counter[tuple[bytes, int]] = Counter(reduced(projection, state) for state in states(projection))
    assert len(found) == pinned.orbits
    assert {(name, size): size for name, size in found} == found


@pytest.mark.parametrize("size", [Size(2, 2, 2, 2), Size(2, 2, 1, 2)], ids=str)
def test_every_orbit_is_as_large_where_texts_have_names_too(size: Size):
    projection = Projection(size)
    found: Counter[tuple[bytes, int]] = Counter(reduced(projection, state) for state in states(projection))
    assert {(name, size): size for name, size in found} == found
    counts, whole = explore(projection), explore(projection, whole=True)
    assert (counts.nodes, counts.states, counts.edges) == (len(found), whole.states, whole.edges)


def test_the_small_size_has_everything_that_the_projection_speaks_of():
    projection = Projection(SMALL.size)
    _, partial, end = projection.keys
    seen: set[str] = set()
    situations: dict[str, bool] = {}
    for state in states(projection):
        pool = state.pool
        carried = [(node, block) for node, _, _, block in pool.entries]
        situations = {
            "a copy waits": bool(state.copies),
            "the source of a copy is held by nobody else": any(pool.ref[source] == 1 for source, _ in state.copies),
            "a key names two blocks": len({node for node, _ in carried}) < len(carried),
            "a secondary key": any(pool.key_node[block] != node for node, block in carried),
            "a full block keeps the boundary inside it": any(
                pool.key_node[b] == end and (partial, b) in carried for b in pool.free
            ),
            "two requests share a block": len({table[0] for _, table in state.requests if table})
            < sum(1 for _, t in state.requests if t),
            "a keyed block behind an unkeyed one": [pool.key_node[block] == -1 for block in pool.free] == [True, False],
            "a held block lost its key": any(
                t != IDLE and len(table) == 2 and pool.key_node[table[0]] == -1 and pool.key_node[table[1]] == end
                for t, table in state.requests
            ),
            "a reset is refused": len(pool.free) < SMALL.size.blocks and bool(pool.entries),
        }
        seen |= {name for name, holds in situations.items() if holds}
        for (what, *_), _, after in projection.steps(state):
            seen.add(what)
            if what in ("admit", "append") and after is state:
                seen.add(f"{what} refused")
            if what == "admit" and after is not state and len(after.copies) > len(state.copies):
                seen.add("a copy is owed")
    assert seen == {
        *situations, "admit", "append", "free", "register", "partial", "evict", "drain", "reset", "admit refused", "append refused", "a copy is owed",
    }  # fmt: skip
