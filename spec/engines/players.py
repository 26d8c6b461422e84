"""Who performs actions: the model, or in its place an implementation under test (``conformance``).

The laws that run actions again (under another configuration, to quiet, once more) do it through a player, so that they judge an
implementation as they judge the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from attrs import Factory, define

from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.world import World, new_world

if TYPE_CHECKING:
    from kvproof.spec.laws.base import Moment


class Player(Protocol):
    """A run under way. ``world`` is complete: what may be done next is read off it; ``shown`` is what laws may look at."""

    @property
    def world(self) -> World:
        """The world that the run has come to."""
        ...

    @property
    def shown(self) -> World:
        """The same world as far as it is shown; what is hidden says so when it is used."""
        ...

    def act(self, action: Action) -> Moment:
        """Perform one action and describe what came of it."""
        ...

    def again(self) -> Player:
        """Return a run that has come to the same point; this one is not to be continued any more."""
        ...


Start = Callable[[Config], Player]
"""Begins a run under a configuration."""


@define(slots=True)
class Model:
    """The model as a player."""

    world: World

    @property
    def shown(self) -> World:
        """The world: the model hides nothing."""
        return self.world

    def act(self, action: Action) -> Moment:
        """Perform one action."""
        from kvproof.spec import judge  # it needs the laws, and some of them need players

        moment = judge.attempt(self.world, action)
        self.world = moment.after
        return moment

    def again(self) -> Model:
        """Return a run at the same world."""
        return Model(self.world)


def model(config: Config) -> Player:
    """Begin a run of the model."""
    return Model(new_world(config))


@define(slots=True)
class Known:
    """A world that runs of the model came to, and what came of the actions that were done there."""

    world: World
    done: dict[Action, tuple[Moment, Known]] = Factory(dict)


@define(slots=True)
class Sharer:
    """The model as a player that does an action only where no run that it shares with did the same there."""

    known: Known

    @property
    def world(self) -> World:
        """The world that the run has come to."""
        return self.known.world

    @property
    def shown(self) -> World:
        """The world: the model hides nothing."""
        return self.known.world

    def act(self, action: Action) -> Moment:
        """Perform one action, or remember what came of it."""
        found = self.known.done.get(action)
        if found is None:
            moment = Model(self.known.world).act(action)
            found = self.known.done[action] = (moment, Known(moment.after))
        moment, self.known = found
        return moment

    def again(self) -> Sharer:
        """Return a run at the same world."""
        return Sharer(self.known)


@define(slots=True)
class Shared:
    """Begins runs of the model that share what they have in common: laws that look at a whole run mostly run the same actions.

    The model is deterministic, so that nothing but time depends on it. An implementation under test never shares runs.
    """

    beginnings: list[tuple[Config, Known]] = Factory(list)

    def __call__(self, config: Config) -> Player:
        """Begin a run, with what earlier ones under an equal configuration have done."""
        for other, known in self.beginnings:
            if other is config or other == config:
                return Sharer(known)
        known = Known(new_world(config))
        self.beginnings.append((config, known))
        return Sharer(known)


def played(start: Start, config: Config, actions: Sequence[Action]) -> Player:
    """Return the run that actions lead to from the beginning; refused ones leave behind what they leave."""
    player = start(config)
    for action in actions:
        player.act(action)
    return player
