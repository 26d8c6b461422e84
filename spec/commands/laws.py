"""``kvproof laws``: what must hold, one sentence each, and the faults that show that a law bites."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
from attrs import asdict
from rich.table import Table

from kvproof.spec import faults as registry
from kvproof.spec import laws, output, standing
from kvproof.spec.commands.check import wide_console
from kvproof.spec.exits import UserError
from kvproof.spec.laws.base import Law
from kvproof.spec.report import labels

MARKS = {"S": "soundness", "C": "completeness and progress", "D": "definition"}
NOT_YET = "not yet shown to bite"


@click.command("laws", short_help="List the laws that the model must keep.")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
@click.option("--write", type=click.Path(path_type=Path), metavar="FILE", help="Write the list as Markdown to FILE.")
def command(ids: tuple[str, ...], as_json: bool, write: Path | None) -> None:
    """List every law: its sentence, its mark, where it comes from, and the faults that it must catch. An ID says one law
    in full; the letters of a family (HO) list its laws.

    S is soundness (a violation means wrong content, wrong ownership or a broken contract), C completeness and progress, D
    a definition. `kvproof check --law ID` checks one alone.
    """
    if ids and write is not None:
        raise UserError("--write writes the page of all laws: leave the ids out")
    asked = chosen(ids) or laws.ALL
    if write is not None:
        output.write_atomically(write, as_markdown())
    if as_json:
        click.echo(json.dumps([as_dict(law) for law in asked], indent=1, sort_keys=True))
    elif ids and not all(laws.family(name) for name in ids):
        click.echo("\n\n".join(as_text(law) for law in asked))
    elif write is None:
        wide_console().print(as_table(asked))


def chosen(ids: Sequence[str]) -> tuple[Law, ...]:
    """Return the laws that are named by id or by family, in any case, each once. Raises UserError for an unknown name."""
    found = [law for name in ids for law in laws.family(name) or (laws.by_id(known_as(name)),)]
    return tuple(dict.fromkeys(found))


def known_as(name: str) -> str:
    """Return the id of a law that is named in any case; an unknown name stays as it is."""
    return next((law.id for law in laws.ALL if law.id.casefold() == name.casefold()), name)


def as_text(law: Law) -> str:
    """Return everything that is known about one law, a line each, its faults with what they do wrong."""
    after = ", ".join(action.__name__ for action in law.on) or "every action"
    judged_on = [f"action, after {after}" if kind == "action" else kind for kind in judged(law)]
    lines = [
        f"{law.id} [{law.mark}, {MARKS[law.mark]}] {laws.FAMILIES[law.id.partition('-')[0]]}",
        law.sentence,
        f"judged on: {'; '.join(judged_on)}",
        f"source: {law.source}",
    ]
    if law.bent_by:
        lines.append("bent by: " + ", ".join(f"{field} = {value}" for field, value in law.bent_by))
    lines.append("faults that it must catch:")
    summaries = {fault.id: fault.summary for fault in registry.ALL}
    lines += [f"  {name}: {summaries.get(name, 'comes with a later part')}" for name in law.faults]
    lines += standing_lines(law)
    lines.append(f"`kvproof check --law {law.id}` checks it alone.")
    return "\n".join(lines)


def standing_lines(law: Law) -> list[str]:
    """Return the label of a law, what it rests on, and the commands that ask for it."""
    label, behind = labels.read()[law.id], standing.read()[law.id]
    found = [f"label: {label}"]
    if behind.proofs:
        found.append("claims that settle it, with their bounds:")
        found += [f"  {one.claim}{' (deep)' if one.deep else ''}: {one.bounds}" for one in behind.proofs]
    if behind.proofs or behind.parts:
        counts = f"settling it {len(behind.proofs)}, saying a part of it {behind.parts}"
        found.append(f"`kvproof prove --law {law.id}` asks the claims that name it, among them {counts}.")
    if behind.scopes:
        scopes = "one scope" if behind.scopes == 1 else f"{behind.scopes} scopes"
        found.append(f"`kvproof explore --law {law.id}` judges it alone; it was judged on all behaviours of {scopes}.")
    return found


def planted_now(law: Law) -> list[str]:
    """Return the faults of a law that this version can plant, in the law's order."""
    known = {fault.id for fault in registry.ALL}
    return [fault for fault in law.faults if fault in known]


def judged(law: Law) -> list[str]:
    """Return what a law is judged on."""
    kinds = {"configuration": law.check_config, "action": law.check, "run": law.check_run, "end": law.check_end}
    return [name for name, check in kinds.items() if check is not None]


def as_dict(law: Law) -> dict[str, object]:
    """Return what is known about a law, ready for JSON; ``faults_later`` cannot be planted by this version."""
    now = planted_now(law)
    return {
        "id": law.id,
        "mark": law.mark,
        "sentence": law.sentence,
        "source": law.source,
        "faults": now,
        "faults_later": [fault for fault in law.faults if fault not in now],
        "judged_on": judged(law),
        "after": [action.__name__ for action in law.on],
        "bent_by": [f"{field} = {value}" for field, value in law.bent_by],
        "later": law.later,
        "label": labels.read()[law.id],
        "behind": asdict(standing.read()[law.id]),
    }


def faults_cell(law: Law) -> str:
    """Return the faults of a law in words: those of this version, or that none of them can be planted yet."""
    now = planted_now(law)
    later = [fault for fault in law.faults if fault not in now]
    if not now:
        return f"{NOT_YET} ({', '.join(later)})" if later else NOT_YET
    return ", ".join(now) + (f"; later {', '.join(later)}" if later else "")


def as_table(asked: Sequence[Law]) -> Table:
    """Return the terminal table of some laws."""
    table = Table(title=f"{len(asked)} laws", title_justify="left")
    table.add_column("id", no_wrap=True)
    table.add_column("mark")
    table.add_column("sentence", ratio=3)
    table.add_column("source", ratio=1)
    table.add_column("faults it kills", ratio=2)
    for law in asked:
        table.add_row(law.id, law.mark, law.sentence, law.source, faults_cell(law))
    return table


def as_markdown() -> str:
    """Return `docs/laws.md`."""
    lines = [
        "# Laws",
        "",
        "What the model must keep ([semantics, section 5](semantics.md)). Marks: **S** soundness (a violation means wrong",
        "content, wrong ownership or a broken contract), **C** completeness and progress (something usable is not found, or",
        "something never ends), **D** definition (a decision or size equals its definition). A law is judged from contents, by",
        "counting, or against its own naive definition, never by the function that it judges. Its faults show that it bites:",
        f"each is planted and must be caught by it. Where all come with later parts the law is *{NOT_YET}*. *Bent by*",
        "names profile fields under which a violation is expected. Sources are vLLM pull requests and issues, or its code.",
        "Written by `kvproof laws --write docs/laws.md`.",
        "",
        f"{len(laws.ALL)} laws: "
        + ", ".join(f"{sum(law.mark == mark for law in laws.ALL)} {mark} ({word})" for mark, word in MARKS.items())
        + f"; {sum(law.later for law in laws.ALL)} {NOT_YET}.",
    ]
    for family, title in laws.FAMILIES.items():
        lines += ["", f"## {family}: {title}", ""]
        lines += ["| id | mark | sentence | judged on | source | faults it kills |", "|---|---|---|---|---|---|"]
        lines += [_row(law) for law in laws.ALL if law.id.startswith(f"{family}-")]
    return "\n".join(lines) + "\n"


def _row(law: Law) -> str:
    sentence = law.sentence
    if law.bent_by:
        sentence += " Bent by " + ", ".join(f"`{field} = {value}`" for field, value in law.bent_by) + "."
    faults = faults_cell(law).replace(NOT_YET, f"*{NOT_YET}*")
    cells = (law.id, law.mark, sentence, ", ".join(judged(law)), law.source, faults)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
