"""Scopes without a host tier: one small graph counted exactly, and the table of what finds the faults of the device side."""

from __future__ import annotations

from collections import deque

import pytest
from attrs import evolve

from kvproof.core.errors import ConfigError
from kvproof.core.world import new_world
from kvproof.spec import faults, laws
from kvproof.spec import judge as judges
from kvproof.spec.engines import scopes as walked
from kvproof.spec.exploring import alphabet, canonical, kills, kills_device, kills_host, pins, scopes_device, search

BY_NAME = {scope.name: scope for scope in (*scopes_device.SCOPES, *scopes_device.FURTHER)}
TINY = evolve(
    BY_NAME["fa2r-fa2-m2-m4-n2"],
    bounds=evolve(BY_NAME["fa2r-fa2-m2-m4-n2"].bounds, prompts=("aaa",), submits=1, live=1, alphabet=(0,)),
)
"""One request on two ranks: prefill in two chunks, one output, a withdrawal."""


def device_faults():
    """Return the faults that some scope of the check without a host tier shows."""
    return [fault for fault in faults.ALL if any(not walked.by_name(name).settings.get("offload") for name in fault.scopes)]


def distances(scope):
    """Distances of all orbits from the first one by a plain queue, and the number of edges: no levels, laws or digests."""
    config = scope.config()
    limits = scope.bounds.limits(config)
    first = (new_world(config), scope.bounds.start())
    far, waiting, edges = {canonical.key(*first): 0}, deque([first]), 0
    while waiting:
        world, left = waiting.popleft()
        here = far[canonical.key(world, left)]
        for action, less in alphabet.enabled(world, left, scope.bounds, limits):
            after = judges.attempt(world, action).after
            edges += 1
            key = canonical.key(after, less)
            if key not in far:
                far[key] = here + 1
                waiting.append((after, less))
    return far, edges


def test_a_small_scope_has_exactly_these_orbits():
    explored = search.explore(TINY.config(), TINY.bounds, search.Options(laws=laws.ALL, runs_every=10))
    assert explored.end == "complete"
    assert (len(explored.graph), explored.graph.edges, len(explored.levels) - 1) == (322, 359, 60)
    assert explored.witnesses["withdrawal with rolled back keys"] == 27


def test_the_depths_are_the_distances_of_a_plain_search():
    explored = search.explore(TINY.config(), TINY.bounds, search.Options())
    far, edges = distances(TINY)
    assert sorted(far.values()) == sorted(explored.graph.depths)
    assert edges == explored.graph.edges


def test_attempts_that_are_refused_show_situations():
    rows = BY_NAME["fa2-m4-c2-w4-st2-x1"]
    bounds = evolve(rows.bounds, submits=0, depth=2)
    assert search.explore(rows.config(), bounds, search.Options()).witnesses["row refusal"] == 1
    without = evolve(bounds, refusals=False)
    assert "row refusal" not in search.explore(rows.config(), without, search.Options()).witnesses


HOST = {"M-PUB-134"}
"""Shown without a host tier, too, and killed in a scope with one."""


def test_every_fault_is_killed_in_a_scope():
    known = {fault.id: fault for fault in device_faults()}
    assert set(kills_device.KILLS) | HOST == set(known)
    assert kills_host.KILLS.keys() >= HOST
    for name, kill in kills_device.KILLS.items():
        assert kill.scope in BY_NAME
        assert kill.law in known[name].laws


# Every third one here: `make deep` has all kills and all further scopes.
FURTHER = {scope.name for scope in scopes_device.FURTHER}
SHORT = [name for name, kill in kills_device.KILLS.items() if kill.length <= 6 or kill.scope in FURTHER]


@pytest.mark.parametrize("name", SHORT[::3])
def test_a_short_kill_is_as_the_table_says_and_no_shorter_run_shows_it(name):
    fault, kill = faults.by_id(name), kills_device.KILLS[name]
    scope = BY_NAME[kill.scope]
    with faults.planted(fault):
        try:
            config = faults.configured(fault, scope.config())
        except ConfigError:
            assert (kill.law, kill.length) == ("HB-1", 0)
            return
        explored = search.explore(config, scope.bounds, kills.options((kill.law,)))
    assert explored.found is not None
    assert explored.found.violation.law == kill.law
    assert len(explored.found.actions) == kill.length


def test_a_context_that_a_fault_loses_still_tells_worlds_apart():
    fault, scope = faults.by_id("M-KEY-2"), BY_NAME["fa1-contexts"]
    with faults.planted(fault):
        explored = search.explore(scope.config(), scope.bounds, search.Options(laws=laws.ALL, only=("TB-9",)))
    assert explored.found is not None
    assert len(explored.found.actions) == 7


@pytest.mark.parametrize("name", sorted(FURTHER)[::3])
def test_a_further_scope_holds_and_is_as_pinned(name):
    scope = BY_NAME[name]
    explored = search.explore(scope.config(), scope.bounds, search.Options(laws=laws.ALL))
    assert explored.found is None
    pin = pins.read()[name]
    assert (pin.orbits, pin.edges, pin.depth) == (len(explored.graph), explored.graph.edges, max(explored.graph.depths))
    assert any(kill.scope == name for kill in kills_device.KILLS.values())


def test_what_a_fault_keeps_with_a_request_tells_worlds_apart():
    fault, kill = faults.by_id("M-PUB-29"), kills_device.KILLS["M-PUB-29"]
    scope = BY_NAME[kill.scope]
    bounds = evolve(scope.bounds, depth=kill.length - 1)
    with faults.planted(fault):
        shorter = search.explore(scope.config(), bounds, kills.options((kill.law,)))
    whole = search.explore(scope.config(), bounds, search.Options())
    assert shorter.found is None
    assert len(shorter.graph) > len(whole.graph)
