"""The catalogue of exploration: at most twelve small configurations that together reach every transition and situation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from kvproof.core import actions as act
from kvproof.core import config as configs
from kvproof.core.config import Config, Group
from kvproof.spec import near
from kvproof.spec.engines.scope_parts import full
from kvproof.spec.exits import UserError
from kvproof.spec.exploring.bounds import Bounds


@frozen(slots=True)
class Scope:
    """A configuration to explore and the bounds that make its graph finite. ``quick``: part of a quick exploration."""

    name: str
    groups: tuple[Group, ...]
    bounds: Bounds
    settings: Mapping[str, Any] = field(factory=dict)
    quick: bool = False

    def config(self) -> Config:
        """Resolve the configuration. Raises ConfigError (only under a planted fault)."""
        return configs.configure(self.groups, **self.settings)


CATALOGUE: tuple[Scope, ...] = (
    Scope(
        "fa1",
        (full(1),),
        Bounds(("aa", "ab"), submits=2, outputs=1, chunks="every", at_most={act.Preempt: 1, act.Withdraw: 1}),
        {"max_model_len": 4, "num_blocks": 4, "max_running": 2},
        quick=True,
    ),
)
"""The default scopes, the quick ones first."""


def by_name(name: str) -> Scope:
    """Return the scope of this name. Raises UserError that lists the known ones."""
    for scope in CATALOGUE:
        if scope.name == name:
            return scope
    raise UserError(near.unknown("scope", name, [scope.name for scope in CATALOGUE]))


def chosen(quick: bool) -> tuple[Scope, ...]:
    """Return the scopes of a whole or a quick exploration."""
    return tuple(scope for scope in CATALOGUE if scope.quick or not quick)
