"""What both sides hold beside pools, rows and bytes: requests, plans, steps, deferred frees and the host's transfers.

Each part comes as plain Python values of both sides. Keys and prefixes are compared as digests, which the tensors computed on
their own; blocks by their ids, which they took and found on their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import frozen
from torch import Tensor

from kvproof.core.offload import state as hosts
from kvproof.core.world import GroupState, KeyRecord, Scheduled, World
from kvproof.core.world import Plan as ModelPlan
from kvproof.core.world import Request as ModelRequest
from kvproof.gpu import digests
from kvproof.gpu import world as worlds
from kvproof.gpu.pool import NO_KEY, Records
from kvproof.gpu.world import Holding, Host, Load, Plan, Request, Share, TensorWorld

Place = tuple[tuple[str, object], ...]


@frozen(slots=True)
class Part:
    """One part of both sides: its name, the model's value and that of the tensors, and whose it is."""

    name: str
    expected: object
    actual: object
    place: Place = ()


def parts(model: World, tensors: TensorWorld, known: Sequence[int]) -> Iterator[Part]:
    """Yield every part of both sides; ``known`` are the digests of the model's prefix nodes."""
    yield Part("requests", [request.request for request in model.requests], list(tensors.requests))
    for request in model.requests:
        yield from request_parts(request, tensors.requests[request.request], known)
    yield Part("hit", model_hit(model), hit(tensors))
    yield from plan_parts(model.plan, tensors.plan, known)
    yield from step_parts(model, tensors, known)
    yield Part(
        "deferred frees",
        [(free.fence, [list(table) for table in free.tables]) for free in model.deferred],
        [(fence, lists(tables)) for fence, tables in tensors.deferred],
    )
    yield Part("steps issued and processed", (model.issued, model.processed), (tensors.issued, tensors.processed))
    if model.host is not None and tensors.host is not None:
        yield from host_parts(model.host, tensors.host)


def lists(blocks: Sequence[Tensor]) -> list[list[int]]:
    """Return tensors of block ids as lists."""
    return [one.tolist() for one in blocks]


# --- requests ---------------------------------------------------------------------------------------------------------

COUNTS = ("num_tokens", "num_prompt", "computed", "in_flight", "junction", "placeholders", "stale")
FLAGS = ("skip_reading", "drop_stale", "loaded")


def request_parts(request: ModelRequest, here: Request, known: Sequence[int]) -> Iterator[Part]:
    """Yield what a request is and holds in each group, without its tables."""
    place: Place = (("request", request.request),)
    yield Part("status", request.status.name, here.status.name, place)
    for name in (*COUNTS, *FLAGS):
        yield Part(name, getattr(request, name), getattr(here, name), place)
    yield Part("preempted before", request.num_preemptions > 0, here.preempted, place)
    yield Part("tokens", known[request.tip], int(here.line.digests[here.num_tokens]), place)
    for group, (state, holding) in enumerate(zip(request.groups, here.groups, strict=True)):
        for name, one, other in zip(HELD, model_held(state), held(holding), strict=True):
            yield Part(name, one, other, (*place, ("group", group)))


HELD = ("num_cached", "owed copy", "allocated", "retired", "tail boundary", "reserved checkpoint")


def model_held(state: GroupState) -> tuple[object, ...]:
    """Return what a request of the model holds in a group, by the names of ``HELD``."""
    return (
        state.num_cached,
        (state.partial_index, state.partial_source),
        state.allocated,
        state.retired,
        state.tail_boundary,
        (state.checkpoint_position, state.checkpoint_column),
    )


def held(holding: Holding) -> tuple[object, ...]:
    """Return the same of the tensors."""
    source = holding.partial_source
    return (
        holding.num_cached,
        (holding.partial_index, worlds.NONE if source is None else int(source)),
        holding.allocated,
        holding.retired,
        holding.tail_boundary,
        holding.checkpoint or (worlds.NONE, worlds.NONE),
    )


# --- plans and steps --------------------------------------------------------------------------------------------------


def model_hit(model: World) -> object:
    """Return what the last lookup of the model found: request, tokens, junction, whether it diverged, blocks per group."""
    found = model.hit
    if found is None:
        return None
    return (found.request, found.local, found.junction, found.diverged, [list(blocks) for blocks in found.lists])


def hit(tensors: TensorWorld) -> object:
    """Return the same of the tensors."""
    found = tensors.hit
    return None if found is None else (found.request, found.local, found.junction, found.diverged, lists(found.lists))


SHARE = ("request", "start", "amount", "fresh", "loaded_from", "drafts", "samples", "pending", "row")


def shares(found: Sequence[Scheduled] | Sequence[Share]) -> list[tuple[object, ...]]:
    """Return the shares of a plan or a step, by the names of ``SHARE``."""
    return [tuple(getattr(share, name) for name in SHARE) for share in found]


def plan_parts(plan: ModelPlan, here: Plan, known: Sequence[int]) -> Iterator[Part]:
    """Yield the open plan: shares, copies, blocks to be zeroed, keys registered and to be given back, events."""
    yield Part("plan", shares(plan.scheduled), shares(here.shares))
    yield Part("copies planned", list(plan.copies), [(group, int(one), int(other)) for group, one, other in here.copies])
    zeroed = [(group, block) for group, blocks in here.zero for block in blocks.tolist()]
    yield Part("blocks to be zeroed", list(plan.zero), zeroed)
    registered = {(request, group, digests.key(known[node], group)) for node, group, request in plan.cached}
    yield Part("keys registered in this step", sorted(registered), sorted(set(here.registered)))
    undo = {request: sorted(model_record(record, known) for record in records) for request, records in plan.undo}
    yield Part("keys of a withdrawal", undo, {request: records_of(records) for request, records in here.undo.items()})
    yield Part("preempted in the plan", bool(plan.preempted_before or plan.preempted), here.preempted)
    yield Part("events of the plan", (plan.store, plan.load), (here.store, here.load))


def model_record(record: KeyRecord, known: Sequence[int]) -> tuple[object, ...]:
    """Return the key record of a block: its id, primary key and tokens, and all keys in order of insertion."""
    block, (node, group, tokens), entries = record.block, record.primary, record.entries
    primary = NO_KEY if node < 0 else digests.key(known[node], group)
    return (block, primary, tokens, [digests.key(known[node], group) for node, group, _, _ in entries])


def records_of(records: Records) -> list[tuple[object, ...]]:
    """Return the same of the tensors, by blocks."""
    found = []
    columns = (records.blocks, records.primary, records.tokens, records.keys, records.order)
    for block, primary, tokens, keys, order in zip(*(column.tolist() for column in columns), strict=True):
        by_insertion = sorted((number, key) for number, key in zip(order, keys, strict=True) if number >= 0)
        found.append((block, primary, tokens, [key for _, key in by_insertion]))
    return sorted(found)


def step_parts(model: World, tensors: TensorWorld, known: Sequence[int]) -> Iterator[Part]:
    """Yield the steps in flight: shares and the prefixes that they stand for, copies, zeroing, what is due, events."""
    yield Part("steps in flight", len(model.steps), len(tensors.steps))
    for number, (step, here) in enumerate(zip(model.steps, tensors.steps, strict=True)):
        place: Place = (("step", number),)
        yield Part("step", shares(step.scheduled), shares(here.shares), place)
        for entry, share in zip(step.scheduled, here.shares, strict=True):
            digest = int(worlds.chunk(share, share.depth)[1][-1])
            yield Part("prefix of a share", known[entry.tip], digest, (*place, ("request", entry.request)))
        copies = list(zip(here.copies[0].tolist(), here.copies[1].tolist(), strict=True))
        yield Part("copies", [(source, copy) for _, source, copy in step.copies], copies, place)
        yield Part("blocks zeroed", list(step.zero), here.zero.tolist(), place)
        progress = (step.part, step.opened, list(step.due))
        yield Part("progress of a step", progress, (here.part, here.opened, here.due), place)
        events = (step.store, step.load, step.flush)
        yield Part("events of a step", events, (here.store, here.load, here.flush), place)


# --- the host tier ----------------------------------------------------------------------------------------------------


def host_parts(host: hosts.Host, here: Host) -> Iterator[Part]:
    """Yield pinned hits, loads, stores and queued stores, those abandoned too, and the numbers of the next events."""
    pinned = [(hit.request, hit.start, hit.length, [list(blocks) for blocks in hit.lists]) for hit in host.pending]
    found = [(request, hit.start, hit.length, lists(hit.lists)) for request, hit in here.pinned.items()]
    yield Part("pinned hits", pinned, found)
    yield Part("loads", [model_load(load) for load in host.loads], [load_of(load) for load in here.loads])
    abandoned = [model_load(load) for load in host.abandoned_loads]
    yield Part("abandoned loads", abandoned, [load_of(load) for load in here.abandoned_loads])
    for name, stores, others in (
        ("stores", host.stores, here.stores),
        ("abandoned stores", host.abandoned_stores, here.abandoned_stores),
    ):
        one = [(store.event, store.stage.name, store.acks, list(store.device), list(store.host)) for store in stores]
        other = [(store.event, store.stage.name, store.acks, *lists((store.device, store.host))) for store in others]
        yield Part(name, one, other)
    queued = [(list(left.device), list(left.host)) for left in host.queued]
    yield Part("queued stores", queued, [tuple(lists(left)) for left in here.queued])
    yield Part("next events", (host.next_store, host.next_load), (here.next_store, here.next_load))


def model_load(load: hosts.Load) -> tuple[object, ...]:
    """Return a load of the model: whose, its copies, how far it is, and what it holds."""
    numbers = (load.request, load.start, load.event, load.stage.name, load.fence)
    return (*numbers, load.finished, load.condemned, list(load.device), list(load.host), [list(table) for table in load.held])


def load_of(load: Load) -> tuple[object, ...]:
    """Return the same of the tensors."""
    numbers = (load.request, load.start, load.event, load.stage.name, load.fence)
    return (*numbers, load.finished, load.condemned, *lists((load.device, load.host)), lists(load.held))
