"""The key of a world: the same under every renaming, and another one where anything differs that is not declared left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from attrs import evolve

from kvproof.core import prefixes, profiles
from kvproof.core.actions import ReadCounters
from kvproof.core.config import Offload, configure
from kvproof.core.offload.state import Counters, Host, Load, PendingHit, Store, Track
from kvproof.core.prefixes import Prefixes
from kvproof.core.world import DeferredFree, Hit, KeyRecord, Request, Scheduled, Step, World, new_world
from kvproof.spec import judge as judges
from kvproof.spec.engines import scopes
from kvproof.spec.engines.scope_parts import Scope, full
from kvproof.spec.exploring import canonical
from tests.spec.exploring import changing, matching, renaming
from tests.spec.exploring.changing import Place
from tests.spec.exploring.renaming import DevicePool, HostPool
from tests.spec.exploring.test_renaming import worlds


def with_events(name: str, **settings: Any) -> Scope:
    """Return a scope of the check with events, and what else is given."""
    scope = scopes.by_name(name)
    return evolve(scope, settings={**scope.settings, "events": True, **settings})


SCOPES = (
    with_events("fa4-m4-n2"),
    with_events("fa2-m4-n4-host"),
    with_events("fa4-m4+1-n2-ahead-host", profile=profiles.profile_named("vllm-0.33.0")),
    with_events("fa4-host-missing"),
    scopes.by_name("fa4-ahead-host-hold"),
    scopes.by_name("fa4-x4-m4+2-draft2-ahead"),
    scopes.by_name("fa2-m2+1-h1-ckpt1"),
    scopes.by_name("fa4-lazy"),
)

STRUCTURE: set[Place] = {
    (World, "plan"),
    (World, "pool"),
    (World, "worker"),
    (Host, "pool"),
    (Request, "groups"),
}
"""Fields that hold exactly one value, or one per group: what is in them is changed, they themselves cannot be."""


def distinct(world: World) -> bool:
    """Tell whether every insertion has its own number: it is told from others by it."""
    pools = [world.pool, *([] if world.host is None else [world.host.pool])]
    return all(len({entry[2] for entry in pool.entries}) == len(pool.entries) for pool in pools)


def samples(scope: Scope, seed: str, steps: int = 600, most: int = 1) -> Iterator[World]:
    """Yield worlds of a walk, of those with something that is rare at least some."""
    seen: Counter[str] = Counter()
    for world, _ in worlds(scope, "b", steps, steps):
        found = rare(world)
        if any(seen[name] < 2 * most for name in found):
            yield world
        seen.update(found)
    for world, _ in worlds(scope, seed, steps, most):
        yield world


def rare(world: World) -> list[str]:
    """Return what a world has that few have."""
    plan, host = world.plan, world.host
    found = {
        "undo": any(record.entries for _, records in plan.undo for record in records),
        "before": plan.preempted_before,
        "drafts": any(entry.drafts for entry in plan.scheduled),
        "copies": any(step.copies for step in world.steps),
        "pending": host and host.pending,
        "abandoned loads": host and host.abandoned_loads,
        "abandoned stores": host and host.abandoned_stores,
        "told": host and any(track.told for track in host.tracks),
        "meta": host and any(queued.meta for queued in host.queued),
        "held": host and any(load.held for load in host.loads),
    }
    return [name for name, there in found.items() if there]


def told_apart(scope: Scope, seed: str, most: int = 1) -> Counter[Place]:
    """Check all worlds with one thing changed: the key is another one, or they are the same world under other names.

    Return how often a change in each field changed the key.
    """
    random = Random(scope.name)
    found: Counter[Place] = Counter()
    for world in samples(scope, seed, most=most):
        key = canonical.key(world)
        assert matching.alike(world, world)
        for place, other in changing.changed(world, random):
            if place in matching.LEFT_OUT or other == world or not distinct(other):
                continue
            try:
                changed = canonical.key(other) != key
            except (IndexError, KeyError):
                continue  # it names a node or a block that is not there
            assert changed or matching.alike(world, other), place
            found[place] += changed
    return found


def test_whatever_changes_the_world_changes_the_key_or_only_names():
    found: Counter[Place] = Counter()
    for scope in SCOPES:
        found += told_apart(scope, "canonical/1")
    never = changing.every_place() - set(found) - set(matching.LEFT_OUT) - STRUCTURE
    assert {f"{kind.__name__}.{name}" for kind, name in never} == set()


@pytest.mark.deep
@pytest.mark.parametrize("scope", scopes.ALL, ids=[scope.name for scope in scopes.ALL])
def test_whatever_changes_a_world_of_a_long_walk_changes_the_key_or_only_names(scope):
    assert told_apart(scope, "canonical/long", most=8)


def test_what_is_left_out_is_declared():
    assert set(matching.LEFT_OUT) | set(matching.PARTLY) | STRUCTURE <= changing.every_place()


# --- what is left out ---------------------------------------------------------------------------------------------


def blurred(world: World, random: Random) -> World:
    """Return a world with other values in everything that the key leaves out, prefixes (see ``renaming``) left alone."""
    more = random.randrange(1, 4)
    host = world.host
    requests = tuple(
        evolve(one, num_preemptions=one.num_preemptions + more if one.num_preemptions else 0) for one in world.requests
    )
    changed = evolve(world, requests=requests, pool=evolve(world.pool, next_seq=world.pool.next_seq + more))
    if world.config.defer_block_free:
        changed = evolve(
            changed,
            issued=world.issued + more,
            processed=world.processed + more,
            deferred=tuple(evolve(free, fence=free.fence + more) for free in world.deferred),
        )
    if host is None:
        return changed
    shift = more if world.config.defer_block_free else 0
    return evolve(
        changed,
        host=evolve(
            host,
            pool=evolve(host.pool, next_seq=host.pool.next_seq + more),
            loads=tuple(_later(load, shift) for load in host.loads),
            abandoned_loads=tuple(_later(load, shift) for load in host.abandoned_loads),
            next_store=host.next_store + more,
            next_load=host.next_load + more,
            counters=Counters(*(value + more for value in _values(host.counters))),
            drained=Counters(*(value + random.randrange(more) for value in _values(host.drained))),
            load_blocks=host.load_blocks + more,
            notices=host.notices[::-1],
        ),
    )


def _later(load: Load, steps: int) -> Load:
    return evolve(load, fence=load.fence + steps)


def _values(counters: Counters) -> tuple[Any, ...]:
    return tuple(getattr(counters, name) for name in Counters.__slots__ if name != "__weakref__")


@pytest.mark.parametrize("scope", SCOPES, ids=[scope.name for scope in SCOPES])
def test_nothing_depends_on_what_is_left_out(scope):
    random = Random(scope.name)
    differing = 0
    for world, action in worlds(scope, "canonical/2", 300, 4):
        other = blurred(world, random)
        differing += other != world
        assert canonical.key(other) == canonical.key(world)
        assert matching.alike(world, other)
        one, two = judges.attempt(world, action), judges.attempt(other, action)
        assert type(one.refusal) is type(two.refusal)
        assert canonical.key(one.after) == canonical.key(two.after)
        assert matching.alike(one.after, two.after)
        if not isinstance(action, ReadCounters) and one.record is not None:
            assert two.record is not None
            assert told(one.record) == told(two.record)
    assert differing


def told(record: Any) -> Any:
    """Return a record without the numbers of new events, which go on from what is left out."""
    return evolve(record, store_event=-1, load_event=-1)


def test_the_context_of_a_request_is_that_of_its_prefix():
    for scope in SCOPES:
        for world in samples(scope, "canonical/3"):
            table = world.prefixes
            for request in world.requests:
                node = request.tip
                while table.parent[node] >= 0:
                    node = table.parent[node]
                assert table.token[node] == request.context


# --- unlike worlds ------------------------------------------------------------------------------------------------


def test_a_forgotten_field_is_noticed(monkeypatch):
    """A key that lost the amounts of a plan passes for one of a world that differs in more than names."""
    monkeypatch.setattr(canonical, "_scheduled", lambda out, labels, entries: out.append(len(entries)))
    with pytest.raises(AssertionError):
        told_apart(SCOPES[0], "canonical/1")


def test_worlds_of_other_sizes_are_not_alike():
    one, two = (next(samples(scopes.by_name(name), "canonical/4")) for name in ("fa4", "fa2-n4"))
    assert not matching.alike(one, two)


def test_every_kind_of_thing_is_in_the_samples():
    seen: set[type[Any]] = set()
    for scope in SCOPES:
        for world in samples(scope, "canonical/1"):
            seen |= {place[0] for place, _ in changing.changed(world, Random(0))}
    assert seen == set(renaming.WORLD)
    assert {DevicePool, HostPool, KeyRecord, Load, Store, Track} <= seen


# --- what is partly left out, and where lists end -----------------------------------------------------------------


def test_a_first_preemption_a_dispatched_step_and_the_kind_of_a_notice_change_the_key():
    seen: Counter[str] = Counter()
    for scope in SCOPES:
        for world in samples(scope, "canonical/1"):
            for other in partly_changed(world, seen):
                assert canonical.key(other) != canonical.key(world)
    assert {"preemptions", "issued", "notices"} <= set(seen)


def partly_changed(world: World, seen: Counter[str]) -> Iterator[World]:
    """Yield worlds that differ in what counts of a field of which only a part does."""
    if world.requests and not world.requests[0].num_preemptions:
        seen["preemptions"] += 1
        yield evolve(world, requests=(evolve(world.requests[0], num_preemptions=1), *world.requests[1:]))
    if world.config.defer_block_free:
        seen["issued"] += 1
        yield evolve(world, issued=world.issued + 1)
    if world.host is not None:
        seen["notices"] += 1
        one, two = (
            evolve(world, host=evolve(world.host, notices=(kind,))) for kind in ("misaligned_lookup", "dropped_cpu_full")
        )
        assert canonical.key(one) != canonical.key(two)
        yield one if not world.host.notices else evolve(world, host=evolve(world.host, notices=()))


def test_a_block_that_moves_from_one_list_to_the_next_changes_the_key():
    moved = 0
    for scope in SCOPES:
        for world in samples(scope, "canonical/1"):
            for at, request in enumerate(world.requests):
                for group, (one, two) in enumerate(zip(request.groups, request.groups[1:], strict=False)):
                    if not one.table:
                        continue
                    pair = (evolve(one, table=one.table[:-1]), evolve(two, table=(one.table[-1], *two.table)))
                    groups = (*request.groups[:group], *pair, *request.groups[group + 2 :])
                    requests = (*world.requests[:at], evolve(request, groups=groups), *world.requests[at + 1 :])
                    other = evolve(world, requests=requests)
                    assert canonical.key(other) != canonical.key(world)
                    moved += 1
    assert moved


def tables(*lengths: int) -> tuple[tuple[int, ...], ...]:
    """Return tables of so many blocks, numbered from 1 through all of them."""
    ends = [sum(lengths[: at + 1]) for at in range(len(lengths))]
    return tuple(tuple(range(end - length + 1, end + 1)) for end, length in zip(ends, lengths, strict=True))


def ends_elsewhere() -> Iterator[tuple[World, World]]:
    """Yield pairs of worlds made by hand in which the same things follow each other, and a list ends elsewhere."""
    settings: dict[str, Any] = {"max_model_len": 4, "num_blocks": 9, "max_running": 2, "offload": Offload(num_blocks=9)}
    world = new_world(configure((full(1), full(1)), **settings))
    plan, host = world.plan, world.host
    assert host is not None

    def hosting(**parts: Any) -> World:
        return evolve(world, host=evolve(host, **parts))

    yield evolve(world, plan=evolve(plan, preempted=(0,))), evolve(world, plan=evolve(plan, preempted_before=(0,)))
    yield evolve(world, plan=evolve(plan, handoffs=((0, 0, 1, 2),))), evolve(world, plan=evolve(plan, drained=((0, 0, 1, 2),)))
    hits = (Hit(0, 2, found, 0, False) for found in (tables(1, 2), tables(2, 1)))
    yield evolve(world, hit=next(hits)), evolve(world, hit=next(hits))
    # The null block has the label 0, which no end of a list may be taken for.
    first, second = ((0,), ()), ((), (0,))
    yield evolve(world, hit=Hit(0, 2, first, 0, False)), evolve(world, hit=Hit(0, 2, second, 0, False))
    yield evolve(world, deferred=(DeferredFree(1, first),)), evolve(world, deferred=(DeferredFree(1, second),))
    pins = [hosting(pending=(PendingHit(0, 0, 1, found),)) for found in (first, second)]
    yield pins[0], pins[1]
    for one, two in (((1, 2), (2, 1)), ((2, 0), (0, 2))):
        frees = [evolve(world, deferred=(DeferredFree(1, tables(*lengths)),)) for lengths in (one, two)]
        yield frees[0], frees[1]
    load = Load(0, (1, 2), (), held=((3,),))
    yield hosting(loads=(load,)), hosting(loads=(evolve(load, device=(1,), held=((2, 3),)),))
    yield hosting(loads=(load,)), hosting(abandoned_loads=(load,))
    store = Store(0, (1, 2), (1, 2), None)
    yield hosting(stores=(store,)), hosting(abandoned_stores=(store,))
    yield hosting(stores=(store,)), hosting(stores=(evolve(store, meta=()),))
    metas = [hosting(stores=(evolve(store, meta=meta),)) for meta in ((((-1, 1), (-1, 1)), ()), (((-1, 1),), ((-1, 1),)))]
    yield metas[0], metas[1]
    entry = Scheduled(0, 0, 1, fresh=True, loaded_from=0, drafts=(1,), samples=True, pending=0, tip=-1, row=0, loaded=False)
    planned = [evolve(world, plan=evolve(plan, scheduled=(evolve(entry, drafts=drafts),))) for drafts in ((1, 2), (1,))]
    yield planned[0], planned[1]
    track = Track(0, (0, 0), told=tables(1, 2))
    yield hosting(tracks=(track,)), hosting(tracks=(evolve(track, told=tables(2, 1)),))
    yield hosting(tracks=(evolve(track, events=(0,), told=()),)), hosting(tracks=(evolve(track, told=((),)),))


def test_where_a_list_ends_is_part_of_the_key():
    for number, (one, two) in enumerate(ends_elsewhere()):
        assert canonical.key(one) != canonical.key(two), number
        assert not matching.alike(one, two), number


def test_a_fence_that_is_reached_and_the_order_of_notices_do_not_change_the_key():
    world = new_world(configure((full(1),), max_model_len=4, num_blocks=5, max_running=1, offload=Offload(num_blocks=4)))
    host = world.host
    assert host is not None

    def key(fence: int = 0, *notices: str) -> bytes:
        loads = (Load(0, (1,), (1,), fence=fence),)
        return canonical.key(evolve(world, issued=5, processed=5, host=evolve(host, loads=loads, notices=notices)))

    assert key(0) == key(2) == key(5) != key(6) != key(7)
    assert key(0, "misaligned_lookup", "dropped_cpu_full") == key(0, "dropped_cpu_full", "misaligned_lookup") != key(0)


def test_above_which_prefix_a_token_stands_changes_the_key():
    world = new_world(configure((full(1),), max_model_len=4, num_blocks=5, max_running=1))
    keys = set()
    for below in (0, 1):
        table, root = prefixes.extend(Prefixes(), -1, (0,))
        table, one = prefixes.extend(table, root, (0,))
        table, two = prefixes.extend(table, (root, one)[below], (1,))
        contents = ((), (0, one), (0, two), (), ())
        keys.add(canonical.key(evolve(world, prefixes=table, contents=contents)))
    assert len(keys) == 2


def test_a_row_counts_if_a_request_owns_it_or_a_step_will_read_it_and_by_its_kernel_blocks():
    config = evolve(configure((full(1),), max_model_len=4, num_blocks=5, max_running=1), append_expansion=2)
    world = new_world(config)
    read = Scheduled(0, 0, 1, fresh=True, loaded_from=0, row=0)

    def key(owner: int = -1, accepted: int = 0, entries: tuple[int, ...] = (2, 3), part: int | None = None) -> bytes:
        worker = evolve(world.worker, owners=(owner,), rows=((entries,),), columns=((0,),), accepted=(accepted,))
        steps = () if part is None else (Step(scheduled=(read,), copies=(), zero=(), part=part, due=()),)
        return canonical.key(evolve(world, worker=worker, steps=steps))

    last = len(config.parts)
    where: tuple[dict[str, Any], ...] = ({}, {"part": last})
    for unused in where:
        assert key(**unused) == key(accepted=1, **unused) == key(entries=(4, 4), **unused) != key(entries=(2,), **unused)
    where = ({"owner": 0}, {"part": 0}, {"part": last - 1})
    for used in where:
        assert len({key(**used), key(accepted=1, **used), key(entries=(2, 2), **used), key(entries=(3, 2), **used)}) == 4
