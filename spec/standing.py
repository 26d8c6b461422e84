"""What stands behind the label of each law: the claims that settle it, those of a part of it, and the scopes that judged it.

Written by ``python -m kvproof.proofs.labelling`` and read by ``kvproof laws ID``: spec knows nothing of proofs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from attrs import asdict, frozen

from kvproof.spec import datafile

FILE = Path(__file__).parent / "data" / "standing.json"
FORMAT, VERSION = "kvproof-standing", 1


@frozen(slots=True)
class Proof:
    """A confirmed claim or lemma that settles a law, and for what it speaks; deep ones are left out of a quick run."""

    claim: str
    bounds: str
    deep: bool


@frozen(slots=True)
class Standing:
    """The claims that settle a law, how many further ones say a part of it, and how many exhausted scopes judged it."""

    proofs: tuple[Proof, ...]
    parts: int
    scopes: int


def read(file: Path | None = None) -> dict[str, Standing]:
    """Return what stands behind each law. Raises UserError if the file does not say that."""
    return datafile.read(file or FILE, (FORMAT, VERSION), "laws", Standing, "does not say what stands behind the laws")


def write(found: Mapping[str, Standing], file: Path | None = None) -> None:
    """Write what stands behind each law. Raises OutputError."""
    datafile.write(file or FILE, (FORMAT, VERSION), "laws", {law: asdict(one) for law, one in found.items()})
