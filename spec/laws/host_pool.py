"""Laws of the host pool: pins, destinations, completions and resets: family CP (semantics 5.8)."""

from __future__ import annotations

from kvproof.core.actions import (
    Allocate,
    BuildMetadata,
    CompleteStore,
    Finish,
    LookupExternal,
    Output,
    ResetHost,
)
from kvproof.core.errors import ContractBroken, PoolExhausted
from kvproof.core.offload.state import Counters, Host
from kvproof.spec import ground, ground_host
from kvproof.spec.laws.base import Evidence, Findings, Law, Moment


def _hosts(moment: Moment) -> tuple[Host, Host] | None:
    """Return the host tier before and after an action that was not refused, None where there is none."""
    before, after = moment.before.host, moment.after.host
    return None if moment.record is None or before is None or after is None else (before, after)


# --- CP-1 -----------------------------------------------------------------------------------------------------------


def _conserved(moment: Moment) -> Findings:
    """CP-1: PC-1 to PC-5 for the host pool."""
    if isinstance(moment.refusal, ContractBroken) and moment.before.host is not None and "host" in moment.refusal.values:
        return [Evidence.of("a release would take a host reference below zero", **dict(moment.refusal.values))]
    hosts = _hosts(moment)
    if hosts is None or hosts[0] is hosts[1]:
        return None
    before, host = hosts
    pool, found = host.pool, []
    free = set(pool.free)
    unused = {block for block, count in enumerate(pool.ref) if count == 0 and block != ground.NULL}
    if len(free) != len(pool.free) or free != unused:
        found.append(Evidence.of("the host's free queue is not what has no references", free=pool.free, unused=sorted(unused)))
    if len(pool.free) + 1 + sum(1 for count in pool.ref[1:] if count > 0) != len(pool.ref):
        found.append(Evidence.of("free and used host blocks do not make up the pool", free=len(pool.free)))
    expected = ground_host.references(host)
    found += [
        Evidence.of("a host block's references are not those that are counted", block=block, ref=ref, counted=count)
        for block, (ref, count) in enumerate(zip(pool.ref, expected, strict=True))
        if block != ground.NULL and ref != count
    ]
    taken = moment.record.store_host if moment.record is not None else ()
    joined = {block for waiting in before.queued for block in waiting.host}
    for block in set(taken) - joined:
        if before.pool.ref[block] or ground_host.keys_of(pool, block):
            found.append(Evidence.of("a host block is handed out while held, or with a key", block=block))
    return found


# --- CP-2, CP-3 -----------------------------------------------------------------------------------------------------


def _keys_at_completion(moment: Moment) -> Findings:
    """CP-2: a host key appears when the store of its block completes, for no other block."""
    hosts = _hosts(moment)
    if hosts is None:
        return None
    before, host = hosts
    new = [entry for entry in host.pool.entries if entry not in before.pool.entries]
    if not new:
        return () if host.stores or before.stores else None
    completed: set[int] = set()
    if isinstance(moment.action, CompleteStore):
        store = next((store for store in before.stores if store.event == moment.action.event), None)
        if store is not None and store not in host.stores and ground_host.store_of(host, store.event) is None:
            completed = set(store.host)
    return [
        Evidence.of("a host block is keyed although no store of it completed", block=block, key=node, group=group)
        for node, group, _, block in new
        if block not in completed
    ]


def _destinations_wait(moment: Moment) -> Findings:
    """CP-3: as long as its store runs or is queued, a destination is pinned and has no key."""
    hosts = _hosts(moment)
    if hosts is None:
        return None
    host = hosts[1]
    blocks = [block for store in ground_host.all_stores(host) for block in store.host]
    blocks += [block for left in host.queued for block in left.host]
    if not blocks:
        return None
    keyed = {block for _, _, _, block in host.pool.entries}
    found = [
        Evidence.of("the destination of a running store is keyed, or not pinned", block=block, ref=host.pool.ref[block])
        for block in blocks
        if host.pool.ref[block] < 1 or block in host.pool.free or block in keyed or host.pool.key_node[block] >= 0
    ]
    if len(set(blocks)) != len(blocks):
        found.append(Evidence.of("two stores have one destination", blocks=sorted(blocks)))
    return found


# --- CP-4 to CP-6 ---------------------------------------------------------------------------------------------------


def _pins_end_once(moment: Moment) -> Findings:
    """CP-4: a pinned hit ends with the next lookup, the allocation or the end of its request, a reset, or the report that its
    tokens did not arrive for another request, and is released.
    """
    hosts = _hosts(moment)
    if hosts is None or not (hosts[0].pending or hosts[1].pending):
        return None
    before, host = hosts
    action, record = moment.action, moment.record
    ended: set[int] = set()
    if isinstance(action, LookupExternal | Finish) or (isinstance(action, Allocate) and record is not None and record.admitted):
        ended = {action.request}
    elif isinstance(action, ResetHost):
        ended = {hit.request for hit in before.pending}
    elif isinstance(action, Output):
        ended = ground.doubting(moment.before, action)
    found = []
    kept = [hit for hit in before.pending if hit.request not in ended]
    new = [hit for hit in host.pending if hit not in kept]
    for hit in kept:
        if hit not in host.pending:
            found.append(Evidence.of("a pinned hit goes although nothing ends it", request=hit.request, start=hit.start))
    if new and not isinstance(action, LookupExternal):
        found.append(Evidence.of("a pinned hit outlives what ends it", requests=tuple(hit.request for hit in new)))
    if len({hit.request for hit in host.pending}) != len(host.pending):
        found.append(Evidence.of("a request has two pinned hits", pending=host.pending))
    counted = ground_host.references(host)
    pinned = {block for hit in (*before.pending, *host.pending) for block in ground_host.pinned(hit)}
    found += [
        Evidence.of("the pin of a hit is not given back once", block=block, ref=host.pool.ref[block], counted=counted[block])
        for block in sorted(pinned)
        if host.pool.ref[block] != counted[block]
    ]
    return found


def _never_unpinned_between(moment: Moment) -> Findings:
    """CP-5: from the pin of the lookup to that of the load a chosen host block is held throughout.

    An allocation that would touch a block nobody holds ends in a broken contract; what it leaves is pinned either way.
    """
    action, before = moment.action, moment.before.host
    if not isinstance(action, Allocate) or not action.load or before is None:
        return None
    hit = ground_host.pending_of(before, action.request)
    if isinstance(moment.refusal, ContractBroken):
        values = dict(moment.refusal.values)
        if hit is not None and values.get("block") in set(ground_host.pinned(hit)):
            return [Evidence.of("a host block is held by nobody while its pin becomes a load's", **values)]
        return None
    after = moment.after.host
    if moment.record is None or not moment.record.admitted or after is None:
        return None
    load = ground_host.load_of(after, action.request)
    return [
        Evidence.of(
            "the source of a load is not pinned", block=block, before=before.pool.ref[block], after=after.pool.ref[block]
        )
        for block in (load.host if load is not None else ())
        if before.pool.ref[block] < 1 or after.pool.ref[block] < 1
    ]


def _aligned_or_nothing(moment: Moment) -> Findings:
    """CP-6: behind a misaligned local prefix nothing is offered, and nothing pinned."""
    hosts, action = _hosts(moment), moment.action
    if hosts is None or moment.record is None or not isinstance(action, LookupExternal):
        return None
    if action.start % ground.scheduler_block(moment.before.config) == 0:
        return None
    left = ground_host.pending_of(hosts[1], action.request)
    if moment.record.external or left is not None or any(block for blocks in moment.record.lists for block in blocks):
        return [
            Evidence.of(
                "a misaligned local prefix gets external tokens, or pins blocks",
                request=action.request,
                start=action.start,
                external=moment.record.external,
                pending=left,
            )
        ]
    return ()


# --- CP-7, CP-9 -----------------------------------------------------------------------------------------------------


def _one_budget(moment: Moment) -> Findings:
    """CP-7: what a step, or a finished request, stores fits in the host blocks that are free."""
    before = moment.before.host
    if before is None:
        return None
    if isinstance(moment.refusal, PoolExhausted | ContractBroken):
        return [
            Evidence.of("storing takes more host blocks than are free", room=len(before.pool.free), **moment.refusal.values)
        ]
    if moment.record is None or not moment.record.store_device:
        return None
    joined = {block for waiting in before.queued for block in waiting.host}
    queued = joined if isinstance(moment.action, BuildMetadata) else set()
    taken = [block for block in moment.record.store_host if block not in queued]
    if len(set(taken)) == len(taken) and set(taken) <= set(before.pool.free):
        return ()
    return [Evidence.of("stores share a host block, or take one that is not free", taken=taken, free=before.pool.free)]


def _all_workers(moment: Moment) -> Findings:
    """CP-9: a store is complete when every worker has reported it, and not before."""
    hosts, action = _hosts(moment), moment.action
    if hosts is None or not isinstance(action, CompleteStore):
        return None
    before, host = hosts
    store = ground_host.store_of(before, action.event)
    offload = moment.before.config.offload
    if store is None or offload is None:
        return None
    left = ground_host.store_of(host, action.event)
    acks = store.acks + action.acks
    if (left is None) == (acks == offload.workers) and (left is None or left.acks == acks):
        return ()
    return [
        Evidence.of(
            "a store is complete without the last report, or not with it",
            event=action.event,
            acks=acks,
            workers=offload.workers,
            left=left,
        )
    ]


# --- CP-10 to CP-12 -------------------------------------------------------------------------------------------------


def _lazy_keeps_no_books(moment: Moment) -> Findings:
    """CP-10: stored lazily, nothing is tracked, queued or counted."""
    hosts = _hosts(moment)
    if hosts is None or ground_host.is_eager(moment.after):
        return None
    host = hosts[1]
    kept = {
        "tracks": host.tracks,
        "in_flight": host.in_flight,
        "queued": host.queued,
        "counters": () if host.counters == Counters() else host.counters,
        "drained": () if host.drained == Counters() else host.drained,
    }
    wrong = {name: value for name, value in kept.items() if value}
    return [Evidence.of("a lazy host tier keeps what only an eager one has", **wrong)] if wrong else ()


def _numbers_grow(moment: Moment) -> Findings:
    """CP-11: event numbers only grow, across resets too; a report of an unknown event changes nothing."""
    hosts, action, record = _hosts(moment), moment.action, moment.record
    if hosts is None or record is None or (hosts[0] is hosts[1] and not isinstance(action, CompleteStore)):
        return None
    before, host = hosts
    found = []
    if host.next_store < before.next_store or host.next_load < before.next_load:
        found.append(Evidence.of("event numbers start again", store=host.next_store, load=host.next_load))
    if isinstance(action, BuildMetadata):
        for name, event, was, now in (
            ("store", record.store_event, before.next_store, host.next_store),
            ("load", record.load_event, before.next_load, host.next_load),
        ):
            if event >= 0 and not was <= event < now:
                found.append(Evidence.of(f"a {name} event gets a number that is not new", event=event, next=was, after=now))
    if isinstance(action, CompleteStore) and ground_host.store_of(before, action.event) is None:
        if record.done or moment.after != moment.before:
            found.append(Evidence.of("the report of an unknown store changes something", event=action.event))
    return found


def _reset_leaves_nothing(moment: Moment) -> Findings:
    """CP-12: after a reset that succeeded the host has no keys and holds no block."""
    hosts = _hosts(moment)
    if hosts is None or moment.record is None or not isinstance(moment.action, ResetHost):
        return None
    host = hosts[1]
    running = bool(ground_host.all_stores(host) or host.abandoned_loads)
    if not moment.record.done:
        return () if running else [Evidence.of("a reset does not clear the keys although nothing runs")]
    held = [block for block, count in enumerate(host.pool.ref) if count and block != ground.NULL]
    if held or host.pool.entries or running or host.queued or host.loads or host.pending:
        return [Evidence.of("a reset leaves keys, pins or transfers", held=held, keys=host.pool.entries)]
    return ()


LAWS: tuple[Law, ...] = (
    Law(
        id="CP-1",
        mark="S",
        sentence="The host pool's free queue and references are those counted from pinned hits, loads and stores; what is "
        "handed out had no owner and loses its keys.",
        source="#54736",
        faults=("M-LEAK-2", "M-PUB-96", "M-PUB-128"),
        check=_conserved,
    ),
    Law(
        id="CP-2",
        mark="S",
        sentence="Host keys appear when the store of their block completes, and at no other moment.",
        source="vLLM 0.33.0",
        faults=("M-EARLY-1",),
        check=_keys_at_completion,
    ),
    Law(
        id="CP-3",
        mark="S",
        sentence="The destination of a store that is queued or runs is pinned, without a key, and of no other store.",
        source="vLLM 0.33.0",
        faults=("M-EARLY-1",),
        check=_destinations_wait,
    ),
    Law(
        id="CP-4",
        mark="S",
        sentence="A pinned hit is held until its request is looked up again, admitted or finished, the host is reset, or a "
        "failed load of another request casts doubt on it, and released once then.",
        source="#54736",
        faults=("M-LEAK-2", "M-PUB-174"),
        check=_pins_end_once,
    ),
    Law(
        id="CP-5",
        mark="S",
        sentence="While the pin of a hit becomes that of a load, no chosen host block is without a reference.",
        source="vLLM 0.33.0",
        faults=("M-PIN-1",),
        on=(Allocate,),
        check=_never_unpinned_between,
    ),
    Law(
        id="CP-6",
        mark="S",
        sentence="Behind a misaligned local prefix nothing is offered and nothing pinned.",
        source="#54736",
        faults=("M-MIS-1",),
        on=(LookupExternal,),
        check=_aligned_or_nothing,
    ),
    Law(
        id="CP-7",
        mark="S",
        sentence="Handoffs, the scan, and what finished requests leave share the free host blocks and never take more.",
        source="#54736",
        faults=("M-CPU-1",),
        on=(BuildMetadata, Finish),
        check=_one_budget,
    ),
    Law(
        id="CP-9",
        mark="S",
        sentence="A store completes with the report of its last worker.",
        source="vLLM 0.33.0",
        faults=("M-ACK-1",),
        on=(CompleteStore,),
        check=_all_workers,
    ),
    Law(
        id="CP-10",
        mark="D",
        sentence="Stored lazily, nothing is tracked, in flight, queued or counted.",
        source="#54736",
        faults=("M-LAZY-2",),
        check=_lazy_keeps_no_books,
    ),
    Law(
        id="CP-11",
        mark="S",
        sentence="Event numbers strictly increase, across resets too; the report of an unknown event changes nothing.",
        source="vLLM 0.33.0",
        faults=("M-RST-1",),
        check=_numbers_grow,
    ),
    Law(
        id="CP-12",
        mark="S",
        sentence="After a reset that succeeded the host has no key and holds no block; one that fails has transfers running.",
        source="vLLM 0.33.0",
        faults=("M-RST-2",),
        on=(ResetHost,),
        check=_reset_leaves_nothing,
    ),
)
