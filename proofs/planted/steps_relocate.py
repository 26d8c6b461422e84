"""Faulty twins of the claims about speculative blocks and states of Mamba align."""

from __future__ import annotations

from kvproof.core.kinds import recurrent
from kvproof.proofs.planting import catalogued, planted

PLANTED = (
    catalogued("M-MAM-3", "relocate_a_block", "grow_and_relocate"),
    catalogued("M-MAM-4", "relocate_only_a_private_block"),
    planted(
        "speculative blocks stay where they are",
        "grow_and_relocate",
        at=recurrent,
        left_behind=lambda work, group, length, wanted, checkpoint: range(0),
    ),
    catalogued("M-MAM-1", "null_the_states_before_the_running_one"),
    catalogued("M-LRU-1", "null_the_states_before_the_running_one"),
    catalogued("M-COW-4", "pay_a_copy_as_producer"),
    catalogued("M-COW-7", "pay_a_copy_as_producer"),
    catalogued("M-COW-9", "pay_a_copy_as_producer"),
    catalogued("M-HASH-2", "pay_a_copy_as_producer"),
    catalogued("M-HO-1", "pay_a_copy_as_producer"),
)
