"""Full attention: every past token is read, tables are append-only, hits are prefix-closed (T9, T11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvproof.core import geometry, retention
from kvproof.core import pool as pools
from kvproof.core.kinds import caching, positional
from kvproof.core.kinds.base import Admission, Capabilities, InStep
from kvproof.core.pool import NO_KEY, Pool
from kvproof.core.work import Work

if TYPE_CHECKING:
    from kvproof.core.config import Config, Group
    from kvproof.core.world import GroupState

CAPABILITIES = Capabilities(
    positionally_stable=True,
    fine_grained_lookup=True,
    prefix_closed=True,
    positions=True,
    recurrent=False,
    snapshots=False,
    windowed=False,
    cacheable=True,
    sharded_by_default=True,
    may_be_sharded=True,
    several_ranks=True,
)


def row_width(spec: Group, dcp_size: int, max_model_len: int) -> int:
    """Return the entries of a worker row (2.5)."""
    return geometry.attention_row_width(max_model_len, spec.block_size, bool(spec.sharded), dcp_size)


def skipped_tokens(spec: Group, computed: int) -> int:
    """Return 0: full attention reads every past token (2.8)."""
    del spec
    return geometry.skipped_tokens_attention(computed)


def admission_cap(spec: Group, in_flight: int, max_model_len: int) -> int | None:
    """Return no cap: a request holds all its blocks until it ends (T16.2)."""
    del spec, in_flight, max_model_len
    return None


def find_hit(
    config: Config, pool: Pool, nodes: list[int], members: tuple[int, ...], limit: int, drop: bool
) -> tuple[int, tuple[tuple[int, ...], ...]]:
    """Look a class up from the left; fine-grained, the hit may end inside the next block (T11).

    ``nodes[i]`` is the node of boundary (i+1)H, ``limit`` the largest match in tokens; ``drop``: an EAGLE unit of the match
    is given up (T35). Returns the hit in tokens and one block list per member.
    """
    unit, size = config.hash_block_size, config.sizes[members[0]]
    per_block = size // unit
    lists: list[list[int]] = [[] for _ in members]

    def match(boundary: int) -> bool:
        node = nodes[boundary // unit - 1]
        blocks = [pools.find(pool, node, group) for group in members]
        if NO_KEY in blocks:
            return False
        for found, block in zip(lists, blocks, strict=True):
            found.append(block)
        return True

    full = 0
    most = min(limit, len(nodes) * unit) // size
    while full < most and match((full + 1) * size):
        full += 1
    hit = full * size
    if config.alignment < size:
        last = min(full * per_block + per_block - 1, limit // unit, len(nodes))
        for boundary in range(last * unit, hit, -unit):
            if match(boundary):
                hit = boundary
                break
    if drop:
        hit = max(hit - geometry.eagle_unit(size, config.alignment), 0)
    hit -= hit % config.alignment
    entries = geometry.ceil_div(hit, size)
    return hit, tuple(tuple(found[:entries]) for found in lists)


def null_skipped(work: Work, group: int, state: GroupState, processed: int) -> GroupState:
    """Full attention nulls nothing (T16.3)."""
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
    """Return the new blocks, the adopted ones that leave the free queue, and one for an owed copy (T17)."""
    skipped = skipped_tokens(work.config.groups[group], wanted.local + wanted.external)
    return positional.demand(work, group, state, adopted, wanted, step, tokens=wanted.slots, skipped=skipped)


def grow(work: Work, group: int, state: GroupState, wanted: Admission) -> tuple[GroupState, tuple[int, ...]]:
    """Redirect an owed copy-on-write, then append blocks for the wanted slots (T19)."""
    return positional.grow(work, group, state, wanted.slots)


def register(work: Work, group: int, state: GroupState, tokens: int) -> GroupState:
    """Register full entries and the prompt tail (T9)."""
    state = caching.register_new(work, group, state, tokens, retention.attention_mask)
    if work.config.sizes[group] != work.config.hash_block_size:
        for boundary in tail_boundaries(work, group, tokens):
            register_tail(work, group, state, boundary)
    return state


def tail_rule(config: Config, group: int) -> str:
    """Return up to where the prompt tail reaches: an EAGLE lookup reads the whole prompt before it drops a unit (T9.2)."""
    return "P" if config.eagle[group] else config.profile.prompt_tail


def tail_boundaries(work: Work, group: int, tokens: int) -> tuple[int, ...]:
    """Return the boundary that T9.2 registers at ``tokens`` cacheable tokens: at most one, inside a block."""
    rule = tail_rule(work.config, group)
    boundary = geometry.prompt_tail_boundary(work.num_prompt, work.config.hash_block_size, len(work.nodes), rule)
    if 0 < boundary <= tokens and boundary % work.config.sizes[group]:
        return (boundary,)
    return ()


def register_tail(work: Work, group: int, state: GroupState, boundary: int) -> None:
    """Register a partial entry on the block in which the boundary falls, if the table reaches it (T9.2, T8)."""
    index = boundary // work.config.sizes[group]
    if index >= len(state.table) or not caching.registrable(state.table[index]):
        return
    block = state.table[index]
    node = caching.partial_node(work, group, boundary)
    if (
        work.config.profile.partial_key_after_promotion == "drop"
        and work.pool.key_node[block] != NO_KEY
        and work.pool.key_tokens[block] > boundary
    ):
        return
    work.pool = pools.insert_partial(work.pool, node, group, block, boundary)
