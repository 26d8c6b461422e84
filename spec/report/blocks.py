"""What each block of both tiers is in a world, in words that a reader can use."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from attrs import frozen

from kvproof.core.config import Config
from kvproof.core.contents import GARBAGE, UNWRITTEN
from kvproof.core.offload.state import Load, Queued, Store
from kvproof.core.pool import Pool
from kvproof.core.world import Phase, Request, World
from kvproof.spec import ground
from kvproof.spec.report.names import Names

Tier = Literal["device", "host"]

Owner = tuple[str, int, int]

PHASES: dict[Phase, str] = {
    Phase.IDLE: "no plan open",
    Phase.PLAN_RUNNING: "plan open, running requests",
    Phase.PLAN_WAITING: "plan open, waiting requests",
    Phase.DRAINED: "plan drained",
    Phase.BUILT: "metadata built",
}


@frozen(slots=True)
class Claim:
    """A key of a block: its group and prefix, whether it is the primary one, and what of its bytes is not so ("" if all is)."""

    group: int
    prefix: str
    primary: bool
    wrong: str = ""

    @property
    def text(self) -> str:
        """The key as reports write it."""
        return f"g{self.group} {self.prefix}"


@frozen(slots=True)
class Block:
    """One physical block after an action.

    ``owners`` are the table entries that name it (label of the request, group, column), ``pins`` what else refers to it, in
    words. ``place`` is its place in the free queue, None outside. ``group`` says whose bytes it has (None: never written),
    ``ranks`` what they are on each DCP rank.
    """

    tier: Tier
    block: int
    refs: int
    place: int | None
    owners: tuple[Owner, ...]
    pins: tuple[str, ...]
    claims: tuple[Claim, ...]
    group: int | None
    ranks: tuple[str, ...]

    @property
    def name(self) -> str:
        """The block as reports write it."""
        return block_name(self.tier, self.block)

    @property
    def bytes(self) -> str:
        """What it holds, ranks told apart only where they differ in more than the positions that each owns."""
        return " | ".join(dict.fromkeys(self.ranks))

    @property
    def glyph(self) -> str:
        """The block in a few characters: who has it, references if there are several, and whether it has a key."""
        return self.glyph_at(str(self.place))

    def glyph_at(self, place: str) -> str:
        """Return the same with something else for its place in the free queue."""
        labels = list(dict.fromkeys(owner[0][1:] for owner in self.owners))
        if labels:
            text = "+".join(labels) if len(labels) < 3 else f"{len(labels)}x"
        elif self.pins:
            text = "p"
        elif self.place is not None:
            text = f"·{place}"
        else:
            text = "?" if self.refs else ""
        return text + (f"×{self.refs}" if self.refs > 1 else "") + ("•" if self.claims else "")

    @property
    def wrong(self) -> tuple[Claim, ...]:
        """The keys that claim something else than it holds."""
        return tuple(claim for claim in self.claims if claim.wrong)


@frozen(slots=True)
class Frame:
    """The world after an action; ``position`` -1 is the beginning. ``requests`` says what each live request does.

    ``settled``: no plan is open and every step is executed, so that the bytes are to be what the keys claim.
    """

    position: int
    phase: str
    settled: bool
    requests: tuple[str, ...]
    device: tuple[Block, ...]
    host: tuple[Block, ...]
    free: tuple[int, ...]
    host_free: tuple[int, ...]

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks of both tiers, without their null blocks."""
        yield from self.device
        yield from self.host

    @property
    def wrong(self) -> list[tuple[Block, Claim]]:
        """The keys that claim something else than the bytes, with their blocks; none in the middle of a step."""
        return [(block, claim) for block in self.blocks() for claim in block.wrong] if self.settled else []

    def of(self, tier: Tier, block: int) -> Block:
        """Return a block."""
        found = self.device if tier == "device" else self.host
        return next(one for one in found if one.block == block)


def block_name(tier: Tier, block: int) -> str:
    """Return how reports call a block: host blocks have an h before their number."""
    return f"h{block}" if tier == "host" else str(block)


Rows = Collection[tuple[Tier, int]]
"""Blocks that are looked at."""


def frame_of(world: World, position: int, names: Names, rows: Rows | None = None) -> Frame:
    """Return what the blocks are in a world; ``rows`` are those that are looked at, all if left out."""
    owners = _owners(world, names)
    host = world.host
    return Frame(
        position=position,
        phase=PHASES[world.phase],
        settled=world.phase is Phase.IDLE and all(step.part == len(world.config.parts) for step in world.steps),
        requests=tuple(said_of(request, names) for request in world.requests),
        device=_blocks("device", world.pool, world.contents, world, owners, _pins(world, names), names, rows),
        host=()
        if host is None
        else _blocks("host", host.pool, host.contents, world, {}, _host_pins(world, names), names, rows),
        free=world.pool.free,
        host_free=() if host is None else host.pool.free,
    )


def said_of(request: Request, names: Names) -> str:
    """Return what a request does, its name first."""
    parts = [request.status.name.lower(), f"{request.computed} of {request.num_tokens} tokens computed"]
    if request.in_flight:
        parts.append(f"{request.in_flight} in flight")
    if request.num_preemptions:
        parts.append(f"preempted {request.num_preemptions} times")
    return f"{names.request(request.request)} {', '.join(parts)}"


def _owners(world: World, names: Names) -> dict[int, list[Owner]]:
    found: dict[int, list[Owner]] = {}
    for request in world.requests:
        for group, state in enumerate(request.groups):
            for column, block in enumerate(state.table):
                if block != ground.NULL:
                    found.setdefault(block, []).append((names.request(request.request), group, column))
    return found


def _pins(world: World, names: Names) -> dict[int, list[str]]:
    """Say what refers to device blocks beside tables."""
    named: list[tuple[Iterable[int], str]] = []
    if world.phase in ground.PLANNING:
        for group, source, destination in world.plan.copies:
            named.append(((source,), f"copy to {destination} owed (g{group})"))
            named.append(((destination,), f"copy from {source} owed (g{group})"))
    named += [(table, "deferred free") for free in world.deferred for table in free.tables]
    named += ((transfer.device, what) for transfer, what in _transfers(world, names))
    if world.host is not None:
        loads = (*world.host.loads, *world.host.abandoned_loads)
        named += ((table, f"kept for the load of {names.of(load)}") for load in loads for table in load.held)
    return _gathered(named)


def _host_pins(world: World, names: Names) -> dict[int, list[str]]:
    """Say what refers to host blocks."""
    hits = () if world.host is None else world.host.pending
    pinned = [(table, f"hit of {names.of(hit)}") for hit in hits for table in hit.lists]
    return _gathered([*((transfer.host, what) for transfer, what in _transfers(world, names)), *pinned])


def _transfers(world: World, names: Names) -> Iterator[tuple[Store | Queued | Load, str]]:
    """Yield the stores and loads of a world that are not over, each in words."""
    host = world.host
    if host is None:
        return
    yield from ((store, f"store {store.event}") for store in host.stores)
    yield from ((store, f"abandoned store {store.event}") for store in host.abandoned_stores)
    yield from ((queued, "queued store") for queued in host.queued)
    yield from ((load, f"load of {names.of(load)}") for load in host.loads)
    yield from ((load, f"abandoned load of {names.of(load)}") for load in host.abandoned_loads)


def _gathered(named: Iterable[tuple[Iterable[int], str]]) -> dict[int, list[str]]:
    """Return what is said of each block, without the null block."""
    found: dict[int, list[str]] = {}
    for blocks, what in named:
        for block in blocks:
            if block != ground.NULL:
                found.setdefault(block, []).append(what)
    return found


def _blocks(
    tier: Tier,
    pool: Pool,
    contents: Sequence[tuple[int, ...]],
    world: World,
    owners: Mapping[int, list[Owner]],
    pins: Mapping[int, list[str]],
    names: Names,
    rows: Rows | None,
) -> tuple[Block, ...]:
    places = {block: place for place, block in enumerate(pool.free)}
    keys: dict[int, list[tuple[int, int]]] = {}
    for node, group, _, block in sorted(pool.entries, key=lambda entry: entry[2]):
        keys.setdefault(block, []).append((node, group))
    found = []
    for block in range(1, len(pool.ref)) if rows is None else sorted(block for where, block in rows if where == tier):
        content = contents[block]
        primary = (pool.key_node[block], pool.key_group[block])
        found.append(
            Block(
                tier=tier,
                block=block,
                refs=pool.ref[block],
                place=places.get(block),
                owners=tuple(owners.get(block, ())),
                pins=tuple(pins.get(block, ())),
                claims=tuple(
                    Claim(group, names.at(node), (node, group) == primary, _wrong(world, group, node, content, names))
                    for node, group in keys.get(block, ())
                ),
                group=content[0] if content else None,
                ranks=_ranks(world.config, content, names),
            )
        )
    return tuple(found)


def _ranks(config: Config, content: tuple[int, ...], names: Names) -> tuple[str, ...]:
    """Say what lies in a block on each rank."""
    if not content:
        return ("unwritten",) * config.dcp_size
    spec = config.groups[content[0]]
    if ground.is_recurrent(spec):
        return tuple(f"state {names.at(node)}" if node >= 0 else names.cell(node) for node in content[1:])
    size = (len(content) - 1) // config.dcp_size
    return tuple(names.cells(content[1 + rank * size : 1 + (rank + 1) * size]) for rank in range(config.dcp_size))


def _wrong(world: World, group: int, node: int, content: tuple[int, ...], names: Names) -> str:
    """Say what of a keyed block is not as its key claims, "" if all is (CC-3): positions of its prefix, or its state."""
    config = world.config
    spec = config.groups[group]
    path = ground.lineage(world.prefixes, node)
    if ground.is_recurrent(spec):
        states = content[1:] if content and content[0] == group else (GARBAGE if content else UNWRITTEN,) * config.dcp_size
        for rank, state in enumerate(states):
            if state != node:
                return f"rank {rank} has {'state ' + names.at(state) if state >= 0 else names.cell(state)}"
        return ""
    size, boundary = ground.span(config, group), len(path) - 1
    first = (boundary - 1) // size * size
    found = ground.misplaced(config, group, content, path, first, boundary)
    return "" if found is None else f"position {found[0]} has {names.cell(found[1])}"
