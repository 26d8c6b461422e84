"""Golden traces of docs/semantics.md section 9 (device side): exact block ids, as run on vLLM 0.33.0."""

from __future__ import annotations

import pytest

from kvproof.core import actions as act
from kvproof.core import allocation
from kvproof.core.config import SOUND, VLLM_0_33_0, Config, Group, Profile, configure
from kvproof.core.world import KeyRecord
from tests.driving import Driver


def hybrid(attention: int, mamba: int, **settings: object) -> Config:
    """One full-attention and one Mamba-align group, dense retention."""
    settings = {"num_blocks": 40} | settings
    return configure((Group("full_attention", attention), Group("mamba_align", mamba)), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("prompt", "ends", "tables", "attention", "mamba", "handoffs"),
    [
        (40, (32, 40), [[1, 3], [0, 2, 4]], {32: [1]}, {32: [2]}, [(2, 32)]),
        (48, (32, 48), [[1, 3], [0, 2, 4]], {32: [1]}, {32: [2], 48: [4]}, [(2, 32), (4, 48)]),
        (50, (48, 50), [[1, 2], [0, 0, 3, 4]], {32: [1], 48: [2]}, {48: [3]}, [(3, 48)]),
        (64, (48, 64), [[1, 2], [0, 0, 3, 4]], {32: [1], 48: [2], 64: [2]}, {48: [3], 64: [4]}, [(3, 48), (4, 64)]),
    ],
)
def test_g1_first_prompt(
    prompt: int,
    ends: tuple[int, int],
    tables: list[list[int]],
    attention: dict[int, list[int]],
    mamba: dict[int, list[int]],
    handoffs: list[tuple[int, int]],
) -> None:
    """G1: chunk ends, tables, keys and handoffs of a first prompt at N=2 with blocks of 16."""
    driver = Driver(hybrid(16, 16, dcp_size=2))
    assert driver.world.config.sizes == (32, 16)
    driver.submit(0, prompt)
    published: list[tuple[int, int, int, int]] = []
    for start, end in zip((0, *ends), ends, strict=False):
        published += driver.chunk(0, end - start).handoffs
    assert driver.tables(0) == tables
    assert (driver.keys(0), driver.keys(1)) == (attention, mamba)
    assert [(block, boundary) for _, _, block, boundary in published] == handoffs


def g5_world(**settings: object) -> Driver:
    """G5's pool: 64 tokens cached in four 16-token steps, Mamba keys above 32 evicted."""
    driver = Driver(hybrid(16, 16, max_chunk=16, **settings))
    driver.submit(0, 64)
    for _ in range(4):
        driver.chunk(0, 16)
    driver.do(act.Finish(0))
    gone = tuple(block for boundary, blocks in driver.keys(1).items() if boundary > 32 for block in blocks)
    driver.do(act.EvictBlocks(gone))
    driver.submit(1, 80)
    driver.do(act.BeginStep())
    return driver


def test_g5_common_lookup() -> None:
    """G5: without a capable connector the joint hit is 32 and the junction 64."""
    hit = g5_world().do(act.Lookup(1))
    assert (hit.local, hit.junction, hit.diverged) == (32, 64, False)
    hit = g5_world(connectors=(True, False)).do(act.Lookup(1))
    assert (hit.local, hit.junction, hit.diverged) == (32, 64, False)


def test_g5_per_group_lookup() -> None:
    """G5: with capable connectors full attention is deeper (64) and the hit has diverged."""
    hit = g5_world(connectors=(True,)).do(act.Lookup(1))
    assert (hit.local, hit.junction, hit.diverged) == (64, 0, True)
    assert hit.lists == ((1, 3, 5, 7), (0, 4))


def g6_driver() -> Driver:
    """G6 after its first request: 14 tokens at N=2 with blocks of 4, freed."""
    driver = Driver(hybrid(4, 4, dcp_size=2))
    driver.submit(0, 14)
    driver.chunk(0, 12)
    driver.chunk(0, 2)
    return driver


def test_g6_partial_hit_copies_the_attention_block_only() -> None:
    """G6: B hits 12; the attention block is copied, the aligned Mamba snapshot is not."""
    driver = g6_driver()
    assert driver.tables(0) == [[1, 2], [0, 0, 3, 4]]
    assert (driver.keys(0), driver.keys(1)) == ({8: [1], 12: [2]}, {12: [3]})
    driver.do(act.Finish(0))
    driver.submit(1, (*range(1, 13), 51, 52, 53, 54))
    driver.do(act.BeginStep())
    hit = driver.do(act.Lookup(1))
    assert (hit.local, hit.lists) == (12, ((1, 2), (0, 0, 3)))
    allocated = driver.do(act.Allocate(1, 4, 12))
    assert driver.tables(1) == [[1, 4], [0, 0, 3, 5]]
    assert allocated.new_blocks == ((4,), (5,))
    # What the copy brings is not there before the step: nobody may copy block 4 in this plan (COW-4).
    unwritten = [allocation.unwritten_in_plan(driver.world, 0, 1, block, 12) for block in (2, 4)]
    assert unwritten == [False, True]
    assert driver.close().copies == ((0, 2, 4),)


def test_g7_joint_hit_is_bounded_by_the_snapshots() -> None:
    """G7: chunks of 4; the state at 12 is evicted, so the hit is 8 and the junction 12."""
    driver = Driver(hybrid(4, 4, dcp_size=2, max_chunk=4))
    driver.submit(0, 14)
    for amount in (4, 4, 4, 2):
        driver.chunk(0, amount)
    assert (driver.keys(0), driver.keys(1)) == ({8: [1], 12: [4]}, {4: [2], 8: [3], 12: [5]})
    driver.do(act.Finish(0), act.EvictBlocks((5,)))
    driver.submit(1, 16)
    driver.do(act.BeginStep())
    hit = driver.do(act.Lookup(1))
    assert (hit.local, hit.junction) == (8, 12)


def test_g8_promotion_keeps_the_partial_key_as_secondary() -> None:
    """G8: block 2 stands for 48, after 66 tokens for 64 with 48 as secondary; evicting it removes both."""
    driver = Driver(hybrid(16, 16, dcp_size=2))
    driver.submit(0, 50)
    driver.chunk(0, 48)
    assert driver.world.pool.key_tokens[2] == 48
    driver.chunk(0, 2)
    while driver.request(0).computed < 66:
        driver.chunk(0, 1)
    assert driver.world.pool.key_tokens[2] == 64
    assert driver.keys(0) == {32: [1], 48: [2], 64: [2]}
    driver.do(act.EvictBlocks((2,)))
    assert driver.keys(0) == {32: [1]}
    assert driver.keys(1)[48] == [3]


def g9_driver(profile: Profile = SOUND) -> Driver:
    """G9 after step 1: 48 of 50 tokens with blocks of 64 and H = 16."""
    driver = Driver(hybrid(64, 64, hash_block_size=16, profile=profile))
    driver.submit(0, 50)
    return driver


def test_g9_producer_moves_its_keys_to_a_copy() -> None:
    """G9: step 1 publishes nothing; step 2 copies (2->3), publishes (3@48) and leaves the table alone."""
    driver = g9_driver()
    assert driver.chunk(0, 48).handoffs == ()
    assert driver.tables(0) == [[1], [2]]
    driver.do(act.BeginStep(), act.Allocate(0, 2))
    assert driver.world.pool.ref[3] == 1
    drained = driver.do(act.Drain())
    assert drained.copies == ((1, 2, 3),)
    assert drained.handoffs == ((0, 1, 3, 48),)
    assert driver.world.pool.ref[3] == 0
    assert 3 in driver.world.pool.free
    assert driver.tables(0) == [[1], [2]]
    assert (driver.keys(0), driver.keys(1)) == ({48: [1]}, {48: [3]})


def test_g10_consumer_copies_both_blocks() -> None:
    """G10: a resend hits 48 with lists [1], [3]; both blocks are copied and A's tables stay."""
    driver = g9_driver()
    driver.chunk(0, 48)
    driver.chunk(0, 2)
    driver.submit(1, 50)
    driver.do(act.BeginStep())
    hit = driver.do(act.Lookup(1))
    assert (hit.local, hit.lists) == (48, ((1,), (3,)))
    driver.do(act.Allocate(1, 2, 48))
    assert driver.tables(1) == [[4], [5]]
    assert driver.tables(0) == [[1], [2]]
    assert driver.do(act.Drain()).copies == ((0, 1, 4), (1, 3, 5))


def test_g10_same_step_demand_is_the_sentinel() -> None:
    """G10: in the step that registers the state a second request's demand is 41 + 1 blocks and it is refused."""
    driver = g9_driver()
    driver.chunk(0, 48)
    driver.submit(1, 50)
    driver.do(act.BeginStep(), act.Allocate(0, 2))
    hit = driver.do(act.Lookup(1))
    assert hit.local == 48
    refused = driver.do(act.Allocate(1, 2, 48))
    assert refused.admitted is False
    assert refused.demand == 41 + 1


def test_g13_order_of_the_free_queue() -> None:
    """G13: 12 blocks, 40 tokens in chunks 32 and 8: unkeyed to the front, keyed to the back, tail first, group by group."""
    driver = Driver(hybrid(16, 16, num_blocks=12))
    driver.submit(0, 40)
    driver.chunk(0, 32)
    driver.chunk(0, 8)
    assert driver.tables(0) == [[1, 2, 4], [0, 3, 5]]
    driver.do(act.Finish(0))
    assert driver.world.pool.free == (5, 4, 6, 7, 8, 9, 10, 11, 2, 1, 3)


def test_g14_sibling_of_the_same_step_waits_one_step() -> None:
    """G14: B hits 32 but is not admissible in A's step; the next step admits it."""
    driver = Driver(hybrid(16, 16))
    driver.submit(0, 40)
    driver.submit(1, 40)
    driver.do(act.BeginStep(), act.Lookup(0), act.Allocate(0, 32))
    assert driver.do(act.Lookup(1)).local == 32
    assert driver.do(act.Allocate(1, 8, 32)).admitted is False
    driver.close()
    driver.do(act.BeginStep(), act.Lookup(1))
    assert driver.do(act.Allocate(1, 8, 32)).admitted is True
    assert driver.tables(1) == [[1, 2, 4], [0, 3, 5]]


@pytest.mark.parametrize(("profile", "hit"), [(SOUND, 48), (VLLM_0_33_0, 64)])
def test_g17_withdrawal(profile: Profile, hit: int) -> None:
    """G17: keys of a withdrawn plan are rolled back (48 stays) or kept (64 is promised though never written)."""
    driver = g9_driver(profile)
    driver.chunk(0, 48)
    driver.chunk(0, 2)
    while driver.request(0).computed < 63:
        driver.chunk(0, 1)
    assert (driver.keys(0), driver.keys(1)) == ({48: [1]}, {48: [3]})
    driver.do(act.BeginStep(), act.Allocate(0, 1))
    assert (driver.keys(0), driver.keys(1)) == ({48: [1], 64: [1]}, {48: [3], 64: [2]})
    driver.do(act.Withdraw(0))
    rolled_back = ({48: [1]}, {48: [3]})
    kept = ({48: [1], 64: [1]}, {48: [3], 64: [2]})
    assert (driver.keys(0), driver.keys(1)) == (rolled_back if hit == 48 else kept)
    driver.close()
    tokens = driver.request(0).num_tokens
    assert tokens == 64
    driver.submit(1, (*range(1, 51), *(9,) * 14, 7))
    driver.do(act.BeginStep())
    assert driver.do(act.Lookup(1)).local == hit


def test_undo_keeps_records_not_worlds() -> None:
    """T39: a plan keeps per request the key records its registrations changed, and nothing after the drain."""
    driver = g9_driver()
    driver.chunk(0, 48)
    driver.chunk(0, 2)
    while driver.request(0).computed < 63:
        driver.chunk(0, 1)
    driver.do(act.BeginStep(), act.Allocate(0, 1))
    ((request, records),) = driver.world.plan.undo
    assert request == 0
    assert [record.block for record in records] == [1, 2]
    assert all(isinstance(record, KeyRecord) for record in records)
    driver.do(act.Drain())
    assert driver.world.plan.undo == ()
