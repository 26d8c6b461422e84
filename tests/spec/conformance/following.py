"""Driving an adapter by what its shadow has seen: random walks, and lists of actions."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, field

from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.spec import laws as all_laws
from kvproof.spec.conformance.adapter import Shows
from kvproof.spec.conformance.oracle import Oracle, Verdict
from kvproof.spec.conformance.reference import ModelAdapter
from kvproof.spec.conformance.shadow import Seen
from kvproof.spec.engines import scopes
from kvproof.spec.engines.walk import DISABLED_EVERY, Walker
from kvproof.spec.judge import Violation
from kvproof.spec.laws.base import Law


@define
class Followed:
    """A run that an oracle followed."""

    config: Config
    oracle: Oracle
    actions: list[Action] = field(factory=list)
    seen: list[Seen] = field(factory=list)
    violations: list[Violation] = field(factory=list)

    def take(self, adapter: ModelAdapter, action: Action) -> Seen:
        """Let the adapter perform an action and the oracle look at it."""
        seen, found = self.oracle.observe(action, adapter.perform(self.oracle.outward(action)))
        self.actions.append(action)
        self.seen.append(seen)
        self.violations += found
        return seen

    @property
    def differences(self) -> list[tuple[int, str]]:
        return [(at, difference.what) for at, seen in enumerate(self.seen) for difference in seen.differences]

    @property
    def refuted(self) -> set[str]:
        return self.with_verdict(Verdict.REFUTED)

    @property
    def undetermined(self) -> set[str]:
        return self.with_verdict(Verdict.UNDETERMINED)

    def with_verdict(self, verdict: Verdict) -> set[str]:
        return {finding.law.id for finding in self.oracle.findings() if finding.verdict is verdict}


def begin(adapter: ModelAdapter, config: Config, laws: Sequence[Law] = all_laws.ALL) -> Followed:
    """Start an adapter and its oracle; ask for the sizes if they are shown."""
    adapter.start(config)
    oracle = Oracle(laws, config, adapter.shows, adapter.null_block)
    if Shows.GEOMETRY in adapter.shows:
        oracle.configuration(adapter.geometry(config))
    return Followed(config, oracle)


def walk(
    adapter: ModelAdapter, scope: str, seed: str, steps: int, until: Sequence[str] = (), laws: Sequence[Law] = all_laws.ALL
) -> Followed:
    """Walk on what the shadow follows; refused attempts are among the actions. ``until``: end when one of these is refuted."""
    where = scopes.by_name(scope)
    config = where.config()
    followed = begin(adapter, config, laws)
    walker = Walker.of(config, where.limits(config), seed)
    for number in range(1, steps + 1):
        legal = number % DISABLED_EVERY != 0
        world = followed.oracle.shadow.world
        seen = followed.take(adapter, walker.propose(world) if legal else walker.disabled(world))
        if legal:
            walker.observe(seen.followed)
        if any(followed.oracle.finding(law).verdict is Verdict.REFUTED for law in until):
            break
    return followed


def play(adapter: ModelAdapter, scope: str, actions: Sequence[Action]) -> Followed:
    """Perform a list of actions."""
    followed = begin(adapter, scopes.by_name(scope).config())
    for action in actions:
        followed.take(adapter, action)
    return followed
