"""Faulty twins of the claims about boundaries, masks, clipping and offloading arithmetic."""

from __future__ import annotations

from kvproof.core import geometry, reachability, retention
from kvproof.proofs.planting import catalogued, planted

PLANTED = (
    planted(
        "checkpoint not strictly below",
        "checkpoint_is_the_last_multiple_strictly_below",
        "eagle_checkpoint_gives_up_a_unit",
        at=geometry,
        checkpoint_boundary=lambda n, u, eagle=False: n // u * u,
    ),
    planted(
        "a resend resumes behind the prompt",
        "replay_boundaries_ascend_below_the_prompt",
        at=geometry,
        replay_boundaries=lambda prompt, unit, eagle=False: (prompt,),
    ),
    planted(
        "tail at the last hash boundary of the prompt",
        "prompt_tail_leaves_the_last_token",
        at=geometry,
        prompt_tail_boundary=lambda p, h, n, rule="P-1": min(p // h, n) * h,
    ),
    planted(
        "cacheable tokens rounded up",
        "cacheable_prefix_is_whole_blocks",
        "eagle_prefix_stays_within_the_finalised_tokens",
        at=geometry,
        cacheable_tokens=lambda t, fine, s: t if fine else -(-t // s) * s,
    ),
    planted(
        "a window skips a token too many",
        "window_skips_nothing_that_the_next_position_reads",
        at=geometry,
        skipped_tokens_window=lambda computed, window, extra=0: max(computed - window - extra + 2, 0),
    ),
    planted(
        "the chunk of the last token instead of the next",
        "chunk_skips_up_to_its_start",
        at=geometry,
        skipped_tokens_chunked=lambda computed, chunk: (computed - 1) // chunk * chunk,
    ),
    planted(
        "the running state is skipped",
        "recurrent_keeps_the_running_state",
        at=geometry,
        skipped_tokens_mamba=lambda computed: computed,
    ),
    planted(
        "every second state is kept",
        "dense_mask_keeps_every_state",
        "sparse_mask_keeps_the_state_before_the_boundary",
        "interval_mask_keeps_the_interval_ends",
        at=retention,
        mamba_mask=lambda index, *of: index % 2 == 1,
    ),
    planted(
        "a chunk is clipped to nothing less than a block",
        "clip_never_grows_a_chunk",
        at=retention,
        clip_chunk=lambda *, start, wanted, clip_block, **of: max(wanted, clip_block),
    ),
    planted(
        "decoding is clipped, too",
        "clip_does_not_touch_decoding",
        at=retention,
        clip_chunk=lambda *, start, wanted, clip_block, **of: min(wanted, clip_block - start % clip_block),
    ),
    planted(
        "clipping forgets the last boundary",
        "clip_stops_at_the_last_block_boundary",
        at=retention,
        prefill_stops=lambda **kwargs: (),
    ),
    planted(
        "a checkpoint may lie at the end of its chunk",
        "checkpoint_inside_a_chunk_is_inside",
        at=retention,
        checkpoint_fits=lambda start, end, position, **of: start < position <= end,
    ),
    planted(
        "reachable chunks counted from the start of a segment",
        "segment_end_is_reachable",
        "segment_start_is_not_reachable",
        at=reachability,
        chunk_reachable=lambda j, n, count, window, eagle=False: j % count < window,
    ),
    planted(
        "a load of whole blocks from the start",
        "load_covers_the_external_tokens",
        at=reachability,
        load_range=lambda a, e, size: (a // size, e // size),
    ),
    planted(
        "a chunk is named by the hash at its start",
        "chunk_key_names_the_chunk_end",
        at=reachability,
        chunk_hash_index=lambda chunk, hashes: chunk * hashes,
    ),
    catalogued("M-PUB-2", "stored_blocks_are_whole"),
    catalogued("M-BND-1", "window_load_stays_within_its_bound"),
    planted(
        "the cap of a window without the block that it begins in",
        "admission_cap_covers_a_window_at_any_offset",
        at=retention,
        admission_cap_window=lambda window, extra, inflight, length, size: geometry.ceil_div(
            min(window - 1 + inflight, length), size
        ),
    ),
    planted(
        "the host pool is as large as its bytes allow",
        "host_pool_has_a_block",
        at=reachability,
        host_pool_size=lambda *, gpu_blocks, cpu_bytes, gpu_bytes, **of: gpu_blocks * cpu_bytes // gpu_bytes,
    ),
)
