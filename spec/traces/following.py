"""Drives a shadow of the recorded engine through a recording: what was recorded is taken over, and what differs from the model
is noted; it goes on to the end.

The counterpart of the strict ``Driver``: the same translation of operations to actions, no comparison ends it.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from attrs import define, evolve, field, frozen

from kvproof.core.actions import Action, Finish
from kvproof.core.records import Record
from kvproof.spec.conformance.adapter import HostState, Key, Observation, Pin, PoolState, RequestState, State, Transfer
from kvproof.spec.conformance.oracle import Oracle
from kvproof.spec.judge import attempt
from kvproof.spec.laws.base import Moment
from kvproof.spec.traces.driver import After, Diverged, Driver, T
from kvproof.spec.traces.state import RecordedState

NO_EVENT = -1


@frozen(slots=True)
class Noted:
    """One value that the model predicts otherwise: the operation, the action (empty: none), the part, both values."""

    operation: int
    action: str
    what: str
    predicted: object
    observed: object

    @property
    def kind(self) -> str:
        """Return what is counted: the part, of which action; whose it is and why it is refused do not matter."""
        what = self.what.partition(":")[0]
        if what.startswith("request "):
            what = f"request {what.rpartition(' ')[2]}"
        elif what.startswith("requests."):
            what = "requests"
        return f"{self.action}.{what}" if self.action else what


@define(slots=True)
class Following(Driver):
    """Shows every action to an oracle, with what was recorded of it; ``world`` is the one that the oracle follows.

    ``noted`` are the first differences, ``counts`` all of them by kind, ``moments`` what laws may look at.
    """

    oracle: Oracle = field(kw_only=True)
    most_noted: int = 200
    noted: list[Noted] = field(factory=list)
    counts: Counter[str] = field(factory=Counter)
    moments: list[Moment] = field(factory=list)
    announced: set[int] = field(factory=set)
    """Operations that handed out other events than the model announced, or changed other keys than it did."""

    def differ(self, what: str, predicted: object, observed: object, action: str = "") -> None:
        """Note a difference."""
        if what in ("events", "device keys", "host keys"):
            self.announced.add(self.index)
        noted = Noted(self.index, action, what, predicted, observed)
        self.counts[noted.kind] += 1
        if len(self.noted) < self.most_noted:
            self.noted.append(noted)

    # --- what a recording says: nothing ends here --------------------------------------------------------------------

    def equal(self, what: str, expected: object, recorded: object) -> None:
        """Note a value that is not the expected one."""
        if expected != recorded:
            self.differ(what, expected, recorded)

    def decided(self, expected: T, recorded: T) -> T:
        """Return the recorded value."""
        del expected
        return recorded

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except Diverged as found:
            self.differ(found.what, found.expected, found.recorded)

    def tolerated(self) -> AbstractContextManager[None]:
        """Return a context in which a divergence is noted and ends only the part of the operation inside."""
        return self._noting()

    def act(self, action: Action, shown: Mapping[str, object] | None = None, after: After | None = None) -> Record:
        """Show an action to the oracle, and return its record: what was shown, the rest as the model has it."""
        observation = Observation(dict(shown or {}), State() if after is None else self.state(after, action))
        seen, found = self.oracle.observe(action, observation)
        self.violations += found
        self.actions.append(action)
        self.places.append(self.index)
        self.moments.append(seen.moment)
        name = type(action).__name__
        for difference in seen.differences:
            self.differ(difference.what, difference.predicted, difference.observed, name)
        for problem in seen.problems:
            self.differ(problem, None, None, name)
        self.world = self.oracle.shadow.world
        record = seen.followed.record
        if record is None:
            raise Diverged("refusal", f"{action}: {seen.moment.refusal}", "the engine did it", refused=True)
        for event in record.events:
            self.said[event.medium].append(event)
        return record

    # --- states --------------------------------------------------------------------------------------------------------

    def compare(self, state: RecordedState, drained: bool) -> None:
        """Note what of the recorded state the followed world still does not have."""
        with self.tolerated():
            self.compare_pool("device", self.world.pool, state.device)
        with self.tolerated():
            self.compare_requests(state.requests)
        with self.tolerated():
            self.equal("step", self.projector.step(self.world, drained), state.step)
        host = self.world.host
        if host is not None and state.host is not None:
            with self.tolerated():
                self.compare_pool("host", host.pool, state.host)
            self.equal("transfers", self.projector.transfers(host), state.transfers)
            self.equal("in_flight", list(host.in_flight), state.in_flight)

    def state(self, after: After, action: Action) -> State:
        """Return the parts of a recorded state that hold after an action, in the words of an adapter."""
        recorded, parts = after.state, after.parts
        gone = action.request if isinstance(action, Finish) else None
        device = pool_state(recorded.device, "references" in parts, "keys" in parts)
        if after.pins and "references" not in parts:
            device = self.pinned(device, after.pins, action)
        return State(
            device=device,
            requests=self.requests(recorded, parts, gone),
            host=self.host_state(recorded, parts) if recorded.host is not None else None,
            copies=[(source, destination) for source, destination in recorded.step["copies"]] if "plan" in parts else None,
            handoffs=self.handoffs(recorded) if "plan" in parts else None,
            deferred=recorded.step["deferred_frees"] if "references" in parts or after.pins else None,
        )

    def pinned(self, device: PoolState, pins: Sequence[int], action: Action) -> PoolState:
        """Return a pool with the references that the model predicts and those that the engine has taken besides.

        The state that shows them all is that of the operation's end, where stores and loads have theirs, too.
        """
        after = attempt(self.world, action)
        if after.record is None:
            return device
        ref = list(after.after.pool.ref)
        for block in pins:
            ref[block] += 1
        free = tuple(block for block in after.after.pool.free if not ref[block])
        return evolve(device, references=dict(enumerate(ref)), free=free)

    def handoffs(self, recorded: RecordedState) -> list[tuple[int, int, int, int]]:
        """Return the recorded handoffs that wait."""
        rows = recorded.step["handoffs"]
        return [(self.ids[name], group, block, boundary) for name, group, block, boundary in rows if name in self.ids]

    def requests(self, recorded: RecordedState, parts: frozenset[str], gone: int | None) -> Mapping[int, RequestState] | None:
        """Return the rows of the live requests, None if neither their tables nor their progress hold already.

        Without their progress those are live who were before, but for the one that is ``gone``.
        """
        rows = {
            self.ids[name]: row for name, row in recorded.requests.items() if row["status"] != "finished" and name in self.ids
        }
        if "progress" in parts:
            return {request: row_state(row, tables="tables" in parts) for request, row in rows.items()}
        if "tables" not in parts:
            return None
        return {
            live.request: tables_of(rows[live.request]) if live.request in rows else RequestState()
            for live in self.world.requests
            if live.request != gone
        }

    def host_state(self, recorded: RecordedState, parts: frozenset[str]) -> HostState | None:
        """Return what is shown of the host tier, None if nothing of it holds already."""
        counters = recorded.counters if "counters" in parts else None
        moving = recorded.transfers
        if "host" not in parts or recorded.host is None or moving is None:
            return None if counters is None else HostState(counters=counters)
        acks = moving["acks"]
        return HostState(
            pool=pool_state(recorded.host, True, True),
            pins=[
                Pin(self.ids[name], pin["start"], pin["length"], _lists(pin["blocks"]))
                for name, pin in moving["pending_hits"].items()
                if name in self.ids
            ],
            loads=self.loads(moving["loads"]),
            abandoned_loads=self.loads(moving["abandoned_loads"]),
            stores=stores(moving["stores"], acks),
            abandoned_stores=stores(moving["abandoned_stores"], acks),
            queued=[Transfer(tuple(row["device"]), tuple(row["host"])) for row in moving["finish_queue"]],
            cursors={self.ids[name]: tuple(row) for name, row in moving["cursors"].items() if name in self.ids},
            cursor=NO_EVENT if moving["lazy_cursor"] is None else moving["lazy_cursor"],
            counters=counters,
        )

    def loads(self, rows: Mapping[str, Mapping[str, Any]]) -> list[Transfer]:
        """Return recorded loads. Whether the request of an abandoned one has finished is not recorded: it is as it was."""
        host = self.world.host
        was = () if host is None else (load.request for load in (*host.loads, *host.abandoned_loads) if load.finished)
        finished = set(was)
        return [
            Transfer(
                tuple(row["device"]),
                tuple(row["host"]),
                event=NO_EVENT if row["event"] is None else row["event"],
                request=self.ids[name],
                finished=bool(row.get("finished", self.ids[name] in finished)),
            )
            for name, row in rows.items()
            if name in self.ids
        ]


def tables_of(row: Mapping[str, Any]) -> RequestState:
    """Return the recorded tables of a request, and how many of their entries count as registered."""
    return RequestState(tables=_lists(row["tables"]), num_cached=tuple(row["num_cached"]))


def row_state(row: Mapping[str, Any], tables: bool) -> RequestState:
    """Return how far a request is, with its tables or without."""
    shown = tables_of(row) if tables else RequestState()
    return evolve(
        shown,
        computed=row["computed"],
        in_flight=row["in_flight"],
        placeholders=row.get("placeholders"),
        status=row["status"],
    )


def stores(rows: Mapping[int, Mapping[str, Any]], acks: Mapping[int, int]) -> list[Transfer]:
    """Return recorded stores."""
    return [
        Transfer(tuple(row["device"]), tuple(row["host"]), event=int(event), acks=acks.get(event, 0))
        for event, row in rows.items()
    ]


def pool_state(recorded: Mapping[str, Any], references: bool, keys: bool) -> PoolState:
    """Return a recorded pool: its references and free queue, its keys, or both."""
    return PoolState(
        references=dict(recorded["ref"]) if references else None,
        free=tuple(recorded["free"]) if references else None,
        keys=ordered_keys(recorded) if keys else None,
    )


def ordered_keys(recorded: Mapping[str, Any]) -> list[Key]:
    """Return recorded keys such that blocks which share one stand in the order in which a lookup prefers them.

    A recording sorts its keys by block and gives that order only for those that are shared.
    """
    rows = {
        (block, group, boundary, prefix): Key(block, group, boundary, prefix, role == "primary")
        for block, group, boundary, prefix, role in recorded["keys"]
    }
    shared = {(group, boundary, prefix): list(blocks) for group, boundary, prefix, blocks in recorded["shared_keys"]}
    ordered = []
    for (_, *key), row in rows.items():
        queue = shared.get((key[0], key[1], key[2]))
        ordered.append(rows[queue.pop(0), key[0], key[1], key[2]] if queue else row)
    return ordered


def _lists(groups: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(blocks) for blocks in groups)
