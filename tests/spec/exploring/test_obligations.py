"""Obligations one by one: what is open in worlds made by hand, and which runs of closed systems made by hand break which of them.

Semantics 5.13: references (LV-2), loads (LV-3), finished requests (LV-4) and the engine's steps (LV-7). That blocks go back is
asked of runs in which requests end; LV-7 alone asks whether steps go on; of stores there may always be another one.
"""

from __future__ import annotations

from typing import Any

import pytest
from attrs import define, evolve

from kvproof.core import actions as act
from kvproof.core import config as configs
from kvproof.core.actions import Action
from kvproof.core.config import Offload
from kvproof.core.offload.state import Load, PendingHit, Queued, Store, Track
from kvproof.core.world import DeferredFree, Phase, Status, World, new_world
from kvproof.spec import judge as judges
from kvproof.spec.engines.scope_parts import full
from kvproof.spec.exploring import liveness, obligations, search
from kvproof.spec.exploring.bounds import Bounds
from kvproof.spec.exploring.graph import Graph
from kvproof.spec.exploring.liveness import BITS, UNASKED, Closed, Lasso, Node
from kvproof.spec.exploring.obligations import Obligation
from kvproof.spec.exploring.search import Explored, Options
from kvproof.spec.judge import Violation
from kvproof.spec.laws.base import Evidence

SETTINGS: dict[str, Any] = {"max_model_len": 4, "num_blocks": 6, "max_running": 1, "offload": Offload(num_blocks=5)}


def sized(**more: Any) -> dict[str, Any]:
    """The usual sizes, and others."""
    return {**SETTINGS, **more}


CONFIG = configs.configure((full(1),), **SETTINGS)
EMPTY = new_world(CONFIG)
ONE = judges.attempt(EMPTY, act.Submit(7, (0, 0))).after
"""A world with request 7, which waits."""

BLOCKS = {("LV-2", "device blocks"), ("LV-2", "host blocks")}
STORES = {("LV-2", "stores"), ("LV-2", "queued stores")}
STEPS = {("LV-7", "stores"), ("LV-7", "queued stores")}
OTHERS = {
    ("LV-2", "pins"),
    ("LV-2", "deferred frees"),
    ("LV-3", "loading requests"),
    ("LV-3", "loads"),
    ("LV-4", "finished requests"),
}
EVERY = BLOCKS | STORES | STEPS | OTHERS


def named(obligation: Obligation) -> tuple[str, str]:
    return obligation.law, obligation.name


def test_these_are_the_obligations():
    assert {named(obligation) for obligation in obligations.ALL} == EVERY
    assert len(obligations.ALL) == len(EVERY)


# --- what is open -------------------------------------------------------------------------------------------------


def hosting(world: World = EMPTY, refs: tuple[int, ...] = (), **parts: Any) -> World:
    """Return a world with these parts of a host, the first references of its blocks given."""
    host = world.host
    assert host is not None
    pool = evolve(host.pool, ref=(*refs, *host.pool.ref[len(refs) :]))
    return evolve(world, host=evolve(host, pool=pool, **parts))


def left_in(world: World) -> dict[tuple[str, str], tuple[int, ...]]:
    """Return what is open, without what is not."""
    found = {named(obligation): obligation.left(world) for obligation in obligations.ALL}
    return {name: left for name, left in found.items() if left}


def store(event: int, device: tuple[int, ...] = (), host: tuple[int, ...] = ()) -> Store:
    return Store(event, device, host, None)


def both(name: str, left: tuple[int, ...]) -> dict[tuple[str, str], tuple[int, ...]]:
    """What LV-2 and LV-7 both ask about."""
    return {("LV-2", name): left, ("LV-7", name): left}


def test_nothing_is_open_where_nothing_is_under_way():
    assert left_in(EMPTY) == {}
    assert left_in(ONE) == {}
    assert left_in(evolve(EMPTY, host=None)) == {}


def test_stores_are_open_the_oldest_first_those_before_a_reset_too():
    world = hosting(stores=(store(5), store(3)), abandoned_stores=(store(4),))
    assert left_in(world) == both("stores", (3, 4, 5))
    assert left_in(hosting(queued=(Queued((2, 1), (), None), Queued((3,), (), None)))) == both("queued stores", (2, 1, 3))


def test_blocks_are_open_with_more_references_than_stores_account_for():
    def world(*refs: int) -> World:
        pinned = evolve(EMPTY, pool=evolve(EMPTY.pool, ref=(1, *refs, 0, 0)))
        carried = hosting(pinned, (1, *refs), stores=(store(0, (1, 2), (1, 2)),), abandoned_stores=(store(1, (1,), (1,)),))
        return hosting(carried, queued=(Queued((3,), (3,), None),))

    known = {**both("stores", (0, 1)), **both("queued stores", (3,))}
    assert left_in(world(2, 1, 1)) == known
    assert left_in(world(3, 1, 2)) == {**known, ("LV-2", "device blocks"): (1, 3), ("LV-2", "host blocks"): (1, 3)}


def test_pins_of_requests_that_are_gone_are_open():
    pins = (PendingHit(7, 0, 1, ((1,),)), PendingHit(8, 0, 1, ((2,),)))
    assert left_in(hosting(ONE, pending=pins)) == {("LV-2", "pins"): (8,)}


def test_frees_loads_and_finished_requests_are_open():
    loading = evolve(ONE, requests=(evolve(ONE.requests[0], status=Status.LOADING),))
    for world, name, left in (
        (evolve(EMPTY, deferred=(DeferredFree(4, ()), DeferredFree(6, ()))), ("LV-2", "deferred frees"), (4, 6)),
        (loading, ("LV-3", "loading requests"), (7,)),
        (hosting(loads=(Load(7, (), ()),), abandoned_loads=(Load(9, (), ()),)), ("LV-3", "loads"), (7, 9)),
        (hosting(tracks=(Track(7, (0,)), Track(8, (0,), finished=True))), ("LV-4", "finished requests"), (8,)),
    ):
        assert left_in(world) == {name: left}


def ended(before: World, after: World) -> set[tuple[str, str]]:
    """Return the open obligations that an action between these worlds ends."""
    bits = sum(1 << at for at, obligation in enumerate(obligations.ALL) if obligation.left(before))
    found = liveness._ended(bits, before, after)
    return {named(obligation) for at, obligation in enumerate(obligations.ALL) if found >> at & 1}


def test_of_stores_the_oldest_must_end():
    before = hosting(stores=(store(3), store(5)))
    names = {("LV-2", "stores"), ("LV-7", "stores")}
    assert ended(before, hosting(stores=(store(5), store(6)))) == names
    assert ended(before, EMPTY) == names
    assert ended(before, hosting(stores=(store(3), store(6)))) == set()
    assert ended(before, hosting(abandoned_stores=(store(3), store(5)))) == set()


def test_of_queued_stores_the_first_must_be_carried_away():
    one, two, three = (Queued((block,), (), None) for block in (1, 2, 3))
    before = hosting(queued=(one, two))
    names = {("LV-2", "queued stores"), ("LV-7", "queued stores")}
    assert ended(before, hosting(queued=(two, three))) == names
    assert ended(before, evolve(EMPTY, host=None)) == names
    assert ended(before, hosting(queued=(one, three))) == set()


# --- closed systems made by hand ----------------------------------------------------------------------------------

STEP, FINISH, RUN = BITS[act.BeginStep], BITS[act.Finish], BITS[act.RunStore]


@define
class Straight:
    """Ways to worlds made by hand: to world n lead n steps; an edge of a cycle is shown as a store of its number."""

    def rank(self, number: int) -> tuple[int, int]:
        return number, number

    def played(self, config: Any, number: int) -> tuple[tuple[Action, ...], Node]:
        del config
        return (act.BeginStep(),) * number, Node(EMPTY, False)

    def enacted(self, node: Node, edges: list[int]) -> tuple[tuple[Action, ...], Node]:
        return tuple(map(act.RunStore, edges)), node


def closed(*edges: tuple[int, int, int], still_open: tuple[int, ...] = (0,), ending: tuple[int, ...] = ()) -> Closed:
    """Make a closed system of edges (source, target, kind), the sources in their order; every obligation is open in some worlds.

    The edges of these numbers end what is open.
    """
    found, every = Closed.of(CONFIG, Bounds(("a",))), (1 << len(obligations.ALL)) - 1
    for number in range(1 + max((max(source, target) for source, target, _ in edges), default=max(still_open))):
        found.roots.append(number)
        found.open.append(every if number in still_open else 0)
        leaving = [at for at, (source, _, _) in enumerate(edges) if source == number]
        found.enabled.append(0)
        for at in leaving:
            found.enabled[number] |= edges[at][2]
        found.edges.append(range(leaving[0], leaving[-1] + 1) if leaving else range(0))
    for at, (_, target, kind) in enumerate(edges):
        found.targets.append(target)
        found.kinds.append(kind)
        found.ended.append(every if at in ending else 0)
    return found


def lassos(system: Closed) -> dict[tuple[str, str], tuple[int, list[int]]]:
    """Return per obligation that is not met how long the way is, and the edges of the cycle."""
    ways: Any = Straight()
    found = (liveness._judged(system, ways, CONFIG, at) for at in range(len(obligations.ALL)))
    return {named(one.obligation): (len(one.way), events(one)) for one in found if one is not None}


def events(lasso: Lasso) -> list[int]:
    return [action.event for action in lasso.cycle if isinstance(action, act.RunStore)]


def test_only_blocks_are_asked_of_runs_in_which_requests_end():
    # A request that lives on for ever keeps its blocks by right: a run says something of them where it ends.
    assert lassos(closed((0, 0, STEP), (0, 1, FINISH))) == dict.fromkeys(EVERY - BLOCKS, (0, [0]))
    assert lassos(closed((0, 1, FINISH))) == dict.fromkeys(EVERY - BLOCKS, (0, []))
    assert lassos(closed((0, 0, STEP))) == dict.fromkeys(EVERY, (0, [0]))


def test_only_an_engine_that_must_step_on_stops_where_nobody_asks():
    # Where nobody asked for a step, an engine stops, which is what LV-7 is about; the others take for granted that steps go on.
    assert lassos(closed((0, 0, UNASKED))) == dict.fromkeys(EVERY - STEPS, (0, [0])) | dict.fromkeys(STEPS, (0, []))
    # They may not wait for a step that somebody asks for, either: one that nobody asks for must be taken, too.
    assert lassos(closed((0, 0, STEP), (0, 1, UNASKED))) == dict.fromkeys(STEPS, (0, [0]))
    # Behind the first action it stops; it does not go back by a step that nobody asked for.
    found = lassos(closed((0, 1, RUN), (1, 0, UNASKED), still_open=(0, 1)))
    assert found == dict.fromkeys(EVERY - STEPS, (0, [0, 1])) | dict.fromkeys(STEPS, (1, []))


def test_what_ends_again_and_again_is_met():
    assert lassos(closed((0, 0, STEP), ending=(0,))) == {}
    assert lassos(closed((0, 1, STEP), (1, 0, RUN), still_open=(0, 1), ending=(1,))) == {}


def test_a_way_out_that_is_always_there_is_taken():
    assert lassos(closed((0, 0, STEP), (0, 1, RUN))) == {}
    assert lassos(closed((0, 1, STEP))) == {}


def test_what_is_reached_first_is_shown():
    loops = closed((0, 3, RUN), (1, 1, STEP), (2, 2, STEP), still_open=(1, 2))
    assert lassos(loops) == dict.fromkeys(EVERY, (1, [1]))
    stop_first = closed((0, 3, RUN), (2, 2, STEP), still_open=(1, 2))
    assert lassos(stop_first) == dict.fromkeys(EVERY, (1, []))
    loop_first = closed((0, 3, RUN), (1, 1, STEP), still_open=(1, 2))
    assert lassos(loop_first) == dict.fromkeys(EVERY, (1, [1]))


def judged(monkeypatch: pytest.MonkeyPatch, system: Closed, laws: tuple[str, ...]) -> liveness.Verdict:
    """Judge a closed system made by hand."""
    monkeypatch.setattr(liveness, "close", lambda *given: system)
    monkeypatch.setattr(liveness.Ways, "of", lambda *given: Straight())
    return liveness.judge(Explored(Graph()), CONFIG, Bounds(("a",)), laws)


def test_a_verdict_is_of_the_laws_that_are_asked_for_and_a_world_counts_once(monkeypatch):
    system = closed((0, 1, STEP), (1, 1, STEP), still_open=(0, 1))
    verdict = judged(monkeypatch, system, ("LV-2", "LV-7"))
    assert {lasso.obligation.law for lasso in verdict.found} == {"LV-2", "LV-7"}
    assert verdict.premises == {"LV-2": 2, "LV-7": 2}
    assert (verdict.worlds, verdict.edges) == (2, 2)
    assert judged(monkeypatch, system, ("LV-3",)).premises == {"LV-3": 2}


def test_the_shortest_lasso_comes_first(monkeypatch):
    # Pins, obligation 2, stay open in world 1 alone, loads in world 0, where the cycle is as long.
    system = closed((0, 0, STEP), (1, 1, STEP), still_open=(0, 1))
    at = {named(obligation): 1 << number for number, obligation in enumerate(obligations.ALL)}
    system.open[0], system.open[1] = at["LV-3", "loads"], at["LV-2", "pins"]
    found = judged(monkeypatch, system, ("LV-2", "LV-3")).found
    assert [(lasso.obligation.name, len(lasso.way)) for lasso in found] == [("loads", 0), ("pins", 1)]


def test_the_first_refusal_is_shown_and_only_if_it_is_asked_for(monkeypatch):
    system, first = closed((0, 1, STEP)), Violation("LV-9", -1, Evidence.of("first"))
    system._refuse(1, [], act.BeginStep())
    assert system.refused is None
    system._refuse(1, [first], act.BeginStep())
    system._refuse(0, [evolve(first, evidence=Evidence.of("second"))], act.Drain())
    verdict = judged(monkeypatch, system, ("LV-9",))
    assert verdict.refused is not None
    assert (verdict.refused.violation, verdict.refused.actions) == (first, (act.BeginStep(), act.BeginStep()))
    assert judged(monkeypatch, system, ("LV-2",)).refused is None


def test_a_way_along_progress_is_taken_where_it_is_shorter_than_that_of_the_search():
    system = closed((0, 1, STEP), (1, 2, RUN), (1, 3, STEP), (2, 4, STEP))
    system.roots[4] = -1  # no orbit of the graph
    graph = Graph()
    graph.depths.extend((0, 1, 5, 2))
    ways = liveness.Ways.of(system, graph)
    assert ways.lengths == [0, 1, 2, 2, 3]
    assert ways.came[2] == (1, 1)
    assert ways.came[4] == (2, 3)
    assert not {0, 1} & set(ways.came)


TINY = Bounds(("aa",), submits=1, outputs=1, live=1, at_most={act.ReadCounters: 1}, strays=True)


def test_the_closed_system_stands_behind_every_orbit_and_holds_all_progress():
    explored = search.explore(CONFIG, TINY, Options())
    system = liveness.close(explored, CONFIG, TINY)
    graph, limits = explored.graph, TINY.limits(CONFIG)
    nodes: list[Node] = [Node(EMPTY, False)]
    for orbit in range(1, len(graph)):
        before = nodes[graph.parents[orbit]]
        nodes.append(liveness.after(before, judges.attempt(before.world, graph.names[graph.actions[orbit]])))
    least: dict[bytes, int] = {}
    for orbit, node in enumerate(nodes):
        least.setdefault(node.key(), orbit)
    known = {system.roots[number]: key for key, number in system.numbers.items() if system.roots[number] >= 0}
    assert known == {orbit: key for key, orbit in least.items()}
    for node in nodes[::7]:
        number = system.numbers[node.key()]
        found = [(system.kinds[edge], system.targets[edge]) for edge in system.edges[number]]
        leaving = list(liveness.progress(node, evolve(TINY, live=0), limits))
        assert sorted(found) == sorted(
            (kind, system.numbers[liveness.after(node, judges.attempt(node.world, action)).key()]) for action, kind in leaving
        )
        assert not any(isinstance(action, act.CompleteStore) and action.event not in events_of(node) for action, _ in leaving)


def events_of(node: Node) -> set[int]:
    host = node.world.host
    assert host is not None
    return {store.event for store in (*host.stores, *host.abandoned_stores)}


def test_what_the_engine_was_told_tells_worlds_apart():
    assert Node(EMPTY, True).key() != Node(EMPTY, False).key()
    assert [kind for _, kind in liveness.progress(Node(EMPTY, True), TINY, TINY.limits(CONFIG))] == [STEP]
    assert [kind for _, kind in liveness.progress(Node(EMPTY, False), TINY, TINY.limits(CONFIG))] == [UNASKED]


# --- showing a lasso again ----------------------------------------------------------------------------------------

PARTS = tuple(map(act.Execute, CONFIG.parts))
PLAN: tuple[Action, ...] = (act.BeginStep(), act.Drain(), act.BuildMetadata(), act.Dispatch())
IDLE_STEP = (*PLAN, *PARTS)
"""An empty step: it leads back to the same world up to past times."""


def again(monkeypatch, way, cycle, left=lambda world: (1,), config=CONFIG, values=None, **flags) -> bool:
    """Tell whether actions are shown again as the lasso of an obligation made by hand."""
    toy = Obligation("toy", "LV-2", "text", left, **flags)
    monkeypatch.setattr(obligations, "ALL", (toy,))
    said = {"obligation": "toy", "way": len(way), "cycle": len(cycle)} if values is None else values
    return liveness.shown_again(config, (*way, *cycle), Violation("LV-2", -1, Evidence.of("text", **said))) is not None


def test_a_cycle_is_shown_where_it_comes_back_and_the_obligation_stays_open(monkeypatch):
    assert again(monkeypatch, (), IDLE_STEP)
    assert again(monkeypatch, (act.Submit(0, (0,)),), IDLE_STEP)
    assert not again(monkeypatch, (), PLAN[:1])
    assert not again(monkeypatch, (), IDLE_STEP[:-1])
    assert not again(monkeypatch, (), IDLE_STEP, lambda world: (1,) if world.phase is Phase.IDLE else ())
    assert not again(monkeypatch, (), IDLE_STEP, lambda world: ())
    assert not again(monkeypatch, (), IDLE_STEP, values={"obligation": "toy"})


def test_a_cycle_is_none_if_it_ends_what_is_open_or_does_what_no_engine_does_by_itself(monkeypatch):
    begins = lambda before, after: before.phase is Phase.IDLE and after.phase is not Phase.IDLE  # noqa: E731
    assert not again(monkeypatch, (), IDLE_STEP, ended=begins)
    assert again(monkeypatch, (), IDLE_STEP, ended=lambda before, after: False)
    assert not again(monkeypatch, (), (*IDLE_STEP, act.ReadCounters()))
    assert again(monkeypatch, (act.ReadCounters(),), IDLE_STEP)


def test_a_cycle_is_none_if_it_leaves_out_what_is_fair_or_takes_what_nobody_asked_for(monkeypatch):
    waiting = (act.Submit(0, (0,)),)
    assert again(monkeypatch, waiting, IDLE_STEP, asked=True)
    assert not again(monkeypatch, (), IDLE_STEP, asked=True)
    assert not again(monkeypatch, waiting, IDLE_STEP, finishing=True)


def test_a_step_may_run_beside_an_open_plan_on_a_cycle(monkeypatch):
    ahead = configs.configure((full(1),), **sized(max_steps_in_flight=2, defer_block_free=True))
    parts = tuple(map(act.Execute, ahead.parts))
    assert again(monkeypatch, PLAN, (PLAN[0], *parts, *PLAN[1:]), config=ahead)


def test_a_maximal_run_is_shown_where_nothing_that_is_fair_can_happen(monkeypatch):
    # Without a request nobody asks for a step: an engine stops there, and what must end although it stops stays open.
    assert again(monkeypatch, (), (), asked=True)
    assert not again(monkeypatch, (), (), lambda world: (), asked=True)
    assert not again(monkeypatch, (), ())
    assert not again(monkeypatch, PLAN[:1], (), asked=True)
    # With a request steps go on.
    assert not again(monkeypatch, (act.Submit(0, (0,)),), (), asked=True)
