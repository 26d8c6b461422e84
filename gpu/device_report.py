"""``python -m kvproof.gpu.device_report``: what is worth knowing of one device, in one prepared run of a few minutes.

Versions, the comparison of model and tensors on the device with its streams, the faults of the data path, ranks as processes,
bandwidth of block gathers and copies beside a plain copy, and memory. It writes a JSON file and prints a short table last.
Without CUDA it runs on the CPU and says so.
"""

from __future__ import annotations

import datetime
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import click
import torch
from attrs import define, field, frozen
from rich import box
from rich.console import Console
from rich.table import Table

from kvproof.gpu import bandwidth, copies, differential, faults, outputs, ranks, running, sources
from kvproof.gpu.bandwidth import Bandwidth
from kvproof.spec import distribution, output
from kvproof.spec.engines import scopes
from kvproof.spec.exits import ExitCode, UserError
from kvproof.spec.progress import Told

FORMAT, VERSION = "kvproof-device-report", 1
WALKS: tuple[tuple[str, int], ...] = (
    ("fa4-m4-n2", 150),
    ("fa4-m4-m4-n2", 150),
    ("fa2-m4-n4", 150),
    ("fa4-w4", 120),
    ("fa4-c4", 120),
    ("fa2-m4-st2-n4", 120),
    ("fa4-x4-m4-n2", 120),
    ("fa2-m2+3-draft3", 150),
    ("fa1-m4+3-n4-async", 150),
    ("fa4-ahead-defer", 120),
    ("fa4-m4-n2-host", 250),
    ("fa4-m4-n2-host-tiny", 250),
    ("fa2-m4-n4-host", 250),
    ("fa4-lazy", 200),
    ("fa4-m8-n2-lazy", 200),
)
"""Scopes and actions of their walks: every group kind, one to four ranks, drafts, two steps in flight, both host modes."""
AT_END = 1 << 30
"""Every run is done once more and compared at its end alone: until then nothing waits for the transfers but what has to."""
RANKS_SCOPE, RANKS_STEPS = "fa4-m4-n2-host", 150
MOVED, MOVED_ON_CPU = 1 << 29, 1 << 24
"""Bytes that each measurement of bandwidth moves."""


@frozen(slots=True)
class Line:
    """One line of the table."""

    what: str
    result: str
    verdict: str = ""


@define(slots=True)
class Report:
    """What was found, as JSON and as lines; ``bad`` are the parts that do not hold."""

    document: dict[str, Any]
    lines: list[Line] = field(factory=list)
    bad: list[str] = field(factory=list)

    def add(self, what: str, result: str, holds: bool | None = None) -> None:
        """Add a line; None: it has no verdict."""
        self.lines.append(Line(what, result, "" if holds is None else "holds" if holds else "does not hold"))
        if holds is False:
            self.bad.append(what)


def versions(device: str) -> dict[str, Any]:
    """Return versions and names: of kvproof, Python, torch, CUDA, the driver and the card."""
    found: dict[str, Any] = {
        "kvproof": distribution.version(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "device": "cpu",
        "driver": None,
    }
    if device == "cuda":
        card = torch.cuda.get_device_properties(0)
        found |= {
            "device": card.name,
            "capability": f"{card.major}.{card.minor}",
            "memory_bytes": card.total_memory,
            "devices": torch.cuda.device_count(),
            "driver": driver(),
        }
    return found


def driver() -> str | None:
    """Return the version of the driver, None if nvidia-smi does not say."""
    try:
        asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        said = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return None
    return said.stdout.splitlines()[0].strip() if said.stdout else None


def compare(report: Report, device: str, told: Told) -> None:
    """Run goldens and walks on the device, and outputs without a cache and on other ranks."""
    began, actions, found = time.monotonic(), 0, []
    runs = list(sources.run_goldens(device))
    for name, steps in WALKS:
        told.doing(f"walk {name}")
        runs.append(sources.walked(scopes.by_name(name), 0, steps, device))
    prefixes = 0
    for ran in runs:
        actions += ran.performed
        if ran.both.difference is not None:
            found.append(f"{ran.origin.scope}: {ran.both.difference.text()}")
            continue
        at_end = differential.run(ran.config, ran.both.actions, device, every=AT_END)
        actions += at_end.performed
        if at_end.difference is not None:
            found.append(f"{ran.origin.scope}, compared at the end: {at_end.difference.text()}")
        elif ran.origin.scope in dict(WALKS[::4]):
            again = outputs.everywhere(ran.both, device)
            prefixes += again.prefixes
            if again.difference is not None:
                found.append(f"{ran.origin.scope}: {again.difference.text()}")
    report.document["differential"] = {
        "runs": len(runs),
        "actions": actions,
        "prefixes_without_cache": prefixes,
        "differences": found,
        "seconds": round(time.monotonic() - began, 1),
        "streams": device == "cuda",
    }
    order = "stores and loads on streams of their own" if device == "cuda" else "no streams on a CPU"
    text = f"{len(runs)} runs, twice, {actions:,} actions, {prefixes} prefixes without a cache; {order}"
    report.add("model = tensors", text if not found else found[0], not found)


def catch(report: Report, device: str, told: Told) -> None:
    """Plant every fault of the data path and let the comparison catch it on the device."""
    survived, caught = [], {}
    for fault in faults.ALL:
        told.doing(f"fault {fault.id}")
        ran = running.catch(fault, device)
        if ran is None or ran.both.difference is None:
            survived.append(fault.id)
        else:
            caught[fault.id] = ran.both.difference.text()
    report.document["faults"] = {"caught": caught, "survived": survived}
    count = len(faults.ALL)
    report.add("faults of the data path", f"{count - len(survived)} of {count} caught", not survived)


def processes(report: Report, told: Told) -> None:
    """Run ranks as processes, with gloo, and with nccl where there are devices enough."""
    said: dict[str, Any] = {}
    for backend in (ranks.GLOO, ranks.NCCL):
        told.doing(f"ranks as processes, {backend}")
        size = scopes.by_name(RANKS_SCOPE).config().dcp_size
        why = ranks.available(backend, size)
        if why:
            said[backend] = {"run": False, "why": why}
            report.add(f"ranks as processes, {backend}", f"not run: {why}")
            continue
        try:
            found = ranks.run(RANKS_SCOPE, 0, RANKS_STEPS, backend)
        except UserError as error:
            said[backend] = {"run": False, "why": str(error)}
            report.add(f"ranks as processes, {backend}", str(error), False)
            continue
        differences = [f"rank {one.rank}: {one.difference}" for one in found if one.difference]
        said[backend] = {"run": True, "ranks": [attrs.asdict(one) for one in found]}
        text = f"{len(found)} ranks, {found[0].performed} actions each, {found[0].outputs} outputs summed over them"
        report.add(f"ranks as processes, {backend}", differences[0] if differences else text, not differences)
    report.document["ranks"] = said


def speed(report: Report, device: str, told: Told) -> None:
    """Measure gathers and copies of blocks beside a plain copy of the same bytes."""
    told.doing("bandwidth")
    where, total = torch.device(device), MOVED if device == "cuda" else MOVED_ON_CPU
    if device == "cuda":
        why = copies.tried(where)[1]
        report.document["kernel"] = {"triton": not why, "why": why}
        report.add("kernel of block copies", "Triton" if not why else f"none, a staging buffer instead: {why}")
    found = [*bandwidth.measure(where, total), *bandwidth.across(where, total)]
    report.document["bandwidth"] = [attrs.asdict(one) for one in found]
    if device != "cuda":
        report.add("bandwidth", "all bytes arrived; how fast a CPU copies says nothing of a device")
        return
    for one in found:
        size = f"{one.block_bytes >> 10} KiB blocks" if one.part else f"{one.moved_bytes >> 20} MiB"
        text = f"{one.bytes_per_second / 1e9:,.0f} GB/s" + (f", {one.part:.0%} of a plain copy" if one.part else "")
        report.add(f"{one.what}, {size}", text, enough(one) if one.what == "block copies" else None)


def enough(measured: Bandwidth) -> bool:
    """Tell whether block copies are fast enough beside a plain copy."""
    return measured.part >= bandwidth.WANTED


def memory(report: Report, device: str) -> None:
    """Note the most memory that was used on the device."""
    most = torch.cuda.max_memory_allocated() if device == "cuda" else None
    report.document["memory"] = {"most_allocated_bytes": most}
    report.add("memory", "not measured on a CPU" if most is None else f"{most / 2**20:,.0f} MiB at most")


def make(device: str, told: Told) -> Report:
    """Run every part; a part that raises does not hold, and the others run all the same."""
    began = time.monotonic()
    report = Report(
        {"format": FORMAT, "version": VERSION, "date": datetime.datetime.now(datetime.UTC).isoformat("T", "seconds")}
    )
    report.document["versions"] = versions(device)
    parts: tuple[tuple[str, Callable[[], None]], ...] = (
        ("bandwidth", lambda: speed(report, device, told)),
        ("model = tensors", lambda: compare(report, device, told)),
        ("ranks as processes", lambda: processes(report, told)),
        ("faults of the data path", lambda: catch(report, device, told)),
        ("memory", lambda: memory(report, device)),
    )
    for name, part in parts:
        try:
            part()
        except Exception as error:
            report.document.setdefault("errors", {})[name] = f"{type(error).__name__}: {error}"
            report.add(name, f"{type(error).__name__}: {error}".splitlines()[0], False)
    report.document["seconds"] = round(time.monotonic() - began, 1)
    report.document["holds"] = not report.bad
    return report


def show(report: Report, file: Path, console: Console) -> None:
    """Print the table; the JSON file is named before it."""
    said = report.document["versions"]
    console.print(f"written to {file}", highlight=False, soft_wrap=True)
    on_cpu = "CPU (no CUDA device was used)" if said["device"] == "cpu" else f"{said['device']}, driver {said['driver']}"
    console.print(
        f"{on_cpu}; torch {said['torch']}, CUDA {said['cuda']}, Python {said['python']}", highlight=False, soft_wrap=True
    )
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("what", "result", "verdict"):
        table.add_column(head)
    for line in report.lines:
        table.add_row(line.what, line.result, line.verdict)
    console.print(table)


@click.command("device_report")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default="device-report.json", show_default=True, metavar="FILE")
def command(device: str, out: Path) -> None:
    """Run model and tensors on a device, catch faults, measure, and write a report. Exit 0: all holds; 2: not all."""
    output.check_writable(out)
    chosen = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else running.device_of(device)
    told = Told("device report")
    report = make(chosen, told)
    told.end()
    output.write_atomically(out, json.dumps(report.document, indent=1, sort_keys=True) + "\n")
    show(report, out, Console(width=None if sys.stdout.isatty() else 160))
    sys.exit(ExitCode.HOLDS if not report.bad else ExitCode.REFUTED)


def main() -> None:
    """Run the command; what the user can put right is said in one line."""
    try:
        command(standalone_mode=False)
    except (UserError, click.ClickException) as error:
        said = error.format_message() if isinstance(error, click.ClickException) else str(error)
        click.echo(f"Error: {said}", err=True)
        sys.exit(ExitCode.ERROR)


if __name__ == "__main__":
    main()
