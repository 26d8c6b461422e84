"""What ``kvproof prove`` does: asks, compares, writes and prints."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
from rich.table import Table

from kvproof.proofs import catalogue, exhausted, naming, page, table, work
from kvproof.proofs import result as results
from kvproof.proofs.result import Asked, Result
from kvproof.proofs.table import Row
from kvproof.proofs.verdicts import Verdict
from kvproof.proofs.work import Answer, Unit
from kvproof.spec import check, output
from kvproof.spec.commands.check import wide_console
from kvproof.spec.exits import ExitCode, UserError
from kvproof.spec.progress import Shown

WIDTH = 110
"""Columns of a list."""

PLAIN = ("claims", "confirmed", "ties confirmed", "vacuity twins refuted", "faulty twins refuted", "undetermined")
WITH_FAULT = ("asked", "refuted", "confirmed", "undetermined")


def run(
    quick: bool,
    claims: tuple[str, ...],
    laws: tuple[str, ...],
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
    others = quick or laws or update or timing or write is not None or certificate is not None
    if "list" in claims or "list" in planted:
        if others or len(claims) + len(planted) > 1:
            raise UserError("a list asks nothing: leave all but --json out")
        return _list_claims(as_json) if claims else _list_faults(as_json)
    if "" in planted:
        raise UserError(
            "--fault '' names no fault: kvproof prove --fault list lists the faulty twins, kvproof faults the catalogue"
        )
    asked = Asked(quick, (*claims, *naming.claims(laws, quick)), check.one_fault(planted))
    if update and (asked.fault or write is not None):
        raise UserError("--update writes the table of the model as it is: leave --fault and --write out")
    if write is not None or certificate is not None:
        if quick or asked.claims or asked.fault or update or timing:
            raise UserError(
                "--write and --certificate prove nothing: leave --quick, --claim, --law, --fault, --update and --timing out"
            )
        return _write(write, certificate, as_json)
    units = results.units(asked)
    rows: Mapping[str, Row] = table.read()
    if update:
        _check_update(units, rows)
    began = time.monotonic()
    with Shown("prove", len(units), quiet=as_json) as shown:

        def finished(answer: Answer) -> None:
            shown.doing(f"{answer.unit.name}: {answer.said.verdict.value}")
            shown.advance()

        answers = work.answers(units, processes, finished)
    result = results.of(asked, answers, rows)
    changes = None
    if update:
        changes, rows = _update(answers, rows)
        result = results.of(asked, answers, rows)
    seconds = round(time.monotonic() - began, 1) if timing else None
    if as_json:
        document = results.as_dict(result, timing)
        if changes is not None:
            document["changes"] = changes
        click.echo(json.dumps(document if seconds is None else {**document, "seconds": seconds}, indent=1, sort_keys=True))
    else:
        _print(result, seconds)
    return result.verdict


# --- what is written ----------------------------------------------------------------------------------------------


def _write(write: Path | None, certificate: Path | None, as_json: bool) -> ExitCode:
    """Write the page, and what a certificate says: everything is read and made before, and the page comes first."""
    found = exhausted.read() if certificate is None else exhausted.of_certificate(certificate)
    written: list[Path] = []
    if certificate is not None:
        output.check_writable(exhausted.FILE)
    if write is not None:
        output.write_atomically(write, page.text(table.read(), found))
        written.append(write)
    if certificate is not None:
        exhausted.write(found)
        written.append(exhausted.FILE)
    if as_json:
        click.echo(json.dumps({"wrote": [str(file) for file in written]}, indent=1))
    else:
        for file in written:
            click.echo(f"wrote {file}")
    return ExitCode.HOLDS


def _check_update(units: Sequence[Unit], rows: Mapping[str, Row]) -> None:
    """Find out before anything is asked whether the table could be written afterwards. Raises UserError."""
    output.check_writable(table.FILE)
    unasked = table.unasked(units, rows)
    if unasked:
        raise UserError(
            f"{', '.join(unasked)}: not in the table of expected verdicts, and not asked: name them with --claim, too, or run "
            "kvproof prove --update as a whole"
        )


def _update(answers: Sequence[Answer], rows: Mapping[str, Row]) -> tuple[list[str], Mapping[str, Row]]:
    """Write the table, and say what changed; return it. It is left as it is if something that was asked has no place in it."""
    wrong = table.hindering(answers, rows)
    if wrong:
        names = "; ".join(f"{answer.unit.name}: {answer.said.verdict.value}" for answer in wrong[:3])
        click.echo(
            f"the table is left as it is: a claim that is false has no place in it, nor has one with a twin or a tie that is "
            f"not as expected ({names}{'; ...' if len(wrong) > 3 else ''})",
            err=True,
        )
        return [], rows
    new = table.updated(answers, rows)
    changes = table.changes(rows, new)
    if changes or list(new) != list(rows):
        table.write(new)
    for line in changes:
        click.echo(line, err=True)
    click.echo(f"wrote {table.FILE}" if changes else "the table is as it was", err=True)
    return changes, new


# --- lists --------------------------------------------------------------------------------------------------------


def _list_claims(as_json: bool) -> ExitCode:
    known = catalogue.everything()
    if as_json:
        click.echo(
            json.dumps([{"claim": one.name, "sentence": one.sentence, "deep": one.about.deep} for one in known], indent=1)
        )
    else:
        for one in known:
            click.echo(f"{one.name}{' (deep)' if one.about.deep else ''}")
            click.echo(_indented(one.sentence))
    return ExitCode.HOLDS


def _list_faults(as_json: bool) -> ExitCode:
    known = catalogue.all_faults()
    if as_json:
        click.echo(json.dumps([{"fault": fault, "refutes": list(claims)} for fault, claims in known.items()], indent=1))
    else:
        for fault, claims in known.items():
            click.echo(fault)
            click.echo(_indented(" ".join(claims)))
    return ExitCode.HOLDS


def _indented(text: str) -> str:
    return click.wrap_text(text, WIDTH, "  ", "  ")


# --- what is printed ----------------------------------------------------------------------------------------------


def _print(result: Result, seconds: float | None) -> None:
    console, asked = wide_console(), result.asked
    shown = Table(
        title="kvproof prove" + (f", {asked.fault} planted" if asked.fault else "") + (", quick" if asked.quick else "")
    )
    shown.title_justify = "left"
    for heading in ("file", *(WITH_FAULT if asked.fault else PLAIN)):
        shown.add_column(heading, justify="left" if heading == "file" else "right")
    for file in dict.fromkeys(_file(answer) for answer in result.answers):
        of_file = [answer for answer in result.answers if _file(answer) == file]
        shown.add_row(file, *(_counts_with_fault(of_file) if asked.fault else _counts(of_file)))
    console.print(shown)
    for line in result.problems:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if asked.fault and not result.refuted:
        open_ = sum(answer.said.verdict is Verdict.UNDETERMINED for answer in result.answers)
        rest = f", and {open_} are undetermined" if open_ else ""
        console.print(
            f"no claim or lemma that was asked sees {asked.fault}{rest}", markup=False, highlight=False, soft_wrap=True
        )
    for answer in result.refuted:
        known = catalogue.by_name(answer.unit.claim)
        functions = ", ".join(
            f"{function.__module__.removeprefix('kvproof.')}.{function.__name__}" for function in known.about.of
        )
        what = f"the tie of {answer.unit.claim}" if answer.unit.kind == "tie" else answer.unit.claim
        console.print(f"\n{what} is {answer.said.verdict.value} ({functions})", markup=False, highlight=False, soft_wrap=True)
        console.print(f"  {known.sentence}", markup=False, highlight=False, soft_wrap=True)
        console.print(f"  {page.bounds_of(known)}", markup=False, highlight=False, soft_wrap=True)
        console.print(f"  {answer.said.detail}", markup=False, highlight=False, soft_wrap=True)
    if seconds is not None:
        for answer in sorted(result.answers, key=lambda answer: -answer.said.seconds)[:10]:
            console.print(f"{answer.said.seconds:8.2f} s  {answer.unit.name}", markup=False, highlight=False)
        console.print(f"{seconds} s")
    console.print(f"verdict: {result.verdict.name.lower()}", highlight=False)
    again = results.again(result)
    if again:
        console.print(again, markup=False, highlight=False, soft_wrap=True)


def _file(answer: Answer) -> str:
    return answer.unit.claim.partition(".")[0]


def _counts(answers: Sequence[Answer]) -> list[str]:
    found = Counter((answer.unit.kind, answer.said.verdict) for answer in answers)
    asked = Counter(answer.unit.kind for answer in answers)
    return [
        f"{asked['claim']}",
        f"{found['claim', Verdict.CONFIRMED]}",
        f"{found['tie', Verdict.CONFIRMED]} of {asked['tie']}" if asked["tie"] else "",
        f"{found['twin', Verdict.REFUTED]} of {asked['twin']}",
        f"{found['faulty', Verdict.REFUTED]} of {asked['faulty']}",
        f"{sum(count for (_, verdict), count in found.items() if verdict is Verdict.UNDETERMINED)}",
    ]


def _counts_with_fault(answers: Sequence[Answer]) -> list[str]:
    found = Counter(answer.said.verdict for answer in answers)
    return [
        f"{len(answers)}",
        f"{sum(found[verdict] for verdict in results.FALSE)}",
        f"{found[Verdict.CONFIRMED]}",
        f"{found[Verdict.UNDETERMINED]}",
    ]
