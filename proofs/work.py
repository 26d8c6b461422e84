"""The work of a proof run: one small unit per claim and twin, shared by worker processes that each load everything once.

A question has a limit of its own, whatever it does: a process that reaches it is ended, and another one takes its place.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import shutil
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Literal

from attrs import define, frozen

from kvproof.proofs import catalogue, lemma, symbolic
from kvproof.proofs.verdicts import Said, Verdict
from kvproof.spec.exits import UserError

Kind = Literal["claim", "twin", "faulty", "tie"]
"""A claim or lemma itself; the same with a claim that is false (vacuity); the same on a model that is wrong in one place.

A tie compares the formulas of a lemma with the functions that they stand for."""

SECONDS = 60.0
"""Processor time that CrossHair has for a claim of a quick run or for a twin; ten times as much for a deep claim."""

LEMMA = 600.0
"""Processor time for all statements of a lemma together; each of them has a limit of its own (`kvproof.proofs.lemma`)."""

MARGIN = 2.0
"""A process is ended at so many times the processor time of a question: the provers look at their limit between two steps."""

WAITING = 10.0
"""A process is ended at so many times that by the clock, too, since a question that waits for something uses no processor."""


@frozen(slots=True)
class Unit:
    """One question to a prover. ``fault``: what is planted (see ``catalogue.patches``), empty for nothing."""

    claim: str
    kind: Kind
    fault: str = ""

    @property
    def name(self) -> str:
        """What the progress display calls it."""
        said = {"claim": "", "twin": ", vacuity twin", "faulty": "", "tie": ", tie"}[self.kind]
        return self.claim + said + (f", {self.fault} planted" if self.fault else "")


@frozen(slots=True)
class Answer:
    """A question and what the prover said."""

    unit: Unit
    said: Said


def answer(unit: Unit) -> Answer:
    """Ask a prover. Called in a worker process. What ends the process from inside is told as raised."""
    try:
        return Answer(unit, _said(unit))
    except SystemExit as error:  # a claim or the model: no prover ends a process like this
        return Answer(unit, Said(Verdict.RAISED, f"SystemExit: {error.code}"))


def _said(unit: Unit) -> Said:
    known = catalogue.by_name(unit.claim)
    if isinstance(known, lemma.Lemma):
        if unit.kind == "tie":
            return catalogue.tied(known, unit.fault)
        return lemma.ask(known, unit.kind, unit.fault)
    patches = catalogue.patches(known, unit.fault) if unit.fault else ()
    module = symbolic.loaded(known.file, unit.kind == "twin")
    return symbolic.check(getattr(module, known.function), seconds(unit), (*known.patches, *patches))


def seconds(unit: Unit) -> float:
    """Return how much processor time a prover has for a question."""
    known = catalogue.by_name(unit.claim)
    if isinstance(known, lemma.Lemma):
        return LEMMA
    return SECONDS * (10 if known.about.deep and unit.kind == "claim" else 1)


def answers(
    units: Sequence[Unit],
    processes: int,
    finished: Callable[[Answer], None] = lambda answer: None,
) -> list[Answer]:
    """Ask everything, so many questions at a time; return the answers in the order of the questions.

    ``finished`` is told each as soon as it is there. A question that goes on behind its limit is undetermined. What a
    question raises ends everything, and so does an interrupt. Raises UserError if a process ends without an answer.
    """
    found: dict[Unit, Answer] = {}
    with contextlib.closing(_in_processes(longest_first(units), processes)) as every:
        for one in every:
            found[one.unit] = one
            finished(one)
    return [found[unit] for unit in units]


def longest_first(units: Sequence[Unit]) -> list[Unit]:
    """Return questions in the order in which processes take them: deep claims first, so that none is left alone at the end."""
    return sorted(units, key=lambda unit: unit.kind != "claim" or not catalogue.by_name(unit.claim).about.deep)


# --- processes ----------------------------------------------------------------------------------------------------


@define(slots=True, eq=False)
class _Worker:
    """A worker process, its end of the line, and the question that it has with the time by which it must be answered."""

    process: BaseProcess
    line: Connection
    unit: Unit
    until: float = 0.0

    def ask(self, unit: Unit) -> None:
        """Give it a question."""
        self.unit, limit = unit, MARGIN * seconds(unit)
        self.until = time.monotonic() + WAITING * limit
        with contextlib.suppress(OSError):  # it has ended: its line says so
            self.line.send((unit, limit))

    def take(self) -> Answer:
        """Return its answer; undetermined if it was ended for want of one. Raises what the question raised, or UserError."""
        try:
            said: Answer | BaseException = self.line.recv()
        except (EOFError, OSError):
            self.process.join()
            if not _OVER or self.process.exitcode != -_OVER:
                raise UserError(
                    "a process of the provers ended without a word; if memory is short, use fewer --processes"
                ) from None
            return self.late("of processor time", MARGIN * seconds(self.unit))
        if isinstance(said, BaseException):
            raise said
        return said

    def late(self, of_what: str, limit: float) -> Answer:
        """Return that there is no answer."""
        return Answer(self.unit, Said(Verdict.UNDETERMINED, f"no answer within {limit:g} seconds {of_what}: ended"))

    def end(self) -> None:
        """End it, whatever it does."""
        self.process.kill()
        self.process.join()
        self.line.close()


_OVER = int(getattr(signal, "SIGPROF", 0))
"""The signal that ends a process at its limit of processor time; 0 where there is none, and the clock alone decides."""


def _in_processes(units: Sequence[Unit], processes: int) -> Generator[Answer, None, None]:
    left = list(reversed(units))
    workers: list[_Worker] = []
    with tempfile.TemporaryDirectory(prefix="kvproof-prove-") as folder:
        try:
            workers += [_begun(folder, left.pop()) for _ in range(min(processes, len(left)))]
            while workers:
                for worker in _ready(workers):
                    late = time.monotonic() > worker.until and not worker.line.poll()
                    found = worker.late("by the clock", WAITING * MARGIN * seconds(worker.unit)) if late else worker.take()
                    if late or not worker.process.is_alive():
                        workers.remove(worker)
                        worker.end()
                        workers += [_begun(folder, left.pop())] if left else []
                    elif left:
                        worker.ask(left.pop())
                    else:
                        workers.remove(worker)
                        worker.end()
                    yield found
        finally:
            for worker in workers:  # a question under way has no end of its own
                worker.end()


def _ready(workers: Sequence[_Worker]) -> list[_Worker]:
    """Return the workers that have something to say or have had too long, as soon as there are any."""
    rest = min(worker.until for worker in workers) - time.monotonic()
    said = wait([worker.line for worker in workers], max(rest, 0))
    return [worker for worker in workers if worker.line in said or time.monotonic() > worker.until]


def _begun(folder: str, unit: Unit) -> _Worker:
    """Begin a process with its first question."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_work, args=(there, folder, answer), daemon=True)
    process.start()
    there.close()
    worker = _Worker(process, here, unit)
    worker.ask(unit)
    return worker


def _work(line: Connection, folder: str, answered: Callable[[Unit], Answer]) -> None:
    """Answer questions until the line is closed.

    An interrupt is the parent's to notice: it ends the workers. Their files lie in a folder of the parent's, since a process
    that is ended takes none away.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tempfile.tempdir = folder
    threading.Thread(target=_end_with_parent, args=(folder,), daemon=True).start()
    while True:
        try:
            unit, limit = line.recv()
        except EOFError:
            return
        try:
            with _limited(limit):
                said: object = answered(unit)
        except BaseException as error:  # the parent raises it
            error.add_note(f"In a process of the provers:\n{traceback.format_exc()}")
            said = error
        try:
            line.send(said)
        except (pickle.PicklingError, TypeError, AttributeError):
            line.send(RuntimeError(repr(said)))


def _end_with_parent(folder: str) -> None:
    """End this process with its parent, whatever it is asked: nobody would take the answer, and nobody the folder away."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)


@contextlib.contextmanager
def _limited(limit: float) -> Iterator[None]:
    """End this process if what is done meanwhile takes so much processor time, even inside a prover's own code."""
    if not _OVER:
        yield
        return
    signal.signal(_OVER, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
