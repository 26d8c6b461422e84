"""What the numbers in lists of evidence are, by the law, the name of the value and how many there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from kvproof.core.offload.state import Counters

KEY = ("prefix", "group")
HANDOFF = ("request", "group", "block", "boundary")
ENTRY = ("prefix", "group", "how many came before", "block")
PLACE = ("request", "group", "column", "block")
COUNTERS = tuple(field.name for field in attrs.fields(Counters))

OF_LAW: dict[tuple[str, str], tuple[str, ...]] = {
    ("PC-13", "keys"): ("where it stands", "prefix", "group", "block"),
    ("EV-5", "only_replayed"): ("group", "prefix"),
    ("EV-5", "only_in_the_map"): ("group", "prefix"),
    **{("CN-1", name): COUNTERS for name in ("expected", "actual", "left")},
    ("CN-1", "others"): COUNTERS[1:],
    **{("CN-3", name): ("queries", "hits") for name in ("expected", "actual")},
    **{("DS-3", name): ("rank", "column", "place in the block") for name in ("expected", "actual", "slot")},
    **{("DS-4", name): ("request", "tokens", "on each rank") for name in ("expected", "actual")},
    **{("DS-10", name): ("request", "first token", "1 for each rank that looks back") for name in ("expected", "actual")},
    **{("HB-11", name): ("scheduler block", "hash unit") for name in ("expected", "actual")},
    **{("LD-1", name): ("column", "host block") for name in ("expected", "actual")},
    ("IP-4", "expected"): ("prefix", "tokens"),
    ("HO-5", "outcomes"): ("what became of a handoff", "how many"),
}
"""Values that only one law has like this."""
OF_NAME: dict[str, tuple[tuple[str, ...], ...]] = {
    "keys": (KEY, ENTRY),
    "primary": (KEY,),
    "now": (KEY,),
    "lost": (KEY,),
    "new": (KEY,),
    "handoffs": (HANDOFF,),
    "waited": (HANDOFF,),
    "waiting": (HANDOFF,),
    "expected": (HANDOFF,),
    "actual": (HANDOFF,),
    "places": (PLACE,),
    "copies": (("group", "source block", "destination block"),),
    "states": (("group", "block"),),
    "meta": (("prefix", "tokens"),),
    "written": (("first token", "last token"),),
    "source_content": (),
}
"""Values by their name; which of several it is their length tells."""
LISTED = ("DS-4", "DS-10")
"""Laws whose last name stands for one number on each rank."""


def of(law: str, name: str, value: Any) -> tuple[str, ...]:
    """Return the names of the numbers in a tuple of evidence, or in each of a list of them; none if they are not known."""
    rows = [value] if _is_row(value) else list(value) if isinstance(value, tuple) else []
    if not rows or not all(_is_row(row) for row in rows):
        return ()
    known = OF_LAW.get((law, name))
    if known is not None:
        fits = all(len(row) >= len(known) if law in LISTED else len(row) == len(known) for row in rows)
        return known if fits else ()
    # A flat list is one row only where the name says that it is one: else it is a list of blocks or tokens.
    if _is_row(value) and name not in ("primary", "now", "written"):
        return ()
    if name in ("expected", "actual") and not law.startswith("HO-"):
        return ()
    return next((names for names in OF_NAME.get(name, ()) if all(len(row) == len(names) for row in rows)), ())


def _is_row(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and all(isinstance(one, int | str | bool) for one in value)


def said(names: tuple[str, ...], value: Any) -> str:
    """Return the names as a reader sees them; "each" where there are several rows."""
    each = "" if _is_row(value) else "each "
    return f"{each}({', '.join(names)})"


def prefixes(names: tuple[str, ...], value: Any) -> Iterator[int]:
    """Yield the numbers that are prefixes."""
    for row in [value] if _is_row(value) else value:
        yield from (one for name, one in zip(names, row, strict=False) if name == "prefix" and isinstance(one, int))
