"""Words for a counterexample of an implementation: what values of its evidence mean, whose they are, what became of blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvproof.spec.counterexample import Counterexample, Shown

NODE = "a prefix by its number; prefixes are numbered as their tokens come up"
MEANINGS: dict[str, str] = {
    "key": f"{NODE}: the one that the key stands for",
    "node": NODE,
    "content": "what is really in the block: its group, then for each position the prefix whose bytes lie there, by its number "
    "(-1: nothing was written, -2: garbage)",
    "boundary": "tokens of that prefix",
    "registered_at": "the action after which the key was shown first",
}
"""Names of values that say nothing by themselves."""

FOLLOWED = frozenset(("CC", "CA", "DS", "LV", "RQ"))
"""Families about what is computed, read and delivered: an adapter shows none of it, the oracle follows it."""
ORACLE: dict[str, str] = {
    **dict.fromkeys(("expected", "counted", "needed", "most", "wanted", "predicted"), "the oracle's"),
    **dict.fromkeys(("num_tokens", "computed", "in_flight", "stale", "placeholders", "sampled"), "followed by the oracle"),
    "content": "followed by the oracle",
}
"""Values that the oracle works out, whatever the law."""
IMPLEMENTATION = frozenset(("actual", "ref", "free", "table", "before", "after", "taken", "entry", "found", "local", "lists"))
"""Values that are shown by the implementation, where the law is about what is shown."""
HOW = (
    "behind an answer stands what else changed: keys +block@tokens came and - went, refs block:before>after, free -block left "
    "and +block@place joined the free queue"
)
"""How to read ``changes``."""
SEEN = "from what {} shows"
NAMED = ("block", "blocks", "source", "destination", "twice", "adopted", "only_free", "only_unreferenced")
"""Evidence that names blocks."""
LONGEST = 90
"""Characters that a change of one part may take on a line."""


def whose(example: Counterexample, name: str) -> str:
    """Return whose a value of the evidence is, empty if that is not known, or the model itself broke the law."""
    if example.implementation is None:
        return ""
    if name in ORACLE:
        return ORACLE[name]
    if name not in IMPLEMENTATION:
        return ""
    if example.law.partition("-")[0] in FOLLOWED:
        return "followed by the oracle"
    return SEEN.format(example.implementation.adapter)


def values(example: Counterexample) -> list[tuple[str, str, str]]:
    """Return name, value and owner of each value of the evidence, as text."""
    return [(name, str(value), whose(example, name)) for name, value in example.values]


def meanings(example: Counterexample) -> list[str]:
    """Return what the names of values mean that do not say it, one a line."""
    if example.implementation is None:
        return []
    return [f"{name}: {MEANINGS[name]}" for name, _ in example.values if name in MEANINGS]


# --- what became of blocks ------------------------------------------------------------------------------------------


def changes(example: Counterexample) -> list[str]:
    """Return per action how keys, references and the free queue changed, as far as they are shown; blocks of the evidence
    come first.
    """
    if example.implementation is None:
        return []
    first = _named(example)
    known: dict[str, Any] = {}
    found = []
    for shown in example.implementation.shown:
        found.append(", ".join(_changed(known, shown, first)))
        known |= dict(shown.state)
    return found


def _named(example: Counterexample) -> tuple[int, ...]:
    found: list[int] = []
    for name, value in example.values:
        if name in NAMED:
            inner = value if isinstance(value, list | tuple) else (value,)
            found += [block for block in inner if isinstance(block, int)]
    return tuple(dict.fromkeys(found))


def _changed(known: Mapping[str, Any], shown: Shown, first: Sequence[int]) -> list[str]:
    now = dict(shown.state)
    found = []
    for tier, prefix in (("device", ""), ("host.pool", "host ")):
        for part, differ in (("keys", _keys), ("references", _references), ("free", _free)):
            name = f"{tier}.{part}"
            if name in known and name in now:
                rows = sorted(differ(known[name], now[name]), key=lambda row: row[0] not in first)
                if rows:
                    found.append(_cut(f"{prefix}{WORDS[part]} {' '.join(text for _, text in rows)}"))
    return found


WORDS = {"keys": "keys", "references": "refs", "free": "free"}
Rows = list[tuple[int, str]]
"""A block, and what became of it."""


def _keys(before: Sequence[Any], now: Sequence[Any]) -> Rows:
    """Return keys that came and went, as block@tokens, with the group if that is not the first one."""
    old, new = ([dict(key) for key in keys] for keys in (before, now))
    gone = [("-", key) for key in old if key not in new]
    come = [("+", key) for key in new if key not in old]
    return [(key["block"], f"{sign}{_key_text(key)}") for sign, key in (*gone, *come)]


def _key_text(key: Mapping[str, Any]) -> str:
    return f"{key['block']}@{key['boundary']}" + (f"/group {key['group']}" if key["group"] else "")


def _references(before: Sequence[Any], now: Sequence[Any]) -> Rows:
    old, new = dict(before), dict(now)
    blocks = sorted(old.keys() | new.keys())
    return [
        (block, f"{block}:{old.get(block, 0)}>{new.get(block, 0)}")
        for block in blocks
        if old.get(block, 0) != new.get(block, 0)
    ]


def _free(before: Sequence[int], now: Sequence[int]) -> Rows:
    """Return blocks that left the free queue, and those that joined it with their new places, the first one 0."""
    rows = [(block, f"-{block}") for block in before if block not in now]
    rows += [(block, f"+{block}@{at}") for at, block in enumerate(now) if block not in before]
    kept = [block for block in now if block in before]
    if kept != [block for block in before if block in now]:
        rows.append((-1, "others moved"))
    return rows


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
