"""The parts of the oracle one by one: what is hidden, what is followed, and what is taken over from what is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from attrs import evolve, fields_dict

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.errors import ContractBroken
from kvproof.core.offload.state import Host, Load, PendingHit, Queued, Stage, Store, Track
from kvproof.core.records import Record
from kvproof.core.world import DeferredFree, GroupState, Status, World
from kvproof.spec import judge, laws
from kvproof.spec.conformance import answers, override, predict, shadow
from kvproof.spec.conformance.adapter import HostState, Key, Observation, PoolState, RequestState, Shows, State, Transfer
from kvproof.spec.conformance.differences import Noting
from kvproof.spec.conformance.hidden import is_hidden, what_of
from kvproof.spec.conformance.masks import BYTES, INTERNALS, PLAN, Mask
from kvproof.spec.conformance.oracle import OF_THE_COUNT, Oracle, Verdict
from kvproof.spec.conformance.override import Overriding
from kvproof.spec.conformance.reading import Reader
from kvproof.spec.conformance.reference import ALL, ModelAdapter
from kvproof.spec.conformance.shadow import Shadow
from kvproof.spec.engines import scopes
from kvproof.spec.laws.base import Evidence, Law, Moment
from tests.spec.conformance.following import walk

CONFIG = scopes.by_name("fa4-m4-n2-host").config()
LAZY = scopes.by_name("fa4-m8-n2-lazy").config()
MOMENTS = [seen.followed for seen in walk(ModelAdapter(), "fa4-m4-n2-host", "e2", 400, laws=()).seen]
"""A run with a host tier, nothing hidden."""


def host_of(world: World) -> Host:
    assert world.host is not None
    return world.host


def first(true: Callable[[World], object]) -> World:
    """The first world of the run of which something is true."""
    return next(moment.after for moment in MOMENTS if true(moment.after))


def moment_of(action: type[Action], true: Callable[[Record], object] = bool) -> Moment:
    """The first moment of an action that was performed and of whose record something is true."""
    return next(one for one in MOMENTS if isinstance(one.action, action) and one.record is not None and true(one.record))


def record_of(moment: Moment) -> Record:
    assert moment.record is not None
    return moment.record


# --- what is hidden -----------------------------------------------------------------------------------------------------

FOLLOWS = {
    ("Submit", "num_tokens"),
    ("Dispatch", "scheduled"),
    ("Dispatch", "preempted"),
    ("Output", "num_tokens"),
    ("Output", "rejected"),
    ("Promote", "computed"),
}
"""What a record says that follows from the actions alone."""


def test_with_nothing_shown_a_record_says_only_what_follows_from_the_actions() -> None:
    mask, empty = Mask.of(CONFIG, ()), Record("")
    told = {type(moment.action) for moment in MOMENTS if moment.record is not None}
    assert {act.Allocate, act.Drain, act.BuildMetadata, act.Execute, act.LookupExternal, act.CompleteLoad} <= told
    for moment in MOMENTS:
        if moment.record is None:
            continue
        seen, name = mask.record(moment.action, moment.record), type(moment.action).__name__
        for field in fields_dict(Record).keys() - {"action"}:
            if getattr(moment.record, field) != getattr(empty, field) and (name, field) not in FOLLOWS:
                assert is_hidden(getattr(seen, field)), (name, field)


DECISIONS: dict[Action, tuple[str, ...]] = {
    act.Lookup(0): ("local", "lists", "junction", "diverged"),
    act.ResetCache(): ("done",),
    act.ResetHost(): ("done",),
    act.Dispatch(): ("local_lengths", "pending_work"),
    act.Finish(0): ("deferred", "tails", "offered", "store_device", "store_host", "store_meta", "pending_work"),
    act.CompleteStore(0): ("done", "pending_work"),
    act.CompleteLoad(0): ("freed",),
    act.ReadCounters(): ("counters", "gauge"),
}


@pytest.mark.parametrize("action", DECISIONS, ids=[type(action).__name__ for action in DECISIONS])
def test_a_decision_that_looks_like_none_is_hidden_as_well(action: Action) -> None:
    """That nothing was cleared is a decision, and the empty value of a record says it."""
    seen = Mask.of(CONFIG, ()).record(action, Record(""))
    assert all(is_hidden(getattr(seen, name)) for name in DECISIONS[action])


def test_an_admission_that_something_else_tells_is_told_and_nothing_beside_it() -> None:
    seen = Mask.of(CONFIG, {Shows.TABLES}).record(act.Allocate(0, 1), Record("Allocate", admitted=True), told=True)
    assert seen.admitted is True
    assert is_hidden(seen.demand)


def test_what_a_forward_reads_is_hidden_without_copies() -> None:
    moment = moment_of(act.Execute, lambda record: record.reads)
    for hidden in (Shows.TABLES, Shows.COPIES, Shows.TRANSFERS):
        seen = Mask.of(CONFIG, ALL - {hidden}).record(moment.action, record_of(moment))
        assert what_of(seen.reads) == hidden.value  # type: ignore[arg-type]
    assert Mask.of(CONFIG, ALL).record(moment.action, record_of(moment)) is moment.record


def test_in_which_order_keys_were_entered_only_tables_tell() -> None:
    """Without tables nobody knows whether a block held its key all the time; which keys there are is still shown."""
    world = first(lambda world: len(world.pool.entries) > 2)
    less = Mask.of(CONFIG, ALL - {Shows.TABLES}).world(world).pool
    assert [(node, group, block) for node, group, _, block in less.entries] == [
        (node, group, block) for node, group, _, block in world.pool.entries
    ]
    assert all(is_hidden(seq) for _, _, seq, _ in less.entries)
    assert is_hidden(less.next_seq)
    full = Mask.of(CONFIG, ALL - {Shows.ZEROED}).world(world).pool
    assert full.entries is world.pool.entries
    assert full.next_seq == world.pool.next_seq


def test_in_which_order_host_keys_were_entered_only_transfers_tell() -> None:
    world = first(lambda world: host_of(world).pool.entries)
    less = host_of(Mask.of(CONFIG, ALL - {Shows.TRANSFERS}).world(world)).pool
    assert [entry[3] for entry in less.entries] == [entry[3] for entry in host_of(world).pool.entries]
    assert all(is_hidden(seq) for _, _, seq, _ in less.entries)
    assert is_hidden(less.next_seq)


@pytest.mark.parametrize("hidden", [Shows.HOST, Shows.TRANSFERS])
def test_what_the_store_side_keeps_of_requests_needs_both(hidden: Shows) -> None:
    world = first(lambda world: host_of(world).tracks)
    assert is_hidden(host_of(Mask.of(CONFIG, ALL - {hidden}).world(world)).tracks)


def test_what_a_load_keeps_of_a_finished_request_is_tables() -> None:
    """Its blocks are shown as a transfer's, the tables that are freed behind it are not."""
    world = first(lambda world: any(load.held for load in host_of(world).loads))
    loads = host_of(Mask.of(CONFIG, ALL - {Shows.TABLES}).world(world)).loads
    assert [load.device for load in loads] == [load.device for load in host_of(world).loads]
    assert [is_hidden(load.held) for load in loads] == [bool(load.held) for load in host_of(world).loads]


def parts(world: World) -> dict[str, bool]:
    """Whether the parts are hidden that can get lost."""
    return {
        PLAN: is_hidden(world.plan.copies),
        INTERNALS: is_hidden(world.requests[0].groups[0].partial_index),
        BYTES: is_hidden(world.contents),
    }


def followed(shows: Iterable[Shows] = ALL) -> tuple[ModelAdapter, Shadow]:
    """An adapter and a shadow behind the submission of one request."""
    adapter = ModelAdapter(shows=frozenset(shows))
    adapter.start(CONFIG)
    follower = Shadow(CONFIG, adapter.shows)
    follower.observe(SUBMIT, adapter.perform(SUBMIT))
    return adapter, follower


SUBMIT = act.Submit(0, (0, 1, 0, 1, 1, 0, 0, 1, 1))
NOTHING_ELSE = {"events": ()}


def test_after_a_forward_that_the_model_refuses_no_bytes_are_known() -> None:
    adapter, follower = followed()
    execute = act.Execute("forward")
    done = evolve(adapter.perform(execute), refusal=None, result=NOTHING_ELSE)
    seen = follower.observe(execute, done)
    assert seen.problems
    assert parts(seen.moment.after) == {PLAN: False, INTERNALS: False, BYTES: True}
    assert "a step that the model refuses" in repr(seen.moment.after.contents)
    later = follower.observe(act.BeginStep(), adapter.perform(act.BeginStep()))
    assert parts(later.moment.after)[BYTES]


def test_after_an_admission_that_the_model_refuses_a_plan_is_known_again_when_it_is_drained() -> None:
    adapter, follower = followed()
    answer = {"admitted": True, "events": ()}
    for action in (
        evolve(SUBMIT, request=1),
        act.BeginStep(),
        act.Allocate(0, 8),
    ):  # a request that reads the cache is looked up first
        shown = adapter.perform(action)
        if isinstance(action, act.Allocate):
            assert shown.refusal is not None
            shown = evolve(shown, refusal=None, result=answer)
        seen = follower.observe(action, shown)
    assert parts(seen.moment.after) == {PLAN: True, INTERNALS: True, BYTES: False}
    refused = follower.observe(act.Dispatch(), adapter.perform(act.Dispatch()))
    assert parts(refused.moment.after)[PLAN]
    looked = follower.observe(act.Lookup(1), adapter.perform(act.Lookup(1)))
    assert looked.moment.refusal is None
    assert parts(looked.moment.after)[PLAN]
    drained = follower.observe(act.Drain(), adapter.perform(act.Drain()))
    assert parts(drained.moment.after) == {PLAN: False, INTERNALS: True, BYTES: False}


def test_what_an_answer_leaves_out_is_known_only_where_nothing_differs_and_all_of_it_is_shown() -> None:
    """There the model's own bookkeeping is the implementation's."""

    def taken(shows: frozenset[Shows], more: dict[int, int]) -> object:
        adapter, follower = followed(shows)
        for action in (act.BeginStep(), act.Lookup(0)):
            follower.observe(action, adapter.perform(action))
        shown = adapter.perform(act.Allocate(0, 8))
        short = {name: value for name, value in shown.result.items() if name in ("admitted", "events")}
        device = evolve(shown.state.device, references={**(shown.state.device.references or {}), **more})
        seen = follower.observe(act.Allocate(0, 8), evolve(shown, result=short, state=evolve(shown.state, device=device)))
        assert bool(seen.differences) == bool(more)
        assert seen.moment.record is not None
        assert seen.moment.record.admitted is True
        return seen.moment.record.taken

    assert taken(ALL, {}) == (1, 2)
    assert repr(taken(ALL, {9: 1})) == "<hidden: Allocate.taken>"
    assert repr(taken(ALL - {Shows.KEYS}, {})) == "<hidden: Allocate.taken>"


# --- what is not declared -----------------------------------------------------------------------------------------------


def test_what_is_not_declared_is_not_looked_at() -> None:
    """State and answers of another run, shown by one that declares nothing: nothing differs and nothing is taken over."""
    follower = Shadow(CONFIG, ())
    pool = PoolState({3: 1}, (5, 4), (Key(3, 0, 4, "0123456789ab"),))
    host = HostState(pool, (), (Transfer((3,), (1,), request=0),), (), (), (), (), {0: (1, 1)}, 2, {"published": 3})
    lies = State(
        pool,
        {0: RequestState(((1,), (2,)), (1, 1))},
        host,
        {0: ((1,), (2,))},
        copies=((1, 2),),
        handoffs=((0, 1, 2, 4),),
        deferred=((1, (2,)),),
    )
    for action, result in (
        (SUBMIT, {}),
        (act.BeginStep(), {}),
        (act.Lookup(0), {"local": 4, "lists": ((1,), (2,)), "junction": 8}),
        (act.Drain(), {"copies": ((0, 1, 2),), "zeroed": (3,), "handoffs": ((0, 1, 2, 4),)}),
        (act.BuildMetadata(), {"store_event": 0, "store_device": (3,), "store_host": (1,)}),
    ):
        expected = judge.attempt(follower.world, action).after
        seen = follower.observe(action, Observation(result, lies))
        assert seen.differences == (), type(action).__name__
        assert follower.world == expected


# --- admissions ---------------------------------------------------------------------------------------------------------


def test_an_admission_that_nothing_tells_is_a_guess_for_the_rest_of_the_run() -> None:
    config = scopes.by_name("fa4-m4-n2-tight").config()
    follower = Shadow(config, ())
    free = len(follower.world.pool.free)
    tokens = tuple(number % 2 for number in range(4 * config.dcp_size * (free // 2)))
    for action in (act.Submit(0, tokens, skip_reading=True), act.BeginStep(), act.Lookup(0)):
        follower.observe(action, Observation())
        assert not follower.guess
    follower.observe(act.Allocate(0, len(tokens)), Observation())
    assert follower.guess == "admission"
    seen = follower.observe(act.Drain(), Observation())
    assert follower.guess == "admission"
    assert is_hidden(seen.moment.after)


def test_a_status_tells_an_admission_only_of_who_did_not_run() -> None:
    _, follower = followed()
    waiting, request = follower.world, follower.world.requests[0]
    running = evolve(waiting, requests=(evolve(request, status=Status.RUNNING),))

    def told(world: World, status: str, load: bool = False) -> bool | None:
        shown = Observation(state=State(requests={0: RequestState(status=status)}))
        return shadow.admitted_by(world, act.Allocate(0, 0 if load else 1, load=load), shown)

    assert told(waiting, "running") is True
    assert told(waiting, "waiting") is False
    assert told(waiting, "loading", load=True) is True
    assert told(waiting, "running", load=True) is False
    assert told(running, "running") is None


def test_an_allocation_that_is_put_off_changes_nothing_whatever_the_model_makes_of_it() -> None:
    """Admitted by the model, or refused by it (nothing was looked up)."""
    for looked in (True, False):
        adapter, follower = followed()
        for action in (act.BeginStep(), *((act.Lookup(0),) if looked else ())):
            shown = adapter.perform(action)
            follower.observe(action, shown)
        before = follower.world
        seen = follower.observe(act.Allocate(0, 8), evolve(shown, result={"admitted": False, "events": ()}))
        assert seen.differences
        assert follower.world == evolve(before, hit=None)
        assert not follower.mask.lost


# --- refusals -----------------------------------------------------------------------------------------------------------


def test_whether_an_id_may_be_used_again_only_transfers_tell() -> None:
    """A load that is only guessed may still mention it; without a host tier there is none."""
    said = Observation(refusal="this id is taken")
    for shows, hidden in ((), True), ((Shows.TRANSFERS,), False):
        host = HostState(PoolState(), loads=(), stores=()) if shows else None
        seen = Shadow(CONFIG, shows).observe(SUBMIT, evolve(said, state=State(host=host)))
        assert is_hidden(seen.moment.refusal) == hidden
    seen = Shadow(scopes.by_name("fa4").config(), ()).observe(SUBMIT, said)
    assert type(seen.moment.refusal) is ContractBroken


# --- verdicts -----------------------------------------------------------------------------------------------------------


def test_the_count_of_a_request_is_not_judged_if_nothing_tells_what_was_admitted() -> None:
    for shows in (frozenset({Shows.HITS}), frozenset({Shows.REFERENCES, Shows.FREE_QUEUE}), frozenset({Shows.TABLES})):
        adapter = ModelAdapter(shows=shows)
        adapter.start(CONFIG)
        oracle = Oracle(laws.ALL, CONFIG, shows)
        submit = evolve(SUBMIT, skip_reading=True)
        for action in (submit, act.BeginStep()):
            oracle.observe(action, adapter.perform(action))
        found = {law: oracle.finding(law) for law in OF_THE_COUNT}
        judged = {law for law, finding in found.items() if finding.judged}
        hidden = {law for law, finding in found.items() if "admission" in finding.hidden}
        assert (bool(judged), bool(hidden)) == (Shows.TABLES in shows, Shows.TABLES not in shows)


def _law(check: Callable[[Moment], list[Evidence] | None], **more: Any) -> Law:
    return evolve(laws.ALL[0], id="XX-1", on=(), check=check, check_config=None, check_run=None, check_end=None, **more)


def test_a_law_that_cannot_make_sense_of_a_moment_does_not_hold() -> None:
    def stumbles(moment: Moment) -> list[Evidence] | None:
        if isinstance(moment.action, act.BeginStep):
            raise KeyError("row 3")
        return []

    oracle = Oracle([_law(stumbles)], CONFIG, ())
    oracle.observe(SUBMIT, Observation())
    assert oracle.finding("XX-1").verdict is Verdict.HOLDS
    oracle.observe(act.BeginStep(), Observation())
    assert oracle.finding("XX-1").verdict is Verdict.UNDETERMINED
    assert "KeyError: 'row 3'" in oracle.finding("XX-1").reason


def test_only_what_is_bendable_is_excused_by_a_profile() -> None:
    for bendable, verdict in ((True, Verdict.HOLDS), (False, Verdict.REFUTED)):
        broken = _law(
            lambda moment, bendable=bendable: [Evidence("no", (), bendable=bendable)],  # type: ignore[misc]
            bent_by=(("append_guard", CONFIG.profile.append_guard),),
        )
        oracle = Oracle([broken], CONFIG, ())
        oracle.observe(SUBMIT, Observation())
        assert oracle.finding("XX-1").verdict is verdict


# --- what is taken over -------------------------------------------------------------------------------------------------


def overridden(world: World, before: World, **shown: Any) -> Host:
    """The host side of a world with some of its parts replaced by what is shown."""
    return host_of(Overriding(Reader.of(CONFIG, 0)).state(world, State(host=HostState(**shown)), Noting(), before))


def test_stores_that_wait_count_as_being_in_flight() -> None:
    world = MOMENTS[0].after
    queued = evolve(world, host=evolve(host_of(world), queued=(Queued((3,), (2,), None),), in_flight=(3,)))
    assert overridden(queued, world, queued=()).in_flight == ()
    assert overridden(world, world, queued=(Transfer((4,), (1,)),)).in_flight == (4,)


def test_a_number_that_was_only_predicted_is_not_used_up() -> None:
    """The model stores and loads in this step and the implementation does not: its next step has the same numbers."""
    world = MOMENTS[0].after
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


def test_how_far_a_transfer_has_come_is_what_is_shown() -> None:
    world = MOMENTS[0].after
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
    world = MOMENTS[0].after
    predicted = evolve(world, host=evolve(host_of(world), tracks=(Track(0, (0, 0), (7,)), Track(1, (2, 2)))))
    shown = overridden(predicted, world, cursors={0: (1, 1), 5: (3, 0)})
    assert shown.tracks == (Track(0, (1, 1), (7,)), Track(5, (3, 0)))


def test_frees_that_wait_are_those_that_are_shown() -> None:
    overriding = Overriding(Reader.of(CONFIG, 0))
    known = DeferredFree(3, ((1, 2), (4,)))
    world = evolve(MOMENTS[0].after, deferred=(known, DeferredFree(4, ((5,),))))
    shown = State(deferred=((3, (1, 2, 4)), (6, (7, 8))))
    assert overriding.state(world, shown, Noting(), world).deferred == (known, DeferredFree(6, ((7, 8),)))


def test_no_more_of_a_shorter_table_is_registered_than_there_is() -> None:
    state = GroupState((1, 2, 3), num_cached=3)
    assert override.with_table(state, (1,)) == GroupState((1,), num_cached=1)
    assert override.with_table(state, (1, 2, 3, 4)).num_cached == 3


def test_a_free_queue_begins_in_another_order_and_not_with_other_blocks() -> None:
    pool = MOMENTS[0].before.pool
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
    pool = MOMENTS[0].before.pool
    assert override.requeued(evolve(pool, free=pool.free[2:])).free == (*pool.free[2:], *pool.free[:2])


# --- what is answered ---------------------------------------------------------------------------------------------------


def test_the_hit_and_the_junction_are_those_of_the_answer() -> None:
    _, follower = followed()
    record = Record("Lookup", local=4, lists=((1,), (2,)), junction=8)
    world = answers.taken_in(follower.world, act.Lookup(0), record, {"local": 4})
    assert world.hit is not None
    assert (world.hit.local, world.hit.lists, world.requests[0].junction) == (4, ((1,), (2,)), 8)


def test_what_a_drain_hands_out_is_what_the_step_has() -> None:
    moment = moment_of(act.Drain)
    record = Record("Drain", copies=((0, 1, 2),), handoffs=((0, 1, 2, 4),), zeroed=(5,))
    assert record.handoffs != moment.after.plan.drained
    changed = {"copies": record.copies, "handoffs": record.handoffs, "zeroed": record.zeroed}
    plan = answers.taken_in(moment.after, act.Drain(), record, changed).plan
    assert (plan.copies, plan.drained, [block for _, block in plan.zero]) == (record.copies, record.handoffs, [5])
    assert answers.taken_in(moment.after, act.Drain(), record, {}) is moment.after


def test_a_store_is_the_one_that_the_worker_is_told() -> None:
    """It replaces the predicted one, and takes up what waited."""
    moment = moment_of(act.BuildMetadata, lambda record: len(record.store_device) > 1)
    told = evolve(
        record_of(moment), store_device=record_of(moment).store_device[:1], store_host=record_of(moment).store_host[:1]
    )
    host = host_of(answers.taken_in(moment.after, act.BuildMetadata(), told, {"store_device": told.store_device}))
    (store,) = [store for store in host.stores if store.event == told.store_event]
    assert (store.device, store.host) == (told.store_device, told.store_host)
    assert host.queued == ()


def test_a_pair_that_the_worker_is_not_told_of_is_not_loaded() -> None:
    moment = moment_of(act.BuildMetadata, lambda record: len(record.load_device) > 1)
    told = evolve(record_of(moment), load_device=record_of(moment).load_device[:-1], load_host=record_of(moment).load_host[:-1])
    host = host_of(answers.taken_in(moment.after, act.BuildMetadata(), told, {"load_device": told.load_device}))
    copied = [block for load in host.loads if load.event == told.load_event for block in load.device]
    assert sorted(copied) == sorted(told.load_device)


def test_a_host_hit_is_pinned_as_it_is_answered() -> None:
    moment = moment_of(act.LookupExternal, lambda record: record.external)
    action, record = moment.action, record_of(moment)
    assert isinstance(action, act.LookupExternal)

    def pinned(answer: Record, after: World) -> list[PendingHit]:
        pending = host_of(answers.taken_in(after, action, answer, {"external": answer.external})).pending
        return [hit for hit in pending if hit.request == action.request]

    assert pinned(evolve(record, external=0, lists=()), moment.after) == []
    more = evolve(record, external=record.external + 4)
    assert [hit.length for hit in pinned(more, moment.after)] == [more.external]
    assert [hit.length for hit in pinned(more, moment.before)] == [more.external]


def test_a_load_asks_for_the_copies_of_the_answer() -> None:
    moment = moment_of(act.Allocate, lambda record: record.pairs)
    fewer = evolve(record_of(moment), pairs=record_of(moment).pairs[:-1])
    action = moment.action
    assert isinstance(action, act.Allocate)
    host = host_of(answers.taken_in(moment.after, action, fewer, {"pairs": fewer.pairs}))
    (load,) = [load for load in host.loads if load.request == action.request]
    assert (load.device, load.host) == (tuple(row[2] for row in fewer.pairs), tuple(row[3] for row in fewer.pairs))


# --- what is predicted --------------------------------------------------------------------------------------------------


def test_the_model_stores_where_the_implementation_does() -> None:
    moment = moment_of(act.BuildMetadata, lambda record: record.store_host)
    free = [block for block in host_of(moment.before).pool.free if block not in record_of(moment).store_host]
    wanted = tuple(free[-len(record_of(moment).store_host) :])
    tried = predict.predict(moment.before, moment.action, predict.Hints({"store_host": wanted}))
    assert record_of(tried).store_host == wanted
    assert type(host_of(tried.after).pool.free) is tuple


def test_a_lazy_walk_comes_over_what_was_stored_from_the_beginning() -> None:
    lazy = next(
        one.after
        for one in (seen.followed for seen in walk(ModelAdapter(), "fa4-m8-n2-lazy", "e2", 200, laws=()).seen)
        if one.after.host is not None and one.after.host.cursor != -1 and len(one.after.pool.free) > 3
    )
    stored = (lazy.pool.free[2], lazy.pool.free[0], 10**6)
    over = predict.walked_over(lazy, host_of(lazy), stored)
    assert (over.pool.free, host_of(over).cursor) == (stored[:2], -1)
    eager = MOMENTS[-1].after
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
    assert record_of(judge.attempt(world, allocate)).admitted is False
    tried = predict.leniently(world, allocate, predict.Hints({}))
    assert record_of(tried).admitted is True
    assert tried.before is world
    assert tried.after.plan.cached[0] == (1, 1, 0)
    assert (1, 1, 0) not in tried.after.plan.cached[1:]
    assert tried.after.config is world.config


def test_a_placeholder_is_no_block_that_was_taken() -> None:
    """A table that has one where the model has a block says nothing of what was taken there."""
    moment = moment_of(act.Allocate, lambda record: record.taken)
    action = moment.action
    assert isinstance(action, act.Allocate)
    (request,) = [live for live in moment.after.requests if live.request == action.request]
    nulls = tuple(tuple(0 for _ in state.table) for state in request.groups)
    assert predict.taken_instead(moment, action, predict.Hints({}, nulls)) == ()
