"""Faults: named ways to be wrong, by which we know that the laws bite (semantics section 6)."""

from __future__ import annotations

from kvproof.spec import near
from kvproof.spec.faults import (
    caching,
    capability,
    copies,
    eagle,
    events,
    geometry,
    host_public,
    loads,
    native,
    pool,
    profile,
    public,
    recurrent,
    speculation,
    steps,
    stores,
    tables,
    transfers,
    windows,
)
from kvproof.spec.faults.base import Fault, FaultError, Patch, configured, planted, with_field

__all__ = ["ALL", "Fault", "FaultError", "Patch", "by_id", "configured", "planted", "with_field"]

ALL: tuple[Fault, ...] = (
    *geometry.FAULTS,
    *native.FAULTS,
    *tables.FAULTS,
    *copies.FAULTS,
    *caching.FAULTS,
    *pool.FAULTS,
    *recurrent.FAULTS,
    *windows.FAULTS,
    *eagle.FAULTS,
    *capability.FAULTS,
    *speculation.FAULTS,
    *steps.FAULTS,
    *events.FAULTS,
    *profile.FAULTS,
    *stores.FAULTS,
    *transfers.FAULTS,
    *loads.FAULTS,
    *public.FAULTS,
    *host_public.FAULTS,
)


def by_id(name: str) -> Fault:
    """Return the fault of this id. Raises FaultError that names the nearest ones and the command that lists all."""
    for fault in ALL:
        if fault.id == name:
            return fault
    raise FaultError(near.unknown("fault", name, [fault.id for fault in ALL], "kvproof faults"))
