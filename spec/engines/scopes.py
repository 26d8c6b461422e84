"""The configuration matrix of the checks: each scope is a named configuration, built anew so that planted faults are seen."""

from __future__ import annotations

from kvproof.spec import near
from kvproof.spec.engines import scopes_host, scopes_plain, scopes_wide
from kvproof.spec.engines.scope_parts import Scope

__all__ = ["ALL", "Scope", "by_name", "chosen"]

ALL: tuple[Scope, ...] = scopes_plain.SCOPES + scopes_wide.SCOPES + scopes_host.SCOPES
"""Every scope of the check."""


def by_name(name: str) -> Scope:
    """Return the scope of this name. Raises UserError that lists the known ones."""
    return near.named("scope", name, ALL)


def chosen(quick: bool) -> tuple[Scope, ...]:
    """Return the scopes of a full or a quick check."""
    return tuple(scope for scope in ALL if scope.quick or not quick)
