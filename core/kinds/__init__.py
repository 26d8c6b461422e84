"""Group kinds by name. What differs between kinds lives in one module each, behind ``base.Kind``."""

from __future__ import annotations

from typing import cast

from kvproof.core.errors import ConfigError
from kvproof.core.kinds import base, full_attention, recurrent

__all__ = ["NAMES", "base", "full_attention", "of", "recurrent"]

NAMES: tuple[str, ...] = ("full_attention", "mamba_align")


def of(name: str) -> base.Kind:
    """Return the kind of this name. Raises ConfigError that lists the known ones."""
    if name == "full_attention":
        return cast(base.Kind, full_attention)
    if name == "mamba_align":
        return cast(base.Kind, recurrent)
    raise ConfigError(f"no group kind {name!r}; known: {', '.join(NAMES)}")
