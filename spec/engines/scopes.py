"""The configuration matrix of the checks: each scope is a named configuration, built anew so that planted faults are seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve, field, frozen

from kvproof.core import config as configs
from kvproof.core.config import Config, Group
from kvproof.spec.engines import enabled
from kvproof.spec.engines.enabled import Limits
from kvproof.spec.exits import UserError

FULL, MAMBA = "full_attention", "mamba_align"


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
        return evolve(enabled.limits_for(config), **self.bounds)


def _scope(name: str, *groups: Group, quick: bool = False, bounds: Mapping[str, Any] | None = None, **settings: Any) -> Scope:
    return Scope(name, groups, settings, bounds or {}, quick)


def _full(block_size: int, sharded: bool | None = None) -> Group:
    return Group(FULL, block_size, sharded)


def _mamba(block_size: int) -> Group:
    return Group(MAMBA, block_size)


ALL: tuple[Scope, ...] = (
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
)


def by_name(name: str) -> Scope:
    """Return the scope of this name. Raises UserError that lists the known ones."""
    for scope in ALL:
        if scope.name == name:
            return scope
    raise UserError(f"no scope {name!r}; known: {', '.join(scope.name for scope in ALL)}")


def chosen(quick: bool) -> tuple[Scope, ...]:
    """Return the scopes of a full or a quick check."""
    return tuple(scope for scope in ALL if scope.quick or not quick)
