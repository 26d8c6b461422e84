"""Mamba align: speculative blocks and their relocation (T21), internal checkpoints (T38), the ends of chunks (T22)."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import allocation, errors, geometry, pool, prefixes, retention
from kvproof.core import step as steps
from kvproof.core.config import SOUND, VLLM_0_33_0, Config, Group, Profile, configure
from kvproof.core.errors import ConfigError
from kvproof.core.kinds import recurrent
from kvproof.core.records import Record
from kvproof.core.work import Work
from kvproof.core.world import ABSENT, GroupState, World
from tests.driving import Driver

FULL, MAMBA = "full_attention", "mamba_align"


def hybrid(attention: int, mamba: int, spare: int = 0, **settings: Any) -> Config:
    """One full-attention group and one Mamba-align group with speculative blocks."""
    defaults: dict[str, Any] = {"num_blocks": 40}
    return configure((Group(FULL, attention), Group(MAMBA, mamba, speculative_blocks=spare)), **(defaults | settings))


def last(driver: Driver, action: str) -> Record:
    """The newest record of an action."""
    return next(record for record in reversed(driver.records) if record.action == action)


def held(world: World, block: int) -> int:
    """How many tokens the recurrent state in a block stands for; -1 unwritten, -2 garbage."""
    cells = world.contents[block][1:]
    assert len(set(cells)) == 1
    return world.prefixes.depth[cells[0]] if cells[0] >= 0 else cells[0]


def false_keys(world: World) -> list[tuple[int, int, int]]:
    """(block, boundary its key promises, boundary of the state it holds) of every recurrent key that lies (CC-3)."""
    return [
        (block, world.prefixes.depth[node], held(world, block))
        for node, group, _, block in world.pool.entries
        if group in world.config.recurrent and set(world.contents[block][1:]) != {node}
    ]


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


# --- internal checkpoints (T38, T10.2a) -------------------------------------------------------------------------------


def checkpointing(attention: int = 64, mamba: int = 64, spare: int = 0, **settings: Any) -> Driver:
    """FA64, Mamba64, H=16 and a backend that exports checkpoints at multiples of 16 tokens from the start of a chunk."""
    defaults: dict[str, Any] = {"hash_block_size": 16, "checkpoint_alignment": 16}
    return Driver(hybrid(attention, mamba, spare, **(defaults | settings)))


def reserved(driver: Driver, request: int = 0) -> tuple[int, int]:
    """(position, column) that the last demand of a request reserved."""
    state = driver.request(request).groups[1]
    return state.checkpoint_position, state.checkpoint_column


@pytest.mark.parametrize("spare", [0, 2])
@pytest.mark.parametrize("sparse", [0, None])
def test_a_checkpoint_inside_the_last_chunk(spare: int, sparse: int | None) -> None:
    """T38, M-CKPT-1, M-HO-1: EAGLE, B=64, H=16, one chunk 0..70: q=48 in column 0, published as 48, state 70 in column 1."""
    driver = checkpointing(spare=spare, use_eagle=True, retention=sparse)
    driver.submit(0, 70)
    drained = driver.chunk(0, 70)
    assert reserved(driver) == (48, 0)
    assert driver.tables(0) == [[1, 2], [3, 4, *range(5, 5 + spare)]]
    assert driver.keys(1) == {48: [3]}
    assert drained.handoffs == ((0, 1, 3, 48),)
    assert [held(driver.world, block) for block in (3, 4)] == [48, 70]
    driver.do(act.Finish(0))
    driver.submit(1, 70)
    driver.do(act.BeginStep())
    assert driver.do(act.Lookup(1)).local == 48


def test_without_an_exporting_backend_the_chunk_stops_instead() -> None:
    """T22: without internal checkpoints the same prompt is computed in chunks to 48 and 70."""
    driver = checkpointing(use_eagle=True, checkpoint_alignment=None)
    driver.submit(0, 70)
    assert steps.clip(driver.world, driver.request(0), 0, 70) == 48


def test_only_the_last_chunk_under_sparse_retention() -> None:
    """T38.1: retention 0 reserves for the chunk that ends the prefill; dense retention for every chunk that fits."""
    for sparse, first, second in ((0, (-1, -1), (240, 2)), (None, (112, 0), (240, 2))):
        driver = checkpointing(retention=sparse, max_chunk=128)
        driver.submit(0, 250)
        driver.chunk(0, 128)
        assert reserved(driver) == first
        driver.chunk(0, 122)
        assert reserved(driver) == second
        assert driver.keys(1).keys() == ({240} if sparse == 0 else {128, 240})
        assert false_keys(driver.world) == []


@pytest.mark.parametrize(
    ("end", "sparse", "found"),
    [
        (128, 0, None),  # behind the prompt, but the recomputation of a resumed request goes on
        (198, 0, None),
        (199, 0, (192, 2)),  # its last known token but one ends its prefill
        (200, 0, (192, 2)),
        (128, None, (112, 0)),
        (201, None, None),  # a draft
    ],
)
def test_which_chunks_of_a_resumed_request_reserve(end: int, sparse: int | None, found: tuple[int, int] | None) -> None:
    """T38.1: P=20, 200 tokens known: prefill_end is 199."""
    driver = checkpointing(retention=sparse)
    world = driver.world
    work = Work(world.config, world.pool, world.prefixes, 0, 20, 0, (), num_tokens=200)
    wanted = allocation.Wanted(first=True, local=0, external=0, slots=end, main=end)
    assert recurrent.reservation(work, 1, GroupState(), wanted) == (found or recurrent.NO_CHECKPOINT)


def test_a_checkpoint_that_nobody_reaches_leaves_its_block_unkeyed() -> None:
    """T10.2a: at 112 of 250 tokens, B=64: no prompt checkpoint, no block end, no junction; the key 64 of T7 goes too."""
    driver = checkpointing(max_chunk=128)
    driver.submit(0, 250)
    drained = driver.chunk(0, 128)
    assert driver.tables(0)[1] == [3, 4]
    assert driver.keys(1) == {128: [4]}
    assert drained.handoffs == ((0, 1, 4, 128),)
    assert held(driver.world, 3) == 112


@pytest.mark.parametrize(
    ("position", "junction", "sparse", "useful"),
    [
        (240, 0, 0, True),  # the prompt's own, ck(250, 16)
        (112, 0, None, False),
        (112, 112, None, True),  # the junction
        (128, 0, None, True),  # a block end under dense retention
        (128, 0, 0, False),
        (128, 0, 128, True),
        (64, 0, 128, False),
    ],
)
def test_which_checkpoints_are_kept(position: int, junction: int, sparse: int | None, useful: bool) -> None:
    """T10.2a: the prompt's checkpoint, one that the mask without reach(r) keeps, or the junction."""
    driver = checkpointing(retention=sparse)
    work = Work(driver.world.config, driver.world.pool, driver.world.prefixes, 0, 250, junction, ())
    assert recurrent.useful_checkpoint(work, 1, position) is useful


def test_a_checkpoint_already_registered_stays() -> None:
    """T10.2a: a block that stands for q already is left alone: its key keeps its place in the lookup order."""
    driver = checkpointing(num_draft_tokens=0)
    driver.submit(0, 130)
    driver.chunk(0, 130)
    assert (reserved(driver), driver.keys(1)) == ((128, 1), {128: [4]})
    # T7 keyed the block with 128 first; nothing was removed and inserted again.
    assert driver.world.pool.next_seq == len(driver.world.pool.entries)


def test_a_reservation_outlives_a_refusal() -> None:
    """T38, PC-9: demand decides, also if T16 then returns None; the next demand decides anew, freeing forgets."""
    driver = checkpointing(use_eagle=True, num_blocks=4)
    driver.submit(0, 70)
    driver.do(act.BeginStep(), act.Lookup(0))
    refused = driver.do(act.Allocate(0, 70))
    assert (refused.admitted, refused.demand, reserved(driver)) == (False, 2 + 2, (48, 0))
    assert driver.tables(0) == [[], []]
    driver.close()
    driver.do(act.BeginStep(), act.Lookup(0))
    assert driver.do(act.Allocate(0, 48)).admitted is True
    assert reserved(driver) == (-1, -1)
    driver.close()

    driver = checkpointing(use_eagle=True)
    driver.submit(0, 70)
    driver.chunk(0, 70)
    assert reserved(driver) == (48, 0)
    driver.chunk(0, 1)
    assert reserved(driver) == (-1, -1)
    driver = checkpointing(use_eagle=True)
    driver.submit(0, 70)
    driver.chunk(0, 70)
    driver.do(act.Preempt(0))
    assert driver.request(0).groups[1] == GroupState()


def test_the_admission_gate_reserves_nothing() -> None:
    """T38: the full-sequence gate counts a checkpoint and does not reserve it."""
    driver = checkpointing(use_eagle=True, num_blocks=4)
    driver.submit(0, 70)
    driver.do(act.BeginStep(), act.Lookup(0))
    assert driver.do(act.Allocate(0, 48, full_sequence=True)).admitted is False
    assert reserved(driver) == (-1, -1)


@pytest.mark.parametrize(
    ("table", "allocated", "column", "free"),
    [
        ((1, 0, 3), False, 3, True),  # behind the table
        ((1, 0, 3), False, 1, True),  # null
        ((1, 0, 3), False, 2, False),
        ((1, 0, 3), True, 2, True),  # a speculative block of a running request
        ((1, 2, 3), True, 1, False),
        ((1, 2, 3), True, 0, False),
    ],
)
def test_which_columns_are_free_for_a_checkpoint(table: tuple[int, ...], allocated: bool, column: int, free: bool) -> None:
    """T38.3, with one speculative block."""
    assert recurrent.column_is_free(GroupState(table=table, allocated=allocated), column, 1) is free


def test_a_checkpoint_takes_the_speculative_block_in_its_column() -> None:
    """T21.4, T38.4: the spare block of column 1 stays there for the checkpoint of the chunk 64..192; nothing moves."""
    driver = checkpointing(spare=1, max_chunk=128)
    driver.submit(0, 400)
    driver.chunk(0, 64)
    assert driver.tables(0)[1] == [2, 3]
    driver.chunk(0, 128)
    assert (reserved(driver), last(driver, "Allocate").relocated) == ((176, 1), ())
    assert driver.tables(0)[1] == [2, 3, 6, 7]
    assert [held(driver.world, block) for block in (2, 3, 6)] == [64, 176, 192]


def test_a_moved_block_may_take_the_checkpoint() -> None:
    """T21.3, T21.4: nulls end before the checkpoint's column, so the first moved block lands in it."""
    driver = checkpointing(spare=1, max_chunk=320)
    driver.submit(0, 700)
    driver.chunk(0, 64)
    driver.chunk(0, 320)
    assert (reserved(driver), last(driver, "Allocate").relocated) == ((368, 4), ((1, 3, 1, 4),))
    assert driver.tables(0)[1] == [2, 0, 0, 0, 3, 9, 10]
    assert [held(driver.world, block) for block in (3, 9)] == [368, 384]


def test_no_checkpoint_in_a_step_with_drafts() -> None:
    """T38: with H=1 and B=1 a step of 1 + 3 tokens would reach a boundary, but backends export in prefills alone."""
    driver = Driver(hybrid(1, 1, 3, num_draft_tokens=3, checkpoint_alignment=1))
    driver.submit(0, 4)
    driver.chunk(0, 4)
    driver.do(act.BeginStep(), act.Allocate(0, 4, drafts=(7, 7, 7)))
    assert reserved(driver) == (-1, -1)
    driver.close((0, (7, 7, 9)))
    assert false_keys(driver.world) == []


@pytest.mark.parametrize(("profile", "keys"), [(SOUND, {8, 10}), (VLLM_0_33_0, {8})], ids=("sound", "0.33.0"))
def test_a_chunk_keeps_its_checkpoint_and_its_end(profile: Profile, keys: set[int]) -> None:
    """LV-10, `tails_of_a_chunk`: EAGLE, B=8, H=2, c=4, P=12: the chunk 0..10 exports 8 and ends at ck(12, 2) = 10.

    The first match alone is registered by 0.33.0, and a resend hits 8.
    """
    driver = checkpointing(8, 8, hash_block_size=2, checkpoint_alignment=4, use_eagle=True, profile=profile)
    driver.submit(0, 12)
    driver.chunk(0, 10)
    assert (reserved(driver), set(driver.keys(1))) == ((8, 0), keys)
    driver.chunk(0, 2)
    assert false_keys(driver.world) == []
    driver.do(act.Finish(0))
    driver.submit(1, 12)
    driver.do(act.BeginStep())
    assert driver.do(act.Lookup(1)).local == max(keys)


def test_the_end_of_a_coarse_chunk_is_not_taken_for_its_checkpoint() -> None:
    """T10.2: with EAGLE and hits of 4 tokens a caching call of 9 tokens ends in the column of the checkpoint at 4."""
    driver = Driver(hybrid(4, 1, hash_block_size=1, use_eagle=True, checkpoint_alignment=4, retention=0))
    driver.submit(0, 10)
    driver.chunk(0, 10)
    assert reserved(driver) == (4, 8)
    assert driver.keys(1) == {4: driver.tables(0)[1][8:9]}
    assert false_keys(driver.world) == []


def test_checkpoints_with_coarse_hits_need_one_step_in_flight() -> None:
    """A second chunk, planned before the first is processed, would give the checkpoint at 4 the key of its column."""
    settings: dict[str, Any] = {"hash_block_size": 1, "checkpoint_alignment": 4}
    assert hybrid(4, 1, **settings).alignment == 4
    with pytest.raises(ConfigError, match="internal checkpoint may then lie before its column"):
        hybrid(4, 1, max_steps_in_flight=2, **settings)
    assert hybrid(4, 4, max_steps_in_flight=2, checkpoint_alignment=4).alignment == 4


def test_the_checkpoint_of_a_chunk() -> None:
    """T38.1: position ck(n, A), with the EAGLE drop if there is one, in the column before the running one."""
    sizes: dict[str, Any] = {"block_size": 64, "hash_block": 16, "alignment": 16, "checkpoint_alignment": 16}
    assert retention.checkpoint_of(0, 70, eagle=True, **sizes) == (48, 0)
    assert retention.checkpoint_of(0, 70, eagle=False, **sizes) == (64, 0)
    assert retention.checkpoint_of(0, 64, eagle=False, **sizes) is None  # one column only
    assert retention.checkpoint_of(64, 200, eagle=False, **sizes) == (192, 2)
    assert retention.checkpoint_of(64, 200, eagle=False, **(sizes | {"checkpoint_alignment": None})) is None
    assert [retention.checkpoint_column(end, 64) for end in (64, 65, 128, 129)] == [-1, 0, 0, 1]


def test_replacing_the_keys_of_a_block() -> None:
    """T8 replace mode: every key of the block goes, the new one is its primary, other blocks keep theirs."""
    blocks = pool.new_pool(4)
    for node, block, tokens in ((5, 1, 64), (6, 1, 48), (6, 2, 48)):
        blocks = pool.insert(blocks, node, 0, block, tokens)
    blocks = pool.replace_partial(blocks, 6, 0, 1, 48)
    assert (blocks.key_node[1], blocks.key_tokens[1]) == (6, 48)
    assert [(entry[0], entry[3]) for entry in blocks.entries] == [(6, 2), (6, 1)]


# --- where chunks end (T22, T10.2b) -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "ends"), [(95, (64, 95)), (100, (80, 100)), (160, (64, 144, 160))], ids=("P=95", "P=100", "P=160")
)
def test_chunk_ends_with_eagle(prompt: int, ends: tuple[int, ...]) -> None:
    """T22: EAGLE, B=64, H=16: the last block end and the tail both one unit down; a resend hits ck(P, H) (G16)."""
    driver = Driver(hybrid(64, 64, hash_block_size=16, use_eagle=True))
    driver.submit(0, prompt)
    seen = []
    while (start := driver.request(0).computed) < prompt:
        driver.chunk(0, steps.clip(driver.world, driver.request(0), start, prompt - start))
        seen.append(driver.request(0).computed)
    assert tuple(seen) == ends
    driver.do(act.Finish(0))
    driver.submit(1, prompt)
    driver.do(act.BeginStep())
    assert driver.do(act.Lookup(1)).local == geometry.checkpoint_boundary(prompt, 16, True)


def test_a_state_is_never_rewound() -> None:
    """T35, M-HIT-3: the lookup of states answers the same whether its class owes a drop or not."""
    driver = Driver(hybrid(64, 64, hash_block_size=16, use_eagle=True))
    driver.submit(0, 100)
    driver.chunk(0, 80)
    world = driver.world
    nodes = prefixes.boundary_nodes(world.prefixes, driver.request(0).tip, 16)
    answers = [recurrent.find_hit(world.config, world.pool, nodes, (1,), 99, drop) for drop in (False, True)]
    assert answers[0] == answers[1] == (80, ((0, driver.tables(0)[1][1]),))


def siblings(pinned: bool) -> Driver:
    """EAGLE, B=64, H=16, sparse: request 0 computed 200 tokens; request 1 shares 134 of them and was just looked up.

    Attention reaches 112 with the drop, and there is no state at or below it.
    """
    driver = Driver(hybrid(16, 64, hash_block_size=16, use_eagle=True, shared_prefix_checkpoint=pinned, retention=0))
    driver.submit(0, 200)
    while (start := driver.request(0).computed) < 200:
        driver.chunk(0, steps.clip(driver.world, driver.request(0), start, 200 - start))
    driver.do(act.Finish(0))
    driver.submit(1, (*range(1, 135), *range(900, 996)))
    driver.do(act.BeginStep())
    hit = driver.do(act.Lookup(1))
    assert (hit.local, hit.junction) == (0, 112)
    return driver


@pytest.mark.parametrize(("pinned", "stop"), [(True, 112), (False, 64)])
def test_a_pinned_junction_is_a_stop_of_its_own(pinned: bool, stop: int) -> None:
    """T22.4, T10.2b: with `shared_prefix_checkpoint` a chunk ends at the junction and its state is registered there.

    Without, it ends at the block end below, which the retention mask keeps for the junction.
    """
    driver = siblings(pinned)
    assert steps.clip(driver.world, driver.request(1), 0, 230) == stop
    driver.do(act.Allocate(1, stop))
    driver.close()
    shared = {depth for depth in driver.keys(1) if depth < 128}
    assert shared == {stop}
    while (start := driver.request(1).computed) < 230:
        driver.chunk(1, steps.clip(driver.world, driver.request(1), start, 230 - start))
    assert false_keys(driver.world) == []
    driver.submit(2, (*range(1, 135), *range(700, 710)))
    driver.do(act.BeginStep())
    assert driver.do(act.Lookup(2)).local == stop


@pytest.mark.parametrize(
    ("computed", "tokens", "kept"),
    [(0, 112, True), (111, 112, True), (112, 112, False), (0, 128, False), (0, 208, True)],
)
def test_when_a_junction_is_registered(computed: int, tokens: int, kept: bool) -> None:
    """T10.2b: only by the chunk of the prompt that ends there; 208 is the prompt checkpoint, ck(230, 16) with the drop."""
    driver = siblings(True)
    world = driver.world
    work = Work(world.config, world.pool, world.prefixes, 1, 230, 112, (), num_tokens=230, computed=computed)
    assert recurrent.is_checkpoint(work, tokens) is kept


def test_a_junction_behind_the_prompt_is_not_registered() -> None:
    """T10.2b: c <= P, and only if junctions are pinned."""
    for pinned, prompt, kept in ((True, 112, True), (True, 111, False), (False, 230, False)):
        world = siblings(pinned).world
        work = Work(world.config, world.pool, world.prefixes, 1, prompt, 112, (), num_tokens=230, computed=0)
        assert recurrent.is_checkpoint(work, 112) is kept


@pytest.mark.parametrize("rule", ["every_group", "clip_unit"])
def test_a_checkpoint_does_not_excuse_from_closing_the_open_block(rule: Any) -> None:
    """T22.5: EAGLE, B=64, H=16: resumed at 16 with 118 tokens left, a checkpoint fits; column 0 must still end at 64.

    Under `clip_unit` the chunk runs on, and the block that holds the state at 16 gets the key 64 (CC-3).
    """
    profile = evolve(SOUND, clip_stops=rule)
    driver = checkpointing(use_eagle=True, retention=0, profile=profile)
    driver.submit(0, 40)
    driver.chunk(0, 16)
    driver.chunk(0, 24)
    driver.do(act.Finish(0))
    driver.submit(1, (*range(1, 34), *range(900, 1001)))
    driver.do(act.BeginStep())
    assert driver.do(act.Lookup(1)).local == 16
    amount = steps.clip(driver.world, driver.request(1), 16, 118)
    driver.do(act.Allocate(1, amount, 16))
    driver.close()
    if rule == "clip_unit":
        assert (amount, false_keys(driver.world)) == (118, [(driver.tables(1)[1][0], 64, 16)])
        return
    assert (amount, false_keys(driver.world)) == (48, [])
    driver.chunk(1, 70)
    assert (reserved(driver, 1), false_keys(driver.world)) == ((112, 1), [])


@pytest.mark.parametrize("junction", [0, 16, 90, 112, 120])
@pytest.mark.parametrize("pinned", [True, False])
def test_every_amount_that_some_budget_yields_is_allowed(junction: int, pinned: bool) -> None:
    """T22: all clip results over all budgets are legal amounts, and nothing else is."""
    driver = checkpointing(use_eagle=True, max_chunk=200, shared_prefix_checkpoint=pinned)
    driver.submit(0, 134)
    request = evolve(driver.request(0), junction=junction)
    for start in range(0, 134, 2):
        yielded = {steps.clip(driver.world, request, start, wanted) for wanted in range(1, 135 - start)} - {0}
        allowed = {n for n in range(1, 135 - start) if steps.chunk_allowed(driver.world, request, start, n)}
        assert allowed == yielded
    if not junction:
        # From 64 a budget of 69 stops at the tail; only a budget that ends the prefill saves the checkpoint inside.
        assert [steps.clip(driver.world, request, 64, wanted) for wanted in (69, 70)] == [48, 70]


def test_an_amount_that_only_the_end_of_the_prefill_yields() -> None:
    """T22.1: B=2, H=1, P=22, resumed with 23 tokens: from 20 the tail 21 is a stop for 2 wanted tokens, 3 save it inside."""
    driver = Driver(hybrid(2, 2, hash_block_size=1, use_eagle=True, checkpoint_alignment=1))
    driver.submit(0, 23)
    resumed = evolve(driver.request(0), num_prompt=22)
    assert [steps.clip(driver.world, resumed, 20, wanted) for wanted in (1, 2, 3)] == [0, 1, 3]
    assert [steps.chunk_allowed(driver.world, resumed, 20, amount) for amount in (1, 2, 3)] == [True, False, True]


def test_a_checkpoint_must_fit_every_recurrent_group() -> None:
    """T22.1: of Mamba64 and Mamba128 the larger has a single column in 0..70, so the chunk stops at 48."""
    for sizes, amount in (((64,), 70), ((64, 64), 70), ((64, 128), 48)):
        groups = (Group(FULL, 64), *(Group(MAMBA, size) for size in sizes))
        config = configure(groups, num_blocks=20, hash_block_size=16, use_eagle=True, checkpoint_alignment=16)
        driver = Driver(config)
        driver.submit(0, 70)
        assert steps.clip(driver.world, driver.request(0), 0, 70) == amount


def test_absent_counts_stay_absent() -> None:
    """T7: a chunk without a full block leaves `num_cached` absent."""
    driver = Driver(hybrid(64, 64, 2))
    driver.submit(0, 10)
    driver.chunk(0, 10)
    assert driver.request(0).groups[1].num_cached == ABSENT
