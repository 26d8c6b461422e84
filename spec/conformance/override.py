"""What is shown replaces what was predicted; where nothing differs the very same objects stay (laws ask ``is``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import define, evolve

from kvproof.core.offload.choosing import tracks_meta
from kvproof.core.offload.state import NONE, Counters, Host, Load, Meta, PendingHit, Queued, Stage, Store, Track
from kvproof.core.pool import NO_KEY, Pool
from kvproof.core.prefixes import Prefixes
from kvproof.core.world import DeferredFree, GroupState, Phase, Request, Worker, World
from kvproof.spec import ground, ground_host
from kvproof.spec.conformance import answers
from kvproof.spec.conformance.adapter import HostState, Pin, PoolState, RequestState, State, Transfer
from kvproof.spec.conformance.differences import Noting
from kvproof.spec.conformance.names import Blocks
from kvproof.spec.conformance.reading import KeyRow, Lists, Reader
from kvproof.spec.traces import project

STATUS = {name: status for status, name in project.STATUS.items()}


@define(slots=True)
class Overriding:
    """Puts what one adapter shows into worlds.

    ``world`` keeps what it predicted where nothing is shown; so it stays complete.
    """

    reader: Reader

    def state(self, world: World, shown: State, noting: Noting, before: World) -> World:
        """Return a world with everything that is shown in place; ``before`` is the one before the action."""
        world = self.requests(world, shown.requests, noting)
        world = self.plan(world, shown, noting)
        pool, table = self.pool(world.pool, world.prefixes, shown.device, self.reader.device, "device", noting, before.pool)
        if pool is not world.pool or table is not world.prefixes:
            world = evolve(world, pool=pool, prefixes=table)
        if shown.rows is not None:
            world = self.rows(world, shown.rows, noting)
        if shown.host is not None and world.host is not None:
            world = self.host(world, world.host, shown.host, noting, before.host or world.host)
        return world

    # --- pools --------------------------------------------------------------------------------------------------------

    def pool(
        self, pool: Pool, table: Prefixes, shown: PoolState, blocks: Blocks, tier: str, noting: Noting, was: Pool
    ) -> tuple[Pool, Prefixes]:
        """Return a tier's pool with the parts that are shown in place, and the prefix table with the nodes of its keys; ``was``
        is the pool before the action.
        """
        if shown.references is not None:
            ref = self.reader.references(blocks, shown.references)
            if noting.differs(f"{tier} references", pool.ref, ref):
                pool = evolve(pool, ref=ref)
        if shown.free is not None:
            free = self.reader.free(blocks, shown.free)
            if noting.differs(f"{tier} free queue", pool.free, free):
                pool = evolve(pool, free=free)
        if shown.keys is not None:
            table, rows = self.reader.keys(blocks, shown.keys, table)
            if noting.differs(f"{tier} keys", key_rows(pool), rows):
                pool = with_keys(pool, table, rows, was)
        return pool, table

    # --- requests -----------------------------------------------------------------------------------------------------

    def plan(self, world: World, shown: State, noting: Noting) -> World:
        """Return a world in which what waits for the next drain is what is shown; it is shown group by group."""
        plan = world.plan
        if shown.copies is not None and world.phase in (Phase.PLAN_RUNNING, Phase.PLAN_WAITING):
            here = self.reader.device.inward
            pairs = [(here(source), here(destination)) for source, destination in shown.copies]
            if noting.differs("queued copies", sorted(copy[1:] for copy in plan.copies), sorted(pairs)):
                group = {copy[1:]: copy[0] for copy in plan.copies}
                copies = tuple((group.get(pair, answers.group_of(world, pair[1], pair[0])), *pair) for pair in pairs)
                plan = evolve(plan, copies=copies)
        if shown.deferred is not None:
            world = self.deferred(world, shown.deferred, noting)
        if shown.handoffs is not None:
            rows = tuple((request, group, self.reader.device.inward(block), at) for request, group, block, at in shown.handoffs)
            if noting.differs("waiting handoffs", sorted(plan.handoffs), sorted(rows)):
                plan = evolve(plan, handoffs=rows)
        return world if plan is world.plan else evolve(world, plan=plan)

    def deferred(self, world: World, shown: Sequence[tuple[int, Sequence[int]]], noting: Noting) -> World:
        """Return a world in which those blocks wait to be freed that are shown to; which table each was in is not shown."""
        frees = tuple((fence, self.reader.device.all_inward(blocks)) for fence, blocks in shown)
        expected = tuple(
            (free.fence, tuple(block for table in free.tables for block in project.without_head(table)))
            for free in world.deferred
        )
        if not noting.differs("deferred frees", expected, frees):
            return world
        known = dict(zip(expected, world.deferred, strict=True))
        return evolve(world, deferred=tuple(known.get(row, DeferredFree(row[0], (row[1],))) for row in frees))

    def requests(self, world: World, shown: Mapping[int, RequestState] | None, noting: Noting) -> World:
        """Return a world whose live requests are as they are shown; who lives follows from the actions."""
        if shown is None:
            return world
        if len(shown) != len(world.requests) or any(request.request not in shown for request in world.requests):
            noting.differs("live requests", tuple(sorted(request.request for request in world.requests)), tuple(sorted(shown)))
        requests = tuple(
            [
                request if (said := shown.get(request.request)) is None else self.request(request, said, noting)
                for request in world.requests
            ]
        )
        if all(new is old for new, old in zip(requests, world.requests, strict=True)):
            return world
        return evolve(world, requests=requests)

    def request(self, request: Request, shown: RequestState, noting: Noting) -> Request:
        """Return a request as it is shown."""
        name = f"request {request.request}"
        if shown.tables is not None:
            tables = self.reader.tables(request.request, shown.tables)
            if noting.differs(f"{name} tables", tuple([state.table for state in request.groups]), tables):
                groups = tuple(
                    with_table(state, table) for state, table in zip(request.groups, padded(tables, request), strict=True)
                )
                request = evolve(request, groups=groups)
        if shown.num_cached is not None:
            counts = self.reader.counts(f"{name} num_cached", shown.num_cached)
            if noting.differs(f"{name} num_cached", tuple([state.num_cached for state in request.groups]), counts):
                groups = tuple(evolve(state, num_cached=count) for state, count in zip(request.groups, counts, strict=True))
                request = evolve(request, groups=groups)
        for field in ("computed", "in_flight", "placeholders"):
            value: Any = getattr(shown, field)
            if value is not None and noting.differs(f"{name} {field}", getattr(request, field), value):
                changed: dict[str, Any] = {field: value}
                request = evolve(request, **changed)
        if shown.status is not None:
            status = STATUS[shown.status]
            if noting.differs(f"{name} status", request.status, status):
                request = evolve(request, status=status)
        return request

    # --- the worker ---------------------------------------------------------------------------------------------------

    def rows(self, world: World, shown: Mapping[int, Lists], noting: Noting) -> World:
        """Return a world whose worker has the rows that are shown; a row that is not there is empty."""
        worker = world.worker
        rows = self.reader.rows(shown)
        groups = range(len(world.config.groups))
        numbers = range(len(worker.owners))
        wanted = tuple(tuple(rows[row][group] if row in rows else () for row in numbers) for group in groups)
        if noting.differs("rows", worker.rows, wanted):
            worker = Worker(worker.owners, wanted, worker.columns, worker.accepted)
            world = evolve(world, worker=worker)
        return world

    # --- the host tier ------------------------------------------------------------------------------------------------

    def host(self, world: World, host: Host, shown: HostState, noting: Noting, before: Host) -> World:
        """Return a world whose host side is as it is shown."""
        pool, table = self.pool(host.pool, world.prefixes, shown.pool, self.reader.host, "host", noting, before.pool)
        changes: dict[str, Any] = {}
        if pool is not host.pool:
            changes["pool"] = pool
        parts = {
            "pending": self._pins(host, shown.pins),
            "loads": self._loads(host, shown.loads),
            "abandoned_loads": self._loads(host, shown.abandoned_loads),
            "stores": self._stores(host, shown.stores),
            "abandoned_stores": self._stores(host, shown.abandoned_stores),
            "queued": self._queued(host, shown.queued),
            "tracks": self._tracks(host, shown.cursors),
            "cursor": None if shown.cursor is None else self._cursor(shown.cursor),
        }
        for name, value in parts.items():
            if value is not None and noting.differs(f"host {name}", getattr(host, name), value):
                changes[name] = value
        if shown.counters is not None:
            self._counters(host, shown.counters, changes, noting)
        if changes:
            host = evolve(host, **changes)
            if changes.keys() & {"stores", "queued"}:
                host = evolve(host, in_flight=tuple(sorted(set(ground_host.outstanding(host)))))
            # The numbers that are used up are those seen, not those predicted.
            if changes.keys() & {"stores", "abandoned_stores"}:
                events = [store.event + 1 for store in ground_host.all_stores(host)]
                host = evolve(host, next_store=max([before.next_store, *events]))
            if changes.keys() & {"loads", "abandoned_loads"}:
                events = [load.event + 1 for load in ground_host.all_loads(host)]
                host = evolve(host, next_load=max([before.next_load, *events]))
        if host is world.host and table is world.prefixes:
            return world
        return evolve(world, host=host, prefixes=table)

    def _pins(self, host: Host, shown: Sequence[Pin] | None) -> tuple[PendingHit, ...] | None:
        """Return the pins that are shown, in the order predicted: they are one per request, and have no order of their own."""
        if shown is None:
            return None
        order = {pin.request: at for at, pin in enumerate(host.pending)}
        pins = [PendingHit(pin.request, pin.start, pin.length, self.reader.host.lists_inward(pin.lists)) for pin in shown]
        return tuple(sorted(pins, key=lambda pin: order.get(pin.request, len(order))))

    def _lists(self, transfer: Transfer) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self.reader.device.all_inward(transfer.device), self.reader.host.all_inward(transfer.host)

    def _loads(self, host: Host, shown: Sequence[Transfer] | None) -> tuple[Load, ...] | None:
        if shown is None:
            return None
        known = {load.request: load for load in ground_host.all_loads(host)}
        loads = []
        for said in shown:
            device, blocks = self._lists(said)
            load = known.get(said.request) or Load(said.request, device, blocks)
            stage = load.stage
            if said.event != NONE and stage is Stage.WAITING:
                stage = Stage.BUILT
            loads.append(evolve(load, device=device, host=blocks, event=said.event, stage=stage, finished=said.finished))
        return self._in_order(loads, host)

    @staticmethod
    def _in_order(loads: Sequence[Load], host: Host) -> tuple[Load, ...]:
        """Return loads in the order predicted: they are one per request, and have no order of their own."""
        order = {load.request: at for at, load in enumerate(ground_host.all_loads(host))}
        return tuple(sorted(loads, key=lambda load: order.get(load.request, len(order))))

    def _stores(self, host: Host, shown: Sequence[Transfer] | None) -> tuple[Store, ...] | None:
        if shown is None:
            return None
        known = {store.event: store for store in ground_host.all_stores(host)}
        stores = []
        for said in shown:
            device, blocks = self._lists(said)
            store = known.get(said.event) or Store(said.event, (), (), () if tracks_meta(self.reader.config) else None)
            meta = rearranged(store.meta, store.device, device)
            stores.append(evolve(store, device=device, host=blocks, meta=meta, acks=said.acks))
        return tuple(stores)

    def _queued(self, host: Host, shown: Sequence[Transfer] | None) -> tuple[Queued, ...] | None:
        if shown is None:
            return None
        queued = []
        for at, said in enumerate(shown):
            device, blocks = self._lists(said)
            known = host.queued[at] if at < len(host.queued) else None
            meta = () if known is None and tracks_meta(self.reader.config) else None if known is None else known.meta
            meta = rearranged(meta, () if known is None else known.device, device)
            queued.append(Queued(device, blocks, meta))
        return tuple(queued)

    def _tracks(self, host: Host, shown: Mapping[int, Sequence[int]] | None) -> tuple[Track, ...] | None:
        if shown is None:
            return None
        known = [evolve(track, cursors=tuple(shown[track.request])) for track in host.tracks if track.request in shown]
        there = {track.request for track in known}
        return tuple(known) + tuple(Track(request, tuple(shown[request])) for request in shown if request not in there)

    def _cursor(self, block: int) -> int:
        return block if block == NONE else self.reader.device.inward(block)

    def _counters(self, host: Host, shown: Mapping[str, int], changes: dict[str, Any], noting: Noting) -> None:
        counted = Counters(**{name: value for name, value in shown.items() if name != "load_blocks"})
        if noting.differs("host counters", host.counters, counted):
            changes["counters"] = counted
        loaded = shown.get("load_blocks", host.load_blocks)
        if noting.differs("host load_blocks", host.load_blocks, loaded):
            changes["load_blocks"] = loaded


# --- rebuilding parts ---------------------------------------------------------------------------------------------------


def key_rows(pool: Pool) -> tuple[KeyRow, ...]:
    """Return the keys of a pool as they would be shown."""
    nodes, groups = pool.key_node, pool.key_group
    return tuple(
        [(node, group, block, nodes[block] == node and groups[block] == group) for node, group, _, block in pool.entries]
    )


def by_block(rows: Iterable[KeyRow]) -> dict[int, frozenset[tuple[int, int, bool]]]:
    """Return the keys of every block that has some."""
    found: dict[int, set[tuple[int, int, bool]]] = {}
    for node, group, block, primary in rows:
        found.setdefault(block, set()).add((node, group, primary))
    return {block: frozenset(keys) for block, keys in found.items()}


def with_keys(pool: Pool, table: Prefixes, rows: Sequence[KeyRow], previous: Pool) -> Pool:
    """Return a pool with exactly these keys.

    Their order of insertion is not shown: it is the one of ``previous``, the pool before the action, where a block still stands
    for the same, else the predicted one, else they are the newest; a block's additional keys count as added to its primary one.
    """
    if rows == key_rows(previous):
        same = ("key_node", "key_group", "key_tokens", "entries")
        return evolve(pool, **{name: getattr(previous, name) for name in same})
    count = len(pool.ref)
    node_of, group_of, tokens_of = [NO_KEY] * count, [NO_KEY] * count, [NO_KEY] * count
    for node, group, block, primary in rows:
        if primary and 0 <= block < count:
            known = pool.key_node[block] == node and pool.key_group[block] == group
            node_of[block], group_of[block] = node, group
            tokens_of[block] = pool.key_tokens[block] if known else table.depth[node]
    seqs, next_seq = _places(pool, rows, previous)
    return evolve(
        pool,
        key_node=tuple(node_of),
        key_group=tuple(group_of),
        key_tokens=tuple(tokens_of),
        entries=tuple(sorted((node, group, seq, block) for (node, group, block, _), seq in zip(rows, seqs, strict=True))),
        next_seq=next_seq,
    )


def _places(pool: Pool, rows: Sequence[KeyRow], previous: Pool) -> tuple[list[int], int]:
    """Return the place of every key in the order of insertion, and the next free one."""
    known = {(node, group, block): seq for entries in (previous.entries, pool.entries) for node, group, seq, block in entries}
    same = by_block(key_rows(previous)).items() & by_block(rows).items()
    kept = {block for block, _ in same}
    known |= {(node, group, block): seq for node, group, seq, block in previous.entries if block in kept}
    fresh = max((pool.next_seq, previous.next_seq))
    seqs = []
    for node, group, block, _ in rows:
        at = known.get((node, group, block))
        seqs.append(fresh if at is None else at)
        fresh += at is None
    # Every block that a lookup prefers was there before the next one, and every primary key before those added to it. Where
    # a cycle of both is shown there is no such order; then some order will do.
    for _ in range(3):
        moved = False
        first = {row[2]: seq for row, seq in zip(rows, seqs, strict=True) if row[3]}
        for at, (node, group, block, primary) in enumerate(rows):
            behind = at > 0 and rows[at - 1][:2] == (node, group) and seqs[at] <= seqs[at - 1]
            if behind or (not primary and seqs[at] <= first.get(block, NO_KEY)):
                seqs[at], fresh, moved = fresh, fresh + 1, True
        if not moved:
            break
    return seqs, fresh


def padded(tables: Lists, request: Request) -> Lists:
    """Return one table per group, empty ones where fewer are shown."""
    return (*tables, *((),) * len(request.groups))[: len(request.groups)]


def rearranged(meta: tuple[Meta, ...] | None, was: tuple[int, ...], blocks: tuple[int, ...]) -> tuple[Meta, ...] | None:
    """Return what the events of these blocks will say, as far as it is known of each; what is not known says nothing."""
    if meta is None or was == blocks:
        return meta
    known = dict(zip(was, meta, strict=False))
    return tuple(known.get(block, ()) for block in blocks)


def with_table(state: GroupState, table: tuple[int, ...]) -> GroupState:
    """Return what a request holds in a group with another table; no more of it counts as registered than there is."""
    if table == state.table:
        return state
    return evolve(state, table=table, num_cached=min(state.num_cached, len(table)))


def recounted(world: World, device: bool, host: bool) -> World:
    """Return a world whose reference counts are those of who holds what, where they are not shown; it has to go on."""
    if device:
        world = evolve(world, pool=_counted(world.pool, tuple(ground.references(world))))
    if host and world.host is not None:
        pool = _counted(world.host.pool, tuple(ground_host.references(world.host)))
        world = evolve(world, host=evolve(world.host, pool=pool))
    return world


def _counted(pool: Pool, ref: tuple[int, ...]) -> Pool:
    return pool if ref == pool.ref else evolve(pool, ref=ref)


def reordered(pool: Pool, free: tuple[int, ...]) -> Pool:
    """Return a pool with another order of its free queue, the same one if that has other blocks."""
    return evolve(pool, free=free) if free != pool.free and sorted(free) == sorted(pool.free) else pool


def requeued(pool: Pool) -> Pool:
    """Return a pool whose free queue has the blocks without references, in the order in which it had them, new ones last."""
    kept = [block for block in pool.free if 0 < block < len(pool.ref) and pool.ref[block] == 0]
    there = set(kept)
    missing = [block for block in range(1, len(pool.ref)) if pool.ref[block] == 0 and block not in there]
    free = (*kept, *missing)
    return pool if free == pool.free else evolve(pool, free=free)
