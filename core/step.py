"""The one door: ``step(world, action)`` checks the phase and the arguments, then calls one transition (T0)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import (
    allocation,
    events,
    execute,
    freeing,
    lookup,
    outputs,
    phases,
    plans,
    prefixes,
    requests,
    retention,
    worker,
)
from kvproof.core import pool as pools
from kvproof.core.config import Config
from kvproof.core.errors import (
    AlreadyScheduled,
    BeyondKnownTokens,
    BeyondModelLength,
    BlockOutOfRange,
    ChunkNotClipped,
    DivergedHit,
    ExecutionOrder,
    HitTooLong,
    LoadRunning,
    LookupMismatch,
    LookupMissing,
    MisalignedExternal,
    MisplacedDrafts,
    NothingToAllocate,
    NotScheduled,
    OutputPending,
    PhaseError,
    Refusal,
    RowInUse,
    ShortExternal,
    StatusError,
    StepInFlight,
    TooManyDrafts,
    TooManyRunning,
    UnknownAction,
    VictimInFlight,
)
from kvproof.core.offload import door, loads
from kvproof.core.records import Record
from kvproof.core.world import NONE, Hit, Phase, Request, Status, Step, World


def step(world: World, action: act.Action) -> tuple[World, Record]:
    """Apply one action. Returns the new world and its record.

    Raises a Refusal if the action is illegal here; the given world is unchanged in any case, because worlds are
    values. One refusal carries another world (``Refusal.world``, row guard of a profile). That the fields of an action have
    their declared types is the caller's contract; their values are checked here.
    """
    handler = _HANDLERS.get(type(action))
    if handler is None:
        known = ", ".join(known.__name__ for known in act.ACTIONS)
        raise UnknownAction(f"{type(action).__name__} is not an action; actions are {known}")
    done = handler(world, action)
    return events.announced(*done) if events.noted(done[0]) else done


def refusal(world: World, action: act.Action) -> Refusal | None:
    """Return the refusal of an action in this world, or None if it is legal."""
    try:
        step(world, action)
    except Refusal as error:
        return error
    return None


def _submit(world: World, action: act.Submit) -> tuple[World, Record]:
    phases.need(world, "Submit", Phase.IDLE)
    return requests.submit(world, action)


def _begin(world: World, action: act.BeginStep) -> tuple[World, Record]:
    del action
    phases.need(world, "BeginStep", Phase.IDLE)
    if len(world.steps) >= world.config.max_steps_in_flight:
        raise StepInFlight(
            f"{len(world.steps)} dispatched steps are not processed yet, {world.config.max_steps_in_flight} may be: execute "
            "the oldest and process its output",
            steps=len(world.steps),
        )
    return plans.begin(world)


def _lookup(world: World, action: act.Lookup) -> tuple[World, Record]:
    phases.need_admission(world, "Lookup")
    request = requests.find_admissible(world, action.request)
    nodes = prefixes.boundary_nodes(world.prefixes, request.tip, world.config.hash_block_size)
    search = lookup.joint if action.common else lookup.lookup
    hit = search(world.config, world.pool, request, nodes)
    request = evolve(request, junction=hit.junction)
    world = allocation.with_request(world, request, world.pool, world.plan)
    world = evolve(world, phase=Phase.PLAN_WAITING, hit=hit)
    return world, Record("Lookup", local=hit.local, lists=hit.lists, junction=hit.junction, diverged=hit.diverged)


def _allocate(world: World, action: act.Allocate) -> tuple[World, Record]:
    phases.need(world, "Allocate", *phases.PLANNING)
    request = requests.find(world, action.request)
    if any(entry.request == action.request for entry in world.plan.scheduled):
        raise AlreadyScheduled(f"request {action.request} already has an amount in this plan")
    if request.status is Status.LOADING:
        raise LoadRunning(
            f"request {action.request} is loading: report its load with CompleteLoad, then take it up with Promote (T30)",
            request=action.request,
        )
    sizes = (action.new_tokens, action.local, action.external, action.lookahead, action.reserved, *action.drafts)
    if min(sizes) < 0 or (action.new_tokens == 0 and not action.load):
        raise NothingToAllocate(f"new tokens must be positive and no count or draft negative, got {sizes} (T16)")
    if action.load:
        loads.check(world.config, door.need_host(world, "Allocate with load"), action)
    hit = None
    if request.status is Status.RUNNING or request.loaded:
        _check_continuing(world, request, action)
    else:
        hit = _adopted_hit(world, action)
    check_amount(world, request, action)
    lists = ((),) * len(world.config.groups) if hit is None else adopted_lists(world.config, hit, action.local)
    wanted = allocation.wanted_tokens(world.config, request, action)
    planned, record = allocation.allocate(
        with_drafts(world, request, wanted), request, wanted, lists, action.full_sequence, action.reserved
    )
    if not record.admitted:
        return evolve(planned, prefixes=world.prefixes), record
    if request.loaded:
        planned = evolve(planned, phase=Phase.PLAN_WAITING)
    if hit is None and not request.loaded:
        return planned, record
    return _tell_connectors(planned, request, action, record)


def _tell_connectors(world: World, request: Request, action: act.Allocate, record: Record) -> tuple[World, Record]:
    """Count what connectors brought to an admission, and let the host tier map its load (T29, CN-3)."""
    queries, hits = allocation.external_counts(world.config, request, action, admitted=True)
    pairs: loads.Pairs = ()
    if world.host is not None:
        world, pairs = loads.after_allocation(world, world.host, requests.find(world, action.request), action)
    return world, evolve(record, pairs=pairs, queries=queries, hits=hits)


def with_drafts(world: World, request: Request, wanted: allocation.Wanted) -> World:
    """Return the world whose prefix table knows the drafts of a chunk, if they follow a known token (2.3, T36)."""
    if not wanted.drafts or request.placeholders:
        return world
    return evolve(world, prefixes=prefixes.extend(world.prefixes, request.tip, wanted.drafts)[0])


def _check_continuing(world: World, request: Request, action: act.Allocate) -> None:
    """Check that a request may go on: a running one in part 2 of the plan, one behind its load in part 3 (T0, T37.4)."""
    if request.loaded:
        phases.need_admission(world, "Allocate")
        _check_rows(world)
    elif world.phase is not Phase.PLAN_RUNNING:
        raise PhaseError("running requests are planned before waiting ones (T0 part 2)", phase=world.phase.name)
    if action.local or action.external or action.load:
        raise LookupMismatch(f"request {action.request} has its blocks and adopts nothing: local and external are 0 (T16.5)")


def _check_rows(world: World) -> None:
    """Refuse one more running request than there are rows for. Raises TooManyRunning."""
    if sum(1 for request in world.requests if request.status is Status.RUNNING) >= world.config.max_running:
        raise TooManyRunning(f"{world.config.max_running} requests run already: finish or preempt one first")


def _adopted_hit(world: World, action: act.Allocate) -> Hit:
    """Return the hit that a first allocation adopts, whole or, under external tokens, rounded down to S (T14)."""
    hit = world.hit
    if hit is None or hit.request != action.request:
        raise LookupMissing(f"request {action.request} is not running: look it up directly before (T37)")
    if not action.load:
        _check_rows(world)
    check_divergence(hit, action)
    aligned = hit.local - hit.local % world.config.scheduler_block_size
    if action.local not in ((hit.local, aligned) if action.external else (hit.local,)):
        raise LookupMismatch(
            f"local {action.local} is not the hit of the lookup: give {hit.local}, or with external tokens {aligned}, the hit "
            "rounded down to S (T14)"
        )
    if action.external:
        check_external(world.config, hit, action)
    return hit


def adopted_lists(config: Config, hit: Hit, local: int) -> tuple[tuple[int, ...], ...]:
    """Return the lists of a hit, cut if only ``local`` tokens of it are adopted (T15)."""
    return hit.lists if local == hit.local else lookup.truncate(config, hit.lists, local)


def check_divergence(hit: Hit, action: act.Allocate) -> None:
    """Refuse a divergent hit without external tokens: no group state stands at its end (T14.4). Raises DivergedHit."""
    if hit.diverged and not action.external:
        raise DivergedHit(
            "a divergent hit needs external tokens, no group state stands at its end: give some, or look the request up again "
            "with common=True (T14.4)"
        )


def check_external(config: Config, hit: Hit, action: act.Allocate) -> None:
    """Refuse external tokens that no connector may bring behind a hit (T14.1, T14.3, HB-8).

    They start at a multiple of S, come in multiples of A, and take the place of a local tail only if they reach further.
    Raises MisalignedExternal or ShortExternal.
    """
    if action.local % config.scheduler_block_size or action.external % config.alignment:
        raise MisalignedExternal(
            f"external tokens start at a multiple of S = {config.scheduler_block_size} and come in multiples of "
            f"A = {config.alignment}, got {action.external} at {action.local} (T14, HB-8)"
        )
    tail = hit.local - action.local
    if tail and not lookup.replaces_tail(tail, action.external):
        raise ShortExternal(
            f"{action.external} external tokens do not reach beyond the {tail} local ones behind {action.local}: keep these, "
            f"with local={hit.local} and external=0 (T14.3)",
            tail=tail,
            external=action.external,
        )


def check_amount(world: World, request: Request, action: act.Allocate) -> None:
    """Refuse amounts beyond the known tokens, hits that leave nothing to compute, and unclipped chunks (T14.5, T22)."""
    start = split_start(request, action)
    if world.config.recurrent and request.status is not Status.RUNNING and start > request.num_tokens - 1:
        raise HitTooLong(
            f"{start} of {request.num_tokens} tokens are hit: with a recurrent group at most one less (T14.5)",
            start=start,
            num_tokens=request.num_tokens,
        )
    check_end(world, request, action, start)
    if action.load:
        return
    clipped = action.new_tokens - len(action.drafts)  # drafts are no part of a prefill
    if action.new_tokens > world.config.max_chunk or not chunk_allowed(world, request, start, clipped):
        raise ChunkNotClipped(
            f"a chunk of {action.new_tokens} tokens from {start} does not end where T22 lets it end: "
            f"{clip(world, request, start, min(action.new_tokens, world.config.max_chunk))} tokens would",
            start=start,
            new_tokens=action.new_tokens,
        )


def split_start(request: Request, action: act.Allocate) -> int:
    """Return where the chunk begins that T22 splits: behind what is computed, hit and loaded (T22, T37.4)."""
    return request.computed + action.local + action.external


def check_end(world: World, request: Request, action: act.Allocate, start: int) -> None:
    """Refuse chunks beyond the tokens that are known or to come, and drafts that do not follow all of these (T36).

    A chunk of ``new_tokens`` from ``start`` ends with its drafts. Raises BeyondKnownTokens, TooManyDrafts, MisplacedDrafts
    or BeyondModelLength.
    """
    expected = requests.expected_tokens(request)
    count, end = len(action.drafts), start + action.new_tokens
    if count > world.config.num_draft_tokens:
        raise TooManyDrafts(
            f"{count} drafts are scheduled, the drafter gives at most {world.config.num_draft_tokens} (T36)",
            drafts=count,
            most=world.config.num_draft_tokens,
        )
    if end - count > expected:
        raise BeyondKnownTokens(
            f"request {request.request} knows {request.num_tokens} tokens and {request.placeholders} are to come, "
            f"{start} + {action.new_tokens - count} are scheduled before the drafts",
            start=start,
            new_tokens=action.new_tokens,
            num_tokens=request.num_tokens,
        )
    if count and (end - count < expected or action.new_tokens <= count):
        raise MisplacedDrafts(
            f"{count} drafts of {action.new_tokens} tokens from {start} do not follow the last of {expected} tokens: a chunk "
            "with drafts computes at least one token before them and reaches the end of those that are known or to come",
            start=start,
            new_tokens=action.new_tokens,
            drafts=count,
        )
    if count and not state_before_drafts(world.config, request, start, action.new_tokens, count):
        raise MisplacedDrafts(
            f"{count} drafts end a chunk of {action.new_tokens} tokens: with Mamba-align groups they follow one token, and at "
            "an admission they end in its block, or the state before rejected drafts would have no column (3.6)",
            new_tokens=action.new_tokens,
            drafts=count,
        )
    if end > world.config.max_model_len:
        raise BeyondModelLength(
            f"{start} + {action.new_tokens} tokens pass the model length {world.config.max_model_len}: schedule fewer drafts, "
            "or finish the request",
            end=end,
        )


def state_before_drafts(config: Config, request: Request, start: int, amount: int, drafts: int) -> bool:
    """Tell whether the state before the drafts of a chunk has a column of its own in every Mamba-align group (3.6, C-58).

    It has behind one token of a running request. An admission leaves nulls before its running column, which is that of the
    last draft: if the drafts end in a later block, a next chunk without drafts would fall back into a null column. Under
    ``padded_admission = any`` nobody asks.
    """
    if amount - drafts > 1:
        return not config.snapshots
    if request.status is Status.RUNNING or config.profile.padded_admission == "any":
        return True
    sizes = (config.groups[group].block_size for group in config.snapshots)
    return all(worker.column_of(start + 1, size) == worker.column_of(start + amount, size) for size in sizes)


def chunk_allowed(world: World, request: Request, start: int, amount: int) -> bool:
    """Tell whether T22 can yield this amount for some number of wanted tokens, at most what a step holds.

    Beside the amount itself those decide that reach as far as they can without another rule: to the end of all tokens, to
    that of the prefill, or not quite (T22.1, T22.3).
    """
    if not world.config.snapshots:
        return True
    prefill_end = max(request.num_prompt, request.num_tokens - 1)
    reaches = (request.num_tokens, prefill_end, prefill_end - 1)
    return any(
        amount == clip(world, request, start, wanted)
        for wanted in (amount, *(min(reach - start, world.config.max_chunk) for reach in reaches))
        if wanted >= amount
    )


def largest_prefill(config: Config) -> int:
    """Return the largest chunk of a prefill that shares its steps: the step's tokens, or the limit of long prefills (T22.3)."""
    return config.max_chunk if config.long_prefill is None else min(config.max_chunk, config.long_prefill)


def clip(world: World, request: Request, start: int, wanted: int) -> int:
    """Return the tokens a chunk of ``wanted`` tokens from ``start`` is clipped to (T22)."""
    config = world.config
    blocks = tuple(config.groups[g].block_size for g in config.snapshots)
    amount = retention.clip_chunk(
        start=start,
        wanted=wanted,
        num_tokens=request.num_tokens,
        num_prompt=request.num_prompt,
        clip_block=config.clip_block_size,
        hash_block=config.hash_block_size,
        fine=retention.clips_fine(config.fine_grained, config.hash_block_size, config.scheduler_block_size),
        junction=request.junction,
        max_chunk=largest_prefill(config),
        eagle=any(config.eagle),
        internal_checkpoint=config.checkpoint_alignment is not None,
        alignment=config.alignment,
        checkpoint_alignment=config.checkpoint_alignment,
        mamba_blocks=blocks,
        shared_prefix_checkpoint=config.pins_junctions,
    )
    if config.profile.clip_stops == "clip_unit" or start >= max(request.num_prompt, request.num_tokens - 1):
        return amount
    return retention.close_open_blocks(start, amount, blocks)


def _running(world: World, action: str, request: int, *legal: Phase) -> Request:
    phases.need(world, action, *legal)
    found = requests.find(world, request)
    if found.status is not Status.RUNNING:
        raise StatusError(f"request {request} is {found.status.name}: only running ones are preempted (T31)")
    return found


def _preempt(world: World, action: act.Preempt) -> tuple[World, Record]:
    request = _running(world, "Preempt", action.request, Phase.PLAN_RUNNING, Phase.IDLE)
    if any(entry.request == action.request for entry in world.plan.scheduled):
        raise AlreadyScheduled(f"request {action.request} has an amount in this plan: withdraw it (T39)")
    _check_victim(world, request)
    return requests.preempt(world, request, action.drop_stale)


def _check_victim(world: World, request: Request) -> None:
    if freeing.is_held_back(world, request):
        raise VictimInFlight(
            f"{request.in_flight} tokens of request {request.request} are in flight and freeing is deferred: its blocks would "
            "not be free in this plan; preempt another request, or none (T31)",
            in_flight=request.in_flight,
        )


def _withdraw(world: World, action: act.Withdraw) -> tuple[World, Record]:
    request = _running(world, "Withdraw", action.request, Phase.PLAN_RUNNING)
    if not any(entry.request == action.request for entry in world.plan.scheduled):
        raise NotScheduled(f"request {action.request} has no amount in this plan: preempt it (T31)")
    _check_victim(world, request)
    return requests.withdraw(world, request, action.drop_stale)


def _drain(world: World, action: act.Drain) -> tuple[World, Record]:
    del action
    phases.need(world, "Drain", *phases.PLANNING)
    return plans.drain(world)


def _build(world: World, action: act.BuildMetadata) -> tuple[World, Record]:
    del action
    phases.need(world, "BuildMetadata", Phase.DRAINED)
    return plans.build(world)


def _dispatch(world: World, action: act.Dispatch) -> tuple[World, Record]:
    del action
    phases.need(world, "Dispatch", Phase.BUILT)
    return plans.dispatch(world)


def _execute(world: World, action: act.Execute) -> tuple[World, Record]:
    pending = [candidate for candidate in world.steps if candidate.part < len(world.config.parts)]
    if not pending:
        raise ExecutionOrder("no dispatched step is left to execute: plan and dispatch one first (T0)")
    expected = world.config.parts[pending[0].part]
    if action.part != expected:
        raise ExecutionOrder(
            f"part {action.part!r} is out of order: {expected!r} is next of {', '.join(world.config.parts)} (T0)",
            expected=expected,
        )
    if action.part in execute.POSITIONED and requests.waits_for_output(world, pending[0]):
        raise OutputPending(
            f"part {action.part!r} needs tokens that are still to come: process the outputs of the step before it first (T36)"
        )
    memory, world, reads = execute.run_part(world, pending[0], action.part)
    done = evolve(pending[0], part=pending[0].part + 1)
    kept = not (done.part == len(world.config.parts) and not done.due)
    steps = tuple(
        done if candidate is pending[0] else candidate for candidate in world.steps if kept or candidate is not pending[0]
    )
    return evolve(world, contents=memory, steps=steps), Record(
        "Execute", reads=reads, branches=execute.branches(world, pending[0]) if action.part == "forward" else ()
    )


def executed_step(world: World) -> Step:
    """Return the oldest executed step whose output is due. Raises ExecutionOrder."""
    if not world.steps or world.steps[0].part < len(world.config.parts):
        raise ExecutionOrder("no executed step waits for its output: execute the oldest step first (T36)")
    return world.steps[0]


def _output(world: World, action: act.Output) -> tuple[World, Record]:
    phases.need(world, "Output", Phase.IDLE)
    return outputs.process(world, action, executed_step(world))


def _finish(world: World, action: act.Finish) -> tuple[World, Record]:
    phases.need(world, "Finish", Phase.IDLE)
    return requests.finish(world, requests.find(world, action.request))


def _reset(world: World, action: act.ResetCache) -> tuple[World, Record]:
    del action
    phases.need(world, "ResetCache", Phase.IDLE)
    pool, done = pools.reset(world.pool)
    return evolve(world, pool=pool), Record("ResetCache", done=done)


def _evict(world: World, action: act.EvictBlocks) -> tuple[World, Record]:
    phases.need(world, "EvictBlocks", Phase.IDLE)
    pool = world.pool
    for block in action.blocks:
        pool = pools.evict(pool, block)
    return evolve(world, pool=pool), Record("EvictBlocks")


def _append_rows(world: World, action: act.AppendRows) -> tuple[World, Record]:
    phases.need(world, "AppendRows", Phase.IDLE)
    taken = world.worker.owners[action.row : action.row + 1] != (NONE,) or action.row in plans.busy_rows(world)
    if not 0 <= action.row < len(world.worker.owners) or taken:
        raise RowInUse(f"row {action.row} is not a free row of the worker: only dispatch writes owned rows")
    ids = [block for blocks in action.blocks for block in blocks]
    if len(action.blocks) != len(world.config.groups) or any(not 0 <= block < world.config.num_blocks for block in ids):
        raise BlockOutOfRange(f"one tuple of block ids per group is needed, ids below {world.config.num_blocks}")
    rows = worker.append(world, world.worker, action.row, action.blocks)
    return evolve(world, worker=rows), Record("AppendRows")


_HANDLERS: dict[type[act.Action], Callable[[World, Any], tuple[World, Record]]] = {
    act.Submit: _submit,
    act.BeginStep: _begin,
    act.Lookup: _lookup,
    act.Allocate: _allocate,
    act.Preempt: _preempt,
    act.Withdraw: _withdraw,
    act.Drain: _drain,
    act.BuildMetadata: _build,
    act.Dispatch: _dispatch,
    act.Execute: _execute,
    act.Output: _output,
    act.Finish: _finish,
    act.ResetCache: _reset,
    act.EvictBlocks: _evict,
    act.AppendRows: _append_rows,
    **door.HANDLERS,
}
