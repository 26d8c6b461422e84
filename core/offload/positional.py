"""Storing by index: a scan of the request's own tables with one cursor per group (T26, shared by T27).

A table index never changes its meaning in the groups that are scanned (HO-8). Which block it denotes is told by the table
of now, and by the key map where the window has passed the entry (HO-10).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve

from kvproof.core import allocation, kinds, prefixes
from kvproof.core import pool as pools
from kvproof.core.offload import admission, choosing, tails, tracks
from kvproof.core.offload.state import Host, Lists, Meta, Track
from kvproof.core.pool import NO_KEY, NULL_BLOCK

if TYPE_CHECKING:
    from kvproof.core.config import Config
    from kvproof.core.offload.choosing import Choice, Picked
    from kvproof.core.world import Request, Scheduled, World


def scan_step(world: World, host: Host, choice: Choice) -> Host:
    """Scan every request of the step; return the host side with the new cursors (T26)."""
    for entry in in_order(world):
        track = tracks.find(host, entry.request)
        if track is None:
            continue
        request = next(other for other in world.requests if other.request == entry.request)
        told = tables_told(track, request, fresh=entry.fresh)
        picked = pick(world, request, scanned(world.config, told, request), track.cursors, choice)
        if tails.joins_scan():
            tails.add(world, request, choice, picked)
        host = tracks.replace(host, moved(world.config, track, picked, told))
        if picked.blocks:
            choosing.store(choice, picked.blocks, picked.metas)
            choice.owners.append(entry.request)
    return host


def in_order(world: World) -> list[Scheduled]:
    """Return the shares of the step in the order in which the store side sees them: new, then resumed and continuing (T26)."""
    again = {request.request for request in world.requests if request.num_preemptions}
    resumed = 3 if resumed_last(world.config) else 1
    return sorted(world.plan.scheduled, key=lambda entry: (resumed if entry.request in again else 0) if entry.fresh else 2)


def resumed_last(config: Config) -> bool:
    """Tell whether a step names the requests that it resumed behind those that go on (3.5, setting ``resumed``)."""
    return config.offload is not None and config.offload.resumed == "last"


def moved(config: Config, track: Track, picked: Picked, told: Lists) -> Track:
    """Return the record of a request with the cursors of a scan, and what was told of its tables where that is scanned."""
    return evolve(track, cursors=tuple(picked.cursors), told=told if trusts_told(config) else ())


def trusts_told(config: Config) -> bool:
    """Tell whether the scan takes the ids that steps reported for the table (3.1, field ``positional_ids``)."""
    return config.profile.positional_ids == "accumulated"


def tables_told(track: Track, request: Request, *, fresh: bool) -> Lists:
    """Return the tables as the steps reported them: a new or resumed request's whole, then what was appended (T26).

    What a window nulled since still stands in them.
    """
    tables = tables_of(request)
    if fresh or not track.told:
        return tables
    return tuple((*old, *table[len(old) :]) for old, table in zip(track.told, tables, strict=True))


def tables_of(request: Request) -> Lists:
    """Return the tables of a request."""
    return tuple(state.table for state in request.groups)


def scanned(config: Config, told: Lists, request: Request) -> Lists:
    """Return the tables that the scan reads: the request's own (HO-10), or by a profile those told (3.1)."""
    return told if trusts_told(config) else tables_of(request)


def pick(world: World, request: Request, tables: Lists, cursors: tuple[int, ...], choice: Choice) -> Picked:
    """Pick the blocks of a request that are computed, confirmed, keyed and not on the host, group by group (T26).

    Nothing is taken yet: what one request picks does not evict what it is compared with. Group by group the scan ends where
    the host has no room.
    """
    picked = choosing.Picked(list(cursors))
    for group in range(len(world.config.groups)):
        if not is_scanned(world.config, group):
            continue
        if len(picked.blocks) >= choosing.room(choice):
            break
        pick_group(world, request, group, tables[group], choice, picked)
    return picked


def pick_group(world: World, request: Request, group: int, table: tuple[int, ...], choice: Choice, picked: Picked) -> None:
    """Pick the blocks of one group from its cursor on, and move the cursor (T26)."""
    ready = ready_entries(world, request, group, table)
    index = picked.cursors[group]
    while index < ready:
        block = block_at(world, request, group, table[index], index, choice)
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


def ready_entries(world: World, request: Request, group: int, table: tuple[int, ...]) -> int:
    """Return how many leading table entries are confirmed and full (T26)."""
    covered = allocation.cacheable_prefix(world.config, group, confirmed_tokens(request))
    return min(len(table), covered // entry_size(world.config, group))


def entry_size(config: Config, group: int) -> int:
    """Return the tokens that one table entry covers: E (2.1, DS-1)."""
    return config.sizes[group]


def confirmed_tokens(request: Request) -> int:
    """Return the tokens whose blocks may be stored: those computed in an earlier step, no placeholders (T26, 7.3.6).

    At the end of a request they may be more than it knows: drafts in flight count, too (T27).
    """
    return request.computed - request.placeholders


def block_at(world: World, request: Request, group: int, block: int, index: int, choice: Choice) -> int:
    """Return the block that a table index denotes now, ``block`` being its entry; NULL_BLOCK if it has none (T26, HO-10).

    Behind a window the entry is null, but the block may still have its key. Windows pass known tokens only.
    """
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

    One for every known hash boundary of the entry, its edge with E tokens and the others with H. A primary key that is none of
    these, by a profile, comes last with E tokens (3.1, field ``positional_ids``).
    """
    unit, size = world.config.hash_block_size, entry_size(world.config, group)
    primary = choice.device.key_node[block]
    edge = (index + 1) * size
    boundaries = range(index * size + unit, min(edge, request.num_tokens) + 1, unit)
    meta = tuple(
        (prefixes.ancestor(world.prefixes, request.tip, boundary), size if boundary == edge else unit)
        for boundary in boundaries
    )
    return meta if any(node == primary for node, _ in meta) else (*meta, (primary, size))
