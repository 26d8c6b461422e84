"""What this copy of kvproof is: its version, and the commands that are registered for it."""

from __future__ import annotations

import functools
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

NAME = "kvproof"
COMMANDS = "kvproof.commands"

# The top-level module that is missing -> the extra that brings it.
EXTRA_OF_MODULE = {
    "torch": "gpu",
    "crosshair": "proofs",
    "z3": "proofs",
    "pytest": "pytest",
}


def version() -> str:
    """Version of this copy: from the source tree when it runs from one, else from the installed metadata."""
    project = _source_project()
    return str(project["version"]) if project else metadata.version(NAME)


def command_entry_points() -> dict[str, metadata.EntryPoint]:
    """Command name -> entry point of the group `kvproof.commands`, sorted by name.

    A source tree speaks for itself through its pyproject.toml, so that it works without being installed and a new command
    is seen without installing again; entry points of other distributions are added to it.
    """
    found = {point.name: point for point in metadata.entry_points(group=COMMANDS)}
    project = _source_project()
    if project:
        for name, value in project["entry-points"][COMMANDS].items():
            found[name] = metadata.EntryPoint(name=name, value=value, group=COMMANDS)
    return dict(sorted(found.items()))


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """The advice with the pip line when `error` is about a module of an extra, else None."""
    extra = EXTRA_OF_MODULE.get((error.name or "").partition(".")[0])
    if extra is None:
        return None
    return f"needs the extra {extra!r}: pip install {_install(extra)}"


def _install(extra: str) -> str:
    """What to install: this clone, whose packages no index needs to have, or the installed project."""
    return f"'{NAME}[{extra}]'" if source_folder() is None else f"-e '.[{extra}]' (in the clone)"


def source_folder() -> Path | None:
    """The folder of the source tree that this copy runs from, None for an installed copy."""
    return Path(__file__).resolve().parents[1] if _source_project() else None


@functools.cache
def _source_project() -> dict[str, Any] | None:
    """The table `project` of the pyproject.toml beside the top folders, or None in an installed copy."""
    file = Path(__file__).resolve().parents[1] / "pyproject.toml"
    try:
        project: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
    except (OSError, KeyError, tomllib.TOMLDecodeError):
        return None
    return project if project.get("name") == NAME else None
