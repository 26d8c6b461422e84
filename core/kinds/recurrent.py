"""Mamba align: one state per block, snapshots only where chunks end, interior entries null (T10, T11, T17, T18, T21).

B is the block size; the group is replicated on every DCP rank. The last entries are the running state and the speculative
blocks behind it, into which a step with drafts writes; when the running state moves on, they move along (T21.4). A backend
that exports them writes one more state per prefill chunk, the internal checkpoint (T38).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import evolve

from kvproof.core import geometry, retention
from kvproof.core import pool as pools
from kvproof.core import work as works
from kvproof.core.errors import ContractBroken
from kvproof.core.kinds import caching, copying, positional
from kvproof.core.kinds.base import Admission, Capabilities, InStep
from kvproof.core.pool import NO_KEY, NULL_BLOCK, Pool
from kvproof.core.work import Work

if TYPE_CHECKING:
    from kvproof.core.config import Config, Group
    from kvproof.core.world import GroupState

NO_CHECKPOINT = (-1, -1)
"""The (position, column) of a chunk that writes no internal checkpoint."""

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
    """Return the blocks wanted, or more than the pool has if the adopted state is computed in this very step (T17).

    Reserves the chunk's internal checkpoint, or gives an earlier reservation up (T38). What the admission gate asks before is
    no reservation: the demand of the chunk itself comes last.
    """
    pool = work.pool
    if adopted and step.registered(pool.key_node[adopted[-1]], group):
        return len(pool.ref) + 1
    reserved = reservation(work, group, state, wanted)
    work.checkpoints[group] = reserved
    copy = owed_copy(state, wanted, work.config.sizes[group])
    checkpoint = 0 if reserved == NO_CHECKPOINT else 1
    if work.config.profile.recurrent_demand == "exact":
        return _demand_exact(work, group, state, adopted, wanted, copy, checkpoint)
    return _demand_capped(work, group, state, adopted, wanted, copy, checkpoint)


def owed_copy(state: GroupState, wanted: Admission, size: int) -> int:
    """Return 1 if this allocation takes a block for a copy: a debt, or a local hit inside a block (T17, COW-6)."""
    inside = copying.copy_demand(wanted.local, size) if wanted.first else 0
    return 1 if state.partial_index != -1 or inside else 0


def required_entries(work: Work, group: int, wanted: Admission) -> int:
    """Return the table entries that a state at the wanted tokens and the speculative blocks behind it need (T17, T21)."""
    spec = work.config.groups[group]
    return geometry.ceil_div(wanted.main, work.config.sizes[group]) + spec.speculative_blocks


def _demand_exact(
    work: Work, group: int, state: GroupState, adopted: tuple[int, ...], wanted: Admission, copy: int, checkpoint: int
) -> int:
    """Return exactly what T18 and T21 will take (T17 ``exact``)."""
    size = work.config.sizes[group]
    spare = work.config.groups[group].speculative_blocks
    covered = wanted.local + wanted.external
    skipped = skipped_tokens(work.config.groups[group], covered) // size if wanted.first else 0
    entries = max(skipped, len(adopted)) if wanted.first else len(state.table)
    external = 0
    if wanted.first and wanted.external > 0:
        external = max(geometry.ceil_div(covered, size) - entries, 0)
    entries += external
    kept = adopted[skipped:] if wanted.first else ()
    evictable = positional.evictable(work, kept)
    required = required_entries(work, group, wanted)
    if required <= entries and not copy and not checkpoint:
        return external + evictable
    running = required - spare - 1
    moved = len(left_behind(work, group, entries, wanted, checkpoint)) if state.allocated else 0
    if entries < running:
        entries = max(entries, running - checkpoint)
    return external + evictable + max(required - entries - moved, 0) + copy


def _demand_capped(
    work: Work, group: int, state: GroupState, adopted: tuple[int, ...], wanted: Admission, copy: int, checkpoint: int
) -> int:
    """Return the prediction of 0.33.0 (T17 ``capped``); below 0 after rejected drafts, which lowers that of other groups."""
    new = required_entries(work, group, wanted) - len(adopted) - len(state.table)
    if copy:
        new = max(new, 0) + 1
    if new > 0:
        spare = 0 if state.allocated else work.config.groups[group].speculative_blocks
        new = min(new, 1 + copy + checkpoint + spare)
    return new + positional.evictable(work, adopted)


def reservation(work: Work, group: int, state: GroupState, wanted: Admission) -> tuple[int, int]:
    """Return the (position, column) of the internal checkpoint that this chunk will write, NO_CHECKPOINT without (T38).

    Under sparse retention only the chunk that ends the prefill keeps one. A step with drafts has none: backends export
    checkpoints of prefills alone, and nobody knows yet whether the position is the request's.
    """
    config = work.config
    if wanted.main > work.num_tokens or (config.retention == 0 and wanted.main < max(work.num_prompt, work.num_tokens - 1)):
        return NO_CHECKPOINT
    found = retention.checkpoint_of(
        wanted.local + wanted.external,
        wanted.main,
        block_size=config.groups[group].block_size,
        hash_block=config.hash_block_size,
        alignment=config.alignment,
        eagle=any(config.eagle),
        checkpoint_alignment=config.checkpoint_alignment,
    )
    if found is None or not column_is_free(state, found[1], config.groups[group].speculative_blocks):
        return NO_CHECKPOINT
    return found


def has_checkpoint(state: GroupState) -> bool:
    """Tell whether a column is reserved for an internal checkpoint (T38.4)."""
    return (state.checkpoint_position, state.checkpoint_column) != NO_CHECKPOINT


def column_is_free(state: GroupState, column: int, spare: int) -> bool:
    """Tell whether a checkpoint may take a column: behind the table, null, or a speculative block's (T38.3)."""
    length = len(state.table)
    if column >= length:
        return True
    return state.table[column] == NULL_BLOCK or (state.allocated and column >= length - spare)


def left_behind(work: Work, group: int, length: int, wanted: Admission, checkpoint: int) -> range:
    """Return which of a table's ``length`` columns move to its end (T21.4).

    The speculative ones before the running column, wherever drafts in flight that are rejected may set it back to: the
    worker's row is append-only, and a block that stood in two columns of the chunk would be written twice (7.3.11).
    """
    running = geometry.ceil_div(wanted.settled, work.config.sizes[group]) - 1
    return relocated_columns(length, work.config.groups[group].speculative_blocks, running - checkpoint)


def relocated_columns(length: int, spare: int, stop: int) -> range:
    """Return which of the last ``spare`` of ``length`` columns move to the end: those below ``stop`` (T21.4)."""
    return range(length - spare, max(min(length, stop), length - spare))


def grow(work: Work, group: int, state: GroupState, wanted: Admission) -> tuple[GroupState, tuple[int, ...]]:
    """Append nulls, moved speculative blocks and new ones; pay an owed copy as producer or consumer (T21)."""
    spare = work.config.groups[group].speculative_blocks
    required = required_entries(work, group, wanted)
    owed = state.partial_index != -1
    checkpoint = 1 if has_checkpoint(state) else 0
    before = len(state.table)
    if required <= before and not owed and not checkpoint:
        return evolve(state, allocated=True), ()
    running = required - spare - 1
    if before < running:
        nulls = (NULL_BLOCK,) * max(running - checkpoint - before, 0)
        state = evolve(state, table=state.table + nulls)
    if state.allocated:
        for column in left_behind(work, group, before, wanted, checkpoint):
            state = relocate(work, group, state, column)
    first: tuple[int, ...] = ()
    if owed and state.allocated:
        state = _pay_as_producer(work, group, state)
    elif owed:
        state, copied = copying.redirect(work, group, state)
        first = (copied,)
    blocks = works.take(work, group, max(required - len(state.table), 0))
    state = evolve(state, table=state.table + blocks, allocated=True)
    return state, first + state.table[before:]


def relocate(work: Work, group: int, state: GroupState, column: int) -> GroupState:
    """Move a speculative block that the step leaves behind to the end of the table (T21.4). Raises ContractBroken."""
    block = state.table[column]
    check_writable(work.pool, group, block)
    work.relocated.append((group, block, column, len(state.table)))
    return evolve(state, table=moved_to_end(state.table, column))


def check_writable(pool: Pool, group: int, block: int) -> None:
    """Refuse to move a block that is shared or carries a key (T21.4, TB-10). Raises ContractBroken."""
    if pool.ref[block] != 1 or pool.key_node[block] != NO_KEY:
        raise ContractBroken(
            f"speculative block {block} has {pool.ref[block]} references and key {pool.key_node[block]}: only a private, "
            "unkeyed block is moved (T21.4)",
            group=group,
            block=block,
        )


def moved_to_end(table: tuple[int, ...], column: int) -> tuple[int, ...]:
    """Return the table with the block of a column at its end and null in the column (T21.4, M-MAM-3)."""
    return (*table[:column], NULL_BLOCK, *table[column + 1 :], table[column])


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
    """Register what stands inside a block: the reserved checkpoint, and the prompt checkpoint or junction at the end (T10.2).

    Under ``checkpoint_tail = first`` a chunk with a checkpoint registers nothing at its end.
    """
    if has_checkpoint(state):
        _register_checkpoint(work, group, state.table[state.checkpoint_column], state.checkpoint_position)
        if work.config.profile.checkpoint_tail == "first":
            return state
    if tokens <= 0 or tokens % work.config.hash_block_size or not is_checkpoint(work, tokens):
        return state
    size = work.config.sizes[group]
    index = geometry.ceil_div(tokens, size) - 1
    block = state.table[index] if index < len(state.table) else NULL_BLOCK
    if block == NULL_BLOCK or work.pool.key_tokens[block] == tokens or index == state.checkpoint_column:
        return state
    node = caching.partial_node(work, group, tokens)
    work.pool = pools.insert_partial(work.pool, node, group, block, tokens)
    note_registered(work, group, node)
    if tokens % size == 0:
        return state
    return owe_copy(state, index, block, tokens)


def _register_checkpoint(work: Work, group: int, block: int, position: int) -> None:
    """Key the block of the internal checkpoint by its position alone, or not at all if nobody resumes there (T10.2a).

    The forward overwrites the block, so nothing that the full entries said of it stays.
    """
    if not useful_checkpoint(work, group, position):
        work.pool = pools.evict(work.pool, block)
    elif work.pool.key_tokens[block] != position:
        node = caching.partial_node(work, group, position)
        work.pool = pools.replace_partial(work.pool, node, group, block, position)
        note_registered(work, group, node)


def useful_checkpoint(work: Work, group: int, position: int) -> bool:
    """Tell whether an internal checkpoint is kept: the prompt's, one that the mask retains, or the junction (T10.2a)."""
    config = work.config
    size = config.sizes[group]
    if position in (geometry.checkpoint_boundary(work.num_prompt, config.alignment, any(config.eagle)), work.junction):
        return True
    return position % size == 0 and retention.mamba_mask(position // size - 1, size, config.alignment, config.retention, ())


def is_checkpoint(work: Work, tokens: int) -> bool:
    """Tell whether a chunk end is kept inside its block: the prompt's ck(P, H), or the junction that is pinned (T10.2b)."""
    config = work.config
    if tokens == geometry.checkpoint_boundary(work.num_prompt, config.hash_block_size, any(config.eagle)):
        return True
    return config.pins_junctions and tokens == work.junction and work.computed < tokens <= work.num_prompt


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
