"""Reset the host tier (T34): what runs is abandoned, what waits is dropped, the keys go if nothing was abandoned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve

from kvproof.core import pool as pools
from kvproof.core.offload import counters, loads
from kvproof.core.offload.state import NONE, Counters, Host
from kvproof.core.records import Record

if TYPE_CHECKING:
    from kvproof.core.pool import Pool
    from kvproof.core.world import World


def reset(world: World, host: Host) -> tuple[World, Record]:
    """Drop pins, queued stores and the store side's records, abandon what runs, and clear the host's keys if it may (T34).

    ``done`` is False, and the keys stay, while an abandoned transfer runs.
    """
    device, pool = drop_queued(world.pool, drop_pins(host), host)
    host = evolve(host, pool=pool, pending=(), queued=())
    world, host = loads.at_reset(evolve(world, pool=device), host)
    host = evolve(
        host,
        stores=(),
        abandoned_stores=host.abandoned_stores + host.stores,
        tracks=(),
        in_flight=(),
        next_store=next_event(host),
        counters=restarted(host),
        drained=Counters(),
        cursor=NONE,
    )
    done = may_clear(host)
    if done:
        pool, done = pools.reset(host.pool)
        host = evolve(host, pool=pool)
    return evolve(world, host=host), Record("ResetHost", done=done)


def drop_pins(host: Host) -> Pool:
    """Return the host pool without the pins of lookups that wait for their allocation (T34, CP-4)."""
    pool = host.pool
    for hit in host.pending:
        for blocks in hit.lists:
            pool = pools.release(pool, blocks)
    return pool


def drop_queued(device: Pool, pool: Pool, host: Host) -> tuple[Pool, Pool]:
    """Give back the references of queued finish stores, of which no worker knows (T34, CP-12)."""
    for left in host.queued:
        device, pool = pools.release(device, left.device), pools.release(pool, left.host)
    return device, pool


def next_event(host: Host) -> int:
    """Return the number of the next store event: a late report of an old one must find no new one of its number (CP-11)."""
    return host.next_store


def restarted(host: Host) -> Counters:
    """Return the counters after a reset: what was not read out yet is kept (T34, CN-1)."""
    return counters.undrained(host)


def may_clear(host: Host) -> bool:
    """Tell whether the keys may go: no abandoned transfer holds blocks (T34, CP-12)."""
    return not host.abandoned_stores and not host.abandoned_loads
