"""Twin runs: the same actions under a second configuration, compared on the scheduler's side (DS-8, DS-9).

What the scheduler decides are the records, the requests with their tables, the pool with its keys and free queue, the plan, the
frees that wait, and the host side but for its contents. Contents, rows and which states the worker reads are the worker's side
and are not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from attrs import evolve, has

from kvproof.core import config as configs
from kvproof.core.actions import Action, AppendRows
from kvproof.core.config import Config
from kvproof.spec.engines import players
from kvproof.spec.laws.base import Evidence, Moment


def moments(config: Config, actions: Sequence[Action], start: players.Start = players.model) -> Iterator[Moment]:
    """Yield every action of a run from the initial world, refused ones included."""
    player = start(config)
    for action in actions:
        yield player.act(action)


def reconfigured(config: Config, **changes: Any) -> Config:
    """Return the configuration with other groups, ranks, ... and everything else, H included, as it is.

    Raises ConfigError if that is not a legal configuration.
    """
    return configs.reconfigure(config, **changes)


def scheduler_side(moment: Moment) -> tuple[tuple[str, object], ...]:
    """Return what the scheduler decided and holds after one action, by name."""
    decided: object
    if moment.record is not None:
        decided = evolve(moment.record, reads=(), branches=(), local_lengths=())
    else:
        decided = moment.refusal.code if moment.refusal is not None else None
    after = moment.after
    return (
        ("record", decided),
        ("requests", after.requests),
        ("pool", after.pool),
        ("plan", after.plan),
        ("phase", after.phase),
        ("frees", (after.deferred, after.issued, after.processed)),
        ("host", None if after.host is None else evolve(after.host, contents=())),
    )


def narrowed(one: object, other: object, place: str) -> tuple[str, object, object]:
    """Descend into two different values to the first part that differs; return its place and the two parts."""
    if type(one) is type(other):
        for attribute in getattr(type(one), "__attrs_attrs__", ()):
            left, right = getattr(one, attribute.name), getattr(other, attribute.name)
            if left != right:
                return narrowed(left, right, f"{place}.{attribute.name}")
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            if left != right and (has(type(left)) or isinstance(left, tuple)):
                return narrowed(left, right, f"{place}[{index}]")
    return place, one, other


def first_difference(
    config: Config, twin: Config, actions: Sequence[Action], start: players.Start = players.model
) -> Evidence | None:
    """Return the first action after which the two runs differ on the scheduler's side, None if there is none.

    Direct use of the row table is left out: rows belong to the worker, and their widths follow the ranks.
    """
    actions = [action for action in actions if not isinstance(action, AppendRows)]
    # One run after the other: an implementation cannot run twice at once.
    runs = zip(list(moments(config, actions, start)), moments(twin, actions, start), strict=True)
    for position, (left, right) in enumerate(runs):
        for (name, one), (_, other) in zip(scheduler_side(left), scheduler_side(right), strict=True):
            if one != other:
                place, here, there = narrowed(one, other, name)
                return Evidence.of(
                    "the scheduler's side differs between the twins",
                    action=position,
                    kind=type(left.action).__name__,
                    differs=place,
                    here=here,
                    twin=there,
                )
    return None
