"""Trying an action and saying what came of it: a record, a refusal, or a crash, which is a broken contract (LV-9)."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path

from kvproof.core import step as door
from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.errors import ContractBroken, Refusal
from kvproof.core.world import World, new_world
from kvproof.spec.laws.base import Moment


def played(config: Config, actions: Sequence[Action]) -> World:
    """Return the world that actions lead to from the new one; refused ones leave behind what they leave."""
    world = new_world(config)
    for action in actions:
        world = attempt(world, action).after
    return world


def attempt(world: World, action: Action) -> Moment:
    """Try an action and describe what came of it. A crash is a broken contract: a verdict, not an end (LV-9)."""
    try:
        after, record = door.step(world, action)
    except Refusal as refusal:
        return Moment(world, action, None, refusal, refusal.world if refusal.world is not None else world)
    except Exception as error:
        return Moment(world, action, None, ContractBroken(f"crashed with {describe_crash(error)}"), world)
    return Moment(world, action, record, None, after)


def describe_crash(error: Exception) -> str:
    """Return type and text of an exception and where in the package it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {'/'.join(Path(frames[-1].filename).parts[-2:])}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""
    return f"{type(error).__name__}: {error}{place}"
