"""The settings of a host tier, one value of the configuration (3.1, 3.5)."""

from __future__ import annotations

from typing import Literal

from attrs import frozen

from kvproof.core import groups as grouping
from kvproof.core.errors import ConfigError
from kvproof.core.groups import MAX_BLOCKS, MAX_ROWS


@frozen(slots=True)
class Offload:
    """A host pool behind the device pool, and how blocks get there.

    ``eager`` stores what is confirmed computed: positionally, by handoffs, and at the end of a request (T24, T26, T27).
    ``lazy`` stores what comes near the front of the device's free queue (T33). ``num_blocks`` counts the host's null block,
    ``workers`` acknowledge each store. Policies of the worker: ``flush`` is where a step that preempted somebody waits for
    running transfers (execute a), ``store_submission`` whether a step's stores begin behind its own forward or when the next
    step begins (execute h). ``hold_loads``: a load waits until the steps that were in flight when it was allocated are
    processed (T36.1). ``resumed``: whether a step names the requests that it resumed before those that go on, or behind them;
    their blocks are stored in that order (T26).
    """

    mode: Literal["eager", "lazy"] = "eager"
    num_blocks: int = 8
    workers: int = 1
    flush: Literal["first", "before_forward"] = "first"
    store_submission: Literal["same_step", "next_step"] = "same_step"
    hold_loads: bool = False
    resumed: Literal["first", "last"] = "first"


CHOICES: dict[str, tuple[object, ...]] = {
    "mode": ("eager", "lazy"),
    "flush": ("first", "before_forward"),
    "store_submission": ("same_step", "next_step"),
    "hold_loads": (False, True),
    "resumed": ("first", "last"),
}


def check(offload: Offload | None, *, caching: bool, defer_block_free: bool, max_steps_in_flight: int) -> None:
    """Refuse settings that cannot work, alone or together. Raises ConfigError."""
    if offload is None:
        return
    if not isinstance(offload, Offload):
        raise ConfigError(f"offload must be an Offload or None, got {offload!r}: write offload=Offload(...), or leave it out")
    grouping.positive("offload.num_blocks", offload.num_blocks, MAX_BLOCKS)
    grouping.positive("offload.workers", offload.workers, MAX_ROWS)
    for name, known in CHOICES.items():
        value = getattr(offload, name)
        if value not in known or type(value) is not type(known[0]):
            raise ConfigError(f"offload.{name} must be one of {known}, got {value!r}")
    if not caching:
        raise ConfigError("a host tier stores keyed blocks: turn prefix caching on (caching=True), or leave offload out")
    if max_steps_in_flight > 1 and not defer_block_free:
        raise ConfigError(
            "with two steps in flight a load could write a block that a dispatched step still writes: a host tier needs "
            "defer_block_free then (COW-3)"
        )
    if offload.hold_loads and not defer_block_free:
        raise ConfigError("hold_loads counts processed steps as deferred frees do: it needs defer_block_free (T36.1)")


def parts(offload: Offload | None) -> tuple[str, ...]:
    """Return the execute sub-phases of a step in their order (T0): without a host tier nothing is waited for or submitted."""
    if offload is None:
        return ("zero", "copy", "load", "precopy", "forward")
    if offload.flush == "first":
        return ("flush", "zero", "copy", "load", "precopy", "forward", "submit")
    return ("zero", "copy", "load", "precopy", "flush", "forward", "submit")
