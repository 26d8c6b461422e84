"""Drivers of tests of recurrent groups: configurations, what blocks really hold, and keys that lie."""

from __future__ import annotations

from typing import Any

from kvproof.core.config import Config, Group, configure
from kvproof.core.records import Record
from kvproof.core.world import World
from tests.driving import Driver

FULL, MAMBA = "full_attention", "mamba_align"


def hybrid(attention: int, mamba: int, spare: int = 0, **settings: Any) -> Config:
    """One full-attention group and one Mamba-align group with speculative blocks."""
    defaults: dict[str, Any] = {"num_blocks": 40}
    return configure((Group(FULL, attention), Group(MAMBA, mamba, speculative_blocks=spare)), **(defaults | settings))


def last(driver: Driver, action: str) -> Record:
    """The newest record of an action."""
    return next(record for record in reversed(driver.records) if record.action == action)


def held(world: World, block: int) -> int:
    """How many tokens the recurrent state in a block stands for; -1 unwritten, -2 garbage."""
    cells = world.contents[block][1:]
    assert len(set(cells)) == 1
    return world.prefixes.depth[cells[0]] if cells[0] >= 0 else cells[0]


def false_keys(world: World) -> list[tuple[int, int, int]]:
    """(block, boundary its key promises, boundary of the state it holds) of every recurrent key that lies (CC-3)."""
    return [
        (block, world.prefixes.depth[node], held(world, block))
        for node, group, _, block in world.pool.entries
        if group in world.config.recurrent and set(world.contents[block][1:]) != {node}
    ]


def checkpointing(attention: int = 64, mamba: int = 64, spare: int = 0, **settings: Any) -> Driver:
    """FA64, Mamba64, H=16 and a backend that exports checkpoints at multiples of 16 tokens from the start of a chunk."""
    defaults: dict[str, Any] = {"hash_block_size": 16, "checkpoint_alignment": 16}
    return Driver(hybrid(attention, mamba, spare, **(defaults | settings)))


def reserved(driver: Driver, request: int = 0) -> tuple[int, int]:
    """(position, column) that the last demand of a request reserved."""
    state = driver.request(request).groups[1]
    return state.checkpoint_position, state.checkpoint_column
