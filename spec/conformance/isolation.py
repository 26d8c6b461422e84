"""An adapter in a process of its own: a hang, a crash or an escaped exception becomes an error with words, never a stuck run.

The process is forked from this one, so that the adapter needs no pickling; it is started anew after each death. What it answers
does travel: an ``Observation`` is plain data. Where there is no fork, or for debugging, ``Direct`` runs the adapter in this
process: then an exception is a verdict as well, a hang or a crash takes this process along.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.context import ForkContext, ForkProcess
from typing import Any, Literal, cast

from attrs import define, field

from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.spec import judge
from kvproof.spec.conformance.adapter import (
    Adapter,
    AdapterError,
    Geometry,
    HasGeometry,
    Observation,
    Shows,
    Unsupported,
)
from kvproof.spec.conformance.channel import Channel, Overdue, Stray, out_of_the_way

LIMIT = 10.0
"""Seconds within which an action must be answered."""
START_LIMIT = 60.0
"""Seconds within which a start must be answered: an implementation may load something first."""

End = Literal["raised", "hung", "died"]


class Died(Exception):
    """An adapter did not answer: it let an exception escape, hung, or its process ended. The message says which.

    After ``hung`` and ``died`` its process is gone; ``start`` makes a new one.
    """

    def __init__(self, how: End, words: str) -> None:
        super().__init__(words)
        self.how = how
        self.words = words


def guarded(adapter: Adapter, isolation: bool = True, limit: float = LIMIT) -> Isolated | Direct:
    """Return the adapter behind a guard: in a forked process if asked for and possible, else in this one."""
    if isolation and "fork" in multiprocessing.get_all_start_methods():
        return Isolated(adapter, limit)
    return Direct(adapter)


@define(slots=True, eq=False)
class Judged:
    """An adapter as the search sees it, wherever it runs."""

    adapter: Adapter

    @property
    def name(self) -> str:
        """The adapter's name."""
        return self.adapter.name

    @property
    def shows(self) -> frozenset[Shows]:
        """What the adapter shows."""
        return self.adapter.shows

    @property
    def null_block(self) -> int:
        """The adapter's null block."""
        return self.adapter.null_block


@define(slots=True)
class Direct(Judged):
    """Runs an adapter in this process; an escaped exception is a ``Died``."""

    def start(self, config: Config) -> None:
        """Begin anew. Raises Unsupported, Died."""
        with _escaping():
            self.adapter.start(config)

    def perform(self, action: Action) -> Observation:
        """Perform one action. Raises Died, AdapterError.

        What is shown is copied: an implementation may show its own lists, and they change with the next action.
        """
        with _escaping():
            shown = _performed(self.adapter, action)
            try:
                return cast(Observation, pickle.loads(pickle.dumps(shown)))
            except Exception as error:
                raise AdapterError(_unsendable(error)) from error

    def geometry(self, config: Config) -> Geometry:
        """Return the sizes that the implementation derives. Raises Unsupported, Died, AdapterError."""
        with _escaping():
            return _geometry(self.adapter, config)

    def close(self) -> None:
        """Nothing is to be ended."""


@contextmanager
def _escaping() -> Iterator[None]:
    try:
        yield
    except (Unsupported, AdapterError):
        raise
    except KeyboardInterrupt:
        raise  # the user's
    except BaseException as error:  # what ends a process (SystemExit) or a test (pytest.skip) must not end this one
        raise Died("raised", f"raised {judge.describe_crash(error)}") from error


def _performed(adapter: Adapter, action: Action) -> Observation:
    """Return what an adapter shows of an action. Raises AdapterError, and whatever it lets escape."""
    try:
        return _observed(adapter.perform(action))
    except Unsupported as error:
        # Taken for a start that is refused, it would leave out the scope and everything that was found in it.
        raise AdapterError(
            f"{type(action).__name__} raised Unsupported ({error}): only start refuses a configuration; an action that is not "
            "performed gives Observation(refusal=...)"
        ) from error


def _unsendable(error: Exception) -> str:
    return f"what it shows cannot be sent to another process: {type(error).__name__}: {error}"


def _observed(answer: object) -> Observation:
    if not isinstance(answer, Observation):
        raise AdapterError(f"perform returned {type(answer).__name__}, not an Observation")
    return answer


def _geometry(adapter: Adapter, config: Config) -> Geometry:
    if not isinstance(adapter, HasGeometry):
        raise AdapterError(f"{adapter.name} declares {Shows.GEOMETRY.value} and has no method geometry(config)")
    return adapter.geometry(config)


@define(slots=True, eq=False)
class Isolated(Judged):
    """Runs an adapter in a forked process; every request must be answered within a limit in seconds."""

    limit: float = LIMIT
    start_limit: float = START_LIMIT
    _process: ForkProcess | None = field(default=None, init=False)
    _pipe: Channel | None = field(default=None, init=False)

    def start(self, config: Config) -> None:
        """Begin anew, in a new process if the last one is gone. Raises Unsupported, Died."""
        self._ask(("start", config), self.start_limit)

    def perform(self, action: Action) -> Observation:
        """Perform one action. Raises Died, AdapterError."""
        return _observed(self._ask(("perform", action), self.limit))

    def geometry(self, config: Config) -> Geometry:
        """Return the sizes that the implementation derives. Raises Unsupported, Died, AdapterError."""
        answer = self._ask(("geometry", config), self.start_limit)
        if not isinstance(answer, Geometry):
            raise AdapterError(f"geometry returned {type(answer).__name__}, not a Geometry")
        return answer

    def close(self) -> None:
        """End the process."""
        process, pipe = self._process, self._pipe
        self._process = self._pipe = None
        if pipe is not None:
            pipe.close()
        if process is not None:
            _end(process)

    def _ask(self, request: tuple[str, Any], limit: float) -> Any:
        if self._pipe is None:
            self._fork()
        pipe = self._pipe
        assert pipe is not None
        try:
            pipe.send(request)
            kind, answer = pipe.receive(limit)
        except (EOFError, OSError) as error:
            raise Died("died", self._last_words()) from error
        except Overdue:
            kind, answer = "hung", ""
        except Stray:
            self.close()
            raise Died("died", "wrote to the descriptor of the connection over which it is asked") from None
        except Exception as error:
            self.close()
            raise AdapterError(_unsendable(error)) from error
        if kind == "hung":
            self.close()
            raise Died("hung", f"did not answer within {limit:g} s")
        if kind == "answer":
            return answer
        raise {"unsupported": Unsupported, "wrong": AdapterError}[kind](answer) if kind != "raised" else Died("raised", answer)

    def _fork(self) -> None:
        context: ForkContext = multiprocessing.get_context("fork")
        here, there = (Channel(end.detach()) for end in socket.socketpair())
        # As a daemon the process ends with this one at the latest.
        process = context.Process(target=_serve, args=(self.adapter, there, here), daemon=True)
        with warnings.catch_warnings():
            # The process runs nothing but the adapter; if one of its locks was held elsewhere, that is a hang with words.
            warnings.filterwarnings("ignore", ".*fork.*", DeprecationWarning)
            process.start()
        there.close()
        self._process, self._pipe = process, here

    def _last_words(self) -> str:
        """Return how the process ended, and forget it."""
        process = self._process
        assert process is not None
        process.join(1.0)
        code = process.exitcode
        self.close()
        if code is None:
            return "closed its end of the connection"
        return f"was killed by {_signal(-code)}" if code < 0 else f"ended its process with exit status {code}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _end(process: ForkProcess) -> None:
    """Kill a process and what it has started."""
    if process.pid is not None and process.is_alive():
        with suppress(ProcessLookupError, PermissionError):
            if os.getpgid(process.pid) == process.pid:
                os.killpg(process.pid, signal.SIGKILL)
        process.kill()
    process.join()
    process.close()


def _serve(adapter: Adapter, pipe: Channel, other_end: Channel) -> None:
    """Answer requests until nobody is there any more. Runs in the forked process."""
    other_end.close()
    pipe = Channel(out_of_the_way(pipe.descriptor))
    os.setsid()  # what the adapter starts ends with it, and an interrupt from the keyboard reaches the parent alone
    multiprocessing.current_process().daemon = False  # the adapter may start processes
    with suppress(OSError):
        os.dup2(2, 1)  # what the adapter prints must not stand in the middle of a report
    own = os.getpid()
    while True:
        try:
            request = pipe.receive()
        except (EOFError, OSError, Stray):
            return
        kind, answer = _answer(adapter, *request)
        if os.getpid() != own:
            os._exit(0)  # a process that the adapter forked came out of it: it has nobody to answer
        try:
            pipe.send((kind, answer))
        except OSError:
            return
        except Exception as error:
            pipe.send(("wrong", _unsendable(error)))


def _answer(adapter: Adapter, what: str, argument: Any) -> tuple[str, Any]:
    try:
        if what == "start":
            adapter.start(argument)
            return "answer", None
        if what == "perform":
            return "answer", _performed(adapter, argument)
        return "answer", _geometry(adapter, argument)
    except Unsupported as error:
        return "unsupported", str(error)
    except AdapterError as error:
        return "wrong", str(error)
    except SystemExit:
        raise
    except BaseException as error:
        return "raised", f"raised {judge.describe_crash(error)}"
