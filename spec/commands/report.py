"""``kvproof report``: show a counterexample in one of its forms, or run it again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import click

from kvproof.spec import check, counterexample, output
from kvproof.spec.commands.check import wide_console
from kvproof.spec.counterexample import Counterexample
from kvproof.spec.exits import ExitCode, UserError
from kvproof.spec.report import files, lines, runs, terminal
from kvproof.spec.report.forms import FORMS
from kvproof.spec.report.runs import Run


def _form(name: str, what: str) -> Callable[[Callable[..., object]], Callable[..., object]]:
    return click.option(f"--{name}", "form", flag_value=name, help=what)


@click.command("report", short_help="Show a counterexample, or run it again.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--replay", is_flag=True, help="Run it again: exit 2 if the law breaks again, 3 if it does not.")
@_form("html", "One HTML file: a picture over time, a step player, the lives of blocks.")
@_form("markdown", "A page for the description of a change.")
@_form("reviewer", "Everything a reviewer asks, as Markdown.")
@_form("svg", "The blocks in question over time, as a picture.")
@_form("as-test", "A pytest file that fails as long as the law breaks.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write the form to FILE instead of printing it.")
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="OLD",
    help="Compare the run in FILE with the one in OLD: exit 3 if worse.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
def command(file: Path, replay: bool, form: str | None, out: Path | None, against: Path | None, as_json: bool) -> ExitCode:
    """Show the counterexample in FILE, a JSON file that `--report DIR` of `kvproof check` or `kvproof explore` wrote.

    With --against, FILE and OLD are two runs: folders that --report or --out wrote, or their summaries.
    """
    if out is not None and form is None:
        raise UserError("--out FILE takes a form: add --html, --markdown, --reviewer, --svg or --as-test")
    if out is not None and out.resolve() == file.resolve():
        raise UserError(f"--out {out}: is the counterexample itself, which would be gone: name another file")
    if against is not None:
        if replay or form is not None:
            raise UserError("--against OLD compares two runs: leave the forms and --replay out")
        return _compared(runs.read(against), runs.read(file), as_json)
    if as_json:
        raise UserError("--json goes with --against OLD; a counterexample file is JSON itself")
    if file.is_dir():
        page = f"open {file / files.INDEX}, " if (file / files.INDEX).is_file() else ""
        raise UserError(f"{file}: is a folder: {page}name a counterexample in it, or add --against OLD")
    example = counterexample.read(file)
    if replay and example.engine == counterexample.TENSORS:
        raise UserError(f"{file}: was found on tensors, which the model alone cannot run: use kvproof gpu --replay {file}")
    console = wide_console()
    if form is not None:
        _give(FORMS[form](example, str(file)), out)
    elif not replay:
        terminal.show(console, example, str(file))
    return _replayed(example, file, quiet=form is not None) if replay else ExitCode.HOLDS


def _compared(before: Run, now: Run, as_json: bool) -> ExitCode:
    """Say what differs between two runs."""
    changed = runs.changes(before, now)
    worse = [change for change in changed if change.worse]
    if as_json:
        listed = [
            {"what": one.what, "name": one.name, "before": one.before, "now": one.now, "worse": one.worse} for one in changed
        ]
        click.echo(json.dumps({"changes": listed, "worse": len(worse)}, indent=1))
        return ExitCode.UNDETERMINED if worse else ExitCode.HOLDS
    for change in changed:
        click.echo(f"{'worse: ' if change.worse else ''}{change}")
    counted = f"{len(changed)} {'difference' if len(changed) == 1 else 'differences'}, {len(worse)} for the worse"
    click.echo(counted if changed else "no difference")
    return ExitCode.UNDETERMINED if worse else ExitCode.HOLDS


def _give(text: str, out: Path | None) -> None:
    if out is None:
        click.echo(text, nl=False)
        return
    output.write_atomically(out, text)
    click.echo(str(out))


def _replayed(example: Counterexample, file: Path, *, quiet: bool) -> ExitCode:
    """Run a counterexample again and say what came of it; ``quiet``: a form of it was given, so that it is not shown."""
    replayed = check.replay(example)
    for difference in replayed.differences:
        click.echo(difference, err=quiet)
    if replayed.violation is None:
        who = ""
        if example.implementation is not None:
            who = f" of the model; {example.implementation.adapter} broke it, and only its adapter can show that"
        click.echo(f"{example.law} holds on these {len(example.actions)} actions{who}: not reproduced", err=quiet)
        return ExitCode.UNDETERMINED
    # Not into the page, which somebody may be writing to a file.
    click.echo(f"{example.law} breaks again, {lines.where(replayed.violation)}", err=quiet)
    if not quiet:
        terminal.show(wide_console(), example, str(file))
    return ExitCode.REFUTED
