"""The work of ``kvproof gpu``: runs of every source, the faults of the data path, and what came of them as rows of a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import torch
from attrs import define, field, frozen
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvproof.core.errors import ConfigError
from kvproof.gpu import counterexamples, differential, faults, outputs, sources
from kvproof.gpu.sources import Ran
from kvproof.spec import counterexample as examples
from kvproof.spec import distribution, near, output
from kvproof.spec.counterexample import Counterexample
from kvproof.spec.engines import scopes
from kvproof.spec.exits import ExitCode, UserError
from kvproof.spec.exploring import scopes as exploring
from kvproof.spec.faults.base import Fault
from kvproof.spec.progress import Told
from kvproof.spec.report import files, terminal
from kvproof.spec.traces import archive
from kvproof.spec.traces.archive import Entry

SUMMARY = "gpu.json"
QUICK_STEPS, STEPS = 120, 300
QUICK_RECORDINGS = 12
FAULT_SEEDS, FAULT_STEPS = 4, 250
MOST_FOUND = 3
"""Behind so many differences nothing more is run."""
VERDICTS = {ExitCode.HOLDS: "holds", ExitCode.REFUTED: "refuted", ExitCode.UNDETERMINED: "undetermined"}


@frozen(slots=True)
class Options:
    """What is asked for. ``names`` are runs by their names: scopes, golden traces, recordings; empty: all sources."""

    device: str = "cpu"
    quick: bool = False
    seed: int = 0
    names: tuple[str, ...] = ()
    fault: str = ""
    steps: int | None = None


@define(slots=True)
class Row:
    """One row of the table: runs, actions performed on both sides, outputs compared, and what came of it."""

    source: str
    runs: int = 0
    actions: int = 0
    outputs: int = 0
    verdict: str = "undetermined"
    remark: str = ""


@define(slots=True)
class Result:
    """Everything that was found; ``survived`` are faults that no run caught."""

    options: Options
    rows: list[Row] = field(factory=list)
    found: list[Counterexample] = field(factory=list)
    survived: list[str] = field(factory=list)

    @property
    def verdict(self) -> ExitCode:
        """Return what the result comes to: a difference refutes, a row without a run or a surviving fault decides nothing."""
        if self.found:
            return ExitCode.REFUTED
        undecided = not self.rows or self.survived or any(row.verdict != "holds" for row in self.rows)
        return ExitCode.UNDETERMINED if undecided else ExitCode.HOLDS


def device_of(name: str) -> str:
    """Return a device by its name. Raises UserError if there is none of that kind."""
    if name == "cuda" and not torch.cuda.is_available():
        built = "this torch was built without CUDA" if torch.version.cuda is None else "no device is visible"
        raise UserError(f"there is no CUDA device: {built}; use --device cpu, or run where there is one")
    return name


# --- what is run ------------------------------------------------------------------------------------------------------


def recordings(quick: bool) -> tuple[Entry, ...]:
    """Return the recordings that are run: those that ``kvproof check`` replays, or a few of different kinds."""
    chosen = archive.selection()
    if not quick:
        return chosen
    kinds: dict[tuple[object, ...], Entry] = {}
    for entry in sorted(chosen, key=lambda entry: entry.ops):
        kinds.setdefault((entry.level, entry.config["host"] is None, entry.config["dcp_world_size"]), entry)
    return tuple(kinds.values())[:QUICK_RECORDINGS]


def named(options: Options, device: str) -> Iterator[Ran]:
    """Yield the runs of these names, which ``check_names`` has seen."""
    for name in options.names:
        if (golden := sources.golden(name)) is not None:
            yield sources.run_golden(golden, device)
        elif is_scope(name):
            yield sources.walked(scopes.by_name(name), options.seed, options.steps or STEPS, device)
        elif name.startswith(sources.EXPLORED):
            scope = exploring.by_name(name.removeprefix(sources.EXPLORED))
            yield sources.explored(scope, options.seed, device, options.steps or sources.EXPLORED_STEPS)
        else:
            yield from sources.run_recordings((archive.find(name),), device)


def is_scope(name: str) -> bool:
    """Tell whether a name is that of a scope of ``kvproof check``."""
    return any(scope.name == name for scope in scopes.ALL)


def is_drawn(name: str) -> bool:
    """Tell whether the runs of a name are drawn: seed and number of actions mean something to them."""
    return is_scope(name) or name.startswith(sources.EXPLORED)


def check_names(options: Options) -> None:
    """Refuse unknown names before anything is run. Raises UserError that names the nearest ones."""
    for name in options.names:
        if options.fault and not is_scope(name):
            raise UserError(f"a fault is looked for in scopes; {name!r} is none{near_scopes(name)}")
        if name.startswith(sources.EXPLORED):
            exploring.by_name(name.removeprefix(sources.EXPLORED))
        elif sources.golden(name) is None and not is_scope(name):
            check_recording(name)


def near_scopes(name: str) -> str:
    """Return which scopes a name was perhaps meant for, as the end of a message."""
    close = near.nearest(name, [scope.name for scope in scopes.ALL])
    return f" (did you mean {' or '.join(close)}?)" if close else ""


def check_recording(name: str) -> None:
    """Refuse a name that is no shipped recording either. Raises UserError."""
    try:
        archive.find(name)
    except archive.UnknownRecording as error:
        explored = [sources.EXPLORED + scope.name for scope in exploring.every()]
        known = [*sources.GOLDEN_NAMES, *(scope.name for scope in scopes.ALL), *explored]
        close = near.nearest(name, [*known, *(entry.name for entry in archive.entries())])
        asked = f" (did you mean {' or '.join(close)}?)" if close else ""
        raise UserError(
            f"no run {name!r}{asked}; name a golden trace ({', '.join(sources.GOLDEN_NAMES)}), a scope of kvproof "
            f"check, a path through one of kvproof explore ({sources.EXPLORED}SCOPE) or a recording (kvproof replay --list)"
        ) from error


def parts(options: Options, device: str) -> Iterator[tuple[str, Iterator[Ran]]]:
    """Yield the name of each source and its runs."""
    if options.names:
        yield "named runs", named(options, device)
        return
    steps = options.steps or (QUICK_STEPS if options.quick else STEPS)
    chosen = scopes.chosen(options.quick)
    seeds = (options.seed,) if options.quick else (options.seed, options.seed + 1)
    yield "golden traces", sources.run_goldens(device)
    yield "recordings", sources.run_recordings(recordings(options.quick), device)
    yield "walks", sources.run_walks(chosen, seeds, steps, device)
    bounded = exploring.CATALOGUE if options.quick else exploring.known()
    yield "explorer paths", (sources.explored(scope, seed, device) for scope in bounded for seed in seeds)
    yield (
        "hypothesis",
        (sources.machine_run(scope, options.seed, 8, 15, device) for scope in chosen[:: 4 if options.quick else 3]),
    )


def run(options: Options, told: Told) -> Result:
    """Run every source, compare outputs without a cache and on other ranks, and let the comparison catch the faults."""
    device, result = device_of(options.device), Result(options)
    check_names(options)
    if options.fault:
        return with_fault(options, device, result)
    compared = Row("outputs, no cache")
    for name, runs in parts(options, device):
        row = Row(name)
        result.rows.append(row)
        whole = run_source(result, row, compared, runs, device, told)
        settle(row, whole)
        if not whole:
            compared.remark = row.remark
    settle(compared, not compared.remark)
    if compared.runs or compared.verdict == "refuted" or not options.names:
        result.rows.append(compared)
    if not options.names:
        result.rows.append(caught(options, device, result, told))
    return result


def run_source(result: Result, row: Row, compared: Row, runs: Iterator[Ran], device: str, told: Told) -> bool:
    """Run a source until enough differences are found; tell whether all of it was run."""
    while len(result.found) < MOST_FOUND:
        ran = next(runs, None)
        if ran is None:
            return True
        told.doing(f"{row.source}, {ran.origin.scope}")
        take(result, row, ran, device)
        if row.source in ("walks", "named runs") and ran.both.difference is None:
            count_outputs(result, compared, ran, device)
    row.remark = f"not run to its end: {len(result.found)} differences were found"
    return False


def take(result: Result, row: Row, ran: Ran, device: str) -> None:
    """Count a run, and keep its difference as a counterexample."""
    row.runs += 1
    row.actions += ran.performed
    row.outputs += ran.outputs
    if ran.both.difference is not None:
        row.verdict = "refuted"
        result.found.append(counterexamples.build(ran.config, ran.both, ran.origin, device))


def count_outputs(result: Result, row: Row, ran: Ran, device: str) -> None:
    """Compute the prefixes of a run again without a cache, on its ranks and on others (CC-7, CC-8)."""
    found = outputs.everywhere(ran.both, device)
    row.runs += 1 if found.prefixes else 0
    row.outputs += found.prefixes
    if found.difference is not None:
        row.verdict = "refuted"
        ran.both.difference = found.difference
        result.found.append(counterexamples.build(ran.config, ran.both, ran.origin, device, shrinks=False))


def settle(row: Row, whole: bool) -> None:
    """Give a row that was run, all of it, and shows no difference its verdict."""
    if row.runs and whole and row.verdict != "refuted":
        row.verdict = "holds"


# --- faults -----------------------------------------------------------------------------------------------------------


def catch(fault: Fault, device: str, seed: int = 0, names: Sequence[str] = (), steps: int | None = None) -> Ran | None:
    """Plant a fault and walk its scopes until the comparison catches it; None if it does not."""
    with faults.planted(fault):
        for name in names or fault.scopes:
            for more in range(FAULT_SEEDS):
                ran = sources.walked(scopes.by_name(name), seed + more, steps or FAULT_STEPS, device, fault.id)
                if ran.both.difference is not None:
                    return ran
    return None


def caught(options: Options, device: str, result: Result, told: Told) -> Row:
    """Return the row of all faults of the data path."""
    row = Row("faults of the data path")
    for fault in faults.ALL:
        told.doing(f"fault {fault.id}")
        ran = catch(fault, device, options.seed)
        row.runs += 1
        if ran is None:
            result.survived.append(fault.id)
        else:
            row.actions += ran.both.performed
    row.remark = f"{row.runs - len(result.survived)} of {row.runs} caught"
    row.verdict = "undetermined" if result.survived else "holds"
    return row


def with_fault(options: Options, device: str, result: Result) -> Result:
    """Plant one fault: its counterexample refutes, as it should."""
    fault = faults.by_id(options.fault)
    row = Row(f"fault {fault.id}", remark=fault.summary)
    ran = catch(fault, device, options.seed, options.names, options.steps)
    if ran is None:
        result.survived.append(fault.id)
        row.runs = 1
    else:
        with faults.planted(fault):
            take(result, row, ran, device)
    result.rows.append(row)
    return result


def list_faults() -> None:
    """Print the faults of the data path."""
    for fault in faults.ALL:
        click.echo(f"{fault.id}\t{fault.summary} ({', '.join(fault.laws)})")


# --- a counterexample again -------------------------------------------------------------------------------------------


def replay(file: Path, device: str) -> ExitCode:
    """Run a counterexample again on model and tensors, under its fault: exit 2 if they differ again, 3 if not."""
    example = examples.read(file)
    if example.engine != examples.TENSORS:
        raise UserError(f"{file}: is not of the tensor layer: use kvproof report {file} --replay")
    try:
        config = example.settings.config(example.profile)
    except ConfigError as error:
        raise UserError(f"{file}: the configuration is refused: {error}") from error
    if example.fault:
        with faults.planted(faults.by_id(example.fault)):
            both = differential.run(config, example.actions, device_of(device))
    else:
        both = differential.run(config, example.actions, device_of(device))
    violation = counterexamples.violation_of(both)
    if violation is None:
        click.echo(f"{example.law} holds on these {len(example.actions)} actions on {device}: not reproduced")
        return ExitCode.UNDETERMINED
    again = "breaks again" if violation.law == example.law else f"breaks (the file says {example.law})"
    click.echo(f"{violation.law} {again} at action {violation.position}: {violation.evidence.message}")
    return ExitCode.REFUTED


# --- what is printed --------------------------------------------------------------------------------------------------


def title(options: Options) -> str:
    """Return the title of the table."""
    where = torch.cuda.get_device_name() if options.device == "cuda" else "CPU tensors, no GPU"
    return f"kvproof gpu on {where}, torch {torch.__version__}, seed {options.seed}" + (", quick" if options.quick else "")


def table(rows: Sequence[Row]) -> Table:
    """Return the table of a result."""
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column("source", no_wrap=True)
    for head in ("runs", "actions", "outputs"):
        shown.add_column(head, justify="right", no_wrap=True)
    shown.add_column("verdict", no_wrap=True)
    shown.add_column("")
    for row in rows:
        verdict = Text(row.verdict, style=terminal.STYLES[row.verdict])
        shown.add_row(row.source, f"{row.runs:,}", f"{row.actions:,}", f"{row.outputs:,}", verdict, Text(row.remark))
    return shown


def as_dict(result: Result) -> dict[str, Any]:
    """Return everything for machines; the same seed on the same device gives the same value."""
    return {
        "verdict": VERDICTS[result.verdict],
        "device": result.options.device,
        "torch": torch.__version__,
        "kvproof": distribution.version(),
        "seed": result.options.seed,
        "quick": result.options.quick,
        "rows": [
            {
                "source": row.source,
                "runs": row.runs,
                "actions": row.actions,
                "outputs": row.outputs,
                "verdict": row.verdict,
                "remark": row.remark,
            }
            for row in result.rows
        ],
        "faults_survived": result.survived,
        "counterexamples": [json.loads(examples.dumps(example)) for example in result.found],
    }


def show(result: Result, written: Sequence[Path], console: Console) -> None:
    """Print the table, the verdict and the first counterexample, whose last line reproduces it."""
    console.print(title(result.options), highlight=False, soft_wrap=True)
    console.print(table(result.rows))
    console.print(
        "actions: performed on both sides, with a comparison behind each; outputs: compared with those of a run without a cache"
    )
    for fault in result.survived:
        console.print(f"fault {fault} was not caught")
    console.print(f"verdict: {VERDICTS[result.verdict]}", highlight=False)
    for number, example in enumerate(result.found[:1]):
        terminal.show(console, example, str(written[number]) if written else None)


def command(options: Options, report: Path | None, as_json: bool, console: Console) -> ExitCode:
    """Run, print, write; see ``gpu/command.py``."""
    if report is not None:
        output.check_writable(output.make_folder(report) / SUMMARY)
    result = measured(options, as_json)
    written = [] if report is None else files.write(result.found, as_dict(result), report, SUMMARY)
    if as_json:
        click.echo(json.dumps(as_dict(result), indent=1, sort_keys=True))
    else:
        show(result, written, console)
    return result.verdict


def measured(options: Options, quiet: bool, work: Callable[[Options, Told], Result] = run) -> Result:
    """Run with a display of what is being done."""
    told = Told("gpu", quiet=quiet)
    try:
        return work(options, told)
    finally:
        told.end()
