"""``kvproof faults``: the named ways to be wrong, by which we know that the laws bite."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table

from kvproof.spec import faults as registry
from kvproof.spec import laws, output
from kvproof.spec.commands.check import wide_console
from kvproof.spec.exits import UserError
from kvproof.spec.exploring import kills
from kvproof.spec.exploring.kills import Kill
from kvproof.spec.faults import times
from kvproof.spec.faults.base import Fault
from kvproof.spec.faults.lengths import LENGTHS
from kvproof.spec.report import lines

WIDE = 140


@click.command("faults", short_help="List the faults that the laws must catch.")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
@click.option("--write", type=click.Path(path_type=Path), metavar="FILE", help="Write the list as Markdown to FILE.")
def command(ids: tuple[str, ...], as_json: bool, write: Path | None) -> None:
    """List every fault: what it does wrong, where it was seen, the laws that must catch it, and how short it gets.

    The last columns are the numbers of actions of the shortest counterexample that random walks and shrinking have found, and
    of the one that the explorer knows to be shortest in a scope of its own (- where none is pinned): the scopes differ, so
    either may be smaller. An ID says one fault in full. `kvproof check --fault ID` plants one and shows its counterexample,
    `kvproof explore --fault ID` that of the explorer.
    """
    if ids and write is not None:
        raise UserError("--write writes the page of all faults: leave the ids out")
    asked = chosen(ids) or registry.ALL
    if write is not None:
        output.write_atomically(write, as_markdown())
    if as_json:
        click.echo(json.dumps([as_dict(fault) for fault in asked], indent=1, sort_keys=True))
    elif ids:
        click.echo("\n\n".join(as_text(fault) for fault in asked))
    elif write is None:
        console = wide_console()
        console.print(as_table(console.width >= WIDE))


def chosen(ids: Sequence[str]) -> tuple[Fault, ...]:
    """Return the faults that are named, in any case, each once. Raises UserError for an unknown name."""
    known = {fault.id.casefold(): fault.id for fault in registry.ALL}
    try:
        return tuple(registry.by_id(name) for name in dict.fromkeys(known.get(name.casefold(), name) for name in ids))
    except registry.FaultError as error:
        raise UserError(str(error)) from error


def as_text(fault: Fault) -> str:
    """Return everything that is known about one fault, a line each, its laws with their sentences."""
    actions = LENGTHS.get(fault.id)
    kill = kills.table().get(fault.id)
    return "\n".join(
        [
            fault.id,
            fault.summary,
            f"source: {fault.source}",
            f"replaces: {', '.join(lines.replaced(fault))}",
            "laws that must catch it:",
            *(f"  {law}: {laws.by_id(law).sentence}" for law in fault.laws),
            f"scopes where generation finds it, the fastest first: {', '.join(fault.scopes)}",
            f"counterexample of walks and shrinking, in those scopes: {_walked(actions)}",
            f"counterexample of the explorer, in a scope of its own: {_explored(kill)}",
            f"scenario: docs/semantics.md, section 6, row {fault.id}",
            f"`kvproof check --fault {fault.id}` plants it and shows its counterexample.",
            *([] if kill is None else [f"`{kills.command(fault.id)}` plants it and shows that of the explorer."]),
        ]
    )


def _walked(actions: int | None) -> str:
    return "not pinned" if actions is None else f"{actions} actions, the fewest that they have found"


def _explored(kill: Kill | None) -> str:
    return "not pinned" if kill is None else f"{kill.length} actions, by {kill.law} in {kill.scope}, where none is shorter"


def as_dict(fault: Fault) -> dict[str, object]:
    """Return what is known about a fault, ready for JSON; ``actions`` and ``explorer`` are null where no length is pinned."""
    kill = kills.table().get(fault.id)
    return {
        "id": fault.id,
        "summary": fault.summary,
        "source": fault.source,
        "laws": list(fault.laws),
        "replaces": lines.replaced(fault),
        "scopes": list(fault.scopes),
        "actions": LENGTHS.get(fault.id),
        "explorer": None
        if kill is None
        else {
            "scope": kill.scope,
            "law": kill.law,
            "actions": kill.length,
            "command": kills.command(fault.id),
        },
    }


def as_table(wide: bool = True) -> Table:
    """Return the terminal table; what a fault replaces has a column only if it is ``wide``."""
    table = Table(title=f"{len(registry.ALL)} faults", title_justify="left")
    table.add_column("id", no_wrap=True)
    table.add_column("what it does wrong", ratio=1)
    table.add_column("source")
    table.add_column("laws")
    if wide:
        table.add_column("replaces")
    table.add_column("actions", justify="right")
    table.add_column("explorer", justify="right")
    known = kills.table()
    for fault in registry.ALL:
        cells = [fault.id, fault.summary, fault.source, " ".join(fault.laws)]
        if wide:
            cells.append(" ".join(lines.short(place) for place in lines.replaced(fault)))
        table.add_row(*cells, str(LENGTHS.get(fault.id, "-")), str(known[fault.id].length) if fault.id in known else "-")
    return table


def as_markdown() -> str:
    """Return `docs/faults.md`."""
    page = [
        "# Faults",
        "",
        "Named ways to be wrong ([semantics, section 6](semantics.md)). Each is planted by replacing functions of the model,",
        "or is the value of a profile field; generation must find it, and each of its laws must catch it. `actions` is the",
        "length of the shortest counterexample that random walks and shrinking have found; `explorer` is that of the shortest",
        "one in a scope of the [explorer](explore.md), which has tried everything shorter there. Walks have larger scopes of",
        "their own (longer prompts and chunks, bytes that move in other moments), so that either number may be smaller.",
        "Written by `kvproof faults --write docs/faults.md`, with times if `benchmarks/results` has some.",
        "",
        "| id | what it does wrong | source | laws | replaces | actions | explorer |",
        "|---|---|---|---|---|---|---|",
    ]
    known = kills.table()
    for fault in registry.ALL:
        replaced = ", ".join(f"`{lines.short(place)}`" for place in lines.replaced(fault))
        laws = ", ".join(fault.laws)
        actions = LENGTHS.get(fault.id, "-")
        kill = known.get(fault.id)
        found = "-" if kill is None else f"{kill.length} ({kill.law}, {kill.scope})"
        page.append(f"| {fault.id} | {fault.summary} | {fault.source} | {laws} | {replaced} | {actions} | {found} |")
    measured = times.newest()
    if measured is not None:
        page += ["", *times.as_markdown(measured)]
    return "\n".join(page) + "\n"
