"""Faulty twins of the claims about boundaries, masks, clipping and offloading arithmetic."""

from __future__ import annotations

from kvproof.core import geometry, retention
from kvproof.proofs.planting import catalogued, planted

PLANTED = (
    planted(
        "checkpoint not strictly below",
        "checkpoint_is_the_last_multiple_strictly_below",
        at=geometry,
        checkpoint_boundary=lambda n, u, eagle=False: n // u * u,
    ),
    catalogued("M-TAIL-4", "prompt_tail_leaves_the_last_token"),
    planted(
        "cacheable tokens rounded up",
        "cacheable_prefix_is_whole_blocks",
        "eagle_prefix_stays_within_the_finalised_tokens",
        at=geometry,
        cacheable_tokens=lambda t, fine, s: t if fine else -(-t // s) * s,
    ),
    planted(
        "clipping forgets the last boundary",
        "clip_stops_at_the_last_block_boundary",
        at=retention,
        prefill_stops=lambda **kwargs: (),
    ),
    catalogued("M-REACH-1", "segment_end_is_reachable"),
    catalogued("M-PUB-2", "stored_blocks_are_whole"),
    catalogued("M-BND-1", "window_load_stays_within_its_bound"),
    catalogued("M-LOAD-1", "load_covers_the_external_tokens"),
)
