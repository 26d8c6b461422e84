"""Group kinds by name. What differs between kinds lives in one module each, behind ``base.Kind``."""

from __future__ import annotations

from types import ModuleType
from typing import cast

from kvproof.core.errors import ConfigError
from kvproof.core.kinds import base, chunked_local, full_attention, recurrent, scratch, sliding_window, stable

__all__ = [
    "NAMES",
    "base",
    "checked",
    "chunked_local",
    "full_attention",
    "of",
    "recurrent",
    "scratch",
    "sliding_window",
    "stable",
]


def checked(name: str, module: ModuleType) -> base.Kind:
    """Return a module as a kind. Raises TypeError if it leaves a capability or a function of ``base.Kind`` unstated."""
    stated = getattr(module, "CAPABILITIES", None)
    if not isinstance(stated, base.Capabilities):
        raise TypeError(f"kind {name!r}: {module.__name__} states no CAPABILITIES: give base.Capabilities(...)")
    missing = [function for function in base.FUNCTIONS if not callable(getattr(module, function, None))]
    if missing:
        raise TypeError(f"kind {name!r}: {module.__name__} lacks {', '.join(missing)}: see base.Kind")
    return cast(base.Kind, module)


_KINDS: dict[str, base.Kind] = {
    name: checked(name, module)
    for name, module in (
        ("full_attention", full_attention),
        ("mamba_align", recurrent),
        ("sliding_window", sliding_window),
        ("chunked_local", chunked_local),
        ("mamba_stable", stable),
        ("scratch", scratch),
    )
}
NAMES: tuple[str, ...] = tuple(_KINDS)


def of(name: str) -> base.Kind:
    """Return the kind of this name. Raises ConfigError that lists the known ones."""
    kind = _KINDS.get(name)
    if kind is None:
        raise ConfigError(f"no group kind {name!r}; known: {', '.join(NAMES)}")
    return kind
