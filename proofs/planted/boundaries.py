"""Faulty twins of the claims about boundaries, masks, clipping and offloading arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from kvproof.core import geometry, reachability, retention
from kvproof.proofs.planting import catalogued, planted

_cap, _bound = retention.admission_cap_window, reachability.window_block_bound


def _clipped(most: int, clip: Callable[..., int] = retention.clip_chunk, **of: Any) -> int:
    """Clip a chunk, and then to this many tokens."""
    return min(clip(**of), most)


PLANTED = (
    planted(
        "checkpoint not strictly below",
        "checkpoint_is_the_last_multiple_strictly_below",
        "eagle_checkpoint_gives_up_a_unit",
        at=geometry,
        checkpoint_boundary=lambda n, u, eagle=False: n // u * u,
    ),
    planted(
        "the checkpoint of EAGLE is no boundary",
        "eagle_checkpoint_gives_up_a_unit",
        "replay_boundaries_are_those_of_a_resend",
        at=geometry,
        checkpoint_boundary=lambda n, u, eagle=False: max(n - u, 0) if eagle else (n - 1) // u * u,
    ),
    planted(
        "EAGLE keeps no checkpoint",
        "eagle_checkpoint_gives_up_a_unit",
        "replay_boundaries_are_those_of_a_resend",
        at=geometry,
        checkpoint_boundary=lambda n, u, eagle=False: 0 if eagle else (n - 1) // u * u,
    ),
    catalogued("M-PUB-40", "replay_boundaries_are_those_of_a_resend"),
    catalogued("M-PUB-41", "replay_boundaries_are_those_of_a_resend"),
    planted(
        "EAGLE resumes at the higher boundary only",
        "replay_boundaries_are_those_of_a_resend",
        at=geometry,
        replay_boundaries=lambda prompt, unit, eagle=False, of=geometry.replay_boundaries: of(prompt, unit, eagle)[-1:],
    ),
    planted(
        "a resend resumes behind the prompt",
        "replay_boundaries_are_those_of_a_resend",
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
        "the tail of a prompt is on no hash boundary",
        "prompt_tail_leaves_the_last_token",
        at=geometry,
        prompt_tail_boundary=lambda p, h, n, rule="P-1": min(p if rule == "P" else p - 1, n * h),
    ),
    planted(
        "a prompt has no tail",
        "prompt_tail_leaves_the_last_token",
        at=geometry,
        prompt_tail_boundary=lambda p, h, n, rule="": 0,
    ),
    planted(
        "every prompt gives up its last token",
        "prompt_tail_leaves_the_last_token",
        at=geometry,
        prompt_tail_boundary=lambda p, h, n, rule="P-1": min((p - 1) // h, n) * h,
    ),
    planted(
        "every token is cacheable",
        "cacheable_prefix_is_whole_blocks",
        at=geometry,
        cacheable_tokens=lambda t, fine, s: t,
    ),
    planted(
        "all but a scheduler block is cacheable",
        "cacheable_prefix_is_whole_blocks",
        at=geometry,
        cacheable_tokens=lambda t, fine, s: t if fine else max(t - s + 1, 0),
    ),
    planted(
        "EAGLE caches no entry more",
        "eagle_prefix_stays_within_the_finalised_tokens",
        at=geometry,
        cacheable_tokens_eagle=lambda t, fine, s, size: geometry.cacheable_tokens(t, fine, s),
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
        "a window skips nothing",
        "window_skips_nothing_that_the_next_position_reads",
        at=geometry,
        skipped_tokens_window=lambda computed, window, extra=0: 0,
    ),
    planted(
        "a window skips nothing until three tokens are behind it",
        "window_skips_nothing_that_the_next_position_reads",
        at=geometry,
        skipped_tokens_window=lambda computed, window, extra=0: (
            computed - window + 1 - extra if computed > window + 3 + extra else 0
        ),
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
        "chunks are clipped to a token",
        "clip_stops_at_the_last_block_boundary",
        "clip_does_not_touch_decoding",
        at=retention,
        clip_chunk=partial(_clipped, 1),
    ),
    planted(
        "clipping forgets the last boundary",
        "clip_stops_at_the_last_block_boundary",
        at=retention,
        prefill_stops=lambda **kwargs: (),
    ),
    planted(
        "no checkpoint fits", "checkpoint_inside_a_chunk_is_inside", at=retention, checkpoint_fits=lambda *of, **sizes: False
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
        "only_the_window_of_a_segment_is_stored",
        at=reachability,
        chunk_reachable=lambda j, n, count, window, eagle=False: j % count < window,
    ),
    catalogued("M-REACH-1", "only_the_window_of_a_segment_is_stored"),
    planted(
        "all but the first chunk of a segment are stored",
        "only_the_window_of_a_segment_is_stored",
        at=reachability,
        chunk_reachable=lambda j, n, count, window, eagle=False: j % count >= 1,
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
        "the bound of a window with eight blocks more",
        "window_load_stays_within_its_bound",
        at=reachability,
        window_block_bound=lambda window, blocks: _bound(window, blocks) + 8,
    ),
    planted(
        "the cap of a window with eight blocks more",
        "admission_cap_covers_a_window_at_any_offset",
        at=retention,
        admission_cap_window=lambda *of: _cap(*of) + 8,
    ),
    planted(
        "the cap of a window forgets what is kept beside it",
        "admission_cap_covers_a_window_at_any_offset",
        at=retention,
        admission_cap_window=lambda window, extra, *of: _cap(window, 0, *of),
    ),
    planted(
        "the cap of a window without the block that it begins in",
        "admission_cap_covers_a_window_at_any_offset",
        at=retention,
        admission_cap_window=lambda window, extra, inflight, length, size: geometry.ceil_div(
            min(window - 1 + inflight, length), size
        ),
    ),
    planted("the host pool has its null block only", "host_pool_has_a_block", at=reachability, host_pool_size=lambda **of: 1),
    planted(
        "the host pool is as large as its bytes allow",
        "host_pool_has_a_block",
        at=reachability,
        host_pool_size=lambda *, gpu_blocks, cpu_bytes, gpu_bytes, **of: gpu_blocks * cpu_bytes // gpu_bytes,
    ),
)
