"""Run actions and judge them by the laws; violations name the law and its evidence."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from attrs import define, field, frozen

from kvproof.core import step as door
from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.errors import ContractBroken, PoolExhausted, Refusal
from kvproof.core.world import World
from kvproof.spec.engines import drain, players
from kvproof.spec.laws.base import Evidence, Findings, Law, Moment


@frozen(slots=True)
class Violation:
    """A law broken by one action (``position`` counts actions from 0; -1: by the configuration or the whole run)."""

    law: str
    position: int
    evidence: Evidence
    bent: bool = False


@define(slots=True)
class Judge:
    """Judges moments by a fixed set of laws and counts how often each law's premise was true."""

    laws: Sequence[Law]
    premises: Counter[str] = field(factory=Counter)
    _by_action: dict[type[Action], tuple[Law, ...]] = field(factory=dict)

    def configuration(self, config: Config) -> list[Violation]:
        """Judge a configuration alone."""
        found = []
        for law in self.laws:
            if law.check_config is not None:
                found += self.found(law, law.check_config(config), -1, config)
        return found

    def moment(self, moment: Moment, position: int) -> list[Violation]:
        """Judge one action."""
        laws = self._by_action.get(type(moment.action))
        if laws is None:
            laws = tuple(law for law in self.laws if law.check is not None and (not law.on or type(moment.action) in law.on))
            self._by_action[type(moment.action)] = laws
        found: list[Violation] = []
        for law in laws:
            if law.check is not None:
                findings = law.check(moment)
                if findings is not None:
                    found += self.found(law, findings, position, moment.before.config)
        return found

    def run(self, config: Config, actions: Sequence[Action], start: players.Start | None = None) -> list[Violation]:
        """Judge a whole run by the laws that look at it as a whole, and at what its end comes to under fairness (5.13).

        ``start`` begins a run of who performs the actions, the model if it is left out.
        """
        start = start or players.Shared()
        found = []
        for law in self.laws:
            if law.check_run is not None:
                found += self.found(law, law.check_run(config, actions, start), -1, config)
        ends = [law for law in self.laws if law.check_end is not None]
        if ends and config.offload is not None:
            drained = drain.carried(players.played(start, config, actions))
            for law in ends:
                if law.check_end is not None:
                    found += self.found(law, law.check_end(drained), -1, config)
        return found

    def found(self, law: Law, findings: Findings, position: int, config: Config) -> list[Violation]:
        """Count the premise of a law that was judged, and return its evidence as violations."""
        if findings is None:
            return []
        self.premises[law.id] += 1
        bent = any(getattr(config.profile, name) == value for name, value in law.bent_by)
        return [Violation(law.id, position, evidence, bent and evidence.bendable) for evidence in findings]


def attempt(world: World, action: Action) -> Moment:
    """Try an action and describe what came of it. A crash is a broken contract: a verdict, not an end (LV-9)."""
    try:
        after, record = door.step(world, action)
    except Refusal as refusal:
        return Moment(world, action, None, refusal, refusal.world if refusal.world is not None else world)
    except Exception as error:
        return Moment(world, action, None, ContractBroken(f"crashed with {describe_crash(error)}"), world)
    return Moment(world, action, record, None, after)


def describe_crash(error: BaseException) -> str:
    """Return type and text of an exception and where in the package it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {'/'.join(Path(frames[-1].filename).parts[-2:])}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


def is_internal(refusal: Refusal) -> bool:
    """Tell whether a refusal means that the model itself is wrong: an internal contract or an unforeseen empty pool."""
    return issubclass(type(refusal), ContractBroken | PoolExhausted)  # asks nothing of a refusal that is hidden


def refuted(violations: Iterable[Violation]) -> list[Violation]:
    """Return the violations that a profile field does not explain."""
    return [violation for violation in violations if not violation.bent]
