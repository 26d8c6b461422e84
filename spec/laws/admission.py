"""The law of admission into an idle pool: LV-8 (semantics 5.13).

What a request may hold at a time is counted from the groups: windows and chunks are capped by what is read and in flight (2.8).
"""

from __future__ import annotations

from kvproof.core.actions import Allocate
from kvproof.core.config import Config
from kvproof.core.world import Request, World
from kvproof.spec import ground
from kvproof.spec.laws.base import Evidence, Findings, Law, Moment


def most_held(config: Config, group: int, end: int) -> int:
    """Return the most blocks that a request of ``end`` tokens holds in a group at a time, copies left out (2.8, TB-6)."""
    spec, size = config.groups[group], ground.span(config, group)
    in_flight = config.max_chunk * config.max_steps_in_flight
    every = ground.columns(end, size)
    if spec.kind == ground.SLIDING:
        return min(every, ground.columns(min((spec.window or 1) - 1 + in_flight, config.max_model_len), size) + 1)
    if spec.kind == ground.CHUNKED:
        return min(every, ground.columns(min((spec.window or 1) + in_flight, config.max_model_len), size))
    if ground.keeps_snapshots(spec):
        exported = 0 if config.checkpoint_alignment is None else 1
        return 2 + config.max_steps_in_flight * (1 + exported) + spec.speculative_blocks
    return 1 if spec.kind == ground.SCRATCH else every


def alone(world: World, request: Request) -> bool:
    """Tell whether nobody but a request holds a block: no other table, no queued copy, no deferred free (LV-8)."""
    own = {block for state in request.groups for block in state.table if block != ground.NULL}
    busy = {block for block, count in enumerate(world.pool.ref) if count and block != ground.NULL}
    return busy == own and not world.plan.scheduled


def _admitted_when_alone(moment: Moment) -> Findings:
    """LV-8: a request that has the pool to itself is given what it needs, if the most it may hold fits into the pool."""
    action, record, world = moment.action, moment.record, moment.before
    if not isinstance(action, Allocate) or record is None or action.lookahead:
        return None
    request = ground.request_of(world, action.request)
    if request is None or not alone(world, request):
        return None
    config = world.config
    end = min(
        max(request.num_tokens, request.computed + action.local + action.external + action.new_tokens), config.max_model_len
    )
    cached = sum(1 for spec in config.groups if spec.prefix_cacheable)
    needed = sum(most_held(config, group, end) for group in range(len(config.groups)))
    copies = cached if any(state.partial_index >= 0 for state in request.groups) or action.local else 0
    if needed + copies > config.num_blocks - 1:
        return None
    if not record.admitted:
        return [
            Evidence.of(
                "a request that has the pool to itself is refused although all it may hold at a time fits",
                request=request.request,
                most_held=needed,
                blocks=config.num_blocks - 1,
                demand=record.demand,
                free=record.free_before,
            )
        ]
    return ()


LAWS: tuple[Law, ...] = (
    Law(
        id="LV-8",
        mark="C",
        sentence="A request that has the pool to itself is admitted and goes on, if the most that it may hold at a time fits.",
        source="#39734",
        faults=("M-WIN-2",),
        on=(Allocate,),
        check=_admitted_when_alone,
    ),
)
