"""The operations of a scheduler-level recording as actions, nested calls first (docs/trace-format.md, section 5).

What the scheduler decides is input: who is planned and with how many tokens, who is preempted, when a lookup is asked for. What
follows from it is compared: every result of a call and of an operation. ``UNDETERMINED`` lists what is taken as recorded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from attrs import define, field, frozen

from kvproof.core import actions as act
from kvproof.core import requests as lives
from kvproof.core import step as door
from kvproof.core.records import Record
from kvproof.core.world import Request, Status
from kvproof.spec.traces import announcements, operations
from kvproof.spec.traces.driver import NO_TOKEN, Diverged, Driver, equal, lists
from kvproof.spec.traces.format import Config
from kvproof.spec.traces.read import Call, Operation
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


@frozen(slots=True)
class Awaited:
    """A step whose update is still to come: the operation that planned it, and its requests in the order of the plan."""

    operation: int
    requests: tuple[int, ...]


@define(slots=True)
class Scheduler:
    """Performs the operations of one recording.

    ``most`` are the tokens that a request may sample, ``drafts`` those proposed for its next chunk, ``running`` the running
    requests in the order of their admission, ``owed`` the calls that have to follow in the operation being performed.
    """

    driver: Driver
    recorded: Config
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

    def perform(self, operation: Operation) -> None:
        """Perform one operation and compare its result. Raises Diverged."""
        handler = _OPERATIONS.get(operation.op)
        if handler is None:
            raise Diverged("operation", "an operation the model covers", operation.op)
        handler(self, operation)
        if operation.op != "step":
            self.settle_calls(operation.calls)
        if self.driver.config.events:
            self.compare_events(operation)

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
        equal("calls", owed, recorded)

    def finish(self, name: str) -> Record:
        """Finish a request and owe the calls that free it."""
        driver = self.driver
        request = driver.ids[name]
        loading = any(load.request == request for load in driver.world.host.loads) if driver.world.host is not None else False
        fenced = len(driver.world.deferred)
        record = driver.finish(request)
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

    def preempt(self, name: str, drop_stale: bool = False) -> None:
        """Preempt a running request, planned or not, and owe the call that frees it."""
        driver = self.driver
        request = driver.ids[name]
        planned = any(entry.request == request for entry in driver.world.plan.scheduled)
        driver.act(act.Withdraw(request, drop_stale) if planned else act.Preempt(request, drop_stale))
        self.planned.pop(name, None)
        self.drafts.pop(name, None)
        self.running.remove(name)
        self.owed.append(("free", {"request": name}))


def holds_blocks(request: Request) -> bool:
    """Tell whether a request waits with blocks of its own: for a load, or for its first chunk behind one."""
    return request.status is Status.LOADING or request.loaded


# --- operations ---------------------------------------------------------------------------------------------------------


def _init(scheduler: Scheduler, operation: Operation) -> None:
    del scheduler, operation


def _submit(scheduler: Scheduler, operation: Operation) -> None:
    args = operation.args
    scheduler.most[args.request] = args.max_tokens
    scheduler.prompt[args.request] = len(args.tokens)
    record = scheduler.driver.submit(args.request, args.tokens)
    equal("hashes", record.num_tokens // scheduler.driver.config.hash_block_size, operation.result.hashes)


def _step(scheduler: Scheduler, operation: Operation) -> None:
    driver = scheduler.driver
    scheduler.admitted.clear()
    scheduler.planned.clear()
    scheduler.starts.clear()
    driver.act(act.BeginStep())
    for call in operation.calls:
        if scheduler.owed:
            equal("calls", scheduler.owed.pop(0), (call.op, _fields(call.args)))
        elif call.op in _CALLS:
            _CALLS[call.op](scheduler, call, operation)
        else:
            raise Diverged("calls", "a call that plans", call.op)
    equal("calls", scheduler.owed, [])
    drafts = {driver.name_of(entry.request): len(entry.drafts) for entry in driver.world.plan.scheduled if entry.drafts}
    equal("drafts", drafts, operation.result.drafts)
    _close(scheduler, operation)
    dispatch = driver.act(act.Dispatch())
    _compare_step(scheduler, dispatch, operation)
    scheduler.awaited.append(Awaited(operation.index, tuple(request for request, _ in dispatch.scheduled)))
    for part in driver.config.parts:
        driver.act(act.Execute(part))


def _close(scheduler: Scheduler, operation: Operation) -> None:
    """Drain the plan and build its metadata; compare copies, handoffs, the zero list, stores and loads."""
    driver, result = scheduler.driver, operation.result
    drain = driver.act(act.Drain())
    handoffs: dict[str, list[tuple[int, int, int]]] = {}
    for request, group, block, boundary in drain.handoffs:
        handoffs.setdefault(driver.name_of(request), []).append((group, block, boundary))
    equal("handoffs", handoffs, result.handoffs)
    equal("copies", [(source, destination) for _, source, destination in drain.copies], result.copies)
    equal("zeroed", list(drain.zeroed) or None, result.zeroed)
    operations.compare_transfers(driver, driver.act(act.BuildMetadata()), operation)


def _compare_step(scheduler: Scheduler, dispatch: Record, operation: Operation) -> None:
    """Compare what a step tells the worker about its requests."""
    driver, result = scheduler.driver, operation.result
    equal("scheduled", {driver.name_of(request): amount for request, amount in dispatch.scheduled}, result.scheduled)
    equal("preempted", sorted({driver.name_of(request) for request in dispatch.preempted}), sorted(result.preempted))
    equal("finished", sorted(scheduler.finished), sorted(result.finished))
    scheduler.finished.clear()
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
    awaited = scheduler.awaited.popleft()
    equal("step", awaited.operation, args.step)
    equal("sampled", sorted(driver.name_of(request) for request in awaited.requests), sorted(args.sampled))
    appended: dict[str, list[int]] = {}
    stopped: list[str] = []
    for request in awaited.requests:
        name = driver.name_of(request)
        kept = _output(scheduler, name, args.sampled[name])
        if kept:
            appended[name] = kept
            if _stops(scheduler, name):
                stopped.append(name)
                scheduler.finish(name)
    equal("appended", appended, result.appended)
    equal("finished", stopped, result.finished)
    for name, drafts in result.next_drafts.items():
        _propose(scheduler, name, drafts)
    if driver.config.offload is not None:
        driver.act(act.ReadCounters())


def _output(scheduler: Scheduler, name: str, sampled: list[int]) -> list[int]:
    """Process the output of one request; return the tokens that it keeps, and owe the caching call."""
    driver = scheduler.driver
    before = lives.alive(driver.world, driver.ids[name])
    if before is None or (before.stale and before.drop_stale):
        driver.output(driver.ids[name])
        return []
    most = min(
        scheduler.most[name] - (before.num_tokens - scheduler.prompt[name]),
        driver.config.max_model_len - before.num_tokens,
    )
    kept = sampled[:most]
    driver.output(driver.ids[name], kept)
    if kept and not before.stale and before.status is Status.RUNNING and driver.config.num_draft_tokens:
        after = scheduler.live(name)
        scheduler.owed.append(("cache", {"request": name, "tokens": after.computed - after.in_flight}))
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
    scheduler.finish(name)
    equal("deferred", name in scheduler.driver.lingering, operation.result.deferred)


def _reset(scheduler: Scheduler, operation: Operation) -> None:
    driver, args = scheduler.driver, operation.args
    if args.preempt_running:
        for name in scheduler.running[::-1]:
            scheduler.owed.append(("preempt", {"request": name}))
            scheduler.preempt(name, drop_stale=True)
    done = bool(driver.act(act.ResetCache()).done)
    if args.host and driver.config.offload is not None:
        done = bool(driver.act(act.ResetHost()).done) and done
    equal("ok", done, operation.result.ok)


def _complete_store(scheduler: Scheduler, operation: Operation) -> None:
    record = scheduler.driver.complete_store(operation.args.event, operation.args.acks)
    equal("done", record.done, operation.result.done)


def _complete_load(scheduler: Scheduler, operation: Operation) -> None:
    record = scheduler.driver.complete_load(scheduler.driver.id_of(operation.args.request, operation))
    equal("freed", record.freed, operation.result.freed)
    if record.freed:
        scheduler.owed.append(("free", {"request": operation.args.request}))


# --- the calls of a step ------------------------------------------------------------------------------------------------


def _lookup(scheduler: Scheduler, call: Call, operation: Operation) -> None:
    record = scheduler.driver.act(act.Lookup(scheduler.driver.id_of(call.args.request, operation)))
    equal("lookup.local", record.local, call.result.local)
    equal("lookup.blocks", lists(record.lists), call.result.blocks)
    equal("lookup.junction", record.junction, call.result.junction)


def _lookup_external(scheduler: Scheduler, call: Call, operation: Operation) -> None:
    driver, args = scheduler.driver, call.args
    request = driver.id_of(args.request, operation)
    hit = driver.world.hit
    if hit is not None and hit.request == request:
        equal("lookup_external.from", hit.local - hit.local % driver.config.scheduler_block_size, args.start)
    record = driver.act(act.LookupExternal(request, args.start))
    equal("lookup_external.external", record.external, call.result.external)
    equal("lookup_external.async", record.external > 0, call.result.asynchronous)


def _truncate(scheduler: Scheduler, call: Call, operation: Operation) -> None:
    """The local tail gives way to a longer external hit: the next allocation adopts the hit rounded down to S (T14.3)."""
    del operation
    hit = scheduler.driver.world.hit
    local = 0 if hit is None else hit.local - hit.local % scheduler.driver.config.scheduler_block_size
    equal("truncate.tokens", local, call.args.tokens)


def _clip(scheduler: Scheduler, call: Call, operation: Operation) -> None:
    args = call.args
    scheduler.driver.id_of(args.request, operation)
    clipped = door.clip(scheduler.driver.world, scheduler.live(args.request), args.start, args.tokens)
    equal("clip.tokens", clipped, call.result.tokens)


def _cache(scheduler: Scheduler, call: Call, operation: Operation) -> None:
    """Inside a plan only a request whose load is complete is registered: it is promoted (T30)."""
    driver = scheduler.driver
    request = driver.id_of(call.args.request, operation)
    equal("cache.tokens", scheduler.live(call.args.request).computed, call.args.tokens)
    driver.act(act.Promote(request))


def _preempt(scheduler: Scheduler, call: Call, operation: Operation) -> None:
    scheduler.driver.id_of(call.args.request, operation)
    if call.args.request not in scheduler.running:
        raise Diverged("preempt.request", scheduler.running, call.args.request)
    scheduler.preempt(call.args.request)


def _allocate(scheduler: Scheduler, call: Call, operation: Operation) -> None:
    driver, args = scheduler.driver, call.args
    name = args.request
    request = driver.id_of(name, operation)
    before = scheduler.live(name)
    start = before.computed + args.local + args.external
    equal("allocate.before", start, args.before)
    record = driver.act(
        act.Allocate(
            request,
            args.new_tokens,
            args.local,
            args.external,
            args.lookahead,
            _drafts(scheduler, name, before, start + args.new_tokens - before.num_tokens),
            full_sequence=args.full_sequence_must_fit,
            load=args.async_load,
            reserved=args.reserved,
        )
    )
    equal("allocate.admitted", record.admitted, call.result.admitted)
    if not record.admitted:
        return
    equal("allocate.new_blocks", lists(record.new_blocks), call.result.new_blocks)
    equal("allocate.external_blocks", lists(record.external_blocks), call.result.external_blocks)
    if args.async_load:
        return
    scheduler.planned[name] = record
    scheduler.starts[name] = start
    scheduler.drafts.pop(name, None)
    if before.status is not Status.RUNNING:
        scheduler.admitted.append((name, before.status))
        scheduler.running.append(name)


def _drafts(scheduler: Scheduler, name: str, request: Request, count: int) -> tuple[int, ...]:
    """Return the drafts that end a chunk: those proposed; at an admission placeholders that no token equals.

    A request that is admitted with one token left gets placeholders, so that all requests of the step are of one length.
    """
    if count <= 0:
        return ()
    if request.status is not Status.RUNNING:
        return (NO_TOKEN,) * count
    proposed = scheduler.drafts.get(name, ())
    if len(proposed) < count:
        raise Diverged("allocate.new_tokens", f"{len(proposed)} drafts", f"{count} drafts of {name}")
    return proposed[:count]


def _tables(scheduler: Scheduler, name: str) -> list[list[int]]:
    return lists(tuple(state.table for state in scheduler.live(name).groups))


def _appended(record: Record) -> list[list[int]] | None:
    """Return the blocks that an allocation appended, None if there are none."""
    return lists(record.new_blocks) if any(record.new_blocks) else None


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
_CALLS: dict[str, Callable[[Scheduler, Call, Operation], None]] = {
    "lookup": _lookup,
    "lookup_external": _lookup_external,
    "truncate": _truncate,
    "clip": _clip,
    "cache": _cache,
    "preempt": _preempt,
    "allocate": _allocate,
}
