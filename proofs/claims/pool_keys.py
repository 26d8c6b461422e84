"""Contracts of the key map: a pool with at most one key, see `kvproof.proofs.claims.pool`.

These functions do not look at the queue, so two queues (`free=2`) are enough: each block in use in one of them.
"""

from __future__ import annotations

from kvproof.core import pool as pools
from kvproof.core.pool import NULL_BLOCK
from kvproof.proofs.claim import claim
from kvproof.proofs.claims import pools_of_four as four
from kvproof.proofs.claims.pools_of_four import Draft, Key


@claim(pools.insert, sizes="shape", bounds="four blocks", laws=())
def insert_into_a_pool_without_keys(draft: Draft, number: int, node: int, group: int, tokens: int) -> None:
    """T6: the key becomes the block's primary."""
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


@claim(pools.insert, sizes="shape", bounds="four blocks", laws=())
def insert_into_a_pool_with_one_key(draft: Draft, key: Key, number: int, node: int, group: int, tokens: int) -> None:
    """T6: the block carries the key; a primary that it had stays, and a key that it had changes nothing."""
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


@claim(pools.promote, sizes="shape", bounds="four blocks", laws=("HB-3",))
def promote_a_block(draft: Draft, key: Key, number: int, node: int, group: int, tokens: int) -> None:
    """T7, HB-3: a block comes to stand for more tokens and loses its other keys."""
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


@claim(pools.promote, sizes="shape", bounds="four blocks", laws=())
def promote_only_to_more_tokens(draft: Draft, key: Key, standing: int, tokens: int) -> None:
    """T7: refused unless the count increases; counts of 1 to 3, which the refusal can write into its message."""
    assert four.legal(draft, key, free=2)
    assert four.within(1, standing, 3) & four.within(1, tokens, 3)
    stands_for = four.pick((1, 2, 3), standing - 1)
    wanted = four.pick((1, 2, 3), tokens - 1)
    old = four.pool_of(Draft(draft.queue, draft.refs, (stands_for, stands_for, stands_for), draft.next_seq), key)
    new = four.attempt(pools.promote, old, 0, 0, old.entries[0][3], wanted)
    assert (new is None) == (wanted <= stands_for)


@claim(pools.insert_partial, sizes="shape", bounds="four blocks", laws=())
def insert_a_partial_boundary(draft: Draft, key: Key, number: int, node: int, group: int, tokens: int) -> None:
    """T8: a smaller primary gives way with its keys, a larger one stays; what a block stands for never shrinks."""
    assert four.legal(draft, key, free=2)
    assert four.within(1, number, 3) & (node >= 0) & (group >= 0) & (tokens >= 1)
    old = four.pool_of(draft, key)
    block = four.block_of(number)
    new = pools.insert_partial(old, node, group, block, tokens)
    stays = four.carries(old, node, group, block) | (old.key_tokens[block] >= tokens)
    assert four.sound(new)
    assert four.carries(new, node, group, block)
    assert new.key_tokens[block] == (old.key_tokens[block] if stays else tokens)
    assert stays or len(four.entries_of(new.entries, block)) == 1
    assert four.keys_kept(old, new, block)
    assert four.holdings_kept(old, new)


@claim(pools.evict, sizes="shape", bounds="four blocks", laws=())
def evict_a_block(draft: Draft, key: Key, number: int) -> None:
    """T4: its keys go and nothing else does."""
    assert four.legal(draft, key)
    assert 1 <= number <= 3
    old = four.pool_of(draft, key)
    block = four.block_of(number)
    new = pools.evict(old, block)
    assert four.sound(new)
    assert four.unkeyed(new, block)
    assert four.keys_kept(old, new, block)
    assert four.holdings_kept(old, new)


@claim(pools.find, sizes="shape", bounds="four blocks", laws=())
def find_the_block_with_the_key(draft: Draft, key: Key, node: int, group: int) -> None:
    """3.2: -1 if none has it."""
    assert four.legal(draft, key)
    old = four.pool_of(draft, key)
    found = pools.find(old, node, group)
    wanted = (node, group, 0, NULL_BLOCK)
    assert found == (old.entries[0][3] if four.same_key(old.entries[0], wanted) else -1)


@claim(pools.move, sizes="shape", bounds="four blocks", laws=("COW-5",))
def move_the_keys(draft: Draft, key: Key, number: int, target: int) -> None:
    """T6, COW-5: the destination has what the source had; refused if the destination has a key."""
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


@claim(pools.promote, pools.restore_keys, pools.keys_of, sizes="shape", bounds="four blocks", laws=())
def restore_undoes_a_promotion(draft: Draft, key: Key, number: int, node: int, group: int, tokens: int) -> None:
    """T39: a block whose registration is withdrawn has the keys that it had before."""
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
