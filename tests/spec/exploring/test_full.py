"""The graph of orbits against the graph without names taken away: the same orbits, the same edges, the same verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from hashlib import blake2b
from typing import Any

import pytest
from attrs import define, field

from kvproof.core import actions as act
from kvproof.core.config import Config, Offload
from kvproof.core.world import World, new_world
from kvproof.spec import faults, laws
from kvproof.spec import judge as judges
from kvproof.spec.engines import drain
from kvproof.spec.engines.scope_parts import full, mamba, window
from kvproof.spec.exploring import alphabet, canonical, search
from kvproof.spec.exploring.bounds import Bounds, Budget
from kvproof.spec.exploring.graph import DIGEST_BYTES
from kvproof.spec.exploring.scope import Scope
from kvproof.spec.exploring.search import Explored, Options
from kvproof.spec.judge import Judge
from tests.sampling import each
from tests.spec.exploring import matching

Edges = Counter[tuple[str, bytes]]


def scope(name: str, groups: tuple[Any, ...], bounds: Bounds, **settings: Any) -> Scope:
    return Scope(name, groups, bounds, settings)


SCOPES = (
    scope(
        "chunks",
        (full(1),),
        Bounds(("aa", "ab"), submits=1, outputs=1, live=1, chunks="every", at_most={act.EvictBlocks: 1}),
        max_model_len=3,
        num_blocks=4,
        max_running=1,
    ),
    scope(
        "shared",
        (full(1),),
        Bounds(("a",), submits=2, outputs=0, at_most={act.Preempt: 1}),
        max_model_len=2,
        num_blocks=3,
        max_running=2,
    ),
    scope(
        "drafts",
        (full(1),),
        Bounds(("a",), submits=1, outputs=2, live=1),
        max_model_len=4,
        num_blocks=5,
        max_running=1,
        num_draft_tokens=2,
    ),
    scope(
        "rows",
        (full(2), window(2, 2)),
        Bounds(("aa",), submits=1, outputs=1, live=1, at_most={act.AppendRows: 1}),
        max_model_len=4,
        num_blocks=4,
        max_running=2,
    ),
    scope(
        "states",
        (full(2), mamba(2)),
        Bounds(("ab", "aa"), submits=2, outputs=0, live=1),
        max_model_len=4,
        num_blocks=5,
        max_running=1,
    ),
    scope(
        "ahead",
        (full(1),),
        Bounds(("a",), submits=1, outputs=1, live=1, execution="any", at_most={act.Preempt: 1}),
        max_model_len=4,
        num_blocks=4,
        max_running=1,
        max_steps_in_flight=2,
        defer_block_free=True,
    ),
    scope(
        "eager",
        (full(1),),
        Bounds(
            ("aa",),
            submits=2,
            outputs=0,
            live=1,
            strays=True,
            at_most={act.CompleteStore: 2, act.ReadCounters: 1},
        ),
        max_model_len=3,
        num_blocks=3,
        max_running=1,
        offload=Offload(num_blocks=2),
    ),
    scope(
        "lazy",
        (full(1),),
        Bounds(("aa",), submits=2, outputs=0, live=1),
        max_model_len=3,
        num_blocks=4,
        max_running=1,
        offload=Offload(mode="lazy", num_blocks=3),
    ),
)


@define
class Full:
    """All worlds of a scope under the names that they have, each with its budget, and what can be done in it.

    The last number of a budget is whether the engine steps on by itself, which is part of an orbit.
    """

    config: Config
    bounds: Bounds
    name: Callable[[World, Budget], Hashable]
    worlds: dict[bytes, list[tuple[World, Budget]]] = field(factory=dict)
    depths: dict[bytes, int] = field(factory=dict)
    count: int = 0

    def run(self) -> Full:
        """Collect the worlds by their orbit, breadth first. Two worlds are one if ``name`` says so."""
        first = (new_world(self.config), (*self.bounds.start(), False))
        seen, waiting, depth = {self.name(*first)}, [first], 0
        while waiting:
            following = []
            for world, left in waiting:
                key = canonical.key(world, left)
                self.worlds.setdefault(key, []).append((world, left))
                self.depths.setdefault(key, depth)
                self.count += 1
                for _, after, less in self.edges(world, left):
                    name = self.name(after, less)
                    if name not in seen:
                        seen.add(name)
                        following.append((after, less))
            waiting, depth = following, depth + 1
        return self

    def edges(self, world: World, left: Budget) -> Iterator[tuple[str, World, Budget]]:
        """Yield what can be done in a world."""
        for action, less in alphabet.enabled(world, left[:-1], self.bounds, self.bounds.limits(self.config)):
            moment = judges.attempt(world, action)
            assert moment.refusal is None
            yield type(action).__name__, moment.after, (*less, drain.told_after(bool(left[-1]), moment))

    def keyed(self, world: World, left: Budget) -> Edges:
        """Return the edges out of a world, each by the kind of its action and the orbit that it leads to."""
        return Counter((kind, canonical.key(after, less)) for kind, after, less in self.edges(world, left))


def kept(world: World, left: Budget) -> bytes:
    return canonical.key(world, left, kept=True)


def unreduced(world: World, left: Budget) -> Hashable:
    """Nothing is taken away: two worlds are one if they are equal, counters and dead prefixes included."""
    return world, left


def depths(whole: Full) -> dict[bytes, int]:
    """Return after how many actions each orbit is first reached, by its digest."""
    return {blake2b(key, digest_size=DIGEST_BYTES).digest(): depth for key, depth in whole.depths.items()}


def found_at(explored: Explored) -> dict[bytes, int]:
    """Return the same of an exploration."""
    return {digest: explored.graph.depths[number] for digest, number in explored.graph.numbers.items()}


@pytest.mark.parametrize("chosen", each(2, SCOPES, lambda one: one.name))
def test_the_orbits_of_all_worlds_are_those_of_the_reduced_graph(chosen):
    config = chosen.config()
    whole = Full(config, chosen.bounds, kept).run()
    reduced = search.explore(config, chosen.bounds, Options(ends=False))
    assert reduced.end == "complete"
    assert depths(whole) == found_at(reduced)
    by_names = search.explore(config, chosen.bounds, Options(ends=False, kept=True))
    assert by_names.end == "complete"
    assert len(by_names.graph) == whole.count > len(reduced.graph)
    # Out of each orbit as many edges lead as out of each of its worlds, and to the same orbits.
    edges = 0
    for same in whole.worlds.values():
        first = whole.keyed(*same[0])
        edges += first.total()
        for world, left in same[1:]:
            assert matching.alike(same[0][0], world)
            assert whole.keyed(world, left) == first
    assert edges == reduced.graph.edges


@pytest.mark.parametrize("name", ["rows", "ahead"])
def test_nothing_is_lost_to_worlds_told_apart_by_everything(name):
    (chosen,) = (one for one in SCOPES if one.name == name)
    config = chosen.config()
    whole = Full(config, chosen.bounds, unreduced).run()
    reduced = search.explore(config, chosen.bounds, Options(ends=False))
    assert depths(whole) == found_at(reduced)
    assert whole.count > len(search.explore(config, chosen.bounds, Options(ends=False, kept=True)).graph)
    for same in whole.worlds.values():
        assert all(matching.alike(same[0][0], world) for world, _ in same[1:])


@pytest.mark.parametrize("name", ["shared", "drafts", "eager"])
def test_laws_judge_the_worlds_of_an_orbit_alike(name):
    (chosen,) = (one for one in SCOPES if one.name == name)
    whole = Full(chosen.config(), chosen.bounds, kept).run()
    several = [same for same in whole.worlds.values() if len(same) > 1]
    for same in several[:: max(len(several) // 40, 1)]:
        first, *others = (verdicts(whole, *one) for one in same)
        assert all(other == first for other in others)


def verdicts(whole: Full, world: World, left: Budget) -> Counter[Any]:
    """Return what the laws say of everything that can be done in a world."""
    said: Counter[Any] = Counter()
    for action, _ in alphabet.enabled(world, left[:-1], whole.bounds, whole.bounds.limits(whole.config)):
        judge = Judge(laws.ALL)
        found = judge.moment(judges.attempt(world, action), 0)
        said[(frozenset(judge.premises.items()), tuple(sorted(one.law for one in found)))] += 1
    return said


@pytest.mark.parametrize(
    ("fault", "name"),
    [("M-HIT-1", "states"), ("M-POOL-2", "ahead"), ("M-SPEC-2", "drafts"), ("M-EARLY-1", "lazy"), ("M-LEAK-2", "lazy")],
)
def test_a_fault_is_found_after_as_many_actions_whatever_is_taken_away(fault, name):
    (chosen,) = (one for one in SCOPES if one.name == name)
    planted = faults.by_id(fault)
    judged = [law for law in laws.ALL if law.id in planted.laws]
    lengths = []
    for names in (False, True):
        with faults.planted(planted):
            options = Options(laws=judged, only=planted.laws, ends=False, kept=names)
            found = search.explore(chosen.config(), chosen.bounds, options).found
        assert found is not None
        lengths.append((len(found.actions), found.violation.law))
    assert lengths[0] == lengths[1]
    assert lengths[0][0] > 5
