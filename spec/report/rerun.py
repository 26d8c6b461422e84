"""What running a counterexample again shows here, beside what its file says: its law, its evidence, its answers, its sizes.

A file may be of another version, or the code has been mended since. So every form shows what is so here, and begins with what
the file has otherwise; whoever reads a picture of something that does not happen any more would look for a fault that is gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from typing import Any

import attrs
from attrs import evolve, frozen

from kvproof.spec import check, distribution, faults
from kvproof.spec import counterexample as examples
from kvproof.spec import laws as all_laws
from kvproof.spec.counterexample import Counterexample, CounterexampleError, Geometry, Outcome
from kvproof.spec.exits import UserError
from kvproof.spec.judge import Judge, Violation, describe_crash, refuted
from kvproof.spec.report import film as films
from kvproof.spec.report import lines
from kvproof.spec.report.film import Film

LONGEST = 400
"""Characters of what a file says that are told where it is not so here."""


@frozen(slots=True)
class Rerun:
    """What running a counterexample again showed.

    ``here`` is the counterexample as it is here, which is what forms show: with the evidence that its law gives here, none if
    that does not break; with the answers that come here, and the sizes to which its settings resolve. ``again`` says whether
    the law breaks again, None where the model alone cannot tell: what an implementation or the tensors broke. ``notes`` are
    sentences that a reader needs before all others, none if everything is as the file says. ``film`` is None where there is no
    world to show; ``error`` says what keeps it from being run or judged.
    """

    here: Counterexample
    again: bool | None
    notes: tuple[str, ...]
    film: Film | None
    violation: Violation | None = None
    error: CounterexampleError | None = None

    @property
    def gone(self) -> bool:
        """Tell whether the law was to break again and does not."""
        return self.again is False

    @property
    def head(self) -> str:
        """The headline of a page."""
        if self.error is not None:
            return f"{self.here.law} cannot be judged here"
        return f"{self.here.law} does not break here" if self.gone else f"{self.here.law} does not hold"

    @property
    def mark(self) -> str:
        """What is said at the place where the law breaks: that it does, or that it does so by the file alone."""
        law = self.here.law
        if self.error is not None:
            return f"the file says that {law} breaks here; that cannot be judged (see above)"
        if self.gone:
            return f"the file says that {law} breaks here: it does not"
        if self.here.position >= 0:
            return f"✗ breaks {law}"
        return f"✗ {law} does not hold {'on this run' if self.here.actions else 'of this configuration'}"


def run_again(example: Counterexample) -> Rerun:
    """Run a counterexample again, once for all forms, and compare it with what it says of itself. Raises nothing."""
    violation, error = _judged(example)
    again = None if examples.broken_outside(example) else violation is not None
    film: Film | None = None
    sentence = check.sentence_of(example.law) or example.sentence
    here = evolve(example if again is None else _found(example, violation), sentence=sentence)
    try:
        examples.check_sizes(example.settings)
        film = films.shoot(here, breaks=again is not False)
    except films.NoWorld:
        pass
    except Exception as unforeseen:
        why = _words(unforeseen)
        unseen = (f"It cannot be run here: {why}.", *_by_file(example, again))
        return Rerun(evolve(here, geometry=None), again, unseen, None, error=CounterexampleError(why))
    geometry = None if film is None else examples.geometry_of(film.config)
    outcomes = example.outcomes if film is None else tuple(map(examples.outcome_of, film.own))
    here = evolve(here, geometry=geometry, outcomes=outcomes)
    notes = [*_verdict(example, violation, again, error)]
    notes += _differences(example, here)
    if again is None and len(notes) > 0:
        notes.append("So the worlds of the model on this page are not those that were compared.")
    notes += [] if geometry is None or example.geometry is None else _sizes(example.geometry, geometry)
    notes += [] if example.sentence == sentence else [f"The file has the law in other words: {_cut(example.sentence)}"]
    if again is False and error is None and film is not None:
        notes += _others(example, film)
    return Rerun(here, again, tuple(notes), film, violation, error)


def _judged(example: Counterexample) -> tuple[Violation | None, CounterexampleError | None]:
    """Return the violation that is seen again, None if none is, and what keeps it from being judged."""
    if examples.broken_outside(example):
        return None, None
    try:
        return check.replay(example).violation, None
    except Exception as error:
        return None, CounterexampleError(_words(error))


def _found(example: Counterexample, violation: Violation | None) -> Counterexample:
    """Return a counterexample with the evidence that its law gives here; without one its place is that of the file."""
    if violation is None:
        return evolve(example, message="", values=())
    message, values = _evidence(violation)
    return evolve(example, message=message, values=values, position=violation.position)


def _evidence(violation: Violation) -> tuple[str, tuple[tuple[str, Any], ...]]:
    """Return the message and the values of a violation as a file has them."""
    return violation.evidence.message, tuple((name, examples.plain(value)) for name, value in violation.evidence.values)


def _words(error: Exception) -> str:
    """Return why a counterexample cannot be run or judged. A file may hold numbers that no law reckons with."""
    return str(error) if isinstance(error, UserError) else f"it is beyond what can be judged ({describe_crash(error)})"


# --- what the file has otherwise ----------------------------------------------------------------------------------------


def _verdict(
    example: Counterexample, violation: Violation | None, again: bool | None, error: CounterexampleError | None
) -> Iterator[str]:
    """Say what became of the law, if that is not what the file says."""
    if error is not None:
        yield f"It cannot be judged here: {error}."
    elif again is False:
        yield _holds(example)
    if violation is None:
        yield from _by_file(example, again)
        return
    if violation.position != example.position:
        yield f"{example.law} breaks {lines.where(violation)} here, and not at {lines.place(example)}, as the file says."
    if _evidence(violation) != (example.message, example.values):
        yield f"The file has other evidence: {_said(example)}."


def _holds(example: Counterexample) -> str:
    here, count = distribution.version(), len(example.actions)
    run = "this configuration" if not count else "this action" if count == 1 else f"these {count} actions"
    since = "the model, the law or the file has changed since"
    by = f"the file was written by kvproof {example.kvproof}"
    return f"{example.law} holds on {run} with kvproof {here}: {by}, and {since}."


def _by_file(example: Counterexample, again: bool | None) -> Iterator[str]:
    if again is False:
        yield f"The file says, at {lines.place(example)}: {_said(example)}."


def _said(example: Counterexample) -> str:
    """Return the evidence of a file in one line."""
    return _cut("; ".join((example.message, *(f"{name} = {value}" for name, value in example.values))))


def _cut(text: str) -> str:
    return lines.cut(text, LONGEST)


def _differences(example: Counterexample, here: Counterexample) -> Iterator[str]:
    """Say what the model answers otherwise than the file has it: the first one in full, the others by their number."""
    differing = [
        (at, then, now) for at, (then, now) in enumerate(zip(example.outcomes, here.outcomes, strict=True)) if then != now
    ]
    if not differing:
        return
    at, then, now = differing[0]
    others = len(differing) - 1
    more = "" if not others else " One later answer differs, too." if others == 1 else f" {others} later answers differ, too."
    yield f"Action {at}, {lines.action_text(example.actions[at])}, {_differs(then, now)}.{more}"


def _differs(then: Outcome, now: Outcome) -> str:
    if now.record is None and then.record is not None:
        return f"is refused here ({now.code}: {now.message.rstrip('.')}), and was done when the file was written"
    if then.record is None and now.record is not None:
        return f"is done here, and was refused when the file was written ({then.code})"
    return f"answers otherwise than the file has it: there {lines.answer_text(then) or 'done'}"


def _sizes(then: Geometry, now: Geometry) -> Iterator[str]:
    """Say which sizes of a file are not those of its settings."""
    pairs = [(field.name, getattr(then, field.name), getattr(now, field.name)) for field in attrs.fields(Geometry)]
    differing = [f"{name} {one}, here {other}" for name, one, other in pairs if one != other]
    if differing:
        yield f"The file has other sizes than its settings come to: {'; '.join(differing)}."


def _others(example: Counterexample, film: Film) -> Iterator[str]:
    """Say which other law breaks first instead, if one does."""
    judge = Judge([law for law in all_laws.ALL if law.id != example.law])
    fault = examples.fault_of_model(example)
    with faults.planted(faults.by_id(fault)) if fault else nullcontext():
        found = refuted(judge.configuration(film.config))
        # Another law may not reckon with numbers of a file that its own law never looks at.
        with suppress(ArithmeticError, ValueError, LookupError, TypeError, MemoryError):
            for at, moment in enumerate(film.own):
                if found:
                    break
                found += refuted(judge.moment(moment, at))
    if found:
        yield f"What breaks instead is {_named(found)}."


def _named(found: Sequence[Violation]) -> str:
    first = found[0]
    more = list(dict.fromkeys(one.law for one in found[1:] if one.law != first.law))
    return f"{first.law}, {lines.where(first)}: {first.evidence.message}" + (f" (and {', '.join(more)})" if more else "")
