"""The laws on runs of an adapter: moments by the oracle, whole runs through players, crashes by LV-9."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from attrs import define, field

from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.errors import Refusal
from kvproof.spec import judge
from kvproof.spec.conformance.adapter import AdapterError, Shows, Unsupported
from kvproof.spec.conformance.hidden import NotShown, guessed
from kvproof.spec.conformance.isolation import Died
from kvproof.spec.conformance.oracle import LawFinding, Oracle
from kvproof.spec.conformance.play import Crash, Point, Run, Runs, Unrepeatable, crash_of
from kvproof.spec.conformance.shadow import MOVING, undecided
from kvproof.spec.engines import drain, players, rules
from kvproof.spec.judge import Violation
from kvproof.spec.laws.base import Evidence, Findings, Law, Moment

GUARD = Law(
    id=rules.GUARD,
    mark="S",
    sentence=rules.SENTENCES[rules.GUARD],
    source="engines",
    faults=(),
)
"""The rule of generation that is no law of the model, so that it gets a verdict like one."""


def _state(config: Config) -> tuple[Shows, ...]:
    """Return what has to be shown to say that a refused action changed nothing."""
    device = (Shows.TABLES, Shows.REFERENCES, Shows.FREE_QUEUE, Shows.KEYS)
    return device if config.offload is None else (*device, Shows.HOST, Shows.TRANSFERS)


@define(slots=True)
class Judging:
    """Judges what one adapter does under one configuration; findings are kept by the oracle.

    ``cannot`` says per law why a whole run could not be judged by it.
    """

    oracle: Oracle
    runs: Runs
    cannot: dict[str, str] = field(factory=dict)

    @classmethod
    def of(cls, laws: Sequence[Law], config: Config, runs: Runs, own: Collection[str] = ()) -> Judging:
        """Return the judge of these laws; ``own`` are free policies that are declared (PM-6)."""
        adapter = runs.adapter
        return cls(Oracle(laws, config, adapter.shows, adapter.null_block, own=own), runs)

    def findings(self) -> tuple[LawFinding, ...]:
        """Return what was found so far."""
        return self.oracle.findings()

    def configuration(self, config: Config) -> list[Violation]:
        """Judge the sizes that the adapter derives from a configuration, if it shows them."""
        if Shows.GEOMETRY not in self.oracle.shows or not any(law.check_config for law in self.oracle.laws):
            return []
        try:
            return self.oracle.configuration(self.runs.adapter.geometry(config))
        except Unsupported as error:
            self._unable([law for law in self.oracle.laws if law.check_config], str(error))
        except Died as died:
            crash = Crash(f"{died.words} when it was asked for its geometry", ended=died.how)
            return self._note(rules.TOTALITY, [crashed(crash)], -1)
        return []

    def moment(self, moment: Moment, position: int) -> list[Violation]:
        """Judge one action. A crash breaks LV-9 if the action is a legal one; of another one see ``guard``."""
        crash = None if guessed(moment) else crash_of(moment)
        if crash is not None:
            if isinstance(moment.action, MOVING) and Shows.TRANSFERS not in self.oracle.shows:
                return []
            if judge.attempt(moment.before, moment.action).refusal is not None:
                return []
            return self._note(rules.TOTALITY, [crashed(crash)], position)
        self.oracle.position = position
        return self.oracle.judge(moment)

    def ruled(
        self, player: players.Player, moment: Moment, legal: bool, found: list[Violation], position: int
    ) -> list[Violation]:
        """Judge an action by the rules of generation; that a legal one is not performed is a matter of LV-9."""
        del moment, found
        return [] if legal or not isinstance(player, Run) else self.guard(player.point, position)

    def guard(self, point: Point, position: int) -> list[Violation]:
        """Judge an action that the model refuses by the rule that it must be refused and change nothing."""
        moment, before = point.moment, point.before
        assert moment is not None
        if all(law.id != rules.GUARD for law in self.oracle.laws) or guessed(moment):
            return []
        assert before is not None, "the beginning is no action"
        name = type(moment.action).__name__
        finding = self.oracle.finding(rules.GUARD)
        finding.unjudged = ""
        needed = undecided(before.world, moment.action, self.oracle.shows)
        if needed is not None:
            finding.hidden[needed.value] += 1
            return []
        found: list[Evidence] = []
        crash = crash_of(moment)
        if crash is not None:
            found.append(Evidence.of(f"{name} must be refused here: {crash.message}"))
        elif point.seen is not None and point.seen.followed.refusal is None and point.seen.problems:
            found.append(Evidence.of(f"{name} must be refused here and is accepted", why=point.seen.problems[0]))
        elif point.world is not before.world and before.config.profile.append_guard == "all_groups":
            found.append(Evidence.of(f"{name} is refused and changes what is shown"))
        else:
            unseen = [part for part in _state(before.config) if part not in self.oracle.shows]
            if unseen:  # whether it changes that nobody knows
                finding.hidden[unseen[0].value] += 1
                return []
        return self._note(rules.GUARD, found, position)

    def run(
        self,
        config: Config,
        actions: Sequence[Action],
        start: players.Start | None = None,
        laws: Collection[str] | None = None,
    ) -> list[Violation]:
        """Judge a whole run by the laws that perform actions again, and by what its end comes to under fairness.

        ``laws`` names those that are judged, if not all are.
        The position of a violation is -1, but where the implementation crashed on the way: there that of its last action.
        """
        begin = strictly(start or self.runs.begin)
        found: list[Violation] = []
        chosen = [law for law in self.oracle.laws if laws is None or law.id in laws]
        for law in chosen:
            if law.check is None and law.check_config is None and law.id != GUARD.id:
                self.oracle.finding(law.id).unjudged = ""
            if law.check_run is not None:
                check = law.check_run
                found += self._whole([law], lambda check=check: [check(config, actions, begin)])  # type: ignore[misc]
        ends = [law for law in chosen if law.check_end is not None]
        if ends and config.offload is not None:
            found += self._whole(ends, lambda: _ends(ends, config, actions, begin))
        return found

    def not_carried_on(self, dead: str) -> None:
        """Note that the implementation ended when a run was carried on, so that no law judged the whole of it."""
        laws = [law for law in self.oracle.laws if law.check_run is not None or law.check_end is not None]
        self._unable(laws, f"the implementation {dead} when the run was carried on")

    def _whole(self, laws: Sequence[Law], check: Callable[[], Sequence[Findings | NotShown]]) -> list[Violation]:
        """Judge a run by some laws at once; where the run cannot be carried on, none of them is judged."""
        before = len(self.runs.crashes)
        try:
            answers = check()
        except NotShown as missing:
            answers = [missing]
        except Unsupported as error:
            self._unable(laws, f"its other configuration is not supported: {error}")
            return []
        except Unrepeatable as error:
            self._unable(laws, str(error))
            return []
        except AdapterError:
            raise
        except Died as died:
            self._unable(laws, f"the implementation {died.words} when it was started for it")
            return []
        except Exception as error:
            # As with a single action: what cannot be made sense of is not judged.
            self._unable(laws, f"it needs a run that it can make sense of ({type(error).__name__}: {error})")
            return []
        if len(self.runs.crashes) > before:
            crash = self.runs.crashes[before]
            self._unable(laws, f"the implementation {crash.dead} when the run was carried on")
            refusal = crash_of(crash.moment) if crash.moment is not None else None
            assert refusal is not None, "a crash is a refusal"
            return self._note(rules.TOTALITY, [crashed(refusal)], len(crash.actions()) - 1)
        found: list[Violation] = []
        for law, findings in zip(laws, answers, strict=True):
            if isinstance(findings, NotShown):
                self.oracle.finding(law.id).hidden[findings.what] += 1
            else:
                found += self.oracle.add(law.id, findings)
        return found

    def _unable(self, laws: Sequence[Law], why: str) -> None:
        self.cannot |= {law.id: why for law in laws}

    def _note(self, law: str, evidence: list[Evidence], position: int) -> list[Violation]:
        if all(known.id != law for known in self.oracle.laws):
            return []
        return self.oracle.add(law, evidence, position)


def strictly(start: players.Start) -> players.Start:
    """Return how runs begin that may not go where only a guess leads: what is judged there needs what is not shown."""

    def begin(config: Config) -> players.Player:
        run = start(config)
        if isinstance(run, Run):
            run.strict = True
        return run

    return begin


def crashed(refusal: Refusal) -> Evidence:
    """Return the evidence of a crash."""
    return Evidence(f"the implementation {refusal.message}", tuple(refusal.values.items()), bendable=False)


def _ends(laws: Sequence[Law], config: Config, actions: Sequence[Action], start: players.Start) -> list[Findings | NotShown]:
    """Carry a run to quiet and return what each law says of it."""
    drained = drain.carried(players.played(start, config, actions))
    answers: list[Findings | NotShown] = []
    for law in laws:
        assert law.check_end is not None, "only laws of the end are asked"
        try:
            answers.append(law.check_end(drained))
        except NotShown as missing:
            answers.append(missing)
    return answers
