"""Processing the output of a step: counts in flight, accepted drafts, delivered tokens, the caching call (T36)."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import allocation, execute, freeing, prefixes, recovery, requests
from kvproof.core.actions import Output
from kvproof.core.config import Config
from kvproof.core.errors import NotScheduled, OutputMismatch
from kvproof.core.records import Record
from kvproof.core.world import Request, Scheduled, Status, Step, World


def process(world: World, action: Output, step: Step) -> tuple[World, Record]:
    """Process the output of one request of the oldest step, which is executed (T36.1 to T36.7).

    A request that is gone is ignored. A late output changes neither ``computed`` nor keys; it is delivered unless the
    preemption asked to drop it. Stopping is the caller's: at the model length nothing more is sampled and the request has to
    be finished (T36.6, T36.8). Raises NotScheduled if no output is due, OutputMismatch if the tokens do not fit the chunk.
    """
    if action.request not in step.due:
        raise NotScheduled(f"no output of request {action.request} is due", request=action.request)
    entry = requests.share_of(step, action.request)
    if action.failed:
        return drop_failed(world, action, step, entry)
    world = without_due(freeing.open_step(world, step), action.request)
    request = requests.alive(world, action.request)
    if request is None:
        return world, Record("Output")
    late = is_stale(request)
    ignored = late and request.drop_stale
    request = lower_in_flight(request, entry.amount, late)
    if ignored:
        return allocation.with_request(world, request, world.pool, world.plan), Record("Output", num_tokens=request.num_tokens)
    check_delivery(world, request, entry, action.tokens)
    rejected = rejected_drafts(entry, action.tokens)
    table, tip = prefixes.extend(world.prefixes, request.tip, action.tokens)
    request = evolve(request, tip=tip, num_tokens=request.num_tokens + len(action.tokens))
    world = resolve_later(evolve(world, prefixes=table), request, entry, rejected)
    if entry.samples and not late:
        world = confirm(world, request, entry, len(action.tokens), rejected)
    else:
        world = allocation.with_request(world, request, world.pool, world.plan)
        world = count_late(world, entry, len(action.tokens))
    return world, Record("Output", num_tokens=request.num_tokens, rejected=rejected)


def count_late(world: World, entry: Scheduled, delivered: int) -> World:
    """Tell the worker which state is the running one behind a late output that is delivered (C-85).

    A step behind it in flight goes on from the kept tokens, whatever became of the request.
    """
    return execute.keep_accepted(world, entry, max(delivered, 1)) if entry.samples else world


def drop_failed(world: World, action: Output, step: Step, entry: Scheduled) -> tuple[World, Record]:
    """Process the output of a chunk whose external tokens did not all arrive: nothing is delivered (T36.2, C-48).

    The step counts as processed with its first other output, or with its last. Raises OutputMismatch.
    """
    recovery.check(step, entry, action.valid)
    if len(step.due) == 1:
        world = freeing.open_step(world, step)
    world, preempted = recovery.recover(world, entry, action.valid)
    world = without_due(world, action.request)
    request = requests.alive(world, action.request)
    if request is not None:
        request = lower_in_flight(request, entry.amount, is_stale(request))
        world = allocation.with_request(world, request, world.pool, world.plan)
    known = 0 if request is None else request.num_tokens
    return world, Record("Output", num_tokens=known, preempted=preempted, lost=lost_tokens(world.config, entry, action.valid))


def lost_tokens(config: Config, entry: Scheduled, valid: int) -> int:
    """Return the external tokens that were counted as hits and did not arrive: once, however many groups (CN-3, M-PUB-137)."""
    del config
    return entry.start - valid


def without_due(world: World, request: int) -> World:
    """Return the world in which the output of a request of its oldest step is no longer due; a finished step leaves."""
    step = world.steps[0]
    due = tuple(other for other in step.due if other != request)
    steps = (evolve(step, due=due), *world.steps[1:]) if due else world.steps[1:]
    return evolve(world, steps=steps)


def is_stale(request: Request) -> bool:
    """Tell whether the next output of a request was dispatched before its last preemption: the oldest come first (T36.3)."""
    return request.stale > 0


def lower_in_flight(request: Request, amount: int, late: bool) -> Request:
    """Count an output as landed, whatever becomes of it; with the last late one nothing is left to drop (T36.3, RQ-1)."""
    stale = request.stale - amount if late else request.stale
    return evolve(
        request,
        in_flight=request.in_flight - amount,
        stale=stale,
        drop_stale=request.drop_stale and stale > 0,
    )


def check_delivery(world: World, request: Request, entry: Scheduled, tokens: tuple[int, ...]) -> None:
    """Refuse tokens that cannot be the output of a chunk (T36). Raises OutputMismatch.

    At the end of the known tokens: the first drafts as far as they were accepted, then one sampled token, and no more than
    the model length takes. Inside a prompt: none.
    """
    room = world.config.max_model_len - request.num_tokens
    most = min(1 + len(entry.drafts), room) if entry.samples else 0
    if not min(1, most) <= len(tokens) <= most:
        raise OutputMismatch(
            f"request {request.request} computed {entry.amount} tokens, {len(entry.drafts)} of them drafts: "
            f"{min(1, most)} to {most} tokens are due, got {len(tokens)} (model length {world.config.max_model_len})",
            request=request.request,
            most=most,
            got=len(tokens),
        )
    if tokens[:-1] != entry.drafts[: len(tokens) - 1] and tokens:
        raise OutputMismatch(
            f"request {request.request} has drafts {entry.drafts}: all tokens but the last are the drafts that were accepted, "
            f"got {tokens}",
            request=request.request,
        )


def rejected_drafts(entry: Scheduled, tokens: tuple[int, ...]) -> int:
    """Return the drafts of a chunk that are not among the delivered tokens: rejected, or dropped at a stop (T36.5, T36.6)."""
    return len(entry.drafts) - max(len(tokens) - 1, 0)


def resolve_later(world: World, request: Request, entry: Scheduled, rejected: int) -> World:
    """Return the world in which later chunks of a request know the tokens that this output brought (T36, 7.3.11).

    The plan of such a chunk took all drafts for accepted: it starts that many tokens earlier as were rejected.
    """
    table, steps = world.prefixes, list(world.steps)
    for at, step in enumerate(steps):
        scheduled = list(step.scheduled)
        for index, later in enumerate(scheduled):
            if later.request == request.request and later.pending and entry.samples:
                start = later.start - rejected
                pending = later.pending - 1 - len(entry.drafts)
                later = evolve(later, start=start, loaded_from=start, pending=max(pending, 0))
                table, tip = requests.chunk_tip(table, request.tip, later)
                scheduled[index] = evolve(later, tip=tip)
                steps[at] = evolve(step, scheduled=tuple(scheduled))
    return evolve(world, steps=tuple(steps), prefixes=table)


def confirm(world: World, request: Request, entry: Scheduled, delivered: int, rejected: int) -> World:
    """Settle the counts of a request whose sampled output is not late, then register what became certain (T36.5 to T36.7)."""
    owed = request.placeholders > 0
    request = take_back(request, rejected)
    request = settle_placeholders(request, entry)
    world = allocation.with_request(world, request, world.pool, world.plan)
    world = execute.settle_accepted(world, entry, max(delivered, 1))
    if delivered and request.status is Status.RUNNING and (owed or world.config.num_draft_tokens):
        world = register(world, request)
    return world


def take_back(request: Request, rejected: int) -> Request:
    """Return a request whose computed tokens no longer count the rejected drafts (T36.5, RQ-3)."""
    return evolve(request, computed=max(request.computed - rejected, 0))


def settle_placeholders(request: Request, entry: Scheduled) -> Request:
    """Return a request whose placeholders for this output are gone: one for each draft and one for the sampled token (T36)."""
    if not request.placeholders:
        return request
    return evolve(request, placeholders=max(request.placeholders - 1 - len(entry.drafts), 0))


def confirmed_tokens(request: Request) -> int:
    """Return the tokens of a request that are computed by steps whose output is processed (T36.7, HB-14)."""
    return request.computed - request.in_flight


def register(world: World, request: Request) -> World:
    """Register the keys of the tokens that became certain with an output: the caching call of T36.7."""
    return register_tokens(world, request, confirmed_tokens(request))


def register_tokens(world: World, request: Request, tokens: int) -> World:
    """Register the keys of a request's first ``tokens`` tokens outside an allocation (T30, T36.7).

    Handoffs that it publishes wait for the next drain (T23).
    """
    nodes = prefixes.boundary_nodes(world.prefixes, request.tip, world.config.hash_block_size)
    work = allocation.work_on(world, request, nodes)
    states = list(request.groups)
    allocation.register(work, states, tokens)
    plan = evolve(
        world.plan,
        cached=world.plan.cached + tuple(work.cached),
        handoffs=world.plan.handoffs + tuple(work.handoffs),
    )
    return allocation.with_request(world, evolve(request, groups=tuple(states)), work.pool, plan)
