"""Contracts of one transition of `kvproof.core.pool` each, in the style of `kvproof.proofs.geometry`.

Each starts from any sound pool of four blocks with the number of keys that its name tells ("two keys" where it tells
none would be too slow; those have at most one) and calls the real function. What "sound" means, and how a pool comes out
of the arguments, stands in `kvproof.proofs.pools_of_four`.
"""

from __future__ import annotations

from kvproof.core import pool as pools
from kvproof.core.pool import NULL_BLOCK
from kvproof.proofs import pools_of_four as four
from kvproof.proofs.pools_of_four import Draft, Key

# --- taking, touching, releasing ----------------------------------------------------------------------------------


def take_one_of_a_pool_with_two_keys(draft: Draft, key: Key, other: Key) -> None:
    """T1, PC-5: the block at the front, with one reference and without keys; nothing else changes."""
    assert four.legal(draft, key, other, free=1)
    old = four.pool_of(draft, key, other)
    new, (block,) = pools.take(old, 1)
    assert four.sound(new)
    assert block == old.free[0] and new.free == old.free[1:]
    assert new.ref[block] == 1 and four.unkeyed(new, block)
    assert four.keys_kept(old, new, block) and four.holdings_kept(old, new, block)


def take_two_of_a_pool_with_two_keys(draft: Draft, key: Key, other: Key) -> None:
    """T1, PC-5."""
    assert four.legal(draft, key, other, free=2)
    old = four.pool_of(draft, key, other)
    new, blocks = pools.take(old, 2)
    assert four.sound(new)
    assert blocks == old.free[:2] and new.free == old.free[2:]
    assert all(new.ref[block] == 1 and four.unkeyed(new, block) for block in blocks)
    assert four.keys_kept(old, new, *blocks) and four.holdings_kept(old, new, *blocks)


def take_no_more_than_is_free(draft: Draft, key: Key, count: int) -> None:
    """T1: a demand that the queue cannot meet is refused."""
    assert four.legal(draft, key)
    assert 1 <= count <= 4
    old = four.pool_of(draft, key)
    wanted = four.pick((1, 2, 3, 4), count - 1)
    answer = four.attempt(pools.take, old, wanted)
    assert (answer is None) == (wanted > len(old.free))


def touch_a_block(draft: Draft, key: Key, number: int) -> None:
    """T2: one reference more, out of the queue, keys and the rest stay."""
    assert four.legal(draft, key)
    assert 1 <= number <= 3
    old = four.pool_of(draft, key)
    block = four.block_of(number)
    new = pools.touch(old, (NULL_BLOCK, block))
    assert four.sound(new)
    assert new.ref[block] == old.ref[block] + 1
    assert four.keys_kept(old, new) and four.holdings_kept(old, new, block)


def touch_a_block_twice(draft: Draft, key: Key, number: int) -> None:
    """T2: two references more."""
    assert four.legal(draft, key)
    assert 1 <= number <= 3
    old = four.pool_of(draft, key)
    block = four.block_of(number)
    new = pools.touch(old, (block, block))
    assert four.sound(new)
    assert new.ref[block] == old.ref[block] + 2
    assert four.keys_kept(old, new) and four.holdings_kept(old, new, block)


def release_a_block(draft: Draft, key: Key, number: int) -> None:
    """T3, PC-8: one reference less; at none, to the front of the queue without a key and to its back with one."""
    assert four.legal(draft, key)
    assert 1 <= number <= 3
    old = four.pool_of(draft, key)
    block = four.block_of(number)
    new = four.attempt(pools.release, old, (NULL_BLOCK, block))
    assert (new is None) == (old.ref[block] == 0)
    assert new is None or four.sound(new)
    assert new is None or new.ref[block] == old.ref[block] - 1
    assert new is None or (four.keys_kept(old, new) and four.holdings_kept(old, new, block))
    assert new is None or new.ref[block] > 0 or new.free.index(block) == (0 if four.unkeyed(old, block) else len(old.free))


def release_two_blocks(draft: Draft, key: Key, number: int) -> None:
    """T3, PC-8: both leave use; unkeyed ones stand in front of all others, keyed ones behind, in the order given."""
    assert four.legal(draft, key)
    assert 1 <= number <= 3
    old = four.pool_of(draft, key)
    last = four.block_of(number)
    held = tuple(block for block in four.BLOCKS if block not in old.free and block != last)
    given = (*held[:1], last)
    new = four.attempt(pools.release, old, given)
    gone = tuple(block for block in given if new is not None and new.ref[block] == 0)
    bare = tuple(block for block in gone if four.unkeyed(old, block))
    keyed = tuple(block for block in gone if block not in bare)
    assert (new is None) == (last in old.free)
    assert new is None or four.sound(new)
    assert new is None or four.every(new.ref[block] == old.ref[block] - 1 for block in given)
    assert new is None or new.free == (*bare, *old.free, *keyed)
    assert new is None or four.keys_kept(old, new)


def release_a_block_twice(draft: Draft, key: Key, number: int) -> None:
    """T3, PC-4: both references go, or the release is refused."""
    assert four.legal(draft, key)
    assert 1 <= number <= 3
    old = four.pool_of(draft, key)
    block = four.block_of(number)
    new = four.attempt(pools.release, old, (block, block))
    assert (new is None) == (old.ref[block] < 2)
    assert new is None or four.sound(new)
    assert new is None or (new.ref[block] == old.ref[block] - 2 and four.keys_kept(old, new))


# --- keys ---------------------------------------------------------------------------------------------------------


def evict_a_block_of_a_pool_with_two_keys(draft: Draft, key: Key, other: Key, number: int) -> None:
    """T4: its keys go and nothing else does."""
    assert four.legal(draft, key, other)
    assert 1 <= number <= 3
    old = four.pool_of(draft, key, other)
    block = four.block_of(number)
    new = pools.evict(old, block)
    assert four.sound(new)
    assert four.unkeyed(new, block)
    assert four.keys_kept(old, new, block) and four.holdings_kept(old, new)


def reset_clears_an_idle_pool_only(draft: Draft, key: Key, other: Key) -> None:
    """T5."""
    assert four.legal(draft, key, other)
    old = four.pool_of(draft, key, other)
    new, cleared = pools.reset(old)
    assert four.sound(new)
    assert cleared == (len(old.free) == 3)
    assert four.holdings_kept(old, new)
    assert all(four.unkeyed(new, block) for block in four.BLOCKS) if cleared else four.keys_kept(old, new)


def find_yields_the_first_inserted(draft: Draft, key: Key, other: Key, node: int, group: int) -> None:
    """3.2: of the blocks with a key the one that got it first; -1 if none has it."""
    assert four.legal(draft, key, other)
    old = four.pool_of(draft, key, other)
    found = pools.find(old, node, group)
    wanted = (node, group, 0, NULL_BLOCK)
    matching = tuple(entry for entry in old.entries if four.same_key(entry, wanted))
    assert (found == -1) == (not matching)
    assert found == -1 or any(entry[3] == found and all(entry[2] <= one[2] for one in matching) for entry in matching)


def insert_into_a_pool_without_keys(draft: Draft, number: int, node: int, group: int, tokens: int) -> None:
    """T6: the key becomes the block's primary."""
    assert four.legal(draft)
    assert (1 <= number) & (number <= 3) & (node >= 0) & (group >= 0) & (tokens >= 1)
    old = four.pool_of(draft)
    block = four.block_of(number)
    new = pools.insert(old, node, group, block, tokens)
    assert four.sound(new)
    assert (new.key_node[block] == node) & (new.key_group[block] == group) & (new.key_tokens[block] == tokens)
    assert new.entries == ((node, group, old.next_seq, block),)
    assert four.keys_kept(old, new, block) and four.holdings_kept(old, new)


def insert_into_a_pool_with_one_key(draft: Draft, key: Key, number: int, node: int, group: int, tokens: int) -> None:
    """T6: the block carries the key; a primary that it had stays, and a key that it had changes nothing."""
    assert four.legal(draft, key)
    assert (1 <= number) & (number <= 3) & (node >= 0) & (group >= 0) & (tokens >= 1)
    old = four.pool_of(draft, key)
    block = four.block_of(number)
    new = pools.insert(old, node, group, block, tokens)
    primary = (node, group, tokens) if four.unkeyed(old, block) else (key[0], key[1], old.key_tokens[block])
    assert four.sound(new)
    assert four.carries(new, node, group, block)
    assert (new.key_node[block], new.key_group[block], new.key_tokens[block]) == primary
    assert (new is old) == four.carries(old, node, group, block)
    assert four.keys_kept(old, new, block) and four.holdings_kept(old, new)


def promote_a_block(draft: Draft, key: Key, number: int, node: int, group: int, tokens: int) -> None:
    """T7, HB-3: a block comes to stand for more tokens and loses its other keys, or the registration is refused."""
    assert four.legal(draft, key)
    assert (1 <= number) & (number <= 3) & (node >= 0) & (group >= 0) & (tokens >= 1)
    old = four.pool_of(draft, key)
    block = four.block_of(number)
    new = four.attempt(pools.promote, old, node, group, block, tokens)
    assert (new is None) == (old.key_tokens[block] >= tokens)
    assert new is None or four.sound(new)
    assert new is None or (new.key_node[block] == node) & (new.key_group[block] == group)
    assert new is None or new.key_tokens[block] == tokens > old.key_tokens[block]
    assert new is None or len(four.entries_of(new.entries, block)) == 1
    assert new is None or (four.keys_kept(old, new, block) and four.holdings_kept(old, new))
