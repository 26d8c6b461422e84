"""One-step claims of Mamba align: speculative blocks that move, states that are nulled, a producer's copy (T16.3, T21)."""

from __future__ import annotations

from kvproof.core import config as configs
from kvproof.core import world as worlds
from kvproof.core.allocation import InStep, Wanted
from kvproof.core.config import Group
from kvproof.core.kinds import recurrent
from kvproof.core.pool import NULL_BLOCK
from kvproof.core.world import GroupState
from kvproof.proofs.claim import claim
from kvproof.proofs.claims import holders
from kvproof.proofs.claims import pools_of_four as four
from kvproof.proofs.claims.pools_of_four import Draft, Key

SPARE = configs.configure(
    (Group("full_attention", 4), Group("mamba_align", 4, speculative_blocks=1)), num_blocks=4, num_draft_tokens=1
)
PLAIN = configs.configure((Group("full_attention", 8), Group("mamba_align", 8)), hash_block_size=4, num_blocks=4)
OPEN = InStep(worlds.new_world(SPARE))
COUNTS = tuple(range(13))


def step_to(tokens: int) -> Wanted:
    """Return what a running request wants that computes through so many tokens."""
    return Wanted(first=False, local=0, external=0, slots=tokens, main=tokens)


def writable(draft: Draft, block: int) -> bool:
    """Tell whether the block of this number is in use with one reference."""
    return (
        four.within(1, block, 3)
        & four.in_use(draft, block)
        & four.every((block != at) | (draft.refs[at - 1] == 1) for at in four.BLOCKS)
    )


@claim(
    recurrent.relocate,
    sizes="shape",
    bounds="four blocks, one key; a table of two entries, either column",
    laws=("TB-8", "TB-10", "PC-3"),
    deep=True,
)
def relocate_a_block(draft: Draft, key: Key, first: int, second: int, column: int) -> None:
    """A private block without a key moves to the end of its table and leaves null behind; the pool does not change
    (T21.4, TB-8).
    """
    assert four.legal(draft, key) & holders.held(draft, first, second) & four.within(0, column, 1)
    assert holders.own(first, second)
    assert writable(draft, second if column else first) & (key[3] != (second if column else first))
    old = four.pool_of(draft, key)
    table = holders.table_of(first, second)
    at = four.pick((0, 1), column)
    block = table[at]
    work = holders.work_on(SPARE, old)
    state = recurrent.relocate(work, 1, GroupState(table, allocated=True), at)
    assert state.table == ((NULL_BLOCK, table[1], block) if at == 0 else (table[0], NULL_BLOCK, block))
    assert work.relocated == [(1, block, at, 2)]
    assert work.pool == old
    assert holders.unshared(state.table) & holders.accounted(old, holders.others(old, table), state.table)


@claim(
    recurrent.relocate,
    sizes="shape",
    bounds="four blocks with one or two references and one key; a table of two entries, either column",
    laws=("TB-10",),
    deep=True,
)
def relocate_only_a_private_block(queue: int, keyed: int, shared: bool, first: int, second: int, column: int) -> None:
    """A block that somebody else holds, that has a key, or that is the null block is not moved (T21.4, TB-10)."""
    assert four.within(0, queue, 3) & four.within(1, keyed, 3) & four.within(0, column, 1)
    assert holders.own(first, second) & holders.held(Draft(queue, (1, 1, 1), (1, 1, 1), 1), first, second)
    count = 2 if shared else 1
    old = four.pool_of(Draft(queue, (count, count, count), (1, 1, 1), 1), (0, 0, 0, four.block_of(keyed)))
    table = holders.table_of(first, second)
    at = four.pick((0, 1), column)
    state = four.attempt(recurrent.relocate, holders.work_on(SPARE, old), 1, GroupState(table, allocated=True), at)
    private = table[at] != NULL_BLOCK and not shared and four.unkeyed(old, table[at])
    assert (state is not None) == private


@claim(
    recurrent.demand,
    recurrent.grow,
    sizes="shape",
    bounds="four blocks of 4 tokens without keys, one speculative; a table of a running and a "
    "speculative block, a step to 1 to 12 tokens",
    laws=("PC-1", "PC-3", "PC-7", "TB-4", "TB-6", "TB-8"),
    deep=True,
)
def grow_and_relocate(draft: Draft, first: int, second: int, tokens: int) -> None:
    """A step's growth moves a speculative block that it leaves behind and takes as many blocks as the demand said; the
    column of the running state and the one behind it then have blocks, each of the request's stands in one column, and at
    most three do (T17, T21, TB-6, TB-8, PC-7).
    """
    assert four.legal(draft) & holders.held(draft, first, second) & four.within(1, first, 3) & writable(draft, second)
    assert holders.own(first, second) & four.within(1, second, 3) & four.within(1, tokens, 12)
    old = four.pool_of(draft)
    table = holders.table_of(first, second)
    target = four.pick(COUNTS, tokens)
    work = holders.work_on(SPARE, old)
    state = GroupState(table, allocated=True)
    need = recurrent.demand(work, 1, state, (), step_to(target), OPEN)
    grown = four.attempt(recurrent.grow, work, 1, state, step_to(target))
    after = table if grown is None else grown[0].table
    running = (target + 3) // 4 - 1
    assert need == (0 if target <= 4 else 1)
    assert (grown is None) == (need > len(old.free))
    assert four.sound(work.pool)
    assert grown is None or (len(old.free) - len(work.pool.free) == need) & (NULL_BLOCK not in after[running : running + 2])
    assert grown is None or (len(after) >= running + 2) & (sum(block != NULL_BLOCK for block in after) <= 3)
    assert grown is None or holders.unshared(after) & holders.accounted(work.pool, holders.others(old, table), after)


@claim(
    recurrent.null_skipped,
    sizes="shape",
    bounds="four blocks of 4 tokens, one key; a table of three entries of which the last is the running state",
    laws=("PC-1", "PC-3", "PC-8", "TB-6"),
    deep=True,
)
def null_the_states_before_the_running_one(draft: Draft, key: Key, first: int, second: int, processed: int) -> None:
    """Every state before the running one leaves the table with its reference, the highest column first; null entries
    between them are passed, and keys stay (T16.3, T21).
    """
    assert four.legal(draft, key) & holders.held(draft, first, second, 3)
    assert holders.own(first, second, 3) & four.within(1, processed, 12)
    old = four.pool_of(draft, key)
    table = (*holders.table_of(first, second), 3)
    done = four.pick(COUNTS, processed)
    work = holders.work_on(SPARE, old)
    state = recurrent.null_skipped(work, 1, GroupState(table, allocated=True), done)
    stop = (done - 1) // 4
    assert four.sound(work.pool)
    assert state.table == (NULL_BLOCK,) * stop + table[stop:]
    assert state.retired == stop
    assert holders.accounted(work.pool, holders.others(old, table), state.table)
    assert work.pool.free == holders.wanted_queue(old, work.pool, table[:stop][::-1])
    assert four.keys_kept(old, work.pool)


@claim(
    recurrent.grow,
    sizes="shape",
    bounds="four blocks of 8 tokens, one key; a running state that owes itself a copy at 4 tokens, a step to 8",
    laws=("COW-3", "COW-5", "HO-1", "PC-3", "TB-13"),
)
def pay_a_copy_as_producer(draft: Draft, key: Key, first: int) -> None:
    """All keys of the running state move to a copy, which is published for the boundary that it stands for, while the
    request stays on its block; both ends have a reference until the drain. A state whose keys an eviction took is copied
    and not published (T21.6, COW-3, COW-5, HO-1).
    """
    assert four.legal(draft, key, free=1) & four.within(1, first, 3) & holders.held(draft, first)
    assert four.every(tokens == 4 for tokens in draft.tokens)
    old = four.pool_of(draft, key)
    (source,) = holders.table_of(first)
    work = holders.work_on(PLAIN, old)
    owing = GroupState((source,), allocated=True, partial_index=0, partial_source=source, tail_block=source, tail_boundary=4)
    state, _ = recurrent.grow(work, 1, owing, step_to(8))
    new, copy = work.pool, old.free[0]
    keyed = not four.unkeyed(old, source)
    assert four.sound(new)
    assert (state.table, state.partial_index, state.tail_boundary) == ((source,), -1, -1)
    assert work.copies == [(1, source, copy)]
    assert four.unkeyed(new, source)
    assert four.standing(new, copy) == four.standing(old, source)
    assert work.handoffs == ([(0, 1, copy, 4)] if keyed else [])
    assert four.keys_kept(old, new, source, copy)
    assert holders.accounted(new, holders.others(old, (source,)), state.table, (source, copy))
