"""What can be done with a host tier: lookups, loads, running copies, completions, resets (T20, T28 to T30, T34).

From sizes, statuses, phases and the fields of the host alone, as in ``enabled``; without a host tier nothing is listed.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.offload.state import NONE, Load, PendingHit, Stage, Store
from kvproof.core.world import Hit, Phase, Request, Status, World
from kvproof.spec.engines import amounts, flight
from kvproof.spec.engines.amounts import Limits

PREFIX_CLOSED = ("full_attention",)
"""Kinds in which whatever is shorter than a hit is a hit, too: a load of them may be cut, or end early."""


# --- what the host holds ------------------------------------------------------------------------------------------


def pinned(world: World, number: int) -> PendingHit | None:
    """Return the pinned external hit of a request, None if it has none (T20)."""
    if world.host is None:
        return None
    return next((hit for hit in world.host.pending if hit.request == number), None)


def load_of(world: World, number: int) -> Load | None:
    """Return the load of a request that is not complete, abandoned or not; None if there is none (T29, T30, T34)."""
    return next((load for load in loads(world) if load.request == number), None)


def stores(world: World) -> list[Store]:
    """Return the stores that are not complete, abandoned ones among them, the oldest first."""
    if world.host is None:
        return []
    return sorted((*world.host.stores, *world.host.abandoned_stores), key=lambda store: store.event)


def loads(world: World) -> list[Load]:
    """Return the loads that are not complete, abandoned ones among them: those that wait last, then the oldest first."""
    if world.host is None:
        return []
    every = (*world.host.loads, *world.host.abandoned_loads)
    return sorted(every, key=lambda load: (load.event == NONE, load.event))


def mentioned(world: World) -> set[int]:
    """Return the ids that the host still mentions: of loads, pins and of requests whose stores are not complete (T37)."""
    if world.host is None:
        return set()
    found = {load.request for load in loads(world)} | {hit.request for hit in world.host.pending}
    return found | {track.request for track in world.host.tracks}


def promotable(world: World) -> list[Request]:
    """Return the requests whose load is complete and that were not considered since (T30)."""
    return [
        request for request in world.requests if request.status is Status.LOADING and load_of(world, request.request) is None
    ]


def prefix_closed(config: Config) -> bool:
    """Tell whether every prefix of a hit is a hit: every cached group keeps all its blocks."""
    return all(group.kind in PREFIX_CLOSED for group in config.groups if group.prefix_cacheable)


# --- legal actions ------------------------------------------------------------------------------------------------


def transfers(world: World) -> list[Action]:
    """Return what carries transfers on: the next copy of each direction, and between plans the reports of workers."""
    found = [*copies(world)]
    if world.phase is Phase.IDLE:
        found += store_reports(world)
        found += load_reports(world)
    return found


def copies(world: World) -> list[Action]:
    """Return the copies that may run now, in any phase: per direction the oldest one that was submitted (T0 g, h)."""
    found: list[Action] = []
    load, store = next_load(world), next_store(world)
    if load is not None:
        found.append(act.RunLoad(load))
    if store is not None:
        found.append(act.RunStore(store))
    return found


def next_store(world: World) -> int | None:
    """Return the event of the oldest submitted store whose bytes have not moved, None if there is none."""
    return min((store.event for store in stores(world) if store.stage is Stage.SUBMITTED), default=None)


def next_load(world: World) -> int | None:
    """Return the event of the oldest submitted loads whose bytes have not moved, None if there are none."""
    return min((load.event for load in loads(world) if load.stage is Stage.SUBMITTED), default=None)


def acks_left(world: World) -> Iterator[tuple[Store, int]]:
    """Yield every store that was submitted with the acknowledgements that may come now, if there are any (T28, CP-9).

    A worker reports its stores in their order, so that a younger one is never ahead. Before the bytes have moved on every
    worker, one report at least is still to come.
    """
    workers = 0 if world.config.offload is None else world.config.offload.workers
    ahead = workers
    for store in stores(world):
        most = min(ahead, workers if store.stage is Stage.COPIED else workers - 1) - store.acks
        if store.stage >= Stage.SUBMITTED and most > 0:
            yield store, most
        ahead = store.acks


def store_reports(world: World) -> list[Action]:
    """Return the acknowledgements of stores, all at once and one, and one of an event that is not known (CP-11)."""
    found: list[Action] = []
    for store, most in acks_left(world):
        found += [act.CompleteStore(store.event, count) for count in dict.fromkeys((most, 1))]
    return found


def unknown_event(world: World) -> int:
    """Return a store event that nothing is known of: the last one that is over, or one that never was."""
    assert world.host is not None
    open_events = {store.event for store in stores(world)}
    over = (event for event in range(world.host.next_store - 1, -1, -1) if event not in open_events)
    return next(over, world.host.next_store + 7)


def load_reports(world: World) -> list[Action]:
    """Return the reports of loads whose bytes have moved: the oldest batch, each of its requests, done or failed (T30)."""
    copied = [load for load in loads(world) if load.stage is Stage.COPIED]
    first = [load for load in copied if load.event == copied[0].event]
    found: list[Action] = [act.CompleteLoad(load.request) for load in first]
    for load in first:
        found += [act.CompleteLoad(load.request, failed=True, valid=valid) for valid in valid_prefixes(world, load)]
    return found


def valid_prefixes(world: World, load: Load) -> tuple[int, ...]:
    """Return how many leading tokens may be there after a load failed: none, all but the last one, and whole blocks (T30)."""
    request = flight.live(world, load.request)
    if load.finished or request is None:
        return (0,)
    unit = world.config.scheduler_block_size
    inside = range(unit, request.computed, unit)
    return tuple(dict.fromkeys((0, request.computed - 1, *inside[:1], *inside[-1:])))


def disturb(world: World) -> list[Action]:
    """Return what interrupts the host between plans: readings, reports of events that are over, resets (T34, CN-1, CP-11)."""
    if world.host is None:
        return []
    if not world.host.next_store:
        return [act.ReadCounters(), act.ResetHost()]
    return [act.ReadCounters(), act.CompleteStore(unknown_event(world)), act.ResetHost()]


# --- in a plan ----------------------------------------------------------------------------------------------------


def planning(world: World, limits: Limits, waiting: list[Request], room: bool) -> list[Action]:
    """Return the host's part of a plan: chunks behind a load, loads of a pinned hit, promotions and lookups.

    ``waiting`` are the requests that may be looked up, ``room`` tells whether one more may run.
    """
    if world.host is None or world.plan.preempted:
        return []
    found: list[Action] = []
    for request in world.requests:
        if request.loaded and room:
            found += behind_load(world.config, request, limits)
    if world.hit is not None:
        found += [evolve(load, reserved=count) for count in limits.reserved for load in loading(world, world.hit, limits)]
    found += [act.Promote(request.request) for request in promotable(world)]
    for request in waiting:
        found += [act.LookupExternal(request.request, start) for start in starts(world, request)]
    return found


def behind_load(config: Config, request: Request, limits: Limits) -> list[Action]:
    """Return the chunks of a request that goes on behind a completed load, nothing adopted (T30)."""
    return [
        act.Allocate(request.request, amount, lookahead=extra)
        for extra in limits.lookahead
        for amount in amounts.amounts(config, request, request.computed)
    ]


def loading(world: World, hit: Hit, limits: Limits) -> list[act.Allocate]:
    """Return the admissions of the looked-up request that load its pinned hit, whole or, if that is a hit too, less (T29).

    A hit that is pinned behind the whole local one is offered, too; where that is misaligned, nothing may be pinned (CP-6).
    """
    pin = pinned(world, hit.request)
    if pin is None or pin.start not in (aligned(world.config, hit), hit.local):
        return []
    return [
        act.Allocate(hit.request, 0, local=pin.start, external=external, full_sequence=gate, load=True)
        for external in load_amounts(world.config, pin, hit.local - pin.start)
        for gate in limits.gates
    ]


def aligned(config: Config, hit: Hit) -> int:
    """Return the local hit rounded down to S, behind which the host is asked (T14.1)."""
    return hit.local - hit.local % config.scheduler_block_size


def load_amounts(config: Config, pin: PendingHit, tail: int) -> tuple[int, ...]:
    """Return how many tokens of a pinned hit may be loaded in place of a local ``tail``, all of them first (T14.3, T29)."""
    shorter = range(pin.length - config.alignment, 0, -config.alignment) if prefix_closed(config) else ()
    return tuple(length for length in dict.fromkeys((pin.length, *shorter[:1], *shorter[-1:])) if length > tail)


def starts(world: World, request: Request) -> tuple[int, ...]:
    """Return where an external lookup may begin: behind the local hit, at 0 and at S, and, misaligned, inside a block (T20)."""
    hit, unit = world.hit, world.config.scheduler_block_size
    found = [0, unit]
    if hit is not None and hit.request == request.request:
        found = [aligned(world.config, hit), hit.local, *found]
    found.append(unit // 2)
    return tuple(start for start in dict.fromkeys(found) if start < request.num_tokens)
