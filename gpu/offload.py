"""The host tier on tensors: pins, stores, loads, their completion and reset (docs/semantics.md T20, T24 to T34).

Which blocks are worth storing is the scheduler's decision; the host blocks that they go to, the columns that a load fills, the
keys that a stored block brings along, and all references are found here.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kvproof.core import geometry
from kvproof.core.config import Config
from kvproof.gpu import copies, freeing, keys
from kvproof.gpu import pool as pools
from kvproof.gpu.pool import TensorError
from kvproof.gpu.told import Told
from kvproof.gpu.world import (
    NONE,
    Host,
    Load,
    Pinned,
    Request,
    Stage,
    Step,
    Store,
    TensorWorld,
    can,
    fresh_holdings,
)

CPU = torch.device("cpu")


def host_of(world: TensorWorld) -> Host:
    """Return the host tier. Raises TensorError if there is none."""
    if world.host is None:
        raise TensorError("this world has no host tier (3.5)")
    return world.host


# --- lookups and loads ------------------------------------------------------------------------------------------------


def look_up(world: TensorWorld, request: Request, start: int) -> None:
    """Pin what the host offers behind ``start`` tokens, and give back what an earlier lookup pinned (T20)."""
    host = host_of(world)
    unpin(host, request.request)
    length, lists = keys.look_up_host(world, host.pool, request, start)
    if length:
        pools.touch(host.pool, torch.cat(lists))
        host.pinned[request.request] = Pinned(start, length, lists)


def unpin(host: Host, request: int) -> None:
    """Give back what a request has pinned, if anything (CP-4)."""
    pinned = host.pinned.pop(request, None)
    if pinned is not None:
        pools.release(host.pool, torch.cat(pinned.lists))


def first_column(size: int, start: int) -> int:
    """Return the column of the first block behind ``start`` tokens (T29, LD-1)."""
    return start // size


def mapping(world: TensorWorld, request: Request, pinned: Pinned, accepted: int) -> tuple[Tensor, Tensor]:
    """Return the device and host blocks of the copies that bring ``accepted`` tokens of a hit into the tables (T29).

    Raises TensorError if a table has no such column.
    """
    device, host = [], []
    for group, spec in enumerate(world.config.groups):
        if not spec.prefix_cacheable:
            continue
        size, table = world.config.sizes[group], request.groups[group].table
        blocks = pinned.lists[group][: geometry.ceil_div(accepted, size)]
        first = first_column(size, pinned.start)
        columns = torch.arange(first, first + blocks.numel())[blocks != pools.NULL_BLOCK]
        if columns.numel() and int(columns[-1]) >= table.numel():
            raise TensorError(f"group {group} has {table.numel()} columns, column {int(columns[-1])} is loaded (T29)")
        device.append(table[columns.to(table.device)])
        host.append(pools.held(blocks))
    return torch.cat(device), torch.cat(host)


def after_allocation(world: TensorWorld, request: Request, external: int, load: bool) -> None:
    """Begin the load that an admission asks for, or give back what it had pinned (T29)."""
    host = world.host
    if host is None:
        return
    if not load:
        unpin(host, request.request)
        return
    pinned = host.pinned.pop(request.request)
    device, blocks = mapping(world, request, pinned, external)
    pools.touch(host.pool, blocks)
    pools.release(host.pool, torch.cat(pinned.lists))
    pools.touch(world.pool, device)
    held = world.config.offload is not None and world.config.offload.hold_loads
    host.loads.append(Load(request.request, device, blocks, pinned.start, world.issued if held else 0))


def destinations(world: TensorWorld) -> Tensor:
    """Return the device blocks that loads will fill: nobody zeroes them (LD-8)."""
    loads = [] if world.host is None else [load.device for load in world.host.loads]
    return torch.cat(loads) if loads else world.pool.free[:0]


# --- stores -----------------------------------------------------------------------------------------------------------


def reserve(world: TensorWorld, device: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Take a host block for each of these device blocks, and pin these (CP-3, HO-4)."""
    blocks = pools.ids(device, world.device)
    taken = pools.take(host_of(world).pool, len(device))
    pin(world, blocks)
    return blocks, taken


def pin(world: TensorWorld, blocks: Tensor) -> None:
    """Hold the device blocks of a store until it is complete (HO-4)."""
    pools.touch(world.pool, blocks)


def build(world: TensorWorld, told: Told) -> None:
    """Make the store and the load events of a step (T0 part 6); queued stores of finished requests join behind its own."""
    host = world.host
    if host is None:
        return
    queued, host.queued = host.queued, []
    own = len(told.store_device) - sum(blocks.numel() for blocks, _ in queued)
    pairs = [reserve(world, told.store_device[:own]), *queued]
    device, taken = torch.cat([pair[0] for pair in pairs]), torch.cat([pair[1] for pair in pairs])
    if device.numel():
        host.stores.append(Store(host.next_store, device, taken))
        world.plan.store, host.next_store = host.next_store, host.next_store + 1
    due = [load for load in host.loads if load.stage is Stage.WAITING and load.fence <= world.processed]
    for load in due:
        load.event, load.stage = host.next_load, Stage.BUILT
    if due:
        world.plan.load, host.next_load = host.next_load, host.next_load + 1


def every_store(host: Host) -> list[Store]:
    """Return the running and the abandoned stores."""
    return [*host.stores, *host.abandoned_stores]


def every_load(host: Host) -> list[Load]:
    """Return the running, the waiting and the abandoned loads."""
    return [*host.loads, *host.abandoned_loads]


def run_part(world: TensorWorld, step: Step, part: str) -> None:
    """Hand over what a part of a step submits, or wait for what runs (T0 execute a, g, h)."""
    host, offload = world.host, world.config.offload
    if host is None or offload is None:
        return
    same = offload.store_submission == "same_step"
    if part == ("submit" if same else "flush"):
        parts = len(world.config.parts)
        later = {world.plan.store, *(other.store for other in world.steps if other.part < parts)}
        for store in every_store(host):
            due = store.event == step.store if same else store.event not in later
            if due and store.stage is Stage.BUILT:
                store.stage = Stage.SUBMITTED
    if part == "submit":
        for load in every_load(host):
            if load.event == step.load and load.stage is Stage.BUILT:
                load.stage = Stage.SUBMITTED
    if part == "flush" and step.flush:
        flush(world, host)


def flush(world: TensorWorld, host: Host) -> None:
    """Run every submitted transfer, stores first, each direction oldest first (T0 a)."""
    for event in sorted(store.event for store in every_store(host) if store.stage is Stage.SUBMITTED):
        run_store(world, event)
    for event in sorted({load.event for load in every_load(host) if load.stage is Stage.SUBMITTED}):
        run_load(world, event)


def run_store(world: TensorWorld, event: int) -> None:
    """Copy the blocks of a store to the host (CC-5)."""
    for store in every_store(host_of(world)):
        if store.event == event:
            copies.store(world, store.device, store.host)
            store.stage = Stage.COPIED


def run_load(world: TensorWorld, event: int) -> None:
    """Copy the blocks of all loads of an event to the device (CC-6)."""
    for load in every_load(host_of(world)):
        if load.event == event:
            copies.load(world, load.host, load.device)
            load.stage = Stage.COPIED


# --- completion -------------------------------------------------------------------------------------------------------


def complete_store(world: TensorWorld, event: int, acks: int) -> None:
    """Count reports of a store; behind the last one the host blocks get the keys that the device blocks carry now (T28)."""
    host, offload = host_of(world), world.config.offload
    assert offload is not None, "a world with a host tier has its settings"
    store = next((store for store in every_store(host) if store.event == event), None)
    if store is None:
        return
    store.acks += acks
    if store.acks < offload.workers:
        return
    world.streams.settle()
    if store in host.stores:
        for source, destination in zip(store.device.tolist(), store.host.tolist(), strict=True):
            for key, tokens in pools.keys_of(world.pool, source):
                pools.insert(host.pool, destination, key, tokens)
    host.stores = [other for other in host.stores if other is not store]
    host.abandoned_stores = [other for other in host.abandoned_stores if other is not store]
    pools.release(host.pool, store.host)
    pools.release(world.pool, store.device)


def end_load(world: TensorWorld, load: Load) -> None:
    """Forget a load and give back its references, the host's blocks first (T30)."""
    host = host_of(world)
    host.loads = [other for other in host.loads if other is not load]
    host.abandoned_loads = [other for other in host.abandoned_loads if other is not load]
    pools.release(host.pool, load.host)
    pools.release(world.pool, load.device)


def complete_load(world: TensorWorld, request: int, failed: bool, valid: int) -> None:
    """Process the report of a load (T30): a failed one leaves its request what is valid, or nothing."""
    load = next(load for load in every_load(host_of(world)) if load.request == request)
    world.streams.settle()
    end_load(world, load)
    if load.finished:
        freeing.release_tables(world, load.held)
        return
    live = world.requests.get(request)
    if live is None or not (failed or load.condemned):
        return
    kept = 0 if load.condemned else valid_prefix(world.config, load.start, valid)
    if kept:
        live.computed = kept
    else:
        start_again(world, live)


def valid_prefix(config: Config, start: int, valid: int) -> int:
    """Return the tokens that a request keeps of a failed load with ``valid`` leading ones (C-45)."""
    cached = [group for group, spec in enumerate(config.groups) if can(config, group).cacheable and spec.prefix_cacheable]
    if not all(can(config, group).prefix_closed for group in cached):
        return 0
    return max(start, valid // config.scheduler_block_size * config.scheduler_block_size)


def start_again(world: TensorWorld, request: Request) -> None:
    """Take everything from a request whose load brought nothing (T30, C-45)."""
    freeing.free_request(world, request)
    request.status, request.computed, request.loaded = request.waiting, 0, False
    request.groups = fresh_holdings(world)


def promote(world: TensorWorld, request: Request) -> None:
    """Register what was loaded, and let the request wait for its chunk with its blocks (T30, LD-6)."""
    before = list(world.plan.registered)
    keys.register(world, request, request.computed, request.computed)
    if world.config.profile.loaded_keys != "this_step":
        world.plan.registered = before  # what was loaded is there already: nobody has to wait a step for it
    request.status, request.loaded = request.waiting, True
    request.computed = min(request.computed, request.num_tokens - 1)
    world.hit = None  # what another request hit is admitted directly behind its lookup or looked up again (T37)


def finish(world: TensorWorld, request: Request, told: Told) -> bool:
    """Queue the last stores of a request, drop its pins, and tell whether its blocks wait for its load (T27, T32)."""
    host = world.host
    if host is None:
        return False
    if told.store_device:
        host.queued.append(reserve(world, told.store_device))
    unpin(host, request.request)
    load = next((load for load in every_load(host) if load.request == request.request), None)
    if load is None:
        return False
    if load.event == NONE:
        end_load(world, load)
        return False
    load.finished, load.held = True, [holding.table for holding in request.groups]
    return True


def reset(world: TensorWorld) -> None:
    """Reset the host tier: what runs is abandoned, what waits is dropped, the keys go if nothing was abandoned (T34)."""
    host = host_of(world)
    for request in list(host.pinned):
        unpin(host, request)
    for device, taken in host.queued:
        pools.release(world.pool, device)
        pools.release(host.pool, taken)
    host.queued = []
    for load in [load for load in host.loads if load.event == NONE]:
        end_load(world, load)
        start_again(world, world.requests[load.request])
    host.abandoned_loads += host.loads
    host.abandoned_stores += host.stores
    host.loads, host.stores = [], []
    if not host.abandoned_loads and not host.abandoned_stores:
        pools.reset(host.pool)
