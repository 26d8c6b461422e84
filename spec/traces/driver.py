"""Drives the model through a recording: applies and judges actions, compares results and whole states with the recorded ones.

What an operation of a recording means in actions is said elsewhere (``operations``); this part knows only actions and states.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from attrs import define, field, frozen

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.offload.state import NONE, Host, Stage
from kvproof.core.pool import Pool
from kvproof.core.records import Event, Record
from kvproof.core.world import Request, World, new_world
from kvproof.spec.judge import Judge, Violation, attempt
from kvproof.spec.traces import declared, project
from kvproof.spec.traces.errors import ReplayError
from kvproof.spec.traces.read import Operation
from kvproof.spec.traces.state import RecordedState

T = TypeVar("T")

NO_TOKEN = (1 << 31) - 1
"""A token that no recording contains: the value of a draft that was rejected."""

PARTS: frozenset[str] = frozenset({"tables", "progress", "keys", "references", "plan", "host", "counters"})
"""The parts of a recorded state: tables with ``num_cached``; ``computed``, ``in_flight`` and status; the device's keys; its
references and free queue; queued copies and handoffs; the host's pool and transfers; the counters of handoffs.
"""


@frozen(slots=True)
class After:
    """The recorded state after an action. Of an operation with several actions only ``parts`` hold after this one. ``pins`` are
    the blocks that it holds once more each, beside the tables.
    """

    state: RecordedState
    parts: frozenset[str] = PARTS
    pins: tuple[int, ...] = ()


class Diverged(Exception):
    """The model and the recording differ in ``what``; ``refused``: the model does not allow an action that the engine took."""

    def __init__(
        self, what: str, expected: object, recorded: object, differences: tuple[str, ...] = (), refused: bool = False
    ) -> None:
        super().__init__(what)
        self.what, self.expected, self.recorded, self.differences = what, expected, recorded, differences
        self.refused = refused


def equal(what: str, expected: object, recorded: object) -> None:
    """Compare one value. Raises Diverged."""
    if expected != recorded:
        raise Diverged(what, expected, recorded)


def equal_parts(where: str, expected: dict[str, Any], recorded: dict[str, Any]) -> None:
    """Compare two objects entry by entry. Raises Diverged with every entry that differs."""
    differences = tuple(
        f"{where}.{name}: expected {expected.get(name)!r}, recorded {recorded.get(name)!r}"
        for name in expected | recorded
        if name not in expected or name not in recorded or expected[name] != recorded[name]
    )
    if differences:
        raise Diverged(where, expected, recorded, differences)


def lists(groups: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return block ids per group as the reader gives them."""
    return [list(blocks) for blocks in groups]


@define(slots=True)
class Driver:
    """Performs actions on the model and compares results and states; ``index`` is the operation that is being performed.

    ``places`` are the operations that the ``actions`` belong to. ``tokens`` are those of each request so far, ``said`` the
    events of each tier since they were compared, ``lingering`` the rows of requests that finished while they load. ``met``
    counts how often each declared difference was met. ``early_outputs``: the recording counts outputs as processed when their
    step ends (``declared``). ``step_limit`` are its most tokens of a step. ``outputs`` are the recorded outputs per request:
    (operation, sampled tokens, rejected drafts), in order.
    """

    name: str
    config: Config
    judge: Judge
    outputs: dict[str, list[tuple[int, list[int], int]]] = field(factory=dict)
    early_outputs: bool = True
    step_limit: int = 1 << 30
    index: int = 0
    world: World = field(init=False)
    actions: list[Action] = field(factory=list)
    places: list[int] = field(factory=list)
    violations: list[Violation] = field(factory=list)
    projector: project.Projector = field(factory=project.Projector)
    ids: dict[str, int] = field(factory=dict)
    tokens: dict[str, list[int]] = field(factory=dict)
    said: dict[str, list[Event]] = field(factory=lambda: {"device": [], "host": []})
    lingering: dict[str, dict[str, Any]] = field(factory=dict)
    met: Counter[str] = field(factory=Counter)
    _pools: dict[str, tuple[Pool, dict[str, Any]]] = field(factory=dict)
    _rows: dict[str, tuple[Request, dict[str, Any]]] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.world = new_world(self.config)

    def note(self, difference: str, times: int = 1) -> None:
        """Count a declared difference that was met."""
        if times:
            self.met[difference] += times

    # --- what a recording says ------------------------------------------------------------------------------------

    def equal(self, what: str, expected: object, recorded: object) -> None:
        """Compare one value. Raises Diverged."""
        equal(what, expected, recorded)

    def decided(self, expected: T, recorded: T) -> T:
        """Return which of two values an action is built from: what the model expects; comparing them is another matter."""
        del recorded
        return expected

    def tolerated(self) -> AbstractContextManager[None]:
        """Return the context of a part of an operation whose divergence does not end it: here every one does."""
        return contextlib.nullcontext()

    # --- requests -------------------------------------------------------------------------------------------------

    def submit(self, name: str, tokens: Sequence[int], after: After | None = None) -> Record:
        """Submit a request under the next id of the model."""
        request = len(self.projector.names)
        self.ids[name] = request
        self.projector.names[request] = name
        self.tokens[name] = list(tokens)
        return self.act(act.Submit(request, tuple(tokens)), after=after)

    def id_of(self, name: str, operation: Operation) -> int:
        """Return the model's id of the request that an operation names. Raises ReplayError for an unknown one."""
        if name not in self.ids:
            raise ReplayError(
                f"{self.name}:{operation.line}: {operation.op} names request {name!r}, which was never submitted; record again"
            )
        return self.ids[name]

    def name_of(self, request: int) -> str:
        """Return the recording's name of a request."""
        return self.projector.names[request]

    def drafts_of(self, name: str, count: int) -> tuple[int, ...]:
        """Return draft tokens that explain the recorded output: its first tokens were accepted, the others are no token's.

        A recording counts drafts and does not say what they were.
        """
        if count == 0:
            return ()
        tokens: list[int] = []
        for index, sampled, rejected in self.outputs.get(name, ()):
            if index > self.index:
                tokens = sampled[: count - rejected]
                break
        self.note(declared.DRAFTS, count)
        return (*tokens, *(NO_TOKEN,) * (count - len(tokens)))

    def output(self, request: int, tokens: Sequence[int] = (), after: After | None = None) -> Record:
        """Process the output of a request."""
        self.tokens[self.name_of(request)] += tokens
        return self.act(act.Output(request, tuple(tokens)), after=after)

    def settle_outputs(self) -> None:
        """Process the outputs that carry no sampled token, and those of requests that are gone."""
        for step in self.world.steps:
            for request in step.due:
                self.act(act.Output(request))

    # --- actions --------------------------------------------------------------------------------------------------

    def act(self, action: Action, shown: Mapping[str, object] | None = None, after: After | None = None) -> Record:
        """Apply an action and judge it; a refusal is a divergence, since the engine did it. Raises Diverged.

        ``shown`` are fields of its record and ``after`` the state after it as recorded, for those who follow the recording.
        """
        del shown, after
        moment = attempt(self.world, action)
        if self.judge.laws:
            self.violations += self.judge.moment(moment, len(self.actions))
        self.actions.append(action)
        self.places.append(self.index)
        if moment.record is None:
            raise Diverged("refusal", f"{action}: {moment.refusal}", "the engine did it", refused=True)
        self.world = moment.after
        for event in moment.record.events:
            self.said[event.medium].append(event)
        return moment.record

    @property
    def host(self) -> Host:
        """The host tier, which the configuration has. Raises ReplayError."""
        if self.world.host is None:
            raise ReplayError(f"{self.name}: an operation of the host tier in a recording without one; record again")
        return self.world.host

    def finish(self, request: int, shown: Mapping[str, object] | None = None, after: After | None = None) -> Record:
        """Finish a request. While its load runs, its row stays, as a recording shows it."""
        name = self.name_of(request)
        row = next((self.row_of(name, live) for live in self.world.requests if live.request == request), {})
        record = self.act(act.Finish(request), shown, after)
        host = self.world.host
        for load in host.loads if host is not None else ():
            if load.request == request:
                self.lingering[name] = row | {"status": "finished", "tables": lists(load.held)}
        return record

    def complete_store(
        self, event: int, acks: int = 1, shown: Mapping[str, object] | None = None, after: After | None = None
    ) -> Record:
        """Report a store; its bytes move as late as they may, which is now (a recording does not say when)."""
        host = self.host
        for store in sorted((*host.stores, *host.abandoned_stores), key=lambda row: row.event):
            if store.event == event and store.acks + acks >= self.offload_workers:
                self.copy_stores(event)
        return self.act(act.CompleteStore(event, acks), shown, after)

    @property
    def offload_workers(self) -> int:
        """Workers that acknowledge a store."""
        assert self.config.offload is not None
        return self.config.offload.workers

    def copy_stores(self, last: int) -> None:
        """Let the worker copy the submitted stores up to an event, the oldest first (CC-5)."""
        stores = (*self.host.stores, *self.host.abandoned_stores)
        waiting = {store.event for store in stores if store.event <= last and store.stage is Stage.SUBMITTED}
        for event in sorted(waiting):
            self.note(declared.COPIES)
            self.act(act.RunStore(event))

    def complete_load(self, request: int, shown: Mapping[str, object] | None = None, after: After | None = None) -> Record:
        """Report the load of a request; its bytes move as late as they may, which is now."""
        loads = (*self.host.loads, *self.host.abandoned_loads)
        events = [load.event for load in loads if load.request == request and load.event != NONE]
        waiting = {load.event for load in loads if load.stage is Stage.SUBMITTED}
        for event in sorted(event for event in waiting if event <= max(events, default=NONE)):
            self.note(declared.COPIES)
            self.act(act.RunLoad(event))
        record = self.act(act.CompleteLoad(request), shown, after)
        self.lingering.pop(self.name_of(request), None)
        return record

    # --- states ---------------------------------------------------------------------------------------------------

    def compare(self, state: RecordedState, drained: bool) -> None:
        """Compare the whole state after an operation with the recorded one. Raises Diverged.

        ``drained``: the copies and handoffs of the open plan are handed out already.
        """
        self.compare_pool("device", self.world.pool, state.device)
        self.compare_requests(state.requests)
        equal_parts("step", self.projector.step(self.world, drained), state.step)
        host = self.world.host
        if host is not None:
            self.compare_pool("host", host.pool, state.host or {})
            equal_parts("transfers", self.projector.transfers(host), state.transfers or {})
            equal_parts("counters", project.counters(host), state.counters or {})
            equal("in_flight", list(host.in_flight), state.in_flight)

    def compare_pool(self, tier: str, pool: Pool, recorded: dict[str, Any]) -> None:
        """Compare one tier's pool: references, free queue, keys. Raises Diverged."""
        known = self._pools.get(tier)
        if known is None or known[0] is not pool:
            known = (pool, self.projector.pool(self.world, pool))
            self._pools[tier] = known
        if known[1] != recorded:
            equal_parts(tier, known[1], recorded)

    def compare_requests(self, recorded: dict[str, dict[str, Any]]) -> None:
        """Compare the rows of all requests, those included that finished while they load. Raises Diverged."""
        names = [self.name_of(request.request) for request in self.world.requests]
        if len(recorded) != len(names) + len(self.lingering):
            raise Diverged("requests", sorted([*names, *self.lingering]), sorted(recorded))
        for name, request in zip(names, self.world.requests, strict=True):
            self.compare_row(name, self.row_of(name, request), recorded.get(name))
        for name, row in self.lingering.items():
            self.compare_row(name, row, recorded.get(name))

    def row_of(self, name: str, request: Request) -> dict[str, Any]:
        """Return the row of a live request, made once as long as the request stays the same."""
        known = self._rows.get(name)
        if known is None or known[0] is not request:
            known = (request, self.projector.request(request, self.config.async_outputs))
            self._rows[name] = known
        return known[1]

    def compare_row(self, name: str, row: dict[str, Any], recorded: dict[str, Any] | None) -> None:
        """Compare one request; the recorded ``in_flight`` may be 0 before the model's is (DECLARED). Raises Diverged."""
        if row == recorded:
            return
        if recorded is None:
            raise Diverged(f"requests.{name}", row, None)
        if not self.early_outputs or row | {"in_flight": 0} != recorded | {"in_flight": 0} or recorded["in_flight"] != 0:
            equal_parts(f"requests.{name}", row, recorded)
        self.note(declared.IN_FLIGHT)
