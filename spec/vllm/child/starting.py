"""Attaches recorders to every scheduler of vLLM that a process makes, in any process: only the standard library is used here.

The class is patched when vLLM's scheduler module is there, at once or once it is imported. The other files of this folder are
loaded under no public name, so that a program with modules of the same names keeps its own.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import importlib.abc
import importlib.util
import itertools
import json
import os
import re
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = Path(__file__).resolve().parent
FILES = ("dump", "calls", "completions", "outputs", "writing", "hooks")
SCHEDULER = "vllm.v1.core.sched.scheduler"
SETTINGS = "KVPROOF_RECORD"
"""The environment variable that tells a child process where to record: JSON with `folder`, `call_states`, `notes`."""

ENDINGS = (".ndjson.gz", ".ndjson")
LONGEST_NAME = 120


@functools.cache
def recorder() -> ModuleType:
    """Return the module ``hooks``, loaded with the files beside it and without a trace in ``sys.modules`` and ``sys.path``."""
    before = {name: sys.modules.pop(name) for name in FILES if name in sys.modules}
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module("hooks")
    finally:
        sys.path.remove(str(FOLDER))
        for name in FILES:
            sys.modules.pop(name, None)
        sys.modules.update(before)
        importlib.invalidate_caches()


class Session:
    """What is recorded in this process, until it is closed.

    Attributes:
        where: the folder of the recordings, or the file of the first one.
        files: recordings begun, in order.
        problems: why a scheduler was not recorded, or not to its end; one sentence each.
        notes: a folder in which the problems are left when the process ends, for the command that asked; None for none.
    """

    def __init__(self, where: str | os.PathLike[str], call_states: bool = False, notes: str | None = None) -> None:
        self.where = Path(where)
        self.call_states = call_states
        self.notes = notes
        self.files: list[Path] = []
        self.problems: list[str] = []
        self.undo: list[Callable[[], None]] = []
        self.finishers: list[Callable[[], None]] = []
        self.building: list[int] = []
        self.process = 0

    # --- where schedulers come from -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Record every scheduler made from now on."""
        module = sys.modules.get(SCHEDULER)
        if module is not None:
            self.patch_module(module)
            return
        finder = _AfterImport(SCHEDULER, self.patch_module)
        sys.meta_path.insert(0, finder)
        self.undo.append(lambda: sys.meta_path.remove(finder) if finder in sys.meta_path else None)

    def patch_module(self, module: ModuleType) -> None:
        """Record what the class of this module makes."""
        kind = getattr(module, "Scheduler", None)
        if isinstance(kind, type):
            self.patch(kind)
        else:
            self.problems.append(f"nothing was recorded: {SCHEDULER} has no class Scheduler")

    def patch(self, kind: type) -> None:
        """Let a class of schedulers, and those derived from it so far, attach a recorder to each new object."""
        for one in (kind, *_derived(kind)):
            if "__init__" in vars(one):
                self._patch(one)

    def _patch(self, kind: type) -> None:
        original = vars(kind)["__init__"]
        session = self

        @functools.wraps(original)
        def __init__(scheduler: Any, *args: Any, **kwargs: Any) -> None:
            session.building.append(id(scheduler))
            try:
                original(scheduler, *args, **kwargs)
            finally:
                session.building.pop()
            if id(scheduler) not in session.building:  # the outermost constructor is done
                session.attach(scheduler)

        setattr(kind, "__init__", __init__)  # noqa: B010 (mypy refuses the assignment)
        self.undo.append(lambda: setattr(kind, "__init__", original))

    def attach(self, scheduler: Any) -> None:
        """Record one scheduler. Whatever is in the way becomes a problem, not an exception."""
        self.enter_process()
        hooks = recorder()
        try:
            file = self.open()
        except OSError as error:
            self.problems.append(f"a scheduler was not recorded: {self.where} cannot be written ({error.strerror or error})")
            return
        path = Path(file.path)
        try:
            recording = hooks.attach(scheduler, file, call_states=self.call_states)
        except Exception as error:
            file.abandon()
            said = str(error) if isinstance(error, hooks.CannotRecord) else f"{type(error).__name__}: {error}"
            self.problems.append(f"a scheduler was not recorded: {said}")
            return
        self.files.append(path)
        # neither the session nor this may keep a scheduler alive: its writer and file are enough to finish the recording
        finish = weakref.finalize(scheduler, _finish, recording.writer, file, recording.notes, path.name, self.problems)
        self.finishers.append(finish)

    # --- where recordings go ------------------------------------------------------------------------------------------

    def open(self) -> Any:
        """Open the file of the next recording; no other one is overwritten. Raises OSError."""
        single = self.where.name.endswith(ENDINGS)
        folder = self.where.parent if single else self.where
        folder.mkdir(parents=True, exist_ok=True)
        ending = next((ending for ending in ENDINGS if self.where.name.endswith(ending)), ENDINGS[0])
        name = self.where.name.removesuffix(ending) if single else self.name()
        writing = recorder().writing
        if single and not self.files:
            try:
                return writing.File(str(folder / f"{name}{ending}"))
            except FileExistsError:
                pass  # another process has it
        for number in itertools.count(2 if single else 1):
            path = folder / f"{name}-{number}{ending}"
            try:
                file = writing.File(str(path))
            except FileExistsError:
                continue
            if not path.exists():  # nobody else can finish a file of this name any more
                return file
            file.abandon()
        raise AssertionError("numbers do not end")

    def name(self) -> str:
        """Return what a recording is called: the running test's name, or the program's."""
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
        program = sys.argv[0] if getattr(sys, "argv", None) else ""
        said = test or Path(program).stem or "python"
        return re.sub(r"[^A-Za-z0-9.=-]+", "_", said).strip("_.")[-LONGEST_NAME:] or "recording"

    # --- the end ------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Attach to no more schedulers. Those that are recorded go on being recorded."""
        while self.undo:
            self.undo.pop()()

    def close(self) -> None:
        """Attach to no more schedulers and finish all recordings."""
        self.stop()
        for finish in self.finishers:
            finish()
        self.finishers.clear()

    def enter_process(self) -> None:
        """Make sure that recordings are finished when this process ends; a forked one begins with none."""
        if self.process == os.getpid():
            return
        self.process = os.getpid()
        self.files, self.problems, self.finishers = [], [], []
        atexit.register(self.end)
        util = sys.modules.get("multiprocessing.util")
        if util is not None:  # its processes end without the usual handlers of an interpreter's end, but run these
            util.Finalize(None, self.end, exitpriority=10)

    def end(self) -> None:
        """The process ends: finish all recordings and leave the problems where they were asked for."""
        if self.process == os.getpid():
            self.close()
            if self.notes is not None and self.problems:
                Path(self.notes, f"{self.process}.txt").write_text("\n".join(self.problems) + "\n", encoding="utf-8")


def _finish(writer: Any, file: Any, notes: list[str], name: str, problems: list[str]) -> None:
    """Finish one recording, once."""
    writer.close()
    file.close()
    problems.extend(f"{name}: {note}" for note in notes)


def _derived(kind: type) -> Iterator[type]:
    below: list[type] = type.__subclasses__(kind)
    for one in below:
        yield one
        yield from _derived(one)


class _AfterImport(importlib.abc.MetaPathFinder):
    """First entry of ``sys.meta_path`` until one module is imported: lets the others find it and looks at it afterwards."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self.name = name
        self.then = then

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """Return the module's own spec with a loader that calls ``then``; None for every other module."""
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        then, loader = self.then, spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            try:
                execute(module)
            except BaseException:
                sys.meta_path.insert(0, self)  # it may be tried again
                raise
            then(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


@contextmanager
def session(where: str | os.PathLike[str], call_states: bool = False) -> Iterator[Session]:
    """Record every scheduler made inside, into a folder or a file; all recordings are complete afterwards."""
    found = Session(where, call_states)
    found.start()
    try:
        yield found
    finally:
        found.close()


def from_environment() -> Session | None:
    """Begin what ``kvproof record`` asks its command for; None if it asks for nothing."""
    text = os.environ.get(SETTINGS)
    if not text:
        return None
    settings = json.loads(text)
    found = Session(settings["folder"], settings["call_states"], settings["notes"])
    found.start()
    return found
