"""A counterexample frame by frame: after every action what each block of both tiers is, in words that a reader can use.

The actions are run again, with the planted fault if there was one; what an implementation did is shown by the model's worlds
(``docs/reports.md``). Prefixes are called after the request that brought them first: ``r0[4,8)`` are tokens 4 to 7 of request
0, ``r0@8`` is the state or key behind its first 8 tokens. A number that is submitted again is ``r0.2``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Literal

from attrs import Factory, define, evolve, frozen

from kvproof.core.actions import Submit
from kvproof.core.config import SOUND, Config
from kvproof.core.contents import GARBAGE, UNWRITTEN
from kvproof.core.errors import ConfigError
from kvproof.core.offload.state import Load, Queued, Store
from kvproof.core.pool import Pool
from kvproof.core.world import Phase, Request, World, new_world
from kvproof.spec import faults, ground
from kvproof.spec import judge as judges
from kvproof.spec.counterexample import Counterexample, CounterexampleError, fault_of_model
from kvproof.spec.exits import UserError
from kvproof.spec.laws.base import Moment

Tier = Literal["device", "host"]

Owner = tuple[str, int, int]

MOST_RANGES = 8
"""Ranges of tokens that are named of one rank of a block."""
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


@frozen(slots=True)
class Film:
    """All frames of a counterexample, the beginning first, with the moments between them."""

    config: Config
    frames: tuple[Frame, ...]
    moments: tuple[Moment, ...]
    names: Names
    sound: Moment | None = None
    """The action that breaks the law, done in the same world by the model without the planted fault; None without one."""


def block_name(tier: Tier, block: int) -> str:
    """Return how reports call a block: host blocks have an h before their number."""
    return f"h{block}" if tier == "host" else str(block)


def violation_of(example: Counterexample) -> int:
    """Return the number of the frame in which the law is broken: behind the action, or the last one for the run as a whole."""
    return example.position + 1 if example.position >= 0 else len(example.actions)


# --- names of prefixes ----------------------------------------------------------------------------------------------


@define(slots=True)
class Names:
    """Prefix nodes by the request that brought them first, and their depth in tokens; and what requests are called."""

    known: dict[int, tuple[str, int]] = Factory(dict)
    submitted: Counter[int] = Factory(Counter)

    def see(self, moment: Moment) -> None:
        """Follow one action."""
        if isinstance(moment.action, Submit) and moment.refusal is None:
            self.submitted[moment.action.request] += 1
        self.learn(moment.after)

    def request(self, number: int) -> str:
        """Return what a request is called now."""
        count = self.submitted[number]
        return f"r{number}.{count}" if count > 1 else f"r{number}"

    def learn(self, world: World) -> None:
        """Give names to the prefixes of live requests, in the order of the world, and of what steps run."""
        for request in world.requests:
            self._path(world, request.tip, request.request)
        for entry in (*world.plan.scheduled, *(entry for step in world.steps for entry in step.scheduled)):
            self._path(world, entry.tip, entry.request)

    def _path(self, world: World, tip: int, request: int) -> None:
        if tip not in self.known:
            for depth, node in enumerate(ground.lineage(world.prefixes, tip)):
                self.known.setdefault(node, (self.request(request), depth))

    def at(self, node: int) -> str:
        """Return a prefix: ``r0@8`` is what request 0 is behind its first 8 tokens."""
        if node not in self.known:
            return f"prefix {node}"
        request, depth = self.known[node]
        return f"{request}@{depth}"

    def cell(self, node: int) -> str:
        """Return a single cell of a positional block: the token whose bytes lie there."""
        if node == UNWRITTEN:
            return "unwritten"
        if node == GARBAGE:
            return "garbage"
        if node not in self.known:
            return f"prefix {node}"
        request, depth = self.known[node]
        return f"{request}[{depth - 1}]"

    def cells(self, nodes: Sequence[int]) -> str:
        """Return the cells of one rank: runs of tokens of one request as one range, also where a rank has every other one."""
        out: list[str] = []
        run: list[tuple[str, int]] = []
        for node in nodes:
            known = self.known.get(node)
            if known is not None and _continues(run, known):
                run.append(known)
                continue
            out += _ranged(run)
            run = [] if known is None else [known]
            if known is None and (not out or out[-1] != self.cell(node)):
                out.append(self.cell(node))
        out += _ranged(run)
        if len(out) > MOST_RANGES:
            out = [*out[: MOST_RANGES - 1], f"... ({len(out) - MOST_RANGES} more)", out[-1]]
        return ", ".join(out)


def _continues(run: Sequence[tuple[str, int]], known: tuple[str, int]) -> bool:
    """Tell whether a token goes on with a run: of the same request, behind it, and as far as the others are apart."""
    if not run or known[0] != run[-1][0] or known[1] <= run[-1][1]:
        return False
    return len(run) == 1 or known[1] - run[-1][1] == run[-1][1] - run[-2][1]


def _ranged(run: Sequence[tuple[str, int]]) -> list[str]:
    """Return a run as text; two tokens that are apart are two."""
    if not run:
        return []
    request, first = run[0]
    step = run[1][1] - first if len(run) > 1 else 1
    if len(run) == 1 or (len(run) == 2 and step > 1):
        return [f"{request}[{depth - 1}]" for _, depth in run]
    every = f" every {step}" if step > 1 else ""
    return [f"{request}[{first - 1},{run[-1][1]}){every}"]


# --- making one -----------------------------------------------------------------------------------------------------


class NoWorld(UserError):
    """The configuration is refused, so that there is no world to look at."""


def shoot(example: Counterexample) -> Film:
    """Run a counterexample again and look at every world.

    Raises CounterexampleError for what cannot be run, NoWorld if its configuration is refused.
    """
    try:
        fault = fault_of_model(example)
        planted = faults.planted(faults.by_id(fault)) if fault else nullcontext()
    except faults.FaultError as error:
        raise CounterexampleError(str(error)) from error
    with planted:
        try:
            config = example.settings.config(example.profile)
        except ConfigError as error:
            raise NoWorld(f"there is no world to show: the configuration is refused: {error}") from error
        world = new_world(config)
        moments: list[Moment] = []
        for action in example.actions:
            moments.append(judges.attempt(world, action))
            world = moments[-1].after
    return evolve(film(config, moments), sound=_without_fault(example, moments))


def _without_fault(example: Counterexample, moments: Sequence[Moment]) -> Moment | None:
    """Do the action that breaks the law once more as it should be done, from where the faulty run was before it."""
    if not fault_of_model(example) or example.position < 0:
        return None
    broken, fault = moments[example.position], faults.by_id(example.fault)
    world = broken.before
    if fault.profile is not None:
        name = fault.profile[0]
        profile = evolve(world.config.profile, **{name: getattr(SOUND, name)})
        world = evolve(world, config=evolve(world.config, profile=profile))
    return judges.attempt(world, broken.action)


def film(config: Config, moments: Sequence[Moment]) -> Film:
    """Return the frames of a run of the model."""
    names = Names()
    frames = [_frame(new_world(config), -1, names)]
    for position, moment in enumerate(moments):
        names.see(moment)
        frames.append(_frame(moment.after, position, names))
    return Film(config, tuple(frames), tuple(moments), names)


def _frame(world: World, position: int, names: Names) -> Frame:
    owners = _owners(world, names)
    host = world.host
    return Frame(
        position=position,
        phase=PHASES[world.phase],
        settled=world.phase is Phase.IDLE and all(step.part == len(world.config.parts) for step in world.steps),
        requests=tuple(said_of(request, names) for request in world.requests),
        device=_blocks("device", world.pool, world.contents, world, owners, _pins(world), names),
        host=() if host is None else _blocks("host", host.pool, host.contents, world, {}, _host_pins(world), names),
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


def _pins(world: World) -> dict[int, list[str]]:
    """Say what refers to device blocks beside tables."""
    named: list[tuple[Iterable[int], str]] = []
    if world.phase in ground.PLANNING:
        for group, source, destination in world.plan.copies:
            named.append(((source,), f"copy to {destination} owed (g{group})"))
            named.append(((destination,), f"copy from {source} owed (g{group})"))
    named += [(table, "deferred free") for free in world.deferred for table in free.tables]
    return _gathered([*named, *((transfer.device, what) for transfer, what in _transfers(world))])


def _host_pins(world: World) -> dict[int, list[str]]:
    """Say what refers to host blocks."""
    hits = () if world.host is None else world.host.pending
    pinned = [(table, f"hit of r{hit.request}") for hit in hits for table in hit.lists]
    return _gathered([*((transfer.host, what) for transfer, what in _transfers(world)), *pinned])


def _transfers(world: World) -> Iterator[tuple[Store | Queued | Load, str]]:
    """Yield the stores and loads of a world that are not over, each in words."""
    host = world.host
    if host is None:
        return
    yield from ((store, f"store {store.event}") for store in host.stores)
    yield from ((store, f"abandoned store {store.event}") for store in host.abandoned_stores)
    yield from ((queued, "queued store") for queued in host.queued)
    yield from ((load, f"load of r{load.request}") for load in host.loads)
    yield from ((load, f"abandoned load of r{load.request}") for load in host.abandoned_loads)


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
) -> tuple[Block, ...]:
    places = {block: place for place, block in enumerate(pool.free)}
    keys: dict[int, list[tuple[int, int]]] = {}
    for node, group, _, block in sorted(pool.entries, key=lambda entry: entry[2]):
        keys.setdefault(block, []).append((node, group))
    found = []
    for block in range(1, len(pool.ref)):
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
