"""One-step claims of appending: to a request's table (T17, T19), and to a worker's row with its guard (2.5, TB-11)."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import allocation, worker
from kvproof.core import config as configs
from kvproof.core import work as works
from kvproof.core import world as worlds
from kvproof.core.allocation import InStep, Wanted
from kvproof.core.config import Group
from kvproof.core.errors import RowCapacityExceeded
from kvproof.core.kinds import positional
from kvproof.core.world import GroupState, Worker, World
from kvproof.proofs.claim import claim
from kvproof.proofs.claims import holders
from kvproof.proofs.claims import pools_of_four as four
from kvproof.proofs.claims.pools_of_four import Draft, Key

CONFIG = configs.configure((Group("full_attention", 4),), num_blocks=4)
HYBRID = configs.configure((Group("full_attention", 8), Group("mamba_align", 8)), hash_block_size=4, num_blocks=4)
PAIR = configs.configure((Group("full_attention", 4), Group("mamba_align", 4)), num_blocks=4)
KERNEL = configs.configure((Group("full_attention", 4), Group("mamba_align", 4)), num_blocks=4, append_expansion=2)
OPEN = InStep(worlds.new_world(CONFIG))
COUNTS = tuple(range(13))


def going_on(slots: int) -> Wanted:
    """Return what a running request wants that needs so many slots."""
    return Wanted(first=False, local=0, external=0, slots=slots, main=slots)


@claim(
    works.take, sizes="shape", bounds="four blocks with one key; a table of two entries", laws=("PC-3", "PC-5", "TB-1", "TB-8")
)
def take_a_block_beside_a_table(draft: Draft, key: Key, first: int, second: int, states: bool) -> None:
    """A block that is handed out stands in no table, has one reference and no key; with it among the tables the references
    still equal the holders. One of attention beside states is noted to be zeroed (T0 b, T1, PC-3, PC-5).
    """
    assert four.legal(draft, key, free=1) & holders.held(draft, first, second)
    assert holders.own(first, second)
    old = four.pool_of(draft, key)
    table = holders.table_of(first, second)
    work = holders.work_on(PAIR if states else CONFIG, old)
    (block,) = works.take(work, 0, 1)
    assert four.sound(work.pool)
    assert holders.unshared(table, (block,))
    assert four.unkeyed(work.pool, block)
    assert holders.accounted(work.pool, holders.others(old, table), table, (block,))
    assert four.keys_kept(old, work.pool, block)
    assert (work.taken == [block]) & (work.zero == ([(0, block)] if states else []))


@claim(
    positional.demand,
    positional.grow,
    sizes="shape",
    bounds="four blocks of 4 tokens with one key; an empty table, 0 to 12 slots",
    laws=("PC-1", "PC-3", "PC-7", "TB-4"),
    deep=True,
)
def grow_an_empty_table(draft: Draft, key: Key, slots: int) -> None:
    """As many blocks are taken as the demand said: if they are free the table covers the slots afterwards, else growth is
    refused (T17, T19, PC-7, TB-4).
    """
    assert four.legal(draft, key) & four.within(0, slots, 12)
    old = four.pool_of(draft, key)
    wanted = four.pick(COUNTS, slots)
    work = holders.work_on(CONFIG, old)
    need = positional.demand(work, 0, GroupState(), (), going_on(wanted), OPEN, tokens=wanted, skipped=0)
    grown = four.attempt(positional.grow, work, 0, GroupState(), wanted)
    table = () if grown is None else grown[0].table
    assert four.sound(work.pool)
    assert (grown is None) == (need > len(old.free))
    assert grown is None or (table == old.free[:need]) & (grown[1] == table)
    assert grown is None or wanted <= 4 * len(table) < wanted + 4
    assert four.every(four.unkeyed(work.pool, block) for block in table)
    assert holders.accounted(work.pool, holders.others(old), table)
    assert four.keys_kept(old, work.pool, *table)


@claim(
    positional.demand,
    positional.grow,
    sizes="shape",
    bounds="four blocks of 4 tokens without keys; a table of one entry, 0 to 12 slots",
    laws=("PC-1", "PC-3", "PC-7", "TB-2", "TB-4", "TB-8"),
    deep=True,
)
def grow_a_table_of_one(draft: Draft, first: int, slots: int) -> None:
    """A table only grows at its end, by blocks that are not in it, and never shrinks (T19, TB-2, TB-8, PC-7)."""
    assert four.legal(draft) & holders.held(draft, first) & four.within(0, slots, 12)
    old = four.pool_of(draft)
    table = holders.table_of(first)
    wanted = four.pick(COUNTS, slots)
    work = holders.work_on(CONFIG, old)
    need = positional.demand(work, 0, GroupState(table), (), going_on(wanted), OPEN, tokens=wanted, skipped=0)
    grown = four.attempt(positional.grow, work, 0, GroupState(table), wanted)
    after = table if grown is None else grown[0].table
    assert four.sound(work.pool)
    assert (grown is None) == (need > len(old.free))
    assert grown is None or (after == table + old.free[:need]) & (wanted <= 4 * len(after))
    assert holders.unshared(after)
    assert holders.accounted(work.pool, holders.others(old, table), after)


@claim(
    positional.demand,
    positional.grow,
    sizes="shape",
    bounds="four blocks of 4 tokens without keys; a table of two entries, 0 to 12 slots",
    laws=("PC-1", "PC-3", "PC-7", "TB-2", "TB-4", "TB-8"),
    deep=True,
)
def grow_a_table_of_two(draft: Draft, first: int, second: int, slots: int) -> None:
    """The same of a table of two entries, one or both of which a window may have nulled (T19, TB-2, TB-8, PC-7)."""
    assert four.legal(draft) & holders.held(draft, first, second) & four.within(0, slots, 12)
    assert holders.own(first, second)
    old = four.pool_of(draft)
    table = holders.table_of(first, second)
    wanted = four.pick(COUNTS, slots)
    work = holders.work_on(CONFIG, old)
    need = positional.demand(work, 0, GroupState(table), (), going_on(wanted), OPEN, tokens=wanted, skipped=0)
    grown = four.attempt(positional.grow, work, 0, GroupState(table), wanted)
    after = table if grown is None else grown[0].table
    assert four.sound(work.pool)
    assert (grown is None) == (need > len(old.free))
    assert grown is None or (after == table + old.free[:need]) & (wanted <= 4 * len(after))
    assert holders.unshared(after)
    assert holders.accounted(work.pool, holders.others(old, table), after)


@claim(
    positional.demand,
    allocation.adopt,
    positional.grow,
    sizes="shape",
    bounds="four blocks of 8 tokens without keys; a hit of 4 or 8 tokens, 0 or 4 slots behind it",
    laws=("PC-3", "PC-7", "COW-6", "TB-8"),
)
def demand_of_a_hit_covers_its_growth(draft: Draft, block: int, whole: bool, more: bool) -> None:
    """What a first allocation demands of a group is what adoption takes out of the queue and growth hands out, the
    private copy of a hit inside a block among it: if it fits nothing runs out, if not something does (T17, PC-7, COW-6).
    """
    assert four.legal(draft) & four.within(1, block, 3)
    old = four.pool_of(draft)
    found = holders.table_of(block)
    local = 8 if whole else 4
    wanted = Wanted(first=True, local=local, external=0, slots=local + (4 if more else 0), main=local)
    work = holders.work_on(HYBRID, old)
    need = positional.demand(work, 0, GroupState(), found, wanted, OPEN, tokens=wanted.slots, skipped=0)
    state = allocation.adopt(work, 0, GroupState(), found, wanted)
    grown = four.attempt(positional.grow, work, 0, state, wanted.slots)
    after = state.table if grown is None else grown[0].table
    assert (grown is None) == (need > len(old.free))
    assert grown is None or four.sound(work.pool)
    assert grown is None or len(old.free) - len(work.pool.free) == need
    assert grown is None or holders.unshared(after)
    assert grown is None or holders.accounted(work.pool, holders.others(old), after, *(copy[1:] for copy in work.copies))


# --- the worker's rows --------------------------------------------------------------------------------------------


def rows_of(*rows: tuple[int, ...], at: int = 0) -> Worker:
    """Return a worker with two rows in each group: one, row 0 if not said, has these entries, the other entry 7."""
    both = tuple((row, (7,)) if at == 0 else ((7,), row) for row in rows)
    return Worker((worlds.NONE,) * 2, both, ((worlds.NONE,) * len(rows),) * 2, (1, 1))


def appended(world: World, rows: Worker, *blocks: tuple[int, ...], at: int = 0) -> Worker | None:
    """Return the worker after an append to a row: that of the refusal's world if it brings one, None if it brings none."""
    try:
        return worker.append(world, rows, at, blocks)
    except RowCapacityExceeded as error:
        return None if error.world is None else error.world.worker


@claim(
    worker.append,
    sizes="shape",
    bounds="two groups with rows of one entry and any capacities; one block for each, to either row",
    laws=("TB-11", "TB-13"),
)
def append_a_block_to_each_group(capacity: int, other: int, held: int, block: int, second: int, lower: bool) -> None:
    """An append goes behind the entries of the row in every group and leaves other rows alone, or is refused before anything
    is written if it passes the end of the row in any (TB-11, TB-13).
    """
    assert (capacity >= 1) & (other >= 1) & (held >= 0) & (block >= 0) & (second >= 0)
    world = evolve(worlds.new_world(PAIR), config=evolve(PAIR, row_capacity=(capacity, other)))
    at = 1 if lower else 0
    old = rows_of((held,), (held,), at=at)
    new = appended(world, old, (block,), (second,), at=at)
    assert (new is None) == ((capacity < 2) | (other < 2))
    assert new is None or new.rows == rows_of((held, block), (held, second), at=at).rows
    assert old == rows_of((held,), (held,), at=at)
    assert new is None or (new.owners == old.owners) & (new.columns == old.columns) & (new.accepted == old.accepted)


@claim(
    worker.append,
    sizes="shape",
    bounds="two groups with rows of two and no entries and any capacities; two blocks for the second",
    laws=("TB-11", "TB-13"),
)
def append_two_blocks_to_one_group(capacity: int, other: int, held: int, block: int, second: int) -> None:
    """A group that gets nothing keeps its row, and the refusal counts entries of the row and the append together (TB-11)."""
    assert (capacity >= 2) & (other >= 0) & (held >= 0) & (block >= 0) & (second >= 0)
    world = evolve(worlds.new_world(PAIR), config=evolve(PAIR, row_capacity=(capacity, other)))
    old = rows_of((held, held), ())
    new = appended(world, old, (), (block, second))
    assert (new is None) == (other < 2)
    assert new is None or new.rows == (((held, held), (7,)), ((block, second), (7,)))


@claim(
    worker.append,
    sizes="shape",
    bounds="two groups of two kernel blocks a block with rows of two and no entries and any capacities; one block for each",
    laws=("TB-11", "TB-13"),
)
def append_expanded_blocks(capacity: int, other: int, held: int, block: int, second: int) -> None:
    """The guard counts kernel blocks, of which two stand for each block: 2b and 2b + 1 (2.5, TB-11)."""
    assert (capacity >= 2) & (other >= 0) & (held >= 0) & (block >= 0) & (second >= 0)
    world = evolve(worlds.new_world(KERNEL), config=evolve(KERNEL, row_capacity=(capacity, other)))
    old = rows_of((2 * held, 2 * held + 1), ())
    new = appended(world, old, (block,), (second,))
    first = (2 * held, 2 * held + 1, 2 * block, 2 * block + 1)
    assert (new is None) == ((capacity < 4) | (other < 2))
    assert new is None or new.rows == ((first, (7,)), ((2 * second, 2 * second + 1), (7,)))


@claim(worker.clear_row, sizes="shape", bounds="two groups with rows of two entries, either row", laws=("TB-13",))
def clear_one_row_only(held: int, block: int, owner: int, kept: int, lower: bool) -> None:
    """A row that gets a new owner is empty in every group, and of its last step one token counts as kept; the other row
    stays (3.6, T37.5).
    """
    assert (held >= 0) & (block >= 0) & (owner >= 0) & (kept >= 1)
    at = 1 if lower else 0
    old = evolve(rows_of((held, block), (block, held), at=at), accepted=(kept, kept))
    new = worker.clear_row(old, at, owner)
    assert new.rows == rows_of((), (), at=at).rows
    assert new.owners == ((worlds.NONE, owner) if lower else (owner, worlds.NONE))
    assert new.accepted == ((kept, 1) if lower else (1, kept))
    assert new.columns == old.columns
