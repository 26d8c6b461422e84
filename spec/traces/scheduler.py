"""The operations of a scheduler-level recording as actions, nested calls first (docs/trace-format.md, section 5).

What the scheduler decides is input: who is planned and with how many tokens, who is preempted, when a lookup is asked for. What
follows from it is compared: every result of a call and of an operation. ``UNDETERMINED`` lists what is taken as recorded.

With every action goes what was recorded of its answer and of the state after it: replay compares and ends at the first
difference, a follower (``following``) takes it over and goes on.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define, evolve, field, frozen

from kvproof.core import actions as act
from kvproof.core import requests as lives
from kvproof.core.records import Record
from kvproof.core.world import Request, Status, World
from kvproof.spec.traces import announcements, calls, operations, project
from kvproof.spec.traces.driver import PARTS, After, Diverged, Driver, lists
from kvproof.spec.traces.format import NEVER, Config
from kvproof.spec.traces.read import Call, Operation, Recording
from kvproof.spec.traces.state import RecordedState

UNDETERMINED: tuple[tuple[str, str], ...] = (
    ("step.calls", "which calls a scheduler makes, in which order, is its policy; their results and effects are compared"),
    ("allocate.new_tokens, lookahead, reserved, full_sequence_must_fit", "chunk sizes and margins are the scheduler's choice"),
    ("preempt.request", "victims are the scheduler's choice"),
    (
        "update.sampled, next_drafts",
        "tokens and drafts are the model's (the neural one's) choice; what is kept of them is compared",
    ),
    ("queues.waiting, holding", "their order is policy (priorities, requests set aside): they are compared as sets"),
)


EFFECTS = ("free", "free_deferred", "finish_hook")
"""Calls that carry out what another one, or the operation, decided."""

DRAINED = frozenset({"tables", "keys", "plan"})
"""What a state at the end of a step says of the moment when its copies were handed out; without a host tier also REFERENCES."""
HELD = DRAINED | {"references", "host"}
"""What a state inside an update says of one request: it shows the others further on than they are then."""
BUILT = HELD | {"counters"}
"""What it says of the moment when its metadata was built: stores hold blocks then, and loads have their events."""


@frozen(slots=True)
class Awaited:
    """A step whose update is still to come: the operation that planned it, and its requests in the order of the plan."""

    operation: int
    requests: tuple[int, ...]


@define(slots=True)
class Scheduler:
    """Performs the operations of one recording.

    ``sampled`` are the tokens of every recorded update, by the step and the request: which drafts a chunk had, for followers.
    ``most`` are the tokens that a request may sample, ``drafts`` those proposed for its next chunk, ``running`` the running
    requests in the order of their admission, ``owed`` the calls that have to follow in the operation being performed,
    ``inside`` and ``end`` the recorded states after its calls and after itself, ``place`` the call that is performed, ``known``
    the last state of which it is known that it still holds, ``unexecuted`` the dispatched steps that were not executed yet.
    """

    driver: Driver
    recorded: Config
    sampled: Mapping[tuple[int, str], Sequence[int]] = field(factory=dict)
    drained: bool = True
    most: dict[str, int] = field(factory=dict)
    prompt: dict[str, int] = field(factory=dict)
    drafts: dict[str, tuple[int, ...]] = field(factory=dict)
    running: list[str] = field(factory=list)
    finished: list[str] = field(factory=list)
    awaited: deque[Awaited] = field(factory=deque)
    owed: list[tuple[str, dict[str, Any]]] = field(factory=list)
    admitted: list[tuple[str, Status]] = field(factory=list)
    planned: dict[str, Record] = field(factory=dict)
    starts: dict[str, int] = field(factory=dict)
    inside: tuple[RecordedState | None, ...] = ()
    end: After | None = None
    known: RecordedState | None = None
    place: int = 0
    unexecuted: int = 0

    def perform(
        self, operation: Operation, inside: tuple[RecordedState | None, ...] = (), end: RecordedState | None = None
    ) -> None:
        """Perform one operation and compare its result; ``inside`` and ``end`` are for followers. Raises Diverged."""
        handler = _OPERATIONS.get(operation.op)
        if handler is None:
            raise Diverged("operation", "an operation the model covers", operation.op)
        self.known = None if self.end is None else self.end.state
        self.inside, self.end, self.place = inside, None if end is None else After(end), 0
        with self.driver.tolerated():
            handler(self, operation)
        if operation.op != "step":
            self.settle_calls(operation.calls)
        if self.driver.config.events:
            with self.driver.tolerated():
                self.compare_events(operation)

    def after_call(self, operation: Operation) -> After | None:
        """Return the recorded state after the call that is performed and those that carry it out; None if there is none."""
        last, calls = self.place, operation.calls
        while last + 1 < len(calls) and calls[last + 1].op in EFFECTS:
            last += 1
        state = self.inside[last] if last < len(self.inside) else None
        return None if state is None else After(state)

    def after_calls_of(self, name: str, ops: Sequence[str], operation: Operation) -> After | None:
        """Return the recorded state after the last call of these names for a request; None if there is none.

        Outside a step it says who holds what, and not how far requests are: until the next call others go on. Without a call
        for the request its tables and keys are as in the last state that is known (what was held back may be freed).
        """
        calls = operation.calls
        own = [at for at, call in enumerate(calls) if call.op in ops and call.args.request == name]
        if own:
            # Before the next request's tables are offered, blocks behind its windows are freed.
            mixed = own[-1] + 1 < len(calls) and calls[own[-1] + 1].op == "finish_hook" and "finish_hook" in ops
            self.known = self.inside[own[-1]] if own[-1] < len(self.inside) and not mixed else None
        return None if self.known is None else After(self.known, HELD if own else DRAINED)

    def end_with(self, parts: frozenset[str]) -> After | None:
        """Return the parts of the state after the operation that hold already, None if it was not recorded."""
        return None if self.end is None else After(self.end.state, parts)

    def compare_events(self, operation: Operation) -> None:
        """Compare the events since the last update, which hands them all out. Raises Diverged."""
        if operation.op == "update" or operation.events:
            announcements.compare(self.driver, operation.events or [])

    def compare(self, state: RecordedState) -> None:
        """Compare the whole state after an operation with the recorded one, queues included. Raises Diverged."""
        self.driver.compare(state, self.drained)
        assert state.queues is not None
        holding: list[str] = []
        waiting: list[str] = []
        for request in self.driver.world.requests:
            if request.status is not Status.RUNNING:
                (holding if holds_blocks(request) else waiting).append(self.driver.name_of(request.request))
        equal = self.driver.equal
        equal("queues.running", self.running, state.queues["running"])
        equal("queues.waiting", sorted(waiting), sorted(state.queues["waiting"]))
        equal("queues.holding", sorted(holding), sorted(state.queues["holding"]))

    def live(self, name: str) -> Request:
        """Return a live request. Raises Diverged if it is gone."""
        found = lives.alive(self.driver.world, self.driver.ids[name])
        if found is None:
            raise Diverged(f"requests.{name}", None, "a live request")
        return found

    def settle_calls(self, calls: Sequence[Call]) -> None:
        """Compare all calls of an operation with those that its effects owe. Raises Diverged."""
        recorded = [(call.op, _fields(call.args)) for call in calls]
        owed, self.owed = self.owed, []
        self.driver.equal("calls", owed, recorded)

    def finish(self, name: str, operation: Operation, after: After | None) -> Record:
        """Finish a request and owe the calls that free it."""
        driver = self.driver
        request = driver.ids[name]
        loading = any(load.request == request for load in driver.world.host.loads) if driver.world.host is not None else False
        fenced = len(driver.world.deferred)
        record = driver.finish(request, _shown_of_finish(name, operation), after)
        if record.offered is not None:
            self.owed.append(("finish_hook", {"request": name, "blocks": lists(record.offered)}))
        if not loading:
            kind = "free_deferred" if len(driver.world.deferred) > fenced else "free"
            self.owed.append((kind, {"request": name}))
        if name in self.running:
            self.running.remove(name)
        self.drafts.pop(name, None)
        self.finished.append(name)
        return record

    def preempt(self, name: str, drop_stale: bool = False, after: After | None = None) -> None:
        """Preempt a running request, planned or not, and owe the call that frees it."""
        driver = self.driver
        request = driver.ids[name]
        planned = any(entry.request == request for entry in driver.world.plan.scheduled)
        driver.act(act.Withdraw(request, drop_stale) if planned else act.Preempt(request, drop_stale), after=after)
        self.planned.pop(name, None)
        self.drafts.pop(name, None)
        if name in self.running:
            self.running.remove(name)
        self.owed.append(("free", {"request": name}))


def holds_blocks(request: Request) -> bool:
    """Tell whether a request waits with blocks of its own: for a load, or for its first chunk behind one."""
    return request.status is Status.LOADING or request.loaded


# --- operations ---------------------------------------------------------------------------------------------------------


def _init(scheduler: Scheduler, operation: Operation) -> None:
    del scheduler, operation


def _submit(scheduler: Scheduler, operation: Operation) -> None:
    driver, args = scheduler.driver, operation.args
    scheduler.most[args.request] = args.max_tokens
    scheduler.prompt[args.request] = len(args.tokens)
    record = driver.submit(args.request, args.tokens, scheduler.end)
    driver.equal("hashes", record.num_tokens // driver.config.hash_block_size, operation.result.hashes)


def _step(scheduler: Scheduler, operation: Operation) -> None:
    driver = scheduler.driver
    scheduler.admitted.clear()
    scheduler.planned.clear()
    scheduler.starts.clear()
    driver.act(act.BeginStep())
    for scheduler.place, call in enumerate(operation.calls):
        with driver.tolerated():
            _call(scheduler, call, operation)
    driver.equal("calls", scheduler.owed, [])
    scheduler.owed = []
    drafts = {driver.name_of(entry.request): len(entry.drafts) for entry in driver.world.plan.scheduled if entry.drafts}
    driver.equal("drafts", drafts, operation.result.drafts)
    _close(scheduler, operation)
    scheduled = tuple((driver.ids[name], amount) for name, amount in operation.result.scheduled.items() if name in driver.ids)
    planned = tuple((entry.request, entry.amount) for entry in driver.world.plan.scheduled)
    shown = {"scheduled": scheduled} if sorted(scheduled) != sorted(planned) else {}
    dispatch = driver.act(act.Dispatch(), shown, scheduler.end)
    with driver.tolerated():
        _compare_step(scheduler, dispatch, operation)
    scheduler.finished.clear()
    scheduler.awaited.append(Awaited(operation.index, tuple(request for request, _ in dispatch.scheduled)))
    scheduler.unexecuted += 1
    _execute(scheduler)


def _execute(scheduler: Scheduler, at_once: bool = False) -> None:
    """Execute the dispatched steps as far as their tokens are known: one that has placeholders for tokens of the step before it
    runs when the output of that one is processed, which says what the workers knew by then. ``at_once``: the oldest one, in any
    case.
    """
    driver = scheduler.driver
    while scheduler.unexecuted:
        step = next((step for step in driver.world.steps if step.part < len(driver.config.parts)), None)
        if step is not None and not at_once and lives.waits_for_output(driver.world, step):
            return
        at_once = False
        scheduler.unexecuted -= 1
        for part in driver.config.parts:
            driver.act(act.Execute(part))


def _call(scheduler: Scheduler, call: Call, operation: Operation) -> None:
    """Perform one call of a step, or compare it with the one that an earlier one owes. Raises Diverged."""
    if scheduler.owed:
        owed, found = scheduler.owed.pop(0), (call.op, _fields(call.args))
        scheduler.driver.equal("calls", owed, found)
        if owed == found or call.op not in calls.CALLS:
            return
    if call.op not in calls.CALLS:
        raise Diverged("calls", "a call that plans", call.op)
    calls.CALLS[call.op](scheduler, call, operation)


def _close(scheduler: Scheduler, operation: Operation) -> None:
    """Drain the plan and build its metadata; compare copies, handoffs, the zero list, stores and loads."""
    driver, result, equal = scheduler.driver, operation.result, scheduler.driver.equal
    parts = DRAINED if driver.config.offload is not None else DRAINED | {"references"}
    after = scheduler.end_with(parts)
    if after is not None:
        after = evolve(after, pins=_pins(driver.world, after.state))
    drain = driver.act(act.Drain(), _shown_of_drain(scheduler, operation), after)
    handoffs: dict[str, list[tuple[int, int, int]]] = {}
    for request, group, block, boundary in drain.handoffs:
        handoffs.setdefault(driver.name_of(request), []).append((group, block, boundary))
    equal("handoffs", handoffs, result.handoffs)
    equal("copies", [(source, destination) for _, source, destination in drain.copies], result.copies)
    equal("zeroed", list(drain.zeroed) or None, result.zeroed)
    built = driver.act(act.BuildMetadata(), operations.shown_transfers(driver, operation), scheduler.end_with(BUILT))
    operations.compare_transfers(driver, built, operation)


def _pins(world: World, state: RecordedState) -> tuple[int, ...]:
    """Return the blocks that a state holds beside the tables and a world does not.

    An engine that holds what it hands over until its request is freed takes hold of it as the plan closes.
    """
    held = Counter(block for fence, blocks in state.step["deferred_frees"] if fence == NEVER for block in blocks)
    held.subtract(block for row in world.deferred if row.fence == NEVER for table in row.tables for block in table)
    return tuple(sorted(held.elements()))


def _shown_of_drain(scheduler: Scheduler, operation: Operation) -> dict[str, object]:
    """Return the recorded copies, handoffs and zero list as fields of a Drain's record.

    A recording names no group of a copy, and no order between the handoffs of different requests: these are the plan's where it
    has the same ones; else the group of a copy is that of a table with its destination, or its source.
    """
    driver, result, plan = scheduler.driver, operation.result, scheduler.driver.world.plan
    groups = {(source, destination): group for group, source, destination in plan.copies}
    copies = tuple(
        (groups.get((source, destination), _group_of(scheduler, destination, source)), source, destination)
        for source, destination in result.copies
    )
    handoffs = [(driver.ids[name], *row) for name, rows in result.handoffs.items() for row in rows if name in driver.ids]
    expected = project.by_group(plan.handoffs, 1)
    ordered = expected if sorted(expected) == sorted(handoffs) else project.by_group(tuple(handoffs), 1)
    return {"copies": copies, "handoffs": tuple(ordered), "zeroed": tuple(result.zeroed or ())}


def _group_of(scheduler: Scheduler, *blocks: int) -> int:
    """Return the group whose tables have the first of these blocks that is in any, 0 if none is."""
    for block in blocks:
        for request in scheduler.driver.world.requests:
            for group, state in enumerate(request.groups):
                if block in state.table:
                    return group
    return 0


def _compare_step(scheduler: Scheduler, dispatch: Record, operation: Operation) -> None:
    """Compare what a step tells the worker about its requests."""
    driver, result, equal = scheduler.driver, operation.result, scheduler.driver.equal
    equal("scheduled", {driver.name_of(request): amount for request, amount in dispatch.scheduled}, result.scheduled)
    equal("preempted", sorted({driver.name_of(request) for request in dispatch.preempted}), sorted(result.preempted))
    equal("finished", sorted(scheduler.finished), sorted(result.finished))
    resumed = [name for name, status in scheduler.admitted if status is Status.PREEMPTED]
    fresh = [name for name, status in scheduler.admitted if status is not Status.PREEMPTED]
    equal("resumed", sorted(resumed), sorted(result.resumed))
    assert scheduler.recorded.scheduler is not None
    whole = scheduler.recorded.scheduler.runner == "v2"
    new = [
        {"request": name, "computed": scheduler.starts[name], "tables": _tables(scheduler, name)}
        for name in (fresh + resumed if whole else fresh)
    ]
    equal("new", new, [_fields(entry) for entry in result.new])
    going = [name for name in scheduler.planned if name not in fresh and name not in resumed]
    cached = [
        {
            "request": name,
            "computed": scheduler.starts[name],
            "new_blocks": _tables(scheduler, name) if name in resumed else _appended(scheduler.planned[name]),
            "resumed": name in resumed,
        }
        for name in (going if whole else going + resumed)
    ]
    equal("cached", cached, [_fields(entry) for entry in result.cached])


def _update(scheduler: Scheduler, operation: Operation) -> None:
    driver, args, result = scheduler.driver, operation.args, operation.result
    if not scheduler.awaited:
        raise Diverged("step", "a step before its update", args.step)
    if scheduler.unexecuted == len(scheduler.awaited):
        _execute(scheduler, at_once=True)
    awaited = scheduler.awaited.popleft()
    driver.equal("step", awaited.operation, args.step)
    driver.equal("sampled", sorted(driver.name_of(request) for request in awaited.requests), sorted(args.sampled))
    appended: dict[str, list[int]] = {}
    stopped: list[str] = []
    for request in awaited.requests:
        name = driver.name_of(request)
        last = request == awaited.requests[-1]
        with driver.tolerated():
            kept = _output(scheduler, name, operation, last)
            if kept:
                appended[name] = kept
                if _stops(scheduler, name):
                    stopped.append(name)
            if driver.decided(name in stopped, name in result.finished):
                after = scheduler.end if last else scheduler.after_calls_of(name, EFFECTS, operation)
                scheduler.finish(name, operation, _before_counters(scheduler, after))
    driver.equal("appended", appended, result.appended)
    driver.equal("finished", stopped, result.finished)
    for name, drafts in result.next_drafts.items():
        with driver.tolerated():
            _propose(scheduler, name, drafts)
    if driver.config.offload is not None:
        driver.act(act.ReadCounters(), after=scheduler.end)
    _execute(scheduler)


def _before_counters(scheduler: Scheduler, after: After | None) -> After | None:
    """Return a state without what the reading of the counters, at the end of an update, changes."""
    if after is None or scheduler.driver.config.offload is None:
        return after
    return After(after.state, after.parts - {"counters"})


def _output(scheduler: Scheduler, name: str, operation: Operation, last: bool) -> list[int]:
    """Process the output of one request; return the tokens that it keeps, and owe the caching call."""
    driver = scheduler.driver
    sampled: list[int] = operation.args.sampled.get(name, [])
    goes = driver.decided(False, name in operation.result.finished)
    after = scheduler.end if last and not goes else scheduler.after_calls_of(name, ("cache",), operation)
    if after is not None and goes:
        after = After(after.state, frozenset({"keys"}))  # what it frees as it goes belongs to its end
    before = lives.alive(driver.world, driver.ids[name])
    if before is None or (before.stale and before.drop_stale):
        driver.output(driver.ids[name], after=_before_counters(scheduler, after))
        return []
    most = min(
        scheduler.most[name] - (before.num_tokens - scheduler.prompt[name]),
        driver.config.max_model_len - before.num_tokens,
    )
    kept = sampled[:most]
    driver.output(
        driver.ids[name],
        driver.decided(kept, operation.result.appended.get(name, [])),
        _before_counters(scheduler, after),
    )
    owed = before.placeholders or driver.config.num_draft_tokens
    if kept and not before.stale and before.status is Status.RUNNING and owed:
        now = scheduler.live(name)
        scheduler.owed.append(("cache", {"request": name, "tokens": now.computed - now.in_flight}))
    return kept


def _stops(scheduler: Scheduler, name: str) -> bool:
    """Tell whether a request has all its tokens: as many sampled as were asked for, or the model's length."""
    known = scheduler.live(name).num_tokens
    return known - scheduler.prompt[name] >= scheduler.most[name] or known >= scheduler.driver.config.max_model_len


def _propose(scheduler: Scheduler, name: str, drafts: list[int]) -> None:
    """Keep the drafts of a request for its next chunk. A request inside its prompt uses none."""
    request = scheduler.live(name)
    if len(drafts) > scheduler.driver.config.num_draft_tokens:
        raise Diverged("next_drafts", f"at most {scheduler.driver.config.num_draft_tokens}", drafts)
    inside = request.computed < request.num_tokens - 1
    scheduler.drafts[name] = () if inside else tuple(drafts)


def _abort(scheduler: Scheduler, operation: Operation) -> None:
    name = operation.args.request
    scheduler.driver.id_of(name, operation)
    scheduler.live(name)
    scheduler.finish(name, operation, scheduler.end)
    scheduler.driver.equal("deferred", name in scheduler.driver.lingering, operation.result.deferred)


def _shown_of_finish(name: str, operation: Operation) -> dict[str, object]:
    """Return what the calls of an operation show of the end of a request: the tables that the offloading side is offered."""
    for call in operation.calls:
        if call.op == "finish_hook" and call.args.request == name:
            return {"offered": tuple(tuple(blocks) for blocks in call.args.blocks)}
    return {}


def _reset(scheduler: Scheduler, operation: Operation) -> None:
    driver, args, ok = scheduler.driver, operation.args, operation.result.ok
    if args.preempt_running:
        for name in scheduler.running[::-1]:
            scheduler.owed.append(("preempt", {"request": name}))
            last = name == scheduler.running[0]  # behind the last call is the reset itself
            after = None if last else scheduler.after_calls_of(name, ("preempt", *EFFECTS), operation)
            scheduler.preempt(name, drop_stale=True, after=after)
    host = bool(args.host) and driver.config.offload is not None
    shown = {"done": True} if ok else {} if host else {"done": False}
    after = scheduler.end_with(PARTS - {"references", "host", "counters"}) if host else scheduler.end
    done = bool(driver.act(act.ResetCache(), shown, after).done)
    if host:
        shown = {"done": True} if ok else {"done": False} if done else {}
        done = bool(driver.act(act.ResetHost(), shown, scheduler.end).done) and done
    driver.equal("ok", done, ok)


def _complete_store(scheduler: Scheduler, operation: Operation) -> None:
    done = operation.result.done
    record = scheduler.driver.complete_store(operation.args.event, operation.args.acks, {"done": done}, scheduler.end)
    scheduler.driver.equal("done", record.done, done)


def _complete_load(scheduler: Scheduler, operation: Operation) -> None:
    request, freed = scheduler.driver.id_of(operation.args.request, operation), operation.result.freed
    record = scheduler.driver.complete_load(request, {"freed": freed}, scheduler.end)
    scheduler.driver.equal("freed", record.freed, freed)
    if record.freed:
        scheduler.owed.append(("free", {"request": operation.args.request}))


def _tables(scheduler: Scheduler, name: str) -> list[list[int]]:
    return lists(tuple(state.table for state in scheduler.live(name).groups))


def _appended(record: Record) -> list[list[int]] | None:
    """Return the blocks that an allocation appended, None if there are none."""
    return lists(record.new_blocks) if any(record.new_blocks) else None


def recorded_samples(recording: Recording) -> dict[tuple[int, str], list[int]]:
    """Return the sampled tokens of every update, by the step that it is of and the request."""
    return {
        (operation.args.step, name): tokens
        for operation in recording.operations
        if operation.op == "update"
        for name, tokens in operation.args.sampled.items()
    }


def _fields(part: Any) -> dict[str, Any]:
    return {name: getattr(part, name) for name in part.__struct_fields__}


_OPERATIONS: dict[str, Callable[[Scheduler, Operation], None]] = {
    "init": _init,
    "submit": _submit,
    "step": _step,
    "update": _update,
    "abort": _abort,
    "complete_store": _complete_store,
    "complete_load": _complete_load,
    "reset": _reset,
}
