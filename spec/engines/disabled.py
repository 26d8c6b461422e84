"""What must be refused in a world: each action breaks one precondition of the semantics (see ``enabled``).

With each attempt stand the refusals that fit it: where an action breaks several preconditions, any of theirs.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvproof.core import actions as act
from kvproof.core import errors
from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.errors import Refusal
from kvproof.core.world import Hit, Phase, Request, Status, World
from kvproof.spec.engines import amounts, enabled, flight, host_refused, prompts
from kvproof.spec.engines.amounts import Limits
from kvproof.spec.engines.host_refused import UNKNOWN, Attempt

ODD = 9
"""A token that no engine hands out."""

_PLANNING = (Phase.PLAN_RUNNING, Phase.PLAN_WAITING)
_PHASES: dict[type[Action], tuple[Phase, ...]] = {
    act.Submit: (Phase.IDLE,),
    act.BeginStep: (Phase.IDLE,),
    act.Lookup: _PLANNING,
    act.Allocate: _PLANNING,
    act.Preempt: (Phase.IDLE, Phase.PLAN_RUNNING),
    act.Withdraw: (Phase.PLAN_RUNNING,),
    act.Drain: _PLANNING,
    act.BuildMetadata: (Phase.DRAINED,),
    act.Dispatch: (Phase.BUILT,),
    act.Execute: tuple(Phase),
    act.Output: (Phase.IDLE,),
    act.Finish: (Phase.IDLE,),
    act.ResetCache: (Phase.IDLE,),
    act.EvictBlocks: (Phase.IDLE,),
    act.AppendRows: (Phase.IDLE,),
}
"""When each action may come at all (T0)."""


def disabled(world: World, limits: Limits) -> list[Action]:
    """Return actions that must be refused with a typed error that is not internal, and that change nothing.

    Each breaks one precondition of the semantics: phase, id, status, order, alignment, amount or capacity.
    """
    return [action for action, _ in attempts(world, limits)]


def attempts(world: World, limits: Limits) -> list[Attempt]:
    """Return the actions of :func:`disabled`, each with the refusals that fit it."""
    found = [*_out_of_phase(world), *_unknown(world), *_bad_execution(world)]
    if world.phase is Phase.IDLE:
        found += [*_bad_preemptions(world), *_bad_submits(world), *_bad_outputs(world, limits), *_bad_rows(world)]
        if not enabled.may_begin(world):
            found.append((act.BeginStep(), (errors.StepInFlight,)))
    elif world.phase in _PLANNING:
        found += _bad_planning(world)
    return found + host_refused.attempts(world)


def _out_of_phase(world: World) -> list[Attempt]:
    """Every action that may not come now, for the requests that there are (T0)."""
    found: list[Action] = [act.BeginStep(), act.Submit(UNKNOWN, (0,)), act.ResetCache(), act.EvictBlocks((1,))]
    found += [act.Drain(), act.BuildMetadata(), act.Dispatch()]
    found.append(act.AppendRows(0, ((),) * len(world.config.groups)))
    found += [act.Output(number) for number in flight.outputs_due(world)]
    found += [act.Finish(request.request) for request in world.requests[:1]]
    for request in world.requests:
        number = request.request
        found += [act.Lookup(number), act.Allocate(number, 1), act.Preempt(number), act.Withdraw(number)]
    return [(action, (errors.PhaseError,)) for action in found if world.phase not in _PHASES[type(action)]]


def _unknown(world: World) -> list[Attempt]:
    """Requests that nobody submitted, and a part that no step has."""
    unknown: dict[Action, type[Refusal]] = {
        act.Lookup(UNKNOWN): errors.AdmissionAfterPreemption if world.plan.preempted else errors.UnknownRequest,
        act.Allocate(UNKNOWN, 1): errors.UnknownRequest,
        act.Preempt(UNKNOWN): errors.UnknownRequest,
        act.Withdraw(UNKNOWN): errors.UnknownRequest,
        act.Finish(UNKNOWN): errors.UnknownRequest,
        act.Output(UNKNOWN, (0,)): _not_due(world),
        act.Execute("nothing"): errors.ExecutionOrder,
    }
    return [(action, (why if world.phase in _PHASES[type(action)] else errors.PhaseError,)) for action, why in unknown.items()]


def _not_due(world: World) -> type[Refusal]:
    """Return the refusal of an output that is not due: of a request, or of every one as long as the step is not executed."""
    executed = bool(world.steps) and world.steps[0].part == len(world.config.parts)
    return errors.NotScheduled if executed else errors.ExecutionOrder


# --- between plans ------------------------------------------------------------------------------------------------


def _bad_preemptions(world: World) -> list[Attempt]:
    legal = enabled.preemptable(world)
    found: list[Attempt] = []
    for request in world.requests:
        if request not in legal:
            why = errors.VictimInFlight if request.status is Status.RUNNING else errors.StatusError
            found.append((act.Preempt(request.request), (why,)))
            found.append((act.Preempt(request.request, drop_stale=True), (why,)))
    return found


def _bad_submits(world: World) -> list[Attempt]:
    free = prompts.free_id(world)
    known = sorted(prompts.mentioned(world))
    found: list[Attempt] = [(act.Submit(number, (0,)), (errors.DuplicateRequest,)) for number in known]
    overlong = (0,) * world.config.max_model_len
    negative = (act.Submit(-1, (0,)), act.Submit(free, (-1,)), act.Submit(free, (0,), context=-1))
    found += [(action, (errors.NegativeNumber,)) for action in negative]
    return [*found, *((act.Submit(free, tokens), (errors.EmptyPrompt,)) for tokens in ((), overlong))]


def _bad_execution(world: World) -> list[Attempt]:
    """Parts out of order, of a step that has none left, or before an output that they need."""
    due, part = flight.due_part(world), flight.next_part(world)
    return [
        (act.Execute(name), (errors.OutputPending if name == due else errors.ExecutionOrder,))
        for name in world.config.parts
        if name != part
    ]


def _bad_outputs(world: World, limits: Limits) -> list[Attempt]:
    due = flight.outputs_due(world)
    later = [number for step in world.steps for number in step.due if number not in due]
    others = [request.request for request in world.requests if request.request not in due]
    found: list[Attempt] = [(act.Output(number), (_not_due(world),)) for number in dict.fromkeys((*others, *later))]
    for number in due:
        found += _bad_failures(world, number)
        request = flight.live(world, number)
        # What a request brings that is gone, or whose late output is to be dropped, is not looked at (T36.3, T36.4).
        if request is not None and not (request.stale and request.drop_stale):
            found += [(action, (errors.OutputMismatch,)) for action in _bad_deliveries(world, number, limits)]
    return found


def _bad_failures(world: World, number: int) -> list[Attempt]:
    """Failed loads with too few or too many valid tokens, of a chunk that had none brought, or behind an output (T36.2)."""
    if not world.config.children:
        return []
    share = flight.due_share(world, number)
    some = (share.loaded_from - 1, share.loaded_from, share.start)
    legal = flight.missing_from(world, number)
    return [
        (act.Output(number, failed=True, valid=valid), (errors.OutputMismatch,))
        for valid in dict.fromkeys(some)
        if valid not in legal
    ]


def _bad_deliveries(world: World, number: int, limits: Limits) -> list[Action]:
    """Too few tokens, too many, or others than the drafts before the last one (T36)."""
    most, drafts = flight.most_delivered(world, number), flight.due_share(world, number).drafts
    first = limits.alphabet[0]
    longest = [*drafts[:most], *(first,) * max(most - len(drafts), 0)]
    found: list[Action] = [act.Output(number, (*longest, first))]
    if most > 0:
        found.append(act.Output(number))
    if most > 1:
        other = next((token for token in limits.alphabet if token != drafts[0]), ODD)
        found.append(act.Output(number, (other, first)))
        found.append(act.Output(number, (*drafts[: most - 2], ODD, first)))
    return found


def _bad_rows(world: World) -> list[Attempt]:
    config = world.config
    nothing = ((),) * len(config.groups)
    last = config.num_blocks
    out = (errors.BlockOutOfRange,)
    free, rows = enabled.free_rows(world), range(-1, len(world.worker.owners) + 1)
    found: list[Attempt] = [(act.EvictBlocks((-1,)), out), (act.EvictBlocks((1 % last, last)), out)]
    found += [(act.AppendRows(row, nothing), (errors.RowInUse,)) for row in rows if row not in free]
    for row in free[:1]:
        found += [(act.AppendRows(row, nothing[1:]), out), (act.AppendRows(row, ((last,), *nothing[1:])), out)]
        found.append((act.AppendRows(row, (*nothing[1:], (-1,))), out))
        found += [(action, (errors.RowCapacityExceeded,)) for action in overlong(world, row)]
    return found


def overlong(world: World, row: int) -> list[Action]:
    """One block too many: in one group alone, in one while the others take one, and in all."""
    groups = range(len(world.config.groups))
    rooms = [enabled.room(world, group, row) for group in groups]
    shapes = [tuple(rooms[g] + 1 if g == group else 0 for g in groups) for group in groups]
    shapes += [tuple(rooms[g] + 1 if g == group else min(1, rooms[g]) for g in groups) for group in groups]
    shapes.append(tuple(left + 1 for left in rooms))
    return [act.AppendRows(row, tuple(enabled.block_ids(world, count) for count in shape)) for shape in dict.fromkeys(shapes)]


# --- in a plan ----------------------------------------------------------------------------------------------------


def _bad_planning(world: World) -> list[Attempt]:
    found: list[Attempt] = []
    taken = enabled.scheduled(world)
    for request in world.requests:
        number = request.request
        found += _bad_lookups(world, request)
        if world.phase is Phase.PLAN_RUNNING:
            found += _bad_victims(world, request, number in taken)
        if number in taken:
            found.append((act.Allocate(number, 1), (errors.AlreadyScheduled,)))
        elif request.status is Status.RUNNING:
            found += _bad_running(world, request)
        elif request.loaded:
            found += _bad_loaded(world, request)
        elif request.status is Status.LOADING:
            continue
        elif world.hit is not None and world.hit.request == number:
            found += _bad_first(world, request, world.hit)
        else:
            found.append((act.Allocate(number, 1), (errors.LookupMissing,)))
    return found


def _bad_lookups(world: World, request: Request) -> list[Attempt]:
    """Requests that run, load or wait behind a load, that owe an output, or that wait while this plan preempted somebody."""
    if world.plan.preempted:
        why: type[Refusal] = errors.AdmissionAfterPreemption
    elif request.status is Status.RUNNING or request.loaded:
        why = errors.StatusError
    elif request.status is Status.LOADING:
        why = errors.LoadRunning
    elif flight.owes_output(request):
        why = errors.StaleOutput
    else:
        return []
    return [(act.Lookup(request.request), (why,)), (act.Lookup(request.request, common=True), (why,))]


def _bad_victims(world: World, request: Request, taken: bool) -> list[Attempt]:
    """Preempting what is planned, withdrawing what is not, and either while its blocks would not become free."""
    preempt, withdraw = act.Preempt(request.request), act.Withdraw(request.request)
    if request.status is not Status.RUNNING:
        return [(preempt, (errors.StatusError,)), (withdraw, (errors.StatusError,))]
    found: list[Attempt] = [(preempt, (errors.AlreadyScheduled,)) if taken else (withdraw, (errors.NotScheduled,))]
    if request in enabled.preemptable(world):
        return found
    fence = (errors.VictimInFlight,)
    return [*found, (withdraw, fence) if taken else (preempt, fence)]


def ends(some: tuple[int, ...]) -> tuple[int, ...]:
    """Return the two smallest and the largest of some amounts, so that no end is left out and lists stay short."""
    return some if len(some) <= 3 else (*some[:2], some[-1])


def unclipped(config: Config, request: Request, start: int) -> tuple[int, ...]:
    """Return amounts within the known tokens that no wanted amount is clipped to, and one beyond what a step holds."""
    left = amounts.end_of(config, request) - start
    legal = {amounts.chunk(config, request, start, wanted) for wanted in range(1, min(left, config.max_chunk) + 1)}
    return tuple(amount for amount in range(1, left + 1) if amount not in legal)


def _bad_running(world: World, request: Request) -> list[Attempt]:
    config, number = world.config, request.request
    if world.phase is not Phase.PLAN_RUNNING:
        return [(act.Allocate(number, 1), (errors.PhaseError,))]
    # Drafts whose output is not processed are computed beyond what is known.
    unit, left = config.scheduler_block_size, max(amounts.end_of(config, request) - request.computed, 0)
    nothing, mismatch = (errors.NothingToAllocate,), (errors.LookupMismatch,)
    found: list[Attempt] = [(act.Allocate(number, 0), nothing), (act.Allocate(number, -1), nothing)]
    found.append((act.Allocate(number, 1, lookahead=-1), nothing))
    if config.children:
        found.append((act.Allocate(number, 1, reserved=-1), nothing))
    found.append((act.Allocate(number, left + 1), (errors.BeyondKnownTokens, errors.BeyondModelLength)))
    found += [(act.Allocate(number, 1, local=unit), mismatch), (act.Allocate(number, 1, external=unit), mismatch)]
    for amount in ends(unclipped(config, request, request.computed)):
        found.append((act.Allocate(number, amount), (errors.ChunkNotClipped,)))
    return found + _bad_drafts(config, request, left)


def _bad_drafts(config: Config, request: Request, left: int) -> list[Attempt]:
    """Drafts before the end of what is known, without a token before them, or more than drafter, step or model length give."""
    number, most = request.request, amounts.most_drafts(config, request)
    many, start = config.num_draft_tokens + 1, request.computed
    found: list[Attempt] = [(act.Allocate(number, left + many, drafts=(0,) * many), (errors.TooManyDrafts,))]
    if not config.num_draft_tokens:
        return found
    if most:
        found.append((act.Allocate(number, 1, drafts=(0,)), (errors.MisplacedDrafts,)))
        found.append((act.Allocate(number, 2, drafts=(-1,)), (errors.NothingToAllocate,)))
        gap = (errors.BeyondKnownTokens, errors.BeyondModelLength)
        found.append((act.Allocate(number, 2 + most, drafts=(0,) * most), gap))
    elif left > 1:
        found.append((act.Allocate(number, left, drafts=(0,)), (errors.MisplacedDrafts,)))
    reach = config.max_model_len - start - 1
    if left == 1 and reach < config.num_draft_tokens:
        found.append((act.Allocate(number, 2 + reach, drafts=(0,) * (reach + 1)), (errors.BeyondModelLength,)))
    if left == 1 and config.max_chunk <= min(config.num_draft_tokens, reach):
        drafts = (0,) * config.max_chunk
        found.append((act.Allocate(number, 1 + config.max_chunk, drafts=drafts), (errors.ChunkNotClipped,)))
    return found


def _bad_loaded(world: World, request: Request) -> list[Attempt]:
    """Behind a completed load nothing is adopted, and the chunk is split as any other (T30)."""
    number, unit = request.request, world.config.scheduler_block_size
    if world.plan.preempted:
        return [(act.Allocate(number, 1), (errors.AdmissionAfterPreemption,))]
    if not enabled.rows_left(world):
        return [(act.Allocate(number, 1), (errors.TooManyRunning,))]
    left, mismatch = request.num_tokens - request.computed, (errors.LookupMismatch,)
    found: list[Attempt] = [(act.Allocate(number, 0), (errors.NothingToAllocate,))]
    found.append((act.Allocate(number, left + 1), (errors.BeyondKnownTokens, errors.BeyondModelLength)))
    found += [(act.Allocate(number, 1, local=unit), mismatch), (act.Allocate(number, 1, external=unit), mismatch)]
    for amount in ends(unclipped(world.config, request, request.computed)):
        found.append((act.Allocate(number, amount), (errors.ChunkNotClipped,)))
    return found


def _bad_first(world: World, request: Request, hit: Hit) -> list[Attempt]:
    config, number, local = world.config, request.request, hit.local
    left, unit = request.num_tokens - local, config.hash_block_size
    if not enabled.rows_left(world):
        return [(act.Allocate(number, max(left, 1), local=local), (errors.TooManyRunning,))]
    nothing = (errors.NothingToAllocate,)
    # A divergent hit without external tokens is refused whatever else is wrong with it.
    diverged = (errors.DivergedHit,) if hit.diverged else ()
    mismatch = diverged or (errors.LookupMismatch,)
    found: list[Attempt] = [
        (act.Allocate(number, 0, local=local), nothing),
        (act.Allocate(number, 1, local=local, external=-1), nothing),
        (act.Allocate(number, left + 1, local=local), diverged or (errors.BeyondKnownTokens,)),
        (act.Allocate(number, 1, local=local + unit), mismatch),
    ]
    if hit.diverged:
        found += [(act.Allocate(number, amount, local=local), diverged) for amount in (1, left) if amount > 0]
    if local:
        found.append((act.Allocate(number, 1, local=local - 1), mismatch))
    for amount in ends(unclipped(config, request, local)):
        found.append((act.Allocate(number, amount, local=local), diverged or (errors.ChunkNotClipped,)))
    return found + _bad_external(config, request, hit)


def _bad_external(config: Config, request: Request, hit: Hit) -> list[Attempt]:
    """External tokens behind a hit that ends inside a block, that are no multiple of A, or that leave nothing to compute."""
    number, unit = request.request, config.hash_block_size
    misaligned = (errors.MisalignedExternal,)
    aligned = amounts.adoptable(config, hit)[0]
    rest = request.num_tokens - aligned
    found: list[Attempt] = []
    if hit.local % config.scheduler_block_size:
        found.append((act.Allocate(number, 1, local=hit.local, external=unit), misaligned))
    if unit > 1 and rest > 1:
        found.append((act.Allocate(number, 1, local=aligned, external=1), misaligned))
    if config.alignment > unit and rest > unit:
        found.append((act.Allocate(number, 1, local=aligned, external=unit), misaligned))
    tail = hit.local - aligned
    if tail and rest > tail:
        found.append((act.Allocate(number, 1, local=aligned, external=tail), (errors.ShortExternal,)))
    whole = -(-rest // config.alignment) * config.alignment
    too_long = (errors.HitTooLong if config.recurrent else errors.BeyondKnownTokens,)
    found.append((act.Allocate(number, 1, local=aligned, external=whole), too_long))
    return found


def pick(actions: Sequence[Action], at: int) -> Action:
    """Return one action of a list by any non-negative number, so that every draw is legal."""
    return actions[at % len(actions)]
