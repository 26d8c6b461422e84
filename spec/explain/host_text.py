"""The host tier of an answer on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from kvproof.spec.explain import host_words, text, words
from kvproof.spec.explain.answer import Answer
from kvproof.spec.explain.divergence import Divergence
from kvproof.spec.explain.hosts import HostAnswer, HostLookup

MOST_STORED = 14


def divergence(console: Console, found: Divergence) -> None:
    """Print what divergent hits cost or save."""
    text.line(console, host_words.divergence(found))


def host(console: Console, answer: Answer, found: HostAnswer) -> None:
    """Print what was stored, what the host holds, and what the second prompt gets from it."""
    text.line(console)
    text.heading(console, f"Host tier: {host_words.settings(found)}")
    _stored(console, answer, found)
    text.line(console, f"The host holds {host_words.holdings(found)}.")
    text.line(console)
    text.heading(console, "The second prompt, with the device's cache and without it")
    _lookups(console, answer, found)
    for lookup in found.lookups:
        text.line(console, f"Device cache {host_words.DEVICE[lookup.asked.device]}: {host_words.cause(answer, lookup)}")
    gone = next((lookup for lookup in found.lookups if lookup.asked.device == "gone"), None)
    if gone is not None:
        _candidates(console, gone)
    for lookup in found.lookups:
        if lookup.landings:
            _landings(console, answer, lookup)


def _stored(console: Console, answer: Answer, found: HostAnswer) -> None:
    lines = host_words.stored_lines(answer, found)
    if not lines:
        text.line(console, f"  {host_words.nothing_stored(answer, found)}.")
        return
    table = text.table(
        ("stored with", "left"),
        ("group", "left"),
        ("boundaries", "left"),
        ("by", "left"),
        ("device blocks", "left"),
        ("host blocks", "left"),
    )
    shown = words.cut(len(lines), MOST_STORED)
    for line in lines[:shown]:
        table.add_row(line.when, line.group, line.boundaries, line.how, line.device, line.host)
    if len(lines) > shown:
        table.add_row("...", "", f"{words.count(len(lines) - shown, 'more line')}; --json has every block", "", "", "")
    console.print(table)


def _lookups(console: Console, answer: Answer, found: HostAnswer) -> None:
    table = text.table(
        ("device cache", "left"),
        ("local hit", "right"),
        ("asked behind", "right"),
        ("host offers", "right"),
        ("resumes at", "right"),
        ("computed", "right"),
        ("what became of the offer", "left"),
    )
    for lookup in found.lookups:
        asked = lookup.asked
        fits = asked.resumes >= 0
        table.add_row(
            host_words.DEVICE[asked.device],
            f"{asked.local:,}",
            f"{asked.behind:,}",
            f"{asked.offered:,}",
            f"{asked.resumes:,}" if fits else "-",
            f"{answer.question.resend - asked.resumes:,}" if fits else "-",
            host_words.branch(lookup) if fits else "the device pool is too small for the blocks of the load: it waits",
        )
    console.print(table)


def _candidates(console: Console, lookup: HostLookup) -> None:
    found = lookup.found
    text.line(console)
    text.heading(console, "Candidates on the host, device cache gone")
    text.bars(console, found)
    for of_class in found.classes:
        text.candidates(console, of_class)


def _landings(console: Console, answer: Answer, lookup: HostLookup) -> None:
    text.line(console)
    text.heading(console, f"Where the load lands (T29), device cache {host_words.DEVICE[lookup.asked.device]}")
    table = text.table(
        ("group", "left"),
        ("table entry", "right"),
        ("what", "left"),
        ("host block", "right"),
        ("device block", "right"),
    )
    shown = lookup.landings[: words.cut(len(lookup.landings), MOST_STORED)]
    for copy in shown:
        state = copy.start == copy.end
        what = f"the state at {copy.end:,}" if state else f"tokens {copy.start:,} to {copy.end:,}"
        table.add_row(answer.rows[copy.group].name, f"{copy.column:,}", what, f"{copy.host_block:,}", f"{copy.device_block:,}")
    if len(lookup.landings) > len(shown):
        table.add_row("...", "", Text(f"{len(lookup.landings) - len(shown):,} more; --json has every copy"), "", "")
    console.print(table)
