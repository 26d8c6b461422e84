"""The last chance to store what a request leaves behind (T27)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve

from kvproof.core.offload import choosing, counters, positional, tails, tracks
from kvproof.core.offload.state import Queued, Track
from kvproof.core.records import Record

if TYPE_CHECKING:
    from kvproof.core.offload.choosing import Choice
    from kvproof.core.world import Request, World


def finish_stores(world: World, request: Request) -> tuple[World, Record]:
    """Queue the last stores of a request that is about to be freed, and let the store side forget it (T27, T32.4).

    ``request`` has its final tables, windows nulled. Returns the world and a record of Finish with what was queued; the
    caller adds its own part. Without a host tier nothing happens.
    """
    host = world.host
    if host is None:
        return world, Record("Finish")
    track = tracks.find(host, request.request)
    if track is None:
        return world, Record("Finish", pending_work=counters.pending_work(host))
    choice = choosing.begin(world, host)
    flush(world, request, track, choice)
    world, host = choosing.end(world, host, choice)
    if choice.blocks:
        host = evolve(host, queued=(*host.queued, queued(choice)))
    host = tracks.end(host, request.request)
    return evolve(world, host=host), Record(
        "Finish",
        store_device=tuple(choice.blocks),
        store_host=tuple(choice.hosts),
        store_meta=None if choice.meta is None else tuple(choice.meta),
        pending_work=counters.pending_work(host),
    )


def flush(world: World, request: Request, track: Track, choice: Choice) -> None:
    """Choose the blocks that no step stored yet, then the block of the prompt tail (T27)."""
    picked = positional.pick(world, request, positional.tables_of(request), track.cursors, choice)
    tails.add(world, request, choice, picked)
    choosing.store(choice, picked.blocks, picked.metas)


def queued(choice: Choice) -> Queued:
    """Return what joins the next step's store event (T27, IP-3)."""
    return Queued(tuple(choice.blocks), tuple(choice.hosts), None if choice.meta is None else tuple(choice.meta))
