"""The catalogue of exploration: at most twelve small configurations that together reach every transition and situation."""

from __future__ import annotations

from kvproof.core import actions as act
from kvproof.spec import near
from kvproof.spec.engines.scope_parts import full
from kvproof.spec.exits import UserError
from kvproof.spec.exploring.bounds import Bounds
from kvproof.spec.exploring.scope import Scope as Scope

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
