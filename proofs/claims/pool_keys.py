"""Contracts of the key map: a pool with at most one key, see `kvproof.proofs.claims.pool`.

These functions do not look at the queue, so two queues (`free=2`) are enough: each block in use in one of them.
"""

from __future__ import annotations

from kvproof.core import pool as pools
from kvproof.core.pool import NULL_BLOCK
from kvproof.proofs.claim import claim
from kvproof.proofs.claims import pools_of_four as four
from kvproof.proofs.claims.pools_of_four import Draft, Key


@claim(pools.insert, sizes="shape", bounds=four.NO_KEYS)
def insert_into_a_pool_without_keys(draft: Draft, number: int, node: int, group: int, tokens: int) -> None:
    """The first key of a block becomes its primary (T6)."""
    assert four.legal(draft)
    assert four.within(1, number, 3) & (node >= 0) & (group >= 0) & (tokens >= 1)
    old = four.pool_of(draft)
    block = four.block_of(number)
    new = pools.insert(old, node, group, block, tokens)
    assert four.sound(new)
    assert four.standing(new, block) == (node, group, tokens)
    assert new.entries == ((node, group, old.next_seq, block),)
    assert four.keys_kept(old, new, block)
    assert four.holdings_kept(old, new)


@claim(
    pools.insert,
    sizes="shape",
    bounds=four.KEY_IN_AND_OUT_OF_USE,
    deep=True,
)
def insert_into_a_pool_with_one_key(draft: Draft, key: Key, number: int, node: int, group: int, tokens: int) -> None:
    """An inserted key is carried by its block; a primary that it had stays, and a key that it had changes nothing (T6)."""
    assert four.legal(draft, key, free=2)
    assert four.within(1, number, 3) & (node >= 0) & (group >= 0) & (tokens >= 1)
    old = four.pool_of(draft, key)
    block = four.block_of(number)
    new = pools.insert(old, node, group, block, tokens)
    primary = (node, group, tokens) if four.unkeyed(old, block) else four.standing(old, block)
    assert four.sound(new)
    assert four.carries(new, node, group, block)
    assert four.standing(new, block) == primary
    assert (new is old) == four.carries(old, node, group, block)
    assert four.keys_kept(old, new, block)
    assert four.holdings_kept(old, new)


@claim(pools.promote, sizes="shape", bounds=four.KEY_IN_AND_OUT_OF_USE)
def promote_a_block(draft: Draft, key: Key, number: int, node: int, group: int, tokens: int) -> None:
    """A promoted block gives up its keys and has the new one as its primary (T7)."""
    assert four.legal(draft, key, free=2)
    assert four.within(1, number, 3) & (node >= 0) & (group >= 0) & (tokens >= 1)
    assert four.every((number != block) | (tokens > draft.tokens[block - 1]) for block in four.BLOCKS)
    old = four.pool_of(draft, key)
    block = four.block_of(number)
    new = pools.promote(old, node, group, block, tokens)
    assert four.sound(new)
    assert four.standing(new, block) == (node, group, tokens)
    assert tokens > old.key_tokens[block]
    assert len(four.entries_of(new.entries, block)) == 1
    assert four.keys_kept(old, new, block)
    assert four.holdings_kept(old, new)


@claim(pools.promote, sizes="shape", bounds=four.KEY_IN_AND_OUT_OF_USE)
def promote_only_to_more_tokens(draft: Draft, key: Key, standing: int, tokens: int) -> None:
    """A promotion to no more tokens is refused (T7)."""
    assert four.legal(draft, key, free=2)
    assert four.within(1, standing, 3) & four.within(1, tokens, 3)
    stands_for = four.pick((1, 2, 3), standing - 1)
    wanted = four.pick((1, 2, 3), tokens - 1)
    old = four.pool_of(Draft(draft.queue, draft.refs, (stands_for, stands_for, stands_for), draft.next_seq), key)
    new = four.attempt(pools.promote, old, 0, 0, old.entries[0][3], wanted)
    assert (new is None) == (wanted <= stands_for)


@claim(
    pools.insert_partial,
    sizes="shape",
    bounds=four.KEY_IN_AND_OUT_OF_USE,
    deep=True,
)
def insert_a_partial_boundary(draft: Draft, key: Key, number: int, node: int, group: int, tokens: int) -> None:
    """A partial boundary becomes the only key of its block where it stands for more tokens than the primary. Where not, it is a
    further key beside those that the block has, and changes nothing if it is one of them (T8).
    """
    assert four.legal(draft, key, free=2)
    assert four.within(1, number, 3) & (node >= 0) & (group >= 0) & (tokens >= 1)
    old = four.pool_of(draft, key)
    block = four.block_of(number)
    new = pools.insert_partial(old, node, group, block, tokens)
    had, mine = four.carries(old, node, group, block), four.entries_of(old.entries, block)
    stays = had | (old.key_tokens[block] >= tokens)
    assert four.sound(new)
    assert four.carries(new, node, group, block)
    assert four.standing(new, block) == (four.standing(old, block) if stays else (node, group, tokens))
    assert len(four.entries_of(new.entries, block)) == (len(mine) + (not had) if stays else 1)
    assert not stays or four.every(four.carries(new, entry[0], entry[1], block) for entry in mine)
    assert four.keys_kept(old, new, block)
    assert four.holdings_kept(old, new)


@claim(pools.evict, sizes="shape", bounds=four.ONE_KEY)
def evict_a_block(draft: Draft, key: Key, number: int) -> None:
    """An evicted block has no key any more, and no other block loses one (T4)."""
    assert four.legal(draft, key)
    assert 1 <= number <= 3
    old = four.pool_of(draft, key)
    block = four.block_of(number)
    new = pools.evict(old, block)
    assert four.sound(new)
    assert four.unkeyed(new, block)
    assert four.keys_kept(old, new, block)
    assert four.holdings_kept(old, new)


@claim(pools.find, sizes="shape", bounds=four.ONE_KEY)
def find_the_block_with_the_key(draft: Draft, key: Key, node: int, group: int) -> None:
    """A lookup yields the block that carries the key, and none if no block does (3.2)."""
    assert four.legal(draft, key)
    old = four.pool_of(draft, key)
    found = pools.find(old, node, group)
    wanted = (node, group, 0, NULL_BLOCK)
    assert found == (old.entries[0][3] if four.same_key(old.entries[0], wanted) else -1)


@claim(pools.move, sizes="shape", bounds=four.KEY_IN_AND_OUT_OF_USE)
def move_the_keys(draft: Draft, key: Key, number: int, target: int) -> None:
    """A move takes all keys from the source to the copy (T21)."""
    assert four.legal(draft, key, free=2)
    assert four.within(1, number, 3) & four.within(1, target, 3)
    old = four.pool_of(draft, key)
    source, copy = four.block_of(number), four.block_of(target)
    new = four.attempt(pools.move, old, source, copy)
    assert (new is None) == (not four.unkeyed(old, copy))
    assert new is None or four.sound(new)
    assert new is None or four.unkeyed(new, source)
    assert new is None or four.standing(new, copy) == four.standing(old, source)
    assert new is None or (four.keys_kept(old, new, source, copy) and four.holdings_kept(old, new))


@claim(pools.promote, pools.restore_keys, pools.keys_of, sizes="shape", bounds=four.KEY_IN_AND_OUT_OF_USE)
def restore_undoes_a_promotion(draft: Draft, key: Key, number: int, node: int, group: int, tokens: int) -> None:
    """Restoring what was recorded before a promotion gives the keys back as they were (T39.2)."""
    assert four.legal(draft, key, free=2)
    assert four.within(1, number, 3) & (node >= 0) & (group >= 0) & (tokens >= 1)
    assert four.every((number != block) | (tokens > draft.tokens[block - 1]) for block in four.BLOCKS)
    old = four.pool_of(draft, key)
    block = four.block_of(number)
    registered = pools.promote(old, node, group, block, tokens)
    new = pools.restore_keys(registered, block, four.standing(old, block), pools.keys_of(old, block))
    assert four.sound(new)
    assert four.keys_kept(old, new)
    assert four.holdings_kept(old, new)
