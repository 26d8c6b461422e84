"""The contracts whose matter is two keys, and which take CrossHair long, see `kvproof.proofs.claims.pool`.

Two keys of one block are its primary and a secondary; two blocks may have one key. Only `reset` looks at the queue, so the
others start from the full one (`free=3`).
"""

from __future__ import annotations

from kvproof.core import pool as pools
from kvproof.core.pool import NULL_BLOCK
from kvproof.proofs.claim import claim
from kvproof.proofs.claims import pools_of_four as four
from kvproof.proofs.claims.pools_of_four import Draft, Key


@claim(pools.evict, sizes="shape", bounds=four.TWO_KEYS_IDLE, deep=True)
def evict_a_block_of_a_pool_with_two_keys(draft: Draft, key: Key, other: Key, number: int) -> None:
    """An evicted block loses all its keys, and the other blocks none (T4)."""
    assert four.legal(draft, key, other, free=3)
    assert 1 <= number <= 3
    old = four.pool_of(draft, key, other)
    block = four.block_of(number)
    new = pools.evict(old, block)
    assert four.sound(new)
    assert four.unkeyed(new, block)
    assert four.keys_kept(old, new, block)
    assert four.holdings_kept(old, new)


@claim(pools.reset, sizes="shape", bounds=four.TWO_KEYS, deep=True)
def reset_clears_an_idle_pool_only(draft: Draft, key: Key, other: Key) -> None:
    """A reset takes all keys if no block is in use, and changes nothing otherwise (T5)."""
    assert four.legal(draft, key, other)
    old = four.pool_of(draft, key, other)
    new, cleared = pools.reset(old)
    assert four.sound(new)
    assert cleared == (len(old.free) == 3)
    assert four.holdings_kept(old, new)
    assert all(four.unkeyed(new, block) for block in four.BLOCKS) if cleared else four.keys_kept(old, new)


@claim(pools.find, sizes="shape", bounds=four.TWO_KEYS_IDLE, deep=True)
def find_yields_the_first_inserted(draft: Draft, key: Key, other: Key, node: int, group: int) -> None:
    """Of two blocks with one key a lookup yields the one that was inserted first (3.2)."""
    assert four.legal(draft, key, other, free=3)
    old = four.pool_of(draft, key, other)
    found = pools.find(old, node, group)
    wanted = (node, group, 0, NULL_BLOCK)
    matching = tuple(entry for entry in old.entries if four.same_key(entry, wanted))
    assert (found == -1) == (not matching)
    assert found == -1 or any(entry[3] == found and all(entry[2] <= one[2] for one in matching) for entry in matching)


@claim(pools.insert, sizes="shape", bounds=four.TWO_KEYS_IDLE, deep=True)
def insert_into_a_pool_with_two_keys(
    draft: Draft, key: Key, other: Key, number: int, node: int, group: int, tokens: int
) -> None:
    """A key that is inserted beside two others is carried by its block, whose primary and other keys stay (T6)."""
    assert four.legal(draft, key, other, free=3)
    assert four.within(1, number, 3) & (node >= 0) & (group >= 0) & (tokens >= 1)
    old = four.pool_of(draft, key, other)
    block = four.block_of(number)
    new = pools.insert(old, node, group, block, tokens)
    primary = (node, group, tokens) if four.unkeyed(old, block) else four.standing(old, block)
    assert four.sound(new)
    assert four.carries(new, node, group, block)
    assert four.standing(new, block) == primary
    assert (new is old) == four.carries(old, node, group, block)
    assert four.every(four.carries(new, entry[0], entry[1], entry[3]) for entry in old.entries)
    assert four.keys_kept(old, new, block)
    assert four.holdings_kept(old, new)


@claim(pools.promote, sizes="shape", bounds=four.TWO_KEYS_IDLE, deep=True)
def promote_a_block_of_a_pool_with_two_keys(
    draft: Draft, key: Key, other: Key, number: int, node: int, group: int, tokens: int
) -> None:
    """A promoted block gives up both keys that it had, and the other blocks keep theirs (T7)."""
    assert four.legal(draft, key, other, free=3)
    assert four.within(1, number, 3) & (node >= 0) & (group >= 0) & (tokens >= 1)
    assert four.every((number != block) | (tokens > draft.tokens[block - 1]) for block in four.BLOCKS)
    old = four.pool_of(draft, key, other)
    block = four.block_of(number)
    new = pools.promote(old, node, group, block, tokens)
    assert four.sound(new)
    assert four.standing(new, block) == (node, group, tokens)
    assert len(four.entries_of(new.entries, block)) == 1
    assert four.keys_kept(old, new, block)
    assert four.holdings_kept(old, new)


@claim(pools.move, sizes="shape", bounds=four.TWO_KEYS_IDLE, deep=True)
def move_both_keys(draft: Draft, key: Key, other: Key, number: int, target: int) -> None:
    """A move takes both keys from the source to the copy, in the order of their insertion (T21)."""
    assert four.legal(draft, key, other, free=3)
    assert four.within(1, number, 3) & four.within(1, target, 3)
    old = four.pool_of(draft, key, other)
    source, copy = four.block_of(number), four.block_of(target)
    new = four.attempt(pools.move, old, source, copy)
    moved = four.entries_of(old.entries, source)
    assert (new is None) == (not four.unkeyed(old, copy))
    assert new is None or four.sound(new)
    assert new is None or four.unkeyed(new, source)
    assert new is None or four.standing(new, copy) == four.standing(old, source)
    assert new is None or all(four.carries(new, entry[0], entry[1], copy) for entry in moved)
    assert new is None or (four.keys_kept(old, new, source, copy) and four.holdings_kept(old, new))
