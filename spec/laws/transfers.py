"""Laws of the bytes that transfers move: CC-4 to CC-6 (semantics 5.11).

A transfer's bytes move when it becomes copied: by ``RunStore`` or ``RunLoad``, or in the part of a step that waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kvproof.core.actions import Allocate, Execute, RunLoad, RunStore
from kvproof.core.offload.state import Load, Stage, Store
from kvproof.core.pool import NULL_BLOCK
from kvproof.core.world import World
from kvproof.spec import ground, ground_host
from kvproof.spec.laws.base import WRONG_CONTENT, Evidence, Findings, Law, Moment

# --- CC-4 -----------------------------------------------------------------------------------------------------------


def _host_keys_true(moment: Moment) -> Findings:
    """CC-4: what is keyed on the host is what was copied there."""
    before, host = moment.before.host, moment.after.host
    if moment.record is None or before is None or host is None or not host.pool.entries:
        return None
    if before.pool.entries == host.pool.entries and before.contents is host.contents:
        return None
    return [
        Evidence.of(
            "a host key names a block that does not hold its prefix",
            group=group,
            block=block,
            key=node,
            boundary=len(ground.lineage(moment.after.prefixes, node)) - 1,
            content=host.contents[block],
        )
        for node, group, _, block in host.pool.entries
        if not ground_host.holds_prefix(moment.after, group, node, host.contents[block])
    ]


# --- CC-5 -----------------------------------------------------------------------------------------------------------


def copied_now(moment: Moment) -> list[Store]:
    """Return the stores whose bytes moved in this action, abandoned ones included."""
    before, host = moment.before.host, moment.after.host
    if moment.record is None or before is None or host is None:
        return []
    waited = {store.event for store in ground_host.all_stores(before) if store.stage is not Stage.COPIED}
    return [store for store in ground_host.all_stores(host) if store.stage is Stage.COPIED and store.event in waited]


def _stored_bytes(moment: Moment) -> Findings:
    """CC-5: a store copies what the keys of its blocks claim, whole; what it still has to copy is not overwritten."""
    if moment.record is None or moment.before.host is None:
        return None
    stores = copied_now(moment)
    found: list[Evidence] = []
    for store in stores:
        for block, destination in zip(store.device, store.host, strict=False):
            found += _wrong_copy(moment, store.event, block, destination)
    judged = bool(stores)
    for store in _ready(moment.before):
        judged = True
        for block in store.device:
            cell = overwritten(moment.before, block, moment.before.contents[block], moment.after.contents[block])
            if cell is not None:
                found.append(
                    Evidence.of("a block is overwritten before its store ran", event=store.event, block=block, cell=cell)
                )
    return found if judged else None


def _wrong_copy(moment: Moment, event: int, block: int, destination: int) -> Iterator[Evidence]:
    """Yield what is wrong with one copied block: another content than the device block's, or not what a key of it claims."""
    world, host = moment.after, ground_host.host_of(moment.after)
    content, keys = host.contents[destination], ground_host.keys_of(world.pool, block)
    place = {"event": event, "block": block, "host": destination}
    if content not in (moment.before.contents[block], world.contents[block]):
        yield Evidence.of("a store does not copy the whole block", **place, content=content, device=world.contents[block])
    for node, group in keys:
        if not ground_host.holds_prefix(world, group, node, content):
            yield Evidence.of("a store copies other bytes than the block is keyed for", **place, key=node, content=content)


def _ready(world: World) -> Iterator[Store]:
    """Yield the stores that may be copied at any time: their step has run its forward, their bytes have not moved."""
    forward = ground.parts(world.config).index("forward")
    pending = {step.store for step in world.steps if step.part <= forward}
    for store in ground_host.all_stores(ground_host.host_of(world)):
        if store.stage is not Stage.COPIED and store.event not in pending and store.event != world.plan.store:
            yield store


def overwritten(world: World, block: int, before: tuple[int, ...], after: tuple[int, ...]) -> int | None:
    """Return a cell of a block that held a token or state and now holds another, None if there is none.

    Positions behind the primary key may be written on: they are not what the copy is for.
    """
    if before == after or not before:
        return None
    node, group = world.pool.key_node[block], world.pool.key_group[block]
    cells: Iterable[int] = range(len(before))
    if group >= 0 and ground.has_positions(world.config.groups[group]):
        where, depth = ground.cells(world.config, group), world.prefixes.depth[node]
        inside = depth % len(where) or len(where)
        cells = (0, *(cell for position in range(inside) for cell in where[position]))
    return next((cell for cell in cells if before[cell] >= 0 and (cell >= len(after) or after[cell] != before[cell])), None)


# --- CC-6 -----------------------------------------------------------------------------------------------------------


def loaded_now(moment: Moment) -> list[Load]:
    """Return the loads whose bytes moved in this action, abandoned ones included."""
    before, host = moment.before.host, moment.after.host
    if moment.record is None or before is None or host is None:
        return []
    waited = {
        (load.request, load.event) for load in ground_host.all_loads(before) if load.stage not in (Stage.COPIED, Stage.WAITING)
    }
    loads = ground_host.all_loads(host)
    return [load for load in loads if load.stage is Stage.COPIED and (load.request, load.event) in waited]


def _loads_hit_nobody(moment: Moment) -> Findings:
    """CC-6: what a load fills was taken for it, and nobody else reads or writes it when the bytes move."""
    if isinstance(moment.action, Allocate):
        return _taken_for_it(moment, moment.action)
    loads = loaded_now(moment)
    if not loads:
        return None
    world = moment.after
    found = []
    for load in loads:
        filled = {block for block in load.device if block != NULL_BLOCK}
        for use, blocks in _uses(world, load):
            both = sorted(filled & blocks)
            if both:
                found.append(Evidence.of(f"a load writes blocks {use}", request=load.request, blocks=both))
    before, after = moment.before.contents, world.contents
    filled = {block for load in loads for block in load.device}
    if isinstance(moment.action, RunLoad) or (isinstance(moment.action, Execute) and moment.action.part == "flush"):
        others = [block for block, content in enumerate(after) if content != before[block] and block not in filled]
        if others:
            found.append(Evidence.of("a load writes blocks that it does not name", blocks=others))
    return found


def _taken_for_it(moment: Moment, action: Allocate) -> Findings:
    """A load fills blocks that its own allocation took and nobody else holds."""
    if not action.load or moment.record is None or not moment.record.admitted:
        return None
    ends = {end for _, source, destination in moment.after.plan.copies for end in (source, destination)}
    taken = set(moment.record.taken)
    return [
        Evidence.of(
            "a load fills a block that is not its own", request=action.request, group=group, column=column, block=device
        )
        for group, column, device, _ in moment.record.pairs
        if device != NULL_BLOCK and (device not in taken or device in ends or moment.after.pool.ref[device] > 2)
    ]


def _uses(world: World, load: Load) -> Iterator[tuple[str, set[int]]]:
    """Yield who else may touch blocks: other requests by their tables, steps to be executed by rows and copies, and keys."""
    tables = {
        block
        for request in world.requests
        if request.request != load.request
        for state in request.groups
        for block in state.table
    }
    yield "that another request holds", tables
    yield "that have a key", {block for _, _, _, block in world.pool.entries}
    rows: set[int] = set()
    ends: set[int] = set()
    parts = ground.parts(world.config)
    for step in world.steps:
        if step.part <= parts.index("forward"):
            for entry in step.scheduled:
                if entry.request != load.request:
                    rows.update(ground.used_blocks(world, entry))
        if step.part <= parts.index("copy"):
            ends |= {end for _, source, destination in step.copies for end in (source, destination)}
    yield "that a dispatched step will use", rows
    yield "that a dispatched step will copy", ends


LAWS: tuple[Law, ...] = (
    Law(
        "CC-4",
        "S",
        "Every host key names a host block that holds its prefix: all positions of its block, or the state at its boundary.",
        "#54736",
        ("M-REPLAY-1", "M-EARLY-2"),
        check=_host_keys_true,
        bent_by=(*WRONG_CONTENT, ("lagging_groups", "any")),
    ),
    Law(
        "CC-5",
        "S",
        "A store copies whole blocks that then hold what their keys claim, and none of that is overwritten between the forward "
        "of the store's step and its copy.",
        "#45704",
        ("M-ORD-1", "M-RACE-1"),
        on=(RunStore, RunLoad, Execute),
        check=_stored_bytes,
        bent_by=(*WRONG_CONTENT, ("lagging_groups", "any"), ("positional_ids", "accumulated")),
    ),
    Law(
        "CC-6",
        "S",
        "A load fills only blocks that its allocation took, which no other request, no dispatched step and no key reaches when "
        "the bytes move.",
        "vLLM 0.33.0",
        ("M-TAIL-2",),
        on=(Allocate, RunLoad, Execute),
        check=_loads_hit_nobody,
    ),
)
