"""The law of the order in which host blocks are given back and taken: PC-15, what PC-8 is for the device (semantics 5.7).

What an action gives back stands where T3 puts it; the rest of the queue stays as it is, and stores take from its front. A store
that is complete is keyed before its blocks are given back (T28): given back first, they would stand with the worthless ones.
"""

from __future__ import annotations

from attrs import evolve

from kvproof.core.actions import CompleteStore, ResetHost
from kvproof.core.offload.state import Host
from kvproof.spec import ground_host
from kvproof.spec.laws.base import Evidence, Findings, Law, Moment
from kvproof.spec.laws.eviction import EVICTION_ORDER


def _host_queue(moment: Moment) -> Findings:
    before, after, record = moment.before.host, moment.after.host, moment.record
    if before is None or after is None or record is None or before.pool is after.pool:
        return None
    queue = _expected(moment, before, after)
    if queue == after.pool.free == before.pool.free:
        return None
    taken = tuple(block for block in record.store_host if block in before.pool.free)
    if taken != before.pool.free[: len(taken)]:
        text = "a store does not take host blocks from the front of the free queue"
        return [_order(Evidence.of(text, tier="host", taken=taken, free=before.pool.free))]
    if queue == after.pool.free:
        return ()
    text = "the host's free queue is not in eviction order"
    return [_order(Evidence.of(text, tier="host", before=before.pool.free, expected=queue, actual=after.pool.free))]


def _expected(moment: Moment, before: Host, after: Host) -> tuple[int, ...]:
    """Return the queue that the blocks in it should make: unkeyed ones that were given back, what stayed, keyed ones.

    A reset gives back before it clears the keys (T34).
    """
    known = before.pool.key_node if isinstance(moment.action, ResetHost) else after.pool.key_node
    joined = _given_back(moment, before, after)
    front = [block for block in joined if known[block] < 0]
    stayed = [block for block in before.pool.free if block in after.pool.free]
    return (*front, *stayed, *(block for block in joined if known[block] >= 0))


def _given_back(moment: Moment, before: Host, after: Host) -> list[int]:
    """Return the blocks that joined the queue, in the order of the store that ended, or as they stand there."""
    old = set(before.pool.free)
    joined = [block for block in after.pool.free if block not in old]
    if isinstance(moment.action, CompleteStore):
        ended = [one for one in ground_host.all_stores(before) if one.event == moment.action.event]
        listed = [block for one in ended for block in one.host if block in joined]
        if sorted(listed) == sorted(joined):
            return listed
    return joined


def _order(wrong: Evidence) -> Evidence:
    """Return evidence on the order of the queue: one of one's own is a policy (PM-6)."""
    return evolve(wrong, permitted_by=EVICTION_ORDER)


LAWS: tuple[Law, ...] = (
    Law(
        id="PC-15",
        mark="D",
        sentence="Host blocks that are given back stand, unkeyed, before all others, or keyed behind them, those of a complete "
        "store by the keys that it gave them; stores take the front, and nothing else moves the queue.",
        source="vLLM 0.33.0",
        faults=("M-LRU-2",),
        check=_host_queue,
    ),
)
