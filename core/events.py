"""What the key map of a tier announces, in the order of its changes (semantics 3.7).

A pool notes bare keys while an action runs (``pool.Note``). The door turns the notes into the events of the action's
record: what the profile leaves unsaid is dropped, and what was registered gets its payload from the prefix table. No note
stays in the world.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve

from kvproof.core import kinds
from kvproof.core import pool as pools
from kvproof.core import prefixes as paths
from kvproof.core.records import Event, Record

if TYPE_CHECKING:
    from kvproof.core.config import Config
    from kvproof.core.pool import Note
    from kvproof.core.prefixes import Prefixes
    from kvproof.core.world import World

DEVICE = "device"
HOST = "host"


def noted(world: World) -> bool:
    """Tell whether a key map has something to announce (3.7)."""
    return bool(world.pool.notes or (world.host is not None and world.host.pool.notes))


def announced(world: World, record: Record) -> tuple[World, Record]:
    """Return the world without notes, and the record with the events of the device's key map, then the host's (3.7)."""
    said = announce(world.config, world.prefixes, world.pool.notes or (), DEVICE)
    world = evolve(world, pool=pools.with_notes(world.pool, ()))
    host = world.host
    if host is not None:
        said += announce(world.config, world.prefixes, host.pool.notes or (), HOST)
        world = evolve(world, host=evolve(host, pool=pools.with_notes(host.pool, ())))
    return world, evolve(record, events=said)


def announce(config: Config, prefixes: Prefixes, notes: tuple[Note, ...], medium: str) -> tuple[Event, ...]:
    """Return the events of a pool's notes, in their order; ``medium`` names the tier (3.7)."""
    return tuple(event(config, prefixes, note, medium) for note in notes if is_said(config, note[0]))


def is_said(config: Config, what: int) -> bool:
    """Tell whether a note becomes an event: a key that other blocks still have is ``removed`` only by a profile (3.1)."""
    return what != pools.LEFT or config.profile.removed_event == "each_copy"


def event(config: Config, prefixes: Prefixes, note: Note, medium: str) -> Event:
    """Return the event of one note, payload included where there is one (3.7)."""
    what, node, group = note[:3]
    if what == pools.CLEARED:
        return Event("cleared", medium)
    if what in (pools.LOST, pools.LEFT):
        return Event("removed", medium, group, node)
    boundary = prefixes.depth[node]
    if what == pools.COPIED and not note[4]:
        return Event("stored", medium, group, node, boundary, size=note[3])
    size, end = (note[4], note[5]) if what == pools.COPIED else (payload_size(config, group, what, boundary), node)
    above = parent_boundary(config, group, prefixes.depth[end], size)
    return Event(
        "stored",
        medium,
        group,
        node,
        boundary,
        paths.ancestor(prefixes, end, above) if above else -1,
        payload(prefixes, end, prefixes.depth[end], size),
        size,
    )


def payload_size(config: Config, group: int, what: int, boundary: int) -> int:
    """Return the tokens a ``stored`` event carries: E of a full entry, those since its parent of a partial one (3.7, EV-2).

    A key that is given back (T39) is announced as what its boundary says it is.
    """
    full = boundary % config.sizes[group] == 0 if what == pools.RESTORED else what == pools.FULL
    return config.sizes[group] if full else partial_size(config, group, boundary)


def partial_size(config: Config, group: int, boundary: int) -> int:
    """Return the tokens between a partial key and its parent (3.7, EV-3, field ``partial_parent``).

    The parent of an attention key is the block before it, which was announced; the boundary one hash block before has no key.
    A recurrent group has keys where its states are, and no block before them need have one: H.
    """
    inside = boundary % config.sizes[group]
    closed = kinds.of(config.groups[group].kind).CAPABILITIES.prefix_closed
    return inside if inside and closed and config.profile.partial_parent == "block" else config.hash_block_size


def parent_boundary(config: Config, group: int, boundary: int, size: int) -> int:
    """Return the boundary before the payload, 0 if there is none (3.7, EV-3)."""
    del config, group
    return max(boundary - size, 0)


def payload(prefixes: Prefixes, node: int, boundary: int, size: int) -> tuple[int, ...]:
    """Return the last ``size`` tokens before a boundary, the tokens [n - size, n) (3.7, EV-1)."""
    return tuple(prefixes.token[at] for at in paths.path(prefixes, node, max(boundary - size, 0), boundary))
