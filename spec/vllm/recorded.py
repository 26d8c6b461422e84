"""A recording's inputs as a script, so that a release can be asked to do the same again."""

from __future__ import annotations

from kvproof.spec.traces.read import Operation, Recording
from kvproof.spec.vllm.scripts import Op, Script


def script_of(recording: Recording) -> Script:
    """Return what was done to the recorded scheduler, in the forms that name everything. Raises ValueError for other levels."""
    if recording.header.engine.level != "scheduler":
        raise ValueError(f"{recording.name} is of level {recording.header.engine.level}, need a scheduler's recording")
    return tuple(_input(operation) for operation in recording.operations if operation.op != "init")


def _input(operation: Operation) -> Op:
    args, result = operation.args, operation.result
    match operation.op:
        case "submit":
            return ("submit", args.tokens, args.max_tokens, args.priority, args.request)
        case "update":
            # the drafts of an update that raised are not known; there is no step after it
            return ("update", args.sampled, result.next_drafts if result is not None else {})
        case "complete_store":
            return ("complete_store", args.acks, args.event)
        case "complete_load" | "abort":
            return (operation.op, args.request)
        case "reset":
            return ("reset", args.preempt_running, args.host)
        case _:
            return (operation.op,)
