"""Opening, closing and dispatching a plan (T0 parts 1 and 4 to 7, T23)."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import freeing, geometry, requests, worker
from kvproof.core.config import Config
from kvproof.core.errors import TooManyRunning
from kvproof.core.offload import counters, loads, metadata
from kvproof.core.prefixes import Prefixes
from kvproof.core.records import Record
from kvproof.core.world import NONE, Phase, Plan, Request, Scheduled, Status, Step, Worker, World


def begin(world: World) -> tuple[World, Record]:
    """Open a plan: what recurrent groups registered in the last one is forgotten (T0 part 1, LV-1)."""
    return evolve(world, phase=Phase.PLAN_RUNNING, plan=fresh_plan(world.plan)), Record("BeginStep")


def fresh_plan(previous: Plan) -> Plan:
    """Return the plan of a new step: early preemptions and handoffs published by outputs carry over (T0 part 1, T31, T23)."""
    return Plan(handoffs=previous.handoffs, preempted_before=previous.preempted_before)


def drain(world: World) -> tuple[World, Record]:
    """Hand out handoffs, copies and the zero list, and release the copies' references (T23, T0 parts 4 and 5)."""
    plan = world.plan
    copies = tuple(sorted(plan.copies, key=lambda copy: copy[0]))
    handoffs = tuple(sorted(plan.handoffs, key=lambda handoff: handoff[1]))
    world = freeing.free_ends(world, copy_ends(copies))
    # Copies and the zero list stay with the plan until dispatch, they just hold no references of it any more.
    loaded = loads.destinations(world)
    filled = evolve(plan, zero=tuple(entry for entry in plan.zero if entry[1] in loaded))
    zero = tuple(entry for entry in plan.zero if entry[1] not in loaded)
    offered = handoffs if world.host is not None else ()
    plan = evolve(plan, copies=copies, handoffs=left_over_handoffs(plan), zero=zero, undo=(), drained=offered)
    world = evolve(world, phase=Phase.DRAINED, plan=plan, hit=None)
    return world, Record("Drain", copies=copies, handoffs=handoffs, zeroed=zero_list(plan), destinations=zero_list(filled))


def zero_list(plan: Plan) -> tuple[int, ...]:
    """Return the blocks to be zeroed, group by group, in the order of taking within a group (T0 b)."""
    return tuple(block for _, block in sorted(plan.zero, key=lambda entry: entry[0]))


def copy_ends(copies: tuple[tuple[int, int, int], ...]) -> tuple[int, ...]:
    """Return the ends whose references a drain gives back: copy by copy, source before destination (T0 part 5)."""
    return tuple(end for _, source, destination in copies for end in (source, destination))


def left_over_handoffs(plan: Plan) -> tuple[tuple[int, int, int, int], ...]:
    """Return the handoffs that stay queued after a drain: none (T23, HO-2)."""
    del plan
    return ()


def build(world: World) -> tuple[World, Record]:
    """Build the metadata of the step (T0 part 6); without a host tier nothing but the phase changes."""
    if world.host is not None:
        return metadata.build(world, world.host)
    return evolve(world, phase=Phase.BUILT), Record("BuildMetadata")


def dispatch(world: World) -> tuple[World, Record]:
    """Write the worker's rows, advance the scheduled requests, and hand the step to execution (T0 part 7).

    Raises RowCapacityExceeded or TooManyRunning; rows and counts are then unchanged (but see ``append_guard``).
    """
    plan = world.plan
    running = {request.request: request for request in world.requests}
    table, tips = chunk_tips(world, running)
    rows, entries = write_rows(world, running)
    entries = tuple(evolve(entry, tip=tip) for entry, tip in zip(entries, tips, strict=True))
    advanced = tuple(advance(world.config, request, entries) for request in world.requests)
    step = Step(
        scheduled=entries,
        copies=plan.copies,
        zero=zero_list(plan),
        part=0,
        due=tuple(entry.request for entry in entries),
        store=plan.store,
        load=plan.load,
        flush=world.host is not None and metadata.flushes(plan),
    )
    world = evolve(
        world,
        phase=Phase.IDLE,
        prefixes=table,
        requests=advanced,
        plan=Plan(cached=plan.cached, handoffs=plan.handoffs),
        steps=(*world.steps, step),
        worker=rows,
        issued=world.issued + (1 if entries and world.config.defer_block_free else 0),
    )
    amounts = tuple((entry.request, entry.amount) for entry in entries)
    return world, Record(
        "Dispatch",
        scheduled=amounts,
        preempted=plan.preempted_before + plan.preempted,
        local_lengths=local_lengths(world, entries),
        pending_work=world.host is not None and counters.pending_work(world.host),
    )


def local_lengths(world: World, entries: tuple[Scheduled, ...]) -> tuple[tuple[int, ...], ...]:
    """Return per scheduled request its end and how many tokens below it each rank holds of a sharded group (2.6)."""
    config = world.config
    return tuple(
        (
            entry.request,
            entry.start + entry.amount,
            *(
                geometry.local_length(entry.start + entry.amount, rank, config.dcp_size, config.interleave)
                for rank in range(config.dcp_size)
            ),
        )
        for entry in entries
    )


def chunk_tips(world: World, live: dict[int, Request]) -> tuple[Prefixes, list[int]]:
    """Return the prefix table with all drafts of the plan, and per scheduled chunk the node it ends at (T36)."""
    table, tips = world.prefixes, []
    for entry in world.plan.scheduled:
        table, tip = requests.chunk_tip(table, live[entry.request].tip, entry)
        tips.append(tip)
    return table, tips


def advance(config: Config, request: Request, entries: tuple[Scheduled, ...]) -> Request:
    """Return a request with its scheduled amount counted as computed and in flight, drafts included (T0 part 7).

    With asynchronous outputs, placeholders stand for what the chunk will sample: its drafts and one token more (T36).
    """
    for entry in entries:
        if entry.request == request.request:
            owed = 1 + len(entry.drafts) if config.async_outputs and entry.samples else 0
            return evolve(
                request,
                computed=entry.start + entry.amount,
                in_flight=request.in_flight + entry.amount,
                placeholders=request.placeholders + owed,
            )
    return request


def write_rows(world: World, live: dict[int, Request]) -> tuple[Worker, tuple[Scheduled, ...]]:
    """Bring the worker's rows up to date for every scheduled request (3.6, T37.5).

    Rows of requests that no longer run become free; an admitted or resumed request gets a row whole, a continuing one
    the entries its row lacks.
    """
    busy = busy_rows(world)
    rows = vacate(world, live, busy)
    entries = []
    for entry in world.plan.scheduled:
        request = live[entry.request]
        if entry.fresh:
            row = free_row(rows, busy)
            rows = seed_row(world.config, rows, row, entry)
        else:
            row = rows.owners.index(entry.request)
        missing = tuple(
            state.table[len(rows.rows[group][row]) // world.config.append_expansion :]
            for group, state in enumerate(request.groups)
        )
        rows = worker.append(world, rows, row, missing)
        entries.append(evolve(entry, row=row))
    return rows, tuple(entries)


def busy_rows(world: World) -> frozenset[int]:
    """Return the rows that a dispatched step will still read: nobody else may write them before (T0, two steps in flight)."""
    return frozenset(entry.row for step in world.steps if step.part < len(world.config.parts) for entry in step.scheduled)


def vacate(world: World, live: dict[int, Request], busy: frozenset[int]) -> Worker:
    """Take the rows of requests that no longer run, or are resumed in this plan, from them (3.6, T37.5).

    A row that a step in flight still reads keeps its entries until somebody else gets it.
    """
    rows = world.worker
    fresh = {entry.request for entry in world.plan.scheduled if entry.fresh}
    for row, owner in enumerate(rows.owners):
        if owner != NONE and (owner in fresh or owner not in live or live[owner].status is not Status.RUNNING):
            rows = disown(rows, row) if row in busy else worker.clear_row(rows, row, NONE)
    return rows


def disown(rows: Worker, row: int) -> Worker:
    """Return the worker with a row that belongs to nobody and keeps its entries."""
    return evolve(rows, owners=(*rows.owners[:row], NONE, *rows.owners[row + 1 :]))


def seed_row(config: Config, rows: Worker, row: int, entry: Scheduled) -> Worker:
    """Give an empty row to an admitted or resumed request, its running columns at the start of the chunk (T37.5, 3.6)."""
    columns = tuple(
        worker.seed_column(config, group, entry.start) if group in config.recurrent else NONE
        for group in range(len(config.groups))
    )
    return worker.set_columns(worker.clear_row(rows, row, entry.request), row, columns)


def free_row(rows: Worker, busy: frozenset[int] = frozenset()) -> int:
    """Return the lowest row that belongs to nobody and that no step in flight reads. Raises TooManyRunning."""
    for row, owner in enumerate(rows.owners):
        if owner == NONE and row not in busy:
            return row
    raise TooManyRunning(f"all {len(rows.owners)} worker rows are taken: finish or preempt a request first")
