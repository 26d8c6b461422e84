"""Giving blocks back: at once, or behind the fence of the steps in flight if freeing is deferred (T3, T31, T32, T36.1)."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import pool as pools
from kvproof.core.pool import Pool
from kvproof.core.world import DeferredFree, Request, Step, World

Tables = tuple[tuple[int, ...], ...]


def free_request(world: World, request: Request) -> World:
    """Free all blocks of a request; while a step of it is in flight they are held back if freeing is deferred (T31, T32)."""
    tables = tuple(state.table for state in request.groups)
    if is_held_back(world, request):
        return hold_back(world, world.issued, tables)
    return evolve(world, pool=release_tables(world.pool, tables))


def is_held_back(world: World, request: Request) -> bool:
    """Tell whether freeing a request now has to wait: freeing is deferred and a step of it is in flight (T3).

    Once outputs of a step are processed it has run, and its fence is reached: nothing waits for it any more.
    """
    return world.config.defer_block_free and any(request.request in step.due and not step.opened for step in world.steps)


def release_tables(pool: Pool, tables: Tables) -> Pool:
    """Release tables group by group, each tail first (T3)."""
    for table in tables:
        pool = pools.release(pool, pools.eviction_order(table))
    return pool


def free_ends(world: World, ends: tuple[int, ...]) -> World:
    """Give back the references of the ends of a step's copies, in this order: one release, at once or fenced (T0 part 5).

    The fence is that of the step being planned, which runs the copies. A step without tokens has no output that could open
    a fence; behind the steps before it nothing else can write the ends before the copies have run.
    """
    fence = world.issued + (1 if world.plan.scheduled else 0)
    if ends and world.config.defer_block_free and fence > world.processed:
        return hold_back(world, fence, (pools.eviction_order(ends),))
    return evolve(world, pool=pools.release(world.pool, ends))


def hold_back(world: World, fence: int, tables: Tables) -> World:
    """Queue tables to be released when the step numbered ``fence`` is processed (3.4)."""
    return evolve(world, deferred=(*world.deferred, DeferredFree(fence, tables)))


def open_step(world: World, step: Step) -> World:
    """Note that the outputs of the oldest step begin to be processed, and release what waited for it (T36.1).

    Entries leave from the front as far as their fence is reached, in the order of T3.
    """
    if step.opened:
        return world
    world = evolve(world, steps=(evolve(step, opened=True), *world.steps[1:]))
    if not world.config.defer_block_free:
        return world
    processed = world.processed + 1
    pool, waiting = world.pool, world.deferred
    while waiting and waiting[0].fence <= processed:
        pool = release_tables(pool, in_order(world.config.profile.deferred_free_order, waiting[0].tables))
        waiting = waiting[1:]
    return evolve(world, pool=pool, deferred=waiting, processed=processed)


def in_order(order: str, tables: Tables) -> Tables:
    """Return the tables of a deferred free as they are released one after the other (3.1, ``deferred_free_order``).

    ``per_group`` keeps them apart, as an immediate free does; ``flattened`` makes them one.
    """
    if order == "per_group":
        return tables
    return (tuple(block for table in tables for block in table),)
