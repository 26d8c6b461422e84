"""The key of a world: packed numbers that are equal for worlds which differ in names and in past times alone.

One pass over everything that can matter to what comes: blocks, requests, prefix nodes and tokens get labels by first
appearance, numbers that only grow (insertions into the key map, steps, store and load events) are ranked among those that are
still referred to, and what nothing depends on is left out: cumulative counters (their laws are judged on edges), and prefixes
that nobody mentions. ``docs/explore.md`` says why that is sound; ``tests/spec/exploring`` compares with the graph without it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from attrs import fields_dict

from kvproof.core.pool import Pool
from kvproof.core.world import NONE, GroupState, Plan, Request, Scheduled, Step, World
from kvproof.spec.exploring import canonical_host as hosts
from kvproof.spec.exploring.names import Labels

Ranks = dict[int, int]
Entry = tuple[int, int, int, int]


def key(world: World, left: Sequence[int] = (), kept: bool = False) -> bytes:
    """Return the key of a world with what is left of a budget. ``kept``: blocks and tokens keep their names.

    Raises OverflowError if a number does not fit 16 bits: such a world is too large to be explored.
    """
    return packed(world, Labels(world.prefixes, kept), left)


def packed(world: World, labels: Labels, left: Sequence[int] = ()) -> bytes:
    """Return the key of a world and fill in the labels, which then say what the key calls everything."""
    events = hosts.Events.of(world)
    ranks = _insertions(world)
    out: list[int] = [*left, world.phase, len(world.requests)]
    for request in world.requests:
        _request(out, labels, request)
    _hit(out, labels, world)
    _plan(out, labels, world.plan, ranks, events)
    out.append(len(world.steps))
    for step in world.steps:
        _step(out, labels, step, events)
    _frees(out, labels, world)
    _worker(out, labels, world)
    if world.host is not None:
        hosts.transfers(out, labels, world, world.host, events)
    lists(out, labels, (world.pool.free,))
    _blocks(out, labels, world.pool, world.contents, labels.blocks)
    _entries(out, labels, world.pool.entries, labels.blocks, ranks)
    if world.host is not None:
        host = world.host
        hosts.rest(out, labels, host)
        _blocks(out, labels, host.pool, host.contents, labels.hosts)
        _entries(out, labels, host.pool.entries, labels.hosts, _ranked(entry[2] for entry in host.pool.entries))
    return array("h", out).tobytes() + array("h", labels.nodes.spelled).tobytes()


def lists(out: list[int], labels: Labels, found: Iterable[Sequence[int]]) -> None:
    """Add lists of device blocks, each behind its length."""
    for blocks in found:
        out.append(len(blocks))
        out += labels.blocks.all(blocks)


def _ranked(numbers: Iterable[int]) -> Ranks:
    return {number: rank for rank, number in enumerate(sorted(set(numbers)))}


def _insertions(world: World) -> Ranks:
    """Rank the insertions into the key map that an entry, or a key record of the open plan, still refers to."""
    found = [entry[2] for entry in world.pool.entries]
    for _, records in world.plan.undo:
        found += [entry[2] for record in records for entry in record.entries]
    return _ranked(found)


def _request(out: list[int], labels: Labels, request: Request) -> None:
    out += (
        labels.requests[request.request],
        labels.nodes[request.tip],
        labels.contexts[request.context],  # the root of the tip says it, too, unless a fault loses it
        request.num_tokens,
        request.num_prompt,
        request.skip_reading,
        request.status,
        request.computed,
        request.in_flight,
        request.junction,
        request.num_preemptions > 0,
        request.placeholders,
        request.stale,
        request.drop_stale,
        request.loaded,
    )
    for group in request.groups:
        _group(out, labels, group)
    if type(request) is not Request:
        _beyond(out, request)


def _beyond(out: list[int], request: Request) -> None:
    """Add what a planted fault keeps with a request beyond the fields of the model: worlds that differ in it are two.

    It stands there with the names of this world: then more worlds than need be are followed, and never fewer.
    """
    known = fields_dict(Request)
    text = repr([getattr(request, name) for name in fields_dict(type(request)) if name not in known]).encode()
    out += (len(text), *text)


def _group(out: list[int], labels: Labels, group: GroupState) -> None:
    lists(out, labels, (group.table,))
    out += (
        group.num_cached,
        group.partial_index,
        labels.blocks[group.partial_source],
        group.allocated,
        group.retired,
        labels.blocks[group.tail_block],
        group.tail_boundary,
        group.checkpoint_position,
        group.checkpoint_column,
    )


def _hit(out: list[int], labels: Labels, world: World) -> None:
    hit = world.hit
    if hit is None:
        out.append(-1)
        return
    out += (labels.requests[hit.request], hit.local, hit.junction, hit.diverged)
    lists(out, labels, hit.lists)


def _scheduled(out: list[int], labels: Labels, entries: Sequence[Scheduled]) -> None:
    out.append(len(entries))
    for entry in entries:
        out += (
            labels.requests[entry.request],
            entry.start,
            entry.amount,
            entry.fresh,
            entry.loaded_from,
            entry.samples,
            entry.pending,
            labels.nodes[entry.tip],
            entry.row,
            entry.loaded,
            len(entry.drafts),
        )
        out += labels.tokens.all(entry.drafts)


def _copies(out: list[int], labels: Labels, copies: Sequence[tuple[int, int, int]]) -> None:
    out.append(len(copies))
    for group, source, destination in copies:
        out += (group, labels.blocks[source], labels.blocks[destination])


def _handoffs(out: list[int], labels: Labels, handoffs: Sequence[tuple[int, int, int, int]]) -> None:
    out.append(len(handoffs))
    for request, group, block, boundary in handoffs:
        out += (labels.requests[request], group, labels.blocks[block], boundary)


def _plan(out: list[int], labels: Labels, plan: Plan, ranks: Ranks, events: hosts.Events) -> None:
    _scheduled(out, labels, plan.scheduled)
    _copies(out, labels, plan.copies)
    _handoffs(out, labels, plan.handoffs)
    _handoffs(out, labels, plan.drained)
    out.append(len(plan.zero))
    for group, block in plan.zero:
        out += (group, labels.blocks[block])
    out.append(len(plan.cached))
    for node, group, request in plan.cached:
        out += (labels.nodes[node], group, labels.requests[request])
    out.append(len(plan.undo))
    for request, records in plan.undo:
        out += (labels.requests[request], len(records))
        for record in records:
            node, group, tokens = record.primary
            out += (labels.blocks[record.block], labels.nodes[node], group, tokens)
            _entries(out, labels, record.entries, labels.blocks, ranks)
    for requests in (plan.preempted, plan.preempted_before):
        out.append(len(requests))
        out += labels.requests.all(requests)
    out += (events.stores[plan.store], events.loads[plan.load])


def _step(out: list[int], labels: Labels, step: Step, events: hosts.Events) -> None:
    _scheduled(out, labels, step.scheduled)
    _copies(out, labels, step.copies)
    lists(out, labels, (step.zero,))
    out += (step.part, step.opened, step.flush, events.stores[step.store], events.loads[step.load], len(step.due))
    out += labels.requests.all(step.due)


def _frees(out: list[int], labels: Labels, world: World) -> None:
    """Add the frees that wait, their fences counted from the steps that are processed."""
    out += (world.issued - world.processed, len(world.deferred))
    for free in world.deferred:
        out += (free.fence - world.processed, len(free.tables))
        lists(out, labels, free.tables)


def _worker(out: list[int], labels: Labels, world: World) -> None:
    """Add the rows; their entries are kernel blocks, ``append_expansion`` of them to a block.

    A row that belongs to nobody and that no step will read is emptied before it is used again: of it the lengths count, which
    bound what may be appended to it.
    """
    worker, factor = world.worker, world.config.append_expansion
    busy = {entry.row for step in world.steps if step.part < len(world.config.parts) for entry in step.scheduled}
    for row, owner in enumerate(worker.owners):
        out.append(labels.requests[owner])
        used = owner != NONE or row in busy
        for rows in worker.rows:
            out.append(len(rows[row]))
            if used:
                out += [labels.blocks[entry // factor] * factor + entry % factor for entry in rows[row]]
        if used:
            out += worker.columns[row]
            out.append(worker.accepted[row])


def _blocks(out: list[int], labels: Labels, pool: Pool, contents: Sequence[Sequence[int]], names: dict[int, int]) -> None:
    """Add what is said of each block and what is in it, in the order of the labels."""
    for block in range(len(pool.ref)):
        names[block]  # a block that stands nowhere gets its label now
    nodes = labels.nodes
    for block in sorted((block for block in names if block >= 0), key=names.__getitem__):
        cells = contents[block]
        out += (pool.ref[block], nodes[pool.key_node[block]], pool.key_group[block], pool.key_tokens[block], len(cells))
        if cells:
            out.append(cells[0])
            out += nodes.all(cells[1:])


def _entries(out: list[int], labels: Labels, entries: Sequence[Entry], names: dict[int, int], ranks: Ranks) -> None:
    """Add entries of a key map in the order of their insertion."""
    out.append(len(entries))
    for node, group, inserted, block in sorted(entries, key=_insertion):
        out += (labels.nodes[node], group, ranks[inserted], names[block])


def _insertion(entry: Entry) -> int:
    return entry[2]
