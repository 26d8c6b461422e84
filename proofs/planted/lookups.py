"""Faulty twins of the claims about local lookups."""

from __future__ import annotations

from kvproof.core import lookup
from kvproof.proofs.planting import catalogued, planted

PLANTED = (
    catalogued("M-HIT-1", "the_last_token_is_computed_anew"),
    planted(
        "who opts out is looked up all the same",
        "who_opts_out_reads_nothing",
        at=lookup,
        reads_cache=lambda config, request: config.caching and bool(config.classes),
    ),
    planted(
        "every class is asked up to the limit",
        "only_full_attention_is_asked_beyond_the_candidate",
        at=lookup,
        asked_limit=lambda config, members, limit, current: limit,
    ),
    catalogued("M-HIT-4", "a_drop_leaves_what_was_asked_for"),
    planted(
        "a drop is given up of the candidate itself",
        "a_drop_leaves_what_was_asked_for",
        at=lookup,
        with_margin=lambda config, members, asked: asked,
    ),
    planted(
        "drops stay verified",
        "a_lower_candidate_is_verified_anew",
        at=lookup,
        still_verified=lambda config, verified, drop: verified,
    ),
    planted(
        "one pass is enough for two classes",
        "two_classes_without_full_attention_need_a_second_pass",
        at=lookup,
        one_pass=lambda config: len(config.classes) <= 2,
    ),
    catalogued(
        "M-HIT-2",
        "the_joint_hit_is_the_deepest_where_all_can_resume",
        "a_fine_hit_is_the_deepest_where_all_can_resume",
        "several_ranks_hit_no_more_than_a_state",
    ),
    catalogued("M-PUB-33", "the_joint_hit_is_the_deepest_where_all_can_resume"),
    catalogued("M-PUB-32", "the_joint_hit_is_the_deepest_where_all_can_resume"),
    catalogued("M-CAP-3", "a_hit_diverges_only_for_connectors_that_can_use_it"),
    catalogued("M-CAP-4", "a_hit_diverges_only_for_connectors_that_can_use_it"),
    catalogued("M-CAP-5", "a_hit_diverges_only_for_connectors_that_can_use_it"),
    catalogued("M-DIV-2", "a_deeper_group_takes_no_more_than_the_joint_hit"),
    planted(
        "any group may lag",
        "a_deeper_group_takes_no_more_than_the_joint_hit",
        "only_states_may_lag_behind_a_divergent_hit",
        at=lookup,
        may_lag=lambda config, members: True,
    ),
    planted(
        "the deepest class of full attention counts",
        "the_attention_hit_is_the_least_of_its_classes",
        at=lookup,
        attention_hit=lambda config, hits: max(hits),
    ),
    planted(
        "a hit is cut to whole blocks of the first group",
        "a_hit_is_cut_at_block_edges_and_no_further_than_it_reaches",
        at=lookup,
        kept_entries=lambda config, group, tokens: tokens // config.sizes[0] if config.groups[group].prefix_cacheable else 0,
    ),
    catalogued("M-SCR-1", "a_hit_is_cut_at_block_edges_and_no_further_than_it_reaches"),
)
