"""Mamba align: one state per block, snapshots only where chunks end, interior entries null (T10, T11, T17, T18, T21).

B is the block size; the group is replicated on every DCP rank. There are no speculative blocks in this kind yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import evolve

from kvproof.core import geometry, retention
from kvproof.core import pool as pools
from kvproof.core import work as works
from kvproof.core.kinds import caching, copying, positional
from kvproof.core.kinds.base import Admission, Capabilities, InStep
from kvproof.core.pool import NO_KEY, NULL_BLOCK, Pool
from kvproof.core.work import Work

if TYPE_CHECKING:
    from kvproof.core.config import Config, Group
    from kvproof.core.world import GroupState

CAPABILITIES = Capabilities(
    positionally_stable=False,
    fine_grained_lookup=True,
    prefix_closed=False,
    positions=False,
    recurrent=True,
    snapshots=True,
    windowed=False,
    cacheable=True,
    sharded_by_default=False,
    may_be_sharded=False,
    several_ranks=True,
)


def row_width(spec: Group, dcp_size: int, max_model_len: int) -> int:
    """Return the entries of a worker row: the group is never divided by the DCP size (2.5)."""
    del dcp_size
    return geometry.mamba_align_row_width(max_model_len, spec.block_size, spec.speculative_blocks)


def admission_cap(spec: Group, in_flight: int, max_model_len: int) -> int | None:
    """Return no cap: the demand already counts only the few live states (T16.2)."""
    del spec, in_flight, max_model_len
    return None


def skipped_tokens(spec: Group, computed: int) -> int:
    """Return how many leading tokens need no state: all but the last computed one (2.8)."""
    del spec
    return geometry.skipped_tokens_mamba(computed)


def find_hit(
    config: Config, pool: Pool, nodes: list[int], members: tuple[int, ...], limit: int, drop: bool
) -> tuple[int, tuple[tuple[int, ...], ...]]:
    """Look a class up from the right: the deepest boundary whose state every member has (T11).

    ``nodes[i]`` is the node of boundary (i+1)H, ``limit`` the largest hit in tokens. Returns the hit in tokens and one
    list per member: nulls, then the block of the state. A state cannot be rewound: ``drop`` changes nothing (T35).
    """
    del drop
    unit, size = config.hash_block_size, config.sizes[members[0]]
    step = unit if config.alignment < size else size
    last = min(limit, len(nodes) * unit)
    for boundary in range(last - last % step, 0, -step):
        if boundary % config.alignment:
            continue
        node = nodes[boundary // unit - 1]
        blocks = [pools.find(pool, node, group) for group in members]
        if NO_KEY not in blocks:
            nulls = (NULL_BLOCK,) * (geometry.ceil_div(boundary, size) - 1)
            return boundary, tuple((*nulls, block) for block in blocks)
    return 0, ((),) * len(members)


def null_skipped(work: Work, group: int, state: GroupState, processed: int) -> GroupState:
    """Null and free every state before the running one, from the highest index down (T21 nulling)."""
    stop = min(skipped_tokens(work.config.groups[group], processed) // work.config.sizes[group], len(state.table))
    start = state.retired
    if start >= stop:
        return state
    dead = retired_blocks(state.table[start:stop])
    if dead:
        work.pool = pools.release(work.pool, pools.eviction_order(dead))
    table = nulled(state.table, start, stop, dead)
    return evolve(state, table=table, retired=stop)


def retired_blocks(entries: tuple[int, ...]) -> tuple[int, ...]:
    """Return the states to give back among entries that are no longer read (T21 nulling)."""
    return tuple(block for block in entries if block != NULL_BLOCK)


def nulled(table: tuple[int, ...], start: int, stop: int, dead: tuple[int, ...]) -> tuple[int, ...]:
    """Return the table with the dead blocks of entries [start, stop) replaced by null (T21 nulling)."""
    middle = tuple(NULL_BLOCK if block in dead else block for block in table[start:stop])
    return table[:start] + middle + table[stop:]


def demand(
    work: Work,
    group: int,
    state: GroupState,
    adopted: tuple[int, ...],
    wanted: Admission,
    step: InStep,
) -> int:
    """Return the blocks wanted, or more than the pool has if the adopted state is computed in this very step (T17)."""
    pool = work.pool
    if adopted and step.registered(pool.key_node[adopted[-1]], group):
        return len(pool.ref) + 1
    size = work.config.sizes[group]
    copy = owed_copy(state, wanted, size)
    if work.config.profile.recurrent_demand == "exact":
        return _demand_exact(work, group, state, adopted, wanted, copy)
    capped = min(max(geometry.ceil_div(wanted.main, size) - len(adopted) - len(state.table), 0) + copy, 1 + copy)
    return capped + positional.evictable(work, adopted)


def owed_copy(state: GroupState, wanted: Admission, size: int) -> int:
    """Return 1 if this allocation takes a block for a copy: a debt, or a local hit inside a block (T17, COW-6)."""
    inside = copying.copy_demand(wanted.local, size) if wanted.first else 0
    return 1 if state.partial_index != -1 or inside else 0


def _demand_exact(work: Work, group: int, state: GroupState, adopted: tuple[int, ...], wanted: Admission, copy: int) -> int:
    """Return exactly what T18 and T21 will take (T17 ``exact``, no speculative blocks or checkpoints)."""
    size = work.config.sizes[group]
    covered = wanted.local + wanted.external
    skipped = skipped_tokens(work.config.groups[group], covered) // size if wanted.first else 0
    entries = max(skipped, len(adopted)) if wanted.first else len(state.table)
    external = 0
    if wanted.first and wanted.external > 0:
        external = max(geometry.ceil_div(covered, size) - entries, 0)
    entries += external
    kept = adopted[skipped:] if wanted.first else ()
    evictable = positional.evictable(work, kept)
    required = geometry.ceil_div(wanted.main, size)
    if required <= entries and not copy:
        return external + evictable
    entries = max(entries, required - 1)
    return external + evictable + max(required - entries, 0) + copy


def grow(work: Work, group: int, state: GroupState, wanted: Admission) -> tuple[GroupState, tuple[int, ...]]:
    """Append nulls and the running state's block; pay an owed copy as producer or consumer (T21)."""
    required = geometry.ceil_div(wanted.main, work.config.sizes[group])
    owed = state.partial_index != -1
    table = state.table
    if required <= len(table) and not owed:
        return evolve(state, allocated=True), ()
    nulls = (NULL_BLOCK,) * max(required - 1 - len(table), 0)
    state = evolve(state, table=table + nulls)
    appended: tuple[int, ...] = nulls
    if owed and state.allocated:
        state = _pay_as_producer(work, group, state)
    elif owed:
        state, copied = copying.redirect(work, group, state)
        appended = (copied, *appended)
    blocks = works.take(work, group, max(required - len(state.table), 0))
    state = evolve(state, table=state.table + blocks, allocated=True)
    return state, appended + blocks


def _pay_as_producer(work: Work, group: int, state: GroupState) -> GroupState:
    """Move the keys of the state the request is running on to a private copy and publish it, if it is still keyed (T21.6)."""
    source = state.partial_source
    (copy,) = works.take(work, group, 1)
    work.pool = move_keys(work.pool, source, copy)
    work.pool = copying.retain(work.pool, source)
    works.queue_copy(work, group, source, copy)
    if work.pool.key_node[copy] != NO_KEY:
        publish(work, group, copy, state.tail_boundary)
        note_registered(work, group, work.pool.key_node[copy])
    elif work.config.profile.publish_unkeyed == "yes":
        publish(work, group, copy, state.tail_boundary)
    return keep_source(state, copy)


def move_keys(pool: Pool, source: int, copy: int) -> Pool:
    """Let every key of the producer's block name the copy instead (T21.6, T6)."""
    return pools.move(pool, source, copy)


def keep_source(state: GroupState, copy: int) -> GroupState:
    """Clear the debt; the source stays in the table because worker rows are append-only (T21.6)."""
    del copy
    return evolve(state, partial_index=-1, partial_source=-1, tail_block=-1, tail_boundary=-1)


def publish(work: Work, group: int, block: int, boundary: int) -> None:
    """Announce that a block will hold the state of a boundary (T10.3, T21.6)."""
    work.handoffs.append((work.request, group, block, boundary))


def note_registered(work: Work, group: int, node: int) -> None:
    """Remember that a state's key was registered in this step: nobody may adopt it before it is computed (COW-4)."""
    work.cached.append((node, group, work.request))


def register(work: Work, group: int, state: GroupState, tokens: int) -> GroupState:
    """Register full entries under the retention mask, then the partial tail, then publish what is keyed (T10)."""
    before = max(state.num_cached, 0)
    after = max(caching.full_entries(work, group, tokens), before)
    if before < after:
        caching.register_full(work, group, state.table, before, after, kept_entries(work, group))
        state = evolve(state, num_cached=after)
    state = _register_tail(work, group, state, tokens)
    pool = work.pool
    for block in state.table[before:after]:
        if block != NULL_BLOCK and pool.key_node[block] != NO_KEY:
            note_registered(work, group, pool.key_node[block])
            publish(work, group, block, pool.key_tokens[block])
    return state


def kept_entries(work: Work, group: int) -> Callable[[int], bool]:
    """Return the retention mask of a request: which full entries are registered (2.9)."""
    config = work.config
    reach = caching.reach(work, group)
    size = config.sizes[group]
    return lambda index: retention.mamba_mask(index, size, config.alignment, config.retention, reach)


def _register_tail(work: Work, group: int, state: GroupState, tokens: int) -> GroupState:
    """Register the prompt checkpoint if the chunk ends there; inside a block the request then owes a copy (T10.2b)."""
    config = work.config
    size = config.sizes[group]
    if tokens <= 0 or tokens % config.hash_block_size or not is_checkpoint(work, tokens):
        return state
    index = geometry.ceil_div(tokens, size) - 1
    block = state.table[index] if index < len(state.table) else NULL_BLOCK
    if block == NULL_BLOCK or work.pool.key_tokens[block] == tokens:
        return state
    node = caching.partial_node(work, group, tokens)
    work.pool = pools.insert_partial(work.pool, node, group, block, tokens)
    note_registered(work, group, node)
    if tokens % size == 0:
        return state
    return owe_copy(state, index, block, tokens)


def is_checkpoint(work: Work, tokens: int) -> bool:
    """Tell whether a boundary is the prompt's checkpoint ck(P, H) (T10.2b)."""
    return tokens == geometry.checkpoint_boundary(work.num_prompt, work.config.hash_block_size)


def owe_copy(state: GroupState, index: int, block: int, boundary: int) -> GroupState:
    """Note that the running state was registered inside its block: the next allocation moves the keys (T10.2b)."""
    return evolve(
        state,
        partial_index=index,
        partial_source=block,
        num_cached=index,
        tail_block=block,
        tail_boundary=boundary,
    )
