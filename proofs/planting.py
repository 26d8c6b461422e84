"""What a faulty twin is: a model that is wrong in one place, and the claims that it refutes."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from attrs import frozen

from kvproof.spec import faults

Patch = tuple[ModuleType | str, str, object]
"""A module of the model or its name, a name in it, and what stands there instead."""


@frozen(slots=True)
class Planted:
    """A fault, by its id in the catalogue or in words, the claims of one file that it refutes, and what it rebinds."""

    name: str
    refutes: tuple[str, ...]
    patches: tuple[Patch, ...]


def catalogued(fault: str, *refutes: str) -> Planted:
    """Return a fault of the catalogue with the claims that it refutes."""
    return Planted(fault, refutes, tuple(faults.by_id(fault).patches))


def planted(name: str, *refutes: str, at: ModuleType, **replacements: object) -> Planted:
    """Return a fault that is not in the catalogue: what is rebound in one module of the model."""
    return Planted(name, refutes, tuple((at, attribute, instead) for attribute, instead in replacements.items()))


@contextmanager
def rebound(patches: tuple[Patch, ...]) -> Iterator[None]:
    """Rebind names, and take it back at the end."""
    modules = [importlib.import_module(place) if isinstance(place, str) else place for place, _, _ in patches]
    before = [(module, name, getattr(module, name)) for module, (_, name, _) in zip(modules, patches, strict=True)]
    try:
        for module, (_, name, instead) in zip(modules, patches, strict=True):
            setattr(module, name, instead)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
