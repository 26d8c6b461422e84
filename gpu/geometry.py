"""Slot mapping and local lengths of docs/semantics.md 2.6 on torch tensors, every element at once.

All tensors are integer tensors (int32 or int64) and results keep the dtype and device of the positions or lengths.
Units as in `kvproof.core.geometry`, whose functions these equal element by element. Nothing is read back to the host,
so all functions can be captured into a graph.
"""

import torch
from torch import Tensor

from kvproof.core import geometry


def owner_ranks(positions: Tensor, *, block_size: int, dcp_size: int, interleave: int) -> Tensor:
    """The rank that holds each position of a sharded group; shape of `positions` (2.6, DS-2)."""
    return positions % (block_size * dcp_size) // interleave % dcp_size


def block_columns(positions: Tensor, *, block_size: int, sharded: bool, dcp_size: int) -> Tensor:
    """Column of the table entry that covers each position; shape of `positions` (2.6)."""
    return positions // geometry.effective_block_size(block_size, sharded, dcp_size)


def block_offsets(positions: Tensor, *, block_size: int, sharded: bool, dcp_size: int, interleave: int) -> Tensor:
    """Offset, in tokens, of each position inside its physical block; shape of `positions` (2.6, DS-3)."""
    if not sharded:
        return positions % block_size
    inside = positions % (block_size * dcp_size)
    return inside // (interleave * dcp_size) * interleave + inside % interleave


def slot_mapping(
    positions: Tensor,
    block_table: Tensor,
    rank: int,
    *,
    block_size: int,
    sharded: bool,
    dcp_size: int,
    interleave: int,
) -> Tensor:
    """Slot of each position on `rank`, `geometry.PAD_SLOT` where the rank does not own it (2.6).

    `positions` has shape [..., T] and `block_table` shape [..., C] with equal leading axes: one row of block ids for
    each row of positions; result [..., T]. A position whose column lies beyond the row raises torch's index error on
    the host (RuntimeError or IndexError), as the row guard of TB-11 should have done before.
    """
    columns = block_columns(positions, block_size=block_size, sharded=sharded, dcp_size=dcp_size)
    blocks = torch.gather(block_table, -1, columns.to(torch.int64)).to(positions.dtype)
    offsets = block_offsets(positions, block_size=block_size, sharded=sharded, dcp_size=dcp_size, interleave=interleave)
    slots = blocks * block_size + offsets
    if not sharded:
        return slots
    owners = owner_ranks(positions, block_size=block_size, dcp_size=dcp_size, interleave=interleave)
    return torch.where(owners == rank, slots, geometry.PAD_SLOT)


def local_lengths(num_tokens: Tensor, *, dcp_size: int, interleave: int) -> Tensor:
    """Tokens that each rank holds of the first `num_tokens`: shape [...] to [..., dcp_size] (2.6, DS-4)."""
    total = num_tokens.unsqueeze(-1)
    ranks = torch.arange(dcp_size, dtype=num_tokens.dtype, device=num_tokens.device)
    base = total // interleave // dcp_size * interleave
    return base + (total - base * dcp_size - ranks * interleave).clamp(0, interleave)


def has_context(prefix_lengths_global: Tensor) -> Tensor:
    """Whether each request attends to a cached prefix, a bool from the *global* lengths alone (2.6, DS-10)."""
    return prefix_lengths_global > 0
