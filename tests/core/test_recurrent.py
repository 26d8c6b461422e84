"""Mamba align: speculative blocks and their relocation (T21), the demand of such groups (T17)."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import errors, pool
from kvproof.core.config import SOUND, VLLM_0_33_0
from kvproof.core.kinds import recurrent
from kvproof.core.world import ABSENT
from tests.driving import Driver
from tests.recurrent import checkpointing, held, hybrid, last

# --- speculative blocks and relocation (T21) --------------------------------------------------------------------------


def relocated() -> Driver:
    """G11: N=1, FA16, Mamba16, one speculative block, 150 tokens in chunks of 16, 64 and 64."""
    driver = Driver(hybrid(16, 16, 1, max_chunk=64))
    driver.submit(0, 150)
    return driver


def test_g11_relocation() -> None:
    """G11: block 3 moves from column 1 to 4, block 8 from 5 to 8; nulls lie between; handoffs (2@16), (3@80), (8@144)."""
    driver = relocated()
    expected: list[tuple[int, list[int], tuple[Any, ...], tuple[Any, ...]]] = [
        (16, [2, 3], (), (0, 1, 2, 16)),
        (64, [2, 0, 0, 0, 3, 8], ((1, 3, 1, 4),), (0, 1, 3, 80)),
        (64, [0, 0, 0, 0, 3, 0, 0, 0, 8, 13], ((1, 8, 5, 8),), (0, 1, 8, 144)),
    ]
    for amount, table, moved, handoff in expected:
        drained = driver.chunk(0, amount)
        assert driver.tables(0)[1] == table
        assert last(driver, "Allocate").relocated == moved
        assert drained.handoffs == (handoff,)
    assert driver.keys(1) == {16: [2], 80: [3], 144: [8]}


def test_g11_reports_moved_blocks_as_new_entries_and_keeps_them_in_the_row() -> None:
    """T21.4: nulls, the moved block and the new one are new entries; the row, append-only, has the moved block twice."""
    driver = relocated()
    driver.chunk(0, 16)
    driver.chunk(0, 64)
    assert last(driver, "Allocate").new_blocks[1] == (0, 0, 3, 8)
    assert driver.world.worker.rows[1][0] == (2, 3, 0, 0, 3, 8)
    assert driver.world.pool.ref[3] == 1


def test_relocation_counts_in_the_demand() -> None:
    """T17 exact: the chunk from 16 to 80 takes one state block, not two, because one moves along."""
    driver = relocated()
    driver.chunk(0, 16)
    driver.do(act.BeginStep())
    record = driver.do(act.Allocate(0, 64))
    assert (record.demand, len(record.taken)) == (4 + 1, 5)


def test_speculative_blocks_are_taken_at_admission() -> None:
    """T21.5: the first call takes the running state's block and ns more; a further column costs one block."""
    driver = Driver(hybrid(4, 4, 3, max_chunk=4))
    driver.submit(0, 12)
    driver.chunk(0, 4)
    assert driver.tables(0)[1] == [2, 3, 4, 5]
    driver.chunk(0, 4)
    assert driver.tables(0)[1] == [2, 3, 4, 5, 7]
    driver.chunk(0, 4)
    # The state at 4 was read by the step before and goes back; what was a spare block is the running one.
    assert driver.tables(0)[1] == [0, 3, 4, 5, 7, 9]
    assert last(driver, "Allocate").relocated == ()


@pytest.mark.parametrize(("rule", "demand"), [("exact", 0), ("capped", -1)])
def test_a_table_that_rejected_drafts_left_longer_than_needed(rule: Any, demand: int) -> None:
    """T17: after three rejected drafts the table is a column longer than the next step needs; 0.33.0 counts that as -1."""
    profile = evolve(SOUND, recurrent_demand=rule)
    driver = Driver(hybrid(16, 4, 3, num_draft_tokens=3, profile=profile))
    driver.submit(0, 4)
    driver.chunk(0, 4)
    driver.do(act.BeginStep(), act.Allocate(0, 4, drafts=(7, 7, 7)))
    driver.close((0, 9))
    assert (len(driver.tables(0)[1]), driver.request(0).computed) == (5, 5)
    driver.chunk(0, 1)
    driver.do(act.BeginStep(), act.Allocate(0, 4, drafts=(7, 7, 7)))
    driver.close((0, 9))
    assert (len(driver.tables(0)[1]), driver.request(0).computed) == (6, 7)
    driver.do(act.BeginStep())
    record = driver.do(act.Allocate(0, 1))
    assert (record.demand, record.taken, record.new_blocks) == (demand, (), ((), ()))


@pytest.mark.parametrize(
    ("adopted", "main", "spare", "demand"),
    [
        (0, 16, 0, 1),
        (0, 16, 3, 4),  # the running state and three spare blocks
        (0, 64, 3, 4),  # nulls cost nothing
        (2, 48, 1, 3),  # one adopted block leaves the free queue
    ],
)
def test_capped_demand(adopted: int, main: int, spare: int, demand: int) -> None:
    """T17 capped: 1 + ns blocks at most at admission, whatever the number of columns."""
    driver = Driver(hybrid(16, 16, spare, profile=VLLM_0_33_0, max_chunk=64))
    driver.submit(0, 80)
    driver.chunk(0, 32)
    driver.do(act.Finish(0))
    driver.submit(1, 80 if adopted else tuple(range(500, 580)))
    driver.do(act.BeginStep())
    hit = driver.do(act.Lookup(1))
    assert len(hit.lists[1]) == adopted
    record = driver.do(act.Allocate(1, main - hit.local, hit.local))
    attention = main // 16 - adopted + (2 if adopted else 0)
    assert record.demand - attention == demand


def test_capped_demand_of_a_running_request() -> None:
    """T17 capped: behind admission one block, and one for the checkpoint; here that is what is taken too."""
    for alignment, state_blocks in ((None, 1), (16, 2)):
        driver = checkpointing(spare=1, max_chunk=320, checkpoint_alignment=alignment, profile=VLLM_0_33_0)
        driver.submit(0, 700)
        driver.chunk(0, 64)
        driver.do(act.BeginStep())
        record = driver.do(act.Allocate(0, 320))
        assert record.demand == len(record.taken) == 5 + state_blocks


def test_only_writable_blocks_move() -> None:
    """TB-10, M-MAM-4: a shared or keyed block in a speculative column is a broken contract, never moved."""
    for spoil in ("shared", "keyed"):
        driver = relocated()
        driver.chunk(0, 16)
        blocks = driver.world.pool
        if spoil == "shared":
            blocks = pool.touch(blocks, (3,))
        else:
            blocks = pool.insert(blocks, 5, 1, 3, 4)
        driver.world = evolve(driver.world, pool=blocks)
        driver.do(act.BeginStep())
        with pytest.raises(errors.ContractBroken, match="only a private, unkeyed block is moved"):
            driver.do(act.Allocate(0, 64))


@pytest.mark.parametrize(
    ("length", "spare", "stop", "columns"),
    [
        (2, 1, 4, [1]),
        (6, 3, 4, [3]),
        (6, 3, 9, [3, 4, 5]),
        (6, 3, 3, []),
        (6, 0, 9, []),
        (6, 3, 1, []),
    ],
)
def test_which_columns_move(length: int, spare: int, stop: int, columns: list[int]) -> None:
    """T21.4: of the last ns columns those below the running one."""
    assert list(recurrent.relocated_columns(length, spare, stop)) == columns


def test_moved_states_are_retired_in_their_new_column() -> None:
    """T21 nulling: the bound is over columns, whatever moved into them; the highest index is freed first."""
    driver = relocated()
    for amount in (16, 64, 64):
        driver.chunk(0, amount)
    # Behind 144 processed tokens the states before column 8 are dead: those at 16 (freed before) and at 80.
    driver.chunk(0, 6)
    assert driver.tables(0)[1] == [0, 0, 0, 0, 0, 0, 0, 0, 8, 13, 15]
    assert driver.request(0).groups[1].retired == 8
    assert driver.world.pool.free[-2:] == (2, 3)


def test_a_producer_with_speculative_blocks_keeps_its_running_block() -> None:
    """T21.6: the tail's key moves to a copy; table, row and spare blocks stay (G9 with one speculative block)."""
    driver = Driver(hybrid(64, 64, 1, hash_block_size=16))
    driver.submit(0, 50)
    driver.chunk(0, 48)
    assert (driver.tables(0), driver.keys(1)) == ([[1], [2, 3]], {48: [2]})
    drained = driver.chunk(0, 2)
    assert drained.copies == ((1, 2, 4),)
    assert drained.handoffs == ((0, 1, 4, 48),)
    assert (driver.tables(0), driver.keys(1)) == ([[1], [2, 3]], {48: [4]})
    assert [held(driver.world, block) for block in (2, 4)] == [50, 48]


def test_absent_counts_stay_absent() -> None:
    """T7: a chunk without a full block leaves `num_cached` absent."""
    driver = Driver(hybrid(64, 64, 2))
    driver.submit(0, 10)
    driver.chunk(0, 10)
    assert driver.request(0).groups[1].num_cached == ABSENT


@pytest.mark.parametrize(("rule", "published"), [("no", ()), ("yes", ((0, 1, 3, 2),))])
def test_a_producer_whose_tail_lost_its_key(rule: Any, published: tuple[Any, ...]) -> None:
    """T21.6, M-HO-6: the copy of a state whose key was evicted is published only under ``publish_unkeyed = yes``."""
    driver = Driver(hybrid(4, 4, hash_block_size=2, profile=evolve(SOUND, publish_unkeyed=rule)))
    driver.submit(0, 3)
    driver.chunk(0, 2)
    driver.do(act.EvictBlocks((2,)), act.BeginStep(), act.Allocate(0, 1))
    assert (driver.dispatch().handoffs, driver.keys(1)) == (published, {})
