"""What the explorer has exhausted of each law (``data/exhausted.json``), taken from the certificate of a whole exploration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
from attrs import asdict, frozen

from kvproof.spec import datafile
from kvproof.spec import laws as all_laws
from kvproof.spec.exits import UserError
from kvproof.spec.exploring import certificate as certificates
from kvproof.spec.exploring import pins
from kvproof.spec.exploring import scopes as catalogue
from kvproof.spec.exploring.certificate import Certificate
from kvproof.spec.exploring.pins import Pin

FILE = Path(__file__).parent / "data" / "exhausted.json"
FORMAT = "kvproof-exhausted"
VERSION = 1


@frozen(slots=True)
class Exhausted:
    """How often a law was judged in scopes that were seen as a whole, and in how many of them."""

    scopes: int
    judged: int


def read(file: Path | None = None) -> dict[str, Exhausted]:
    """Return what was exhausted, by law. Raises UserError if the file is none of these."""
    return datafile.read(file or FILE, (FORMAT, VERSION), "laws", Exhausted, "does not say what was exhausted")


def of_certificate(file: Path) -> dict[str, Exhausted]:
    """Return what a certificate of ``kvproof explore`` says of each law.

    Raises UserError unless it is of an exploration of the whole catalogue, without a fault and with every law, in which all
    laws hold, and every scope ended complete or at its own bound, with a graph as pinned.
    """
    try:
        document = msgspec.convert(json.loads(file.read_bytes()), _Document, strict=True)
        scopes = [_scope(one) for one in document.scopes]
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"{file}: is no certificate of an exploration ({error}): kvproof explore --out DIR writes one"
        ) from error
    wrong = _wrong(document, scopes)
    if wrong:
        raise UserError(
            f"{file}: {wrong}; only an exploration of the whole catalogue that holds says anything: kvproof explore --out DIR"
        )
    found: dict[str, Exhausted] = {}
    for law in (law.id for law in all_laws.ALL):  # rules of generation are judged, too
        counts = [scope.premises[law] for scope in scopes]
        found[law] = Exhausted(sum(count > 0 for count in counts), sum(counts))
    return found


@frozen(slots=True)
class _Document:
    """What is read of a certificate; its scopes are read as `Certificate`."""

    format: str
    version: int
    verdict: str
    problems: list[str]
    counterexamples: list[Any]
    scopes: list[dict[str, Any]]
    premises: dict[str, int]


def _scope(document: dict[str, Any]) -> Certificate:
    """Return the certificate of one scope. Raises ValueError."""
    verdict = document.pop("verdict", None)
    made = certificates.from_dict(document)
    if verdict != "holds":
        raise ValueError(f"the verdict of {made.scope} is {verdict!r}")
    return made


def _wrong(document: _Document, scopes: list[Certificate]) -> str:
    """Return why a certificate says nothing of the whole catalogue; empty if it does."""
    kind = (document.format, document.version)
    if kind != ("kvproof-certificate", 1):
        return f"it is {kind[0]!r}, version {kind[1]}, not 'kvproof-certificate', version 1"
    if document.verdict != "holds" or document.problems or document.counterexamples:
        return f"its verdict is {document.verdict!r}, with {len(document.problems)} problems"
    names = [scope.scope for scope in scopes]
    whole = [scope.name for scope in catalogue.of("catalogue")]
    if sorted(names) != sorted(whole):
        odd = sorted(set(whole) ^ set(names)) or sorted({name for name in names if names.count(name) > 1})
        return f"its scopes are not those of the catalogue ({', '.join(odd[:3])})"
    if document.premises != certificates.merged_premises(scopes):
        return "its premises are not the sum of those of its scopes"
    pinned = pins.read()
    return next((found for scope in scopes if (found := _wrong_scope(scope, pinned.get(scope.scope)))), "")


def _wrong_scope(scope: Certificate, pinned: Pin | None) -> str:
    """Return why a scope was not exhausted; empty if it was."""
    if scope.fault:
        return f"{scope.fault} was planted in {scope.scope}"
    if not scope.whole or not pins.agree(pinned, pins.of(scope)):
        return f"{scope.scope} was not seen as a whole, or is not as pinned"
    if scope.bounds != certificates.bounds_as_dict(catalogue.by_name(scope.scope).bounds):
        return f"{scope.scope} has other bounds"
    unjudged = [law.id for law in all_laws.ALL if law.id not in scope.laws or law.id not in scope.premises]
    if unjudged:
        return f"{unjudged[0]} was not judged in {scope.scope}"
    known = {law.id for law in all_laws.ALL}
    strange = [law for law in (*scope.laws, *scope.premises) if law not in known]
    if strange:
        return f"{strange[0]!r} was judged in {scope.scope}, and there is no such law: it is of another version of kvproof"
    if min(scope.premises.values()) < 0:
        return f"a law was judged less than never in {scope.scope}"
    return ""


def write(laws: dict[str, Exhausted], file: Path | None = None) -> None:
    """Write what was exhausted. Raises OutputError."""
    datafile.write(file or FILE, (FORMAT, VERSION), "laws", {law: asdict(one) for law, one in laws.items()})
