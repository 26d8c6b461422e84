"""Tables whose entry j covers the tokens [jE, (j+1)E): their demand and growth, shared by the attention kinds (T17, T19)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve

from kvproof.core import geometry
from kvproof.core import work as works
from kvproof.core.kinds import copying
from kvproof.core.kinds.base import Admission, InStep
from kvproof.core.pool import NULL_BLOCK
from kvproof.core.work import Work

if TYPE_CHECKING:
    from kvproof.core.world import GroupState


def demand(
    work: Work,
    group: int,
    state: GroupState,
    adopted: tuple[int, ...],
    wanted: Admission,
    step: InStep,
    skipped: int,
) -> int:
    """Return the new blocks, the adopted ones that leave the free queue, and one for an owed copy (T17).

    ``skipped`` leading entries need no block. More than the pool has, if the block to be copied is still to be written in
    this very step: the copy runs before.
    """
    if copying.copies_too_early(work, group, adopted, wanted, step):
        return len(work.pool.ref) + 1
    required = geometry.ceil_div(wanted.slots, work.config.sizes[group])
    if not wanted.first:
        return max(required - len(state.table), 0)
    new = max(required - max(skipped, len(adopted)), 0)
    return new + evictable(work, adopted[skipped:]) + copying.copy_demand(wanted.local, work.config.sizes[group])


def evictable(work: Work, adopted: tuple[int, ...]) -> int:
    """Return how many adopted blocks leave the free queue (T17)."""
    return sum(1 for block in adopted if block != NULL_BLOCK and work.pool.ref[block] == 0)


def grow(work: Work, group: int, state: GroupState, wanted: Admission) -> tuple[GroupState, tuple[int, ...]]:
    """Redirect an owed copy-on-write, then append blocks for the wanted slots (T19)."""
    appended: list[int] = []
    if state.partial_index != -1:
        state, copied = copying.redirect(work, group, state)
        appended.append(copied)
    missing = geometry.ceil_div(wanted.slots, work.config.sizes[group]) - len(state.table)
    if missing > 0:
        blocks = works.take(work, group, missing)
        state = evolve(state, table=state.table + blocks)
        appended.extend(blocks)
    return state, tuple(appended)
