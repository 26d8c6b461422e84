"""A counterexample, and the table of a check, on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvproof.spec.counterexample import Counterexample
from kvproof.spec.report import legend, lines
from kvproof.spec.report.outcome import Row
from kvproof.spec.report.standing import Standing


def show(console: Console, example: Counterexample, file: str | None = None, standing: Standing | None = None) -> None:
    """Print a counterexample; the last line is the command that reproduces it. ``file`` is where its JSON form lies."""
    head = f"{example.law} does not hold" if standing is None else standing.head(example)
    console.print(Text(head, style="bold red"))
    for note in () if standing is None else standing.notes:
        console.print(Text(f"! {note}", style="bold yellow"), soft_wrap=True)
    _plain(console, f"  {example.sentence}")
    _plain(console, f"{example.message}")
    _plain(console, f"  at {lines.place(example)}")
    for line in lines.evidence(example):
        _plain(console, f"  {line}")
    if example.fault:
        _plain(console, f"planted fault: {lines.fault_text(example.fault)}")
    _plain(console, f"{lines.sizes_text(example)}; profile {lines.profile_text(example.profile)}")
    _grid(console, ("group", "kind", "block", "E", "row"), lines.groups(example))
    if example.actions:
        story = [(line.number, line.action, line.answer) for line in lines.story(example)]
        _grid(console, ("", "action", "answer"), story)
    if any(legend.changes(example)):
        _plain(console, f"({legend.HOW})")
    _plain(console, lines.origin(example))
    _plain(console, lines.reproduce(example, file))


def _plain(console: Console, text: str) -> None:
    console.print(Text(text), soft_wrap=True)


def _grid(console: Console, heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    grid = Table(*heads, box=None, pad_edge=False)
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    put(console, grid)


def put(console: Console, shown: Table) -> None:
    """Print a table; what is no terminal gets no spaces at the ends of lines."""
    if console.is_terminal:
        console.print(shown)
        return
    with console.capture() as captured:
        console.print(shown)
    for line in captured.get().splitlines():
        console.print(line.rstrip(), markup=False, highlight=False, soft_wrap=True)


STYLES = {"holds": "green", "refuted": "bold red", "undetermined": "yellow"}


def table(console: Console, title: str, rows: list[Row]) -> None:
    """Print the final table of a check."""
    shown = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column("family", no_wrap=True)
    shown.add_column("engine", no_wrap=True)
    for head in ("steps", "judged", "premises", "witnesses"):
        shown.add_column(head, justify="right", no_wrap=True)
    shown.add_column("verdict", no_wrap=True)
    last = rows[0].family if rows else ""
    for row in rows:
        if row.family != last:
            shown.add_section()
            last = row.family
        shown.add_row(
            row.family,
            row.engine,
            f"{row.steps:,}",
            row.judged,
            f"{row.premises:,}",
            row.witnesses,
            Text(row.verdict, style=STYLES[row.verdict]),
        )
    put(console, shown)
