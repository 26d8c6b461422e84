"""Faulty twins of the claims about what a call is refused for."""

from __future__ import annotations

from kvproof.core import phases, recovery
from kvproof.core import step as steps
from kvproof.proofs.planting import catalogued, planted

PLANTED = (
    planted(
        "any phase will do",
        "an_action_is_refused_outside_its_phases",
        at=phases,
        need=lambda world, action, *wanted: None,
    ),
    catalogued("M-MIS-1", "external_tokens_begin_behind_whole_blocks"),
    catalogued("M-DIV-3", "external_tokens_begin_behind_whole_blocks"),
    catalogued("M-TAIL-1", "external_tokens_begin_behind_whole_blocks"),
    catalogued("M-DIV-1", "a_divergent_hit_needs_external_tokens"),
    catalogued("M-TAIL-2", "a_hit_is_adopted_whole_or_cut"),
    planted(
        "drafts are not looked at",
        "a_chunk_ends_within_the_known_tokens_and_its_drafts",
        at=steps,
        check_end=lambda world, request, action, start: None,
    ),
    catalogued("M-MAM-6", "a_chunk_begins_behind_what_is_hit_and_loaded"),
    planted(
        "drafts follow any token",
        "the_state_before_drafts_has_a_column",
        at=steps,
        state_before_drafts=lambda config, request, start, amount, drafts: True,
    ),
    planted(
        "the limit of long prefills is all that counts",
        "a_prefill_shares_its_step",
        at=steps,
        largest_prefill=lambda config: config.long_prefill or config.max_chunk,
    ),
    planted(
        "any load may fail",
        "a_load_fails_only_within_its_tokens",
        at=recovery,
        check=lambda step, entry, valid: None,
    ),
)
