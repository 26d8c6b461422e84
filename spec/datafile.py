"""The JSON files of this package that a command writes anew: one entry by name, under a format and a version."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kvproof.spec import output
from kvproof.spec.exits import UserError

T = TypeVar("T")


def read(file: Path, kind: tuple[str, int], field: str, entry: type[T], wrong: str) -> dict[str, T]:
    """Return the entries of a file by name. ``wrong`` says what a file is not. Raises UserError if it is no such file."""
    try:
        document = json.loads(file.read_bytes())
        found = (document["format"], document["version"])
        entries = msgspec.convert(document[field], dict[str, entry])  # type: ignore[valid-type]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file}: {wrong} ({error}): restore it from the repository") from error
    if found != kind:
        raise UserError(f"{file}: {wrong} (it is {found[0]!r}, version {found[1]!r}): restore it from the repository")
    return entries


def write(file: Path, kind: tuple[str, int], field: str, entries: Mapping[str, Mapping[str, Any]]) -> None:
    """Write entries, one a line. Raises OutputError."""
    lines = [f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in entries.items()]
    head = f'{{\n "format": "{kind[0]}",\n "version": {kind[1]},\n "{field}": {{\n'
    output.write_atomically(file, head + ",\n".join(lines) + "\n }\n}\n")
