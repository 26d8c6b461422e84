"""Long lists of alike cases: a part of them in `make test`, all of them in `make deep`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest
from _pytest.mark.structures import ParameterSet

T = TypeVar("T")


def each(every: int, cases: Sequence[T], name: Callable[[T], str] = str) -> list[ParameterSet]:
    """Return all cases as parameters; all but each ``every``-th one, the first among them, are `deep`.

    A case that is a tuple is several parameters.
    """
    return [
        pytest.param(*_values(case), id=name(case), marks=() if at % every == 0 else pytest.mark.deep)
        for at, case in enumerate(cases)
    ]


def _values(case: Any) -> tuple[Any, ...]:
    return case if type(case) is tuple else (case,)
