"""The errors of the trace reader and of replay."""

from __future__ import annotations

from kvproof.spec.exits import UserError


class TraceError(UserError):
    """A recording cannot be read.

    Attributes:
        path: the recording as the caller named it.
        line: 1 for the header, operation `i` stands in line `i + 2`; 0 when the file as a whole is meant.
        what: what is wrong there.
        advice: what to do.
    """

    def __init__(self, path: str, line: int, what: str, advice: str) -> None:
        place = f"{path}:{line}" if line else path
        super().__init__(f"{place}: {what}; {advice}")
        self.path = path
        self.line = line
        self.what = what
        self.advice = advice


class ReplayError(UserError):
    """A recording cannot be replayed: its engine has no profile, or the model does not cover what it contains."""
