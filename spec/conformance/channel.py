"""One end of the connection to the process of an adapter: whole messages, within a limit, and nothing that is none.

The adapter's process may write to any descriptor that it has, this one included. A message therefore begins with a mark and its
length, and whoever reads never waits longer than it was told to.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import resource
import select
import time
from typing import Any

from attrs import define

MARK = b"kvproof1"
LENGTH = 8
"""Bytes of the length behind the mark."""
CHUNK = 1 << 16
HIGHEST = 1 << 16
"""Descriptors above it are not asked for, whatever the limit of the process is."""


class Overdue(Exception):
    """A message was not there, or not whole, in time."""


class Stray(Exception):
    """What was read is no message: somebody else wrote it."""


@define(slots=True, eq=False)
class Channel:
    """Sends and receives whole values over a descriptor of a stream that goes both ways."""

    descriptor: int

    def send(self, value: object) -> None:
        """Send one value. Raises what pickling it raises, before anything is sent; OSError if nobody is there."""
        data = pickle.dumps(value)
        left = memoryview(MARK + len(data).to_bytes(LENGTH, "big") + data)
        while left:
            left = left[os.write(self.descriptor, left) :]

    def receive(self, limit: float | None = None) -> Any:
        """Return one value; ``limit`` in seconds, None: for ever.

        Raises Overdue, Stray, EOFError if the other end is closed, and what unpickling it raises.
        """
        until = None if limit is None else time.monotonic() + limit
        mark = self._exactly(len(MARK), until)
        if mark != MARK:
            raise Stray
        head = self._exactly(LENGTH, until)
        return pickle.loads(self._exactly(int.from_bytes(head, "big"), until))

    def close(self) -> None:
        """Close this end."""
        os.close(self.descriptor)

    def _exactly(self, count: int, until: float | None) -> bytes:
        found, waiting = bytearray(), select.poll()  # unlike select it knows descriptors of any number
        waiting.register(self.descriptor, select.POLLIN)
        while len(found) < count:
            left = None if until is None else max(until - time.monotonic(), 0.0)
            if not waiting.poll(None if left is None else 1000 * left):
                raise Overdue
            part = os.read(self.descriptor, min(count - len(found), CHUNK))
            if not part:
                raise EOFError
            found += part
        return bytes(found)


def out_of_the_way(descriptor: int) -> int:
    """Move a descriptor to the highest free number, which nobody meets who counts from 3 on; return it."""
    most = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], HIGHEST)
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, max(most - 64, descriptor))
    os.close(descriptor)
    return moved
