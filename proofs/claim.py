"""What a claim is: a function whose asserts CrossHair confirms over all paths, and what it is about.

In each claim the leading asserts are its preconditions, the assignments call real functions of `kvproof.core`, and the asserts
behind them are what is claimed. Its docstring is the sentence that the page of verified properties prints.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

from attrs import frozen

F = TypeVar("F", bound=Callable[..., None])

Sizes = Literal["all", "grid", "shape"]
"""For which sizes a claim speaks.

``all`` integers that its preconditions allow; a stated ``grid`` of some, beside others that are free; or a ``shape``, so many
blocks and requests, with any contents.
"""

ATTRIBUTE = "__about__"


@frozen(slots=True)
class About:
    """What a claim is about.

    ``of`` are the functions of the model that it calls. ``bounds`` says in words what the sizes are. ``laws`` are those
    that it says something of; those in ``settles`` it states as a whole, as far as the sizes go. A ``deep`` claim takes too
    long for a quick run.
    """

    of: tuple[Callable[..., object], ...]
    sizes: Sizes
    bounds: str
    laws: tuple[str, ...] = ()
    settles: tuple[str, ...] = ()
    deep: bool = False


def claim(
    *of: Callable[..., object],
    sizes: Sizes = "all",
    bounds: str,
    laws: tuple[str, ...] = (),
    settles: tuple[str, ...] = (),
    deep: bool = False,
) -> Callable[[F], F]:
    """Say what a claim is about (see `About`)."""
    if not of or not bounds:
        raise ValueError("a claim names the functions that it is about, and its bounds")

    def marked(function: F) -> F:
        setattr(
            function,
            ATTRIBUTE,
            About(of, sizes, bounds, (*settles, *(law for law in laws if law not in settles)), settles, deep),
        )
        return function

    return marked


def about(function: Callable[..., object]) -> About:
    """Return what a claim is about. Raises TypeError for a function that is none."""
    found = getattr(function, ATTRIBUTE, None)
    if not isinstance(found, About):
        name = getattr(function, "__name__", function)
        raise TypeError(f"{name} has an assert and is no claim: say what it is about (kvproof.proofs.claim)")
    return found


def sentence(function: Callable[..., object]) -> str:
    """Return the sentence of a claim: its docstring on one line."""
    return " ".join((function.__doc__ or "").split())
