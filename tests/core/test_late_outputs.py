"""Preempted or finished with a step in flight (T31, T32, T36, T37, T39)."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import errors, requests
from kvproof.core.config import Group, configure
from kvproof.core.step import refusal, step
from kvproof.core.world import Status
from kvproof.spec import macros
from tests.driving import Driver
from tests.in_flight import admit, attention, dispatch, free_blocks, hybrid, refused, run

# --- preempted in flight (T31, T37.1) -----------------------------------------------------------------------------


def in_flight(**settings: Any) -> Driver:
    """T36's example: 23 tokens, 22 computed; a step of one token and 3 drafts is dispatched, and the next plan is open."""
    driver = Driver(attention(num_draft_tokens=3, **settings))
    driver.submit(0, 20)
    driver.chunk(0, 20)
    dispatch(driver, act.Allocate(0, 4, drafts=(5, 6, 7)))
    run(driver)
    driver.do(act.Output(0, (5, 8)))
    assert driver.counts(0) == (22, 23, 0)
    dispatch(driver, act.Allocate(0, 4, drafts=(1, 2, 3)))
    driver.do(act.BeginStep())
    assert driver.counts(0) == (26, 23, 4)
    return driver


def test_a_late_output_is_delivered_and_changes_nothing_else() -> None:
    """G15, T31.3, T36, RQ-2: preempted with 4 in flight: computed 0, stale 4; a late output of 3 tokens: 26 tokens, computed 0."""
    driver = in_flight()
    driver.do(act.Preempt(0))
    request = driver.request(0)
    assert (request.status, request.computed, request.stale, request.drop_stale) == (Status.PREEMPTED, 0, 4, False)
    assert (request.in_flight, request.placeholders, request.num_preemptions) == (4, 0, 1)
    driver.do(*macros.CLOSE)
    run(driver)
    before = driver.world
    assert driver.do(act.Output(0, (1, 2, 9))).rejected == 1
    request = driver.request(0)
    assert (request.computed, request.num_tokens, request.in_flight, request.stale) == (0, 26, 0, 0)
    assert driver.spelled(request.tip)[20:] == [9, 5, 8, 1, 2, 9]
    assert driver.world.pool == before.pool
    assert driver.world.contents == before.contents
    assert driver.world.worker == before.worker


def test_a_late_output_must_fit_its_chunk_too() -> None:
    """T36: what is delivered late are accepted drafts and one more, as for any output."""
    driver = in_flight()
    driver.do(act.Preempt(0))
    driver.do(*macros.CLOSE)
    run(driver)
    for tokens in ((), (2, 9), (1, 2, 3, 4, 5)):
        assert refused(driver, act.Output(0, tokens)) is errors.OutputMismatch


def test_a_dropped_output_is_ignored() -> None:
    """T31.3, T36.4: with `drop_stale` only the counts fall; the tokens are not even looked at."""
    driver = in_flight()
    driver.do(act.Preempt(0, drop_stale=True))
    assert driver.request(0).drop_stale
    driver.do(*macros.CLOSE)
    run(driver)
    driver.do(act.Output(0, (1, 2, 9)))
    request = driver.request(0)
    assert (request.computed, request.num_tokens, request.in_flight, request.stale) == (0, 23, 0, 0)
    assert not request.drop_stale


OUTCOMES = [
    (2, (8,), 5, 2),
    (2, (5, 8), 6, 4),
    (2, (5, 6, 8), 7, 5),
    (4, (8,), 5, 1),
    (4, (5, 8), 6, 2),
    (4, (5, 6, 8), 7, 3),
]
"""Mamba block size; what comes behind drafts 5 and 6; where the next chunk starts; the column in which it finds its state.

The step ends at 7: the states at 5, 6 and 7 stand in columns 3 to 5, with blocks of four tokens 1 to 3 (3.6). Only a next chunk
of small blocks that ends at 6 runs in another column, 2, into which the pre-copy moves the state at 5.
"""


def placeholders_behind_drafts(block_size: int) -> Driver:
    """Mamba with 2 spare blocks: of 5 tokens the last is executed with 2 drafts, a plan of one token behind is dispatched."""
    groups = (Group("full_attention", 1), Group("mamba_align", block_size, speculative_blocks=2))
    driver = Driver(
        configure(groups, num_blocks=40, max_model_len=32, num_draft_tokens=2, max_steps_in_flight=2, async_outputs=True)
    )
    driver.submit(0, 4)
    for amount in (2, 1, 1) if block_size == 2 else (3, 1):
        driver.chunk(0, amount)
    dispatch(driver, act.Allocate(0, 3, drafts=(5, 6)))
    run(driver)
    dispatch(driver, act.Allocate(0, 1))
    return driver


@pytest.mark.parametrize("parts", [0, 1, 2, 3])
@pytest.mark.parametrize(("block_size", "tokens", "start", "column"), OUTCOMES)
def test_a_chunk_in_flight_goes_on_from_the_kept_tokens_although_its_request_was_preempted(
    parts: int, block_size: int, tokens: tuple[int, ...], start: int, column: int
) -> None:
    """C-85: its own output is delivered late, so it waits for the one before it and reads what it would have read."""
    driver = placeholders_behind_drafts(block_size)
    driver.do(*macros.EXECUTE[:parts], act.Preempt(0), *macros.EXECUTE[parts:3])
    assert refused(driver, macros.EXECUTE[3]) is errors.OutputPending
    before = driver.world
    driver.do(act.Output(0, tokens))
    assert (driver.world.contents, driver.world.pool) == (before.contents, before.pool)
    (share,) = driver.world.steps[0].scheduled
    assert (share.start, share.pending, driver.world.worker.accepted[share.row]) == (start, 0, len(tokens))
    driver.do(macros.EXECUTE[3])
    before = driver.world
    ((_, group, read, block, boundary),) = driver.do(macros.EXECUTE[4]).reads
    assert (group, read, boundary) == (1, column, start)
    assert driver.spelled(before.contents[block][1]) == [*driver.spelled(share.tip)[:5], *(5, 6)[: len(tokens) - 1]]
    assert driver.spelled(share.tip)[5:] == list(tokens)
    after = driver.world
    assert after.contents[after.worker.rows[0][share.row][start]] == (0, share.tip)
    assert after.contents[after.worker.rows[1][share.row][after.worker.columns[share.row][1]]] == (1, share.tip)
    assert driver.do(act.Output(0, (9,))).num_tokens == 5 + len(tokens) + 1
    request = driver.request(0)
    assert (request.status, request.computed, request.in_flight, request.stale) == (Status.PREEMPTED, 0, 0, 0)


@pytest.mark.parametrize(("block_size", "tokens", "start", "column"), OUTCOMES)
def test_a_preemption_between_the_parts_of_a_chunk_that_knows_its_start_changes_nothing(
    block_size: int, tokens: tuple[int, ...], start: int, column: int
) -> None:
    """C-85: reads, contents and rows are those of the run without it."""
    running, preempted = placeholders_behind_drafts(block_size), placeholders_behind_drafts(block_size)
    running.do(act.Output(0, tokens), *macros.EXECUTE)
    preempted.do(act.Output(0, tokens), *macros.EXECUTE[:4], act.Preempt(0), macros.EXECUTE[4])
    assert preempted.records[-1].reads == running.records[-1].reads
    ((_, _, read, _, boundary),) = preempted.records[-1].reads
    assert (read, boundary) == (column, start)
    assert preempted.world.contents == running.world.contents
    assert preempted.world.worker == running.world.worker


@pytest.mark.parametrize("ending", [act.Preempt(0, drop_stale=True), act.Finish(0)])
@pytest.mark.parametrize("parts", [0, 3, 4])
def test_a_chunk_whose_output_nobody_takes_is_never_corrected(ending: act.Action, parts: int) -> None:
    """T36.3, T36.4, C-85: its tokens never become known; an output between its parts leaves start and columns alone."""
    driver = placeholders_behind_drafts(2)
    driver.do(*macros.EXECUTE[: min(parts, 3)], ending, *macros.EXECUTE[3:parts])
    (before,) = driver.world.steps[1].scheduled
    worker = driver.world.worker
    driver.do(act.Output(0, (8,)))
    assert driver.world.steps[0].scheduled == (before,)
    assert driver.world.worker == worker
    driver.do(*macros.EXECUTE[parts:])
    assert driver.records[-1].reads[0][4] == 7


def test_resuming_waits_for_a_late_output_that_is_delivered() -> None:
    """T37.1: refused while it is due; afterwards the request is looked up over all its tokens, the late ones too."""
    driver = in_flight()
    driver.do(act.Preempt(0), *macros.CLOSE)
    run(driver)
    run(driver)
    driver.do(act.BeginStep())
    late = refusal(driver.world, act.Lookup(0))
    assert isinstance(late, errors.StaleOutput)
    assert late.values == {"stale": 4}
    driver.do(*macros.CLOSE)
    run(driver)
    driver.do(act.Output(0, (1, 2, 9)))
    driver.do(act.BeginStep())
    assert driver.do(act.Lookup(0)).local == 16
    driver.do(act.Allocate(0, 10, 16))
    driver.close((0, 4))
    assert driver.counts(0) == (26, 27, 0)


def test_a_dropped_output_arrives_after_the_request_was_resumed() -> None:
    """M-LATE-1's scenario, RQ-2: two shares of one request are in flight, the older of them is ignored."""
    driver = in_flight()
    driver.do(act.Preempt(0, drop_stale=True), *macros.CLOSE)
    run(driver)
    run(driver)
    assert [len(each.due) for each in driver.world.steps] == [1]
    driver.do(act.BeginStep())
    assert driver.do(act.Lookup(0)).local == 16
    driver.do(act.Allocate(0, 7, 16), *macros.CLOSE)
    assert driver.counts(0) == (23, 23, 11)
    assert driver.request(0).stale == 4
    driver.do(act.Output(0, (1, 2, 9)))
    assert driver.counts(0) == (23, 23, 7)
    assert (driver.request(0).stale, driver.request(0).drop_stale) == (0, False)
    run(driver)
    driver.do(act.Output(0, (4,)))
    assert driver.counts(0) == (23, 24, 0)
    assert driver.spelled(driver.request(0).tip)[20:] == [9, 5, 8, 4]


@pytest.mark.parametrize(
    ("in_flight_now", "stale", "dropping", "wanted", "drops"),
    [
        (4, 0, False, False, False),
        (4, 0, False, True, True),
        (4, 2, True, False, True),
        (4, 2, False, False, False),
        (4, 0, True, False, False),
        (0, 0, False, True, False),
    ],
)
def test_what_is_dropped_stays_dropped(in_flight_now: int, stale: int, dropping: bool, wanted: bool, drops: bool) -> None:
    """T31.3: as the caller says, or as said before for a share that is still due; nothing in flight, nothing to drop."""
    request = evolve(in_flight().request(0), in_flight=in_flight_now, stale=stale, drop_stale=dropping)
    assert requests.drops_stale(request, wanted) is drops
    assert requests.stale_share(request) == in_flight_now


def test_a_chunk_of_the_prompt_that_arrives_late_brings_nothing() -> None:
    """T36.3: only the counts fall, and the request may be resumed."""
    driver = Driver(attention())
    driver.submit(0, 20)
    admit(driver, 0, 16)
    dispatch(driver, act.Preempt(0))
    run(driver)
    driver.do(act.Output(0))
    assert driver.counts(0) == (0, 20, 0)
    run(driver)
    driver.do(act.BeginStep())
    assert driver.do(act.Lookup(0)).local == 16


def test_preempted_blocks_serve_the_plan_although_a_step_still_reads_them() -> None:
    """T31.1, T0: they are free at once; the step in flight runs before every later one and is not disturbed."""
    driver = Driver(attention(4, num_blocks=4))
    driver.submit(0, (1, 2, 3, 4))
    driver.submit(1, (5, 6, 7, 8, 9))
    driver.chunk(0, 4)
    admit(driver, 1, 5)
    driver.do(act.BeginStep())
    assert driver.do(act.Allocate(0, 1)).admitted is False
    assert len(free_blocks(driver)) == 0
    (kept, lost) = driver.tables(1)[0]
    driver.do(act.Preempt(1))
    assert driver.do(act.Allocate(0, 1)).taken == (lost,)
    driver.do(*macros.CLOSE)
    run(driver)
    assert driver.cells(kept) == [5, 6, 7, 8]
    assert driver.cells(lost)[0] == 9
    run(driver)
    assert driver.spelled(driver.world.contents[lost][1]) == [1, 2, 3, 4, 9]
    assert driver.world.pool.key_node[kept] != -1


def test_a_cache_reset_preempts_in_flight() -> None:
    """T31, C-57: between plans, too, a request may have a step in flight; what it samples arrives late."""
    driver = Driver(attention())
    driver.submit(0, 20)
    admit(driver, 0, 16)
    driver.do(act.Preempt(0, drop_stale=True))
    assert (driver.request(0).stale, driver.request(0).drop_stale) == (16, True)
    assert driver.do(act.ResetCache()).done is True
    run(driver)
    driver.do(act.Output(0))
    assert (driver.request(0).stale, driver.request(0).computed) == (0, 0)


def test_undrained_handoffs_of_the_victim_vanish_and_queued_copies_run() -> None:
    """T31.4, T39: a producer withdrawn with a step in flight: its copy runs, its handoff is taken back, its keys stay moved."""
    driver = Driver(hybrid(64, 64, hash_block_size=16))
    driver.submit(0, 50)
    admit(driver, 0, 48)
    driver.do(act.BeginStep(), act.Allocate(0, 2))
    ((group, source, copy),) = driver.world.plan.copies
    assert driver.handoffs() == [(0, group, copy, 48)]
    driver.do(act.Withdraw(0))
    assert driver.handoffs() == []
    assert (driver.request(0).stale, driver.counts(0)) == (48, (0, 50, 48))
    drained = driver.dispatch()
    assert drained.handoffs == ()
    assert drained.copies == ((group, source, copy),)
    assert driver.keys(1) == {48: [copy]}
    run(driver)
    run(driver)
    assert driver.spelled(driver.world.contents[copy][1]) == list(range(1, 49))
    driver.do(act.Output(0))
    driver.do(act.BeginStep())
    assert driver.do(act.Lookup(0)).local == 48


def test_withdrawing_keeps_the_keys_of_dispatched_steps() -> None:
    """T31.1, T39.2: the keys of the withdrawn plan go, those of the step in flight stay and come true."""
    driver = Driver(attention(4))
    driver.submit(0, 10)
    driver.submit(1, 10)
    admit(driver, 0, 6)
    driver.do(act.BeginStep(), act.Allocate(0, 4))
    assert list(driver.keys(0)) == [4, 8]
    driver.do(act.Withdraw(0, drop_stale=True), *macros.CLOSE)
    assert list(driver.keys(0)) == [4]
    assert (driver.counts(0), driver.request(0).stale, driver.request(0).drop_stale) == ((0, 10, 6), 6, True)
    assert [entry.request for each in driver.world.steps for entry in each.scheduled] == [0]
    run(driver)
    run(driver)
    driver.do(act.BeginStep())
    assert driver.do(act.Lookup(1)).local == 4


# --- finished in flight (T32, T37) --------------------------------------------------------------------------------


@pytest.mark.parametrize("executed", [False, True])
def test_an_aborted_request_is_executed_and_its_output_ignored(executed: bool) -> None:
    """T32, T36.3: whatever its output says, nothing of it is left; its keys come true and serve others."""
    driver = Driver(attention(4))
    driver.submit(0, 6)
    admit(driver, 0, 6)
    first = driver.tables(0)[0][0]
    if executed:
        run(driver)
    driver.do(act.Finish(0))
    if not executed:
        run(driver)
    assert driver.cells(first) == [1, 2, 3, 4]
    before = driver.world
    record = driver.do(act.Output(0, (1, 2, 3)))
    assert (record.num_tokens, driver.world.steps) == (0, ())
    assert driver.world == evolve(before, steps=())
    assert list(driver.keys(0)) == [4]


def test_an_abort_reaches_every_status() -> None:
    """T32: waiting, running and preempted requests end, the last one with its late output still to come."""
    driver = in_flight()
    driver.do(act.Preempt(0), *macros.CLOSE)
    driver.submit(1, 3)
    driver.do(act.Finish(1), act.Finish(0))
    assert driver.world.requests == ()
    run(driver)
    driver.do(act.Output(0, (1, 9)))
    run(driver)
    assert (driver.world.steps, len(free_blocks(driver))) == ((), 39)


def test_an_id_is_used_anew_when_no_step_mentions_it() -> None:
    """T37: also when its own output was processed and the step waits for others."""
    driver = Driver(attention())
    driver.submit(0, 3)
    driver.submit(1, 3)
    dispatch(driver, *macros.admit(0, 3), *macros.admit(1, 3))
    run(driver)
    driver.do(act.Output(0, (9,)), act.Finish(0))
    assert refused(driver, act.Submit(0, (1,))) is errors.DuplicateRequest
    driver.do(act.Output(1, (9,)))
    assert refused(driver, act.Submit(0, (1,))) is None


def test_a_producer_ends_on_the_state_of_its_tail() -> None:
    """T32.1: a state registered inside its block is handed over if nothing was computed behind it and nothing is in flight."""
    driver = Driver(hybrid(64, 64, hash_block_size=16))
    driver.submit(0, 50)
    admit(driver, 0, 48)
    (state,) = driver.tables(0)[1]
    assert step(driver.world, act.Finish(0))[1].tails == ()
    run(driver)
    driver.do(act.Output(0))
    assert step(driver.world, act.Finish(0))[1].tails == ((1, state, 48),)
    driver.chunk(0, 2)
    assert step(driver.world, act.Finish(0))[1].tails == ()
