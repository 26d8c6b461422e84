"""Writing files so that nothing is ever half-written."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from kvproof.spec.exits import UserError


class OutputError(UserError):
    """An output cannot be written.

    Attributes:
        path: the output as the caller named it.
        what: the reason.
        advice: what to do instead.
    """

    def __init__(self, path: Path | str, what: str, advice: str) -> None:
        super().__init__(f"{path}: cannot be written: {what}; {advice}")
        self.path = str(path)
        self.what = what
        self.advice = advice


def write_atomically(path: Path | str, text: str) -> None:
    """Write `text` as UTF-8 so that a reader sees the old contents or the new ones, never a part.

    The text goes to a new file in the same folder, which then replaces `path`; a symbolic link keeps pointing where it
    points. A device or a pipe (`/dev/stdout`) is written to directly, since it cannot be replaced.

    Raises:
        OutputError: the folder is missing, is not writable or the disk is full; the old contents are untouched.
    """
    target = Path(os.path.realpath(path))
    try:
        if target.is_dir():
            raise OutputError(path, "it is a folder", "name a file")
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")
            return
        _replace(target, text)
    except OSError as error:
        raise _refused(path, target, error) from error


def write_bytes_atomically(path: Path | str, data: bytes) -> None:
    """Write bytes to a regular file as `write_atomically` writes text. Raises OutputError."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise OutputError(path, "it is a folder", "name a file")
    temporary = _beside(target)
    try:
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    except OSError as error:
        raise _refused(path, target, error) from error


def check_writable(path: Path | str) -> None:
    """Find out before long work whether `write_atomically(path, ...)` could succeed; leaves nothing behind.

    Raises:
        OutputError: it could not.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise OutputError(path, "it is a folder", "name a file")
    if target.exists() and not target.is_file():
        return
    if not target.parent.is_dir():
        raise OutputError(path, f"the folder {target.parent} does not exist", "create it first")
    probe = _beside(target)
    try:
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        raise _refused(path, target, error) from error


def make_folder(path: Path | str) -> Path:
    """Create the folder `path` and its parents unless it is there already; return it.

    Raises:
        OutputError: it cannot be created, or something else has its name.
    """
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise OutputError(path, "it is not a folder", "name a folder") from None
    except OSError as error:
        raise OutputError(path, _reason(error), "choose a place where you may write") from error
    return folder


def _replace(target: Path, text: str) -> None:
    temporary = _beside(target)
    mode = target.stat().st_mode & 0o777 if target.exists() else None
    try:
        # "x": never write through a file or link that somebody else put there
        with temporary.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name[:100]}.{secrets.token_hex(6)}.tmp")


def _refused(path: Path | str, target: Path, error: OSError) -> OutputError:
    """Return what to say of a refusal of the system; a folder that is there may have no room for new files (`/proc`)."""
    missing = isinstance(error, FileNotFoundError)
    if missing and not target.parent.is_dir():
        return OutputError(path, f"the folder {target.parent} does not exist", "create it first")
    return OutputError(
        path, "nothing can be created there" if missing else _reason(error), "choose a place where you may write"
    )


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
