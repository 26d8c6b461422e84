"""What is really in each block, per DCP rank (3.2). Bytes change only in the execute phase.

A block's contents are a flat tuple: the group whose bytes they are, then its cells. An attention block has
``block_size`` cells per rank, rank by rank; a recurrent block has one per rank. A cell is the prefix node through its
position (or whose state it is), UNWRITTEN or GARBAGE. An empty tuple is memory nobody wrote. Groups alias the same
bytes: read as another group, a block is garbage.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvproof.core import geometry

UNWRITTEN = -1
GARBAGE = -2
Cells = tuple[int, ...]


def cell_map(recurrent: bool, block_size: int, sharded: bool, dcp_size: int, interleave: int) -> tuple[tuple[int, ...], ...]:
    """Return, per position inside a virtual block, the indices into a block's contents that hold it (2.6).

    A recurrent group has none: its cells are states, one per rank.
    """
    if recurrent:
        return ()
    span = geometry.effective_block_size(block_size, sharded, dcp_size)
    cells = []
    for position in range(span):
        offset = geometry.block_offset(position, block_size, sharded, dcp_size, interleave)
        ranks = (rank for rank in range(dcp_size) if geometry.owns(position, rank, block_size, sharded, dcp_size, interleave))
        cells.append(tuple(1 + rank * block_size + offset for rank in ranks))
    return tuple(cells)


def block_cells(recurrent: bool, block_size: int, dcp_size: int) -> int:
    """Return the number of cells of a block over all ranks (3.2)."""
    return dcp_size if recurrent else geometry.effective_block_size(block_size, True, dcp_size)


def as_group(content: Cells, group: int, cells: int) -> list[int]:
    """Return a writable copy of a block's contents seen as ``group``: foreign bytes are garbage (PC-11)."""
    if not content:
        return [group] + [UNWRITTEN] * cells
    if content[0] != group:
        return [group] + [GARBAGE] * cells
    return list(content)


def garbage(group: int, cells: int) -> Cells:
    """Return the contents of a block of a group into which nobody knows what was written (T30)."""
    return (group, *(GARBAGE,) * cells)


def write_positions(
    content: Cells, group: int, cells: int, cell_of: Sequence[tuple[int, ...]], first: int, nodes: Sequence[int]
) -> Cells:
    """Write ``nodes`` at consecutive positions of a block from position ``first`` inside it (T0 execute f)."""
    values = as_group(content, group, cells)
    for at, node in enumerate(nodes, first):
        for cell in cell_of[at]:
            values[cell] = node
    return tuple(values)


def state_values(content: Cells, group: int, dcp_size: int) -> Cells:
    """Return the recurrent state that each rank finds in a block (3.2)."""
    if not content:
        return (UNWRITTEN,) * dcp_size
    if content[0] != group:
        return (GARBAGE,) * dcp_size
    return content[1:]


def advance_state(before: Cells, expected: int, after: int) -> Cells:
    """Return each rank's state after a chunk: the right one only if it started from the right one (3.2, CC-2)."""
    return tuple(after if value == expected else GARBAGE for value in before)


def copy_block(source: Cells, destination: Cells) -> Cells:
    """Return the destination's contents after a whole-block copy: every slot of every rank (T0 execute c, DS-5)."""
    del destination
    return source
