"""The calls that a scheduler makes in a step, as actions (docs/trace-format.md, section 5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kvproof.core import actions as act
from kvproof.core import step as door
from kvproof.core.world import Request, Status, World
from kvproof.spec.traces.driver import NO_TOKEN, Diverged, lists
from kvproof.spec.traces.read import Call, Operation
from kvproof.spec.traces.state import RecordedState

if TYPE_CHECKING:
    from kvproof.spec.traces.scheduler import Scheduler


def _lookup(scheduler: Scheduler, call: Call, operation: Operation) -> None:
    driver, result = scheduler.driver, call.result
    request, hit = driver.id_of(call.args.request, operation), scheduler.driver.world.hit
    # A divergent hit to which no connector adds tokens is looked up anew, jointly (T14.4).
    common = hit is not None and hit.request == request and hit.diverged
    shown: dict[str, object] = {
        "local": result.local,
        "lists": tuple(tuple(blocks) for blocks in result.blocks),
        "junction": result.junction,
        "diverged": _diverges(driver.world, result.local, result.blocks),
    }
    record = driver.act(act.Lookup(request, common), shown, scheduler.after_call(operation))
    driver.equal("lookup.local", record.local, result.local)
    driver.equal("lookup.blocks", lists(record.lists), result.blocks)
    driver.equal("lookup.junction", record.junction, result.junction)


def _diverges(world: World, local: int, blocks: Sequence[Sequence[int]]) -> bool:
    """Tell whether a recorded hit is divergent (T12): a group does not reach its end.

    Its list is too short, or the last state of a recurrent group stands for a boundary inside the same block.
    """
    for index, (size, own) in enumerate(zip(world.config.sizes, blocks, strict=True)):
        if len(own) < -(-local // size) or (index in world.config.recurrent and not _stands_for(world, index, own, local)):
            return True
    return False


def _stands_for(world: World, group: int, blocks: Sequence[int], boundary: int) -> bool:
    """Tell whether the last of these blocks has a key of a boundary in a group, or there is none."""
    depth = world.prefixes.depth
    return not blocks or any(
        (depth[node], own, block) == (boundary, group, blocks[-1]) for node, own, _, block in world.pool.entries
    )


def _lookup_external(scheduler: Scheduler, call: Call, operation: Operation) -> None:
    driver, args = scheduler.driver, call.args
    request = driver.id_of(args.request, operation)
    hit = driver.world.hit
    if hit is not None and hit.request == request:
        driver.equal("lookup_external.from", hit.local - hit.local % driver.config.scheduler_block_size, args.start)
    if driver.config.connectors and driver.config.offload is None:
        return  # what a connector claims that supplies tokens at once is an argument of the allocation
    after, shown = scheduler.after_call(operation), {"external": call.result.external}
    if after is not None and after.state.transfers is not None:
        pin = after.state.transfers["pending_hits"].get(args.request)
        if pin is not None and call.result.external:
            shown["lists"] = tuple(tuple(blocks) for blocks in pin["blocks"])
    record = driver.act(act.LookupExternal(request, args.start), shown, after)
    driver.equal("lookup_external.external", record.external, call.result.external)
    driver.equal("lookup_external.async", record.external > 0, call.result.asynchronous)


def _truncate(scheduler: Scheduler, call: Call, operation: Operation) -> None:
    """The local tail gives way to a longer external hit: the next allocation adopts the hit rounded down to S (T14.3)."""
    del operation
    hit = scheduler.driver.world.hit
    local = 0 if hit is None else hit.local - hit.local % scheduler.driver.config.scheduler_block_size
    scheduler.driver.equal("truncate.tokens", local, call.args.tokens)


def _clip(scheduler: Scheduler, call: Call, operation: Operation) -> None:
    args = call.args
    scheduler.driver.id_of(args.request, operation)
    clipped = door.clip(scheduler.driver.world, scheduler.live(args.request), args.start, args.tokens)
    scheduler.driver.equal("clip.tokens", clipped, call.result.tokens)


def _cache(scheduler: Scheduler, call: Call, operation: Operation) -> None:
    """Inside a plan only a request whose load is complete is registered: it is promoted (T30)."""
    driver = scheduler.driver
    request = driver.id_of(call.args.request, operation)
    driver.equal("cache.tokens", scheduler.live(call.args.request).computed, call.args.tokens)
    driver.act(act.Promote(request), after=scheduler.after_call(operation))


def _preempt(scheduler: Scheduler, call: Call, operation: Operation) -> None:
    scheduler.driver.id_of(call.args.request, operation)
    if call.args.request not in scheduler.running:
        raise Diverged("preempt.request", scheduler.running, call.args.request)
    scheduler.preempt(call.args.request, after=scheduler.after_call(operation))


def _allocate(scheduler: Scheduler, call: Call, operation: Operation) -> None:
    driver, args, result = scheduler.driver, call.args, call.result
    name = args.request
    request = driver.id_of(name, operation)
    before = scheduler.live(name)
    start = before.computed + args.local + args.external
    driver.equal("allocate.before", start, args.before)
    action = act.Allocate(
        request,
        args.new_tokens,
        args.local,
        args.external,
        args.lookahead,
        _drafts(scheduler, operation, before, start + args.new_tokens - before.num_tokens),
        full_sequence=args.full_sequence_must_fit,
        load=args.async_load,
        reserved=args.reserved,
    )
    shown: dict[str, object] = {"admitted": result.admitted}
    for part in ("new_blocks", "external_blocks") if result.admitted else ():
        shown[part] = tuple(tuple(blocks) for blocks in getattr(result, part) or ())
    after = scheduler.after_call(operation)
    pairs = None if after is None or not (args.async_load and result.admitted) else _load_pairs(after.state, name)
    if pairs is not None:
        shown["pairs"] = pairs
    record = driver.act(action, shown, after)
    driver.equal("allocate.admitted", record.admitted, result.admitted)
    if not record.admitted:
        return
    driver.equal("allocate.new_blocks", lists(record.new_blocks), result.new_blocks)
    driver.equal("allocate.external_blocks", lists(record.external_blocks), result.external_blocks)
    if args.async_load:
        return
    scheduler.planned[name] = record
    scheduler.starts[name] = start
    scheduler.drafts.pop(name, None)
    if before.status is not Status.RUNNING:
        scheduler.admitted.append((name, before.status))
        scheduler.running.append(name)


def _load_pairs(state: RecordedState, name: str) -> tuple[tuple[int, int, int, int], ...] | None:
    """Return (group, column, device, host) of a load that a state shows; None if a destination is in no table of it."""
    load = None if state.transfers is None else state.transfers["loads"].get(name)
    if load is None:
        return None
    places = {
        block: (group, column)
        for group, table in enumerate(state.requests[name]["tables"])
        for column, block in enumerate(table)
    }
    if any(block not in places for block in load["device"]):
        return None
    copies = zip(load["device"], load["host"], strict=False)
    return tuple(sorted((*places[device], device, source) for device, source in copies))


def _drafts(scheduler: Scheduler, operation: Operation, request: Request, count: int) -> tuple[int, ...]:
    """Return the drafts that end a chunk: those proposed; at an admission placeholders that no token equals. An asynchronous
    scheduler knows their number only.

    A request that is admitted with one token left gets placeholders, so that all requests of the step are of one length.
    """
    driver = scheduler.driver
    name = driver.name_of(request.request)
    if driver.decided(driver.config.async_outputs, True):
        return _recorded_drafts(scheduler, operation, name, count - request.placeholders)
    if count <= 0:
        return ()
    if request.status is not Status.RUNNING:
        return (NO_TOKEN,) * count
    proposed = scheduler.drafts.get(name, ())
    if len(proposed) < count:
        raise Diverged("allocate.new_tokens", f"{len(proposed)} drafts", f"{count} drafts of {name}")
    return proposed[:count]


def _recorded_drafts(scheduler: Scheduler, operation: Operation, name: str, most: int) -> tuple[int, ...]:
    """Return as many drafts as a step verified of a request (``most``: it does not compute it), the accepted ones as its output
    has them. Which drafts there are, and which are accepted, is decided outside the scheduler.
    """
    result = operation.result
    count = result.drafts.get(name, 0) if name in result.scheduled else max(most, 0)
    accepted = tuple(scheduler.sampled.get((operation.index, name), ())[:-1][:count])
    proposed = tuple(scheduler.drafts.get(name, ()))[:count]
    if len(proposed) == count and proposed[: len(accepted)] == accepted:
        return proposed
    return (*accepted, *(NO_TOKEN,) * (count - len(accepted)))


CALLS: dict[str, Callable[[Any, Call, Operation], None]] = {
    "lookup": _lookup,
    "lookup_external": _lookup_external,
    "truncate": _truncate,
    "clip": _clip,
    "cache": _cache,
    "preempt": _preempt,
    "allocate": _allocate,
}
