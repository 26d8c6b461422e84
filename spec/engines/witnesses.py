"""Interesting situations, counted: a verdict says which of them were really reached (architecture, "witnesses").

A situation that no engine ever reaches says that the laws were not tried there; ``kvproof check`` then does not pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from attrs import define, field

from kvproof.core import actions as act
from kvproof.core import prefixes
from kvproof.core.records import Record
from kvproof.core.world import Phase, Request, Status, World
from kvproof.spec.engines import host_sightings, sightings
from kvproof.spec.laws.base import Moment

NAMES: tuple[str, ...] = (
    "hit",
    "hit inside a block",
    "hit after eviction",
    "hit by a resend of a running request",
    "divergent hit",
    "junction",
    "same tokens under another context",
    "reading skipped",
    "refused admission",
    "refused continuation",
    "same-step state refused",
    "resume after preemption",
    "resume with a hit",
    "external tokens",
    "external tokens behind a local hit",
    "consumer copies an attention tail",
    "consumer copies a state",
    "copy-on-write across DCP ranks",
    "producer moves keys",
    "producer moves a handoff",
    "promotion",
    "key inside a block",
    "second key on a block",
    "same content keyed twice",
    "eviction of a keyed block",
    "shared block adopted",
    "state retired",
    "handoff",
    "two requests in one step",
    "empty step",
    "withdrawal",
    "withdrawal with rolled back keys",
    "preemption",
    "preemption with a queued handoff",
    "preemption between plans",
    "finish with a step in flight",
    "finish while waiting",
    "keys evicted from a block in use",
    "cache reset",
    "refused reset",
    "rows appended",
    "row refusal",
    "running state moves to a new column",
    "state read",
    *sightings.NAMES,
    *host_sightings.NAMES,
    "external hit after eviction",
    "hit at an internal checkpoint",
    "execution refused before an output",
    "resume refused before a late output",
)

_REFUSALS = {
    "row-capacity": "row refusal",
    "output-pending": "execution refused before an output",
    "stale-output": "resume refused before a late output",
}
"""Situations that a refusal shows, by its code."""


@define(slots=True)
class Tracker:
    """Counts the situations of one run, moment by moment.

    ``lost`` holds the keys that a reused block lost, ``inside`` those of internal checkpoints; both are (node, group).
    """

    counts: Counter[str] = field(factory=Counter)
    lost: set[tuple[int, int]] = field(factory=set)
    inside: set[tuple[int, int]] = field(factory=set)

    def observe(self, moment: Moment) -> None:
        """Count what this moment shows."""
        record = moment.record
        if record is None:
            name = _REFUSALS.get(moment.refusal.code) if moment.refusal is not None else None
            if name is not None:
                self.counts[name] += 1
            return
        handler = _HANDLERS.get(type(moment.action))
        if handler is not None:
            handler(self, moment, record)
        self.counts.update(sightings.at(moment, record))
        if moment.before.host is not None:
            self.counts.update(host_sightings.at(moment, record))

    def count(self, name: str, condition: bool = True) -> None:
        """Count a situation if it is there."""
        if condition:
            self.counts[name] += 1


def _request(world: World, number: int) -> Request:
    return next(request for request in world.requests if request.request == number)


def _submit(tracker: Tracker, moment: Moment, record: Record) -> None:
    del record
    assert isinstance(moment.action, act.Submit)
    tracker.count("reading skipped", moment.action.skip_reading)


def _lookup(tracker: Tracker, moment: Moment, record: Record) -> None:
    assert isinstance(moment.action, act.Lookup)
    world, config = moment.before, moment.before.config
    request = _request(world, moment.action.request)
    hit = record.local > 0
    tracker.count("hit", hit)
    tracker.count("hit inside a block", any(record.local % size for size in config.sizes))
    tracker.count("divergent hit", record.diverged)
    tracker.count("junction", record.junction > 0)
    if hit:
        adopted = {block for blocks in record.lists for block in blocks if block}
        tracker.count("hit by a resend of a running request", any(world.pool.ref[block] for block in adopted))
    if not tracker.lost and not world.pool.entries:
        return
    nodes = prefixes.boundary_nodes(world.prefixes, request.tip, config.hash_block_size)
    if hit and tracker.inside:
        end = nodes[record.local // config.hash_block_size - 1]
        tracker.count("hit at an internal checkpoint", any((end, group) in tracker.inside for group in config.snapshots))
    if hit and tracker.lost:
        chain = set(nodes[record.local // config.hash_block_size :])
        tracker.count("hit after eviction", any(node in chain for node, _ in tracker.lost))
    tracker.count("same tokens under another context", bool(nodes) and _other_context(world, request))


def _lookup_external(tracker: Tracker, moment: Moment, record: Record) -> None:
    assert isinstance(moment.action, act.LookupExternal)
    world, unit = moment.before, moment.before.config.hash_block_size
    if record.external and tracker.lost:
        nodes = prefixes.boundary_nodes(world.prefixes, _request(world, moment.action.request).tip, unit)
        hit = set(nodes[moment.action.start // unit : (moment.action.start + record.external) // unit])
        tracker.count("external hit after eviction", any(node in hit for node, _ in tracker.lost))


def _other_context(world: World, request: Request) -> bool:
    """Tell whether the first hash block of a request is keyed under another context."""
    table, unit = world.prefixes, world.config.hash_block_size
    tokens = [table.token[node] for node in prefixes.path(table, request.tip, 0, unit)]
    keyed = {entry[0] for entry in world.pool.entries}
    for root, depth in enumerate(table.depth):
        if depth or table.token[root] == request.context:
            continue
        node = root
        for token in tokens:
            node = prefixes.child(table, node, token)
            if node < 0:
                break
        if node in keyed:
            return True
    return False


def _allocate(tracker: Tracker, moment: Moment, record: Record) -> None:
    action = moment.action
    assert isinstance(action, act.Allocate)
    before, after, config = moment.before, moment.after, moment.before.config
    request = _request(before, action.request)
    first = request.status is not Status.RUNNING
    if not record.admitted:
        tracker.count("same-step state refused", record.demand > config.num_blocks)
        tracker.count("refused admission" if first else "refused continuation", record.demand <= config.num_blocks)
        return
    if request.status is Status.PREEMPTED:
        tracker.count("resume after preemption")
        tracker.count("resume with a hit", action.local > 0)
    if action.external:
        tracker.count("external tokens")
        tracker.count("external tokens behind a local hit", action.local > 0)
    tracker.count("shared block adopted", any(before.pool.ref[block] for block in record.adopted))
    evicted = [block for block in record.taken if before.pool.key_node[block] >= 0]
    if evicted:
        tracker.count("eviction of a keyed block")
        tracker.lost.update((node, group) for node, group, _, block in before.pool.entries if block in evicted)
    if config.checkpoint_alignment is not None:
        tracker.inside.update(sightings.checkpoints(after, action.request))
    _copies(tracker, before, after, first)
    handoffs = len(after.plan.handoffs) > len(before.plan.handoffs)
    tracker.count("handoff", handoffs)
    if after.pool.entries != before.pool.entries:
        _keys(tracker, before, after, record)
    was, now = before.pool.ref, after.pool.ref
    tracker.count("state retired", not first and any(a > b for a, b in zip(was, now, strict=True)))


def _copies(tracker: Tracker, before: World, after: World, first: bool) -> None:
    config = before.config
    for group, _, copy in after.plan.copies[len(before.plan.copies) :]:
        recurrent = group in config.recurrent
        if first:
            tracker.count("consumer copies a state" if recurrent else "consumer copies an attention tail")
            tracker.count("copy-on-write across DCP ranks", config.dcp_size > 1)
        elif recurrent:
            tracker.count("producer moves keys")
            moved = [handoff for handoff in after.plan.handoffs[len(before.plan.handoffs) :] if handoff[2] == copy]
            tracker.count("producer moves a handoff", bool(moved))


def _keys(tracker: Tracker, before: World, after: World, record: Record) -> None:
    was, now, sizes = before.pool, after.pool, before.config.sizes
    for block, tokens in enumerate(now.key_tokens):
        if block not in record.taken and 0 < was.key_tokens[block] < tokens:
            tracker.count("promotion")
    owned: Counter[int] = Counter()
    keyed: Counter[tuple[int, int]] = Counter()
    old = set(was.entries)
    for entry in now.entries:
        node, group, _, block = entry
        owned[block] += 1
        keyed[node, group] += 1
        if entry not in old:
            tracker.count("key inside a block", bool(after.prefixes.depth[node] % sizes[group]))
    tracker.count("second key on a block", max(owned.values(), default=0) > 1)
    tracker.count("same content keyed twice", max(keyed.values(), default=0) > 1)


def _withdraw(tracker: Tracker, moment: Moment, record: Record) -> None:
    del record
    tracker.count("withdrawal")
    tracker.count("withdrawal with rolled back keys", moment.before.pool.entries != moment.after.pool.entries)


def _preempt(tracker: Tracker, moment: Moment, record: Record) -> None:
    del record
    tracker.count("preemption")
    tracker.count("preemption between plans", moment.before.phase is Phase.IDLE)


def _withdrawn_or_preempted(tracker: Tracker, moment: Moment, record: Record) -> None:
    (_withdraw if isinstance(moment.action, act.Withdraw) else _preempt)(tracker, moment, record)
    fewer = len(moment.after.plan.handoffs) < len(moment.before.plan.handoffs)
    tracker.count("preemption with a queued handoff", fewer)


def _dispatch(tracker: Tracker, moment: Moment, record: Record) -> None:
    del moment
    tracker.count("two requests in one step", len(record.scheduled) > 1)
    tracker.count("empty step", not record.scheduled)


def _finish(tracker: Tracker, moment: Moment, record: Record) -> None:
    del record
    assert isinstance(moment.action, act.Finish)
    request = _request(moment.before, moment.action.request)
    tracker.count("finish with a step in flight", request.in_flight > 0)
    tracker.count("finish while waiting", request.status is not Status.RUNNING)


def _evict(tracker: Tracker, moment: Moment, record: Record) -> None:
    del record
    assert isinstance(moment.action, act.EvictBlocks)
    pool = moment.before.pool
    tracker.count("keys evicted from a block in use", any(pool.ref[block] for block in moment.action.blocks))
    gone = [entry for entry in pool.entries if entry[3] in moment.action.blocks]
    tracker.lost.update((node, group) for node, group, _, _ in gone)


def _reset(tracker: Tracker, moment: Moment, record: Record) -> None:
    tracker.count("cache reset", record.done and bool(moment.before.pool.entries))
    tracker.count("refused reset", not record.done)


def _append(tracker: Tracker, moment: Moment, record: Record) -> None:
    del moment, record
    tracker.count("rows appended")


def _execute(tracker: Tracker, moment: Moment, record: Record) -> None:
    assert isinstance(moment.action, act.Execute)
    if moment.action.part == "precopy":
        tracker.count("running state moves to a new column", moment.before.contents != moment.after.contents)
    tracker.count("state read", bool(record.reads))


_HANDLERS: dict[type[act.Action], Callable[[Tracker, Moment, Record], None]] = {
    act.Submit: _submit,
    act.Lookup: _lookup,
    act.LookupExternal: _lookup_external,
    act.Allocate: _allocate,
    act.Withdraw: _withdrawn_or_preempted,
    act.Preempt: _withdrawn_or_preempted,
    act.Dispatch: _dispatch,
    act.Finish: _finish,
    act.EvictBlocks: _evict,
    act.ResetCache: _reset,
    act.AppendRows: _append,
    act.Execute: _execute,
}
