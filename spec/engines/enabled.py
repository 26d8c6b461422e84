"""What can be done in a world: the list from which every engine draws. ``disabled`` lists what must be refused.

Both are built from the semantics alone (T0, T14, T16, T22, T31, T36, T37, T39), from sizes, statuses and phases, never by
asking a guard of the model: a guard that goes wrong cannot hide here. Chunk ends come from ``naive.chunk_end``. An
action of :func:`enabled` that the model refuses is therefore a violation (LV-9), and so is an action of
``disabled`` that it accepts, answers with an internal error, or lets leave a trace.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from kvproof.core import actions as act
from kvproof.core import execute, prefixes
from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.world import NONE, Hit, Phase, Request, Status, World
from kvproof.spec import naive


@frozen(slots=True)
class Limits:
    """Bounds of generation: live requests, prompt length in tokens, alphabet, contexts, and what else may be drawn.

    ``lookahead`` lists the extra slots an allocation may ask for; ``submits`` bounds the prompts listed per world.
    """

    max_live: int = 3
    max_prompt: int = 31
    alphabet: tuple[int, ...] = (0, 1)
    contexts: tuple[int, ...] = (0, 1)
    external: bool = True
    lookahead: tuple[int, ...] = (0,)
    submits: int = 40


def limits_for(config: Config) -> Limits:
    """Return the limits that fit a configuration: every legal prompt, external tokens if there is a connector."""
    return Limits(
        max_live=min(3, config.max_running),
        max_prompt=config.max_model_len - 1,
        external=bool(config.connectors),
    )


def enabled(world: World, limits: Limits) -> list[Action]:
    """Return legal actions of a world, simplest first: those that carry a step on stand before those that disturb it.

    Deterministic. A refused allocation (``admitted`` False) is a legal action, too.
    """
    if world.phase is Phase.IDLE:
        return [*_step_on(world, limits), *_submits(world, limits), *_disturb(world)]
    if world.phase is Phase.DRAINED:
        return [act.BuildMetadata()]
    if world.phase is Phase.BUILT:
        return [act.Dispatch()]
    return [*_planning(world, limits), act.Drain(), *_preemptions(world)]


# --- sizes --------------------------------------------------------------------------------------------------------


def units(config: Config) -> tuple[int, ...]:
    """Return the sizes in tokens at whose multiples something happens: H, S, every E and every unscaled block size."""
    found = {config.hash_block_size, config.scheduler_block_size, *config.sizes}
    found.update(group.block_size for group in config.groups)
    return tuple(sorted(found))


def lengths(config: Config, limits: Limits) -> tuple[int, ...]:
    """Return the interesting prompt lengths in tokens, ascending: one below, at and above every multiple of a unit."""
    found = {1, limits.max_prompt}
    for unit in units(config):
        for multiple in range(unit, limits.max_prompt + 2, unit):
            found.update((multiple - 1, multiple, multiple + 1))
    return tuple(sorted(n for n in found if 1 <= n <= limits.max_prompt))


def chunk(config: Config, request: Request, start: int, wanted: int) -> int:
    """Return how many of ``wanted`` tokens from ``start`` may be computed in one step, by enumeration (T22)."""
    if not config.recurrent or start >= max(request.num_prompt, request.num_tokens - 1):
        return wanted
    end = naive.chunk_end(
        naive.Clip(
            start=start,
            wanted=wanted,
            num_tokens=request.num_tokens,
            num_prompt=request.num_prompt,
            clip_block=config.clip_block_size,
            hash_block=config.hash_block_size,
            fine=config.fine_grained and config.hash_block_size < config.scheduler_block_size,
            max_chunk=config.max_chunk,
            junction=request.junction,
        )
    )
    if config.profile.clip_stops == "every_group":
        for group in config.recurrent:
            size = config.groups[group].block_size
            edge = next(n for n in range(start, start + size + 1) if n % size == 0)
            if start < edge < end:
                end = edge
    return max(end - start, 0)


def wanted_amounts(config: Config, request: Request, start: int) -> tuple[int, ...]:
    """Return the amounts a scheduler may want from ``start``, everything first: the rest, then small budgets."""
    left = min(request.num_tokens - start, config.max_chunk)
    budgets = [left, *(unit + extra for unit in units(config) for extra in (0, 1)), 1]
    return tuple(dict.fromkeys(budget for budget in budgets if 0 < budget <= left))


def amounts(config: Config, request: Request, start: int) -> tuple[int, ...]:
    """Return the chunk sizes that several wanted amounts are clipped to, without those that skip the step (T22)."""
    chunks = (chunk(config, request, start, wanted) for wanted in wanted_amounts(config, request, start))
    return tuple(dict.fromkeys(amount for amount in chunks if amount > 0))


def external_amounts(config: Config, request: Request, local: int) -> tuple[int, ...]:
    """Return legal external token counts behind ``local``: multiples of A that leave a token to compute (T14, T29)."""
    if local % config.scheduler_block_size:
        return ()
    return tuple(range(config.alignment, request.num_tokens - local, config.alignment))


def adoptable(config: Config, hit: Hit) -> tuple[int, ...]:
    """Return the local prefixes under which external tokens may be adopted: the hit, and the hit cut to S (T14)."""
    cut = hit.local - hit.local % config.scheduler_block_size
    return (hit.local,) if cut == hit.local else (cut,)


# --- prompts ------------------------------------------------------------------------------------------------------


def known_prompts(world: World, count: int = 3) -> list[tuple[tuple[int, ...], int]]:
    """Return (tokens, context) of the deepest ends of the prefix table, the youngest first, at most ``count``."""
    table = world.prefixes
    parents = set(table.parent)
    ends = [node for node in range(len(table.parent) - 1, -1, -1) if node not in parents and table.depth[node] > 0]
    return [spelled(world, node) for node in ends[:count]]


def spelled(world: World, node: int) -> tuple[tuple[int, ...], int]:
    """Return the tokens and the context of a prefix node."""
    table = world.prefixes
    tokens = tuple(table.token[at] for at in prefixes.path(table, node, 0, table.depth[node]))
    return tokens, table.token[prefixes.ancestor(table, node, 0)]


def free_id(world: World) -> int:
    """Return the smallest request id that is neither live nor in a step that is not processed yet (T37)."""
    taken = {request.request for request in world.requests}
    for step in world.steps:
        taken.update(entry.request for entry in step.scheduled)
    return next(number for number in range(len(taken) + 1) if number not in taken)


def _prompts(world: World, limits: Limits) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield prompts: resends, extensions, truncations and branches of known ones, then fresh ones, around boundaries."""
    sizes = lengths(world.config, limits)
    first, other = limits.alphabet[0], limits.alphabet[-1]
    known = [(tokens[: limits.max_prompt], context) for tokens, context in known_prompts(world)]
    for tokens, context in known:
        yield tokens, context
        yield tokens, limits.contexts[0] if context != limits.contexts[0] else limits.contexts[-1]
    for size in sizes:
        yield (first,) * size, limits.contexts[0]
    for tokens, context in known:
        for size in sizes:
            if size < len(tokens):
                yield tokens[:size], context
                branch = first if tokens[size] == other else other
                yield (*tokens[:size], branch, *tokens[size + 1 :]), context
            elif size > len(tokens):
                yield (*tokens, *(other,) * (size - len(tokens))), context
    for size in sizes:
        yield (other,) + (first,) * (size - 1), limits.contexts[0]


def _submits(world: World, limits: Limits) -> list[Action]:
    if len(world.requests) >= limits.max_live:
        return []
    number = free_id(world)
    distinct = list(dict.fromkeys(_prompts(world, limits)))
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


# --- one list per phase -------------------------------------------------------------------------------------------


def next_part(world: World) -> str | None:
    """Return the execute sub-phase that is due, None if no step waits for one (T0)."""
    for step in world.steps:
        if step.part < len(execute.PARTS):
            return execute.PARTS[step.part]
    return None


def outputs_due(world: World) -> tuple[int, ...]:
    """Return the requests whose output may be processed now (T36)."""
    if world.steps and world.steps[0].part == len(execute.PARTS):
        return world.steps[0].due
    return ()


def samples(world: World, request: int) -> int:
    """Return how many tokens the output of a due request carries: none inside a prompt or at the model length (T36)."""
    for live in world.requests:
        if live.request == request:
            ends = [entry.start + entry.amount for entry in world.steps[0].scheduled if entry.request == request]
            if ends[0] != live.num_tokens:
                return 0
            return 1 if live.num_tokens < world.config.max_model_len else 0
    return 0


def _step_on(world: World, limits: Limits) -> list[Action]:
    part = next_part(world)
    if part is not None:
        return [act.Execute(part)]
    found: list[Action] = []
    for request in outputs_due(world):
        if samples(world, request):
            found += [act.Output(request, (token,)) for token in limits.alphabet]
        else:
            found.append(act.Output(request))
    if not world.steps and world.requests:
        found.append(act.BeginStep())
    return found


def _disturb(world: World) -> list[Action]:
    found: list[Action] = [act.Finish(request.request) for request in world.requests]
    found += [act.Preempt(request.request) for request in at_rest(world)]
    keyed = [block for block, node in enumerate(world.pool.key_node) if node >= 0]
    found += [act.EvictBlocks((block,)) for block in keyed]
    if len(keyed) > 1:
        found.append(act.EvictBlocks(tuple(keyed[:2])))
    found.append(act.ResetCache())
    if not world.steps and not world.requests:
        found.append(act.BeginStep())
    for row in free_rows(world)[-1:]:
        found += appends(world, row)
    return found


def at_rest(world: World) -> list[Request]:
    """Return the running requests without tokens in flight, which a reset of the engine may preempt between plans (T31)."""
    return [request for request in world.requests if request.status is Status.RUNNING and not request.in_flight]


def free_rows(world: World) -> list[int]:
    """Return the rows that no request owns."""
    return [row for row, owner in enumerate(world.worker.owners) if owner == NONE]


def room(world: World, group: int, row: int) -> int:
    """Return how many more manager blocks a row takes in a group (2.5)."""
    capacity, factor = world.config.row_capacity[group], world.config.append_expansion
    return (capacity - len(world.worker.rows[group][row])) // factor


def block_ids(world: World, count: int) -> tuple[int, ...]:
    """Return ``count`` block ids in turn, the null block left out where there are others."""
    last = world.config.num_blocks - 1
    return tuple(1 + at % last if last else 0 for at in range(count))


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


def waiting(world: World) -> list[Request]:
    """Return the requests that may be looked up in the open plan (T0 part 3)."""
    if world.plan.preempted:
        return []
    return [request for request in world.requests if request.status is not Status.RUNNING]


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
            for amount in amounts(config, request, request.computed):
                found += [act.Allocate(request.request, amount, lookahead=extra) for extra in limits.lookahead]
    hit = world.hit
    if hit is not None and rows_left(world):
        request = next(live for live in world.requests if live.request == hit.request)
        found += first_allocations(config, request, hit, limits)
    found += [act.Lookup(request.request) for request in waiting(world) if hit is None or request.request != hit.request]
    return found


def first_allocations(config: Config, request: Request, hit: Hit, limits: Limits) -> list[Action]:
    """Return the admissions of a request that was just looked up, without and with external tokens (T14, T16)."""
    found: list[Action] = []
    if not hit.diverged:
        for amount in amounts(config, request, hit.local):
            found += [act.Allocate(request.request, amount, local=hit.local, lookahead=extra) for extra in limits.lookahead]
    if limits.external:
        for local in adoptable(config, hit):
            for external in external_amounts(config, request, local):
                found += [
                    act.Allocate(request.request, amount, local=local, external=external)
                    for amount in amounts(config, request, local + external)[:2]
                ]
    return found


def _preemptions(world: World) -> list[Action]:
    if world.phase is not Phase.PLAN_RUNNING:
        return []
    taken = scheduled(world)
    return [
        act.Withdraw(request.request) if request.request in taken else act.Preempt(request.request)
        for request in world.requests
        if request.status is Status.RUNNING
    ]
