"""What to say of a name that nobody has: the nearest known ones first, then all, or where they are listed."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Protocol, TypeVar

from kvproof.spec.exits import UserError

MOST_NEAR = 3
CLOSE = 0.6


class Named(Protocol):
    """What has a name."""

    @property
    def name(self) -> str:
        """The name."""
        ...


N = TypeVar("N", bound=Named)


def nearest(name: str, known: Sequence[str]) -> list[str]:
    """Return the known names most like a wrong one, the most likely first; upper and lower case do not matter."""
    folded = {own.casefold(): own for own in known}
    return [folded[match] for match in get_close_matches(name.casefold(), list(folded), MOST_NEAR, CLOSE)]


def unknown(what: str, name: str, known: Sequence[str], command: str = "") -> str:
    """Return the message that there is no such name, with the nearest ones, and all or the ``command`` that lists them."""
    close = nearest(name, known)
    asked = f" (did you mean {' or '.join(close)}?)" if close else ""
    rest = f"`{command}` lists the known ones" if command else f"known: {', '.join(known)}"
    return f"no {what} {name!r}{asked}; {rest}"


def named(what: str, name: str, all_of: Sequence[N], command: str = "") -> N:
    """Return the one of this name. Raises UserError that lists the known names, or says which ``command`` does."""
    for one in all_of:
        if one.name == name:
            return one
    raise UserError(unknown(what, name, [one.name for one in all_of], command))
