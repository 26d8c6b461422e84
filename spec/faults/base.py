"""What a fault is, and how it is planted (architecture, section 5; semantics section 6)."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, cast

from attrs import evolve, frozen

from kvproof.core import config as configs
from kvproof.core.config import Config, Profile

Patch = tuple[ModuleType | str, str, Callable[..., Any]]
"""(defining module or its dotted name, function name, replacement)."""


class FaultError(Exception):
    """A fault cannot be planted: a name does not exist, or another fault is planted already."""


@frozen(slots=True)
class Fault:
    """A named way to be wrong.

    ``laws`` must each catch it. It is either a set of ``patches`` or the ``profile`` (field, value) that a release has.
    ``scopes`` names the scopes of ``engines.scopes`` where generation finds it, the fastest first.
    """

    id: str
    summary: str
    source: str
    laws: tuple[str, ...]
    patches: tuple[Patch, ...] = ()
    profile: tuple[str, str] | None = None
    scopes: tuple[str, ...] = ()


_planted: list[str] = []


@contextmanager
def planted(fault: Fault) -> Iterator[Fault]:
    """Put the replacements of a fault in place; the originals come back whatever happens inside.

    A configuration resolved inside sees the fault too: sizes and row capacities are computed when it is built.
    Raises FaultError if a fault is planted already or a name does not exist; nothing is replaced then.
    """
    if _planted:
        raise FaultError(f"{_planted[0]} is planted already: faults are planted one at a time")
    originals = [(module, name, _function(fault, module, name)) for module, name in _places(fault)]
    _planted.append(fault.id)
    try:
        for (module, name, _), (_, _, replacement) in zip(originals, fault.patches, strict=True):
            setattr(module, name, replacement)
        yield fault
    finally:
        for module, name, original in originals:
            setattr(module, name, original)
        _planted.clear()


def _places(fault: Fault) -> list[tuple[ModuleType, str]]:
    return [(importlib.import_module(module) if isinstance(module, str) else module, name) for module, name, _ in fault.patches]


def _function(fault: Fault, module: ModuleType, name: str) -> Callable[..., Any]:
    found = vars(module).get(name)
    if not callable(found):
        raise FaultError(f"{fault.id}: {module.__name__} has no function {name}")
    if getattr(found, "__module__", None) != module.__name__:
        raise FaultError(f"{fault.id}: {name} is not defined in {module.__name__}: name the module that defines it")
    return cast(Callable[..., Any], found)


def with_field(profile: Profile, field: tuple[str, str]) -> Profile:
    """Return a profile with one (field, value) changed."""
    changes: dict[str, Any] = dict([field])
    return evolve(profile, **changes)


def configured(fault: Fault, config: Config) -> Config:
    """Resolve a configuration anew under a fault: with the profile field it changes, and what it does to sizes.

    Call it inside ``planted``. Raises ConfigError if the faulty sizes make the configuration illegal.
    """
    profile: Profile = config.profile
    if fault.profile is not None:
        profile = with_field(profile, fault.profile)
    return configs.reconfigure(config, profile=profile)
