"""How many scripts were run so far, counted by all worker processes together. For the display alone: nothing depends on it."""

from __future__ import annotations

import multiprocessing
from typing import Any

_SHARED: list[Any] = []
"""The counter of this process and its workers, once there is one."""


def counter() -> Any:
    """Return the counter, which a worker process gets by `join`."""
    if not _SHARED:
        _SHARED.append(multiprocessing.get_context("spawn").Value("Q", 0))
    return _SHARED[0]


def join(shared: Any) -> None:
    """Count by the counter of another process from now on."""
    _SHARED[:] = [shared]


def tick() -> None:
    """Count one more."""
    shared = counter()
    with shared.get_lock():
        shared.value += 1


def count() -> int:
    """Return how many were counted."""
    return int(counter().value)
