"""A run with a host tier and nothing hidden, to take worlds and moments from; and a shadow behind its first action."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.records import Record
from kvproof.core.world import World
from kvproof.spec.conformance.adapter import Shows
from kvproof.spec.conformance.reference import ALL, ModelAdapter
from kvproof.spec.conformance.shadow import Shadow
from kvproof.spec.engines import scopes
from kvproof.spec.laws.base import Moment
from tests.spec.conformance.following import walk

SCOPE = "fa4-m4-n2-host"
CONFIG = scopes.by_name(SCOPE).config()
SUBMIT = act.Submit(0, (0, 1, 0, 1, 1, 0, 0, 1, 1))
NOTHING_ELSE = {"events": ()}


@cache
def moments(scope: str = SCOPE) -> Sequence[Moment]:
    """The moments of a run."""
    return [seen.followed for seen in walk(ModelAdapter(), scope, "e2", 400, laws=()).seen]


def first(true: Callable[[World], object]) -> World:
    """The first world of the run of which something is true."""
    return next(moment.after for moment in moments() if true(moment.after))


def performed(action: type[Action], true: Callable[[Record], object] = lambda _: True) -> tuple[Moment, Record]:
    """The first moment of an action that was performed and of whose record something is true, and the record."""
    return next(
        (one, one.record) for one in moments() if isinstance(one.action, action) and one.record is not None and true(one.record)
    )


def followed(shows: Iterable[Shows] = ALL) -> tuple[ModelAdapter, Shadow]:
    """An adapter and a shadow behind the submission of one request."""
    adapter = ModelAdapter(shows=frozenset(shows))
    adapter.start(CONFIG)
    follower = Shadow(CONFIG, adapter.shows)
    follower.observe(SUBMIT, adapter.perform(SUBMIT))
    return adapter, follower
