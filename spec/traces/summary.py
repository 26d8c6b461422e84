"""Replaying many recordings: two verdicts over all of them, and the baseline that excuses declared violations."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

import msgspec
from attrs import define, field

from kvproof.core.profiles import profile_named
from kvproof.spec.exits import ExitCode, UserError
from kvproof.spec.judge import Violation
from kvproof.spec.laws.base import Law
from kvproof.spec.traces import archive, project, replay
from kvproof.spec.traces.read import Recording
from kvproof.spec.traces.replay import Divergence, Raised, Replay


class BaselineEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One declared violation: the law, the recordings (a pattern such as ``m12*``), and why it is accepted."""

    law: str
    recording: str
    reason: str
    source: str

    def covers(self, recording: str) -> bool:
        """Tell whether the pattern names the recording: its short name, or the whole one if the pattern has a slash."""
        name = recording if "/" in self.recording else short(recording)
        return fnmatch.fnmatchcase(name, self.recording)

    def excuses(self, recording: str, violation: Violation) -> bool:
        """Tell whether this entry names the violation."""
        return self.law == violation.law and self.covers(recording)


class Baseline(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A baseline file: ``{"format": "kvproof-baseline", "version": 1, "violations": [...]}``."""

    format: str
    version: int
    violations: list[BaselineEntry]


class BaselineError(UserError):
    """A baseline file cannot be used."""


def read_baseline(path: Path, known_laws: Collection[str]) -> tuple[BaselineEntry, ...]:
    """Read and check a baseline file; every law must be known. Raises BaselineError with the place."""
    try:
        baseline = msgspec.json.decode(path.read_bytes(), type=Baseline)
    except OSError as error:
        raise BaselineError(f"{path}: cannot be read: {error.strerror}; name a readable file") from error
    except msgspec.MsgspecError as error:
        raise BaselineError(f"{path}: {error}; see docs/replay.md for the format") from error
    if (baseline.format, baseline.version) != ("kvproof-baseline", 1):
        raise BaselineError(f"{path}: is {baseline.format!r} version {baseline.version}, need 'kvproof-baseline' version 1")
    unknown = sorted({entry.law for entry in baseline.violations} - set(known_laws))
    if unknown:
        raise BaselineError(f"{path}: no law is called {', '.join(unknown)}; `kvproof laws` lists them")
    return tuple(baseline.violations)


@define(slots=True)
class Summary:
    """Totals over recordings. ``bent`` and ``excused`` count violations that do not fail, by law."""

    recordings: int = 0
    operations: int = 0
    actions: int = 0
    not_covered: Counter[str] = field(factory=Counter)
    divergences: list[Divergence] = field(factory=list)
    raised: list[Raised] = field(factory=list)
    violations: list[tuple[str, Violation]] = field(factory=list)
    bent: Counter[str] = field(factory=Counter)
    excused: Counter[str] = field(factory=Counter)
    premises: Counter[str] = field(factory=Counter)
    declared: Counter[str] = field(factory=Counter)
    stale: list[BaselineEntry] = field(factory=list)

    @property
    def verdict(self) -> ExitCode:
        """Refuted on any divergence or violation; undetermined if a chosen recording is not covered or none was run."""
        if self.divergences or self.violations:
            return ExitCode.REFUTED
        return ExitCode.UNDETERMINED if not self.recordings else ExitCode.HOLDS


def replay_all(
    recordings: Iterable[Recording],
    laws: Sequence[Law] = (),
    baseline: Sequence[BaselineEntry] = (),
    profile: str | None = None,
    progress: Callable[[Replay], None] = lambda replayed: None,
) -> Summary:
    """Replay recordings one after the other and add up what came of them; ``progress`` sees each."""
    chosen = None if profile is None else profile_named(profile)
    summary = Summary()
    used: set[BaselineEntry] = set()
    seen: set[BaselineEntry] = set()
    for recording in recordings:
        reason = project.uncovered(recording.header)
        if reason is not None:
            summary.not_covered[reason] += 1
            continue
        outcome = replay.replay(recording, laws, chosen)
        seen.update(entry for entry in baseline if entry.covers(recording.name))
        _add(summary, recording.name, outcome, baseline, used)
        progress(outcome)
    # An entry about recordings that were not replayed now says nothing.
    summary.stale = [entry for entry in baseline if entry in seen and entry not in used]
    return summary


def _add(summary: Summary, name: str, outcome: Replay, baseline: Sequence[BaselineEntry], used: set[BaselineEntry]) -> None:
    summary.recordings += 1
    summary.operations += outcome.operations
    summary.actions += len(outcome.actions)
    summary.premises.update(outcome.premises)
    summary.declared.update(outcome.declared)
    if outcome.divergence is not None:
        summary.divergences.append(outcome.divergence)
    if outcome.raised is not None:
        summary.raised.append(outcome.raised)
    for violation in outcome.violations:
        if violation.bent:
            summary.bent[violation.law] += 1
            continue
        excuses = [entry for entry in baseline if entry.excuses(name, violation)]
        if excuses:
            used.update(excuses)
            summary.excused[violation.law] += 1
        else:
            summary.violations.append((name, violation))


def replay_archive(laws: Sequence[Law] = (), progress: Callable[[Replay], None] = lambda replayed: None) -> Summary:
    """Replay every shipped recording that the model covers."""
    return replay_all((recording for _, recording in archive.recordings()), laws, progress=progress)


def short(recording: str) -> str:
    """Return a recording's name without folder and suffix."""
    return recording.rpartition("/")[2].removesuffix(archive.SUFFIX)
