"""Scopes with a host tier: one tiny graph counted exactly, the bounds that are for a host tier, and the tables."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core.config import Offload
from kvproof.core.world import Phase, World, new_world
from kvproof.spec import faults, judge
from kvproof.spec import laws as all_laws
from kvproof.spec.engines import host
from kvproof.spec.engines import scopes as walked
from kvproof.spec.engines.scope_parts import full
from kvproof.spec.exploring import alphabet, canonical, kills, kills_host, scopes, scopes_host, search
from kvproof.spec.exploring.bounds import Bounds
from kvproof.spec.exploring.scope import Scope

TINY = Scope(
    "tiny",
    (full(1),),
    Bounds(("aa",), submits=2, outputs=0, alphabet=(0,), live=1, at_most={act.ResetCache: None}),
    {"max_model_len": 3, "num_blocks": 4, "max_running": 1, "offload": Offload(num_blocks=3, workers=2)},
)

EVERY = (*scopes_host.SCOPES, *scopes_host.FURTHER)


def explored(bounds: Bounds, judged: bool = False) -> search.Explored:
    """Explore the tiny scope within other bounds."""
    return search.explore(TINY.config(), bounds, search.Options(laws=all_laws.ALL if judged else ()))


def test_a_tiny_graph_with_a_host_tier_is_counted_exactly() -> None:
    found = explored(TINY.bounds, judged=True)
    assert (found.end, found.found) == ("complete", None)
    assert (len(found.graph), found.graph.edges, max(found.graph.depths)) == (995, 1492, 64)
    assert {"load completed", "finish stores queued", "store acknowledged by some of the workers"} <= found.witnesses.keys()


def test_what_is_bounded_less_reaches_all_that_is_bounded_more() -> None:
    every = explored(TINY.bounds)
    for bounds in (evolve(TINY.bounds, starts="behind"), evolve(TINY.bounds, stores="prompt")):
        narrow = explored(bounds)
        assert narrow.end == "complete"
        assert narrow.graph.numbers.keys() < every.graph.numbers.keys()
        assert len(bounds.leaves_out(TINY.config())) == len(TINY.leaves_out()) + 1


def assert_killed(name: str) -> None:
    """Search for a fault by the law of its pinned kill, which must be found after as many actions."""
    fault, kill = faults.by_id(name), kills_host.KILLS[name]
    scope = next(scope for scope in EVERY if scope.name == kill.scope)
    with faults.planted(fault):
        found = search.explore(faults.configured(fault, scope.config()), scope.bounds, kills.options((kill.law,))).found
    assert found is not None
    assert (found.violation.law, len(found.actions)) == (kill.law, kill.length)


def worlds(bounds: Bounds, most: int = 1500) -> list[tuple[World, list[act.Action]]]:
    """Return the first worlds of the graph, each with what is allowed there."""
    config = TINY.config()
    limits = bounds.limits(config)
    level = [(new_world(config), bounds.start())]
    seen = {canonical.key(*level[0])}
    found: list[tuple[World, list[act.Action]]] = []
    while level and len(found) < most:
        world, left = level.pop(0)
        choices = list(alphabet.enabled(world, left, bounds, limits))
        found.append((world, [action for action, _ in choices]))
        for action, rest in choices:
            after = judge.attempt(world, action).after
            key = canonical.key(after, rest)
            if key not in seen:
                seen.add(key)
                level.append((after, rest))
    return found


def test_stores_that_run_at_once_leave_nothing_else_to_do_between_plans() -> None:
    bounds = evolve(TINY.bounds, stores="prompt")
    seen = 0
    for world, allowed in worlds(bounds):
        due = world.phase is Phase.IDLE and (host.next_store(world) is not None or any(host.acks_left(world)))
        if due and alphabet.begun(world) is None:
            seen += 1
            assert len(allowed) == 1
            assert isinstance(allowed[0], act.RunStore | act.CompleteStore)
        else:
            assert not any(isinstance(action, act.CompleteStore) for action in allowed)
    assert seen


def test_an_unbounded_disturbance_stays_allowed_and_a_bounded_one_is_used_up() -> None:
    assert act.ResetCache not in TINY.bounds.counted
    idle = [allowed for world, allowed in worlds(TINY.bounds) if world.phase is Phase.IDLE and alphabet.begun(world) is None]
    assert len(idle) > 100
    assert all(act.ResetCache() in allowed for allowed in idle)
    assert "any ResetCache" not in TINY.leaves_out()
    never = evolve(TINY.bounds, at_most={act.Finish: 0})
    assert {"any Finish", "any ResetCache"} <= set(never.leaves_out(TINY.config()))
    assert not any(isinstance(action, act.Finish) for _, allowed in worlds(never) for action in allowed)


def test_the_scopes_have_legal_configurations_with_a_host_tier_and_names_of_their_own() -> None:
    names = [scope.name for scope in EVERY]
    assert len(set(names)) == len(names)
    assert len(scopes.CATALOGUE) <= 12
    assert all(scope.config().offload is not None for scope in EVERY)


def test_every_further_scope_is_there_for_a_fault() -> None:
    used = {kill.scope for kill in kills_host.KILLS.values()}
    assert {scope.name for scope in scopes_host.FURTHER} <= used


def test_a_load_is_copied_ahead_of_an_older_store_where_chunks_are_short() -> None:
    chunks = scopes.by_name("fa1-host-chunks")
    found = search.explore(chunks.config(), chunks.bounds, search.Options())
    assert found.witnesses["load copied ahead of an older store"] == 48


def test_the_table_names_every_fault_that_needs_a_host_with_a_law_of_it_and_a_scope_that_there_is() -> None:
    known = {fault.id: fault for fault in faults.ALL}
    names = {scope.name for scope in EVERY}
    for fault, kill in kills_host.KILLS.items():
        assert kill.law in known[fault].laws
        assert kill.scope in names
    hosted = {fault.id for fault in faults.ALL if all(walked.by_name(name).settings.get("offload") for name in fault.scopes)}
    assert set(kills_host.KILLS) >= {fault for fault in hosted if known[fault].scopes}


SHORT = [name for name, kill in kills_host.KILLS.items() if kill.length <= 17]


@pytest.mark.parametrize("name", SHORT)
def test_a_short_kill_is_as_the_table_says_and_no_shorter_run_shows_it(name: str) -> None:
    assert_killed(name)


def test_what_a_planted_fault_lets_through_a_guard_is_followed() -> None:
    assert_killed("M-LOAD-4")


def test_attempts_that_must_be_refused_change_no_graph() -> None:
    scope = next(scope for scope in EVERY if scope.name == kills_host.KILLS["M-LOAD-4"].scope)
    assert scope.bounds.refusals
    tried = search.explore(scope.config(), scope.bounds, search.Options())
    without = search.explore(scope.config(), evolve(scope.bounds, refusals=False), search.Options())
    assert tried.refusals > without.refusals == 0
    assert (tried.found, tried.graph.edges) == (None, without.graph.edges)
    assert tried.graph.numbers.keys() == without.graph.numbers.keys()
