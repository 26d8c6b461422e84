"""Faulty twins of the claims about block sizes, units and checks."""

from __future__ import annotations

from math import lcm, prod

from kvproof.core import geometry
from kvproof.proofs.planting import planted

_branches, _check_sizes = geometry.context_branches, geometry.check_sizes
_row_width, _shared_width, _hash_block = geometry.attention_row_width, geometry.shared_row_width, geometry.hash_block_size


def _no_check(*of: object, **named: object) -> None:
    """Check nothing."""
    del of, named


PLANTED = (
    planted(
        "scheduler block as a product", "scheduler_block_is_the_least_common_multiple", at=geometry, scheduler_block_size=prod
    ),
    planted(
        "scheduler block of the first two groups",
        "scheduler_block_is_the_least_common_multiple",
        at=geometry,
        scheduler_block_size=lambda sizes: lcm(*sizes[:2]),
    ),
    planted(
        "a scheduler block of no groups is one token",
        "scheduler_block_is_the_least_common_multiple",
        at=geometry,
        scheduler_block_size=lambda sizes: lcm(*sizes),
    ),
    planted(
        "hash block as the smallest block",
        "default_hash_block_is_the_greatest_common_divisor",
        at=geometry,
        default_hash_block_size=lambda sizes: min(sizes),
    ),
    planted(
        "any requested unit is taken",
        "requested_unit_is_taken_iff_it_divides_every_cacheable_size",
        at=geometry,
        hash_block_size=lambda *, requested, **of: requested,
    ),
    planted(
        "a requested unit that fits is not taken",
        "requested_unit_is_taken_iff_it_divides_every_cacheable_size",
        at=geometry,
        hash_block_size=lambda *, requested=None, **of: min(
            _hash_block(requested=requested, **of), _hash_block(requested=1, **of)
        ),
    ),
    planted(
        "hashes whether anything caches or not",
        "nothing_is_hashed_without_caching_and_connectors",
        at=geometry,
        hash_block_size=lambda *, sizes, **of: geometry.default_hash_block_size(sizes),
    ),
    planted(
        "a connector hashes nothing",
        "nothing_is_hashed_without_caching_and_connectors",
        at=geometry,
        hash_block_size=lambda *, connected, **of: _hash_block(connected=False, **of),
    ),
    planted("sizes are not checked", "sizes_are_accepted_iff_they_divide", at=geometry, check_sizes=_no_check),
    planted(
        "sizes need not divide the scheduler block",
        "sizes_are_accepted_iff_they_divide",
        at=geometry,
        check_sizes=lambda *, scheduler_block, hash_block, block_sizes, sizes, cacheable: _check_sizes(
            scheduler_block=scheduler_block * lcm(*sizes),
            hash_block=hash_block,
            block_sizes=block_sizes,
            sizes=sizes,
            cacheable=cacheable,
        ),
    ),
    planted(
        "states are not checked",
        "compressed_states_need_hits_that_end_on_a_state",
        at=geometry,
        check_state_compression=_no_check,
    ),
    planted(
        "sharding is not checked",
        "only_full_attention_is_sharded_on_several_ranks",
        at=geometry,
        check_group_sharding=_no_check,
    ),
    planted("interleaves are not checked", "interleave_divides_the_block", at=geometry, check_interleave=_no_check),
    planted(
        "EAGLE gives up a whole block always",
        "eagle_gives_up_one_unit_of_a_hit",
        at=geometry,
        eagle_unit=lambda size, alignment: size,
    ),
    planted(
        "the margin is a hash block always",
        "eagle_margin_is_a_unit_of_the_class",
        at=geometry,
        eagle_margin=lambda size, hash_block, fine: hash_block,
    ),
    planted(
        "rows padded down",
        "padded_attention_rows_still_cover_the_context",
        at=geometry,
        align_row_width=lambda width, size, alignment: width // 8 * 8,
    ),
    planted(
        "rows that are not padded",
        "padded_attention_rows_still_cover_the_context",
        at=geometry,
        align_row_width=lambda width, size, alignment: width,
    ),
    planted(
        "rows of large blocks padded by a step too many",
        "padded_attention_rows_still_cover_the_context",
        at=geometry,
        attention_row_width=lambda length, size, sharded, n: _row_width(length, size, sharded, n) + (8 if size > 100 else 0),
    ),
    planted(
        "no column for the running state",
        "small_rows_hold_what_stands_in_them",
        at=geometry,
        mamba_other_row_width=lambda spare: spare,
    ),
    planted(
        "the widest row is shared",
        "a_shared_row_needs_one_width",
        at=geometry,
        shared_row_width=lambda widths: max(widths) if widths else _shared_width(widths),
    ),
    planted(
        "a row of no groups has no columns",
        "a_shared_row_needs_one_width",
        at=geometry,
        shared_row_width=lambda widths: _shared_width(widths) if widths else 0,
    ),
    planted(
        "a shared row with a column too many",
        "a_shared_row_needs_one_width",
        at=geometry,
        shared_row_width=lambda widths: _shared_width(widths) + 1,
    ),
    planted(
        "the first rank owns everything",
        "a_sharded_position_has_one_owner_and_a_replicated_one_all",
        at=geometry,
        owns=lambda position, rank, size, sharded, dcp_size, interleave: rank == 0,
    ),
    planted(
        "each rank decides by its own length",
        "all_ranks_take_one_branch",
        at=geometry,
        context_branches=lambda prefix, n: tuple(geometry.local_length(prefix, rank, n, 1) > 0 for rank in range(n)),
    ),
    planted(
        "three ranks never have context",
        "all_ranks_take_one_branch",
        at=geometry,
        context_branches=lambda prefix, n: (False,) * n if n == 3 else _branches(prefix, n),
    ),
    planted(
        "full attention forgets what it has computed",
        "full_attention_reads_everything",
        at=geometry,
        skipped_tokens_attention=lambda computed: computed,
    ),
)
