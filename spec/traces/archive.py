"""The recordings that ship inside the package: one zip archive and an index beside it."""

from __future__ import annotations

import functools
import gzip
import io
import json
import zipfile
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import msgspec

from kvproof.spec.exits import UserError
from kvproof.spec.traces.read import Recording, read_bytes

ARCHIVE = "recordings.zip"
INDEX = "recordings-index.json"
SUFFIX = ".ndjson.gz"
# One date for every member, the earliest that zip knows: the same recordings give the same archive, byte for byte.
TIMESTAMP = (1980, 1, 1, 0, 0, 0)


class UnknownRecording(UserError):
    """No shipped recording has this name."""


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the index says about one recording.

    Attributes:
        file: member of the archive, for example `manager/d_cow_dcp2.ndjson.gz`.
        level: `manager` or `scheduler`.
        ops: number of operations, init included.
        config: summary of the configuration; `groups` are strings such as `mamba:16` (kind, tokens per block and rank).
        features: interesting situation -> how often it occurs.
    """

    file: str
    level: str
    ops: int
    config: dict[str, Any]
    features: dict[str, int]

    @property
    def name(self) -> str:
        """Short name: the member without folder and suffix."""
        return self.file.rpartition("/")[2].removesuffix(SUFFIX)


class _Index(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: str
    version: int
    engine: dict[str, str]
    recordings: list[Entry]


@functools.cache
def entries() -> tuple[Entry, ...]:
    """All shipped recordings in the order of the index: manager level first, then by name."""
    index = msgspec.json.decode(_data(INDEX).read_bytes(), type=_Index)
    return tuple(index.recordings)


def find(name: str) -> Entry:
    """The entry with this member name or short name.

    Raises:
        UnknownRecording: there is none.
    """
    for entry in entries():
        if name in (entry.file, entry.name):
            return entry
    raise UnknownRecording(f"no shipped recording is called {name!r}; `kvproof replay --list` names them all")


def read_member(name: str) -> bytes:
    """The bytes of one recording as recorded, gzip-compressed. Raises UnknownRecording."""
    entry = find(name)
    with _data(ARCHIVE).open("rb") as file, zipfile.ZipFile(file) as archive:
        return archive.read(entry.file)


def open_recording(name: str) -> Recording:
    """One shipped recording, read and checked. Raises UnknownRecording."""
    entry = find(name)
    return read_bytes(read_member(name), entry.file)


def recordings(chosen: tuple[Entry, ...] | None = None) -> Iterator[tuple[Entry, Recording]]:
    """The chosen recordings (all without an argument), one after the other, opening the archive once."""
    with _data(ARCHIVE).open("rb") as file, zipfile.ZipFile(file) as archive:
        for entry in entries() if chosen is None else chosen:
            yield entry, read_bytes(archive.read(entry.file), entry.file)


@functools.cache
def selection() -> tuple[Entry, ...]:
    """The recordings that a check replays, in the order of the index: it has other work, `kvproof replay` takes all of them.

    Every one of a manager without a host tier. Of the others as many as it takes to show whatever the index knows of: each
    situation per level and mode of the host tier, and each set of group kinds with and without DCP, events on and off, one
    worker and several; the shortest ones for that.
    """
    plain = [entry for entry in entries() if entry.level == "manager" and entry.config["host"] is None]
    left = sorted((entry for entry in entries() if entry not in plain), key=lambda entry: (entry.ops, entry.file))
    chosen = list(plain)
    wanted = set().union(*(_shows(entry) for entry in left))
    while wanted:
        best = max(left, key=lambda entry: len(wanted & _shows(entry)) / entry.ops)
        chosen.append(best)
        wanted -= _shows(best)
    return tuple(entry for entry in entries() if entry in chosen)


def _shows(entry: Entry) -> frozenset[tuple[object, ...]]:
    """What a recording shows of the host tier and the scheduler (see `selection`)."""
    host = entry.config["host"] or {}
    where = (entry.level, host.get("mode"))
    shown: set[tuple[object, ...]] = {(*where, feature) for feature in entry.features}
    if entry.level == "manager":
        kinds = tuple(group.split(":")[0] for group in entry.config["groups"])
        shown.add((*where, "kinds", kinds, entry.config["dcp_world_size"] > 1))
        shown.add((*where, "events", host.get("events"), "workers", host.get("workers", 1) > 1))
    return frozenset(shown)


def pack(folder: Path, archive: Path, index: Path) -> int:
    """Write archive and index from a folder of recordings with its `index.json`; return the number of recordings.

    Used when the shipped recordings change. The members are stored as they are (they are compressed already) in the order
    of the index, so that the same folder always gives the same bytes.
    """
    source = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    keep = ("file", "level", "ops", "config", "features")
    rows = [{key: row[key] for key in keep} for row in source["traces"]]
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as target:
        for row in rows:
            member = zipfile.ZipInfo(row["file"], TIMESTAMP)
            member.external_attr = 0o644 << 16
            target.writestr(member, (folder / row["file"]).read_bytes())
    head = {"format": "kv-trace-index", "version": 1, "engine": source["engine"]}
    text = io.StringIO()
    text.write(json.dumps(head)[:-1] + ', "recordings": [\n')  # one line per recording, so that differences can be read
    text.write(",\n".join(json.dumps(row, separators=(",", ":")) for row in rows))
    text.write("\n]}\n")
    index.write_text(text.getvalue(), encoding="utf-8")
    return len(rows)


def unpack(name: str) -> str:
    """The text of one recording, one line per operation. Raises UnknownRecording."""
    return gzip.decompress(read_member(name)).decode("utf-8")


def _data(name: str) -> Traversable:
    return resources.files("kvproof.spec") / "data" / name
