"""What must be refused around a host tier, each with the refusals that fit it (see ``disabled``)."""

from __future__ import annotations

from kvproof.core import actions as act
from kvproof.core import errors
from kvproof.core.actions import Action
from kvproof.core.errors import Refusal
from kvproof.core.offload.state import Stage
from kvproof.core.world import Hit, Phase, Request, Status, World
from kvproof.spec.engines import flight, host

UNKNOWN = 97
"""A request id that no engine hands out."""

Attempt = tuple[Action, tuple[type[Refusal], ...]]

_PLANNING = (Phase.PLAN_RUNNING, Phase.PLAN_WAITING)


def without_host(world: World) -> list[Attempt]:
    """Return every action of the host tier for a world that has none."""
    if world.host is not None:
        return []
    found: list[Action] = [act.LookupExternal(0, 0), act.Promote(0), act.RunStore(0), act.RunLoad(0)]
    found += [act.CompleteStore(0), act.CompleteLoad(0), act.ResetHost(), act.ReadCounters()]
    return [(action, (errors.NoHostTier,)) for action in found]


def attempts(world: World) -> list[Attempt]:
    """Return the host's part of the refusals of a world; nothing without a host tier."""
    if world.host is None:
        return []
    found = [*_out_of_phase(world), *_bad_copies(world)]
    if world.phase is Phase.IDLE:
        found += [*_bad_store_reports(world), *_bad_load_reports(world), *_bad_requests(world)]
    elif world.phase in _PLANNING:
        found += _bad_planning(world)
    return found


def _out_of_phase(world: World) -> list[Attempt]:
    idle: list[Action] = [act.ResetHost(), act.ReadCounters()]
    idle += [act.CompleteStore(store.event) for store in host.stores(world)[:1]]
    idle += [act.CompleteLoad(load.request) for load in host.loads(world)[:1]]
    planning: list[Action] = []
    for request in world.requests[:2]:
        planning += [act.LookupExternal(request.request, 0), act.Promote(request.request)]
        planning.append(act.Allocate(request.request, 0, external=world.config.alignment, load=True))
    found = planning if world.phase not in _PLANNING else []
    found += idle if world.phase is not Phase.IDLE else []
    return [(action, (errors.PhaseError,)) for action in found]


def _bad_copies(world: World) -> list[Attempt]:
    """Copies of what nobody submitted, what has been copied, and what an older one of its direction is before."""
    assert world.host is not None
    wrong = (errors.TransferOrder, errors.NothingLoaded)
    found: list[Attempt] = []
    store, load = host.next_store(world), host.next_load(world)
    events = [entry.event for entry in host.stores(world)] + [world.host.next_store]
    found += [(act.RunStore(event), wrong) for event in events if event != store]
    batches = dict.fromkeys([entry.event for entry in host.loads(world)] + [world.host.next_load])
    return found + [(act.RunLoad(event), wrong) for event in batches if event != load]


def _bad_store_reports(world: World) -> list[Attempt]:
    """No acknowledgement, one too many, and the last one before the bytes have moved (CP-9)."""
    assert world.config.offload is not None
    workers = world.config.offload.workers
    found: list[Attempt] = []
    for store in host.stores(world):
        left = workers - store.acks
        found += [(act.CompleteStore(store.event, count), (errors.NegativeNumber,)) for count in (0, -1, left + 1)]
        if store.stage is not Stage.COPIED:
            found.append((act.CompleteStore(store.event, left), (errors.TransferOrder,)))
        if store.stage < Stage.SUBMITTED:
            found.append((act.CompleteStore(store.event), (errors.TransferOrder,)))
    return found


def _bad_load_reports(world: World) -> list[Attempt]:
    """Reports of loads that are not there or not copied, and of more valid tokens than were loaded (T30)."""
    found: list[Attempt] = [(act.CompleteLoad(UNKNOWN), (errors.NothingLoaded,))]
    loading = {load.request: load for load in host.loads(world)}
    for request in world.requests:
        if request.request not in loading:
            found.append((act.CompleteLoad(request.request), (errors.NothingLoaded,)))
    for load in loading.values():
        if load.stage is not Stage.COPIED:
            found.append((act.CompleteLoad(load.request), (errors.NothingLoaded, errors.TransferOrder)))
            continue
        live = flight.live(world, load.request)
        if live is not None and not load.finished:
            beyond = live.computed + world.config.scheduler_block_size
            for valid in (-1, beyond):
                found.append((act.CompleteLoad(load.request, failed=True, valid=valid), (errors.LoadMismatch,)))
    return found


def _bad_requests(world: World) -> list[Attempt]:
    """Ids of loads that are not complete, and preemptions of requests that load or wait behind a load (LD-7)."""
    free: list[Attempt] = []
    live = {request.request for request in world.requests}
    for load in host.loads(world):
        if load.finished and load.request not in live:
            free.append((act.Submit(load.request, (0,)), (errors.DuplicateRequest,)))
    return free


def _bad_planning(world: World) -> list[Attempt]:
    found: list[Attempt] = []
    late: tuple[type[Refusal], ...] = (errors.AdmissionAfterPreemption,) if world.plan.preempted else ()
    unknown = late or (errors.UnknownRequest,)
    found += [(act.LookupExternal(UNKNOWN, 0), unknown), (act.Promote(UNKNOWN), unknown)]
    promotable = host.promotable(world)
    for request in world.requests:
        number = request.request
        if request not in promotable or late:
            wrong = late or (errors.StatusError, errors.LoadRunning, errors.NothingLoaded)
            found.append((act.Promote(number), wrong))
        found += _bad_lookups(world, request, late)
        if request.status is Status.LOADING:
            running = (errors.LoadRunning, errors.StatusError)
            found.append((act.Allocate(number, 1), running))
        elif world.hit is not None and world.hit.request == number and not request.loaded:
            found += _bad_loads(world, world.hit)
        elif not request.loaded and request.status is not Status.RUNNING:
            missing = (errors.LookupMissing,)
            found.append((act.Allocate(number, 0, external=world.config.alignment, load=True), missing))
    return found


def _bad_lookups(world: World, request: Request, late: tuple[type[Refusal], ...]) -> list[Attempt]:
    """External lookups of requests that run, load, wait behind a load or owe an output, and beyond what is known."""
    number = request.request
    if late:
        return [(act.LookupExternal(number, 0), late)]
    if request.status is Status.RUNNING or request.loaded:
        return [(act.LookupExternal(number, 0), (errors.StatusError,))]
    if request.status is Status.LOADING:
        return [(act.LookupExternal(number, 0), (errors.LoadRunning, errors.StatusError))]
    if flight.owes_output(request):
        return [(act.LookupExternal(number, 0), (errors.StaleOutput,))]
    beyond = request.num_tokens + world.config.scheduler_block_size
    wrong = (errors.BeyondKnownTokens, errors.NegativeNumber, errors.NothingToAllocate)
    return [(act.LookupExternal(number, start), wrong) for start in (-1, beyond)]


def _bad_loads(world: World, hit: Hit) -> list[Attempt]:
    """Loads without a pinned hit, of another start or length, with a chunk, or in place of a longer local tail (T14.3, T29)."""
    config, number = world.config, hit.request
    start, unit = host.aligned(config, hit), config.alignment
    pin = host.pinned(world, number)
    if pin is None or pin.start != start:
        return [(act.Allocate(number, 0, local=start, external=unit, load=True), (errors.LoadMismatch, errors.ShortExternal))]
    tail = hit.local - start
    short = (errors.LoadMismatch, errors.ShortExternal)
    found: list[Attempt] = [
        (act.Allocate(number, 0, local=start, external=pin.length + unit, load=True), (errors.LoadMismatch,)),
        (act.Allocate(number, 1, local=start, external=pin.length, load=True), (errors.LoadMismatch, errors.NothingToAllocate)),
        (act.Allocate(number, 0, local=start, load=True), (errors.LoadMismatch, errors.NothingToAllocate)),
    ]
    if pin.length > unit and not host.prefix_closed(config):
        found.append((act.Allocate(number, 0, local=start, external=pin.length - unit, load=True), short))
    if tail >= pin.length:
        found.append((act.Allocate(number, 0, local=start, external=pin.length, load=True), short))
    return found
