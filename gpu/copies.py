"""Bytes that move whole: zeroing, block copies, stores and loads (docs/semantics.md T0 execute a to d, g, h).

Memory is int64[rank, block, word]; block ids are int32[n] or int64[n]. Stores and loads run on streams of their own
(``streams``); the host's memory is pinned where there is CUDA, and blocks go one by one, as copies of contiguous bytes.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

import torch
from torch import Tensor

from kvproof.gpu import streams
from kvproof.gpu.world import TensorWorld

LARGE = 1 << 16
"""Bytes of a block on one rank from which on blocks are copied one by one on a CPU, without a staging buffer."""


def zero(memory: Tensor, blocks: Tensor) -> None:
    """Write zero into every byte of these blocks, on every rank (T0 b)."""
    if blocks.numel():
        memory[:, blocks.long()] = 0


def copy(memory: Tensor, sources: Tensor, destinations: Tensor) -> None:
    """Copy whole blocks on every rank; every read sees the memory before any of the copies (T0 c, DS-5).

    Without a block that is both a source and a destination (COW-7) the bytes go straight, else through a staging buffer.
    """
    if not sources.numel():
        return
    if bool(torch.isin(sources, destinations).any()):
        memory[:, destinations.long()] = memory[:, sources.long()]
        return
    for rank in memory:
        straight(rank, sources, rank, destinations)


def straight(source: Tensor, sources: Tensor, destination: Tensor, destinations: Tensor) -> None:
    """Copy whole blocks from one pool, int64[block, word], to another or the same one, each byte read and written once."""
    kernels = kernels_on(source.device)
    if kernels is not None:
        kernels.copy_blocks(source, destination, sources, destinations)
    elif source.device.type == "cpu" and source.shape[1] * source.element_size() >= LARGE:
        for first, second in zip(sources.tolist(), destinations.tolist(), strict=True):
            destination[second].copy_(source[first])
    else:
        destination[destinations.long()] = source[sources.long()]


def kernels_on(device: torch.device) -> Any:
    """Return the module of kernels for a device; None on a CPU, and where Triton is not there or does not work."""
    return None if device.type != "cuda" else tried(device)[0]


@functools.cache
def tried(device: torch.device) -> tuple[Any, str]:
    """Return the module of kernels if it copies a block right on a device, else None and the reason."""
    try:
        kernels = importlib.import_module("kvproof.gpu.kernels")
        probe = torch.arange(8, device=device).view(4, 2)
        kernels.copy_blocks(probe, probe, torch.tensor([1], device=device), torch.tensor([3], device=device))
        right = probe.tolist() == [[0, 1], [2, 3], [4, 5], [2, 3]]
    except Exception as error:  # a compiler that is missing, a driver that is too old: blocks go through a staging buffer then
        return None, f"{type(error).__name__}: {error}".splitlines()[0]
    return (kernels, "") if right else (None, "the kernel copied something else")


def gather(memory: Tensor, blocks: Tensor, out: Tensor) -> None:
    """Collect whole blocks of one rank, [block, word], into a contiguous buffer."""
    if kernels_on(memory.device) is None:
        torch.index_select(memory, 0, blocks, out=out)
    else:
        straight(memory, blocks, out, torch.arange(blocks.numel(), device=blocks.device))


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
