"""Faulty twins of the claims about keys of the pool."""

from __future__ import annotations

from kvproof.core import pool as pools
from kvproof.proofs.planting import planted

_insert, _insert_partial, _without = pools.insert, pools.insert_partial, pools.remove_all

PLANTED = (
    planted("a key is inserted again", "insert_into_a_pool_with_one_key", at=pools, holds=lambda *of: False),
    planted(
        "tokens of another boundary",
        "insert_into_a_pool_without_keys",
        at=pools,
        insert=lambda pool, n, g, block, t, insert=pools.insert: insert(pool, n, g, block, t + 1),
    ),
    planted(
        "promotion without the increase check",
        "promote_only_to_more_tokens",
        at=pools,
        check_increase=lambda pool, block, tokens: None,
    ),
    planted(
        "promotion that keeps the smaller primary",
        "promote_a_block",
        "insert_a_partial_boundary",
        at=pools,
        clear_for_promotion=lambda pool, block: pool,
    ),
    planted(
        "a partial boundary replaces one for as many tokens",
        "insert_a_partial_boundary",
        at=pools,
        insert_partial=lambda pool, node, group, block, tokens: (
            _insert_partial(_without(pool, block), node, group, block, tokens)
            if pool.key_tokens[block] == tokens and not pools.holds(pool, node, group, block)
            else _insert_partial(pool, node, group, block, tokens)
        ),
    ),
    planted(
        "a partial boundary takes the place of a larger one",
        "insert_a_partial_boundary",
        at=pools,
        insert_partial=lambda pool, node, group, block, tokens: (
            pool
            if pools.holds(pool, node, group, block)
            else _insert(_without(pool, block), node, group, block, max(tokens, pool.key_tokens[block]))
        ),
    ),
    planted("keys that do not go", "evict_a_block", at=pools, remove_all=lambda pool, block: pool),
    planted(
        "lookup of any group",
        "find_the_block_with_the_key",
        at=pools,
        find=lambda pool, node, group: next((e[3] for e in pool.entries if e[0] == node), -1),
    ),
    planted(
        "keys stay with the source",
        "move_the_keys",
        at=pools,
        move=lambda pool, source, copy: (
            pool
            if pool.key_node[source] == -1
            else pools.insert(pool, pool.key_node[source], pool.key_group[source], copy, pool.key_tokens[source])
        ),
    ),
    planted(
        "primary restored without its entry",
        "restore_undoes_a_promotion",
        at=pools,
        restore_keys=lambda pool, block, primary, entries, restore=pools.restore_keys: restore(pool, block, primary, ()),
    ),
)
