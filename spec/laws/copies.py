"""Laws of copy-on-write (semantics 5.4)."""

from __future__ import annotations

from collections.abc import Iterator

from kvproof.core.actions import Allocate, Drain, Execute, Lookup, Preempt, RunLoad, Withdraw
from kvproof.core.contents import GARBAGE
from kvproof.core.records import Record
from kvproof.core.world import Scheduled, Step, World
from kvproof.spec import ground, ground_host
from kvproof.spec.laws.base import WRONG_CONTENT, Evidence, Findings, Law, Moment


def _step_at(moment: Moment, *parts: str) -> Step | None:
    """Return the step whose part was just executed, if it is one of ``parts``."""
    action = moment.action
    if moment.record is None or not isinstance(action, Execute) or action.part not in parts:
        return None
    return ground.pending_step(moment.before)


# --- COW-1 ----------------------------------------------------------------------------------------------------------


def _writes(world: World, entry: Scheduled) -> Iterator[tuple[int, int, int, int]]:
    """Yield (group, column, first, last boundary) per block that a scheduled request writes in the forward."""
    end = entry.start + entry.amount
    for group, spec in enumerate(world.config.groups):
        size = ground.span(world.config, group)
        if ground.is_recurrent(spec):
            for column, boundary in ground.states_written(spec, entry):
                yield group, column, boundary, boundary
        elif ground.has_positions(spec):
            for column in range(entry.start // size, ground.columns(end, size)):
                first, last = max(entry.start, column * size), min(end, (column + 1) * size)
                yield group, column, first, last


def _owners(world: World, step: Step) -> dict[int, set[int]]:
    """Return who uses each block: live requests by their tables, those of the step also by what their row reaches."""
    owners: dict[int, set[int]] = {}
    for request in world.requests:
        for state in request.groups:
            for block in state.table:
                owners.setdefault(block, set()).add(request.request)
    for entry in step.scheduled:
        for block in ground.used_blocks(world, entry):
            owners.setdefault(block, set()).add(entry.request)
    return owners


def _writes_own_blocks(moment: Moment) -> Findings:
    step = _step_at(moment, "forward")
    if step is None or not step.scheduled:
        return None
    world = moment.before
    owners = _owners(world, step)
    keys: dict[int, list[tuple[int, int]]] = {}
    for node, group, _, block in world.pool.entries:
        keys.setdefault(block, []).append((node, group))
    found = []
    for entry in step.scheduled:
        mine = ground.lineage(world.prefixes, entry.tip)
        if entry.pending:
            continue  # nobody takes its output (CC-2), and where it writes only the missing one could tell
        for group, column, first, last in _writes(world, entry):
            block = ground.row_block(world, group, entry.row, column)
            if block <= ground.NULL:
                found.append(Evidence.of("a request writes into no block", request=entry.request, group=group, position=first))
                continue
            others = owners[block] - {entry.request}
            if _gave_up(world, entry, group, block):
                others = {other for other in others if any(other == known.request for known in step.scheduled)}
                others = {other for other in others if block in _used_by(world, step, other)}
            others = {other for other in others if not _waits_for(world, step, other, (group, column, last), mine[last])}
            if others:
                found.append(
                    Evidence.of(
                        "a request writes into a block that others hold",
                        request=entry.request,
                        group=group,
                        block=block,
                        others=sorted(others),
                    )
                )
            for node, keyed in keys.get(block, ()):
                claim = ground.lineage(world.prefixes, node)
                if _invalidates(world, group, claim, mine, first, last) and not _kept_later(world, step, (keyed, block), claim):
                    found.append(
                        Evidence.of(
                            "a request overwrites what a key of the block claims",
                            request=entry.request,
                            group=group,
                            block=block,
                            key=node,
                            boundary=len(claim) - 1,
                            written=(first, last),
                        )
                    )
    return found


def _gave_up(world: World, entry: Scheduled, group: int, block: int) -> bool:
    """Tell whether the writer no longer holds the block: freed since the dispatch, it may already stand in the table of a
    request whose first step runs later.
    """
    request = ground.request_of(world, entry.request)
    return request is None or block not in request.groups[group].table


def _used_by(world: World, step: Step, request: int) -> set[int]:
    return {block for entry in step.scheduled if entry.request == request for block in ground.used_blocks(world, entry)}


def _waits_for(world: World, step: Step, other: int, place: tuple[int, int, int], node: int) -> bool:
    """Tell whether another holder adopted the block for exactly what is written: its whole tokens, or the state.

    Keys are visible at planning (7.3), so a block may be adopted before its producer's forward has run: an attention block
    in the very same step (the producer's keys and values are written first), a state in a later one.
    """
    group, column, last = place
    recurrent = ground.is_recurrent(world.config.groups[group])
    stop = last if recurrent else (column + 1) * ground.span(world.config, group)
    later = [known for known in world.steps if known is not step and known.part == 0]
    admissions = [
        *(() if recurrent else step.scheduled),
        *(entry for known in later for entry in known.scheduled),
        *world.plan.scheduled,
    ]
    for entry in admissions:
        if entry.request != other or not entry.fresh or entry.loaded:
            continue
        request = ground.request_of(world, other)
        path = ground.lineage(world.prefixes, entry.tip if entry.tip >= 0 or request is None else request.tip)
        reached = entry.loaded_from == stop if recurrent else stop <= entry.loaded_from
        if reached and node in path[: stop + 1]:
            return True
    return not recurrent and _loads_behind(world, other, stop, node)


def _loads_behind(world: World, other: int, stop: int, node: int) -> bool:
    """Tell whether another holder loads behind local tokens that end at ``stop`` or later, what is written among them (T29)."""
    request, loads = ground.request_of(world, other), () if world.host is None else ground_host.all_loads(world.host)
    path = [] if request is None else ground.lineage(world.prefixes, request.tip)
    return any(load.request == other and stop <= load.start and node in path[: stop + 1] for load in loads)


def _kept_later(world: World, step: Step, place: tuple[int, int], claim: list[int]) -> bool:
    """Tell whether a key of a block was registered by a later plan, for what a later step writes into it.

    With two steps in flight the first one writes a block that the second plan has already keyed for what it adds, or that it
    has given to somebody else: to a request that will write it, or as the copy to which a producer's keys moved.
    """
    group, block = place
    later = [known for known in world.steps if known is not step and known.part < len(ground.parts(world.config))]
    copies = (*world.plan.copies, *(copy for known in later for copy in known.copies))
    if any((of, destination) == (group, block) for of, _, destination in copies):
        return True
    for entry in (*(entry for known in later for entry in known.scheduled), *world.plan.scheduled):
        request = ground.request_of(world, entry.request)
        held = request.groups[group].table if request is not None else ()
        tip = entry.tip if entry.tip >= 0 or request is None else request.tip
        path, depth = ground.lineage(world.prefixes, tip), len(claim) - 1
        in_row = entry.row >= 0 and any(
            ground.row_block(world, group, entry.row, column) == block for column in range(_width(world, group, entry.row))
        )
        if (block in held or in_row) and entry.loaded_from < depth <= entry.start + entry.amount and claim[-1] in path[depth:]:
            return True
    return False


def _width(world: World, group: int, row: int) -> int:
    return len(world.worker.rows[group][row]) // world.config.append_expansion


def _invalidates(world: World, group: int, claim: list[int], mine: list[int], first: int, last: int) -> bool:
    """Tell whether writing breaks a key: a state must be the claimed one, positions below the claim must agree."""
    if ground.is_recurrent(world.config.groups[group]):
        return claim[-1] != mine[last]
    depth = min(last, len(claim) - 1)
    return depth > first and claim[depth] != mine[depth]


# --- COW-2 to COW-5 -------------------------------------------------------------------------------------------------


def _consumer_copies(moment: Moment) -> Findings:
    step = _step_at(moment, "copy")
    if step is None:
        return None
    world, after = moment.before, moment.after
    judged = False
    found = []
    for entry, group, column in ground.consumers(world, step):
        judged = True
        block = ground.row_block(world, group, entry.row, column)
        request = ground.request_of(after, entry.request)
        gave_up = request is None or ground.is_stale(world, entry, step)
        table = (block,) * (column + 1) if gave_up or request is None else request.groups[group].table
        sources = [source for g, source, destination in step.copies if (g, destination) == (group, block)]
        if len(sources) != 1 or column >= len(table) or table[column] != block:
            found.append(
                Evidence.of(
                    "the entry in which a hit ends does not hold the destination of a copy",
                    request=entry.request,
                    group=group,
                    index=column,
                    row=block,
                    table=table,
                    copies=step.copies,
                )
            )
            continue
        source, copy = world.contents[sources[0]], after.contents[block]
        wrong = _differs(world, group, source, copy, entry.loaded_from)
        if wrong is not None:
            found.append(
                Evidence.of(
                    "a private copy differs from its source below the hit",
                    request=entry.request,
                    group=group,
                    source=sources[0],
                    destination=block,
                    hit=entry.loaded_from,
                    cell=wrong,
                    source_content=source,
                    copy_content=copy,
                )
            )
    return found if judged else None


def _differs(world: World, group: int, source: tuple[int, ...], copy: tuple[int, ...], hit: int) -> int | None:
    """Return a cell below the hit in which two blocks differ; a state is compared on every rank."""
    if not source or not copy:
        return None if source == copy else 0
    if source[0] != copy[0]:
        return 0
    if ground.is_recurrent(world.config.groups[group]):
        wanted = list(range(1, 1 + world.config.dcp_size))
    else:
        where = ground.cells(world.config, group)
        wanted = [cell for inside in range(hit % len(where)) for cell in where[inside]]
    for cell in wanted:
        if cell >= len(source) or cell >= len(copy) or source[cell] != copy[cell]:
            return cell
    return None


def _ends_referenced(moment: Moment) -> Findings:
    if moment.record is None:
        return None
    if isinstance(moment.action, RunLoad) or (isinstance(moment.action, Execute) and moment.action.part == "flush"):
        return _ends_not_loaded(moment)
    if isinstance(moment.action, Execute):
        return _ends_unwritten(moment)
    world = moment.after
    if world.phase not in ground.PLANNING or not world.plan.copies:
        return None
    return [
        Evidence.of("an end of a queued copy has no reference", group=group, source=source, destination=destination, block=end)
        for group, source, destination in world.plan.copies
        for end in (source, destination)
        if world.pool.ref[end] < 1 or end in world.pool.free
    ]


def _ends_not_loaded(moment: Moment) -> Findings:
    """No load writes an end of a copy that a plan or a dispatched step still has to make."""
    world, copy = moment.before, ground.parts(moment.before.config).index("copy")
    steps = [step for step in world.steps if step.part <= copy]
    copies = (*world.plan.copies, *(pair for step in steps for pair in step.copies))
    if not copies:
        return None
    return [
        Evidence.of("a load writes an end of a copy that is still to be made", group=group, block=end)
        for group, source, destination in copies
        for end in (source, destination)
        if world.contents[end] != moment.after.contents[end]
    ]


def _ends_unwritten(moment: Moment) -> Findings:
    """Until a step's copies have run, nothing writes their ends, except that destinations are zeroed."""
    step = _step_at(moment, "zero", "copy")
    if step is None or not step.copies:
        return None
    before, after = moment.before.contents, moment.after.contents
    destinations = {destination for _, _, destination in step.copies}
    zeroing = isinstance(moment.action, Execute) and moment.action.part == "zero"
    found = [
        Evidence.of("the source of a copy was written before the copy was done", group=group, source=source)
        for group, source, _ in step.copies
        if source not in destinations and after[source] != before[source]
    ]
    if zeroing:
        found += [
            Evidence.of("the destination of a copy was written before the copy", group=group, destination=destination)
            for group, _, destination in step.copies
            if after[destination] not in (before[destination], ())
        ]
    return found


def _given_up(world: World, step: Step, entry: Scheduled) -> bool:
    """Tell whether nobody uses the output of a dispatched share any more: its request is gone, or the output is dropped."""
    request = ground.request_of(world, entry.request)
    return request is None or (request.drop_stale and ground.is_stale(world, entry, step))


def _sources_written(moment: Moment) -> Findings:
    step = _step_at(moment, "copy")
    if step is None or not step.copies:
        return None
    world = moment.before
    config = world.config
    judged = False
    found = []
    served: set[tuple[int, int]] = set()
    for entry, group, column in ground.consumers(world, step):
        block = ground.row_block(world, group, entry.row, column)
        served.add((group, block))
        hit = entry.loaded_from
        for g, source, destination in step.copies:
            if (g, destination) != (group, block):
                continue
            path, content = ground.true_path(world, entry), world.contents[source]
            if GARBAGE in content[1:] and _given_up(world, step, entry):
                continue  # the load that the hit goes back to has failed since the step was planned (C-48)
            judged = True
            if ground.is_recurrent(config.groups[group]):
                right = ground.is_state(config, group, content, path[hit])
            else:
                right = ground.misplaced(config, group, content, path, hit - hit % ground.span(config, group), hit) is None
            if not right:
                found.append(
                    Evidence.of(
                        "a copy's source does not hold what the hit promised",
                        request=entry.request,
                        group=group,
                        source=source,
                        destination=destination,
                        hit=hit,
                        content=content,
                    )
                )
    for group, source, destination, node in _promised(world, step, served):
        judged = True
        if not ground.is_state(config, group, world.contents[source], node):
            found.append(
                Evidence.of(
                    "a copy's source does not hold the state that the moved key names",
                    group=group,
                    source=source,
                    destination=destination,
                    key=node,
                    content=world.contents[source],
                )
            )
    return found if judged else None


def _promised(world: World, step: Step, served: set[tuple[int, int]]) -> Iterator[tuple[int, int, int, int]]:
    """Yield (group, source, destination, node) per key on the destination of a producer's copy."""
    for group, source, destination in step.copies:
        if (group, destination) in served or not ground.is_recurrent(world.config.groups[group]):
            continue
        for node, keyed, _, block in world.pool.entries:
            if block == destination and keyed == group:
                yield group, source, destination, node


def _producer_moves(moment: Moment) -> Findings:
    if isinstance(moment.action, Execute):
        return _producer_states(moment)
    action, record = moment.action, moment.record
    if not isinstance(action, Allocate) or record is None or not record.admitted:
        return None
    old = ground.request_of(moment.before, action.request)
    if old is None or not ground.is_admitted(old):
        return None
    judged = False
    found: list[Evidence] = []
    for group in ground.recurrent_groups(moment.before.config):
        state = old.groups[group]
        if state.tail_block > ground.NULL and state.partial_index >= 0:
            judged = True
            found += _moved(moment, group, state.tail_block)
    return found if judged else None


def _moved(moment: Moment, group: int, source: int) -> list[Evidence]:
    """Every key of the source now names the destination of a copy of it, the primary with its token count."""
    before, after = moment.before.pool, moment.after.pool
    queued = [copy for copy in moment.after.plan.copies if copy not in moment.before.plan.copies]
    copies = [destination for g, s, destination in queued if (g, s) == (group, source)]
    if len(copies) != 1:
        return [Evidence.of("a producer's debt is not paid by one copy", group=group, source=source, copies=queued)]
    destination = copies[0]
    keys = [(node, g) for node, g, _, block in before.entries if block == source]
    now = {(node, g, block) for node, g, _, block in after.entries}
    found = [
        Evidence.of(
            "a moved key does not name the copy, or still names the source",
            key=key,
            source=source,
            destination=destination,
        )
        for key in keys
        if (*key, destination) not in now or (*key, source) in now
    ]
    primary = (before.key_node[source], before.key_group[source], before.key_tokens[source])
    moved = (after.key_node[destination], after.key_group[destination], after.key_tokens[destination])
    if moved != primary:
        found.append(Evidence.of("the primary key changed in a move", source=source, before=primary, after=moved))
    return found


def _producer_states(moment: Moment) -> Findings:
    step = _step_at(moment, "copy")
    if step is None or not step.copies:
        return None
    world = moment.before
    served = {
        (group, ground.row_block(world, group, entry.row, column)) for entry, group, column in ground.consumers(world, step)
    }
    judged = False
    found = []
    for group, source, destination, node in _promised(world, step, served):
        judged = True
        if not ground.is_state(world.config, group, moment.after.contents[destination], node):
            found.append(
                Evidence.of(
                    "the copy a producer published does not hold the state its key names",
                    group=group,
                    source=source,
                    destination=destination,
                    key=node,
                    content=moment.after.contents[destination],
                )
            )
    return found if judged else None


# --- COW-7 -----------------------------------------------------------------------------------------------------------


def _separate_copies(moment: Moment) -> Findings:
    record: Record | None = moment.record
    if record is None:
        return None
    copies = record.copies if isinstance(moment.action, Drain) else moment.after.plan.copies
    if not copies:
        return None
    destinations = [destination for _, _, destination in copies]
    sources = {source for _, source, _ in copies}
    found = []
    if len(set(destinations)) != len(destinations):
        found.append(Evidence.of("two copies of a step have the same destination", copies=copies))
    if sources.intersection(destinations):
        found.append(
            Evidence.of(
                "a block is source and destination in one step",
                copies=copies,
                blocks=sorted(sources.intersection(destinations)),
            )
        )
    return found


LAWS: tuple[Law, ...] = (
    Law(
        "COW-1",
        "S",
        "A request writes only into blocks that it alone holds and never under a key whose claim the write breaks.",
        "vLLM 0.33.0",
        ("M-COW-1", "M-SPEC-4"),
        on=(Execute,),
        check=_writes_own_blocks,
        bent_by=(("withdrawn_keys", "keep"), ("lagging_groups", "any"), ("padded_admission", "any")),
    ),
    Law(
        "COW-2",
        "S",
        "The entry in which a hit ends holds a private copy, equal to its source below the hit on every rank.",
        "#50493",
        ("M-COW-2", "M-COW-10"),
        on=(Execute,),
        check=_consumer_copies,
        bent_by=(("copy_source_guard", "recurrent"),),
    ),
    Law(
        "COW-3",
        "S",
        "Both ends of a queued copy are referenced until the drain, and nothing but the copy writes them before it ran.",
        "vLLM 0.33.0",
        ("M-COW-5",),
        on=(Lookup, Allocate, Preempt, Withdraw, Execute, RunLoad),
        check=_ends_referenced,
        bent_by=(("copy_source_guard", "recurrent"),),
    ),
    Law(
        "COW-4",
        "S",
        "When a copy runs, an earlier executed step has written its source up to the boundary that is copied.",
        "vLLM 0.33.0, #29387, #41838",
        ("M-COW-6", "M-COW-11", "M-PRE-1"),
        on=(Execute,),
        check=_sources_written,
        bent_by=WRONG_CONTENT,
    ),
    Law(
        "COW-5",
        "S",
        "A producer's keys move to its copy and leave the source, and the copy then holds the state they name.",
        "vLLM 0.33.0",
        ("M-COW-7",),
        on=(Allocate, Execute),
        check=_producer_moves,
        bent_by=WRONG_CONTENT,
    ),
    Law(
        "COW-7",
        "S",
        "No two copies of a step share a destination, and no destination is a source in the same step.",
        "vLLM 0.33.0",
        ("M-COW-6", "M-COW-11"),
        on=(Allocate, Drain),
        check=_separate_copies,
        bent_by=(("copy_source_guard", "recurrent"),),
    ),
)
