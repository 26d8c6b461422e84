"""The law of what an allocation that owes a copy asks the pool for: COW-6 (semantics 5.4, T17)."""

from __future__ import annotations

from kvproof.core.actions import Allocate
from kvproof.core.config import Group
from kvproof.core.world import Request, World
from kvproof.spec import ground
from kvproof.spec.laws.base import Evidence, Findings, Law, Moment


def _debt_reserved(moment: Moment) -> Findings:
    action, record = moment.action, moment.record
    if not isinstance(action, Allocate) or record is None or action.external:
        return None
    if action.full_sequence and not record.admitted:
        return None  # the gate asks for the whole sequence
    request = ground.request_of(moment.before, action.request)
    if request is None:
        return None
    first = not ground.is_admitted(request)
    debts = _debts(moment.before, request, action)
    hit = ground.hit_of(moment.before, request)
    if not debts or (first and record.demand > len(moment.before.pool.ref) and _awaits_this_step(moment.before, action)):
        return None
    if first and hit is not None and record.demand > len(moment.before.pool.ref):
        if not ground.sources_written(moment.before, hit, request.tip, action.local):
            return None
    lists = hit.lists if first and hit is not None else ((),) * len(moment.before.config.groups)
    expected = debts + _free_adopted(moment.before, lists) + _growth(moment.before, request, action, lists, moment.after)
    found = []
    if record.demand != expected:
        found.append(
            Evidence.of(
                "the demand is not that of the growth, the adopted free blocks and one block per copy owed",
                request=request.request,
                demand=record.demand,
                expected=expected,
                debts=debts,
            )
        )
    queued = len(moment.after.plan.copies) - len(moment.before.plan.copies)
    if record.admitted and queued != debts:
        found.append(Evidence.of("not every debt queued one copy", request=request.request, debts=debts, queued=queued))
    return found


def _debts(world: World, request: Request, action: Allocate) -> int:
    if ground.is_admitted(request):
        return sum(1 for state in request.groups if state.partial_index >= 0)
    return sum(
        1
        for group, spec in enumerate(world.config.groups)
        if spec.prefix_cacheable and action.local % ground.span(world.config, group)
    )


def _awaits_this_step(world: World, action: Allocate) -> bool:
    """Tell whether what the hit ends in is written in this very step: its demand is "never" then (COW-4).

    A state may be registered by this plan; an attention block may be a copy's destination, or stand in the table of a
    scheduled request that starts below the hit.
    """
    if world.hit is None:
        return False
    fresh = {(node, group) for node, group, _ in world.plan.cached}
    filled = {(group, destination) for group, _, destination in world.plan.copies}
    for entry in world.plan.scheduled:
        request = ground.request_of(world, entry.request)
        if request is not None and entry.loaded_from < action.local:
            filled |= {(group, block) for group, state in enumerate(request.groups) for block in state.table}
    for group, spec in enumerate(world.config.groups):
        if not world.hit.lists[group]:
            continue
        last = world.hit.lists[group][-1]
        if ground.is_recurrent(spec):
            if (world.pool.key_node[last], group) in fresh:
                return True
        elif action.local % ground.span(world.config, group) and (group, last) in filled:
            return True
    return False


def _free_adopted(world: World, lists: tuple[tuple[int, ...], ...]) -> int:
    return sum(1 for blocks in lists for block in blocks if block != ground.NULL and world.pool.ref[block] == 0)


def _growth(world: World, request: Request, action: Allocate, lists: tuple[tuple[int, ...], ...], after: World) -> int:
    """Count the blocks that new columns take; drafts are among the new tokens, slots of the lookahead are not computed."""
    config = world.config
    end = min(request.computed + action.local + action.new_tokens, config.max_model_len)
    slots = min(end + action.lookahead, config.max_model_len)
    total = 0
    for group, spec in enumerate(config.groups):
        have = len(request.groups[group].table) or len(lists[group])
        if spec.kind == ground.SCRATCH:
            total += max(1 - have, 0)
        elif ground.keeps_snapshots(spec):
            reserved = _reserved(after, request.request, group)
            drafts = sum(len(share.drafts) for _, share in ground.shares(world, request.request))
            total += new_states(spec, have, end, reserved, drafts if ground.is_admitted(request) else None)
        else:
            needed = ground.columns(slots if ground.has_positions(spec) else end, ground.span(config, group))
            total += max(needed - have, 0)
    return total


def _reserved(world: World, request: int, group: int) -> int:
    """Return 1 if the demand reserved a column for an internal checkpoint (T38)."""
    known = ground.request_of(world, request)
    return int(known is not None and known.groups[group].checkpoint_column >= 0)


def new_states(spec: Group, have: int, end: int, reserved: int, drafts: int | None) -> int:
    """Count the blocks that a Mamba-align group takes to end at ``end`` tokens, walking over the columns (T21).

    The running column, the speculative ones behind it and a reserved one before it want blocks; the columns before them
    stay null. Speculative blocks that are left behind move up and save new ones: in a running request (``drafts`` is None
    in another one) those before the column that is the running one if all drafts in flight are rejected.
    """
    last = ground.column_of_state(end, spec.block_size)
    if last + spec.speculative_blocks < have and not reserved:
        return 0
    wanted = [column for column in range(have, last + spec.speculative_blocks + 1) if column >= last - reserved]
    if drafts is None:
        return len(wanted)
    settled = ground.column_of_state(end - drafts, spec.block_size)
    spare = [column for column in range(max(have - spec.speculative_blocks, 0), have) if column < settled - reserved]
    return max(len(wanted) - len(spare), 0)


LAWS: tuple[Law, ...] = (
    Law(
        "COW-6",
        "D",
        "A copy that is owed adds exactly one block to the demand of the step that pays it.",
        "vLLM 0.33.0",
        ("M-COW-8",),
        on=(Allocate,),
        check=_debt_reserved,
    ),
)
