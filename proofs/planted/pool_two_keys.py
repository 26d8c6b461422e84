"""Faulty twins of the claims about pools with two keys."""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve

from kvproof.core import pool as pools
from kvproof.core.pool import Pool
from kvproof.proofs.planting import catalogued, planted


def _all_but_one(pool: Pool, block: int, remove: Callable[[Pool, int], Pool] = pools.remove_all) -> Pool:
    """Take the keys of a block out of the map, all but those behind its first."""
    gone = pools.keys_of(pool, block)[:1]
    return evolve(remove(pool, block), entries=tuple(entry for entry in pool.entries if entry not in gone))


def _with_primary_alone(pool: Pool, block: int) -> Pool:
    """Take every key of a block but its primary out of the map."""
    primary = (pool.key_node[block], pool.key_group[block])
    return evolve(pool, entries=tuple(entry for entry in pool.entries if entry[3] != block or entry[:2] == primary))


_insert = pools.insert

NOTED = (
    "note_what_a_taken_block_loses",
    "note_what_two_taken_blocks_lose",
    "note_what_an_evicted_block_loses",
    "note_a_promotion",
    "note_a_partial_boundary",
)

PLANTED = (
    planted("one secondary key left", "evict_a_block_of_a_pool_with_two_keys", at=pools, remove_all=_all_but_one),
    planted(
        "reset while a block is in use",
        "reset_clears_an_idle_pool_only",
        at=pools,
        reset=lambda pool: (pools.remove_all(pools.remove_all(pools.remove_all(pool, 1), 2), 3), True),
    ),
    planted(
        "the last inserted is preferred",
        "find_yields_the_first_inserted",
        at=pools,
        find=lambda pool, node, group: ([-1] + [e[3] for e in pool.entries if e[:2] == (node, group)])[-1],
    ),
    planted(
        "one key for each block",
        "insert_into_a_pool_with_two_keys",
        at=pools,
        insert=lambda pool, node, group, block, tokens, insert=pools.insert: (
            pool if pool.key_node[block] != -1 else insert(pool, node, group, block, tokens)
        ),
    ),
    planted(
        "an insertion drops the other secondary keys",
        "insert_into_a_pool_with_two_keys",
        at=pools,
        insert=lambda pool, node, group, block, tokens: _insert(_with_primary_alone(pool, block), node, group, block, tokens),
    ),
    planted(
        "promotion that keeps the smaller keys",
        "promote_a_block_of_a_pool_with_two_keys",
        at=pools,
        clear_for_promotion=lambda pool, block: pool,
    ),
    planted(
        "only the primary moves",
        "move_both_keys",
        at=pools,
        keys_of=lambda pool, block, keys=pools.keys_of: keys(pool, block)[:1],
    ),
    planted(
        "nothing is ever noted",
        *NOTED,
        "note_a_reset",
        "note_a_replaced_boundary",
        "note_what_a_restoration_changes",
        at=pools,
        noted=lambda pool, *notes: pool,
    ),
    planted(
        "the last block of a key and one of several are told the wrong way round",
        *NOTED,
        "note_a_replaced_boundary",
        "note_what_a_restoration_changes",
        at=pools,
        lost=lambda pool, node, group: (
            pools.LEFT if pools.find(pool, node, group) == pools.NO_KEY else pools.LOST,
            node,
            group,
        ),
    ),
    planted(
        "every key that a block loses is lost",
        "note_what_a_taken_block_loses",
        "note_what_two_taken_blocks_lose",
        "note_what_an_evicted_block_loses",
        at=pools,
        lost=lambda pool, node, group: (pools.LOST, node, group),
    ),
    catalogued("M-EVT-2", "note_a_partial_boundary"),
    catalogued("M-EVT-5", "note_a_promotion", "note_a_partial_boundary", "note_a_replaced_boundary"),
    catalogued("M-EVT-6", "note_a_reset"),
    planted(
        "a moved key is announced",
        "note_nothing_of_a_move_and_of_holders",
        at=pools,
        insert=lambda pool, node, group, block, tokens: pools.noted(
            _insert(pool, node, group, block, tokens), (pools.FULL, node, group)
        ),
    ),
)
