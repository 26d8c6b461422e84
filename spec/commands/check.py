"""``kvproof check``: the main job."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click
from rich.console import Console

from kvproof.spec import check, faults, output
from kvproof.spec.check import Job, Options, Result
from kvproof.spec.exits import ExitCode
from kvproof.spec.exploring import kills
from kvproof.spec.progress import Shown
from kvproof.spec.report import outcome, terminal

SHOWN = 3
"""So many counterexamples and so many problems are printed."""


@click.command("check", short_help="Check the laws, kill the faults, replay the recordings.")
@click.option("--seed", default=0, show_default=True, help="The same seed gives the same result, byte by byte.")
@click.option("--quick", is_flag=True, help="Fewer scopes and shorter searches.")
@click.option(
    "--law", "laws", multiple=True, metavar="ID", help="Judge only this law, or all of a family (HO); may be repeated."
)
@click.option(
    "--fault", "planted", multiple=True, metavar="ID", help="Plant this fault and look for it: exit 2 if found, else 3."
)
@click.option("--scope", metavar="NAME", default="", help="Walk only this configuration; no recordings, no other faults.")
@click.option("--report", type=click.Path(path_type=Path), metavar="DIR", help="Write counterexamples as JSON and Markdown.")
@click.option("--processes", type=click.IntRange(1, 64), default=2, show_default=True, help="Processes that share the work.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--timing", is_flag=True, help="Say how long it took.")
def command(
    seed: int,
    quick: bool,
    laws: tuple[str, ...],
    planted: tuple[str, ...],
    scope: str,
    report: Path | None,
    processes: int,
    as_json: bool,
    timing: bool,
) -> ExitCode:
    """Check the laws by random walks and by Hypothesis, let them kill the faults, and replay the shipped recordings.

    Exit 0: everything holds within the bounds that the table names. Exit 2: a law is refuted, with a counterexample and
    the line that reproduces it. Exit 3: something stayed undetermined (a law whose premise was never true, a situation that
    was never reached, a fault that no law caught).
    """
    options = Options(seed, quick, check.named_laws(laws), check.one_fault(planted), scope, processes)
    work = check.jobs(options)
    if report is not None:
        output.check_writable(output.make_folder(report) / "check.json")
    began = time.monotonic()
    _warn_of_long_search(options)
    with Shown("check", len(work), quiet=as_json) as shown:

        def finished(job: Job) -> None:
            shown.doing(f"{job.name} finished")
            shown.advance()

        result = check.run(options, finished, shown.doing)
    seconds = round(time.monotonic() - began, 1)
    files = outcome.write(result, report) if report is not None else []
    if as_json:
        document = outcome.as_dict(result)
        if timing:
            document["seconds"] = seconds
        click.echo(json.dumps(document, indent=1, sort_keys=True))
    else:
        _print(result, files, seconds if timing else None)
    return result.verdict


def _warn_of_long_search(options: Options) -> None:
    """Say before the work that the chosen laws are not those that a planted fault is known to break."""
    if not options.fault or not options.laws:
        return
    fault = faults.by_id(options.fault)
    if not check.laws_of(fault, options):
        click.echo(
            f"{', '.join(options.laws)}: not named for {fault.id}, whose laws are {', '.join(fault.laws)}; "
            "the search may take long and find nothing",
            err=True,
        )


def wide_console() -> Console:
    """Return the console of the output; a file or a pipe has no width, so nothing is cut there."""
    console = Console()
    return console if console.is_terminal else Console(width=200)


def _print(result: Result, files: list[Path], seconds: float | None) -> None:
    console = wide_console()
    title = f"kvproof check, seed {result.options.seed}" + (", quick" if result.options.quick else "")
    terminal.table(console, title, outcome.rows(result))
    for line in outcome.legend(result):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for remark in _remarks(result):
        console.print(remark, markup=False, highlight=False, soft_wrap=True)
    if seconds is not None:
        console.print(f"{seconds} s", highlight=False)
    console.print(f"verdict: {outcome.verdict_of(result.verdict)}", highlight=False)
    shortest = kills.command(result.options.fault)
    if shortest:
        console.print(f"`{shortest}` finds the shortest run of that scope", markup=False, highlight=False, soft_wrap=True)
    shown = result.found[: 1 if result.options.fault else SHOWN]
    hidden = len(result.found) - len(shown)
    if hidden:
        console.print(f"{hidden} more counterexamples: --json and --report DIR have them all", highlight=False)
    for number, example in enumerate(shown):
        console.print()
        terminal.show(console, example, str(files[number]) if files else None)
    if not shown and result.problems:
        console.print("kvproof replay " + result.problems[0].partition(",")[0], highlight=False, soft_wrap=True)


def _remarks(result: Result) -> list[str]:
    """Return the remarks, of recordings that differ the first few and a count: one wrong rule makes dozens differ."""
    others = outcome.remarks(result)[len(result.problems) :]
    different = list(dict.fromkeys(result.problems))
    shown, rest = different[:SHOWN], len(different) - SHOWN
    if rest > 0:
        shown.append(f"... and {rest} more such lines about recordings: --json and --report DIR have them all")
    return shown + others
