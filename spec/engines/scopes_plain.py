"""Scopes of full attention and Mamba align, one step at a time and without a drafter."""

from __future__ import annotations

from kvproof.core.config import Profile
from kvproof.spec.engines.scope_parts import (
    Scope,
    full,
    mamba,
    scope,
)

SCOPES: tuple[Scope, ...] = (
    # One group: hash blocks are blocks, hits are whole blocks.
    scope("fa4", full(4), max_model_len=32, num_blocks=10),
    scope("fa2-n4", full(2), dcp_size=4, interleave=2, max_model_len=40, num_blocks=8, bounds={"lookahead": (0, 1)}),
    # One rank. Equal sizes keep the fine-grained gate closed, a larger Mamba block opens it.
    scope("fa4-m4", full(4), mamba(4), max_model_len=32, num_blocks=12, max_running=2),
    scope("fa2-m8", full(2), mamba(8), max_model_len=32, num_blocks=16, connectors=(False,)),
    scope("fa8-m2", full(8), mamba(2), max_model_len=32, num_blocks=12, retention=0, connectors=(True,)),
    scope(
        "m4-fa4",
        mamba(4),
        full(4),
        hash_block_size=2,
        max_model_len=28,
        num_blocks=9,
        append_expansion=2,
        connectors=(False,),
    ),
    scope("m4-fa2-tight", mamba(4), full(2), max_model_len=28, num_blocks=8, connectors=(False,), quick=True),
    # Many groups: the last one's hit lies far back in the free queue while the first one takes external blocks.
    scope("fa2x6", *(full(2),) * 6, max_model_len=12, num_blocks=40, connectors=(True,)),
    # Two ranks: attention entries span two blocks, Mamba stays replicated, hits may end inside an attention entry.
    scope("fa4-m4-n2", full(4), mamba(4), dcp_size=2, max_model_len=32, num_blocks=12, quick=True),
    scope("fa4-m4-n2-tight", full(4), mamba(4), dcp_size=2, interleave=4, max_model_len=24, num_blocks=6, retention=8),
    scope("fa2-m8-n2", full(2), mamba(8), dcp_size=2, interleave=2, max_model_len=40, num_blocks=14, connectors=(True,)),
    scope("fa8-m2-n2", full(8), mamba(2), dcp_size=2, interleave=4, max_model_len=36, num_blocks=14),
    scope("fa4r-m4-n2", full(4, False), mamba(4), dcp_size=2, max_model_len=32, num_blocks=10, connectors=(True, False)),
    scope(
        "fa4-m4-m4-n2",
        full(4),
        mamba(4),
        mamba(4),
        dcp_size=2,
        interleave=2,
        max_model_len=32,
        num_blocks=16,
        append_expansion=2,
        connectors=(True,),
        quick=True,
    ),
    scope(
        "m4-m8-fa2-n2",
        mamba(4),
        mamba(8),
        full(2),
        dcp_size=2,
        max_model_len=32,
        num_blocks=14,
        clip_block_size=4,
        retention=16,
        connectors=(False,),
        quick=True,
    ),
    scope(
        "fa4-fa4r-m4-n2",
        full(4),
        full(4, False),
        mamba(4),
        dcp_size=2,
        max_model_len=32,
        num_blocks=16,
        retention=0,
        connectors=(False,),
    ),
    # A pool in which nothing is evicted: what policy promises to keep must be found again.
    scope("fa4-m8-n2-roomy", full(4), mamba(8), dcp_size=2, max_model_len=32, num_blocks=40, max_running=4, quick=True),
    # The attention class with the smaller span stands first.
    scope("fa4r-fa4-m4-n2", full(4, False), full(4), mamba(4), dcp_size=2, max_model_len=24, num_blocks=16),
    # A model length of many row alignments: where a row is divided by the DCP size shows.
    scope("fa4-m4-n2-long", full(4), mamba(4), dcp_size=2, max_model_len=512, num_blocks=12, bounds={"max_prompt": 31}),
    # Sizes that are no powers of two, on two ranks and on eight.
    scope("fa3-m9-n2", full(3), mamba(9), dcp_size=2, interleave=3, max_model_len=40, num_blocks=14, retention=18),
    scope("fa1-m3-n8", full(1), mamba(3), dcp_size=8, max_model_len=40, num_blocks=12, retention=0, connectors=(True,)),
    # More requests than worker rows.
    scope("fa4-m4-rows", full(4), mamba(4), max_model_len=24, num_blocks=14, max_running=2, bounds={"max_live": 3}),
    # Hash blocks of one token, two attention sizes under a closed gate, and no caching at all.
    scope("fa4-m4-n2-h1", full(4), mamba(4), dcp_size=2, hash_block_size=1, max_model_len=24, num_blocks=12, retention=0),
    scope("fa4-fa8-m4", full(4), full(8), mamba(4), max_model_len=32, num_blocks=14, connectors=(True,)),
    scope("fa4-m4-n2-uncached", full(4), mamba(4), dcp_size=2, caching=False, max_model_len=24, num_blocks=10),
    # Four ranks, with a block per rank smaller than, equal to and larger than the Mamba block.
    scope("fa2-m4-n4", full(2), mamba(4), dcp_size=4, max_model_len=40, num_blocks=12, retention=0, quick=True),
    scope(
        "fa1-m2-m4-n4",
        full(1),
        mamba(2),
        mamba(4),
        dcp_size=4,
        max_model_len=24,
        num_blocks=16,
        connectors=(True,),
        bounds={"lookahead": (0, 2)},
    ),
    scope("fa4-m2-n4", full(4), mamba(2), dcp_size=4, interleave=4, max_model_len=40, num_blocks=14),
    # The key map announces its changes, with hash blocks smaller than every block; a tight pool evicts one of two copies.
    scope(
        "fa4-m4-n2-events",
        full(4),
        mamba(4),
        dcp_size=2,
        hash_block_size=2,
        max_model_len=32,
        num_blocks=12,
        events=True,
        bounds={"contexts": (0,)},
        quick=True,
    ),
    # What #49125 asks for: the partial key of a block that became full is gone for good.
    scope(
        "fa8-m4-events",
        full(8),
        mamba(4),
        hash_block_size=2,
        max_model_len=32,
        num_blocks=10,
        connectors=(True,),
        events=True,
        profile=Profile(partial_key_after_promotion="drop"),
        bounds={"contexts": (0,)},
    ),
)


# The other kinds, speculation, checkpoints and steps in flight. A name lists the groups (w: sliding window, c: chunked local,
# st: stable Mamba, x: scratch, d: draft group, +k: speculative blocks), the ranks, then what else is on.
