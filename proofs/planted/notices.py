"""Faulty twins of the claims about what the key map notes."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import pool as pools
from kvproof.core.pool import Pool
from kvproof.proofs.planting import catalogued, planted

_enter, _restore_keys = pools.enter, pools.restore_keys


def _entered_silently(pool: Pool, what: int, node: int, group: int, block: int, tokens: int) -> Pool:
    """Register a key and say nothing."""
    return evolve(_enter(pool, what, node, group, block, tokens), notes=pool.notes)


PLANTED = (
    planted(
        "every key that leaves a block is gone",
        "what_an_eviction_says_is_what_it_took",
        at=pools,
        lost=lambda pool, node, group: (pools.LOST, node, group),
    ),
    planted(
        "what is registered is not said",
        "what_a_promotion_says_is_what_it_changed",
        "a_key_that_is_there_is_not_announced_again",
        at=pools,
        enter=_entered_silently,
    ),
    catalogued("M-EVT-5", "what_a_promotion_says_is_what_it_changed"),
    catalogued("M-EVT-2", "a_key_that_is_there_is_not_announced_again"),
    planted(
        "keys go in silence",
        "what_is_handed_out_is_told_gone",
        "what_an_eviction_says_is_what_it_took",
        at=pools,
        strip=pools.remove_all,
    ),
    catalogued("M-EVT-6", "a_cleared_map_is_announced_once"),
    planted(
        "what is given back is not said",
        "what_is_given_back_is_announced",
        at=pools,
        restore_keys=lambda pool, block, primary, entries: evolve(
            _restore_keys(pool, block, primary, entries), notes=pool.notes
        ),
    ),
)
