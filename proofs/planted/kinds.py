"""Faulty twins of the claims about the kinds of groups."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import config, groups
from kvproof.core.kinds import (
    caching,
    chunked_local,
    full_attention,
    recurrent,
    scratch,
    sliding_window,
    stable,
    windowed,
)
from kvproof.proofs.planting import catalogued, planted

PLANTED = (
    catalogued("M-GEO-2", "a_row_has_a_column_for_the_last_position"),
    catalogued("M-PUB-4", "a_row_has_a_column_for_the_last_position"),
    catalogued("M-PUB-20", "a_row_has_a_column_for_the_last_position"),
    planted(
        "scratch blocks have positions",
        "a_row_has_a_column_for_the_last_position",
        at=scratch,
        CAPABILITIES=evolve(scratch.CAPABILITIES, positions=True),
    ),
    planted(
        "a window skips what its size says",
        "nothing_is_skipped_that_is_read_next",
        at=sliding_window,
        skipped_tokens=lambda spec, computed: max(computed - windowed.tokens_read(spec) + 2, 0),
    ),
    planted(
        "every state is skipped",
        "nothing_is_skipped_that_is_read_next",
        at=stable,
        skipped_tokens=lambda spec, computed: computed,
    ),
    catalogued("M-WIN-2", "a_cap_covers_what_is_held_and_no_more_than_a_window_needs"),
    planted(
        "a local chunk is capped without what is in flight",
        "a_cap_covers_what_is_held_and_no_more_than_a_window_needs",
        at=chunked_local,
        admission_cap=lambda spec, in_flight, length: -(-min(windowed.tokens_read(spec), length) // spec.block_size),
    ),
    catalogued("M-PUB-32", "attention_is_hit_as_far_as_its_blocks_go"),
    planted(
        "the block behind a hit is not asked for",
        "a_window_is_hit_where_its_blocks_are",
        at=windowed,
        find_hit=lambda config, pool, nodes, members, limit, ahead, skipped, find=windowed.find_hit: find(
            config, pool, nodes, members, limit, 0, skipped
        ),
    ),
    catalogued("M-PUB-28", "a_window_is_hit_where_its_blocks_are"),
    planted(
        "chunks are hit like a window",
        "a_local_chunk_is_hit_where_its_blocks_are",
        at=chunked_local,
        skipped_tokens=lambda spec, computed: max(computed - windowed.tokens_read(spec) + 1, 0),
    ),
    catalogued("M-HIT-2", "a_state_is_hit_at_its_own_boundary"),
    planted(
        "scratch blocks are taken for every chunk",
        "a_scratch_group_holds_one_block_without_a_key",
        at=scratch,
        missing_blocks=lambda state: 1,
    ),
    catalogued("M-SCR-2", "a_scratch_group_holds_one_block_without_a_key"),
    catalogued("M-COW-8", "a_hit_inside_a_block_owes_one_copy"),
    planted(
        "a block is named by the node of its beginning",
        "a_full_block_is_named_by_the_node_of_its_end",
        at=caching,
        full_node=lambda work, group, index: work.nodes[max(2 * index - 1, 0)],
    ),
    planted(
        "everything counts as full",
        "a_full_block_is_named_by_the_node_of_its_end",
        at=caching,
        full_entries=lambda work, group, tokens: len(work.nodes) // 2,
    ),
    catalogued("M-PART-1", "a_prompt_has_one_tail_at_most"),
    planted(
        "a tail is registered before it is computed",
        "a_prompt_has_one_tail_at_most",
        at=full_attention,
        tail_boundaries=lambda work, group, tokens, tails=full_attention.tail_boundaries: tails(work, group, 23),
    ),
    catalogued("M-PUB-40", "a_mask_keeps_where_a_resend_resumes"),
    planted(
        "junctions are not kept",
        "a_mask_keeps_where_a_resend_resumes",
        at=caching,
        reach=lambda work, group, reach=caching.reach: reach(work, group)[:1],
    ),
    catalogued("M-MAM-3", "a_moved_block_leaves_null_behind"),
    planted(
        "all spare blocks move",
        "spare_blocks_before_the_running_column_move",
        at=recurrent,
        relocated_columns=lambda length, spare, stop: range(length - spare, length),
    ),
    planted(
        "a checkpoint takes any column",
        "a_checkpoint_takes_no_state_that_is_read",
        at=recurrent,
        column_is_free=lambda state, column, spare: True,
    ),
    planted(
        "spare blocks are not counted",
        "a_state_needs_its_column_and_the_spare_ones",
        at=recurrent,
        required_entries=lambda work, group, wanted: -(-wanted.main // 4),
    ),
    planted(
        "only debts are copied",
        "a_state_needs_its_column_and_the_spare_ones",
        at=recurrent,
        owed_copy=lambda state, wanted, size: int(state.partial_index != -1),
    ),
    planted(
        "the state at the end of a prompt is kept",
        "a_state_inside_its_block_is_kept_where_a_resend_resumes",
        at=recurrent,
        is_checkpoint=lambda work, tokens: tokens == work.num_prompt,
    ),
    planted(
        "every checkpoint inside a chunk is of use",
        "a_state_inside_its_block_is_kept_where_a_resend_resumes",
        at=recurrent,
        useful_checkpoint=lambda work, group, position: True,
    ),
    planted(
        "a drafter's groups are looked up on their own",
        "groups_of_one_kind_are_looked_up_together",
        at=groups,
        lookup_classes=lambda given: tuple((at,) for at in (2, 3, 1)),
    ),
    planted(
        "only flagged groups give up a unit",
        "groups_of_one_kind_are_looked_up_together",
        at=groups,
        eagle_groups=lambda given, classes, use_eagle: tuple(use_eagle and group.draft for group in given),
    ),
    catalogued("M-GATE-1", "hits_are_fine_where_every_kind_can_end_there"),
    catalogued("M-GATE-3", "hits_are_fine_where_every_kind_can_end_there"),
    catalogued("M-SLOT-4", "hits_are_fine_where_every_kind_can_end_there"),
    planted(
        "every group is scaled by the ranks",
        "hits_are_fine_where_every_kind_can_end_there",
        at=config,
        effective_sizes=lambda given, ranks: tuple(group.block_size * ranks for group in given),
    ),
)
