"""Replay recordings operation by operation: does the profile predict everything, and do the laws hold on it?

``operations`` and ``scheduler`` say which actions an operation is, ``driver`` applies them and compares. ``declared`` lists
every difference between a recording and the model that is bridged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from attrs import define, field, frozen

from kvproof.core.actions import Action
from kvproof.core.config import VLLM_0_33_0, Config, Profile
from kvproof.core.errors import ConfigError
from kvproof.spec.judge import Judge, Violation
from kvproof.spec.laws.base import Law
from kvproof.spec.traces import project
from kvproof.spec.traces.driver import Diverged, Driver
from kvproof.spec.traces.errors import ReplayError
from kvproof.spec.traces.operations import Operations, recorded_outputs
from kvproof.spec.traces.read import Operation, Recording
from kvproof.spec.traces.scheduler import Scheduler, recorded_samples

PROFILE_OF_ENGINE: dict[tuple[str, str], Profile] = {("vllm", "0.33.0"): VLLM_0_33_0}


@frozen(slots=True)
class Divergence:
    """The first place where the profile does not predict what was recorded.

    ``operation`` is -1 for the header. ``what`` names the field, ``expected`` is the model's value, ``recorded`` the
    engine's.
    """

    recording: str
    operation: int
    op: str
    what: str
    expected: object
    recorded: object
    differences: tuple[str, ...] = ()


@frozen(slots=True)
class Raised:
    """A recording that ends with an exception of the engine, and what came first.

    ``law`` is the first law broken before it, in operation ``law_operation``; bent ones count, too. ``refused`` says why the
    model does not allow an action of operation ``refused_operation``: the last one, or one before it that the engine did.
    Without either the model performs what the engine could not.
    """

    recording: str
    operation: int
    op: str
    message: str
    law: Violation | None = None
    law_operation: int = -1
    refused: str = ""
    refused_operation: int = -1


@define(slots=True)
class Replay:
    """What came of one recording. ``actions`` are the model's, for counterexamples; ``declared`` counts bridged differences."""

    recording: str
    config: Config
    operations: int = 0
    divergence: Divergence | None = None
    raised: Raised | None = None
    violations: list[Violation] = field(factory=list)
    premises: Counter[str] = field(factory=Counter)
    declared: Counter[str] = field(factory=Counter)
    actions: list[Action] = field(factory=list)


def profile_for(recording: Recording) -> Profile:
    """Return the profile of the recorded engine. Raises ReplayError that lists the known engines."""
    engine = recording.header.engine
    profile = PROFILE_OF_ENGINE.get((engine.name, engine.version))
    if profile is None:
        known = ", ".join(f"{name} {version}" for name, version in PROFILE_OF_ENGINE)
        to_the_end = "`--follow` judges the laws to its end whatever differs, " if engine.level == "scheduler" else ""
        raise ReplayError(
            f"{recording.name}: no profile for {engine.name} {engine.version}; known engines: {known}; "
            f"{to_the_end}`--profile sound` compares with what the semantics ask for"
        )
    return profile


def replay(recording: Recording, laws: Sequence[Law] = (), profile: Profile | None = None) -> Replay:
    """Replay one recording under its engine's profile and judge every action by ``laws``.

    Stops at the first divergence. An exception of the engine that ends a recording is none if the model refuses the operation,
    too. Raises ReplayError if the model does not cover the recording.
    """
    profile = profile or profile_for(recording)
    reason = project.uncovered(recording.header)
    if reason is not None:
        raise ReplayError(f"{recording.name}: the model does not cover {reason} yet")
    try:
        config = project.model_config(recording.header, profile)
    except ConfigError as error:
        raise ReplayError(f"{recording.name}: the recorded configuration is not legal: {error}") from error
    outcome = Replay(recording.name, config)
    for name, expected, recorded in project.resolved_differences(config, recording.config):
        outcome.divergence = Divergence(recording.name, -1, "header", name, expected, recorded)
        return outcome
    performer = performer_of(recording, config, Judge(laws))
    driver = performer.driver
    outcome.violations += driver.judge.configuration(config)
    refused = False
    for operation, state in recording.states():
        driver.index = operation.index
        try:
            performer.perform(operation)
            performer.compare(state)
        except Diverged as found:
            outcome.divergence = _divergence(recording, operation, found)
            refused = found.refused
            break
        outcome.operations += 1
    outcome.violations += driver.violations
    outcome.premises = driver.judge.premises
    last = recording.operations[-1]
    if last.raised is not None:
        outcome.raised = _why_raised(performer, last, outcome, refused)
        if outcome.divergence is None and not outcome.raised.refused:
            outcome.divergence = _divergence(recording, last, Diverged("the engine raised", "a result", last.raised))
    outcome.actions = driver.actions
    outcome.declared = driver.met
    return outcome


def performer_of(recording: Recording, config: Config, judge: Judge) -> Operations | Scheduler:
    """Return what performs the operations of a recording, by its level."""
    if recording.header.engine.level == "scheduler":
        # what the workers drafted is in the recording of an asynchronous scheduler as far as it was accepted, and nowhere else
        sampled = recorded_samples(recording) if config.async_outputs else {}
        return Scheduler(Driver(recording.name, config, judge, early_outputs=False), recording.config, sampled)
    driver = Driver(recording.name, config, judge, recorded_outputs(recording), step_limit=recording.config.max_step_tokens)
    return Operations(driver)


def _divergence(recording: Recording, operation: Operation, found: Diverged) -> Divergence:
    return Divergence(
        recording.name, operation.index, operation.op, found.what, found.expected, found.recorded, found.differences
    )


def _why_raised(performer: Operations | Scheduler, last: Operation, outcome: Replay, refused: bool) -> Raised:
    """Say what came before the engine's exception: a broken law, an action out of contract, or neither.

    The last operation is tried on the model, unless the replay ended before it; nothing there is judged or compared. A
    scheduler's is not: which calls it had made is not recorded.
    """
    driver = performer.driver
    broken = min(driver.violations, key=lambda violation: violation.position, default=None)
    law_operation = -1 if broken is None else driver.places[broken.position]
    reason, place = "", -1
    if outcome.divergence is not None:
        if refused:
            reason, place = str(outcome.divergence.expected), outcome.divergence.operation
    elif isinstance(performer, Operations):
        driver.index, driver.judge = last.index, Judge(())
        try:
            performer.perform(last)
        except Diverged as found:
            what = "" if found.refused else f"{found.what} is {found.recorded!r}, possible is "
            reason, place = f"{what}{found.expected}", last.index
        except ReplayError as error:
            reason, place = str(error), last.index
    message = last.raised or ""
    return Raised(outcome.recording, last.index, last.op, message, broken, law_operation, reason, place)
