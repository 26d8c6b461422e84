"""Faults in copy-on-write of partly filled blocks (semantics T18, T19, T21.6, T0 part 5 and execute c)."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import allocation, contents, execute, plans
from kvproof.core import pool as pools
from kvproof.core import work as works
from kvproof.core.config import Config
from kvproof.core.kinds import copying, recurrent
from kvproof.core.pool import Pool
from kvproof.core.work import Work
from kvproof.core.world import GroupState, Plan, Step
from kvproof.spec.faults.base import Fault

_queue_copy = works.queue_copy


def _no_debt(state: GroupState, index: int, block: int) -> GroupState:
    del index, block
    return state


def _nothing_queued(work: Work, group: int, source: int, destination: int) -> None:
    del work, group, source, destination


def _appended(state: GroupState, index: int, copy: int) -> GroupState:
    del index
    return evolve(state, table=(*state.table, copy), partial_index=-1, partial_source=-1)


def _producer_redirected(work: Work, group: int, state: GroupState) -> GroupState:
    state, _ = copying.redirect(work, group, state)
    return evolve(state, tail_block=-1, tail_boundary=-1)


def _source_freed_at_once(work: Work, group: int, source: int, destination: int) -> None:
    _queue_copy(work, group, source, destination)
    work.pool = pools.release(work.pool, (source,))


def _destinations(copies: tuple[tuple[int, int, int], ...]) -> tuple[int, ...]:
    return tuple(destination for _, _, destination in copies)


def _nothing_is_fresh(plan: Plan, node: int, group: int) -> bool:
    del plan, node, group
    return False


def _keys_stay_too(pool: Pool, source: int, copy: int) -> Pool:
    tokens = pool.key_tokens[source]
    for node, group, _, _ in pools.keys_of(pool, source):
        pool = pools.insert(pool, node, group, copy, tokens)
    return pool


def _no_block_for_the_copy(local: int, size: int) -> int:
    del local, size
    return 0


def _no_reference(pool: Pool, block: int) -> Pool:
    del block
    return pool


def _copies_on_one_rank(memory: execute.Memory, step: Step, config: Config) -> None:
    before = tuple(memory)
    for group, source, destination in step.copies:
        cells = contents.block_cells(group in config.recurrent, config.groups[group].block_size, config.dcp_size)
        of_rank_0 = 1 + cells // config.dcp_size
        copied = contents.as_group(before[source], group, cells)
        there = contents.as_group(memory[destination], group, cells)
        memory[destination] = (*copied[:of_rank_0], *there[of_rank_0:])


FAULTS: tuple[Fault, ...] = (
    Fault(
        "M-COW-1",
        "a request goes on writing in the shared block inside which its hit ends",
        "src",
        ("TB-9", "COW-1", "CC-7"),
        ((allocation, "owe_private_copy", _no_debt),),
        scopes=("fa8-m2-n2", "fa4-m2-n4"),
    ),
    Fault(
        "M-COW-2",
        "the table points to the private block, but no copy is queued",
        "src",
        ("COW-2", "CC-1"),
        ((works, "queue_copy", _nothing_queued),),
        scopes=("fa4-m2-n4", "fa8-m2-n2"),
    ),
    Fault(
        "M-COW-3",
        "the private block is appended to the table and does not replace the shared one",
        "src",
        ("TB-2",),
        ((copying, "settle", _appended),),
        scopes=("fa4-m2-n4", "fa4-m4-n2"),
    ),
    Fault(
        "M-COW-4",
        "the producer of a snapshot moves itself to the copy and leaves the keys, which an append-only row cannot follow",
        "src",
        ("TB-13",),
        ((recurrent, "_pay_as_producer", _producer_redirected),),
        scopes=("fa2-m8", "m4-m8-fa2-n2"),
    ),
    Fault(
        "M-COW-5",
        "the source of a copy is given back when the copy is queued, before it runs",
        "src",
        ("COW-3",),
        ((works, "queue_copy", _source_freed_at_once), (plans, "copy_ends", _destinations)),
        scopes=("fa8-m2-n2", "fa4-m4-m4-n2"),
    ),
    Fault(
        "M-COW-6",
        "a state registered in this very step may be adopted before it is computed",
        "#29387",
        ("COW-4", "COW-7"),
        ((allocation, "registered_this_step", _nothing_is_fresh),),
        scopes=("fa2-m8", "fa1-m2-m4-n4"),
    ),
    Fault(
        "M-COW-7",
        "the copy gets the snapshot's keys, and the block that is overwritten next keeps them",
        "src",
        ("COW-5",),
        ((recurrent, "move_keys", _keys_stay_too),),
        scopes=("fa2-m8", "fa1-m2-m4-n4"),
    ),
    Fault(
        "M-COW-8",
        "the demand of an allocation leaves out the block that a copy will take",
        "src",
        ("COW-6", "PC-7"),
        ((copying, "copy_demand", _no_block_for_the_copy),),
        scopes=("fa2-m4-n4", "fa8-m2-n2"),
    ),
    Fault(
        "M-COW-9",
        "no reference of its own protects an end of a copy, so the drain gives back the table's",
        "src",
        ("PC-3", "PC-5"),
        ((copying, "retain", _no_reference),),
        scopes=("fa8-m2-n2", "fa4-m2-n4"),
    ),
    Fault(
        "M-COW-10",
        "a block is copied on the first DCP rank only",
        "#50493",
        ("DS-5", "COW-2"),
        ((execute, "run_copies", _copies_on_one_rank),),
        scopes=("fa8-m2-n2", "fa4-m4-n2"),
    ),
)
