"""What long work says while it runs, on standard error: a bar on a terminal, a plain line now and then off it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

PLAIN_SECONDS = 15.0
"""Off a terminal there is a line every so many seconds; work that is shorter says nothing."""

TERMINAL_SECONDS = 0.2
"""On a terminal the line changes at most so often."""


class Told:
    """Says what long work does, on standard error, and only when it is told: no thread, so that the process may fork meanwhile.

    On a terminal the last line is written over, off it there is a line every ``PLAIN_SECONDS`` (with ``quiet`` none).
    """

    def __init__(self, what: str, *, quiet: bool = False) -> None:
        self._what, self._quiet = what, quiet
        self._began = self._last = time.monotonic()
        self._open = False

    def doing(self, what: str) -> None:
        """Say what is done now, unless something was said just before."""
        now = time.monotonic()
        terminal = sys.stderr.isatty()
        if now - self._last < (TERMINAL_SECONDS if terminal else PLAIN_SECONDS) or (self._quiet and not terminal):
            return
        self._last = now
        line = f"{self._what}: {what}; {now - self._began:.0f} s"
        with suppress(OSError, ValueError):  # nobody reads it any more: the work goes on
            click.echo(f"\r\x1b[2K{line}" if terminal else line, file=sys.stderr, nl=not terminal)
        self._open = terminal

    def say(self, what: str) -> None:
        """Say what has to be known at once, on a line of its own that stays."""
        if self._quiet:
            return
        self.end()
        with suppress(OSError, ValueError):
            click.echo(f"{self._what}: {what}; {time.monotonic() - self._began:.0f} s", file=sys.stderr)

    def end(self) -> None:
        """Wipe the line off a terminal."""
        if self._open:
            with suppress(OSError, ValueError):
                click.echo("\r\x1b[2K", file=sys.stderr, nl=False)
            self._open = False


class _Asked(ProgressColumn):
    """A column whose text is asked for whenever the bar is drawn."""

    def __init__(self, text: Callable[[], str]) -> None:
        super().__init__()
        self._text = text

    def render(self, task: Task) -> Text:
        """Return the text."""
        del task
        return Text(self._text())


class Shown:
    """The display of one piece of long work, `n of total`; used as a context manager.

    ``more`` is asked what else to say: what moves while a long part of the work is under way. With ``quiet`` nothing is said
    off a terminal. A worker thread only reads and prints: it decides nothing.
    """

    def __init__(self, what: str, total: int, *, quiet: bool = False, more: Callable[[], str] = lambda: "") -> None:
        self._what, self._total, self._quiet, self._more = what, total, quiet, more
        self._doing, self._done, self._began = "", 0, time.monotonic()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def __enter__(self) -> Self:
        console = Console(stderr=True)
        if console.is_terminal:
            columns = (
                TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Asked(self._more), TimeElapsedColumn(),
            )  # fmt: skip
            self._bar = Progress(*columns, console=console)
            self._task = self._bar.add_task(self._what, total=self._total)
            self._bar.start()
        elif not self._quiet:
            self._thread = threading.Thread(target=self._say_now_and_then, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if self._bar is not None:
            self._bar.stop()

    def doing(self, what: str) -> None:
        """Say what is done now."""
        self._doing = what
        if self._bar is not None:
            self._bar.update(self._task, description=f"{self._what}: {what}")

    @property
    def done(self) -> int:
        """How much is done."""
        return self._done

    def say(self, what: str) -> None:
        """Say what has to be known at once, on a line of its own that stays."""
        if self._bar is not None:
            self._bar.console.print(f"{self._what}: {what}", markup=False, highlight=False)
        elif not self._quiet:
            with suppress(OSError, ValueError):  # nobody reads it any more: the work goes on
                click.echo(f"{self._what}: {what}", file=sys.stderr)

    def advance(self) -> None:
        """Count one more as done."""
        self._done += 1
        if self._bar is not None:
            self._bar.advance(self._task)

    def line(self) -> str:
        """Return the plain line: what is done, n of m, seconds since the start."""
        doing = f": {self._doing}" if self._doing else ""
        more = f", {self._more()}" if self._more() else ""
        return f"{self._what}{doing}; {self._done} of {self._total} done{more}, {time.monotonic() - self._began:.0f} s"

    def _say_now_and_then(self) -> None:
        while not self._over.wait(PLAIN_SECONDS):
            try:
                click.echo(self.line(), file=sys.stderr)
            except (OSError, ValueError):  # nobody reads it any more: the work goes on
                return
