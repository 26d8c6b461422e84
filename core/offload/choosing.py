"""What the store side of one action chose: three parallel lists, and the pools as they change (IP-1). Scratch space."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, evolve, field

from kvproof.core import pool as pools
from kvproof.core.offload import admission
from kvproof.core.offload.state import Host, Meta

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvproof.core.config import Config
    from kvproof.core.offload.admission import Admission
    from kvproof.core.pool import Pool
    from kvproof.core.world import World


@define(slots=True)
class Choice:
    """Device blocks to store, the host blocks they go to, and what the events will say of each, None without events.

    ``owners`` are the requests that some chosen block belongs to, in order, each perhaps several times.
    """

    device: Pool
    host: Pool
    in_flight: list[int]
    meta: list[Meta] | None
    blocks: list[int] = field(factory=list)
    hosts: list[int] = field(factory=list)
    owners: list[int] = field(factory=list)


@define(slots=True)
class Picked:
    """Blocks of one request in the order of the scan, what the events will say of each, and the cursors behind it."""

    cursors: list[int]
    blocks: list[int] = field(factory=list)
    metas: list[Meta] = field(factory=list)


def begin(world: World, host: Host) -> Choice:
    """Return an empty choice on the pools of a world."""
    return Choice(world.pool, host.pool, list(host.in_flight), [] if tracks_meta(world.config) else None)


def tracks_meta(config: Config) -> bool:
    """Tell whether what events say is captured when a block is chosen: with events, in eager mode (T26, T33)."""
    return config.events and config.offload is not None and config.offload.mode == "eager"


def end(world: World, host: Host, choice: Choice) -> tuple[World, Host]:
    """Return the world and its host side with the pools of a choice; the host side is not in the world yet."""
    in_flight = tuple(sorted(set(choice.in_flight)))
    return evolve(world, pool=choice.device), evolve(host, pool=choice.host, in_flight=in_flight)


def room(choice: Choice) -> int:
    """Return how many blocks can still be chosen: the free ones of the host, one budget for all of an action (CP-7)."""
    return len(choice.host.free)


def classify(choice: Choice, block: int) -> Admission:
    """Classify a candidate on the pools of a choice (T25)."""
    return admission.classify(choice.device, choice.host, choice.in_flight, block)


def store(choice: Choice, blocks: Sequence[int], metas: Sequence[Meta]) -> None:
    """Choose blocks in eager mode, and remember that a store of them is queued (T24, T26, T27, HO-6).

    Raises PoolExhausted if the host has too few free blocks, which the caller has to know.
    """
    take(choice, blocks)
    if choice.meta is not None:
        choice.meta.extend(metas)
    choice.in_flight.extend(blocks)


def take(choice: Choice, blocks: Sequence[int]) -> None:
    """Take host blocks for device blocks, and pin these. Raises PoolExhausted."""
    choice.host, taken = reserve(choice, blocks)
    choice.blocks.extend(blocks)
    choice.hosts.extend(taken)
    choice.device = pin(choice.device, blocks)


def reserve(choice: Choice, blocks: Sequence[int]) -> tuple[Pool, tuple[int, ...]]:
    """Take the host blocks that device blocks go to. They have no keys before the copy is reported (CP-2, CP-3)."""
    return pools.take(choice.host, len(blocks))


def pin(device: Pool, blocks: Sequence[int]) -> Pool:
    """Hold the device blocks of a store until it is complete (HO-4)."""
    return pools.touch(device, blocks)
