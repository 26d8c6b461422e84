"""Order on the device: a stream for compute and one per direction of transfers, with events between them.

On CUDA a transfer runs on a side stream: it waits for the compute that was issued before it, and for earlier transfers; compute
that is issued behind it waits for it before it touches memory. On a CPU an operation is done when it returns, and the same
calls change nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

STORES, LOADS = "stores", "loads"


class Streams:
    """The streams of one world; names of side streams are STORES and LOADS. ``cuda`` is ``torch.cuda``, or stands for it."""

    def __init__(self, device: torch.device, cuda: Any = torch.cuda) -> None:
        self._device, self._cuda = device, cuda
        self._side: dict[str, Any] = {}
        self._last: dict[str, Any] = {}
        if device.type == "cuda":
            self._side = {name: cuda.Stream(device) for name in (STORES, LOADS)}

    @contextmanager
    def transfer(self, name: str) -> Iterator[None]:
        """Run copies on a side stream, behind all compute issued so far and all transfers of both directions."""
        stream = self._side.get(name)
        if stream is None:
            yield
            return
        stream.wait_stream(self._cuda.current_stream(self._device))
        for event in self._last.values():
            stream.wait_event(event)
        with self._cuda.stream(stream):
            yield
        event = self._cuda.Event()
        event.record(stream)
        self._last[name] = event

    def compute(self) -> None:
        """Let compute that is issued from here on wait for the transfers that were issued before."""
        for event in self._last.values():
            self._cuda.current_stream(self._device).wait_event(event)

    def settle(self) -> None:
        """Wait on the host until everything issued has run."""
        if self._device.type == "cuda":
            self._cuda.synchronize(self._device)
