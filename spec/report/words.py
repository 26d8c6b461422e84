"""What a reader of a single page cannot know: the actions of a run, what a step executes, and the names of evidence."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from kvproof.core import actions as act
from kvproof.spec import counterexample as examples
from kvproof.spec.counterexample import Counterexample
from kvproof.spec.report import fields, legend, lines, shapes
from kvproof.spec.report.film import Film

PARTS: dict[str, str] = {
    "zero": "the worker zeroes the new blocks that must be",
    "copy": "copies whole blocks, such as the private copy of a shared one",
    "load": "loads bytes of a hit on the host, or those that a connector brings",
    "precopy": "copies a recurrent state into the column in which the step writes",
    "forward": "computes: reads the earlier tokens and writes those of the chunk",
    "flush": "waits for the stores of earlier steps",
    "submit": "gives the stores of the step to the copy engine",
}
"""Execute sub-phases (docs/semantics.md, T0)."""
SAID: dict[type[act.Action], str] = {act.Execute: "Run one part of the execution of the oldest step, by its name"}
"""Actions whose own first line points to the code."""
FLAGS: dict[str, str] = {
    "local": "tokens of the hit on the device",
    "admitted": "whether the blocks sufficed, so that the request has what it asked for",
    "diverged": "whether the groups are handed over with hits of different lengths",
    "num_tokens": "tokens that the request has now, prompt and output",
    "done": "whether the keys were cleared by a reset, or whether a store has ended",
    "deferred": "the blocks are held back until the steps in flight are processed",
    "lost": "tokens of a hit outside that did not arrive",
    "rejected": "drafts that are not among the tokens delivered",
    "store_event": "the number of the store of the step",
    "load_event": "the number of the load of the step",
    "flush": "the step waits for transfers that run",
    "computed": "tokens of the request that count as computed",
    "freed": "the request had finished, and its blocks were freed now",
    "gauge": "host blocks of stores that are not over",
    "pending_work": "a store is queued or runs, so that the engine has to go on stepping",
    "notices": "notices that were given for the first time",
}
"""Fields of an answer that are one number or a yes or no."""
EVIDENCE: dict[str, str] = {
    "expected": "what the law works out for itself",
    "actual": "what the run came to",
    "found": "what was found instead",
    "counted": "what counting all holders comes to",
    "ref": "the reference count that the pool keeps",
    "key": "the prefix that the key stands for",
    "node": "a prefix",
    "boundary": "the end of a prefix, in tokens",
    "content": "what is really in the block: its group, then the prefix behind each position",
    "hit": "length of the hit, in tokens",
    "local": "length of the hit on the device, in tokens",
    "own": "length of the hit that the group has alone, in tokens",
    "deepest": "the longest prefix with a keyed replicated state, in tokens",
    "attention": "length of the hit of the attention groups, in tokens",
    "start": "the first token of the chunk",
    "column": "column of a block table",
    "index": "column of a block table",
    "writer": "the request that writes",
    "next_position": "the next token that it writes",
    "others": "the others that hold the block",
    "unit": "tokens between two candidates",
    "tier": "device or host",
    "meta": "the keys that the store announces, as (prefix, tokens)",
    "needed": "what is needed",
    "table": "blocks of the table, column by column",
    "cacheable": "tokens that may be cached",
    "step": "the number of the step",
    "event": "the number of the store or load",
    "before": "as it was before the action",
    "after": "as it is behind the action",
    "prefix": "its context, then its tokens",
    "action": "the number of the action at which it was seen",
}
"""Names of evidence that do not say what they are."""
_READ = "for each group the prefixes that lie at its positions, or the recurrent state; equal numbers are equal prefixes"
OF_LAW: dict[tuple[str, str], str] = {
    (law, name): f"{whose}: {_READ}"
    for law in ("CC-7", "CC-8")
    for name, whose in (("expected", "what is read without a cache"), ("actual", "what the run read"))
}
"""Evidence that means something of its own in a law."""
PREFIXES = ("key", "node", "parent")
"""Evidence whose numbers are prefixes, which have names on a page."""


def of_actions(actions: Collection[act.Action]) -> Iterator[tuple[str, str]]:
    """Yield the actions that occur with what they do, in the order of the alphabet, then the parts of a step."""
    kinds = {type(action) for action in actions}
    for kind in act.ACTIONS:
        if kind in kinds:
            first = (kind.__doc__ or "").partition("\n")[0].rstrip(".")
            yield kind.__name__, SAID.get(kind) or first.partition(" (T")[0].replace("``", "`")
    parts = {action.part for action in actions if isinstance(action, act.Execute)}
    yield from ((part, f"part of a step's execution: {meaning}") for part, meaning in PARTS.items() if part in parts)


def of_numbers(example: Counterexample, film: Film) -> str:
    """Return what the prefixes are called whose numbers stand in lists of evidence, "" if there are none."""
    lists = [value for name, value in example.values if name == "content"]
    numbers = dict.fromkeys(number for value in lists for number in _integers(value) if number in film.names.known)
    said = [f"{number} is {film.names.at(number)}" for number in sorted(numbers)[:MOST]]
    return f"numbers in it are prefixes: {', '.join(said)}" if said else ""


MOST = 16
"""Prefixes that are named by their number."""


def _integers(value: Any) -> Iterator[int]:
    if isinstance(value, tuple):
        for inner in value:
            yield from _integers(inner)
    elif isinstance(value, int) and value > 0:
        yield value


def of_value(example: Counterexample, name: str, value: Any, film: Film | None) -> str:
    """Return what a value of evidence is, "" if its name says that; a prefix is called as everywhere on the page.

    Of lists the fields are named.
    """
    meaning = OF_LAW.get((example.law, name)) or EVIDENCE.get(name, "")
    if name in PREFIXES and film is not None and isinstance(value, int) and value in film.names.known:
        return f"{film.names.at(value)}: {meaning or 'a prefix'}"
    names = shapes.of(example.law, name, value)
    if not names:
        return meaning
    told = list(dict.fromkeys(shapes.prefixes(names, value)))[:MOST]
    called = [
        f"prefix {number} is {film.names.at(number)}" for number in told if film is not None and number in film.names.known
    ]
    return "; ".join(filter(None, (meaning, ", ".join((shapes.said(names, value), *called)))))


def values(example: Counterexample, film: Film | None) -> list[tuple[str, str, str]]:
    """Return name, value and explanation of each value of the evidence: whose it is, and what it means where that is not plain.

    What an implementation showed has numbers of its own: there no prefix has a name of the model.
    """
    known = film if example.implementation is None else None
    return [
        (name, said, "; ".join(filter(None, (owner, of_value(example, name, value, known)))))
        for (name, said, owner), (_, value) in zip(legend.values(example), example.values, strict=True)
    ]


def in_short(example: Counterexample) -> list[tuple[str, str, str]]:
    """Return the same for a form with little room: of what a value means only whose it is and the names of its fields."""
    found = []
    for (name, said, owner), (_, value) in zip(legend.values(example), example.values, strict=True):
        names = shapes.of(example.law, name, value)
        found.append((name, said, "; ".join(filter(None, (owner, shapes.said(names, value) if names else "")))))
    return found


def notation(example: Counterexample, film: Film | None) -> list[tuple[str, str]]:
    """Return the actions and the fields of answers that occur, here or in what follows, with what they mean."""
    following = () if film is None else film.moments[film.told :]
    outcomes = (*example.outcomes, *map(examples.outcome_of, following))
    answers = [*lines.answers(example), *map(lines.answer_text, outcomes)]
    actions = (*example.actions, *(moment.action for moment in following))
    there = set(" ".join(answers).replace(",", " ").replace(";", " ").split())
    flags = [(name, meaning) for name, meaning in FLAGS.items() if name in there and name not in fields.MEANINGS]
    return [*of_actions(actions), *flags, *fields.used(answers)]
