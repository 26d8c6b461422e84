"""``kvproof faults``: the named ways to be wrong, by which we know that the laws bite."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from kvproof.spec import faults as registry
from kvproof.spec import output
from kvproof.spec.faults.base import Fault
from kvproof.spec.faults.lengths import LENGTHS


@click.command("faults", short_help="List the faults that the laws must catch.")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
@click.option("--write", type=click.Path(path_type=Path), metavar="FILE", help="Write the list as Markdown to FILE.")
def command(as_json: bool, write: Path | None) -> None:
    """List every fault: what it does wrong, where it was seen, the laws that must catch it, and how short it gets.

    The last column is the number of actions of the shortest known counterexample (- where none is pinned).
    `kvproof check --fault ID` plants one and shows its counterexample.
    """
    if write is not None:
        output.write_atomically(write, as_markdown())
    if as_json:
        click.echo(json.dumps([as_dict(fault) for fault in registry.ALL], indent=1, sort_keys=True))
    elif write is None:
        Console().print(as_table())


def as_dict(fault: Fault) -> dict[str, object]:
    """Return what is known about a fault, ready for JSON; ``actions`` is null where no length is pinned."""
    return {
        "id": fault.id,
        "summary": fault.summary,
        "source": fault.source,
        "laws": list(fault.laws),
        "replaces": places(fault),
        "scopes": list(fault.scopes),
        "actions": LENGTHS.get(fault.id),
    }


def places(fault: Fault) -> list[str]:
    """Return what a fault replaces: functions, or a profile field and its value."""
    if fault.profile is not None:
        return [f"profile {fault.profile[0]} = {fault.profile[1]}"]
    return [f"{module if isinstance(module, str) else module.__name__}.{name}" for module, name, _ in fault.patches]


def as_table() -> Table:
    """Return the terminal table."""
    table = Table(title=f"{len(registry.ALL)} faults", title_justify="left")
    table.add_column("id", no_wrap=True)
    table.add_column("what it does wrong", ratio=1)
    table.add_column("source")
    table.add_column("laws")
    table.add_column("actions", justify="right")
    for fault in registry.ALL:
        table.add_row(fault.id, fault.summary, fault.source, " ".join(fault.laws), str(LENGTHS.get(fault.id, "-")))
    return table


def as_markdown() -> str:
    """Return `docs/faults.md`."""
    lines = [
        "# Faults",
        "",
        "Named ways to be wrong ([semantics, section 6](semantics.md)). Each is planted by replacing functions of the model,",
        "or is the value of a profile field; generation must find it, and each of its laws must catch it. `actions` is the",
        "length of the shortest known counterexample. Written by `kvproof faults --write docs/faults.md`.",
        "",
        "| id | what it does wrong | source | laws | replaces | actions |",
        "|---|---|---|---|---|---|",
    ]
    for fault in registry.ALL:
        replaced = ", ".join(f"`{place.removeprefix('kvproof.core.')}`" for place in places(fault))
        laws = ", ".join(fault.laws)
        actions = LENGTHS.get(fault.id, "-")
        lines.append(f"| {fault.id} | {fault.summary} | {fault.source} | {laws} | {replaced} | {actions} |")
    return "\n".join(lines) + "\n"
