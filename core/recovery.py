"""A synchronous load that failed: whatever was computed on tokens that did not arrive is forgotten (T4, T30, T36.2, C-48).

Bytes behind the missing token are wrong, whoever computed them, and nobody can tell them from right ones by their block.
They can be told by the prefix that they stand for: it goes on behind the valid tokens as the failed request's does.
"""

from __future__ import annotations

from attrs import evolve

from kvproof.core import allocation, contents, prefixes, requests
from kvproof.core import pool as pools
from kvproof.core.errors import OutputMismatch
from kvproof.core.offload import external, loads
from kvproof.core.offload.state import Host
from kvproof.core.pool import Pool
from kvproof.core.prefixes import Prefixes
from kvproof.core.world import Request, Scheduled, Status, Step, World


def check(step: Step, entry: Scheduled, valid: int) -> None:
    """Refuse the report of a failed load that cannot be one (T36.2). Raises OutputMismatch.

    The chunk has external tokens, not all of them arrived, and no output of the step was taken for good before.
    """
    if not entry.loaded_from <= valid < entry.start:
        raise OutputMismatch(
            f"request {entry.request} was brought the tokens from {entry.loaded_from} to {entry.start} in this step, {valid} "
            "leading ones are reported valid: give a number from the first to one less than the second (T36.2)",
            request=entry.request,
            valid=valid,
        )
    if step.opened:
        raise OutputMismatch(
            f"the load of request {entry.request} failed: report that before the outputs of its step, others may have read "
            "what did not arrive (T36.2)",
            request=entry.request,
        )


def recover(world: World, entry: Scheduled, valid: int) -> tuple[World, tuple[int, ...]]:
    """Forget everything that goes on behind the ``valid`` tokens of a failed load: bytes, keys, and who holds them (C-48).

    Requests that hold some start again, those that load when their load is reported; late outputs of preempted ones are
    dropped. Returns the world and the requests that were preempted.
    """
    missing = prefixes.ancestor(world.prefixes, entry.tip, valid + 1)
    world = evolve(
        world,
        contents=spoiled(world.prefixes, world.contents, missing),
        pool=without_keys(world.prefixes, world.pool, missing),
    )
    if world.host is not None:
        host = evolve(
            world.host,
            contents=spoiled(world.prefixes, world.host.contents, missing),
            pool=without_keys(world.prefixes, world.host.pool, missing),
        )
        world = evolve(world, host=host)
    preempted = []
    for request in concerned(world, entry, missing):
        if world.host is not None:
            world = evolve(world, host=without_wrong_pins(world.host, request.request, valid))
        if holds(request, valid):
            if request.status is Status.RUNNING:
                preempted.append(request.request)
            world = let_start_again(world, request)
        elif request.stale:
            world = allocation.with_request(world, evolve(request, drop_stale=True), world.pool, world.plan)
    return world, tuple(preempted)


def without_wrong_pins(host: Host, request: int, valid: int) -> Host:
    """Return the host that has given back the pinned hit of a request if it reaches behind the valid tokens (CP-4, C-48)."""
    pending = external.pending_hit(host, request)
    if pending is None or pending.start + pending.length <= valid:
        return host
    return external.unpin(host, request)


def concerned(world: World, entry: Scheduled, missing: int) -> tuple[Request, ...]:
    """Return the requests that go on behind the valid tokens, whoever's chunk it was that the load failed for (M-PUB-134)."""
    del entry
    return tuple(request for request in world.requests if goes_on(world.prefixes, request.tip, missing))


def goes_on(table: Prefixes, node: int, missing: int) -> bool:
    """Tell whether a prefix contains the first missing token behind the same tokens: it goes through node ``missing``."""
    depth = table.depth[missing]
    return table.depth[node] >= depth and prefixes.ancestor(table, node, depth) == missing


def spoiled(table: Prefixes, memory: tuple[contents.Cells, ...], missing: int) -> tuple[contents.Cells, ...]:
    """Return the contents of a tier in which every cell that goes on behind the valid tokens is garbage."""
    return tuple(
        (content[0], *(contents.GARBAGE if cell >= 0 and goes_on(table, cell, missing) else cell for cell in content[1:]))
        if content
        else content
        for content in memory
    )


def without_keys(table: Prefixes, pool: Pool, missing: int) -> Pool:
    """Return a pool in which no block has a key that goes on behind the valid tokens; such a block loses all keys (T4).

    The blocks lose them in the order in which such keys were inserted, which depends on no block's id.
    """
    gone = [entry for entry in sorted(pool.entries, key=pools.inserted) if goes_on(table, entry[0], missing)]
    for block in dict.fromkeys(entry[3] for entry in gone):
        pool = pools.evict(pool, block)
    return pool


def holds(request: Request, valid: int) -> bool:
    """Tell whether a request that goes on behind the valid tokens has blocks of what comes there."""
    return request.computed > valid


def let_start_again(world: World, request: Request) -> World:
    """Let a request start again: a running one is preempted, its outputs on the way are dropped (T31, T36.4).

    One whose load is on the way keeps its blocks until the load is reported, and then nothing of them (LD-7).
    """
    if request.status is Status.RUNNING:
        return requests.preempt(world, request, drop_stale=True)[0]
    host = world.host
    load = None if host is None else loads.find(host, request.request)
    if host is None or load is None:
        return loads.start_again(world, request)
    return evolve(world, host=loads.condemned(host, load))
