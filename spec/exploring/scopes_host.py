"""Scopes of exploration with a host tier, eager and lazy.

Each is narrow: blocks of one or two tokens, one token and one or two prompts, so that requests share prefixes wherever they
can. Where the whole graph would be too large the bounds say how many actions a run has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.config import Offload
from kvproof.spec.engines.scope_parts import full, mamba, window
from kvproof.spec.exploring.bounds import Bounds
from kvproof.spec.exploring.scope import Scope


def _bounds(*prompts: str, at_most: Mapping[type[Action], int | None], **given: Any) -> Bounds:
    """Return bounds of prompts that are prefixes of one another, no token sampled, one request at a time."""
    defaults: dict[str, Any] = {"alphabet": (0,), "outputs": 0, "live": 1, "starts": "behind"}
    return Bounds(prompts, at_most=at_most, **(defaults | given))


SCOPES: tuple[Scope, ...] = (
    # One request at a time, interrupted at every moment: copies run while a plan is open, transfers fail, caches are reset.
    Scope(
        "fa1-host",
        (full(1),),
        _bounds(
            "aaa",
            starts="every",
            failures=True,
            execution="any",
            contexts=(0, 1),
            reserved=(0, 2),
            at_most={act.ResetHost: 1, act.ReadCounters: None, act.Preempt: None, act.ResetCache: None},
        ),
        {"max_model_len": 4, "num_blocks": 4, "max_running": 1, "offload": Offload(num_blocks=4, store_submission="next_step")},
        quick=True,
    ),
    # Two steps in flight and another connector, whose tokens do not arrive; loads wait for the steps before them.
    Scope(
        "fa2-host-both-ahead",
        (full(2),),
        _bounds(
            "aaa",
            submits=3,
            live=2,
            failures=True,
            stores="prompt",
            depth=42,
            at_most={act.EvictBlocks: 1, act.Finish: 1},
        ),
        {
            "max_model_len": 4,
            "num_blocks": 4,
            "max_running": 2,
            "max_steps_in_flight": 2,
            "defer_block_free": True,
            "connectors": (False,),
            "offload": Offload(num_blocks=2, hold_loads=True),
        },
    ),
    # Attention on two ranks and states: handoffs, tails inside a block, what events say of both.
    Scope(
        "fa1-m2-n2-host",
        (full(1), mamba(2)),
        _bounds("aaaa", depth=67, at_most={act.ResetCache: 1, act.Preempt: 1, act.ReadCounters: None}),
        {
            "dcp_size": 2,
            "hash_block_size": 1,
            "max_model_len": 5,
            "num_blocks": 6,
            "max_running": 1,
            "events": True,
            "offload": Offload(num_blocks=4),
        },
    ),
    # The same groups in lazy mode, two workers, and reports of stores that nobody knows.
    Scope(
        "fa1-m2-n2-lazy",
        (full(1), mamba(2)),
        _bounds("aaaa", "aa", submits=3, stores="prompt", strays=True, depth=54, at_most={act.ResetCache: 1}),
        {
            "dcp_size": 2,
            "hash_block_size": 1,
            "max_model_len": 5,
            "num_blocks": 5,
            "max_running": 1,
            "offload": Offload("lazy", num_blocks=4, workers=2),
        },
    ),
    # EAGLE with a window and states that have a speculative block: hits that give up a unit, windows nulled before their store.
    Scope(
        "fa1-m2+1-w1-n2-eagle-host",
        (full(1), mamba(2, 1), window(1, 2)),
        _bounds("aaaa", starts="every", depth=66, at_most={act.ResetCache: 1}),
        {
            "dcp_size": 2,
            "hash_block_size": 1,
            "use_eagle": True,
            "max_model_len": 5,
            "num_blocks": 12,
            "max_running": 1,
            "offload": Offload(num_blocks=12, flush="before_forward"),
        },
    ),
    # Chunks of two tokens and evictions: some blocks are loaded again while later ones are still being stored.
    Scope(
        "fa1-host-chunks",
        (full(1),),
        _bounds("aaa", depth=50, at_most={act.EvictBlocks: 1}),
        {"max_model_len": 4, "max_chunk": 2, "num_blocks": 4, "max_running": 1, "offload": Offload(num_blocks=4)},
    ),
)
"""The host's part of the catalogue."""

FURTHER: tuple[Scope, ...] = (
    # A store in the same step as its forward, counted handoffs beside a reset, and a connector whose tokens fail in two groups.
    Scope(
        "fa1-m1-host-both",
        (full(1), mamba(1)),
        _bounds(
            "aa",
            submits=1,
            failures=True,
            execution="any",
            depth=20,
            at_most={act.ResetHost: 1, act.ReadCounters: 1},
        ),
        {"max_model_len": 3, "num_blocks": 6, "max_running": 1, "connectors": (False,), "offload": Offload(num_blocks=4)},
    ),
    # EAGLE and checkpoints inside a chunk on a host that holds a whole prompt: what has to be stored for a resend.
    Scope(
        "fa8-m8-h2-eagle-host",
        (full(8), mamba(8)),
        _bounds("aaaaaaaaa", "aaaaaaaaaa", submits=1, at_most={}),
        {
            "hash_block_size": 2,
            "use_eagle": True,
            "checkpoint_alignment": 2,
            "max_model_len": 12,
            "num_blocks": 8,
            "max_running": 1,
            "offload": Offload(num_blocks=8),
        },
    ),
    # Two attention groups with tails of their own at the end of a prompt.
    Scope(
        "fa8-fa4-m4-h2-host",
        (full(8), full(4), mamba(4)),
        _bounds("aaaa", "aaaaaaa", submits=1, at_most={}),
        {"hash_block_size": 2, "max_model_len": 8, "num_blocks": 8, "max_running": 1, "offload": Offload(num_blocks=8)},
    ),
    # A host with room for two blocks of three, for the cursor of a request.
    Scope(
        "fa1-host-tiny",
        (full(1),),
        _bounds("aaa", submits=1, outputs=1, depth=30, at_most={}),
        {"max_model_len": 5, "num_blocks": 6, "max_running": 1, "offload": Offload(num_blocks=3)},
    ),
    # A state is smaller than a scheduler block: lookups inside one, hits with leading nulls, and loads that must be refused.
    Scope(
        "fa1-m1-n2-host",
        (full(1), mamba(1)),
        _bounds("aaa", starts="every", stores="prompt", refusals=True, at_most={act.ResetCache: 1, act.Finish: 1}),
        {"dcp_size": 2, "max_model_len": 4, "num_blocks": 8, "max_running": 1, "offload": Offload(num_blocks=8)},
    ),
    # The same groups and three chunks, then some blocks are evicted: loads behind a local hit, or beside keys of others.
    Scope(
        "fa1-m1-n2-host-behind",
        (full(1), mamba(1)),
        _bounds("aaaaa", stores="prompt", depth=53, at_most={act.EvictBlocks: 1, act.Finish: 1}),
        {
            "dcp_size": 2,
            "max_model_len": 6,
            "max_chunk": 2,
            "num_blocks": 8,
            "max_running": 1,
            "offload": Offload(num_blocks=8),
        },
    ),
    # A tail that is keyed while its block fills up, is stored as a whole block, and is left behind by a finish.
    Scope(
        "fa2-m1-n2-host-tail",
        (full(2), mamba(1)),
        _bounds("aa", "aaa", submits=1, outputs=3, depth=50, at_most={}),
        {"dcp_size": 2, "max_model_len": 7, "num_blocks": 8, "max_running": 1, "offload": Offload(num_blocks=8)},
    ),
    # Two requests alive: one hits what the other one's load registered.
    Scope(
        "fa1-m2-n2-host-two",
        (full(1), mamba(2)),
        _bounds("aaa", submits=3, live=2, stores="prompt", at_most={act.ResetCache: 1, act.Finish: 1}),
        {"dcp_size": 2, "max_model_len": 4, "num_blocks": 12, "max_running": 2, "offload": Offload(num_blocks=12)},
    ),
    # Drafts: loads whose request has slots for them, and a stored state with a speculative block beside it.
    Scope(
        "fa1-m1+1-draft1-host",
        (full(1), mamba(1, 1)),
        _bounds("aa", stores="prompt", at_most={act.ResetCache: 1}),
        {"num_draft_tokens": 1, "max_model_len": 4, "num_blocks": 10, "max_running": 1, "offload": Offload(num_blocks=5)},
    ),
    # A speculative block that has to move when a chunk is longer than a block.
    Scope(
        "fa2-m2+1-draft1-host",
        (full(2), mamba(2, 1)),
        _bounds("aaaaaaa", submits=1, chunks="every", depth=30, at_most={}),
        {"num_draft_tokens": 1, "max_model_len": 8, "num_blocks": 12, "max_running": 1, "offload": Offload(num_blocks=5)},
    ),
    # Two steps in flight and loads that wait for nothing: blocks of a request that ended before its step began.
    Scope(
        "fa2-host-ahead",
        (full(2),),
        _bounds("aaa", "a", submits=3, stores="prompt", depth=75, at_most={act.ResetCache: 1}),
        {
            "max_model_len": 4,
            "num_blocks": 3,
            "max_running": 1,
            "max_steps_in_flight": 2,
            "defer_block_free": True,
            "offload": Offload(num_blocks=2),
        },
    ),
)
"""Scopes with a host tier for faults and a situation that the catalogue has no room for, each for what its comment names."""
