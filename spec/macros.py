"""Named macros that expand to actions: engines and tests may use them, records and counterexamples hold actions (T0)."""

from __future__ import annotations

from collections.abc import Iterable

from kvproof.core import actions as act
from kvproof.core import execute
from kvproof.core.actions import Action
from kvproof.core.config import Config

CLOSE: tuple[Action, ...] = (act.Drain(), act.BuildMetadata(), act.Dispatch())
"""Close the open plan and dispatch it."""

EXECUTE: tuple[Action, ...] = tuple(act.Execute(part) for part in execute.PARTS)
"""Run every execute sub-phase of the oldest step, in a configuration without a host tier."""


def execution(config: Config) -> tuple[Action, ...]:
    """Run every execute sub-phase of the oldest step: with a host tier they include ``flush`` and ``submit`` (T0)."""
    return tuple(act.Execute(part) for part in config.parts)


def admit(request: int, new_tokens: int, local: int = 0, external: int = 0) -> tuple[Action, ...]:
    """Look a waiting request up and allocate for it."""
    return (act.Lookup(request), act.Allocate(request, new_tokens, local, external))


def decode(request: int, *drafts: int) -> tuple[Action, ...]:
    """Plan the last token of a running request, and drafts behind it (T36)."""
    return (act.Allocate(request, 1 + len(drafts), drafts=drafts),)


def deliver(outputs: Iterable[tuple[int, tuple[int, ...]]]) -> tuple[Action, ...]:
    """Process outputs of the oldest step: (request, accepted drafts and one sampled token) each."""
    return tuple(act.Output(request, tokens) for request, tokens in outputs)


def run(outputs: Iterable[tuple[int, tuple[int, ...]]], config: Config | None = None) -> tuple[Action, ...]:
    """Close the open plan, execute the step, and process its outputs: (request, sampled tokens) each.

    Name the ``config`` if it has a host tier: its steps have more sub-phases. With a second step in flight use the three
    parts one by one: ``CLOSE``, :func:`execution` and :func:`deliver`.
    """
    return (*CLOSE, *(EXECUTE if config is None else execution(config)), *deliver(outputs))
