"""Asynchronous loads: from the pinned hit to copies, their completion and failure (T29, T30, T36.1)."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import contents, freeing, kinds, reachability
from kvproof.core import pool as pools
from kvproof.core.config import Config
from kvproof.core.errors import ContractBroken, LoadMismatch, NothingLoaded
from kvproof.core.offload import external, tracks
from kvproof.core.offload.state import NONE, Host, Load, PendingHit, Stage
from kvproof.core.pool import NULL_BLOCK, Pool
from kvproof.core.records import Record
from kvproof.core.world import GroupState, Request, Status, World

Pairs = tuple[tuple[int, int, int, int], ...]
"""(group, column, device block, host block) of every copy of a load."""


# --- asking for a load (T29) --------------------------------------------------------------------------------------


def check(config: Config, host: Host, action: act.Allocate) -> None:
    """Refuse a load that is not the pinned hit of its request (T20, T29). Raises LoadMismatch."""
    if action.new_tokens or action.lookahead or action.drafts:
        raise LoadMismatch(
            "nothing is computed while a load runs: new_tokens and lookahead are 0 and there are no drafts, the chunk follows "
            "when it is promoted (T37.4)"
        )
    pending = external.pending_hit(host, action.request)
    if pending is None:
        raise LoadMismatch(f"request {action.request} has no external hit: look it up with LookupExternal before (T20)")
    if pending.start != action.local or not may_take(config, action.external, pending.length):
        raise LoadMismatch(
            f"{action.external} external tokens behind {action.local} are not the hit, {pending.length} behind "
            f"{pending.start}: give these (fewer only where every cached group is full attention, in multiples of A, T29)",
            start=pending.start,
            length=pending.length,
        )


def may_take(config: Config, accepted: int, found: int) -> bool:
    """Tell whether a load may take ``accepted`` tokens of a hit of ``found``: less only of one that can be cut (M-LOAD-4).

    The leading blocks of a window or of a recurrent group hold nothing that a request could resume on earlier.
    """
    return accepted == found or (0 < accepted < found and prefix_closed(config) and accepted % config.alignment == 0)


def prefix_closed(config: Config) -> bool:
    """Tell whether every cacheable group is full attention: any shorter prefix of a hit is one too (1.2)."""
    abilities = [kinds.of(group.kind).CAPABILITIES for group in config.groups]
    return all(can.prefix_closed for can in abilities if can.cacheable)


def after_allocation(world: World, host: Host, request: Request, action: act.Allocate) -> tuple[World, Pairs]:
    """Tell the host tier of an admission (T29): its load if it asks for one, else what it has pinned is released.

    ``request`` holds its tables already. Returns the copies of the load.
    """
    host = tracks.begin(world.config, host, request.request)
    pending = external.pending_hit(host, request.request)
    if not action.load or pending is None:
        return evolve(world, host=external.drop_unused(host, request.request)), ()
    pairs = mapping(world, request, pending, action.external)
    device, blocks = tuple(pair[2] for pair in pairs), tuple(pair[3] for pair in pairs)
    load = Load(request.request, device, blocks, fence=fence(world), start=pending.start)
    host = evolve(
        external.without_pending(host, request.request),
        pool=exchange_pins(host.pool, blocks, external.pinned_blocks(pending)),
        loads=(*host.loads, load),
        load_blocks=host.load_blocks + counted_when_asked(load),
    )
    return evolve(world, host=host, pool=pools.touch(world.pool, device)), pairs


def mapping(world: World, request: Request, pending: PendingHit, accepted: int) -> Pairs:
    """Return the copies that bring ``accepted`` tokens of a hit into a request's tables (T29, LD-1 to LD-4).

    Raises ContractBroken if a table has no such column.
    """
    config = world.config
    pairs: list[tuple[int, int, int, int]] = []
    for group in loaded_groups(config):
        size, table = config.sizes[group], request.groups[group].table
        column = first_column(size, local_prefix(world, request, pending))
        for block in pending.lists[group][: blocks_taken(size, accepted)]:
            if is_copied(block):
                if column >= len(table):
                    raise ContractBroken(
                        f"group {group} of request {request.request} has {len(table)} columns, column {column} is loaded (T29)",
                        group=group,
                        column=column,
                    )
                pairs.append((group, column, table[column], block))
            column += 1
    return tuple(pairs)


def loaded_groups(config: Config) -> tuple[int, ...]:
    """Return the groups whose blocks are loaded: the cacheable ones, scratch groups have no keys (T29, M-SCR-1)."""
    return tuple(group for group, spec in enumerate(config.groups) if spec.prefix_cacheable)


def local_prefix(world: World, request: Request, pending: PendingHit) -> int:
    """Return the local tokens that a load continues: those that its lookup was given (T29, M-LOAD-3)."""
    del world, request
    return pending.start


def first_column(size: int, start: int) -> int:
    """Return the column of the first block behind ``start`` tokens, in blocks of ``size`` tokens (T29, LD-1, M-LOAD-2)."""
    return reachability.load_range(start, 0, size)[0]


def blocks_taken(size: int, accepted: int) -> int:
    """Return how many blocks of a group hold ``accepted`` tokens: the last one may be filled partly (T29, LD-1, M-LOAD-1)."""
    return reachability.load_range(0, accepted, size)[1]


def is_copied(block: int) -> bool:
    """Tell whether an entry of a hit is copied: a null one stands for what nobody reads (T29, LD-4, M-LOAD-7)."""
    return block != NULL_BLOCK


def exchange_pins(pool: Pool, chosen: tuple[int, ...], pinned: tuple[int, ...]) -> Pool:
    """Replace the pins of a lookup by those of its load, which come first: no block is free in between (CP-5, M-PIN-1)."""
    return pools.release(pools.touch(pool, chosen), pinned)


def counted_when_asked(load: Load) -> int:
    """Return the blocks that ``load_blocks`` counts when a load is asked for: none, it may never be issued (CN-4, M-CNT-5)."""
    del load
    return 0


def fence(world: World) -> int:
    """Return how many steps must be processed before a load may start (T36.1): with ``hold_loads`` all that were dispatched."""
    held = world.config.offload is not None and world.config.offload.hold_loads
    return world.issued if held else 0


def may_start(world: World, load: Load) -> bool:
    """Tell whether a step's metadata may name a load: it waits, and the steps before it are processed (T36.1, COW-3)."""
    return load.stage is Stage.WAITING and load.fence <= world.processed


def destinations(world: World) -> frozenset[int]:
    """Return the device blocks that loads will fill: nobody zeroes them, loads are not ordered behind it (T0 b, LD-8)."""
    if world.host is None:
        return frozenset()
    return frozenset(block for load in world.host.loads for block in load.device)


# --- completion and failure (T30) ---------------------------------------------------------------------------------


def find(host: Host, request: int) -> Load | None:
    """Return the load of a request, running, waiting or abandoned; None if there is none."""
    return next((load for load in (*host.loads, *host.abandoned_loads) if load.request == request), None)


def mentions(host: Host, request: int) -> bool:
    """Tell whether a transfer still stands for a request id: its load, or a store of its blocks (T30, 3.5)."""
    return find(host, request) is not None or tracks.find(host, request) is not None


def without(host: Host, load: Load) -> Host:
    """Return the host without a load; its references are the caller's."""
    return evolve(
        host,
        loads=tuple(other for other in host.loads if other is not load),
        abandoned_loads=tuple(other for other in host.abandoned_loads if other is not load),
    )


def give_back(world: World, host: Host, load: Load) -> World:
    """End a load: forget it and give back its references, the host's blocks first (T30)."""
    host = evolve(without(host, load), pool=pools.release(host.pool, load.host))
    return evolve(world, host=host, pool=pools.release(world.pool, load.device))


def reported(host: Host, request: int) -> Load:
    """Return the load that a worker reports: one that is there and copied. Raises NothingLoaded."""
    load = find(host, request)
    if load is None or not is_reportable(load):
        state = "no load" if load is None else f"a load that is {load.stage.name}, not COPIED"
        raise NothingLoaded(
            f"request {request} has {state}: a load is reported once, after its bytes moved with RunLoad (T30)", request=request
        )
    return load


def is_reportable(load: Load) -> bool:
    """Tell whether a load may be reported complete: its bytes have moved (T30, LD-7)."""
    return load.stage is Stage.COPIED


def complete(world: World, host: Host, action: act.CompleteLoad) -> tuple[World, Record]:
    """Process the report of a load (T30): its references go; a failed one leaves its request what is valid, or nothing.

    If the request has finished meanwhile, its blocks are freed now. Raises NothingLoaded, or LoadMismatch for more valid
    tokens than the request counts as computed.
    """
    load = reported(host, action.request)
    request = next((other for other in world.requests if other.request == action.request), None)
    if action.failed and request is not None and not 0 <= action.valid <= request.computed:
        raise LoadMismatch(
            f"{action.valid} tokens are reported valid, request {action.request} would have {request.computed}: give the valid "
            "prefix, local tokens included (T30)",
            valid=action.valid,
            computed=request.computed,
        )
    host = evolve(host, load_blocks=host.load_blocks + counted_when_complete(load))
    world = give_back(world, host, load)
    if load.finished:
        return free_held(world, load), Record("CompleteLoad", freed=True)
    if request is not None and (action.failed or load.condemned):
        world = fail(world, load, request, action.valid)
    return world, Record("CompleteLoad")


def counted_when_complete(load: Load) -> int:
    """Return the blocks that ``load_blocks`` counts when a load is complete: all of it, it was issued (CN-4)."""
    return len(load.device)


def free_held(world: World, load: Load) -> World:
    """Free the tables of a request that finished while it was loading (T30, LD-7)."""
    return evolve(world, pool=freeing.release_tables(world.pool, load.held))


def fail(world: World, load: Load, request: Request, valid: int) -> World:
    """Settle a failed load (T30, C-45): what did not arrive is garbage; the request keeps a valid prefix or starts again.

    With something kept it is promoted like a loaded one.
    """
    kept = 0 if load.condemned else valid_prefix(world.config, load.start, valid)
    world = evolve(world, contents=spoiled(world, load, request, kept))
    if kept:
        requests = tuple(evolve(other, computed=kept) if other is request else other for other in world.requests)
        return evolve(world, requests=requests)
    return start_again(world, request)


def valid_prefix(config: Config, start: int, valid: int) -> int:
    """Return the tokens that a request keeps of a failed load with ``valid`` leading ones, local ones included (C-45, HB-10).

    Where every cached group is full attention, as far as all of them end a block there. A window or a recurrent group has
    nothing to go on with at a shorter prefix: none.
    """
    if not prefix_closed(config):
        return 0
    return max(start, valid // config.scheduler_block_size * config.scheduler_block_size)


def spoiled(world: World, load: Load, request: Request, kept: int) -> tuple[contents.Cells, ...]:
    """Return the contents in which the destinations of a failed load behind ``kept`` tokens hold garbage."""
    memory = list(world.contents)
    for group in loaded_groups(world.config):
        spec, size = world.config.groups[group], world.config.sizes[group]
        cells = contents.block_cells(group in world.config.recurrent, spec.block_size, world.config.dcp_size)
        for column, block in enumerate(request.groups[group].table):
            if block in load.device and (column + 1) * size > kept:
                memory[block] = contents.garbage(group, cells)
    return tuple(memory)


def start_again(world: World, request: Request) -> World:
    """Take everything from a request whose load brought nothing: it waits as if it had never been admitted (T30, C-45)."""
    world = freeing.free_request(world, request)
    fresh = evolve(
        request,
        status=waiting_status(request),
        computed=0,
        groups=(GroupState(),) * len(request.groups),
        loaded=False,
    )
    return evolve(world, requests=tuple(fresh if other is request else other for other in world.requests))


def waiting_status(request: Request) -> Status:
    """Return the status of a request that waits: PREEMPTED if it ran before (T30)."""
    return Status.PREEMPTED if request.num_preemptions else Status.WAITING


# --- finishing while loading (T32) --------------------------------------------------------------------------------


def at_finish(world: World, request: Request) -> tuple[World, bool]:
    """Tell the load of a request that it finishes; returns whether its blocks have to stay until the load is reported.

    A load that was never issued will not be reported: it ends here (T30, T32).
    """
    host = world.host
    load = None if host is None else find(host, request.request)
    if host is None or load is None:
        return world, False
    if not must_wait(load):
        return give_back(world, host, load), False
    return evolve(world, host=marked(host, load, request)), True


def must_wait(load: Load) -> bool:
    """Tell whether the blocks of a finished request must stay for its load: the worker knows it (LD-7, M-LOAD-5, M-LOAD-6)."""
    return load.event != NONE


def condemned(host: Host, load: Load) -> Host:
    """Return the host with a load of which nothing will be kept (C-48)."""
    return replaced(host, load, evolve(load, condemned=True))


def marked(host: Host, load: Load, request: Request) -> Host:
    """Return the host whose load holds the tables of its finished request until it is reported (T30)."""
    return replaced(host, load, evolve(load, finished=True, held=tuple(state.table for state in request.groups)))


def replaced(host: Host, load: Load, by: Load) -> Host:
    """Return the host with one running, waiting or abandoned load replaced."""
    return evolve(
        host,
        loads=tuple(by if other is load else other for other in host.loads),
        abandoned_loads=tuple(by if other is load else other for other in host.abandoned_loads),
    )


# --- reset (T34) --------------------------------------------------------------------------------------------------


def at_reset(world: World, host: Host) -> tuple[World, Host]:
    """Do the loads' part of a reset of the host tier (T34): issued ones run on, abandoned; waiting ones never start.

    The request of such a load would wait for ever: it starts again (LV-3).
    """
    waiting = tuple(load for load in host.loads if not must_wait(load))
    for load in waiting:
        host = evolve(without(host, load), pool=pools.release(host.pool, load.host))
        world = evolve(world, pool=pools.release(world.pool, load.device))
        world = start_again(world, next(other for other in world.requests if other.request == load.request))
    return world, evolve(host, loads=(), abandoned_loads=host.abandoned_loads + host.loads)
