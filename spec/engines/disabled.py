"""What must be refused in a world: each action breaks one precondition of the semantics (see ``enabled``)."""

from __future__ import annotations

from collections.abc import Sequence

from kvproof.core import actions as act
from kvproof.core import execute
from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.world import NONE, Hit, Phase, Request, Status, World
from kvproof.spec.engines import enabled
from kvproof.spec.engines.enabled import Limits

UNKNOWN = 97
"""A request id that no engine hands out."""


def disabled(world: World, limits: Limits) -> list[Action]:
    """Return actions that must be refused with a typed error that is not internal, and that change nothing.

    Each breaks one precondition of the semantics: phase, id, status, order, alignment, amount or capacity.
    """
    del limits
    found = _unknown(world)
    if world.phase is Phase.IDLE:
        found += [*_not_idle_actions(world), *_bad_submits(world), *_bad_execution(world), *_bad_rows(world)]
        if world.steps:
            found.append(act.BeginStep())
        return found
    found += [act.BeginStep(), act.Submit(UNKNOWN, (0,)), act.ResetCache(), act.EvictBlocks((1,))]
    found += [act.Finish(request.request) for request in world.requests[:1]]
    found.append(act.AppendRows(0, ((),) * len(world.config.groups)))
    planning = world.phase in (Phase.PLAN_RUNNING, Phase.PLAN_WAITING)
    if not planning:
        found.append(act.Drain())
        found += [act.Lookup(request.request) for request in world.requests]
        found += [act.Allocate(request.request, 1) for request in world.requests]
        found += [act.Preempt(request.request) for request in world.requests]
        found += [act.Withdraw(request.request) for request in world.requests]
    if world.phase is not Phase.DRAINED:
        found.append(act.BuildMetadata())
    if world.phase is not Phase.BUILT:
        found.append(act.Dispatch())
    if planning:
        found += _bad_planning(world)
    return found


def _unknown(world: World) -> list[Action]:
    del world
    return [
        act.Lookup(UNKNOWN),
        act.Allocate(UNKNOWN, 1),
        act.Preempt(UNKNOWN),
        act.Withdraw(UNKNOWN),
        act.Finish(UNKNOWN),
        act.Output(UNKNOWN, (0,)),
        act.Execute("nothing"),
    ]


def _not_idle_actions(world: World) -> list[Action]:
    found: list[Action] = [act.Drain(), act.BuildMetadata(), act.Dispatch()]
    resting = enabled.at_rest(world)
    for request in world.requests:
        number = request.request
        found += [act.Lookup(number), act.Allocate(number, 1), act.Withdraw(number)]
        if request not in resting:
            found.append(act.Preempt(number))
    return found


def _bad_submits(world: World) -> list[Action]:
    known = {request.request for request in world.requests}
    for step in world.steps:
        known.update(entry.request for entry in step.scheduled)
    free = enabled.free_id(world)
    found: list[Action] = [act.Submit(number, (0,)) for number in sorted(known)]
    return [*found, act.Submit(free, ()), act.Submit(free, (0,) * world.config.max_model_len)]


def _bad_execution(world: World) -> list[Action]:
    part = enabled.next_part(world)
    found: list[Action] = [act.Execute(name) for name in execute.PARTS if name != part]
    due = enabled.outputs_due(world)
    for request in world.requests:
        if request.request not in due:
            found.append(act.Output(request.request))
            continue
        count = enabled.samples(world, request.request)
        found += [act.Output(request.request, (0,) * wrong) for wrong in (0, 1, 2) if wrong != count]
    return found


def _bad_rows(world: World) -> list[Action]:
    config = world.config
    nothing = ((),) * len(config.groups)
    last = config.num_blocks
    found: list[Action] = [act.EvictBlocks((-1,)), act.EvictBlocks((1 % last, last))]
    found += [act.AppendRows(-1, nothing), act.AppendRows(config.max_running, nothing)]
    found += [act.AppendRows(row, nothing) for row, owner in enumerate(world.worker.owners) if owner != NONE]
    for row in enabled.free_rows(world)[:1]:
        found += [act.AppendRows(row, nothing[1:]), act.AppendRows(row, ((last,), *nothing[1:]))]
        found.append(act.AppendRows(row, (*nothing[1:], (-1,))))
        found += _overlong(world, row)
    return found


def _overlong(world: World, row: int) -> list[Action]:
    """One block too many: in one group alone, in one while the others take one, and in all."""
    groups = range(len(world.config.groups))
    rooms = [enabled.room(world, group, row) for group in groups]
    shapes = [tuple(rooms[g] + 1 if g == group else 0 for g in groups) for group in groups]
    shapes += [tuple(rooms[g] + 1 if g == group else min(1, rooms[g]) for g in groups) for group in groups]
    shapes.append(tuple(left + 1 for left in rooms))
    return [act.AppendRows(row, tuple(enabled.block_ids(world, count) for count in shape)) for shape in dict.fromkeys(shapes)]


def _bad_planning(world: World) -> list[Action]:
    found: list[Action] = []
    taken = enabled.scheduled(world)
    for request in world.requests:
        number = request.request
        running = request.status is Status.RUNNING
        if not running:
            found += [act.Preempt(number), act.Withdraw(number)]
            if world.plan.preempted:
                found.append(act.Lookup(number))
        else:
            found.append(act.Lookup(number))
            found.append(act.Preempt(number) if number in taken else act.Withdraw(number))
        if number in taken:
            found.append(act.Allocate(number, 1))
        elif running:
            found += _bad_running(world, request)
        elif world.hit is not None and world.hit.request == number:
            found += _bad_first(world, request, world.hit)
        else:
            found.append(act.Allocate(number, 1))
    return found


def ends(amounts: tuple[int, ...]) -> tuple[int, ...]:
    """Return the two smallest and the largest of some amounts, so that no end is left out and lists stay short."""
    return amounts if len(amounts) <= 3 else (*amounts[:2], amounts[-1])


def unclipped(config: Config, request: Request, start: int) -> tuple[int, ...]:
    """Return amounts within the known tokens that no wanted amount is clipped to, and one beyond what a step holds."""
    left = request.num_tokens - start
    legal = {enabled.chunk(config, request, start, wanted) for wanted in range(1, min(left, config.max_chunk) + 1)}
    return tuple(amount for amount in range(1, left + 1) if amount not in legal)


def _bad_running(world: World, request: Request) -> list[Action]:
    number, left = request.request, request.num_tokens - request.computed
    if world.phase is not Phase.PLAN_RUNNING:
        return [act.Allocate(number, 1)]
    unit = world.config.scheduler_block_size
    found: list[Action] = [act.Allocate(number, 0), act.Allocate(number, -1), act.Allocate(number, left + 1)]
    found += [act.Allocate(number, 1, local=unit), act.Allocate(number, 1, external=unit)]
    found.append(act.Allocate(number, 1, lookahead=-1))
    return found + [act.Allocate(number, amount) for amount in ends(unclipped(world.config, request, request.computed))]


def _bad_first(world: World, request: Request, hit: Hit) -> list[Action]:
    config = world.config
    number, left = request.request, request.num_tokens - hit.local
    if not enabled.rows_left(world):
        return [act.Allocate(number, max(left, 1), local=hit.local)]
    found: list[Action] = [
        act.Allocate(number, 0, local=hit.local),
        act.Allocate(number, left + 1, local=hit.local),
        act.Allocate(number, 1, local=hit.local + config.hash_block_size),
        act.Allocate(number, 1, local=hit.local, external=-1),
    ]
    if hit.diverged:
        found += [act.Allocate(number, amount, local=hit.local) for amount in (1, left) if amount > 0]
    if hit.local:
        found.append(act.Allocate(number, 1, local=hit.local - 1))
    if hit.local % config.scheduler_block_size:
        found.append(act.Allocate(number, 1, local=hit.local, external=config.hash_block_size))
    aligned = enabled.adoptable(config, hit)[0]
    rest = request.num_tokens - aligned
    if config.hash_block_size > 1 and rest > 1:
        found.append(act.Allocate(number, 1, local=aligned, external=1))
    if config.alignment > config.hash_block_size and rest > config.hash_block_size:
        found.append(act.Allocate(number, 1, local=aligned, external=config.hash_block_size))
    whole = -(-rest // config.hash_block_size) * config.hash_block_size
    found.append(act.Allocate(number, 1, local=aligned, external=whole))
    return found + [act.Allocate(number, amount, local=hit.local) for amount in ends(unclipped(config, request, hit.local))]


def pick(actions: Sequence[Action], at: int) -> Action:
    """Return one action of a list by any non-negative number, so that every draw is legal."""
    return actions[at % len(actions)]
