"""The operations of a manager-level recording as actions: one or a few each (docs/trace-format.md, section 4).

The recorded driver counts a step's output as processed at ``end_step`` and appends the sampled tokens later; the model
processes both at once. ``declared`` lists this and every other difference.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field

from kvproof.core import actions as act
from kvproof.core import plans
from kvproof.core.records import NONE, Record
from kvproof.core.world import Status
from kvproof.spec.traces import announcements, declared
from kvproof.spec.traces.driver import Diverged, Driver, equal, lists
from kvproof.spec.traces.format import EndStepResult, StepResult
from kvproof.spec.traces.read import Operation, Recording
from kvproof.spec.traces.state import RecordedState


@define(slots=True)
class Operations:
    """Performs the operations of one recording. ``drained``: no plan is open, or its copies are handed out already."""

    driver: Driver
    drained: bool = True
    opening: bool = False
    finished: list[str] = field(factory=list)

    def perform(self, operation: Operation) -> None:
        """Perform one operation and compare its result. Raises Diverged."""
        handler = _OPERATIONS.get(operation.op)
        if handler is None:
            raise Diverged("operation", "an operation the model covers", operation.op)
        handler(self, operation)

    def compare(self, state: RecordedState) -> None:
        """Compare the whole state after an operation with the recorded one. Raises Diverged."""
        self.driver.compare(state, self.drained)

    def request(self, operation: Operation) -> int:
        """Return the model's id of the request that an operation names."""
        return self.driver.id_of(operation.args.request, operation)

    def open_plan(self) -> None:
        """Open the plan with the first operation that is not a preemption: those before it came from outside (T31)."""
        if self.opening:
            self.driver.act(act.BeginStep())
            self.opening = self.drained = False


def recorded_outputs(recording: Recording) -> dict[str, list[tuple[int, list[int], int]]]:
    """Return per request the (operation, sampled tokens, rejected drafts) of its outputs, in order."""
    found: dict[str, list[tuple[int, list[int], int]]] = {}
    for operation in recording.operations:
        if operation.op == "append_token":
            args = operation.args
            found.setdefault(args.request, []).append((operation.index, list(args.tokens), args.rejected))
    return found


def _init(operations: Operations, operation: Operation) -> None:
    del operations, operation


def _submit(operations: Operations, operation: Operation) -> None:
    record = operations.driver.submit(operation.args.request, operation.args.tokens)
    _result(operation, hashes=record.num_tokens // operations.driver.config.hash_block_size)


def _begin_step(operations: Operations, operation: Operation) -> None:
    del operation
    operations.driver.settle_outputs()
    operations.opening = True


def _lookup(operations: Operations, operation: Operation) -> None:
    operations.open_plan()
    record = operations.driver.act(act.Lookup(operations.request(operation)))
    _result(operation, local=record.local, blocks=lists(record.lists), junction=record.junction)


def _lookup_external(operations: Operations, operation: Operation) -> None:
    operations.open_plan()
    record = operations.driver.act(act.LookupExternal(operations.request(operation), operation.args.start))
    _result(operation, external=record.external, asynchronous=record.external > 0)


def _allocate(operations: Operations, operation: Operation) -> None:
    operations.open_plan()
    driver, args = operations.driver, operation.args
    request = operations.request(operation)
    live = next((live for live in driver.world.requests if live.request == request), None)
    if live is not None:
        equal("first", live.status is not Status.RUNNING and not live.loaded, args.first)
    drafts = driver.drafts_of(args.request, args.drafts)
    driver.note(declared.STEP_LIMIT, int(args.new_tokens > driver.step_limit))
    record = driver.act(
        act.Allocate(request, args.new_tokens, args.local, args.external, args.lookahead, drafts, load=args.async_load)
    )
    _result(operation, admitted=record.admitted)
    if record.admitted:
        _result(operation, new_blocks=lists(record.new_blocks), external_blocks=lists(record.external_blocks))


def _promote(operations: Operations, operation: Operation) -> None:
    operations.open_plan()
    record = operations.driver.act(act.Promote(operations.request(operation)))
    _result(operation, computed=record.computed)


def _preempt(operations: Operations, operation: Operation) -> None:
    driver = operations.driver
    request = operations.request(operation)
    driver.note(declared.PREEMPT, int(operations.opening))
    scheduled = any(entry.request == request for entry in driver.world.plan.scheduled)
    driver.act(act.Withdraw(request) if scheduled else act.Preempt(request))


def _end_step(operations: Operations, operation: Operation) -> None:
    operations.open_plan()
    driver, args = operations.driver, operation.args
    taken = plans.zero_list(driver.world.plan)
    drain = driver.act(act.Drain())
    operations.drained = True
    handoffs: dict[str, list[tuple[int, int, int]]] = {}
    for request, group, block, boundary in drain.handoffs:
        handoffs.setdefault(driver.name_of(request), []).append((group, block, boundary))
    copies = [(source, destination) for _, source, destination in drain.copies]
    _result(operation, handoffs=handoffs, copies=copies)
    _compare_zeroed(driver, drain, taken, operation)
    built = driver.act(act.BuildMetadata())
    compare_transfers(driver, built, operation)
    if driver.config.offload is not None and operation.result is not None:
        announcements.compare(driver, operation.events or [])
    dispatch = driver.act(act.Dispatch())
    scheduled = sorted((driver.name_of(request), amount) for request, amount in dispatch.scheduled)
    equal("scheduled", scheduled, sorted(args.scheduled))
    equal("finished", sorted(operations.finished), sorted(args.finished))
    operations.finished.clear()
    equal("preempted", sorted(driver.name_of(request) for request in dispatch.preempted), sorted(args.preempted))
    for part in driver.config.parts:
        driver.act(act.Execute(part))
    _outputs_inside_prompts(driver)


def _compare_zeroed(driver: Driver, drain: Record, taken: tuple[int, ...], operation: Operation) -> None:
    """Compare the zero list: a manager driven directly leaves destinations of loads on it, in the order of taking (T0 b)."""
    driver.note(declared.ZEROED, len(drain.destinations))
    equal("zeroed", list(drain.zeroed), [block for block in taken if block not in drain.destinations])
    _result(operation, zeroed=list(taken))


def shown_transfers(driver: Driver, operation: Operation) -> dict[str, object]:
    """Return the recorded store, load and flush as fields of the record of BuildMetadata."""
    if operation.result is None:
        return {}
    result: EndStepResult | StepResult = operation.result
    if driver.config.offload is None:
        return {}
    store, load = result.store, result.load
    return {
        "store_event": NONE if store is None else store.event,
        "store_device": () if store is None else tuple(store.device),
        "store_host": () if store is None else tuple(store.host),
        "load_event": NONE if load is None else load.event,
        "load_device": () if load is None else tuple(load.device),
        "load_host": () if load is None else tuple(load.host),
        "load_requests": () if load is None else tuple(driver.ids[name] for name in load.requests if name in driver.ids),
        "flush": bool(result.flush),
    }


def compare_transfers(driver: Driver, built: Record, operation: Operation) -> None:
    """Compare what the metadata of a step says with the recorded store, load and flush. Raises Diverged."""
    if operation.result is None:
        return
    result: EndStepResult | StepResult = operation.result
    store = {
        "event": built.store_event,
        "device": list(built.store_device),
        "host": list(built.store_host),
        "meta": None if built.store_meta is None else [len(items) for items in built.store_meta],
    }
    driver.equal("store", None if built.store_event == NONE else store, _plain(result.store))
    load = {
        "event": built.load_event,
        "device": list(built.load_device),
        "host": list(built.load_host),
        "requests": [driver.name_of(request) for request in built.load_requests],
    }
    driver.equal("load", None if built.load_event == NONE else load, _plain(result.load))
    if driver.config.offload is not None:
        driver.equal("flush", built.flush, result.flush)


def _plain(part: object) -> object:
    return None if part is None else {name: getattr(part, name) for name in part.__struct_fields__}  # type: ignore[attr-defined]


def _outputs_inside_prompts(driver: Driver) -> None:
    """Process the outputs that a recording does not show: those of chunks that end before the known tokens do."""
    for step in driver.world.steps:
        known = {request.request: request.num_tokens for request in driver.world.requests}
        for entry in step.scheduled:
            if entry.start + entry.amount < known[entry.request]:
                driver.output(entry.request)


def _append_token(operations: Operations, operation: Operation) -> None:
    args = operation.args
    record = operations.driver.output(operations.request(operation), args.tokens)
    equal("rejected", record.rejected, args.rejected)
    _result(operation, num_tokens=record.num_tokens)


def _finish(operations: Operations, operation: Operation) -> None:
    record = operations.driver.finish(operations.request(operation))
    operations.finished.append(operation.args.request)
    _result(operation, deferred=record.deferred, blocks=None if record.offered is None else lists(record.offered))


def _complete_store(operations: Operations, operation: Operation) -> None:
    record = operations.driver.complete_store(operation.args.event, operation.args.acks)
    _result(operation, done=record.done)


def _complete_load(operations: Operations, operation: Operation) -> None:
    record = operations.driver.complete_load(operations.request(operation))
    _result(operation, freed=record.freed)


def _reset(operations: Operations, operation: Operation) -> None:
    driver = operations.driver
    device = driver.act(act.ResetCache()).done if operation.args.device else None
    host = driver.act(act.ResetHost()).done if operation.args.host and driver.config.offload is not None else None
    _result(operation, device=device, host=host)


def _result(operation: Operation, **expected: object) -> None:
    """Compare fields of the result; there is none where the engine raised. Raises Diverged."""
    for name, value in expected.items() if operation.result is not None else ():
        equal(name, value, getattr(operation.result, name))


_OPERATIONS: dict[str, Callable[[Operations, Operation], None]] = {
    "init": _init,
    "submit": _submit,
    "begin_step": _begin_step,
    "lookup": _lookup,
    "lookup_external": _lookup_external,
    "allocate": _allocate,
    "promote_loaded": _promote,
    "preempt": _preempt,
    "end_step": _end_step,
    "append_token": _append_token,
    "finish": _finish,
    "complete_store": _complete_store,
    "complete_load": _complete_load,
    "reset": _reset,
}
