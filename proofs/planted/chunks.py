"""Faulty twins of the claims about native offloading."""

from __future__ import annotations

from kvproof.core import native, reachability
from kvproof.core.offload import choosing, lazy
from kvproof.core.pool import NO_KEY
from kvproof.proofs.planting import catalogued, planted

PLANTED = (
    planted(
        "a chunk is named by the hash at its start",
        "a_chunk_is_named_by_the_end_of_its_blocks",
        at=reachability,
        chunk_hash_index=lambda chunk, hashes: chunk * hashes,
    ),
    catalogued("M-PUB-2", "a_chunk_is_named_by_the_end_of_its_blocks"),
    planted(
        "states are stored wherever they are handed over",
        "a_chunk_is_named_by_the_end_of_its_blocks",
        at=reachability,
        handoff_storable=lambda block, boundary, limit, chunk: block != 0 and boundary <= limit,
    ),
    catalogued("M-GEO-3", "chunks_are_so_many_blocks_over_all_ranks", "a_chunk_has_the_tokens_of_its_blocks_on_every_rank"),
    planted(
        "without full attention the smallest chunk aligns",
        "chunks_are_so_many_blocks_over_all_ranks",
        at=reachability,
        alignment_tokens=lambda full, other: full[0] if full else min(other),
    ),
    planted(
        "chunks hashed without looking at the block",
        "a_chunk_has_a_hash_for_each_unit_or_is_refused",
        at=reachability,
        hashes_per_chunk=lambda chunk, block, unit: chunk // unit,
    ),
    planted(
        "chunks of parts of a block",
        "a_chunk_is_whole_blocks_of_one_size",
        at=reachability,
        resolve_blocks_per_chunk=lambda *, blocks_per_chunk, chunk_size, block_tokens: (
            blocks_per_chunk or (chunk_size or block_tokens[0]) // block_tokens[0]
        ),
    ),
    planted(
        "alignment of the smallest chunk",
        "native_hits_are_aligned_to_the_chunks_of_full_attention",
        at=reachability,
        alignment_tokens=lambda full, other: min(full + other),
    ),
    planted(
        "a window that has whole chunks only",
        "a_window_needs_the_chunks_that_hold_it",
        at=reachability,
        chunk_window_sliding=lambda window, chunk, extra=0: max(window // chunk, 1),
    ),
    planted(
        "local chunks need one chunk",
        "a_window_needs_the_chunks_that_hold_it",
        at=reachability,
        chunk_window_chunked=lambda local, chunk: 1,
    ),
    planted(
        "tails on several ranks",
        "native_tails_need_one_size_on_one_rank",
        at=reachability,
        native_partial_tails=lambda *, dcp_size, of=reachability.native_partial_tails, **sizes: of(dcp_size=1, **sizes),
    ),
    catalogued("M-REACH-1", "what_an_aligned_resume_reads_is_stored"),
    planted(
        "chunks with null blocks are stored",
        "a_chunk_without_what_is_read_is_not_stored",
        "the_scan_stores_whole_chunks_and_no_states",
        at=native,
        chunk_is_whole=lambda mask, blocks: any(mask) and blocks[-1] != 0,
    ),
    catalogued("M-BND-1", "a_native_load_fills_what_is_read_afterwards"),
    planted(
        "everything is filled",
        "a_native_load_fills_what_is_read_afterwards",
        "unread_blocks_are_those_before_what_is_read",
        at=native,
        unread_blocks=lambda config, chunked, total: 0,
    ),
    catalogued("M-GEO-4", "lazy_blocks_hold_a_step_and_a_window", "the_lazy_target_has_room_for_two_steps"),
    planted(
        "a window without the block that it begins in",
        "lazy_blocks_hold_a_step_and_a_window",
        "the_lazy_target_has_room_for_two_steps",
        at=reachability,
        lazy_blocks_window=lambda window, size: -(-window // size),
    ),
    planted(
        "the walk begins with its cursor",
        "the_walk_goes_on_behind_its_cursor",
        at=lazy,
        behind=lambda free, cursor: free if cursor == NO_KEY else free[free.index(cursor) :],
    ),
    planted(
        "the walk takes blocks that the host has",
        "the_walk_picks_keyed_blocks_that_the_host_lacks",
        at=lazy,
        is_worth_it=lambda choice, block: choice.device.key_node[block] != NO_KEY,
    ),
    planted(
        "blocks of the walk are not held",
        "the_walk_picks_keyed_blocks_that_the_host_lacks",
        at=choosing,
        pin=lambda device, blocks: device,
    ),
)
