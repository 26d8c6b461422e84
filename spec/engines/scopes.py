"""The configuration matrix of the checks: each scope is a named configuration, built anew so that planted faults are seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve, field, frozen

from kvproof.core import config as configs
from kvproof.core.config import Config, Group, Profile
from kvproof.spec.engines import amounts
from kvproof.spec.engines.amounts import Limits
from kvproof.spec.exits import UserError

FULL, MAMBA, STABLE = "full_attention", "mamba_align", "mamba_stable"
WINDOW, CHUNKED, SCRATCH = "sliding_window", "chunked_local", "scratch"


@frozen(slots=True)
class Scope:
    """One point of the matrix: arguments of ``configure`` and the bounds of generation that differ from the default."""

    name: str
    groups: tuple[Group, ...]
    settings: Mapping[str, Any] = field(factory=dict)
    bounds: Mapping[str, Any] = field(factory=dict)
    quick: bool = False

    def config(self) -> Config:
        """Resolve the configuration. Raises ConfigError (only under a planted fault)."""
        return configs.configure(self.groups, **self.settings)

    def limits(self, config: Config) -> Limits:
        """Return the bounds of generation for a resolved configuration."""
        return evolve(amounts.limits_for(config), **self.bounds)


def _scope(name: str, *groups: Group, quick: bool = False, bounds: Mapping[str, Any] | None = None, **settings: Any) -> Scope:
    return Scope(name, groups, settings, bounds or {}, quick)


def _full(block_size: int, sharded: bool | None = None, *, draft: bool = False) -> Group:
    return Group(FULL, block_size, sharded, draft=draft)


def _mamba(block_size: int, spare: int = 0) -> Group:
    return Group(MAMBA, block_size, speculative_blocks=spare)


def _window(block_size: int, window: int, *, draft: bool = False) -> Group:
    return Group(WINDOW, block_size, False, window=window, draft=draft)


def _chunked(block_size: int, chunk: int) -> Group:
    return Group(CHUNKED, block_size, window=chunk)


_EIGHTS = (_full(8), _mamba(8))

_BASE: tuple[Scope, ...] = (
    # One group: hash blocks are blocks, hits are whole blocks.
    _scope("fa4", _full(4), max_model_len=32, num_blocks=10),
    _scope("fa2-n4", _full(2), dcp_size=4, interleave=2, max_model_len=40, num_blocks=8, bounds={"lookahead": (0, 1)}),
    # One rank. Equal sizes keep the fine-grained gate closed, a larger Mamba block opens it.
    _scope("fa4-m4", _full(4), _mamba(4), max_model_len=32, num_blocks=12, max_running=2),
    _scope("fa2-m8", _full(2), _mamba(8), max_model_len=32, num_blocks=16, connectors=(False,)),
    _scope("fa8-m2", _full(8), _mamba(2), max_model_len=32, num_blocks=12, retention=0, connectors=(True,)),
    _scope(
        "m4-fa4",
        _mamba(4),
        _full(4),
        hash_block_size=2,
        max_model_len=28,
        num_blocks=9,
        append_expansion=2,
        connectors=(False,),
    ),
    _scope("m4-fa2-tight", _mamba(4), _full(2), max_model_len=28, num_blocks=8, connectors=(False,), quick=True),
    # Many groups: the last one's hit lies far back in the free queue while the first one takes external blocks.
    _scope("fa2x6", *(_full(2),) * 6, max_model_len=12, num_blocks=40, connectors=(True,)),
    # Two ranks: attention entries span two blocks, Mamba stays replicated, hits may end inside an attention entry.
    _scope("fa4-m4-n2", _full(4), _mamba(4), dcp_size=2, max_model_len=32, num_blocks=12, quick=True),
    _scope("fa4-m4-n2-tight", _full(4), _mamba(4), dcp_size=2, interleave=4, max_model_len=24, num_blocks=6, retention=8),
    _scope("fa2-m8-n2", _full(2), _mamba(8), dcp_size=2, interleave=2, max_model_len=40, num_blocks=14, connectors=(True,)),
    _scope("fa8-m2-n2", _full(8), _mamba(2), dcp_size=2, interleave=4, max_model_len=36, num_blocks=14),
    _scope("fa4r-m4-n2", _full(4, False), _mamba(4), dcp_size=2, max_model_len=32, num_blocks=10, connectors=(True, False)),
    _scope(
        "fa4-m4-m4-n2",
        _full(4),
        _mamba(4),
        _mamba(4),
        dcp_size=2,
        interleave=2,
        max_model_len=32,
        num_blocks=16,
        append_expansion=2,
        connectors=(True,),
        quick=True,
    ),
    _scope(
        "m4-m8-fa2-n2",
        _mamba(4),
        _mamba(8),
        _full(2),
        dcp_size=2,
        max_model_len=32,
        num_blocks=14,
        clip_block_size=4,
        retention=16,
        connectors=(False,),
        quick=True,
    ),
    _scope(
        "fa4-fa4r-m4-n2",
        _full(4),
        _full(4, False),
        _mamba(4),
        dcp_size=2,
        max_model_len=32,
        num_blocks=16,
        retention=0,
        connectors=(False,),
    ),
    # A pool in which nothing is evicted: what policy promises to keep must be found again.
    _scope("fa4-m8-n2-roomy", _full(4), _mamba(8), dcp_size=2, max_model_len=32, num_blocks=40, max_running=4, quick=True),
    # The attention class with the smaller span stands first.
    _scope("fa4r-fa4-m4-n2", _full(4, False), _full(4), _mamba(4), dcp_size=2, max_model_len=24, num_blocks=16),
    # A model length of many row alignments: where a row is divided by the DCP size shows.
    _scope("fa4-m4-n2-long", _full(4), _mamba(4), dcp_size=2, max_model_len=512, num_blocks=12, bounds={"max_prompt": 31}),
    # Sizes that are no powers of two, on two ranks and on eight.
    _scope("fa3-m9-n2", _full(3), _mamba(9), dcp_size=2, interleave=3, max_model_len=40, num_blocks=14, retention=18),
    _scope("fa1-m3-n8", _full(1), _mamba(3), dcp_size=8, max_model_len=40, num_blocks=12, retention=0, connectors=(True,)),
    # More requests than worker rows.
    _scope("fa4-m4-rows", _full(4), _mamba(4), max_model_len=24, num_blocks=14, max_running=2, bounds={"max_live": 3}),
    # Hash blocks of one token, two attention sizes under a closed gate, and no caching at all.
    _scope("fa4-m4-n2-h1", _full(4), _mamba(4), dcp_size=2, hash_block_size=1, max_model_len=24, num_blocks=12, retention=0),
    _scope("fa4-fa8-m4", _full(4), _full(8), _mamba(4), max_model_len=32, num_blocks=14, connectors=(True,)),
    _scope("fa4-m4-n2-uncached", _full(4), _mamba(4), dcp_size=2, caching=False, max_model_len=24, num_blocks=10),
    # Four ranks, with a block per rank smaller than, equal to and larger than the Mamba block.
    _scope("fa2-m4-n4", _full(2), _mamba(4), dcp_size=4, max_model_len=40, num_blocks=12, retention=0, quick=True),
    _scope(
        "fa1-m2-m4-n4",
        _full(1),
        _mamba(2),
        _mamba(4),
        dcp_size=4,
        max_model_len=24,
        num_blocks=16,
        connectors=(True,),
        bounds={"lookahead": (0, 2)},
    ),
    _scope("fa4-m2-n4", _full(4), _mamba(2), dcp_size=4, interleave=4, max_model_len=40, num_blocks=14),
    # The key map announces its changes, with hash blocks smaller than every block; a tight pool evicts one of two copies.
    _scope(
        "fa4-m4-n2-events",
        _full(4),
        _mamba(4),
        dcp_size=2,
        hash_block_size=2,
        max_model_len=32,
        num_blocks=12,
        events=True,
        bounds={"contexts": (0,)},
        quick=True,
    ),
    # What #49125 asks for: the partial key of a block that became full is gone for good.
    _scope(
        "fa8-m4-events",
        _full(8),
        _mamba(4),
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
_MORE: tuple[Scope, ...] = (
    # Windows: one hash block per block and several, whole blocks and hits inside a block.
    _scope("fa4-w4", _full(4), _window(4, 5), max_model_len=32, num_blocks=18, retention=8, bounds={"gates": (False, True)}),
    _scope(
        "fa2-w2-n2-eagle",
        _full(2),
        _window(2, 6),
        dcp_size=2,
        max_model_len=28,
        num_blocks=20,
        retention=0,
        use_eagle=True,
        num_draft_tokens=1,
        events=True,
        bounds={"lookahead": (0, 1)},
    ),
    _scope(
        "fa4-m4-w4-n2",
        _full(4),
        _mamba(4),
        _window(4, 5),
        dcp_size=2,
        interleave=2,
        max_model_len=32,
        num_blocks=20,
        retention=0,
        connectors=(False,),
        quick=True,
    ),
    _scope(
        "fa4-m4-w2-h2-eagle",
        _full(4),
        _mamba(4),
        _window(2, 4),
        max_model_len=28,
        num_blocks=24,
        retention=0,
        use_eagle=True,
        shared_prefix_checkpoint=True,
        events=True,
        connectors=(True,),
    ),
    _scope(
        "fa2-m2-w4-ahead",
        _full(2),
        _mamba(2),
        _window(4, 6),
        max_model_len=28,
        num_blocks=30,
        connectors=(False,),
        max_steps_in_flight=2,
        defer_block_free=True,
        bounds={"gates": (False, True)},
    ),
    _scope(
        "fa1-m2+1-w4-n4-draft1",
        _full(1),
        _mamba(2, 1),
        _window(4, 8),
        dcp_size=4,
        max_model_len=24,
        num_blocks=24,
        retention=4,
        num_draft_tokens=1,
        max_steps_in_flight=2,
        async_outputs=True,
        append_expansion=2,
    ),
    _scope(
        "w4-fa4-w8-eagle-async",
        _window(4, 5),
        _full(4),
        _window(8, 12, draft=True),
        max_model_len=32,
        num_blocks=26,
        use_eagle=True,
        num_draft_tokens=3,
        max_steps_in_flight=2,
        async_outputs=True,
        defer_block_free=True,
        bounds={"lookahead": (3,)},
    ),
    # A window of one token reads nothing that is cached; two windows that drop verify each other's candidates.
    _scope("fa4-w4-one", _full(4), _window(4, 1), max_model_len=24, num_blocks=14, retention=8),
    _scope(
        "w2-w2-eagle",
        _window(2, 2),
        _window(2, 5),
        max_model_len=14,
        num_blocks=14,
        retention=8,
        use_eagle=True,
        bounds={"contexts": (0,), "alphabet": (0,)},
    ),
    # A window whose blocks at a time are fewer than those of the sequence: only with the cap does every prompt fit.
    _scope("fa4-w4-gate", _full(4), _window(4, 5), max_model_len=32, num_blocks=13, max_chunk=8, bounds={"gates": (True,)}),
    # Chunked local attention.
    _scope("fa4-c4", _full(4), _chunked(4, 8), max_model_len=32, num_blocks=14, connectors=(False,)),
    _scope("fa2-c4-w4", _full(2), _chunked(4, 8), _window(4, 5), max_model_len=28, num_blocks=20, retention=4),
    _scope(
        "c2-fa4-m4-h2-eagle-ahead",
        _chunked(2, 6),
        _full(4),
        _mamba(4),
        quick=True,
        max_model_len=24,
        num_blocks=24,
        retention=0,
        use_eagle=True,
        connectors=(True,),
        max_steps_in_flight=2,
        events=True,
        bounds={"gates": (False, True)},
    ),
    # A stable Mamba group beside attention, and beside snapshots under fine-grained hits.
    _scope("fa4-st4", _full(4), Group(STABLE, 4), max_model_len=32, num_blocks=14, retention=0, connectors=(True,), quick=True),
    _scope(
        "fa2-st4-n2-eagle-ahead",
        _full(2),
        Group(STABLE, 4),
        dcp_size=2,
        max_model_len=28,
        num_blocks=18,
        use_eagle=True,
        max_steps_in_flight=2,
        events=True,
        append_expansion=2,
    ),
    _scope(
        "fa2-m4-st2-n4",
        _full(2),
        _mamba(4),
        Group(STABLE, 2),
        dcp_size=4,
        interleave=2,
        max_model_len=24,
        num_blocks=24,
        retention=8,
        connectors=(False,),
        defer_block_free=True,
        max_steps_in_flight=2,
        bounds={"lookahead": (0, 1)},
    ),
    # Scratch blocks, with snapshots and drafts.
    _scope("fa4-x4-m4-n2", _full(4), Group(SCRATCH, 4), _mamba(4), dcp_size=2, max_model_len=32, num_blocks=16, retention=8),
    _scope(
        "fa4-x4-m4+2-draft2-ahead",
        _full(4),
        Group(SCRATCH, 4),
        _mamba(4, 2),
        quick=True,
        max_model_len=28,
        num_blocks=22,
        retention=0,
        num_draft_tokens=2,
        max_steps_in_flight=2,
        defer_block_free=True,
        connectors=(True,),
    ),
    # A scratch block smaller than the hash block, under fine-grained hits.
    _scope(
        "fa4-x2-m8",
        _full(4),
        Group(SCRATCH, 2),
        _mamba(8),
        max_model_len=32,
        num_blocks=18,
        connectors=(False,),
    ),
    # A drafter's own group: the EAGLE drop is that group's alone.
    _scope(
        "fa4-d4-m8-eagle",
        _full(4),
        _full(4, draft=True),
        _mamba(8),
        max_model_len=32,
        num_blocks=30,
        use_eagle=True,
        retention=0,
        connectors=(False,),
    ),
    _scope(
        "fa4-d4r-m4+1-n2-eagle-async",
        _full(4),
        _full(4, False, draft=True),
        _mamba(4, 1),
        dcp_size=2,
        max_model_len=28,
        num_blocks=26,
        use_eagle=True,
        num_draft_tokens=1,
        max_steps_in_flight=2,
        async_outputs=True,
        bounds={"lookahead": (1,)},
        quick=True,
    ),
    # EAGLE with snapshots: chunk ends one unit lower, junctions pinned, checkpoints written inside a chunk.
    _scope(
        "fa8-m8-h2-eagle-pins",
        _full(8),
        _mamba(8),
        hash_block_size=2,
        max_model_len=36,
        num_blocks=12,
        use_eagle=True,
        shared_prefix_checkpoint=True,
        retention=0,
        quick=True,
    ),
    _scope(
        "fa8-m8-h2-eagle-ckpt",
        _full(8),
        _mamba(8),
        hash_block_size=2,
        max_model_len=40,
        num_blocks=14,
        use_eagle=True,
        checkpoint_alignment=2,
        events=True,
        quick=True,
    ),
    # A backend that exports at every fourth token: where the own checkpoint of a prompt is not one of them, a chunk ends there.
    _scope(
        "fa8-m8-h2-ckpt4", *_EIGHTS, hash_block_size=2, max_model_len=40, num_blocks=40, use_eagle=True, checkpoint_alignment=4
    ),
    # Blocks that moved still stand in the worker's row where a chunk inside a prompt could export a checkpoint.
    _scope(
        "fa2-m2+1-h1-ckpt1",
        _full(2),
        _mamba(2, 1),
        hash_block_size=1,
        max_model_len=24,
        num_blocks=20,
        retention=0,
        checkpoint_alignment=1,
        max_chunk=4,
    ),
    _scope(
        "fa4-m4+2-n2-eagle-ckpt",
        _full(4),
        _mamba(4, 2),
        dcp_size=2,
        hash_block_size=2,
        max_model_len=32,
        num_blocks=22,
        use_eagle=True,
        num_draft_tokens=2,
        checkpoint_alignment=2,
        shared_prefix_checkpoint=True,
        retention=0,
        connectors=(True,),
        max_steps_in_flight=2,
        async_outputs=True,
        defer_block_free=True,
        bounds={"lookahead": (2,)},
    ),
    _scope(
        "m2-m4-fa2-n2-ckpt",
        _mamba(2, 1),
        _mamba(4, 1),
        _full(2),
        dcp_size=2,
        max_model_len=28,
        num_blocks=28,
        checkpoint_alignment=2,
        retention=8,
        num_draft_tokens=1,
        connectors=(False,),
    ),
    # Speculative blocks: drafts across block edges, states moved to their columns.
    _scope("fa4-m4+1", _full(4), _mamba(4, 1), max_model_len=32, num_blocks=14, num_draft_tokens=1),
    _scope(
        "fa2-m2+3-draft3",
        _full(2),
        _mamba(2, 3),
        max_model_len=28,
        num_blocks=30,
        num_draft_tokens=3,
        events=True,
        bounds={"lookahead": (0, 3)},
    ),
    _scope(
        "fa1-m4+3-n4-async",
        _full(1),
        _mamba(4, 3),
        dcp_size=4,
        max_model_len=24,
        num_blocks=22,
        num_draft_tokens=3,
        max_steps_in_flight=2,
        async_outputs=True,
        retention=0,
        quick=True,
    ),
    # Many features at once, so that each pair of them meets somewhere.
    _scope(
        "many-n1",
        _full(4, draft=True),
        _chunked(4, 8),
        _window(4, 6),
        Group(SCRATCH, 4),
        _mamba(8, 1),
        max_model_len=32,
        num_blocks=40,
        max_chunk=12,
        retention=8,
        use_eagle=True,
        num_draft_tokens=1,
        checkpoint_alignment=4,
        shared_prefix_checkpoint=True,
        max_steps_in_flight=2,
        async_outputs=True,
        defer_block_free=True,
        connectors=(True,),
        append_expansion=2,
        events=True,
        bounds={"lookahead": (0, 1), "gates": (False, True)},
    ),
    _scope(
        "many-n1-stable",
        _full(2, draft=True),
        _mamba(4, 1),
        _mamba(2),
        Group(STABLE, 2),
        _chunked(2, 4),
        _window(2, 5),
        Group(SCRATCH, 2),
        max_model_len=20,
        num_blocks=60,
        max_chunk=10,
        retention=0,
        use_eagle=True,
        checkpoint_alignment=2,
        shared_prefix_checkpoint=True,
        max_steps_in_flight=2,
        async_outputs=True,
        defer_block_free=True,
        connectors=(False,),
        events=True,
        bounds={"gates": (False, True)},
    ),
    _scope(
        "many-n2",
        _full(2),
        _window(4, 6, draft=True),
        Group(STABLE, 4),
        Group(SCRATCH, 4),
        _mamba(2),
        _mamba(4),
        dcp_size=2,
        hash_block_size=2,
        max_model_len=24,
        num_blocks=40,
        max_chunk=9,
        retention=0,
        use_eagle=True,
        checkpoint_alignment=4,
        connectors=(True,),
        events=True,
        append_expansion=2,
        bounds={"lookahead": (0, 1), "gates": (False, True)},
    ),
    _scope(
        "many-n4",
        _full(1),
        _full(2, False, draft=True),
        _window(2, 3),
        Group(SCRATCH, 2),
        _mamba(2, 2),
        dcp_size=4,
        max_model_len=24,
        num_blocks=54,
        max_chunk=11,
        retention=4,
        use_eagle=True,
        num_draft_tokens=2,
        checkpoint_alignment=2,
        shared_prefix_checkpoint=True,
        max_steps_in_flight=2,
        defer_block_free=True,
        append_expansion=2,
        connectors=(True,),
        bounds={"lookahead": (0, 2), "gates": (False, True)},
    ),
    # Attention alone, with everything that concerns steps in flight.
    _scope(
        "fa4-ahead-defer",
        _full(4),
        max_model_len=24,
        num_blocks=7,
        max_steps_in_flight=2,
        defer_block_free=True,
        bounds={"gates": (False, True)},
        quick=True,
    ),
    _scope(
        "fa2-n4-eagle-async",
        _full(2),
        dcp_size=4,
        max_model_len=40,
        num_blocks=9,
        use_eagle=True,
        num_draft_tokens=2,
        max_steps_in_flight=2,
        async_outputs=True,
        defer_block_free=True,
        events=True,
        bounds={"lookahead": (0, 2), "gates": (False, True)},
    ),
)

ALL: tuple[Scope, ...] = _BASE + _MORE
"""Every scope of the check."""


def by_name(name: str) -> Scope:
    """Return the scope of this name. Raises UserError that lists the known ones."""
    for scope in ALL:
        if scope.name == name:
            return scope
    raise UserError(f"no scope {name!r}; known: {', '.join(scope.name for scope in ALL)}")


def chosen(quick: bool) -> tuple[Scope, ...]:
    """Return the scopes of a full or a quick check."""
    return tuple(scope for scope in ALL if scope.quick or not quick)
