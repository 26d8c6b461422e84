"""The life of a request: submit, preempt, withdraw and finish (T31, T32, T37, T39)."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import allocation, freeing, geometry, kinds, prefixes
from kvproof.core import pool as pools
from kvproof.core.actions import Submit
from kvproof.core.config import Config
from kvproof.core.errors import (
    DuplicateRequest,
    EmptyPrompt,
    LoadRunning,
    NegativeNumber,
    StaleOutput,
    StatusError,
    UnknownRequest,
)
from kvproof.core.offload import external, finishing, loads
from kvproof.core.pool import Pool
from kvproof.core.prefixes import Prefixes
from kvproof.core.records import Record
from kvproof.core.world import NONE, GroupState, Phase, Plan, Request, Scheduled, Status, Step, World


def alive(world: World, request: int) -> Request | None:
    """Return a live request, None if there is none of this id."""
    for candidate in world.requests:
        if candidate.request == request:
            return candidate
    return None


def find(world: World, request: int) -> Request:
    """Return a live request. Raises UnknownRequest."""
    found = alive(world, request)
    if found is not None:
        return found
    live = ", ".join(str(candidate.request) for candidate in world.requests) or "none"
    raise UnknownRequest(f"no live request {request} (live: {live}): submit it first", request=request)


def find_admissible(world: World, request: int) -> Request:
    """Return a request that may be looked up: it waits, holds nothing, and owes no late output (T37).

    Raises UnknownRequest, LoadRunning, StatusError or StaleOutput.
    """
    found = find(world, request)
    if found.status is Status.LOADING:
        raise LoadRunning(f"request {request} is loading: complete its load and promote it (T30)", request=request)
    if found.status is Status.RUNNING or found.loaded:
        doing = "goes on with what it has loaded: allocate for it" if found.loaded else "is running"
        raise StatusError(f"request {request} {doing}: only waiting ones that hold nothing are looked up (T37)")
    if owes_late_output(found):
        raise StaleOutput(
            f"{found.stale} tokens of request {request} were in flight when it was preempted: process the outputs of "
            "these steps before it is resumed (T37.1)",
            stale=found.stale,
        )
    return found


def share_of(step: Step, request: int) -> Scheduled:
    """Return a request's share of a step in which it is scheduled."""
    return next(entry for entry in step.scheduled if entry.request == request)


def expected_tokens(request: Request) -> int:
    """Return the tokens of a request that are known or stand for placeholders: all that a chunk may reach (T36)."""
    return request.num_tokens + request.placeholders


def chunk_tip(table: Prefixes, tip: int, entry: Scheduled) -> tuple[Prefixes, int]:
    """Return the prefix table and the node of a chunk's last token, with ``tip`` that of the request's last known one.

    The drafts follow it, unless a token between is still to come: then it stays at ``tip`` (T0 part 7, T36).
    """
    if entry.pending:
        return table, tip
    return prefixes.extend(table, tip, entry.drafts)


def submit(world: World, action: Submit) -> tuple[World, Record]:
    """Add a waiting request; nothing is looked up or allocated (T37).

    Raises DuplicateRequest, EmptyPrompt, NegativeNumber.
    """
    if mentioned(world, action.request):
        raise DuplicateRequest(
            f"request {action.request} is live, or a step in flight or a transfer still mentions it: use another id",
            request=action.request,
        )
    if not 1 <= len(action.tokens) < world.config.max_model_len:
        raise EmptyPrompt(
            f"a prompt has 1 to {world.config.max_model_len - 1} tokens, got {len(action.tokens)}",
            length=len(action.tokens),
        )
    lowest = min(action.request, action.context, *action.tokens)
    if lowest < 0:
        raise NegativeNumber(f"request ids, contexts and tokens are 0 or more, got {lowest} (T37)", lowest=lowest)
    table, root = prefixes.root(world.prefixes, context_of(action))
    table, tip = prefixes.extend(table, root, action.tokens)
    request = Request(
        request=action.request,
        context=action.context,
        tip=tip,
        num_tokens=len(action.tokens),
        num_prompt=len(action.tokens),
        skip_reading=action.skip_reading,
        groups=(GroupState(),) * len(world.config.groups),
    )
    world = evolve(world, prefixes=table, requests=(*world.requests, request))
    return world, Record("Submit", num_tokens=request.num_tokens)


def context_of(action: Submit) -> int:
    """Return the context that is part of every key of a request (2.3)."""
    return action.context


def forget_handoffs(plan: Plan, request: int) -> Plan:
    """Remove the undrained handoffs of a request (T23, T31.4)."""
    return evolve(plan, handoffs=tuple(handoff for handoff in plan.handoffs if handoff[0] != request))


def preempt(world: World, request: Request, drop_stale: bool = False) -> tuple[World, Record]:
    """Free a running request and let it wait to be resumed; keys and queued copies stay (T31).

    What is in flight becomes stale: it arrives later, to be delivered, or ignored with ``drop_stale``.
    """
    plan = forget_handoffs(world.plan, request.request)
    if world.phase is Phase.IDLE:
        plan = evolve(plan, preempted_before=(*plan.preempted_before, request.request))
    else:
        plan = evolve(plan, preempted=(*plan.preempted, request.request))
    world = freeing.free_request(world, request)
    request = evolve(
        request,
        status=Status.PREEMPTED,
        computed=0,
        placeholders=0,
        stale=stale_share(request),
        drop_stale=drops_stale(request, drop_stale),
        groups=(GroupState(),) * len(request.groups),
        num_preemptions=request.num_preemptions + 1,
    )
    return allocation.with_request(world, request, world.pool, plan), Record("Preempt")


def stale_share(request: Request) -> int:
    """Return the tokens whose output a preemption makes late: all in flight, those late already among them (T31.3)."""
    return request.in_flight


def drops_stale(request: Request, wanted: bool) -> bool:
    """Tell whether late outputs of a request being preempted are ignored: as asked, or as earlier ones still due (T31.3)."""
    return request.in_flight > 0 and (wanted or (request.stale > 0 and request.drop_stale))


def owes_late_output(request: Request) -> bool:
    """Tell whether a late output is still to be delivered: resumed before, the request could sample it anew (T37.1)."""
    return request.stale > 0 and not request.drop_stale


def withdraw(world: World, request: Request, drop_stale: bool = False) -> tuple[World, Record]:
    """Take a request out of the open plan, roll its keys of this plan back, and preempt it (T39)."""
    plan = world.plan
    pool, cached = world.pool, plan.cached
    if world.config.profile.withdrawn_keys == "rollback":
        pool = roll_back(pool, plan, request.request)
        cached = tuple(key for key in cached if key[2] != request.request)
    plan = evolve(
        plan,
        scheduled=tuple(entry for entry in plan.scheduled if entry.request != request.request),
        undo=tuple(entry for entry in plan.undo if entry[0] != request.request),
        cached=cached,
    )
    world, _ = preempt(evolve(world, pool=pool, plan=plan), request, drop_stale)
    return world, Record("Withdraw")


def roll_back(pool: Pool, plan: Plan, request: int) -> Pool:
    """Restore the key records that a request's registrations of this plan changed (T39.2)."""
    for owner, records in plan.undo:
        if owner == request:
            for record in records:
                pool = pools.restore_keys(pool, record.block, record.primary, record.entries)
    return pool


def finish(world: World, request: Request) -> tuple[World, Record]:
    """Free a request in any status and forget it; its steps in flight still execute, their outputs are ignored (T32).

    Connectors are given its tables before. While a load of it runs its blocks stay until the load is reported (LD-7).
    """
    tails = producer_tails(request)
    offered = None
    if world.config.children:
        world, request = null_at_finish(world, request)
        offered = offered_tables(world.config, request)
    world, stored = finishing.finish_stores(world, request)
    if world.host is not None:
        world = evolve(world, host=external.drop_at_finish(world.host, request.request))
    world, loading = loads.at_finish(world, request)
    held = loading or freeing.is_held_back(world, request)
    if not loading:
        world = freeing.free_request(world, request)
    requests = tuple(other for other in world.requests if other.request != request.request)
    plan = forget_handoffs(world.plan, request.request)
    record = evolve(stored, deferred=held, tails=tails, offered=offered)
    return evolve(world, requests=requests, plan=plan, hit=None), record


def null_at_finish(world: World, request: Request) -> tuple[World, Request]:
    """Null and free what no step in flight reads any more, before connectors see the tables (T32.2)."""
    work = allocation.work_on(world, request, [])
    processed = max(request.computed - request.in_flight, 0)
    states = tuple(
        kinds.of(world.config.groups[group].kind).null_skipped(work, group, state, processed)
        for group, state in enumerate(request.groups)
    )
    request = evolve(request, groups=states)
    return allocation.with_request(world, request, work.pool, world.plan), request


def offered_tables(config: Config, request: Request) -> tuple[tuple[int, ...], ...]:
    """Return the tables that connectors are given at the end of a request (T32.3): attention cut to the computed tokens, the
    others whole.
    """
    return tuple(
        state.table[: geometry.ceil_div(request.computed, offered_unit(config, group))]
        if group in config.positional
        else state.table
        for group, state in enumerate(request.groups)
    )


def offered_unit(config: Config, group: int) -> int:
    """Return the tokens for which one entry of an attention table is offered: its own (T32.3, DS-1).

    A profile counts in blocks of one rank, so that entries behind the computed tokens are offered, too (3.1, field
    ``offered_blocks``).
    """
    return config.groups[group].block_size if config.profile.offered_blocks == "rank_block" else config.sizes[group]


def producer_tails(request: Request) -> tuple[tuple[int, int, int], ...]:
    """Return the (group, block, boundary) that a connector in a producer's role takes over at the end of a request (T32.1).

    The state that a group registered inside its block, if nothing was computed behind it and nothing is in flight.
    """
    return tuple(
        (group, state.tail_block, state.tail_boundary)
        for group, state in enumerate(request.groups)
        if state.tail_block != NONE and state.tail_boundary == request.computed and not request.in_flight
    )


def mentioned(world: World, request: int) -> bool:
    """Tell whether an id stands for a live request, or in a step or transfer that is not processed yet (T37, T30)."""
    return (
        alive(world, request) is not None
        or any(entry.request == request for step in world.steps for entry in step.scheduled)
        or (world.host is not None and loads.mentions(world.host, request))
    )


def is_late(world: World, step: Step, request: Request) -> bool:
    """Tell whether a step in flight computed for a request before its last preemption: the oldest ones did (T31.3)."""
    until = world.steps[: world.steps.index(step) + 1]
    passed = sum(share_of(other, request.request).amount for other in until if request.request in other.due)
    return passed <= request.stale


def waits_for_output(world: World, step: Step) -> bool:
    """Tell whether a step needs tokens that the output of an earlier one still has to bring (T36).

    A preemption since changes nothing, as long as late outputs are delivered: the chunk's own is one of them. A chunk whose
    output nobody takes waits for nothing: where it starts never becomes known, and its cells are nobody's.
    """
    return any(entry.pending and not is_dropped(world, step, entry.request) for entry in step.scheduled)


def is_dropped(world: World, step: Step, number: int) -> bool:
    """Tell whether nobody takes what a step in flight computes for a request: it is gone, or drops late ones (T36.3, T36.4)."""
    request = alive(world, number)
    return request is None or (request.drop_stale and is_late(world, step, request))
