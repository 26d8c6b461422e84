"""The forward on tensors: slots, tags, recurrent states, and outputs that depend on everything read (T0 execute d to f, 2.6).

Attention writes the tag of each scheduled position into its slot and reads all positions of its window back through the row.
A recurrent group reads a state, runs its recurrence over the chunk, and writes the states that the semantics keep. An output is
the weighted sum of the tags read, over all ranks, plus what the state adds.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kvproof.gpu import copies, digests, geometry, rows, tables
from kvproof.gpu.pool import NULL_BLOCK, TensorError
from kvproof.gpu.world import Share, Step, TensorWorld, can, chunk


def run(world: TensorWorld, step: Step) -> None:
    """Write the scheduled tokens of every request, advance the recurrent states, and compute the outputs (T0 f)."""
    for share in step.shares:
        write_tokens(world, share, share.start, share.end)
    for share in step.shares:
        states = {group: advance(world, group, share) for group in world.config.recurrent}
        if world.config.recurrent:
            world.rows.accepted[share.row] = 1
        if not share.pending:
            sample(world, share, states)


def load(world: TensorWorld, step: Step) -> None:
    """Let a connector fill the external tokens of every request: tags, and states that were computed elsewhere (T0 d)."""
    for share in step.shares:
        if share.loaded_from >= share.start:
            continue
        write_tokens(world, share, share.loaded_from, share.start)
        tokens, _ = chunk(share, share.start)
        for group in world.config.recurrent:
            states = digests.states(zero_state(world), tokens, share.line.context, group)
            for boundary in boundaries(world, group, share.loaded_from, share.start):
                write_state(world, group, share.row, boundary, states[..., boundary - 1])


def zero_state(world: TensorWorld) -> Tensor:
    """Return the state of no tokens on each rank, int64[R, WORDS]."""
    return torch.zeros((len(world.ranks), digests.WORDS), dtype=torch.int64, device=world.device)


# --- attention --------------------------------------------------------------------------------------------------------


def is_sharded(world: TensorWorld, group: int) -> bool:
    """Tell whether the ranks share the positions of a group among them (2.1)."""
    return bool(world.config.groups[group].sharded)


def slots(world: TensorWorld, group: int, row: int, positions: Tensor) -> Tensor:
    """Return the slot of each position on each rank held here, int64[R, T]; -1 where the rank does not own it (2.6).

    Raises TensorError if the row has no such column.
    """
    config, blocks = world.config, rows.blocks_of(world.rows, group, row)
    spec, sharded = config.groups[group], is_sharded(world, group)
    columns = geometry.block_columns(positions, block_size=spec.block_size, sharded=sharded, dcp_size=config.dcp_size)
    # Asked here: on CUDA an index behind the end would end the process.
    if positions.numel() and int(columns.max()) >= blocks.numel():
        raise TensorError(
            f"row {row} of group {group} has {blocks.numel()} columns, column {int(columns.max())} is needed (TB-7)"
        )
    found = []
    for rank in world.ranks:
        found.append(
            geometry.slot_mapping(
                positions,
                blocks,
                rank,
                block_size=spec.block_size,
                sharded=sharded,
                dcp_size=config.dcp_size,
                interleave=config.interleave,
            )
        )
    return torch.stack(found)


def write_tokens(world: TensorWorld, share: Share, start: int, stop: int) -> None:
    """Write the tags of positions [start, stop) into every attention group; entries that a window nulled take nothing (2.6)."""
    _, prefixes = chunk(share, stop)
    positions = torch.arange(start, stop, device=world.device)
    for group in world.config.positional:
        size = world.config.groups[group].block_size
        found = slots(world, group, share.row, positions)
        ranks, at = (found >= size).nonzero(as_tuple=True)  # neither another rank's nor of the null block
        where = found[ranks, at]
        world.memory[ranks, where // size, where % size] = digests.tags(prefixes[start + 1 :], group)[at]


def read_tags(world: TensorWorld, group: int, row: int, stop: int) -> Tensor:
    """Return what each rank finds at the first ``stop`` positions, int64[R, stop]; 0 where it reads nothing.

    A position of a replicated group is read on one rank, another one for each, so that every copy matters.
    """
    config, size = world.config, world.config.groups[group].block_size
    positions = torch.arange(stop, device=world.device)
    found = slots(world, group, row, positions)
    here = found >= size
    if not config.groups[group].sharded:
        ranks = torch.tensor(world.ranks, device=world.device).unsqueeze(1)
        here = here & (positions % config.dcp_size == ranks)
    safe = torch.where(here, found, 0)
    at = torch.arange(len(world.ranks), device=world.device).unsqueeze(1)
    return torch.where(here, world.memory[at, safe // size, safe % size], 0)


def first_read(world: TensorWorld, group: int, query: int) -> int:
    """Return the first position that the query at a position reads (2.8): W - 1 before it, or its chunk's first."""
    return tables.skipped(world, group, query) if can(world.config, group).windowed else 0


def sample(world: TensorWorld, share: Share, states: dict[int, Tensor]) -> None:
    """Compute the outputs behind a share's last certain token and behind each of its drafts."""
    queries = range(share.end - 1 - len(share.drafts), share.end)
    partial = torch.zeros((len(world.ranks), len(queries)), dtype=torch.int64, device=world.device)
    weights = digests.weights(torch.arange(share.end, device=world.device))
    for group in world.config.positional:
        values = read_tags(world, group, share.row, share.end) * weights
        for at, query in enumerate(queries):
            partial[:, at] += values[:, first_read(world, group, query) : query + 1].sum(1)
    for group, found in states.items():
        for at, query in enumerate(queries):
            for index, rank in enumerate(world.ranks):
                if query % world.config.dcp_size == rank:
                    partial[index, at] += digests.state_parts(found[index : index + 1, :, query - share.start], group)[0]
    total = world.reduce(partial.sum(0))
    share.sampled = [(query, total[at]) for at, query in enumerate(queries)]
    world.outputs += [(share.request, query, total[at]) for at, query in enumerate(queries)]


# --- recurrent states -------------------------------------------------------------------------------------------------


def boundaries(world: TensorWorld, group: int, start: int, end: int) -> list[int]:
    """Return the boundaries whose states a recurrent group keeps of tokens (start, end]: the end, or every block's end too."""
    if can(world.config, group).snapshots:
        return [end]
    size = world.config.groups[group].block_size
    return [*range((start // size + 1) * size, end, size), end]


def write_state(world: TensorWorld, group: int, row: int, boundary: int, state: Tensor) -> None:
    """Write the state of each rank, int64[R, WORDS], into the column of its boundary (T0 f)."""
    write_column(world, group, row, rows.column_of(boundary, world.config.groups[group].block_size), state)


def write_column(world: TensorWorld, group: int, row: int, column: int, state: Tensor) -> None:
    """Write a state into a column; one without a block takes nothing."""
    write_block(world, rows.block_at(world.rows, group, row, column), state)


def write_block(world: TensorWorld, block: Tensor, state: Tensor) -> None:
    """Write a state into a block, int64[1], unless it is the null block."""
    held = block[block != NULL_BLOCK]
    world.memory[:, held, : digests.WORDS] = state.unsqueeze(1).expand(-1, held.numel(), -1)


def read_state(world: TensorWorld, group: int, share: Share) -> Tensor:
    """Return the state that each rank starts a chunk from, int64[R, WORDS]: zero at the beginning, else as it lies (CC-2)."""
    if share.start == 0:
        return zero_state(world)
    if can(world.config, group).snapshots:
        column = rows.state_column(world.rows, group, share.row)
    else:
        column = rows.column_of(share.start, world.config.groups[group].block_size)
    block = rows.block_at(world.rows, group, share.row, column)
    return world.memory[:, block, : digests.WORDS].squeeze(1).clone()


def advance(world: TensorWorld, group: int, share: Share) -> Tensor:
    """Run the recurrence over a chunk and write the states that the group keeps; return all, int64[R, WORDS, n] (T0 f, 3.6)."""
    tokens, _ = chunk(share, share.end)
    states = digests.states(read_state(world, group, share), tokens[share.start :], share.line.context, group)
    if not can(world.config, group).snapshots:
        for boundary in boundaries(world, group, share.start, share.end):
            write_state(world, group, share.row, boundary, states[..., boundary - share.start - 1])
        return states
    certain = share.end - len(share.drafts)
    column = world.rows.columns[share.row][group]
    for boundary in range(certain, share.end + 1):
        write_column(world, group, share.row, column + boundary - certain, states[..., boundary - share.start - 1])
    if not share.drafts:
        exported = tables.checkpoint_of(world, group, share.start, share.end)
        if exported is not None:
            position, column = exported
            block = checkpoint_block(world, group, share.row, column)
            write_block(world, block, states[..., position - share.start - 1])
    elif certain % world.config.groups[group].block_size == 0:
        keep_full_state(world, group, share, certain)
    return states


def checkpoint_block(world: TensorWorld, group: int, row: int, column: int) -> Tensor:
    """Return the block that takes an internal checkpoint: the column's own one, or by a profile what stands there (T38.5)."""
    if world.config.profile.checkpoint_column == "row":
        return rows.block_at(world.rows, group, row, column)
    return rows.own_block(world.rows, group, row, column)


def keep_full_state(world: TensorWorld, group: int, share: Share, boundary: int) -> None:
    """Copy the state at the end of a block from its slot into the column whose key promises it (3.6)."""
    certain = share.end - len(share.drafts)
    slot = world.rows.columns[share.row][group] + boundary - certain
    column = rows.column_of(boundary, world.config.groups[group].block_size)
    block = rows.own_block(world.rows, group, share.row, column)
    held = block[block != NULL_BLOCK]
    if held.numel():
        copies.copy(world.memory, rows.block_at(world.rows, group, share.row, slot), held)


def move_running_states(world: TensorWorld, step: Step) -> None:
    """Copy each running state into the step's column where the column changes; one kept token then (T0 e, 3.6)."""
    config = world.config
    for share in step.shares:
        old = world.rows.columns[share.row]
        new = [
            rows.column_of(share.end, config.groups[group].block_size) if group in config.recurrent else column
            for group, column in enumerate(old)
        ]
        if share.start == 0 or all(old[group] == new[group] for group in config.snapshots):
            world.rows.columns[share.row] = new
            continue
        for group in config.snapshots:
            running = rows.state_column(world.rows, group, share.row)
            if running != new[group]:
                source = rows.block_at(world.rows, group, share.row, running)
                copies.copy(world.memory, source, rows.block_at(world.rows, group, share.row, new[group]))
        world.rows.columns[share.row] = new
        world.rows.accepted[share.row] = 1


def settle(world: TensorWorld, share: Share, kept: int) -> None:
    """Note how many tokens of a share are kept, and put the states at the block ends among them in their columns (T36.5)."""
    if world.rows.owners[share.row] != share.request:
        return
    keep(world, share, kept)
    certain = share.end - len(share.drafts)
    for group in world.config.snapshots:
        size = world.config.groups[group].block_size
        for boundary in range((certain // size + 1) * size, certain + kept, size):
            keep_full_state(world, group, share, boundary)


def keep(world: TensorWorld, share: Share, kept: int) -> None:
    """Note how many tokens of a share are kept, unless its row has gone to somebody else (T36.5)."""
    if world.rows.owners[share.row] == share.request:
        world.rows.accepted[share.row] = max(kept, 1)


def local_lengths(world: TensorWorld, ends: list[int]) -> Tensor:
    """Return how many of the first tokens each rank holds of a sharded group, int64[shares, N] (DS-4)."""
    lengths = torch.tensor(ends, dtype=torch.int64, device=world.device)
    return geometry.local_lengths(lengths, dcp_size=world.config.dcp_size, interleave=world.config.interleave)
