"""What is not shown cannot be used in any way, and is never taken for something known."""

from __future__ import annotations

import copy
import math
import operator
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from kvproof.core.records import Record
from kvproof.spec.conformance.hidden import USES, Hidden, NotShown, is_hidden, what_of

BINARY = (
    *("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "and_", "xor", "or_"),
    *("eq", "ne", "lt", "le", "gt", "ge"),
)
ONE_USE: dict[str, Callable[[Any], object]] = {
    "hash": hash,
    "bool": bool,
    "not": operator.not_,
    "len": len,
    "length hint": operator.length_hint,
    "iterate": iter,
    "unpack": lambda hidden: (*hidden,),
    "list": list,
    "set": set,
    "dict": dict,
    "next": next,
    "reversed": reversed,
    "sorted": sorted,
    "min": min,
    "sum": sum,
    "any": any,
    "in": lambda hidden: 1 in hidden,
    "member of": lambda hidden: hidden in (1, 2),
    "member of a set": lambda hidden: hidden in {1, 2},
    "item": lambda hidden: hidden[0],
    "slice": lambda hidden: hidden[1:],
    "set item": lambda hidden: operator.setitem(hidden, 0, 1),
    "delete item": lambda hidden: operator.delitem(hidden, 0),
    "index of a list": lambda hidden: [1, 2][hidden],
    "key of a dictionary": lambda hidden: {1: 2}.get(hidden),
    "attribute": lambda hidden: hidden.table,
    "class": lambda hidden: hidden.__class__,
    "getattr with a default": lambda hidden: getattr(hidden, "table", None),
    "hasattr": lambda hidden: hasattr(hidden, "table"),
    "set attribute": lambda hidden: setattr(hidden, "table", 1),
    "delete attribute": lambda hidden: delattr(hidden, "table"),
    "dir": dir,
    "isinstance": lambda hidden: isinstance(hidden, int),
    "int": int,
    "float": float,
    "complex": complex,
    "operator.index": operator.index,
    "range": range,
    "round": round,
    "trunc": math.trunc,
    "floor": math.floor,
    "ceil": math.ceil,
    "str": str,
    "format": format,
    "f-string": lambda hidden: f"{hidden}",
    "bytes": bytes,
    "negative": operator.neg,
    "positive": operator.pos,
    "abs": abs,
    "invert": operator.invert,
    "call": lambda hidden: hidden(),
    "divmod": lambda hidden: divmod(hidden, 2),
    "divmod by": lambda hidden: divmod(2, hidden),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
}


def _operator(name: str, turned: bool = False) -> Callable[[Any], object]:
    function = getattr(operator, name)
    return (lambda hidden: function(2, hidden)) if turned else (lambda hidden: function(hidden, 2))


ONE_USE |= {f"{name} left": _operator(name) for name in BINARY}
ONE_USE |= {f"{name} right": _operator(name, turned=True) for name in BINARY}
IN_PLACE = ("iadd", "isub", "imul", "imatmul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor")
ONE_USE |= {f"{name} in place": _operator(name) for name in IN_PLACE}


@pytest.mark.parametrize("use", ONE_USE.values(), ids=ONE_USE)
def test_every_use_raises_what_is_not_shown(use: Callable[[Any], object]) -> None:
    with pytest.raises(NotShown) as caught:
        use(Hidden("tables"))
    assert caught.value.what == "tables"


def test_every_special_method_of_the_usual_types_refuses() -> None:
    """Nothing that an int, a tuple, a dict, a set, a str or a bool can do is left out."""
    usual = {name for kind in (int, float, tuple, list, dict, set, frozenset, str, bytes, bool, range) for name in dir(kind)}
    made = {"__new__", "__init__", "__init_subclass__", "__subclasshook__", "__class__", "__doc__", "__repr__", "__slots__"}
    kept = made | {"__class_getitem__", "__getformat__", "__getnewargs__", "__alloc__"}
    assert {name for name in usual if name.startswith("__")} - kept <= set(USES)
    for name in USES:
        assert vars(Hidden)[name] is vars(Hidden)["__eq__"], name


def test_two_hidden_values_are_not_the_same_one() -> None:
    """Tuples compare by identity first: a value hidden twice must not look like one that did not change."""
    with pytest.raises(NotShown):
        _ = (Hidden("tables"),) == (Hidden("tables"),)
    with pytest.raises(NotShown):
        _ = Record("Drain", copies=Hidden("copies")) == Record("Drain", copies=Hidden("copies"))  # type: ignore[arg-type]


def test_it_is_no_exception_that_somebody_may_take_for_a_crash() -> None:
    assert not issubclass(NotShown, Exception)


def test_the_two_questions_that_are_answered() -> None:
    hidden = Hidden("host keys")
    assert is_hidden(hidden)
    assert not is_hidden(("host keys",))
    assert what_of(hidden) == "host keys"
    assert repr(hidden) == "<hidden: host keys>"
