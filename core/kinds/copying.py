"""Copy-on-write of a shared, partly filled block, the same for every kind that adopts one (T17, T19.1, T21.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve

from kvproof.core import pool as pools
from kvproof.core import work as works
from kvproof.core.errors import ContractBroken
from kvproof.core.kinds.base import Admission, InStep
from kvproof.core.pool import NULL_BLOCK, Pool
from kvproof.core.work import Work

if TYPE_CHECKING:
    from kvproof.core.world import GroupState


def copy_demand(local: int, size: int) -> int:
    """Return 1 if a local hit ends inside a block, which then needs a private copy, else 0 (T17, COW-6)."""
    return 1 if local % size else 0


def copies_too_early(work: Work, group: int, adopted: tuple[int, ...], wanted: Admission, step: InStep) -> bool:
    """Tell whether the source of the copy that a hit inside a block owes is unwritten below the hit (T17, COW-4)."""
    if work.config.profile.copy_source_guard == "recurrent" or not copy_demand(wanted.local, work.config.sizes[group]):
        return False
    return bool(adopted) and step.unwritten(group, len(adopted) - 1, adopted[-1], wanted.local)


def redirect(work: Work, group: int, state: GroupState) -> tuple[GroupState, int]:
    """Replace the shared, partly filled block of a consumer by a private copy (T19.1). Raises ContractBroken.

    The source keeps its hit reference and the destination gets a second one until the drain.
    """
    index, source = state.partial_index, state.partial_source
    (copy,) = works.take(work, group, 1)
    if source == NULL_BLOCK or state.table[index] != source or work.pool.ref[source] <= 0:
        raise ContractBroken(f"copy-on-write of entry {index} does not find block {source} (T19)", group=group)
    work.pool = retain(work.pool, copy)
    works.queue_copy(work, group, source, copy)
    return settle(state, index, copy), copy


def retain(pool: Pool, block: int) -> Pool:
    """Take the reference that protects a copy's end until the drain (3.4, COW-3)."""
    return pools.touch(pool, (block,))


def settle(state: GroupState, index: int, copy: int) -> GroupState:
    """Put the private copy into the table in place of the shared block and clear the debt (T19.1)."""
    table = (*state.table[:index], copy, *state.table[index + 1 :])
    return evolve(state, table=table, partial_index=-1, partial_source=-1)
