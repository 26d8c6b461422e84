"""Laws of loads from the host tier: family LD (semantics 5.9).

What a load must copy where follows from tokens: ``a`` local ones, a multiple of S, and ``e`` external ones behind them. What it
brought is read off the contents.
"""

from __future__ import annotations

from kvproof.core.actions import Allocate, BuildMetadata, CompleteLoad, Dispatch, Drain, Execute, Finish, ResetHost
from kvproof.core.offload.state import Stage
from kvproof.core.pool import NULL_BLOCK
from kvproof.core.world import Request, Status, World
from kvproof.spec import ground, ground_host, naive
from kvproof.spec.laws.base import WRONG_CONTENT, Evidence, Findings, Law, Moment


def _loading(moment: Moment) -> tuple[Allocate, Request] | None:
    """Return an admitted allocation that loads, with its request as it is then."""
    action, record = moment.action, moment.record
    if not isinstance(action, Allocate) or not action.load or record is None or not record.admitted:
        return None
    request = ground.request_of(moment.after, action.request)
    return None if request is None else (action, request)


def _cacheable(world: World) -> list[int]:
    return [group for group, spec in enumerate(world.config.groups) if spec.prefix_cacheable]


# --- LD-1 to LD-4 ---------------------------------------------------------------------------------------------------


def _columns_of_the_load(moment: Moment) -> Findings:
    """LD-1: per group the columns that hold external tokens get a copy each, as far as the hit has a block for them."""
    loading = _loading(moment)
    if loading is None or moment.record is None or moment.before.host is None:
        return None
    action, request = loading
    hit = ground_host.pending_of(moment.before.host, action.request)
    if hit is None:
        return [Evidence.of("a load without a pinned hit", request=action.request)]
    found = []
    for group in _cacheable(moment.before):
        size = ground.span(moment.before.config, group)
        columns = naive.touched_columns(action.local, action.external, size)
        listed = dict(zip(columns, hit.lists[group], strict=False))
        expected = [(column, block) for column, block in listed.items() if block != NULL_BLOCK]
        actual = [(column, source) for g, column, _, source in moment.record.pairs if g == group]
        table = request.groups[group].table
        wrong = [
            (column, device)
            for g, column, device, _ in moment.record.pairs
            if g == group and not (0 <= column < len(table) and table[column] == device)
        ]
        if sorted(actual) != sorted(expected) or wrong:
            found.append(
                Evidence.of(
                    "a load does not fill the columns of its external tokens",
                    request=action.request,
                    group=group,
                    local=action.local,
                    external=action.external,
                    expected=expected,
                    actual=actual,
                    table=table,
                )
            )
    load = None if moment.after.host is None else ground_host.load_of(moment.after.host, action.request)
    copies = sorted((device, source) for _, _, device, source in moment.record.pairs)
    if load is None or sorted(zip(load.device, load.host, strict=False)) != copies or len(load.device) != len(load.host):
        found.append(Evidence.of("the load that waits is not the one that was asked for", load=load, pairs=moment.record.pairs))
    return found


def _told_as_asked(moment: Moment) -> Findings:
    """LD-1 where a step is told of loads: it names each that starts with it once, and all its copies once."""
    record, before, after = moment.record, moment.before.host, moment.after.host
    if record is None or before is None or after is None:
        return None
    waiting = {load.request: load for load in before.loads if load.stage is Stage.WAITING}
    named = [load.request for load in after.loads if load.request in waiting and load.stage is not Stage.WAITING]
    if not named and record.load_event < 0:
        return None
    asked = [waiting[request] for request in named]
    expected = sorted(pair for load in asked for pair in zip(load.device, load.host, strict=False))
    told = sorted(zip(record.load_device, record.load_host, strict=False))
    if (sorted(named), expected) == (sorted(record.load_requests), told) and len(record.load_device) == len(record.load_host):
        return ()
    return [
        Evidence.of(
            "a step is told of other loads than those that start with it",
            expected=(tuple(sorted(named)), tuple(expected)),
            requests=record.load_requests,
            device=record.load_device,
            host=record.load_host,
        )
    ]


def _copied_as_asked(moment: Moment) -> Findings:
    return _told_as_asked(moment) if isinstance(moment.action, BuildMetadata) else _columns_of_the_load(moment)


def _aligned_load(moment: Moment) -> Findings:
    """LD-2: a load begins at a scheduler block and ends at a hash boundary."""
    loading = _loading(moment)
    if loading is None:
        return None
    action, config = loading[0], moment.before.config
    if action.local % ground.scheduler_block(config) or action.external % config.hash_block_size or action.external <= 0:
        return [Evidence.of("a load is not aligned", request=action.request, local=action.local, external=action.external)]
    return ()


def _same_range(moment: Moment) -> Findings:
    """LD-3: source and destination of a copy are of one group and of one range of the request's tokens, read off the source's
    keys.
    """
    loading = _loading(moment)
    if loading is None or moment.record is None or moment.before.host is None or not moment.record.pairs:
        return None
    path = ground.lineage(moment.before.prefixes, loading[1].tip)
    found = []
    for group, column, device, source in moment.record.pairs:
        size = ground.span(moment.before.config, group)
        claims = set(path[column * size + 1 : (column + 1) * size + 1])
        keys = ground_host.keys_of(moment.before.host.pool, source)
        if not any(of == group and node in claims for node, of in keys):
            found.append(
                Evidence.of(
                    "a load copies another group's block, or one of other tokens",
                    request=loading[0].request,
                    group=group,
                    column=column,
                    device=device,
                    host=source,
                    keys=sorted(keys),
                )
            )
    return found


def _nulls_stay(moment: Moment) -> Findings:
    """LD-4: where the hit or the table has no block nothing is copied."""
    loading = _loading(moment)
    if loading is None or moment.record is None or moment.after.host is None:
        return None
    load = ground_host.load_of(moment.after.host, loading[0].request)
    ends = [(device, source) for _, _, device, source in moment.record.pairs]
    ends += [] if load is None else list(zip(load.device, load.host, strict=False))
    return [
        Evidence.of("the null block is loaded", request=loading[0].request, device=device, host=source)
        for device, source in ends
        if NULL_BLOCK in (device, source)
    ]


# --- LD-5, LD-6 -----------------------------------------------------------------------------------------------------


def _resumes_behind_the_load(moment: Moment) -> Findings:
    """LD-5: when a load is complete, or what is left of a failed one, every group finds in the request's own table what the
    next token reads.
    """
    action, before = moment.action, moment.before.host
    if moment.record is None or before is None or not isinstance(action, CompleteLoad) or moment.record.freed:
        return None
    request = ground.request_of(moment.after, action.request)
    if request is None or request.status is not Status.LOADING:
        return None
    world, path, end = moment.after, ground.lineage(moment.after.prefixes, request.tip), request.computed
    found = []
    for group in _cacheable(world):
        spec, size, table = world.config.groups[group], ground.span(world.config, group), request.groups[group].table
        if ground.is_recurrent(spec):
            column = ground.column_of_state(end, size)
            block = table[column] if column < len(table) else NULL_BLOCK
            if not ground.is_state(world.config, group, world.contents[block], path[end]):
                found.append(_missing(request, group, column, block, end))
            continue
        first = ground.unread(spec, end)
        for column in range(first // size, ground.columns(end, size)):
            block = table[column] if column < len(table) else NULL_BLOCK
            start, stop = max(first, column * size), min(end, (column + 1) * size)
            if ground.misplaced(world.config, group, world.contents[block], path, start, stop) is not None:
                found.append(_missing(request, group, column, block, end))
    return found


def _missing(request: Request, group: int, column: int, block: int, end: int) -> Evidence:
    return Evidence.of(
        "behind a complete load a group cannot go on", request=request.request, group=group, column=column, block=block, end=end
    )


def _keys_after_the_load(moment: Moment) -> Findings:
    """LD-6: a block that a load fills has no key before the load is reported complete."""
    host = moment.after.host
    if moment.record is None or host is None or not host.loads:
        return None
    keyed = {block for _, _, _, block in moment.after.pool.entries}
    return [
        Evidence.of("a block is keyed before its load is complete", request=load.request, block=block)
        for load in host.loads
        for block in load.device
        if block in keyed
    ]


# --- LD-7, LD-8 -----------------------------------------------------------------------------------------------------


def _left_alone(moment: Moment) -> Findings:
    """LD-7: until its load is reported a request neither runs nor is preempted nor loses a block, not even if it ends."""
    before, host = moment.before.host, moment.after.host
    if moment.record is None or before is None or host is None:
        return None
    ended = moment.action.request if isinstance(moment.action, CompleteLoad) else None
    loads = [load for load in before.loads if load.request != ended]
    if not loads:
        return None
    found = []
    for load in loads:
        if isinstance(moment.action, ResetHost) and load.stage is Stage.WAITING:
            continue  # a load that no step was told of is taken back (T34)
        found += _was_touched(moment, load.request)
        free = [block for block in load.device if moment.after.pool.ref[block] < 1 or block in moment.after.pool.free]
        if free and not _taken_back(moment, load.request, load.stage):
            found.append(Evidence.of("a block is free while a load fills it", request=load.request, blocks=free))
    return found


def _taken_back(moment: Moment, request: int, stage: Stage) -> bool:
    """Tell whether a request ends with a load that no step was told of: nothing will be copied."""
    return isinstance(moment.action, Finish) and moment.action.request == request and stage is Stage.WAITING


def _was_touched(moment: Moment, request: int) -> list[Evidence]:
    """Return what happened to a loading request that must not: its table or status changed, or it is in a plan."""
    old, new = ground.request_of(moment.before, request), ground.request_of(moment.after, request)
    found = []
    if any(entry.request == request for entry in moment.after.plan.scheduled) and old is not None:
        found.append(Evidence.of("a loading request is scheduled", request=request))
    if old is None or new is None:
        return found
    tables = [(was.table, now.table) for was, now in zip(old.groups, new.groups, strict=True) if was.table != now.table]
    if tables or (old.status, old.computed) != (new.status, new.computed):
        found.append(
            Evidence.of("a loading request changes", request=request, tables=tables, status=(old.status.name, new.status.name))
        )
    return found


def _not_zeroed(moment: Moment) -> Findings:
    """LD-8: what a load fills stands in no zero list, and zeroing does not touch it."""
    host = moment.after.host
    if moment.record is None or host is None or not ground_host.all_loads(host):
        return None
    filled = {block for load in ground_host.all_loads(host) for block in load.device}
    found = []
    if isinstance(moment.action, Drain) and filled & set(moment.record.zeroed):
        found.append(Evidence.of("a step is to zero what a load fills", blocks=sorted(filled & set(moment.record.zeroed))))
    for step in moment.after.steps:
        if step.part <= ground.parts(moment.after.config).index("zero") and filled & set(step.zero):
            found.append(Evidence.of("a step is to zero what a load fills", blocks=sorted(filled & set(step.zero))))
    if isinstance(moment.action, Execute) and moment.action.part == "zero":
        found += [
            Evidence.of("a block is zeroed while a load fills it", block=block)
            for block in sorted(filled)
            if moment.before.contents[block] != moment.after.contents[block]
        ]
    return found


LAWS: tuple[Law, ...] = (
    Law(
        id="LD-1",
        mark="D",
        sentence="A load copies, per group, one block for each column that holds external tokens and for which the hit has a "
        "block, into the request's own table; the step that starts it names it and these copies once.",
        source="#54736",
        faults=("M-LOAD-1", "M-LOAD-2", "M-PUB-114"),
        on=(Allocate, BuildMetadata),
        check=_copied_as_asked,
    ),
    Law(
        id="LD-2",
        mark="S",
        sentence="A load begins at a multiple of S and brings a multiple of H tokens.",
        source="#54736",
        faults=("M-MIS-1",),
        on=(Allocate,),
        check=_aligned_load,
    ),
    Law(
        id="LD-3",
        mark="S",
        sentence="Source and destination of a load's copy are of one group and one range of the request's tokens.",
        source="#54736",
        faults=("M-LOAD-3",),
        on=(Allocate,),
        check=_same_range,
    ),
    Law(
        id="LD-4",
        mark="S",
        sentence="A load copies neither from nor to the null block.",
        source="vLLM 0.33.0",
        faults=("M-LOAD-7",),
        on=(Allocate,),
        check=_nulls_stay,
    ),
    Law(
        id="LD-5",
        mark="S",
        sentence="When a load is complete every group finds in the request's table all that the token behind it reads.",
        source="#54736",
        faults=("M-LOAD-4", "M-PUB-136"),
        on=(CompleteLoad,),
        check=_resumes_behind_the_load,
        bent_by=WRONG_CONTENT,
    ),
    Law(
        id="LD-6",
        mark="S",
        sentence="A block that a load fills has no key before the load is reported complete.",
        source="vLLM 0.33.0",
        faults=("M-EARLY-2",),
        check=_keys_after_the_load,
    ),
    Law(
        id="LD-7",
        mark="S",
        sentence="Until its load is reported complete a request does not run, is not preempted and keeps its blocks, also when "
        "it is finished.",
        source="vLLM 0.33.0",
        faults=("M-LOAD-5", "M-PUB-129"),
        check=_left_alone,
    ),
    Law(
        id="LD-8",
        mark="S",
        sentence="What an asynchronous load fills is not zeroed.",
        source="vLLM 0.33.0",
        faults=("M-ZERO-1",),
        on=(Drain, Dispatch, Execute),
        check=_not_zeroed,
    ),
)
