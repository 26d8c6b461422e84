"""Faulty twins of the claims about adopting a hit."""

from __future__ import annotations

from kvproof.core import allocation, geometry
from kvproof.core import pool as pools
from kvproof.core.allocation import Wanted
from kvproof.core.work import Work
from kvproof.core.world import GroupState
from kvproof.proofs.planting import catalogued, planted

_adopt = allocation.adopt


def _everybody_adopts(work: Work, group: int, state: GroupState, blocks: tuple[int, ...], wanted: Wanted) -> GroupState:
    """Touch the blocks of a scratch group too, which puts them into no table."""
    if not work.config.groups[group].prefix_cacheable:
        work.pool = pools.touch(work.pool, blocks)
    return _adopt(work, group, state, blocks, wanted)


ONE = ("adopt_one_block_of_full_attention", "adopt_a_recurrent_state")
INSIDE = (*ONE, "adopt_two_blocks_of_full_attention", "adopt_a_recurrent_state_behind_a_null_entry")

PLANTED = (
    catalogued("M-COW-1", *INSIDE),
    catalogued("M-CACHE-1", *INSIDE),
    catalogued("M-POOL-2", *INSIDE, "adopt_a_window"),
    planted(
        "a window passes nothing",
        "adopt_a_window",
        at=geometry,
        skipped_tokens_window=lambda computed, window, extra=0: 0,
    ),
    planted("scratch blocks are touched", "adopt_nothing_in_a_scratch_group", at=allocation, adopt=_everybody_adopts),
    catalogued("M-2PH-1", "admit_two_groups_in_two_phases"),
    catalogued("M-ATOM-1", "refuse_and_change_nothing"),
)
