"""The catalogue of exploration: at most twelve small configurations that together reach every transition and situation."""

from __future__ import annotations

from kvproof.spec import near
from kvproof.spec.exploring import scopes_device, scopes_host
from kvproof.spec.exploring.scope import Scope as Scope

CATALOGUE: tuple[Scope, ...] = (*scopes_device.SCOPES, *scopes_host.SCOPES)
"""The default scopes."""

FURTHER: tuple[Scope, ...] = (*scopes_device.FURTHER, *scopes_host.FURTHER)
"""Scopes for faults that the catalogue has no room for: each is there for what its comment names."""


def known() -> tuple[Scope, ...]:
    """Return every scope that has a pin."""
    return (*CATALOGUE, *FURTHER)


def by_name(name: str) -> Scope:
    """Return the scope of this name. Raises UserError that lists the known ones."""
    return near.named("scope", name, known())


def chosen(quick: bool) -> tuple[Scope, ...]:
    """Return the scopes of a whole or a quick exploration."""
    return tuple(scope for scope in CATALOGUE if scope.quick or not quick)
