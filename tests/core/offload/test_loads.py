"""Loads (T29, T30): which blocks go where, what a load holds, how it ends, and what its request does behind it."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import errors
from kvproof.core.config import SOUND, Group, Offload, Profile
from kvproof.core.contents import GARBAGE
from kvproof.core.offload import loads
from kvproof.core.offload.state import NONE, Stage
from kvproof.core.step import refusal
from kvproof.core.world import Status
from tests.core.offload.loading import Loading
from tests.offloading import FULL, MAMBA, WINDOW, hosted


def stored(prompt: int = 50, *chunks: int, **settings: Any) -> Loading:
    """N=4, FA16 (E=64), Mamba16: request 0 is on the host, the device's keys are gone (G2)."""
    sizes: dict[str, Any] = {"dcp_size": 4, **settings}
    driver = Loading(hosted(Group(FULL, 16), Group(MAMBA, 16), **sizes))
    driver.submit(0, prompt)
    driver.store(0, *(chunks or (48, 2)))
    driver.wipe()
    return driver


def full(blocks: int = 3, size: int = 4, **settings: Any) -> Loading:
    """Full attention alone: ``blocks`` blocks of request 0 are on the host, and one token more was computed."""
    driver = Loading(hosted(Group(FULL, size), **settings))
    driver.submit(0, blocks * size + 1)
    driver.store(0, blocks * size + 1)
    driver.wipe()
    return driver


# --- the mapping (T29) --------------------------------------------------------------------------------------------


def test_g3_load_mapping() -> None:
    """G3: the pairs, the references of both sides, and after completion the keys."""
    driver = stored()
    assert (driver.host_keys(0), driver.host_keys(1)) == ({48: [2]}, {48: [1]})
    driver.submit(1, 50)
    asked = driver.load(1)
    assert driver.tables(1) == [[3], [0, 0, 4]]
    assert asked.pairs == ((0, 0, 3, 2), (1, 2, 4, 1))
    assert [driver.world.pool.ref[block] for block in (3, 4)] == [2, 2]
    assert [driver.host.pool.ref[block] for block in (1, 2)] == [1, 1]
    assert driver.host.pending == ()
    assert (driver.keys(0), driver.keys(1)) == ({}, {})
    driver.arrive(1)
    assert [driver.world.pool.ref[block] for block in (3, 4)] == [1, 1]
    assert [driver.host.pool.ref[block] for block in (1, 2)] == [0, 0]
    assert (driver.keys(0), driver.keys(1), driver.host.load_blocks) == ({}, {}, 2)
    driver.do(act.BeginStep())
    assert driver.promote(1).computed == 48
    assert (driver.keys(0), driver.keys(1)) == ({48: [3]}, {48: [4]})


def test_a_load_is_no_step_of_its_request() -> None:
    """T37.4: nothing is scheduled, the request waits loading; counted are the tokens that were not hit locally (CN-3)."""
    driver = stored()
    driver.submit(1, 50)
    driver.do(act.BeginStep())
    asked = driver.ask(1)
    request = driver.request(1)
    assert (request.status, request.computed, request.in_flight) == (Status.LOADING, 48, 0)
    assert (asked.queries, asked.hits) == (50, 48)
    assert driver.world.plan.scheduled == ()
    assert driver.do(act.Drain()).destinations == (3,)
    built = driver.do(act.BuildMetadata())
    assert (built.load_event, built.load_device, built.load_host, built.load_requests) == (0, (3, 4), (2, 1), (1,))
    assert driver.do(act.Dispatch()).scheduled == ()
    assert (driver.world.steps[0].load, driver.world.steps[0].zero) == (0, ())


def test_a_loaded_request_goes_on_with_its_blocks() -> None:
    """T30, T37.4: the chunk behind the load needs no lookup, adopts nothing, and reads what was loaded."""
    driver = stored()
    driver.submit(1, 50)
    driver.load(1)
    driver.arrive(1)
    driver.do(act.BeginStep())
    driver.promote(1)
    request = driver.request(1)
    assert (request.status, request.loaded) == (Status.WAITING, True)
    assert isinstance(refusal(driver.world, act.Lookup(1)), errors.StatusError)
    assert isinstance(refusal(driver.world, act.LookupExternal(1, 0)), errors.StatusError)
    assert isinstance(refusal(driver.world, act.Allocate(1, 2, 0, 16)), errors.LookupMismatch)
    record = driver.do(act.Allocate(1, 2))
    assert (record.new_blocks, record.adopted, record.queries) == (((), (5,)), (), 0)
    (share,) = driver.world.plan.scheduled
    assert (share.start, share.amount, share.fresh, share.loaded, share.loaded_from) == (48, 2, True, True, 48)
    assert (driver.request(1).loaded, driver.request(1).status) == (False, Status.RUNNING)
    driver.close()
    assert driver.cells(5) == [50, 50, 50, 50]
    assert sorted(driver.cells(3))[-50:] == list(range(1, 51))


def test_a_load_starts_behind_the_local_hit() -> None:
    """M-LOAD-2: 64 local tokens, 48 external: attention from column 1, states from column 4."""
    driver = stored(114, 64, 48, 2)
    driver.submit(1, 65)
    driver.chunk(1, 64)
    driver.submit(2, 114)
    driver.do(act.BeginStep())
    asked = driver.ask(2)
    assert asked.pairs[0][:2] == (0, 1)
    assert asked.pairs[-1][:2] == (1, 6)
    assert (asked.queries, asked.hits) == (50, 48)
    load = driver.row(2)
    assert (load.start, load.event, load.stage) == (64, NONE, Stage.WAITING)


def test_null_entries_are_not_copied() -> None:
    """LD-4: of a window only the blocks that are read again are loaded."""
    driver = Loading(hosted(Group(FULL, 4), Group(WINDOW, 4, window=5)))
    driver.submit(0, 17)
    driver.store(0, 17)
    driver.wipe()
    driver.submit(1, 17)
    driver.do(act.BeginStep())
    assert [pair[:2] for pair in driver.ask(1).pairs] == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 3)]
    assert driver.tables(1)[1][:3] == [0, 0, 0]


def test_less_is_accepted_only_of_full_attention() -> None:
    """T29, M-LOAD-4: full attention takes a shorter load, in multiples of A; a recurrent group has no state there."""
    driver = full()
    driver.submit(1, 13)
    driver.do(act.BeginStep())
    for external in (6, 16, 0):
        with pytest.raises(errors.Refusal) as refused:
            driver.ask(1, external)
        assert isinstance(refused.value, errors.LoadMismatch)
    assert [pair[1] for pair in driver.ask(1, 8).pairs] == [0, 1]
    assert driver.host.pool.ref == (0, 1, 1, 0, *(0,) * 16)
    driver = stored()
    driver.submit(1, 50)
    driver.do(act.BeginStep())
    with pytest.raises(errors.LoadMismatch):
        driver.ask(1, 16)


def test_a_column_beyond_the_table_breaks_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    """T29: a column that the table does not have is no destination."""
    monkeypatch.setattr(loads, "first_column", lambda size, start: 7)
    driver = full()
    driver.submit(1, 13)
    driver.do(act.BeginStep())
    with pytest.raises(errors.ContractBroken, match="column 7 is loaded"):
        driver.ask(1)


def test_a_refused_load_keeps_its_pin() -> None:
    """T16.4: without blocks nothing happens; the hit stays pinned, nothing is counted."""
    driver = full(num_blocks=5)
    driver.submit(2, (7, 7, 7, 7, 7))
    driver.chunk(2, 5)
    driver.submit(1, 13)
    driver.do(act.BeginStep())
    asked = driver.ask(1)
    assert (asked.admitted, asked.pairs, asked.queries, asked.hits) == (False, (), 0, 0)
    assert driver.host.pending[0].request == 1
    assert driver.host.pool.ref[1:4] == (1, 1, 1)
    assert driver.request(1).status is Status.WAITING


# --- completion (T30) ---------------------------------------------------------------------------------------------


def test_two_loads_are_one_batch() -> None:
    """T0(6): all waiting loads of a step have one event; each is reported by itself."""
    driver = full()
    driver.submit(1, 13)
    driver.submit(2, 13)
    driver.do(act.BeginStep())
    driver.ask(1)
    driver.ask(2)
    built = driver.close()
    assert (built.load_event, built.load_requests) == (0, (1, 2))
    assert isinstance(refusal(driver.world, act.CompleteLoad(2)), errors.NothingLoaded)
    driver.do(act.RunLoad(0), act.CompleteLoad(2))
    assert isinstance(refusal(driver.world, act.CompleteLoad(2)), errors.NothingLoaded)
    driver.do(act.BeginStep())
    assert isinstance(refusal(driver.world, act.Promote(1)), errors.LoadRunning)
    driver.promote(2)
    assert driver.keys(0) == {4: [7], 8: [8], 12: [9]}


def test_a_preempted_request_is_promoted_to_preempted() -> None:
    """T30: back to where it waited from."""
    driver = full()
    driver.submit(1, 13)
    driver.chunk(1, 8)
    driver.do(act.Preempt(1))
    driver.wipe()
    driver.load(1)
    driver.arrive(1)
    driver.do(act.BeginStep())
    driver.promote(1)
    assert driver.request(1).status is Status.PREEMPTED
    driver.do(act.Allocate(1, 1))
    driver.close()
    assert driver.counts(1) == (13, 14, 0)


def test_a_loaded_request_needs_a_row() -> None:
    """A load takes no row; the chunk behind it does."""
    driver = full(max_running=1)
    driver.submit(1, 13)
    driver.submit(2, (7, 7))
    driver.chunk(2, 2)
    driver.load(1)
    driver.arrive(1)
    driver.do(act.BeginStep())
    driver.promote(1)
    assert isinstance(refusal(driver.world, act.Allocate(1, 1)), errors.TooManyRunning)
    assert isinstance(refusal(driver.world, act.Allocate(2, 1)), errors.PhaseError)


def test_nobody_is_promoted_or_goes_on_behind_a_preemption() -> None:
    """T0(3): a plan that preempted somebody considers no waiting request, the loaded ones included."""
    driver = full()
    driver.submit(1, 13)
    driver.submit(2, (7, 7))
    driver.chunk(2, 2)
    driver.load(1)
    driver.arrive(1)
    driver.do(act.BeginStep(), act.Preempt(2))
    for action in (act.Promote(1), act.LookupExternal(1, 0)):
        assert isinstance(refusal(driver.world, action), errors.AdmissionAfterPreemption)
    driver.close()
    driver.do(act.BeginStep())
    driver.promote(1)
    driver.close()
    driver.do(act.BeginStep(), act.Lookup(2), act.Allocate(2, 2))
    driver.close()
    driver.do(act.BeginStep(), act.Preempt(2))
    assert isinstance(refusal(driver.world, act.Allocate(1, 1)), errors.AdmissionAfterPreemption)


def test_the_last_token_is_computed_again_if_everything_was_hit() -> None:
    """T30: with all 12 tokens loaded, 11 count as computed."""
    driver = full()
    driver.submit(1, 13)
    driver.load(1)
    driver.arrive(1)
    driver.do(act.BeginStep())
    assert driver.promote(1).computed == 12
    driver = full()
    driver.submit(1, 12)
    driver.do(act.BeginStep())
    assert driver.ask(1).hits == 8


def test_so_it_is_behind_a_local_hit() -> None:
    """T20.4: behind 4 local tokens of 12 there are 7 to be had, one block, although the host has both."""
    driver = full()
    driver.submit(1, 5)
    driver.chunk(1, 5)
    driver.submit(2, 12)
    driver.do(act.BeginStep())
    assert driver.do(act.Lookup(2)).local == 4
    assert driver.do(act.LookupExternal(2, 4)).external == 4


# --- failure (C-45) -----------------------------------------------------------------------------------------------


def test_what_is_valid_of_full_attention_stays() -> None:
    """C-45: 9 valid tokens of 12 leave two blocks; what is in the third is garbage until it is computed."""
    driver = full()
    driver.submit(1, 13)
    driver.load(1)
    assert not driver.arrive(1, failed=True, valid=9).freed
    request = driver.request(1)
    assert (request.status, request.computed, driver.tables(1)) == (Status.LOADING, 8, [[4, 5, 6]])
    assert driver.cells(6) == [GARBAGE] * 4
    driver.do(act.BeginStep())
    assert driver.promote(1).computed == 8
    assert driver.keys(0) == {4: [4], 8: [5]}
    driver.do(act.Allocate(1, 5))
    driver.close()
    assert driver.keys(0) == {4: [4], 8: [5], 12: [6]}
    assert driver.cells(6) == [9, 10, 11, 12]


@pytest.mark.parametrize(("valid", "kept"), [(7, 0), (8, 8), (15, 8), (16, 16)])
def test_groups_of_several_sizes_keep_what_ends_a_block_in_all(valid: int, kept: int) -> None:
    """C-45: with blocks of 4 and 8 a valid prefix is rounded down to S = 8."""
    driver = Loading(hosted(Group(FULL, 4), Group(FULL, 8)))
    driver.submit(0, 17)
    driver.store(0, 17)
    driver.wipe()
    driver.submit(1, 17)
    assert driver.load(1).hits == 16
    driver.arrive(1, failed=True, valid=valid)
    assert driver.request(1).computed == kept


def test_the_local_prefix_stays_in_any_case() -> None:
    """C-45: what was hit locally is valid, whatever the worker says."""
    driver = full()
    driver.submit(1, 5)
    driver.chunk(1, 5)
    driver.submit(2, 13)
    driver.load(2)
    assert driver.row(2).start == 4
    driver.arrive(2, failed=True, valid=0)
    assert (driver.request(2).computed, driver.request(2).status) == (4, Status.LOADING)


@pytest.mark.parametrize("preempted", [False, True])
def test_without_a_valid_prefix_everything_is_given_back(preempted: bool) -> None:
    """C-45: the request waits as if it had never been admitted, and can be looked up again."""
    driver = full()
    driver.submit(1, 13)
    if preempted:
        driver.chunk(1, 8)
        driver.do(act.Preempt(1))
        driver.wipe()
    driver.load(1)
    driver.arrive(1, failed=True, valid=3)
    request = driver.request(1)
    assert request.status is (Status.PREEMPTED if preempted else Status.WAITING)
    assert (request.computed, driver.tables(1), request.loaded) == (0, [[]], False)
    assert sum(driver.world.pool.ref) == 0
    driver.load(1)
    driver.arrive(1)


def test_a_recurrent_group_has_no_state_at_a_shorter_prefix() -> None:
    """C-45, HB-10: with a recurrent group nothing of a failed load is kept."""
    driver = stored()
    driver.submit(1, 50)
    driver.load(1)
    blocks = driver.row(1).device
    driver.arrive(1, failed=True, valid=48)
    assert (driver.request(1).computed, driver.tables(1)) == (0, [[], []])
    assert [set(driver.cells(block)) for block in blocks] == [{GARBAGE}, {GARBAGE}]
    driver.do(act.BeginStep())
    assert driver.do(act.Lookup(1)).local == 0


@pytest.mark.parametrize("second", [Group(MAMBA, 4), Group(WINDOW, 4, window=5), Group(MAMBA, 2)])
def test_nor_is_anything_else_kept_although_whole_blocks_arrived(second: Group) -> None:
    """C-45: 8 of 12 tokens are valid, two blocks of S = 4, and still there is no state and no window to go on with at 8."""
    driver = Loading(hosted(Group(FULL, 4), second))
    driver.submit(0, 14)
    driver.store(0, 4, 4, 4, 2)
    driver.wipe()
    driver.submit(1, 14)
    assert driver.load(1).hits == 12
    driver.arrive(1, failed=True, valid=8)
    request = driver.request(1)
    assert (request.status, request.computed, driver.tables(1)) == (Status.WAITING, 0, [[], []])
    assert sum(driver.world.pool.ref) == 0


@pytest.mark.parametrize("valid", [-1, 13])
def test_no_more_is_valid_than_was_loaded(valid: int) -> None:
    """T30: the valid prefix lies within the tokens that the request would have."""
    driver = full()
    driver.submit(1, 13)
    driver.load(1)
    driver.do(act.RunLoad(0))
    assert isinstance(refusal(driver.world, act.CompleteLoad(1, failed=True, valid=valid)), errors.LoadMismatch)


# --- finishing while loading (T30, T32) ---------------------------------------------------------------------------


@pytest.mark.parametrize("failed", [False, True])
def test_a_finished_request_keeps_its_blocks_until_the_report(failed: bool) -> None:
    """LD-7: the tables are freed by the report, failed or not; the id is taken so long."""
    driver = full()
    driver.submit(1, 13)
    driver.load(1)
    record = driver.do(act.Finish(1))
    assert (record.deferred, record.offered) == (True, ((4, 5, 6),))
    assert driver.row(1).held == ((4, 5, 6),)
    assert driver.world.pool.ref[4:7] == (2, 2, 2)
    assert isinstance(refusal(driver.world, act.Submit(1, (1,))), errors.DuplicateRequest)
    assert driver.arrive(1, failed=failed).freed
    assert sum(driver.world.pool.ref) + sum(driver.host.pool.ref) == 0
    driver.submit(1, 2)


def test_a_complete_load_holds_nothing_back() -> None:
    """T32: between report and promotion a request is freed at once."""
    driver = full()
    driver.submit(1, 13)
    driver.load(1)
    driver.arrive(1)
    assert not driver.do(act.Finish(1)).deferred
    assert sum(driver.world.pool.ref) == 0


def held() -> Loading:
    """Two steps in flight, loads held: request 1 waits for its load behind the step of request 2."""
    driver = full(
        max_steps_in_flight=2, defer_block_free=True, async_outputs=True, offload=Offload(num_blocks=20, hold_loads=True)
    )
    driver.submit(2, (7, 7, 7))
    driver.submit(1, 13)
    driver.do(act.BeginStep())
    driver.allocate(2, 3)
    driver.dispatch()
    driver.do(act.BeginStep())
    driver.ask(1)
    return driver


def test_held_loads_wait_for_the_steps_in_flight() -> None:
    """T36.1: the load is not built while the step before it is in flight; the next plan builds it."""
    driver = held()
    assert driver.row(1).fence == driver.world.issued == 2
    driver.dispatch()
    assert (driver.world.steps[1].load, driver.row(1).stage) == (NONE, Stage.WAITING)
    driver.execute()
    driver.output()
    driver.execute()
    driver.do(act.BeginStep())
    assert driver.close().load_event == 0
    driver.arrive(1)


def test_a_load_that_was_never_issued_holds_nothing_back() -> None:
    """M-LOAD-6, CN-4: an abort before the load is issued frees at once and counts nothing."""
    driver = held()
    driver.dispatch()
    assert not driver.do(act.Finish(1)).deferred
    assert (driver.host.loads, driver.host.load_blocks) == ((), 0)
    assert sum(driver.host.pool.ref) == 0


def test_a_reset_lets_the_requests_of_waiting_loads_start_again() -> None:
    """T34, LV-3: the load will never run, so its request waits anew; an issued one runs on, abandoned."""
    driver = held()
    driver.dispatch()
    assert driver.do(act.ResetHost()).done
    assert (driver.request(1).status, driver.tables(1)) == (Status.WAITING, [[]])
    driver = full()
    driver.submit(1, 13)
    driver.load(1)
    assert not driver.do(act.ResetHost()).done
    assert [load.request for load in driver.host.abandoned_loads] == [1]
    driver.arrive(1)
    driver.do(act.BeginStep())
    assert driver.promote(1).computed == 12
    driver = full()
    driver.submit(1, 13)
    driver.load(1)
    driver.do(act.ResetHost(), act.Finish(1))
    assert driver.arrive(1).freed
    assert sum(driver.world.pool.ref) == 0


def test_an_abandoned_load_still_brings_its_bytes() -> None:
    """T34, CN-4: reset before its step submits it, a load is submitted, copied and counted like any other."""
    driver = full()
    driver.submit(1, 13)
    driver.do(act.BeginStep())
    driver.ask(1)
    driver.dispatch()
    assert not driver.do(act.ResetHost()).done
    assert driver.row(1).stage is Stage.BUILT
    driver.execute()
    assert driver.row(1).stage is Stage.SUBMITTED
    driver.arrive(1)
    assert [driver.cells(block) for block in driver.tables(1)[0]] == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]
    assert driver.host.load_blocks == 3


@pytest.mark.parametrize(("profile", "admitted"), [(SOUND, True), (evolve(SOUND, loaded_keys="this_step"), False)])
def test_a_promoted_state_can_be_adopted_in_the_same_plan(profile: Profile, admitted: bool) -> None:
    """C-59: what a promotion registers is loaded, so a second request need not wait a step; in the release it does."""
    driver = stored(profile=profile, num_blocks=24)
    driver.submit(1, 50)
    driver.submit(2, 50)
    driver.load(1)
    driver.arrive(1)
    driver.do(act.BeginStep())
    driver.promote(1)
    assert driver.do(act.Lookup(2)).local == 48
    assert driver.do(act.Allocate(2, 2, 48)).admitted is admitted


@pytest.mark.parametrize(("short", "admitted"), [(0, True), (1, False)])
def test_a_load_leaves_reserved_blocks_free(short: int, admitted: bool) -> None:
    """T16.4: three blocks are loaded; with all the others reserved it is admitted, with one more reserved it waits."""
    driver = full()
    driver.submit(1, 13)
    driver.do(act.BeginStep(), act.Lookup(1))
    external = driver.do(act.LookupExternal(1, 0)).external
    reserved = len(driver.world.pool.free) - 3 + short
    record = driver.do(act.Allocate(1, 0, 0, external, load=True, reserved=reserved))
    assert (record.admitted, record.demand) == (admitted, 3)
    assert len(driver.world.pool.free) == reserved + (0 if admitted else 3 - short)
