"""Cache events of a recording, judged between the points at which a scheduler hands them out.

A scheduler hands the events of several actions out together. Where they are those that the model announces, action by action,
the laws judge the actions. Where they are not, nobody knows which action announced what: then only their sum is judged, against
the keys before and after (EV-5).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attrs import frozen

from kvproof.spec.laws.base import Evidence
from kvproof.spec.traces.format import ClearedEvent, Event, StoredEvent
from kvproof.spec.traces.read import Operation, Recording
from kvproof.spec.traces.state import RecordedState

Key = tuple[int, int, str]
"""Group, boundary and prefix id."""

SUM = "EV-5"
"""The law that can be judged of the sum of events."""

HIDDEN = "which action announced what"


@frozen(slots=True)
class Window:
    """The operations from one point at which events are handed out to the next, both included, and what was handed out."""

    first: int
    last: int
    events: tuple[Event, ...]
    before: RecordedState
    after: RecordedState


def windows(recording: Recording) -> Iterator[Window]:
    """Yield the windows of a recording with events, in their order."""
    first, before = 0, None
    for operation, state in recording.states():
        before = state if before is None else before
        if hands_out(operation):
            yield Window(first, operation.index, tuple(operation.events or ()), before, state)
            first, before = operation.index + 1, state


def hands_out(operation: Operation) -> bool:
    """Tell whether an operation hands out the events since the last one that did."""
    return operation.op == "update" or bool(operation.events)


def replayed(window: Window) -> list[Evidence]:
    """Return how the keys after a window differ from those before it with its events (EV-5), tier by tier."""
    found = []
    for tier in ("device", "host"):
        was, now = getattr(window.before, tier), getattr(window.after, tier)
        if was is None or now is None:
            continue
        known = apply(window.events, tier, keys(was))
        expected = keys(now)
        if known != expected:
            found.append(
                Evidence.of(
                    "who replays the events does not have the keys of the tier",
                    medium=tier,
                    operations=(window.first, window.last),
                    missing=sorted(expected - known),
                    gone=sorted(known - expected),
                )
            )
    return found


def keys(pool: Mapping[str, Any]) -> set[Key]:
    """Return the keys of a recorded pool."""
    return {(group, boundary, prefix) for _, group, boundary, prefix, _ in pool["keys"]}


def apply(events: Iterable[Event], tier: str, known: set[Key]) -> set[Key]:
    """Return the keys of a tier after events."""
    known = set(known)
    for event in events:
        if isinstance(event, ClearedEvent):
            if event.tier in ("", tier):
                known.clear()
        elif event.tier == tier:
            named = {(event.group, boundary, prefix) for boundary, prefix in event.keys}
            known = known | named if isinstance(event, StoredEvent) else known - named
    return known
