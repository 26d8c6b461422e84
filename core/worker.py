"""The worker's block-table rows, running columns and internal checkpoints (2.5, 3.6, T38)."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import geometry, retention
from kvproof.core.config import Config
from kvproof.core.errors import ContractBroken, RowCapacityExceeded
from kvproof.core.pool import NULL_BLOCK
from kvproof.core.world import NONE, Scheduled, Worker, World

Ids = tuple[tuple[int, ...], ...]
GroupRows = tuple[tuple[int, ...], ...]


def expand(config: Config, blocks: tuple[int, ...]) -> tuple[int, ...]:
    """Return the kernel block ids of manager blocks, in order (2.5); factor 1 leaves them alone."""
    factor = config.append_expansion
    if factor == 1:
        return blocks
    return tuple(geometry.expand_block_id(block, j, factor) for block in blocks for j in range(factor))


def append(world: World, worker: Worker, row: int, blocks: Ids) -> Worker:
    """Append manager blocks of every group to a row (2.5, TB-11).

    Raises RowCapacityExceeded. Under ``append_guard = all_groups`` nothing is written then; under ``per_group`` the
    refusal carries the world with the groups staged so far.
    """
    config = world.config
    rows = list(worker.rows)
    if config.profile.append_guard == "all_groups":
        for group, ids in enumerate(blocks):
            check_capacity(config, group, row, len(rows[group][row]), ids)
    for group, ids in enumerate(blocks):
        if config.profile.append_guard == "per_group":
            try:
                check_capacity(config, group, row, len(rows[group][row]), ids)
            except RowCapacityExceeded as error:
                error.world = evolve(world, worker=evolve(worker, rows=tuple(rows)))
                raise
        if ids:
            rows[group] = write_row(rows[group], row, expand(config, ids))
    return Worker(worker.owners, tuple(rows), worker.columns, worker.accepted)


def check_capacity(config: Config, group: int, row: int, start: int, blocks: tuple[int, ...]) -> None:
    """Refuse an append that would pass the end of the row, counted in expanded ids (2.5, TB-11)."""
    count = expanded_count(config, len(blocks))
    if not geometry.fits_row(start, count, config.row_capacity[group]):
        raise RowCapacityExceeded(
            f"row {row} of group {group} holds {start} of {config.row_capacity[group]} entries and cannot take "
            f"{count} more: append at most {config.row_capacity[group] - start}",
            row=row,
            group=group,
            start=start,
            count=count,
            capacity=config.row_capacity[group],
        )


def expanded_count(config: Config, count: int) -> int:
    """Return how many row entries ``count`` manager blocks need (2.5)."""
    return count * config.append_expansion


def write_row(rows: GroupRows, row: int, ids: tuple[int, ...]) -> GroupRows:
    """Write ids behind the entries of a row (2.5). The caller has compared with its capacity."""
    return (*rows[:row], rows[row] + ids, *rows[row + 1 :])


def clear_row(worker: Worker, row: int, owner: int) -> Worker:
    """Empty a row in every group and give it to ``owner``; of its last step one token was kept (T37.5)."""
    rows = tuple((*group[:row], (), *group[row + 1 :]) for group in worker.rows)
    owners = (*worker.owners[:row], owner, *worker.owners[row + 1 :])
    return set_accepted(Worker(owners, rows, worker.columns, worker.accepted), row, 1)


def block_at(config: Config, worker: Worker, group: int, row: int, column: int) -> int:
    """Return the manager block in a column of a row. Raises ContractBroken if the row has no such column (TB-7)."""
    factor = config.append_expansion
    entries = worker.rows[group][row]
    if not 0 <= column * factor < len(entries):
        raise ContractBroken(
            f"row {row} of group {group} has {len(entries) // factor} columns, column {column} is needed",
            row=row,
            group=group,
            column=column,
        )
    return entries[column * factor] // factor


def own_block(config: Config, worker: Worker, group: int, row: int, column: int) -> int:
    """Return the block that belongs to a column: null if there is no such column or its block moved on (T21.4, 3.6).

    A row is append-only: a relocated block stands in its old column too, and what a copy wrote there would destroy a
    state that the request still reads in the new one.
    """
    factor = config.append_expansion
    entries = worker.rows[group][row]
    if not 0 <= column * factor < len(entries) or entries[column * factor] in entries[(column + 1) * factor :]:
        return NULL_BLOCK
    return entries[column * factor] // factor


def seed_column(config: Config, group: int, computed: int) -> int:
    """Return the column of the running state at ``computed`` tokens, in blocks of this group (3.6); NONE at 0."""
    return column_of(computed, config.groups[group].block_size)


def column_of(boundary: int, block_size: int) -> int:
    """Return the column whose block holds the state at a boundary (3.6); NONE at 0."""
    return (boundary - 1) // block_size if boundary > 0 else NONE


def set_columns(worker: Worker, row: int, columns: tuple[int, ...]) -> Worker:
    """Set the running columns of a row, one per group (3.6)."""
    all_columns = (*worker.columns[:row], columns, *worker.columns[row + 1 :])
    return Worker(worker.owners, worker.rows, all_columns, worker.accepted)


def set_accepted(worker: Worker, row: int, accepted: int) -> Worker:
    """Set how many tokens of a row's last step are kept (3.6)."""
    if worker.accepted[row] == accepted:
        return worker
    all_accepted = (*worker.accepted[:row], accepted, *worker.accepted[row + 1 :])
    return Worker(worker.owners, worker.rows, worker.columns, all_accepted)


def keep(worker: Worker, row: int, kept: int) -> Worker:
    """Note with an output how many tokens of a row's last step are kept, 1 + accepted drafts (T36.5, M-SPEC-3)."""
    return set_accepted(worker, row, max(kept, 1))


def state_column(worker: Worker, group: int, row: int) -> int:
    """Return the column that holds the running state: one further per accepted draft of the last step (3.6)."""
    return worker.columns[row][group] + worker.accepted[row] - 1


def checkpoint(config: Config, group: int, entry: Scheduled) -> tuple[int, int] | None:
    """Return (position, column) of the internal checkpoint that the forward exports in a chunk, None without (T38.1, T38.2).

    Drafts belong to decoding, where a backend exports nothing.
    """
    if entry.drafts:
        return None
    return retention.checkpoint_of(
        entry.start,
        entry.start + entry.amount,
        block_size=config.groups[group].block_size,
        hash_block=config.hash_block_size,
        alignment=config.alignment,
        eagle=any(config.eagle),
        checkpoint_alignment=config.checkpoint_alignment,
    )


def checkpoint_block(config: Config, worker: Worker, group: int, row: int, column: int) -> int:
    """Return the block that takes an internal checkpoint; null where the table has none, and nothing is written (T38.5).

    The worker does not know what was reserved: where nothing was, the column is null or its block moved on (T38.3, T21.4).
    Under ``checkpoint_column = row`` it takes what stands in the row, and overwrites a block that moved on.
    """
    if config.profile.checkpoint_column == "row":
        return block_at(config, worker, group, row, column)
    return own_block(config, worker, group, row, column)
