"""The counterexamples of a check or an exploration as files, with a summary that lists them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from kvproof.spec import counterexample as examples
from kvproof.spec import output
from kvproof.spec.counterexample import Counterexample
from kvproof.spec.report import forms
from kvproof.spec.report.film import NoWorld
from kvproof.spec.report.rerun import run_again

INDEX = "index.html"
"""The page of the whole run."""
WRITTEN: dict[str, str] = {suffix: form for form, suffix in forms.SUFFIXES.items()}
"""The forms beside the JSON file of a counterexample, by suffix. Where there is no world to show, some are left out."""


def stem(example: Counterexample, number: int) -> str:
    """Return the file name of a counterexample without its suffix."""
    parts = [f"{number:02}", example.law, example.fault, example.scope, example.engine.partition(" ")[0]]
    return "-".join(_UNSAFE.sub("-", part) for part in parts if part)


def write(found: Sequence[Counterexample], document: Mapping[str, Any], folder: Path, summary: str) -> list[Path]:
    """Write the summary and every counterexample as JSON and in the forms of ``WRITTEN``; return the JSON files.

    The counterexamples that an earlier summary there lists, and nothing else, are removed before the new summary takes its
    place. Raises OutputError; each file is whole or absent.
    """
    target = output.make_folder(folder)
    written = []
    for number, example in enumerate(found, 1):
        file = target / f"{stem(example, number)}.json"
        write_one(example, file)
        written.append(file)
    names = [file.name for file in written]
    for name in _earlier(target / summary):
        if name not in names:
            for suffix in (".json", *WRITTEN):
                _remove((target / name).with_suffix(suffix))
    output.write_atomically(target / summary, json.dumps({**document, "files": names}, indent=1, sort_keys=True) + "\n")
    write_index(document, written, target)
    return written


def write_one(example: Counterexample, file: Path) -> list[Path]:
    """Write a counterexample as JSON and in the forms of ``WRITTEN`` beside it, all of them from one look; return the files.

    Raises OutputError. The pages call the JSON file by its name alone: they lie beside it wherever the folder goes.
    """
    output.write_atomically(file, examples.dumps(example))
    written, seen = [file], run_again(example)
    for suffix, form in WRITTEN.items():
        with suppress(NoWorld):
            output.write_atomically(file.with_suffix(suffix), forms.render(form, example, file.name, seen))
            written.append(file.with_suffix(suffix))
    return written


def write_index(document: Mapping[str, Any], written: Sequence[Path], folder: Path, name: str = INDEX) -> None:
    """Write the page of a whole run; ``written`` are the JSON files of its counterexamples. Raises OutputError."""
    from kvproof.spec.report import index  # jinja2 takes longer to load than most commands need

    output.write_atomically(folder / name, index.render(document, written))


def write_index_of_adapters(document: Mapping[str, Any], written: Sequence[Path], folder: Path) -> None:
    """Write the page of a folder of reports on adapters: that of the report, or a list if it is not the only one."""
    from kvproof.spec.report import index, runs

    reports = runs.of_adapters(folder)
    text = index.of_adapters(reports) if len(reports) > 1 else index.render(document, written)
    output.write_atomically(folder / INDEX, text)


def _earlier(summary: Path) -> list[str]:
    """Return the names of the counterexamples that a summary lists; what is not of our making lists none."""
    try:
        document = json.loads(summary.read_bytes())
    except (OSError, ValueError, RecursionError):
        return []
    names = document.get("files") if isinstance(document, dict) else None
    # A name as `stem` makes them leads nowhere else, whatever somebody wrote into the file.
    return [name for name in names if isinstance(name, str) and _OURS.fullmatch(name)] if isinstance(names, list) else []


_OURS = re.compile(r"[0-9]{2,}-[A-Za-z0-9+_-]+\.json")
_UNSAFE = re.compile(r"[^A-Za-z0-9+_-]+")
"""What a name of a file does without: a scope may be called ``explore/fa4``, a golden trace ``G2, G3``."""


def _remove(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        what = f"{error.strerror or error}".lower()
        raise output.OutputError(file, what, "it belongs to an earlier run: remove it, or name another folder") from error
