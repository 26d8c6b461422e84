"""Laws of the block pool: references, the free queue, taking and giving back (semantics 5.7)."""

from __future__ import annotations

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
from kvproof.core.world import GroupState, Phase, Request, World
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


def _refused_leaves_nothing(moment: Moment) -> Findings:
    action, record = moment.action, moment.record
    if not isinstance(action, Allocate) or record is None or not ground.put_off(record):
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
)
