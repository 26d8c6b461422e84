"""Replay recordings operation by operation: does the profile predict everything, and do the laws hold on it?

``manager`` says which actions an operation is, ``driver`` applies them and compares. ``DECLARED`` lists every difference
between the recorded driver and the model.
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
from kvproof.spec.traces.manager import Manager, recorded_outputs
from kvproof.spec.traces.read import Recording

DECLARED: tuple[tuple[str, str], ...] = (
    (
        "requests.in_flight",
        "the recorded driver counts outputs as processed at end_step, the model when the sampled tokens arrive (T36)",
    ),
    (
        "preempt before the first allocation of a step",
        "recorded behind begin_step; for the model it happens between plans, as in a cache reset (T31)",
    ),
)
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


@define(slots=True)
class Replay:
    """What came of one recording. ``actions`` are the model's actions, for counterexamples."""

    recording: str
    config: Config
    operations: int = 0
    divergence: Divergence | None = None
    violations: list[Violation] = field(factory=list)
    premises: Counter[str] = field(factory=Counter)
    actions: list[Action] = field(factory=list)


def profile_for(recording: Recording) -> Profile:
    """Return the profile of the recorded engine. Raises ReplayError that lists the known engines."""
    engine = recording.header.engine
    profile = PROFILE_OF_ENGINE.get((engine.name, engine.version))
    if profile is None:
        known = ", ".join(f"{name} {version}" for name, version in PROFILE_OF_ENGINE)
        raise ReplayError(
            f"{recording.name}: no profile for {engine.name} {engine.version}; known engines: {known}; "
            "`--profile sound` compares with what the semantics ask for"
        )
    return profile


def replay(recording: Recording, laws: Sequence[Law] = (), profile: Profile | None = None) -> Replay:
    """Replay one recording under its engine's profile and judge every action by ``laws``.

    Stops at the first divergence. Raises ReplayError if the model does not cover the recording.
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
    manager = Manager(Driver(recording.name, config, Judge(laws), recorded_outputs(recording)))
    driver = manager.driver
    outcome.violations += driver.judge.configuration(config)
    for operation, state in recording.states():
        driver.index = operation.index
        try:
            manager.perform(operation)
            driver.compare(state, manager.drained)
        except Diverged as found:
            outcome.divergence = Divergence(
                recording.name,
                operation.index,
                operation.op,
                found.what,
                found.expected,
                found.recorded,
                found.differences,
            )
            break
        outcome.operations += 1
    raised = recording.operations[-1]
    if outcome.divergence is None and raised.change is None:
        outcome.divergence = Divergence(recording.name, raised.index, raised.op, "the engine raised", "a result", raised.raised)
    outcome.violations += driver.violations
    outcome.actions = driver.actions
    outcome.premises = driver.judge.premises
    return outcome
