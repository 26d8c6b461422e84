"""The pool on tensors, by the words of T1 to T8: which block comes next, what queues where, which key wins."""

import pytest

torch = pytest.importorskip("torch")

from kvproof.gpu import pool as pools  # noqa: E402
from kvproof.gpu.pool import TensorError  # noqa: E402

CPU = torch.device("cpu")


def pool_of(count=8, keys=4):
    return pools.new_pool(count, keys, CPU)


def blocks(*ids):
    return pools.ids(ids, CPU)


def keyed(pool, block, key, tokens=4):
    pools.promote(pool, blocks(block), torch.tensor([key]), torch.tensor([tokens], dtype=torch.int32))


def test_a_new_pool_has_every_block_but_the_null_block_in_order():
    pool = pool_of(5)
    assert pool.free.tolist() == [1, 2, 3, 4]
    assert pool.ref.tolist() == [0] * 5
    assert pool.primary.tolist() == [0] * 5


def test_t1_takes_from_the_front_and_forgets_keys():
    pool = pool_of(5)
    pools.take(pool, 2)
    keyed(pool, 1, 71)
    pools.release(pool, blocks(1))
    assert pool.free.tolist() == [3, 4, 1]
    assert pools.take(pool, 3).tolist() == [3, 4, 1]
    assert pool.primary[1] == 0
    assert pools.find(pool, torch.tensor([71])).tolist() == [-1]
    assert pool.ref.tolist() == [0, 1, 1, 1, 1]
    with pytest.raises(TensorError, match="1 blocks are wanted and 0 are free"):
        pools.take(pool, 1)


def test_t2_touch_leaves_the_queue_once_and_skips_null():
    pool = pool_of(5)
    pools.touch(pool, blocks(0, 3, 3))
    assert pool.free.tolist() == [1, 2, 4]
    assert pool.ref.tolist() == [0, 0, 0, 2, 0]


def test_t3_unkeyed_blocks_queue_in_front_and_keyed_ones_behind_in_the_given_order():
    pool = pool_of(7)
    pools.take(pool, 5)
    keyed(pool, 2, 72)
    keyed(pool, 4, 74)
    pools.release(pool, blocks(5, 4, 0, 3, 2, 1))
    assert pool.free.tolist() == [5, 3, 1, 6, 4, 2]
    assert pool.ref.tolist() == [0] * 7


def test_t3_a_block_named_twice_queues_where_it_is_named_last():
    pool = pool_of(5)
    pools.take(pool, 3)
    pools.touch(pool, blocks(1))
    pools.release(pool, blocks(1, 2, 1, 3))
    assert pool.free.tolist() == [2, 1, 3, 4]


def test_t3_a_block_that_is_still_held_stays_out_and_one_too_many_is_an_error():
    pool = pool_of(5)
    pools.take(pool, 1)
    pools.touch(pool, blocks(1))
    pools.release(pool, blocks(1))
    assert pool.free.tolist() == [2, 3, 4]
    pools.release(pool, blocks(1))
    with pytest.raises(TensorError, match=r"blocks \[1\] are released more often"):
        pools.release(pool, blocks(1))


def test_a_lookup_returns_the_first_inserted_block_still_present():
    pool = pool_of(5)
    pools.take(pool, 3)
    for block in (3, 1, 2):
        keyed(pool, block, 70)
    assert pools.find(pool, torch.tensor([70, 71])).tolist() == [3, -1]
    pools.strip(pool, blocks(3))
    assert pools.find(pool, torch.tensor([70])).tolist() == [1]


def test_t7_a_full_entry_takes_the_place_of_a_smaller_one_and_of_its_other_keys():
    pool = pool_of(5)
    pools.insert(pool, 1, 48, 48)
    pools.insert(pool, 1, 32, 32)
    keyed(pool, 1, 64, 64)
    assert pools.keys_of(pool, 1) == [(64, 64)]
    with pytest.raises(TensorError, match="as many or more tokens"):
        keyed(pool, 1, 65, 64)


def test_t8_a_boundary_under_a_larger_primary_is_secondary_and_a_smaller_primary_goes():
    pool = pool_of(5)
    pools.insert_partial(pool, 1, 48, 48)
    pools.insert_partial(pool, 1, 32, 32)
    assert pools.keys_of(pool, 1) == [(48, 48), (32, -1)]
    pools.insert_partial(pool, 1, 56, 56)
    assert pools.keys_of(pool, 1) == [(56, 56)]
    before = pool.inserted
    pools.insert_partial(pool, 1, 56, 56)
    assert pool.inserted == before


def test_t8_another_key_for_as_many_tokens_is_secondary():
    pool = pool_of(5)
    pools.insert(pool, 1, 48, 48)
    pools.insert_partial(pool, 1, 99, 48)
    assert pools.keys_of(pool, 1) == [(48, 48), (99, -1)]


def test_a_block_has_room_for_so_many_keys_and_no_more():
    pool = pool_of(3, keys=2)
    pools.insert(pool, 1, 8, 8)
    pools.insert(pool, 1, 4, 4)
    with pytest.raises(TensorError, match="block 1 has 2 keys already"):
        pools.insert(pool, 1, 2, 2)


def test_t6_move_takes_the_primary_first_with_its_tokens():
    pool = pool_of(5)
    pools.insert(pool, 1, 48, 48)
    pools.insert(pool, 1, 32, 32)
    pools.move(pool, 1, 2)
    assert pools.keys_of(pool, 1) == []
    assert pools.keys_of(pool, 2) == [(48, 48), (32, -1)]
    with pytest.raises(TensorError, match="already has one"):
        pools.move(pool, 1, 2)


def test_t6_move_takes_the_secondary_keys_in_the_order_of_their_insertion():
    pool = pool_of(5)
    for key in (48, 16, 32):
        pools.insert(pool, 1, key, key)
    # A block that got its records back may have them in any place: the numbers of their insertion count.
    order = [2, 0, 1]
    pool.keys[1, :3], pool.order[1, :3] = pool.keys[1, order].clone(), pool.order[1, order].clone()
    assert pools.keys_of(pool, 1) == [(48, 48), (16, -1), (32, -1)]
    pools.move(pool, 1, 2)
    numbers = dict(zip(pool.keys[2].tolist(), pool.order[2].tolist(), strict=True))
    assert numbers[48] < numbers[16] < numbers[32]
    assert pools.keys_of(pool, 2) == [(48, 48), (16, -1), (32, -1)]


def test_t39_changed_records_come_back_as_they_were():
    pool = pool_of(5)
    pools.insert(pool, 1, 48, 48)
    pools.insert(pool, 2, 9, 8)
    before = pools.copied(pool)
    assert pools.changed(pool, before) is None
    keyed(pool, 1, 64, 64)
    pools.insert(pool, 3, 11, 4)
    changed = pools.changed(pool, before)
    assert changed is not None
    assert changed.blocks.tolist() == [1, 3]
    pools.restore(pool, changed)
    assert pools.keys_of(pool, 1) == [(48, 48)]
    assert pools.keys_of(pool, 2) == [(9, 8)]
    assert pools.keys_of(pool, 3) == []


def test_t5_a_reset_needs_every_block_free():
    pool = pool_of(4)
    pools.take(pool, 1)
    keyed(pool, 1, 70)
    assert not pools.reset(pool)
    assert pools.find(pool, torch.tensor([70])).tolist() == [1]
    pools.release(pool, blocks(1))
    assert pools.reset(pool)
    assert pools.find(pool, torch.tensor([70])).tolist() == [-1]
