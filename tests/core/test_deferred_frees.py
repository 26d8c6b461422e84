"""Frees that wait for a step in flight (T3, T31, T32, T36.1, 3.4)."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import errors
from kvproof.core.config import SOUND
from kvproof.core.step import step
from kvproof.core.world import DeferredFree
from kvproof.spec import macros
from tests.driving import Driver
from tests.in_flight import admit, attention, dispatch, free_blocks, hybrid, refused, run

# --- deferred frees (T3, T31, T32, T36.1) -------------------------------------------------------------------------


def free_order(order: Any, **settings: Any) -> Driver:
    """G13: pool of 12, 40 tokens in chunks of 32 and 8, of which the last one is in flight; freeing is deferred."""
    profile = evolve(SOUND, deferred_free_order=order)
    driver = Driver(hybrid(16, 16, num_blocks=12, defer_block_free=True, profile=profile, **settings))
    driver.submit(0, 40)
    driver.chunk(0, 32)
    dispatch(driver, act.Allocate(0, 8))
    assert driver.tables(0) == [[1, 2, 4], [0, 3, 5]]
    return driver


@pytest.mark.parametrize(
    ("order", "queue"),
    [("per_group", [5, 4, 6, 7, 8, 9, 10, 11, 2, 1, 3]), ("flattened", [5, 4, 6, 7, 8, 9, 10, 11, 3, 2, 1])],
)
def test_the_order_of_a_deferred_free(order: str, queue: list[int]) -> None:
    """G13, T3, PC-12: nothing is free before the output of the step in flight, then the queue is that of an immediate free."""
    driver = free_order(order)
    finished = driver.do(act.Finish(0))
    assert finished.deferred
    assert free_blocks(driver) == [6, 7, 8, 9, 10, 11]
    assert [driver.world.pool.ref[block] for block in range(1, 6)] == [1] * 5
    assert driver.deferred() == [DeferredFree(2, ((1, 2, 4), (0, 3, 5)))]
    assert (driver.world.issued, driver.world.processed) == (2, 1)
    run(driver)
    assert free_blocks(driver) == [6, 7, 8, 9, 10, 11]
    driver.do(act.Output(0))
    assert free_blocks(driver) == queue
    assert driver.deferred() == []
    assert (driver.world.issued, driver.world.processed) == (2, 2)


def test_without_a_step_in_flight_freeing_is_immediate() -> None:
    """T32: nothing waits for a request at rest, and nothing if freeing is not deferred."""
    driver = free_order("per_group")
    run(driver)
    driver.do(act.Output(0, (9,)))
    assert not driver.do(act.Finish(0)).deferred
    assert free_blocks(driver) == [5, 4, 6, 7, 8, 9, 10, 11, 2, 1, 3]
    driver = Driver(hybrid(16, 16, num_blocks=12))
    driver.submit(0, 40)
    admit(driver, 0, 32)
    assert not driver.do(act.Finish(0)).deferred
    assert (driver.world.deferred, driver.world.issued) == ((), 0)
    assert len(free_blocks(driver)) == 11


def test_references_of_copies_are_fenced_too() -> None:
    """T0(5): while freeing is deferred, both ends of a copy are held until the step that runs it is processed."""
    driver = Driver(hybrid(64, 64, hash_block_size=16, defer_block_free=True))
    driver.submit(0, 50)
    driver.chunk(0, 48)
    driver.chunk(0, 2)
    driver.submit(1, 49)
    driver.submit(2, 49)
    driver.do(act.BeginStep(), *macros.admit(1, 1, 48), *macros.admit(2, 1, 48))
    copies = sorted(driver.world.plan.copies, key=lambda copy: copy[0])
    assert [group for group, _, _ in copies] == [0, 0, 1, 1]
    ends = [end for copy in copies for end in copy[1:]]
    held = driver.world.pool.ref
    assert driver.dispatch().copies == tuple(copies)
    assert driver.world.pool.ref == held
    assert driver.deferred() == [DeferredFree(3, (tuple(reversed(ends)),))]
    run(driver)
    before = free_blocks(driver)
    driver.do(act.Output(2, (9,)))
    assert driver.deferred() == []
    assert [driver.world.pool.ref[end] - held[end] for end in ends] == [-ends.count(end) for end in ends]
    # In the order of the copies, source before destination; only the attention source is nobody's now.
    assert free_blocks(driver) == [*before, *(end for end in dict.fromkeys(ends) if not driver.world.pool.ref[end])]
    assert driver.world.steps[0].opened
    driver.do(act.Output(1, (9,)))
    assert (driver.world.issued, driver.world.processed) == (3, 3)


def test_copies_of_a_step_without_tokens_are_not_fenced() -> None:
    """T0(5), LV-2: a withdrawn request leaves its copy to a step whose output nobody processes: nothing would open a fence."""
    driver = Driver(hybrid(64, 64, hash_block_size=16, defer_block_free=True))
    driver.submit(0, 50)
    driver.chunk(0, 48)
    driver.do(act.BeginStep(), act.Allocate(0, 2), act.Withdraw(0))
    assert driver.dispatch().copies != ()
    assert (driver.world.deferred, driver.world.issued, driver.world.processed) == ((), 1, 1)
    run(driver)
    assert driver.world.steps == ()
    assert len(free_blocks(driver)) == 39


def test_copies_of_a_step_without_tokens_wait_for_the_step_before() -> None:
    """T0(5): with another step in flight the ends wait for that one."""
    driver = Driver(hybrid(64, 64, hash_block_size=16, defer_block_free=True))
    driver.submit(0, 50)
    driver.chunk(0, 48)
    driver.submit(1, (7, 7, 7))
    admit(driver, 1, 3)
    driver.do(act.BeginStep(), act.Allocate(0, 2), act.Withdraw(0))
    driver.dispatch()
    assert [waiting.fence for waiting in driver.world.deferred] == [2]
    run(driver)
    driver.do(act.Output(1, (9,)))
    assert driver.deferred() == []


def test_fences_open_from_the_front_with_the_first_output_of_a_step() -> None:
    """T36.1: what was freed behind a later step waits for it, in order."""
    driver = Driver(attention(4, num_blocks=10, defer_block_free=True))
    driver.submit(0, (1, 2, 3, 4, 5))
    driver.submit(1, (6, 6, 6))
    driver.submit(2, (7, 7, 7))
    dispatch(driver, *macros.admit(0, 5), *macros.admit(1, 3), *macros.admit(2, 3))
    driver.do(act.Finish(1))
    driver.submit(3, (8, 8, 8))
    dispatch(driver, *macros.admit(3, 3))
    driver.do(act.Finish(0))
    assert [waiting.fence for waiting in driver.world.deferred] == [1, 2]
    before = free_blocks(driver)
    run(driver)
    driver.do(act.Output(0))
    assert [waiting.fence for waiting in driver.world.deferred] == [2]
    assert free_blocks(driver) == [3, *before]
    driver.do(act.Output(2, (9,)), act.Output(1))
    assert driver.world.processed == 1
    run(driver)
    driver.do(act.Output(3, (9,)))
    assert driver.deferred() == []
    assert free_blocks(driver) == [2, 3, *before, 1]


def test_a_victim_in_flight_is_refused_while_freeing_is_deferred() -> None:
    """T31: its blocks would not become available in this plan; at rest it may be preempted, and its blocks are free at once."""
    driver = Driver(attention(defer_block_free=True))
    driver.submit(0, 40)
    driver.submit(1, 3)
    driver.chunk(1, 3)
    admit(driver, 0, 16)
    driver.do(act.BeginStep())
    assert refused(driver, act.Preempt(0)) is errors.VictimInFlight
    assert driver.do(act.Allocate(0, 16)).admitted
    assert refused(driver, act.Withdraw(0, drop_stale=True)) is errors.VictimInFlight
    block = driver.tables(1)[0][0]
    driver.do(act.Preempt(1))
    assert free_blocks(driver)[0] == block


def test_a_fence_that_was_reached_holds_nothing_back() -> None:
    """T36.1: a step whose outputs are being processed has run: who is freed now waits for it no more, nor is it a victim."""
    driver = Driver(attention(4, defer_block_free=True))
    driver.submit(0, 3)
    driver.submit(1, 3)
    dispatch(driver, *macros.admit(0, 3), *macros.admit(1, 3))
    assert step(driver.world, act.Finish(1))[1].deferred
    run(driver)
    driver.do(act.Output(0, (9,)))
    assert driver.counts(1) == (3, 3, 3)
    (block,) = driver.tables(1)[0]
    finished, record = step(driver.world, act.Finish(1))
    assert not record.deferred
    assert finished.pool.free[0] == block
    driver.do(act.BeginStep())
    assert refused(driver, act.Preempt(1)) is None
    driver.do(act.Preempt(1), *macros.CLOSE)
    driver.do(act.Output(1, (9,)))
    assert driver.counts(1) == (0, 4, 0)
