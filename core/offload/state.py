"""The host side's state: its pool and contents, pins, transfers, cursors and counters (3.5).

A transfer goes through stages: it waits for a step's metadata, is built into it, submitted by the worker, and copied. Bytes
move when it is copied. Then completions are reported, one acknowledgement per worker for a store.
"""

from __future__ import annotations

from enum import IntEnum

from attrs import frozen

from kvproof.core import pool as pools
from kvproof.core.contents import Cells
from kvproof.core.pool import Pool

NONE = -1
Meta = tuple[tuple[int, int], ...]
"""What the events of one stored block say: (prefix node, payload tokens) per key; empty for handoffs and tails (T26)."""
Lists = tuple[tuple[int, ...], ...]


class Stage(IntEnum):
    """How far a transfer is: not in a step's metadata yet, in it, handed to the copy stream, or its bytes have moved."""

    WAITING = 0
    BUILT = 1
    SUBMITTED = 2
    COPIED = 3


@frozen(slots=True)
class PendingHit:
    """The pinned result of an external lookup: ``length`` tokens behind the first ``start``, host blocks per group (T20)."""

    request: int
    start: int
    length: int
    lists: Lists


@frozen(slots=True)
class Load:
    """A request's copies host to device, ``device[i]`` from ``host[i]``, behind its first ``start`` tokens (T29, T30).

    ``event`` names the batch of its step, NONE while it waits. ``finished``: its request is gone, ``held`` are the tables to be
    freed at completion. A waiting load is built when ``fence`` steps are processed. ``condemned``: the local prefix turned out
    wrong meanwhile, nothing of the load will be kept (C-48).
    """

    request: int
    device: tuple[int, ...]
    host: tuple[int, ...]
    event: int = NONE
    stage: Stage = Stage.WAITING
    finished: bool = False
    held: Lists = ()
    fence: int = 0
    start: int = 0
    condemned: bool = False


@frozen(slots=True)
class Store:
    """One store event: copies device to host, ``host[i]`` from ``device[i]`` described by ``meta[i]`` (IP-1).

    ``meta`` is None without events. ``acks`` workers have reported.
    """

    event: int
    device: tuple[int, ...]
    host: tuple[int, ...]
    meta: tuple[Meta, ...] | None
    stage: Stage = Stage.BUILT
    acks: int = 0


@frozen(slots=True)
class Queued:
    """A store chosen when a request finished, to join the next step's store event (T27)."""

    device: tuple[int, ...]
    host: tuple[int, ...]
    meta: tuple[Meta, ...] | None


@frozen(slots=True)
class Track:
    """The store side's record of a request in eager mode (``store_state`` of 3.5).

    ``cursors[g]`` leading entries of group g were considered for storing. ``events`` are the store events that hold blocks of
    it. ``finished``: it is gone and kept only for these. ``told`` are its tables as the steps reported them, kept only where
    a profile scans these (``positional_ids``).
    """

    request: int
    cursors: tuple[int, ...]
    events: tuple[int, ...] = ()
    finished: bool = False
    told: Lists = ()


@frozen(slots=True)
class Counters:
    """What became of published handoffs (HO-5); counts of blocks."""

    published: int = 0
    stored: int = 0
    dropped_cpu_full: int = 0
    dropped_request_gone: int = 0
    skipped_already_cached: int = 0
    skipped_in_flight: int = 0
    dropped_null_block: int = 0
    dropped_not_hashed: int = 0


@frozen(slots=True)
class Host:
    """The host side of a world (3.5); ``contents`` is per host block what is really in it.

    ``abandoned_*`` are running transfers from before a reset: their completion only gives references back (T34). ``in_flight``
    are the device blocks of queued or running stores, ascending. ``drained`` is the part of ``counters`` that was read out
    already. ``load_blocks`` counts blocks of completed loads. ``cursor`` is the last device block that the lazy walk passed,
    ``notices`` the kinds of notice given so far (CN-6).
    """

    pool: Pool
    contents: tuple[Cells, ...]
    pending: tuple[PendingHit, ...] = ()
    loads: tuple[Load, ...] = ()
    abandoned_loads: tuple[Load, ...] = ()
    stores: tuple[Store, ...] = ()
    abandoned_stores: tuple[Store, ...] = ()
    queued: tuple[Queued, ...] = ()
    tracks: tuple[Track, ...] = ()
    in_flight: tuple[int, ...] = ()
    next_store: int = 0
    next_load: int = 0
    counters: Counters = Counters()
    drained: Counters = Counters()
    load_blocks: int = 0
    cursor: int = NONE
    notices: tuple[str, ...] = ()


def new_host(num_blocks: int, events: bool) -> Host:
    """Return an empty host tier of ``num_blocks`` blocks, its null block included."""
    return Host(pools.new_pool(num_blocks, events), ((),) * num_blocks)
