"""Situations that one action shows by itself: windows, drafts, checkpoints, steps in flight, late outputs, waiting frees.

Each function looks at one kind of action and yields the names of what it sees; ``witnesses`` counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import lookup, prefixes
from kvproof.core.config import Config
from kvproof.core.pool import NULL_BLOCK
from kvproof.core.records import Record
from kvproof.core.world import NONE, Phase, Request, Status, World
from kvproof.spec import judge as judges
from kvproof.spec.engines import flight
from kvproof.spec.laws.base import Moment

NAMES: tuple[str, ...] = (
    "divergent hit looked up anew",
    "window entry nulled",
    "hit with leading nulls",
    "hit behind whole local chunks",
    "EAGLE drop shortened a hit",
    "stable state adopted",
    "scratch block taken",
    "junction pinned",
    "retention mask left a block unkeyed",
    "admission gate refused",
    "internal checkpoint reserved",
    "internal checkpoint reserved in vain",
    "speculative block relocated",
    "plan with drafts",
    "draft accepted",
    "draft rejected",
    "drafts rejected across a block edge",
    "accepted drafts cut at the model length",
    "accepted state copied to its column",
    "running state moves behind accepted drafts",
    "key registered by an output",
    "two steps in flight",
    "plan over tokens still to come",
    "planned step corrected by an output",
    "step executed while a plan is open",
    "step executed before the output of the one before",
    "tokens never known computed for a finished request",
    "preemption with a step in flight",
    "withdrawal with a step in flight",
    "late output delivered",
    "late output dropped",
    "output of a finished request ignored",
    "resume before a dropped output",
    "free deferred",
    "deferred free released",
    "refused while frees wait",
    "event of a new key",
    "event of a lost key",
    "event of a cleared cache",
    "external tokens did not arrive",
    "external tokens arrived in part",
    "external tokens of a finished request did not arrive",
    "another request starts again for tokens that did not arrive",
    "late output dropped for tokens that did not arrive",
    "refused to keep blocks free",
    "admitted with blocks kept free",
)
"""What :func:`at` may yield; ``witnesses`` adds the ones that need a memory."""

_EVENTS = {"stored": "event of a new key", "removed": "event of a lost key", "cleared": "event of a cleared cache"}


def at(moment: Moment, record: Record) -> Iterator[str]:
    """Yield the names of the situations that an accepted action shows."""
    yield from dict.fromkeys(_EVENTS[event.kind] for event in record.events)
    if moment.before.phase is not Phase.IDLE and isinstance(moment.action, act.Execute):
        yield "step executed while a plan is open"
    seen = _SEEN.get(type(moment.action))
    if seen is not None:
        yield from seen(moment, moment.action, record)
    if len(moment.after.deferred) > len(moment.before.deferred):
        yield "free deferred"
    elif moment.after.processed > moment.before.processed and moment.after.deferred != moment.before.deferred:
        yield "deferred free released"


def _request(world: World, number: int) -> Request:
    return next(request for request in world.requests if request.request == number)


def _windowed(config: Config) -> list[int]:
    return [index for index, group in enumerate(config.groups) if group.window is not None]


# --- lookup and allocation ----------------------------------------------------------------------------------------


def _lookup(moment: Moment, action: act.Lookup, record: Record) -> Iterator[str]:
    world, config = moment.before, moment.before.config
    if action.common and world.hit is not None and world.hit.diverged:
        yield "divergent hit looked up anew"
    if record.local:
        for group in _windowed(config):
            if record.lists[group][:1] == (NULL_BLOCK,):
                sliding = config.groups[group].kind == "sliding_window"
                yield "hit with leading nulls" if sliding else "hit behind whole local chunks"
    if any(config.eagle):
        request = _request(world, action.request)
        nodes = prefixes.boundary_nodes(world.prefixes, request.tip, config.hash_block_size)
        undropped = lookup.lookup(evolve(config, eagle=(False,) * len(config.groups)), world.pool, request, nodes)
        if undropped.local > record.local:
            yield "EAGLE drop shortened a hit"


def _allocate(moment: Moment, action: act.Allocate, record: Record) -> Iterator[str]:
    config = moment.before.config
    before, after = _request(moment.before, action.request), _request(moment.after, action.request)
    for group in _windowed(config):
        now = after.groups[group].table
        if any(was != NULL_BLOCK == now[column] for column, was in enumerate(before.groups[group].table)):
            yield "window entry nulled"
    if not record.admitted:
        yield from _refused(moment, action, record, after)
        return
    if action.reserved:
        yield "admitted with blocks kept free"
    first = before.status is not Status.RUNNING
    if before.placeholders:
        yield "plan over tokens still to come"
    if first and before.stale:
        yield "resume before a dropped output"
    if action.drafts:
        yield "plan with drafts"
    if record.relocated:
        yield "speculative block relocated"
    if first and action.local and set(config.recurrent) - set(config.snapshots):
        yield "stable state adopted"
    if first and any(not group.prefix_cacheable for group in config.groups):
        yield "scratch block taken"
    if any(state.checkpoint_column != NONE for state in after.groups):
        yield "internal checkpoint reserved"
    yield from _registered(moment, action, before, after)


def _refused(moment: Moment, action: act.Allocate, record: Record, request: Request) -> Iterator[str]:
    if any(state.checkpoint_column != NONE for state in request.groups):
        yield "internal checkpoint reserved in vain"
    waiting = sum(1 for free in moment.before.deferred for table in free.tables for block in table if block != NULL_BLOCK)
    if waiting and record.demand <= record.free_before + waiting:
        yield "refused while frees wait"
    if action.reserved and record.demand <= record.free_before:
        yield "refused to keep blocks free"
    if action.full_sequence:
        ungated = judges.attempt(moment.before, evolve(action, full_sequence=False)).record
        if ungated is not None and ungated.admitted:
            yield "admission gate refused"


def _registered(moment: Moment, action: act.Allocate, before: Request, after: Request) -> Iterator[str]:
    """Yield what the registration of an admitted chunk shows: a pinned junction, a block that the mask passed over."""
    config, pool = moment.before.config, moment.after.pool
    if config.retention is not None:
        for was, state in zip(before.groups, after.groups, strict=True):
            passed = state.table[max(was.num_cached, 0) : max(state.num_cached, 0)]
            if any(block != NULL_BLOCK and pool.key_node[block] < 0 for block in passed):
                yield "retention mask left a block unkeyed"
    if config.pins_junctions and before.junction and after.computed + action.new_tokens == before.junction:
        node = prefixes.ancestor(moment.after.prefixes, after.tip, before.junction)
        was_keys = {entry[:2] for entry in moment.before.pool.entries}
        if any((node, group) in {entry[:2] for entry in pool.entries} - was_keys for group in config.snapshots):
            yield "junction pinned"


def checkpoints(world: World, number: int) -> set[tuple[int, int]]:
    """Return the keys (node, group) of the internal checkpoints that a request's allocation has just registered."""
    request = _request(world, number)
    found = set()
    for group, state in enumerate(request.groups):
        if state.checkpoint_column == NONE:
            continue
        block = state.table[state.checkpoint_column]
        if world.pool.key_tokens[block] == state.checkpoint_position:
            found.add((world.pool.key_node[block], group))
    return found


# --- steps and outputs --------------------------------------------------------------------------------------------


def _dispatch(moment: Moment, action: act.Dispatch, record: Record) -> Iterator[str]:
    del action
    if len(moment.after.steps) > 1 and record.scheduled and moment.before.steps[0].scheduled:
        yield "two steps in flight"


def _execute(moment: Moment, action: act.Execute, record: Record) -> Iterator[str]:
    del record
    world = moment.before
    step = flight.unexecuted(world)
    assert step is not None
    if action.part == "forward" and step is not world.steps[0] and world.steps[0].due:
        yield "step executed before the output of the one before"
    if action.part == "forward" and any(entry.pending for entry in step.scheduled):
        yield "tokens never known computed for a finished request"
    if action.part == "precopy" and any(world.worker.accepted[entry.row] > 1 for entry in step.scheduled):
        yield "running state moves behind accepted drafts"


def _failed(moment: Moment, action: act.Output, record: Record) -> Iterator[str]:
    """Yield what the report shows that a connector's tokens did not arrive: for whose chunk, and who else read them (T36.2)."""
    world = moment.before
    yield (
        "external tokens arrived in part"
        if action.valid > flight.due_share(world, action.request).loaded_from
        else ("external tokens did not arrive")
    )
    if flight.live(world, action.request) is None:
        yield "external tokens of a finished request did not arrive"
    if set(record.preempted) - {action.request}:
        yield "another request starts again for tokens that did not arrive"
    kept = {request.request for request in world.requests if request.stale and not request.drop_stale}
    if any(request.request in kept and request.drop_stale for request in moment.after.requests):
        yield "late output dropped for tokens that did not arrive"


def _output(moment: Moment, action: act.Output, record: Record) -> Iterator[str]:
    if action.failed:
        yield from _failed(moment, action, record)
        return
    world, config = moment.before, moment.before.config
    request, share = flight.live(world, action.request), flight.due_share(world, action.request)
    if request is None:
        yield "output of a finished request ignored"
        return
    if request.stale:
        yield "late output dropped" if request.drop_stale else "late output delivered"
        return
    if moment.after.pool.entries != world.pool.entries:
        yield "key registered by an output"
    if moment.after.contents != world.contents:
        yield "accepted state copied to its column"
    if len(moment.after.steps) == len(world.steps) > 1 or len(world.steps) > len(moment.after.steps) > 0:
        if moment.after.steps[-1].scheduled != world.steps[-1].scheduled and any(
            one.start != other.start
            for one, other in zip(moment.after.steps[-1].scheduled, world.steps[-1].scheduled, strict=True)
        ):
            yield "planned step corrected by an output"
    if share.drafts and action.tokens:
        yield from _verdict(config, request, share.start + share.amount, len(share.drafts), len(action.tokens) - 1)


def _verdict(config: Config, request: Request, end: int, drafts: int, accepted: int) -> Iterator[str]:
    """Yield what became of a chunk's drafts: it ends at ``end`` with so many of them, so many are accepted."""
    if accepted:
        yield "draft accepted"
    if accepted < drafts:
        yield "draft rejected"
        kept = end - drafts + accepted
        if any(-(-kept // size) != -(-end // size) for size in config.sizes):
            yield "drafts rejected across a block edge"
    if request.num_tokens + accepted + 1 == config.max_model_len and accepted < drafts:
        yield "accepted drafts cut at the model length"


def _preempt(moment: Moment, action: act.Preempt | act.Withdraw, record: Record) -> Iterator[str]:
    del record
    request = _request(moment.before, action.request)
    if request.in_flight > request.stale:
        yield "withdrawal with a step in flight" if isinstance(action, act.Withdraw) else "preemption with a step in flight"


_SEEN: dict[type[act.Action], Callable[[Moment, Any, Record], Iterator[str]]] = {
    act.Lookup: _lookup,
    act.Allocate: _allocate,
    act.Dispatch: _dispatch,
    act.Execute: _execute,
    act.Output: _output,
    act.Preempt: _preempt,
    act.Withdraw: _preempt,
}
