"""Lines of a recording: the order of their keys, full states and deltas, and the held-back last line.

A line is written when the next one comes, because the last line of a recording must have a full state and nobody knows
beforehand which one that is.
"""

from __future__ import annotations

import gzip
import json
import os
import weakref
from collections.abc import Callable
from typing import Any

FULL_STATE_EVERY = 20


def text(value: Any) -> str:
    """One line of JSON as the shipped recordings have it: no blanks, keys as they come."""
    return json.dumps(value, separators=(",", ":"))


def delta(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What to write for a state when the one before it is known (docs/trace-format.md, section 3)."""
    found: dict[str, Any] = {}
    for part, new in after.items():
        old = before[part]
        if new == old:
            continue
        if isinstance(new, dict) and isinstance(old, dict):
            found[part] = {key: value for key, value in new.items() if key not in old or old[key] != value}
            if part == "requests":
                found[part].update((key, None) for key in old if key not in new)
        else:
            found[part] = new
    return found


class Writer:
    """Numbers the lines of one recording and hands them to `sink`, one text without its end of line at a time."""

    def __init__(self, sink: Callable[[str], None]) -> None:
        self.sink = sink
        self.count = 0
        self.before: dict[str, Any] | None = None
        self.last: dict[str, Any] | None = None  # the state after the newest line, written or not
        self.waiting: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.held = False
        self.closed = False

    def header(self, line: dict[str, Any]) -> None:
        """Write line 1."""
        self.sink(text(line))

    def line(self, op: str, args: dict[str, Any], result: dict[str, Any], state: dict[str, Any]) -> int:
        """Add an operation with the state after it; returns its index. `result` may be filled until the next line comes."""
        if not self.held:
            self.release()
        line = {"i": self.count, "op": op, "args": args, "result": result}
        self.waiting.append((line, state))
        self.last = state
        self.count += 1
        return self.count - 1

    def raised(self, op: str, args: dict[str, Any], message: str) -> None:
        """Add the operation in which the engine raised; nothing may follow."""
        self.release()
        self.sink(text({"i": self.count, "op": op, "args": args, "raised": message}))
        self.count += 1
        self.closed = True

    def close(self) -> None:
        """Write what is held back, the last line with a full state."""
        if not self.closed:
            self._write_waiting(last=True)
            self.closed = True

    def release(self) -> None:
        """Write the lines held back; there will be another one."""
        self._write_waiting()

    def _write_waiting(self, last: bool = False) -> None:
        for number, (line, state) in enumerate(self.waiting):
            full = line["i"] % FULL_STATE_EVERY == 0 or (last and number == len(self.waiting) - 1)
            if full or self.before is None:
                self.sink(text({**line, "state": state}))
            else:
                self.sink(text({**line, "delta": delta(self.before, state)}))
            self.before = state
        self.waiting.clear()


class File:
    """A sink that writes a file, gzip-compressed unless it ends in `.ndjson`. It has its name only when it is complete.

    Args:
        path: where the recording goes; `.part` is appended while it is written.

    Raises:
        FileExistsError: someone else is writing it.
        OSError: it cannot be written.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.process = os.getpid()
        self.raw = open(path + ".part", "xb")  # noqa: SIM115 (it stays open until the recording ends)
        packed = not path.endswith(".ndjson")
        self.file: Any = gzip.GzipFile(filename="", fileobj=self.raw, mode="wb", mtime=0) if packed else self.raw
        _OPEN.add(self)

    def __call__(self, line: str) -> None:
        """Write one line."""
        if not self.closed:
            self.file.write(line.encode() + b"\n")

    @property
    def closed(self) -> bool:
        """Whether nothing can be written any more; so it is in a forked process, which has no share in the file."""
        return self.raw.closed or os.getpid() != self.process

    def close(self) -> None:
        """Finish the file and give it its name."""
        if not self.closed:
            self._end()
            os.replace(self.path + ".part", self.path)

    def abandon(self) -> None:
        """Remove what was written."""
        if not self.closed:
            self._end()
            os.remove(self.path + ".part")

    def _end(self) -> None:
        self.file.close()
        self.raw.close()
        _OPEN.discard(self)


_OPEN: weakref.WeakSet[File] = weakref.WeakSet()


def _forked() -> None:
    """Let a forked process write what it inherited in buffers to nowhere."""
    for file in list(_OPEN):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, file.raw.fileno())
        os.close(nowhere)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
