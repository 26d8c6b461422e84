"""The metadata of a step with a host tier: what is stored and loaded with it (T0 part 6, T24, T26, T27, T33)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve

from kvproof.core.offload import choosing, handoffs, lazy, loads, positional, tracks
from kvproof.core.offload.state import NONE, Host, Meta, Queued, Stage, Store
from kvproof.core.records import Record
from kvproof.core.world import Phase

if TYPE_CHECKING:
    from kvproof.core.config import Config
    from kvproof.core.offload.choosing import Choice
    from kvproof.core.offload.handoffs import Outcome
    from kvproof.core.world import Plan, World


def build(world: World, host: Host) -> tuple[World, Record]:
    """Choose the stores of the step in the order of T0(6), all under one event, then give the waiting loads theirs."""
    choice = choosing.begin(world, host)
    outcomes: tuple[Outcome, ...] = ()
    notices: tuple[str, ...] = ()
    if is_lazy(world.config):
        host = lazy.walk(world.config, host, choice)
    else:
        host, outcomes, notices = handoffs.consume(world, host, choice)
        host = tracks.clear_cursors(host, gave_up(world.plan))
        host = positional.scan_step(world, host, choice)
    world, host = choosing.end(world, host, choice)
    host, store = issue(host, choice)
    host, record = issue_loads(world, host)
    plan = evolve(world.plan, drained=(), store=NONE if store is None else store.event, load=record.load_event)
    return evolve(world, host=host, plan=plan, phase=Phase.BUILT), evolve(
        record,
        store_event=plan.store,
        store_device=() if store is None else store.device,
        store_host=() if store is None else store.host,
        store_meta=None if store is None else store.meta,
        outcomes=outcomes,
        flush=flushes(plan),
        notices=notices,
    )


def is_lazy(config: Config) -> bool:
    """Tell whether blocks are stored when they come near eviction; handoffs are not consumed then (T33, CP-10)."""
    return config.offload is not None and config.offload.mode == "lazy"


def gave_up(plan: Plan) -> tuple[int, ...]:
    """Return the requests preempted in the step: their cursors start anew (T26)."""
    return plan.preempted_before + plan.preempted


def flushes(plan: Plan) -> bool:
    """Tell whether the step waits for running transfers before it runs: some request was preempted (T0 execute a)."""
    return bool(gave_up(plan))


def issue(host: Host, choice: Choice) -> tuple[Host, Store | None]:
    """Give what was chosen and what finished requests left one event; no number is used up if there is nothing (T0(6))."""
    device = (*choice.blocks, *(block for left in host.queued for block in left.device))
    if not device:
        return host, None
    store = Store(
        event=host.next_store,
        device=device,
        host=(*choice.hosts, *(block for left in host.queued for block in left.host)),
        meta=None if choice.meta is None else merged(tuple(choice.meta), host.queued),
        stage=Stage.BUILT,
    )
    host = evolve(host, stores=(*host.stores, store), queued=(), next_store=host.next_store + 1)
    return tracks.link(host, choice.owners, store.event), store


def merged(chosen: tuple[Meta, ...], queued: tuple[Queued, ...]) -> tuple[Meta, ...]:
    """Return what the events say of a step's blocks, then of those that finished requests left: as the ids stand (IP-3)."""
    return (*chosen, *(meta for left in queued for meta in left.meta or ()))


def issue_loads(world: World, host: Host) -> tuple[Host, Record]:
    """Give the waiting loads whose fence is reached one load event, in the order in which they were asked for (T36.1)."""
    due = [load for load in host.loads if loads.may_start(world, load)]
    if not due:
        return host, Record("BuildMetadata")
    event = host.next_load
    built = tuple(evolve(load, event=event, stage=Stage.BUILT) if load in due else load for load in host.loads)
    record = Record(
        "BuildMetadata",
        load_event=event,
        load_device=tuple(block for load in due for block in load.device),
        load_host=tuple(block for load in due for block in load.host),
        load_requests=tuple(load.request for load in due),
    )
    return evolve(host, loads=built, next_load=event + 1), record
