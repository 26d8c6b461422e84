"""How fast blocks move: gathers and copies of whole blocks beside one plain copy of the same bytes on the same device."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from kvproof.gpu import copies

SIZES = (1 << 16, 1 << 18, 1 << 20, 1 << 22)
"""Bytes of a block."""
WANTED = 0.8
"""The part of the plain copy's bandwidth that block copies should reach."""


@frozen(slots=True)
class Bandwidth:
    """Bytes per second, reads and writes counted once each; ``part`` is that of the plain copy."""

    what: str
    block_bytes: int
    moved_bytes: int
    bytes_per_second: float
    part: float


def seconds(work: Callable[[], object], device: torch.device, times: int) -> float:
    """Return the shortest time of some work, after two runs that are not counted. On CUDA the device's own events tell it."""
    for _ in range(2):
        work()
    return min(timed(work, device) for _ in range(times))


def timed(work: Callable[[], object], device: torch.device) -> float:
    """Return the seconds that some work takes on the device."""
    settle(device)
    if device.type != "cuda":
        began = time.perf_counter()
        work()
        return time.perf_counter() - began
    cuda: Any = torch.cuda  # whose classes are not typed
    first, last = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    first.record()
    work()
    last.record()
    settle(device)
    return float(first.elapsed_time(last)) / 1000


def settle(device: torch.device) -> None:
    """Wait until the device has done what was issued."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure(device: torch.device, total: int, times: int = 9, sizes: tuple[int, ...] = SIZES) -> list[Bandwidth]:
    """Measure blocks of each size, ``total`` bytes at a time, scattered over a pool of twice as many."""
    found = []
    for size in sizes:
        count = max(total // size, 1)
        pool = torch.arange(2 * count * size // 8, dtype=torch.int64, device=device).view(2 * count, size // 8)
        order = torch.randperm(2 * count, generator=torch.Generator().manual_seed(size)).to(device)
        found += of_pool(pool, order[:count], order[count:], device, times)
    return found


def of_pool(pool: Tensor, sources: Tensor, destinations: Tensor, device: torch.device, times: int) -> list[Bandwidth]:
    """Measure a gather of some blocks of a pool and a copy of them to others, and check that the bytes are right."""
    count, size = sources.numel(), pool.shape[1] * 8
    buffer, plain = torch.empty_like(pool[:count]), torch.empty_like(pool[:count])
    total = count * size
    once = 2 * total / seconds(lambda: plain.copy_(pool[:count]), device, times)
    gathered = 2 * total / seconds(lambda: copies.gather(pool, sources, buffer), device, times)
    copied = 2 * total / seconds(lambda: copies.straight(pool, sources, pool, destinations), device, times)
    if not torch.equal(buffer, pool[sources]) or not torch.equal(pool[destinations], pool[sources]):
        raise AssertionError(f"blocks of {size} bytes did not arrive")
    return [
        Bandwidth("plain copy", size, total, once, 1.0),
        Bandwidth("block gather", size, total, gathered, gathered / once),
        Bandwidth("block copies", size, total, copied, copied / once),
    ]


def across(device: torch.device, total: int, times: int = 5) -> list[Bandwidth]:
    """Measure one plain copy to pinned host memory and one back; nothing on a CPU, where there is no other side."""
    if device.type != "cuda":
        return []
    host = torch.empty(total // 8, dtype=torch.int64, pin_memory=True)
    here = torch.zeros(total // 8, dtype=torch.int64, device=device)
    store = total / seconds(lambda: host.copy_(here, non_blocking=True), device, times)
    load = total / seconds(lambda: here.copy_(host, non_blocking=True), device, times)
    return [
        Bandwidth("to pinned host memory", total, total, store, 0.0),
        Bandwidth("from pinned host memory", total, total, load, 0.0),
    ]
