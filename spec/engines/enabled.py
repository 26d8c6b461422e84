"""What can be done in a world: the list from which every engine draws. ``disabled`` lists what must be refused.

Both are built from the semantics alone (T0, T14, T16, T22, T31, T36, T37, T39), from sizes, statuses and phases, never by
asking a guard of the model: a guard that goes wrong cannot hide here. Amounts come from ``amounts``, the order of steps in
flight from ``flight``, prompts from ``prompts``. An action of :func:`enabled` that the model refuses is therefore a
violation (LV-9), and so is an action of ``disabled`` that it accepts, answers with an internal error, or lets leave a trace.
"""

from __future__ import annotations

from attrs import evolve

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.world import NONE, Hit, Phase, Request, Status, World
from kvproof.spec.engines import amounts, flight, host, prompts
from kvproof.spec.engines.amounts import Limits


def enabled(world: World, limits: Limits) -> list[Action]:
    """Return legal actions of a world, simplest first: those that carry a step on stand before those that disturb it.

    Deterministic. A refused allocation (``admitted`` False) is a legal action, too.
    """
    if world.phase is Phase.IDLE:
        return [*_step_on(world, limits), *_submits(world, limits), *_disturb(world)]
    part = flight.next_part(world)
    meanwhile: list[Action] = [*([] if part is None else [act.Execute(part)]), *host.copies(world)]
    if world.phase is Phase.DRAINED:
        return [act.BuildMetadata(), *meanwhile]
    if world.phase is Phase.BUILT:
        return [act.Dispatch(), *meanwhile]
    return [*_planning(world, limits), act.Drain(), *meanwhile, *_preemptions(world)]


# --- between plans ------------------------------------------------------------------------------------------------


def _step_on(world: World, limits: Limits) -> list[Action]:
    part = flight.next_part(world)
    found: list[Action] = [] if part is None else [act.Execute(part)]
    for number in flight.outputs_due(world):
        found += [act.Output(number, tokens) for tokens in flight.deliveries(world, number, limits.alphabet)]
        found += failures(world, number)
    found += host.transfers(world)
    if may_begin(world) and world.requests:
        found.append(act.BeginStep())
    return found


def failures(world: World, number: int) -> list[Action]:
    """Return reports that what a connector brought did not arrive: nothing of it, half of it, all but one token (T36.2)."""
    valid = flight.missing_from(world, number)
    some = dict.fromkeys((valid[0], valid[len(valid) // 2], valid[-1])) if valid else ()
    return [act.Output(number, failed=True, valid=tokens) for tokens in some]


def may_begin(world: World) -> bool:
    """Tell whether a plan may be opened: fewer steps are in flight than may be (T0)."""
    return len(world.steps) < world.config.max_steps_in_flight


def _submits(world: World, limits: Limits) -> list[Action]:
    if len(world.requests) >= limits.max_live:
        return []
    number = prompts.free_id(world)
    distinct = list(dict.fromkeys(prompts.around(world, limits)))
    if len(distinct) > limits.submits:
        # Keep the resends in front and thin the rest out evenly, so that every length class stays.
        head = limits.submits // 4
        rest = distinct[head:]
        wanted = limits.submits - head
        distinct = distinct[:head] + [rest[at * len(rest) // wanted] for at in range(wanted)]
    found: list[Action] = [act.Submit(number, tokens, context) for tokens, context in distinct]
    if distinct:
        found.append(act.Submit(number, distinct[0][0], distinct[0][1], skip_reading=True))
    return found


def _disturb(world: World) -> list[Action]:
    found: list[Action] = [act.Finish(request.request) for request in world.requests]
    for request in preemptable(world):
        found += preemptions_of(request)
    keyed = [block for block, node in enumerate(world.pool.key_node) if node >= 0]
    found += [act.EvictBlocks((block,)) for block in keyed]
    if len(keyed) > 1:
        found.append(act.EvictBlocks(tuple(keyed[:2])))
    found.append(act.ResetCache())
    if may_begin(world) and not world.requests:
        found.append(act.BeginStep())
    for row in free_rows(world)[-1:]:
        found += appends(world, row)
    return found + host.disturb(world)


def preemptable(world: World) -> list[Request]:
    """Return the running requests that may be preempted now, planned or not (T31).

    All, but while freeing is deferred those without a step whose outputs are all still to come: the blocks of another would not
    become free now.
    """
    running = [request for request in world.requests if request.status is Status.RUNNING]
    if world.config.defer_block_free:
        fenced = {due for step in world.steps if not step.opened for due in step.due}
        return [request for request in running if request.request not in fenced]
    return running


def preemptions_of(request: Request) -> list[Action]:
    """Return the ways to preempt a request that has no amount in the open plan: with a late output, to be dropped or not."""
    kept: list[Action] = [act.Preempt(request.request)]
    return [*kept, act.Preempt(request.request, drop_stale=True)] if request.in_flight else kept


def withdrawals_of(request: Request) -> list[Action]:
    """Return the ways to withdraw a request from the open plan: with a late output, to be dropped or not."""
    kept: list[Action] = [act.Withdraw(request.request)]
    return [*kept, act.Withdraw(request.request, drop_stale=True)] if request.in_flight else kept


def free_rows(world: World) -> list[int]:
    """Return the rows that no request owns and that no dispatched step still reads."""
    busy = {entry.row for step in world.steps if step.part < len(world.config.parts) for entry in step.scheduled}
    return [row for row, owner in enumerate(world.worker.owners) if owner == NONE and row not in busy]


def room(world: World, group: int, row: int) -> int:
    """Return how many more manager blocks a row takes in a group (2.5)."""
    capacity, factor = world.config.row_capacity[group], world.config.append_expansion
    return (capacity - len(world.worker.rows[group][row])) // factor


def block_ids(world: World, count: int) -> tuple[int, ...]:
    """Return ``count`` block ids in turn, the null block left out where there are others."""
    last = world.config.num_blocks - 1
    turn = tuple(range(1, last + 1)) or (0,)
    return (turn * (count // len(turn) + 1))[:count]


def appends(world: World, row: int) -> list[Action]:
    """Return appends that fit a free row: one id everywhere, one group alone, and each group filled to its end."""
    groups = range(len(world.config.groups))
    rooms = [room(world, group, row) for group in groups]
    shapes = [tuple(min(1, left) for left in rooms)]
    shapes += [tuple(min(2, rooms[g]) if g == group else 0 for g in groups) for group in groups]
    shapes.append(tuple(rooms))
    return [
        act.AppendRows(row, tuple(block_ids(world, count) for count in shape)) for shape in dict.fromkeys(shapes) if any(shape)
    ]


# --- in a plan ----------------------------------------------------------------------------------------------------


def waiting(world: World) -> list[Request]:
    """Return the requests that may be looked up in the open plan (T0 part 3).

    One whose late output is still to be delivered is not: resumed now, it could sample the same position again (T37.1). Nor is
    one that waits for a load, or behind it: it has its blocks.
    """
    if world.plan.preempted:
        return []
    return [
        request
        for request in world.requests
        if request.status in (Status.WAITING, Status.PREEMPTED) and not request.loaded and not flight.owes_output(request)
    ]


def scheduled(world: World) -> set[int]:
    """Return the requests that have an amount in the open plan."""
    return {entry.request for entry in world.plan.scheduled}


def unscheduled(world: World) -> list[Request]:
    """Return the running requests without an amount in the open plan."""
    taken = scheduled(world)
    return [request for request in world.requests if request.status is Status.RUNNING and request.request not in taken]


def rows_left(world: World) -> bool:
    """Tell whether one more request may run (3.6)."""
    return sum(request.status is Status.RUNNING for request in world.requests) < world.config.max_running


def _planning(world: World, limits: Limits) -> list[Action]:
    config = world.config
    found: list[Action] = []
    if world.phase is Phase.PLAN_RUNNING:
        for request in unscheduled(world):
            found += kept_free(continuations(config, request, limits), limits)
    found += host.planning(world, limits, waiting(world), rows_left(world))
    hit = world.hit
    if hit is not None and rows_left(world):
        request = next(live for live in world.requests if live.request == hit.request)
        found += kept_free(first_allocations(config, request, hit, limits), limits)
    if hit is not None and hit.diverged:
        found.append(act.Lookup(hit.request, common=True))
    found += [act.Lookup(request.request) for request in waiting(world) if hit is None or request.request != hit.request]
    return found


def kept_free(allocations: list[Action], limits: Limits) -> list[Action]:
    """Return allocations, and of the first and the last one those that leave blocks free for others (T16.4)."""
    ends = dict.fromkeys((allocations[0], allocations[-1])) if allocations else ()
    keeping = [
        evolve(action, reserved=count) for action in ends if isinstance(action, act.Allocate) for count in limits.reserved[1:]
    ]
    return [*allocations, *keeping]


def continuations(config: Config, request: Request, limits: Limits) -> list[Action]:
    """Return the allocations of a running request: a chunk of what is known, and with drafts behind it (T16, T36)."""
    found: list[Action] = []
    for extra in limits.lookahead:
        for amount in amounts.amounts(config, request, request.computed):
            found.append(act.Allocate(request.request, amount, lookahead=extra))
        for drafts in draft_choices(amounts.most_drafts(config, request), limits.alphabet):
            found.append(act.Allocate(request.request, 1 + len(drafts), lookahead=extra, drafts=drafts))
    return found


def draft_choices(most: int, alphabet: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return drafts of 1 to ``most`` tokens, for each length some: of one token alone, and of two in turn."""
    found: list[tuple[int, ...]] = []
    for length in range(1, most + 1):
        found += [(token,) * length for token in alphabet]
        found.append(tuple(alphabet[at % len(alphabet)] for at in range(length)))
    return list(dict.fromkeys(found))


def first_allocations(config: Config, request: Request, hit: Hit, limits: Limits) -> list[Action]:
    """Return the admissions of a request that was just looked up, without and with external tokens (T14, T16)."""
    found: list[Action] = []
    if not hit.diverged:
        found += [
            act.Allocate(request.request, amount, local=hit.local, lookahead=extra, full_sequence=gate)
            for gate in limits.gates
            for amount in amounts.amounts(config, request, hit.local)
            for extra in limits.lookahead
        ]
        for drafts in draft_choices(amounts.most_padding(config, request, hit.local), limits.alphabet):
            found.append(act.Allocate(request.request, 1 + len(drafts), local=hit.local, drafts=drafts))
    if limits.external:
        for local in amounts.adoptable(config, hit):
            for external in amounts.external_amounts(config, request, local, hit.local - local):
                found += [
                    act.Allocate(request.request, amount, local=local, external=external, full_sequence=limits.gates[-1])
                    for amount in amounts.amounts(config, request, local + external)[:2]
                ]
    return found


def _preemptions(world: World) -> list[Action]:
    if world.phase is not Phase.PLAN_RUNNING:
        return []
    taken = scheduled(world)
    found: list[Action] = []
    for request in preemptable(world):
        found += withdrawals_of(request) if request.request in taken else preemptions_of(request)
    return found
