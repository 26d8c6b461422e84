"""Laws of the order in which blocks are given back and taken: PC-8 and PC-12 (semantics 5.7).

Both redo what an action frees, pins and takes on a plain list, in the order of T1 to T3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import evolve

from kvproof.core.actions import (
    Allocate,
    BuildMetadata,
    CompleteLoad,
    CompleteStore,
    Drain,
    Finish,
    Output,
    Preempt,
    ResetHost,
    Withdraw,
)
from kvproof.core.offload.state import Host, Stage
from kvproof.core.world import DeferredFree, Request
from kvproof.spec import ground, ground_host
from kvproof.spec.laws.base import Evidence, Findings, Law, Moment

EVICTION_ORDER = "eviction_order"


def _in_order(expected: Sequence[int], shown: Sequence[int], evidence: Evidence) -> Evidence:
    """Return evidence on the order of a queue. If the right blocks are in it, another order of one's own is a policy (PM-6)."""
    return evolve(evidence, permitted_by=EVICTION_ORDER) if sorted(expected) == sorted(shown) else evidence


def _given_back(queue: list[int], ref: list[int], blocks: Iterable[int], keyed: Sequence[int]) -> list[int]:
    """Redo one release on a list (T3): unkeyed blocks to the front, keyed ones to the back, each in the given order."""
    gone = []
    for block in blocks:
        if block != ground.NULL:
            ref[block] -= 1
            if ref[block] == 0:
                gone.append(block)
    unkeyed = [block for block in gone if keyed[block] < 0]
    return unkeyed + queue + [block for block in gone if block not in unkeyed]


class _Queue:
    """The free queue redone on lists: what gives blocks back, pins them or takes them, in its order (T1 to T3)."""

    def __init__(self, moment: Moment) -> None:
        self.ref, self.free = list(moment.before.pool.ref), list(moment.before.pool.free)
        self.keyed = moment.after.pool.key_node

    def give_back(self, blocks: Iterable[int]) -> None:
        """Release blocks in this order."""
        self.free = _given_back(self.free, self.ref, blocks, self.keyed)

    def pin(self, blocks: Iterable[int]) -> None:
        """Hold blocks once more each; they leave the queue."""
        for block in blocks:
            self.ref[block] += 1
        self.free = [block for block in self.free if not self.ref[block]]

    def give_tables(self, tables: Iterable[Sequence[int]]) -> None:
        """Release tables, each from its tail."""
        for table in tables:
            self.give_back(reversed(table))


def _tables(request: Request | None) -> list[tuple[int, ...]]:
    return [] if request is None else [state.table for state in request.groups]


def _taken_from_the_front(moment: Moment, action: Allocate) -> Findings:
    """Redo an allocation on the queue: what windows leave is given back group by group from the highest column down, adopted
    blocks leave the queue, and what is taken is its front.
    """
    record, before = moment.record, moment.before
    old, new = ground.request_of(before, action.request), ground.request_of(moment.after, action.request)
    if record is None or old is None or new is None:
        return None
    queue = _Queue(moment)
    queue.keyed = before.pool.key_node
    for was, now in zip(old.groups, new.groups, strict=True):
        kept = set(now.table) - set(record.taken)
        nulled = [block for block, entry in zip(was.table, now.table, strict=False) if entry != block and block not in kept]
        queue.give_back(reversed(nulled))
    changed = queue.free != list(before.pool.free)
    adopted = {block for blocks in before.hit.lists for block in blocks} if before.hit is not None else set()
    left = [block for block in queue.free if block not in adopted or block not in record.adopted]
    count = len(record.taken)
    if not changed and not count and not record.adopted and moment.after.pool.free == before.pool.free:
        return None
    if tuple(left[:count]) == record.taken and tuple(left[count:]) == moment.after.pool.free:
        return ()
    values = {"request": action.request, "expected": tuple(left), "taken": record.taken, "free": moment.after.pool.free}
    wrong = Evidence.of("blocks are not taken from the front of the free queue, or others moved", **values)
    return [_in_order(left, (*record.taken, *moment.after.pool.free), wrong)]


def _eviction_order(moment: Moment) -> Findings:
    """Redo the release on a list; deferred frees that are released now are judged by PC-12."""
    if moment.record is None:
        return None
    if isinstance(moment.action, Allocate):
        return _taken_from_the_front(moment, moment.action)
    before, after = moment.before, moment.after
    deferred = len(after.deferred) > len(before.deferred)
    if _released(moment) or (deferred and ground.reports_failure(moment.action)):
        return None
    queue = _Queue(moment)
    if isinstance(moment.action, Drain):
        queue.give_back(end for _, source, destination in moment.record.copies for end in (source, destination))
        queue.pin(block for row in after.deferred[len(before.deferred) :] for table in row.tables for block in table)
    elif isinstance(moment.action, Preempt | Withdraw) and not deferred:
        queue.give_tables(_tables(ground.request_of(before, moment.action.request)))
    elif isinstance(moment.action, Finish):
        _redo_finish(moment, moment.action, queue, deferred)
    elif ground.reports_failure(moment.action):
        queue.give_tables(ground.lost_tables(before, after))
    elif before.host is not None:
        _redo_host_side(moment, before.host, queue)
    if list(after.pool.free) == queue.free:
        return ()
    wrong = Evidence.of("the free queue is not in eviction order", expected=tuple(queue.free), actual=after.pool.free)
    if queue.free == list(before.pool.free):
        wrong = Evidence.of("an action that frees and takes nothing changes the free queue", free=after.pool.free)
    return [_in_order(queue.free, after.pool.free, wrong)]


def _redo_finish(moment: Moment, action: Finish, queue: _Queue, deferred: bool) -> None:
    """Redo the end of a request: for connectors, entries that nobody reads any more go first; then what is stored is pinned, a
    load that was never issued ends, and the tables are freed unless steps or a load still need them (T32).
    """
    world, record = moment.before, moment.record
    request = ground.request_of(world, action.request)
    if request is None or record is None:
        return
    tables = _tables(request)
    if world.config.connectors or world.config.offload is not None:
        processed = max(request.computed - request.in_flight, 0)
        for group, spec in enumerate(world.config.groups):
            if ground.is_windowed(spec) or ground.is_recurrent(spec):
                dead = ground.unread(spec, processed) // ground.span(world.config, group)
                queue.give_back(reversed(tables[group][:dead]))
                tables[group] = tables[group][dead:]
    queue.pin(record.store_device)
    load = None if world.host is None else ground_host.load_of(world.host, action.request)
    if load is not None and load.stage is Stage.WAITING:
        queue.give_back(load.device)
    if not deferred and not record.deferred:
        queue.give_tables(tables)


def _redo_host_side(moment: Moment, host: Host, queue: _Queue) -> None:
    """Redo what the host side pins and gives back: stores of a step, complete transfers, resets."""
    action, record = moment.action, moment.record
    if isinstance(action, BuildMetadata) and record is not None:
        joined = [block for waiting in host.queued for block in waiting.device]
        queue.pin(record.store_device[: len(record.store_device) - len(joined)])
    elif isinstance(action, CompleteStore):
        store = ground_host.store_of(host, action.event)
        if store is not None and record is not None and record.done:
            queue.give_back(store.device)
    elif isinstance(action, CompleteLoad):
        load = next((load for load in ground_host.all_loads(host) if load.request == action.request), None)
        if load is not None:
            queue.give_back(load.device)
            queue.give_tables(load.held)
        _redo_restart(moment, action.request, queue)
    elif isinstance(action, ResetHost):
        for load in host.loads:
            if load.stage is Stage.WAITING:
                queue.give_back(load.device)
                _redo_restart(moment, load.request, queue)
        for waiting in host.queued:
            queue.give_back(waiting.device)


def _redo_restart(moment: Moment, number: int, queue: _Queue) -> None:
    """Redo the freeing of a request whose load brought nothing: it waits with empty tables."""
    old, new = ground.request_of(moment.before, number), ground.request_of(moment.after, number)
    if old is not None and new is not None and not any(_tables(new)):
        queue.give_tables(_tables(old))


# --- PC-12 ----------------------------------------------------------------------------------------------------------


def _released(moment: Moment) -> tuple[DeferredFree, ...]:
    """Return the deferred frees that an action released: as many from the front as it takes to get what waits now."""
    before, after = moment.before.deferred, moment.after.deferred
    count = next(n for n in range(len(before) + 1) if after[: len(before) - n] == before[n:])
    return before[:count]


def _deferred_like_immediate(moment: Moment) -> Findings:
    """PC-12: replay the release of each deferred free as an immediate one, table by table from its tail.

    It is due with the first output of the youngest step that was dispatched when the blocks were given up.
    """
    before, after = moment.before, moment.after
    if moment.record is None or not (before.deferred or after.deferred):
        return None
    released = _released(moment)
    found = []
    unopened = sum(1 for step in after.steps if not step.opened and any(entry.amount for entry in step.scheduled))
    if after.issued - after.processed != unopened:
        found.append(
            Evidence.of(
                "the steps whose output is still to come are not counted", issued=after.issued, processed=after.processed
            )
        )
    # The fence of a copy's ends may lead that of a request by a step: what stands behind it is released with it.
    late = [entry for entry in after.deferred[:1] if entry.fence <= after.processed]
    early = [entry for entry in released if entry.fence > after.processed]
    if late or early:
        found.append(
            Evidence.of("a deferred free is not released at its fence", late=late, early=early, processed=after.processed)
        )
    if released and not isinstance(moment.action, Output):
        found.append(Evidence.of("deferred frees are released by something else than an output", released=released))
    if released:
        ref, queue = list(before.pool.ref), list(before.pool.free)
        for entry in released:
            for table in entry.tables:
                queue = _given_back(queue, ref, reversed(table), after.pool.key_node)
        if list(after.pool.free) != queue and not ground.reports_failure(moment.action):
            wrong = Evidence.of(
                "deferred frees leave another queue than immediate ones would",
                released=released,
                expected=tuple(queue),
                actual=after.pool.free,
            )
            found.append(_in_order(queue, after.pool.free, wrong))
    return found


LAWS: tuple[Law, ...] = (
    Law(
        "PC-8",
        "D",
        "Given back, unkeyed blocks stand before all keyed ones and a table's tail before its head; blocks are taken from the "
        "front, and nothing else moves the queue.",
        "vLLM 0.33.0",
        ("M-LRU-1", "M-POOL-1"),
        check=_eviction_order,
    ),
    Law(
        "PC-12",
        "D",
        "A deferred free leaves the free queue in the order that an immediate free at the same moment would leave.",
        "#48489",
        ("M-DEF-1",),
        check=_deferred_like_immediate,
        bent_by=(("deferred_free_order", "flattened"),),
    ),
)
