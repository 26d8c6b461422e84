"""Contracts of taking, touching and releasing blocks, in the style of `kvproof.proofs.claims.geometry`.

Each starts from any sound pool of four blocks with one key (or as many as its name tells) and calls the real functions of
`kvproof.core.pool`. What "sound" means, and how a pool comes out of the arguments, stands in
`kvproof.proofs.claims.pools_of_four`. A ``None`` in a claim is a refusal. `pool_keys`, `pool_two_keys` and `pool_copies` go on.
"""

from __future__ import annotations

from kvproof.core import pool as pools
from kvproof.core.pool import NULL_BLOCK
from kvproof.proofs.claim import claim
from kvproof.proofs.claims import pools_of_four as four
from kvproof.proofs.claims.pools_of_four import Draft, Key


@claim(pools.take, sizes="shape", bounds=four.TWO_KEYS, laws=("PC-5",))
def take_one_of_a_pool_with_two_keys(draft: Draft, key: Key, other: Key) -> None:
    """A block is taken from the front of the queue, with one reference and no key; nothing else changes (T1, PC-5)."""
    assert four.legal(draft, key, other, free=1)
    old = four.pool_of(draft, key, other)
    new, (block,) = pools.take(old, 1)
    assert four.sound(new)
    assert block == old.free[0]
    assert new.free == old.free[1:]
    assert new.ref[block] == 1
    assert four.unkeyed(new, block)
    assert four.keys_kept(old, new, block)
    assert four.holdings_kept(old, new, block)


@claim(pools.take, sizes="shape", bounds=four.TWO_KEYS, laws=("PC-5",))
def take_two_of_a_pool_with_two_keys(draft: Draft, key: Key, other: Key) -> None:
    """Two blocks are taken from the front of the queue in its order, each as one alone (T1, PC-5)."""
    assert four.legal(draft, key, other, free=2)
    old = four.pool_of(draft, key, other)
    new, blocks = pools.take(old, 2)
    assert four.sound(new)
    assert blocks == old.free[:2]
    assert new.free == old.free[2:]
    assert all(new.ref[block] == 1 and four.unkeyed(new, block) for block in blocks)
    assert four.keys_kept(old, new, *blocks)
    assert four.holdings_kept(old, new, *blocks)


@claim(pools.take, sizes="shape", bounds=four.ONE_KEY)
def take_no_more_than_is_free(draft: Draft, key: Key, count: int) -> None:
    """A demand that the queue cannot meet is refused, and no other (T1)."""
    assert four.legal(draft, key)
    assert 1 <= count <= 4
    old = four.pool_of(draft, key)
    wanted = four.pick((1, 2, 3, 4), count - 1)
    answer = four.attempt(pools.take, old, wanted)
    assert (answer is None) == (wanted > len(old.free))


@claim(pools.touch, sizes="shape", bounds=four.ONE_KEY)
def touch_a_block(draft: Draft, key: Key, number: int) -> None:
    """A touched block has one reference more and is out of the queue, and keys and the rest stay (T2)."""
    assert four.legal(draft, key)
    assert 1 <= number <= 3
    old = four.pool_of(draft, key)
    block = four.block_of(number)
    new = pools.touch(old, (NULL_BLOCK, block))
    assert four.sound(new)
    assert new.ref[block] == old.ref[block] + 1
    assert four.keys_kept(old, new)
    assert four.holdings_kept(old, new, block)


@claim(pools.touch, sizes="shape", bounds=four.ONE_KEY)
def touch_a_block_twice(draft: Draft, key: Key, number: int) -> None:
    """A block that is touched twice has two references more (T2)."""
    assert four.legal(draft, key)
    assert 1 <= number <= 3
    old = four.pool_of(draft, key)
    block = four.block_of(number)
    new = pools.touch(old, (block, block))
    assert four.sound(new)
    assert new.ref[block] == old.ref[block] + 2
    assert four.keys_kept(old, new)
    assert four.holdings_kept(old, new, block)


@claim(pools.release, sizes="shape", bounds=four.ONE_KEY, laws=("PC-8",))
def release_a_block(draft: Draft, key: Key, number: int) -> None:
    """A released block has one reference less; at none it goes to the front of the queue without a key and to its back with
    one (T3, PC-8).
    """
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


@claim(pools.release, sizes="shape", bounds=four.ONE_KEY, laws=("PC-8",))
def release_two_blocks(draft: Draft, key: Key, number: int) -> None:
    """Of two released blocks, of which one may have a key, the unkeyed stand in front of all others in the order given and the
    keyed behind (T3, PC-8).
    """
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


@claim(pools.release, sizes="shape", bounds=four.TWO_KEYED, laws=("PC-8",))
def release_two_keyed_blocks(draft: Draft, key: Key, other: Key, turned: bool) -> None:
    """Two released blocks with keys stand behind all others in the order given (T3, PC-8)."""
    assert four.legal(draft, key, other) & four.both_keyed(draft, key, other)
    old = four.pool_of(draft, key, other)
    given = (3, 2) if turned else (2, 3)
    new = pools.release(old, given)
    assert four.sound(new)
    assert four.every(new.ref[block] == old.ref[block] - 1 for block in given)
    assert new.free == (*old.free, *(block for block in given if new.ref[block] == 0))
    assert four.keys_kept(old, new)


@claim(pools.release, sizes="shape", bounds=four.ONE_KEY, laws=("PC-4",))
def release_a_block_twice(draft: Draft, key: Key, number: int) -> None:
    """A block that is released twice loses both references, or the release is refused (T3, PC-4)."""
    assert four.legal(draft, key)
    assert 1 <= number <= 3
    old = four.pool_of(draft, key)
    block = four.block_of(number)
    new = four.attempt(pools.release, old, (block, block))
    assert (new is None) == (old.ref[block] < 2)
    assert new is None or four.sound(new)
    assert new is None or (new.ref[block] == old.ref[block] - 2 and four.keys_kept(old, new))
