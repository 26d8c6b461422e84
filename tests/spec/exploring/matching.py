"""Whether two worlds of one configuration differ in names and in what nothing depends on alone: what equal keys promise.

The key only proposes which block, request or token of the one stands for which of the other. That this is a renaming is checked
on the worlds themselves, field by field.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import evolve

from kvproof.core.offload.state import Counters, Host, Load
from kvproof.core.pool import Pool
from kvproof.core.prefixes import Prefixes
from kvproof.core.world import DeferredFree, Plan, Request, Worker, World
from kvproof.spec.engines import enabled as lists
from kvproof.spec.exploring import canonical
from kvproof.spec.exploring.names import Labels
from tests.spec.exploring.renaming import DevicePool, HostPool, Renaming, renamed

LEFT_OUT: Mapping[tuple[type[Any], str], str] = {
    (World, "config"): "the same in every world of a scope",
    (World, "prefixes"): "a prefix that nobody mentions is appended anew where it is needed, the others are spelled out",
    (World, "issued"): "counts for ever: what matters is how many steps are not processed",
    (World, "processed"): "counts for ever: what matters is how many steps are not processed",
    (Request, "context"): "the token of the root above the request's tip",
    (Request, "num_preemptions"): "counts for ever: what matters is whether it was ever preempted",
    (DevicePool, "next_seq"): "only the order of insertions matters, and the next is behind all",
    (DevicePool, "notes"): "there are none between actions",
    (HostPool, "next_seq"): "only the order of insertions matters, and the next is behind all",
    (HostPool, "notes"): "there are none between actions",
    (Host, "next_store"): "only the order of events matters, and the next is behind all",
    (Host, "next_load"): "only the order of events matters, and the next is behind all",
    (Host, "counters"): "counts for ever; the laws of counters look at one action",
    (Host, "drained"): "what was read of counters that the key does not have",
    (Host, "load_blocks"): "counts for ever; the laws of counters look at one action",
}
"""What the key does not have, and why nothing that it is for depends on it."""


PARTLY: Mapping[tuple[type[Any], str], str] = {
    (Worker, "rows"): "the ids in a row that nobody owns and no step will read: it is emptied before it is used again",
    (Worker, "columns"): "those of such a row are set before it is used again",
    (Worker, "accepted"): "that of such a row is set before it is used again",
    (DeferredFree, "fence"): "counted from the steps that are processed",
    (Load, "fence"): "counted from the steps that are processed; one that was reached is as good as none",
    (Host, "notices"): "their order: they are looked up by kind",
}
"""What the key has a part of, and what it has not."""

TO_COME = -7
"""Stands for the next of numbers that only grow, which is behind all that are in a world."""


def normal(world: World) -> World:
    """Return a world without what the key leaves out, its fences counted from the steps that are processed."""
    done = world.processed
    requests = tuple(evolve(one, num_preemptions=min(one.num_preemptions, 1)) for one in world.requests)
    return evolve(
        world,
        prefixes=Prefixes(),
        pool=evolve(world.pool, next_seq=TO_COME),
        requests=requests,
        deferred=tuple(DeferredFree(free.fence - done, free.tables) for free in world.deferred),
        worker=_normal_rows(world),
        issued=world.issued - done,
        processed=0,
        host=None if world.host is None else _normal_host(world.host, done),
    )


def _normal_rows(world: World) -> Worker:
    worker, unused = world.worker, lists.free_rows(world)
    rows = tuple(
        tuple((0,) * len(row) if at in unused else row for at, row in enumerate(group_rows)) for group_rows in worker.rows
    )
    columns = tuple(() if at in unused else row for at, row in enumerate(worker.columns))
    return Worker(worker.owners, rows, columns, tuple(0 if at in unused else kept for at, kept in enumerate(worker.accepted)))


def _normal_host(host: Host, done: int) -> Host:
    return evolve(
        host,
        pool=evolve(host.pool, next_seq=TO_COME),
        loads=tuple(evolve(load, fence=max(load.fence - done, 0)) for load in host.loads),
        abandoned_loads=tuple(evolve(load, fence=max(load.fence - done, 0)) for load in host.abandoned_loads),
        next_store=TO_COME,
        next_load=TO_COME,
        counters=Counters(),
        drained=Counters(),
        load_blocks=0,
        notices=tuple(sorted(host.notices)),
    )


def between(one: World, two: World) -> Renaming:
    """Return the renaming that the keys propose. Raises KeyError or ValueError if the worlds do not even mention as much."""
    first, second = Labels(one.prefixes), Labels(two.prefixes)
    canonical.packed(one, first)
    canonical.packed(two, second)
    return Renaming(
        blocks=_places(first.blocks, second.blocks, one.config.num_blocks),
        hosts=[] if one.host is None else _places(first.hosts, second.hosts, len(one.host.pool.ref)),
        request=_names(first.requests, second.requests).__getitem__,
        token=_names(first.tokens, second.tokens).__getitem__,
        context=_names(first.contexts, second.contexts).__getitem__,
        old=one.prefixes,
        prefixes=two.prefixes,
        seq=_in_order(_insertions(one), _insertions(two)),
        host_seq=_in_order(*(_entries(None if world.host is None else world.host.pool) for world in (one, two))),
        store=_in_order(_stores(one), _stores(two)),
        load=_in_order(_loads(one), _loads(two)),
        factor=one.config.append_expansion,
    )


def alike(one: World, two: World) -> bool:
    """Tell whether the renaming that the keys propose makes one world the other, but for what the key leaves out."""
    try:
        names = between(one, two)
        return bool(evolve(renamed(names, normal(one)), prefixes=Prefixes()) == normal(two))
    except (KeyError, ValueError):
        return False


def _names(first: dict[int, int], second: dict[int, int]) -> dict[int, int]:
    named = {label: name for name, label in second.items()}
    return {name: named[label] for name, label in first.items()}


def _places(first: dict[int, int], second: dict[int, int], count: int) -> list[int]:
    named = _names(first, second)
    return [named[name] for name in range(count)]


def _in_order(first: Iterable[int], second: Iterable[int]) -> Any:
    return {TO_COME: TO_COME, **dict(zip(sorted(set(first)), sorted(set(second)), strict=True))}.__getitem__


def _entries(pool: Pool | None) -> list[int]:
    return [] if pool is None else [entry[2] for entry in pool.entries]


def _insertions(world: World) -> list[int]:
    plan: Plan = world.plan
    return _entries(world.pool) + [entry[2] for _, records in plan.undo for record in records for entry in record.entries]


def _stores(world: World) -> list[int]:
    host = world.host
    found = [world.plan.store, *(step.store for step in world.steps)]
    if host is not None:
        found += [store.event for store in (*host.stores, *host.abandoned_stores)]
        found += [event for track in host.tracks for event in track.events]
    return [event for event in found if event >= 0]


def _loads(world: World) -> list[int]:
    host = world.host
    found = [world.plan.load, *(step.load for step in world.steps)]
    if host is not None:
        found += [load.event for load in (*host.loads, *host.abandoned_loads)]
    return [event for event in found if event >= 0]
