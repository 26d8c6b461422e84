"""Pools of four blocks, the null block included, and what must hold of each, for `kvproof.proofs.claims.pool` and its like.

The shape of a pool is concrete (its blocks, its free queue, the number of its keys), its contents are any integers. The
conditions are comparisons only and joined by ``&`` and ``|``, because CrossHair follows both outcomes of every ``and``,
``or`` and ``if``. Nothing here calls the functions of `kvproof.core.pool`, which these conditions judge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise, permutations
from typing import TypeVar

from attrs import evolve, frozen

from kvproof.core.errors import ContractBroken, PoolExhausted
from kvproof.core.pool import LEFT, LOST, NO_KEY, NULL_BLOCK, Pool

T = TypeVar("T")

Three = tuple[int, int, int]
"""One number for each of the blocks 1, 2 and 3."""

Key = tuple[int, int, int, int]
"""An entry of the key map: node, group, number of its insertion, block."""

SHAPE = "four blocks, {}; every queue up to names, any references, contents and insertion numbers"
NO_KEYS = SHAPE.format("no key")
ONE_KEY = SHAPE.format("one key")
TWO_KEYS = SHAPE.format("two keys")
TWO_KEYS_IDLE = "four blocks, two keys; no block in use, any contents and insertion numbers"
ONE_KEY_IDLE = "four blocks, one key; no block in use, any contents and insertion numbers"
TWO_KEYED = "four blocks, two of them in use with a key each; any references, contents and insertion numbers"
KEY_IN_AND_OUT_OF_USE = "four blocks, one key; each block in use and free once, any references, contents and insertion numbers"
"""What claims about these pools say of their bounds."""

BLOCKS = (1, 2, 3)
"""The blocks that can be handed out."""

QUEUES: tuple[tuple[int, ...], ...] = ((), (1,), (1, 2), (1, 2, 3))
"""Every free queue up to the names of the blocks. No function of the pool depends on a block's name (a test compares
renamed pools), so these stand for all; where time does not matter `EVERY_QUEUE` takes their place."""

EVERY_QUEUE: tuple[tuple[int, ...], ...] = tuple(
    queue for length in range(len(BLOCKS) + 1) for queue in permutations(BLOCKS, length)
)
"""The 16 free queues such a pool can have."""


@frozen(slots=True)
class Draft:
    """The numbers from which `pool_of` makes a pool.

    ``queue`` indexes `QUEUES`; ``refs`` and ``tokens`` are what a block has if it is in use and if it carries a key;
    ``next_seq`` numbers the next insertion.
    """

    queue: int
    refs: Three
    tokens: Three
    next_seq: int


def pick(options: tuple[T, ...], index: int) -> T:
    """Return ``options[index]``, one path for each option; the last one for an index that none has."""
    for at, option in enumerate(options[:-1]):
        if index == at:
            return option
    return options[-1]


def block_of(number: int) -> int:
    """Return a block number between 1 and 3 as a concrete integer, one path for each."""
    return pick(BLOCKS, number - 1)


def every(conditions: Iterable[bool]) -> bool:
    """Tell whether all conditions hold, without a path of its own for each."""
    held = True
    for condition in conditions:
        held &= condition
    return held


def within(least: int, number: int, most: int) -> bool:
    """Tell whether a number lies between two others, both included, without a path for each comparison."""
    return (least <= number) & (number <= most)


def legal(draft: Draft, *keys: Key, free: int = 0) -> bool:
    """Tell whether `pool_of` makes a sound pool with ``free`` blocks or more in its queue.

    Keys stand in the order of the key map, and no block has one of them twice (T6).
    """
    least = sum(len(queue) < free for queue in QUEUES)
    held = (least <= draft.queue) & (draft.queue < len(QUEUES)) & (draft.next_seq >= 0)
    held &= every(refs >= 1 for refs in draft.refs) & every(tokens >= 1 for tokens in draft.tokens)
    for node, group, seq, block in keys:
        held &= (node >= 0) & (group >= 0) & (seq >= 0) & (seq < draft.next_seq) & within(1, block, 3)
    for first, second in pairwise(keys):
        held &= before(first, second)
    return held


def both_keyed(draft: Draft, key: Key, other: Key) -> bool:
    """Tell whether blocks 2 and 3 are in use and have one of two keys each."""
    return within(0, draft.queue, 1) & within(2, key[3], 3) & within(2, other[3], 3) & (key[3] != other[3])


def in_use(draft: Draft, number: int) -> bool:
    """Tell whether the block of this number has references in the pool of a draft."""
    return every((draft.queue != index) | every(number != block for block in queue) for index, queue in enumerate(QUEUES))


def pool_of(draft: Draft, *keys: Key) -> Pool:
    """Make the pool of a draft: the queue's blocks have no references, and a block's primary is its first key."""
    free = pick(QUEUES, draft.queue)
    ref = (0, *(0 if block in free else draft.refs[block - 1] for block in BLOCKS))
    entries = tuple((node, group, seq, block_of(block)) for node, group, seq, block in keys)
    primaries = tuple(first_of(entries, block) for block in range(4))
    return Pool(
        ref,
        tuple(NO_KEY if entry is None else entry[0] for entry in primaries),
        tuple(NO_KEY if entry is None else entry[1] for entry in primaries),
        tuple(NO_KEY if entry is None else draft.tokens[entry[3] - 1] for entry in primaries),
        free,
        entries,
        draft.next_seq,
    )


def same_key(one: Key, other: Key) -> bool:
    """Tell whether two entries are of one key."""
    return (one[0] == other[0]) & (one[1] == other[1])


def before(one: Key, other: Key) -> bool:
    """Tell whether an entry stands before another in the map: by node, group, insertion (3.2).

    Two blocks may have one key, but a block has it once, and no insertion has the number of another.
    """
    earlier = (one[2] < other[2]) & (one[3] != other[3])
    by_group = (one[1] < other[1]) | ((one[1] == other[1]) & earlier)
    return (one[2] != other[2]) & ((one[0] < other[0]) | ((one[0] == other[0]) & by_group))


def entries_of(entries: tuple[Key, ...], block: int) -> tuple[Key, ...]:
    """Return the entries of a block in the order of the map."""
    return tuple(entry for entry in entries if entry[3] == block)


def first_of(entries: tuple[Key, ...], block: int) -> Key | None:
    """Return the entry of a block that was inserted first, None if it has none."""
    found: Key | None = None
    for entry in entries_of(entries, block):
        if found is None or entry[2] < found[2]:
            found = entry
    return found


# --- what must hold -----------------------------------------------------------------------------------------------


def references_hold(pool: Pool) -> bool:
    """PC-4: no count is negative, and the null block's never moves."""
    return (pool.ref[NULL_BLOCK] == 0) & every(pool.ref[block] >= 0 for block in BLOCKS)


def queue_holds(pool: Pool) -> bool:
    """PC-1, PC-2: the queue has each unreferenced block but the null block once, and no other."""
    in_queue = [pool.free.count(block) for block in range(4)]
    once = every((pool.ref[block] == 0) == (in_queue[block] == 1) for block in BLOCKS)
    return once & (in_queue[NULL_BLOCK] == 0) & (len(pool.free) == sum(in_queue)) & (max(in_queue) <= 1)


def primaries_hold(pool: Pool) -> bool:
    """3.2: a block has a node, a group and a token count, or none of them; the null block has none."""
    held = pool.key_node[NULL_BLOCK] == NO_KEY
    for node, group, tokens in zip(pool.key_node, pool.key_group, pool.key_tokens, strict=True):
        keyed = (node >= 0) & (group >= 0) & (tokens >= 1)
        held &= keyed | ((node == NO_KEY) & (group == NO_KEY) & (tokens == NO_KEY))
    return held


def entries_hold(pool: Pool) -> bool:
    """3.2, T6: the map is in order without repeats, and a block's primary is the first of its entries."""
    held = every(before(first, second) for first, second in pairwise(pool.entries))
    held &= every((entry[2] >= 0) & (entry[2] < pool.next_seq) & (entry[3] != NULL_BLOCK) for entry in pool.entries)
    for block in BLOCKS:
        mine = entries_of(pool.entries, block)
        if not mine:
            held &= pool.key_node[block] == NO_KEY
            continue
        primary = False
        for entry in mine:
            first = every(entry[2] <= other[2] for other in mine)
            primary |= first & (entry[0] == pool.key_node[block]) & (entry[1] == pool.key_group[block])
        held &= primary
    return held


def sound(pool: Pool) -> bool:
    """Tell whether everything above holds of a pool."""
    return references_hold(pool) & queue_holds(pool) & primaries_hold(pool) & entries_hold(pool)


# --- what a transition leaves alone -------------------------------------------------------------------------------


def keys_kept(old: Pool, new: Pool, *but: int) -> bool:
    """Tell whether every block but these keeps its keys."""
    held = True
    for block in BLOCKS:
        if block not in but:
            held &= (old.key_node[block] == new.key_node[block]) & (old.key_group[block] == new.key_group[block])
            held &= old.key_tokens[block] == new.key_tokens[block]
            held &= entries_of(old.entries, block) == entries_of(new.entries, block)
    return held


def holdings_kept(old: Pool, new: Pool, *but: int) -> bool:
    """Tell whether every block but these keeps its references, and the queue its order among them."""
    held = every(old.ref[block] == new.ref[block] for block in BLOCKS if block not in but)
    stayed = [tuple(block for block in pool.free if block not in but) for pool in (old, new)]
    return held & (stayed[0] == stayed[1])


def standing(pool: Pool, block: int) -> tuple[int, int, int]:
    """Return the node and the group of a block's primary and the tokens that it stands for."""
    return pool.key_node[block], pool.key_group[block], pool.key_tokens[block]


def unkeyed(pool: Pool, block: int) -> bool:
    """Tell whether a block has neither a primary nor an entry (PC-5)."""
    return (pool.key_node[block] == NO_KEY) & (not entries_of(pool.entries, block))


def noting(pool: Pool) -> Pool:
    """Return a pool that notes what is to be announced (3.7)."""
    return evolve(pool, notes=())


def goings(left: tuple[Key, ...], *gone: Key) -> tuple[tuple[int, int, int], ...]:
    """Return the notes of entries that went one by one out of a map: left, or lost where no block has the key then (3.7)."""
    found = []
    for at, entry in enumerate(gone):
        stays = False
        for other in (*left, *gone[at + 1 :]):
            stays |= same_key(entry, other)
        found.append((LEFT if stays else LOST, entry[0], entry[1]))
    return tuple(found)


def primary_first(entries: tuple[Key, ...], block: int) -> tuple[Key, ...]:
    """Return the entries of a block, of which there are two at most, in the order of their insertion."""
    mine = entries_of(entries, block)
    return mine if len(mine) < 2 or mine[0][2] < mine[1][2] else mine[::-1]


def carries(pool: Pool, node: int, group: int, block: int) -> bool:
    """Tell whether a block has an entry of this key."""
    held = False
    for entry in entries_of(pool.entries, block):
        held |= (entry[0] == node) & (entry[1] == group)
    return held


def attempt(transition: Callable[..., T], *arguments: object) -> T | None:
    """Return what a transition answers, None if it refuses."""
    try:
        return transition(*arguments)
    except (ContractBroken, PoolExhausted):
        return None
