"""Faulty twins of the claims about geometry."""

from __future__ import annotations

from kvproof.core import geometry
from kvproof.proofs.planting import catalogued, planted

PLANTED = (
    planted(
        "floor for ceil",
        "ceiling_covers_and_is_least",
        "attention_row_covers_the_context",
        "mamba_row_covers_the_context",
        at=geometry,
        ceil_div=lambda a, b: a // b,
    ),
    catalogued("M-GEO-1", "effective_size_scales_iff_sharded"),
    catalogued("M-GATE-1", "gate_condition_is_strict_on_one_rank_only", "gate_needs_each_condition"),
    catalogued("M-GATE-2", "gate_condition_is_strict_on_one_rank_only", "gate_needs_each_condition"),
    catalogued("M-CAP-1", "row_guard_is_containment"),
    catalogued("M-SLOT-1", "replicated_position_has_a_slot_on_every_rank"),
    catalogued("M-SLOT-2", "place_determines_the_position"),
    catalogued("M-SLOT-3", "local_lengths_add_up", "one_more_token_adds_to_its_owner"),
)
