"""Judging releases: the cases of a seed run on every release by a few processes, merged into one table per release.

The work is a list of jobs decided by the options, run in any order and merged in the order of the list: the same seed gives the
same tables, however many processes there are. Then the smallest case of every refuted law is looked for.
"""

from __future__ import annotations

import atexit
import datetime
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager
from typing import Any, Protocol

from attrs import evolve, field, frozen

from kvproof.core.config import Config
from kvproof.core.errors import ConfigError
from kvproof.core.profiles import Profile
from kvproof.spec import laws as all_laws
from kvproof.spec import near
from kvproof.spec.conformance.hidden import NotShown
from kvproof.spec.exits import UserError
from kvproof.spec.laws.base import Evidence, Law
from kvproof.spec.vllm import baseline, headers, runs, scopes, scopes_random, scripts, shrink, subjects, ticks, verdicts
from kvproof.spec.vllm.baseline import Entry
from kvproof.spec.vllm.process import ReleaseFailure, ReleaseLacks, ReleaseProcess, ReleaseRaised, ReleaseUnusable
from kvproof.spec.vllm.releases import Release
from kvproof.spec.vllm.runs import Breach, Case, Outcome, Play
from kvproof.spec.vllm.scope_parts import Scope
from kvproof.spec.vllm.subjects import Explain, Kind
from kvproof.spec.vllm.verdicts import Finding, Judged, Row, Table, Tally

STEPS = 2000
QUICK_STEPS = 400
DEEP_STEPS = 10_000
"""From so many steps on the other subjects are asked about more configurations, too."""

CASE_STEPS = 40
"""Scheduler steps of one case, about."""
SLICE = 6
"""Cases of one job."""
NAMED_ROUNDS = 3
"""So many rounds run every named scope; from then on every second round draws scopes at random."""
SHRINK_RUNS = 250
QUICK_SHRINK_RUNS = 120
LEAST_SHRINK_RUNS = 40


@frozen(slots=True)
class Options:
    """What to run. Empty ``laws``: all; ``scope``: only that one; ``number``: only that case of it; ``case``: only this one.

    ``steps``: scheduler steps in all, about. ``subjects``: rows and geometry, too. ``shrink_runs``: bound of runs per law; a
    given ``case`` is never made smaller.
    """

    seed: int = 0
    steps: int = STEPS
    quick: bool = False
    laws: tuple[str, ...] = ()
    scope: str = ""
    number: int | None = None
    case: Case | None = None
    processes: int = 2
    subjects: bool = True
    shrink_runs: int = SHRINK_RUNS


class OpenRunner(Protocol):
    """What opens the process of a release."""

    def __call__(self, release: Release) -> AbstractContextManager[Any]:
        """Return what runs scripts of a release (`runs.Runner`), closed when left."""
        ...


@frozen(slots=True)
class Job:
    """One piece of work on one release: ``kind`` is cases, subjects, witness or shrink."""

    kind: str
    release: Release
    laws: tuple[str, ...]
    cases: tuple[Case, ...] = ()
    entry: Entry | None = None
    finding: Finding | None = None
    seed: int = 0
    quick: bool = False
    max_runs: int = SHRINK_RUNS
    entries: tuple[Entry, ...] = ()

    @property
    def name(self) -> str:
        """What the progress display calls the job."""
        what = self.finding.law if self.finding is not None else self.entry.law if self.entry is not None else ""
        what = what or ", ".join(dict.fromkeys(case.scope.name for case in self.cases[:2]))
        return f"{self.release.version} {self.kind} {what}".strip()


@frozen(slots=True)
class Done:
    """What a job found. ``unusable``: why the release cannot be run at all."""

    job: Job
    outcomes: tuple[Outcome, ...] = ()
    judged: tuple[Judged, ...] = ()
    stale: str = ""
    finding: Finding | None = None
    unusable: str = ""


# --- what to do ------------------------------------------------------------------------------------------------------


def chosen_laws(names: Sequence[str]) -> tuple[Law, ...]:
    """Return the laws of these ids or families, all of them for none. Raises UserError for an unknown one."""
    known = {law.id: law for law in all_laws.ALL}
    families = {law.partition("-")[0] for law in known}
    for name in names:
        if name not in known and name not in families:
            raise UserError(near.unknown("law", name, list(known), "kvproof laws"))
    return tuple(law for law in all_laws.ALL if not names or law.id in names or law.id.partition("-")[0] in names)


def plan(options: Options) -> tuple[Case, ...]:
    """Return the cases of the options, the same for every release. Raises UserError for an unknown scope."""
    if options.case is not None:
        return (options.case,)
    if options.number is not None:
        return (_case(scopes.by_name(options.scope), options.seed, options.number),)
    found: list[Case] = []
    planned = 0
    for number, scope in _rounds(options):
        if planned >= options.steps:
            break
        case = _case(scope, options.seed, number)
        planned += scripts.planned_steps(case.script)
        found.append(case)
    return tuple(found)


def _rounds(options: Options) -> Iterator[tuple[int, Scope]]:
    """Yield (number, scope): round after round through the named scopes, later also through random ones."""
    named = (scopes.by_name(options.scope),) if options.scope else scopes.chosen(options.quick)
    number = 0
    while True:
        for at, scope in enumerate(named):
            if options.scope or number < NAMED_ROUNDS or number % 2:
                yield number, scope
            else:
                yield number, scopes_random.scope((options.seed << 20) + number * len(named) + at)
        number += 1


def _case(scope: Scope, seed: int, number: int) -> Case:
    script = scripts.generate(scope.config, f"{seed}/{scope.name}/{number}", CASE_STEPS, scope.ample)
    return Case(scope, script, f"--scope {scope.name} --seed {seed} --case {number}")


def shrink_runs(quick: bool, releases: int) -> int:
    """Return the bound of runs per refuted law: many releases share the time, one alone gets the smallest cases."""
    return max((QUICK_SHRINK_RUNS if quick else SHRINK_RUNS) // releases, LEAST_SHRINK_RUNS)


def jobs(options: Options, release: Release, entries: Sequence[Entry]) -> list[Job]:
    """Return the first jobs of a release: its cases in slices, the other subjects, the witnesses of its baseline."""
    ids = tuple(law.id for law in chosen_laws(options.laws))
    cases = plan(options)
    work = [Job("cases", release, ids, cases[at : at + SLICE]) for at in range(0, len(cases), SLICE)]
    if options.subjects and options.case is None and options.number is None and not options.scope:
        quick, declared = options.steps < DEEP_STEPS, tuple(entries)
        work.append(Job("subjects", release, ids, seed=options.seed, quick=quick, entries=declared))
    return work + [Job("witness", release, (entry.law,), entry=entry) for entry in entries if entry.law in ids]


# --- doing it --------------------------------------------------------------------------------------------------------


def perform(job: Job, open_runner: OpenRunner | None = None) -> Done:
    """Do one job. With ``open_runner`` a process is opened for it; otherwise this worker's process of the release is used."""
    try:
        if open_runner is None:
            return _performed(job, _WORKER.runner(job.release))
        with open_runner(job.release) as runner:
            return _performed(job, runner)
    except ReleaseUnusable as failure:
        return Done(job, unusable=str(failure))


def _performed(job: Job, runner: Any) -> Done:
    laws = chosen_laws(job.laws)
    if job.kind == "cases":
        profile = runs.followed(job.release.version)
        return Done(job, tuple(_played(runner, case, laws, profile=profile) for case in job.cases))
    if job.kind == "subjects":
        return Done(job, judged=tuple(_asked(runner, laws, job)))
    if job.kind == "witness" and job.entry is not None:
        return Done(job, stale=_stale(job.entry, runner, laws, runs.followed(job.release.version)))
    assert job.finding is not None
    return Done(job, finding=_shrunk(job, job.finding, runner, laws))


def _played(runner: Any, case: Case, laws: Sequence[Law], *, keep: bool = False, profile: Profile) -> Outcome:
    """Run a case and judge it, and count it for the display."""
    outcome = runs.play(runner, case, laws, keep=keep, profile=profile)
    ticks.tick()
    return outcome


def _asked(runner: Any, laws: Sequence[Law], job: Job) -> Iterator[Judged]:
    """Ask the release for its geometry and its rows, and yield what the laws say."""
    for one in subjects.judge(runner, laws, job.seed, quick=job.quick, explain=_explain(job.entries, laws)):
        finding = None
        if one.found is not None:
            evidence = one.found.evidence
            settings = ", ".join(f"{name} = {value}" for name, value in one.found.arguments.settings.items())
            about = [f"group: {group}" for group in one.found.arguments.groups] + [settings or "default settings"]
            about += [str(action) for action in one.found.actions]
            breach = Breach(one.law, -1, evidence.message, _values(evidence))
            finding = Finding(one.law, breach, f"--seed {job.seed}", subject=one.subject, about=tuple(about))
        yield Judged(one.law, one.subject, one.judged, one.broken, one.bent, one.declared, dict(one.hidden), finding)


def _explain(entries: Sequence[Entry], laws: Sequence[Law]) -> Explain:
    """Return what knows which violations of the other subjects the entries of a baseline declare, or the profile explains."""
    known = {law.id: law for law in laws}

    def explain(law: Law, config: Config, evidence: Evidence) -> Kind:
        kind = subjects.by_profile(law, config, evidence)
        breach = Breach(law.id, -1, evidence.message, _values(evidence), bent=kind == "bent")
        recorded = headers.recorded(config)
        return kind if baseline.excused(entries, recorded, breach, known) is None else "declared"

    return explain


def _values(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    return tuple((name, repr(value)) for name, value in evidence.values)


def _stale(entry: Entry, runner: Any, laws: Sequence[Law], profile: Profile) -> str:
    """Return why an entry's witness does not show its violation any more, or nothing."""
    if entry.witness.appends is not None:
        return _stale_rows(entry, runner, laws)
    outcome = _played(runner, entry.witness.case(entry.name), laws, profile=profile)
    known = {law.id: law for law in laws}
    if any(entry.excuses(outcome.case.scope.config, breach, known) for breach in outcome.breaches):
        return ""
    if outcome.unsupported:
        return f"{entry.name}: its witness cannot be run: {outcome.unsupported}"
    return f"{entry.name}: its witness {OUTSIDE if outcome.broken(entry.law) else NO_MORE}"


OUTSIDE, NO_MORE = "breaks the law outside its condition", "does not break the law any more"


def _stale_rows(entry: Entry, runner: Any, laws: Sequence[Law]) -> str:
    """Return why the appends of an entry's witness do not show its violation any more, or nothing."""
    (law,) = (law for law in laws if law.id == entry.law)
    try:
        kinds = subjects.performed(runner, law, *entry.witness.rows(entry.name), _explain([entry], laws))
    except (ConfigError, NotShown, ReleaseLacks, ReleaseRaised) as error:
        return f"{entry.name}: its witness cannot be run: {error}"
    if "declared" in kinds:
        return ""
    return f"{entry.name}: its witness {OUTSIDE if kinds else NO_MORE}"


def _shrunk(job: Job, finding: Finding, runner: Any, laws: Sequence[Law]) -> Finding:
    """Return the finding with the smallest case that breaks its law in a way that no entry of the baseline declares."""
    known = {law.id: law for law in laws}

    def play(case: Case) -> Outcome:
        outcome = _played(runner, case, laws, keep=True, profile=runs.followed(job.release.version))
        counted = [
            one
            for one in outcome.breaches
            if not one.bent and baseline.excused(job.entries, case.scope.config, one, known) is None
        ]
        return evolve(outcome, breaches=tuple(counted))

    assert finding.case is not None
    first = play(finding.case)
    if first.broken(finding.law) is None or not job.max_runs:
        return evolve(finding, outcome=first)
    smallest = _named(play, shrink.shrink(play, first, finding.law, job.max_runs), finding)
    breach = smallest.broken(finding.law)
    assert breach is not None
    return evolve(finding, case=smallest.case, breach=breach, outcome=smallest)


def _named(play: Play, smallest: Outcome, finding: Finding) -> Outcome:
    """Return the outcome of the smallest case under a name that does not claim the scope it was drawn for."""
    assert finding.case is not None
    scope, first = smallest.case.scope, finding.case.scope
    if scope.config == first.config:
        return smallest
    renamed = play(evolve(smallest.case, scope=evolve(scope, name=f"smaller-than-{first.name}")))
    return smallest if renamed.broken(finding.law) is None else renamed


class _Worker:
    """The process of the release that this worker ran last; a new one for another release."""

    def __init__(self) -> None:
        self._running: ReleaseProcess | None = None

    def runner(self, release: Release) -> ReleaseProcess:
        """Return a process of the release."""
        if self._running is None or self._running.release != release:
            self.close()
            self._running = ReleaseProcess(release)
        return self._running

    def close(self) -> None:
        """End the process."""
        if self._running is not None:
            self._running.close()
        self._running = None


_WORKER = _Worker()
atexit.register(_WORKER.close)


def perform_all(
    work: Sequence[Job],
    processes: int,
    finished: Callable[[Job], None] = lambda job: None,
    open_runner: OpenRunner | None = None,
) -> list[Done]:
    """Do jobs by a few processes and return what they found in their order. ``open_runner`` keeps them in this process."""
    if open_runner is not None or min(processes, len(work)) <= 1:
        done = []
        for job in work:
            done.append(perform(job, open_runner))
            finished(job)
        _WORKER.close()
        return done
    context = multiprocessing.get_context("spawn")
    counter = (ticks.counter(),)
    with ProcessPoolExecutor(min(processes, len(work)), mp_context=context, initializer=ticks.join, initargs=counter) as pool:
        futures: dict[Future[Done], int] = {pool.submit(perform, job): at for at, job in enumerate(work)}
        found: dict[int, Done] = {}
        try:
            for future in as_completed(futures):
                found[futures[future]] = future.result()
                finished(work[futures[future]])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [found[at] for at in range(len(work))]


@frozen(slots=True)
class Compared:
    """What of a head release is new against a base release, law by law: the finding, and why it is new.

    ``gone``: the head's rows of laws that only the base is refuted by; one that holds is fixed, within the same cases.
    """

    base: str
    head: str
    new: Mapping[str, str] = field(factory=dict)
    gone: tuple[Row, ...] = ()


def judge(
    options: Options,
    releases: Sequence[Release],
    entries: Mapping[str, Sequence[Entry]],
    today: datetime.date,
    started: Callable[[int], None] = lambda count: None,
    finished: Callable[[Job], None] = lambda job: None,
    open_runner: OpenRunner | None = None,
) -> list[Table]:
    """Run the cases on every release and return one table per release, with the smallest case of every refuted law.

    ``entries``: version -> its baseline. ``started`` is told how many jobs come next, ``finished`` every job that is done.
    """
    laws = chosen_laws(options.laws)
    work = [job for release in releases for job in jobs(options, release, entries.get(release.version, ()))]
    started(len(work))
    done = perform_all(work, options.processes, finished, open_runner)
    tallies = [_tally(release, laws, entries.get(release.version, ()), done) for release in releases]
    second = [
        Job(
            "shrink", release, (law,), finding=finding, max_runs=0 if options.case is not None else options.shrink_runs,
            entries=tuple(entries.get(release.version, ())),
        )
        for release, tally in zip(releases, tallies, strict=True)
        for law, finding in sorted(tally.candidates.items())
        if finding.case is not None
    ]  # fmt: skip
    started(len(second))
    shrunk = perform_all(second, options.processes, finished, open_runner)
    tables = []
    for release, tally in zip(releases, tallies, strict=True):
        own = [one for one in done if one.job.release == release]
        small = {one.finding.law: one.finding for one in shrunk if one.job.release == release and one.finding is not None}
        findings = [small.get(law, finding) for law, finding in sorted(tally.candidates.items())]
        late = baseline.expired(entries.get(release.version, ()), today)
        table = verdicts.table(
            tally,
            release.trusted,
            findings,
            [one.stale for one in own if one.stale],
            [f"{entry.name} of {entry.expires}" for entry in late],
        )
        unusable = next((one.unusable for one in own if one.unusable), "")
        tables.append(evolve(table, unusable=unusable))
    return tables


def _tally(release: Release, laws: Sequence[Law], entries: Sequence[Entry], done: Sequence[Done]) -> Tally:
    tally = Tally(release.version, laws, entries)
    for one in done:
        if one.job.release == release:
            for outcome in one.outcomes:
                tally.add(outcome)
            for judged in one.judged:
                tally.add_subject(judged)
    return tally


def compare(
    base: Table,
    head: Table,
    release: Release,
    processes: int = 1,
    open_runner: OpenRunner | None = None,
) -> Compared:
    """Return what of ``head`` is new: laws that ``base`` was not refuted by, and smallest cases that ``base`` passes.

    ``release`` is the base release, on which the smallest cases of the head are run.
    """
    new: dict[str, str] = {}
    again: list[Finding] = []
    for finding in head.findings:
        if finding.law not in base.refuted:
            new[finding.law] = f"{base.version} is not refuted by it"
        elif finding.case is not None:
            again.append(finding)
    work = [Job("cases", release, (finding.law,), (finding.case,)) for finding in again if finding.case]
    for finding, done in zip(again, perform_all(work, processes, open_runner=open_runner), strict=True):
        outcome = done.outcomes[0] if done.outcomes else None
        if outcome is not None and not outcome.unsupported and outcome.broken(finding.law) is None:
            new[finding.law] = f"its smallest case does not break the law on {base.version}"
    gone = (head.row(law) for law in base.refuted if law not in head.refuted)
    return Compared(base.version, head.version, new, tuple(row for row in gone if row is not None))


__all__ = [
    "Compared",
    "Done",
    "Job",
    "Options",
    "ReleaseFailure",
    "chosen_laws",
    "compare",
    "judge",
    "perform",
    "plan",
]
