"""The process in which the code of a release runs: started, asked in JSON lines, and stopped; its failures are typed.

What the release does to its process (a crash, a hang, prints of its own) never reaches the caller but as one of the
``ReleaseFailure`` below. Nothing of vLLM is imported on this side.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import queue
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import msgspec
from attrs import field, frozen

from kvproof.spec import distribution
from kvproof.spec.vllm.child import main
from kvproof.spec.vllm.releases import Release

CHILD = Path(__file__).resolve().parent / "child" / "main.py"
TORCH_FOR_CPU = "https://download.pytorch.org/whl/cpu"
START_SECONDS = 180.0
"""Torch and the release are imported within this time."""

ANSWER_SECONDS = 60.0
KEPT_LINES = 40
# Top-level module -> distribution, where the two names differ.
DISTRIBUTIONS = {
    "yaml": "pyyaml",
    "zmq": "pyzmq",
    "typing_inspection": "typing-inspection",
    "annotated_types": "annotated-types",
}
# Settings that would make one machine's runs differ from another's, or let the release look for a device or a network.
SETTINGS = {
    "PYTHONHASHSEED": "0",
    "PYTHONUTF8": "1",
    "PYTHONUNBUFFERED": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}


FRAME = re.compile(r'^  File "([^"]+)", line (\d+), in (\S+)(?:\n    (\S.*))?', re.MULTILINE)


def place(traceback: str) -> str:
    """Return the innermost place of a traceback, such as ``vllm/v1/request.py:12 in append``; empty without one."""
    frames = FRAME.findall(traceback)
    if not frames:
        return ""
    file, line, name, _ = frames[-1]
    return f"{_ours_or_its(file) or file}:{line} in {name}"


def raising(traceback: str) -> tuple[str, str]:
    """Return the innermost function of a traceback that is the release's, or ours, and its statement; empty without one.

    Such as ``vllm/v1/request.py in append``: without the line, which moves from release to release, and without the folder.
    What a library raises counts for the function that called it. A statement of several lines is known by the one that raised.
    """
    for file, _, name, statement in reversed(FRAME.findall(traceback)):
        short = _ours_or_its(file)
        if short:
            return f"{short} in {name}", statement
    return "", ""


def _ours_or_its(file: str) -> str:
    """Return a file of the release from ``vllm/`` on, one of the child from ``kvproof/`` on, and nothing for any other."""
    if file.startswith(f"{CHILD.parent}{os.sep}"):
        return f"kvproof/spec/vllm/child/{Path(file).name}"
    _, package, rest = file.rpartition("/vllm/")
    return f"vllm/{rest}" if package and "site-packages/" not in rest else ""


def raised_at(text: str, traceback: str) -> str:
    """Return an exception's text with its place; one without a message says so."""
    text, where = text.rstrip(), place(traceback)
    said = f"{text.removesuffix(':')} (no message)" if text.endswith(":") else text
    return f"{said}, at {where}" if where else said


@frozen(kw_only=True)
class ReleaseFailure(Exception):
    """The code of a release did not answer. ``doing`` names the request, ``said`` are its last lines on standard error."""

    version: str
    doing: str
    said: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        """What happened, as one sentence without the lines."""
        return f"vLLM {self.version} failed during {self.doing}"

    def __str__(self) -> str:
        return "\n  ".join((self.what, *self.said))


@frozen(kw_only=True)
class ReleaseHung(ReleaseFailure):
    """No answer came within ``seconds`` of waiting; the process was killed."""

    seconds: float

    @property
    def what(self) -> str:
        """What happened, as one sentence without the lines."""
        return f"vLLM {self.version} gave no answer to {self.doing} within {self.seconds:g} s and was stopped"


@frozen(kw_only=True)
class ReleaseCrashed(ReleaseFailure):
    """The process ended before it answered: ``code`` is its exit status, negative for a signal."""

    code: int

    @property
    def what(self) -> str:
        """What happened, as one sentence without the lines."""
        how = f"ended with status {self.code}"
        if self.code < 0:
            with contextlib.suppress(ValueError):
                how = f"was ended by {signal.Signals(-self.code).name}"
        return f"vLLM {self.version}: the process {how} during {self.doing}"


@frozen(kw_only=True)
class ReleaseUnusable(ReleaseFailure):
    """The release cannot be driven at all: ``missing`` packages, or ``why`` (an answer that is no answer)."""

    missing: tuple[str, ...] = ()
    why: str = ""

    @property
    def what(self) -> str:
        """What happened and what to do, as one sentence without the lines."""
        if self.missing:
            return f"vLLM {self.version} needs {lacks(self.missing)}"
        return f"vLLM {self.version} cannot be driven: {self.why} (during {self.doing})"


def lacks(missing: Sequence[str]) -> str:
    """Return which packages this Python lacks and the lines that bring them: those of a clone, or of an installed kvproof."""
    unlisted = [name for name in missing if name not in main.NEEDED]
    root = distribution.source_folder()
    pip = f"{sys.executable} -m pip install"
    lines = [f"{pip} torch --index-url {TORCH_FOR_CPU}"] if "torch" in missing else []
    if root is None:
        lines.append(f"{pip} '{distribution.NAME}[vllm]'")
    else:
        lines.append(f"cd {shlex.quote(str(root))} && {pip} -c requirements/lock.txt -e '.[vllm]'")
    if unlisted:
        lines.append(f"{pip} {' '.join(DISTRIBUTIONS.get(name, name) for name in unlisted)}")
    first = " (torch first, for the CPU alone: otherwise pip brings CUDA)" if "torch" in missing else ""
    return f"packages that this Python lacks: {', '.join(missing)}. Run{first}: {' && '.join(lines)}"


def missing_packages() -> tuple[str, ...]:
    """Return the modules that every release needs and this Python does not have, without importing any."""
    return tuple(name for name in main.NEEDED if importlib.util.find_spec(name) is None)


@frozen(kw_only=True)
class ReleaseRaised(ReleaseFailure):
    """The release answered a request with an exception of its own: its ``text`` and ``traceback``. The process lives on."""

    text: str
    traceback: str = ""

    @property
    def what(self) -> str:
        """What happened, as one sentence without the lines."""
        return f"vLLM {self.version} raised during {self.doing}: {raised_at(self.text, self.traceback)}"


@frozen(kw_only=True)
class ReleaseLacks(ReleaseFailure):
    """The release does not have what a configuration asks for: ``lacking``. The process lives on."""

    lacking: str

    @property
    def what(self) -> str:
        """What the release lacks, as one sentence without the lines."""
        return f"vLLM {self.version} does not support {self.lacking} (asked in {self.doing})"


@frozen(slots=True)
class _Running:
    """A started process and the threads that read from it; None in ``answers`` is the end of its output."""

    popen: subprocess.Popen[bytes]
    answers: queue.SimpleQueue[bytes | None]
    errors: deque[str] = field(factory=lambda: deque(maxlen=KEPT_LINES))
    threads: list[threading.Thread] = field(factory=list)


class ReleaseProcess:
    """A process that runs a release's code; a context manager. Requests are answered one after the other.

    It starts with the first request and, after a failure that ended it, again with the next one. ``seconds`` is the most that
    is waited for the answers of one request, time that the caller takes between two lines of a run not counted.
    """

    def __init__(self, release: Release, *, seconds: float = ANSWER_SECONDS, child: Path = CHILD) -> None:
        self.release = release
        self.seconds = seconds
        self._child = child
        self._running: _Running | None = None
        self._unread = False
        self.hello: Mapping[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The id of the running process, None before the first request and after a failure."""
        return None if self._running is None else self._running.popen.pid

    # --- requests ---------------------------------------------------------------------------------------------

    def start(self) -> Mapping[str, Any]:
        """Start the process unless it runs, and return what it says of itself. Raises ReleaseFailure."""
        if self._running is None:
            self._running = self._open()
            self._unread = False
            answer = self._ask_once({"do": "hello"}, START_SECONDS)
            missing = answer.get("missing") or ()
            if missing:
                self.close()
                raise self._failure(ReleaseUnusable, "hello", missing=tuple(str(name) for name in missing))
            self.hello = answer
        return self.hello

    def geometry(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the sizes that the release derives from a configuration. Raises ReleaseFailure."""
        self.start()
        return self._ask_once({"do": "geometry", "config": config}, self.seconds)

    def rows(self, config: Mapping[str, Any], appends: Sequence[Any]) -> list[Mapping[str, Any]]:
        """Return per append what the release's rows hold afterwards, or its error. Raises ReleaseFailure."""
        self.start()
        return list(self._rows({"do": "rows", "config": config, "appends": list(appends)}, len(appends)))

    def _rows(self, request: Mapping[str, Any], count: int) -> Iterator[Mapping[str, Any]]:
        self._send(request)
        waited = [0.0]
        for _ in range(count):
            yield self._answer("rows", waited, self.seconds)

    def run(self, config: Mapping[str, Any], script: Sequence[Any], **options: Any) -> Iterator[Mapping[str, Any]]:
        """Run a script and yield its answers: ``{"line": text}`` for each line of the trace, at last ``{"end": ...}``.

        Raises ReleaseFailure. A run that is left before its end is read to its end before the next request.
        """
        self.start()
        self._send({"do": "run", "config": config, "script": list(script), **options})
        self._unread = True
        waited = [0.0]
        while True:
            answer = self._answer("run", waited, self.seconds)
            if "end" in answer:
                self._unread = False
            elif "line" not in answer:
                self.close()
                raise self._failure(ReleaseUnusable, "run", why=f"an answer is neither a line nor the end: {_short(answer)}")
            yield answer
            if "end" in answer:
                return

    def _ask_once(self, request: Mapping[str, Any], seconds: float) -> Mapping[str, Any]:
        self._send(request)
        return self._answer(str(request["do"]), [0.0], seconds)

    # --- the process ------------------------------------------------------------------------------------------

    def _open(self) -> _Running:
        popen = subprocess.Popen(
            [sys.executable, *_flags(), str(self._child)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(self.release.folder),
            cwd=tempfile.gettempdir(),
            start_new_session=True,
        )
        running = _Running(popen, queue.SimpleQueue())
        assert popen.stdout is not None
        assert popen.stderr is not None
        for target, arguments in (
            (_read_answers, (popen.stdout, running.answers)),
            (_read_errors, (popen.stderr, running.errors)),
        ):
            thread = threading.Thread(target=target, args=arguments, daemon=True)
            thread.start()
            running.threads.append(thread)
        return running

    def _send(self, request: Mapping[str, Any]) -> None:
        if self._unread:
            self._read_to_the_end()
        running = self._running
        assert running is not None
        assert running.popen.stdin is not None
        try:
            running.popen.stdin.write(msgspec.json.encode(request) + b"\n")
            running.popen.stdin.flush()
        except OSError:
            raise self._ended(str(request["do"])) from None

    def _read_to_the_end(self) -> None:
        waited = [0.0]
        while self._unread:
            self._unread = "end" not in self._answer("run", waited, self.seconds)

    def _answer(self, doing: str, waited: list[float], seconds: float) -> Mapping[str, Any]:
        """Return the next answer. ``waited`` is the time spent waiting for this request so far."""
        running = self._running
        assert running is not None
        begun = time.monotonic()
        try:
            line = running.answers.get(timeout=max(seconds - waited[0], 0.001))
        except queue.Empty:
            self._kill()
            raise self._failure(ReleaseHung, doing, running, seconds=seconds) from None
        waited[0] += time.monotonic() - begun
        if line is None:
            raise self._ended(doing)
        try:
            answer = msgspec.json.decode(line)
        except msgspec.DecodeError:
            answer = None
        if not isinstance(answer, dict):
            self._kill()
            raise self._failure(ReleaseUnusable, doing, running, why=f"its answer is no JSON object: {_short(line)}")
        if "unsupported" in answer:
            raise self._failure(ReleaseLacks, doing, lacking=str(answer["unsupported"]))
        if "raised" in answer:
            self._unread = False
            text, trace = str(answer["raised"]), str(answer.get("traceback", ""))
            raise self._failure(ReleaseRaised, doing, running, text=text, traceback=trace)
        return answer

    def _ended(self, doing: str) -> ReleaseFailure:
        """Return the failure of a process that ended by itself."""
        running = self._running
        assert running is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.popen.wait(5)
        code = running.popen.poll()
        self._kill()
        lacking = [match.group(1) for line in running.errors if (match := NO_MODULE.match(line))]
        if lacking and not lacking[-1].startswith("vllm"):
            return self._failure(ReleaseUnusable, doing, running, missing=(lacking[-1].partition(".")[0],))
        return self._failure(ReleaseCrashed, doing, running, code=running.popen.returncode if code is None else code)

    def _failure(self, kind: type[ReleaseFailure], doing: str, running: _Running | None = None, **facts: Any) -> ReleaseFailure:
        said = tuple(running.errors) if running is not None else ()
        return kind(version=self.release.version, doing=doing, said=said, **facts)

    def _kill(self) -> None:
        """End the process and what it started, and read the rest of what it said."""
        running, self._running, self._unread = self._running, None, False
        if running is None:
            return
        with contextlib.suppress(OSError):
            os.killpg(running.popen.pid, signal.SIGKILL)
        running.popen.wait()
        for thread in running.threads:
            thread.join(5)
        for stream in (running.popen.stdin, running.popen.stdout, running.popen.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def close(self) -> None:
        """End the process. The next request starts another one."""
        self._kill()


NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")


def environment(folder: Path) -> dict[str, str]:
    """Return the variables of a child: those of this process without what steers Python or vLLM, and the folder as its path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VLLM_"))}
    return {**kept, **SETTINGS, "PYTHONPATH": str(folder)}


def _flags() -> list[str]:
    """Return what keeps the child apart from the user's own packages, if this process is kept apart from them itself."""
    return ["-s"] if sys.flags.no_user_site else []


def _read_answers(stream: IO[bytes], answers: queue.SimpleQueue[bytes | None]) -> None:
    with contextlib.suppress(OSError, ValueError):
        for line in stream:
            answers.put(line)
    answers.put(None)


def _read_errors(stream: IO[bytes], errors: deque[str]) -> None:
    with contextlib.suppress(OSError, ValueError):
        for line in stream:
            errors.append(line.decode("utf-8", "replace").rstrip())


def _short(value: object, most: int = 200) -> str:
    text = value.decode("utf-8", "replace").strip() if isinstance(value, bytes) else repr(value)
    return text if len(text) <= most else text[:most] + "..."
