"""``kvproof replay``: recorded runs against the model, operation by operation."""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from kvproof.core.config import PROFILES
from kvproof.spec import laws as all_laws
from kvproof.spec.exits import ExitCode, UserError
from kvproof.spec.judge import Violation
from kvproof.spec.progress import Shown
from kvproof.spec.traces import archive, project, read
from kvproof.spec.traces import summary as summaries
from kvproof.spec.traces.declared import DECLARED
from kvproof.spec.traces.read import Recording
from kvproof.spec.traces.replay import Divergence, Raised
from kvproof.spec.traces.summary import BaselineEntry, Summary
from kvproof.spec.vllm import followed

FILE_ENDINGS = (".gz", ".ndjson", ".json")
MOST_SHOWN = 5
"""Divergences and exceptions that are printed; what is left out is counted."""
RECORDING_ENDINGS = (".ndjson", ".ndjson.gz")
"""Of the files below a folder, those that are recordings."""


@click.command("replay", short_help="Replay recorded runs of real engines against the model.")
@click.argument("traces", nargs=-1, metavar="[TRACE]...")
@click.option("--list", "list_only", is_flag=True, help="List the shipped recordings and whether the model covers them.")
@click.option("--laws/--no-laws", "judge", default=True, help="Judge every action by the laws (default: yes).")
@click.option(
    "--baseline", type=click.Path(path_type=Path), help="JSON file of declared violations that are counted, not failed."
)
@click.option(
    "--profile",
    type=click.Choice([profile.name for profile in PROFILES]),
    help="Replay under this profile instead of the recorded engine's.",
)
@click.option(
    "--follow",
    "following",
    is_flag=True,
    help="Judge the laws to the end of each recording of a scheduler; differences from the model are listed, not failed.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    traces: tuple[str, ...],
    list_only: bool,
    judge: bool,
    baseline: Path | None,
    profile: str | None,
    following: bool,
    as_json: bool,
) -> ExitCode:
    """Replay TRACE (a file, a folder of them, or the name of a shipped recording; default: every shipped one the model covers).

    Two verdicts: does the engine's profile predict everything recorded, and do the laws hold on it. A law that a field of
    the profile bends is counted as bent and does not fail.
    """
    if list_only:
        return _list(as_json)
    declared = summaries.read_baseline(baseline, [law.id for law in all_laws.ALL]) if baseline is not None else ()
    chosen = list(_open(traces, check_sizes=not following))
    if following:
        return _follow(chosen, traces, judge, baseline, declared, profile, as_json)
    with Shown("replay", len(chosen), quiet=as_json) as shown:
        summary = summaries.replay_all(_shown(chosen, shown), all_laws.ALL if judge else (), declared, profile)
    _refuse_stale(baseline, summary.stale)
    skipped = bool(traces) and bool(summary.not_covered)
    verdict = summary.verdict
    if verdict is ExitCode.HOLDS and skipped:
        verdict = ExitCode.UNDETERMINED
    if as_json:
        click.echo(json.dumps(_as_dict(summary, verdict), indent=1, sort_keys=True))
    else:
        _print(summary, verdict, judge)
        _print_last_line(summary, traces, _options(judge, baseline, profile))
    return verdict


def _refuse_stale(baseline: Path | None, stale: Sequence[BaselineEntry]) -> None:
    """Refuse a baseline with entries that excuse nothing any more. Raises UserError."""
    if stale:
        raise UserError(
            f"{baseline}: entries that excuse nothing any more, remove them: "
            + "; ".join(f"{entry.law} in {entry.recording}" for entry in stale)
        )


def _follow(
    chosen: Sequence[Recording],
    traces: tuple[str, ...],
    judge: bool,
    baseline: Path | None,
    declared: Sequence[BaselineEntry],
    profile: str | None,
    as_json: bool,
) -> ExitCode:
    """Follow recordings to their end; without names all shipped ones of a scheduler."""
    if not judge:
        raise UserError("--follow judges the laws: leave --no-laws out")
    if not traces:
        chosen = [recording for recording in chosen if recording.header.engine.level == "scheduler"]
    with Shown("follow", len(chosen), quiet=as_json) as shown:
        total = followed.follow_all(_shown(chosen, shown), declared, profile)
    _refuse_stale(baseline, [entry for entry in declared if entry in total.seen and entry not in total.used])
    verdict = total.verdict
    if verdict is ExitCode.HOLDS and traces and total.not_covered:
        verdict = ExitCode.UNDETERMINED
    followed.show(total, verdict, as_json, _options(True, baseline, profile))
    return verdict


def _shown(recordings: Sequence[Recording], shown: Shown) -> Iterator[Recording]:
    """Hand out the recordings one after the other, and show which one is replayed now."""
    for recording in recordings:
        shown.doing(recording.name)
        yield recording
        shown.advance()


def _open(traces: tuple[str, ...], *, check_sizes: bool = True) -> Iterator[Recording]:
    if not traces:
        for _, recording in archive.recordings():
            yield recording
    shipped = {entry.file for entry in archive.entries()}
    for trace in traces:
        if trace and Path(trace).is_dir():
            yield from _in_folder(Path(trace), check_sizes)
        elif trace and Path(trace).exists():
            yield read.read(trace, check_sizes=check_sizes)
        elif trace.endswith(FILE_ENDINGS) and trace not in shipped:
            raise UserError(f"there is no file {trace}; `kvproof replay --list` names the shipped recordings")
        else:
            yield archive.open_recording(trace)


def _in_folder(folder: Path, check_sizes: bool) -> Iterator[Recording]:
    """Read the recordings below a folder, by name. Raises UserError if there are none."""
    files = sorted(file for ending in RECORDING_ENDINGS for file in folder.rglob(f"*{ending}"))
    if not files:
        raise UserError(f"{folder} holds no recording: name a folder with files that end in {' or '.join(RECORDING_ENDINGS)}")
    for file in files:
        yield read.read(file, check_sizes=check_sizes)


def _list(as_json: bool) -> ExitCode:
    rows = [
        (entry.name, entry.ops, ",".join(entry.config["groups"]), project.uncovered(recording.header))
        for entry, recording in archive.recordings()
    ]
    if as_json:
        click.echo(json.dumps([{"name": row[0], "ops": row[1], "groups": row[2], "not_covered": row[3]} for row in rows]))
        return ExitCode.HOLDS
    if not sys.stdout.isatty():
        for name, ops, groups, reason in rows:
            click.echo(f"{name}\t{ops}\t{groups}\t{'covered' if reason is None else f'not yet: {reason}'}")
        return ExitCode.HOLDS
    table = Table("recording", "operations", "groups", "covered", title="Shipped recordings")
    for name, ops, groups, reason in rows:
        table.add_row(name, str(ops), groups, "yes" if reason is None else f"not yet: {reason}")
    Console().print(table)
    return ExitCode.HOLDS


def _as_dict(summary: Summary, verdict: ExitCode) -> dict[str, Any]:
    return {
        "verdict": verdict.name.lower(),
        "recordings": summary.recordings,
        "operations": summary.operations,
        "actions": summary.actions,
        "not_covered": dict(sorted(summary.not_covered.items())),
        "divergences": [
            {
                "recording": found.recording,
                "operation": found.operation,
                "op": found.op,
                "what": found.what,
                "expected": repr(found.expected),
                "recorded": repr(found.recorded),
                "differences": list(found.differences),
            }
            for found in summary.divergences
        ],
        "raised": [_raised_as_dict(found) for found in summary.raised],
        "violations": [
            {
                "recording": name,
                "law": violation.law,
                "action": violation.position,
                "message": violation.evidence.message,
                "values": {key: repr(value) for key, value in violation.evidence.values},
            }
            for name, violation in summary.violations
        ],
        "bent": dict(sorted(summary.bent.items())),
        "excused": dict(sorted(summary.excused.items())),
        "declared": {name: summary.declared[name] for name in DECLARED},
        "premises": dict(sorted(summary.premises.items())),
    }


def _raised_as_dict(found: Raised) -> dict[str, Any]:
    return {
        "recording": found.recording,
        "operation": found.operation,
        "op": found.op,
        "message": found.message,
        "law": None if found.law is None else found.law.law,
        "law_operation": None if found.law is None else found.law_operation,
        "bent": None if found.law is None else found.law.bent,
        "out_of_contract": found.refused or None,
        "out_of_contract_operation": found.refused_operation if found.refused else None,
    }


def _print(summary: Summary, verdict: ExitCode, judged: bool) -> None:
    console = Console(soft_wrap=True)
    for found in summary.divergences[:MOST_SHOWN]:
        print_divergence(console, found)
    _print_left_out(console, len(summary.divergences), "recordings diverge")
    for raised in summary.raised[:MOST_SHOWN]:
        print_raised(console, raised, judged, [found.recording for found in summary.divergences])
    _print_left_out(console, len(summary.raised), "recordings end with an exception of the engine")
    times = Counter(violation.law for _, violation in summary.violations)
    for name, violation in _first_of_each_law(summary):
        console.print(f"[bold]{violation.law}[/bold] does not hold in ", end="")
        console.print(f"{name}, action {violation.position}:", markup=False)
        console.print(f"  {violation.evidence.message}", markup=False)
        if times[violation.law] > 1:
            console.print(f"  {times[violation.law] - 1} more of {violation.law}")
    table = Table("verdict", "result", title="Replay")
    table.add_row("recordings covered", f"{summary.recordings} of {summary.recordings + sum(summary.not_covered.values())}")
    table.add_row("operations", str(summary.operations))
    table.add_row("divergences from the profile", str(len(summary.divergences)))
    if summary.raised:
        table.add_row("ended by an exception of the engine", str(len(summary.raised)))
    violated = ", ".join(f"{law} x{count}" for law, count in times.items()) or "none"
    table.add_row("laws violated", violated if judged else "not judged")
    if summary.bent:
        table.add_row("laws bent by the profile", ", ".join(f"{law} x{n}" for law, n in sorted(summary.bent.items())))
    if summary.excused:
        table.add_row("excused by the baseline", ", ".join(f"{law} x{n}" for law, n in sorted(summary.excused.items())))
    if summary.declared:
        met = ", ".join(f"{name} x{summary.declared[name]}" for name in DECLARED if summary.declared[name])
        table.add_row("declared differences (docs/replay.md)", met)
    for reason, count in sorted(summary.not_covered.items()):
        table.add_row(f"not covered: {reason}", str(count))
    console.print(table)
    console.print(f"verdict: {verdict.name.lower()}")


def _print_left_out(console: Console, count: int, what: str) -> None:
    """Say how many are not printed."""
    if count > MOST_SHOWN:
        console.print(f"{count - MOST_SHOWN} more {what} (--json has them all)")


def _first_of_each_law(summary: Summary) -> list[tuple[str, Violation]]:
    """Return each violated law's first violation, with its recording."""
    first: dict[str, tuple[str, Violation]] = {}
    for name, violation in summary.violations:
        first.setdefault(violation.law, (name, violation))
    return list(first.values())


def _options(judge: bool, baseline: Path | None, profile: str | None) -> list[str]:
    """Return the options that decide what a replay finds, as they are written on a command line."""
    words = [] if judge else ["--no-laws"]
    if baseline is not None:
        words += ["--baseline", str(baseline)]
    if profile is not None:
        words += ["--profile", profile]
    return words


def _print_last_line(summary: Summary, traces: tuple[str, ...], options: list[str]) -> None:
    """Print the command that shows what failed again, with the options of this one; or why nothing was decided.

    Its recordings are that of the first divergence and those in which violated laws were seen first.
    """
    failing = [found.recording for found in summary.divergences[:1]] + [name for name, _ in _first_of_each_law(summary)]
    if failing:
        click.echo(f"kvproof replay {shlex.join([*options, *dict.fromkeys(failing)])}")
    elif traces and summary.not_covered:
        click.echo("some chosen recordings are not covered by the model yet")


def print_divergence(console: Console, found: Divergence) -> None:
    """Print the first divergence of a recording: the operation, both values, and the differing state entries."""
    place = "header" if found.operation < 0 else f"operation {found.operation} ({found.op}), line {found.operation + 2}"
    console.print(f"[bold]{found.recording}[/bold]: {place} differs in {found.what}")
    if found.differences:
        for line in found.differences:
            console.print(f"  {line}", markup=False)
    else:
        console.print(f"  expected  {found.expected!r}", markup=False)
        console.print(f"  recorded  {found.recorded!r}", markup=False)


def print_raised(console: Console, found: Raised, judged: bool, diverging: Collection[str]) -> None:
    """Print where the engine raised an exception and what came first: a broken law, an action out of contract, or neither."""
    place = f"operation {found.operation} ({found.op}), line {found.operation + 2}"
    console.print(f"[bold]{found.recording}[/bold]: {place}: the engine raised ", end="")
    console.print(found.message, markup=False)
    if found.law is not None:
        bent = ", bent by the profile" if found.law.bent else ""
        console.print(f"  first broken law before it: {found.law.law}{bent}, in operation {found.law_operation}")
        console.print(f"  {found.law.evidence.message}", markup=False)
    else:
        console.print("  no law was broken before it" if judged else "  the laws were not judged")
    if found.refused:
        console.print(f"  out of contract: operation {found.refused_operation}: {found.refused}", markup=False)
    elif found.recording in diverging and found.law is None:
        console.print("  no action before the first divergence was out of contract")
