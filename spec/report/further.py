"""What follows the last action of a counterexample, as lines and sentences that all forms share."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from kvproof.spec import counterexample as examples
from kvproof.spec import laws as all_laws
from kvproof.spec.counterexample import Counterexample
from kvproof.spec.report import lines
from kvproof.spec.report.film import Film
from kvproof.spec.report.lines import Line

MOST = 12
"""Lines of what follows in a short form."""


def told(example: Counterexample, film: Film, most: int = MOST) -> list[tuple[Line, range]]:
    """Return lines of what follows, numbered +1, +2, ..., each with its moments of the film; none for a remark."""
    moments = film.moments[film.told :]
    outcomes = tuple(map(examples.outcome_of, moments))
    actions = tuple(moment.action for moment in moments)
    run = evolve(example, actions=actions, outcomes=outcomes, position=-1, values=(), implementation=None)
    found = []
    for line, numbers in lines.windowed(run, most, "it is run again whenever this is shown"):
        if numbers:
            first, last = numbers.start + 1, numbers.stop
            line = evolve(line, number=f"+{first}" if first == last else f"+{first} to +{last}")
        found.append((line, range(numbers.start + film.told, numbers.stop + film.told) if numbers else numbers))
    return found


def sentence(example: Counterexample, film: Film) -> str:
    """Return what the lines are, or why there are none; "" for a law that says nothing of what comes behind."""
    found = film.follows
    if found is None:
        return ""
    cycle = examples.lasso_of(example)
    if cycle is not None:
        return _for_ever(cycle)
    if not found.moments:
        return ""
    law = next((known for known in all_laws.ALL if known.id == example.law), None)
    how = "the engine goes on by itself: steps run, copies end, requests finish"
    if law is not None and law.check_run is not None and "prompt" in dict(example.values):
        how += "; then the cache is reset and the prompt of the evidence is sent again"
    said = f"The law asks what becomes of the run. Behind its last action {how}."
    if found.repeated:
        said += f" Of the empty steps that lead back to the same world {found.repeated} are left out."
    if example.implementation is not None:
        said += f" This is the model; what {example.implementation.adapter} did there is not in the file."
    return said


def _for_ever(cycle: range) -> str:
    if cycle:
        return "Nothing follows: the cycle at the end of the run can go on for ever, and what is open stays open."
    return "Nothing follows: in the last world nothing that has to happen can, so that what is open stays open."


def left(film: Film) -> Sequence[str]:
    """Return what is left open at the end, a sentence each."""
    return () if film.follows is None else film.follows.left
