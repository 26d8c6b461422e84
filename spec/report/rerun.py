"""What running a counterexample again shows here, beside what its file says: its law, its evidence, its answers, its sizes.

A file may be of another version, or the code has been mended since. So every form shows what is so here, and begins with what
the file has otherwise; whoever reads a picture of something that does not happen any more would look for a fault that is gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from enum import Enum

import attrs
from attrs import evolve, frozen

from kvproof.core.errors import ConfigError
from kvproof.spec import check, distribution, faults
from kvproof.spec import counterexample as examples
from kvproof.spec import laws as all_laws
from kvproof.spec.counterexample import Counterexample, CounterexampleError, Geometry, Outcome
from kvproof.spec.exits import UserError
from kvproof.spec.judge import Judge, Violation, describe_crash, refuted
from kvproof.spec.report import departure, lines
from kvproof.spec.report import film as films
from kvproof.spec.report.film import Film

LONGEST = 400
"""Characters of what a file says that are told where it is not so here."""


class State(Enum):
    """What became of a law that a file says is broken."""

    BREAKS = "breaks"
    """It breaks here."""
    HOLDS = "holds"
    """It does not."""
    UNJUDGED = "cannot be judged"
    """The law, the fault or the configuration is none that can be judged here."""
    OUTSIDE = "broken outside"
    """An implementation or the tensors broke it: the model alone cannot tell."""


GONE = (State.HOLDS, State.UNJUDGED)
"""The states without evidence: there is none to show."""


@frozen(slots=True)
class Rerun:
    """What running a counterexample again showed.

    ``here`` is the counterexample as it is here, which is what forms show: with the evidence that its law gives here, none if
    it gives none; with the answers that come here, and the sizes to which its settings resolve. What an implementation or the
    tensors broke keeps its evidence. ``notes`` are sentences that a reader needs before all others, none if everything is as
    the file says. ``film`` is None where there is no world to show, ``why`` says why not.
    """

    here: Counterexample
    state: State
    notes: tuple[str, ...]
    film: Film | None
    violation: Violation | None = None
    why: str = ""

    @property
    def gone(self) -> bool:
        """Tell whether there is no evidence to show: the law holds here, or cannot be judged."""
        return self.state in GONE

    @property
    def head(self) -> str:
        """The headline of a page."""
        ends = {State.HOLDS: "does not break here", State.UNJUDGED: "cannot be judged here"}
        return f"{self.here.law} {ends.get(self.state, 'does not hold')}"

    @property
    def mark(self) -> str:
        """What is said at the place where the law breaks: that it does, or that it does so by the file alone."""
        law = self.here.law
        if self.state is State.UNJUDGED:
            return f"the file says that {law} breaks here; that cannot be judged (see above)"
        if self.state is State.HOLDS:
            return f"the file says that {law} breaks here: it does not"
        if self.here.position >= 0:
            return f"✗ breaks {law}"
        return f"✗ {law} does not hold {'of this configuration' if lines.of_configuration(self.here) else 'on this run'}"


def run_again(example: Counterexample) -> Rerun:
    """Run a counterexample again, once for all forms, and compare it with what it says of itself. Raises nothing."""
    state, violation, why = _judged(example)
    here = evolve(example, sentence=check.sentence_of(example.law) or example.sentence)
    if violation is not None:
        message, values = examples.evidence_of(violation)
        here = evolve(here, message=message, values=values, position=violation.position)
    elif state in GONE:
        here = evolve(here, message="", values=())
    notes = [*_verdict(example, state, violation, why)]
    film, unseen = _shot(here, breaks=state not in GONE)
    here = evolve(here, geometry=_geometry(example, film))
    if film is None:
        notes += [f"There is no world to show: {unseen}."] if unseen != why and not _refused_here(violation) else []
        notes += _other_words(example, here)
        return Rerun(here, state, tuple(notes), None, violation, unseen)
    here = evolve(here, outcomes=tuple(map(examples.outcome_of, film.own)))
    differences = [*_differences(example, here)]
    notes += differences
    if differences and state is State.OUTSIDE:
        notes.append("So the worlds of the model on this page are not those that were compared.")
    notes += _other_words(example, here)
    if state is State.HOLDS:
        notes += _others(example, film)
    return Rerun(here, state, tuple(notes), film, violation)


def _judged(example: Counterexample) -> tuple[State, Violation | None, str]:
    """Return what becomes of the law, the violation that is seen again, and what keeps it from being judged."""
    try:
        if examples.broken_outside(example):
            _check(example)
            return State.OUTSIDE, None, ""
        replayed = check.replay(example)
    except Exception as error:
        return State.UNJUDGED, None, _words(error)
    if replayed.unjudged:
        return State.UNJUDGED, None, replayed.unjudged
    return State.HOLDS if replayed.violation is None else State.BREAKS, replayed.violation, ""


def _check(example: Counterexample) -> None:
    """Refuse what the model cannot run beside an implementation or the tensors. Raises UserError."""
    if not check.sentence_of(example.law):
        raise CounterexampleError(f"no law {example.law!r} in this kvproof ({distribution.version()})")
    examples.check_sizes(example.settings)
    fault = examples.fault_of_model(example)
    with faults.planted(faults.by_id(fault)) if fault else nullcontext():
        try:
            example.settings.config(example.profile)
        except ConfigError as error:
            raise CounterexampleError(f"the configuration is refused: {error}") from error


def _shot(here: Counterexample, *, breaks: bool) -> tuple[Film | None, str]:
    """Return the worlds, or why there are none."""
    try:
        examples.check_sizes(here.settings)
        return films.shoot(here, breaks=breaks), ""
    except Exception as error:
        return None, _words(error)


def _geometry(example: Counterexample, film: Film | None) -> Geometry | None:
    """Return the sizes to which the settings resolve; where the fault has them refused, those without it."""
    if film is not None:
        return examples.geometry_of(film.config)
    with suppress(UserError, ConfigError, faults.FaultError):
        examples.check_sizes(example.settings)
        sound = departure.without_fault(example)
        return examples.geometry_of(sound.settings.config(sound.profile))
    return None


def _refused_here(violation: Violation | None) -> bool:
    """Tell whether the violation itself is that a configuration is refused: nobody expects a world then."""
    return violation is not None and violation.law == "HB-1"


def _words(error: Exception) -> str:
    """Return why a counterexample cannot be run or judged. A file may hold numbers that no law reckons with."""
    if isinstance(error, UserError | faults.FaultError):
        return str(error).rstrip(".")
    return f"it is beyond what can be judged ({describe_crash(error)})"


# --- what the file has otherwise ----------------------------------------------------------------------------------------


def _verdict(example: Counterexample, state: State, violation: Violation | None, why: str) -> Iterator[str]:
    """Say what became of the law, if that is not what the file says."""
    if state is State.UNJUDGED:
        yield f"It cannot be judged here: {why}."
    elif state is State.HOLDS:
        yield _holds(example)
    if state in GONE:
        yield f"The file says, at {lines.place(example)}: {_said(example)}."
    if violation is None:
        return
    if violation.position != example.position:
        yield f"{example.law} breaks {lines.where(violation)} here, and not at {lines.place(example)}, as the file says."
    if examples.evidence_of(violation) != (example.message, example.values):
        yield f"The file has other evidence: {_said(example)}."


def _holds(example: Counterexample) -> str:
    here, count = distribution.version(), len(example.actions)
    run = "this configuration" if not count else "this action" if count == 1 else f"these {count} actions"
    since = "the model, the law or the file has changed since"
    by = f"the file was written by kvproof {example.kvproof}"
    return f"{example.law} holds on {run} with kvproof {here}: {by}, and {since}."


def _said(example: Counterexample) -> str:
    """Return the evidence of a file in one line."""
    values = [f"{name} = {value}" for name, value in example.values] or ["no values"]
    return _cut("; ".join((example.message, *values)))


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


def _other_words(example: Counterexample, here: Counterexample) -> Iterator[str]:
    """Say what else a file has that is not so here: sizes that are not those of its settings, the law, a fault that is none."""
    if example.geometry is not None and here.geometry is not None:
        fields = [field.name for field in attrs.fields(Geometry)]
        pairs = [(name, getattr(example.geometry, name), getattr(here.geometry, name)) for name in fields]
        differing = [f"{name} {one}, here {other}" for name, one, other in pairs if one != other]
        if differing:
            yield f"The file has other sizes than its settings come to: {'; '.join(differing)}."
    if example.sentence != here.sentence:
        yield f"The file has the law in other words: {_cut(example.sentence)}"
    fault = next((known for known in faults.ALL if known.id == examples.fault_of_model(example)), None)
    planted = None if fault is None else fault.profile
    has = None if planted is None else getattr(example.profile, planted[0])
    if fault is not None and planted is not None and has != planted[1]:
        yield f"{fault.id} is {planted[0]} = {planted[1]} of the profile, which the file has as {has}: nothing is planted."


def _others(example: Counterexample, film: Film) -> Iterator[str]:
    """Say which other law breaks first instead, if one does."""
    judge = Judge([law for law in all_laws.ALL if law.id != example.law])
    fault = examples.fault_of_model(example)
    with faults.planted(faults.by_id(fault)) if fault else nullcontext():
        found: list[Violation] = []
        # Another law may not reckon with numbers of a file that its own law never looks at.
        with suppress(ArithmeticError, ValueError, LookupError, TypeError, MemoryError):
            found += refuted(judge.configuration(film.config))
            for at, moment in enumerate(film.own):
                if found:
                    break
                found += refuted(judge.moment(moment, at))
            found += [] if found else refuted(judge.run(film.config, example.actions))
    if found:
        yield f"What breaks instead is {_named(found)}."


def _named(found: Sequence[Violation]) -> str:
    first = found[0]
    more = list(dict.fromkeys(one.law for one in found[1:] if one.law != first.law))
    return f"{first.law}, {lines.where(first)}: {first.evidence.message}" + (f" (and {', '.join(more)})" if more else "")
