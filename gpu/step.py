"""The one door of the tensor layer: an action, with what a scheduler tells of it, changes a world on tensors (T0).

Whether an action is legal the model decides; here it is performed. Raises TensorError where the tensors do not allow it, with
the world as the action left it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.gpu import copies, forward, freeing, keys, offload, rows, tables
from kvproof.gpu import pool as pools
from kvproof.gpu import world as worlds
from kvproof.gpu.pool import TensorError
from kvproof.gpu.tables import Wanted
from kvproof.gpu.told import Told
from kvproof.gpu.world import NONE, Hit, Plan, Request, Share, Status, Step, TensorWorld


def perform(world: TensorWorld, action: Action, told: Told) -> None:
    """Perform one action that the model performed. Raises TensorError."""
    _HANDLERS[type(action)](world, action, told)


# --- requests and plans -----------------------------------------------------------------------------------------------


def _submit(world: TensorWorld, action: act.Submit, told: Told) -> None:
    line = worlds.new_line(world, action.context)
    worlds.extend(line, action.tokens)
    holdings = worlds.fresh_holdings(world)
    world.requests[action.request] = Request(action.request, line, len(action.tokens), holdings, action.skip_reading)


def _begin(world: TensorWorld, action: act.BeginStep, told: Told) -> None:
    world.plan = Plan(preempted=world.plan.preempted)


def _lookup(world: TensorWorld, action: act.Lookup, told: Told) -> None:
    request = world.requests[action.request]
    world.hit = keys.look_up(world, request, action.common)
    request.junction = world.hit.junction


def _allocate(world: TensorWorld, action: act.Allocate, told: Told) -> None:
    request, config = world.requests[action.request], world.config
    hit, world.hit = world.hit, None
    wanted = wanted_tokens(world, request, action)
    if told.gated:
        return
    tables.null_skipped(world, request, max(wanted.local + wanted.external - request.in_flight, 0))
    loaded, lists = request.loaded, adopted_lists(world, hit, action) if wanted.first else []
    tables.reserve(world, request, wanted, lists)
    if not told.admitted:
        return
    if wanted.first and (wanted.external > 0 or any(blocks.numel() for blocks in lists)):
        for group, holding in enumerate(request.groups):
            tables.adopt(world, group, holding, lists[group], wanted)
        for group, holding in enumerate(request.groups):
            tables.take_external(world, group, holding, wanted)
    for group, holding in enumerate(request.groups):
        tables.grow(world, request, group, holding, wanted)
    if not action.load:
        before = pools.copied(world.pool)
        keys.register(world, request, min(wanted.main, request.num_tokens), request.computed)
        changed = None if wanted.first else pools.changed(world.pool, before)
        if changed is not None:
            world.plan.undo[action.request] = changed
        world.plan.shares.append(share(request, action, wanted, loaded))
    request.status = Status.LOADING if action.load else Status.RUNNING
    request.computed, request.loaded = wanted.local + wanted.external, False
    if wanted.first or loaded:
        offload.after_allocation(world, request, action.external, action.load)
    assert len(request.groups) == len(config.groups), "one table per group"


def wanted_tokens(world: TensorWorld, request: Request, action: act.Allocate) -> Wanted:
    """Return the token counts of an allocation (T16.1, T16.6)."""
    limit, covered = world.config.max_model_len, request.computed + action.local
    total = min(covered + action.external, limit)
    main = min(total + action.new_tokens, limit)
    return Wanted(
        first=request.status is not Status.RUNNING and not request.loaded,
        local=covered,
        external=action.external,
        slots=min(total + (0 if action.load else action.new_tokens + action.lookahead), limit),
        main=main,
        settled=main - max(request.placeholders - 1, 0),
    )


def adopted_lists(world: TensorWorld, hit: Hit | None, action: act.Allocate) -> list[Tensor]:
    """Return the lists of a hit, cut if only ``local`` tokens of it are adopted (T15). Raises TensorError without a hit."""
    if hit is None or hit.request != action.request:
        raise TensorError(f"request {action.request} is admitted without a lookup (T37)")
    if hit.local == action.local:
        return hit.lists
    return [
        blocks[: action.local // world.config.sizes[group] if spec.prefix_cacheable else 0]
        for group, (spec, blocks) in enumerate(zip(world.config.groups, hit.lists, strict=True))
    ]


def share(request: Request, action: act.Allocate, wanted: Wanted, loaded: bool) -> Share:
    """Return a request's share of the plan: its chunk, its drafts, and the tokens before them still to come (T36)."""
    start, end = wanted.local + wanted.external, wanted.main - len(action.drafts)
    return Share(
        request=request.request,
        line=request.line,
        start=start,
        amount=wanted.main - start,
        fresh=wanted.first or loaded,
        loaded_from=wanted.local,
        drafts=action.drafts,
        samples=end == request.num_tokens + request.placeholders,
        pending=max(end - request.num_tokens, 0),
    )


def _preempt(world: TensorWorld, action: act.Preempt, told: Told) -> None:
    preempt(world, world.requests[action.request], action.drop_stale)


def preempt(world: TensorWorld, request: Request, drop_stale: bool) -> None:
    """Free a running request; what is in flight becomes stale (T31)."""
    freeing.free_request(world, request)
    request.drop_stale = request.in_flight > 0 and (drop_stale or (request.stale > 0 and request.drop_stale))
    request.stale = request.in_flight
    request.preempted, request.status, request.computed, request.placeholders = True, Status.PREEMPTED, 0, 0
    request.groups = worlds.fresh_holdings(world)
    world.plan.preempted, world.hit = True, None


def _withdraw(world: TensorWorld, action: act.Withdraw, told: Told) -> None:
    records = world.plan.undo.pop(action.request, None)
    if world.config.profile.withdrawn_keys == "rollback":
        world.plan.registered = [key for key in world.plan.registered if key[0] != action.request]
        if records is not None:
            pools.restore(world.pool, records)
    world.plan.shares = [share for share in world.plan.shares if share.request != action.request]
    preempt(world, world.requests[action.request], action.drop_stale)


def _drain(world: TensorWorld, action: act.Drain, told: Told) -> None:
    plan = world.plan
    plan.copies.sort(key=lambda copy: copy[0])
    ends = [end for _, source, destination in plan.copies for end in (source, destination)]
    if ends:
        freeing.free_ends(world, torch.cat(ends))
    filled = offload.destinations(world)
    plan.zero = [(group, blocks[~torch.isin(blocks, filled)]) for group, blocks in plan.zero]
    plan.undo, world.hit = {}, None


def _build(world: TensorWorld, action: act.BuildMetadata, told: Told) -> None:
    offload.build(world, told)


def _dispatch(world: TensorWorld, action: act.Dispatch, told: Told) -> None:
    plan = world.plan
    write_rows(world)
    step = Step(plan.shares, copy_ends(plan), zero_list(world), [share.request for share in plan.shares])
    step.store, step.load, step.flush = plan.store, plan.load, plan.preempted and world.host is not None
    for share in plan.shares:
        request = world.requests[share.request]
        share.known = request.num_tokens
        request.computed = share.end
        request.in_flight += share.amount
        if world.config.async_outputs and share.samples:
            request.placeholders += 1 + len(share.drafts)
    world.steps.append(step)
    world.issued += 1 if plan.shares and world.config.defer_block_free else 0
    world.plan = Plan(registered=plan.registered)


def copy_ends(plan: Plan) -> tuple[Tensor, Tensor]:
    """Return the sources and the destinations of a plan's copies, group by group."""
    if not plan.copies:
        return torch.zeros(0, dtype=torch.int32), torch.zeros(0, dtype=torch.int32)
    return torch.cat([source for _, source, _ in plan.copies]), torch.cat([copy for _, _, copy in plan.copies])


def zero_list(world: TensorWorld) -> Tensor:
    """Return the blocks to be zeroed, group by group (T0 b)."""
    taken = [blocks for _, blocks in sorted(world.plan.zero, key=lambda entry: entry[0])]
    return torch.cat(taken) if taken else world.pool.free[:0]


def write_rows(world: TensorWorld) -> None:
    """Bring the worker's rows up to date: whole for admitted requests, what is missing for those that go on (3.6, T37.5)."""
    table, plan, parts = world.rows, world.plan, len(world.config.parts)
    busy = {share.row for step in world.steps if step.part < parts for share in step.shares}
    fresh = {share.request for share in plan.shares if share.fresh}
    for row, owner in enumerate(table.owners):
        live = world.requests.get(owner)
        if owner != NONE and (owner in fresh or live is None or live.status is not Status.RUNNING):
            if row in busy:
                table.owners[row] = NONE
            else:
                rows.clear(table, row, NONE)
    for share in plan.shares:
        request = world.requests[share.request]
        if share.fresh:
            free = [row for row, owner in enumerate(table.owners) if owner == NONE and row not in busy]
            if not free:
                raise TensorError(f"all {len(table.owners)} worker rows are taken (3.6)")
            share.row = free[0]
            rows.seed(table, share.row, share.request, seeds(world, share.start))
        else:
            share.row = table.owners.index(share.request)
        missing = [
            holding.table[table.counts[group][share.row] // table.expansion :] for group, holding in enumerate(request.groups)
        ]
        rows.append(table, share.row, missing)
    rows.apply(table)


def seeds(world: TensorWorld, computed: int) -> list[int]:
    """Return the running columns of a row at ``computed`` tokens, NONE where a group has no state (3.6)."""
    return [
        rows.column_of(computed, spec.block_size) if worlds.can(world.config, group).recurrent else NONE
        for group, spec in enumerate(world.config.groups)
    ]


# --- execution --------------------------------------------------------------------------------------------------------


def _execute(world: TensorWorld, action: act.Execute, told: Told) -> None:
    parts = len(world.config.parts)
    step = next(step for step in world.steps if step.part < parts)
    offload.run_part(world, step, action.part)
    world.streams.compute()
    if action.part == "zero":
        copies.zero(world.memory, step.zero)
    elif action.part == "copy":
        copies.copy(world.memory, *step.copies)
    elif action.part == "load":
        forward.load(world, step)
    elif action.part == "precopy":
        forward.move_running_states(world, step)
    elif action.part == "forward":
        forward.run(world, step)
    step.part += 1
    if step.part == parts and not step.due:
        world.steps.remove(step)


# --- outputs ----------------------------------------------------------------------------------------------------------


def _output(world: TensorWorld, action: act.Output, told: Told) -> None:
    step = world.steps[0]
    share = next(share for share in step.shares if share.request == action.request)
    if action.failed:
        _drop_failed(world, action, told, step, share)
        return
    freeing.open_step(world, step)
    without_due(world, step, action.request)
    request = world.requests.get(action.request)
    if request is None:
        return
    late = request.stale > 0
    ignored = late and request.drop_stale
    lower_in_flight(request, share.amount, late)
    world.hit = None
    if ignored:
        return
    worlds.extend(request.line, action.tokens)
    rejected = len(share.drafts) - max(len(action.tokens) - 1, 0)
    resolve_later(world, request, share, rejected)
    if not share.samples:
        return
    if late:
        forward.keep(world, share, len(action.tokens))
        return
    owed = request.placeholders > 0
    request.computed = max(request.computed - rejected, 0)
    request.placeholders = max(request.placeholders - 1 - len(share.drafts), 0) if owed else 0
    world.streams.compute()
    forward.settle(world, share, max(len(action.tokens), 1))
    if action.tokens and request.status is Status.RUNNING and (owed or world.config.num_draft_tokens):
        keys.register(world, request, request.computed - request.in_flight, request.computed)


def without_due(world: TensorWorld, step: Step, request: int) -> None:
    """Note that an output was processed; a step without any due leaves (T36)."""
    step.due = [other for other in step.due if other != request]
    if not step.due:
        world.steps.remove(step)


def lower_in_flight(request: Request, amount: int, late: bool) -> None:
    """Count an output as landed (T36.3)."""
    request.in_flight -= amount
    request.stale -= amount if late else 0
    request.drop_stale = request.drop_stale and request.stale > 0


def resolve_later(world: TensorWorld, request: Request, share: Share, rejected: int) -> None:
    """Let later shares of a request know the tokens that an output brought, and where they start (T36, 7.3.11)."""
    for step in world.steps:
        for later in step.shares:
            if later.request == request.request and later.pending and share.samples:
                later.start -= rejected
                later.loaded_from = later.start
                later.pending = max(later.pending - 1 - len(share.drafts), 0)
                later.known = request.num_tokens


def _drop_failed(world: TensorWorld, action: act.Output, told: Told, step: Step, share: Share) -> None:
    """Process the output of a chunk whose external tokens did not all arrive: nothing is delivered (T36.2, C-48)."""
    if len(step.due) == 1:
        freeing.open_step(world, step)
    pools.strip(world.pool, pools.ids(told.evicted, world.device))
    if world.host is not None:
        pools.strip(world.host.pool, pools.ids(told.evicted_host, offload.CPU))
    for request in concerned(world, share, action.valid):
        let_go(world, request, action.valid)
    without_due(world, step, action.request)
    live = world.requests.get(action.request)
    if live is not None:
        lower_in_flight(live, share.amount, live.stale > 0)
    world.hit = None


def concerned(world: TensorWorld, share: Share, valid: int) -> list[Request]:
    """Return the requests that go on behind the valid tokens as the failed one does: their digests there are equal (C-48)."""
    _, prefixes = worlds.chunk(share, valid + 1)
    missing = int(prefixes[valid + 1])
    return [
        request
        for request in world.requests.values()
        if request.num_tokens > valid and int(request.line.digests[valid + 1]) == missing
    ]


def let_go(world: TensorWorld, request: Request, valid: int) -> None:
    """Take from a request what goes on behind the valid tokens of a failed load: it starts again if it holds some (C-48)."""
    host = world.host
    pinned = None if host is None else host.pinned.get(request.request)
    if host is not None and pinned is not None and pinned.start + pinned.length > valid:
        offload.unpin(host, request.request)
    if request.computed > valid:
        load = None
        if host is not None:
            load = next((load for load in offload.every_load(host) if load.request == request.request), None)
        if request.status is Status.RUNNING:
            preempt(world, request, True)
        elif load is not None:
            load.condemned = True
        else:
            offload.start_again(world, request)
    elif request.stale:
        request.drop_stale = True


# --- between plans ----------------------------------------------------------------------------------------------------


def _finish(world: TensorWorld, action: act.Finish, told: Told) -> None:
    request = world.requests[action.request]
    if world.config.children:
        tables.null_skipped(world, request, max(request.computed - request.in_flight, 0))
    if not offload.finish(world, request, told):
        freeing.free_request(world, request)
    del world.requests[action.request]
    world.hit = None


def _reset(world: TensorWorld, action: act.ResetCache, told: Told) -> None:
    pools.reset(world.pool)


def _evict(world: TensorWorld, action: act.EvictBlocks, told: Told) -> None:
    pools.strip(world.pool, pools.ids(action.blocks, world.device))


def _append_rows(world: TensorWorld, action: act.AppendRows, told: Told) -> None:
    rows.append(world.rows, action.row, [pools.ids(blocks, world.device) for blocks in action.blocks])
    rows.apply(world.rows)


# --- the host tier ----------------------------------------------------------------------------------------------------


def _lookup_external(world: TensorWorld, action: act.LookupExternal, told: Told) -> None:
    offload.look_up(world, world.requests[action.request], action.start)


def _promote(world: TensorWorld, action: act.Promote, told: Told) -> None:
    offload.promote(world, world.requests[action.request])


def _run_store(world: TensorWorld, action: act.RunStore, told: Told) -> None:
    offload.run_store(world, action.event)


def _run_load(world: TensorWorld, action: act.RunLoad, told: Told) -> None:
    offload.run_load(world, action.event)


def _complete_store(world: TensorWorld, action: act.CompleteStore, told: Told) -> None:
    offload.complete_store(world, action.event, action.acks)


def _complete_load(world: TensorWorld, action: act.CompleteLoad, told: Told) -> None:
    offload.complete_load(world, action.request, action.failed, action.valid)


def _reset_host(world: TensorWorld, action: act.ResetHost, told: Told) -> None:
    offload.reset(world)


def _read_counters(world: TensorWorld, action: act.ReadCounters, told: Told) -> None:
    """Counters are the scheduler's."""


_HANDLERS: dict[type[Action], Callable[[TensorWorld, Any, Told], None]] = {
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
    act.LookupExternal: _lookup_external,
    act.Promote: _promote,
    act.RunStore: _run_store,
    act.RunLoad: _run_load,
    act.CompleteStore: _complete_store,
    act.CompleteLoad: _complete_load,
    act.ResetHost: _reset_host,
    act.ReadCounters: _read_counters,
}
