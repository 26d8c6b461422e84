"""Worlds with one thing changed, for every field of every class in them, after the tables of ``renaming``."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from random import Random
from typing import Any

from attrs import evolve, fields

from kvproof.core.pool import Pool
from kvproof.core.world import World
from tests.spec.exploring import renaming
from tests.spec.exploring.renaming import DevicePool, Each, Fixed, HostPool, Maybe, Ordered, Placed, Rename, Row, Whole

Place = tuple[type[Any], str]
Change = tuple[Place, Any]


def changed(world: World, random: Random) -> Iterator[tuple[Place, World]]:
    """Yield worlds that differ in one thing, each with the class and the field in which they do."""
    yield from _of_class(world, World, random)


def _of_class(value: Any, kind: type[Any], random: Random) -> Iterator[tuple[Place, Any]]:
    for name, spec in renaming.table_of(kind).items():
        for place, other in _of(getattr(value, name), spec, (kind, name), random):
            yield place, evolve(value, **{name: other})


def _of(value: Any, spec: Rename, place: Place, random: Random) -> Iterator[Change]:
    """Yield what can stand in place of a value."""
    if isinstance(spec, Whole):
        yield from _of_class(value, spec.kind, random)
    elif isinstance(spec, Maybe):
        if value is not None:
            yield place, None
            yield from _of(value, spec.one, place, random)
    elif isinstance(spec, Each | Placed):
        yield from _of_list(value, spec, place, random)
    elif isinstance(spec, Row):
        for at, item in enumerate(value):
            for inner, other in _of(item, spec.column(at), place, random):
                yield inner, (*value[:at], other, *value[at + 1 :])
    elif spec is renaming.cells:
        if value:
            yield place, ()
            at = random.randrange(len(value))
            yield place, (*value[:at], value[at] + random.choice((-1, 1)), *value[at + 1 :])
    else:
        yield from ((place, other) for other in _scalars(value))


def _of_list(value: tuple[Any, ...], spec: Each | Placed, place: Place, random: Random) -> Iterator[Change]:
    lists = isinstance(spec, Each) and not isinstance(spec, Fixed)
    if value and lists:
        yield place, value[:-1]
        if not isinstance(spec, Ordered):
            yield place, (*value, value[random.randrange(len(value))])
            yield place, value[::-1]
    if value:
        at = random.randrange(len(value))
        for inner, other in _of(value[at], spec.one, place, random):
            found = (*value[:at], other, *value[at + 1 :])
            yield inner, tuple(sorted(set(found))) if isinstance(spec, Ordered) else found


def _scalars(value: Any) -> Iterator[Any]:
    """Yield values near another one."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, IntEnum):
        yield from (other for other in type(value) if other is not value)
    elif isinstance(value, int):
        yield from (other for other in (value + 1, value - 1) if other >= -1)


def every_place() -> set[Place]:
    """Return every field of every class of a world."""
    found = set()
    for kind in renaming.WORLD:
        stands_for = Pool if kind in (DevicePool, HostPool) else kind
        found |= {(kind, one.name) for one in fields(stands_for)}
    return found
