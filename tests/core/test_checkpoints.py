"""Mamba align: internal checkpoints (T38, T10.2a) and the ends of chunks (T22, T10.2b)."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import allocation, geometry, pool, prefixes, retention
from kvproof.core import step as steps
from kvproof.core.config import SOUND, VLLM_0_33_0, Group, Profile, configure
from kvproof.core.errors import ConfigError
from kvproof.core.kinds import recurrent
from kvproof.core.work import Work
from kvproof.core.world import GroupState
from tests.driving import Driver
from tests.recurrent import FULL, MAMBA, checkpointing, false_keys, held, hybrid, last, reserved

# --- internal checkpoints (T38, T10.2a) -------------------------------------------------------------------------------


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
    sizes["checkpoint_alignment"] = None
    assert retention.checkpoint_of(64, 200, eagle=False, **sizes) is None
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
