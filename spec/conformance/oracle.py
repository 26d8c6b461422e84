"""The oracle: what the laws say of an implementation, from the moments that its shadow makes of what it shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum

from attrs import define, evolve, field

from kvproof.core.actions import Action
from kvproof.core.config import Config, Profile
from kvproof.spec.conformance import sizes
from kvproof.spec.conformance.adapter import Geometry, Observation, Shows
from kvproof.spec.conformance.certainty import TELLING
from kvproof.spec.conformance.hidden import NotShown, guessed
from kvproof.spec.conformance.shadow import Seen, Shadow
from kvproof.spec.judge import Violation, refuted
from kvproof.spec.laws import requests, rows
from kvproof.spec.laws.base import Findings, Law, Moment

OF_THE_WORKER: frozenset[str] = frozenset(law.id for law in rows.LAWS)
"""Laws about the worker's rows themselves. All others are about what the manager gave the worker: where no rows are shown they
are judged with rows of a sound worker."""


OF_THE_COUNT: frozenset[str] = frozenset(law.id for law in requests.LAWS)
"""Laws about what requests have computed and in flight. If nothing tells what was admitted, they would judge the oracle's own
count."""


class Verdict(Enum):
    """What can be said of a law."""

    HOLDS = "holds"
    REFUTED = "refuted"
    UNDETERMINED = "undetermined"


@define(slots=True)
class LawFinding:
    """What was found of one law: its violations, how often its premise was true and it could be judged, and what was hidden."""

    law: Law
    violations: list[Violation] = field(factory=list)
    judged: int = 0
    hidden: Counter[str] = field(factory=Counter)
    unjudged: str = ""
    """Why the law cannot be judged on this implementation at all, empty if it can."""

    @property
    def verdict(self) -> Verdict:
        """Refuted by a violation that no profile field explains; holds if it was judged and nothing it asked for was hidden."""
        if refuted(self.violations):
            return Verdict.REFUTED
        if self.hidden or self.unjudged or not self.judged:
            return Verdict.UNDETERMINED
        return Verdict.HOLDS

    @property
    def reason(self) -> str:
        """Why the verdict is what it is, in words."""
        if self.verdict is Verdict.REFUTED:
            first = refuted(self.violations)[0]
            return f"{len(refuted(self.violations))} violations, the first: {first.evidence.message}"
        if self.hidden:
            parts = ", ".join(f"{what} ({count} times)" for what, count in sorted(self.hidden.items()))
            return f"it needs what is not shown: {parts}"
        if self.unjudged:
            return self.unjudged
        return f"judged {self.judged} times" if self.judged else "its premise was never true"


@define(slots=True, init=False)
class Oracle:
    """A shadow and the laws: takes in observations, collects findings. A new run begins with ``restart``; findings stay."""

    laws: Sequence[Law]
    config: Config
    shows: frozenset[Shows]
    null_block: int
    shadow: Shadow
    position: int
    differences: Counter[str]
    _found: dict[str, LawFinding]
    _by_action: dict[type[Action], tuple[Law, ...]]
    _profile: Profile | None
    _partial: bool
    _asked: frozenset[str]
    """Laws that look at derived sizes."""
    _own: frozenset[str]
    """Free policies that the implementation declares as its own (``settings.FREE``)."""

    def __init__(
        self,
        laws: Sequence[Law],
        config: Config,
        shows: Iterable[Shows],
        null_block: int = 0,
        profile: Profile | None = None,
        *,
        partial: bool = False,
        own: Iterable[str] = (),
    ) -> None:
        """Begin with a run under a configuration; see ``Shadow``. ``own`` are free policies that are declared (PM-6)."""
        self.laws, self.config, self.shows, self.null_block = laws, config, frozenset(shows), null_block
        self.shadow = Shadow(config, self.shows, null_block, profile, partial=partial)
        self.position, self.differences = 0, Counter()
        self._by_action, self._profile, self._partial, self._own = {}, profile, partial, frozenset(own)
        self._found = {law.id: LawFinding(law) for law in laws}
        self._asked = frozenset(law.id for law in laws if sizes.looks_at_sizes(law, self.shadow.config))
        for law in laws:
            self._found[law.id].unjudged = self._beforehand(law)

    def _beforehand(self, law: Law) -> str:
        """Return why a law is undetermined as long as nothing else is known, empty if moments are enough to judge it."""
        if law.id in self._asked:
            if Shows.GEOMETRY not in self.shows:
                return f"it needs what is not shown: {Shows.GEOMETRY.value}"
            return "the sizes that the implementation derives were not asked for"
        if law.check is not None:
            return ""
        return sizes.FORMULAS if law.check_config is not None else "it judges whole runs, and none was given to it"

    def restart(self, config: Config | None = None) -> None:
        """Begin another run, with another configuration if one is given."""
        self.config = self.config if config is None else config
        self.shadow = Shadow(self.config, self.shows, self.null_block, self._profile, partial=self._partial)
        self.position = 0

    def outward(self, action: Action) -> Action:
        """Return an action of the followed world in the implementation's block ids."""
        return self.shadow.outward(action)

    def observe(self, action: Action, observation: Observation) -> tuple[Seen, list[Violation]]:
        """Take in what came of one action and judge it. Raises AdapterError."""
        seen = self.shadow.observe(action, observation)
        self.differences.update(difference.what for difference in seen.differences)
        found = self.judge(seen.moment)
        self.position += 1
        return seen, found

    def judge(self, moment: Moment) -> list[Violation]:
        """Judge a moment that may have hidden parts, by every law that looks at its action."""
        laws = self._by_action.get(type(moment.action))
        if laws is None:
            laws = tuple(law for law in self.laws if law.check is not None and (not law.on or type(moment.action) in law.on))
            self._by_action[type(moment.action)] = laws
        guess = guessed(moment)
        if guess:
            for law in laws:
                self._found[law.id].hidden[guess] += 1
            return []
        bare: Moment | None = None
        found: list[Violation] = []
        for law in laws:
            assert law.check is not None, "only laws with a check are chosen"
            here = moment
            if law.id in OF_THE_WORKER and Shows.ROWS not in self.shows:
                bare = bare or self._without_worker(moment)
                here = bare
            try:
                findings = law.check(here)
                if findings:
                    findings = list(findings)
            except NotShown as hidden:
                self._found[law.id].hidden[hidden.what] += 1
                continue
            except Exception as error:
                self._found[law.id].hidden[f"a state that it can make sense of ({type(error).__name__}: {error})"] += 1
                continue
            if findings is not None and law.id in OF_THE_COUNT and not TELLING & self.shows:
                self._found[law.id].hidden[Shows.ADMISSION.value] += 1
                continue
            found += self._note(law, findings, self.position, self.shadow.config)
        return found

    def configuration(self, geometry: Geometry) -> list[Violation]:
        """Judge the sizes that an implementation derives from the configuration, as far as it shows them.

        Raises AdapterError.
        """
        found: list[Violation] = []
        config = sizes.with_geometry(self.shadow.config, sizes.checked(self.shadow.config, geometry))
        for law in self.laws:
            if law.id not in self._asked or law.check_config is None:
                continue
            finding = self._found[law.id]
            finding.unjudged = ""
            try:
                found += self._note(law, law.check_config(config), -1, config)
            except NotShown as missing:
                finding.hidden[missing.what] += 1
        for name, check in sizes.MORE:
            if name in self._found:
                found += self._note(self._found[name].law, check(self.shadow.config, geometry), -1, config)
        return found

    def findings(self) -> tuple[LawFinding, ...]:
        """Return what was found of every law so far."""
        return tuple(self._found.values())

    def finding(self, law: str) -> LawFinding:
        """Return what was found of one law. Raises KeyError for one that is not judged here."""
        return self._found[law]

    def add(self, law: str, findings: Findings, position: int = -1) -> list[Violation]:
        """Take in what a law said of a whole run that another judge made (``check_run``, ``check_end``)."""
        return self._note(self._found[law].law, findings, position, self.shadow.config)

    def cannot(self, law: str, reason: str) -> None:
        """Note in words why a law cannot be judged on this implementation: it is undetermined unless something refutes it."""
        self._found[law].unjudged = reason

    def _note(self, law: Law, findings: Findings, position: int, config: Config) -> list[Violation]:
        if findings is None:
            return []
        finding = self._found[law.id]
        finding.judged += 1
        bent = any(getattr(config.profile, name) == value for name, value in law.bent_by)
        found = [
            Violation(law.id, position, evidence, (bent and evidence.bendable) or evidence.permitted_by in self._own)
            for evidence in findings
        ]
        finding.violations += found
        return found

    def _without_worker(self, moment: Moment) -> Moment:
        mask = self.shadow.mask
        return evolve(moment, before=mask.without_worker(moment.before), after=mask.without_worker(moment.after))
