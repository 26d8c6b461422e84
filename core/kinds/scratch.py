"""Scratch: one private block per admitted request, a circular buffer that is never cached, keyed or shared (1.2, TB-15)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve

from kvproof.core import geometry
from kvproof.core import work as works
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
    positions=False,
    recurrent=False,
    snapshots=False,
    windowed=False,
    cacheable=False,
    sharded_by_default=False,
    may_be_sharded=False,
    several_ranks=True,
)


def row_width(spec: Group, dcp_size: int, max_model_len: int) -> int:
    """Return the entries of a worker row: one, however long the request is (2.5)."""
    del spec, dcp_size, max_model_len
    return geometry.scratch_row_width()


def skipped_tokens(spec: Group, computed: int) -> int:
    """Return 0: the block stays for as long as the request runs (2.8)."""
    del spec, computed
    return 0


def admission_cap(spec: Group, in_flight: int, max_model_len: int) -> int | None:
    """Return no cap: the demand is one block in any case (T16.2)."""
    del spec, in_flight, max_model_len
    return None


def find_hit(
    config: Config, pool: Pool, nodes: list[int], members: tuple[int, ...], limit: int, drop: bool
) -> tuple[int, tuple[tuple[int, ...], ...]]:
    """Return nothing: a scratch group is in no class, and no lookup asks for it (T11, T15)."""
    del config, pool, nodes, limit, drop
    return 0, ((),) * len(members)


def null_skipped(work: Work, group: int, state: GroupState, processed: int) -> GroupState:
    """Null nothing (T16.3)."""
    del work, group, processed
    return state


def demand(
    work: Work,
    group: int,
    state: GroupState,
    adopted: tuple[int, ...],
    wanted: Admission,
    step: InStep,
) -> int:
    """Return 1 for a request without its block, else 0 (T17)."""
    del work, group, adopted, wanted, step
    return missing_blocks(state)


def missing_blocks(state: GroupState) -> int:
    """Return how many blocks the request still lacks: it holds exactly one (TB-15)."""
    return 1 - len(state.table)


def grow(work: Work, group: int, state: GroupState, wanted: Admission) -> tuple[GroupState, tuple[int, ...]]:
    """Take the one block of an admitted request (TB-15)."""
    del wanted
    blocks = works.take(work, group, missing_blocks(state))
    return evolve(state, table=state.table + blocks), blocks


def register(work: Work, group: int, state: GroupState, tokens: int) -> GroupState:
    """Register nothing: the block stands for no tokens (2.9, TB-15)."""
    del work, group, tokens
    return state
