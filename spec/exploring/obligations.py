"""What must not stay open for ever, read off the fields of a world alone (semantics 5.13, LV-2 to LV-4 and LV-7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from attrs import frozen

from kvproof.core.offload.state import Queued, Store
from kvproof.core.world import Status, World
from kvproof.spec import ground_host
from kvproof.spec.ground import NULL


@frozen(slots=True)
class Obligation:
    """Something that has to end. ``left`` returns what is open of it in a world, nothing if it is not open there.

    Where new ones may begin for ever, as stores do in lazy mode, ``ended`` tells by the worlds before and after an action that
    the oldest one ended: a run in which that happens again and again leaves none behind, since they end in their order.
    ``finishing``: a run in which requests live on for ever says nothing. ``asked``: steps go on only as long as a request is
    there, or the engine was told that work is pending.
    """

    name: str
    law: str
    message: str
    left: Callable[[World], tuple[int, ...]]
    ended: Callable[[World, World], bool] | None = None
    finishing: bool = False
    asked: bool = False


# --- stores -------------------------------------------------------------------------------------------------------


def _stores(world: World) -> tuple[int, ...]:
    """The events of stores that are not complete."""
    return () if world.host is None else tuple(sorted(store.event for store in ground_host.all_stores(world.host)))


def _oldest_ended(before: World, after: World) -> bool:
    """Tell whether the oldest store ended."""
    return _stores(before)[0] not in _stores(after)


def _queued(world: World) -> tuple[int, ...]:
    """The device blocks of stores that finished requests left to the next step."""
    return () if world.host is None else tuple(block for queued in world.host.queued for block in queued.device)


def _first_carried(before: World, after: World) -> bool:
    """Tell whether the store that was queued first left the queue."""
    assert before.host is not None
    return after.host is None or before.host.queued[0] not in after.host.queued


# --- references -----------------------------------------------------------------------------------------------------


def _pending(world: World) -> tuple[Store | Queued, ...]:
    """The stores that are not complete, queued ones included."""
    return () if world.host is None else (*ground_host.all_stores(world.host), *world.host.queued)


def _device_held(world: World) -> tuple[int, ...]:
    """The device blocks that have more references than stores account for, which end by themselves or are reported."""
    held = Counter(block for store in _pending(world) for block in store.device)
    return tuple(block for block, count in enumerate(world.pool.ref) if block != NULL and count > held[block])


def _host_held(world: World) -> tuple[int, ...]:
    """The host blocks that have more references than stores account for."""
    if world.host is None:
        return ()
    held = Counter(block for store in _pending(world) for block in store.host)
    return tuple(block for block, count in enumerate(world.host.pool.ref) if block != NULL and count > held[block])


def _orphan_pins(world: World) -> tuple[int, ...]:
    """The requests that are gone and still pin a hit on the host."""
    if world.host is None:
        return ()
    alive = {request.request for request in world.requests}
    return tuple(pin.request for pin in world.host.pending if pin.request not in alive)


def _deferred(world: World) -> tuple[int, ...]:
    """The fences of frees that wait for a step."""
    return tuple(free.fence for free in world.deferred)


# --- loads and requests ---------------------------------------------------------------------------------------------


def _loading(world: World) -> tuple[int, ...]:
    """The requests that wait for a load."""
    return tuple(request.request for request in world.requests if request.status is Status.LOADING)


def _loads(world: World) -> tuple[int, ...]:
    """The requests, gone ones included, whose load is not complete."""
    return () if world.host is None else tuple(load.request for load in ground_host.all_loads(world.host))


def _finished(world: World) -> tuple[int, ...]:
    """The finished requests that the store side still knows."""
    return () if world.host is None else tuple(track.request for track in world.host.tracks if track.finished)


ALL: tuple[Obligation, ...] = (
    Obligation("device blocks", "LV-2", "a device block stays pinned for ever", _device_held, finishing=True),
    Obligation("host blocks", "LV-2", "a host block stays pinned for ever", _host_held, finishing=True),
    Obligation("pins", "LV-2", "the hit of a request that is gone stays pinned for ever", _orphan_pins),
    Obligation("deferred frees", "LV-2", "a deferred free never happens", _deferred),
    Obligation("stores", "LV-2", "a store never ends, its blocks stay pinned", _stores, _oldest_ended),
    Obligation("queued stores", "LV-2", "a queued store is never issued, its blocks stay pinned", _queued, _first_carried),
    Obligation("loading requests", "LV-3", "a loading request never waits again", _loading),
    Obligation("loads", "LV-3", "a load never ends", _loads),
    Obligation("finished requests", "LV-4", "a finished request is never forgotten", _finished),
    Obligation("stores", "LV-7", "the engine stops while a store runs", _stores, _oldest_ended, asked=True),
    Obligation("queued stores", "LV-7", "the engine stops while a store is queued", _queued, _first_carried, asked=True),
)
"""Every obligation. LV-1 and LV-8 speak of one admission and are judged at it, LV-5 and LV-6 of what a whole run stored."""
