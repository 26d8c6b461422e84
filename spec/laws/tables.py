"""Laws of block tables and worker rows (semantics 5.1)."""

from __future__ import annotations

from kvproof.core.actions import Allocate, AppendRows, Dispatch, Drain, Lookup, Output, Preempt, Withdraw
from kvproof.core.config import Config
from kvproof.core.errors import RowCapacityExceeded
from kvproof.core.world import Request, Scheduled, Status, World
from kvproof.spec import ground, naive
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
        if new.status is not Status.RUNNING:
            continue
        if old.status is not Status.RUNNING:
            found += _admitted_in_place(moment, new)
            judged = True
            continue
        for group in ground.attention_groups(moment.after.config):
            table, kept = new.groups[group].table, old.groups[group].table
            judged = judged or bool(kept)
            if len(table) < len(kept) or any(now not in (was, 0) for was, now in zip(kept, table, strict=False)):
                found.append(
                    Evidence.of(
                        "entries of an attention table were replaced or dropped",
                        request=new.request,
                        group=group,
                        before=kept,
                        after=table,
                    )
                )
    return found if judged else None


def _admitted_in_place(moment: Moment, request: Request) -> list[Evidence]:
    """Compare an admitted attention table with the adopted list; only the owed copy may stand elsewhere."""
    hit, action = moment.before.hit, moment.action
    if hit is None or not isinstance(action, Allocate):
        return []
    config = moment.after.config
    found = []
    for group in ground.attention_groups(config):
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
    groups = ground.attention_groups(moment.after.config)
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
    sizes = [ground.span(config, group) for group in range(len(config.groups))]
    for request in moment.after.requests:
        if request.status is not Status.RUNNING or request.computed == 0:
            continue
        judged = True
        for group, size in enumerate(sizes):
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


def _live_states(request: Request, group: int) -> int:
    return sum(1 for block in request.groups[group].table if block != ground.NULL)


def _few_states(moment: Moment) -> Findings:
    if _unchanged(moment):
        return None
    groups = ground.recurrent_groups(moment.after.config)
    allocated = moment.action.request if isinstance(moment.action, Allocate) and moment.record else None
    succeeded = moment.record is not None and moment.record.admitted is True
    judged = False
    found = []
    for old, new in ground.changed_requests(moment.before, moment.after):
        for group in groups:
            states = _live_states(new, group)
            limit = 2 if new.request == allocated and succeeded else _live_states(old, group)
            judged = judged or limit > 0
            if states > limit:
                found.append(
                    Evidence.of(
                        "a request holds more recurrent states than it may",
                        request=new.request,
                        group=group,
                        states=states,
                        limit=limit,
                        table=new.groups[group].table,
                    )
                )
    return found if judged else None


def _state_columns_present(moment: Moment) -> Findings:
    if moment.record is None or not moment.after.steps:
        return None
    world = moment.after
    groups = ground.recurrent_groups(world.config)
    judged = False
    found = []
    for entry in world.steps[-1].scheduled:
        for group in groups:
            judged = True
            size = world.config.groups[group].block_size
            wanted = [("written", ground.column_of_state(entry.start + entry.amount, size))]
            if entry.start > 0:
                wanted.append(("read", world.worker.columns[entry.row][group]))
                if wanted[-1][1] != ground.column_of_state(entry.start, size):
                    found.append(
                        Evidence.of(
                            "the running state is looked for in a column that does not hold it",
                            request=entry.request,
                            group=group,
                            boundary=entry.start,
                            column=wanted[-1][1],
                            expected=ground.column_of_state(entry.start, size),
                        )
                    )
            for use, column in wanted:
                block = ground.row_block(world, group, entry.row, column)
                if block <= ground.NULL:
                    found.append(
                        Evidence.of(
                            f"the worker's row has no block in the column that is {use}",
                            request=entry.request,
                            group=group,
                            column=column,
                            row=world.worker.rows[group][entry.row],
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
    ends = {entry.request: entry.start + entry.amount for entry in world.plan.scheduled}
    for group in range(len(world.config.groups)):
        holders: dict[tuple[int, int], Request] = {}
        for request in world.requests:
            for index, block in enumerate(request.groups[group].table):
                if block == ground.NULL:
                    continue
                other = holders.setdefault((index, block), request)
                if other is not request:
                    judged = True
                    found += _agree(world, group, index, block, (other, request), ends)
    return found if judged else None


def _agree(
    world: World, group: int, index: int, block: int, pair: tuple[Request, Request], ends: dict[int, int]
) -> list[Evidence]:
    """Two requests share an entry: they must agree as far as it stands, and none of them goes on inside it."""
    covered = (index + 1) * ground.span(world.config, group)
    boundary = min(covered, *(max(request.computed, ends.get(request.request, 0)) for request in pair))
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
            next_position=max(request.computed, ends.get(request.request, 0)),
        )
        for request in pair
        if max(request.computed, ends.get(request.request, 0)) < covered
    ]


def _guarded_rows(moment: Moment) -> Findings:
    if isinstance(moment.action, AppendRows):
        return _guarded_append(moment, moment.action)
    return _guarded_dispatch(moment)


def _rows_untouched(moment: Moment) -> list[Evidence]:
    before, after = moment.before.worker, moment.after.worker
    if before.rows == after.rows and before.owners == after.owners:
        return []
    return [Evidence.of("a refused append left entries behind", before=before.rows, after=after.rows)]


def _guarded_append(moment: Moment, action: AppendRows) -> Findings:
    config = moment.before.config
    if moment.refusal is not None and not isinstance(moment.refusal, RowCapacityExceeded):
        return None
    if not any(action.blocks):
        return None
    before, after = moment.before.worker.rows, moment.after.worker.rows
    factor = config.append_expansion
    needed = [len(before[group][action.row]) + factor * len(ids) for group, ids in enumerate(action.blocks)]
    over = [g for g, ids in enumerate(action.blocks) if ids and needed[g] > config.row_capacity[g]]
    if moment.refusal is not None:
        return _rows_untouched(moment)
    if over:
        return [
            Evidence.of(
                "an append past the end of a row was accepted", row=action.row, needed=needed, capacity=config.row_capacity
            )
        ]
    found = []
    for group, ids in enumerate(action.blocks):
        entries = before[group][action.row] + tuple(block * factor + j for block in ids for j in range(factor))
        for row, now in enumerate(after[group]):
            if now != (entries if row == action.row else before[group][row]):
                found.append(Evidence.of("an append changed a row otherwise than it should", group=group, row=row, entries=now))
    return found


def _guarded_dispatch(moment: Moment) -> Findings:
    world = moment.before
    scheduled = world.plan.scheduled
    if not scheduled or (moment.refusal is not None and not isinstance(moment.refusal, RowCapacityExceeded)):
        return None
    if moment.refusal is not None:
        return _rows_untouched(moment)
    config = world.config
    found = []
    for entry in scheduled:
        request = ground.request_of(world, entry.request)
        for group, state in enumerate(request.groups if request is not None else ()):
            needed = config.append_expansion * len(state.table)
            if needed > config.row_capacity[group]:
                found.append(
                    Evidence.of(
                        "a row was written past its end",
                        request=entry.request,
                        group=group,
                        needed=needed,
                        capacity=config.row_capacity[group],
                    )
                )
    own = {entry.row for entry in moment.after.steps[-1].scheduled}
    for group, rows in enumerate(moment.after.worker.rows):
        for row, entries in enumerate(rows):
            if row not in own and entries not in (world.worker.rows[group][row], ()):
                found.append(Evidence.of("a dispatch changed another row", group=group, row=row, entries=entries))
    return found


def _capacity_covers_length(config: Config) -> Findings:
    found = []
    for group, spec in enumerate(config.groups):
        wanted = naive.columns_needed(config.max_model_len, spec.block_size, ground.is_sharded(spec), config.dcp_size)
        wanted *= config.append_expansion
        if config.row_capacity[group] < wanted:
            found.append(
                Evidence.of(
                    "the rows of a group are too short for the model length",
                    group=group,
                    capacity=config.row_capacity[group],
                    wanted=wanted,
                    max_model_len=config.max_model_len,
                )
            )
    return found


def _rows_extend(moment: Moment) -> Findings:
    if moment.record is None or not moment.after.steps:
        return None
    before, after = moment.before.worker, moment.after.worker
    judged = False
    found: list[Evidence] = []
    for entry in moment.after.steps[-1].scheduled:
        if entry.fresh or entry.request not in before.owners:
            continue
        judged = True
        row = before.owners.index(entry.request)
        for group, rows in enumerate(after.rows):
            old = before.rows[group][row]
            if after.owners[row] != entry.request or rows[row][: len(old)] != old:
                found.append(
                    Evidence.of(
                        "the worker's row of a running request was replaced",
                        request=entry.request,
                        group=group,
                        before=old,
                        after=rows[row],
                    )
                )
        found += _table_follows_row(moment, entry, row)
    return found if judged else None


def _table_follows_row(moment: Moment, entry: Scheduled, row: int) -> list[Evidence]:
    """The manager never needs another block in a column the worker has: an append could not deliver it."""
    request = ground.request_of(moment.after, entry.request)
    world = moment.before
    found = []
    for group, state in enumerate(request.groups if request is not None else ()):
        sent = len(world.worker.rows[group][row]) // world.config.append_expansion
        for column, block in enumerate(state.table[:sent]):
            if block not in (ground.NULL, ground.row_block(world, group, row, column)):
                found.append(
                    Evidence.of(
                        "a table entry changed in a column that the worker already has",
                        request=entry.request,
                        group=group,
                        column=column,
                        table=block,
                        row=ground.row_block(world, group, row, column),
                    )
                )
    return found


def _registered_count(moment: Moment) -> Findings:
    action = moment.action
    if not isinstance(action, Allocate) or moment.record is None or not moment.record.admitted:
        return None
    world = moment.after
    request, old = ground.request_of(world, action.request), ground.request_of(moment.before, action.request)
    if request is None or old is None:
        return None
    end = old.computed + action.local + action.external + action.new_tokens
    cacheable = ground.cacheable_tokens(world.config, min(end, request.num_tokens))
    judged = False
    found = []
    for group, state in enumerate(request.groups):
        if state.num_cached < 0:
            continue
        judged = True
        most = min(cacheable // ground.span(world.config, group), len(state.table))
        if state.num_cached > most:
            found.append(
                Evidence.of(
                    "more entries count as registered than are full",
                    request=request.request,
                    group=group,
                    num_cached=state.num_cached,
                    most=most,
                    tokens=end,
                )
            )
        was = old.groups[group].num_cached
        if old.status is Status.RUNNING and state.num_cached < was and state.num_cached != state.partial_index:
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
        "A full-attention table only grows, except that the one copy-on-write index of an admission gets the copy.",
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
        later=True,
    ),
    Law(
        "TB-4",
        "S",
        "The tables of a running request cover its computed tokens in every group.",
        "vLLM 0.33.0",
        ("M-GEO-5",),
        on=(Allocate, Dispatch, Output),
        check=_tables_cover_computed,
    ),
    Law(
        "TB-6",
        "D",
        "After an allocation a request holds at most two recurrent states per group, and until the next one only fewer.",
        "vLLM 0.33.0",
        ("M-MAM-1",),
        on=(*TABLES_CHANGE, Output),
        check=_few_states,
    ),
    Law(
        "TB-7",
        "S",
        "A dispatched step finds blocks in the worker's row at the column it writes its state to and the one it reads.",
        "vLLM 0.33.0, #53142",
        ("M-MAM-2",),
        on=(Dispatch,),
        check=_state_columns_present,
    ),
    Law(
        "TB-8",
        "S",
        "A block occurs at most once in all tables of one request.",
        "vLLM 0.33.0",
        ("M-MAM-3",),
        on=TABLES_CHANGE,
        check=_id_once,
        later=True,
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
        "TB-11",
        "S",
        "An append past the end of a worker row is refused before any row of any group changes, and no other row is written.",
        "#50493",
        ("M-CAP-1", "M-CAP-2", "M-CAP-6"),
        on=(AppendRows, Dispatch),
        check=_guarded_rows,
        bent_by=(("append_guard", "per_group"),),
    ),
    Law(
        "TB-12",
        "D",
        "The worker's rows have a column for the last position of the longest sequence.",
        "#50493",
        ("M-GEO-2",),
        check_config=_capacity_covers_length,
    ),
    Law(
        "TB-13",
        "S",
        "The worker's row of a running request only grows, and the manager never asks for another block in it.",
        "vLLM 0.33.0",
        ("M-COW-4", "M-PUB-109"),
        on=(Dispatch,),
        check=_rows_extend,
    ),
    Law(
        "TB-14",
        "D",
        "No more entries count as registered than are full and in the table; the count falls only at a partial hit.",
        "vLLM 0.33.0",
        ("M-CACHE-1",),
        on=(Allocate,),
        check=_registered_count,
    ),
)
