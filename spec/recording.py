"""Record every scheduler of vLLM that is made inside a block of code, in the public format (docs/record.md)."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvproof.spec.exits import UserError
from kvproof.spec.vllm.child import starting
from kvproof.spec.vllm.child.starting import Session

__all__ = ["NoVllm", "RecordingError", "Session", "recording"]


class RecordingError(UserError):
    """Recordings cannot be made; the message says what to do."""


class NoVllm(RecordingError):
    """This Python has no vLLM to record."""


@contextmanager
def recording(where: str | os.PathLike[str], *, call_states: bool = False) -> Iterator[Session]:
    """Record every ``Scheduler`` constructed inside, each into a file of its own; afterwards all files are complete.

    Args:
        where: a folder, made if it is not there, or the file of the first scheduler (``.ndjson.gz`` or ``.ndjson``).
        call_states: give every nested call its state difference, so that a judge sees the state inside a step.

    Yields:
        What is recorded: ``files`` so far, and ``problems``, why a scheduler was not recorded or not to its end.

    Raises:
        NoVllm: there is no vLLM to import.
        RecordingError: the folder cannot be written.
    """
    check_vllm()
    check_folder(where)
    with starting.session(where, call_states) as session:
        yield session


def check_vllm() -> None:
    """Raise NoVllm if this Python cannot import vLLM."""
    try:
        found = importlib.util.find_spec("vllm")
    except ValueError:  # a module without a specification stands in sys.modules: somebody's stand-in
        return
    if found is None:
        raise NoVllm(
            "there is no vLLM to record: this Python cannot import it; install it here, or put a checkout or an unpacked "
            "release on PYTHONPATH"
        )


def check_folder(where: str | os.PathLike[str]) -> None:
    """Make the folder of recordings. Raises RecordingError if it cannot be written."""
    path = Path(where)
    folder = path.parent if path.name.endswith(starting.ENDINGS) else path
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordingError(
            f"{folder} cannot be made ({(error.strerror or str(error)).lower()}): name another folder"
        ) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise RecordingError(f"{folder} cannot be written: name another folder")
