"""Registration of full entries, shared by the kinds (T7)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from attrs import evolve

from kvproof.core import geometry
from kvproof.core import pool as pools
from kvproof.core.pool import NULL_BLOCK
from kvproof.core.work import Work

if TYPE_CHECKING:
    from kvproof.core.world import GroupState


def boundary_node(work: Work, boundary: int) -> int:
    """Return the prefix node of a hash boundary of the request at hand; ``H | boundary`` (2.3)."""
    return work.nodes[boundary // work.config.hash_block_size - 1]


def register_full(work: Work, group: int, table: Sequence[int], start: int, stop: int, kept: Callable[[int], bool]) -> None:
    """Register the full entries of table indices [start, stop) that are not null and that ``kept`` wants (T7).

    Raises ContractBroken if a block would not stand for more tokens than before.
    """
    size = work.config.sizes[group]
    for index in range(start, stop):
        block = table[index]
        if not registrable(block) or not kept(index):
            continue
        boundary = (index + 1) * size
        work.pool = pools.promote(work.pool, full_node(work, group, index), group, block, boundary)


def register_new(work: Work, group: int, state: GroupState, tokens: int, kept: Callable[[int], bool]) -> GroupState:
    """Register the full entries of ``tokens`` cacheable tokens that were not considered before (T7, T9.1)."""
    start, stop = max(state.num_cached, 0), full_entries(work, group, tokens)
    if start >= stop:
        return state
    register_full(work, group, state.table, start, stop, kept)
    return evolve(state, num_cached=stop)


def registrable(block: int) -> bool:
    """Tell whether a table entry may carry keys: every block but the null block (T7, T8)."""
    return block != NULL_BLOCK


def full_node(work: Work, group: int, index: int) -> int:
    """Return the prefix node that names the full block at a table index: that of its end (2.3, T7)."""
    return boundary_node(work, (index + 1) * work.config.sizes[group])


def full_entries(work: Work, group: int, tokens: int) -> int:
    """Return how many leading blocks are full within ``tokens`` cacheable and hashed tokens (T9.1, T10.1)."""
    hashed = len(work.nodes) * work.config.hash_block_size
    return min(tokens, hashed) // work.config.sizes[group]


def partial_node(work: Work, group: int, boundary: int) -> int:
    """Return the prefix node of a partial entry: that of the boundary itself, by raw hash index (T8)."""
    del group
    return boundary_node(work, boundary)


def reach(work: Work, group: int) -> tuple[int, ...]:
    """Return the token counts at which a resend of the request may resume, which a group's retention mask keeps (2.9).

    Its replay boundaries, its junction, and for a group of the EAGLE group set a block of its own before the junction: a
    request that leaves the prefix right behind the junction has nothing to match there and hits a block less.
    """
    config = work.config
    unit = config.alignment if config.profile.eagle_replay_unit == "A" else config.scheduler_block_size
    boundaries = geometry.replay_boundaries(work.num_prompt, unit, any(config.eagle))
    if not work.junction:
        return boundaries
    before = (work.junction - config.sizes[group],) if config.eagle[group] else ()
    return (*boundaries, work.junction, *before)
