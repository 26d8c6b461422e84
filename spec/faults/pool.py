"""Faults in the block pool and in the order and atomicity of allocations (semantics T1 to T3, T16)."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from kvproof.core import allocation
from kvproof.core import pool as pools
from kvproof.core.pool import CLEARED, NO_KEY, NULL_BLOCK, Pool
from kvproof.core.work import Work
from kvproof.core.world import Request, World
from kvproof.spec.faults.base import Fault

_evict = pools.evict
_release = pools.release
_reset = pools.reset
_take = pools.take
_refused = allocation.refused


def _all_behind(free: tuple[int, ...], unkeyed: tuple[int, ...], keyed: tuple[int, ...]) -> tuple[int, ...]:
    return free + unkeyed + keyed


def _stays_queued(free: tuple[int, ...], block: int) -> tuple[int, ...]:
    del block
    return free


def _taken_whatever_the_references(pool: Pool, count: int) -> tuple[Pool, tuple[int, ...]]:
    handed_out = set(pool.free[: max(count, 0)])
    ref = tuple(0 if block in handed_out else held for block, held in enumerate(pool.ref))
    return _take(evolve(pool, ref=ref), count)


def _null_released_too(pool: Pool, blocks: Sequence[int]) -> Pool:
    pool = _release(pool, blocks)
    nulls = sum(1 for block in blocks if block == NULL_BLOCK)
    return evolve(pool, ref=(pool.ref[NULL_BLOCK] - nulls, *pool.ref[1:]))


def _keys_survive(pool: Pool, count: int) -> tuple[Pool, tuple[int, ...]]:
    after, blocks = _take(pool, count)
    return (
        evolve(
            after,
            key_node=pool.key_node,
            key_group=pool.key_group,
            key_tokens=pool.key_tokens,
            entries=pool.entries,
        ),
        blocks,
    )


def _table_order(table: Sequence[int]) -> tuple[int, ...]:
    return tuple(table)


def _said_and_not_done(pool: Pool) -> tuple[Pool, bool]:
    done = _reset(pool)[1]
    return (pools.noted(pool, (CLEARED, NO_KEY, NO_KEY)) if done else pool), done


def _whatever_is_in_use(pool: Pool) -> tuple[Pool, bool]:
    none = (NO_KEY,) * len(pool.ref)
    empty = evolve(pool, key_node=none, key_group=none, key_tokens=none, entries=())
    return pools.noted(empty, (CLEARED, NO_KEY, NO_KEY)), True


def _not_evicted(pool: Pool, block: int) -> Pool:
    _evict(pool, block)
    return pool


def _adopted_before_the_check(
    world: World, request: Request, work: Work, states: allocation.States, lists: allocation.Lists
) -> World:
    for blocks in lists:
        work.pool = pools.touch(work.pool, blocks)
    return _refused(world, request, work, states, lists)


def _group_by_group(
    work: Work, states: allocation.States, lists: allocation.Lists, wanted: allocation.Wanted
) -> allocation.Lists:
    external = []
    for group, state in enumerate(states):
        adopted = allocation.adopt(work, group, state, lists[group], wanted)
        states[group], blocks = allocation.take_external(work, group, adopted, wanted)
        external.append(blocks)
    return tuple(external)


FAULTS: tuple[Fault, ...] = (
    Fault(
        "M-POOL-1",
        "freed blocks without a key go behind the cached ones",
        "src",
        ("PC-8",),
        ((pools, "requeue", _all_behind),),
        scopes=("fa8-m2", "fa8-m2-n2"),
    ),
    Fault(
        "M-POOL-2",
        "adopting a free block leaves it in the free queue, and it is handed out while it is held",
        "src",
        ("PC-1", "PC-2", "PC-3"),
        ((pools, "leave_queue", _stays_queued), (pools, "take", _taken_whatever_the_references)),
        scopes=("fa2x6", "fa4"),
    ),
    Fault(
        "M-POOL-3",
        "freeing a table counts the null block down",
        "src",
        ("PC-4",),
        ((pools, "release", _null_released_too),),
        scopes=("fa4-m2-n4", "fa2-m8"),
    ),
    Fault(
        "M-EVICT-1",
        "a block handed out again keeps the keys of its former contents",
        "src",
        ("PC-5",),
        ((pools, "take", _keys_survive),),
        scopes=("fa2x6", "fa2-m4-n4"),
    ),
    Fault(
        "M-EVICT-2",
        "a block that is evicted by its id keeps its keys",
        "src",
        ("PC-13", "HB-17"),
        ((pools, "evict", _not_evicted),),
        scopes=("fa4", "fa4-m4"),
    ),
    Fault(
        "M-RST-3",
        "a reset of the prefix cache says that it was done and leaves the keys",
        "src",
        ("PC-13", "HB-16"),
        ((pools, "reset", _said_and_not_done),),
        scopes=("fa4", "fa4-m4"),
    ),
    Fault(
        "M-RST-4",
        "a reset of the prefix cache is done although blocks are in use",
        "src",
        ("PC-14",),
        ((pools, "reset", _whatever_is_in_use),),
        scopes=("fa4", "fa4-m4"),
    ),
    Fault(
        "M-LRU-1",
        "a table is freed from its head, so the start of a prefix is lost first",
        "src",
        ("PC-8",),
        ((pools, "eviction_order", _table_order),),
        scopes=("fa8-m2", "m4-fa2-tight"),
    ),
    Fault(
        "M-ATOM-1",
        "the hit is adopted before the demand is compared, and a refusal keeps the references",
        "src",
        ("PC-9",),
        ((allocation, "refused", _adopted_before_the_check),),
        scopes=("fa2-m8", "fa4r-m4-n2"),
    ),
    Fault(
        "M-2PH-1",
        "each group adopts its hit and takes its external blocks before the next group adopts",
        "#33775",
        ("PC-6",),
        ((allocation, "admit", _group_by_group),),
        scopes=("m4-fa2-tight", "fa2x6"),
    ),
)
