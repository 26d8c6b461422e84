"""The tables of an exploration on a terminal."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvproof.spec.engines import witnesses
from kvproof.spec.exploring.jobs import Done
from kvproof.spec.exploring.kills import Kill
from kvproof.spec.exploring.result import Result
from kvproof.spec.report.terminal import STYLES


def table(console: Console, title: str, result: Result, timing: bool) -> None:
    """Print one row for each scope, or for each fault."""
    if result.asked.every_fault:
        _faults(console, title, result, timing)
    else:
        _scopes(console, title, result, timing)


def _scopes(console: Console, title: str, result: Result, timing: bool) -> None:
    shown = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column("scope", no_wrap=True)
    shown.add_column("groups", no_wrap=True)
    full = result.asked.full
    for head in ("orbits", *(["worlds"] if full else []), "edges", "depth", "bytes", "judged", "situations"):
        shown.add_column(head, justify="right", no_wrap=True)
    if timing:
        shown.add_column("edges/s", justify="right", no_wrap=True)
    shown.add_column("end", no_wrap=True)
    shown.add_column("verdict", no_wrap=True)
    for done in result.done:
        certificate = done.certificate
        judged = len(certificate.laws) - len(certificate.never)
        cells = [
            certificate.scope,
            groups(done),
            f"{certificate.orbits:,}",
            *([f"{certificate.worlds or 0:,}"] if full else []),
            f"{certificate.edges:,}",
            str(certificate.depth),
            f"{certificate.bytes_per_orbit:.0f}",
            f"{judged} of {len(certificate.laws)}",
            f"{len(certificate.witnesses)}/{len(witnesses.NAMES)}",
        ]
        if timing:
            cells.append(f"{certificate.edges / done.seconds:,.0f}" if done.seconds and not done.resumed else "-")
        verdict = result.verdict_of(done)
        shown.add_row(*cells, certificate.end, Text(verdict, style=STYLES[verdict]))
    console.print(shown)


def _faults(console: Console, title: str, result: Result, timing: bool) -> None:
    shown = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("fault", "scope", "law"):
        shown.add_column(head, no_wrap=True)
    for head in ("actions", "edges", *(["seconds"] if timing else [])):
        shown.add_column(head, justify="right", no_wrap=True)
    shown.add_column("pinned", no_wrap=True)
    for killed in result.killed:
        kill = killed.kill
        cells = ["-", "-", "-"] if kill is None else [kill.scope, kill.law, str(kill.length)]
        cells += [f"{killed.edges:,}", *([f"{killed.seconds:.1f}"] if timing else [])]
        said = Text("the same", style="green") if killed.as_pinned else Text(_pinned(killed.pinned), style="yellow")
        shown.add_row(killed.fault, *cells, said)
    console.print(shown)


def _pinned(kill: Kill | None) -> str:
    return "nowhere" if kill is None else f"{kill.scope}, {kill.law}, {kill.length}"


def groups(done: Done) -> str:
    """Return the groups of a scope in short, with ranks and host tier: ``full 1, mamba 2; 2 ranks; eager host``."""
    settings = done.certificate.settings
    kinds = [f"{group['kind'].partition('_')[0]} {group['block_size']}" for group in settings["groups"]]
    parts = [", ".join(kinds)]
    if settings["dcp_size"] > 1:
        parts.append(f"{settings['dcp_size']} ranks")
    if settings["use_eagle"]:
        parts.append("EAGLE")
    if settings["offload"] is not None:
        parts.append(f"{settings['offload']['mode']} host")
    return "; ".join(parts)
