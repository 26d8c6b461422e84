"""The attention block in which a prompt's last hash boundary falls: stored when its request finishes (T27)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvproof.core import geometry, kinds, prefixes
from kvproof.core import pool as pools
from kvproof.core.kinds import full_attention
from kvproof.core.offload import admission, choosing
from kvproof.core.offload.state import Meta
from kvproof.core.pool import NO_KEY, NULL_BLOCK

if TYPE_CHECKING:
    from kvproof.core.config import Config
    from kvproof.core.offload.choosing import Choice, Picked
    from kvproof.core.world import Request, World


def add(world: World, request: Request, choice: Choice, picked: Picked) -> None:
    """Add the tail block of each full-attention group to what the scan picked, if there is room (T27)."""
    for group in groups(world.config):
        block = source(world, request, group, choice)
        if block != NULL_BLOCK and not is_picked(picked, block) and has_room(choice, picked):
            picked.blocks.append(block)
            picked.metas.extend(metas(world, request, group))


def joins_scan() -> bool:
    """Tell whether a running request's tail is stored as soon as it has a key: no, its block is still written (T27, HO-11)."""
    return False


def groups(config: Config) -> tuple[int, ...]:
    """Return the groups whose tail is stored: with fine-grained hits, every full-attention group (T27).

    A profile stores that of the first one alone (3.1, field ``finish_tail_groups``).
    """
    if not config.fine_grained:
        return ()
    closed = tuple(g for g, spec in enumerate(config.groups) if kinds.of(spec.kind).CAPABILITIES.prefix_closed)
    return closed[:1] if config.profile.finish_tail_groups == "first" else closed


def source(world: World, request: Request, group: int, choice: Choice) -> int:
    """Return the block of a request's prompt tail if it is worth storing, else NULL_BLOCK (T27)."""
    boundary = tail_boundary(world, request, group)
    size = world.config.sizes[group]
    table = request.groups[group].table
    if not 0 < boundary <= request.computed or boundary % size == 0 or boundary // size >= len(table):
        return NULL_BLOCK
    block = table[boundary // size]
    node = prefixes.ancestor(world.prefixes, request.tip, boundary)
    if is_in_flight(choice, block) or not pools.holds(choice.device, node, group, block):
        return NULL_BLOCK
    return block if pools.find(choice.host, node, group) == NO_KEY else NULL_BLOCK


def tail_boundary(world: World, request: Request, group: int) -> int:
    """Return the boundary that the caching call registers inside a block at the end of a prompt (T9.2, T27).

    By a profile the last one of the prompt, registered or not (3.1, field ``finish_tail``).
    """
    unit = world.config.hash_block_size
    registered = full_attention.tail_rule(world.config, group)
    rule = registered if world.config.profile.finish_tail == "registered" else "P"
    return geometry.prompt_tail_boundary(request.num_prompt, unit, request.num_tokens // unit, rule)


def is_in_flight(choice: Choice, block: int) -> bool:
    """Tell whether a store of the tail block is queued or running already (T27, HO-6)."""
    return admission.is_in_flight(choice.in_flight, block)


def is_picked(picked: Picked, block: int) -> bool:
    """Tell whether the scan picked the block already: decoding may have filled it (T27, HO-6)."""
    return block in picked.blocks


def has_room(choice: Choice, picked: Picked) -> bool:
    """Tell whether the host has one more free block than was picked (T27, CP-7)."""
    return len(picked.blocks) < choosing.room(choice)


def metas(world: World, request: Request, group: int) -> tuple[Meta, ...]:
    """Return what the events say of a stored tail: one entry without payload (T27, IP-4)."""
    del world, request, group
    return ((),)
