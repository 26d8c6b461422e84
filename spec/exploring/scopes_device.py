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

FURTHER: tuple[Scope, ...] = (
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
    ),
    # A window of one token beside full attention alone, and nothing is read of it.
    Scope(
        "fa4-w4-one",
        (full(4), window(4, 1)),
        Bounds(("aaaaa",), submits=2, outputs=0, alphabet=(0,), external=False),
        {"max_model_len": 8, "num_blocks": 6, "max_running": 2},
    ),
    # EAGLE beside a window longer than the run that is there.
    Scope(
        "fa2-w2-n2-eagle",
        (full(2), window(2, 6)),
        Bounds(("a" * 9,), submits=2, outputs=0, alphabet=(0,), external=False),
        {"dcp_size": 2, "max_model_len": 12, "num_blocks": 14, "max_running": 2, "use_eagle": True},
    ),
    # Two windows that drop in turn, and nothing else bounds the hit.
    Scope(
        "w2-w2-eagle",
        (window(2, 2), window(2, 5)),
        Bounds(("aaaa",), submits=2, outputs=0, alphabet=(0,), external=False),
        {"max_model_len": 10, "num_blocks": 10, "max_running": 2, "use_eagle": True},
    ),
    # A pool in which a prompt fits with the cap of its window alone.
    Scope(
        "fa4-w4-gate",
        (full(4), window(4, 5)),
        Bounds(("a" * 25,), submits=1, outputs=0, alphabet=(0,), live=1, external=False, gates=(True,)),
        {"max_model_len": 32, "num_blocks": 13, "max_chunk": 8},
    ),
    # External tokens behind a divergent hit beside a window.
    Scope(
        "fa4-m4-w2-h2-eagle",
        (full(4), mamba(4), window(2, 4)),
        Bounds(("a" * 15,), submits=2, outputs=0, alphabet=(0,), depth=12),
        {
            "connectors": (True,),
            "max_model_len": 18,
            "num_blocks": 24,
            "max_running": 2,
            "use_eagle": True,
            "retention": 0,
            "shared_prefix_checkpoint": True,
        },
    ),
    # External tokens before a recurrent group with speculative blocks.
    Scope(
        "m2+1-m4+1-fa2-n2-loads",
        (mamba(2, 1), mamba(4, 1), full(2)),
        Bounds(("a" * 9,), submits=1, outputs=1, alphabet=(0,), live=1),
        {
            "dcp_size": 2,
            "connectors": (False,),
            "num_draft_tokens": 1,
            "max_model_len": 12,
            "num_blocks": 14,
            "max_running": 1,
        },
    ),
    # Events of a partial key inside an attention block of two ranks.
    Scope(
        "fa4-m4-n2-events",
        (full(4), mamba(4)),
        Bounds(("aaaaa",), submits=1, outputs=0, alphabet=(0,), live=1, external=False),
        {"dcp_size": 2, "hash_block_size": 2, "max_model_len": 8, "num_blocks": 6, "max_running": 1, "events": True},
    ),
    # A divergent hit without any connector, after one of the classes lost its blocks.
    Scope(
        "fa4-m4-n2",
        (full(4), mamba(4)),
        Bounds(
            ("a" * 9,),
            submits=2,
            outputs=0,
            alphabet=(0,),
            external=False,
            at_most={act.EvictBlocks: 1},
            depth=19,
        ),
        {"dcp_size": 2, "max_model_len": 24, "num_blocks": 12, "max_running": 2},
    ),
    # A request that is withdrawn from the plan in which it got a block, and resumed.
    Scope(
        "fa4-m4-n2-withdrawn",
        (full(4), mamba(4)),
        Bounds(("aaaa",), submits=1, outputs=1, alphabet=(0,), live=1, external=False, at_most={act.Withdraw: 1}),
        {"dcp_size": 2, "max_model_len": 8, "num_blocks": 8, "max_running": 1},
    ),
    # Two recurrent groups that need two blocks each behind external tokens, in a pool that does not have them.
    Scope(
        "fa4-m4-m4-n2-tight",
        (full(4), mamba(4), mamba(4)),
        Bounds(("a" * 9,), submits=1, outputs=0, alphabet=(0,), live=1),
        {"dcp_size": 2, "interleave": 2, "connectors": (True,), "max_model_len": 16, "num_blocks": 5, "max_running": 1},
    ),
    # Two recurrent sizes of which the smaller is the clipping unit; keys are evicted while their copy waits.
    Scope(
        "m4-m8-fa2-n2",
        (mamba(4), mamba(8), full(2)),
        Bounds(("a" * 21,), submits=1, outputs=1, alphabet=(0,), live=1, at_most={act.EvictBlocks: 1}, depth=17),
        {
            "dcp_size": 2,
            "connectors": (False,),
            "clip_block_size": 4,
            "retention": 16,
            "max_model_len": 24,
            "num_blocks": 14,
            "max_running": 1,
        },
    ),
    # A second attention class whose key lies just above the candidate.
    Scope(
        "fa4r-fa4-m4-n2",
        (full(4, False), full(4), mamba(4)),
        Bounds(
            ("a" * 9,),
            submits=2,
            outputs=0,
            alphabet=(0,),
            external=False,
            at_most={act.EvictBlocks: 1, act.Preempt: 1},
            depth=20,
        ),
        {"dcp_size": 2, "max_model_len": 16, "num_blocks": 16, "max_running": 2},
    ),
    # A column that moved in the step of its checkpoint.
    Scope(
        "fa2-m2+1-ckpt1",
        (full(2), mamba(2, 1)),
        Bounds(("a" * 9,), submits=1, outputs=0, alphabet=(0,), live=1, external=False),
        {
            "hash_block_size": 1,
            "retention": 0,
            "checkpoint_alignment": 1,
            "max_chunk": 4,
            "max_model_len": 12,
            "num_blocks": 14,
            "max_running": 1,
        },
    ),
    # Checkpoints at every fourth token, where the own checkpoint of a prompt is not one of them.
    Scope(
        "fa8-m8-h2-ckpt4",
        (full(8), mamba(8)),
        Bounds(("a" * 13,), submits=2, outputs=1, alphabet=(0,), live=1, external=False),
        {
            "hash_block_size": 2,
            "use_eagle": True,
            "checkpoint_alignment": 4,
            "max_model_len": 16,
            "num_blocks": 16,
            "max_running": 1,
        },
    ),
    # EAGLE under a retention of the replay boundary alone, asked again by a resend.
    Scope(
        "fa4-m4-w2-h2-eagle-resend",
        (full(4), mamba(4), window(2, 4)),
        Bounds(("a" * 7,), submits=2, outputs=1, alphabet=(0,), live=1, external=False),
        {
            "use_eagle": True,
            "retention": 0,
            "shared_prefix_checkpoint": True,
            "max_model_len": 24,
            "num_blocks": 24,
            "max_running": 1,
        },
    ),
    # An allocation that is refused between two lookups of a preempted request.
    Scope(
        "m4-fa2-tight",
        (mamba(4), full(2)),
        Bounds(
            ("a" * 9, "a" * 5),
            submits=2,
            outputs=0,
            alphabet=(0,),
            external=False,
            reserved=(0, 1),
            at_most={act.Preempt: 1},
            depth=22,
        ),
        {"max_model_len": 12, "num_blocks": 8, "max_running": 2},
    ),
    # A hit whose blocks are free, in a pool that holds these and no more.
    Scope(
        "fa1-tight",
        (full(1),),
        Bounds(("aaa", "a"), submits=2, outputs=1, alphabet=(0,), external=False, at_most={act.Preempt: 1}),
        {"max_model_len": 4, "num_blocks": 4, "max_running": 2},
    ),
    # What connectors are given at the end of a request, of every kind of group on two ranks.
    Scope(
        "fa2-w4-st4-x4-m2-m4-n2-eagle",
        (full(2), window(4, 6, draft=True), Group(STABLE, 4), Group(SCRATCH, 4), mamba(2), mamba(4)),
        Bounds(("aaaa",), submits=1, outputs=0, alphabet=(0,), live=1, external=False, lookahead=(0, 1)),
        {
            "dcp_size": 2,
            "hash_block_size": 2,
            "max_model_len": 24,
            "num_blocks": 40,
            "max_chunk": 9,
            "retention": 0,
            "use_eagle": True,
            "checkpoint_alignment": 4,
            "connectors": (True,),
            "append_expansion": 2,
            "events": True,
        },
    ),
    # Recurrent blocks far smaller than attention entries: many states in an entry, dead ones before a gap.
    Scope(
        "fa4-m2-n4",
        (full(4), mamba(2)),
        Bounds(("aaa", "a" * 19), submits=2, outputs=0, alphabet=(0,), external=False),
        {"dcp_size": 4, "interleave": 4, "max_model_len": 20, "num_blocks": 14, "max_running": 2},
    ),
    # Prompts that end on a hash boundary, sent again.
    Scope(
        "fa8-m2-n2",
        (full(8), mamba(2)),
        Bounds(("a" * 10,), submits=2, outputs=1, alphabet=(0,), live=1, external=False),
        {"dcp_size": 2, "interleave": 4, "max_model_len": 16, "num_blocks": 14, "max_running": 1},
    ),
    # A drafter without a cache of its own: nothing gives up a unit.
    Scope(
        "fa2-m2+3-draft3",
        (full(2), mamba(2, 3)),
        Bounds(("a" * 6,), submits=2, outputs=1, alphabet=(0,), live=1, external=False),
        {"num_draft_tokens": 3, "max_model_len": 12, "num_blocks": 16, "max_running": 1},
    ),
    # A request preempted while its output is in flight, and what must be refused until that arrives.
    Scope(
        "fa1-async",
        (full(1),),
        Bounds(
            ("a",),
            submits=1,
            outputs=2,
            alphabet=(0,),
            live=1,
            external=False,
            execution="any",
            refusals=True,
            at_most={act.Preempt: 1},
            depth=27,
        ),
        {"max_model_len": 4, "num_blocks": 5, "max_running": 1, "max_steps_in_flight": 2, "async_outputs": True},
    ),
    # An attention block that is copied in the step that still has to write it: a state ends inside it, the block itself is new.
    Scope(
        "fa2-m2-n2",
        (full(2), mamba(2)),
        Bounds(
            ("a" * 7, "a" * 5),
            submits=2,
            outputs=0,
            alphabet=(0,),
            external=False,
            chunks="every",
            at_most={act.Preempt: 1, act.BeginStep: 2, act.Allocate: 3},
            depth=25,
        ),
        {"dcp_size": 2, "max_model_len": 8, "num_blocks": 12, "max_running": 2},
    ),
    # What one group hits lies in front of the queue when another one takes blocks for external tokens.
    Scope(
        "fa1-fa1-loads",
        (full(1), full(1)),
        Bounds(("a", "aa", "aaa"), submits=3, outputs=0, at_most={act.Finish: 2}, depth=24),
        {"connectors": (False,), "max_model_len": 4, "num_blocks": 7, "max_running": 2},
    ),
    # Two windows that drop one after the other, the second behind what the first matched.
    Scope(
        "w2-w3-eagle",
        (window(2, 2), window(2, 3)),
        Bounds(
            ("a" * 9,),
            submits=2,
            outputs=0,
            alphabet=(0,),
            live=1,
            external=False,
            at_most={act.EvictBlocks: 1, act.Finish: 1, act.Allocate: 1},
        ),
        {"max_model_len": 10, "num_blocks": 13, "max_running": 1, "use_eagle": True},
    ),
)
"""Scopes without a host tier for faults that the catalogue has no room for."""
