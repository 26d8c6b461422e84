"""What ``kvproof prove`` does: asks, compares, writes and prints."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table

from kvproof.proofs import catalogue, exhausted, page, table, work
from kvproof.proofs import result as results
from kvproof.proofs.result import Asked, Result
from kvproof.proofs.verdicts import Verdict
from kvproof.proofs.work import Answer
from kvproof.spec import check, output
from kvproof.spec.commands.check import wide_console
from kvproof.spec.exits import ExitCode, UserError
from kvproof.spec.progress import Shown


def run(
    quick: bool,
    claims: tuple[str, ...],
    planted: tuple[str, ...],
    *,
    update: bool,
    write: Path | None,
    certificate: Path | None,
    processes: int,
    as_json: bool,
    timing: bool,
) -> ExitCode:
    """Do what the command line asks for (see `kvproof.proofs.command`). Raises UserError."""
    if "list" in claims:
        return _list(as_json)
    asked = Asked(quick, claims, check.one_fault(planted))
    if update and (asked.fault or write is not None):
        raise UserError("--update writes the table of the model as it is: leave --fault and --write out")
    if (write is not None or certificate is not None) and (quick or claims or asked.fault):
        raise UserError("--write and --certificate prove nothing: leave --quick, --claim and --fault out")
    if certificate is not None:
        exhausted.write(exhausted.of_certificate(certificate))
    if write is not None:
        output.write_atomically(write, page.text(table.read(), exhausted.read()))
        click.echo(f"wrote {write}")
    if certificate is not None or write is not None:
        return ExitCode.HOLDS
    units = results.units(asked)
    rows = table.read()
    if update:
        output.check_writable(table.FILE)
    began = time.monotonic()
    with Shown("prove", len(units), quiet=as_json) as shown:

        def finished(answer: Answer) -> None:
            shown.doing(f"{answer.unit.name}: {answer.said.verdict.value}")
            shown.advance()

        answers = work.answers(units, processes, finished)
    result = results.of(asked, answers, rows)
    if update and result.refuted:
        click.echo("the table is left as it is: a claim that is false has no place in it", err=True)
    elif update:
        rows = table.updated(answers, rows)
        table.write(rows)
        result = results.of(asked, answers, rows)
    seconds = round(time.monotonic() - began, 1) if timing else None
    if as_json:
        document = results.as_dict(result, timing)
        click.echo(json.dumps(document if seconds is None else {**document, "seconds": seconds}, indent=1, sort_keys=True))
    else:
        _print(result, seconds)
    return result.verdict


def _list(as_json: bool) -> ExitCode:
    known = catalogue.everything()
    if as_json:
        click.echo(
            json.dumps([{"claim": one.name, "sentence": one.sentence, "deep": one.about.deep} for one in known], indent=1)
        )
    else:
        for one in known:
            click.echo(f"{one.name}{' (deep)' if one.about.deep else ''}: {one.sentence}")
    return ExitCode.HOLDS


def _print(result: Result, seconds: float | None) -> None:
    console, asked = wide_console(), result.asked
    shown = Table(
        title="kvproof prove" + (f", {asked.fault} planted" if asked.fault else "") + (", quick" if asked.quick else "")
    )
    shown.title_justify = "left"
    for heading in ("file", "claims", "confirmed", "vacuity twins refuted", "faulty twins refuted", "undetermined"):
        shown.add_column(heading, justify="left" if heading == "file" else "right")
    for file in dict.fromkeys(_file(answer) for answer in result.answers):
        shown.add_row(file, *_counts([answer for answer in result.answers if _file(answer) == file]))
    console.print(shown)
    for line in result.problems:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for answer in result.refuted:
        known = catalogue.by_name(answer.unit.claim)
        functions = ", ".join(
            f"{function.__module__.removeprefix('kvproof.')}.{function.__name__}" for function in known.about.of
        )
        console.print(f"\n{answer.unit.claim} is {answer.said.verdict.value} ({functions})", markup=False, highlight=False)
        console.print(f"  {known.sentence}", markup=False, highlight=False, soft_wrap=True)
        console.print(f"  {answer.said.detail}", markup=False, highlight=False, soft_wrap=True)
    if seconds is not None:
        for answer in sorted(result.answers, key=lambda answer: -answer.said.seconds)[:10]:
            console.print(f"{answer.said.seconds:8.2f} s  {answer.unit.name}", markup=False, highlight=False)
        console.print(f"{seconds} s")
    console.print(f"verdict: {result.verdict.name.lower()}", highlight=False)
    if result.verdict is not ExitCode.HOLDS:
        console.print(results.again(result), markup=False, highlight=False, soft_wrap=True)


def _file(answer: Answer) -> str:
    return answer.unit.claim.partition(".")[0]


def _counts(answers: Sequence[Answer]) -> list[str]:
    found = Counter((answer.unit.kind, answer.said.verdict) for answer in answers)
    asked = Counter(answer.unit.kind for answer in answers)
    return [
        f"{asked['claim']}",
        f"{found['claim', Verdict.CONFIRMED]}",
        f"{found['twin', Verdict.REFUTED]} of {asked['twin']}",
        f"{found['faulty', Verdict.REFUTED]} of {asked['faulty']}",
        f"{sum(count for (_, verdict), count in found.items() if verdict is Verdict.UNDETERMINED)}",
    ]
