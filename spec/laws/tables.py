"""Laws of block tables (semantics 5.1); which entries are null is in ``states``, the worker's rows are in ``rows``."""

from __future__ import annotations

from kvproof.core.actions import Allocate, Dispatch, Drain, Finish, Lookup, Output, Preempt, Withdraw
from kvproof.core.world import Request, World
from kvproof.spec import ground
from kvproof.spec.laws.base import Evidence, Findings, Law, Moment

TABLES_CHANGE = (Lookup, Allocate, Preempt, Withdraw, Drain, Dispatch)


def _unchanged(moment: Moment) -> bool:
    return moment.record is None or moment.before.requests is moment.after.requests


def _valid_ids(moment: Moment) -> Findings:
    if _unchanged(moment):
        return None
    blocks = moment.after.config.num_blocks
    judged = False
    found = []
    for request in moment.after.requests:
        for group, state in enumerate(request.groups):
            if state.table:
                judged = True
                if min(state.table) < 0 or max(state.table) >= blocks:
                    found.append(
                        Evidence.of(
                            "a table entry is no block of the pool",
                            request=request.request,
                            group=group,
                            table=state.table,
                            num_blocks=blocks,
                        )
                    )
    return found if judged else None


def _append_only(moment: Moment) -> Findings:
    if _unchanged(moment):
        return None
    judged = False
    found: list[Evidence] = []
    for old, new in ground.changed_requests(moment.before, moment.after):
        if not ground.is_admitted(new):
            continue
        if not ground.is_admitted(old):
            found += _admitted_in_place(moment, new)
            judged = True
            continue
        for group in _stable_groups(moment.after):
            table, kept = new.groups[group].table, old.groups[group].table
            judged = judged or bool(kept)
            if len(table) < len(kept) or any(now not in (was, 0) for was, now in zip(kept, table, strict=False)):
                found.append(
                    Evidence.of(
                        "entries of an append-only table were replaced or dropped",
                        request=new.request,
                        group=group,
                        before=kept,
                        after=table,
                    )
                )
    return found if judged else None


def _stable_groups(world: World) -> list[int]:
    """Return the groups whose entries never move: all that are cached but Mamba align (1.2, positionally stable)."""
    return [g for g, spec in enumerate(world.config.groups) if spec.prefix_cacheable and not ground.keeps_snapshots(spec)]


def _admitted_in_place(moment: Moment, request: Request) -> list[Evidence]:
    """Compare an admitted append-only table with the adopted list; only the owed copy may stand elsewhere."""
    action = moment.action
    old = ground.request_of(moment.before, request.request)
    hit = None if old is None else ground.hit_of(moment.before, old)
    if hit is None or not isinstance(action, Allocate):
        return []
    config = moment.after.config
    found = []
    for group in _stable_groups(moment.after):
        size = ground.span(config, group)
        adopted = hit.lists[group][: ground.columns(action.local, size)]
        table = request.groups[group].table
        for index, block in enumerate(adopted):
            entry = table[index] if index < len(table) else ground.MISSING
            if action.local % size and index == action.local // size:
                right = (group, block, entry) in moment.after.plan.copies
            else:
                right = entry in (block, 0)
            if not right:
                found.append(
                    Evidence.of(
                        "an adopted entry is neither kept nor, at the one copy-on-write index, replaced by its copy",
                        request=request.request,
                        group=group,
                        index=index,
                        adopted=block,
                        entry=entry,
                        copies=moment.after.plan.copies,
                    )
                )
    return found


def _no_null_in_attention(moment: Moment) -> Findings:
    if _unchanged(moment):
        return None
    judged = False
    found = []
    groups = ground.full_groups(moment.after.config)
    for request in moment.after.requests:
        for group in groups:
            table = request.groups[group].table
            if table:
                judged = True
                if ground.NULL in table:
                    found.append(
                        Evidence.of("a full-attention table has a null", request=request.request, group=group, table=table)
                    )
    return found if judged else None


def _tables_cover_computed(moment: Moment) -> Findings:
    if moment.record is None:
        return None
    judged = False
    found = []
    config = moment.after.config
    sizes = {group: ground.span(config, group) for group, spec in enumerate(config.groups) if spec.prefix_cacheable}
    for request in moment.after.requests:
        if request.computed == 0:
            continue
        judged = True
        for group, size in sizes.items():
            needed = ground.columns(request.computed, size)
            if len(request.groups[group].table) < needed:
                found.append(
                    Evidence.of(
                        "a table is too short for the computed tokens",
                        request=request.request,
                        group=group,
                        computed=request.computed,
                        entries=len(request.groups[group].table),
                        needed=needed,
                    )
                )
    return found if judged else None


def _id_once(moment: Moment) -> Findings:
    if _unchanged(moment):
        return None
    judged = False
    found = []
    for request in moment.after.requests:
        blocks = [block for state in request.groups for block in state.table if block]
        if blocks:
            judged = True
            if len(set(blocks)) != len(blocks):
                found.append(
                    Evidence.of(
                        "a block occurs twice in the tables of one request",
                        request=request.request,
                        twice=sorted({block for block in blocks if blocks.count(block) > 1}),
                    )
                )
    return found if judged else None


def _shared_prefix(moment: Moment) -> Findings:
    if _unchanged(moment):
        return None
    world = moment.after
    judged = False
    found: list[Evidence] = []
    for group in range(len(world.config.groups)):
        holders: dict[tuple[int, int], Request] = {}
        for request in world.requests:
            for index, block in enumerate(request.groups[group].table):
                if block == ground.NULL:
                    continue
                other = holders.setdefault((index, block), request)
                if other is not request:
                    judged = True
                    found += _agree(world, group, index, block, (other, request))
    return found if judged else None


def _computed_ahead(world: World, request: Request) -> int:
    """Return the tokens of a request that are computed, dispatched or in the open plan."""
    ends = [entry.start + entry.amount for entry in world.plan.scheduled if entry.request == request.request]
    return max([request.computed, *ends])


def _agree(world: World, group: int, index: int, block: int, pair: tuple[Request, Request]) -> list[Evidence]:
    """Two requests share an entry: they must agree as far as it stands, and none of them goes on inside it.

    Drafts and placeholders are counted as computed and are nobody's tokens yet: the entry stands for known tokens only.
    """
    covered = (index + 1) * ground.span(world.config, group)
    ahead = {request.request: _computed_ahead(world, request) for request in pair}
    boundary = min(covered, *(min(ahead[request.request], request.num_tokens) for request in pair))
    keyed = world.pool.key_node[block]
    if keyed >= 0:
        boundary = min(boundary, len(ground.lineage(world.prefixes, keyed)) - 1)
    names = tuple(request.request for request in pair)
    if not ground.same_prefix(world, *pair, boundary):
        return [
            Evidence.of(
                "two requests share a block but not the prefix it stands for",
                requests=names,
                group=group,
                index=index,
                block=block,
                boundary=boundary,
            )
        ]
    return [
        Evidence.of(
            "a request will write into a block that another one holds",
            requests=names,
            writer=request.request,
            group=group,
            index=index,
            block=block,
            next_position=ahead[request.request],
        )
        for request in pair
        if ahead[request.request] < covered
    ]


def _registered_count(moment: Moment) -> Findings:
    action = moment.action
    if not isinstance(action, Allocate | Output) or moment.record is None or ground.put_off(moment.record):
        return None
    world = moment.after
    request, old = ground.request_of(world, action.request), ground.request_of(moment.before, action.request)
    if request is None or old is None:
        return None
    known = min(_computed_ahead(world, request), request.num_tokens)
    judged = False
    found = []
    for group, state in enumerate(request.groups):
        if state.num_cached < 0:
            continue
        judged = True
        most = min(ground.cacheable_tokens(world.config, group, known) // ground.span(world.config, group), len(state.table))
        if state.num_cached > most:
            found.append(
                Evidence.of(
                    "more entries count as registered than are full",
                    request=request.request,
                    group=group,
                    num_cached=state.num_cached,
                    most=most,
                    tokens=known,
                )
            )
        was = old.groups[group].num_cached
        if ground.is_admitted(old) and state.num_cached < was and state.num_cached != state.partial_index:
            found.append(
                Evidence.of(
                    "the registered entries fell without a partial hit",
                    request=request.request,
                    group=group,
                    before=was,
                    after=state.num_cached,
                )
            )
    return found if judged else None


def _one_private_block(moment: Moment) -> Findings:
    """TB-15: a scratch block stands in one table of one request, alone, and under no key."""
    world = moment.after
    groups = ground.scratch_groups(world.config)
    if moment.record is None or not groups or (world.requests is moment.before.requests and world.pool is moment.before.pool):
        return None
    found = []
    holders: dict[int, tuple[int, int]] = {}
    for request in world.requests:
        for group in groups:
            table = request.groups[group].table
            wanted = 1 if ground.is_admitted(request) else 0
            if len(table) != wanted or ground.NULL in table:
                found.append(
                    Evidence.of(
                        "a scratch group does not hold one block per admitted request",
                        request=request.request,
                        group=group,
                        table=table,
                        wanted=wanted,
                    )
                )
            for block in table:
                if holders.setdefault(block, (request.request, group)) != (request.request, group):
                    found.append(
                        Evidence.of("a scratch block has two holders", block=block, request=request.request, group=group)
                    )
    found += [
        Evidence.of("a scratch block is in the key map", block=block, group=group, key=node)
        for node, group, _, block in world.pool.entries
        if group in groups or block in holders
    ]
    found += [
        Evidence.of("a scratch block has a primary key", block=block, group=group)
        for block, (_, group) in holders.items()
        if world.pool.key_node[block] >= 0
    ]
    return found if holders or found else None


LAWS: tuple[Law, ...] = (
    Law(
        "TB-1",
        "S",
        "Every table entry is the id of a block of the pool, and id 0 is the only null.",
        "vLLM 0.33.0",
        ("M-TBL-1",),
        on=TABLES_CHANGE,
        check=_valid_ids,
    ),
    Law(
        "TB-2",
        "S",
        "A positionally stable table only grows and its entries only become null, except that the one copy-on-write index of "
        "an admission gets the copy.",
        "vLLM 0.33.0",
        ("M-COW-3",),
        on=TABLES_CHANGE,
        check=_append_only,
    ),
    Law(
        "TB-3",
        "S",
        "A full-attention table has no null entry.",
        "vLLM 0.33.0",
        ("M-TBL-2",),
        on=TABLES_CHANGE,
        check=_no_null_in_attention,
    ),
    Law(
        "TB-4",
        "S",
        "The tables of a request cover its computed tokens in every group; while it waits it has neither.",
        "vLLM 0.33.0",
        ("M-GEO-5", "M-PUB-92"),
        on=(Allocate, Dispatch, Output),
        check=_tables_cover_computed,
    ),
    Law(
        "TB-8",
        "S",
        "A block occurs at most once in all tables of one request.",
        "vLLM 0.33.0",
        ("M-MAM-3",),
        on=TABLES_CHANGE,
        check=_id_once,
    ),
    Law(
        "TB-9",
        "S",
        "Two requests share a block only if they agree on the prefix it stands for and neither writes into it any more.",
        "vLLM 0.33.0",
        ("M-COW-1", "M-KEY-2"),
        on=(Allocate, Withdraw, Preempt),
        check=_shared_prefix,
    ),
    Law(
        "TB-14",
        "D",
        "No more entries count as registered than are full and in the table; the count falls only at a partial hit.",
        "vLLM 0.33.0",
        ("M-CACHE-1",),
        on=(Allocate, Output),
        check=_registered_count,
    ),
    Law(
        "TB-15",
        "S",
        "A scratch group holds exactly one block per admitted request, its own, and never appears in the key map.",
        "vLLM 0.33.0",
        ("M-SCR-2",),
        on=(*TABLES_CHANGE, Finish, Output),
        check=_one_private_block,
    ),
)
