"""Bytes that move whole: zeroing, block copies, stores and loads (docs/semantics.md T0 execute a to d, g, h).

Memory is int64[rank, block, word]; block ids are int32[n] or int64[n]. Stores and loads run on streams of their own
(``streams``); the host's memory is pinned where there is CUDA, and blocks go one by one, as copies of contiguous bytes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kvproof.gpu import streams
from kvproof.gpu.world import TensorWorld

LARGE = 1 << 16
"""Bytes of a block on one rank from which on blocks are copied one by one, without a staging buffer."""


def zero(memory: Tensor, blocks: Tensor) -> None:
    """Write zero into every byte of these blocks, on every rank (T0 b)."""
    if blocks.numel():
        memory[:, blocks.long()] = 0


def copy(memory: Tensor, sources: Tensor, destinations: Tensor) -> None:
    """Copy whole blocks on every rank; every read sees the memory before any of the copies (T0 c, DS-5)."""
    if sources.numel() and memory.shape[2] * memory.element_size() >= LARGE:
        copy_large(memory, sources.tolist(), destinations.tolist())
    elif sources.numel():
        memory[:, destinations.long()] = memory[:, sources.long()]


def copy_large(memory: Tensor, sources: list[int], destinations: list[int]) -> None:
    """Copy large blocks at the speed of the memory: straight, without a staging buffer that reads and writes all bytes twice.

    Blocks that are both a source and a destination (COW-7 forbids it within a step) go through a staging buffer.
    """
    if set(sources) & set(destinations):
        memory[:, destinations] = memory[:, sources]
        return
    for rank in memory:
        blocks = rank.unbind(0)
        torch._foreach_copy_([blocks[block] for block in destinations], [blocks[block] for block in sources])


def gather(memory: Tensor, blocks: Tensor, out: Tensor) -> None:
    """Collect whole blocks of one rank, [block, word], into a contiguous buffer, sixteen bytes at a time where they divide."""
    wide = memory.shape[1] % 2 == 0
    source, target = (memory.view(torch.complex128), out.view(torch.complex128)) if wide else (memory, out)
    torch.index_select(source, 0, blocks, out=target)


def store(world: TensorWorld, device: Tensor, host: Tensor) -> None:
    """Copy whole blocks of every rank to the host, on the stream of stores (CC-5)."""
    assert world.host is not None, "only a world with a host tier has stores"
    with world.streams.transfer(streams.STORES):
        move(stored_from(world), device, world.host.memory, host)


def stored_from(world: TensorWorld) -> Tensor:
    """Return the bytes that a store copies: the device's, behind everything that was computed before (CC-5)."""
    return world.memory


def load(world: TensorWorld, host: Tensor, device: Tensor) -> None:
    """Copy whole blocks of every rank from the host, on the stream of loads (CC-6)."""
    assert world.host is not None, "only a world with a host tier has loads"
    with world.streams.transfer(streams.LOADS):
        move(world.host.memory, host, world.memory, device)


def move(source: Tensor, blocks: Tensor, destination: Tensor, targets: Tensor) -> None:
    """Copy whole blocks from one tier to the other; it is issued here and done when its stream comes to it."""
    if source.device == destination.device:
        destination[:, targets.long()] = source[:, blocks.long()]
        return
    for block, target in zip(blocks.tolist(), targets.tolist(), strict=True):
        for rank in range(source.shape[0]):
            destination[rank, target].copy_(source[rank, block], non_blocking=True)
