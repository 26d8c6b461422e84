"""What a lemma is: a statement that Z3 proves, made of formulas that a test compares with functions of `kvproof.core`.

Z3 proves formulas, not Python. So each formula is written once, for integers of Python and of Z3 alike (`kvproof.proofs.lemmas`
has them), and `make test` compares it with the function that it stands for on random values.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

import z3
from attrs import field, frozen

from kvproof.proofs.claim import About
from kvproof.proofs.verdicts import Said, Verdict

MILLISECONDS = 60_000
"""What Z3 has for one question."""

Formulas = Mapping[str, Callable[..., Any]]
"""Formulas by name; a faulty twin replaces some."""


@frozen(slots=True)
class Statement:
    """What is claimed of some variables, and under which premises."""

    premises: tuple[z3.BoolRef, ...]
    claim: z3.BoolRef


@frozen(slots=True)
class Lemma:
    """A statement for Z3 (see `About` for what it is about).

    ``state`` makes the statement out of formulas. ``formulas`` are the right ones, ``faulty`` names sets of wrong ones, each
    of which must make the statement false.
    """

    name: str
    sentence: str
    about: About
    state: Callable[[Formulas], Statement]
    formulas: Formulas
    faulty: Mapping[str, Formulas] = field(factory=dict)


def ask(lemma: Lemma, kind: Literal["claim", "twin", "faulty"], fault: str = "") -> Said:
    """Ask Z3 for a counterexample to a lemma, to its vacuity twin (any values that meet the premises), or to a faulty twin."""
    began = time.process_time()
    statement = lemma.state({**lemma.formulas, **lemma.faulty[fault]} if kind == "faulty" else lemma.formulas)
    solver = z3.Solver()
    solver.set("timeout", MILLISECONDS)
    solver.add(*statement.premises)
    if kind != "twin":
        solver.add(z3.Not(statement.claim))
    found = solver.check()
    seconds = time.process_time() - began
    if found == z3.unsat:
        return Said(Verdict.CONFIRMED, "", seconds)
    if found == z3.sat:
        model = solver.model()
        return Said(Verdict.REFUTED, ", ".join(sorted(f"{name} = {model[name]}" for name in model.decls())), seconds)
    return Said(Verdict.UNDETERMINED, solver.reason_unknown(), seconds)
