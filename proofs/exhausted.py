"""What the explorer has exhausted of each law (``data/exhausted.json``), taken from the certificate of a whole exploration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from attrs import asdict, frozen

from kvproof.spec import datafile, laws
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
    return datafile.read(file or FILE, (FORMAT, VERSION), "laws", Exhausted, "does not say what was exhausted")


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
    datafile.write(file or FILE, (FORMAT, VERSION), "laws", {law: asdict(one) for law, one in laws.items()})
