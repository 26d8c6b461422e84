"""The passive recorder: wraps the methods of one live scheduler of vLLM and writes what they do in the public format.

Nothing here changes an argument, a result or the order of anything. What cannot be expressed ends the recording, with a reason
in ``Recorder.problem``; the engine goes on undisturbed.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

import completions
import dump
import writing
from calls import Calls
from completions import Report
from dump import CannotRecord as CannotRecord
from outputs import step_result

Method = Callable[..., Any]


class Operation:
    """An operation that is being recorded: its arguments, its calls so far, and what was seen on the way.

    Attributes:
        stack: the names of the calls that are running.
        state: the one that the next call's difference is taken against.
        open: the last call, until its difference is taken.
        handoffs: what the step took from the groups, by request.
        events: the cache events that were taken, of the device and of the host tier.
        lines: results of the lines that an update was split into, and how many events were queued at the end of each.
        requests: the live requests that an update concerns, and how many tokens each had.
        several: the requests of an abort of more than one.
        report: the report of transfers that this is.
    """

    def __init__(self, op: str, args: dict[str, Any], state: dict[str, Any]) -> None:
        self.op = op
        self.args = args
        self.calls: list[dict[str, Any]] = []
        self.stack: list[str] = []
        self.state = state
        self.open: dict[str, Any] | None = None
        self.handoffs: dict[str, Any] = {}
        self.events: tuple[list[Any], list[Any]] = ([], [])
        self.lines: list[tuple[dict[str, Any], tuple[int, int]]] = []
        self.requests: dict[str, tuple[Any, int]] = {}
        self.several = False
        self.report: Report | None = None


class Recorder:
    """Records one scheduler until it is closed.

    Attributes:
        problem: why the recording ended early; None as long as it is complete.
        notes: the same as a list, for who holds no recorder.
        failure: the exception, if the reason is a mistake of the recorder itself.
    """

    def __init__(self, scheduler: Any, sink: Callable[[str], None], call_states: bool, header: dict[str, Any]) -> None:
        self.scheduler = scheduler
        self.reader = dump.Reader(scheduler)
        self.writer = writing.Writer(sink)
        self.sink = sink
        self.call_states = call_states
        self.problem: str | None = None
        self.notes: list[str] = []
        self.failure: Exception | None = None
        self.current: Operation | None = None
        self.steps: deque[tuple[Any, int]] = deque()
        self.proposing: dict[str, Any] | None = None  # the result of the update that drafts may still be proposed for
        self.undo: list[Callable[[], None]] = []
        self.on = True
        settings = dump.header(self.reader, **header)
        host = settings["config"]["host"]
        self.announces = bool(host and host["events"])
        self.writer.header(settings)
        self.writer.line("init", {}, {}, self.reader.state())

    @property
    def active(self) -> bool:
        """Whether anything is recorded: neither the recorder nor its file has been closed."""
        return self.on and not self.writer.closed

    @property
    def operations(self) -> int:
        """How many operations were recorded."""
        return self.writer.count

    def close(self) -> None:
        """Take the hooks off and finish the recording, the last line with a full state."""
        self.detach()
        self.writer.close()
        close = getattr(self.sink, "close", None)
        if close is not None:
            close()

    def detach(self) -> None:
        """Take the hooks off; the scheduler is as it was."""
        self.on = False
        while self.undo:
            self.undo.pop()()

    def stop(self, reason: str) -> None:
        """End the recording here, because what follows cannot be recorded."""
        if self.active:
            self.ended(f"the recording ends after operation {self.writer.count - 1}: {reason}")
            self.writer.held = False
            self.writer.close()

    def ended(self, problem: str) -> None:
        """Nothing is recorded any more, because of a problem."""
        self.problem = problem
        self.notes.append(problem)
        self.on = False

    def guarded(self, function: Method, *args: Any, **kwargs: Any) -> Any:
        """Run a part of the recorder; whatever goes wrong in it ends the recording and not the engine."""
        try:
            return function(*args, **kwargs)
        except CannotRecord as error:
            self.stop(str(error))
        except Exception as error:
            self.failure = error
            self.stop(f"the recorder failed ({type(error).__name__}: {error})")
        return None

    # --- hooks ------------------------------------------------------------------------------------------------------------

    def wrap(self, owner: Any, name: str, make: Callable[[Method], Method]) -> None:
        """Put a hook in front of a method of one object; without effect where a release has no such method."""
        original = getattr(owner, name, None)
        if original is None:
            return
        there, before = name in vars(owner), vars(owner).get(name)

        def restore() -> None:
            if there:
                setattr(owner, name, before)
            else:
                vars(owner).pop(name, None)

        setattr(owner, name, functools.wraps(original)(make(original)))
        self.undo.append(restore)

    def operation(self, begin: Method, finish: Method) -> Callable[[Method], Method]:
        """A hook for what becomes a line. It is transparent inside another operation."""

        def make(original: Method) -> Method:
            def hooked(*args: Any, **kwargs: Any) -> Any:
                operation = None
                if self.active and self.current is None:
                    operation = self.guarded(begin, *args, **kwargs)
                if operation is None:
                    return original(*args, **kwargs)
                return self.run(operation, finish, original, args, kwargs)

            return hooked

        return make

    def run(self, operation: Operation, finish: Method, original: Method, args: Any, kwargs: Any) -> Any:
        """Let the engine perform an operation and add its line."""
        outer, self.current = self.current, operation
        try:
            result = original(*args, **kwargs)
        except Exception as error:
            if self.active:
                self.guarded(self.raised, operation, error)
            raise
        finally:
            self.current = outer
        if self.active:
            self.guarded(finish, operation, result)
        return result

    def call(self, op: str, arguments: Method, outcome: Method | None = None) -> Callable[[Method], Method]:
        """A hook for what becomes an entry of `calls`. It is transparent inside another call, a preemption's free excepted."""

        def make(original: Method) -> Method:
            def hooked(*args: Any, **kwargs: Any) -> Any:
                operation = self.current
                if not self.active or operation is None or operation.stack not in ([], ["preempt"]):
                    return original(*args, **kwargs)
                entry = self.guarded(self.enter, operation, op, arguments, args, kwargs)
                if entry is None:
                    return original(*args, **kwargs)
                try:
                    result = original(*args, **kwargs)
                finally:
                    operation.stack.pop()
                if self.active and outcome is not None:
                    self.guarded(self.leave, entry, outcome, result, args, kwargs)
                return result

            return hooked

        return make

    def after(self, then: Method) -> Callable[[Method], Method]:
        """A hook that looks at what a method did: `then` gets its result and its arguments."""

        def make(original: Method) -> Method:
            def hooked(*args: Any, **kwargs: Any) -> Any:
                result = original(*args, **kwargs)
                if self.active:
                    self.guarded(then, result, *args, **kwargs)
                return result

            return hooked

        return make

    def taken(self, tier: int) -> Callable[[Method], Method]:
        """A hook that sees the cache events which the engine takes, once; an iterator is replaced by one over the same."""

        def make(original: Method) -> Method:
            def hooked(*args: Any, **kwargs: Any) -> Any:
                result = original(*args, **kwargs)
                if result is None or self.current is None:
                    return result
                seen = list(result)
                self.current.events[tier].extend(seen)
                return result if isinstance(result, Collection) else iter(seen)

            return hooked

        return make

    # --- calls ------------------------------------------------------------------------------------------------------------

    def enter(self, operation: Operation, op: str, arguments: Method, args: Any, kwargs: Any) -> dict[str, Any]:
        """Open an entry of `calls`."""
        self.show_last(operation)
        entry = {"op": op, "args": arguments(*args, **kwargs), "result": {}}
        operation.calls.append(entry)
        operation.stack.append(op)
        operation.open = entry
        return entry

    def leave(self, entry: dict[str, Any], outcome: Method, result: Any, args: Any, kwargs: Any) -> None:
        """Complete an entry of `calls`."""
        entry["result"] = outcome(result, *args, **kwargs)

    def show_last(self, operation: Operation, state: dict[str, Any] | None = None) -> None:
        """Give the last call its difference: what it changed, and what the scheduler changed right behind it."""
        entry, operation.open = operation.open, None
        if entry is not None and self.call_states:
            before, operation.state = operation.state, self.reader.state() if state is None else state
            entry["delta"] = writing.delta(before, operation.state)

    def plan_closes(self, original: Method) -> Method:
        """A hook of what closes the plan of a step."""

        def hooked(*args: Any, **kwargs: Any) -> Any:
            if self.active and self.current is not None:
                self.guarded(self.show_last, self.current)
            return original(*args, **kwargs)

        return hooked

    def handed_over(self, result: Any) -> None:
        """The groups' handoffs were taken."""
        if self.current is not None:
            for name, entries in result.items():
                self.current.handoffs.setdefault(name, []).extend(list(entry) for entry in entries)

    # --- lines ------------------------------------------------------------------------------------------------------------

    def begin(self, op: str, args: dict[str, Any]) -> Operation:
        """Open an operation."""
        self.proposing = None
        assert self.writer.last is not None
        return Operation(op, args, self.writer.last)

    def write(self, operation: Operation, result: dict[str, Any], always: bool = False) -> int:
        """Add the line of an operation. `calls` stand in it where there are any, or `always`. Returns its index."""
        if operation.calls or always:
            result["calls"] = operation.calls
        state = self.reader.state()
        self.show_last(operation, state)
        return self.writer.line(operation.op, operation.args, result, state)

    def raised(self, operation: Operation, error: Exception) -> None:
        """The engine raised: that is the last line."""
        if operation.lines or (operation.report is not None and len(operation.report.todo) > 1):
            self.stop(f"the engine raised {type(error).__name__}: {error}")
            return
        self.writer.held = False
        self.writer.raised(operation.op, operation.args, f"{type(error).__name__}: {error}")
        self.ended(f"the engine raised {type(error).__name__} in operation {self.writer.count - 1}")

    def begin_submit(self, request: Any, *_: Any, **__: Any) -> Operation:
        """A request arrives. Raises CannotRecord for one that the format cannot describe."""
        name = request.request_id
        if name in self.scheduler.requests:
            raise CannotRecord(f"request {name} gets more input while it is there")
        for what, present in (
            ("is a pooling request", request.sampling_params is None),
            ("gets its input piece by piece", getattr(request, "resumable", False)),
            ("has embeddings for a prompt", request.prompt_token_ids is None),
            ("has no limit of tokens", request.max_tokens is None),
            ("has inputs that are no tokens", getattr(request, "mm_features", None)),
            ("has a cache salt", getattr(request, "cache_salt", None)),
            ("uses an adapter (LoRA)", getattr(request, "lora_request", None)),
            ("does not read the prefix cache", getattr(request, "skip_reading_prefix_cache", False)),
            ("has structured output", getattr(request, "use_structured_output", False)),
        ):
            if present:
                raise CannotRecord(f"request {name} {what}, which the format does not know")
        return self.begin(
            "submit",
            {
                "request": name,
                "tokens": [int(token) for token in request.prompt_token_ids],
                "max_tokens": request.max_tokens,
                "priority": request.priority,
            },
        )

    def finish_submit(self, operation: Operation, result: Any) -> None:
        """The request is there."""
        del result
        self.write(operation, {"hashes": len(self.scheduler.requests[operation.args["request"]].block_hashes)})

    def begin_step(self, *_: Any, **__: Any) -> Operation:
        """A scheduling pass begins."""
        return self.begin("step", {})

    def finish_step(self, operation: Operation, output: Any) -> None:
        """A scheduling pass is over."""
        result = step_result(self.reader, output, operation.handoffs)
        self.steps.append((output, self.write(operation, result, always=True)))

    def begin_update(self, scheduler_output: Any, model_runner_output: Any, *_: Any, **__: Any) -> Operation:
        """The output of a step arrives. Raises CannotRecord if it is not the oldest one planned."""
        if not self.steps or self.steps[0][0] is not scheduler_output:
            raise CannotRecord("the output of a step arrives that is not the oldest one planned")
        if model_runner_output.kv_connector_output is not None:
            completions.refuse_failures(model_runner_output.kv_connector_output)
        _, index = self.steps.popleft()
        sampled, places = model_runner_output.sampled_token_ids, model_runner_output.req_id_to_index
        tokens = {
            name: [int(token) for token in sampled[places[name]]] if sampled is not None and len(sampled) else []
            for name in scheduler_output.num_scheduled_tokens
        }
        operation = self.begin("update", {"step": index, "sampled": tokens})
        for name in tokens:
            request = self.scheduler.requests.get(name)
            if request is not None and not request.is_finished():
                operation.requests[name] = (request, request.num_tokens)
        return operation

    def finish_update(self, operation: Operation, result: Any) -> None:
        """An output is processed."""
        del result
        if not operation.lines:  # else this line was written before those of the transfers reported with the output
            self.write_update(operation)
        if self.announces:
            self.give_events(operation)
        self.writer.held = False

    def write_update(self, operation: Operation) -> None:
        """Add the line of an update."""
        appended: dict[str, list[int]] = {}
        for name, (request, count) in operation.requests.items():
            tokens = list(request.all_token_ids[count:])
            if tokens:
                appended[name] = tokens
        gone = [name for name, (request, _) in operation.requests.items() if request.is_finished()]
        found: dict[str, Any] = {"appended": appended, "finished": gone, "next_drafts": {}}
        self.write(operation, found)
        self.proposing = found
        operation.lines.append((found, completions.queued(self.reader)))

    def give_events(self, operation: Operation) -> None:
        """Give each line of an update the events that were made up to its end, the device's first."""
        begin, last = (0, 0), len(operation.lines) - 1
        device, host = operation.events
        for number, (result, end) in enumerate(operation.lines):
            if number == last:
                end = (len(device), len(host))
            made = device[begin[0] : end[0]] + host[begin[1] : end[1]]
            if made:
                result["events"] = list(dump.events(self.reader, made))
            begin = end

    def proposed(self, result: Any, drafts: Any, *_: Any, **__: Any) -> None:
        """Drafts for the next chunks belong to the update just recorded."""
        del result
        for name, tokens in zip(drafts.req_ids, drafts.draft_token_ids, strict=False):
            request = self.scheduler.requests.get(name)
            if self.proposing is not None and request is not None and not request.is_finished():
                self.proposing["next_drafts"][name] = [int(token) for token in tokens]

    def begin_reset(self, reset_running_requests: bool = False, reset_connector: bool = False, *_: Any, **__: Any) -> Operation:
        """The prefix cache is to be forgotten."""
        return self.begin("reset", {"preempt_running": bool(reset_running_requests), "host": bool(reset_connector)})

    def finish_reset(self, operation: Operation, result: Any) -> None:
        """It is, or not."""
        self.write(operation, {"ok": bool(result)})

    def begin_abort(self, request_ids: Any, *_: Any, **__: Any) -> Operation | None:
        """Requests are finished from outside; None if there is none to finish."""
        if request_ids is None:
            names = list(self.scheduler.requests)
        elif isinstance(request_ids, Collection):
            names = [request_ids] if isinstance(request_ids, str) else list(request_ids)
        else:
            raise CannotRecord("requests are aborted by an iterator of names")
        known = self.scheduler.requests
        live = [name for name in dict.fromkeys(names) if name in known and not known[name].is_finished()]
        if not live:
            return None
        operation = self.begin("abort", {"request": live[0]})
        operation.several = len(live) > 1
        return operation

    def finish_abort(self, operation: Operation, result: Any) -> None:
        """They are finished. Each of several has its line already."""
        del result
        if not operation.several:
            self.write(operation, {"deferred": operation.args["request"] in self.scheduler.requests}, always=True)

    def finished_one(self, result: Any, request: Any, *_: Any, **__: Any) -> None:
        """One of several requests that are aborted together is finished: it gets its line."""
        del result
        operation = self.current
        if operation is not None and operation.several:
            operation.args = {"request": request.request_id}
            self.write(operation, {"deferred": request.request_id in self.scheduler.requests}, always=True)
            operation.calls = []
            assert self.writer.last is not None
            operation.state = self.writer.last

    # --- transfers --------------------------------------------------------------------------------------------------------

    def reports(self, original: Method) -> Method:
        """The hook of reports of finished transfers, which arrive alone or with the output of a step."""

        def hooked(output: Any, *args: Any, **kwargs: Any) -> Any:
            operation, outer = None, self.current
            if self.active and (outer is None or outer.op == "update"):
                operation = self.guarded(self.begin_report, outer, output)
            if operation is None:
                return original(output, *args, **kwargs)
            finish = functools.partial(self.finish_report, outer)
            return self.run(operation, finish, original, (output, *args), kwargs)

        return hooked

    def begin_report(self, outer: Operation | None, output: Any) -> Operation | None:
        """A report arrives; the update that it came with gets its line now. None if it reports nothing."""
        report = Report(output)
        if not report.todo:
            return None
        op, _, args = report.todo[0]
        if outer is None:
            operation = self.begin(op, args)
        else:
            self.writer.release()
            self.writer.held = True
            self.write_update(outer)
            assert self.writer.last is not None
            operation = Operation(op, args, self.writer.last)
        operation.report = report
        return operation

    def finish_report(self, outer: Operation | None, operation: Operation, result: Any) -> None:
        """A report has been dealt with."""
        del result
        assert operation.report is not None
        assert self.writer.last is not None
        if len(operation.report.todo) == 1:
            self.show_last(operation)
        before = outer.lines[-1][1] if outer is not None else (0, 0)
        for line in operation.report.lines(self.reader, self.writer.last, before, operation.calls):
            op, args, outcome, state, events = line
            self.writer.line(op, args, outcome, state)
            if outer is not None:
                outer.lines.append((outcome, events))

    def reached(self, op: str) -> Callable[[Method], Method]:
        """A hook of what deals with one transfer."""

        def seen(result: Any, subject: Any, *_: Any, **__: Any) -> None:
            del result
            if self.current is not None and self.current.report is not None:
                self.current.report.reached(op, subject, self.reader)

        return self.after(seen)

    def closing(self, original: Method) -> Method:
        """The hook of a scheduler's end: the recording is finished."""

        def hooked(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            finally:
                self.guarded(self.close)

        return hooked


def attach(
    scheduler: Any,
    sink: Callable[[str], None],
    *,
    call_states: bool = False,
    name: str | None = None,
    seed: int = 0,
    version: str | None = None,
) -> Recorder:
    """Record a live scheduler of vLLM from now on. Attach right after it was made: a recording begins with nothing done.

    Args:
        scheduler: the object; its class does not matter as long as it works like vLLM's.
        sink: gets each line without its end; its `close`, if it has one, is called at the end.
        call_states: give each nested call its state difference as well.
        name: label of the group set in the header; None derives one.
        seed: what the header says.
        version: of the engine in the header; None asks vLLM.

    Returns:
        The recorder. `close` it, or the recording has no end.

    Raises:
        CannotRecord: the format has no words for this scheduler's configuration.
    """
    recorder = Recorder(scheduler, sink, call_states, {"name": name, "seed": seed, "version": version})
    calls, manager, connector = Calls(recorder.reader), scheduler.kv_cache_manager, scheduler.connector
    wrap, call = recorder.wrap, recorder.call

    wrap(scheduler, "add_request", recorder.operation(recorder.begin_submit, recorder.finish_submit))
    wrap(scheduler, "schedule", recorder.operation(recorder.begin_step, recorder.finish_step))
    wrap(scheduler, "update_from_output", recorder.operation(recorder.begin_update, recorder.finish_update))
    wrap(scheduler, "finish_requests", recorder.operation(recorder.begin_abort, recorder.finish_abort))
    wrap(scheduler, "reset_prefix_cache", recorder.operation(recorder.begin_reset, recorder.finish_reset))
    wrap(scheduler, "_update_from_kv_xfer_finished", recorder.reports)
    wrap(scheduler, "update_draft_token_ids", recorder.after(recorder.proposed))
    wrap(scheduler, "_free_request", recorder.after(recorder.finished_one))
    wrap(scheduler, "shutdown", recorder.closing)

    wrap(scheduler, "_mamba_block_aligned_split", call("clip", calls.clip, calls.clipped))
    wrap(scheduler, "_preempt_request", call("preempt", calls.one_request))
    wrap(manager, "get_computed_blocks", call("lookup", calls.one_request, calls.found))
    wrap(manager, "get_computed_blocks_for_connector", call("lookup", calls.one_request, calls.found))
    wrap(manager, "truncate_computed_blocks", call("truncate", calls.truncate))
    wrap(manager, "allocate_slots", call("allocate", calls.allocate, calls.allocated))
    wrap(manager, "cache_blocks", call("cache", calls.cache))
    wrap(manager, "free", call("free", calls.one_request))
    wrap(manager, "pop_blocks_for_free", call("free_deferred", calls.one_request))
    for source in ("take_boundary_state_offloads", "take_partial_tail_offloads"):
        wrap(manager, source, recorder.after(recorder.handed_over))
        wrap(manager, source, recorder.plan_closes)
    wrap(manager, "take_kv_cache_block_copies", recorder.plan_closes)
    wrap(manager, "take_events", recorder.taken(0))
    if connector is not None:
        wrap(connector, "get_num_new_matched_tokens", call("lookup_external", calls.lookup_external, calls.answered))
        wrap(connector, "request_finished", call("finish_hook", calls.finish_hook))
        wrap(connector, "request_finished_all_groups", call("finish_hook", calls.finish_hook))
        wrap(connector, "take_events", recorder.taken(1))
    if recorder.reader.host is not None:
        wrap(recorder.reader.host, "_cleanup_load_request", recorder.reached("complete_load"))
        wrap(recorder.reader.host, "_process_store_event", recorder.reached("complete_store"))
    return recorder
