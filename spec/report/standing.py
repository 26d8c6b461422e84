"""Whether a counterexample still shows what its file says: the same law, broken by the same action, after the same answers.

Every form says it at its beginning where that is not so; whoever reads a picture of something that does not happen any more
would look for a fault that is gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress

from attrs import frozen

from kvproof.spec import check, distribution, faults
from kvproof.spec import counterexample as examples
from kvproof.spec import laws as all_laws
from kvproof.spec.counterexample import Counterexample, CounterexampleError, Outcome
from kvproof.spec.exits import UserError
from kvproof.spec.judge import Judge, Violation, describe_crash, refuted
from kvproof.spec.report import film as films
from kvproof.spec.report import lines
from kvproof.spec.report.film import Film


@frozen(slots=True)
class Standing:
    """What running a counterexample again showed.

    ``again`` says whether its law breaks again, None where the model alone cannot tell: what an implementation or the tensors
    broke. ``notes`` are sentences that a reader needs before all others, none if everything is as the file says. ``film`` is
    None where there is no world to show; ``error`` says what keeps it from being run or judged.
    """

    again: bool | None
    notes: tuple[str, ...]
    film: Film | None
    violation: Violation | None = None
    error: CounterexampleError | None = None
    differences: tuple[str, ...] = ()

    @property
    def gone(self) -> bool:
        """Tell whether the law was to break again and does not."""
        return self.again is False

    def head(self, example: Counterexample) -> str:
        """Return the headline of a page."""
        return f"{example.law} does not break here" if self.gone else f"{example.law} does not hold"

    def mark(self, example: Counterexample) -> str:
        """Return what is said at the place where the law breaks by the file: that it does, or what is so here instead."""
        law = example.law
        if self.error is not None:
            return f"the file says that {law} breaks here; that cannot be judged (see above)"
        if self.gone:
            return f"the file says that {law} breaks here: it does not"
        if self.violation is not None and self.violation.position != example.position:
            return f"✗ the file says that {law} breaks here: it breaks {lines.where(self.violation)}"
        if example.position >= 0:
            return f"✗ breaks {law}"
        return f"✗ {law} does not hold {'on this run' if example.actions else 'of this configuration'}"

    def world(self) -> Film | None:
        """Return the film, None if the configuration is refused. Raises CounterexampleError for what cannot be run again."""
        if isinstance(self.error, CannotRun):
            raise self.error
        return self.film


class CannotRun(CounterexampleError):
    """There is nothing to look at: the fault is unknown here, or the sizes are too large."""


def look(example: Counterexample) -> Standing:
    """Run a counterexample again, once for all forms, and compare it with what it says of itself. Raises nothing."""
    try:
        examples.check_sizes(example.settings)
        film: Film | None = films.shoot(example)
    except films.NoWorld:
        film = None
    except Exception as error:
        why = _words(error)
        return Standing(_if_model(example, broken=False), (f"It cannot be run here: {why}.",), None, error=CannotRun(why))
    differences = () if film is None else tuple(_differences(example, film))
    if _if_model(example, broken=True) is None:
        consequence = ("So the worlds of the model on this page are not those that were compared.",) if differences else ()
        return Standing(None, (*differences, *consequence), film, differences=differences)
    try:
        violation = check.replay(example).violation
    except Exception as error:
        why = _words(error)
        notes = (f"It cannot be judged here: {why}.", *differences)
        return Standing(False, notes, film, error=CounterexampleError(why))
    if violation is not None:
        return Standing(
            True,
            (*_elsewhere(example, violation), *_evidence(example, violation), *differences),
            film,
            violation=violation,
            differences=differences,
        )
    others = () if film is None else tuple(_others(example, film))
    return Standing(False, (_holds(example), *differences, *others), film, differences=differences)


def _words(error: Exception) -> str:
    """Return why a counterexample cannot be run or judged. A file may hold numbers that no law reckons with."""
    return str(error) if isinstance(error, UserError) else f"it is beyond what can be judged ({describe_crash(error)})"


def _if_model(example: Counterexample, *, broken: bool) -> bool | None:
    """Return whether the law broke again, None if that is not for the model to say."""
    return None if example.engine == examples.TENSORS or example.implementation is not None else broken


def _holds(example: Counterexample) -> str:
    here, count = distribution.version(), len(example.actions)
    run = "this configuration" if not count else "this action" if count == 1 else f"these {count} actions"
    since = "the model, the law or the file has changed since"
    by = f"the file was written by kvproof {example.kvproof}"
    return f"{example.law} holds on {run} with kvproof {here}: {by}, and {since}."


def _elsewhere(example: Counterexample, violation: Violation) -> Iterator[str]:
    if violation.position != example.position:
        yield f"{example.law} breaks {lines.where(violation)} here, and not at {lines.place(example)}, as the file says."


def _evidence(example: Counterexample, violation: Violation) -> Iterator[str]:
    """Say what the law finds here, if that is not what the file says it found."""
    here = tuple((name, examples.plain(value)) for name, value in violation.evidence.values)
    if violation.position == example.position and (violation.evidence.message, here) != (example.message, example.values):
        said = "".join(f", {name} = {value}" for name, value in here)
        yield f"What {example.law} finds here is not what the file says: {violation.evidence.message}{said}."


def _differences(example: Counterexample, film: Film) -> Iterator[str]:
    """Say what the model answers otherwise than the file has it: the first one in full, the others by their number."""
    differing = [
        (at, then, now)
        for at, (then, now) in enumerate(zip(example.outcomes, map(examples.outcome_of, film.own), strict=True))
        if then != now
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
    return f"answers otherwise than the file has it: here {lines.answer_text(now) or 'done'}"


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
