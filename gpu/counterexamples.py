"""A difference of the tensors as a normal counterexample: shrunk, with the law that names what went wrong.

``kvproof report`` shows it; ``kvproof gpu --replay`` runs it again on tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import define, evolve, field, frozen

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.world import World
from kvproof.gpu import differential
from kvproof.gpu.compare import HOST, Difference
from kvproof.gpu.differential import Differential
from kvproof.spec import counterexample as examples
from kvproof.spec import laws
from kvproof.spec.counterexample import TENSORS, Counterexample, Implementation, Outcome, Shown
from kvproof.spec.engines import amounts, players, rules, shrink
from kvproof.spec.engines.amounts import Limits
from kvproof.spec.judge import Violation
from kvproof.spec.laws.base import Evidence, Law, Moment

LAW_OF_PART: dict[str, str] = {
    "table": "TB-2",
    "table length": "TB-4",
    "num_cached": "TB-14",
    "row": "TB-13",
    "row length": "TB-13",
    "row counts": "TB-11",
    "row guard": "TB-11",
    "row owners": "TB-13",
    "running columns": "TB-7",
    "accepted": "RQ-3",
    "references": "PC-3",
    "free queue": "PC-1",
    "primary key": "HB-5",
    "tokens of the primary key": "HB-4",
    "keys, by insertion": "HB-5",
    "entry behind a row": "TB-11",
    "entry behind all rows": "TB-11",
    "hit": "HB-10",
    "tokens": "RQ-4",
    "owed copy": "COW-2",
    "copies planned": "COW-3",
    "copies": "COW-3",
    "keys registered in this step": "COW-4",
    "deferred frees": "PC-3",
    "pinned hits": "CP-4",
    "loads": "LD-1",
    "abandoned loads": "CP-12",
    "stores": "HO-4",
    "abandoned stores": "CP-12",
    "queued stores": "IP-3",
    "next events": "CP-11",
    "output": "CC-7",
    "outputs": "CC-7",
    "output on other ranks": "CC-8",
    "local lengths": "DS-4",
    differential.MODEL: rules.TOTALITY,
    "performing": rules.TOTALITY,
    "reading back": rules.TOTALITY,
}
"""The law that speaks of a part; what is not named are counts and states of requests and steps (RQ-1).

Bytes depend on who wrote them.
"""
FEWEST_RUNS = 150
"""Runs of candidates that shrinking may take."""


def law_of(difference: Difference, action: Action | None) -> str:
    """Return the law that a difference breaks, given the action that showed it."""
    if difference.part != "bytes":
        return LAW_OF_PART.get(difference.part, "RQ-1")
    place = dict(difference.place)
    if place.get("tier") == HOST:
        return "CC-5"
    if isinstance(action, act.RunLoad):
        return "CC-6"
    if isinstance(action, act.Execute) and action.part == "copy":
        return "DS-5"
    return "CC-2" if "boundary" in place else "CC-1"


def sentence_of(law: str) -> str:
    """Return the sentence of a law or a rule."""
    return rules.SENTENCES[law] if law in rules.SENTENCES else laws.by_id(law).sentence


def violation_of(both: Differential) -> Violation | None:
    """Return the difference of a run as a violation at its last action, None if there is none."""
    found = both.difference
    if found is None:
        return None
    place = len(both.actions) - 1
    law = law_of(found, both.actions[-1] if both.actions else None)
    values = (("part", found.part), *found.place, ("expected", found.expected), ("tensors", found.actual))
    if found.part == differential.MODEL:
        return Violation(law, place, Evidence(f"the model itself fails: {found.actual}", (("expected", found.expected),)))
    return Violation(law, place, Evidence(f"the tensors differ from the model: {found.text()}", values))


@define(slots=True)
class Tensors:
    """The model and the tensors as a player, so that shrinking drives both. A refused action changes neither."""

    both: Differential
    start: Callable[[], Differential]

    @property
    def world(self) -> World:
        """The model's world."""
        return self.both.model

    @property
    def shown(self) -> World:
        """The same."""
        return self.both.model

    def act(self, action: Action) -> Moment:
        """Perform one action on both."""
        return self.both.act(action)

    def again(self) -> Tensors:
        """Return a run that has come to the same point."""
        both = self.start()
        for action in self.both.actions:
            both.act(action)
        return Tensors(both, self.start)


@define(slots=True)
class Seeing:
    """Judges a candidate by the comparison alone: the run that its player has just continued."""

    runs: list[Differential]

    def configuration(self, config: Config) -> list[Violation]:
        """A configuration alone shows nothing."""
        del config
        return []

    def moment(self, moment: Moment, position: int) -> list[Violation]:
        """Return the difference that an action showed."""
        del moment
        found = violation_of(self.runs[-1])
        return [] if found is None else [Violation(found.law, position, found.evidence)]

    def ruled(
        self, player: players.Player, moment: Moment, legal: bool, found: list[Violation], position: int
    ) -> list[Violation]:
        """The rules of generation are the model's."""
        del player, moment, legal, found, position
        return []

    def run(self, config: Config, actions: Sequence[Action], start: players.Start) -> list[Violation]:
        """A whole run shows nothing that its actions did not."""
        del config, actions, start
        return []


def shrunk(config: Config, both: Differential, limits: Limits | None, device: str) -> tuple[tuple[Action, ...], Differential]:
    """Return the fewest actions found that show a difference under the same law, and the run of them."""
    violation = violation_of(both)
    assert violation is not None, "only a run with a difference is shrunk"
    runs: list[Differential] = []

    def start(of: Config) -> players.Player:
        def begin() -> Differential:
            runs.append(differential.begin(of, device))
            return runs[-1]

        return Tensors(begin(), begin)

    def judging(known: Sequence[Law]) -> Seeing:
        del known
        return Seeing(runs)

    actions, _ = shrink.shrink(
        config,
        both.actions,
        violation,
        (),
        limits or amounts.limits_for(config),
        is_legal(config, both.actions),
        max_runs=FEWEST_RUNS,
        start=start,
        judging=judging,
    )
    again = differential.run(config, actions, device)
    return (actions, again) if again.difference is not None else (tuple(both.actions), both)


def is_legal(config: Config, actions: Sequence[Action]) -> bool:
    """Tell whether the model performs the last of these actions: a row that runs over shows in one that it refuses."""
    player = players.played(players.model, config, actions[:-1])
    return player.act(actions[-1]).refusal is None


@frozen(slots=True)
class Origin:
    """Where a run came from: the scope (or golden, or recording), its seed, and the fault that was planted."""

    scope: str
    seed: int = 0
    fault: str = ""
    limits: Limits | None = field(default=None)


def build(config: Config, both: Differential, origin: Origin, device: str = "cpu", *, shrinks: bool = True) -> Counterexample:
    """Return the counterexample of a run whose difference ends it; what the tensors showed stands in the last answer."""
    if shrinks and len(both.actions) > 1:
        _, both = shrunk(config, both, origin.limits, device)
    violation, difference = violation_of(both), both.difference
    assert violation is not None, "only a difference is a counterexample"
    assert difference is not None, "a violation is one"
    example = examples.build(
        config,
        both.actions,
        violation,
        sentence_of(violation.law),
        legal=not both.actions or is_legal(config, both.actions),
        engine=TENSORS,
        seed=origin.seed,
        scope=origin.scope,
        fault=origin.fault,
    )
    shown = [shown_as(outcome) for outcome in example.outcomes]
    shown[-1:] = [Shown(None, (("differs", difference.text()),))] if shown else []
    return evolve(example, implementation=Implementation(f"the tensor layer on {device}", tuple(shown)))


def shown_as(outcome: Outcome) -> Shown:
    """Return what the tensors showed before they differed: what the model answered."""
    if outcome.record is None:
        return Shown(outcome.code)
    fields = examples.changed_fields(outcome.record)
    return Shown(None, tuple((name, examples.plain(value)) for name, value in fields.items() if name != "action"))
