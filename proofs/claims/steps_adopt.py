"""One-step claims of adopting a hit, kind by kind, and of the two phases of an admission (T16.4, T16.5, T18)."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import allocation
from kvproof.core import config as configs
from kvproof.core import world as worlds
from kvproof.core.allocation import Wanted
from kvproof.core.config import Group
from kvproof.core.pool import NULL_BLOCK
from kvproof.core.world import GroupState
from kvproof.proofs.claim import claim
from kvproof.proofs.claims import holders
from kvproof.proofs.claims import pools_of_four as four
from kvproof.proofs.claims.pools_of_four import Draft, Key

HYBRID = configs.configure(
    (
        Group("full_attention", 8),
        Group("mamba_align", 8),
        Group("sliding_window", 4, window=4),
        Group("scratch", 8),
    ),
    hash_block_size=4,
    num_blocks=4,
)
"""H of 4: hits end inside the blocks of 8 tokens of full attention (group 0) and Mamba align (group 1)."""
WINDOW, SCRATCH = 2, 3
PAIR = configs.configure((Group("full_attention", 4), Group("sliding_window", 4, window=16)), num_blocks=4)
IDLE = worlds.new_world(PAIR)
EMPTY = GroupState()


def hit(local: int, external: int = 0) -> Wanted:
    """Return what a first allocation with such a hit and a chunk of four tokens wants."""
    total = local + external + 4
    return Wanted(first=True, local=local, external=external, slots=total, main=total)


@claim(
    allocation.adopt,
    sizes="shape",
    bounds="four blocks with one key; full attention of 8 tokens a block, a hit of 4 or 8 tokens",
    laws=("PC-1", "PC-3", "TB-1", "TB-14"),
)
def adopt_one_block_of_full_attention(draft: Draft, key: Key, block: int, whole: bool) -> None:
    """The block of a hit gets one reference more, leaves the queue and keeps its keys. If the hit ends inside it, a private
    copy of it is owed and it does not count as registered (T18, PC-3, TB-14).
    """
    assert four.legal(draft, key) & four.within(1, block, 3)
    old = four.pool_of(draft, key)
    found = holders.table_of(block)
    work = holders.work_on(HYBRID, old)
    state = allocation.adopt(work, 0, EMPTY, found, hit(8 if whole else 4))
    new = work.pool
    assert four.sound(new)
    assert state.table == found
    assert holders.accounted(new, holders.others(old), state.table)
    assert four.keys_kept(old, new) & four.holdings_kept(old, new, *found)
    assert (state.partial_index, state.partial_source) == ((-1, -1) if whole else (0, found[0]))
    assert state.num_cached == (1 if whole else 0)


@claim(
    allocation.adopt,
    sizes="shape",
    bounds="four blocks without keys; full attention of 8 tokens a block, a hit of 12 or 16 tokens",
    laws=("PC-1", "PC-3", "TB-1", "TB-8", "TB-14"),
)
def adopt_two_blocks_of_full_attention(draft: Draft, first: int, second: int, whole: bool) -> None:
    """Both blocks of a hit get one reference more and leave the queue; of a hit inside a block the last one is owed a copy
    (T18, PC-3, TB-8).
    """
    assert four.legal(draft) & four.within(1, first, 3) & four.within(1, second, 3)
    assert first != second
    old = four.pool_of(draft)
    found = holders.table_of(first, second)
    work = holders.work_on(HYBRID, old)
    state = allocation.adopt(work, 0, EMPTY, found, hit(16 if whole else 12))
    new = work.pool
    assert four.sound(new)
    assert state.table == found
    assert holders.unshared(state.table)
    assert holders.accounted(new, holders.others(old), state.table)
    assert four.holdings_kept(old, new, *found)
    assert (state.partial_index, state.partial_source) == ((-1, -1) if whole else (1, found[1]))
    assert state.num_cached == (2 if whole else 1)


@claim(
    allocation.adopt,
    sizes="shape",
    bounds="four blocks with one key; Mamba align of 8 tokens a block, a hit of 4 or 8 tokens, 0 or 8 external ones",
    laws=("PC-1", "PC-3", "TB-1", "TB-14"),
)
def adopt_a_recurrent_state(draft: Draft, key: Key, block: int, whole: bool, load: bool) -> None:
    """A state is adopted with one reference, and a copy of it is owed if it stands inside its block; a state that external
    tokens pass is neither touched nor kept (T18, PC-3).
    """
    assert four.legal(draft, key) & four.within(1, block, 3)
    old = four.pool_of(draft, key)
    found = holders.table_of(block)
    work = holders.work_on(HYBRID, old)
    state = allocation.adopt(work, 1, EMPTY, found, hit(8 if whole else 4, 8 if load else 0))
    new = work.pool
    assert four.sound(new)
    assert state.table == ((NULL_BLOCK,) if load else found)
    assert holders.accounted(new, holders.others(old), state.table)
    assert four.keys_kept(old, new) & four.holdings_kept(old, new, *state.table)
    assert (state.partial_index, state.partial_source) == ((0, found[0]) if (not whole and not load) else (-1, -1))
    assert state.num_cached == (0 if not whole and not load else 1)


@claim(
    allocation.adopt,
    sizes="shape",
    bounds="four blocks with one key; Mamba align of 8 tokens a block, a hit of 12 or 16 tokens",
    laws=("PC-1", "PC-3", "TB-1", "TB-14"),
)
def adopt_a_recurrent_state_behind_a_null_entry(draft: Draft, key: Key, block: int, whole: bool) -> None:
    """The entries before a state stay null, and only the state is touched (T18)."""
    assert four.legal(draft, key) & four.within(1, block, 3)
    old = four.pool_of(draft, key)
    (found,) = holders.table_of(block)
    work = holders.work_on(HYBRID, old)
    state = allocation.adopt(work, 1, EMPTY, (NULL_BLOCK, found), hit(16 if whole else 12))
    new = work.pool
    assert four.sound(new)
    assert state.table == (NULL_BLOCK, found)
    assert holders.accounted(new, holders.others(old), state.table)
    assert four.keys_kept(old, new) & four.holdings_kept(old, new, found)
    assert (state.partial_index, state.partial_source) == ((-1, -1) if whole else (1, found))
    assert state.num_cached == (2 if whole else 1)


@claim(
    allocation.adopt,
    sizes="shape",
    bounds="four blocks with one key; a window of 4 tokens over blocks of 4, a hit of 8 tokens",
    laws=("PC-1", "PC-3", "TB-1", "TB-5"),
)
def adopt_a_window(draft: Draft, key: Key, first: int, second: int) -> None:
    """Of a window's hit the entry behind which nothing is read any more becomes null without being touched, the others are
    adopted (T18, TB-5).
    """
    assert four.legal(draft, key) & four.within(0, first, 3) & four.within(1, second, 3)
    assert first != second
    old = four.pool_of(draft, key)
    passed, found = holders.table_of(first, second)
    work = holders.work_on(HYBRID, old)
    state = allocation.adopt(work, WINDOW, EMPTY, (passed, found), hit(8))
    new = work.pool
    assert four.sound(new)
    assert state.table == (NULL_BLOCK, found)
    assert holders.accounted(new, holders.others(old), state.table)
    assert four.keys_kept(old, new) & four.holdings_kept(old, new, found)
    assert (state.partial_index, state.num_cached) == (-1, 2)


@claim(allocation.adopt, sizes="shape", bounds="four blocks with one key; a scratch group", laws=("PC-3", "TB-15"))
def adopt_nothing_in_a_scratch_group(draft: Draft, key: Key, block: int, whole: bool) -> None:
    """A scratch group adopts nothing, whatever it is given: its one block is its own (T18, TB-15)."""
    assert four.legal(draft, key) & four.within(1, block, 3)
    old = four.pool_of(draft, key)
    work = holders.work_on(HYBRID, old)
    state = allocation.adopt(work, SCRATCH, EMPTY, holders.table_of(block), hit(8 if whole else 4))
    assert state == EMPTY
    assert work.pool == old
    assert not work.adopted


@claim(
    allocation.admit,
    sizes="shape",
    bounds="four blocks without keys; full attention and a window of 16 tokens, "
    "blocks of 4 tokens, one block adopted and one external block in each",
    laws=("PC-1", "PC-3", "PC-6", "TB-8"),
)
def admit_two_groups_in_two_phases(draft: Draft, first: int, second: int) -> None:
    """No block that one group adopts is handed out for the external tokens of another, although it may stand at the front of
    the queue until it is touched; afterwards the tables of the request hold each of their blocks once (T16.5, PC-6).
    """
    assert four.legal(draft, free=1) & four.within(1, first, 3) & four.within(1, second, 3)
    assert (first != second) & four.within(2, draft.queue, 3)
    old = four.pool_of(draft)
    one, two = holders.table_of(first), holders.table_of(second)
    work = holders.work_on(PAIR, old)
    states = [EMPTY, EMPTY]
    wanted = hit(4, 4)
    external = four.attempt(allocation.admit, work, states, (one, two), wanted)
    tables = tuple(state.table for state in states)
    assert external is None or four.sound(work.pool)
    assert external is None or holders.unshared(*tables)
    assert external is None or holders.accounted(work.pool, holders.others(old), *tables)
    assert external is None or (len(tables[0]) == 2) & (len(tables[1]) == 2) & (tables[0][0] == one[0])


@claim(
    allocation.refused,
    sizes="shape",
    bounds="four blocks with one key; one block of a hit in each of two groups",
    laws=("PC-9",),
)
def refuse_and_change_nothing(draft: Draft, key: Key, first: int, second: int) -> None:
    """A refused allocation leaves the pool and the request's tables as they are, although there was a hit (T16.4, PC-9)."""
    assert four.legal(draft, key) & four.within(1, first, 3) & four.within(1, second, 3)
    old = four.pool_of(draft, key)
    request = evolve(holders.request_of(EMPTY, EMPTY), status=worlds.Status.WAITING)
    work = holders.work_on(PAIR, old)
    world = holders.world_of(IDLE, old, request)
    lists = (holders.table_of(first), holders.table_of(second))
    after = allocation.refused(world, request, work, [EMPTY, EMPTY], lists)
    assert after.pool == old
    assert after.requests == (request,)
    assert after.plan == world.plan
