"""``kvproof replay --follow``: recordings judged by the laws to their end; differences from the model are listed."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
from attrs import define, field, frozen
from rich.console import Console
from rich.table import Table

from kvproof.core.config import VLLM_0_33_0
from kvproof.core.profiles import profile_named
from kvproof.spec import laws as all_laws
from kvproof.spec.exits import ExitCode
from kvproof.spec.traces import project
from kvproof.spec.traces.read import Recording
from kvproof.spec.traces.summary import BaselineEntry
from kvproof.spec.vllm.follow import Followed, Found, follow

MOST_SHOWN = 5
"""Kinds of differences, reasons, and other recordings of a find that are printed; what is left out is counted."""

MANAGER_LEVEL = "manager level (only recordings of a scheduler are followed)"


@frozen(slots=True)
class Find:
    """A violated law: where it was seen first, how often it was seen, and in which recordings."""

    recording: str
    first: Found
    times: int
    recordings: tuple[str, ...]


@define(slots=True)
class Total:
    """What came of following some recordings. ``ended``: those that could not be followed to their end, with the reason."""

    recordings: int = 0
    operations: int = 0
    actions: int = 0
    violations: list[tuple[str, Found]] = field(factory=list)
    bent: Counter[str] = field(factory=Counter)
    excused: Counter[str] = field(factory=Counter)
    counts: Counter[str] = field(factory=Counter)
    premises: Counter[str] = field(factory=Counter)
    undetermined: dict[str, str] = field(factory=dict)
    raised: list[tuple[str, str]] = field(factory=list)
    ended: list[tuple[str, str]] = field(factory=list)
    not_covered: Counter[str] = field(factory=Counter)
    used: set[BaselineEntry] = field(factory=set)
    seen: set[BaselineEntry] = field(factory=set)

    @property
    def finds(self) -> list[Find]:
        """The violated laws, in the order in which they were seen first."""
        seen: dict[str, list[tuple[str, Found]]] = {}
        for name, found in self.violations:
            seen.setdefault(found.law, []).append((name, found))
        return [Find(*times[0], len(times), tuple(dict.fromkeys(name for name, _ in times))) for times in seen.values()]

    @property
    def decided(self) -> set[str]:
        """The laws that were seen violated, bent or excused."""
        return {found.law for _, found in self.violations} | set(self.bent) | set(self.excused)

    @property
    def left_open(self) -> dict[str, str]:
        """The laws that are undetermined, with the reason. One that was seen violated, bent or excused is not."""
        decided = self.decided
        return {law: why for law, why in sorted(self.undetermined.items()) if law not in decided}

    @property
    def judged(self) -> list[str]:
        """The laws that are not left open and of which some recording has the premise."""
        met = self.decided | {law for law, count in self.premises.items() if count}
        return sorted(met - set(self.left_open))

    @property
    def never_met(self) -> list[str]:
        """The laws that could be judged and of which no recording has the premise."""
        return sorted(set(self.premises) - set(self.judged) - set(self.left_open))

    @property
    def verdict(self) -> ExitCode:
        """Refuted on any violation; undetermined if nothing was followed, or something not to its end."""
        if self.violations:
            return ExitCode.REFUTED
        return ExitCode.UNDETERMINED if self.ended or not self.recordings else ExitCode.HOLDS


def follow_all(recordings: Iterable[Recording], baseline: Sequence[BaselineEntry], profile: str | None) -> Total:
    """Follow recordings one after the other and add up what came of them."""
    total = Total()
    chosen = VLLM_0_33_0 if profile is None else profile_named(profile)
    for recording in recordings:
        reason = project.uncovered(recording.header)
        if reason is None and recording.header.engine.level != "scheduler":
            reason = MANAGER_LEVEL
        if reason is not None:
            total.not_covered[reason] += 1
            continue
        total.seen.update(entry for entry in baseline if entry.covers(recording.name))
        _add(total, recording.name, follow(recording, all_laws.ALL, chosen), baseline)
    return total


def _add(total: Total, name: str, followed: Followed, baseline: Sequence[BaselineEntry]) -> None:
    total.recordings += 1
    total.operations += followed.operations
    total.actions += len(followed.actions)
    total.counts.update(followed.counts)
    total.premises.update(followed.premises)
    for law, parts in followed.hidden.items():
        total.undetermined.setdefault(law, f"it needs what is not shown: {', '.join(sorted(parts))}")
    for law, why in followed.unjudged.items():
        total.undetermined.setdefault(law, why)
    if followed.raised is not None:
        total.raised.append((name, followed.raised))
    if followed.ended:
        total.ended.append((name, followed.ended))
    for found in followed.violations:
        excuses = [entry for entry in baseline if entry.excuses(name, found.violation)]
        if found.violation.bent:
            total.bent[found.law] += 1
        elif excuses:
            total.used.update(excuses)
            total.excused[found.law] += 1
        else:
            total.violations.append((name, found))


def as_dict(total: Total, verdict: ExitCode) -> dict[str, Any]:
    """Return everything as JSON knows it."""
    return {
        "verdict": verdict.name.lower(),
        "recordings": total.recordings,
        "operations": total.operations,
        "actions": total.actions,
        "violations": [
            {
                "recording": name,
                "law": found.law,
                "operation": found.operation,
                "op": found.op,
                "action": found.violation.position,
                "message": found.violation.evidence.message,
                "values": {key: repr(value) for key, value in found.violation.evidence.values},
            }
            for name, found in total.violations
        ],
        "bent": dict(sorted(total.bent.items())),
        "excused": dict(sorted(total.excused.items())),
        "differences": dict(sorted(total.counts.items())),
        "raised": [{"recording": name, "message": message} for name, message in total.raised],
        "not_followed": [{"recording": name, "why": why} for name, why in total.ended],
        "not_covered": dict(sorted(total.not_covered.items())),
        "premises": dict(sorted(total.premises.items())),
        "undetermined": total.left_open,
    }


def show(total: Total, verdict: ExitCode, as_json: bool, options: Sequence[str]) -> None:
    """Print what came of following, for people or as JSON."""
    if as_json:
        click.echo(json.dumps(as_dict(total, verdict), indent=1, sort_keys=True))
        return
    console = Console(soft_wrap=True)
    finds = total.finds
    for find in finds:
        _show_find(console, find)
    for name, why in total.ended:
        console.print(f"{name} was not followed to its end: {why}", markup=False)
    console.print(_table(total, finds))
    for sentence in _not_followed(total.not_covered):
        console.print(sentence, markup=False)
    console.print(f"verdict: {verdict.name.lower()}")
    if finds:
        files = dict.fromkeys(find.recording for find in finds)
        click.echo(f"kvproof replay {shlex.join(['--follow', *options, *files])}")


def _show_find(console: Console, find: Find) -> None:
    """Print a violated law where it was seen first, and how often and where it was seen again."""
    found = find.first
    place = f"operation {found.operation} ({found.op})" if found.operation >= 0 else "the configuration or the whole run"
    console.print(f"[bold]{found.law}[/bold] does not hold in ", end="")
    console.print(f"{find.recording}, {place}:", markup=False)
    console.print(f"  {found.violation.evidence.message}", markup=False)
    for key, value in found.violation.evidence.values:
        console.print(f"    {key} = {value!r}", markup=False)
    if find.times > 1:
        others = [name for name in find.recordings if name != find.recording]
        more = [f"and {len(others) - MOST_SHOWN} more recordings"] if len(others) > MOST_SHOWN else []
        where = f", also in {', '.join(others[:MOST_SHOWN] + more)}" if others else ""
        console.print(f"  {find.times - 1} more of {found.law}{where}", markup=False)


def _table(total: Total, finds: Sequence[Find]) -> Table:
    """Return the counts, what is violated first."""
    table = Table("verdict", "result", title="Replay, followed")
    table.add_row("recordings followed", f"{total.recordings} of {total.recordings + sum(total.not_covered.values())}")
    table.add_row("operations", str(total.operations))
    table.add_row("laws violated", ", ".join(f"{find.first.law} x{find.times}" for find in finds) or "none")
    if total.raised:
        table.add_row("ended by an exception of the engine", str(len(total.raised)))
    if total.bent:
        table.add_row("laws bent by the profile", ", ".join(f"{law} x{n}" for law, n in sorted(total.bent.items())))
    if total.excused:
        table.add_row("excused by the baseline", ", ".join(f"{law} x{n}" for law, n in sorted(total.excused.items())))
    kinds = total.counts.most_common()
    table.add_row("differences from the model (no violations)", f"{sum(total.counts.values())}, of {_many(len(kinds), 'kind')}")
    for kind, count in kinds[:MOST_SHOWN]:
        table.add_row(f"  {kind}", str(count))
    if len(kinds) > MOST_SHOWN:
        table.add_row(f"  {_many(len(kinds) - MOST_SHOWN, 'more kind')}", str(sum(count for _, count in kinds[MOST_SHOWN:])))
    left_open = total.left_open
    table.add_row("laws judged", str(len(total.judged)))
    table.add_row("laws whose premise no recording has", str(len(total.never_met)))
    table.add_row("laws undetermined", str(len(left_open)))
    reasons = _by_reason(left_open)
    for why, laws in reasons[:MOST_SHOWN]:
        table.add_row(f"  {why}", ", ".join(laws))
    if rest := [law for _, laws in reasons[MOST_SHOWN:] for law in laws]:
        table.add_row(f"  {_many(len(reasons) - MOST_SHOWN, 'more reason')} (--json names them)", ", ".join(sorted(rest)))
    for reason, count in sorted(total.not_covered.items()):
        table.add_row(f"not covered: {reason}", str(count))
    return table


def _by_reason(undetermined: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """Return the reasons why laws are undetermined, each with its laws; the one of the most laws first."""
    laws: dict[str, list[str]] = {}
    for law, why in undetermined.items():
        laws.setdefault(why, []).append(law)
    return sorted(laws.items(), key=lambda reason: -len(reason[1]))


def _not_followed(not_covered: Mapping[str, int]) -> list[str]:
    """Say in sentences which recordings were not followed, and what can be done with them."""
    sentences = []
    for reason, count in sorted(not_covered.items()):
        which = f"{_many(count, 'recording')} {'was' if count == 1 else 'were'} not followed: "
        if reason == MANAGER_LEVEL:
            which += "at manager level only the block manager's calls are recorded, and --follow needs those of a scheduler"
            sentences.append(f"{which}. `kvproof replay` without --follow judges them up to the first divergence.")
        else:
            sentences.append(f"{which}the model does not cover {reason} yet.")
    return sentences


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
