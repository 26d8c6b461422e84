"""A synchronous load that failed (T36.2, C-48): what was computed on it is forgotten, and who holds it starts again."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import errors
from kvproof.core.config import Group, Offload, configure
from kvproof.core.contents import GARBAGE
from kvproof.core.step import refusal
from kvproof.core.world import Status
from kvproof.spec import macros
from kvproof.spec.judge import attempt
from kvproof.spec.laws import ALL
from tests.core.offload.loading import Loading
from tests.driving import Driver
from tests.offloading import FULL, MAMBA, hosted

LAWS = {law.id: law for law in ALL}
MINE = tuple(range(1, 13))


def brought(*groups: Group, external: int = 8, **settings: Any) -> Driver:
    """A connector brings 8 of 12 tokens of request 0; the step is executed, nothing of it processed."""
    driver = Driver(configure(groups or (Group(FULL, 4),), connectors=(False,), **settings))
    driver.submit(0, 12)
    driver.submit(1, (*MINE, 50, 51))
    driver.do(act.BeginStep(), *macros.admit(0, 12 - external, 0, external))
    return driver


def run(driver: Driver) -> None:
    """Dispatch and execute the open plan."""
    driver.dispatch()
    driver.do(*macros.EXECUTE)


def test_the_request_starts_again() -> None:
    """C-48: nothing is delivered, its keys and blocks are gone, and what did not arrive is counted once (M-PUB-137)."""
    driver = brought()
    run(driver)
    assert driver.keys(0) == {4: [1], 8: [2], 12: [3]}
    record = driver.do(act.Output(0, failed=True, valid=5))
    assert (record.lost, record.preempted, record.num_tokens) == (3, (0,), 12)
    assert driver.keys(0) == {4: [1]}
    assert [driver.cells(block) for block in (1, 2, 3)] == [[1, 2, 3, 4], [5, *[GARBAGE] * 3], [GARBAGE] * 4]
    request = driver.request(0)
    assert (request.status, request.computed, request.in_flight, request.stale) == (Status.PREEMPTED, 0, 0, 0)
    assert driver.world.steps == ()
    driver.do(act.BeginStep())
    assert driver.do(act.Lookup(0)).local == 4
    driver.do(act.Allocate(0, 8, 4))
    driver.close()
    assert driver.keys(0)[12]


def test_who_adopted_it_in_the_same_step_starts_again_too() -> None:
    """M-PUB-134: request 1 reads blocks of request 0 that did not arrive; its output is dropped."""
    driver = brought()
    driver.do(act.Lookup(1))
    driver.do(act.Allocate(1, 2, 12))
    run(driver)
    assert driver.do(act.Output(0, failed=True, valid=0)).preempted == (0, 1)
    assert driver.keys(0) == {}
    driver.do(act.Output(1))
    assert driver.counts(1) == (0, 14, 0)
    assert sum(driver.world.pool.ref) == 0


def test_a_late_output_that_read_it_is_dropped() -> None:
    """T36.4: preempted between execution and report, request 1 would have its output delivered."""
    driver = brought()
    driver.do(act.Lookup(1), act.Allocate(1, 2, 12))
    run(driver)
    driver.do(act.Preempt(1))
    assert not driver.request(1).drop_stale
    assert driver.do(act.Output(0, failed=True, valid=0)).preempted == (0,)
    assert driver.request(1).drop_stale
    driver.do(act.Output(1))
    assert driver.counts(1) == (0, 14, 0)


def test_who_shares_the_valid_part_only_goes_on() -> None:
    """C-48: a request that reads nothing behind the valid tokens keeps its blocks and its output."""
    driver = Driver(configure((Group(FULL, 4),), connectors=(False,)))
    driver.submit(0, 12)
    driver.submit(2, (1, 2, 3, 4, 60, 61))
    driver.do(act.BeginStep(), *macros.admit(0, 4, 0, 8), *macros.admit(2, 2, 4))
    run(driver)
    assert driver.do(act.Output(0, failed=True, valid=4)).preempted == (0,)
    driver.do(act.Output(2, (9,)))
    assert driver.counts(2) == (6, 7, 0)
    assert driver.cells(driver.tables(2)[0][0]) == [1, 2, 3, 4]


def test_states_behind_the_valid_tokens_go_in_every_group() -> None:
    """M-PUB-136: groups of different spans: each loses what it has behind token 5, by its own boundaries."""
    driver = brought(Group(FULL, 8), Group(MAMBA, 4))
    run(driver)
    assert (sorted(driver.keys(0)), sorted(driver.keys(1))) == ([8], [8])
    driver.do(act.Output(0, failed=True, valid=5))
    assert (driver.keys(0), driver.keys(1)) == ({}, {})
    assert GARBAGE in driver.cells(1)


def test_a_request_that_is_gone_leaves_nothing_either() -> None:
    """C-48: aborted before the report, its keys still go."""
    driver = brought()
    run(driver)
    driver.do(act.Finish(0))
    assert driver.keys(0)
    record = driver.do(act.Output(0, failed=True, valid=0))
    assert (record.preempted, driver.keys(0), driver.world.steps) == ((), {}, ())


def test_failed_loads_come_before_other_outputs() -> None:
    """T36.2: behind an output of the step, of a chunk without external tokens, or with too many valid ones: refused."""
    driver = brought()
    driver.do(act.Lookup(1), act.Allocate(1, 2, 12))
    run(driver)
    for action in (act.Output(1, failed=True, valid=12), act.Output(0, failed=True, valid=8)):
        assert isinstance(refusal(driver.world, action), errors.OutputMismatch)
    driver.do(act.Output(1, (9,)))
    assert isinstance(refusal(driver.world, act.Output(0, failed=True)), errors.OutputMismatch)


def test_frees_wait_for_the_step_even_if_all_of_it_failed() -> None:
    """T36.1: with deferred frees the step counts as processed with its last output, whatever that says."""
    driver = brought(defer_block_free=True)
    run(driver)
    driver.do(act.Output(0, failed=True, valid=0))
    assert (driver.world.processed, driver.world.deferred, sum(driver.world.pool.ref)) == (1, (), 0)


def beside_a_host(**offload: Any) -> Loading:
    """A host tier knows request 9's 12 tokens; another connector brings them to request 0 as well."""
    driver = Loading(hosted(Group(FULL, 4), connectors=(False,), offload=Offload(num_blocks=20, **offload)))
    driver.submit(9, 13)
    driver.store(9, 13)
    driver.wipe()
    driver.submit(0, 13)
    driver.submit(1, 13)
    driver.submit(2, 13)
    return driver


def test_the_host_forgets_it_too() -> None:
    """C-48: host blocks of the prefix may be copies of what did not arrive: keys, bytes and pins go."""
    driver = beside_a_host()
    driver.do(act.BeginStep(), act.Lookup(0), act.LookupExternal(1, 0), act.Lookup(0), act.Allocate(0, 5, 0, 8))
    driver.dispatch()
    driver.execute()
    assert driver.host.pending
    driver.do(act.Output(0, failed=True, valid=4))
    assert (driver.host_keys(0), driver.host.pending) == ({4: [1]}, ())
    assert driver.host.contents[2][1:] == (GARBAGE,) * 4
    assert sum(driver.host.pool.ref) == 0


@pytest.mark.parametrize(("valid", "kept"), [(3, False), (4, True), (7, True)])
def test_a_pinned_hit_stays_if_all_of_it_arrived(valid: int, kept: bool) -> None:
    """CP-4, C-76: request 3 has pinned the first 4 tokens of what request 0 was brought."""
    driver = beside_a_host()
    driver.submit(3, 6)
    driver.do(act.BeginStep(), act.Lookup(3))
    assert driver.do(act.LookupExternal(3, 0)).external == 4
    driver.do(act.Lookup(0), act.Allocate(0, 5, 0, 8))
    driver.dispatch()
    driver.execute()
    action = act.Output(0, failed=True, valid=valid)
    moment = attempt(driver.world, action)
    assert LAWS["CP-4"].check is not None
    assert LAWS["CP-4"].check(moment) == []
    driver.do(action)
    assert bool(driver.host.pending) is kept
    assert sum(driver.host.pool.ref) == kept
    wrong = evolve(moment.after, host=evolve(driver.host, pending=() if kept else moment.before.host.pending))  # type: ignore[union-attr]
    assert LAWS["CP-4"].check(evolve(moment, after=wrong))


def test_a_load_on_the_way_is_condemned() -> None:
    """LD-7: the request keeps its blocks until the report, and nothing of them then."""
    driver = beside_a_host()
    driver.do(act.BeginStep())
    driver.ask(1)
    driver.do(*macros.admit(0, 5, 0, 8))
    driver.dispatch()
    driver.execute()
    driver.do(act.Output(0, failed=True, valid=4))
    assert driver.row(1).condemned
    assert driver.tables(1) != [[]]
    driver.arrive(1)
    assert (driver.request(1).status, driver.tables(1)) == (Status.WAITING, [[]])
    assert sum(driver.world.pool.ref) + sum(driver.host.pool.ref) == 0


@pytest.mark.parametrize("failed", [False, True])
def test_nothing_of_a_condemned_load_is_kept_nor_what_it_went_on_from(failed: bool) -> None:
    """C-48: request 1 loads behind 4 tokens that request 0 was to be brought in the same step, and they never came."""
    driver = beside_a_host()
    driver.do(act.BeginStep(), act.Lookup(0), act.Allocate(0, 1, 0, 4))
    driver.ask(1)
    assert driver.row(1).start == 4
    driver.dispatch()
    driver.execute()
    driver.do(act.Output(0, failed=True, valid=0))
    driver.arrive(1, failed, 12)
    request = driver.request(1)
    assert (request.status, request.computed, driver.tables(1)) == (Status.WAITING, 0, [[]])


@pytest.mark.parametrize("promoted", [False, True])
def test_a_complete_load_is_given_up_at_once(promoted: bool) -> None:
    """C-48: between the report of its load and its chunk a request holds wrong blocks and waits anew."""
    driver = beside_a_host()
    driver.load(1)
    driver.do(act.RunLoad(0))
    driver.do(act.BeginStep(), *macros.admit(0, 5, 0, 8))
    driver.dispatch()
    driver.do(act.CompleteLoad(1))
    driver.execute()
    if promoted:
        driver.output()
        driver.do(act.Finish(0), act.EvictBlocks(tuple(range(1, 20))))
        driver.submit(0, 13)
        driver.do(act.BeginStep(), *macros.admit(0, 5, 0, 8), act.Promote(1))
        driver.dispatch()
        driver.execute()
    driver.do(act.Output(0, failed=True, valid=4))
    request = driver.request(1)
    assert (request.status, request.loaded, driver.tables(1)) == (Status.WAITING, False, [[]])
    assert sum(driver.world.pool.ref) == 0
