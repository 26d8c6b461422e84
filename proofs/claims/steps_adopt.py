"""One-step claims of adopting a hit, kind by kind, and of the two phases of an admission (T16.4, T16.5, T18)."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import allocation, prefixes
from kvproof.core import config as configs
from kvproof.core import world as worlds
from kvproof.core.allocation import Wanted
from kvproof.core.config import Group
from kvproof.core.pool import NULL_BLOCK
from kvproof.core.world import GroupState, Hit, Plan
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
MIXED = configs.configure((Group("full_attention", 4), Group("mamba_align", 8)), num_blocks=4)
"""A hit of 4 tokens is a block of full attention and a state inside its block."""
IDLE = worlds.new_world(PAIR)
CHAIN = prefixes.extend(*prefixes.root(prefixes.Prefixes(), 0), range(16))[0]
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
    deep=True,
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
    deep=True,
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
    bounds="four blocks without keys; full attention in blocks of 4 tokens and Mamba align in blocks of 8, a hit of 4 tokens, "
    "one block in each, and 4 external tokens",
    laws=("PC-1", "PC-3", "PC-6", "TB-8"),
)
def admit_two_groups_in_two_phases(draft: Draft, first: int, second: int) -> None:
    """No block that one group adopts is handed out for the external tokens of another, although it may stand at the front of
    the queue until it is touched: they are admitted exactly if a third block is free. Then the tables of the request hold each
    of their blocks once (T16.5, PC-6).
    """
    assert four.legal(draft) & four.within(1, first, 3) & four.within(1, second, 3)
    assert first != second
    old = four.pool_of(draft)
    one, two = holders.table_of(first), holders.table_of(second)
    work = holders.work_on(MIXED, old)
    states = [EMPTY, EMPTY]
    left = tuple(block for block in old.free if block not in (*one, *two))
    external = four.attempt(allocation.admit, work, states, (one, two), hit(4, 4))
    tables = tuple(state.table for state in states)
    assert (external is None) == (not left)
    assert external is None or (external == (left[:1], ())) & (tables == ((*one, *left[:1]), two))
    assert external is None or four.sound(work.pool) & holders.unshared(*tables)
    assert external is None or holders.accounted(work.pool, holders.others(old), *tables)


@claim(
    allocation.refused,
    sizes="shape",
    bounds="two requests with tables of one entry each in two groups, any blocks; a plan with a handoff",
    laws=("PC-9",),
)
def a_refusal_shows_what_was_nulled_alone(first: int, second: int, computed: int, other: bool) -> None:
    """Behind a refusal the request has its tables without the entries that were nulled before it, and the pool without their
    references; its counts, the plan and the other request stay (T16.4, PC-9).
    """
    assert (first >= 0) & (second >= 0) & (computed >= 0)
    both = tuple(
        evolve(holders.request_of(GroupState((first, second)), GroupState((second,)), number=at), computed=computed)
        for at in (0, 1)
    )
    plan = Plan(handoffs=((1, 1, 2, 4),))
    world = evolve(IDLE, requests=both, plan=plan)
    at = 1 if other else 0
    work = holders.work_on(IDLE.config, four.pool_of(Draft(1, (1, 0, 0), (1, 1, 1), 0)))
    nulled = [GroupState((0, second)), GroupState((second,))]
    after = allocation.refused(world, both[at], work, nulled, ((), ()))
    assert after.requests[at] == evolve(both[at], groups=tuple(nulled))
    assert after.requests[1 - at] == both[1 - at]
    assert (after.pool == work.pool) & (after.plan == plan)


@claim(
    allocation.allocate,
    allocation.refused,
    sizes="shape",
    bounds="four blocks with one key, two or three of them free; "
    "a hit of one block in each of two groups, of which each needs one more for its chunk, "
    "or three for the admission gate",
    laws=("PC-9",),
)
def refuse_and_change_nothing(draft: Draft, key: Key, first: int, second: int, gate: bool) -> None:
    """An allocation is refused if what it adopts out of the queue and what it takes are not free together. It then leaves the
    pool, the request and the plan as they are, although there was a hit (T16.4, PC-9).
    """
    assert four.legal(draft, key, free=2) & four.within(1, first, 3) & four.within(1, second, 3)
    assert first != second
    old = four.pool_of(draft, key)
    lists = (holders.table_of(first), holders.table_of(second))
    request = evolve(holders.request_of(EMPTY, EMPTY), tip=16, status=worlds.Status.WAITING)
    world = evolve(holders.world_of(IDLE, old, request), prefixes=CHAIN, hit=Hit(0, 4, lists, 0, False))
    wanted = Wanted(first=True, local=4, external=0, slots=8, main=8)
    after, record = allocation.allocate(world, request, wanted, lists, full_sequence=gate)
    need = (6 if gate else 2) + sum(block in old.free for (block,) in lists)
    assert not record.admitted
    assert (record.demand, record.free_before) == (need, len(old.free))
    assert (after.pool == old) & (after.requests == (request,)) & (after.plan == world.plan)
