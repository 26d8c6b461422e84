"""A pytest plugin: ``--kvproof-record DIR`` records every scheduler of vLLM that the tests make (docs/record.md).

Recordings are named after the tests. It works with ``-p kvproof.spec.recording_plugin`` and where kvproof's own plugin is on;
without the option it does nothing, and imports nothing else of kvproof.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kvproof.spec.recording import Session

OPTION = "--kvproof-record"
SESSION: pytest.StashKey[Session] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("kvproof")
    group.addoption(OPTION, metavar="DIR", default=None, help="record every scheduler of vLLM that the tests make, into DIR")
    group.addoption(
        f"{OPTION}-calls", action="store_true", default=False, help="with the state differences of the nested calls"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Begin to record, if asked. Raises pytest.UsageError if that is impossible."""
    where = config.getoption(OPTION, default=None)
    if where is None:
        return
    from kvproof.spec import recording
    from kvproof.spec.exits import UserError

    try:
        recording.check_vllm()
        recording.check_folder(where)
    except UserError as error:
        raise pytest.UsageError(f"{OPTION}: {error}") from error
    session = recording.Session(where, bool(config.getoption(f"{OPTION}-calls", default=False)))
    session.start()
    config.stash[SESSION] = session


def pytest_unconfigure(config: pytest.Config) -> None:
    """Finish all recordings."""
    session = config.stash.get(SESSION, None)
    if session is not None:
        session.close()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say what was recorded and how to look at it."""
    session = config.stash.get(SESSION, None)
    if session is None:
        return
    session.close()
    where = str(config.getoption(OPTION))
    terminalreporter.section("kvproof recordings")
    for problem in session.problems:
        terminalreporter.write_line(problem)
    for line in told(len(session.files), where):
        terminalreporter.write_line(line)


def told(count: int, where: str) -> list[str]:
    """What to say of so many recordings. Those of worker processes (xdist) are in the folder, too, but not counted."""
    if not count:
        return [f"no scheduler of vLLM was recorded in this process; {where} has those of others, if there are any"]
    return [f"{count} recording{'s' if count > 1 else ''} in {where}; judge them:", f"kvproof replay {where}"]
