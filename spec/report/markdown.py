"""A counterexample as one Markdown page, short enough for the description of a change."""

from __future__ import annotations

from collections.abc import Iterable

from kvproof.spec import counterexample as examples
from kvproof.spec.counterexample import Counterexample
from kvproof.spec.report import around, further, legend, lines, words
from kvproof.spec.report.legible import legible
from kvproof.spec.report.rerun import Rerun, run_again

MAX_LINES = 60
MOST_GROUPS = 12
LONG = 400
"""Characters of what follows."""


def render(example: Counterexample, seen: Rerun | None = None) -> str:
    """Return the page; its last line is the command that finds it again, which needs no file of this machine."""
    seen = seen or run_again(example)
    example = seen.here
    out = [f"# {text(seen.head)}", "", *notes(seen), f"> {text(example.sentence)}"]
    out += [] if seen.gone else ["", f"{text(example.message)}, at {text(lines.place(example))}."]
    if example.values:
        said = words.in_short(example)
        out += [
            "",
            "; ".join(
                f"{text(name)} = `{code(value)}`" + (f" ({text(owner)})" if owner else "") for name, value, owner in said
            ),
        ]
        out += [f"\n{'; '.join(map(text, legend.meanings(example)))}."] if legend.meanings(example) else []
    if example.fault:
        out += ["", f"Planted fault: {text(lines.fault_text(example.fault))}."]
    if example.actions:
        out += ["", *steps(lines.told(example), seen)]
    out += [f"\n{legend.HOW[0].upper()}{legend.HOW[1:]}."] if any(legend.changes(example)) else []
    out += follows(seen)
    out += departs(seen)
    out += ["", "<details><summary>Configuration</summary>", "", *configuration(example), "", "</details>"]
    origin, to_see = text(lines.origin(example)), "This found it:" if seen.gone else "To see it again:"
    out += ["", f"{origin[0].upper()}{origin[1:]}. {to_see}", ""]
    out.append(f"    {again(example)}")
    return legible("\n".join(out) + "\n")


def follows(seen: Rerun) -> list[str]:
    """Return what the law lets happen behind the last action, in few lines, and what is left open."""
    example, film = seen.here, seen.film
    if film is None or not further.sentence(example, film):
        return []
    out = ["", text(further.sentence(example, film))]
    told = [f"{line.number} {line.action}" if numbers else line.action for line, numbers in further.told(example, film)]
    out += ["", f"What follows: `{code('; '.join(told), LONG)}`"] if told else []
    left = further.left(film)
    return [*out, "", f"Left open: **{text('; '.join(left))}**."] if left else out


def departs(seen: Rerun) -> list[str]:
    """Return where the run departs from one without the planted fault, in a paragraph."""
    film = seen.film
    found = None if film is None else around.departed(seen.here, film)
    if found is None:
        return []
    both = f" Here: `{code(found.here)}`; without the fault: `{code(found.sound)}`." if found.sound else ""
    first = (
        []
        if found.sound
        else [f" {what}: `{code(here)}` here, `{code(there)}` without it." for what, here, there in found.rows[:1]]
    )
    return ["", text(found.text) + both + "".join(map(text, first))]


def notes(seen: Rerun) -> list[str]:
    """Return what a reader must know before everything else, as a paragraph of its own, with the line behind it."""
    if not seen.notes:
        return []
    return [f"**{'Not seen here.' if seen.gone else 'Not as the file says.'}** {text(' '.join(seen.notes))}", ""]


def steps(told: Iterable[tuple[lines.Line, bool]], seen: Rerun) -> list[str]:
    """Return the table of the actions, the breaking one marked; what an implementation showed stands apart from the model's."""
    example = seen.here
    mark = f" **{seen.mark.replace('✗ breaks ' + example.law, '✗ the law breaks here')}**"
    if example.implementation is None:
        head = ["| | action | answer |", "|---|---|---|"]
        return head + [f"{_step(line, mark if broken else '')} {text(line.answer)} |" for line, broken in told]
    head = [f"| | action | {text(example.implementation.adapter)} showed | the model answers |", "|---|---|---|---|"]
    return head + [f"{_step(line, mark if broken else '')} {text(line.answer)} | {text(line.model)} |" for line, broken in told]


def _step(line: lines.Line, mark: str) -> str:
    """Return the first two cells of a row."""
    done = f"`{code(line.action)}`" if line.number and line.number != "..." else text(line.action)
    return f"| {line.number} | {done}{mark} |"


def again(example: Counterexample) -> str:
    """Return what finds the counterexample again without its file: a command, or a call for that of an implementation."""
    return examples.command(example) if example.implementation is None else lines.reproduce(example)


def configuration(example: Counterexample) -> list[str]:
    """Return the sizes, the profile and the table of groups, line by line."""
    head = [f"{lines.sizes_text(example)}; profile {text(lines.profile_text(example.profile))}.", ""]
    head += ["| group | kind | block | E | row |", "|---|---|---|---|---|"]
    rows = [f"| {' | '.join(map(text, row))} |" for row in lines.groups(example)]
    more = len(rows) - MOST_GROUPS
    return [*head, *rows[:MOST_GROUPS], *([f"\n{more} more groups."] if more > 0 else [])]


def text(value: str) -> str:
    """Return text for a line or a cell of a table: one line, and nothing of it is a tag, a link or a fence."""
    for sign in ("\\", "|", "<"):
        value = value.replace(sign, f"\\{sign}")
    value = value.replace("](", "]\\(").replace("]:", "]\\:")
    return value.replace("```", "'''").replace("\n", " ")


def code(value: object, longest: int = 160) -> str:
    """Return a value as it may stand between backticks in a cell of a table."""
    said = str(value).replace("|", "\\|").replace("`", "'").replace("\n", " ")
    return lines.cut(said, longest)
