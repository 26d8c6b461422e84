"""The actions that an adapter performs, as a page: docs/actions.md is read off the docstrings of ``core.actions``."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import attrs

from kvproof.core import actions as act

MARKS = ("When: ", "Do: ")
"""How the paragraphs of a docstring begin that say when the action comes and what has to be done."""
HOST = "with a host tier"
"""How the first of these begins for an action that other configurations never have."""

HEAD = ("| action | fields | what it is | when it comes | what a cache does |", "|---|---|---|---|---|")


@attrs.frozen(slots=True)
class Told:
    """What the docstring of an action says. ``fields`` as they are written in a call, those without a default first."""

    name: str
    fields: tuple[str, ...]
    what: str
    when: str
    do: str

    @property
    def hosted(self) -> bool:
        """Tell whether only configurations with a host tier have it."""
        return self.when.casefold().startswith(HOST)


def told(kind: type[act.Action]) -> Told:
    """Return what the docstring of an action says. Raises ValueError if a part is missing."""
    paragraphs = [" ".join(part.split()) for part in (inspect.getdoc(kind) or "").split("\n\n")]
    marked = [[part.removeprefix(mark) for part in paragraphs if part.startswith(mark)] for mark in MARKS]
    what = [part for part in paragraphs if not part.startswith(MARKS)]
    if not what or any(len(found) != 1 for found in marked):
        raise ValueError(f"the docstring of {kind.__name__} says what it is, and then once {MARKS[0]!r} and {MARKS[1]!r}")
    fields = [one.name if one.default is attrs.NOTHING else f"{one.name} = {one.default!r}" for one in attrs.fields(kind)]
    (when,), (do,) = marked
    return Told(kind.__name__, tuple(fields), " ".join(what), when, do)


def as_text(kinds: Sequence[type[act.Action]] = act.ACTIONS) -> str:
    """Return the actions as plain text, a paragraph each."""
    found = []
    for one in map(told, kinds):
        what, when, do = (part.replace("``", "") for part in (one.what, one.when, one.do))
        found.append(f"{one.name}({', '.join(one.fields)})\n  {what}\n  when: {when}\n  a cache: {do}")
    return "\n\n".join(found)


def as_markdown(kinds: Sequence[type[act.Action]] = act.ACTIONS) -> str:
    """Return `docs/actions.md`."""
    every = [told(kind) for kind in kinds]
    out = [
        "# The actions",
        "",
        "What an adapter is asked to perform (docs/adapters.md), and what the model performs. Lengths are in tokens; ids and",
        "tokens are numbers from 0 on. T numbers are those of docs/semantics.md, section 4; section 1 has the words with their",
        "names in vLLM.",
        "",
        "Written by `kvproof conform actions --write docs/actions.md`, from the docstrings of `core/actions.py`.",
        "",
        "A step is one *plan* and what follows it:",
        "",
        "```text",
        "BeginStep                              a plan is open",
        "  Allocate ...                           the running requests, with Preempt and Withdraw in between",
        "  Lookup, Allocate ...                   then waiting ones, unless the plan has preempted somebody",
        "Drain, BuildMetadata, Dispatch         the plan is closed: what was planned counts as computed and is in flight",
        "  Execute ...                            the worker",
        "  Output ...                             one for each request of the step: its sampled tokens are known now",
        "```",
        "",
        "Everything else comes between plans. With two steps in flight the next plan may be open before the outputs of a step",
        "have come.",
        "",
    ]
    for title, hosted in (("Every configuration", False), ("With a host tier only", True)):
        out += [f"## {title}", "", *HEAD]
        out += [_row(one) for one in every if one.hosted == hosted]
        out.append("")
    return "\n".join(out)


def _row(one: Told) -> str:
    fields = ", ".join(f"`{name}`" for name in one.fields)
    return f"| `{one.name}` | {fields} | {_cell(one.what)} | {_cell(one.when)} | {_cell(one.do)} |"


def _cell(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|")
