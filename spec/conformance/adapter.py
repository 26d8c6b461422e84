"""What an implementation under test gives: an ``Adapter`` performs actions of the one alphabet and shows what came of each.

Everything is optional but the actions themselves: ``Shows`` names what an adapter can show, and what it does not show makes the
laws that need it *undetermined*, never passed. Bytes need not be shown: the oracle follows them itself, from tables, copies and
transfers (``shadow``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Protocol, runtime_checkable

from attrs import field, frozen

from kvproof.core.actions import Action
from kvproof.core.config import Config

Lists = tuple[tuple[int, ...], ...]
"""Block ids per group."""


class Shows(Enum):
    """One part of what an adapter can show; the value is the name that reports and baselines use.

    Parts of the answer to an action (``Observation.result``, fields of ``core.records.Record``): HITS to EVENTS. Parts of the
    state after it: TABLES to INTERNALS. Asked of the configuration alone: GEOMETRY.
    """

    HITS = "hits"
    """Lookup, LookupExternal: ``local``, ``lists``, ``junction``, ``diverged``, ``external``."""
    ADMISSION = "admission"
    """Allocate: ``admitted``, ``new_blocks``, ``external_blocks``, ``pairs``; of others ``done``, ``freed`` and so on."""
    COPIES = "copies"
    """Drain: ``copies``, (group, source, destination) of the step's copy-on-write."""
    HANDOFFS = "handoffs"
    """Drain: ``handoffs``, (request, group, block, boundary); BuildMetadata: ``outcomes``; ``State.handoffs``: that wait."""
    ZEROED = "zeroed"
    """Drain: ``zeroed``, blocks to be zeroed before the step runs, and ``destinations``."""
    TRANSFERS = "transfers"
    """BuildMetadata, Finish: ``store_*``, ``load_*``, ``flush``, ``offered``; the loads and stores that are under way."""
    COUNTERS = "counters"
    """ReadCounters: what became of handoffs; queries and hits of admissions."""
    EVENTS = "events"
    """Every action: ``events``, what the key maps announced."""
    TABLES = "tables"
    """The block table of every live request in every group."""
    REFERENCES = "references"
    """The reference count of every device block."""
    FREE_QUEUE = "free_queue"
    """The free device blocks in the order in which they will be taken; without it eviction order is free."""
    KEYS = "keys"
    """The device's key map."""
    HOST = "host"
    """The host tier's pool (references, free queue, keys), pins, cursors."""
    ROWS = "rows"
    """The worker's rows."""
    INTERNALS = "internals"
    """``num_cached`` per request and group."""
    GEOMETRY = "geometry"
    """Sizes that follow from a configuration alone (``Geometry``)."""


@frozen(slots=True)
class Key:
    """One key of one block: (group, boundary, prefix), primary or an additional one; ``prefix`` is what ``prefix_id`` gives."""

    block: int
    group: int
    boundary: int
    prefix: str
    primary: bool = True


@frozen(slots=True)
class PoolState:
    """What is shown of one tier's pool; None: not shown. ``references``: only blocks with some, never the null one."""

    references: Mapping[int, int] | None = None
    free: Sequence[int] | None = None
    keys: Sequence[Key] | None = None
    """In the order in which a lookup prefers the blocks of a key."""


@frozen(slots=True)
class Pin:
    """A host hit that is pinned for a request: ``length`` tokens behind ``start``, host blocks per group."""

    request: int
    start: int
    length: int
    lists: Lists


@frozen(slots=True)
class Transfer:
    """A load (of ``request``) or a store under way, its lists index-parallel; ``event`` is -1 before it has one."""

    device: tuple[int, ...]
    host: tuple[int, ...]
    event: int = -1
    request: int = -1
    acks: int = 0
    finished: bool = False


@frozen(slots=True)
class HostState:
    """What is shown of the host tier; None: not shown."""

    pool: PoolState = PoolState()
    pins: Sequence[Pin] | None = None
    loads: Sequence[Transfer] | None = None
    abandoned_loads: Sequence[Transfer] | None = None
    stores: Sequence[Transfer] | None = None
    abandoned_stores: Sequence[Transfer] | None = None
    queued: Sequence[Transfer] | None = None
    """Stores chosen when a request finished, for the next step."""
    cursors: Mapping[int, Sequence[int]] | None = None
    """Per request that the store side knows: entries of each group that were considered for storing."""
    cursor: int | None = None
    """The last device block that the lazy walk passed, -1: none."""
    counters: Mapping[str, int] | None = None
    """What became of handoffs, by the names of ``core.offload.state.Counters``, and ``load_blocks``."""


@frozen(slots=True)
class RequestState:
    """What is shown of one live request; token counts in tokens, None: not shown.

    ``computed``, ``in_flight``, ``status`` and ``placeholders`` follow from the actions; an adapter that shows them is compared
    with that.
    """

    tables: Lists | None = None
    num_cached: Sequence[int | None] | None = None
    computed: int | None = None
    in_flight: int | None = None
    status: str | None = None
    """``waiting``, ``running``, ``preempted`` or ``loading``."""
    placeholders: int | None = None
    """Tokens counted in ``computed`` that are not known yet; 0 without asynchronous outputs."""


@frozen(slots=True)
class State:
    """What is shown of the state after an action; None: not shown. ``requests``: all live ones, by their ids of Submit."""

    device: PoolState = PoolState()
    requests: Mapping[int, RequestState] | None = None
    host: HostState | None = None
    rows: Mapping[int, Lists] | None = None
    """The worker's rows by row number."""
    copies: Sequence[tuple[int, int]] | None = None
    """(source, destination) of the copies that the open plan has queued and not handed out: with COPIES."""
    handoffs: Sequence[tuple[int, int, int, int]] | None = None
    """(request, group, block, boundary) of the handoffs that wait to be handed out: with HANDOFFS."""
    deferred: Sequence[tuple[int, Sequence[int]]] | None = None
    """(fence, blocks) of the frees that wait until as many steps are processed, oldest first; null entries count from the first
    other one of a table: with TABLES."""


@frozen(slots=True)
class Announcement:
    """One announcement of a tier's key map: ``core.records.Event`` with the prefix ids of ``prefix_id`` in place of nodes.

    ``parent`` is the prefix before the payload, empty without one.
    """

    kind: str
    medium: str
    group: int = -1
    prefix: str = ""
    boundary: int = -1
    parent: str = ""
    tokens: tuple[int, ...] = ()
    size: int = 0


@frozen(slots=True)
class Observation:
    """What came of one action: a refusal, or an answer; and what is shown of the state after it.

    ``refusal`` is the implementation's own message (an exception, an error code) when it did not perform the action. ``result``
    are fields of ``core.records.Record`` by name, as far as they are shown; ``events`` are Announcements, and ``store_meta``
    has prefix ids where the record has nodes.
    """

    result: Mapping[str, object] = field(factory=dict)
    state: State = State()
    refusal: str | None = None


@frozen(slots=True)
class Geometry:
    """Sizes that an implementation derives from a configuration; None: not shown. Tokens, except ``row_capacity`` (entries)."""

    sizes: tuple[int, ...] | None = None
    """E: tokens under one table entry, per group."""
    row_capacity: tuple[int, ...] | None = None
    scheduler_block_size: int | None = None
    fine_grained: bool | None = None
    offload_tokens_per_block: tuple[int, ...] | None = None
    """Tokens of one block of an offloading connector, per group."""
    divergent_hits: bool | None = None
    """Whether the connectors together can use a divergent hit."""


class AdapterError(Exception):
    """An adapter breaks its own contract: it does not show what it declares, or what it shows cannot be read."""


class Unsupported(Exception):
    """Raised by ``start``: the implementation does not have what a configuration asks for. The message says what."""


@runtime_checkable
class Adapter(Protocol):
    """An implementation under test. A new run begins with ``start``; the same object is started many times.

    ``shows`` is what ``perform`` shows after every action. ``null_block`` is the id of the placeholder block in tables.
    """

    name: str
    shows: frozenset[Shows]
    null_block: int

    def start(self, config: Config) -> None:
        """Begin anew under a configuration. Raises Unsupported."""

    def perform(self, action: Action) -> Observation:
        """Perform one action. One that the implementation refuses gives ``Observation(refusal=...)``; it does not raise."""
        ...


@runtime_checkable
class HasGeometry(Protocol):
    """An adapter that shows GEOMETRY has this, too."""

    def geometry(self, config: Config) -> Geometry:
        """Return the sizes that the implementation derives. Raises Unsupported."""
        ...


def prefix_id(tokens: Sequence[int], context: int = 0) -> str:
    """Return the engine-neutral id of a prefix: the first 12 hex digits of SHA-256 over its decimal token ids, comma-separated.

    That of the recordings (docs/trace-format.md); a context other than 0 is written before the tokens, followed by a colon.
    """
    text = ",".join(str(token) for token in tokens)
    return hashlib.sha256((f"{context}:{text}" if context else text).encode()).hexdigest()[:12]
