"""The block pool of one tier: references, free queue and key map (semantics 3.2, T1 to T8).

Block 0 is the null block: taken at construction, never handed out, freed or keyed. A key is (node, group). ``entries``
is sorted by (node, group, seq, block): the blocks of a key stand together, first inserted first, which is the order in
which a lookup prefers them.

Where the key map changes, the pool notes what is to be announced, if that is asked for (3.7). Notes live no longer than
the action that makes them: the door takes them out and gives them their payload (``events``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from attrs import frozen

from kvproof.core.errors import BlockOutOfRange, ContractBroken, PoolExhausted

NULL_BLOCK = 0
NO_KEY = -1

CLEARED, LOST, LEFT, FULL, PARTIAL, RESTORED, COPIED = range(7)
"""What a note says: every key is gone (T5); a key lost its last block, or one of several; a key was registered as a full
entry (T7), as a partial one (T8), given back to its block (T39), or registered when a store was complete (T28)."""
Note = tuple[int, ...]
"""(what, node, group); of CLEARED only the first counts, COPIED adds the tokens announced, those of the payload
and the node where the payload ends."""


@frozen(slots=True)
class Pool:
    """All tuples but ``free`` and ``entries`` are indexed by block id; -1 means none.

    ``ref`` counts references; ``key_node``, ``key_group`` and ``key_tokens`` describe the primary key and the number of
    tokens it stands for; ``free`` is the free queue, front (reused first) first; ``next_seq`` orders insertions;
    ``notes`` is what the key map has to announce of the action at hand, None if nothing is to be announced.
    """

    ref: tuple[int, ...]
    key_node: tuple[int, ...]
    key_group: tuple[int, ...]
    key_tokens: tuple[int, ...]
    free: tuple[int, ...]
    entries: tuple[tuple[int, int, int, int], ...] = ()
    next_seq: int = 0
    notes: tuple[Note, ...] | None = None


def new_pool(num_blocks: int, events: bool = False) -> Pool:
    """Return a pool of ``num_blocks`` blocks, the null block included; ids 1.. stand in the free queue (3.2).

    ``events``: its key map announces its changes (3.7).
    """
    none = (NO_KEY,) * num_blocks
    return Pool((0,) * num_blocks, none, none, none, tuple(range(1, num_blocks)), notes=() if events else None)


def _put(values: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    return (*values[:index], value, *values[index + 1 :])


def find(pool: Pool, node: int, group: int) -> int:
    """Return the block a lookup of (node, group) yields: the first inserted one still present, -1 if none (3.2)."""
    entries = pool.entries
    at = bisect_left(entries, (node, group))
    if at < len(entries) and entries[at][0] == node and entries[at][1] == group:
        return entries[at][3]
    return NO_KEY


def holds(pool: Pool, node: int, group: int, block: int) -> bool:
    """Tell whether ``block`` carries the key (node, group), as primary or secondary (3.2)."""
    entries = pool.entries
    at = bisect_left(entries, (node, group))
    while at < len(entries) and entries[at][0] == node and entries[at][1] == group:
        if entries[at][3] == block:
            return True
        at += 1
    return False


def keys_of(pool: Pool, block: int) -> tuple[tuple[int, int, int, int], ...]:
    """Return the entries of a block in order of insertion, primary and secondary alike (3.2)."""
    if pool.key_node[block] == NO_KEY:
        return ()
    return tuple(sorted((entry for entry in pool.entries if entry[3] == block), key=inserted))


def inserted(entry: tuple[int, int, int, int]) -> int:
    """Return the number of an entry's insertion, by which entries are told apart (3.2)."""
    return entry[2]


def remove_all(pool: Pool, block: int) -> Pool:
    """Remove the primary and every secondary key of ``block`` from the map, only for this block's id (T6)."""
    if pool.key_node[block] == NO_KEY:
        return pool
    return Pool(
        pool.ref,
        _put(pool.key_node, block, NO_KEY),
        _put(pool.key_group, block, NO_KEY),
        _put(pool.key_tokens, block, NO_KEY),
        pool.free,
        tuple(entry for entry in pool.entries if entry[3] != block),
        pool.next_seq,
        pool.notes,
    )


def noted(pool: Pool, *notes: Note) -> Pool:
    """Return the pool with more to announce; without events nothing changes (3.7)."""
    if pool.notes is None or not notes:
        return pool
    return with_notes(pool, pool.notes + notes)


def with_notes(pool: Pool, notes: tuple[Note, ...] | None) -> Pool:
    """Return the pool with these notes in place of its own (3.7)."""
    return Pool(pool.ref, pool.key_node, pool.key_group, pool.key_tokens, pool.free, pool.entries, pool.next_seq, notes)


def lost(pool: Pool, node: int, group: int) -> Note:
    """Return the note of a key that a block lost: whether it was the key's last block (3.7)."""
    return (LOST if find(pool, node, group) == NO_KEY else LEFT), node, group


def strip(pool: Pool, block: int) -> Pool:
    """Remove every key of a block and note each, the primary first (T1, T4, T7, T8)."""
    after = remove_all(pool, block)
    if pool.notes is None or after is pool:
        return after
    primary = (pool.key_node[block], pool.key_group[block])
    keys = sorted(keys_of(pool, block), key=lambda entry: entry[:2] != primary)
    return noted(after, *(lost(after, node, group) for node, group, _, _ in keys))


def take(pool: Pool, count: int) -> tuple[Pool, tuple[int, ...]]:
    """Hand out ``count`` blocks from the front of the free queue; their keys are lost (T1).

    Raises PoolExhausted if fewer are free, ContractBroken if a free block is referenced.
    """
    if count <= 0:
        return pool, ()
    if count > len(pool.free):
        raise PoolExhausted(
            f"{count} blocks are wanted and {len(pool.free)} are free: check the demand before taking (T16.4)",
            wanted=count,
            free=len(pool.free),
        )
    blocks = pool.free[:count]
    ref = list(pool.ref)
    for block in blocks:
        if pool.key_node[block] != NO_KEY:
            pool = strip(pool, block)
        if ref[block] != 0:
            raise ContractBroken(f"free block {block} has {ref[block]} references (T1)", block=block, ref=ref[block])
        ref[block] = 1
    return (
        Pool(
            tuple(ref),
            pool.key_node,
            pool.key_group,
            pool.key_tokens,
            pool.free[count:],
            pool.entries,
            pool.next_seq,
            pool.notes,
        ),
        blocks,
    )


def touch(pool: Pool, blocks: Iterable[int]) -> Pool:
    """Add a reference to each non-null block; one without references leaves the free queue (T2)."""
    ref = list(pool.ref)
    free = pool.free
    for block in blocks:
        if block == NULL_BLOCK:
            continue
        if ref[block] == 0:
            free = leave_queue(free, block)
        ref[block] += 1
    return Pool(tuple(ref), pool.key_node, pool.key_group, pool.key_tokens, free, pool.entries, pool.next_seq, pool.notes)


def leave_queue(free: tuple[int, ...], block: int) -> tuple[int, ...]:
    """Return the free queue without ``block`` (T2)."""
    at = free.index(block)
    return free[:at] + free[at + 1 :]


def release(pool: Pool, blocks: Sequence[int]) -> Pool:
    """Give back one reference per non-null block, in eviction order (T3).

    Of those that reach zero, unkeyed blocks go to the front of the queue and keyed ones to the back, both in the given
    order. Raises ContractBroken on a block without references.
    """
    ref = list(pool.ref)
    unkeyed: list[int] = []
    keyed: list[int] = []
    for block in releasable(blocks):
        ref[block] -= 1
        if ref[block] < 0:
            raise ContractBroken(f"block {block} is released more often than it is held (T3)", block=block)
        if ref[block] == 0:
            (unkeyed if pool.key_node[block] == NO_KEY else keyed).append(block)
    free = requeue(pool.free, tuple(unkeyed), tuple(keyed))
    return Pool(tuple(ref), pool.key_node, pool.key_group, pool.key_tokens, free, pool.entries, pool.next_seq, pool.notes)


def releasable(blocks: Sequence[int]) -> list[int]:
    """Return the blocks a release counts: all but the null block (T3)."""
    return [block for block in blocks if block != NULL_BLOCK]


def requeue(free: tuple[int, ...], unkeyed: tuple[int, ...], keyed: tuple[int, ...]) -> tuple[int, ...]:
    """Return the free queue after a release: unkeyed blocks in front, keyed ones behind (T3)."""
    return unkeyed + free + keyed


def eviction_order(table: Sequence[int]) -> tuple[int, ...]:
    """Return a table's blocks in the order in which they are freed: tail first (T3)."""
    return tuple(reversed(table))


def evict(pool: Pool, block: int) -> Pool:
    """Remove all keys of a block whatever its references; it stays where it is (T4). Raises BlockOutOfRange."""
    if not 0 <= block < len(pool.ref):
        raise BlockOutOfRange(
            f"block {block} is not in a pool of {len(pool.ref)} blocks", block=block, num_blocks=len(pool.ref)
        )
    return strip(pool, block)


def reset(pool: Pool) -> tuple[Pool, bool]:
    """Clear every key if no block is in use but the null block; tell whether that happened (T5)."""
    if len(pool.free) != len(pool.ref) - 1:
        return pool, False
    none = (NO_KEY,) * len(pool.ref)
    empty = Pool(pool.ref, none, none, none, pool.free, (), pool.next_seq, pool.notes)
    return noted(empty, (CLEARED, NO_KEY, NO_KEY)), True


def insert(pool: Pool, node: int, group: int, block: int, tokens: int) -> Pool:
    """Register the key (node, group) for a block: its primary if it has none, else a secondary (T6).

    A key the block already has changes nothing. ``tokens`` is what a primary stands for. Nothing is noted.
    """
    if holds(pool, node, group, block):
        return pool
    entries = pool.entries
    entry = (node, group, pool.next_seq, block)
    at = bisect_left(entries, entry)
    entries = (*entries[:at], entry, *entries[at:])
    if pool.key_node[block] != NO_KEY:
        return Pool(pool.ref, pool.key_node, pool.key_group, pool.key_tokens, pool.free, entries, pool.next_seq + 1, pool.notes)
    return Pool(
        pool.ref,
        _put(pool.key_node, block, node),
        _put(pool.key_group, block, group),
        _put(pool.key_tokens, block, tokens),
        pool.free,
        entries,
        pool.next_seq + 1,
        pool.notes,
    )


def move(pool: Pool, source: int, destination: int) -> Pool:
    """Move every key of ``source`` to ``destination``, the primary with its token count first; nothing is noted (T6).

    Raises ContractBroken if the destination carries a key.
    """
    if pool.key_node[destination] != NO_KEY:
        raise ContractBroken(f"keys move onto block {destination}, which already has one (T6)", block=destination)
    primary = pool.key_node[source]
    tokens = pool.key_tokens[source]
    keys = keys_of(pool, source)
    pool = remove_all(pool, source)
    for entry in sorted(keys, key=lambda key: key[0] != primary):
        pool = insert(pool, entry[0], entry[1], destination, tokens)
    return pool


def promote(pool: Pool, node: int, group: int, block: int, tokens: int) -> Pool:
    """Register a full entry; a smaller primary and all other keys of the block give way to it (T7).

    Raises ContractBroken unless the token count strictly increases.
    """
    if pool.key_node[block] != NO_KEY:
        check_increase(pool, block, tokens)
        pool = clear_for_promotion(pool, block)
    return enter(pool, FULL, node, group, block, tokens)


def enter(pool: Pool, what: int, node: int, group: int, block: int, tokens: int) -> Pool:
    """Register a key for a block and note it as ``what``, unless the block already has it (T7, T8, 3.7)."""
    after = insert(pool, node, group, block, tokens)
    if pool.notes is None or after is pool:
        return after
    return noted(after, (what, node, group))


def check_increase(pool: Pool, block: int, tokens: int) -> None:
    """Refuse a full entry over a primary that stands for as many or more tokens (T7)."""
    if pool.key_tokens[block] >= tokens:
        raise ContractBroken(
            f"block {block} stands for {pool.key_tokens[block]} tokens and is registered for {tokens} (T7)",
            block=block,
            standing=pool.key_tokens[block],
            tokens=tokens,
        )


def clear_for_promotion(pool: Pool, block: int) -> Pool:
    """Remove what a block stood for before it is registered for other tokens (T7, T8)."""
    return strip(pool, block)


def insert_partial(pool: Pool, node: int, group: int, block: int, tokens: int) -> Pool:
    """Register a boundary inside a block (T8 without replace mode).

    A primary for fewer tokens is removed with all keys first, unless the key is already there; under a primary for
    more tokens the key becomes a secondary.
    """
    if holds(pool, node, group, block):
        return pool
    if pool.key_node[block] != NO_KEY and pool.key_tokens[block] < tokens:
        pool = clear_for_promotion(pool, block)
    return enter(pool, PARTIAL, node, group, block, tokens)


def replace_partial(pool: Pool, node: int, group: int, block: int, tokens: int) -> Pool:
    """Register a boundary of a block whose contents were overwritten: every key it has goes first (T8 in replace mode)."""
    return enter(clear_for_promotion(pool, block), PARTIAL, node, group, block, tokens)


def restore_keys(pool: Pool, block: int, primary: tuple[int, int, int], entries: Sequence[tuple[int, int, int, int]]) -> Pool:
    """Give a block back the key records it had: (node, group, tokens) of its primary and its entries (T39).

    The difference is noted: what it loses, then what it gets back.
    """
    kept = tuple(sorted([entry for entry in pool.entries if entry[3] != block] + list(entries)))
    after = Pool(
        pool.ref,
        _put(pool.key_node, block, primary[0]),
        _put(pool.key_group, block, primary[1]),
        _put(pool.key_tokens, block, primary[2]),
        pool.free,
        kept,
        pool.next_seq,
        pool.notes,
    )
    if pool.notes is None:
        return after
    had = [entry[:2] for entry in pool.entries if entry[3] == block]
    has = [entry[:2] for entry in entries]
    gone = (lost(after, node, group) for node, group in had if (node, group) not in has)
    back = ((RESTORED, node, group) for node, group in has if (node, group) not in had)
    return noted(after, *gone, *back)
