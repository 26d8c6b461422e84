"""Contracts of a consumer's copy-on-write: the redirect of full attention and the drain, see `kvproof.proofs.claims.pool`."""

from __future__ import annotations

from kvproof.core import config as configs
from kvproof.core import plans
from kvproof.core import pool as pools
from kvproof.core.config import Group
from kvproof.core.kinds import copying
from kvproof.core.pool import NULL_BLOCK, Pool
from kvproof.core.prefixes import Prefixes
from kvproof.core.work import Work
from kvproof.core.world import GroupState
from kvproof.proofs.claim import claim
from kvproof.proofs.claims import pools_of_four as four
from kvproof.proofs.claims.pools_of_four import Draft, Key

CONFIG = configs.configure((Group("full_attention", 4),))


def work_on(pool: Pool) -> Work:
    """Return the scratch space of an allocation of request 0."""
    return Work(config=CONFIG, pool=pool, prefixes=Prefixes(), request=0, num_prompt=1, junction=0, nodes=())


def owing(index: int, source: int, beside: int) -> GroupState:
    """Return a table of two entries that owes a copy of ``source``, its entry ``index``; ``beside`` is the other one."""
    return GroupState(table=(source, beside) if index == 0 else (beside, source), partial_index=index, partial_source=source)


@claim(copying.redirect, sizes="shape", bounds=four.ONE_KEY, laws=("COW-1", "COW-3"))
def redirect_to_a_private_copy(draft: Draft, key: Key, number: int, index: int, beside: int) -> None:
    """A redirected entry stands for a fresh block of one reference, and the copy into it is queued with both ends held (T19,
    COW-1, COW-3).
    """
    assert four.legal(draft, key, free=1)
    assert four.within(1, number, 3) & four.within(0, index, 1) & four.in_use(draft, number)
    old = four.pool_of(draft, key)
    source = four.block_of(number)
    at = four.pick((0, 1), index)
    work = work_on(old)
    state, copy = copying.redirect(work, 0, owing(at, source, beside))
    new = work.pool
    assert four.sound(new)
    assert copy == old.free[0]
    assert state.table == owing(at, copy, beside).table
    assert (state.partial_index == -1) & (state.partial_source == -1)
    assert new.ref[copy] == 2
    assert new.ref[source] == old.ref[source]
    assert four.unkeyed(new, copy)
    assert four.keys_kept(old, new, copy)
    assert four.holdings_kept(old, new, copy)
    assert work.copies == [(0, source, copy)]


@claim(copying.redirect, sizes="shape", bounds=four.ONE_KEY)
def redirect_only_the_block_in_the_table(draft: Draft, key: Key, number: int, index: int, other: int) -> None:
    """A redirection of an entry that holds another block is refused (T19)."""
    assert four.legal(draft, key, free=1)
    assert four.within(1, number, 3) & four.within(0, index, 1) & four.within(0, other, 3) & four.in_use(draft, number)
    old = four.pool_of(draft, key)
    source = four.block_of(number)
    remembered = four.pick((0, 1, 2, 3), other)
    at = four.pick((0, 1), index)
    state = GroupState(owing(at, source, 0).table, partial_index=at, partial_source=remembered)
    answer = four.attempt(copying.redirect, work_on(old), 0, state)
    assert (answer is None) == (remembered != source)


@claim(copying.redirect, sizes="shape", bounds=four.ONE_KEY)
def redirect_no_null_block(draft: Draft, key: Key, index: int) -> None:
    """A null entry is never redirected (T19)."""
    assert four.legal(draft, key, free=1)
    assert four.within(0, index, 1)
    old = four.pool_of(draft, key)
    at = four.pick((0, 1), index)
    answer = four.attempt(copying.redirect, work_on(old), 0, owing(at, NULL_BLOCK, NULL_BLOCK))
    assert answer is None


@claim(copying.redirect, pools.release, sizes="shape", bounds=four.ONE_KEY, laws=("PC-3",))
def drain_gives_back_both_ends(draft: Draft, key: Key, number: int) -> None:
    """Behind a drained copy both of its ends have the references that they had before it was queued (T23, PC-3)."""
    assert four.legal(draft, key, free=1)
    assert four.within(1, number, 3) & four.in_use(draft, number)
    old = four.pool_of(draft, key)
    source = four.block_of(number)
    work = work_on(old)
    _, copy = copying.redirect(work, 0, owing(0, source, NULL_BLOCK))
    new = pools.release(work.pool, plans.copy_ends(tuple(work.copies)))
    assert four.sound(new)
    assert new.ref[copy] == 1
    assert new.ref[source] == old.ref[source] - 1
    assert four.keys_kept(old, new, copy)
