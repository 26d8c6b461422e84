"""Which blocks are worth a copy to the host: one answer per candidate, the first that applies (T25)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from kvproof.core import pool as pools
from kvproof.core.pool import NO_KEY, NULL_BLOCK

if TYPE_CHECKING:
    from collections.abc import Collection

    from kvproof.core.pool import Pool

READY: Literal["ready"] = "ready"
Admission = Literal["ready", "dropped_null_block", "dropped_not_hashed", "skipped_in_flight", "skipped_already_cached"]
"""What T25 says of a block. All but ``ready`` are names of ``state.Counters``."""


def classify(device: Pool, host: Pool, in_flight: Collection[int], block: int) -> Admission:
    """Classify a device block as a candidate for storing: the first answer that applies (T25). No errors."""
    if block == NULL_BLOCK:
        return "dropped_null_block"
    if device.key_node[block] == NO_KEY:
        return "dropped_not_hashed"
    if is_in_flight(in_flight, block):
        return "skipped_in_flight"
    if is_on_host(device, host, block):
        return "skipped_already_cached"
    return READY


def is_in_flight(in_flight: Collection[int], block: int) -> bool:
    """Tell whether a store of this block is queued or running (T25, HO-6)."""
    return block in in_flight


def is_on_host(device: Pool, host: Pool, block: int) -> bool:
    """Tell whether some host block has the primary key of a device block (T25)."""
    return pools.find(host, device.key_node[block], device.key_group[block]) != NO_KEY
