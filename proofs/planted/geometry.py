"""Faulty twins of the claims about geometry."""

from __future__ import annotations

from kvproof.core import geometry
from kvproof.proofs.planting import catalogued, planted

_gate = geometry.fine_grained_gate

PLANTED = (
    planted(
        "floor for ceil",
        "ceiling_covers_and_is_least",
        "attention_row_covers_the_context",
        "mamba_row_covers_the_context",
        at=geometry,
        ceil_div=lambda a, b: a // b,
    ),
    planted(
        "every group is scaled by the ranks",
        "effective_size_scales_iff_sharded",
        at=geometry,
        effective_block_size=lambda block_size, sharded, dcp_size: block_size * dcp_size,
    ),
    planted(
        "recurrent rows divided by the ranks",
        "mamba_row_is_never_narrower_than_the_attention_row",
        at=geometry,
        mamba_align_row_width=lambda length, block_size, extra: geometry.ceil_div(length, 4 * block_size) + extra,
    ),
    planted(
        "rows padded to one step too many",
        "aligned_row_is_the_next_multiple",
        at=geometry,
        align_row_width=lambda width, size, alignment: (width // max(alignment // size, 1) + 1) * max(alignment // size, 1),
    ),
    planted("no guard of rows", "row_guard_is_containment", at=geometry, fits_row=lambda start, count, capacity: True),
    planted(
        "kernel blocks numbered without the factor",
        "kernel_blocks_of_two_blocks_are_disjoint",
        at=geometry,
        expand_block_id=lambda block, j, factor: block + j,
    ),
    planted(
        "a block is named by the hash at its start",
        "chain_index_names_the_block_end",
        at=geometry,
        block_hash_index=lambda index, size, hash_block: index * (size // hash_block),
    ),
    planted(
        "the condition of the gate holds on one rank only",
        "gate_condition_is_strict_on_one_rank_only",
        at=geometry,
        mamba_gate_condition=lambda n, b, h: n == 1 and b > h,
    ),
    catalogued("M-GATE-1", "gate_needs_each_condition"),
    planted(
        "the gate asks every Mamba-align group to be coarse",
        "gate_needs_each_condition",
        at=geometry,
        fine_grained_gate=lambda *, mamba_align_block_sizes, **of: (
            bool(mamba_align_block_sizes)
            and all(_gate(mamba_align_block_sizes=(size,), **of) for size in mamba_align_block_sizes)
        ),
    ),
    planted(
        "the gate asks one other coarse size to be the hash block",
        "gate_needs_each_condition",
        at=geometry,
        fine_grained_gate=lambda *, other_coarse_sizes, **of: any(
            _gate(other_coarse_sizes=(size,), **of) for size in other_coarse_sizes
        ),
    ),
    catalogued("M-GATE-2", "gate_condition_is_strict_on_one_rank_only", "gate_needs_each_condition"),
    planted(
        "owners counted without the ranks",
        "owner_is_a_rank",
        "one_more_token_adds_to_its_owner",
        at=geometry,
        owner_rank=lambda position, block_size, dcp_size, interleave: position // interleave,
    ),
    planted(
        "every rank owns every position",
        "exactly_one_rank_has_a_slot",
        at=geometry,
        owns=lambda position, rank, block_size, sharded, dcp_size, interleave: True,
    ),
    catalogued("M-SLOT-1", "replicated_position_has_a_slot_on_every_rank"),
    catalogued("M-SLOT-2", "place_determines_the_position"),
    catalogued("M-SLOT-3", "local_lengths_add_up", "one_more_token_adds_to_its_owner"),
    planted(
        "offsets inside the ranks' block together",
        "offset_lies_inside_the_block",
        at=geometry,
        block_offset=lambda position, block_size, sharded, dcp_size, interleave: position % (block_size * dcp_size),
    ),
    planted(
        "columns of replicated groups scaled by the ranks",
        "replicated_place_determines_the_position",
        at=geometry,
        block_column=lambda position, block_size, sharded, dcp_size: position // (block_size * dcp_size),
    ),
    planted(
        "a rank's length rounded up where there is none",
        "no_token_is_local_before_the_first",
        at=geometry,
        local_length=lambda num_tokens, rank, dcp_size, interleave: num_tokens // dcp_size + 1,
    ),
    planted(
        "context from the second token on",
        "context_is_somewhere_iff_the_prefix_is_not_empty",
        at=geometry,
        has_context=lambda prefix_length_global: prefix_length_global > 1,
    ),
)
