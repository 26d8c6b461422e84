"""Storing by index: a scan of the request's own tables with one cursor per group (T26, shared by T27).

A table index never changes its meaning in the groups that are scanned (HO-8). Which block it denotes is told by the table
of now, and by the key map where the window has passed the entry (HO-10).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, evolve, field

from kvproof.core import allocation, kinds, prefixes
from kvproof.core import pool as pools
from kvproof.core.offload import admission, choosing, tails, tracks
from kvproof.core.offload.state import Host, Meta, Track
from kvproof.core.pool import NO_KEY, NULL_BLOCK

if TYPE_CHECKING:
    from kvproof.core.config import Config
    from kvproof.core.offload.choosing import Choice
    from kvproof.core.world import Request, Scheduled, World


@define(slots=True)
class Picked:
    """Blocks of one request in the order of the scan, what the events will say of each, and the cursors behind it."""

    cursors: list[int]
    blocks: list[int] = field(factory=list)
    metas: list[Meta] = field(factory=list)


def scan_step(world: World, host: Host, choice: Choice) -> Host:
    """Scan every request of the step; return the host side with the new cursors (T26)."""
    for entry in in_order(world):
        track = tracks.find(host, entry.request)
        if track is None:
            continue
        request = next(other for other in world.requests if other.request == entry.request)
        picked = pick(world, request, track.cursors, choice)
        if tails.joins_scan():
            tails.add(world, request, choice, picked)
        host = tracks.replace(host, moved(track, picked))
        if picked.blocks:
            choosing.store(choice, picked.blocks, picked.metas)
            choice.owners.append(entry.request)
    return host


def in_order(world: World) -> list[Scheduled]:
    """Return the shares of the step in the order in which the store side sees them: new, resumed, continuing (T26)."""
    again = {request.request for request in world.requests if request.num_preemptions}
    return sorted(world.plan.scheduled, key=lambda entry: (entry.request in again) if entry.fresh else 2)


def moved(track: Track, picked: Picked) -> Track:
    """Return the record of a request with the cursors of a scan."""
    return evolve(track, cursors=tuple(picked.cursors))


def pick(world: World, request: Request, cursors: tuple[int, ...], choice: Choice) -> Picked:
    """Pick the blocks of a request that are computed, confirmed, keyed and not on the host, group by group (T26).

    Nothing is taken yet: what one request picks does not evict what it is compared with. Group by group the scan ends where
    the host has no room.
    """
    picked = Picked(list(cursors))
    for group in range(len(world.config.groups)):
        if not is_scanned(world.config, group):
            continue
        if len(picked.blocks) >= choosing.room(choice):
            break
        pick_group(world, request, group, choice, picked)
    return picked


def pick_group(world: World, request: Request, group: int, choice: Choice, picked: Picked) -> None:
    """Pick the blocks of one group from its cursor on, and move the cursor (T26)."""
    ready = ready_entries(world, request, group)
    index = picked.cursors[group]
    while index < ready:
        block = block_at(world, request, group, index, choice)
        if choosing.classify(choice, block) == admission.READY:
            if len(picked.blocks) >= choosing.room(choice):
                index = without_room(index, ready)
                break
            picked.blocks.append(block)
            picked.metas.append(entry_meta(world, request, group, index, choice, block))
        index += 1
    picked.cursors[group] = index


def is_scanned(config: Config, group: int) -> bool:
    """Tell whether a group is stored by index: it is cached, and its indices never change their meaning (T26, HO-8)."""
    spec = config.groups[group]
    return bool(spec.prefix_cacheable) and kinds.of(spec.kind).CAPABILITIES.positionally_stable


def ready_entries(world: World, request: Request, group: int) -> int:
    """Return how many leading table entries are confirmed and full (T26)."""
    covered = allocation.cacheable_prefix(world.config, group, confirmed_tokens(request))
    return min(len(request.groups[group].table), covered // entry_size(world.config, group))


def entry_size(config: Config, group: int) -> int:
    """Return the tokens that one table entry covers: E (2.1, DS-1)."""
    return config.sizes[group]


def confirmed_tokens(request: Request) -> int:
    """Return the tokens whose blocks may be stored: computed in an earlier step and known, no placeholders (T26, 7.3.6)."""
    return min(request.computed - request.placeholders, request.num_tokens)


def block_at(world: World, request: Request, group: int, index: int, choice: Choice) -> int:
    """Return the block that a table index denotes now; NULL_BLOCK if it has none any more (T26, HO-10).

    Behind a window the entry is null, but the block may still have its key.
    """
    block = request.groups[group].table[index]
    if block != NULL_BLOCK:
        return block
    node = prefixes.ancestor(world.prefixes, request.tip, (index + 1) * entry_size(world.config, group))
    found = pools.find(choice.device, node, group)
    return NULL_BLOCK if found == NO_KEY else found


def without_room(index: int, ready: int) -> int:
    """Return where the cursor stays if the host has no room for the block at ``index``: there (T26)."""
    del ready
    return index


def entry_meta(world: World, request: Request, group: int, index: int, choice: Choice, block: int) -> Meta:
    """Return what the events of a block at a table index will say: (prefix node, payload tokens) per key (T26).

    One for every hash boundary of the entry, the edge with E tokens and the others with H, and the primary key.
    """
    unit, size = world.config.hash_block_size, entry_size(world.config, group)
    edge = (index + 1) * size
    boundaries = range(index * size + unit, edge + 1, unit)
    meta = tuple(
        (prefixes.ancestor(world.prefixes, request.tip, boundary), size if boundary == edge else unit)
        for boundary in boundaries
    )
    primary = choice.device.key_node[block]
    return meta if any(node == primary for node, _ in meta) else (*meta, (primary, size))
