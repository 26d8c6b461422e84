"""Bytes that move whole: zeroing, block copies, stores and loads (docs/semantics.md T0 execute a to d, g, h).

Memory is int64[rank, block, word]; block ids are int32[n] or int64[n]. Stores and loads run on streams of their own
(``streams``); the host's memory is pinned where there is CUDA, and blocks go one by one, as copies of contiguous bytes.
"""

from __future__ import annotations

from torch import Tensor

from kvproof.gpu import streams
from kvproof.gpu.world import TensorWorld


def zero(memory: Tensor, blocks: Tensor) -> None:
    """Write zero into every byte of these blocks, on every rank (T0 b)."""
    if blocks.numel():
        memory[:, blocks.long()] = 0


def copy(memory: Tensor, sources: Tensor, destinations: Tensor) -> None:
    """Copy whole blocks on every rank; every read sees the memory before any of the copies (T0 c, DS-5)."""
    if sources.numel():
        memory[:, destinations.long()] = memory[:, sources.long()]


def store(world: TensorWorld, device: Tensor, host: Tensor) -> None:
    """Copy whole blocks of every rank to the host, on the stream of stores (CC-5)."""
    assert world.host is not None, "only a world with a host tier has stores"
    with world.streams.transfer(streams.STORES):
        move(world.memory, device, world.host.memory, host)


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
