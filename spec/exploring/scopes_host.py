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
        "fa1-host-ahead",
        (full(1),),
        _bounds(
            "aa",
            submits=3,
            live=2,
            failures=True,
            stores="prompt",
            depth=39,
            at_most={act.EvictBlocks: 1, act.Finish: 1},
        ),
        {
            "max_model_len": 3,
            "num_blocks": 4,
            "max_running": 2,
            "max_steps_in_flight": 2,
            "defer_block_free": True,
            "connectors": (False,),
            "offload": Offload(num_blocks=3, hold_loads=True),
        },
    ),
    # Attention on two ranks and states: handoffs, tails inside a block, what events say of both.
    Scope(
        "fa1-m2-n2-host",
        (full(1), mamba(2)),
        _bounds("aaaa", depth=76, at_most={act.ResetCache: 1, act.Preempt: 1, act.ReadCounters: None}),
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
        _bounds("aaaa", "aa", submits=3, stores="prompt", strays=True, depth=70, at_most={act.ResetCache: 1}),
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
)
"""The host's part of the catalogue."""

FURTHER: tuple[Scope, ...] = ()
"""Scopes with a host tier for faults that the catalogue has no room for."""
