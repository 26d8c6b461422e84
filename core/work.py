"""Scratch space of one transition: never part of a world, never outlives the call that made it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attrs import define, field

from kvproof.core import pool as pools

if TYPE_CHECKING:
    from kvproof.core.config import Config
    from kvproof.core.pool import Pool
    from kvproof.core.prefixes import Prefixes


@define(slots=True)
class Work:
    """The pool as it changes, and what the transition has to report.

    ``nodes[i]`` is the prefix node of hash boundary (i+1)H of the request at hand, which knows ``num_tokens`` tokens, of
    which ``computed`` are computed before the chunk at hand. ``checkpoints`` are the (position, column) that the demand of a
    group reserved, NONE twice for no checkpoint; ``relocated`` are (group, block, old column, new column).
    """

    config: Config
    pool: Pool
    prefixes: Prefixes
    request: int
    num_prompt: int
    junction: int
    nodes: Sequence[int]
    zero: list[tuple[int, int]] = field(factory=list)
    copies: list[tuple[int, int, int]] = field(factory=list)
    handoffs: list[tuple[int, int, int, int]] = field(factory=list)
    cached: list[tuple[int, int, int]] = field(factory=list)
    taken: list[int] = field(factory=list)
    adopted: list[int] = field(factory=list)
    num_tokens: int = 0
    computed: int = 0
    checkpoints: dict[int, tuple[int, int]] = field(factory=dict)
    relocated: list[tuple[int, int, int, int]] = field(factory=list)


def take(work: Work, group: int, count: int) -> tuple[int, ...]:
    """Take blocks for a group (T1) and note those that must be zeroed before the step runs (T0 execute b)."""
    work.pool, blocks = pools.take(work.pool, count)
    work.taken.extend(blocks)
    if zeroes(work.config, group):
        work.zero.extend((group, block) for block in blocks)
    return blocks


def zeroes(config: Config, group: int) -> bool:
    """Tell whether new blocks of a group are zeroed: attention ones, in models with a recurrent group (T0 b)."""
    if group in config.recurrent:
        return config.profile.zero_recurrent == "yes"
    return bool(config.recurrent) and group in config.positional


def queue_copy(work: Work, group: int, source: int, destination: int) -> None:
    """Queue a copy-on-write of a whole block (T19, T21.6)."""
    work.copies.append((group, source, destination))
