"""What the matrix of scopes is made of: a scope, and short names for groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve, field, frozen

from kvproof.core import config as configs
from kvproof.core.config import Config, Group
from kvproof.spec.engines import amounts
from kvproof.spec.engines.amounts import Limits

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


def scope(name: str, *groups: Group, quick: bool = False, bounds: Mapping[str, Any] | None = None, **settings: Any) -> Scope:
    """Return a scope: its groups, what differs from the defaults of ``configure``, and its bounds of generation."""
    return Scope(name, groups, settings, bounds or {}, quick)


def full(block_size: int, sharded: bool | None = None, *, draft: bool = False) -> Group:
    """Return a full-attention group; sizes in tokens."""
    return Group(FULL, block_size, sharded, draft=draft)


def mamba(block_size: int, spare: int = 0) -> Group:
    """Return a Mamba-align group with ``spare`` speculative blocks; sizes in tokens."""
    return Group(MAMBA, block_size, speculative_blocks=spare)


def window(block_size: int, window: int, *, draft: bool = False) -> Group:
    """Return a replicated sliding-window group; sizes in tokens."""
    return Group(WINDOW, block_size, False, window=window, draft=draft)


def chunked(block_size: int, chunk: int) -> Group:
    """Return a chunked-local group; sizes in tokens."""
    return Group(CHUNKED, block_size, window=chunk)


EIGHTS = (full(8), mamba(8))
