"""What stands behind each law: proved, exhausted or tested; written by ``kvproof prove`` and read by the pages of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

from kvproof.spec import datafile

FILE = Path(__file__).resolve().parents[1] / "data" / "labels.json"
FORMAT, VERSION = "kvproof-labels", 1


@frozen(slots=True)
class Label:
    """The strongest label of a law."""

    label: str


def read(file: Path | None = None) -> dict[str, str]:
    """Return the label of each law. Raises UserError if the file is not one of labels."""
    found = datafile.read(file or FILE, (FORMAT, VERSION), "laws", Label, "is no file of labels")
    return {law: one.label for law, one in found.items()}


def write(found: Mapping[str, str], file: Path | None = None) -> None:
    """Write the labels. Raises OutputError."""
    datafile.write(file or FILE, (FORMAT, VERSION), "laws", {law: {"label": label} for law, label in found.items()})
