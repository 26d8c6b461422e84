"""What is shown and answered takes the place of what was predicted, part by part; and what the model is steered to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import pool as pools
from kvproof.core.errors import ContractBroken
from kvproof.core.offload.state import NONE, Host, Load, PendingHit, Queued, Stage, Store, Track
from kvproof.core.pool import NO_KEY
from kvproof.core.records import Record
from kvproof.core.world import DeferredFree, GroupState, Phase, World
from kvproof.spec import ground, judge
from kvproof.spec.conformance import answers, override, predict
from kvproof.spec.conformance.adapter import HostState, PoolState, State, Transfer
from kvproof.spec.conformance.differences import Noting
from kvproof.spec.conformance.override import Overriding
from kvproof.spec.conformance.reading import Reader
from kvproof.spec.ground_host import host_of
from kvproof.spec.laws.base import Moment
from tests.spec.conformance.moments import CONFIG, first, followed, moments, performed

# --- what is taken over -------------------------------------------------------------------------------------------------


def overridden(world: World, before: World, **shown: Any) -> Host:
    """The host side of a world with some of its parts replaced by what is shown."""
    return host_of(Overriding(Reader.of(CONFIG, 0)).state(world, State(host=HostState(**shown)), Noting(), before))


def test_stores_that_wait_count_as_being_in_flight() -> None:
    world = moments()[0].after
    queued = evolve(world, host=evolve(host_of(world), queued=(Queued((3,), (2,), None),), in_flight=(3,)))
    assert overridden(queued, world, queued=()).in_flight == ()
    assert overridden(world, world, queued=(Transfer((4,), (1,)),)).in_flight == (4,)


def test_a_number_that_was_only_predicted_is_not_used_up() -> None:
    """The model stores and loads in this step and the implementation does not: its next step has the same numbers."""
    world = moments()[0].after
    host = host_of(world)
    store, load = Store(host.next_store, (3,), (2,), None), Load(0, (4,), (1,), host.next_load, Stage.BUILT)
    predicted = evolve(
        world,
        host=evolve(host, stores=(store,), loads=(load,), next_store=host.next_store + 1, next_load=host.next_load + 1),
    )
    shown = overridden(predicted, world, stores=(), loads=())
    assert (shown.next_store, shown.next_load) == (host.next_store, host.next_load)
    shown = overridden(predicted, world, stores=(Transfer((3,), (2,), event=host.next_store + 4),))
    assert (shown.next_store, shown.next_load) == (host.next_store + 5, host.next_load + 1)


def test_what_an_open_plan_holds_is_what_is_shown() -> None:
    world = evolve(moments()[0].after, phase=Phase.PLAN_WAITING)
    overriding = Overriding(Reader.of(CONFIG, 0))
    plan = overriding.state(world, State(copies=((1, 2),), handoffs=((0, 1, 2, 4),)), Noting(), world).plan
    assert (plan.copies, plan.handoffs) == (((0, 1, 2),), ((0, 1, 2, 4),))
    assert overriding.state(evolve(world, plan=plan), State(copies=(), handoffs=()), Noting(), world).plan == world.plan


def test_how_far_a_transfer_has_come_is_what_is_shown() -> None:
    world = moments()[0].after
    store, load = Store(0, (3,), (2,), None), Load(0, (4,), (1,), 0, Stage.BUILT)
    predicted = evolve(world, host=evolve(host_of(world), stores=(store,), loads=(load,)))
    shown = overridden(
        predicted,
        world,
        stores=(Transfer((3,), (2,), event=0, acks=1),),
        loads=(Transfer((4,), (1,), event=0, request=0, finished=True),),
    )
    assert [one.acks for one in shown.stores] == [1]
    assert [one.finished for one in shown.loads] == [True]


def test_cursors_are_those_that_are_shown_also_of_who_is_not_predicted() -> None:
    world = moments()[0].after
    predicted = evolve(world, host=evolve(host_of(world), tracks=(Track(0, (0, 0), (7,)), Track(1, (2, 2)))))
    shown = overridden(predicted, world, cursors={0: (1, 1), 5: (3, 0)})
    assert shown.tracks == (Track(0, (1, 1), (7,)), Track(5, (3, 0)))


def test_frees_that_wait_are_those_that_are_shown() -> None:
    overriding = Overriding(Reader.of(CONFIG, 0))
    known = DeferredFree(3, ((1, 2), (4,)))
    world = evolve(moments()[0].after, deferred=(known, DeferredFree(4, ((5,),))))
    shown = State(deferred=((3, (1, 2, 4)), (6, (7, 8))))
    assert overriding.state(world, shown, Noting(), world).deferred == (known, DeferredFree(6, ((7, 8),)))


def test_no_more_of_a_shorter_table_is_registered_than_there_is() -> None:
    state = GroupState((1, 2, 3), num_cached=3)
    assert override.with_table(state, (1,)) == GroupState((1,), num_cached=1)
    assert override.with_table(state, (1, 2, 3, 4)).num_cached == 3


def test_a_free_queue_is_the_one_that_is_shown() -> None:
    world = moments()[0].after
    device, host = world.pool.free[::-1], host_of(world).pool.free[::-1]
    shown = State(device=PoolState(free=device), host=HostState(PoolState(free=host)))
    after = Overriding(Reader.of(CONFIG, 0)).state(world, shown, Noting(), world)
    assert (after.pool.free, host_of(after).pool.free) == (device, host)


def test_a_free_queue_begins_in_another_order_and_not_with_other_blocks() -> None:
    pool = moments()[0].before.pool
    turned = pool.free[::-1]
    assert override.reordered(pool, turned).free == turned
    assert override.reordered(pool, turned[1:]) is pool
    assert override.reordered(pool, (*turned[1:], turned[1])) is pool


def test_references_of_the_host_are_counted_anew() -> None:
    world = first(lambda world: any(host_of(world).pool.ref))
    host = host_of(world)
    wrong = evolve(world, host=evolve(host, pool=evolve(host.pool, ref=(0,) * len(host.pool.ref))))
    assert host_of(override.recounted(wrong, False, True)).pool.ref == host.pool.ref
    assert override.recounted(wrong, False, False) is wrong


def test_blocks_that_nobody_holds_any_more_become_free() -> None:
    pool = moments()[0].before.pool
    assert override.requeued(evolve(pool, free=pool.free[2:])).free == (*pool.free[2:], *pool.free[:2])


# --- what is answered ---------------------------------------------------------------------------------------------------


def test_the_hit_and_the_junction_are_those_of_the_answer() -> None:
    _, follower = followed()
    record = Record("Lookup", local=4, lists=((1,), (2,)), junction=8)
    world = answers.taken_in(follower.world, act.Lookup(0), record, {"local": 4})
    assert world.hit is not None
    assert (world.hit.local, world.hit.lists, world.requests[0].junction) == (4, ((1,), (2,)), 8)


def test_what_a_drain_hands_out_is_what_the_step_has() -> None:
    moment, _ = performed(act.Drain)
    record = Record("Drain", copies=((0, 1, 2),), handoffs=((0, 1, 2, 4),), zeroed=(5,))
    assert record.handoffs != moment.after.plan.drained
    changed = {"copies": record.copies, "handoffs": record.handoffs, "zeroed": record.zeroed}
    plan = answers.taken_in(moment.after, act.Drain(), record, changed).plan
    assert (plan.copies, plan.drained, [block for _, block in plan.zero]) == (record.copies, record.handoffs, [5])
    assert answers.taken_in(moment.after, act.Drain(), record, {}) is moment.after


def test_counters_that_were_read_are_read_out() -> None:
    world = moments()[0].after
    shown = evolve(world, host=evolve(host_of(world), counters=evolve(host_of(world).counters, published=3)))
    host = host_of(answers.taken_in(shown, act.ReadCounters(), Record("ReadCounters", counters=(3,)), {"counters": (3,)}))
    assert host.drained.published == 3


def test_a_store_is_the_one_that_the_worker_is_told() -> None:
    """It replaces the predicted one, and takes up what waited."""
    moment, record = performed(act.BuildMetadata, lambda record: len(record.store_device) > 1)
    told = evolve(record, store_device=record.store_device[:1], store_host=record.store_host[:1])
    host = host_of(answers.taken_in(moment.after, act.BuildMetadata(), told, {"store_device": told.store_device}))
    (store,) = [store for store in host.stores if store.event == told.store_event]
    assert (store.device, store.host) == (told.store_device, told.store_host)
    assert host.queued == ()


def test_a_pair_that_the_worker_is_not_told_of_is_not_loaded() -> None:
    moment, record = performed(act.BuildMetadata, lambda record: len(record.load_device) > 1)
    told = evolve(record, load_device=record.load_device[:-1], load_host=record.load_host[:-1])
    host = host_of(answers.taken_in(moment.after, act.BuildMetadata(), told, {"load_device": told.load_device}))
    copied = [block for load in host.loads if load.event == told.load_event for block in load.device]
    assert sorted(copied) == sorted(told.load_device)


def test_a_host_hit_is_pinned_as_it_is_answered() -> None:
    moment, record = performed(act.LookupExternal, lambda record: record.external)
    action = moment.action
    assert isinstance(action, act.LookupExternal)

    def pinned(answer: Record, after: World) -> list[PendingHit]:
        pending = host_of(answers.taken_in(after, action, answer, {"external": answer.external})).pending
        return [hit for hit in pending if hit.request == action.request]

    assert pinned(evolve(record, external=0, lists=()), moment.after) == []
    more = evolve(record, external=record.external + 4)
    assert [hit.length for hit in pinned(more, moment.after)] == [more.external]
    assert [hit.length for hit in pinned(more, moment.before)] == [more.external]


def test_a_load_asks_for_the_copies_of_the_answer() -> None:
    moment, record = performed(act.Allocate, lambda record: record.pairs)
    fewer = evolve(record, pairs=record.pairs[:-1])
    action = moment.action
    assert isinstance(action, act.Allocate)
    host = host_of(answers.taken_in(moment.after, action, fewer, {"pairs": fewer.pairs}))
    (load,) = [load for load in host.loads if load.request == action.request]
    assert (load.device, load.host) == (tuple(row[2] for row in fewer.pairs), tuple(row[3] for row in fewer.pairs))


# --- what is predicted --------------------------------------------------------------------------------------------------


def test_the_model_stores_where_the_implementation_does() -> None:
    moment, record = performed(act.BuildMetadata, lambda record: record.store_host)
    free = [block for block in host_of(moment.before).pool.free if block not in record.store_host]
    wanted = tuple(free[-len(record.store_host) :])
    tried = predict.predict(moment.before, moment.action, predict.Hints({"store_host": wanted}))
    assert tried.record is not None
    assert tried.record.store_host == wanted
    assert type(host_of(tried.after).pool.free) is tuple


def test_a_lazy_walk_comes_over_what_was_stored_from_the_beginning() -> None:
    lazy = next(
        one.after for one in moments("fa4-m8-n2-lazy") if host_of(one.after).cursor != NONE and len(one.after.pool.free) > 3
    )
    stored = (lazy.pool.free[2], lazy.pool.free[0], 10**6)
    over = predict.walked_over(lazy, host_of(lazy), stored)
    assert (over.pool.free, host_of(over).cursor) == (stored[:2], NONE)
    eager = moments()[-1].after
    assert predict.walked_over(eager, host_of(eager), stored) is eager


def test_no_block_is_taken_twice() -> None:
    assert predict.distinct((1, 2), {1: 5, 2: 5}) == (5, 2)
    assert predict.distinct((1, 2, 3), {1: 2}) == (2, 1, 3)
    assert predict.distinct((1, 2), {1: 7, 2: 8}) == (7, 8)


def test_an_allocation_that_was_admitted_anyway_is_predicted_without_what_it_waited_for() -> None:
    """Reserved blocks, and what the same plan registered; what was registered stays so."""
    _, follower = followed()
    world = follower.world
    for action in (act.BeginStep(), act.Lookup(0)):
        world = judge.attempt(world, action).after
    world = evolve(world, plan=evolve(world.plan, cached=((1, 1, 0),)))
    allocate = act.Allocate(0, 8, reserved=CONFIG.num_blocks)
    put_off = judge.attempt(world, allocate).record
    assert put_off is not None
    assert put_off.admitted is False
    tried = predict.leniently(world, allocate, predict.Hints({}))
    assert tried.record is not None
    assert tried.record.admitted is True
    assert tried.before is world
    assert tried.after.plan.cached[0] == (1, 1, 0)
    assert (1, 1, 0) not in tried.after.plan.cached[1:]
    assert tried.after.config is world.config


def test_which_blocks_were_taken_references_tell_where_nothing_else_does() -> None:
    moment, record = performed(act.Allocate, lambda record: record.taken)
    action, taken = moment.action, record.taken
    assert isinstance(action, act.Allocate)
    others = moment.before.pool.free[-len(taken) :]
    assert not {*others} & {*taken}
    held = tuple(int(block in others) for block in range(CONFIG.num_blocks))
    assert sorted(predict.taken_instead(moment, action, predict.Hints({}, None, held))) == sorted(others)
    assert predict.taken_instead(moment, action, predict.Hints({}, None, moment.after.pool.ref)) == ()


def test_a_placeholder_is_no_block_that_was_taken() -> None:
    """A table that has one where the model has a block says nothing of what was taken there."""
    moment, _ = performed(act.Allocate, lambda record: record.taken)
    action = moment.action
    assert isinstance(action, act.Allocate)
    (request,) = [live for live in moment.after.requests if live.request == action.request]
    nulls = tuple(tuple(0 for _ in state.table) for state in request.groups)
    assert predict.taken_instead(moment, action, predict.Hints({}, nulls)) == ()


def registering() -> Iterator[tuple[Moment, int, int]]:
    """Allocations that register a block of their request which had no key: the moment, the block and its group."""
    for one in moments():
        request = ground.request_of(one.before, one.action.request) if isinstance(one.action, act.Allocate) else None
        if request is None or one.record is None or not one.record.admitted:
            continue
        held = {block for state in request.groups for block in state.table}
        fresh = set(one.after.pool.entries) - set(one.before.pool.entries)
        yield from (
            (one, block, group) for _, group, _, block in fresh if block in held and one.before.pool.key_node[block] == NO_KEY
        )


def test_keys_that_the_implementation_has_already_do_not_keep_it_from_an_admission() -> None:
    """It registers at another time than the model, whose own key of the block would have to stand for more tokens."""
    broken = 0
    for one, block, group in registering():
        world = evolve(one.before, pool=pools.insert(one.before.pool, 0, group, block, 1000))
        broken += isinstance(judge.attempt(world, one.action).refusal, ContractBroken)
        tried = predict.leniently(world, one.action, predict.Hints({}))
        assert tried.refusal is None
        assert tried.record is not None
        assert tried.record.admitted is True
    assert broken >= 3
