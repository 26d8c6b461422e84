"""The worker's block-table rows: int32 buffers of fixed capacity, a guard, and staged writes that are applied at once (2.5).

A group has one buffer for all rows, row after row, as a kernel sees it: an entry beyond a row's capacity would be the next
row's first one. A dispatch stages what it appends and applies all of it in one write per group.
"""

from __future__ import annotations

import torch
from attrs import define, field
from torch import Tensor

from kvproof.core import geometry
from kvproof.core.config import Config
from kvproof.gpu.pool import TensorError

NONE = -1


@define(slots=True)
class Rows:
    """``buffers[g]`` holds R rows of ``capacity[g]`` entries of int32, and one row's room behind them.

    ``lengths`` int32[G, R] are the row counts on the device, ``counts`` the same numbers as the worker's host side keeps them.
    ``owners`` are the requests that rows belong to, NONE for nobody; ``columns[row][g]`` is the column of the running state and
    ``accepted[row]`` the tokens kept of the row's last step (3.6). ``staged`` are (group, first entry in the buffer, ids).
    """

    buffers: list[Tensor]
    lengths: Tensor
    counts: list[list[int]]
    capacity: tuple[int, ...]
    expansion: int
    owners: list[int]
    columns: list[list[int]]
    accepted: list[int]
    guards_each: bool
    staged: list[tuple[int, int, Tensor]] = field(factory=list)


def new_rows(config: Config, device: torch.device) -> Rows:
    """Return empty rows: one per request that may run and step that may be in flight (3.6)."""
    count, groups = config.max_running * config.max_steps_in_flight, len(config.groups)
    return Rows(
        buffers=[torch.zeros((count + 1) * width, dtype=torch.int32, device=device) for width in config.row_capacity],
        lengths=torch.zeros((groups, count), dtype=torch.int32, device=device),
        counts=[[0] * count for _ in range(groups)],
        capacity=config.row_capacity,
        expansion=config.append_expansion,
        owners=[NONE] * count,
        columns=[[NONE] * groups for _ in range(count)],
        accepted=[1] * count,
        guards_each=config.profile.append_guard == "per_group",
    )


def fits(start: int, count: int, capacity: int) -> bool:
    """Tell whether ``count`` more entries from ``start`` stay inside a row (TB-11)."""
    return start + count <= capacity


def append(rows: Rows, row: int, blocks: list[Tensor]) -> None:
    """Stage manager blocks of every group behind a row's entries (2.5).

    Raises TensorError, and stages nothing, if a group's row would become longer than its capacity (TB-11); under
    ``append_guard = per_group`` what stands before that group is staged.
    """
    if not rows.guards_each:
        for group, ids in enumerate(blocks):
            check(rows, group, row, ids)
    for group, ids in enumerate(blocks):
        if rows.guards_each:
            check(rows, group, row, ids)
        if ids.numel():
            stage(rows, group, row, expanded(rows, ids))


def check(rows: Rows, group: int, row: int, blocks: Tensor) -> None:
    """Refuse an append beyond the end of a row. Raises TensorError (TB-11)."""
    start, count, capacity = rows.counts[group][row], blocks.numel() * rows.expansion, rows.capacity[group]
    if not fits(start, count, capacity):
        raise TensorError(
            f"row {row} of group {group} holds {start} of {capacity} entries and cannot take {count} more (TB-11)"
        )


def expanded(rows: Rows, blocks: Tensor) -> Tensor:
    """Return the kernel block ids of manager blocks, in order (2.5)."""
    if rows.expansion == 1:
        return blocks
    parts = torch.arange(rows.expansion, dtype=torch.int32, device=blocks.device)
    return (blocks.unsqueeze(1) * rows.expansion + parts).flatten()


def stage(rows: Rows, group: int, row: int, ids: Tensor) -> None:
    """Note entries that are to be written behind a row's last one."""
    start = rows.counts[group][row]
    rows.staged.append((group, row * rows.capacity[group] + start, ids))
    rows.counts[group][row] = start + ids.numel()


def apply(rows: Rows) -> None:
    """Write what was staged, one write per group, and the row counts."""
    for group, buffer in enumerate(rows.buffers):
        writes = [(first, ids) for owner, first, ids in rows.staged if owner == group]
        if writes:
            places = torch.cat([torch.arange(first, first + ids.numel(), device=ids.device) for first, ids in writes])
            buffer[places] = torch.cat([ids for _, ids in writes])
    rows.staged.clear()
    rows.lengths.copy_(torch.tensor(rows.counts, dtype=torch.int32))


def clear(rows: Rows, row: int, owner: int) -> None:
    """Empty a row in every group and give it to ``owner``; of its last step one token was kept (T37.5)."""
    for counts in rows.counts:
        counts[row] = 0
    rows.owners[row] = owner
    rows.accepted[row] = 1


def seed(rows: Rows, row: int, owner: int, columns: list[int]) -> None:
    """Give an empty row to an admitted request, with its running columns (T37.5, 3.6)."""
    clear(rows, row, owner)
    rows.columns[row] = columns


def blocks_of(rows: Rows, group: int, row: int) -> Tensor:
    """Return the manager blocks of a row's columns, one per column (2.5)."""
    first = row * rows.capacity[group]
    entries = rows.buffers[group][first : first + rows.counts[group][row] : rows.expansion]
    return entries if rows.expansion == 1 else entries // rows.expansion


def block_at(rows: Rows, group: int, row: int, column: int) -> Tensor:
    """Return the manager block in a column, int64 of shape [1]. Raises TensorError if the row has no such column (TB-7)."""
    if not 0 <= column * rows.expansion < rows.counts[group][row]:
        columns = rows.counts[group][row] // rows.expansion
        raise TensorError(f"row {row} of group {group} has {columns} columns, column {column} is needed (TB-7)")
    at = row * rows.capacity[group] + column * rows.expansion
    return (rows.buffers[group][at : at + 1] // rows.expansion).long()


def own_block(rows: Rows, group: int, row: int, column: int) -> Tensor:
    """Return the block that belongs to a column, int64 of shape [1]: null if there is none or its block moved on (T21.4)."""
    if not 0 <= column * rows.expansion < rows.counts[group][row]:
        return torch.zeros(1, dtype=torch.int64, device=rows.lengths.device)
    columns = blocks_of(rows, group, row)[column:].long()
    moved = (columns[1:] == columns[:1]).any()
    return torch.where(moved, 0, columns[:1])


def column_of(boundary: int, block_size: int) -> int:
    """Return the column whose block holds the state at a boundary (3.6); NONE at 0."""
    return geometry.ceil_div(boundary, block_size) - 1 if boundary > 0 else NONE


def state_column(rows: Rows, group: int, row: int) -> int:
    """Return the column that holds the running state: one further per accepted draft of the last step (3.6)."""
    return rows.columns[row][group] + rows.accepted[row] - 1
