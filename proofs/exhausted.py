"""What the explorer has exhausted of each law (``data/exhausted.json``), taken from the certificate of a whole exploration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
from attrs import frozen

from kvproof.spec import laws, output
from kvproof.spec.exits import UserError

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
    file = FILE if file is None else file
    try:
        document = json.loads(file.read_bytes())
        kind = (document["format"], document["version"])
        laws = msgspec.convert(document["laws"], dict[str, Exhausted])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file}: does not say what was exhausted ({error}): restore it from the repository") from error
    if kind != (FORMAT, VERSION):
        raise UserError(
            f"{file}: does not say what was exhausted, it is {kind[0]!r} {kind[1]!r}: restore it from the repository"
        )
    return laws


def of_certificate(file: Path) -> dict[str, Exhausted]:
    """Return what a certificate of ``kvproof explore`` says of each law.

    Raises UserError unless it is of an exploration of the whole catalogue, without a fault, in which all laws hold.
    """
    try:
        document: dict[str, Any] = json.loads(file.read_bytes())
        holds = (document["format"], document["verdict"]) == ("kvproof-certificate", "holds")
        if not holds or not document["premises"] or any(scope["fault"] for scope in document["scopes"]):
            raise UserError(
                f"{file}: only an exploration of the whole catalogue that holds says anything: kvproof explore --out DIR"
            )
        whole = [scope for scope in document["scopes"] if scope["end"] in ("complete", "depth")]
        found: dict[str, Exhausted] = {}
        known = {law.id for law in laws.ALL}  # rules of generation are judged, too
        for law in (law for law in document["premises"] if law in known):
            counts = [scope["premises"].get(law, 0) for scope in whole]
            found[law] = Exhausted(sum(count > 0 for count in counts), sum(counts))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{file}: is no certificate of an exploration ({error}): kvproof explore --out DIR writes one"
        ) from error
    return found


def write(laws: dict[str, Exhausted], file: Path | None = None) -> None:
    """Write what was exhausted. Raises OutputError."""
    lines = [f'  {json.dumps(law)}: {{"scopes": {one.scopes}, "judged": {one.judged}}}' for law, one in laws.items()]
    head = f'{{\n "format": "{FORMAT}",\n "version": {VERSION},\n "laws": {{\n'
    output.write_atomically(FILE if file is None else file, head + ",\n".join(lines) + "\n }\n}\n")
