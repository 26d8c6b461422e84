"""Claims about what the key map notes of its changes: replayed, it gives the keys that are there (3.7, EV-4, EV-5).

A key is asked for by any node and group. A change is right for all keys if it is right for any one.
"""

from __future__ import annotations

from attrs import evolve

from kvproof.core import pool as pools
from kvproof.core.pool import Pool
from kvproof.proofs.claim import claim
from kvproof.proofs.claims import pools_of_four as four
from kvproof.proofs.claims.pools_of_four import Draft, Key

GAINS = (pools.FULL, pools.PARTIAL, pools.RESTORED)


def announcing(draft: Draft, *keys: Key) -> Pool:
    """Return the pool of a draft, which notes its changes."""
    return evolve(four.pool_of(draft, *keys), notes=())


def there(pool: Pool, node: int, group: int) -> bool:
    """Tell whether some block has a key."""
    held = False
    for entry in pool.entries:
        held |= (entry[0] == node) & (entry[1] == group)
    return held


def told(old: Pool, new: Pool, node: int, group: int) -> bool:
    """Tell whether a key is there after the notes of a change, told from what was there before: EV-5."""
    held = there(old, node, group)
    for note in new.notes or ():
        mine = (note[1] == node) & (note[2] == group)
        if note[0] == pools.CLEARED:
            held = False
        elif note[0] == pools.LOST:
            held &= not mine
        elif note[0] in GAINS:
            held |= mine
    return held


def said(new: Pool, node: int, group: int, *whats: int) -> int:
    """Return how often a change noted this of a key."""
    return sum((note[0] in whats) & (note[1] == node) & (note[2] == group) for note in new.notes or ())


@claim(
    pools.evict,
    pools.strip,
    pools.noted,
    pools.lost,
    sizes="shape",
    bounds=four.TWO_KEYS_IDLE + "; any key",
    laws=("EV-4", "EV-5"),
)
def what_an_eviction_says_is_what_it_took(draft: Draft, key: Key, other: Key, number: int, node: int, group: int) -> None:
    """Of the keys that a block loses those are told gone that no other block has, each once, and of the others that they
    have left (3.7, EV-4, EV-5).
    """
    assert four.legal(draft, key, other, free=3) & four.within(1, number, 3) & (node >= 0) & (group >= 0)
    old = announcing(draft, key, other)
    block = four.block_of(number)
    new = pools.evict(old, block)
    had = four.carries(old, node, group, block)
    gone = had & (not there(new, node, group))
    assert told(old, new, node, group) == there(new, node, group)
    assert said(new, node, group, pools.LOST) == gone
    assert said(new, node, group, pools.LEFT) == (had & (not gone))
    assert said(new, node, group, *GAINS, pools.CLEARED) == 0


@claim(
    pools.promote,
    pools.enter,
    pools.clear_for_promotion,
    sizes="shape",
    bounds=four.ONE_KEY + "; any key, and more tokens than the block stands for",
    laws=("EV-4", "EV-5"),
)
def what_a_promotion_says_is_what_it_changed(
    draft: Draft, key: Key, number: int, new_node: int, new_group: int, tokens: int, node: int, group: int
) -> None:
    """A full entry is announced, behind the keys that gave way to it, whatever the block stood for (T7, EV-4, EV-5)."""
    assert four.legal(draft, key, free=3) & four.within(1, number, 3) & (new_node >= 0) & (new_group >= 0) & (tokens >= 1)
    assert (node >= 0) & (group >= 0) & ((draft.tokens[number - 1] < tokens) | (key[3] != number))
    old = announcing(draft, key)
    block = four.block_of(number)
    new = pools.promote(old, new_node, new_group, block, tokens)
    mine = (node == new_node) & (group == new_group)
    assert told(old, new, node, group) == there(new, node, group)
    assert four.standing(new, block) == (new_node, new_group, tokens)
    assert said(new, node, group, pools.FULL) == mine
    assert said(new, node, group, pools.PARTIAL, pools.RESTORED, pools.CLEARED) == 0


@claim(
    pools.insert_partial,
    pools.enter,
    sizes="shape",
    bounds=four.ONE_KEY + "; any key",
    laws=("EV-4", "EV-5", "EV-6"),
)
def a_key_that_is_there_is_not_announced_again(
    draft: Draft, key: Key, number: int, new_node: int, new_group: int, tokens: int, node: int, group: int
) -> None:
    """A boundary inside a block is announced if the block did not have its key, and then once (T8, EV-6, EV-5)."""
    assert four.legal(draft, key, free=3) & four.within(1, number, 3) & (new_node >= 0) & (new_group >= 0) & (tokens >= 1)
    assert (node >= 0) & (group >= 0)
    old = announcing(draft, key)
    block = four.block_of(number)
    new = pools.insert_partial(old, new_node, new_group, block, tokens)
    mine = (node == new_node) & (group == new_group)
    assert told(old, new, node, group) == there(new, node, group)
    assert said(new, node, group, pools.PARTIAL) == (mine & (not four.carries(old, node, group, block)))
    assert said(new, node, group, pools.FULL, pools.RESTORED, pools.CLEARED) == 0


@claim(
    pools.take, pools.strip, sizes="shape", bounds=four.ONE_KEY + "; one or two blocks taken; any key", laws=("EV-4", "EV-5")
)
def what_is_handed_out_is_told_gone(draft: Draft, key: Key, two: bool, node: int, group: int) -> None:
    """The keys of blocks that are handed out are told gone, and nothing else is said (T1, EV-4, EV-5)."""
    assert four.legal(draft, key, free=2) & (node >= 0) & (group >= 0)
    old = announcing(draft, key)
    new, blocks = pools.take(old, 2 if two else 1)
    taken = key[3] in blocks
    mine = (key[0] == node) & (key[1] == group)
    assert told(old, new, node, group) == there(new, node, group)
    assert said(new, node, group, pools.LOST) == (mine & taken)
    assert len(new.notes or ()) == taken


@claim(
    pools.reset,
    pools.noted,
    pools.with_notes,
    sizes="shape",
    bounds=four.TWO_KEYS + "; any key",
    laws=("EV-5", "PC-13", "PC-14"),
)
def a_cleared_map_is_announced_once(draft: Draft, key: Key, other: Key, node: int, group: int) -> None:
    """A reset that is done is announced, and one that is not says nothing; a pool without notes notes nothing (T5, EV-5)."""
    assert four.legal(draft, key, other) & (node >= 0) & (group >= 0)
    old = announcing(draft, key, other)
    new, done = pools.reset(old)
    quiet, _ = pools.reset(evolve(old, notes=None))
    forgotten = pools.with_notes(new, ())
    assert told(old, new, node, group) == there(new, node, group)
    assert [note[0] for note in new.notes or ()] == ([pools.CLEARED] if done else [])
    assert done == (len(old.free) == 3)
    assert quiet.notes is None
    assert forgotten.notes == ()


@claim(
    pools.restore_keys,
    sizes="shape",
    bounds=four.ONE_KEY + "; another key put in its place and taken back; any key",
    laws=("EV-4", "EV-5", "HO-11"),
)
def what_is_given_back_is_announced(
    draft: Draft, key: Key, new_node: int, new_group: int, tokens: int, node: int, group: int
) -> None:
    """A block that gets its keys back loses what it had meanwhile and gains what it lost, and both are said (T39, EV-5)."""
    assert four.legal(draft, key, free=3) & (new_node >= 0) & (new_group >= 0) & (tokens >= 1) & (node >= 0) & (group >= 0)
    assert tokens > draft.tokens[key[3] - 1]
    first = announcing(draft, key)
    block = first.entries[0][3]
    changed = evolve(pools.promote(first, new_node, new_group, block, tokens), notes=())
    back = pools.restore_keys(changed, block, four.standing(first, block), pools.keys_of(first, block))
    assert told(changed, back, node, group) == there(back, node, group)
    assert there(back, node, group) == there(first, node, group)
    assert four.keys_kept(first, back)
