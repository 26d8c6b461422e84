"""What an adapter does not show: a value that says so at every use, so that no law can pass by looking past it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, cast

if TYPE_CHECKING:
    from kvproof.spec.laws.base import Moment


class NotShown(BaseException):
    """A law used something that the implementation does not show.

    No error, and no ``Exception``: nothing on the way may take it for a crash (``judge.attempt`` does that with exceptions).
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class Hidden:
    """A value that is not shown. Every use raises ``NotShown``; only ``repr`` answers, for debugging.

    ``is`` cannot raise. Two parts that are hidden therefore never share one of these, so that nobody takes them for equal.
    """

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        object.__setattr__(self, "_what", what)

    def __repr__(self) -> str:
        return f"<hidden: {object.__getattribute__(self, '_what')}>"


def what_of(hidden: Hidden) -> str:
    """Return the name of what is hidden."""
    return cast(str, object.__getattribute__(hidden, "_what"))


def guessed(moment: Moment) -> str:
    """Return what is not shown without which a moment is nothing but a guess, empty if it is none."""
    before: object = moment.before
    return what_of(before) if type(before) is Hidden else ""


def is_hidden(value: object) -> bool:
    """Tell whether a value is hidden, without using it."""
    return type(value) is Hidden


def _refuse(self: Hidden, *args: object, **kwargs: object) -> NoReturn:
    del args, kwargs
    raise NotShown(what_of(self))


USES: tuple[str, ...] = (
    *("__getattribute__", "__setattr__", "__delattr__", "__dir__", "__str__", "__format__", "__bytes__"),
    *("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__bool__"),
    *("__len__", "__length_hint__", "__getitem__", "__setitem__", "__delitem__", "__contains__", "__iter__", "__next__"),
    *("__reversed__", "__call__", "__enter__", "__exit__", "__await__", "__aiter__", "__anext__", "__aenter__", "__aexit__"),
    *("__int__", "__float__", "__complex__", "__index__", "__round__", "__trunc__", "__floor__", "__ceil__"),
    *("__neg__", "__pos__", "__abs__", "__invert__"),
    *(
        f"__{side}{name}__"
        for name in (
            *("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "divmod", "pow"),
            *("lshift", "rshift", "and", "xor", "or"),
        )
        for side in ("", "r", *(() if name == "divmod" else ("i",)))
    ),
    *("__copy__", "__deepcopy__", "__reduce__", "__reduce_ex__", "__getstate__", "__sizeof__", "__instancecheck__"),
    "__fspath__",
)
"""The special methods that refuse."""

for _name in USES:
    setattr(Hidden, _name, _refuse)
