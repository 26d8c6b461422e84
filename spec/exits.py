"""Exit codes of the command line and the errors that a user can do something about."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """What a command says with its exit status; no other values occur."""

    HOLDS = 0
    ERROR = 1  # usage, unreadable input, unwritable output, or an internal error
    REFUTED = 2  # and nothing else
    UNDETERMINED = 3  # also: worse than a table of expected verdicts


class UserError(Exception):
    """A problem whose message tells the user where it is and what to do; ends a command with exit status 1."""


class CommandEnded(Exception):
    """A command that was run for the user ended with a status of its own, which becomes that of kvproof."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code
