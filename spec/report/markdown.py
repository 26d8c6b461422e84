"""A counterexample as one Markdown page, short enough for the description of a change."""

from __future__ import annotations

from kvproof.spec.counterexample import Counterexample
from kvproof.spec.report import legend, lines

MAX_LINES = 60


def render(example: Counterexample, file: str | None = None) -> str:
    """Return the page; its last line is the command that reproduces it. ``file`` is where the JSON form lies."""
    out = [f"# {example.law} does not hold", "", f"> {example.sentence}", ""]
    out.append(f"{text(example.message)}, at {text(lines.place(example))}.")
    if example.values:
        said = legend.values(example)
        out += [
            "",
            "; ".join(f"{name} = `{code(value)}`" + (f" ({text(owner)})" if owner else "") for name, value, owner in said),
        ]
        out += [f"\n{'; '.join(map(text, legend.meanings(example)))}."] if legend.meanings(example) else []
    if example.fault:
        out += ["", f"Planted fault: {text(lines.fault_text(example.fault))}."]
    if example.actions:
        out += ["", "| | action | answer |", "|---|---|---|"]
        out += [f"| {line.number} | `{code(line.action)}` | {text(line.answer)} |" for line in lines.story(example)]
    out += [f"\n{legend.HOW[0].upper()}{legend.HOW[1:]}."] if any(legend.changes(example)) else []
    out += ["", "<details><summary>Configuration</summary>", "", *configuration(example), "", "</details>"]
    out += ["", f"{lines.origin(example)[0].upper()}{lines.origin(example)[1:]}. To see it again:", ""]
    out.append(f"    {lines.reproduce(example, file)}")
    return "\n".join(out) + "\n"


def configuration(example: Counterexample) -> list[str]:
    """Return the sizes, the profile and the table of groups, line by line."""
    head = [f"{lines.sizes_text(example)}; profile {lines.profile_text(example.profile)}.", ""]
    head += ["| group | kind | block | E | row |", "|---|---|---|---|---|"]
    return head + [f"| {' | '.join(row)} |" for row in lines.groups(example)]


def text(value: str) -> str:
    """Return text for a cell of a table."""
    return value.replace("|", "\\|").replace("\n", " ")


def code(value: object) -> str:
    """Return a value as it may stand between backticks in a cell of a table."""
    said = str(value).replace("|", "\\|").replace("`", "'").replace("\n", " ")
    return said if len(said) <= 160 else said[:157] + "..."
