"""What the tidy tests look at: files, syntax trees, and the package lists."""

from __future__ import annotations

import ast
import functools
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("core", "spec", "gpu", "proofs")
NOT_SOURCES = {".git", ".venv", "build", "dist", "reports", "__pycache__", ".hypothesis"}


def tracked_files() -> list[Path]:
    """Files that git tracks or would add; without git (an unpacked source archive) all but environments and caches."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode == 0 and listing.stdout:
        found = [ROOT / name for name in listing.stdout.split("\0") if name]
    else:
        found = [path for path in ROOT.rglob("*") if not NOT_SOURCES & set(path.relative_to(ROOT).parts)]
    return sorted(path for path in found if path.is_file() and not path.is_symlink())


def python_files(*folders: str) -> list[Path]:
    """All Python sources below these top folders."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py") if "_path" not in path.parts)


def name(path: Path) -> str:
    """Path from the top of the repository, for messages."""
    return path.relative_to(ROOT).as_posix()


@functools.cache
def tree(path: Path) -> ast.Module:
    """Syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All functions and methods of a file, nested ones included."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def pyproject() -> dict[str, Any]:
    """pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
