"""Sliding window attention: only the last W positions are read, older entries become null (2.8, 2.9, T11, T16.3, T19)."""

from __future__ import annotations

from collections.abc import Callable
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
    several_ranks=True,
)


def row_width(spec: Group, dcp_size: int, max_model_len: int) -> int:
    """Return the entries of a worker row: every token keeps its column, the nulled ones included (2.5)."""
    return geometry.attention_row_width(max_model_len, spec.block_size, bool(spec.sharded), dcp_size)


def skipped_tokens(spec: Group, computed: int) -> int:
    """Return how many leading tokens lie behind the window of the next one (2.8)."""
    return geometry.skipped_tokens_window(computed, windowed.tokens_read(spec))


def admission_cap(spec: Group, in_flight: int, max_model_len: int) -> int | None:
    """Return the most blocks a request holds at a time: the window, the tokens in flight, and one for its start (2.8)."""
    return retention.admission_cap_window(windowed.tokens_read(spec), 0, in_flight, max_model_len, spec.block_size)


def find_hit(
    config: Config, pool: Pool, nodes: list[int], members: tuple[int, ...], limit: int, drop: bool
) -> tuple[int, tuple[tuple[int, ...], ...]]:
    """Look a class up from the right for the blocks of one window; ``drop``: one block more must match behind it (T11, T35).

    ``nodes[i]`` is the node of boundary (i+1)H, ``limit`` the largest match in tokens. Returns the hit in tokens and one
    list per member: nulls, then the blocks of the window.
    """
    ahead = int(drop)
    return windowed.find_hit(config, pool, nodes, members, limit, ahead, lambda n: unread_tokens(config, members[0], n, ahead))


def unread_tokens(config: Config, group: int, computed: int, ahead: int) -> int:
    """Return how many leading tokens a hit at ``computed`` needs no blocks for, ``ahead`` blocks matching behind it (T11).

    A window of one token reads nothing before the next one: no block is needed, or, under ``empty_window = one_block``, one
    that the mask never keeps.
    """
    spec = config.groups[group]
    skipped = skipped_tokens(spec, computed)
    if config.profile.empty_window == "one_block":
        return min(skipped, computed + ahead * config.sizes[group] - 1)
    return skipped


def null_skipped(work: Work, group: int, state: GroupState, processed: int) -> GroupState:
    """Null and free the entries behind the window at ``processed`` tokens (T16.3)."""
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
    """Register the full entries that the retention mask keeps; they stay registered when the window leaves them (T7)."""
    return caching.register_new(work, group, state, tokens, kept_entries(work, group))


def kept_entries(work: Work, group: int) -> Callable[[int], bool]:
    """Return the retention mask of a request: which full entries are registered (2.9)."""
    config = work.config
    reach = caching.reach(work, group)
    return lambda index: retention.swa_mask(
        index,
        window=windowed.tokens_read(config.groups[group]),
        effective_size=config.sizes[group],
        alignment=config.alignment,
        retention=config.retention,
        reach=reach,
        eagle=config.eagle[group],
    )
