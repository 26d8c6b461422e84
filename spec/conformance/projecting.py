"""Worlds of the model as what an adapter shows: the way back from ``reading``. What did not change stays the same object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from attrs import astuple, define, field, fields

from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.offload.state import Counters, Host, Load, Store
from kvproof.core.pool import NO_KEY, Pool
from kvproof.core.prefixes import Prefixes
from kvproof.core.records import NONE, Event, Record
from kvproof.core.world import Request, World
from kvproof.spec.conformance.adapter import (
    Announcement,
    HostState,
    Key,
    Lists,
    Pin,
    PoolState,
    RequestState,
    Shows,
    State,
    Transfer,
)
from kvproof.spec.conformance.masks import FIELDS
from kvproof.spec.conformance.names import Digests
from kvproof.spec.conformance.reading import BLOCKS_OF_ROWS
from kvproof.spec.traces.project import STATUS

T = TypeVar("T")
OF_REQUESTS: frozenset[Shows] = frozenset((Shows.TABLES, Shows.INTERNALS))
FLAT = frozenset(("taken", "adopted", "zeroed", "destinations", "store_device", "store_host", "load_device", "load_host"))
NESTED = frozenset(("lists", "new_blocks", "external_blocks", "offered"))
COUNTED: tuple[str, ...] = tuple(field.name for field in fields(Counters))


@define(slots=True)
class Projection:
    """Shows worlds of one run; ``shift`` is added to every block id, the null block's included."""

    config: Config
    shows: frozenset[Shows]
    shift: int = 0
    _digests: Digests = field(factory=Digests)
    _known: dict[object, tuple[tuple[object, ...], Any]] = field(factory=dict)

    def state(self, world: World) -> State:
        """Return what is shown of a world."""
        host = world.host
        return State(
            device=self.pool("device", world.pool, world.prefixes, self.shows),
            requests={request.request: self.request(request) for request in world.requests}
            if OF_REQUESTS & self.shows
            else None,
            host=None if host is None else self.host(host, world.prefixes),
            rows=self.rows(world) if Shows.ROWS in self.shows else None,
            handoffs=self._waiting(world) if Shows.HANDOFFS in self.shows else None,
        )

    def _waiting(self, world: World) -> tuple[tuple[int, int, int, int], ...]:
        return tuple((request, group, block + self.shift, at) for request, group, block, at in world.plan.handoffs)

    def pool(self, tier: str, pool: Pool, table: Prefixes, shows: frozenset[Shows]) -> PoolState:
        """Return what is shown of a tier's pool."""
        references = free = keys = None
        if Shows.REFERENCES in shows:
            references = self._once((tier, "ref"), (pool.ref,), lambda: self._references(pool))
        if Shows.FREE_QUEUE in shows:
            free = self._once((tier, "free"), (pool.free,), lambda: self.blocks(pool.free))
        if Shows.KEYS in shows:
            parts = (pool.entries, pool.key_node, pool.key_group)
            keys = self._once((tier, "keys"), parts, lambda: self._keys(pool, table))
        return PoolState(references, free, keys)

    def request(self, request: Request) -> RequestState:
        """Return what is shown of a live request."""
        return self._once(("request", request.request), (request,), lambda: self._request(request))

    def host(self, host: Host, table: Prefixes) -> HostState | None:
        """Return what is shown of the host tier."""
        return self._once("host", (host,), lambda: self._host(host, table))

    def rows(self, world: World) -> Mapping[int, Lists]:
        """Return the worker's rows by number."""
        factor, rows = self.config.append_expansion, world.worker.rows

        def read() -> dict[int, Lists]:
            return {
                row: tuple(tuple(entry + self.shift * factor for entry in group[row]) for group in rows)
                for row in range(len(world.worker.owners))
            }

        return self._once("rows", (rows,), read)

    def result(self, action: Action, record: Record, table: Prefixes) -> dict[str, object]:
        """Return what is shown of the answer to an action."""
        decided = FIELDS.get(type(action), {})
        shown: dict[str, object] = {
            name: self._field(name, getattr(record, name), table)
            for name, capability in decided.items()
            if capability in self.shows
        }
        if Shows.EVENTS in self.shows:
            shown["events"] = tuple(self._event(event, table) for event in record.events)
        return shown

    def blocks(self, blocks: tuple[int, ...]) -> tuple[int, ...]:
        """Return block ids as they are shown."""
        return blocks if not self.shift else tuple(block + self.shift for block in blocks)

    # --- parts --------------------------------------------------------------------------------------------------------

    def _once(self, part: object, of: tuple[object, ...], show: Callable[[], T]) -> T:
        known = self._known.get(part)
        if known is not None and all(one is other for one, other in zip(known[0], of, strict=True)):
            return cast(T, known[1])
        value = show()
        self._known[part] = (of, value)
        return value

    def _references(self, pool: Pool) -> dict[int, int]:
        return {block + self.shift: count for block, count in enumerate(pool.ref) if count}

    def _keys(self, pool: Pool, table: Prefixes) -> tuple[Key, ...]:
        return tuple(
            [
                Key(
                    block + self.shift,
                    group,
                    table.depth[node],
                    self._digests.of(table, node),
                    pool.key_node[block] == node and pool.key_group[block] == group,
                )
                for node, group, _, block in pool.entries
            ]
        )

    def _request(self, request: Request) -> RequestState:
        tables = cached = None
        if Shows.TABLES in self.shows:
            tables = tuple([self.blocks(state.table) for state in request.groups])
        if Shows.INTERNALS in self.shows:
            cached = tuple([None if state.num_cached == NO_KEY else state.num_cached for state in request.groups])
        return RequestState(tables, cached, request.computed, request.in_flight, STATUS[request.status], request.placeholders)

    def _host(self, host: Host, table: Prefixes) -> HostState | None:
        shown: dict[str, Any] = {}
        if Shows.HOST in self.shows:
            everything = frozenset((Shows.REFERENCES, Shows.FREE_QUEUE, Shows.KEYS))
            shown["pool"] = self.pool("host", host.pool, table, everything)
            shown["pins"] = tuple(
                Pin(hit.request, hit.start, hit.length, tuple(self.blocks(blocks) for blocks in hit.lists))
                for hit in host.pending
            )
            shown["cursors"] = {track.request: track.cursors for track in host.tracks}
            shown["cursor"] = host.cursor if host.cursor == NONE else host.cursor + self.shift
        if Shows.TRANSFERS in self.shows:
            shown["loads"] = tuple(self._load(load) for load in host.loads)
            shown["abandoned_loads"] = tuple(self._load(load) for load in host.abandoned_loads)
            shown["stores"] = tuple(self._store(store) for store in host.stores)
            shown["abandoned_stores"] = tuple(self._store(store) for store in host.abandoned_stores)
            shown["queued"] = tuple(Transfer(self.blocks(left.device), self.blocks(left.host)) for left in host.queued)
        if Shows.COUNTERS in self.shows:
            shown["counters"] = dict(zip(COUNTED, astuple(host.counters), strict=True)) | {"load_blocks": host.load_blocks}
        return HostState(**shown) if shown else None

    def _load(self, load: Load) -> Transfer:
        return Transfer(self.blocks(load.device), self.blocks(load.host), load.event, load.request, finished=load.finished)

    def _store(self, store: Store) -> Transfer:
        return Transfer(self.blocks(store.device), self.blocks(store.host), store.event, acks=store.acks)

    def _field(self, name: str, value: Any, table: Prefixes) -> object:
        if name == "store_meta":
            if value is None:
                return None
            return tuple(tuple((self._digests.of(table, node), tokens) for node, tokens in meta) for meta in value)
        if not self.shift or value is None:
            return value
        if name in FLAT:
            return self.blocks(value)
        if name in NESTED:
            return tuple(self.blocks(blocks) for blocks in value)
        places = BLOCKS_OF_ROWS.get(name, ())
        if not places:
            return value
        return tuple(tuple(entry + self.shift if at in places else entry for at, entry in enumerate(row)) for row in value)

    def _event(self, event: Event, table: Prefixes) -> Announcement:
        if event.kind == "cleared":
            return Announcement(event.kind, event.medium)
        prefix, boundary = self._digests.of(table, event.node), table.depth[event.node]
        if event.kind == "removed":
            return Announcement(event.kind, event.medium, event.group, prefix, boundary)
        parent = "" if event.parent == NONE else self._digests.of(table, event.parent)
        return Announcement(event.kind, event.medium, event.group, prefix, event.boundary, parent, event.tokens, event.size)
