"""The catalogue of exploration: at most twelve small configurations that together reach every transition and situation."""

from __future__ import annotations

from typing import Literal

from kvproof.spec import near
from kvproof.spec.exploring import product, scopes_device, scopes_host
from kvproof.spec.exploring.scope import Scope as Scope

CATALOGUE: tuple[Scope, ...] = (*scopes_device.SCOPES, *scopes_host.SCOPES)
"""The default scopes."""

FURTHER: tuple[Scope, ...] = (*scopes_device.FURTHER, *scopes_host.FURTHER)
"""Scopes for faults that the catalogue has no room for: each is there for what its comment names."""


PRODUCT: tuple[Scope, ...] = product.SCOPES
"""A narrow scope for every combination of group set, ranks, host mode and EAGLE."""

Which = Literal["catalogue", "quick", "further", "product"]
"""A set of scopes that is explored together; quick ones are those of the catalogue that are small."""


def known() -> tuple[Scope, ...]:
    """Return the catalogue and the scopes beside it, without the product."""
    return (*CATALOGUE, *FURTHER)


def every() -> tuple[Scope, ...]:
    """Return every scope that has a pin."""
    return (*known(), *PRODUCT)


def by_name(name: str) -> Scope:
    """Return the scope of this name. Raises UserError that names near ones."""
    return near.named("scope", name, every(), "kvproof explore --scope list")


def set_of(scope: Scope) -> str:
    """Return the set that a scope belongs to, in words."""
    if scope in PRODUCT:
        return "product"
    return "further" if scope in FURTHER else "quick" if scope.quick else "catalogue"


def of(which: Which) -> tuple[Scope, ...]:
    """Return a set of scopes."""
    if which == "product":
        return PRODUCT
    if which == "further":
        return FURTHER
    return tuple(scope for scope in CATALOGUE if scope.quick or which == "catalogue")
