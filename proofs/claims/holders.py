"""Who holds the blocks of a pool of four: tables of requests, and others of whom only the number is known.

A table's length is concrete; which block stands where is an argument, and so is what else holds a block. The references of a
sound pool equal its holders (PC-3), before and after a transition.
"""

from __future__ import annotations

from attrs import evolve

from kvproof.core.config import Config
from kvproof.core.pool import NULL_BLOCK, Pool
from kvproof.core.prefixes import Prefixes
from kvproof.core.work import Work
from kvproof.core.world import GroupState, Request, Status, Step, World
from kvproof.proofs.claims import pools_of_four as four
from kvproof.proofs.claims.pools_of_four import Draft, Three

Table = tuple[int, ...]
ENTRIES = (NULL_BLOCK, *four.BLOCKS)
"""What may stand in a table."""


def table_of(*entries: int) -> Table:
    """Return a table with concrete entries, one path for each choice."""
    return tuple(four.pick(ENTRIES, entry) for entry in entries)


def occurrences(block: int, *tables: Table) -> int:
    """Return how often a block stands in tables."""
    return sum(table.count(block) for table in tables)


def held(draft: Draft, *entries: int) -> bool:
    """Tell whether table entries are null or blocks in use, which have as many references as they have entries, or more."""
    table = table_of(*entries)
    enough = four.every(four.within(0, entry, 3) for entry in entries)
    for block in four.BLOCKS:
        if block in table:
            enough &= four.in_use(draft, block) & (draft.refs[block - 1] >= table.count(block))
    return enough


def own(*entries: int) -> bool:
    """Tell whether the tables of one request name no block twice (TB-8)."""
    blocks = [block for block in table_of(*entries) if block != NULL_BLOCK]
    return len(set(blocks)) == len(blocks)


def others(pool: Pool, *tables: Table) -> Three:
    """Return the references that are not those of tables: what other requests, copies and transfers hold."""
    one, two, three = (pool.ref[block] - occurrences(block, *tables) for block in four.BLOCKS)
    return one, two, three


def accounted(pool: Pool, rest: Three, *tables: Table) -> bool:
    """PC-3, TB-1: every reference is that of a table or of the rest, and every entry is null or a block of the pool."""
    known = all(entry in ENTRIES for table in tables for entry in table)
    return known & four.every(pool.ref[block] == rest[block - 1] + occurrences(block, *tables) for block in four.BLOCKS)


def unshared(*tables: Table) -> bool:
    """TB-8: no block but the null block stands twice in the tables of a request."""
    return all(occurrences(block, *tables) <= 1 for block in four.BLOCKS)


def request_of(*states: GroupState, number: int = 0) -> Request:
    """Return a running request with these tables."""
    return Request(
        request=number,
        context=0,
        tip=0,
        num_tokens=16,
        num_prompt=16,
        skip_reading=False,
        groups=states,
        status=Status.RUNNING,
    )


def step_of(store: int, part: int) -> Step:
    """Return a dispatched step of no request that names this store event, with so many of its parts done."""
    return Step(scheduled=(), copies=(), zero=(), part=part, due=(), store=store)


def referenced(pool: Pool, blocks: Table) -> Pool:
    """Return a pool whose blocks are all free with one reference for each of these, which leave the queue."""
    ref = tuple(int(block in blocks) for block in range(len(pool.ref)))
    return evolve(pool, ref=ref, free=tuple(block for block in pool.free if block not in blocks))


def world_of(base: World, pool: Pool, *requests: Request) -> World:
    """Return a world with this pool and these requests."""
    return evolve(base, pool=pool, requests=requests)


def work_on(config: Config, pool: Pool, *nodes: int, num_prompt: int = 16) -> Work:
    """Return the scratch space of an allocation of request 0, whose hash boundaries have these nodes."""
    return Work(
        config=config,
        pool=pool,
        prefixes=Prefixes(),
        request=0,
        num_prompt=num_prompt,
        junction=0,
        nodes=nodes,
        num_tokens=num_prompt,
    )


def wanted_queue(old: Pool, new: Pool, given: Table) -> Table:
    """PC-8: the queue after a table was given back in this order: blocks without a key in front of all, others behind."""
    gone = tuple(block for block in given if block != NULL_BLOCK and new.ref[block] == 0)
    bare = tuple(block for block in gone if four.unkeyed(old, block))
    return (*bare, *old.free, *(block for block in gone if block not in bare))
