"""Faulty twins of the claims about the caching call."""

from __future__ import annotations

from kvproof.core import pool as pools
from kvproof.core.kinds import caching, recurrent
from kvproof.proofs.planting import catalogued, planted

PLANTED = (
    catalogued("M-NULL-1", "register_the_block_of_a_table", "register_the_blocks_of_a_table"),
    planted(
        "a larger key gives way in words only",
        "register_the_block_of_a_table",
        at=pools,
        clear_for_promotion=lambda pool, block: pool,
    ),
    planted(
        "a block is named by the node of its beginning",
        "register_the_blocks_of_a_table",
        at=caching,
        full_node=lambda work, group, index: work.nodes[max(index - 1, 0)],
    ),
    planted(
        "everything counts as full",
        "register_the_block_of_a_table",
        at=caching,
        full_entries=lambda work, group, tokens: len(work.nodes),
    ),
    catalogued("M-HASH-1", "register_the_tail_of_a_prompt"),
    catalogued("M-PART-1", "register_the_tail_of_a_prompt"),
    catalogued("M-PUB-14", "register_the_tail_of_a_prompt"),
    planted(
        "a state is published for the token behind it",
        "register_and_publish_a_state",
        at=recurrent,
        publish=lambda work, group, block, boundary: work.handoffs.append((work.request, group, block, boundary + 1)),
    ),
    catalogued("M-NULL-1", "register_and_publish_a_state"),
    planted(
        "nobody owes a copy of a state",
        "register_a_state_inside_its_block",
        at=recurrent,
        owe_copy=lambda state, index, block, boundary: state,
    ),
)
