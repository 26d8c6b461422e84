"""Two steps in flight: order, rows, placeholders and what an output tells later steps (T0, T36)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import allocation, errors, execute, prefixes, requests
from kvproof.core.config import Group, configure
from kvproof.core.contents import GARBAGE, UNWRITTEN
from kvproof.core.step import step
from kvproof.core.world import Status
from kvproof.spec import macros
from tests.driving import Driver
from tests.in_flight import FULL, MAMBA, admit, attention, dispatch, hybrid, refused, run

PLAN_OF_FOUR: tuple[act.Action, ...] = (
    act.BeginStep(),
    act.Allocate(0, 4),
    act.Drain(),
    act.BuildMetadata(),
    act.Dispatch(),
)

# --- order (T0) ---------------------------------------------------------------------------------------------------


def test_a_plan_may_open_behind_a_dispatched_step_and_no_third_one_may() -> None:
    """T0: the plan of step k+1 is made before the output of step k, at most two steps are dispatched and not processed."""
    driver = Driver(attention(max_steps_in_flight=1))
    driver.submit(0, 20)
    admit(driver, 0, 16)
    assert refused(driver, act.BeginStep()) is errors.StepInFlight
    driver = Driver(attention())
    driver.submit(0, 20)
    driver.submit(1, 3)
    driver.do(act.BeginStep(), *macros.admit(0, 16), act.Drain(), act.BuildMetadata())
    assert refused(driver, act.BeginStep()) is errors.PhaseError
    driver.do(act.Dispatch())
    dispatch(driver, act.Allocate(0, 4), *macros.admit(1, 3))
    assert [len(world_step.scheduled) for world_step in driver.world.steps] == [1, 2]
    assert driver.counts(0) == (20, 20, 20)
    assert refused(driver, act.BeginStep()) is errors.StepInFlight
    run(driver)
    assert refused(driver, act.BeginStep()) is errors.StepInFlight
    driver.do(act.Output(0))
    assert driver.counts(0) == (20, 20, 4)
    assert refused(driver, act.BeginStep()) is None


def test_parts_and_outputs_go_oldest_step_first() -> None:
    """T0, T36: all parts of step k come before those of step k+1, its outputs before those of step k+1."""
    driver = Driver(attention())
    driver.submit(0, 3)
    driver.submit(1, 3)
    admit(driver, 0, 3)
    admit(driver, 1, 3)
    first, second = driver.tables(0)[0][0], driver.tables(1)[0][0]
    for part in execute.PARTS:
        assert refused(driver, act.Output(0, (9,))) is errors.ExecutionOrder
        driver.do(act.Execute(part))
    assert driver.world.contents[first]
    assert not driver.world.contents[second]
    assert refused(driver, act.Output(1, (9,))) is errors.NotScheduled
    run(driver)
    assert driver.world.contents[second]
    assert refused(driver, act.Output(1, (9,))) is errors.NotScheduled
    driver.do(act.Output(0, (9,)), act.Output(1, (9,)))
    assert driver.world.steps == ()


def test_the_step_behind_executes_before_and_in_the_middle_of_a_plan() -> None:
    """T0: executing and planning are independent of each other; only outputs wait for the end of the plan."""
    driver = Driver(attention())
    driver.submit(0, 20)
    admit(driver, 0, 16)
    for part, action in zip(
        execute.PARTS,
        PLAN_OF_FOUR,
        strict=True,
    ):
        driver.do(action)
        if part != execute.PARTS[-1]:
            assert refused(driver, act.Output(0)) is not None
        driver.do(act.Execute(part))
    driver.do(act.Output(0), *macros.EXECUTE, act.Output(0, (9,)))
    assert driver.counts(0) == (20, 21, 0)
    assert driver.cells(driver.tables(0)[0][1])[:5] == [17, 18, 19, 20, UNWRITTEN]


def test_an_output_is_refused_in_every_phase_of_a_plan() -> None:
    """T0: outputs change tokens, counts and keys, which a plan relies on."""
    driver = Driver(attention())
    driver.submit(0, 3)
    driver.submit(1, 3)
    admit(driver, 0, 3)
    run(driver)
    for action in (act.BeginStep(), act.Lookup(1), act.Allocate(1, 3), act.Drain(), act.BuildMetadata()):
        driver.do(action)
        assert refused(driver, act.Output(0, (9,))) is errors.PhaseError
    driver.do(act.Dispatch())
    assert refused(driver, act.Output(0, (9,))) is None


def test_a_resend_hits_what_the_step_before_still_computes() -> None:
    """T0, LV-1, COW-4: keys of a dispatched step are hit, states too, and its bytes are there when the next step copies them."""
    driver = Driver(hybrid(64, 64, hash_block_size=16))
    driver.submit(0, 50)
    driver.submit(1, 50)
    admit(driver, 0, 48)
    driver.do(act.BeginStep())
    assert driver.do(act.Lookup(1)).local == 48
    assert driver.do(act.Allocate(1, 2, 48)).admitted
    copies = driver.dispatch().copies
    assert [group for group, _, _ in copies] == [0, 1]
    run(driver)
    run(driver)
    assert driver.cells(copies[0][2])[:51] == [*range(1, 51), UNWRITTEN]
    state = driver.world.contents[driver.tables(1)[1][0]]
    assert driver.spelled(state[1]) == list(range(1, 51))


# --- rows (3.6, T37.5) --------------------------------------------------------------------------------------------


def test_a_row_that_a_step_in_flight_reads_is_not_given_away() -> None:
    """3.6: the step of an aborted request reads its row after the next plan gave rows to others."""
    driver = Driver(attention(max_running=1))
    driver.submit(0, (5, 5, 5))
    driver.submit(1, (7, 7, 7))
    admit(driver, 0, 3)
    (block,) = driver.tables(0)[0]
    driver.do(act.Finish(0))
    assert refused(driver, act.AppendRows(0, ((1,),))) is errors.RowInUse
    admit(driver, 1, 3)
    assert [entry.row for world_step in driver.world.steps for entry in world_step.scheduled] == [0, 1]
    assert driver.world.worker.owners == (-1, 1)
    # The block went from one request to the other: each step writes it in its turn.
    assert driver.tables(1)[0] == [block]
    run(driver)
    assert driver.cells(block)[:4] == [5, 5, 5, UNWRITTEN]
    run(driver)
    assert driver.cells(block)[:4] == [7, 7, 7, UNWRITTEN]
    driver.do(act.Output(0), act.Output(1, (9,)))
    dispatch(driver, act.Allocate(1, 1))
    assert driver.world.steps[0].scheduled[0].row == 1
    run(driver)
    driver.do(act.Output(1, (9,)), act.Finish(1), act.Submit(2, (1, 2)))
    admit(driver, 2, 2)
    assert driver.world.steps[0].scheduled[0].row == 0
    assert driver.world.worker.owners == (2, -1)


def test_a_resumed_request_gets_its_row_whole_and_anew() -> None:
    """T37.5: the old entries are gone, the state is looked for where the new chunk starts, one token counts as kept."""
    driver = Driver(hybrid(4, 4, num_draft_tokens=0))
    driver.submit(0, 14)
    for end in (12, 14):
        driver.chunk(0, end - driver.request(0).computed)
    old = driver.world.worker.rows
    worker = evolve(driver.world.worker, accepted=tuple(3 for _ in driver.world.worker.accepted))
    driver.world = evolve(driver.world, worker=worker)
    driver.do(act.BeginStep(), act.Preempt(0))
    driver.close()
    assert driver.world.worker.owners[0] == -1
    driver.do(act.BeginStep())
    local = driver.do(act.Lookup(0)).local
    assert local == 12
    driver.do(act.Allocate(0, 3, local), *macros.CLOSE)
    assert driver.world.worker.rows != old
    assert [list(rows[0]) for rows in driver.world.worker.rows] == driver.tables(0)
    assert driver.world.worker.columns[0] == (-1, 2)
    assert driver.world.worker.accepted[0] == 1


# --- asynchronous outputs (T36) -----------------------------------------------------------------------------------


def placeholder_driver(**settings: Any) -> Driver:
    """P=20, B=16, two drafts, asynchronous: the prompt and one step with drafts 5, 6 behind it are dispatched."""
    driver = Driver(attention(num_draft_tokens=2, async_outputs=True, **settings))
    driver.submit(0, 20)
    admit(driver, 0, 20)
    dispatch(driver, act.Allocate(0, 3, drafts=(5, 6)))
    return driver


def test_placeholders_stand_for_what_is_to_come() -> None:
    """T0(7), T36: one for the sampled token and one per draft, from the end of the prefill on; chunks inside it have none."""
    driver = Driver(attention(num_draft_tokens=2, async_outputs=True))
    driver.submit(0, 20)
    admit(driver, 0, 16)
    assert driver.request(0).placeholders == 0
    dispatch(driver, act.Allocate(0, 4))
    assert (driver.request(0).placeholders, driver.world.steps[1].scheduled[0].pending) == (1, 0)
    run(driver)
    driver.do(act.Output(0))
    assert driver.request(0).placeholders == 1
    dispatch(driver, act.Allocate(0, 3, drafts=(5, 6)))
    request = driver.request(0)
    assert (request.computed, request.num_tokens, request.in_flight, request.placeholders) == (23, 20, 7, 4)
    (entry,) = driver.world.steps[1].scheduled
    assert (entry.start, entry.amount, entry.pending, entry.samples) == (20, 3, 1, True)
    assert entry.tip == request.tip


def test_without_asynchronous_outputs_nobody_runs_ahead_of_its_tokens() -> None:
    """T36: two steps in flight alone plan only what is known."""
    driver = Driver(attention(num_draft_tokens=2))
    driver.submit(0, 20)
    admit(driver, 0, 20)
    driver.do(act.BeginStep())
    assert driver.request(0).placeholders == 0
    assert refused(driver, act.Allocate(0, 1)) is errors.BeyondKnownTokens
    assert refused(driver, act.Allocate(0, 2, drafts=(1, 2))) is errors.MisplacedDrafts


def test_an_output_tells_later_steps_their_tokens() -> None:
    """T36: the later chunk starts where the earlier one really ended, and its drafts follow the token sampled there."""
    driver = placeholder_driver()
    run(driver)
    driver.do(act.Output(0, (7,)))
    (entry,) = driver.world.steps[0].scheduled
    assert (entry.start, entry.pending) == (20, 0)
    assert driver.spelled(entry.tip)[20:] == [7, 5, 6]
    dispatch(driver, act.Allocate(0, 3, drafts=(8, 8)))
    assert driver.counts(0) == (26, 21, 6)
    assert driver.request(0).placeholders == 6
    (entry,) = driver.world.steps[1].scheduled
    assert (entry.start, entry.pending) == (23, 3)
    run(driver)
    assert driver.do(act.Output(0, (5, 4))).rejected == 1
    assert driver.counts(0) == (25, 23, 3)
    assert driver.request(0).placeholders == 3
    (entry,) = driver.world.steps[0].scheduled
    assert (entry.start, entry.loaded_from, entry.amount, entry.pending) == (22, 22, 3, 0)
    assert driver.spelled(entry.tip)[20:] == [7, 5, 4, 8, 8]
    run(driver)
    assert driver.cells(driver.tables(0)[0][1])[4:10] == [7, 5, 4, 8, 8, UNWRITTEN]
    driver.do(act.Output(0, (8, 8, 3)))
    assert driver.counts(0) == (25, 26, 0)
    assert driver.request(0).placeholders == 0


def test_a_step_waits_for_the_tokens_that_it_computes() -> None:
    """T36: where a chunk really starts is known with the output before it; what does not depend on it runs earlier."""
    driver = placeholder_driver()
    run(driver)
    driver.do(act.Execute("zero"), act.Execute("copy"), act.Execute("load"))
    assert refused(driver, act.Execute("precopy")) is errors.OutputPending
    driver.do(act.Output(0, (7,)), act.Execute("precopy"), act.Execute("forward"))
    assert driver.cells(driver.tables(0)[0][1])[4:8] == [7, 5, 6, UNWRITTEN]


def test_a_plan_opens_before_the_output_that_its_chunk_continues() -> None:
    """T0: with one step unprocessed the next plan runs ahead; a second unprocessed one has to be waited for."""
    driver = placeholder_driver()
    assert refused(driver, act.BeginStep()) is errors.StepInFlight
    run(driver)
    assert refused(driver, act.BeginStep()) is errors.StepInFlight
    driver.do(act.Output(0, (7,)))
    driver.do(act.BeginStep())
    for amount, drafts in ((2, ()), (4, (1, 2)), (1, (1,))):
        assert refused(driver, act.Allocate(0, amount, drafts=drafts)) is not None
    assert refused(driver, act.Allocate(0, 1)) is None


def test_keys_come_with_the_output_that_makes_their_tokens_known() -> None:
    """T16.7, T36.7: a plan registers known tokens only, an output those behind which nothing is in flight."""
    driver = Driver(attention(4, async_outputs=True))
    driver.submit(0, 6)
    admit(driver, 0, 6)
    assert list(driver.keys(0)) == [4]
    dispatch(driver, act.Allocate(0, 1))
    run(driver)
    driver.do(act.Output(0, (7,)))
    dispatch(driver, act.Allocate(0, 1))
    run(driver)
    driver.do(act.Output(0, (8,)))
    # Eight tokens are known; the eighth is computed by the step in flight.
    assert (driver.counts(0), list(driver.keys(0))) == ((8, 8, 1), [4])
    planned = Driver(driver.world.config)
    planned.world = driver.world
    planned.do(act.BeginStep(), act.Allocate(0, 1))
    assert list(planned.keys(0)) == [4, 8]
    run(driver)
    driver.do(act.Output(0, (9,)))
    assert (driver.counts(0), list(driver.keys(0))) == ((8, 9, 0), [4, 8])
    node = driver.world.pool.key_node[driver.tables(0)[0][1]]
    assert driver.spelled(node)[4:] == [5, 6, 7, 8]


def test_a_handoff_of_an_output_is_drained_by_the_next_step() -> None:
    """T23, T36.7: a state registered at an output is published then; an abort before the drain takes it back."""
    driver = Driver(hybrid(4, 4, async_outputs=True))
    driver.submit(0, 6)
    driver.chunk(0, 4)
    dispatch(driver, act.Allocate(0, 2))
    dispatch(driver, act.Allocate(0, 1))
    run(driver)
    driver.do(act.Output(0, (7,)))
    dispatch(driver, act.Allocate(0, 1))
    run(driver)
    driver.do(act.Output(0, (8,)))
    run(driver)
    assert driver.handoffs() == []
    driver.do(act.Output(0, (9,)))
    (block,) = driver.keys(1)[8]
    assert driver.handoffs() == [(0, 1, block, 8)]
    finished, _ = step(driver.world, act.Finish(0))
    assert finished.plan.handoffs == ()
    driver.do(act.BeginStep())
    assert driver.world.plan.cached == ()
    assert driver.do(act.Drain()).handoffs == ((0, 1, block, 8),)
    assert driver.world.plan.handoffs == ()


def test_windows_lag_behind_what_is_in_flight() -> None:
    """T16.3: the state that a step in flight reads is not freed by the plan behind it."""
    driver = Driver(hybrid(4, 4))
    driver.submit(0, 20)
    driver.chunk(0, 4)
    dispatch(driver, act.Allocate(0, 4))
    dispatch(driver, act.Allocate(0, 4))
    assert driver.tables(0)[1][0] != 0
    run(driver)
    assert driver.records[-1].reads[0][4] == 4
    driver.do(act.Output(0))
    dispatch(driver, act.Allocate(0, 4))
    assert [bool(block) for block in driver.tables(0)[1]] == [False, True, True, True]


def test_at_the_model_length_the_last_output_brings_nothing() -> None:
    """T36.6: L=24: the chunk behind the last token brings none; no plan passes the length on the strength of placeholders."""
    driver = Driver(attention(max_model_len=24, num_draft_tokens=1, async_outputs=True))
    driver.submit(0, 22)
    admit(driver, 0, 22)
    driver.do(act.BeginStep())
    driver.do(act.Allocate(0, 2, drafts=(5,)), *macros.CLOSE)
    run(driver)
    driver.do(act.Output(0, (7,)))
    driver.do(act.BeginStep())
    assert driver.request(0).placeholders == 2
    assert refused(driver, act.Allocate(0, 1)) is errors.BeyondModelLength
    driver.do(*macros.CLOSE)
    run(driver)
    assert refused(driver, act.Output(0, (5, 1))) is errors.OutputMismatch
    assert driver.do(act.Output(0, (5,))).rejected == 1
    assert (driver.counts(0), driver.request(0).placeholders) == ((23, 24, 0), 0)


def test_a_chunk_whose_request_is_gone_writes_garbage_where_no_token_became_known() -> None:
    """T32, T36: the step executes, waits for no output, and harms nobody who took the blocks."""
    driver = placeholder_driver()
    (_, block) = driver.tables(0)[0]
    driver.do(act.Finish(0))
    run(driver)
    run(driver)
    assert driver.cells(block)[:8] == [17, 18, 19, 20, GARBAGE, GARBAGE, GARBAGE, UNWRITTEN]
    driver.do(act.Output(0, (7,)), act.Output(0, (5, 6, 1)))
    assert driver.world.steps == ()
    driver.submit(1, 18)
    assert driver.do(act.BeginStep(), act.Lookup(1)).local == 16
    driver.do(act.Allocate(1, 2, 16))
    assert driver.tables(1)[0][1] == block
    driver.close()
    assert driver.cells(block)[:2] == [17, 18]


def test_a_chunk_waits_as_long_as_somebody_takes_its_output() -> None:
    """T36, C-85: of a preempted request too, unless its late outputs are dropped; of one that is gone never."""
    world = placeholder_driver().world
    assert [requests.waits_for_output(world, each) for each in world.steps] == [False, True]
    (request,) = world.requests
    late = evolve(world, requests=(evolve(request, status=Status.PREEMPTED, stale=23),))
    assert [requests.is_late(late, each, late.requests[0]) for each in late.steps] == [True, True]
    assert requests.waits_for_output(late, late.steps[1])
    dropping = evolve(world, requests=(evolve(late.requests[0], drop_stale=True),))
    assert not requests.waits_for_output(dropping, dropping.steps[1])
    first = evolve(world, requests=(evolve(request, stale=20, drop_stale=True),))
    assert [requests.is_late(first, each, first.requests[0]) for each in first.steps] == [True, False]
    assert requests.waits_for_output(first, first.steps[1])
    assert not requests.waits_for_output(evolve(world, requests=()), world.steps[1])


@pytest.mark.parametrize("block_size", [2, 4])
@pytest.mark.parametrize("first", [0, 1, 3])
def test_states_survive_plans_that_ran_ahead_of_rejected_drafts(block_size: int, first: int) -> None:
    """7.3.11, T21.4: the plan's columns follow all drafts, the worker's those accepted; no block stands in two of a chunk's."""
    groups = (Group(FULL, 2), Group(MAMBA, block_size, speculative_blocks=3))
    settings: dict[str, Any] = {"max_steps_in_flight": 2, "num_draft_tokens": 3, "async_outputs": True}
    start = Driver(configure(groups, num_blocks=60, max_model_len=64, **settings))
    start.submit(0, 5)
    start.chunk(0, 4)
    dispatch(start, act.Allocate(0, 1))
    dispatch(start, act.Allocate(0, 4, drafts=(6, 6, 6)))
    run(start)
    start.do(act.Output(0, (7,)))
    for accepted in itertools.product((first,), (0, 1, 3), (0, 1, 3), (0, 1, 3)):
        driver = Driver(start.world.config)
        driver.world = start.world
        for count in accepted:
            dispatch(driver, act.Allocate(0, 4, drafts=(6, 6, 6)))
            driver.do(*macros.EXECUTE[:-1])
            before = driver.world
            (entry,) = before.steps[0].scheduled
            ((_, group, _, block, boundary),) = driver.do(macros.EXECUTE[-1]).reads
            assert boundary == entry.start
            assert before.contents[block] == (group, prefixes.ancestor(before.prefixes, entry.tip, boundary)), accepted
            driver.do(act.Output(0, (*(6,) * count, 8)))
        states = [(node, block) for node, group, _, block in driver.world.pool.entries if group == 1]
        assert states
        assert all(driver.world.contents[block] == (1, node) for node, block in states), accepted


def test_the_token_sampled_behind_the_drafts_is_settled():
    driver = Driver(hybrid(4, 4))
    driver.submit(0, 4)
    (request,) = driver.world.requests
    counts = {owed: allocation.unsettled_drafts(evolve(request, placeholders=owed)) for owed in (0, 1, 3)}
    assert counts == {0: 0, 1: 0, 3: 2}
