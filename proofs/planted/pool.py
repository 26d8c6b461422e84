"""Faulty twins of the claims about taking, touching and releasing blocks."""

from __future__ import annotations

from kvproof.core import pool as pools
from kvproof.proofs.planting import catalogued, planted

PLANTED = (
    catalogued("M-EVICT-1", "take_one_of_a_pool_with_two_keys", "take_two_of_a_pool_with_two_keys"),
    catalogued("M-POOL-1", "release_a_block", "release_two_blocks"),
    catalogued("M-POOL-2", "touch_a_block", "touch_a_block_twice"),
    catalogued("M-POOL-3", "release_a_block"),
    planted(
        "taking what there is",
        "take_no_more_than_is_free",
        at=pools,
        take=lambda pool, count, take=pools.take: take(pool, min(count, len(pool.free))),
    ),
    planted(
        "keyed blocks in front",
        "release_a_block",
        "release_two_blocks",
        at=pools,
        requeue=lambda free, unkeyed, keyed: keyed + free + unkeyed,
    ),
    planted(
        "keyed blocks in the wrong order",
        "release_two_keyed_blocks",
        at=pools,
        requeue=lambda free, unkeyed, keyed: unkeyed + free + keyed[::-1],
    ),
    planted(
        "a block given twice is released once",
        "release_a_block_twice",
        at=pools,
        releasable=lambda blocks: [block for block in dict.fromkeys(blocks) if block != pools.NULL_BLOCK],
    ),
)
