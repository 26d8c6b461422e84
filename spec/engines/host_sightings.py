"""Situations around a host tier that one action shows by itself: external hits, loads, stores, reports, resets.

Each function looks at one kind of action and yields the names of what it sees; ``sightings`` calls them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from kvproof.core import actions as act
from kvproof.core import prefixes
from kvproof.core.offload.state import NONE, Host, Load, Stage, Store
from kvproof.core.pool import NULL_BLOCK
from kvproof.core.records import Record
from kvproof.core.world import Phase, Request, Status, World
from kvproof.spec import ground
from kvproof.spec.engines import flight, host
from kvproof.spec.laws.base import Moment

OUTCOMES = {
    "stored": "handoff stored",
    "dropped_cpu_full": "handoff dropped: the host is full",
    "dropped_request_gone": "handoff dropped: its request is gone",
    "skipped_already_cached": "handoff skipped: the host has its key",
}
"""What became of a handoff, by the name of its counter; the other three outcomes need an eviction by id or a fault."""

NAMES: tuple[str, ...] = (
    "external hit",
    "external hit behind a local one",
    "external hit inside a block",
    "external hit with leading nulls",
    "misaligned external lookup",
    "pinned hit replaced by another lookup",
    "load planned",
    "load of several blocks of a group",
    "load of a part of the pinned hit",
    "load in place of a local tail",
    "local tail kept, the external hit is too short",
    "load refused",
    "load for a resumed request",
    "load of what another request loads",
    "load planned with a step in flight",
    "pinned hit released unused",
    "another connector instead of a pinned hit",
    "chunk behind a load",
    "promotion behind a load",
    "key registered behind a load",
    "two loads in one batch",
    "load waits for the steps in flight",
    "load copied while a plan is open",
    "load copied with two steps in flight",
    "store copied while a plan is open",
    "load copied ahead of an older store",
    "copies forced by a preemption",
    "store submitted with the next step",
    *OUTCOMES.values(),
    "positional store",
    "store of an entry nulled meanwhile",
    "store delayed by a full host",
    "cursors of a preempted request start anew",
    "finish stores joined a step",
    "finish stores behind a step's own",
    "lazy pick",
    "lazy walk starts anew",
    "two stores running",
    "finish stores queued",
    "attention tail stored at the end",
    "attention tail stored by position",
    "windows given up at the end",
    "finish while loading",
    "finish behind a load",
    "finish with a pinned hit",
    "finish with stores running",
    "store acknowledged by some of the workers",
    "store acknowledged before it is copied",
    "store completed",
    "second key stored with a block",
    "same content on two host blocks",
    "host key lost to a store",
    "report of an unknown store",
    "load completed",
    "load failed",
    "load failed in part",
    "load of a finished request completed",
    "abandoned load completed",
    "late report after a reset",
    "host reset",
    "host reset refused",
    "reset with a store running",
    "reset with a load running",
    "reset drops queued finish stores",
    "reset releases a pinned hit",
    "counters read",
    "host key given up for tokens that did not arrive",
    "load on the way condemned",
    "condemned load completed",
    "loaded request starts again",
)
"""What :func:`at` may yield."""


def at(moment: Moment, record: Record) -> Iterator[str]:
    """Yield the names of the situations that an accepted action shows in a world with a host tier."""
    before, after = moment.before.host, moment.after.host
    if before is None or after is None:
        return
    if before.pool.entries != after.pool.entries and not isinstance(moment.action, act.ResetHost | act.Output):
        if any(entry not in after.pool.entries for entry in before.pool.entries):
            yield "host key lost to a store"
    seen = _SEEN.get(type(moment.action))
    if seen is not None:
        yield from seen(moment, moment.action, record, before, after)


def _pin(world: Host, number: int) -> bool:
    return any(hit.request == number for hit in world.pending)


# --- lookups and loads --------------------------------------------------------------------------------------------


def _lookup(moment: Moment, action: act.LookupExternal, record: Record, before: Host, after: Host) -> Iterator[str]:
    del after
    config = moment.before.config
    if action.start % config.scheduler_block_size:
        yield "misaligned external lookup"
    if _pin(before, action.request):
        yield "pinned hit replaced by another lookup"
    if not record.external:
        return
    yield "external hit"
    if action.start:
        yield "external hit behind a local one"
    if any((action.start + record.external) % size for size in config.sizes):
        yield "external hit inside a block"
    windowed = [g for g, group in enumerate(config.groups) if group.window is not None]
    if any(record.lists[group][:1] == (NULL_BLOCK,) for group in windowed):
        yield "external hit with leading nulls"


def _allocate(moment: Moment, action: act.Allocate, record: Record, before: Host, after: Host) -> Iterator[str]:
    world = moment.before
    request = next(live for live in world.requests if live.request == action.request)
    if request.loaded and record.admitted:
        yield "chunk behind a load"
    pin = host.pinned(world, action.request)
    if action.load and pin is not None and world.hit is not None:
        yield from _load(moment, action, record, before, request)
    elif pin is not None and not _pin(after, action.request):
        yield "another connector instead of a pinned hit" if action.external else "pinned hit released unused"
        if world.hit is not None and world.hit.local % world.config.scheduler_block_size >= pin.length:
            yield "local tail kept, the external hit is too short"


def _load(moment: Moment, action: act.Allocate, record: Record, before: Host, request: Request) -> Iterator[str]:
    world, pin = moment.before, host.pinned(moment.before, action.request)
    assert pin is not None
    assert world.hit is not None
    if not record.admitted:
        yield "load refused"
        return
    yield "load planned"
    if max(Counter(pair[0] for pair in record.pairs).values(), default=0) > 1:
        yield "load of several blocks of a group"
    if action.external < pin.length:
        yield "load of a part of the pinned hit"
    if world.hit.local > action.local:
        yield "load in place of a local tail"
    if request.status is Status.PREEMPTED:
        yield "load for a resumed request"
    if world.steps:
        yield "load planned with a step in flight"
    sources = {pair[3] for pair in record.pairs}
    if any(sources.intersection(load.host) for load in before.loads):
        yield "load of what another request loads"


def _promote(moment: Moment, action: act.Promote, record: Record, before: Host, after: Host) -> Iterator[str]:
    del action, record, before, after
    yield "promotion behind a load"
    if moment.before.pool.entries != moment.after.pool.entries:
        yield "key registered behind a load"


# --- steps and copies ---------------------------------------------------------------------------------------------


def _build(moment: Moment, action: act.BuildMetadata, record: Record, before: Host, after: Host) -> Iterator[str]:
    del action
    yield from dict.fromkeys(OUTCOMES[outcome[4]] for outcome in record.outcomes if outcome[4] in OUTCOMES)
    if len(record.load_requests) > 1:
        yield "two loads in one batch"
    if any(load.stage is Stage.WAITING for load in after.loads):
        yield "load waits for the steps in flight"
    if len(after.stores) > 1:
        yield "two stores running"
    if before.queued and record.store_event != NONE:
        yield "finish stores joined a step"
        if len(record.store_device) > sum(len(queued.device) for queued in before.queued):
            yield "finish stores behind a step's own"
    if _is_lazy(moment.before):
        if record.store_device:
            yield "lazy pick"
        if before.cursor != NONE and moment.before.pool.ref[before.cursor]:
            yield "lazy walk starts anew"
    else:
        yield from _scan(moment, record, before, after)


def _is_lazy(world: World) -> bool:
    return world.config.offload is not None and world.config.offload.mode == "lazy"


def _scan(moment: Moment, record: Record, before: Host, after: Host) -> Iterator[str]:
    """Yield what the positional scan of a step shows (T26)."""
    world = moment.before
    handed = {outcome[2] for outcome in record.outcomes}
    queued = {block for entry in before.queued for block in entry.device}
    held = {block for request in world.requests for state in request.groups for block in state.table}
    picked = [block for block in record.store_device if block not in handed and block not in queued]
    if picked:
        yield "positional store"
    if any(block not in held for block in picked):
        yield "store of an entry nulled meanwhile"
    cursors = {track.request: track.cursors for track in before.tracks}
    for track in after.tracks:
        if any(new < old for new, old in zip(track.cursors, cursors.get(track.request, track.cursors), strict=True)):
            yield "cursors of a preempted request start anew"
    if not after.pool.free and any(_is_behind(world, track.request, track.cursors) for track in after.tracks):
        yield "store delayed by a full host"


def _is_behind(world: World, number: int, cursors: tuple[int, ...]) -> bool:
    """Tell whether the scan of a scheduled request did not get as far as its confirmed blocks."""
    request = flight.live(world, number)
    if request is None or all(entry.request != number for entry in world.plan.scheduled):
        return False
    confirmed = request.computed - request.placeholders
    return any(
        cursors[group] < ground.cacheable_tokens(world.config, group, confirmed) // ground.span(world.config, group)
        for group, spec in enumerate(world.config.groups)
        if spec.prefix_cacheable and not ground.keeps_snapshots(spec)
    )


def _execute(moment: Moment, action: act.Execute, record: Record, before: Host, after: Host) -> Iterator[str]:
    del moment, record
    if action.part != "flush":
        return
    stages = {store.event: store.stage for store in (*before.stores, *before.abandoned_stores)}
    for store in (*after.stores, *after.abandoned_stores):
        if stages.get(store.event) is Stage.BUILT and store.stage > Stage.BUILT:
            yield "store submitted with the next step"
    if _copied(after) > _copied(before):
        yield "copies forced by a preemption"


def _copied(world: Host) -> int:
    """Return the number of transfers whose bytes have moved."""
    every: tuple[Store | Load, ...] = (*world.stores, *world.loads, *world.abandoned_stores, *world.abandoned_loads)
    return sum(transfer.stage is Stage.COPIED for transfer in every)


def _run_store(moment: Moment, action: act.RunStore, record: Record, before: Host, after: Host) -> Iterator[str]:
    del action, record, before, after
    if moment.before.phase is not Phase.IDLE:
        yield "store copied while a plan is open"


def _run_load(moment: Moment, action: act.RunLoad, record: Record, before: Host, after: Host) -> Iterator[str]:
    del action, record, after
    if moment.before.phase is not Phase.IDLE:
        yield "load copied while a plan is open"
    if len(moment.before.steps) > 1:
        yield "load copied with two steps in flight"
    if any(store.stage is Stage.SUBMITTED for store in before.stores):
        yield "load copied ahead of an older store"


# --- the end of requests ------------------------------------------------------------------------------------------


def _finish(moment: Moment, action: act.Finish, record: Record, before: Host, after: Host) -> Iterator[str]:
    del after
    world = moment.before
    request = next(live for live in world.requests if live.request == action.request)
    if request.status is Status.LOADING:
        yield "finish while loading"
    if request.loaded:
        yield "finish behind a load"
    if _pin(before, action.request):
        yield "finish with a pinned hit"
    if any(track.request == action.request and track.events for track in before.tracks):
        yield "finish with stores running"
    if record.offered is not None and any(
        _lost(state.table, offered) for state, offered in zip(request.groups, record.offered, strict=True)
    ):
        yield "windows given up at the end"
    if record.store_device:
        yield "finish stores queued"
        yield from _tail(world, request, record)


def _lost(table: tuple[int, ...], offered: tuple[int, ...]) -> bool:
    """Tell whether an entry of a table is nulled in what connectors are given of it."""
    return any(now == NULL_BLOCK != was for was, now in zip(table, offered, strict=False))


def _tail(world: World, request: Request, record: Record) -> Iterator[str]:
    """Yield what became of the block in which the last hash boundary of the prompt falls (T27)."""
    config = world.config
    boundary = (request.num_prompt - 1) // config.hash_block_size * config.hash_block_size
    if not config.fine_grained or not 0 < boundary <= request.computed:
        return
    node = prefixes.ancestor(world.prefixes, request.tip, boundary)
    keyed = {entry[3] for entry in world.pool.entries if entry[0] == node}
    for group in ground.full_groups(config):
        column, rest = divmod(boundary, ground.span(config, group))
        block = request.groups[group].table[column] if column < len(request.groups[group].table) else NULL_BLOCK
        if rest and block in keyed and block in record.store_device:
            whole = world.pool.key_tokens[block] % ground.span(config, group) == 0
            yield "attention tail stored by position" if whole else "attention tail stored at the end"


# --- reports and resets -------------------------------------------------------------------------------------------


def _complete_store(moment: Moment, action: act.CompleteStore, record: Record, before: Host, after: Host) -> Iterator[str]:
    del record
    if all(store.event != action.event for store in host.stores(moment.before)):
        yield "report of an unknown store"
        return
    if any(store.event == action.event for store in before.abandoned_stores):
        yield "late report after a reset"
        return
    store = next(store for store in before.stores if store.event == action.event)
    if any(left.event == action.event for left in after.stores):
        yield "store acknowledged by some of the workers"
        if store.stage is not Stage.COPIED:
            yield "store acknowledged before it is copied"
        return
    yield "store completed"
    added = [entry for entry in after.pool.entries if entry not in before.pool.entries]
    if max(Counter(entry[3] for entry in added).values(), default=0) > 1:
        yield "second key stored with a block"
    if max(Counter(entry[:2] for entry in after.pool.entries).values(), default=0) > 1:
        yield "same content on two host blocks"


def _complete_load(moment: Moment, action: act.CompleteLoad, record: Record, before: Host, after: Host) -> Iterator[str]:
    del moment, record, after
    if any(load.request == action.request for load in before.abandoned_loads):
        yield "abandoned load completed"
        return
    load = next(load for load in before.loads if load.request == action.request)
    if load.finished:
        yield "load of a finished request completed"
    elif load.condemned:
        yield "condemned load completed"
    elif action.failed:
        yield "load failed in part" if action.valid else "load failed"
    else:
        yield "load completed"


def _reset(moment: Moment, action: act.ResetHost, record: Record, before: Host, after: Host) -> Iterator[str]:
    del moment, action, after
    yield "host reset" if record.done else "host reset refused"
    if before.stores:
        yield "reset with a store running"
    if before.loads:
        yield "reset with a load running"
    if before.queued:
        yield "reset drops queued finish stores"
    if before.pending:
        yield "reset releases a pinned hit"


def _read(moment: Moment, action: act.ReadCounters, record: Record, before: Host, after: Host) -> Iterator[str]:
    del moment, action, before, after
    if any(record.counters):
        yield "counters read"


def _output(moment: Moment, action: act.Output, record: Record, before: Host, after: Host) -> Iterator[str]:
    """Yield what is given up on the host's side because a connector's tokens did not arrive (C-48)."""
    del action, record
    if before.pool.entries != after.pool.entries:
        yield "host key given up for tokens that did not arrive"
    if sum(load.condemned for load in after.loads) > sum(load.condemned for load in before.loads):
        yield "load on the way condemned"
    behind = {request.request for request in moment.before.requests if request.loaded or request.status is Status.LOADING}
    anew = {request.request for request in moment.after.requests if not request.loaded and request.status is not Status.LOADING}
    if behind & anew:
        yield "loaded request starts again"


_SEEN: dict[type[act.Action], Callable[[Moment, Any, Record, Host, Host], Iterator[str]]] = {
    act.LookupExternal: _lookup,
    act.Allocate: _allocate,
    act.Promote: _promote,
    act.BuildMetadata: _build,
    act.Execute: _execute,
    act.Output: _output,
    act.RunStore: _run_store,
    act.RunLoad: _run_load,
    act.Finish: _finish,
    act.CompleteStore: _complete_store,
    act.CompleteLoad: _complete_load,
    act.ResetHost: _reset,
    act.ReadCounters: _read,
}
