"""What a release's runs say about every law, with the bounds of what was tried.

A law *holds*, is *refuted*, or is *undetermined*. Of a law whose only violations are known ones it is said that they are
*declared* (an entry of the baseline names them) or *bent* (a field of the followed profile explains them, no entry names them).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from attrs import define, field, frozen

from kvproof.spec.exits import ExitCode
from kvproof.spec.laws.base import Law
from kvproof.spec.vllm import baseline
from kvproof.spec.vllm.baseline import Entry
from kvproof.spec.vllm.process import raised_at
from kvproof.spec.vllm.runs import Breach, Case, Outcome

Verdict = Literal["holds", "refuted", "declared", "bent", "undetermined"]

NEVER = "its premise was never true"
UNSEEN = "it asked for what cannot be seen:"


@frozen(slots=True)
class Finding:
    """A violation that nothing declares, and where it was seen.

    Of a run: the ``case``, its first breach of the law, and the ``outcome``; once it was shrunk, those of the smallest case
    found, with the recording's lines. Of another subject (rows, geometry): ``about`` says under which configuration and how.
    ``origin``: the options of the command that found it.
    """

    law: str
    breach: Breach
    origin: str
    case: Case | None = None
    outcome: Outcome | None = None
    subject: str = "scheduler"
    about: tuple[str, ...] = ()


@frozen(slots=True)
class Row:
    """One law on one release. ``judged``: how often its premise was true. Of these, each counted once: ``broken``: how often a
    violation was seen that nothing declares; ``bent``: else, one that only the profile explains; ``declared``: else, one that
    the baseline declares. ``why``: the reason of an undetermined law; ``missing``: what it asked for that cannot be seen, with
    how often.
    """

    law: str
    verdict: Verdict
    judged: int
    broken: int = 0
    declared: int = 0
    bent: int = 0
    why: str = ""
    missing: tuple[tuple[str, int], ...] = ()


@frozen(slots=True)
class Judged:
    """What a subject other than the scheduler says about a law; ``hidden``: what could not be asked, and how often."""

    law: str
    subject: str
    judged: int
    broken: int = 0
    bent: int = 0
    declared: int = 0
    hidden: Mapping[str, int] = {}
    finding: Finding | None = None


NOT_RECORDED = ("rows", "geometry")
"""What runs never show, the beginning of a reason: where another subject judged the law, it is not missing."""


@define(slots=True)
class Tally:
    """Adds up the outcomes of one release."""

    version: str
    laws: Sequence[Law]
    entries: Sequence[Entry] = ()
    runs: int = 0
    steps: int = 0
    operations: int = 0
    premises: Counter[str] = field(factory=Counter)
    hidden: dict[str, Counter[str]] = field(factory=dict)
    broken: Counter[str] = field(factory=Counter)
    declared: Counter[str] = field(factory=Counter)
    bent: Counter[str] = field(factory=Counter)
    differing: Counter[str] = field(factory=Counter)
    """Scope -> runs in which the release did something that the model does not predict."""
    kinds: Counter[str] = field(factory=Counter)
    """Kind of such a difference -> how often it was seen."""
    unsupported: dict[str, str] = field(factory=dict)
    """Scope -> why the release cannot run it."""
    failures: list[tuple[str, str]] = field(factory=list)
    """(origin of the case, what ended it) of runs that the release ended early."""
    problems: list[tuple[str, str]] = field(factory=list)
    """(origin of the case, why) of runs that could not be recorded or followed to their end."""
    candidates: dict[str, Finding] = field(factory=dict)
    """Law -> the case with the fewest operations that broke it undeclared."""
    used: set[str] = field(factory=set)
    covered: set[str] = field(factory=set)
    """Laws that another subject judged."""

    def add(self, outcome: Outcome) -> None:
        """Add one case."""
        scope = outcome.case.scope.name
        if outcome.unsupported:
            self.unsupported.setdefault(scope, outcome.unsupported)
            return
        self.runs += 1
        self.steps += outcome.steps
        self.operations += outcome.operations
        self.premises.update(outcome.premises)
        for (law, what), count in outcome.hidden.items():
            self.hidden.setdefault(law, Counter())[what] += count
        self.differing[scope] += bool(outcome.differences)
        self.kinds.update(outcome.differences)
        if outcome.failure:
            self.failures.append((outcome.case.origin, raised_at(outcome.failure, outcome.traceback)))
        if outcome.problem:
            self.problems.append((outcome.case.origin, outcome.problem))
        known = {law.id: law for law in self.laws}
        seen: dict[tuple[str, int], int] = {}
        for breach in outcome.breaches:
            place = (breach.law, breach.moment)
            seen[place] = max(seen.get(place, 0), self._kind_of(outcome, breach, known))
        for (law, _), kind in seen.items():
            (self.declared, self.bent, self.broken)[kind][law] += 1

    def _kind_of(self, outcome: Outcome, breach: Breach, known: Mapping[str, Law]) -> int:
        """Return 0 for a declared breach, 1 for a bent one, and 2 for one that nothing explains; the shortest is kept."""
        entry = baseline.excused(self.entries, outcome.case.scope.config, breach, known)
        if entry is not None:
            self.used.add(entry.name)
            return 0
        if breach.bent:
            return 1
        best = self.candidates.get(breach.law)
        if best is None or outcome.operations < (best.outcome.operations if best.outcome else 0):
            self.candidates[breach.law] = Finding(breach.law, breach, outcome.case.origin, outcome.case, outcome)
        return 2

    def add_subject(self, judged: Judged) -> None:
        """Add what another subject says about a law."""
        self.premises[judged.law] += judged.judged
        self.broken[judged.law] += judged.broken
        self.bent[judged.law] += judged.bent
        self.declared[judged.law] += judged.declared
        for what, count in judged.hidden.items():
            self.hidden.setdefault(judged.law, Counter())[f"{judged.subject}: {what}"] += count
        if judged.judged:
            self.covered.add(judged.law)
        if judged.finding is not None and judged.law not in self.candidates:
            self.candidates[judged.law] = judged.finding

    def rows(self) -> list[Row]:
        """Return the table, in the order of the laws."""
        return [self._row(law) for law in self.laws]

    def _row(self, law: Law) -> Row:
        judged, broken, declared, bent = (count[law.id] for count in (self.premises, self.broken, self.declared, self.bent))
        hidden = Counter(self.hidden.get(law.id, {}))
        if law.id in self.covered:
            hidden = Counter({what: count for what, count in hidden.items() if not what.startswith(NOT_RECORDED)})
        if broken:
            return Row(law.id, "refuted", judged, broken, declared, bent)
        if bent or declared:
            return Row(law.id, "bent" if bent else "declared", judged, 0, declared, bent)
        if hidden:
            what, count = max(sorted(hidden.items()), key=lambda pair: pair[1])
            more = f" and {len(hidden) - 1} more" if len(hidden) > 1 else ""
            missing = tuple(sorted(hidden.items(), key=lambda pair: (-pair[1], pair[0])))
            return Row(law.id, "undetermined", judged, why=f"{UNSEEN} {what} ({count} times){more}", missing=missing)
        if not judged:
            return Row(law.id, "undetermined", 0, why=NEVER)
        return Row(law.id, "holds", judged)


@frozen(slots=True)
class Table:
    """Everything found on one release. ``stale`` and ``expired`` name entries of the baseline that must go."""

    version: str
    trusted: str
    rows: tuple[Row, ...]
    runs: int
    steps: int
    operations: int
    findings: tuple[Finding, ...] = ()
    differing: Mapping[str, int] = {}
    kinds: Mapping[str, int] = {}
    """Kind of what the followed profile does not predict -> how often it was seen."""
    unsupported: Mapping[str, str] = {}
    failures: tuple[tuple[str, str], ...] = ()
    problems: tuple[tuple[str, str], ...] = ()
    stale: tuple[str, ...] = ()
    expired: tuple[str, ...] = ()
    unusable: str = ""
    """Why the release could not be run at all."""

    def row(self, law: str) -> Row | None:
        """Return the row of a law."""
        return next((row for row in self.rows if row.law == law), None)

    @property
    def refuted(self) -> list[str]:
        """The laws that are refuted."""
        return [row.law for row in self.rows if row.verdict == "refuted"]

    def verdict(self, asked: Sequence[str] = ()) -> ExitCode:
        """Return the exit status of the release: refuted, undetermined, or holds.

        A law whose premise was never true makes the whole undetermined only if it was asked for by name (``asked``): a run of a
        few hundred steps never sees every premise.
        """
        if self.refuted:
            return ExitCode.REFUTED
        if self.unusable or self.stale or self.expired or self.problems or not self.runs:
            return ExitCode.UNDETERMINED
        if any(row.verdict == "undetermined" for row in self.rows if row.law in asked):
            return ExitCode.UNDETERMINED
        return ExitCode.HOLDS


def table(tally: Tally, trusted: str, findings: Sequence[Finding], stale: Sequence[str], expired: Sequence[str]) -> Table:
    """Return the table of a tally."""
    return Table(
        tally.version,
        trusted,
        tuple(tally.rows()),
        tally.runs,
        tally.steps,
        tally.operations,
        tuple(findings),
        {scope: count for scope, count in tally.differing.items() if count},
        dict(tally.kinds),
        dict(tally.unsupported),
        tuple(tally.failures),
        tuple(tally.problems),
        tuple(stale),
        tuple(expired),
    )
