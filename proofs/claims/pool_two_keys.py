"""The contracts whose matter is two keys, and which take CrossHair long, see `kvproof.proofs.claims.pool`.

Two keys of one block are its primary and a secondary; two blocks may have one key. Only `reset` and `take` look at the queue,
so the others start from the full one (`free=3`). The last claims are about pools that note what is to be announced; they are
quick, and some have one key.
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


# --- what is to be announced --------------------------------------------------------------------------------------


@claim(pools.take, pools.noted, pools.lost, sizes="shape", bounds=four.TWO_KEYS, laws=("EV-4", "EV-5"))
def note_what_a_taken_block_loses(draft: Draft, key: Key, other: Key) -> None:
    """Each key of a taken block is noted, its primary first: as lost if no other block has it, else as left (T1, 3.7)."""
    assert four.legal(draft, key, other, free=1)
    old = four.noting(four.pool_of(draft, key, other))
    new, (block,) = pools.take(old, 1)
    gone = four.primary_first(old.entries, block)
    assert new.notes == four.goings(new.entries, *gone)


@claim(pools.take, pools.noted, pools.lost, sizes="shape", bounds=four.TWO_KEYS, laws=("EV-4", "EV-5"))
def note_what_two_taken_blocks_lose(draft: Draft, key: Key, other: Key) -> None:
    """Of two taken blocks with one key the first has left it and the second has lost it (T1, 3.7)."""
    assert four.legal(draft, key, other, free=2)
    old = four.noting(four.pool_of(draft, key, other))
    new, blocks = pools.take(old, 2)
    gone = (*four.primary_first(old.entries, blocks[0]), *four.primary_first(old.entries, blocks[1]))
    assert new.notes == four.goings(new.entries, *gone)


@claim(pools.evict, pools.noted, pools.lost, sizes="shape", bounds=four.TWO_KEYS_IDLE, laws=("EV-4", "EV-5"))
def note_what_an_evicted_block_loses(draft: Draft, key: Key, other: Key, number: int) -> None:
    """Each key of an evicted block is noted, its primary first: as lost if no other block has it, else as left (T4, 3.7)."""
    assert four.legal(draft, key, other, free=3)
    assert 1 <= number <= 3
    old = four.noting(four.pool_of(draft, key, other))
    block = four.block_of(number)
    new = pools.evict(old, block)
    gone = four.primary_first(old.entries, block)
    assert new.notes == four.goings(new.entries, *gone)


@claim(pools.reset, pools.noted, sizes="shape", bounds=four.ONE_KEY, laws=("EV-5",))
def note_a_reset(draft: Draft, key: Key) -> None:
    """A reset that happens is noted once, whatever the key map held, and one that is refused is not (T5, 3.7)."""
    assert four.legal(draft, key)
    old = four.noting(four.pool_of(draft, key))
    new, cleared = pools.reset(old)
    assert new.notes == (((pools.CLEARED, pools.NO_KEY, pools.NO_KEY),) if cleared else ())


@claim(pools.promote, pools.noted, pools.lost, sizes="shape", bounds=four.ONE_KEY_IDLE, laws=("EV-4", "EV-5", "EV-6"))
def note_a_promotion(draft: Draft, key: Key, number: int, node: int, group: int, tokens: int) -> None:
    """A promotion notes the key that its block gives up, and then the new one as a full entry (T7, 3.7)."""
    assert four.legal(draft, key, free=3)
    assert four.within(1, number, 3) & (node >= 0) & (group >= 0) & (tokens >= 1)
    assert four.every((number != block) | (tokens > draft.tokens[block - 1]) for block in four.BLOCKS)
    old = four.noting(four.pool_of(draft, key))
    block = four.block_of(number)
    new = pools.promote(old, node, group, block, tokens)
    gone = four.entries_of(old.entries, block)
    left = tuple(entry for entry in old.entries if entry[3] != block)
    assert new.notes == (*four.goings(left, *gone), (pools.FULL, node, group))


@claim(
    pools.insert_partial,
    pools.enter,
    pools.noted,
    pools.lost,
    sizes="shape",
    bounds=four.ONE_KEY_IDLE,
    laws=("EV-4", "EV-5", "EV-6"),
)
def note_a_partial_boundary(draft: Draft, key: Key, number: int, node: int, group: int, tokens: int) -> None:
    """A partial boundary is noted unless its block has the key already; what a smaller primary gives up is noted first
    (T8, 3.7, EV-6).
    """
    assert four.legal(draft, key, free=3)
    assert four.within(1, number, 3) & (node >= 0) & (group >= 0) & (tokens >= 1)
    old = four.noting(four.pool_of(draft, key))
    block = four.block_of(number)
    new = pools.insert_partial(old, node, group, block, tokens)
    gone = four.entries_of(old.entries, block) if old.key_tokens[block] < tokens else ()
    left = tuple(entry for entry in old.entries if entry[3] != block)
    noted = (*four.goings(left, *gone), (pools.PARTIAL, node, group))
    assert new.notes == (() if four.carries(old, node, group, block) else noted)


@claim(pools.replace_partial, pools.enter, sizes="shape", bounds=four.ONE_KEY_IDLE, laws=("EV-4", "EV-5", "EV-6"))
def note_a_replaced_boundary(draft: Draft, key: Key, number: int, node: int, group: int, tokens: int) -> None:
    """A boundary of an overwritten block is noted behind what the block gives up, the same key too (T8, 3.7)."""
    assert four.legal(draft, key, free=3)
    assert four.within(1, number, 3) & (node >= 0) & (group >= 0) & (tokens >= 1)
    old = four.noting(four.pool_of(draft, key))
    block = four.block_of(number)
    new = pools.replace_partial(old, node, group, block, tokens)
    gone = four.entries_of(old.entries, block)
    left = tuple(entry for entry in old.entries if entry[3] != block)
    assert new.notes == (*four.goings(left, *gone), (pools.PARTIAL, node, group))


@claim(pools.insert, pools.move, pools.touch, pools.release, sizes="shape", bounds=four.ONE_KEY_IDLE, laws=("EV-5",))
def note_nothing_of_a_move_and_of_holders(draft: Draft, key: Key, number: int, target: int, node: int) -> None:
    """A key that moves with its bytes is not noted, nor is an insertion for others, nor who holds a block (T2, T3, T6, 3.7)."""
    assert four.legal(draft, key, free=3)
    assert four.within(1, number, 3) & four.within(1, target, 3) & (node >= 0)
    old = four.noting(four.pool_of(draft, key))
    block, copy = four.block_of(number), four.block_of(target)
    touched = pools.touch(old, (block,))
    released = pools.release(touched, (block,))
    inserted = pools.insert(old, node, 0, block, 4)
    moved = four.attempt(pools.move, old, block, copy)
    assert (touched.notes, released.notes, inserted.notes) == ((), (), ())
    assert moved is None or moved.notes == ()


@claim(pools.promote, pools.restore_keys, pools.noted, sizes="shape", bounds=four.ONE_KEY_IDLE, laws=("EV-5",))
def note_what_a_restoration_changes(draft: Draft, key: Key, number: int, node: int, group: int, tokens: int) -> None:
    """Giving a block its keys back notes the key that goes and then the one that returns; of the same key nothing (T39.2)."""
    assert four.legal(draft, key, free=3)
    assert four.within(1, number, 3) & (node >= 0) & (group >= 0) & (tokens >= 1)
    assert four.every((number != block) | (tokens > draft.tokens[block - 1]) for block in four.BLOCKS)
    old = four.pool_of(draft, key)
    block = four.block_of(number)
    registered = four.noting(pools.promote(old, node, group, block, tokens))
    new = pools.restore_keys(registered, block, four.standing(old, block), pools.keys_of(old, block))
    had = four.entries_of(old.entries, block)
    gone = four.goings(old.entries, (node, group, 0, block))
    back = tuple((pools.RESTORED, entry[0], entry[1]) for entry in had)
    assert new.notes == (() if four.carries(old, node, group, block) else (*gone, *back))
