"""``kvproof report``: show a counterexample, or run it again."""

from __future__ import annotations

from pathlib import Path

import click

from kvproof.spec import check, counterexample
from kvproof.spec.commands.check import wide_console
from kvproof.spec.exits import ExitCode, UserError
from kvproof.spec.report import lines, markdown, terminal


@click.command("report", short_help="Show a counterexample, or run it again.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--replay", is_flag=True, help="Run it again: exit 2 if the law breaks again, 3 if it does not.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the Markdown form.")
def command(file: Path, replay: bool, as_markdown: bool) -> ExitCode:
    """Show the counterexample in FILE, a JSON file that `--report DIR` of `kvproof check` or `kvproof explore` wrote."""
    example = counterexample.read(file)
    if replay and example.engine == counterexample.TENSORS:
        raise UserError(f"{file}: was found on tensors, which the model alone cannot run: use kvproof gpu --replay {file}")
    console = wide_console()
    if as_markdown:
        click.echo(markdown.render(example, str(file)), nl=False)
    elif not replay:
        terminal.show(console, example, str(file))
    if not replay:
        return ExitCode.HOLDS
    replayed = check.replay(example)
    for difference in replayed.differences:
        click.echo(difference)
    if replayed.violation is None:
        who = ""
        if example.implementation is not None:
            who = f" of the model; {example.implementation.adapter} broke it, and only its adapter can show that"
        click.echo(f"{example.law} holds on these {len(example.actions)} actions{who}: not reproduced")
        return ExitCode.UNDETERMINED
    # Not into the page, which somebody may be writing to a file.
    click.echo(f"{example.law} breaks again, {lines.where(replayed.violation)}", err=as_markdown)
    if not as_markdown:
        terminal.show(console, example, str(file))
    return ExitCode.REFUTED
