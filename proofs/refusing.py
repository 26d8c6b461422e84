"""Whether a function of the model refuses, for claims: an assert or a message here would confuse CrossHair."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvproof.core.errors import Refusal
from kvproof.core.geometry import GeometryError


def refused(function: Callable[..., object], *arguments: Any, **named: Any) -> bool:
    """Tell whether a call is refused with a typed error of the model."""
    try:
        function(*arguments, **named)
    except (GeometryError, Refusal):
        return True
    return False
