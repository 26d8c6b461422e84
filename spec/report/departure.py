"""The run without the planted fault, and where the run with it departs from it first.

A fault may act long before the action that breaks a law. So both runs begin at the beginning: the same actions, and behind them
what the law's judgement goes on with in each.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import attrs
from attrs import evolve, frozen

from kvproof.core.config import SOUND, Config, Profile
from kvproof.core.errors import ConfigError
from kvproof.core.world import new_world
from kvproof.spec import counterexample as examples
from kvproof.spec import faults
from kvproof.spec import judge as judges
from kvproof.spec.counterexample import Counterexample, fault_of_model
from kvproof.spec.laws.base import Moment
from kvproof.spec.report import follows

CONFIGURATION = -1
"""The runs differ in their configuration already."""


@frozen(slots=True)
class Sound:
    """A run without the planted fault: its ``moments``, and the number of the first that is another one, None if none is.

    Without moments ``why`` says why there is nothing to compare with. ``config`` is that of the sound run.
    """

    config: Config | None = None
    moments: tuple[Moment, ...] = ()
    position: int | None = None
    why: str = ""


def sound(
    example: Counterexample, config: Config, moments: Sequence[Moment], broken: int, *, carried: bool = True
) -> Sound | None:
    """Return the run without the planted fault, None if no fault was planted. The caller plants nothing.

    ``carried``: the law's judgement carried ``moments`` on behind the last action, and so it does with this run.
    """
    if not example.fault:
        return None
    if not fault_of_model(example):
        return Sound(
            why="Nothing is planted in the model for what the tensors broke: all worlds on this page are without the fault."
        )
    mended = without_fault(example)
    try:
        there = example.settings.config(mended.profile)
    except ConfigError as error:
        return Sound(why=f"Without the fault the configuration is refused: {error}.")
    world = new_world(there)
    found: list[Moment] = []
    for action in example.actions:
        found.append(judges.attempt(world, action))
        world = found[-1].after
    further = follows.of(mended, there) if carried else None
    found += () if further is None else further.moments
    if evolve(there, profile=config.profile) != config:
        return Sound(there, tuple(found), CONFIGURATION)
    last = len(moments) if broken == len(moments) else broken
    return Sound(there, tuple(found), _first(moments[:last], found[:last]))


def without_fault(example: Counterexample) -> Counterexample:
    """Return the counterexample as it is to be run without its planted fault. The caller plants nothing.

    What the fault puts into the profile has its sound value again: the field that it is, or one that it writes itself when a
    configuration is resolved, which is known by its coming back when it is taken out. Raises FaultError for an unknown fault.
    """
    planted = fault_of_model(example)
    fault, profile = faults.by_id(planted) if planted else None, example.profile
    if fault is not None and fault.profile is not None:
        profile = _sound(profile, fault.profile[0])
    elif fault is not None:
        with faults.planted(fault), suppress(ConfigError):
            for field in attrs.fields(Profile):
                mended = _sound(profile, field.name)
                if mended != profile and example.settings.config(mended).profile == profile:
                    profile = mended
    return evolve(example, fault="", profile=profile)


def _sound(profile: Profile, field: str) -> Profile:
    return evolve(profile, **{field: getattr(SOUND, field)})


def _first(here: Sequence[Moment], there: Sequence[Moment]) -> int | None:
    """Return the first action that is another one, is answered otherwise or leads to another world."""
    for at, (one, other) in enumerate(zip(here, there, strict=False)):
        if one.action != other.action or examples.outcome_of(one) != examples.outcome_of(other):
            return at
        if evolve(one.after, config=other.after.config) != other.after:
            return at
    return None if len(here) == len(there) else min(len(here), len(there))
