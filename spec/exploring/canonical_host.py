"""The host side of the key of a world (see ``canonical``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import frozen

from kvproof.core.offload.state import Host, Load, Meta, Queued, Store
from kvproof.core.world import NONE, World
from kvproof.spec.exploring.names import Labels


@frozen(slots=True)
class Events:
    """The rank of every store and load event that something still refers to; none stays none."""

    stores: dict[int, int]
    loads: dict[int, int]

    @classmethod
    def of(cls, world: World) -> Events:
        """Rank the events of a world."""
        host = world.host
        if host is None:
            return _WITHOUT
        stores = [world.plan.store, *(step.store for step in world.steps)]
        stores += [store.event for store in (*host.stores, *host.abandoned_stores)]
        stores += [event for track in host.tracks for event in track.events]
        loads = [world.plan.load, *(step.load for step in world.steps)]
        loads += [load.event for load in (*host.loads, *host.abandoned_loads)]
        return cls(_ranked(stores), _ranked(loads))


def _ranked(numbers: Iterable[int]) -> dict[int, int]:
    return {NONE: NONE} | {number: rank for rank, number in enumerate(sorted({*numbers} - {NONE}))}


_WITHOUT = Events({NONE: NONE}, {NONE: NONE})


def _lists(out: list[int], names: dict[int, int], found: Iterable[Sequence[int]]) -> None:
    for blocks in found:
        out.append(len(blocks))
        out += [names[block] for block in blocks]


def _meta(out: list[int], labels: Labels, meta: tuple[Meta, ...] | None) -> None:
    if meta is None:
        out.append(NONE)
        return
    out.append(len(meta))
    for described in meta:
        out.append(len(described))
        for node, tokens in described:
            out += (labels.nodes[node], tokens)


def _load(out: list[int], labels: Labels, world: World, load: Load, events: Events) -> None:
    out.append(labels.requests[load.request])
    _lists(out, labels.blocks, (load.device, *load.held))
    _lists(out, labels.hosts, (load.host,))
    # A fence that is reached holds nothing back, however long ago that was.
    fence = max(load.fence - world.processed, 0)
    out += (events.loads[load.event], load.stage, load.finished, fence, load.start, load.condemned, len(load.held))


def _store(out: list[int], labels: Labels, store: Store, events: Events) -> None:
    out.append(events.stores[store.event])
    _pairs(out, labels, store)
    out += (store.stage, store.acks)


def _pairs(out: list[int], labels: Labels, pairs: Store | Queued) -> None:
    _lists(out, labels.blocks, (pairs.device,))
    _lists(out, labels.hosts, (pairs.host,))
    _meta(out, labels, pairs.meta)


def transfers(out: list[int], labels: Labels, world: World, host: Host, events: Events) -> None:
    """Add pins, transfers, what is queued and tracked, and the host's free queue."""
    out.append(len(host.pending))
    for pin in host.pending:
        out += (labels.requests[pin.request], pin.start, pin.length)
        _lists(out, labels.hosts, pin.lists)
    for loads in (host.loads, host.abandoned_loads):
        out.append(len(loads))
        for load in loads:
            _load(out, labels, world, load, events)
    for stores in (host.stores, host.abandoned_stores):
        out.append(len(stores))
        for store in stores:
            _store(out, labels, store, events)
    out.append(len(host.queued))
    for queued in host.queued:
        _pairs(out, labels, queued)
    out.append(len(host.tracks))
    for track in host.tracks:
        out += (labels.requests[track.request], track.finished, len(track.events), len(track.told))
        out += track.cursors
        out += [events.stores[event] for event in track.events]
        _lists(out, labels.blocks, track.told)
    out += (labels.blocks[host.cursor], len(host.notices))
    _lists(out, labels.hosts, (host.pool.free,))


def rest(out: list[int], labels: Labels, host: Host) -> None:
    """Add what is a set of device blocks, and the notices given, in an order that depends on no name."""
    out.append(len(host.in_flight))
    out += sorted(labels.blocks[block] for block in host.in_flight)
    for notice in sorted(host.notices):
        out += notice.encode()
