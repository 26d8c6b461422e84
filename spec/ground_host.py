"""Naive truths about the host tier for the laws: who holds which block, and what a request's chosen blocks must be (3.5).

Like ``ground`` it reads bare state and calls no transition or size function of ``core``. A *claim* is one copy that was asked
for and is not reported complete: a store from a device block to a host block, or a load the other way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from attrs import frozen

from kvproof.core.config import Config
from kvproof.core.offload.state import Host, Load, Meta, PendingHit, Store, Track
from kvproof.core.pool import Pool
from kvproof.core.world import Request, World
from kvproof.spec import ground, naive, naive_hits

Handoff = tuple[int, int, int, int, str]
"""(request, group, block, boundary, outcome) of a consumed handoff (T24)."""
STORED, GONE = "stored", "dropped_request_gone"


def host_of(world: World) -> Host:
    """Return the host tier of a world that has one."""
    assert world.host is not None
    return world.host


def is_eager(world: World) -> bool:
    """Tell whether the world stores eagerly (3.5)."""
    return world.config.offload is not None and world.config.offload.mode == "eager"


def is_fine(config: Config) -> bool:
    """Tell whether a host hit may end inside a block: fine-grained hits are on, and blocks are stored eagerly (2.4, T33)."""
    return config.fine_grained and config.offload is not None and config.offload.mode == "eager"


def alignment(config: Config) -> int:
    """Return where a host hit may end, in tokens: multiples of H, or of S where hits are coarse (HB-8)."""
    return config.hash_block_size if is_fine(config) else naive_hits.facts(config).scheduler_block


# --- who holds what (PC-3, CP-1) ------------------------------------------------------------------------------------


def all_loads(host: Host) -> tuple[Load, ...]:
    """Return the loads that are not complete, abandoned ones included."""
    return (*host.loads, *host.abandoned_loads)


def all_stores(host: Host) -> tuple[Store, ...]:
    """Return the store events that are not complete, abandoned ones included."""
    return (*host.stores, *host.abandoned_stores)


def held(load: Load) -> Iterator[int]:
    """Yield the blocks of the tables that a finished request left to its load."""
    for table in load.held:
        yield from (block for block in table if block != ground.NULL)


def host_pins(host: Host) -> Iterator[int]:
    """Yield the host block of every reference: pinned hits, loads, stores and queued stores (CP-1)."""
    for hit in host.pending:
        yield from pinned(hit)
    for load in all_loads(host):
        yield from load.host
    for store in all_stores(host):
        yield from store.host
    for waiting in host.queued:
        yield from waiting.host


def pinned(hit: PendingHit) -> Iterator[int]:
    """Yield the host blocks that a pending hit pins, once per entry."""
    for blocks in hit.lists:
        yield from (block for block in blocks if block != ground.NULL)


def counted(blocks: Iterable[int], num_blocks: int) -> list[int]:
    """Count how often each block id is named; ids out of range are left out."""
    count = [0] * num_blocks
    for block in blocks:
        if 0 < block < num_blocks:
            count[block] += 1
    return count


def references(host: Host) -> list[int]:
    """Count the references that every host block should have (CP-1)."""
    return counted(host_pins(host), len(host.pool.ref))


# --- rows -----------------------------------------------------------------------------------------------------------


def pending_of(host: Host, request: int) -> PendingHit | None:
    """Return the pinned hit of a request, None without one."""
    return next((hit for hit in host.pending if hit.request == request), None)


def track_of(host: Host, request: int) -> Track | None:
    """Return the store side's record of a request, None without one."""
    return next((track for track in host.tracks if track.request == request), None)


def load_of(host: Host, request: int) -> Load | None:
    """Return the load of a request that is not complete and not abandoned, None without one."""
    return next((load for load in host.loads if load.request == request), None)


def store_of(host: Host, event: int) -> Store | None:
    """Return a running store event, abandoned or not, None if it is unknown."""
    return next((store for store in all_stores(host) if store.event == event), None)


def outstanding(host: Host) -> list[int]:
    """Return the device blocks of the stores that are running or queued and not abandoned, as often as they stand there."""
    running = [block for store in host.stores for block in store.device]
    return running + [block for waiting in host.queued for block in waiting.device]


# --- keys and prefixes ----------------------------------------------------------------------------------------------


def keys_of(pool: Pool, block: int) -> set[tuple[int, int]]:
    """Return the keys (node, group) of a block, primary and secondary."""
    return {(node, group) for node, group, _, holder in pool.entries if holder == block}


def holds_prefix(world: World, group: int, node: int, content: Sequence[int]) -> bool:
    """Tell whether a block's contents are what the key (node, group) claims: the positions of its entry, or the state."""
    path = ground.lineage(world.prefixes, node)
    if ground.is_recurrent(world.config.groups[group]):
        return ground.is_state(world.config, group, content, node)
    boundary, size = len(path) - 1, ground.span(world.config, group)
    first = (boundary - 1) // size * size
    return ground.misplaced(world.config, group, content, path, first, boundary) is None


@frozen(slots=True)
class Place:
    """Where a positionally selected block stands: request, group and column, and the node that its full key names (T26)."""

    request: int
    group: int
    column: int
    node: int
    block: int
    """The block in the table; the null block where a window has left the entry."""


def stable_groups(config: Config) -> list[int]:
    """Return the groups that the positional scan visits: cacheable and positionally stable (T26, 1.2)."""
    return [g for g, spec in enumerate(config.groups) if spec.prefix_cacheable and not ground.keeps_snapshots(spec)]


def cacheable_tokens(config: Config, group: int, tokens: int) -> int:
    """Return the tokens that a caching call covers in a group, by the gate that the model has (2.8, PM-4)."""
    eagle = ground.span(config, group) if group in ground.eagle_groups(config) else 0
    return naive.cacheable_tokens(tokens, config.fine_grained, ground.scheduler_block(config), eagle)


def scanned(world: World, request: Request, group: int, confirmed: int, first: int) -> Iterator[Place]:
    """Yield the places of a group that a scan from column ``first`` covers: whole entries below the confirmed tokens."""
    size = ground.span(world.config, group)
    path = ground.lineage(world.prefixes, request.tip)
    table = request.groups[group].table
    known = min(confirmed, request.num_tokens)
    ready = min(len(table), cacheable_tokens(world.config, group, known) // size)
    for column in range(first, ready):
        yield Place(request.request, group, column, path[(column + 1) * size], table[column])


def tail_boundary(config: Config, request: Request, group: int) -> int:
    """Return the one boundary inside a block that a prompt is keyed at in a full-attention group, 0 without one (T9.2, T27)."""
    limit = request.num_prompt - (0 if group in ground.eagle_groups(config) else 1)
    return naive.floor_multiple(max(limit, 0), config.hash_block_size)


def expected_items(world: World, group: int, node: int) -> Meta:
    """Return what the metadata of a positional entry says, in any order: a hash block per boundary, a block at its edge."""
    path, unit, size = ground.lineage(world.prefixes, node), world.config.hash_block_size, ground.span(world.config, group)
    end = len(path) - 1
    inside = range(end - size + unit, end + 1, unit)
    return tuple((path[n], size if n == end else unit) for n in inside)
