"""Reports of finished transfers: one line for each transfer of a report, alone or at the end of an update."""

from __future__ import annotations

from typing import Any

import dump


def refuse_failures(output: Any) -> None:
    """Raises CannotRecord for a report that the format has no words for: failed loads, blocks sent to another engine."""
    if getattr(output, "invalid_block_ids", None) or getattr(output, "failed_recving", None):
        raise dump.CannotRecord("a load of the connector failed")
    if output.finished_sending:
        raise dump.CannotRecord("a connector reports blocks that it has sent away")


def completed_stores(meta: Any) -> dict[int, int]:
    """Acknowledgements of stores by event, in what the workers report, possibly for several connectors."""
    found = getattr(meta, "completed_store_events", None)
    if found is not None:
        return dict(found)
    for part in getattr(meta, "metadata", None) or ():
        if part is not None and completed_stores(part):
            return completed_stores(part)
    return {}


def acknowledged(state: dict[str, Any], event: int, acks: int) -> dict[str, Any]:
    """The state after some, not all, workers acknowledged a store: nothing else changed."""
    if state["transfers"] is None:
        return state
    counts = dict(state["transfers"]["acks"])
    counts[str(event)] = counts.get(str(event), 0) + acks
    return {**state, "transfers": {**state["transfers"], "acks": counts}}


class Report:
    """One report. ``todo`` are the lines that it becomes, ``between`` the states seen after single transfers of several."""

    def __init__(self, output: Any) -> None:
        """Args: output: what the workers report. Raises CannotRecord."""
        refuse_failures(output)
        loads = list(output.finished_recving or ())
        stores = completed_stores(getattr(output, "kv_connector_worker_meta", None))
        self.todo: list[tuple[str, Any, dict[str, Any]]] = [("complete_load", name, {"request": name}) for name in loads]
        self.todo += [("complete_store", event, {"event": event, "acks": acks}) for event, acks in stores.items()]
        self.between: dict[tuple[str, Any], tuple[dict[str, Any], tuple[int, int]]] = {}

    def reached(self, op: str, subject: Any, reader: dump.Reader) -> None:
        """One of several transfers has been dealt with."""
        if len(self.todo) > 1:
            self.between[op, subject] = (reader.state(), queued(reader))

    def lines(
        self, reader: dump.Reader, before: dict[str, Any], events: tuple[int, int], calls: list[dict[str, Any]]
    ) -> list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any], tuple[int, int]]]:
        """Operation, arguments, result, state and number of queued events of each line. The last one shows the end.

        Args:
            reader: reads the scheduler after the report.
            before: the state before it.
            events: the numbers of queued cache events before it.
            calls: the calls that were made during it.
        """
        found = []
        state = before
        for number, (op, subject, args) in enumerate(self.todo):
            if number == len(self.todo) - 1:
                state, events = reader.state(), queued(reader)
            elif (op, subject) in self.between:
                state, events = self.between[op, subject]
            elif op == "complete_store":
                state = acknowledged(state, subject, args["acks"])
            own = [call for call in calls if op == "complete_load" and call["args"].get("request") == subject]
            result = outcome(reader, op, subject) | ({"calls": own} if own else {})
            found.append((op, args, result, state, events))
        return found


def outcome(reader: dump.Reader, op: str, subject: Any) -> dict[str, Any]:
    """What became of a transfer, seen after the report."""
    if op == "complete_load":
        return {"freed": subject not in reader.scheduler.requests}
    host = reader.host
    running = host is not None and (subject in host._store_event_to_blocks or subject in host._abandoned_store_event_to_blocks)
    return {"done": not running}


def queued(reader: dump.Reader) -> tuple[int, int]:
    """How many cache events wait to be taken, of the device and of the host tier."""
    host = None if reader.host is None else reader.host.cpu_block_pool
    return len(reader.pool.kv_event_queue), 0 if host is None else len(host.kv_event_queue)
