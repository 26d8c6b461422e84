"""What became of handoffs, what is still to be stored, and notices that are given once (HO-5, CN-1 to CN-6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import astuple, evolve, fields

from kvproof.core.offload.state import Counters, Host, Queued, Store
from kvproof.core.records import Record

if TYPE_CHECKING:
    from kvproof.core.world import World

FIELDS: tuple[str, ...] = tuple(field.name for field in fields(Counters))
"""The names of what is counted, in the order of ``Counters``."""


def count(counters: Counters, outcome: str, amount: int = 1) -> Counters:
    """Count handoffs of one outcome; every one of them was published (HO-5)."""
    return evolve(
        counters, published=counters.published + amount, **{outcome: getattr(counters, outcome) + counted(outcome, amount)}
    )


def counted(outcome: str, amount: int) -> int:
    """Return by how much the counter of an outcome rises: by every handoff that had it (HO-5)."""
    del outcome
    return amount


def undrained(host: Host) -> Counters:
    """Return what was counted since the counters were read last; never negative (CN-1)."""
    return Counters(
        *(now - then for now, then in zip(astuple(host.counters), astuple(host.drained), strict=True)),
    )


def read(world: World, host: Host) -> tuple[World, Record]:
    """Read the interval's counts and the gauge; what was read counts as drained (CN-1, CN-5)."""
    deltas = astuple(undrained(host))
    host = evolve(host, drained=host.counters)
    return evolve(world, host=host), Record("ReadCounters", counters=deltas, gauge=gauge(host))


def gauge(host: Host) -> int:
    """Return the host blocks that stores still have to fill: running, queued and abandoned ones (CN-5)."""
    return sum(len(transfer.host) for transfer in pending(host))


def pending(host: Host) -> tuple[Store | Queued, ...]:
    """Return every store that is not complete (CN-5, LV-7)."""
    return (*host.stores, *queued(host), *host.abandoned_stores)


def queued(host: Host) -> tuple[Queued, ...]:
    """Return the stores of finished requests that no step carries yet: they are pending like any other (CN-5, LV-7)."""
    return host.queued


def pending_work(host: Host) -> bool:
    """Tell whether a store is queued or running: the engine has to keep stepping (LV-7)."""
    return bool(host.stores or awaits_step(host) or host.abandoned_stores)


def awaits_step(host: Host) -> bool:
    """Tell whether a finished request's store waits for a step to carry it (LV-7)."""
    return bool(host.queued)


def notice(host: Host, kind: str) -> tuple[Host, tuple[str, ...]]:
    """Give a notice of this kind if none was given yet (CN-6); returns the notices given now."""
    if given(host, kind):
        return host, ()
    return evolve(host, notices=(*host.notices, kind)), (kind,)


def given(host: Host, kind: str) -> bool:
    """Tell whether a notice of this kind was given before in this world (CN-6)."""
    return kind in host.notices
