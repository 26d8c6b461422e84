"""Scopes of exploration without a host tier; together they are to show every situation of the device side.

Each is narrow: blocks of one to four tokens, a pool that is soon full, two requests at most, disturbances by budgets. A name
lists the groups as in the check's scopes (w: sliding window, c: chunked local, st: stable Mamba, x: scratch, r: replicated,
+k: speculative blocks), the ranks, then what the scope is about.
"""

from __future__ import annotations

from kvproof.core import actions as act
from kvproof.core.config import Group
from kvproof.spec.engines.scope_parts import SCRATCH, STABLE, chunked, full, mamba, window
from kvproof.spec.exploring.bounds import Bounds
from kvproof.spec.exploring.scope import Scope

SCOPES: tuple[Scope, ...] = (
    # Every other kind of group under a pool so tight that the gate of an admission refuses; worker rows, and what is refused.
    Scope(
        "fa2-m4-c2-w4-st2-x1",
        (full(2), mamba(4), chunked(2, 4), window(4, 4), Group(STABLE, 2), Group(SCRATCH, 1)),
        Bounds(
            ("aaaaa", "aaa"),
            submits=2,
            outputs=0,
            alphabet=(0,),
            gates=(False, True),
            reserved=(0, 1),
            refusals=True,
            at_most={act.AppendRows: 1},
        ),
        {
            "hash_block_size": 2,
            "max_model_len": 8,
            "num_blocks": 13,
            "max_running": 2,
            "max_chunk": 4,
            "max_steps_in_flight": 2,
            "defer_block_free": True,
            "append_expansion": 2,
            "events": True,
        },
    ),
    # One group and a pool of four blocks: free queue, key map, contexts, and every disturbance of an idle engine.
    Scope(
        "fa1-contexts",
        (full(1),),
        Bounds(
            ("aaa",),
            submits=2,
            outputs=0,
            alphabet=(0,),
            contexts=(0, 1),
            at_most={act.ResetCache: 1, act.EvictBlocks: 1},
        ),
        {"max_model_len": 5, "num_blocks": 5, "max_running": 2, "events": True},
        quick=True,
    ),
    # EAGLE under a sparse retention: windows, pinned junctions, checkpoints inside a chunk.
    Scope(
        "fa2-m4-w1-eagle",
        (full(2), mamba(4), window(1, 3)),
        Bounds(("aaaaaa", "aaaab"), submits=2, outputs=0, external=False, skip_reading=True),
        {
            "hash_block_size": 1,
            "connectors": (True,),
            "max_model_len": 8,
            "num_blocks": 18,
            "max_running": 2,
            "use_eagle": True,
            "retention": 0,
            "shared_prefix_checkpoint": True,
            "checkpoint_alignment": 1,
            "events": True,
        },
        quick=True,
    ),
    # Two ranks: hits inside an attention block, two attention sizes, two Mamba sizes under one clipping unit.
    Scope(
        "fa2r-fa2-m2-m4-n2",
        (full(2, False), full(2), mamba(2), mamba(4)),
        Bounds(("a", "aaa", "aaaaa"), submits=2, outputs=1, alphabet=(0,), external=False, at_most={act.Withdraw: 1}),
        {
            "dcp_size": 2,
            "interleave": 2,
            "hash_block_size": 2,
            "clip_block_size": 2,
            "max_model_len": 512,
            "num_blocks": 14,
            "max_running": 2,
            "events": True,
        },
    ),
    # Steps in flight with placeholders: everything may happen between the parts of a step.
    Scope(
        "fa1-m2+1-async",
        (full(1), mamba(2, 1)),
        Bounds(
            ("aa",),
            submits=1,
            outputs=3,
            alphabet=(0,),
            execution="any",
            refusals=True,
            depth=47,
            at_most={act.Preempt: 1, act.Withdraw: 1},
        ),
        {
            "num_draft_tokens": 1,
            "max_model_len": 5,
            "num_blocks": 10,
            "max_running": 1,
            "max_steps_in_flight": 2,
            "async_outputs": True,
        },
    ),
    # Two drafts that pass the end of a state block, in steps that export checkpoints.
    Scope(
        "fa1-m2+2-x2-drafts",
        (full(1), mamba(2, 2), Group(SCRATCH, 2)),
        Bounds(("aa", "aaa"), submits=2, outputs=3, alphabet=(0,), live=1, external=False),
        {
            "num_draft_tokens": 2,
            "checkpoint_alignment": 1,
            "hash_block_size": 1,
            "connectors": (True, False),
            "max_model_len": 6,
            "num_blocks": 14,
            "max_running": 1,
            "events": True,
        },
        quick=True,
    ),
    # A connector whose tokens may not arrive, beside divergent hits and late outputs.
    Scope(
        "fa2-m2-loads",
        (full(2), mamba(2)),
        Bounds(
            ("aaaa",),
            submits=2,
            outputs=0,
            alphabet=(0,),
            failures=True,
            refusals=True,
            at_most={act.Preempt: 1},
            depth=26,
        ),
        {
            "hash_block_size": 1,
            "connectors": (True,),
            "max_model_len": 6,
            "num_blocks": 8,
            "max_running": 2,
        },
    ),
)
"""The scopes without a host tier, the quick ones first."""

FURTHER: tuple[Scope, ...] = ()
"""Scopes without a host tier for faults that the catalogue has no room for."""
