"""Chunked local attention: only the current aligned chunk of C tokens is read, older entries become null (2.8, T11, T16.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvproof.core import geometry, retention
from kvproof.core.kinds import caching, positional, windowed
from kvproof.core.kinds.base import Admission, Capabilities, InStep
from kvproof.core.pool import Pool
from kvproof.core.work import Work

if TYPE_CHECKING:
    from kvproof.core.config import Config, Group
    from kvproof.core.world import GroupState

CAPABILITIES = Capabilities(
    positionally_stable=True,
    fine_grained_lookup=False,
    prefix_closed=False,
    positions=True,
    recurrent=False,
    snapshots=False,
    windowed=True,
    cacheable=True,
    sharded_by_default=False,
    may_be_sharded=False,
    several_ranks=False,
)


def row_width(spec: Group, dcp_size: int, max_model_len: int) -> int:
    """Return the entries of a worker row: every token keeps its column, the nulled ones included (2.5)."""
    return geometry.attention_row_width(max_model_len, spec.block_size, bool(spec.sharded), dcp_size)


def skipped_tokens(spec: Group, computed: int) -> int:
    """Return how many leading tokens lie before the chunk of the next one: all of them at a chunk's end (2.8)."""
    return geometry.skipped_tokens_chunked(computed, windowed.tokens_read(spec))


def admission_cap(spec: Group, in_flight: int, max_model_len: int) -> int | None:
    """Return the most blocks a request holds at a time: the chunk and the tokens in flight (2.8)."""
    return retention.admission_cap_chunked(windowed.tokens_read(spec), in_flight, max_model_len, spec.block_size)


def find_hit(
    config: Config, pool: Pool, nodes: list[int], members: tuple[int, ...], limit: int, drop: bool
) -> tuple[int, tuple[tuple[int, ...], ...]]:
    """Look a class up for the blocks of one chunk; what lies before the chunk counts as hit (T11).

    ``nodes[i]`` is the node of boundary (i+1)H, ``limit`` the largest match in tokens; ``drop``: one block more must match
    behind the hit (T35). Returns the hit in tokens and one list per member: nulls, then the blocks of the chunk.
    """
    spec = config.groups[members[0]]
    return windowed.find_hit(config, pool, nodes, members, limit, int(drop), lambda n: skipped_tokens(spec, n))


def null_skipped(work: Work, group: int, state: GroupState, processed: int) -> GroupState:
    """Null and free the entries before the chunk at ``processed`` tokens (T16.3)."""
    return positional.null_skipped(work, group, state, skipped_tokens(work.config.groups[group], processed))


def demand(
    work: Work,
    group: int,
    state: GroupState,
    adopted: tuple[int, ...],
    wanted: Admission,
    step: InStep,
) -> int:
    """Return the new blocks and the adopted ones that leave the free queue; for the gate no more than the cap (T17)."""
    skipped = skipped_tokens(work.config.groups[group], wanted.local + wanted.external)
    return windowed.demand(work, group, state, adopted, wanted, step, skipped, admission_cap)


def grow(work: Work, group: int, state: GroupState, wanted: Admission) -> tuple[GroupState, tuple[int, ...]]:
    """Append blocks for the wanted slots (T19)."""
    return positional.grow(work, group, state, wanted.slots)


def register(work: Work, group: int, state: GroupState, tokens: int) -> GroupState:
    """Register every full entry: retention does not apply (T7, 2.9)."""
    return caching.register_new(work, group, state, tokens, retention.attention_mask)
