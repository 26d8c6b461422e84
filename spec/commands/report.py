"""``kvproof report``: show a counterexample in one of its forms, or run it again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from kvproof.spec import counterexample, output
from kvproof.spec.commands.check import wide_console
from kvproof.spec.counterexample import Counterexample, CounterexampleError
from kvproof.spec.exits import ExitCode, UserError
from kvproof.spec.report import files, forms, lines, runs, terminal
from kvproof.spec.report.film import NoWorld
from kvproof.spec.report.legible import legible
from kvproof.spec.report.rerun import Rerun, State, run_again
from kvproof.spec.report.runs import Run

FORM_OPTIONS = {
    "html": "One HTML file: a picture over time, a step player, the lives of blocks.",
    "markdown": "A page for the description of a change.",
    "reviewer": "Everything a reviewer asks, as Markdown.",
    "svg": "The blocks in question over time, as a picture.",
    "as-test": "A pytest file that fails as long as the law breaks.",
}
NAMED = "--html, --markdown, --reviewer, --svg or --as-test"


class Named(click.Path):
    """A path that has a name: an empty one would be the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path. Raises UserError if it is empty."""
        if not str(value):
            raise UserError("--out is given an empty name: name a file, or a folder")
        return super().convert(value, param, ctx)


def _form_options(command: Callable[..., object]) -> Callable[..., object]:
    """Add an option for each form; their arguments are collected by ``_forms``."""
    for name, what in reversed(FORM_OPTIONS.items()):
        command = click.option(f"--{name}", name.replace("-", "_"), is_flag=True, help=what)(command)
    return command


def _forms(asked: Mapping[str, bool]) -> list[str]:
    """Return the forms that were asked for, in their order."""
    return [name for name in FORM_OPTIONS if asked[name.replace("-", "_")]]


@click.command("report", short_help="Show a counterexample, or run it again.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--replay", is_flag=True, help="Run it again: exit 2 if the law breaks again, 3 if it does not.")
@_form_options
@click.option(
    "--out",
    type=Named(path_type=Path),
    metavar="FILE",
    help="Write the form to FILE instead of printing it; FILE is a folder for several forms.",
)
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="OLD",
    help="Compare the run in FILE with the one in OLD: exit 3 if worse.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what came of --replay or --against as JSON.")
def command(file: Path, replay: bool, out: Path | None, against: Path | None, as_json: bool, **asked: bool) -> ExitCode:
    """Show the counterexample in FILE, a JSON file that `--report DIR` of `kvproof check` or `kvproof explore` wrote.

    Every form begins by saying so if its law does not break again with this kvproof; then the exit status is 3, too.

    With --against, FILE and OLD are two runs: folders that --report or --out wrote, or their summaries.
    """
    chosen = _forms(asked)
    _check_out(file, out, chosen)
    if against is not None:
        if replay or chosen:
            raise UserError("--against OLD compares two runs: leave the forms and --replay out")
        return _compared(runs.read(against), runs.read(file), as_json)
    if as_json and (chosen or not replay):
        raise UserError("--json goes with --replay alone or with --against OLD; a counterexample file is JSON itself")
    if file.is_dir():
        page = f"open {file / files.INDEX}, " if (file / files.INDEX).is_file() else ""
        raise UserError(f"{file}: is a folder: {page}name a counterexample in it, or add --against OLD")
    example = counterexample.read(file)
    if replay and example.engine == counterexample.TENSORS:
        use = f"kvproof gpu --replay {shlex.quote(str(file))}"
        raise UserError(f"{file}: was found on tensors, which the model alone cannot run: use {use}")
    seen = run_again(example)
    if replay and seen.state is State.UNJUDGED:
        raise CounterexampleError(seen.notes[0].rstrip("."))
    _give(example, file, chosen, out, seen)
    if replay:
        return _replayed(example, file, seen, quiet=bool(chosen), as_json=as_json)
    if not chosen:
        terminal.show(wide_console(), example, str(file), seen)
    elif seen.notes:
        # Not into the page, which somebody may be writing to a file.
        click.echo(legible(" ".join(seen.notes)), err=True)
    return ExitCode.UNDETERMINED if seen.gone else ExitCode.HOLDS


def _check_out(file: Path, out: Path | None, chosen: Sequence[str]) -> None:
    """Refuse an ``--out`` that goes with no form, is the counterexample itself, or cannot take several forms."""
    if out is None:
        if len(chosen) > 1:
            names = " and ".join(f"--{name}" for name in chosen)
            raise UserError(f"{names} are {len(chosen)} pages: name a folder for them by --out DIR, or ask for one at a time")
        return
    if not chosen:
        raise UserError(f"--out FILE takes a form: add {NAMED}")
    if out.resolve() == file.resolve():
        raise UserError(f"--out {out}: is the counterexample itself, which would be gone: name another file")
    if len(chosen) > 1 and out.exists() and not out.is_dir():
        raise UserError(f"--out {out}: is a file, and {len(chosen)} forms are asked for: name a folder")


def _give(example: Counterexample, file: Path, chosen: Sequence[str], out: Path | None, seen: Rerun) -> None:
    """Print a form, or write it, or several of them into a folder; each one that is written is named."""
    texts: dict[str, str] = {}
    for name in chosen:
        try:
            texts[name] = forms.render(name, example, str(file), seen)
        except NoWorld as error:
            if len(chosen) == 1:
                raise
            click.echo(legible(f"--{name} is left out: {error}"), err=True)
    if out is None:
        click.echo("".join(texts.values()), nl=False)
        return
    folder = output.make_folder(out) if len(chosen) > 1 or out.is_dir() else None
    for name, text in texts.items():
        target = out if folder is None else folder / forms.beside(name, seen.here, file).name
        output.write_atomically(target, text)
        click.echo(str(target))


def _replayed(example: Counterexample, file: Path, seen: Rerun, *, quiet: bool, as_json: bool) -> ExitCode:
    """Say what came of running a counterexample again; ``quiet``: a form of it was given, so that it is not shown."""
    code = ExitCode.UNDETERMINED if seen.violation is None else ExitCode.REFUTED
    if as_json:
        at = None if seen.violation is None else seen.violation.position
        again = None if seen.state is State.OUTSIDE else seen.violation is not None
        said = {"law": example.law, "breaks_again": again, "position": at, "notes": list(seen.notes)}
        click.echo(json.dumps(said, indent=1))
        return code
    for note in seen.notes:
        click.echo(legible(note), err=quiet)
    if example.implementation is not None:
        who = example.implementation.adapter
        how = lines.reproduce(example)
        click.echo(legible(f"{who} broke {example.law}, and only its adapter can show that again: {how}"), err=quiet)
        return code
    if seen.violation is None:
        click.echo(f"{example.law} does not break here: not reproduced", err=quiet)
        return code
    click.echo(f"{example.law} breaks again, {lines.where(seen.violation)}", err=quiet)
    if not quiet:
        terminal.show(wide_console(), seen.here, str(file))
    return code


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
