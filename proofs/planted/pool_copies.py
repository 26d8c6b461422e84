"""Faulty twins of the claims about copy-on-write."""

from __future__ import annotations

from kvproof.core import work as works
from kvproof.core.kinds import copying
from kvproof.core.world import GroupState
from kvproof.proofs.planting import catalogued, planted


def _unchecked(work: works.Work, group: int, state: GroupState) -> tuple[GroupState, int]:
    """Redirect a block to a private copy without looking whether it stands in the table."""
    (copy,) = works.take(work, group, 1)
    work.pool = copying.retain(work.pool, copy)
    works.queue_copy(work, group, state.partial_source, copy)
    return copying.settle(state, state.partial_index, copy), copy


PLANTED = (
    catalogued("M-COW-2", "redirect_to_a_private_copy"),
    catalogued("M-COW-3", "redirect_to_a_private_copy"),
    catalogued("M-COW-5", "redirect_to_a_private_copy"),
    catalogued("M-COW-9", "redirect_to_a_private_copy", "drain_gives_back_both_ends"),
    planted(
        "redirect without looking at the table",
        "redirect_only_the_block_in_the_table",
        "redirect_no_null_block",
        at=copying,
        redirect=_unchecked,
    ),
)
