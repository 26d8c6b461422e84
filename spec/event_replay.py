"""What a consumer of events knows: the keys of a tier, from its announcements alone (semantics 3.7, EV-5)."""

from __future__ import annotations

from collections.abc import Iterable

from kvproof.core.records import Event

Key = tuple[int, int]
"""(group, prefix node)."""


def replay(events: Iterable[Event], known: Iterable[Key] = (), medium: str = "device") -> set[Key]:
    """Return the keys (group, node) that a tier has after these events: what is ``stored`` joins, ``removed`` leaves.

    ``known`` are the keys before the first event: nothing for events from the start of a run. Events of other media are
    passed over. Applying events one by one and all at once comes to the same.
    """
    keys = set(known)
    for event in events:
        if event.medium != medium:
            continue
        if event.kind == "cleared":
            keys.clear()
        elif event.kind == "stored":
            keys.add((event.group, event.node))
        else:
            keys.discard((event.group, event.node))
    return keys
