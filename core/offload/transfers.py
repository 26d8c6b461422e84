"""The worker's side of the transfers: when a step hands them over, and the bytes they move (T0 execute a, d, g, h, i).

One stream per direction, first in first out. Bytes move when the driver runs a copy, or where a step waits for all.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from kvproof.core import contents
from kvproof.core.contents import Cells
from kvproof.core.errors import TransferOrder
from kvproof.core.offload.settings import Offload
from kvproof.core.offload.state import NONE, Host, Load, Stage, Store
from kvproof.core.world import Step, World


def run_part(world: World, host: Host, step: Step, part: str) -> World:
    """Do what a part of a step does to the transfers (T0): hand some over, or wait for those that run."""
    offload = world.config.offload
    assert offload is not None, "a world with a host tier has its settings"
    if part == store_part(offload):
        host = hand_over_stores(host, due_stores(world, offload, step))
    if part == load_part():
        host = hand_over_loads(host, step.load)
    world = evolve(world, host=host)
    if part == "flush" and waits(step):
        world = copy_submitted(world, host)
    return world


def store_part(offload: Offload) -> str:
    """Return the part of a step in which stores begin: behind its own forward, or when the next step begins (T0 h, M-ORD-1)."""
    return "submit" if offload.store_submission == "same_step" else "flush"


def load_part() -> str:
    """Return the part of a step in which its asynchronous loads begin: behind the forward (T0 g)."""
    return "submit"


def due_stores(world: World, offload: Offload, step: Step) -> frozenset[int]:
    """Return the store events that a step hands over: its own, or those of all steps before it (T0 h)."""
    if offload.store_submission == "same_step":
        return frozenset((step.store,))
    host = world.host
    assert host is not None, "only a world with a host tier has stores"
    later = {world.plan.store, *(other.store for other in world.steps if other.part < len(world.config.parts))}
    return frozenset(store.event for store in (*host.stores, *host.abandoned_stores) if store.event not in later)


def waits(step: Step) -> bool:
    """Tell whether a step waits for the running transfers: its plan preempted somebody, whose blocks go on (T0 a, M-RACE-1)."""
    return step.flush


def hand_over_stores(host: Host, events: frozenset[int]) -> Host:
    """Submit the built stores of these events."""

    def submitted(store: Store) -> Store:
        due = store.event in events and store.stage is Stage.BUILT
        return evolve(store, stage=Stage.SUBMITTED) if due else store

    return evolve(
        host,
        stores=tuple(submitted(store) for store in host.stores),
        abandoned_stores=tuple(submitted(store) for store in host.abandoned_stores),
    )


def hand_over_loads(host: Host, event: int) -> Host:
    """Submit the built loads of an event."""

    def submitted(load: Load) -> Load:
        due = load.event == event and load.stage is Stage.BUILT
        return evolve(load, stage=Stage.SUBMITTED) if due else load

    return evolve(
        host,
        loads=tuple(submitted(load) for load in host.loads),
        abandoned_loads=tuple(submitted(load) for load in host.abandoned_loads),
    )


def copy_submitted(world: World, host: Host) -> World:
    """Copy everything that is submitted, each direction oldest first (T0 a)."""
    for event in sorted(store.event for store in (*host.stores, *host.abandoned_stores) if store.stage is Stage.SUBMITTED):
        world = copy_store(world, event)
    for event in sorted({load.event for load in (*host.loads, *host.abandoned_loads) if load.stage is Stage.SUBMITTED}):
        world = copy_load(world, event)
    return world


def run_store(world: World, host: Host, event: int) -> World:
    """Copy the oldest submitted store to the host. Raises TransferOrder for any other event."""
    stages = {store.event: store.stage for store in (*host.stores, *host.abandoned_stores)}
    check_order("store", stages, event)
    return copy_store(world, event)


def run_load(world: World, host: Host, event: int) -> World:
    """Copy the oldest submitted batch of loads to the device. Raises TransferOrder for any other event."""
    stages = {load.event: load.stage for load in (*host.loads, *host.abandoned_loads) if load.event != NONE}
    check_order("load", stages, event)
    return copy_load(world, event)


def check_order(what: str, stages: dict[int, Stage], event: int) -> None:
    """Refuse a copy that is not the next of its stream (T0). Raises TransferOrder."""
    stage = stages.get(event)
    if stage is not Stage.SUBMITTED:
        state = "is not there" if stage is None else f"is {stage.name}"
        raise TransferOrder(
            f"{what} event {event} {state}: a copy runs once, when a step has handed it over: execute its parts (T0)",
            event=event,
        )
    oldest = min(other for other, state in stages.items() if state is not Stage.COPIED)
    if oldest != event:
        raise TransferOrder(
            f"{what} event {event} is behind {oldest}: copies of one direction run first in, first out (T0)",
            event=event,
            oldest=oldest,
        )


def moved(
    source: tuple[Cells, ...], destination: tuple[Cells, ...], rows: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]
) -> tuple[Cells, ...]:
    """Return a tier's contents after whole-block copies from the other: per row (source blocks, destination blocks)."""
    memory = list(destination)
    for blocks, targets in rows:
        for block, target in zip(blocks, targets, strict=True):
            memory[target] = contents.copy_block(source[block], memory[target])
    return tuple(memory)


def copy_store(world: World, event: int) -> World:
    """Copy the blocks of a store to the host, whole, of every rank (CC-5)."""
    host = world.host
    assert host is not None, "only a world with a host tier has stores"
    rows = [(store.device, store.host) for store in (*host.stores, *host.abandoned_stores) if store.event == event]

    def copied(store: Store) -> Store:
        return evolve(store, stage=Stage.COPIED) if store.event == event else store

    host = evolve(
        host,
        contents=moved(world.contents, host.contents, rows),
        stores=tuple(copied(store) for store in host.stores),
        abandoned_stores=tuple(copied(store) for store in host.abandoned_stores),
    )
    return evolve(world, host=host)


def copy_load(world: World, event: int) -> World:
    """Copy the blocks of all loads of an event to the device, whole, of every rank (CC-6)."""
    host = world.host
    assert host is not None, "only a world with a host tier has loads"
    rows = [(load.host, load.device) for load in (*host.loads, *host.abandoned_loads) if load.event == event]

    def copied(load: Load) -> Load:
        return evolve(load, stage=Stage.COPIED) if load.event == event else load

    memory = moved(host.contents, world.contents, rows)
    host = evolve(
        host,
        loads=tuple(copied(load) for load in host.loads),
        abandoned_loads=tuple(copied(load) for load in host.abandoned_loads),
    )
    return evolve(world, contents=memory, host=host)
