"""What an implementation answered, taken into the world: the parts that only answers show (hits, copies, handoffs, stores)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.offload.state import NONE, Host, Load, PendingHit, Stage, Store
from kvproof.core.records import Record
from kvproof.core.world import Hit, World
from kvproof.spec import ground, ground_host


def taken_in(world: World, action: Action, record: Record, changed: Mapping[str, object]) -> World:
    """Return a world in which the answer to an action stands where the model remembers it.

    ``changed`` are the fields that differ from the prediction. States that are shown come first and are not touched.
    """
    if isinstance(action, act.Lookup):
        return _hit(world, action, record)
    if isinstance(action, act.Drain):
        return _drained(world, record, changed)
    if isinstance(action, act.BuildMetadata):
        return _built(world, record)
    if isinstance(action, act.LookupExternal):
        return _pinned(world, action, record)
    if isinstance(action, act.Allocate) and action.load and "pairs" in changed:
        return _loading(world, action, record)
    if isinstance(action, act.Finish) and not changed.keys().isdisjoint(("store_device", "store_host", "store_meta")):
        return _queued(world, record)
    if isinstance(action, act.ReadCounters) and world.host is not None:
        return evolve(world, host=evolve(world.host, drained=world.host.counters))
    return world


def _hit(world: World, action: act.Lookup, record: Record) -> World:
    hit = Hit(action.request, record.local, record.lists, record.junction, record.diverged)
    requests = tuple(
        evolve(request, junction=record.junction) if request.request == action.request else request
        for request in world.requests
    )
    return evolve(world, hit=hit, requests=requests)


def _drained(world: World, record: Record, changed: Mapping[str, object]) -> World:
    plan = world.plan
    parts: dict[str, Any] = {}
    if "copies" in changed:
        parts["copies"] = record.copies
    if "handoffs" in changed and world.host is not None:
        parts["drained"] = record.handoffs
    if "zeroed" in changed:
        groups = {block: group for group, block in plan.zero}
        parts["zero"] = tuple((groups.get(block, group_of(world, block)), block) for block in record.zeroed)
    return evolve(world, plan=evolve(plan, **parts)) if parts else world


def group_of(world: World, *blocks: int) -> int:
    """Return the group in whose tables the first of these blocks stands that does in any, 0 if none does."""
    for block in blocks:
        for request in world.requests:
            for group, state in enumerate(request.groups):
                if block in state.table:
                    return group
    return 0


def _built(world: World, record: Record) -> World:
    """Put the store and the loads that a step's metadata names where they wait for the worker."""
    host = world.host
    if host is None:
        return world
    plan = evolve(world.plan, store=record.store_event, load=record.load_event)
    if record.store_event != NONE:
        built = Store(record.store_event, record.store_device, record.store_host, record.store_meta)
        known = ground_host.store_of(host, built.event)
        if known is None or (known.device, known.host, known.meta) != (built.device, built.host, built.meta):
            others = tuple(store for store in host.stores if store.event != built.event)
            host = evolve(host, stores=(*others, built), queued=(), next_store=max(host.next_store, built.event + 1))
    if record.load_event != NONE:
        host = evolve(host, loads=tuple(_told(_named(load, record), record) for load in host.loads))
        host = evolve(host, next_load=max(host.next_load, record.load_event + 1))
    return evolve(world, host=_noted(host, record), plan=plan)


def _named(load: Load, record: Record) -> Load:
    if load.request in record.load_requests and load.stage is Stage.WAITING:
        return evolve(load, event=record.load_event, stage=Stage.BUILT)
    return load


def _told(load: Load, record: Record) -> Load:
    """Return a load as the worker was told of it: a pair that is not in the metadata of its step is not copied."""
    if load.event != record.load_event or load.request not in record.load_requests:
        return load
    told = set(zip(record.load_device, record.load_host, strict=False))
    pairs = [pair for pair in zip(load.device, load.host, strict=False) if pair in told]
    if len(pairs) == len(load.device):
        return load
    return evolve(load, device=tuple(device for device, _ in pairs), host=tuple(host for _, host in pairs))


def _noted(host: Host, record: Record) -> Host:
    new = tuple(notice for notice in record.notices if notice not in host.notices)
    return evolve(host, notices=(*host.notices, *new)) if new else host


def _pinned(world: World, action: act.LookupExternal, record: Record) -> World:
    host = world.host
    if host is None:
        return world
    others = tuple(hit for hit in host.pending if hit.request != action.request)
    known = ground_host.pending_of(host, action.request)
    if record.external and (known is None or (known.length, known.lists) != (record.external, record.lists)):
        host = evolve(host, pending=(*others, PendingHit(action.request, action.start, record.external, record.lists)))
    elif not record.external and known is not None:
        host = evolve(host, pending=others)
    return evolve(world, host=_noted(host, record))


def _loading(world: World, action: act.Allocate, record: Record) -> World:
    host = world.host
    if host is None or ground.request_of(world, action.request) is None:
        return world
    device, blocks = tuple(pair[2] for pair in record.pairs), tuple(pair[3] for pair in record.pairs)
    known = ground_host.load_of(host, action.request)
    if known is not None and (known.device, known.host) == (device, blocks):
        return world
    load = Load(action.request, device, blocks, start=action.local)
    if known is not None:
        load = evolve(known, device=device, host=blocks)
    others = tuple(other for other in host.loads if other.request != action.request)
    return evolve(world, host=evolve(host, loads=(*others, load)))


def _queued(world: World, record: Record) -> World:
    """Put what a finished request left to be stored where the next step takes it up."""
    host = world.host
    if host is None or not host.queued:
        return world
    last = evolve(host.queued[-1], device=record.store_device, host=record.store_host, meta=record.store_meta)
    if not record.store_device:
        return world
    return evolve(world, host=evolve(host, queued=(*host.queued[:-1], last)))
