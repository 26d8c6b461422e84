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


@claim(pools.evict, sizes="shape", bounds="four blocks", laws=())
def evict_a_block_of_a_pool_with_two_keys(draft: Draft, key: Key, other: Key, number: int) -> None:
    """T4: its keys go and nothing else does."""
    assert four.legal(draft, key, other, free=3)
    assert 1 <= number <= 3
    old = four.pool_of(draft, key, other)
    block = four.block_of(number)
    new = pools.evict(old, block)
    assert four.sound(new)
    assert four.unkeyed(new, block)
    assert four.keys_kept(old, new, block)
    assert four.holdings_kept(old, new)


@claim(pools.reset, sizes="shape", bounds="four blocks", laws=())
def reset_clears_an_idle_pool_only(draft: Draft, key: Key, other: Key) -> None:
    """T5."""
    assert four.legal(draft, key, other)
    old = four.pool_of(draft, key, other)
    new, cleared = pools.reset(old)
    assert four.sound(new)
    assert cleared == (len(old.free) == 3)
    assert four.holdings_kept(old, new)
    assert all(four.unkeyed(new, block) for block in four.BLOCKS) if cleared else four.keys_kept(old, new)


@claim(pools.find, sizes="shape", bounds="four blocks", laws=())
def find_yields_the_first_inserted(draft: Draft, key: Key, other: Key, node: int, group: int) -> None:
    """3.2: of the blocks with a key the one that got it first; -1 if none has it."""
    assert four.legal(draft, key, other, free=3)
    old = four.pool_of(draft, key, other)
    found = pools.find(old, node, group)
    wanted = (node, group, 0, NULL_BLOCK)
    matching = tuple(entry for entry in old.entries if four.same_key(entry, wanted))
    assert (found == -1) == (not matching)
    assert found == -1 or any(entry[3] == found and all(entry[2] <= one[2] for one in matching) for entry in matching)


@claim(pools.insert, sizes="shape", bounds="four blocks", laws=())
def insert_into_a_pool_with_two_keys(
    draft: Draft, key: Key, other: Key, number: int, node: int, group: int, tokens: int
) -> None:
    """T6: the block carries the key; a primary that it had stays, and a key that it had changes nothing."""
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
    assert four.keys_kept(old, new, block)
    assert four.holdings_kept(old, new)


@claim(pools.promote, sizes="shape", bounds="four blocks", laws=("HB-3",))
def promote_a_block_of_a_pool_with_two_keys(
    draft: Draft, key: Key, other: Key, number: int, node: int, group: int, tokens: int
) -> None:
    """T7, HB-3: a block comes to stand for more tokens and loses its other keys."""
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


@claim(pools.move, sizes="shape", bounds="four blocks", laws=("COW-5",))
def move_both_keys(draft: Draft, key: Key, other: Key, number: int, target: int) -> None:
    """T6, COW-5: the destination has what the source had, the same primary first; refused if it has a key."""
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
