"""Laws of the worker's block-table rows: TB-11 to TB-13 (semantics 5.1, 2.5)."""

from __future__ import annotations

from attrs import evolve

from kvproof.core.actions import AppendRows, Dispatch
from kvproof.core.config import Config
from kvproof.core.errors import RowCapacityExceeded
from kvproof.core.world import Scheduled
from kvproof.spec import ground, naive
from kvproof.spec.laws.base import Evidence, Findings, Law, Moment


def _guarded_rows(moment: Moment) -> Findings:
    if isinstance(moment.action, AppendRows):
        return _guarded_append(moment, moment.action)
    return _guarded_dispatch(moment)


def _unguarded(message: str, **values: object) -> Evidence:
    """Return evidence that no order of the guard explains: a guard per group refuses as well, only later."""
    return evolve(Evidence.of(message, **values), bendable=False)


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
        values = {"row": action.row, "needed": needed, "capacity": config.row_capacity}
        return [_unguarded("an append past the end of a row was accepted", **values)]
    found = []
    for group, ids in enumerate(action.blocks):
        entries = before[group][action.row] + tuple(block * factor + j for block in ids for j in range(factor))
        for row, now in enumerate(after[group]):
            if now != (entries if row == action.row else before[group][row]):
                found.append(_unguarded("an append changed a row otherwise than it should", group=group, row=row, entries=now))
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
                    _unguarded(
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
                found.append(_unguarded("a dispatch changed another row", group=group, row=row, entries=entries))
    return found


def _capacity_covers_length(config: Config) -> Findings:
    found = []
    for group, spec in enumerate(config.groups):
        wanted = naive.columns_needed(config.max_model_len, spec.block_size, ground.is_sharded(spec), config.dcp_size)
        if ground.keeps_snapshots(spec):
            wanted += spec.speculative_blocks
        if spec.kind == ground.SCRATCH and group not in config.positional:
            wanted = 1
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


LAWS: tuple[Law, ...] = (
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
        "The worker's rows have a column for the last position of the longest sequence, and the speculative ones behind it; a "
        "scratch row has one, and no position is mapped to it.",
        "#50493",
        ("M-GEO-2", "M-PUB-20", "M-PUB-22"),
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
)
