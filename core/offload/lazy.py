"""Lazy storing: what comes near the front of the device's free queue is copied to the host (T33)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve

from kvproof.core import kinds, reachability
from kvproof.core.offload import admission, choosing
from kvproof.core.offload.state import NONE, Host
from kvproof.core.pool import NO_KEY

if TYPE_CHECKING:
    from kvproof.core.config import Config
    from kvproof.core.groups import Group
    from kvproof.core.offload.choosing import Choice
    from kvproof.core.pool import Pool


def walk(config: Config, host: Host, choice: Choice) -> Host:
    """Walk the device's free queue behind the cursor and choose what is worth a copy; return the host with its cursor (T33)."""
    picked: list[int] = []
    cursor = valid_cursor(choice.device, host.cursor)
    for block in behind(choice.device.free, cursor)[: target(config)]:
        if len(picked) >= choosing.room(choice):
            break
        cursor = block
        if is_worth_it(choice, block):
            picked.append(block)
    choosing.take(choice, picked)
    return evolve(host, cursor=cursor)


def valid_cursor(device: Pool, cursor: int) -> int:
    """Return the cursor, NONE if its block is in use again and so no place in the free queue (T33)."""
    return NONE if cursor == NONE or device.ref[cursor] else cursor


def behind(free: tuple[int, ...], cursor: int) -> tuple[int, ...]:
    """Return the free queue behind the cursor, whole without one (T33)."""
    return free if cursor == NONE else free[free.index(cursor) + 1 :]


def is_worth_it(choice: Choice, block: int) -> bool:
    """Tell whether a free device block has a primary key that the host lacks (T33). Free blocks have no running store."""
    return choice.device.key_node[block] != NO_KEY and not admission.is_on_host(choice.device, choice.host, block)


def target(config: Config) -> int:
    """Return the device blocks to keep free or stored: twice what one step may need over all cached groups (2.8).

    The most tokens of a step are ``max_chunk``.
    """
    return reachability.lazy_target(
        tuple(
            group_target(spec, reachability.lazy_span(spec.block_size, bool(spec.sharded), config.dcp_size), config.max_chunk)
            for spec in config.groups
            if spec.prefix_cacheable
        )
    )


def group_target(spec: Group, size: int, tokens: int) -> int:
    """Return the blocks of ``size`` tokens that a step of ``tokens`` tokens may need in a group (2.8)."""
    can = kinds.of(spec.kind).CAPABILITIES
    if can.recurrent:
        return reachability.LAZY_BLOCKS_MAMBA
    if spec.kind == "sliding_window":
        return reachability.lazy_blocks_window(spec.window or 0, size)
    return reachability.lazy_blocks_other(tokens, size)
