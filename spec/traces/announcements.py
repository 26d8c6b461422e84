"""Cache events of a recording and of the model in one form: one row per key (semantics 3.7).

An engine puts the keys of one caching call into one record, whose payload reaches over entries that were not registered, and
writes a record without keys if all were skipped. Such a record is split here: key n then means the tokens [n - size, n). The
payload as a whole is checked against the requests' tokens first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvproof.core.records import NONE, Event
from kvproof.spec.traces import declared
from kvproof.spec.traces.driver import Diverged, Driver
from kvproof.spec.traces.format import ClearedEvent, RemovedEvent, StoredEvent
from kvproof.spec.traces.format import Event as RecordedEvent
from kvproof.spec.traces.project import digest

Row = tuple[object, ...]
"""("stored", tier, group, key, parent key, size, digest of the payload), ("removed", tier, group, key) or ("cleared",)."""


def compare(driver: Driver, recorded: Sequence[RecordedEvent]) -> None:
    """Compare the events since the last step, the device's and then the host's, and forget them. Raises Diverged."""
    said = [*driver.said["device"], *driver.said["host"]]
    for events in driver.said.values():
        events.clear()
    expected = [row_of(driver, event) for event in said]
    found = [row for event in recorded for row in rows_of(driver, event)]
    if expected != found:
        at = next((at for at, pair in enumerate(zip(expected, found, strict=False)) if pair[0] != pair[1]), None)
        at = min(len(expected), len(found)) if at is None else at
        here = [rows[at] if at < len(rows) else "none" for rows in (expected, found)]
        difference = f"events[{at}]: expected {here[0]!r}, recorded {here[1]!r}"
        raise Diverged("events", expected, found, (difference,))


def row_of(driver: Driver, event: Event) -> Row:
    """Return the row of one of the model's events."""
    if event.kind == "cleared":
        return ("cleared",)
    depth = driver.world.prefixes.depth
    key = (depth[event.node], driver.projector.prefix_id(driver.world, event.node))
    if event.kind == "removed":
        return ("removed", event.medium, event.group, key)
    parent = None
    if event.parent != NONE:
        parent = (depth[event.parent], driver.projector.prefix_id(driver.world, event.parent))
    return ("stored", event.medium, event.group, key, parent, event.size, digest(event.tokens) if event.tokens else None)


def rows_of(driver: Driver, event: RecordedEvent) -> Iterator[Row]:
    """Yield one row per key of a recorded event. Raises Diverged for a payload that no request's tokens explain."""
    if isinstance(event, ClearedEvent):
        yield ("cleared",)
    elif isinstance(event, RemovedEvent):
        for key in event.keys:
            yield ("removed", event.tier, event.group, key)
    elif event.tier == "host" or event.tokens_id is None:
        # The host's records are written one per key (T28).
        for key in event.keys:
            yield ("stored", event.tier, event.group, key, event.parent, event.block_size, event.tokens_id)
    else:
        tokens = payload_source(driver, event)
        driver.note(declared.EVENTS, int(len(event.keys) != 1))
        for key in event.keys:
            above = max(key[0] - event.block_size, 0)
            parent = (above, digest(tokens[:above])) if above else None
            yield ("stored", event.tier, event.group, key, parent, event.block_size, digest(tokens[above : key[0]]))


def payload_source(driver: Driver, event: StoredEvent) -> list[int]:
    """Return the tokens of a request that explain parent, keys and payload of a recorded event. Raises Diverged."""
    start, parent = event.parent or (0, None)
    end = start + event.num_tokens
    for tokens in driver.tokens.values():
        if (
            end <= len(tokens)
            and digest(tokens[start:end]) == event.tokens_id
            and (parent is None or digest(tokens[:start]) == parent)
            and all(start < boundary <= end and digest(tokens[:boundary]) == key for boundary, key in event.keys)
        ):
            return tokens
    raise Diverged("events", "a payload that is part of a request's tokens", event)
