"""What is wrong in a deployment file, in words: with the place as the file writes it and with what may stand there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Struct

from kvproof.spec import near
from kvproof.spec.deployments import schema
from kvproof.spec.deployments.schema import Deployment

ENUM = re.compile(r"Invalid (?:enum )?value (.*)$", re.DOTALL)
UNKNOWN = re.compile(r"Object contains unknown field `(.*)`$", re.DOTALL)
PLACE = re.compile(r"^(?P<what>.*?)(?: - at `\$(?P<path>[^`]*)`)?$", re.DOTALL)
STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")


def in_words(error: msgspec.ValidationError, wrapped: Any) -> str:
    """Return what is wrong and where; ``wrapped`` is the data with its bare values written out, as it was read."""
    match = PLACE.match(str(error))
    assert match is not None, "every text has a place or none"
    what, path = match["what"], match["path"] or ""
    steps = [name or int(number) for name, number in STEP.findall(path)]
    expected = list(_expected(Deployment, steps))
    wrong, field = ENUM.match(what), UNKNOWN.match(what)
    if wrong is not None:
        what = _none_of(wrong[1], expected)
    elif field is not None:
        fields = [item.encode_name for known in expected for item in _fields(known)]
        what = near.unknown("field", field[1], list(dict.fromkeys(fields))) if fields else what
    place = _as_written(path, steps, wrapped)
    return f"{place}: {what}" if place else what


def nearest(name: str, known: Sequence[str]) -> str:
    """Return a question after the known names that begin like a wrong one or resemble it; nothing if none does."""
    begin = [own for own in known if name and own.startswith(name.casefold())]
    close = list(dict.fromkeys([*begin, *near.nearest(name, known)]))
    return f" (did you mean {' or '.join(close)}?)" if close else ""


def _none_of(value: str, expected: Sequence[Any]) -> str:
    allowed: list[str] = []
    for known in expected:
        if get_origin(known) is Literal:
            allowed += [str(name) for name in get_args(known)]
        elif known is int:
            allowed.append("a number")
        elif isinstance(known, type) and issubclass(known, Struct):
            allowed += [str(tag) for tag in [known.__struct_config__.tag] if tag is not None]
    known_ones = list(dict.fromkeys(allowed))
    if len(known_ones) == 1:
        return f"{value} is not {known_ones[0]}, which is all that is known"
    return f"{value} is not one of {', '.join(known_ones)}{nearest(value.strip(chr(39)), known_ones)}"


def _as_written(path: str, steps: Sequence[str | int], wrapped: Any) -> str:
    """Return a path without the ``value`` of a bare number, which the file does not write."""
    inside = wrapped
    try:
        for step in steps[:-1]:
            inside = inside[step]
    except (KeyError, IndexError, TypeError):
        return path.removeprefix(".")
    bare = isinstance(inside, dict) and inside.get("assumed") == schema.WITHOUT_SOURCE and steps[-1:] == ["value"]
    return (path.removesuffix(".value") if bare else path).removeprefix(".")


def _expected(kind: Any, steps: Sequence[str | int]) -> Iterable[Any]:
    """Yield the types that may stand at a path below a type."""
    if get_origin(kind) is Annotated:
        yield from _expected(get_args(kind)[0], steps)
    elif get_origin(kind) is tuple:
        yield from _expected(get_args(kind)[0], steps[1:]) if steps else [kind]
    elif get_origin(kind) is dict:
        yield from _expected(get_args(kind)[1], steps[1:]) if steps else [kind]
    elif get_args(kind) and get_origin(kind) is not Literal:
        for inner in get_args(kind):
            yield from _expected(inner, steps)
    elif not steps:
        yield kind
    else:
        for item in _fields(kind):
            if item.encode_name == steps[0]:
                yield from _expected(item.type, steps[1:])
        if steps == ["kind"] and isinstance(kind, type) and issubclass(kind, Struct) and kind.__struct_config__.tag:
            yield kind


def _fields(kind: Any) -> Iterable[Any]:
    return msgspec.structs.fields(kind) if isinstance(kind, type) and issubclass(kind, Struct) else ()
