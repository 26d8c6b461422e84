"""Claims about what is in a block, the worker's columns of states, and the order in which blocks are freed (3.2, 3.6, T3)."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import config as configs
from kvproof.core import contents, execute, freeing, worker
from kvproof.core import pool as pools
from kvproof.core import world as worlds
from kvproof.core.allocation import Wanted
from kvproof.core.config import Group
from kvproof.core.contents import GARBAGE, UNWRITTEN
from kvproof.core.kinds import recurrent
from kvproof.core.world import GroupState, Scheduled, Step
from kvproof.proofs.claim import claim
from kvproof.proofs.claims import holders
from kvproof.proofs.claims import hosts_of_four as tiers
from kvproof.proofs.claims import pools_of_four as four
from kvproof.proofs.claims.pools_of_four import Draft, Key, pick

KINDS = configs.configure((Group("full_attention", 2), Group("mamba_align", 4), Group("mamba_stable", 4)), num_blocks=4)
TWO_RANKS = configs.configure((Group("full_attention", 1), Group("mamba_align", 2)), num_blocks=4, dcp_size=2)
EXPORTING = configs.configure(
    (Group("full_attention", 8), Group("mamba_align", 4)), hash_block_size=2, num_blocks=4, checkpoint_alignment=1
)
"""H and A of 2: a checkpoint may lie inside the blocks of 4 tokens."""
DEFERRED = configs.configure((Group("full_attention", 4),), num_blocks=4, defer_block_free=True, max_steps_in_flight=2)
EMPTY = four.pool_of(Draft(0, (1, 1, 1), (1, 1, 1), 0))


def copied(before: list[tuple[int, ...]], copies: tuple[tuple[int, int, int], ...]) -> list[tuple[int, ...]]:
    """Return the memory behind the copies of a step."""
    memory = list(before)
    execute.run_copies(memory, Step((), copies, (), 0, ()), TWO_RANKS)
    return memory


# --- contents -----------------------------------------------------------------------------------------------------


@claim(
    contents.cell_map,
    contents.block_cells,
    sizes="grid",
    bounds="blocks of 4 tokens on 1, 2 and 4 ranks, interleaves of 1, 2 and 4; sharded and replicated",
    laws=("DS-2", "DS-3", "DS-5"),
)
def every_cell_of_a_block_holds_one_position(ranks: int, interleave: int, sharded: bool) -> None:
    """Each position of a sharded block has one cell on one rank and each cell one position; of a replicated one each rank has
    a cell, the same of its own. A whole-block copy therefore moves every position on every rank (DS-2, DS-3, DS-5).
    """
    assert 0 <= ranks < 3
    assert 0 <= interleave < 3
    n, run = pick((1, 2, 4), ranks), pick((1, 2, 4), interleave)
    cells = contents.cell_map(False, 4, sharded, n, run)
    states = contents.cell_map(True, 4, False, n, run)
    count = contents.block_cells(False, 4, n)
    slots = contents.block_cells(True, 4, n)
    held = sorted(cell for position in cells for cell in position)
    assert (states == ()) & (slots == n) & (count == 4 * n)
    assert held == list(range(1, 4 * n + 1))
    assert len(cells) == (4 * n if sharded else 4)
    assert all(len(position) == (1 if sharded else n) for position in cells)
    assert sharded or all((cell - 1) % 4 == at for at, position in enumerate(cells) for cell in position)


@claim(
    contents.write_positions,
    contents.as_group,
    contents.garbage,
    sizes="shape",
    bounds="a block of four cells with any contents of this or another group, or none; up to two positions written",
    laws=("PC-11", "CC-1"),
)
def a_write_changes_its_positions_alone(
    group: int, other: int, one: int, two: int, new: int, first: int, count: int, bare: bool
) -> None:
    """Writing into a block puts the nodes into the cells of their positions and leaves the others; what another group left
    is garbage, and what nobody wrote unwritten (T0 f, PC-11).
    """
    assert (group >= 0) & (other >= 0) & (one >= 0) & (two >= 0) & (new >= 0)
    assert 0 <= first <= 2
    assert 0 <= count <= 2
    old = () if bare else (other, one, two, one, two)
    at, nodes = pick((0, 1, 2), first), (new, new + 1)[: pick((0, 1, 2), count)]
    after = contents.write_positions(old, group, 4, ((1,), (2,), (3,), (4,)), at, nodes)
    rest = UNWRITTEN if bare else GARBAGE
    kept = (one, two, one, two) if other == group and not bare else (rest,) * 4
    spoiled = contents.garbage(group, 4)
    assert after[0] == group
    assert after[1:] == (*kept[:at], *nodes, *kept[at + len(nodes) :])
    assert spoiled == (group, *(GARBAGE,) * 4)


@claim(
    contents.state_values,
    contents.advance_state,
    contents.copy_block,
    sizes="shape",
    bounds="a block with the states of two ranks, any, of this or another group, or nothing",
    laws=("CC-2", "DS-5", "COW-2", "PC-11"),
)
def a_state_comes_from_the_right_state_alone(
    group: int, other: int, one: int, two: int, expected: int, after: int, bare: bool
) -> None:
    """A rank finds the state that its block holds, and has the right one behind a chunk only if it began with the right one;
    a copy brings every rank its own (CC-2, DS-5).
    """
    assert (group >= 0) & (other >= 0) & (one >= 0) & (two >= 0) & (expected >= 0) & (after >= 0)
    block = () if bare else (other, one, two)
    found = contents.state_values(block, group, 2)
    then = contents.advance_state(found, expected, after)
    copy = contents.copy_block(block, (other, after, after))
    assert found == ((UNWRITTEN,) * 2 if bare else (one, two) if other == group else (GARBAGE,) * 2)
    assert then == tuple(after if value == expected else GARBAGE for value in found)
    assert copy == block


@claim(
    execute.run_copies, sizes="shape", bounds="four blocks with any contents; up to two copies", laws=("COW-2", "COW-7", "DS-5")
)
def copies_of_a_step_see_the_memory_before_it(one: int, two: int, three: int, source: int, count: int) -> None:
    """Behind the copies of a step each destination has what its source had before any of them, and nothing else changed
    (T0 c, COW-2, DS-5).
    """
    assert (one >= 0) & (two >= 0) & (three >= 0)
    assert 1 <= source <= 3
    assert 0 <= count <= 2
    before = [(), (0, one, two), (0, two, three), (0, three, one)]
    from_ = pick((1, 2, 3), source - 1)
    copies = ((0, from_, 2), (0, 2, 3))[: pick((0, 1, 2), count)]
    memory = copied(before, copies)
    assert memory[:2] == before[:2]
    assert memory[2] == (before[from_] if count >= 1 else before[2])
    assert memory[3] == (before[2] if count == 2 else before[3])


@claim(
    execute.state_boundaries,
    execute.reads_state,
    sizes="grid",
    bounds="states every 4 tokens, in align mode and stable; chunks from 0 to 9 tokens of 1 to 9",
    laws=("CC-2", "TB-4"),
)
def a_chunk_leaves_the_states_that_its_tables_have_columns_for(start: int, length: int) -> None:
    """In align mode a chunk leaves the state at its end; in a stable table one at each block's end as well, each in a column
    of its own. It reads a state unless it begins at 0 (T0 f, CC-2).
    """
    assert 0 <= start < 10
    assert 1 <= length < 10
    first, amount = pick(tuple(range(10)), start), pick(tuple(range(1, 10)), length - 1)
    end = first + amount
    align = execute.state_boundaries(KINDS, 1, first, end)
    stable = execute.state_boundaries(KINDS, 2, first, end)
    reads = execute.reads_state(first)
    columns = [worker.column_of(boundary, 4) for boundary in stable]
    assert align == (end,)
    assert stable == tuple(at for at in range(first + 1, end + 1) if at % 4 == 0 or at == end)
    assert len(set(columns)) == len(columns)
    assert reads == (first > 0)


# --- columns of states --------------------------------------------------------------------------------------------


@claim(
    worker.column_of,
    worker.seed_column,
    sizes="grid",
    bounds="blocks of 4 tokens of states; any boundary",
    laws=("TB-7", "CC-2"),
)
def a_state_stands_in_the_column_of_its_last_token(boundary: int) -> None:
    """The state at a boundary stands in the column of the last token before it, and at 0 in none (3.6, TB-7)."""
    assert boundary >= 0
    column = worker.column_of(boundary, 4)
    seeded = worker.seed_column(KINDS, 1, boundary)
    assert seeded == column
    assert (column == worlds.NONE) == (boundary == 0)
    assert boundary == 0 or 4 * column < boundary <= 4 * column + 4


@claim(
    worker.keep,
    worker.state_column,
    worker.set_columns,
    worker.set_accepted,
    sizes="shape",
    bounds="two rows of one group; any columns, accepted drafts of a step",
    laws=("RQ-3", "TB-7", "CC-2"),
)
def the_running_state_lies_behind_the_accepted_drafts(column: int, other: int, accepted: int, second: bool) -> None:
    """With each accepted draft the running state lies one column further; the other row keeps its own (3.6, RQ-3)."""
    assert (column >= 0) & (other >= 0) & (accepted >= 0)
    row = 1 if second else 0
    rows = worker.set_columns(worlds.new_world(KINDS).worker, 0, (worlds.NONE, column, other))
    rows = worker.set_columns(rows, 1, (worlds.NONE, other, column))
    after = worker.keep(rows, row, 1 + accepted)
    mine = worker.state_column(after, 1, row)
    its = worker.state_column(after, 1, 1 - row)
    start, rest = (other, column) if second else (column, other)
    assert mine == start + accepted
    assert its == rest
    assert after.rows == rows.rows


@claim(
    worker.block_at,
    worker.own_block,
    sizes="shape",
    bounds="a row of three entries, any blocks; any column",
    laws=("TB-7", "CC-3"),
)
def a_block_that_moved_on_belongs_to_its_last_column(first: int, second: int, third: int, column: int) -> None:
    """A column has the block that stands in it, and it is its own unless the block stands further right as well, to where it
    has moved (3.6, T21.4).
    """
    assert (first >= 1) & (second >= 1) & (third >= 1)
    assert 0 <= column < 3
    row, at = (first, second, third), pick((0, 1, 2), column)
    old = worlds.new_world(KINDS).worker
    rows = evolve(old, rows=(old.rows[0], (row, *old.rows[1][1:]), old.rows[2]))
    found = worker.block_at(KINDS, rows, 1, 0, at)
    own = worker.own_block(KINDS, rows, 1, 0, at)
    behind = worker.own_block(KINDS, rows, 1, 0, 3)
    moved = any(row[later] == row[at] for later in range(at + 1, 3))
    assert found == row[at]
    assert own == (0 if moved else row[at])
    assert behind == 0


@claim(
    worker.checkpoint,
    recurrent.reservation,
    recurrent.has_checkpoint,
    sizes="grid",
    bounds="blocks of 4 tokens, H and A of 2, checkpoints at any token; any chunk of a prompt, with and without a draft",
    laws=("CC-3", "TB-7"),
)
def the_worker_writes_the_checkpoint_that_was_reserved(start: int, amount: int, more: int, draft: bool) -> None:
    """What the demand reserves for a chunk's internal checkpoint is what the worker writes, from the same numbers; a chunk
    with drafts has none (T38).
    """
    assert (start >= 0) & (amount >= 1) & (more >= 0)
    work = holders.work_on(EXPORTING, EMPTY, num_prompt=start + amount + more)
    wanted = Wanted(first=True, local=start, external=0, slots=start + amount, main=start + amount)
    reserved = recurrent.reservation(work, 1, GroupState(), wanted)
    entry = Scheduled(0, start, amount, True, start, (7,) if draft else ())
    written = worker.checkpoint(EXPORTING, 1, entry)
    column = GroupState(checkpoint_position=reserved[0], checkpoint_column=reserved[1])
    known = recurrent.has_checkpoint(column)
    assert not draft or written is None
    assert draft or (written or recurrent.NO_CHECKPOINT) == reserved
    assert known == (reserved != recurrent.NO_CHECKPOINT)


# --- the order of freeing -----------------------------------------------------------------------------------------


@claim(
    pools.eviction_order,
    pools.releasable,
    sizes="shape",
    bounds="a table of three entries, any of them null",
    laws=("PC-8", "PC-1"),
)
def the_tail_of_a_table_is_freed_before_its_head(first: int, second: int, third: int) -> None:
    """A table is given back from its last entry to its first, so that its head is kept longest, and null entries are none
    (T3, PC-8).
    """
    assert (first >= 0) & (second >= 0) & (third >= 0)
    table = (first, second, third)
    order = list(pools.eviction_order(table))
    given = list(pools.releasable(order))
    assert order == [third, second, first]
    assert given == [block for block in (third, second, first) if block > 0]


@claim(pools.requeue, pools.leave_queue, sizes="shape", bounds="a queue of two blocks; two freed ones", laws=("PC-1", "PC-8"))
def bare_blocks_are_reused_before_keyed_ones(one: int, two: int, bare: int, keyed: int) -> None:
    """What is freed without a key stands in front of the queue and what has one behind it; who is taken out of the queue
    leaves the others in their order (T2, T3, PC-8).
    """
    assert (one >= 1) & (two >= 1) & (bare >= 1) & (keyed >= 1)
    assert (one != two) & (bare != keyed) & (bare != one) & (bare != two) & (keyed != one) & (keyed != two)
    queue = pools.requeue((one, two), (bare,), (keyed,))
    left = pools.leave_queue(queue, one)
    assert queue == (bare, one, two, keyed)
    assert left == (bare, two, keyed)


@claim(pools.new_pool, sizes="shape", bounds="one to four blocks", laws=("PC-1", "PC-2", "PC-4"))
def a_new_pool_has_every_block_free_but_null(count: int, announces: bool) -> None:
    """In a new pool every block but the null block is free, once, in the order of its number, and nothing has a key (3.2)."""
    assert 1 <= count <= 4
    size = pick((1, 2, 3, 4), count - 1)
    pool = pools.new_pool(size, announces)
    assert pool.free == tuple(block for block in range(size) if block != 0)
    assert pool.ref == (0,) * size
    assert (pool.entries == ()) & (pool.key_node == (-1,) * size)
    assert (pool.notes is None) == (not announces)


@claim(pools.holds, pools.keys_of, pools.inserted, sizes="shape", bounds=four.TWO_KEYS_IDLE, laws=("HB-5",), deep=True)
def a_block_has_the_keys_that_the_map_says(draft: Draft, key: Key, other: Key, number: int, node: int, group: int) -> None:
    """A block has a key exactly if an entry of the map says so, and its keys are told first inserted first (3.2, HB-5)."""
    assert four.legal(draft, key, other, free=3) & four.within(1, number, 3) & (node >= 0) & (group >= 0)
    pool = four.pool_of(draft, key, other)
    block = four.block_of(number)
    has = pools.holds(pool, node, group, block)
    keys = pools.keys_of(pool, block)
    mine = four.entries_of(pool.entries, block)
    assert has == four.carries(pool, node, group, block)
    assert len(keys) == len(mine)
    assert all(entry in mine for entry in keys)
    assert len(keys) < 2 or pools.inserted(keys[0]) < pools.inserted(keys[1])


@claim(
    freeing.is_held_back,
    freeing.hold_back,
    freeing.in_order,
    sizes="shape",
    bounds="one or two steps in flight, of this request or another, opened or not; tables of two groups",
    laws=("PC-12", "PC-3"),
)
def blocks_wait_for_a_step_that_may_still_write_them(
    due: bool, opened: bool, deferred: bool, fence: int, flattened: bool
) -> None:
    """Freeing waits exactly if it is deferred and a step of the request is in flight whose outputs did not begin; then the
    tables are queued as they are, and released apart, or as one where a profile says so (T3, 3.4, PC-12).
    """
    assert fence >= 0
    step = Step((), (), (), 0, (0,) if due else (1,), opened=opened)
    world = evolve(tiers.FULL_WORLD, config=DEFERRED if deferred else tiers.FULL, steps=(step,))
    waits = freeing.is_held_back(world, holders.request_of())
    after = freeing.hold_back(world, fence, ((1, 2), (3,)))
    order = freeing.in_order("flattened" if flattened else "per_group", ((1, 2), (3,)))
    assert waits == (deferred and due and not opened)
    assert [(one.fence, one.tables) for one in after.deferred] == [(fence, ((1, 2), (3,)))]
    assert order == (((1, 2, 3),) if flattened else ((1, 2), (3,)))
