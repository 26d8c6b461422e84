"""A counterexample, and the table of a check, on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvproof.spec.counterexample import Counterexample
from kvproof.spec.report import around, further, legend, lines, words
from kvproof.spec.report.film import Film
from kvproof.spec.report.legible import legible
from kvproof.spec.report.outcome import Row
from kvproof.spec.report.rerun import Rerun


def show(console: Console, example: Counterexample, file: str | None = None, seen: Rerun | None = None) -> None:
    """Print a counterexample; the last line is the command that reproduces it. ``file`` is where its JSON form lies."""
    example = example if seen is None else seen.here
    head = f"{example.law} does not hold" if seen is None else seen.head
    console.print(Text(legible(head), style="bold red"))
    for note in () if seen is None else seen.notes:
        console.print(Text(legible(f"! {note}"), style="bold yellow"), soft_wrap=True)
    _plain(console, f"  {example.sentence}")
    if seen is None or not seen.gone:
        _plain(console, f"{example.message}")
        _plain(console, f"  at {lines.place(example)}")
    for name, value, why in words.in_short(example):
        _plain(console, f"  {name} = {value}" + (f" ({why})" if why else ""))
    for meaning in legend.meanings(example):
        _plain(console, f"  ({meaning})")
    if example.fault:
        _plain(console, f"planted fault: {lines.fault_text(example.fault)}")
    _plain(console, f"{lines.sizes_text(example)}; profile {lines.profile_text(example.profile)}")
    _grid(console, ("group", "kind", "block", "E", "row"), lines.groups(example))
    if example.actions:
        _story(console, example, seen)
    if seen is not None and seen.film is not None:
        _further(console, example, seen.film)
    if any(legend.changes(example)):
        _plain(console, f"({legend.HOW})")
    _plain(console, lines.origin(example))
    _plain(console, lines.reproduce(example, file))


def _story(console: Console, example: Counterexample, seen: Rerun | None) -> None:
    """Print the actions, the breaking one marked; what an implementation showed stands apart from the model's answers."""
    mark = f"✗ breaks {example.law}" if seen is None else seen.mark
    rows = [(line.number, line.action + (f"  {mark}" if broken else ""), line) for line, broken in lines.told(example)]
    if example.implementation is None:
        _grid(console, ("", "action", "answer"), [(number, action, line.answer) for number, action, line in rows])
        return
    heads = ("", "action", f"{legible(example.implementation.adapter)} showed", "the model answers")
    _grid(console, heads, [(number, action, line.answer, line.model) for number, action, line in rows])


def _further(console: Console, example: Counterexample, film: Film) -> None:
    """Print what the law lets happen behind the last action, what is left open, and where a run without the fault departs."""
    said = further.sentence(example, film)
    if said:
        _plain(console, said)
        _grid(
            console,
            ("", "what follows", "answer"),
            [(line.number, line.action, line.answer) for line, _ in further.told(example, film)],
        )
    for one in further.left(film):
        _plain(console, f"left open: {one}")
    departed = around.departed(example, film)
    if departed is not None:
        _plain(console, departed.text)
        if departed.sound:
            _plain(console, f"  here: {departed.here}")
            _plain(console, f"  without the fault: {departed.sound}")
        for what, here, there in departed.rows[:MOST_DIFFERENCES]:
            _plain(console, f"  {what}: {here} here, {there} without the fault")


MOST_DIFFERENCES = 3
"""Differences from a run without the fault that are printed."""


def _plain(console: Console, text: str) -> None:
    console.print(Text(legible(text)), soft_wrap=True)


def _grid(console: Console, heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    grid = Table(*heads, box=None, pad_edge=False)
    for row in rows:
        grid.add_row(*(Text(legible(cell)) for cell in row))
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
