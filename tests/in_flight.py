"""Drivers of tests with two steps in flight: configurations, and whole plans and steps as one call."""

from __future__ import annotations

from typing import Any

from kvproof.core import actions as act
from kvproof.core import errors
from kvproof.core.config import Config, Group, configure
from kvproof.core.step import refusal
from kvproof.spec import macros
from tests.driving import Driver

FULL, MAMBA = "full_attention", "mamba_align"


def attention(block_size: int = 16, **settings: Any) -> Config:
    """One full-attention group, two steps in flight."""
    defaults: dict[str, Any] = {"num_blocks": 40, "max_model_len": 256, "max_steps_in_flight": 2}
    return configure((Group(FULL, block_size),), **(defaults | settings))


def hybrid(full: int, mamba: int, **settings: Any) -> Config:
    """A full-attention and a Mamba-align group, two steps in flight."""
    defaults: dict[str, Any] = {"num_blocks": 40, "max_model_len": 256, "max_steps_in_flight": 2}
    return configure((Group(FULL, full), Group(MAMBA, mamba)), **(defaults | settings))


def dispatch(driver: Driver, *actions: act.Action) -> None:
    """Open a plan, do this in it, and dispatch it."""
    driver.do(act.BeginStep(), *actions, *macros.CLOSE)


def admit(driver: Driver, request: int, amount: int, local: int = 0) -> None:
    """Dispatch a plan that admits one request."""
    dispatch(driver, *macros.admit(request, amount, local))


def run(driver: Driver) -> None:
    """Execute the oldest step that is not executed."""
    driver.do(*macros.EXECUTE)


def refused(driver: Driver, action: act.Action) -> type[errors.Refusal] | None:
    """The type of the refusal of an action, None if it is legal."""
    found = refusal(driver.world, action)
    return None if found is None else type(found)


def free_blocks(driver: Driver) -> list[int]:
    """The free queue."""
    return list(driver.world.pool.free)
