"""``kvproof replay --follow``: recordings judged by the laws to their end; differences from the model are listed."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import click
from attrs import define, field
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
"""Violations, and kinds of differences, that are printed."""


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
            reason = "manager level (only recordings of a scheduler are followed)"
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
        "undetermined": dict(sorted(total.undetermined.items())),
    }


def show(total: Total, verdict: ExitCode, as_json: bool, options: Sequence[str]) -> None:
    """Print what came of following, for people or as JSON."""
    if as_json:
        click.echo(json.dumps(as_dict(total, verdict), indent=1, sort_keys=True))
        return
    console = Console(soft_wrap=True)
    for name, found in total.violations[:MOST_SHOWN]:
        place = f"operation {found.operation} ({found.op})" if found.operation >= 0 else "the configuration or the whole run"
        console.print(f"[bold]{found.law}[/bold] does not hold in {name}, {place}:")
        console.print(f"  {found.violation.evidence.message}", markup=False)
        for key, value in found.violation.evidence.values:
            console.print(f"    {key} = {value!r}", markup=False)
    for name, why in total.ended:
        console.print(f"{name} was not followed to its end: {why}", markup=False)
    table = Table("verdict", "result", title="Replay, followed")
    table.add_row("recordings followed", f"{total.recordings} of {total.recordings + sum(total.not_covered.values())}")
    table.add_row("operations", str(total.operations))
    table.add_row("laws violated", f"{len({found.law for _, found in total.violations})}, {len(total.violations)} times")
    if total.raised:
        table.add_row("ended by an exception of the engine", str(len(total.raised)))
    if total.bent:
        table.add_row("laws bent by the profile", ", ".join(f"{law} x{n}" for law, n in sorted(total.bent.items())))
    if total.excused:
        table.add_row("excused by the baseline", ", ".join(f"{law} x{n}" for law, n in sorted(total.excused.items())))
    table.add_row("differences from the model", f"{sum(total.counts.values())} of {len(total.counts)} kinds (no violations)")
    for kind, count in total.counts.most_common(MOST_SHOWN):
        table.add_row(f"  {kind}", str(count))
    judged = [law for law, count in total.premises.items() if count and law not in total.undetermined]
    table.add_row("laws judged", str(len(judged)))
    table.add_row("laws undetermined", ", ".join(sorted(total.undetermined)) or "none")
    for reason, count in sorted(total.not_covered.items()):
        table.add_row(f"not covered: {reason}", str(count))
    console.print(table)
    console.print(f"verdict: {verdict.name.lower()}")
    if total.violations:
        click.echo(f"reproduce: kvproof replay {shlex.join(['--follow', *options, total.violations[0][0]])}")
