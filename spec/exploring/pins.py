"""The pinned sizes of the graphs of all scopes: a changed count is a changed model, law of generation or bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import attrs
from attrs import evolve, frozen

from kvproof.spec import datafile
from kvproof.spec.exploring.certificate import Certificate

FILE = Path(__file__).resolve().parents[1] / "data" / "explored.json"
PRODUCT = FILE.with_name("explored-product.json")
"""Pins of the product; the other scopes are in ``FILE``."""
FORMAT = "kvproof-explored-pins"
VERSION = 1


@frozen(slots=True)
class Pin:
    """The size of a scope's graph: orbits, edges, and after how many actions the last orbit was found.

    ``worlds`` are the worlds without the quotient by names, None where nobody counted them. ``levels`` are the orbits first
    reached after so many actions; None in a pin of somebody who did not keep them.
    """

    orbits: int
    edges: int
    depth: int
    worlds: int | None = None
    levels: tuple[int, ...] | None = None


@frozen(slots=True)
class Difference:
    """A scope whose graph is not as pinned; ``pinned`` None: it has no pin, ``found`` None: the scope is gone."""

    scope: str
    pinned: Pin | None
    found: Pin | None

    def __str__(self) -> str:
        if self.pinned is None:
            assert self.found is not None
            return f"{self.scope}: not pinned; found {_said(self.found)}"
        if self.found is None:
            return f"{self.scope}: pinned, but there is no such scope"
        parts = []
        for name in ("orbits", "edges", "depth", "worlds"):
            now, then = getattr(self.found, name), getattr(self.pinned, name)
            if now is not None and now != then:
                parts.append(f"{name} {now:,}, pinned {'none' if then is None else f'{then:,}'}")
        return f"{self.scope}: {'; '.join((*parts, *self._parted()))}"

    @property
    def anew(self) -> str:
        """What an update writes: the old numbers and the new ones."""
        if self.pinned is None or self.found is None:
            return str(self)
        return f"{self.scope}: {_said(self.found)}; was {_said(self.pinned)}"

    def _parted(self) -> list[str]:
        """Say after how many actions the graphs part, if both know their levels."""
        if self.pinned is None or self.found is None or self.pinned.levels is None or self.found.levels is None:
            return []
        both = zip_longest(self.found.levels, self.pinned.levels, fillvalue=0)
        first = next(((depth, now, then) for depth, (now, then) in enumerate(both) if now != then), None)
        if first is None:
            return []
        depth, now, then = first
        return [f"they part after {depth} actions ({now:,} orbits there, pinned {then:,}): look with --depth {max(depth, 1)}"]


def _said(pin: Pin) -> str:
    return f"{pin.orbits:,} orbits, {pin.edges:,} edges, depth {pin.depth}"


def of(certificate: Certificate) -> Pin:
    """Return what a certificate would pin."""
    return Pin(certificate.orbits, certificate.edges, certificate.depth, certificate.worlds, certificate.levels)


def agree(pinned: Pin | None, found: Pin) -> bool:
    """Tell whether a graph is as pinned; worlds are compared where they were counted, levels where they are pinned."""
    if pinned is None:
        return False
    found = found if found.worlds is not None else evolve(found, worlds=pinned.worlds)
    return (found if pinned.levels is not None else evolve(found, levels=None)) == pinned


def read(file: Path | None = None) -> dict[str, Pin]:
    """Return the pins by scope. Raises UserError if the file is not one of pins."""
    return datafile.read(file or FILE, (FORMAT, VERSION), "scopes", Pin, "is no file of pins")


def every() -> dict[str, Pin]:
    """Return the pins of all scopes. Raises UserError if a file is not one of pins."""
    return {**read(FILE), **read(PRODUCT)}


def write(pins: Mapping[str, Pin], file: Path | None = None) -> None:
    """Write the pins. Raises OutputError."""
    entries = {name: as_dict(pin) for name, pin in pins.items()}
    datafile.write(file or FILE, (FORMAT, VERSION), "scopes", entries)


def as_dict(pin: Pin) -> dict[str, Any]:
    """Return the JSON form of a pin."""
    fields = {field.name: getattr(pin, field.name) for field in attrs.fields(Pin)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items() if value is not None}


def differences(certificates: Sequence[Certificate], pins: Mapping[str, Pin], known: Sequence[str] = ()) -> list[Difference]:
    """Return what is not as pinned; with ``known`` (the whole catalogue), pins of scopes that are gone, too."""
    found = [
        Difference(certificate.scope, pins.get(certificate.scope), of(certificate))
        for certificate in certificates
        if certificate.whole and not agree(pins.get(certificate.scope), of(certificate))
    ]
    return found + [Difference(name, pins[name], None) for name in pins if known and name not in known]


def updated(certificates: Sequence[Certificate], pins: Mapping[str, Pin], known: Sequence[str]) -> dict[str, Pin]:
    """Return the pins after an update, in the order of the catalogue ``known``: those of unexplored scopes stay.

    Where a graph changed and its worlds were not counted, the old number of worlds goes.
    """
    changed = dict(pins)
    for certificate in certificates:
        if certificate.whole and not agree(pins.get(certificate.scope), of(certificate)):
            changed[certificate.scope] = of(certificate)
    return {name: changed[name] for name in known if name in changed}
