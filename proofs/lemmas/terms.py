"""What formulas are made of: on integers and truth values of Python it computes, on terms of Z3 it makes a term."""

from __future__ import annotations

from functools import reduce
from typing import Any

import z3

Term = Any
"""An integer or a truth value, of Python or of Z3."""


def integers(names: str) -> tuple[Term, ...]:
    """Return variables for integers, one for each name."""
    return tuple(z3.Ints(names))


def symbolic(*terms: Term) -> bool:
    """Tell whether one of these is a term of Z3."""
    return any(isinstance(term, z3.ExprRef) for term in terms)


def when(condition: Term, then: Term, otherwise: Term) -> Term:
    """Return one of two terms, as the condition says."""
    if symbolic(condition):
        return z3.If(condition, then, otherwise)
    return then if condition else otherwise


def every(*conditions: Term) -> Term:
    """Return whether all conditions hold."""
    return z3.And(*conditions) if symbolic(*conditions) else all(conditions)


def some(*conditions: Term) -> Term:
    """Return whether a condition holds."""
    return z3.Or(*conditions) if symbolic(*conditions) else any(conditions)


def never(condition: Term) -> Term:
    """Return whether a condition does not hold."""
    return z3.Not(condition) if symbolic(condition) else not condition


def implies(premise: Term, claim: Term) -> Term:
    """Return whether a claim holds wherever its premise does."""
    return some(never(premise), claim)


def div(a: Term, b: Term) -> Term:
    """Return a / b rounded down, for b > 0 (Z3's division is that one there)."""
    return a / b if symbolic(a, b) else a // b


def up(a: Term, b: Term) -> Term:
    """Return a / b rounded up, for b > 0."""
    return div(a + b - 1, b)


def least(a: Term, b: Term) -> Term:
    """Return the smaller of two."""
    return when(a <= b, a, b)


def most(a: Term, b: Term) -> Term:
    """Return the larger of two."""
    return when(a >= b, a, b)


def count(*conditions: Term) -> Term:
    """Return how many conditions hold."""
    return reduce(lambda total, condition: total + when(condition, 1, 0), conditions, 0)
