"""The work of a proof run: one small unit per claim and twin, shared by worker processes that each load everything once."""

from __future__ import annotations

import multiprocessing
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Literal

from attrs import frozen

from kvproof.proofs import catalogue, lemma, symbolic
from kvproof.proofs.verdicts import Said
from kvproof.spec.exits import UserError

Kind = Literal["claim", "twin", "faulty"]
"""A claim or lemma itself; the same with a claim that is false (vacuity); the same on a model that is wrong in one place."""

SECONDS = 60.0
"""Processor time that CrossHair has for a claim of a quick run or for a twin; ten times as much for a deep claim."""


@frozen(slots=True)
class Unit:
    """One question to a prover. ``fault``: what is planted (see ``catalogue.patches``), empty for nothing."""

    claim: str
    kind: Kind
    fault: str = ""

    @property
    def name(self) -> str:
        """What the progress display calls it."""
        return self.claim + {"claim": "", "twin": ", vacuity twin", "faulty": f", {self.fault} planted"}[self.kind]


@frozen(slots=True)
class Answer:
    """A question and what the prover said."""

    unit: Unit
    said: Said


def answer(unit: Unit) -> Answer:
    """Ask a prover. Called in a worker process."""
    return Answer(unit, _said(unit))


def _said(unit: Unit) -> Said:
    known = catalogue.by_name(unit.claim)
    if isinstance(known, lemma.Lemma):
        return lemma.ask(known, unit.kind, unit.fault)
    patches = catalogue.patches(known, unit.fault) if unit.fault else ()
    module = symbolic.loaded(known.file, unit.kind == "twin")
    seconds = SECONDS * (10 if known.about.deep and unit.kind == "claim" else 1)
    return symbolic.check(getattr(module, known.function), seconds, (*known.patches, *patches))


def answers(
    units: Sequence[Unit],
    processes: int,
    finished: Callable[[Answer], None] = lambda answer: None,
) -> list[Answer]:
    """Ask everything, so many questions at a time; return the answers in the order of the questions.

    ``finished`` is told each as soon as it is there. What a question raises ends everything, and so does an interrupt. Raises
    UserError if a process ends without an answer.
    """
    found: dict[Unit, Answer] = {}
    for one in _in_processes(longest_first(units), processes):
        found[one.unit] = one
        finished(one)
    return [found[unit] for unit in units]


def longest_first(units: Sequence[Unit]) -> list[Unit]:
    """Return questions in the order in which processes take them: deep claims first, so that none is left alone at the end."""
    return sorted(units, key=lambda unit: unit.kind != "claim" or not catalogue.by_name(unit.claim).about.deep)


def _in_processes(units: Sequence[Unit], processes: int) -> Iterator[Answer]:
    others = set(multiprocessing.active_children())
    with tempfile.TemporaryDirectory(prefix="kvproof-prove-") as folder:
        executor = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(folder,))
        whole = False
        try:
            left: set[Future[Answer]] = {executor.submit(answer, unit) for unit in units}
            while left:
                done, left = wait(left, return_when="FIRST_COMPLETED")
                for one in done:
                    yield one.result()
            whole = True
        except BrokenProcessPool as error:
            raise UserError(
                "a process of the provers ended without a word; if memory is short, use fewer --processes"
            ) from error
        finally:
            if not whole:  # a claim under way has no end of its own
                for process in set(multiprocessing.active_children()) - others:
                    process.terminate()
            executor.shutdown(wait=True, cancel_futures=True)


def _begin(folder: str) -> None:
    """Begin a worker process.

    An interrupt is the parent's to notice: it ends the workers. Their files lie in a folder of the parent's, since a process
    that is ended takes none away.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tempfile.tempdir = folder
