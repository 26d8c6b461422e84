"""Every transition commutes with renaming: an action under other names does the same under other names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from attrs import evolve, fields

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.config import Offload, configure
from kvproof.core.offload.state import Counters, Host, Load, PendingHit, Queued, Store, Track
from kvproof.core.pool import Pool
from kvproof.core.prefixes import Prefixes
from kvproof.core.records import Event, Record
from kvproof.core.world import World, new_world
from kvproof.spec import judge as judges
from kvproof.spec import laws
from kvproof.spec.engines import disabled, scopes, walk
from kvproof.spec.engines import enabled as lists
from kvproof.spec.engines.scope_parts import Scope, full
from kvproof.spec.exploring import canonical
from kvproof.spec.judge import Judge
from kvproof.spec.laws.base import Moment
from tests.spec.exploring import drawing, renaming

OF_HOST = (act.LookupExternal, act.Promote, act.RunStore, act.RunLoad, act.CompleteStore, act.CompleteLoad, act.ResetHost)
"""Actions that only a host tier knows."""


def worlds(scope: Scope, seed: str, steps: int, most: int) -> Iterator[tuple[World, Action]]:
    """Yield worlds of a seeded walk with the action taken there, of each kind of action the last so many."""
    config = scope.config()
    actions = walk.walk(config, seed, steps, (), scope.limits(config), 0).actions
    kinds = Counter(type(action) for action in actions)
    world = new_world(config)
    for action in actions:
        if kinds[type(action)] <= most:
            yield world, action
        kinds[type(action)] -= 1
        world = judges.attempt(world, action).after


def same_under(names: renaming.Renaming, one: Moment, two: Moment) -> None:
    """Check that two moments differ in names alone: refused alike, or with the renamed record and the renamed world."""
    assert type(one.refusal) is type(two.refusal)
    behind = drawing.after(names, one.after, two.after)
    assert renaming.renamed(behind, one.after) == two.after
    assert (one.record is None) == (two.record is None)
    if one.record is not None:
        assert renaming.renamed(behind, one.record) == two.record
    assert canonical.key(one.after) == canonical.key(two.after)


def tried(scope: Scope, seed: str, steps: int = 300, most: int = 1, more: int = 1) -> Counter[type[Action]]:
    """Check actions of a walk, some others that are legal there, and one that is not; return how many of each were done."""
    random = Random(f"{scope.name}/{seed}")
    limits = scope.limits(scope.config())
    done: Counter[type[Action]] = Counter()
    for world, action in worlds(scope, seed, steps, most):
        names = drawing.drawn(world, random)
        other = renaming.renamed(names, world)
        assert canonical.key(other) == canonical.key(world)
        others = lists.enabled(world, limits)
        refused = random.choice(disabled.disabled(world, limits))
        for attempt in (action, *random.sample(others, min(more, len(others))), refused):
            if type(attempt) not in renaming.ACTIONS:
                continue
            one = judges.attempt(world, attempt)
            same_under(names, one, judges.attempt(other, renaming.renamed(names, attempt)))
            done[type(attempt)] += one.refusal is None
    return done


def each_of(found: tuple[Scope, ...], seed: str, steps: int) -> Counter[type[Action]]:
    """Check walks in several scopes."""
    done: Counter[type[Action]] = Counter()
    for scope in found:
        done += tried(scope, seed, steps)
    return done


WITHOUT = tuple(scope for scope in scopes.ALL if "offload" not in scope.settings)
WITH = tuple(scope for scope in scopes.ALL if "offload" in scope.settings)


def test_every_device_transition_commutes_with_renaming():
    done = each_of(WITHOUT, "names/1", 120)
    assert not [kind.__name__ for kind in act.ACTIONS if not done[kind] and kind not in (*OF_HOST, act.ReadCounters)]


def test_every_host_transition_commutes_with_renaming():
    done = each_of(WITH, "names/1", 250)
    assert not [kind.__name__ for kind in act.ACTIONS if not done[kind]]


@pytest.mark.deep
@pytest.mark.parametrize("scope", scopes.ALL, ids=[scope.name for scope in scopes.ALL])
def test_transitions_commute_with_renaming_in_long_walks(scope):
    assert tried(scope, "names/long", steps=1200, most=25, more=2)


@pytest.mark.parametrize("name", ["fa4-m4-n2", "w4-fa4-w8-eagle-async", "fa4-m4+1-n2-ahead-host"])
def test_laws_judge_a_renamed_moment_alike(name):
    scope = scopes.by_name(name)
    random = Random(name)
    for world, action in worlds(scope, "names/laws", 300, 4):
        names = drawing.drawn(world, random)
        one = judges.attempt(world, action)
        two = judges.attempt(renaming.renamed(names, world), renaming.renamed(names, action))
        assert judged(one) == judged(two)


def judged(moment: Moment) -> tuple[dict[str, int], list[tuple[str, bool]]]:
    """Return which laws were judged, and which of them do not hold."""
    judge = Judge(laws.ALL)
    found = judge.moment(moment, 0)
    return dict(judge.premises), [(violation.law, violation.bent) for violation in found]


# --- nothing is forgotten -----------------------------------------------------------------------------------------

UNNAMED = (Prefixes, Pool, Counters)
"""Classes without a table: prefixes are replaced whole, a pool is the device's or the host's, counters name nothing."""


def classes_in(value: Any) -> set[type[Any]]:
    """Return the classes of a value and of everything in it."""
    if isinstance(value, tuple):
        return {kind for item in value for kind in classes_in(item)}
    if not hasattr(type(value), "__attrs_attrs__"):
        return set()
    inside = (getattr(value, one.name) for one in fields(type(value)) if one.name != "config")
    return {type(value)}.union(*(classes_in(item) for item in inside))


@pytest.mark.parametrize("kind", [*renaming.WORLD, *renaming.ACTIONS, *renaming.RECORDS], ids=lambda kind: kind.__name__)
def test_each_field_has_its_renaming(kind):
    stands_for = Pool if kind in (renaming.DevicePool, renaming.HostPool) else kind
    assert list(renaming.table_of(kind)) == [one.name for one in fields(stands_for)]


def test_each_class_has_its_table():
    assert set(renaming.ACTIONS) == set(act.ACTIONS)
    found: set[type[Any]] = set()
    for name in ("fa4-m4-n2-events", "fa4-m4-n2-host", "fa4-m8-n2-lazy"):
        for world, action in worlds(scopes.by_name(name), "names/classes", 400, 100):
            moment = judges.attempt(world, action)
            found |= classes_in(moment.after) | classes_in(moment.record)
    assert found <= {*renaming.WORLD, *renaming.RECORDS, *UNNAMED}
    assert {World, Host, Load, Store, Track, Queued, PendingHit, Record, Event} - found <= {Event}


def test_a_renaming_changes_every_kind_of_name():
    seen: Counter[str] = Counter()
    for name in ("fa4-ahead-host-hold", "fa4-host-missing"):
        for world, _ in worlds(scopes.by_name(name), "names/kinds", 600, 20):
            other = renaming.renamed(drawing.drawn(world, Random("kinds")), world)
            host, renamed_host = world.host, other.host
            assert host is not None
            assert renamed_host is not None
            seen["free"] += world.pool.free != other.pool.free
            seen["host"] += host.pool.free != renamed_host.pool.free
            seen["nodes"] += [one.tip for one in world.requests] != [one.tip for one in other.requests]
            seen["requests"] += [one.request for one in world.requests] != [one.request for one in other.requests]
            seen["entries"] += [entry[2] for entry in world.pool.entries] != [entry[2] for entry in other.pool.entries]
            seen["stores"] += [one.event for one in host.stores] != [one.event for one in renamed_host.stores]
            seen["loads"] += [one.event for one in host.loads] != [one.event for one in renamed_host.loads]
            seen["steps"] += world.issued != other.issued
            seen["dead"] += len(other.prefixes.parent) > len(world.prefixes.parent)
    assert [kind for kind, count in seen.items() if not count] == []


@pytest.mark.parametrize(("hold", "fence"), [(False, 0), (True, 3)])
def test_the_fence_of_a_load_is_the_number_of_a_step_only_where_loads_wait_for_steps(hold, fence):
    offload = Offload(num_blocks=4, hold_loads=hold)
    world = new_world(configure((full(1),), max_model_len=4, num_blocks=4, defer_block_free=True, offload=offload))
    names = evolve(drawing.drawn(world, Random(1)), steps=3)
    assert renaming.renamed(names, Load(request=0, device=(), host=(), fence=0)).fence == fence
