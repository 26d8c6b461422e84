"""One-step claims of the caching call: full entries, the prompt's tail, and the states of Mamba align (T7 to T10)."""

from __future__ import annotations

from kvproof.core import config as configs
from kvproof.core.config import Group
from kvproof.core.kinds import caching, full_attention, recurrent
from kvproof.core.pool import NULL_BLOCK
from kvproof.core.world import GroupState
from kvproof.proofs.claim import claim
from kvproof.proofs.claims import holders
from kvproof.proofs.claims import pools_of_four as four
from kvproof.proofs.claims.pools_of_four import Draft, Key

CONFIG = configs.configure((Group("full_attention", 4),), num_blocks=4)
HYBRID = configs.configure((Group("full_attention", 8), Group("mamba_align", 8)), hash_block_size=4, num_blocks=4)
"""H of 4: a prompt may end inside the blocks of 8 tokens of both groups."""


def smaller(draft: Draft, block: int, tokens: int) -> bool:
    """Tell whether each block of this number stands for fewer tokens, should it have a key."""
    return four.every((block != number) | (draft.tokens[number - 1] < tokens) for number in four.BLOCKS)


@claim(
    caching.register_new,
    sizes="shape",
    bounds="four blocks of 4 tokens, one key; a table of one entry, 0 to 7 cacheable tokens",
    laws=("PC-11", "HB-3", "HB-6", "HB-7", "TB-14"),
    deep=True,
)
def register_the_block_of_a_table(draft: Draft, key: Key, first: int, node: int, tokens: int) -> None:
    """A full block of the table comes to stand for its end under the node of that boundary and loses smaller keys; a null
    entry gets none, and neither references nor the keys of other blocks change (T7, HB-3, HB-6, TB-14).
    """
    assert four.legal(draft, key, free=2) & holders.held(draft, first)
    assert (node >= 0) & smaller(draft, first, 4) & four.within(0, tokens, 7)
    old = four.pool_of(draft, key)
    (block,) = holders.table_of(first)
    full = tokens >= 4
    work = holders.work_on(CONFIG, old, node)
    state = caching.register_new(work, 0, GroupState((block,)), four.pick((0, 1, 2, 3, 4, 5, 6, 7), tokens), lambda index: True)
    new = work.pool
    keyed = full and block != NULL_BLOCK
    assert four.sound(new)
    assert state.table == (block,)
    assert state.num_cached == (1 if full else -1)
    assert not keyed or (four.standing(new, block) == (node, 0, 4)) & (len(four.entries_of(new.entries, block)) == 1)
    assert four.keys_kept(old, new, *((block,) if keyed else ()))
    assert four.holdings_kept(old, new)


@claim(
    caching.register_new,
    sizes="shape",
    bounds="four blocks of 4 tokens without keys; a table of two entries, none, one or both registered before, "
    "4 or 8 cacheable tokens",
    laws=("HB-3", "HB-5", "HB-6", "TB-14"),
    deep=True,
)
def register_the_blocks_of_a_table(
    draft: Draft, first: int, second: int, node: int, later: int, before: int, both: bool
) -> None:
    """Of two entries those that are full and were not considered before are registered, each for its own end (T7, T9.1,
    TB-14).
    """
    assert four.legal(draft, free=1) & holders.held(draft, first, second)
    assert holders.own(first, second) & (node >= 0) & (later >= 0) & (node != later) & four.within(0, before, 2)
    old = four.pool_of(draft)
    table = holders.table_of(first, second)
    done = four.pick((0, 1, 2), before)
    stop = 2 if both else 1
    work = holders.work_on(CONFIG, old, node, later)
    state = caching.register_new(work, 0, GroupState(table, num_cached=done), 4 * stop, lambda index: True)
    new = work.pool
    fresh = tuple(index for index in range(done, stop) if table[index] != NULL_BLOCK)
    assert four.sound(new)
    assert state.table == table
    assert state.num_cached == max(done, stop)
    assert four.every(four.standing(new, table[index]) == ((node, later)[index], 0, 4 * index + 4) for index in fresh)
    assert len(new.entries) == len(fresh)
    assert four.holdings_kept(old, new)


@claim(
    full_attention.register,
    sizes="shape",
    bounds="four blocks of 8 tokens, one key; a prompt of 9 to 15 tokens in a table of two entries, H of 4",
    laws=("PC-11", "HB-2", "HB-3", "HB-7", "HB-13"),
    deep=True,
)
def register_the_tail_of_a_prompt(draft: Draft, key: Key, second: int, prompt: int, node: int, edge: int, tail: int) -> None:
    """Of full attention, the full block gets a key of its end, and the block inside which the prompt's last hash boundary
    lies one of that boundary, the only one of the kind (T9, HB-3, HB-13).
    """
    assert four.legal(draft, key) & four.within(1, second, 2) & four.in_use(draft, 3) & four.in_use(draft, second)
    assert four.within(9, prompt, 15) & smaller(draft, second, 12) & smaller(draft, 3, 8)
    assert (node >= 0) & (edge >= 0) & (tail >= 0) & (node != edge) & (node != tail) & (edge != tail)
    assert (key[0] != tail) | (key[3] != second)
    old = four.pool_of(draft, key)
    table = (3, four.pick((1, 2), second - 1))
    length = four.pick((9, 10, 11, 12, 13, 14, 15), prompt - 9)
    work = holders.work_on(HYBRID, old, *((node, edge, tail) if length >= 12 else (node, edge)), num_prompt=length)
    state = full_attention.register(work, 0, GroupState(table), length)
    new = work.pool
    partial = length > 12
    assert four.sound(new)
    assert state.num_cached == 1
    assert four.standing(new, 3) == (edge, 0, 8)
    assert not partial or (four.standing(new, table[1]) == (tail, 0, 12)) & four.carries(new, tail, 0, table[1])
    assert four.keys_kept(old, new, 3, *(table[1:] if partial else ()))
    assert four.holdings_kept(old, new)


@claim(
    recurrent.register,
    sizes="shape",
    bounds="four blocks of 8 tokens, one key; a state at the end of a table of one entry",
    laws=("PC-11", "HB-3", "HB-6", "HO-1"),
)
def register_and_publish_a_state(draft: Draft, key: Key, first: int, node: int, edge: int) -> None:
    """A state at the end of its block is registered for that boundary and published once, under it; a null entry is neither
    (T10.1, T10.3, HO-1).
    """
    assert four.legal(draft, key, free=2) & holders.held(draft, first)
    assert (node >= 0) & (edge >= 0) & (node != edge) & smaller(draft, first, 8)
    old = four.pool_of(draft, key)
    (block,) = holders.table_of(first)
    work = holders.work_on(HYBRID, old, node, edge)
    state = recurrent.register(work, 1, GroupState((block,), allocated=True), 8)
    new = work.pool
    assert four.sound(new)
    assert (state.num_cached, state.partial_index, state.table) == (1, -1, (block,))
    assert block == NULL_BLOCK or four.standing(new, block) == (edge, 1, 8)
    assert work.handoffs == ([] if block == NULL_BLOCK else [(0, 1, block, 8)])
    assert work.cached == ([] if block == NULL_BLOCK else [(edge, 1, 0)])
    assert four.keys_kept(old, new, block)
    assert four.holdings_kept(old, new)


@claim(
    recurrent.register,
    sizes="shape",
    bounds="four blocks of 8 tokens, one key; a prompt of 5 to 8 tokens, a table of one entry with the state at 4",
    laws=("PC-11", "HB-3", "HB-6", "TB-14"),
)
def register_a_state_inside_its_block(draft: Draft, key: Key, first: int, prompt: int, node: int) -> None:
    """A state at the prompt's last hash boundary is registered inside its block, and the request owes itself a copy
    before it goes on writing there; nothing is published yet (T10.2b).
    """
    assert four.legal(draft, key, free=2) & holders.held(draft, first) & four.within(5, prompt, 8)
    assert (node >= 0) & smaller(draft, first, 4) & ((key[0] != node) | (key[3] != first))
    old = four.pool_of(draft, key)
    (block,) = holders.table_of(first)
    work = holders.work_on(HYBRID, old, node, num_prompt=four.pick((5, 6, 7, 8), prompt - 5))
    state = recurrent.register(work, 1, GroupState((block,), allocated=True), 4)
    new = work.pool
    debt = (state.partial_index, state.partial_source, state.tail_block, state.tail_boundary)
    assert four.sound(new)
    assert debt == ((-1, -1, -1, -1) if block == NULL_BLOCK else (0, block, block, 4))
    assert block == NULL_BLOCK or four.standing(new, block) == (node, 1, 4)
    assert not work.handoffs
    assert four.keys_kept(old, new, block)
    assert four.holdings_kept(old, new)
