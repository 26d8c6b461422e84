"""``kvproof gpu``: the same actions on the model and on tensors, compared after each of them."""

from __future__ import annotations

from pathlib import Path

import click

from kvproof.spec.exits import ExitCode, UserError


@click.command("gpu", short_help="Run model and tensors side by side, on a CPU or on CUDA.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="Where the tensors lie.")
@click.option("--quick", is_flag=True, help="Fewer scopes and recordings, shorter walks.")
@click.option("--seed", default=0, show_default=True, help="The same seed gives the same runs.")
@click.option(
    "--run", "names", multiple=True, metavar="NAME", help="Only this scope, golden trace or recording; may be repeated."
)
@click.option("--steps", type=click.IntRange(1, 100_000), metavar="N", help="Actions of each walk.")
@click.option(
    "--fault", metavar="ID", default="", help="Plant this fault of the data path: exit 2 if found, else 3; `list` lists."
)
@click.option("--replay", type=click.Path(path_type=Path), metavar="FILE", help="Run a counterexample of this command again.")
@click.option("--report", type=click.Path(path_type=Path), metavar="DIR", help="Write counterexamples as JSON and Markdown.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    device: str,
    quick: bool,
    seed: int,
    names: tuple[str, ...],
    steps: int | None,
    fault: str,
    replay: Path | None,
    report: Path | None,
    as_json: bool,
) -> ExitCode:
    """Run golden traces, recordings and generated sequences on the model and on tensors; compare everything after each action.

    Tables, rows, references, free queues, keys, bytes and outputs. Exit 0: equal everywhere, all faults of the data path are
    caught, and outputs are those of a run without a cache. Exit 2: a difference, as a counterexample whose last line
    reproduces it. Exit 3: something stayed undetermined. docs/gpu.md explains the output.
    """
    from kvproof.gpu import running  # only here: `kvproof --help` needs no torch
    from kvproof.spec.commands.check import wide_console

    if fault == "list":
        running.list_faults()
        return ExitCode.HOLDS
    if replay is not None:
        if names or fault or report is not None or as_json:
            raise UserError("--replay runs one file again, under its own fault: leave --run, --fault, --report and --json out")
        return running.replay(replay, device)
    options = running.Options(device, quick, seed, names, fault, steps)
    return running.command(options, report, as_json, wide_console())
