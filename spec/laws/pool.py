"""Laws of the block pool: references, the free queue, taking and giving back (semantics 5.7)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvproof.core.actions import (
    Allocate,
    BuildMetadata,
    CompleteLoad,
    CompleteStore,
    Dispatch,
    Drain,
    EvictBlocks,
    Execute,
    Finish,
    Lookup,
    Output,
    Preempt,
    Promote,
    ResetCache,
    ResetHost,
    Withdraw,
)
from kvproof.core.errors import ContractBroken, PoolExhausted
from kvproof.core.offload.state import Host, Stage
from kvproof.core.world import DeferredFree, GroupState, Phase, Request, World
from kvproof.spec import ground, ground_host
from kvproof.spec.laws.base import Evidence, Findings, Law, Moment

HOST_SIDE = (BuildMetadata, CompleteStore, CompleteLoad, Promote, ResetHost)
POOL_CHANGES = (Allocate, Preempt, Withdraw, Drain, Finish, ResetCache, EvictBlocks, Output, *HOST_SIDE)
RELEASES = (Preempt, Withdraw, Drain, Finish, Output, CompleteStore, CompleteLoad, ResetHost)


def _free_queue(moment: Moment) -> Findings:
    pool = moment.after.pool
    if moment.record is None or pool is moment.before.pool:
        return None
    free = set(pool.free)
    found = []
    if len(free) != len(pool.free):
        found.append(Evidence.of("a block stands twice in the free queue", free=pool.free))
    if ground.NULL in free:
        found.append(Evidence.of("the null block stands in the free queue", free=pool.free))
    unused = {block for block, count in enumerate(pool.ref) if count == 0 and block != ground.NULL}
    if free != unused:
        found.append(
            Evidence.of(
                "the free queue does not hold exactly the unreferenced blocks",
                only_free=sorted(free - unused),
                only_unreferenced=sorted(unused - free),
            )
        )
    return found


def _sum_of_blocks(moment: Moment) -> Findings:
    pool = moment.after.pool
    if moment.record is None or pool is moment.before.pool:
        return None
    used = 1 + sum(1 for count in pool.ref[1:] if count > 0)
    if len(pool.free) + used == moment.after.config.num_blocks == len(pool.ref):
        return ()
    return [Evidence.of("free and used blocks do not make up the pool", free=len(pool.free), used=used, blocks=len(pool.ref))]


def _counted_references(moment: Moment) -> Findings:
    world = moment.after
    if moment.record is None or (world.pool is moment.before.pool and world.requests is moment.before.requests):
        return None
    expected = ground.references(world)
    ref = world.pool.ref
    if list(ref[1:]) == expected[1:]:
        return ()
    return [
        Evidence.of("a block's references are not those that are counted", block=block, ref=ref[block], counted=count)
        for block, count in enumerate(expected)
        if block != ground.NULL and ref[block] != count
    ]


def _no_negative_reference(moment: Moment) -> Findings:
    refusal = moment.refusal
    if isinstance(refusal, ContractBroken) and isinstance(moment.action, RELEASES) and "block" in refusal.values:
        return [Evidence.of("a release would take a reference below zero", block=refusal.values["block"])]
    if moment.record is None or moment.after.pool is moment.before.pool:
        return None
    ref = moment.after.pool.ref
    if min(ref) >= 0:
        return ()
    return [Evidence.of("a reference count is negative", block=block, ref=n) for block, n in enumerate(ref) if n < 0]


def _handed_out_clean(moment: Moment) -> Findings:
    action, record = moment.action, moment.record
    if not isinstance(action, Allocate) or record is None or not record.taken:
        return None
    before, after = moment.before, moment.after
    found = []
    if len(set(record.taken)) != len(record.taken):
        found.append(Evidence.of("a block was handed out twice in one allocation", taken=record.taken))
    taken = set(record.taken)
    for group, block, holder in _kept_holders(moment, action.request):
        if block in taken:
            found.append(Evidence.of("a block was handed out while held", block=block, group=group, holder=holder))
    found += [
        Evidence.of("a block was handed out that a deferred free still holds", block=block)
        for block in sorted({block for _, block in ground.held_back(before)} & taken)
    ]
    if before.phase in ground.PLANNING:
        for group, source, destination in before.plan.copies:
            for end in {source, destination} & taken:
                found.append(Evidence.of("an end of a queued copy was handed out", block=end, group=group))
    request = ground.request_of(after, action.request)
    mine = ground.lineage(after.prefixes, request.tip) if request is not None else []
    for node, group, seq, block in after.pool.entries:
        if block not in taken:
            continue
        claim = ground.lineage(after.prefixes, node)
        if seq < before.pool.next_seq or claim[-1] not in mine or not _is_mine(request, group, block, moment):
            found.append(
                Evidence.of("a block was handed out with a key", block=block, group=group, key=node, boundary=len(claim) - 1)
            )
    return found


def _kept_holders(moment: Moment, allocating: int) -> list[tuple[int, int, int]]:
    """Return (group, block, holder) of every table entry that did not become null in this allocation."""
    kept = []
    for request in moment.before.requests:
        now = ground.request_of(moment.after, request.request)
        for group, state in enumerate(request.groups):
            table: tuple[int, ...] = state.table
            if request.request == allocating and now is not None:
                table = _still_there(state, now.groups[group])
            kept += [(group, block, request.request) for block in table if block != ground.NULL]
    return kept


def _still_there(before: GroupState, after: GroupState) -> tuple[int, ...]:
    return tuple(block for block, now in zip(before.table, after.table, strict=False) if block == now)


def _is_mine(request: Request | None, group: int, block: int, moment: Moment) -> bool:
    """Tell whether a keyed new block belongs to the request in the key's group, as an entry or as a copy's end."""
    if request is None:
        return False
    return block in request.groups[group].table or any(
        (g, destination) == (group, block) for g, _, destination in moment.after.plan.copies
    )


def _adopted_not_taken(moment: Moment) -> Findings:
    record = moment.record
    if record is None or not record.adopted:
        return None
    both = set(record.adopted) & set(record.taken)
    if not both:
        return ()
    return [Evidence.of("an adopted block was handed out in the same allocation", block=block) for block in sorted(both)]


def _demand_suffices(moment: Moment) -> Findings:
    # The same test as judge.is_internal, which cannot be imported here: the judge imports the laws' base.
    if isinstance(moment.refusal, ContractBroken | PoolExhausted):
        values = {"refusal": moment.refusal.code, "text": moment.refusal.message}
        return [Evidence.of("an allocation that passed its check failed inside", **values)]
    if moment.record is None or not moment.record.admitted or not isinstance(moment.action, Allocate):
        return None
    free, reserved = len(moment.after.pool.free), moment.action.reserved
    if free < reserved:
        return [Evidence.of("an admission takes blocks that were to stay free", free=free, reserved=reserved)]
    return ()


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
    return [Evidence.of("blocks are not taken from the front of the free queue, or others moved", **values)]


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
    if isinstance(moment.action, Drain) and not deferred:
        queue.give_back(end for _, source, destination in moment.record.copies for end in (source, destination))
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
    if queue.free == list(before.pool.free):
        return [Evidence.of("an action that frees and takes nothing changes the free queue", free=after.pool.free)]
    return [Evidence.of("the free queue is not in eviction order", expected=tuple(queue.free), actual=after.pool.free)]


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
            found.append(
                Evidence.of(
                    "deferred frees leave another queue than immediate ones would",
                    released=released,
                    expected=tuple(queue),
                    actual=after.pool.free,
                )
            )
    return found


def _refused_leaves_nothing(moment: Moment) -> Findings:
    action, record = moment.action, moment.record
    if not isinstance(action, Allocate) or record is None or record.admitted is not False:
        return None
    before, after = moment.before, moment.after
    found = []
    same = (
        ("phase", before.phase == after.phase),
        ("plan", before.plan == after.plan),
        ("steps", before.steps == after.steps),
        ("worker", before.worker == after.worker),
        ("contents", before.contents == after.contents),
        ("prefixes", before.prefixes == after.prefixes),
        ("deferred frees", before.deferred == after.deferred),
        ("keys", before.pool.entries == after.pool.entries and before.pool.next_seq == after.pool.next_seq),
        ("primary keys", before.pool.key_node == after.pool.key_node and before.pool.key_tokens == after.pool.key_tokens),
        ("other requests", _others(moment, action.request)),
    )
    found += [Evidence.of(f"a refused allocation changed the {name}") for name, equal in same if not equal]
    old, new = ground.request_of(before, action.request), ground.request_of(after, action.request)
    if old is None or new is None:
        return [*found, Evidence.of("a refused allocation lost its request", request=action.request)]
    lengths = ("computed", "in_flight", "num_tokens", "placeholders", "stale")
    numbers = (*lengths, "status", "tip", "junction", "num_preemptions", "drop_stale")
    found += [
        Evidence.of(f"a refused allocation changed {name}", before=getattr(old, name), after=getattr(new, name))
        for name in numbers
        if getattr(old, name) != getattr(new, name)
    ]
    nulled: list[int] = []
    for group, (was, now) in enumerate(zip(old.groups, new.groups, strict=True)):
        gone = [block for block, entry in zip(was.table, now.table, strict=False) if block != entry]
        others = _fields(was) != _fields(now) or len(was.table) != len(now.table)
        wrong = [entry for block, entry in zip(was.table, now.table, strict=False) if entry not in (block, ground.NULL)]
        spec = before.config.groups[group]
        if others or wrong or (gone and not (ground.is_recurrent(spec) or ground.is_windowed(spec))):
            found.append(
                Evidence.of("a refused allocation changed more than nulls", group=group, before=was.table, after=now.table)
            )
        nulled += gone
    expected = list(before.pool.ref)
    for block in nulled:
        expected[block] -= 1
    if tuple(expected) != after.pool.ref:
        found.append(Evidence.of("a refused allocation changed references", expected=tuple(expected), actual=after.pool.ref))
    if tuple(block for block in after.pool.free if block in before.pool.free) != before.pool.free:
        found.append(
            Evidence.of("a refused allocation changed the eviction order", before=before.pool.free, after=after.pool.free)
        )
    return found


def _others(moment: Moment, request: int) -> bool:
    before = [other for other in moment.before.requests if other.request != request]
    after = [other for other in moment.after.requests if other.request != request]
    return before == after


def _fields(state: GroupState) -> tuple[object, ...]:
    """Return what nulling and a reserved checkpoint leave alone: not the table, not the count of nulled leading columns."""
    return (
        state.num_cached,
        state.partial_index,
        state.partial_source,
        state.allocated,
        state.tail_block,
        state.tail_boundary,
    )


def _all_given_back(moment: Moment) -> Findings:
    world = moment.after
    if moment.record is None or world.requests or world.steps or world.phase is not Phase.IDLE or _transfers(world):
        return None
    found = []
    for tier, pool in (("device", world.pool), *((("host", world.host.pool),) if world.host is not None else ())):
        held = [block for block, count in enumerate(pool.ref) if count and block != ground.NULL]
        if held or len(pool.free) != len(pool.ref) - 1:
            found.append(Evidence.of("blocks are held by nobody", tier=tier, blocks=held, free=len(pool.free)))
    return found


def _transfers(world: World) -> bool:
    """Tell whether a transfer or a pinned hit is left that will give blocks back."""
    host = world.host
    return host is not None and any((ground_host.all_stores(host), ground_host.all_loads(host), host.queued, host.pending))


def _one_group(moment: Moment) -> Findings:
    world = moment.after
    if moment.record is None or (world.pool is moment.before.pool and world.requests is moment.before.requests):
        return None
    group_of: dict[int, int] = {}
    mixed = set()
    for request in world.requests:
        for group, state in enumerate(request.groups):
            for block in state.table:
                if block and group_of.setdefault(block, group) != group:
                    mixed.add(block)
    for _, group, _, block in world.pool.entries:
        if group_of.setdefault(block, group) != group:
            mixed.add(block)
    for block, group in enumerate(world.pool.key_group):
        if group >= 0 and group_of.setdefault(block, group) != group:
            mixed.add(block)
    if not group_of:
        return None
    return [Evidence.of("a block serves two groups", block=block) for block in sorted(mixed)]


LAWS: tuple[Law, ...] = (
    Law(
        "PC-1",
        "S",
        "The free queue holds each non-null block without references once, and nothing else.",
        "vLLM 0.33.0",
        ("M-POOL-2", "M-PUB-70"),
        on=POOL_CHANGES,
        check=_free_queue,
    ),
    Law(
        "PC-2",
        "D",
        "Free and used blocks, the null block among the used ones, make up the pool.",
        "vLLM 0.33.0",
        ("M-POOL-2",),
        on=POOL_CHANGES,
        check=_sum_of_blocks,
    ),
    Law(
        "PC-3",
        "S",
        "A block has as many references as tables, queued copies and deferred frees name it.",
        "vLLM 0.33.0",
        ("M-POOL-2", "M-LEAK-1", "M-COW-9"),
        on=(*POOL_CHANGES, Lookup),
        check=_counted_references,
    ),
    Law(
        "PC-4",
        "S",
        "No reference count falls below zero.",
        "vLLM 0.33.0",
        ("M-POOL-3",),
        on=POOL_CHANGES,
        check=_no_negative_reference,
    ),
    Law(
        "PC-5",
        "S",
        "A block that is handed out has no owner and no key of its former one.",
        "vLLM 0.33.0",
        ("M-EVICT-1", "M-COW-9"),
        on=(Allocate,),
        check=_handed_out_clean,
    ),
    Law(
        "PC-6",
        "S",
        "No block that an allocation adopts is handed out in the same allocation.",
        "vLLM 0.33.0, #33775",
        ("M-2PH-1",),
        on=(Allocate,),
        check=_adopted_not_taken,
    ),
    Law(
        "PC-7",
        "S",
        "An allocation that passes its check never fails inside, and leaves the blocks free that are reserved for others.",
        "vLLM 0.33.0, #46892",
        ("M-COW-8", "M-DEM-1", "M-PUB-170"),
        on=(Allocate,),
        check=_demand_suffices,
        bent_by=(("recurrent_demand", "capped"), ("lagging_groups", "any")),
    ),
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
        "PC-9",
        "S",
        "A refused allocation changes nothing but entries that are no longer read (and the reserved checkpoint).",
        "vLLM 0.33.0",
        ("M-ATOM-1", "M-PUB-166"),
        on=(Allocate,),
        check=_refused_leaves_nothing,
    ),
    Law(
        "PC-10",
        "S",
        "When no request is left and no step or transfer runs, every block of either pool is free.",
        "vLLM 0.33.0",
        ("M-LEAK-1", "M-LEAK-2"),
        on=(Finish, Output, Execute, Dispatch, CompleteStore, CompleteLoad, ResetHost),
        check=_all_given_back,
    ),
    Law(
        "PC-11",
        "S",
        "All tables and keys that name a block are of one group.",
        "vLLM 0.33.0",
        ("M-KEY-1",),
        on=(*POOL_CHANGES, Lookup),
        check=_one_group,
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
