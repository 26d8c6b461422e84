"""The external lookup: how far the host tier continues a local hit, and the pins that keep it until it is used (T20)."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import kinds, lookup, prefixes
from kvproof.core import pool as pools
from kvproof.core.config import Config
from kvproof.core.offload.state import Host, Lists, PendingHit
from kvproof.core.pool import NULL_BLOCK
from kvproof.core.records import Record
from kvproof.core.world import Phase, Request, World

MISALIGNED = "misaligned_lookup"
"""The notice of a lookup behind a local prefix that is no multiple of S (CN-6)."""


def look_up(world: World, host: Host, request: Request, start: int) -> tuple[World, Record]:
    """Look a request up in the host tier behind its first ``start`` tokens, and pin what is hit (T20).

    What an earlier lookup of it pinned is released first. The lists are relative to ``start``. The local hit stays as it is.
    """
    host = drop_stale(host, request.request)
    notices: tuple[str, ...] = ()
    length, lists = 0, no_lists(world.config)
    if lookup.reads_cache(world.config, request):
        if not starts_aligned(world.config, start):
            host, notices = noticed(host, MISALIGNED)
        elif chunks_agree(world.config, start):
            length, lists = find_suffix(world, host, request, start)
    if length:
        host = pin(host, PendingHit(request.request, start, length, lists))
    world = evolve(world, phase=Phase.PLAN_WAITING, host=host)
    return world, Record("LookupExternal", external=length, lists=lists, notices=notices)


def no_lists(config: Config) -> Lists:
    """Return the lists of no hit: an empty one per group."""
    return ((),) * len(config.groups)


def starts_aligned(config: Config, start: int) -> bool:
    """Tell whether external blocks may begin behind a local prefix: whole blocks are copied, so S divides it (T20.2, CP-6)."""
    return start % config.scheduler_block_size == 0


def chunks_agree(config: Config, start: int) -> bool:
    """Tell whether chunks of local attention counted from ``start`` on are chunks of the request (T20.3)."""
    return all(
        group.window is not None and start % group.window == 0
        for group in config.groups
        if kinds.of(group.kind) is kinds.chunked_local
    )


def host_view(config: Config) -> Config:
    """Return the configuration that the host's keys are looked up with (T33, HB-8).

    In eager mode that of the device. In lazy mode no hit ends inside a block: nobody stores prompt tails there.
    """
    if config.offload is None or config.offload.mode == "eager":
        return config
    return evolve(config, fine_grained=False, alignment=config.scheduler_block_size)


def find_suffix(world: World, host: Host, request: Request, start: int) -> tuple[int, Lists]:
    """Return the host's joint hit behind ``start`` in tokens, and its lists, both relative to ``start`` (T20.4, T20.5)."""
    nodes = prefixes.boundary_nodes(world.prefixes, request.tip, world.config.hash_block_size)
    suffix = nodes[start // world.config.hash_block_size :]
    limit = lookup.longest_hit(request.num_tokens) - start
    if not suffix or limit <= 0:
        return 0, no_lists(world.config)
    length, lists, _ = lookup.lookup_common(host_view(world.config), host.pool, suffix, limit)
    return length, lists if length else no_lists(world.config)


def noticed(host: Host, kind: str) -> tuple[Host, tuple[str, ...]]:
    """Return the host with a notice given, and the notice if it is the first of its kind (CN-6)."""
    if kind in host.notices:
        return host, ()
    return evolve(host, notices=(*host.notices, kind)), (kind,)


def pending_hit(host: Host, request: int) -> PendingHit | None:
    """Return the pinned hit of a request, None if there is none."""
    return next((pending for pending in host.pending if pending.request == request), None)


def pinned_blocks(pending: PendingHit) -> tuple[int, ...]:
    """Return the host blocks that a hit pins, group by group: all but the null block (T20.5)."""
    return tuple(block for blocks in pending.lists for block in blocks if block != NULL_BLOCK)


def pin(host: Host, pending: PendingHit) -> Host:
    """Keep a hit until its allocation: each of its blocks gets a reference (T20.5, CP-4)."""
    return evolve(host, pool=pools.touch(host.pool, pinned_blocks(pending)), pending=(*host.pending, pending))


def unpin(host: Host, request: int) -> Host:
    """Give back what a request has pinned, if anything (CP-4)."""
    pending = pending_hit(host, request)
    if pending is None:
        return host
    return without_pending(evolve(host, pool=pools.release(host.pool, pinned_blocks(pending))), request)


def without_pending(host: Host, request: int) -> Host:
    """Return the host without the pending hit of a request; its pins are the caller's."""
    return evolve(host, pending=tuple(pending for pending in host.pending if pending.request != request))


def drop_stale(host: Host, request: int) -> Host:
    """Release what an earlier lookup pinned, if no allocation took it: a new lookup pins anew (T20.1, CP-4)."""
    return unpin(host, request)


def drop_at_finish(host: Host, request: int) -> Host:
    """Release what a request has pinned when it finishes: no allocation will take it any more (CP-4)."""
    return unpin(host, request)


def drop_unused(host: Host, request: int) -> Host:
    """Release what a request has pinned when it is admitted without a load (T29)."""
    return unpin(host, request)
