"""What a lemma is: statements that Z3 proves, made of formulas that a test compares with functions of `kvproof.core`.

Z3 proves formulas, not Python. So each formula is written once, for integers of Python and of Z3 alike (`kvproof.proofs.lemmas`
has them), and `make test` compares it with the function that it stands for on random values.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import z3
from attrs import field, frozen

from kvproof.proofs.claim import About
from kvproof.proofs.verdicts import Said, Verdict

MILLISECONDS = 60_000
"""What Z3 has for one statement."""

Formulas = Mapping[str, Callable[..., Any]]
"""Formulas by the names of the functions that they stand for; a faulty twin replaces some."""


@frozen(slots=True)
class Statement:
    """What is claimed of some variables, and under which premises, as truth values of Z3.

    ``of`` says of which sizes, if it speaks of some.
    """

    premises: tuple[Any, ...]
    claim: Any
    of: str = ""


@frozen(slots=True)
class Lemma:
    """Statements for Z3 that must all be true (see `About` for what they are about).

    ``state`` makes them out of formulas. ``formulas`` are the right ones, ``faulty`` names sets of wrong ones, each of which
    must make a statement false.
    """

    name: str
    sentence: str
    about: About
    state: Callable[[Formulas], tuple[Statement, ...]]
    formulas: Formulas
    faulty: Mapping[str, Formulas] = field(factory=dict)


def ask(lemma: Lemma, kind: Literal["claim", "twin", "faulty"], fault: str = "") -> Said:
    """Ask Z3 for a counterexample to a lemma, to a faulty twin, or to its vacuity twin.

    A vacuity twin claims what is false. It is refuted if there are values for the premises of every statement: one statement
    that none meet would be confirmed without saying anything, and then the twin is confirmed.
    """
    began = time.process_time()
    statements = lemma.state({**lemma.formulas, **lemma.faulty[fault]} if kind == "faulty" else lemma.formulas)
    answers = (_asked(statement, kind == "twin") for statement in statements)
    verdict, detail = _all_refuted(answers) if kind == "twin" else _none_refuted(answers)
    return Said(verdict, detail, time.process_time() - began)


Answers = Iterator[tuple[Verdict, str]]


def _none_refuted(answers: Answers) -> tuple[Verdict, str]:
    """Return what statements come to of which none may have a counterexample."""
    found = (Verdict.CONFIRMED, "")
    none = True
    for verdict, detail in answers:
        none = False
        if verdict is Verdict.REFUTED:
            return verdict, detail
        if verdict is Verdict.UNDETERMINED:
            found = verdict, detail
    return (Verdict.UNDETERMINED, "there is no statement") if none else found


def _all_refuted(answers: Answers) -> tuple[Verdict, str]:
    """Return what vacuity twins come to: refuted if all are."""
    found = (Verdict.UNDETERMINED, "there is no statement")
    for verdict, detail in answers:
        if verdict is not Verdict.REFUTED:
            return verdict, detail
        found = verdict, detail
    return found


def _asked(statement: Statement, twin: bool) -> tuple[Verdict, str]:
    """Look for values that meet the premises and, unless it is a twin, make the claim false."""
    solver = z3.Solver()
    solver.set("timeout", MILLISECONDS)
    solver.add(*statement.premises)
    if not twin:
        solver.add(z3.Not(statement.claim))
    found = solver.check()
    if found == z3.unsat:
        return Verdict.CONFIRMED, statement.of
    if found == z3.sat:
        model = solver.model()
        values = " ".join(", ".join(sorted(f"{name} = {model[name]}" for name in model.decls())).split())
        return Verdict.REFUTED, f"{statement.of}: {values}" if statement.of else values
    return Verdict.UNDETERMINED, f"{statement.of}: {solver.reason_unknown()}" if statement.of else solver.reason_unknown()
