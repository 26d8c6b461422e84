"""Tables whose entry j covers the tokens [jE, (j+1)E): demand, growth and nulling, shared by the kinds (T16, T17, T19)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve

from kvproof.core import geometry
from kvproof.core import pool as pools
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
    *,
    tokens: int,
    skipped: int,
    cap: int | None = None,
) -> int:
    """Return the new blocks, the adopted ones that leave the free queue, and one for an owed copy (T17).

    ``tokens`` need slots, the leading ``skipped`` tokens need none, and the admission gate counts at most ``cap`` entries.
    More than the pool has, if the block to be copied is still to be written in this very step: the copy runs before.
    """
    if copying.copies_too_early(work, group, adopted, wanted, step):
        return len(work.pool.ref) + 1
    size = work.config.sizes[group]
    required = geometry.ceil_div(tokens, size)
    if wanted.whole and cap is not None:
        required = min(required, cap)
    if not wanted.first:
        return max(required - len(state.table), 0)
    entries = skipped // size
    new = max(required - max(entries, len(adopted)), 0)
    return new + evictable(work, adopted[entries:]) + copying.copy_demand(wanted.local, size)


def evictable(work: Work, adopted: tuple[int, ...]) -> int:
    """Return how many adopted blocks leave the free queue (T17)."""
    return sum(1 for block in adopted if block != NULL_BLOCK and work.pool.ref[block] == 0)


def grow(work: Work, group: int, state: GroupState, tokens: int) -> tuple[GroupState, tuple[int, ...]]:
    """Redirect an owed copy-on-write, then append blocks until the table covers ``tokens`` (T19).

    Returns the state and the new entries, the copy first.
    """
    appended: list[int] = []
    if state.partial_index != -1:
        state, copied = copying.redirect(work, group, state)
        appended.append(copied)
    missing = geometry.ceil_div(tokens, work.config.sizes[group]) - len(state.table)
    if missing > 0:
        blocks = works.take(work, group, missing)
        state = evolve(state, table=state.table + blocks)
        appended.extend(blocks)
    return state, tuple(appended)


def null_skipped(work: Work, group: int, state: GroupState, skipped: int) -> GroupState:
    """Null the entries wholly in the leading ``skipped`` tokens and free their blocks, highest index first (T16.3).

    ``retired`` leading entries are nulled already; ``skipped`` may reach behind the end of the table. Keys stay.
    """
    stop = min(skipped // work.config.sizes[group], len(state.table))
    if state.retired >= stop:
        return state
    dead = state.table[state.retired : stop]
    work.pool = pools.release(work.pool, pools.eviction_order(dead))
    return evolve(state, table=(NULL_BLOCK,) * stop + state.table[stop:], retired=stop)
