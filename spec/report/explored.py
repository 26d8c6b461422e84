"""The tables of an exploration on a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from kvproof.core.config import Config
from kvproof.spec.engines import witnesses
from kvproof.spec.exploring.jobs import Done
from kvproof.spec.exploring.kills import Kill
from kvproof.spec.exploring.result import Result
from kvproof.spec.report.terminal import STYLES, put


def table(console: Console, title: str, result: Result, timing: bool) -> None:
    """Print one row for each scope, or for each fault."""
    if result.asked.every_fault:
        _faults(console, title, result, timing)
    else:
        _scopes(console, title, result, timing)


DROPPED = ("bytes", "situations", "groups", "judged", "depth", "edges/s", "worlds", "edges")
"""Columns that a narrow terminal goes without, the first ones first; --json has all of them."""
LEFT = ("scope", "groups", "end", "verdict")


def _scopes(console: Console, title: str, result: Result, timing: bool) -> None:
    heads = ["scope", "verdict", "end", "orbits", "edges", "depth", "judged", "situations", "bytes", "groups"]
    if result.asked.full:
        heads.insert(4, "worlds")
    if timing:
        heads.insert(-1, "edges/s")
    rows = [_cells(result, done) for done in result.done]
    shown = _table(title, heads, rows)
    for head in DROPPED:
        if wanted(console, shown) > console.width and head in heads:
            heads.remove(head)
            shown = _table(title, heads, rows)
    put(console, shown)


def wanted(console: Console, shown: Table) -> int:
    """Return how wide a table is if nothing in it is cut."""
    return Measurement.get(console, console.options.update(max_width=1000), shown).maximum


def _table(title: str, heads: list[str], rows: list[dict[str, Text]]) -> Table:
    shown = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for head in heads:
        shown.add_column(head, justify="left" if head in LEFT else "right", no_wrap=True)
    for row in rows:
        shown.add_row(*(row[head] for head in heads))
    return shown


def _cells(result: Result, done: Done) -> dict[str, Text]:
    """Return everything that is said of a scope, by the heads of columns."""
    certificate, verdict = done.certificate, result.verdict_of(done)
    judged = len(certificate.laws) - len(certificate.never)
    cells = {
        "scope": certificate.scope,
        "groups": groups(done),
        "orbits": f"{certificate.orbits:,}",
        "worlds": f"{certificate.worlds or 0:,}",
        "edges": f"{certificate.edges:,}",
        "depth": str(certificate.depth),
        "bytes": f"{certificate.bytes_per_orbit:.0f}",
        "judged": f"{judged} of {len(certificate.laws)}",
        "situations": f"{len(certificate.witnesses)}/{len(witnesses.NAMES)}",
        "edges/s": f"{certificate.edges / done.seconds:,.0f}" if done.seconds and not done.resumed else "-",
        "end": certificate.end,
    }
    return {**{head: Text(text) for head, text in cells.items()}, "verdict": Text(verdict, style=STYLES[verdict])}


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
    put(console, shown)


def _pinned(kill: Kill | None) -> str:
    return "nowhere" if kill is None else f"{kill.scope}, {kill.law}, {kill.length}"


def groups(done: Done) -> str:
    """Return the groups of a scope in short, with ranks and host tier: ``full 1, mamba 2; 2 ranks; eager host``."""
    settings = done.certificate.settings
    offload = settings["offload"]
    kinds = [(group["kind"], group["block_size"]) for group in settings["groups"]]
    return _in_short(kinds, settings["dcp_size"], settings["use_eagle"], "" if offload is None else offload["mode"])


def said_of(config: Config) -> str:
    """Return the same of a configuration."""
    kinds = [(group.kind, group.block_size) for group in config.groups]
    return _in_short(kinds, config.dcp_size, config.use_eagle, "" if config.offload is None else config.offload.mode)


def _in_short(kinds: Iterable[tuple[str, int]], ranks: int, eagle: bool, host: str) -> str:
    parts = [", ".join(f"{kind.partition('_')[0]} {size}" for kind, size in kinds)]
    said = ((ranks > 1, f"{ranks} ranks"), (eagle, "EAGLE"), (bool(host), f"{host} host"))
    return "; ".join([*parts, *(text for so, text in said if so)])
