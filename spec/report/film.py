"""A counterexample frame by frame: after every action what each block of both tiers is, in words that a reader can use.

The actions are run again, with the planted fault if there was one; what an implementation did is shown by the model's worlds
(``docs/reports.md``). Behind them stand those that the law's judgement goes on with (``follows``). Of long runs and large pools
a part is kept (``window``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext

from attrs import evolve, frozen

from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.errors import ConfigError
from kvproof.core.world import World, new_world
from kvproof.spec import faults
from kvproof.spec import judge as judges
from kvproof.spec.counterexample import Counterexample, CounterexampleError, fault_of_model
from kvproof.spec.exits import UserError
from kvproof.spec.laws.base import Moment
from kvproof.spec.report import departure, follows, window
from kvproof.spec.report.blocks import PHASES as PHASES
from kvproof.spec.report.blocks import Block as Block
from kvproof.spec.report.blocks import Claim as Claim
from kvproof.spec.report.blocks import Frame as Frame
from kvproof.spec.report.blocks import Owner as Owner
from kvproof.spec.report.blocks import Tier as Tier
from kvproof.spec.report.blocks import block_name as block_name
from kvproof.spec.report.blocks import frame_of as frame_of
from kvproof.spec.report.blocks import said_of as said_of
from kvproof.spec.report.departure import Sound
from kvproof.spec.report.follows import Continuation
from kvproof.spec.report.names import Names as Names
from kvproof.spec.report.window import Row, Window

FEW = 8
"""Worlds that are shown on each side of the violation however much there is in them."""


@frozen(slots=True)
class Film:
    """The worlds of a counterexample with the moments between them; world n lies behind n actions, world 0 is the beginning.

    ``frames`` are those that the window shows, of the blocks that it shows. The law is broken in world ``broken``. Of the
    moments the first ``told`` are the actions of the counterexample, the others what ``follows`` by the law's judgement.
    ``sound`` is the run without the planted fault, None where there is none to compare with. ``breaks`` is false where the law
    of the counterexample does not break here.
    """

    config: Config
    frames: tuple[Frame, ...]
    moments: tuple[Moment, ...]
    names: Names
    window: Window
    broken: int
    told: int
    breaks: bool = True
    follows: Continuation | None = None
    sound: Sound | None = None

    @property
    def own(self) -> tuple[Moment, ...]:
        """The moments of the counterexample itself."""
        return self.moments[: self.told]

    @property
    def worlds(self) -> list[World]:
        """All worlds, the beginning first."""
        return _worlds(self.config, self.moments)

    def frame(self, number: int) -> Frame:
        """Return the frame of a world that the window shows."""
        return self.frames[number - self.window.first]

    def shorter(self) -> Film:
        """Return the film with half of the worlds before the violation, and few behind it; itself if there is none to spare."""
        first, last = self.window.first, self.window.last
        before, behind = self.broken - first, min(last, self.broken + FEW)
        if before <= FEW and behind == last:
            return self
        first = self.broken - min(before, max(before // 2, FEW))
        frames = self.frames[first - self.window.first : behind + 1 - self.window.first]
        return evolve(self, frames=frames, window=evolve(self.window, first=first, last=behind))

    def names_in(self, number: int) -> Names:
        """Return what everything is called in a world."""
        return self.names if number == len(self.moments) else Names.behind(self.moments[:number])

    def label(self, position: int) -> str:
        """Return how an action is numbered: those that follow the counterexample are +1, +2, ..."""
        return str(position) if position < self.told else f"+{position - self.told + 1}"


class NoWorld(UserError):
    """The configuration is refused, so that there is no world to look at."""


def violation_of(example: Counterexample) -> int:
    """Return in which world the law is broken, as far as the actions tell: behind the action, or behind the last one."""
    return example.position + 1 if example.position >= 0 else len(example.actions)


def shoot(example: Counterexample, *, breaks: bool = True) -> Film:
    """Run a counterexample again and look at its worlds.

    ``breaks``: its evidence is what its law gives here, or not for the model to give; else nothing follows its actions.
    Raises CounterexampleError for what cannot be run, NoWorld if its configuration is refused.
    """
    try:
        fault = fault_of_model(example)
        planted = faults.planted(faults.by_id(fault)) if fault else nullcontext()
    except faults.FaultError as error:
        raise CounterexampleError(str(error)) from error
    with planted:
        try:
            config = example.settings.config(example.profile)
        except ConfigError as error:
            raise NoWorld(f"the configuration is refused: {error}") from error
        moments = played(config, example.actions)
        found = follows.of(example, config) if breaks else None
    if found is not None:
        moments += found.moments
        names = Names.behind(moments)
        left = follows.left_open(example, found, moments[-1].after, names)
        found = evolve(found, left=left)
    broken = len(moments) if found is not None else violation_of(example)
    made = film(config, moments, broken, [(tier, block) for tier, block, _ in window.named(example)])
    sound = departure.sound(example, config, moments, broken, carried=found is not None)
    return evolve(made, told=len(example.actions), breaks=breaks, follows=found, sound=sound)


def played(config: Config, actions: Sequence[Action]) -> list[Moment]:
    """Return what comes of actions, the refused ones included."""
    world = new_world(config)
    moments: list[Moment] = []
    for action in actions:
        moments.append(judges.attempt(world, action))
        world = moments[-1].after
    return moments


def film(config: Config, moments: Sequence[Moment], broken: int | None = None, first: Iterable[Row] = ()) -> Film:
    """Return the frames of a run of the model; without a violation the last world is what the reader looks for."""
    number = len(moments) if broken is None else broken
    worlds = _worlds(config, moments)
    wrong = window.wrong(worlds[number], moments[:number])
    shown = window.of(worlds, number, (*first, *wrong))
    rows = set(shown.rows)
    names = Names()
    frames = []
    for at, world in enumerate(worlds[: shown.last + 1]):
        if at:
            names.see(moments[at - 1])
        if at >= shown.first:
            frames.append(frame_of(world, at - 1, names, rows))
    for moment in moments[shown.last :]:
        names.see(moment)
    return Film(config, tuple(frames), tuple(moments), names, shown, number, len(moments))


def _worlds(config: Config, moments: Sequence[Moment]) -> list[World]:
    return [moments[0].before if moments else new_world(config), *(moment.after for moment in moments)]
