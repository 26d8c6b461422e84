"""Run by `make wheel`: the source archive and the wheel hold what the working tree holds, and nothing else.

Usage: wheel_contents.py SDIST WHEEL
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("core", "spec", "gpu", "proofs")
TOPS = ("Makefile", "README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "pyproject.toml", "setup.py", ".ci/run")


def files_below(*folders: str) -> set[str]:
    """Files of the working tree, caches left out, links not followed."""
    found = set()
    for folder in folders:
        for path in (ROOT / folder).rglob("*"):
            name = path.relative_to(ROOT).as_posix()
            if path.is_file() and "__pycache__" not in name and "tests/_path" not in name:
                found.add(name)
    return found


def main(sdist: str, wheel: str) -> None:
    """Compare and fail with the differences."""
    with tarfile.open(sdist) as archive:
        members = {member.name.partition("/")[2]: member for member in archive.getmembers()}
    wanted = files_below(*ROOMS, "tests", "docs", "requirements") | set(TOPS)
    links = {f"tests/_path/kvproof/{room}" for room in ROOMS}
    problems = [f"source archive lacks {name}" for name in sorted((wanted | links) - set(members))]
    problems += [f"{name} is no link" for name in sorted(links & set(members)) if not members[name].issym()]

    with zipfile.ZipFile(wheel) as archive_of_wheel:
        names = {name for name in archive_of_wheel.namelist() if ".dist-info/" not in name}
    modules = {f"kvproof/{name}" for name in files_below(*ROOMS)}
    problems += [f"wheel lacks {name}" for name in sorted(modules - names)]
    problems += [f"wheel has {name}, which the working tree has not" for name in sorted(names - modules)]
    if problems:
        sys.exit("\n".join(problems))
    print(f"{Path(sdist).name}: {len(members)} members; {Path(wheel).name}: {len(names)} files")


if __name__ == "__main__":
    main(*sys.argv[1:])
