"""Laws of what the host tier stores: HO-3 to HO-6, HO-8, HO-10 and HO-11 (semantics 5.5).

A store event lists the handoffs that were accepted, then what the positional scan selected, then what finished requests left
queued (T0 part 6). Which block a position denotes is read off the tables and the key map.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from attrs import fields, frozen

from kvproof.core.actions import (
    Allocate,
    BuildMetadata,
    CompleteStore,
    EvictBlocks,
    Finish,
    Output,
    Promote,
    ReadCounters,
    ResetHost,
    Withdraw,
)
from kvproof.core.offload.state import Counters, Meta
from kvproof.core.pool import NO_KEY
from kvproof.core.world import Request, World
from kvproof.spec import ground, ground_host
from kvproof.spec.ground_host import Place
from kvproof.spec.laws.base import Evidence, Findings, Law, Moment

OUTCOMES: tuple[str, ...] = tuple(field.name for field in fields(Counters) if field.name != "published")


@frozen(slots=True)
class Entry:
    """One block of a store event: the lists are index-parallel, ``meta`` is None without events (IP-1)."""

    device: int
    host: int
    meta: Meta | None


@frozen(slots=True)
class Event:
    """What one action selected for storing, by where it comes from."""

    handoffs: tuple[Entry, ...]
    scanned: tuple[Entry, ...]
    """What the scan selected; at the end of a request its partial tail behind it."""
    queued: tuple[Entry, ...]


def accepted(moment: Moment) -> list[tuple[int, int, int, int]]:
    """Return the handoffs that a step's metadata accepted: (request, group, block, boundary)."""
    return [] if moment.record is None else [row[:4] for row in moment.record.outcomes if row[4] == ground_host.STORED]


def selected(moment: Moment) -> Event | None:
    """Take apart what a step's metadata or a finished request selected, None where that is nothing."""
    record, host = moment.record, moment.before.host
    if record is None or host is None or not record.store_device:
        return None
    metas: tuple[Meta | None, ...] = record.store_meta or (None,) * len(record.store_device)
    entries = [Entry(*row) for row in zip(record.store_device, record.store_host, metas, strict=False)]
    if isinstance(moment.action, Finish):
        return Event((), tuple(entries), ())
    first = len(accepted(moment))
    last = len(entries) - sum(len(waiting.device) for waiting in host.queued)
    return Event(tuple(entries[:first]), tuple(entries[first:last]), tuple(entries[max(first, last) :]))


# --- HO-3 to HO-5 ---------------------------------------------------------------------------------------------------


def is_tracked(world: World, request: int) -> bool:
    """Tell whether a request may hand states over: it lives, the store side knows it, and this step did not preempt it."""
    host = world.host
    if host is None or ground.request_of(world, request) is None:
        return False
    track = ground_host.track_of(host, request)
    gone = (*world.plan.preempted, *world.plan.preempted_before)
    return track is not None and not track.finished and request not in gone


def _accepted_from_the_living(moment: Moment) -> Findings:
    """HO-3: whose handoff is stored is tracked, has not finished, and was not preempted in this step."""
    rows = accepted(moment)
    if not rows:
        return None
    return [
        Evidence.of("a handoff of a request that is gone is stored", request=request, group=group, block=block, boundary=n)
        for request, group, block, n in rows
        if not is_tracked(moment.before, request)
    ]


def _pinned_until_complete(moment: Moment) -> Findings:
    """HO-4: the source of a stored handoff is pinned until its event completes; events go by completion or a reset only."""
    host, before = moment.after.host, moment.before.host
    if moment.record is None or host is None or before is None:
        return None
    snapshots = set(ground.snapshot_groups(moment.after.config))
    pool = moment.after.pool
    judged = False
    found = []
    for store in ground_host.all_stores(host):
        for block in store.device:
            if pool.key_group[block] not in snapshots and pool.key_group[block] != NO_KEY:
                continue
            judged = True
            if pool.ref[block] < 1 or block in pool.free:
                found.append(Evidence.of("the source of a running store is not pinned", event=store.event, block=block))
    for store in ground_host.all_stores(before):
        now = ground_host.store_of(host, store.event)
        if now is None and not isinstance(moment.action, CompleteStore):
            found.append(Evidence.of("a running store is forgotten", event=store.event, blocks=store.device))
        elif now is not None and (now.device, now.host) != (store.device, store.host):
            found.append(Evidence.of("a running store changes its blocks", event=store.event, before=store, after=now))
    for block, count in Counter(block for _, _, block, _ in accepted(moment)).items():
        if pool.ref[block] < moment.before.pool.ref[block] + count:
            found.append(Evidence.of("a handoff is stored without a pin", block=block, ref=pool.ref[block]))
    return found if judged or found else None


def _counted(counters: Counters) -> dict[str, int]:
    return {name: getattr(counters, name) for name in OUTCOMES}


def _every_handoff_counted(moment: Moment) -> Findings:
    """HO-5: what is published is counted once more, under what became of it."""
    before, host, record = moment.before.host, moment.after.host, moment.record
    if record is None or before is None or host is None:
        return None
    if not (record.outcomes or host.counters.published or before.counters.published or any(_counted(host.counters).values())):
        return None
    found = []
    outcomes = _counted(host.counters)
    if host.counters.published != sum(outcomes.values()):
        found.append(
            Evidence.of("handoffs and what became of them differ", published=host.counters.published, outcomes=outcomes)
        )
    if isinstance(moment.action, BuildMetadata):
        told = Counter(row[4] for row in record.outcomes)
        was = _counted(before.counters)
        grown = {name: outcomes[name] - was[name] for name in OUTCOMES}
        if grown != {name: told[name] for name in OUTCOMES} or set(told) - set(OUTCOMES):
            found.append(Evidence.of("handoffs are counted as something else", counted=grown, told=dict(told)))
    return found


# --- HO-6, HO-8 -----------------------------------------------------------------------------------------------------


def _stored_once(moment: Moment) -> Findings:
    """HO-6: a device block is in one queued or running store."""
    host = moment.after.host
    if moment.record is None or host is None or not (host.stores or host.queued):
        return None
    count = Counter(ground_host.outstanding(host))
    return [Evidence.of("a block is stored twice at a time", block=block, stores=n) for block, n in count.items() if n > 1]


def _states_by_handoff(moment: Moment) -> Findings:
    """HO-8: eagerly, states of Mamba align are stored by handoffs only, and nothing else is."""
    event = selected(moment)
    if event is None or not ground_host.is_eager(moment.before):
        return None
    snapshots = set(ground.snapshot_groups(moment.before.config))
    if not snapshots:
        return None
    group_of = moment.before.pool.key_group
    found = [
        Evidence.of("a state is stored without a handoff", block=entry.device, group=group_of[entry.device])
        for entry in event.scanned
        if group_of[entry.device] in snapshots
    ]
    found += [
        Evidence.of("a handoff stores a block that is no state", block=entry.device, group=group_of[entry.device])
        for entry in event.handoffs
        if group_of[entry.device] not in snapshots
    ]
    return found


# --- HO-10 ----------------------------------------------------------------------------------------------------------


def scan_of(moment: Moment) -> list[Place]:
    """Return the places that the scan of this action may select from: of a step those that the cursors passed, of a finished
    request those behind its cursors, and its partial tail.
    """
    world = moment.before
    before, after = ground_host.host_of(world), ground_host.host_of(moment.after)
    if isinstance(moment.action, Finish):
        request, track = ground.request_of(world, moment.action.request), ground_host.track_of(before, moment.action.request)
        return [] if request is None or track is None else list(_left_by(world, request, track.cursors))
    places = []
    gone = (*world.plan.preempted, *world.plan.preempted_before)
    for track in after.tracks:
        was, request = ground_host.track_of(before, track.request), ground.request_of(world, track.request)
        if was is None or request is None:
            continue
        for group in ground_host.stable_groups(world.config):
            first = 0 if track.request in gone else was.cursors[group]
            confirmed = request.computed - request.placeholders
            places += [
                place
                for place in ground_host.scanned(world, request, group, confirmed, first)
                if place.column < track.cursors[group]
            ]
    return places


def _left_by(world: World, request: Request, cursors: tuple[int, ...]) -> Iterator[Place]:
    """Yield what a finished request leaves to be stored, its full-attention tail with the node of the tail's key."""
    config = world.config
    for group in ground_host.stable_groups(config):
        dead = ground.unread(config.groups[group], request.computed) // ground.span(config, group)
        for place in ground_host.scanned(world, request, group, request.computed, cursors[group]):
            yield place if place.column >= dead else Place(place.request, group, place.column, place.node, ground.NULL)
    for group in ground.full_groups(config):
        boundary = ground_host.tail_boundary(config, request, group)
        column, rest = divmod(boundary, ground.span(config, group))
        table = request.groups[group].table
        if rest and boundary <= request.computed and column < len(table) and ground_host.is_fine(config):
            yield Place(request.request, group, column, ground.lineage(world.prefixes, request.tip)[boundary], table[column])


def _block_of_its_place(moment: Moment) -> Findings:
    """HO-10: what the scan selects stands where it was looked for, and is keyed for just that; nulled entries are found by
    their key.
    """
    event = selected(moment)
    if event is None or not event.scanned or not ground_host.is_eager(moment.before):
        return None
    pool = moment.before.pool
    places = scan_of(moment)
    found = []
    for entry in event.scanned:
        primary = (pool.key_node[entry.device], pool.key_group[entry.device])
        fits = [place for place in places if fits_place(moment.before, place, entry.device)]
        if not fits:
            found.append(
                Evidence.of(
                    "a selected block is not what its place in a table denotes",
                    block=entry.device,
                    key=primary[0],
                    group=primary[1],
                    boundary=pool.key_tokens[entry.device],
                    places=tuple((place.request, place.group, place.column, place.block) for place in places),
                )
            )
        for place in sorted(fits, key=lambda place: place.block != entry.device)[:1]:
            places.remove(place)
    return found


def fits_place(world: World, place: Place, block: int) -> bool:
    """Tell whether a block may be selected for a place: it stands there, or a window left the entry, and it is keyed for the
    end of the place. Its primary is that key, or (a tail, or after T4 took the whole block's key) another one of the place.
    """
    if place.block not in (block, ground.NULL):
        return False
    path = ground.lineage(world.prefixes, place.node)
    size = ground.span(world.config, place.group)
    inside = set(path[(len(path) - 2) // size * size + 1 :])
    keys = ground_host.keys_of(world.pool, block)
    if is_tail(world, place) or place.block == ground.NULL:
        return (place.node, place.group) in keys
    return world.pool.key_group[block] == place.group and world.pool.key_node[block] in inside


def is_tail(world: World, place: Place) -> bool:
    """Tell whether a place is a partial tail: its key names a boundary inside the block, possibly as a secondary."""
    return (len(ground.lineage(world.prefixes, place.node)) - 1) % ground.span(world.config, place.group) != 0


# --- HO-11 ----------------------------------------------------------------------------------------------------------


def _keys_stay(moment: Moment) -> Findings:
    """HO-11: between selection and completion a block only gets keys of boundaries that its bytes cover; a withdrawal may take
    them again.
    """
    host = moment.before.host
    if moment.record is None or host is None or moment.before.pool.entries == moment.after.pool.entries:
        return None
    if isinstance(moment.action, EvictBlocks) or ground.doubted(moment.before, moment.action):
        return None  # asked for by block id (T4), or a load failed (T36.2)
    prefixes = moment.after.prefixes
    anew = {record.block for _, records in moment.before.plan.undo for record in records if record.primary[0] == NO_KEY}
    judged = False
    found = []
    for block in sorted(set(ground_host.outstanding(host))):
        had, has = ground_host.keys_of(moment.before.pool, block), ground_host.keys_of(moment.after.pool, block)
        if not has and isinstance(moment.action, Withdraw):
            continue  # the plan had keyed anew what was evicted by block id
        primary = (moment.before.pool.key_node[block], moment.before.pool.key_group[block])
        if primary[0] == NO_KEY or (isinstance(moment.action, Withdraw) and block in anew):
            continue  # evicted by block id (T4), and keyed anew by what is withdrawn now
        judged = True
        covered = set(ground.lineage(prefixes, primary[0])) if primary[1] >= 0 else set()
        if primary[1] >= 0 and ground.is_recurrent(moment.before.config.groups[primary[1]]):
            covered = {primary[0]}
        lost = {key for key in had - has if key == primary or not isinstance(moment.action, Withdraw)}
        new = {key for key in has - had if key[1] != primary[1] or key[0] not in covered}
        now = (moment.after.pool.key_node[block], moment.after.pool.key_group[block])
        if lost or new or now != primary:
            found.append(
                Evidence.of(
                    "the keys of a block change while it is stored",
                    block=block,
                    primary=primary,
                    now=now,
                    lost=sorted(lost),
                    new=sorted(new),
                )
            )
    return found if judged else None


LAWS: tuple[Law, ...] = (
    Law(
        id="HO-3",
        mark="S",
        sentence="A handoff is stored only while its request is tracked, has not finished and was not preempted in this step.",
        source="#54736",
        faults=("M-HO-3",),
        on=(BuildMetadata,),
        check=_accepted_from_the_living,
    ),
    Law(
        id="HO-4",
        mark="S",
        sentence="The source of a stored handoff is pinned until its store completes; a running store keeps its blocks, and "
        "nothing but its completion ends it.",
        source="#54736",
        faults=("M-HO-4",),
        check=_pinned_until_complete,
    ),
    Law(
        id="HO-5",
        mark="D",
        sentence="Handoffs published are as many as were stored, dropped and skipped, each counted as what became of it.",
        source="#54736",
        faults=("M-CNT-1", "M-CNT-3"),
        on=(BuildMetadata, ReadCounters, ResetHost, Finish),
        check=_every_handoff_counted,
    ),
    Law(
        id="HO-6",
        mark="D",
        sentence="A device block is in at most one queued or running store.",
        source="#54736",
        faults=("M-DUP-1", "M-DUP-2"),
        on=(BuildMetadata, Finish),
        check=_stored_once,
        bent_by=(("positional_ids", "accumulated"),),
    ),
    Law(
        id="HO-8",
        mark="S",
        sentence="Stored eagerly, the states of a Mamba-align group come by handoffs, and nothing else does.",
        source="#54736",
        faults=("M-STAB-1",),
        on=(BuildMetadata, Finish),
        check=_states_by_handoff,
        bent_by=(("positional_ids", "accumulated"),),
    ),
    Law(
        id="HO-10",
        mark="S",
        sentence="A positionally selected block is the one that the table of its request has at that place at selection, or, "
        "for an entry that a window has left, one with its key; it is keyed for the end of that place.",
        source="#42959, #42903",
        faults=("M-STALE-1", "M-PUB-110"),
        on=(BuildMetadata, Finish),
        check=_block_of_its_place,
        bent_by=(("positional_ids", "accumulated"),),
    ),
    Law(
        id="HO-11",
        mark="S",
        sentence="While a block is being stored its keys change by nothing but boundaries that its bytes cover, and by a "
        "withdrawal that takes these again.",
        source="vLLM 0.33.0",
        faults=("M-REPLAY-1",),
        on=(Allocate, Output, Promote, Withdraw),
        check=_keys_stay,
        bent_by=(("positional_ids", "accumulated"),),
    ),
)
