"""Full attention: every past token is read, tables are append-only, hits are prefix-closed (T9, T11, T17, T19)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve

from kvproof.core import geometry
from kvproof.core import pool as pools
from kvproof.core import work as works
from kvproof.core.errors import ContractBroken
from kvproof.core.kinds import caching
from kvproof.core.kinds.base import Admission, Capabilities, InStep
from kvproof.core.pool import NO_KEY, NULL_BLOCK, Pool
from kvproof.core.work import Work

if TYPE_CHECKING:
    from kvproof.core.config import Config
    from kvproof.core.world import GroupState

CAPABILITIES = Capabilities(
    positionally_stable=True,
    fine_grained_lookup=True,
    prefix_closed=True,
    recurrent=False,
    may_be_sharded=True,
    sharded_by_default=True,
)


def row_width(block_size: int, sharded: bool, dcp_size: int, max_model_len: int) -> int:
    """Return the entries of a worker row (2.5)."""
    return geometry.attention_row_width(max_model_len, block_size, sharded, dcp_size)


def skipped_tokens(computed: int) -> int:
    """Return 0: full attention reads every past token (2.8)."""
    return geometry.skipped_tokens_attention(computed)


def find_hit(
    config: Config, pool: Pool, nodes: list[int], members: tuple[int, ...], limit: int
) -> tuple[int, tuple[tuple[int, ...], ...]]:
    """Look a class up from the left; fine-grained, the hit may end inside the next block (T11).

    ``nodes[i]`` is the node of boundary (i+1)H, ``limit`` the largest hit in tokens. Returns the hit in tokens and one
    block list per member.
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
    """Return the new blocks, the adopted ones that leave the free queue, and one for an owed copy (T17).

    More than the pool has, if the block to be copied is still to be written in this very step: the copy runs before.
    """
    if copies_too_early(work, group, adopted, wanted, step):
        return len(work.pool.ref) + 1
    required = geometry.ceil_div(wanted.slots, work.config.sizes[group])
    if not wanted.first:
        return max(required - len(state.table), 0)
    new = max(required - len(adopted), 0)
    evictable = sum(1 for block in adopted if block != NULL_BLOCK and work.pool.ref[block] == 0)
    return new + evictable + copy_demand(wanted.local, work.config.sizes[group])


def copies_too_early(work: Work, group: int, adopted: tuple[int, ...], wanted: Admission, step: InStep) -> bool:
    """Tell whether the source of the copy that a hit inside a block owes is unwritten below the hit (T17, COW-4)."""
    if work.config.profile.copy_source_guard == "recurrent" or not copy_demand(wanted.local, work.config.sizes[group]):
        return False
    return bool(adopted) and step.unwritten(group, len(adopted) - 1, adopted[-1], wanted.local)


def copy_demand(local: int, size: int) -> int:
    """Return 1 if a local hit ends inside a block, which then needs a private copy, else 0 (T17, COW-6)."""
    return 1 if local % size else 0


def grow(work: Work, group: int, state: GroupState, wanted: Admission) -> tuple[GroupState, tuple[int, ...]]:
    """Redirect an owed copy-on-write, then append blocks for the wanted slots (T19)."""
    appended: list[int] = []
    if state.partial_index != -1:
        state, copied = redirect(work, group, state)
        appended.append(copied)
    missing = geometry.ceil_div(wanted.slots, work.config.sizes[group]) - len(state.table)
    if missing > 0:
        blocks = works.take(work, group, missing)
        state = evolve(state, table=state.table + blocks)
        appended.extend(blocks)
    return state, tuple(appended)


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


def register(work: Work, group: int, state: GroupState, tokens: int) -> GroupState:
    """Register full entries and the prompt tail (T9)."""
    stop = caching.full_entries(work, group, tokens)
    start = max(state.num_cached, 0)
    if start < stop:
        caching.register_full(work, group, state.table, start, stop, lambda index: True)
        state = evolve(state, num_cached=stop)
    if work.config.sizes[group] != work.config.hash_block_size:
        for boundary in tail_boundaries(work, group, tokens):
            register_tail(work, group, state, boundary)
    return state


def tail_boundaries(work: Work, group: int, tokens: int) -> tuple[int, ...]:
    """Return the boundary that T9.2 registers at ``tokens`` cacheable tokens: at most one, inside a block."""
    boundary = geometry.prompt_tail_boundary(
        work.num_prompt, work.config.hash_block_size, len(work.nodes), work.config.profile.prompt_tail
    )
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
