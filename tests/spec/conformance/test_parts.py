"""The parts of the oracle one by one: what is hidden, what is a guess, and what a verdict is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve, fields_dict

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.errors import ContractBroken
from kvproof.core.records import Record
from kvproof.core.world import Status, World
from kvproof.spec import judge, laws
from kvproof.spec.conformance import shadow
from kvproof.spec.conformance.adapter import HostState, Key, Observation, PoolState, RequestState, Shows, State, Transfer
from kvproof.spec.conformance.differences import Noting
from kvproof.spec.conformance.hidden import is_hidden, what_of
from kvproof.spec.conformance.masks import BYTES, INTERNALS, PLAN, Mask
from kvproof.spec.conformance.oracle import OF_THE_COUNT, Oracle, Verdict
from kvproof.spec.conformance.reference import ALL, ModelAdapter
from kvproof.spec.conformance.shadow import Shadow
from kvproof.spec.engines import scopes
from kvproof.spec.ground_host import host_of
from kvproof.spec.laws.base import Evidence, Law, Moment
from tests.spec.conformance.moments import CONFIG, NOTHING_ELSE, SUBMIT, first, followed, moments, performed

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
    told = {type(moment.action) for moment in moments() if moment.record is not None}
    assert {act.Allocate, act.Drain, act.BuildMetadata, act.Execute, act.LookupExternal, act.CompleteLoad} <= told
    for moment in moments():
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
    moment, record = performed(act.Execute, lambda record: record.reads)
    for hidden in (Shows.TABLES, Shows.COPIES, Shows.TRANSFERS):
        seen = Mask.of(CONFIG, ALL - {hidden}).record(moment.action, record)
        assert what_of(seen.reads) == hidden.value  # type: ignore[arg-type]
    assert Mask.of(CONFIG, ALL).record(moment.action, record) is moment.record


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


def test_what_an_answer_leaves_out_is_not_known_whatever_else_is_shown() -> None:
    """Not even where nothing differs from the model: its prediction is no answer."""

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

    for shows, more in ((ALL, {}), (ALL, {9: 1}), (ALL - {Shows.KEYS}, {})):
        assert repr(taken(shows, more)) == "<hidden: an answer without taken>"


@pytest.mark.parametrize("hidden", [Shows.TABLES, Shows.KEYS, Shows.REFERENCES])
def test_the_own_bookkeeping_is_known_only_where_all_that_it_follows_from_is_shown(hidden: Shows) -> None:
    world = first(lambda world: world.requests)
    state = Mask.of(CONFIG, ALL - {hidden}).world(world).requests[0].groups[0]
    assert repr(state.partial_index) == f"<hidden: {hidden.value}>"


def test_an_answer_says_nothing_of_reads_where_the_bytes_are_not_followed() -> None:
    adapter, follower = followed(ALL - {Shows.COPIES})
    steps = (act.BeginStep(), act.Lookup(0), act.Allocate(0, 8), act.Drain(), act.BuildMetadata(), act.Dispatch())
    for action in steps:
        follower.observe(action, adapter.perform(action))
    part = act.Execute(CONFIG.parts[0])
    shown = adapter.perform(part)
    seen = follower.observe(part, evolve(shown, result={**shown.result, "reads": ((0, 1, 2, 3, 4),)}))
    assert seen.differences == ()
    assert is_hidden(seen.moment.record and seen.moment.record.reads)


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
    """Five blocks are free: two are twice there, four are not. What was judged before does not hold any more."""
    for amount, guess in ((8, ""), (20, "admission")):
        oracle = Oracle([_law(lambda _: [])], scopes.by_name("fa4-m4-n2-tight").config(), ())
        tokens = tuple(number % 2 for number in range(21))
        for action in (act.Submit(0, tokens, skip_reading=True), act.BeginStep(), act.Lookup(0)):
            oracle.observe(action, Observation())
        assert oracle.shadow.guess == ""
        assert oracle.finding("XX-1").verdict is Verdict.HOLDS
        oracle.observe(act.Allocate(0, amount), Observation())
        assert oracle.shadow.guess == guess
        seen, _ = oracle.observe(act.Drain(), Observation())
        assert oracle.shadow.guess == guess
        assert is_hidden(seen.moment.after) == bool(guess)
        assert oracle.finding("XX-1").verdict is (Verdict.UNDETERMINED if guess else Verdict.HOLDS)


def test_a_hit_that_is_adopted_and_not_shown_is_a_guess() -> None:
    for skip in (True, False):
        follower = Shadow(CONFIG, (Shows.ADMISSION,))
        for action in (evolve(SUBMIT, skip_reading=skip), act.BeginStep(), act.Lookup(0)):
            follower.observe(action, Observation())
        assert follower.guess == ""
        follower.observe(act.Allocate(0, 8), Observation({"admitted": True}))
        assert follower.guess == ("" if skip else "hits")


def test_whom_a_failed_output_takes_its_blocks_from_is_a_guess() -> None:
    adapter, follower = followed(ALL - {Shows.ADMISSION})
    steps: tuple[Action, ...] = (
        act.BeginStep(),
        act.Lookup(0),
        act.Allocate(0, 8),
        act.Drain(),
        act.BuildMetadata(),
        act.Dispatch(),
    )
    for action in (*steps, *(act.Execute(part) for part in CONFIG.parts)):
        assert follower.observe(action, adapter.perform(action)).moment.refusal is None
    assert follower.guess == ""
    follower.observe(act.Output(0, failed=True), evolve(adapter.perform(act.Dispatch()), refusal=None, result=NOTHING_ELSE))
    assert follower.guess == "admission"


def test_behind_an_admission_that_the_model_puts_off_plan_and_internals_are_not_known() -> None:
    adapter, follower = followed()
    for action in (act.BeginStep(), act.Lookup(0)):
        follower.observe(action, adapter.perform(action))
    pool = follower.world.pool
    follower.world = evolve(follower.world, pool=evolve(pool, free=()))  # nothing is free: even leniently it would wait
    seen = follower.observe(act.Allocate(0, 8), adapter.perform(act.Allocate(0, 8)))
    assert "admitted" in [difference.what for difference in seen.differences]
    assert parts(seen.moment.after) == {PLAN: True, INTERNALS: True, BYTES: False}
    assert seen.moment.after.requests[0].status is Status.RUNNING


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


@pytest.mark.parametrize("said", [True, False])
def test_an_answer_that_is_not_declared_tells_no_admission(said: bool) -> None:
    """Tables are declared, and they tell; with nothing declared it stays a guess."""
    adapter, follower = ModelAdapter(shows=frozenset({Shows.TABLES})), Shadow(CONFIG, {Shows.TABLES})
    adapter.start(CONFIG)
    for action in (evolve(SUBMIT, skip_reading=True), act.BeginStep(), act.Lookup(0)):
        follower.observe(action, adapter.perform(action))
    shown = adapter.perform(act.Allocate(0, 8))
    seen = follower.observe(act.Allocate(0, 8), evolve(shown, result={"admitted": said}))
    assert (follower.guess, seen.differences) == ("", ())
    assert seen.moment.record is not None
    assert seen.moment.record.admitted is True
    bare = Shadow(scopes.by_name("fa4-m4-n2-tight").config(), ())
    tokens = tuple(number % 2 for number in range(21))
    for action in (act.Submit(0, tokens, skip_reading=True), act.BeginStep(), act.Lookup(0)):
        bare.observe(action, Observation())
    bare.observe(act.Allocate(0, 20), Observation({"admitted": said}))
    assert bare.guess == "admission"


def test_an_allocation_that_is_put_off_changes_nothing_whatever_the_model_makes_of_it() -> None:
    """Admitted by the model, or refused by it (nothing was looked up)."""
    for looked in (True, False):
        adapter, follower = followed()
        shown = adapter.perform(act.BeginStep())
        follower.observe(act.BeginStep(), shown)
        if looked:
            shown = adapter.perform(act.Lookup(0))
            follower.observe(act.Lookup(0), shown)
        before = follower.world
        seen = follower.observe(act.Allocate(0, 8), evolve(shown, result={"admitted": False, "events": ()}))
        assert seen.differences
        assert follower.world == evolve(before, hit=None)
        assert not follower.mask.lost


def test_without_transfers_nobody_knows_who_holds_host_blocks_and_they_are_counted_anew() -> None:
    """Only where something differs from the prediction; else its references are right."""
    world = first(lambda world: any(host_of(world).pool.ref))
    host = host_of(world)
    wrong = evolve(world, host=evolve(host, pool=evolve(host.pool, ref=(0,) * len(host.pool.ref))))
    follower, noting = Shadow(CONFIG, ALL - {Shows.TRANSFERS}), Noting()
    assert follower._repaired(wrong, noting) is wrong
    assert noting.differs("events", (), (1,))
    assert host_of(follower._repaired(wrong, noting)).pool.ref == host.pool.ref
    assert host_of(Shadow(CONFIG, ALL)._repaired(wrong, noting)).pool.ref == host_of(wrong).pool.ref


# --- refusals -----------------------------------------------------------------------------------------------------------


def test_whether_an_id_may_be_used_again_only_transfers_tell() -> None:
    """A load that is only guessed may still mention it; without a host tier there is none."""
    said = Observation(refusal="this id is taken")
    for shows, hidden in ((), True), ((Shows.TRANSFERS,), False):
        host = HostState(PoolState(), loads=(), stores=()) if shows else None
        seen = Shadow(CONFIG, shows).observe(SUBMIT, evolve(said, state=State(host=host)))
        assert is_hidden(seen.moment.refusal) == hidden
    looked = Shadow(CONFIG, ALL - {Shows.HITS}, partial=True).observe(act.LookupExternal(0, 0), said)
    assert is_hidden(looked.moment.refusal)
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
