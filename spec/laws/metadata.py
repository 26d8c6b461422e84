"""Laws of what the events of stored blocks will say: family IP (semantics 5.6).

An event's lists are index-parallel: device block i goes to host block i and is described by meta i. Without events there is no
meta at all.
"""

from __future__ import annotations

from kvproof.core.actions import BuildMetadata, CompleteStore, Finish
from kvproof.core.offload.state import Meta
from kvproof.core.world import World
from kvproof.spec import ground, ground_host
from kvproof.spec.laws.base import Evidence, Findings, Law, Moment
from kvproof.spec.laws.stores import Entry, fits_place, is_tail, scan_of, selected

EMPTY: Meta = ()


def _lengths(device: tuple[int, ...], host: tuple[int, ...], meta: tuple[Meta, ...] | None) -> tuple[int, ...]:
    return len(device), len(host), len(device) if meta is None else len(meta)


def _uneven(name: str, lengths: tuple[int, ...]) -> list[Evidence]:
    return [Evidence.of(f"the lists of {name} have different lengths", lengths=lengths)] if len(set(lengths)) > 1 else []


def _has_meta(world: World, meta: tuple[Meta, ...] | None) -> bool:
    """Tell whether metadata is there iff somebody will need it: eagerly, with events (3.5, T33)."""
    return (meta is not None) == (world.config.events and ground_host.is_eager(world))


def _parallel(moment: Moment) -> Findings:
    """IP-1: the lists of every store event are of one length, and metadata is there iff there are events."""
    record, host = moment.record, moment.after.host
    if record is None or host is None or not (host.stores or record.store_device):
        return None
    found = []
    for store in host.stores:
        found += _uneven(f"store event {store.event}", _lengths(store.device, store.host, store.meta))
        if not _has_meta(moment.after, store.meta):
            found.append(Evidence.of("a store event has metadata without events, or none with them", event=store.event))
    if record.store_device:
        found += _uneven("the record", _lengths(record.store_device, record.store_host, record.store_meta))
    known = ground_host.store_of(host, record.store_event)
    if isinstance(moment.action, BuildMetadata) and record.store_event >= 0:
        said = (record.store_device, record.store_host, record.store_meta)
        if known is None or (known.device, known.host, known.meta) != said:
            found.append(Evidence.of("the event that runs is not the one that was selected", told=said, event=known))
    return found


def _describes_its_block(moment: Moment) -> Findings:
    """IP-2: what a block's metadata says are the hash boundaries of its own entry, its primary key among them."""
    event = selected(moment)
    if event is None or moment.record is None or moment.record.store_meta is None:
        return None
    judged = False
    found = []
    for entry in event.scanned:
        if entry.meta:
            judged = True
            found += _wrong_items(moment.before, entry)
    return found if judged else None


def _wrong_items(world: World, entry: Entry) -> list[Evidence]:
    """Compare the metadata of a scanned block with the boundaries of the entry that its primary key names."""
    node, group = world.pool.key_node[entry.device], world.pool.key_group[entry.device]
    said = dict(entry.meta or EMPTY)
    if node < 0 or node not in said:
        return [Evidence.of("the metadata of a block does not name its primary key", block=entry.device, key=node, meta=said)]
    expected = dict(ground_host.expected_items(world, group, max(said, key=lambda known: world.prefixes.depth[known])))
    if said == expected and len(said) == len(entry.meta or EMPTY):
        return []
    return [
        Evidence.of(
            "the metadata of a block is not that of its entry", block=entry.device, group=group, expected=expected, meta=said
        )
    ]


def _queued_stays_parallel(moment: Moment) -> Findings:
    """IP-3: queued stores of finished requests are index-parallel, and stay so when they join a step's event, behind it."""
    before, host, record = moment.before.host, moment.after.host, moment.record
    if record is None or before is None or host is None:
        return None
    found = []
    if isinstance(moment.action, Finish):
        if not host.queued:
            return None
        for waiting in host.queued:
            found += _uneven("a queued store", _lengths(waiting.device, waiting.host, waiting.meta))
            if not _has_meta(moment.after, waiting.meta):
                found.append(Evidence.of("a queued store has metadata without events, or none with them"))
        if host.queued[: len(before.queued)] != before.queued:
            found.append(Evidence.of("a request that finishes changes what others left queued", queued=before.queued))
        return found
    if not before.queued:
        return None
    merged: list[tuple[int, int, Meta | None]] = []
    for waiting in before.queued:
        metas: tuple[Meta | None, ...] = waiting.meta or (None,) * len(waiting.device)
        merged += zip(waiting.device, waiting.host, metas, strict=False)
    event = selected(moment)
    joined = [] if event is None else [(entry.device, entry.host, entry.meta) for entry in event.queued]
    if joined != merged or host.queued:
        found.append(
            Evidence.of("queued stores do not join the step's event as they are", queued=merged, event=joined, left=host.queued)
        )
    return found


def _nothing_said_of_states(moment: Moment) -> Findings:
    """IP-4: handoffs and partial tails carry an empty metadata entry, everything else one that is not empty."""
    event = selected(moment)
    if event is None or moment.record is None or moment.record.store_meta is None:
        return None
    world = moment.before
    found = [
        Evidence.of("a handoff carries metadata", block=entry.device, meta=entry.meta)
        for entry in event.handoffs
        if entry.meta != EMPTY
    ]
    places = scan_of(moment)
    for entry in event.scanned:
        mine = [place for place in places if fits_place(world, place, entry.device)]
        if mine and not any(is_tail(world, place) == (entry.meta == EMPTY) for place in mine):
            found.append(
                Evidence.of("a partial tail carries metadata, or a whole block none", block=entry.device, meta=entry.meta)
            )
    return found


def _state_events_from_handoffs(moment: Moment) -> Findings:
    """IP-5: events of Mamba-align groups come from handoffs: the scan describes no state, a state's event has no payload."""
    world, record = moment.before, moment.record
    snapshots = set(ground.snapshot_groups(world.config))
    if record is None or world.host is None or not world.config.events or not snapshots:
        return None
    if isinstance(moment.action, CompleteStore):
        said = [event for event in record.events if event.kind == "stored" and event.medium == "host"]
        said = [event for event in said if event.group in snapshots]
        if not said:
            return None
        return [
            Evidence.of("the event of a stored state carries tokens", group=event.group, node=event.node, tokens=event.tokens)
            for event in said
            if event.tokens
        ]
    event = selected(moment)
    if event is None or record.store_meta is None:
        return None
    mine = [entry for entry in (*event.handoffs, *event.scanned) if world.pool.key_group[entry.device] in snapshots]
    if not mine:
        return None
    return [
        Evidence.of("the scan describes a state", block=entry.device, meta=entry.meta)
        for entry in mine
        if entry in event.scanned or entry.meta
    ]


LAWS: tuple[Law, ...] = (
    Law(
        id="IP-1",
        mark="S",
        sentence="Device blocks, host blocks and, with events, metadata of a store event are lists of one length.",
        source="#54736",
        faults=("M-META-1",),
        on=(BuildMetadata, Finish),
        check=_parallel,
    ),
    Law(
        id="IP-2",
        mark="S",
        sentence="The metadata of a scanned block names the hash boundaries of its own entry, its primary key among them.",
        source="#54736",
        faults=("M-META-2", "M-PUB-158"),
        on=(BuildMetadata, Finish),
        check=_describes_its_block,
        bent_by=(("positional_ids", "accumulated"),),
    ),
    Law(
        id="IP-3",
        mark="S",
        sentence="Queued stores of finished requests are index-parallel and join the next step's event unchanged, behind its "
        "own.",
        source="#54736",
        faults=("M-META-3",),
        on=(BuildMetadata, Finish),
        check=_queued_stays_parallel,
    ),
    Law(
        id="IP-4",
        mark="D",
        sentence="Handoffs and partial tails carry empty metadata, scanned blocks do not.",
        source="#54736",
        faults=("M-META-4",),
        on=(BuildMetadata, Finish),
        check=_nothing_said_of_states,
    ),
    Law(
        id="IP-5",
        mark="D",
        sentence="Events of Mamba-align groups arise from handoffs alone and carry no tokens.",
        source="#54736",
        faults=("M-STAB-1",),
        on=(BuildMetadata, Finish, CompleteStore),
        check=_state_events_from_handoffs,
        bent_by=(("positional_ids", "accumulated"),),
    ),
)
