"""Tables on the device: adopt a hit, take and move blocks, null what is not read any more (docs/semantics.md T16 to T21).

Tables and block ids are tensors; how many entries there must be follows from token counts. Which blocks are taken the pool
finds out.
"""

from __future__ import annotations

import torch
from attrs import frozen
from torch import Tensor

from kvproof.core import geometry, kinds, retention
from kvproof.gpu import keys
from kvproof.gpu import pool as pools
from kvproof.gpu.pool import TensorError
from kvproof.gpu.world import NONE, Holding, Request, TensorWorld, can


@frozen(slots=True)
class Wanted:
    """The numbers of one allocation, in tokens (T16): see ``core.allocation.Wanted``."""

    first: bool
    local: int
    external: int
    slots: int
    main: int
    settled: int


def skipped(world: TensorWorld, group: int, tokens: int) -> int:
    """Return how many leading tokens of a group need no block at ``tokens`` tokens (2.8)."""
    spec = world.config.groups[group]
    return kinds.of(spec.kind).skipped_tokens(spec, tokens)


def null_skipped(world: TensorWorld, request: Request, processed: int) -> None:
    """Null and free what nobody reads at ``processed`` tokens, group by group, highest index first (T16.3)."""
    for group, holding in enumerate(request.groups):
        stop = min(skipped(world, group, processed) // world.config.sizes[group], holding.table.numel())
        if holding.retired < stop:
            pools.release(world.pool, holding.table[holding.retired : stop].flip(0))
            holding.table = torch.cat((torch.zeros_like(holding.table[:stop]), holding.table[stop:]))
            holding.retired = stop


def take(world: TensorWorld, group: int, count: int) -> Tensor:
    """Take blocks for a group, and note those that must be zeroed before the step runs (T1, T0 execute b)."""
    blocks = pools.take(world.pool, count)
    if blocks.numel() and zeroes(world, group):
        world.plan.zero.append((group, blocks))
    return blocks


def zeroes(world: TensorWorld, group: int) -> bool:
    """Tell whether new blocks of a group are zeroed: attention ones, in models with a recurrent group (T0 b)."""
    if can(world.config, group).recurrent:
        return world.config.profile.zero_recurrent == "yes"
    return bool(world.config.recurrent) and can(world.config, group).positions


def adopt(world: TensorWorld, group: int, holding: Holding, blocks: Tensor, wanted: Wanted) -> None:
    """Adopt a group's hit: touch it, null what is skipped, note an owed copy (T18 phase 1)."""
    size = world.config.sizes[group]
    if not world.config.groups[group].prefix_cacheable:
        return
    skip = skipped(world, group, wanted.local + wanted.external) // size
    kept = blocks[skip:]
    pools.touch(world.pool, kept)
    holding.table = torch.cat((torch.zeros(skip, dtype=torch.int32, device=world.device), kept))
    holding.num_cached = holding.table.numel()
    if kept.numel() and wanted.local % size:
        holding.partial_index, holding.partial_source = wanted.local // size, kept[-1:].clone()
        holding.num_cached = holding.partial_index


def take_external(world: TensorWorld, group: int, holding: Holding, wanted: Wanted) -> None:
    """Take blocks for external tokens (T18 phase 2). A scratch group stands for no tokens."""
    if wanted.external > 0 and world.config.groups[group].prefix_cacheable:
        entries = geometry.ceil_div(wanted.local + wanted.external, world.config.sizes[group])
        append(holding, take(world, group, entries - holding.table.numel()))


def append(holding: Holding, blocks: Tensor) -> None:
    """Append entries to a table."""
    if blocks.numel():
        holding.table = torch.cat((holding.table, blocks))


def grow(world: TensorWorld, request: Request, group: int, holding: Holding, wanted: Wanted) -> None:
    """Redirect an owed copy-on-write, move speculative blocks, append what is missing (T19, T21)."""
    abilities = can(world.config, group)
    if abilities.snapshots:
        grow_snapshots(world, request, group, holding, wanted)
    elif abilities.positions or abilities.recurrent:
        if holding.partial_index != NONE:
            redirect(world, group, holding)
        tokens = wanted.main if abilities.recurrent else wanted.slots
        entries = geometry.ceil_div(tokens, world.config.sizes[group])
        append(holding, take(world, group, entries - holding.table.numel()))
    else:
        append(holding, take(world, group, 1 - holding.table.numel()))


def redirect(world: TensorWorld, group: int, holding: Holding) -> None:
    """Replace the shared, partly filled block of a consumer by a private copy (T19.1)."""
    copy, index, source = take(world, group, 1), holding.partial_index, holding.partial_source
    assert source is not None, "a debt names its source"
    if int(source) == pools.NULL_BLOCK or int(holding.table[index]) != int(source):
        raise TensorError(f"copy-on-write of entry {index} of group {group} does not find block {int(source)} (T19)")
    pools.touch(world.pool, copy)
    world.plan.copies.append((group, source, copy))
    table = holding.table.clone()
    table[index] = copy[0]
    holding.table = table
    holding.partial_index, holding.partial_source = NONE, None


def reserve(world: TensorWorld, request: Request, wanted: Wanted, adopted: list[Tensor]) -> None:
    """Reserve the internal checkpoint of a chunk in every group that can take it, or give an earlier one up (T38).

    Where a state is adopted that this very step computes, the admission is put off before that is asked (T17, COW-4).
    """
    config = world.config
    for group in config.snapshots:
        holding = request.groups[group]
        if adopted and adopted[group].numel() and keys.was_registered(world, group, adopted[group][-1:]):
            continue
        holding.checkpoint = None
        sparse = config.retention == 0 and wanted.main < max(request.num_prompt, request.num_tokens - 1)
        if wanted.main > request.num_tokens or sparse:
            continue
        found = checkpoint_of(world, group, wanted.local + wanted.external, wanted.main)
        if found is not None and column_is_free(holding, found[1], config.groups[group].speculative_blocks):
            holding.checkpoint = found


def checkpoint_of(world: TensorWorld, group: int, start: int, end: int) -> tuple[int, int] | None:
    """Return the (position, column) of the internal checkpoint that a chunk can write, None if it has none (T38.1, T38.2)."""
    config = world.config
    return retention.checkpoint_of(
        start,
        end,
        block_size=config.groups[group].block_size,
        hash_block=config.hash_block_size,
        alignment=config.alignment,
        eagle=any(config.eagle),
        checkpoint_alignment=config.checkpoint_alignment,
    )


def column_is_free(holding: Holding, column: int, spare: int) -> bool:
    """Tell whether a checkpoint may take a column: behind the table, null, or a speculative block's (T38.3)."""
    length = holding.table.numel()
    if column >= length or (holding.allocated and column >= length - spare):
        return True
    return int(holding.table[column]) == pools.NULL_BLOCK


def grow_snapshots(world: TensorWorld, request: Request, group: int, holding: Holding, wanted: Wanted) -> None:
    """Append nulls, moved speculative blocks and new ones; pay an owed copy as producer or consumer (T21)."""
    size, spare = world.config.sizes[group], world.config.groups[group].speculative_blocks
    required = geometry.ceil_div(wanted.main, size) + spare
    owed, checkpoint = holding.partial_index != NONE, 0 if holding.checkpoint is None else 1
    before, allocated = holding.table.numel(), holding.allocated
    holding.allocated = True
    if required <= before and not owed and not checkpoint:
        return
    running = required - spare - 1
    if before < running:
        nulls = max(running - checkpoint - before, 0)
        append(holding, torch.zeros(nulls, dtype=torch.int32, device=world.device))
    if allocated:
        stop = geometry.ceil_div(wanted.settled, size) - 1 - checkpoint
        relocate(holding, before - spare, max(min(before, stop), before - spare))
    if owed and allocated:
        pay_as_producer(world, request, group, holding)
    elif owed:
        redirect(world, group, holding)
    append(holding, take(world, group, required - holding.table.numel()))


def relocate(holding: Holding, first: int, stop: int) -> None:
    """Move the speculative blocks of columns [first, stop) to the end of the table, null in their places (T21.4)."""
    if first < stop:
        moved = holding.table[first:stop]
        nulls = torch.zeros_like(moved)
        holding.table = torch.cat((holding.table[:first], nulls, holding.table[stop:], moved))


def pay_as_producer(world: TensorWorld, request: Request, group: int, holding: Holding) -> None:
    """Move the keys of the state that the request is running on to a private copy; the table keeps the source (T21.6)."""
    source, copy = holding.partial_source, take(world, group, 1)
    assert source is not None, "a debt names its source"
    pools.move(world.pool, int(source), int(copy))
    pools.touch(world.pool, source)
    keys.note(world, request, group, copy)
    world.plan.copies.append((group, source, copy))
    holding.partial_index, holding.partial_source, holding.tail_boundary = NONE, None, NONE
