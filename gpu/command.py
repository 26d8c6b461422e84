"""``kvproof gpu``: the same actions on the model and on tensors, compared after each of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import click
from click.core import ParameterSource

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
@click.option("--replay", metavar="FILE", help="Run a counterexample of this command again.")
@click.option(
    "--report",
    metavar="DIR",
    help="Write gpu.json, index.html and every counterexample, as JSON and as pages and text to read.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    device: str,
    quick: bool,
    seed: int,
    names: tuple[str, ...],
    steps: int | None,
    fault: str,
    replay: str | None,
    report: str | None,
    as_json: bool,
) -> ExitCode:
    """Run golden traces, recordings and generated sequences on the model and on tensors; compare everything after each action.

    Tables, rows, references, free queues, keys, bytes and outputs. Exit 0: equal everywhere, all faults of the data path are
    caught, and outputs are those of a run without a cache. Exit 2: a difference, as a counterexample whose last line
    reproduces it. Exit 3: something stayed undetermined. docs/gpu.md explains the output.
    """
    # Nothing here turns a tensor into an array: that NumPy is not there is nobody's concern.
    warnings.filterwarnings("ignore", "Failed to initialize NumPy")
    from kvproof.gpu import running  # only here: `kvproof --help` needs no torch
    from kvproof.spec.commands.check import wide_console

    check_used(names, fault, replay, running.is_drawn)
    if fault == "list":
        running.list_faults()
        return ExitCode.HOLDS
    if replay is not None:
        return running.replay(Path(replay), device)
    options = running.Options(device, quick, seed, names, fault, steps)
    return running.command(options, None if report is None else Path(report), as_json, wide_console())


FLAGS = {"names": "--run", "as_json": "--json"}
"""Options whose parameter has another name."""


def given() -> set[str]:
    """Return the names of the options that stand on the command line."""
    context = click.get_current_context()
    return {name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}


def check_used(names: tuple[str, ...], fault: str, replay: str | None, is_drawn: Callable[[str], bool]) -> None:
    """Refuse options that would be ignored, and names that are empty. Raises UserError."""
    options = given()
    for option, value, wanted in (("report", "", "a folder"), ("replay", "", "a file"), ("fault", "", "a fault")):
        if option in options and click.get_current_context().params[option] == value:
            raise UserError(f"--{option} is given an empty name: name {wanted}")
    if replay is not None:
        refuse(options - {"replay", "device"}, "--replay runs one file again, under its own fault")
    elif fault == "list":
        refuse(options - {"fault"}, "--fault list only lists the faults")
    elif fault:
        refuse(options & {"quick"}, "--fault looks for one fault in its scopes: --steps says how far")
    elif names:
        drawn = any(is_drawn(name) for name in names)
        refuse(options & {"quick"}, "--run names the runs: --steps says how long the walks are")
        refuse(options & (set() if drawn else {"seed", "steps"}), "of these runs none is drawn")


def refuse(ignored: set[str], why: str) -> None:
    """Refuse options that something else leaves without a meaning. Raises UserError if there are some."""
    if ignored:
        said = ", ".join(sorted(FLAGS.get(name, f"--{name}") for name in ignored))
        raise UserError(f"{why}: leave {said} out")
