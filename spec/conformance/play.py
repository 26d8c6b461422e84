"""Runs of an adapter as players: every action is performed once, and a run that went on otherwise is started anew.

What runs have shown is kept as a tree, one branch for every action at every point. A law that performs the actions of a run
again reads them there; only where it goes another way the adapter is started anew and brought to that point.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import Factory, define, field

from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.errors import ContractBroken
from kvproof.core.world import World, new_world
from kvproof.spec.conformance import certainty
from kvproof.spec.conformance.adapter import Observation
from kvproof.spec.conformance.hidden import Hidden, NotShown, guessed
from kvproof.spec.conformance.isolation import Died, Direct, Isolated
from kvproof.spec.conformance.shadow import Seen, Shadow
from kvproof.spec.laws.base import Moment
from kvproof.spec.report import lines

MOST_POINTS = 20_000
"""So many points are kept; more are forgotten when the next run begins."""


class Crash(ContractBroken):
    """An implementation did not answer an action; the message says how it ended, ``ended`` in one word (LV-9)."""

    code = "crash"


def crash_of(moment: Moment) -> Crash | None:
    """Return the crash that a moment ended with; its refusal may be hidden, and is then none."""
    refusal = moment.refusal
    return refusal if type(refusal) is Crash else None


class Unrepeatable(Exception):
    """An implementation does not do the same again when it is started anew and given the same actions."""


@define(slots=True, eq=False)
class Point:
    """Where a run has come to: the followed world, the moment that led there, what was shown and seen in it.

    ``dead`` says how the implementation ended there; then nothing is performed any more. An action that is refused and changes
    nothing leads to the same ``place``: what was performed behind one was performed behind the other.
    """

    config: Config
    world: World
    before: Point | None = None
    moment: Moment | None = None
    shown: Observation | None = None
    seen: Seen | None = None
    dead: str = ""
    after: dict[Action, Point] = field(factory=dict)
    place: Point = field(default=Factory(lambda self: self, takes_self=True))

    @classmethod
    def refused(cls, point: Point, moment: Moment, shown: Observation, seen: Seen) -> Point:
        """Return the point behind an action that changed nothing."""
        return cls(point.config, point.world, point, moment, shown, seen, after=point.after, place=point.place)

    def way(self) -> list[Point]:
        """Return the points behind the beginning, up to this one, without refused actions that changed nothing."""
        found: list[Point] = []
        point = self.place
        while point.before is not None:
            found.append(point)
            point = point.before.place
        return found[::-1]

    def actions(self) -> tuple[Action, ...]:
        """Return the actions that lead here."""
        return tuple(point.moment.action for point in self.way() if point.moment is not None)


@define(slots=True, eq=False)
class Run:
    """One run of an adapter, a ``Player``."""

    runs: Runs
    point: Point
    strict: bool = False
    """Whether it may not go where only a guess leads."""

    @property
    def world(self) -> World:
        """The followed world, complete."""
        return self.point.world

    @property
    def shown(self) -> World:
        """The world as far as it is shown."""
        moment = self.point.moment
        return self.point.world if moment is None else moment.after

    @property
    def followed(self) -> Moment:
        """The last moment with nothing hidden, for who chooses what to do next."""
        point = self.point
        assert point.moment is not None, "the beginning is no action"
        return point.moment if point.seen is None else point.seen.followed

    def act(self, action: Action) -> Moment:
        """Perform one action. A crash is a refusal of its own kind, and so is everything behind it.

        Raises NotShown if the run is ``strict`` and what comes of the action hangs on what is not shown.
        """
        if self.strict:
            self._refrain(certainty.unsure(self.point.world, action, self.runs.adapter.shows))
        self.point = self.runs.step(self.point, action)
        assert self.point.moment is not None
        if self.strict:
            self._refrain(guessed(self.point.moment))
        return self.point.moment

    @staticmethod
    def _refrain(guess: str) -> None:
        if guess:
            raise NotShown(guess)

    def again(self) -> Run:
        """Return a run that has come to the same point."""
        return Run(self.runs, self.point, self.strict)


@define(slots=True, eq=False)
class Runs:
    """All runs of one adapter; ``follow`` makes the shadow of one that begins. ``performed`` counts actions.

    ``crashes`` are the points where the adapter did not answer. ``shadow`` is that of the run that was performed last.
    """

    adapter: Isolated | Direct
    follow: Callable[[Config], Shadow]
    performed: int = 0
    crashes: list[Point] = field(factory=list)
    shadow: Shadow | None = field(default=None, init=False)
    _roots: dict[Config, Point] = field(factory=dict, init=False)
    _live: Point | None = field(default=None, init=False)
    _points: int = field(default=0, init=False)

    def begin(self, config: Config) -> Run:
        """Begin a run. Raises Unsupported, Died."""
        if self._points > MOST_POINTS:
            self.forget()
        if config not in self._roots:
            self._start(config)
            self._live = self._roots[config] = Point(config, new_world(config))
        return Run(self, self._roots[config])

    def forget(self) -> None:
        """Forget what was shown so far."""
        self._roots.clear()
        self._live = None
        self._points = 0

    def step(self, point: Point, action: Action) -> Point:
        """Return the point behind an action, performed now if it was not before. Raises Unrepeatable."""
        if action not in point.after:
            point.after[action] = self._step(point, action)
            self._points += 1
        return point.after[action]

    def _step(self, point: Point, action: Action) -> Point:
        if point.dead:
            moment = Moment(point.world, action, None, Crash(point.dead), point.world)
            return Point(point.config, point.world, point, moment, dead=point.dead)
        if self._live is not point.place:
            self._return_to(point)
        shadow = self.shadow
        assert shadow is not None, "a run was begun"
        try:
            shown, seen = self._perform(shadow, action)
        except Died as died:
            self._live = None
            words = f"{died.words} {'to' if died.how == 'hung' else 'at'} {lines.action_text(action)}"
            before: Any = Hidden(shadow.guess) if shadow.guess else point.world
            moment = Moment(before, action, None, Crash(words, ended=died.how), point.world)
            dead = Point(point.config, point.world, point, moment, dead=words)
            if not shadow.guess:
                self.crashes.append(dead)
            return dead
        refused = seen.followed.refusal is not None
        if point.before is None and refused and not seen.differences and point.world != shadow.world:
            point.world = shadow.world  # in which order blocks are free in the beginning is seen with the first action
        if refused and shadow.world == point.world:
            return Point.refused(point, seen.moment, shown, seen)
        self._live = Point(point.config, shadow.world, point, seen.moment, shown, seen)
        return self._live

    def _start(self, config: Config) -> None:
        self._live = None
        self.adapter.start(config)
        self.shadow = self.follow(config)

    def _perform(self, shadow: Shadow, action: Action) -> tuple[Observation, Seen]:
        self.performed += 1
        shown = self.adapter.perform(shadow.outward(action))
        return shown, shadow.observe(action, shown)

    def _return_to(self, point: Point) -> None:
        """Start anew and perform the actions that lead to a point; the followed worlds must be the same ones."""
        try:
            self._start(point.config)
            shadow = self.shadow
            assert shadow is not None, "a run was begun"
            for at, known in enumerate(point.way()):
                assert known.moment is not None
                self._perform(shadow, known.moment.action)
                if shadow.world != known.world:
                    action = lines.action_text(known.moment.action)
                    raise Unrepeatable(f"the same {at + 1} actions from the start show something else at {action}")
        except Died as died:
            raise Unrepeatable(f"the same actions from the start end differently: the implementation {died.words}") from died
        self._live = point.place
