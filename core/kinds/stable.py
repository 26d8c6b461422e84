"""Positionally stable recurrent states: one state per B tokens, entry j holds the state at (j+1)B, the last the running one.

Tables are append-only; hits, keys and entries are whole blocks only, and retention does not apply. B is the block size; the
group is replicated on every DCP rank. A state that is keyed is never written again: the next one has an entry of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvproof.core import geometry, retention
from kvproof.core.kinds import caching, positional, recurrent, windowed
from kvproof.core.kinds.base import Admission, Capabilities, InStep
from kvproof.core.pool import NO_KEY, NULL_BLOCK, Pool
from kvproof.core.work import Work

if TYPE_CHECKING:
    from kvproof.core.config import Config, Group
    from kvproof.core.world import GroupState

CAPABILITIES = Capabilities(
    positionally_stable=True,
    fine_grained_lookup=False,
    prefix_closed=False,
    positions=False,
    recurrent=True,
    snapshots=False,
    windowed=False,
    cacheable=True,
    sharded_by_default=False,
    may_be_sharded=False,
    several_ranks=True,
)


def row_width(spec: Group, dcp_size: int, max_model_len: int) -> int:
    """Return the entries of a worker row: one per B tokens, never divided by the DCP size (2.5)."""
    del dcp_size
    return geometry.mamba_align_row_width(max_model_len, spec.block_size, 0)


def skipped_tokens(spec: Group, computed: int) -> int:
    """Return how many leading tokens need no state: all but the last computed one (2.8)."""
    del spec
    return geometry.skipped_tokens_mamba(computed)


def admission_cap(spec: Group, in_flight: int, max_model_len: int) -> int | None:
    """Return no cap: a chunk holds a state for every B of its tokens (T16.2)."""
    del spec, in_flight, max_model_len
    return None


def find_hit(
    config: Config, pool: Pool, nodes: list[int], members: tuple[int, ...], limit: int, drop: bool
) -> tuple[int, tuple[tuple[int, ...], ...]]:
    """Look a class up from the right: the deepest block end whose state every member has (T11).

    ``nodes[i]`` is the node of boundary (i+1)H, ``limit`` the largest hit in tokens. Returns the hit in tokens and one list
    per member: nulls, then the block of the state. A state cannot be rewound: ``drop`` changes nothing (T35).
    """
    del drop
    spec = config.groups[members[0]]
    return windowed.find_hit(config, pool, nodes, members, limit, 0, lambda n: skipped_tokens(spec, n))


def null_skipped(work: Work, group: int, state: GroupState, processed: int) -> GroupState:
    """Null and free every state before the running one at ``processed`` tokens; their keys stay (T16.3)."""
    return positional.null_skipped(work, group, state, skipped_tokens(work.config.groups[group], processed))


def demand(
    work: Work,
    group: int,
    state: GroupState,
    adopted: tuple[int, ...],
    wanted: Admission,
    step: InStep,
) -> int:
    """Return the blocks wanted, or more than the pool has if the adopted state is computed in this very step (T17)."""
    if adopted and step.registered(work.pool.key_node[adopted[-1]], group):
        return len(work.pool.ref) + 1
    skipped = skipped_tokens(work.config.groups[group], wanted.local + wanted.external)
    return positional.demand(work, group, state, adopted, wanted, step, tokens=wanted.main, skipped=skipped)


def grow(work: Work, group: int, state: GroupState, wanted: Admission) -> tuple[GroupState, tuple[int, ...]]:
    """Append a block for every state that the chunk writes: each multiple of B in it, and its end (T19)."""
    return positional.grow(work, group, state, wanted.main)


def register(work: Work, group: int, state: GroupState, tokens: int) -> GroupState:
    """Register every full entry; nobody may adopt these states before they are computed (T7, COW-4)."""
    before = max(state.num_cached, 0)
    state = caching.register_new(work, group, state, tokens, retention.attention_mask)
    for block in state.table[before : max(state.num_cached, 0)]:
        if block != NULL_BLOCK and work.pool.key_node[block] != NO_KEY:
            recurrent.note_registered(work, group, work.pool.key_node[block])
    return state
