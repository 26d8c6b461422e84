"""Faulty twins of the claims about retention masks and the ends of chunks."""

from __future__ import annotations

from typing import Any

from kvproof.core import geometry, retention
from kvproof.proofs.planting import planted

_stops, _swa_mask, _fits = retention.prefill_stops, retention.swa_mask, retention.checkpoint_fits


def _with_the_prompt(**numbers: Any) -> tuple[int, ...]:
    """Stop at the end of the prompt as well, wherever it lies."""
    return (*_stops(**numbers), numbers["num_prompt"])


PLANTED = (
    planted("every second block is kept", "attention_keeps_every_block", at=retention, attention_mask=lambda i: i % 2 == 0),
    planted(
        "a window needs its own position as well",
        "a_window_reads_so_many_blocks_before_a_resume",
        "a_dense_mask_keeps_what_aligned_resumes_read",
        "a_sparse_mask_keeps_what_a_resend_reads",
        "the_store_mask_keeps_the_last_window_as_well",
        at=retention,
        window_need=lambda window, size, eagle=False: -(-window // size) + int(eagle),
    ),
    planted(
        "whole blocks of a window only",
        "a_window_reads_so_many_blocks_before_a_resume",
        "a_dense_mask_keeps_what_aligned_resumes_read",
        "a_sparse_mask_keeps_what_a_resend_reads",
        "an_interval_keeps_what_its_ends_read",
        at=retention,
        window_need=lambda window, size, eagle=False: (window - 1) // size + int(eagle),
    ),
    planted(
        "sparse retention keeps the segments of dense",
        "a_segment_is_what_lies_between_two_resume_points",
        "a_sparse_mask_keeps_what_a_resend_reads",
        at=retention,
        window_segment=lambda size, alignment, interval: (interval or alignment) // size,
    ),
    planted(
        "the mask drops every second block",
        "blocks_inside_which_hits_end_are_all_kept",
        at=retention,
        swa_mask=lambda index, **numbers: bool(index % 2) and _swa_mask(index, **numbers),
    ),
    planted(
        "the connector stores what the device keeps",
        "the_store_mask_keeps_the_last_window_as_well",
        at=retention,
        swa_store_mask=lambda index, *, num_storable, alignment, **numbers: _swa_mask(
            index, alignment=alignment or 16, **numbers
        ),
    ),
    planted(
        "one step in flight counts for all",
        "every_step_in_flight_may_hold_a_whole_chunk",
        at=retention,
        most_in_flight=lambda chunk, steps: chunk,
    ),
    planted(
        "the cap of a local chunk without what is in flight",
        "admission_cap_covers_a_local_chunk",
        at=retention,
        admission_cap_chunked=lambda chunk, inflight, length, size: geometry.ceil_div(min(chunk, length), size),
    ),
    planted(
        "the checkpoint stands in the running column",
        "a_checkpoint_stands_before_the_running_state",
        "a_checkpoint_is_where_the_next_resend_resumes",
        at=retention,
        checkpoint_column=lambda end, size: -(-end // size) - 1,
    ),
    planted(
        "a checkpoint at the start of its chunk",
        "a_checkpoint_is_where_the_next_resend_resumes",
        at=retention,
        checkpoint_fits=lambda start, end, position, **sizes: start <= position < end,
    ),
    planted(
        "a checkpoint in every other chunk alone",
        "a_checkpoint_is_where_the_next_resend_resumes",
        at=retention,
        checkpoint_fits=lambda start, end, position, **sizes: end % 2 == 0 and _fits(start, end, position, **sizes),
    ),
    planted(
        "the tail is minded wherever hits are fine",
        "a_chunk_stops_at_the_tail_only_inside_a_scheduler_block",
        at=retention,
        clips_fine=lambda fine, unit, scheduler: fine,
    ),
    planted(
        "only the first group's open block is closed",
        "no_open_state_is_left_behind",
        at=retention,
        close_open_blocks=lambda start, amount, sizes, close=retention.close_open_blocks: close(start, amount, sizes[:1]),
    ),
    planted(
        "a chunk stops at the end of the prompt",
        "stops_lie_where_a_state_can_be_used",
        "a_chunk_with_a_checkpoint_inside_need_not_stop",
        at=retention,
        prefill_stops=_with_the_prompt,
    ),
    planted(
        "a chunk stops behind its start",
        "a_clipped_chunk_ends_where_a_state_is_of_use",
        at=retention,
        prefill_stops=lambda *, start, **numbers: (start + 1,),
    ),
)
