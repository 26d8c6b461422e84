"""The host tier in an explained run: what was stored and lost, and what the second prompt gets from it.

The model is driven with the actions of `core`. The second prompt is asked twice from the same world: with the device's cache
as it is, and after it was reset.
"""

from __future__ import annotations

from typing import Literal

from attrs import Factory, define, frozen

from kvproof.core import actions as act
from kvproof.core import reconciliation
from kvproof.core import step as door
from kvproof.core.pool import Pool
from kvproof.core.reconciliation import Accepted
from kvproof.core.records import Record
from kvproof.core.world import World
from kvproof.spec import ground, macros
from kvproof.spec.explain import host_facts
from kvproof.spec.explain.host_facts import How, Key, Stored

Device = Literal["kept", "gone"]


@frozen(slots=True)
class Asked:
    """What a request gets from the host behind its local hit; ``pairs`` are (group, column, device block, host block).

    ``resumes`` are the tokens that it need not compute once the load is complete, -1 if its blocks do not fit into the pool.
    """

    device: Device
    local: int
    behind: int
    offered: int
    accepted: Accepted
    pairs: tuple[tuple[int, int, int, int], ...]
    resumes: int


@frozen(slots=True)
class HostRun:
    """What happened on the host, and what the second prompt got; ``pool`` is the host's when it was asked."""

    stored: tuple[Stored, ...]
    lost: dict[Key, tuple[int, int, int]]
    dropped: dict[Key, str]
    known: frozenset[Key]
    full: bool
    starved: frozenset[Key]
    pool: Pool
    asked: tuple[Asked, ...]


@define(slots=True)
class HostLog:
    """Watches a run: what is chosen for the host, what goes out of its map, and which keys the device ever had."""

    stored: list[Stored] = Factory(list)
    lost: dict[Key, tuple[int, int, int]] = Factory(dict)
    dropped: dict[Key, str] = Factory(dict)
    known: set[Key] = Factory(set)
    full: bool = False
    starved: set[Key] = Factory(set)

    def see(self, before: World, after: World, record: Record, chunk: tuple[int, ...]) -> None:
        """Take in one action and its record; ``chunk`` is (request, start, end) of the chunk it belongs to, if any."""
        assert before.host is not None, "the caller asks"
        assert after.host is not None, "a host tier stays"
        if after.pool.entries is not before.pool.entries:
            self.known.update((node, group) for node, group, _, _ in after.pool.entries)
        if after.host.pool.entries is not before.host.pool.entries and len(chunk) == 3:
            held = {entry[:2] for entry in after.host.pool.entries}
            gone = (entry[:2] for entry in before.host.pool.entries if entry[:2] not in held)
            self.lost.update((key, (chunk[0], chunk[1], chunk[2])) for key in gone)
        if len(chunk) == 3 and record.action in ("BuildMetadata", "Finish"):
            self.note(before, after, record, (chunk[0], chunk[1], chunk[2]))
            if record.action == "Finish" and chunk[0] == 0:
                self.full = not after.host.pool.free

    def note(self, before: World, after: World, record: Record, chunk: tuple[int, int, int]) -> None:
        """Note the blocks that a step or a finishing request chose; those that wait since a finish were noted then."""
        assert before.host is not None, "the caller asks"
        waiting = sum(len(left.device) for left in before.host.queued) if record.action == "BuildMetadata" else 0
        count = len(record.store_device) - waiting
        handed = sum(1 for *_, outcome in record.outcomes if outcome == "stored")
        for index, (device, host) in enumerate(zip(record.store_device[:count], record.store_host[:count], strict=True)):
            key = (after.pool.key_node[device], after.pool.key_group[device])
            boundary = after.prefixes.depth[key[0]]
            how = self.how(after, key, boundary, index < handed)
            self.stored.append(Stored(*chunk, how, key, boundary, device, host))
        if record.action == "BuildMetadata":
            self.starved |= starved(before, after)
        for _, _, block, _, outcome in record.outcomes:
            key = (before.pool.key_node[block], before.pool.key_group[block])
            if outcome != "stored":
                self.dropped[key] = outcome

    @staticmethod
    def how(world: World, key: Key, boundary: int, handed: bool) -> How:
        """Return by which way a block was chosen (T24, T26, T27, T33)."""
        if world.config.offload is not None and world.config.offload.mode == "lazy":
            return "lazy"
        if handed:
            return "handoff"
        return "tail" if boundary % world.config.sizes[key[1]] else "scan"


def starved(before: World, after: World) -> set[Key]:
    """Return the keys on the way of a lazy walk that it did not copy because it took the last free host block (T33)."""
    assert before.host is not None, "the caller asks"
    assert after.host is not None, "a host tier stays"
    config = after.config
    if config.offload is None or config.offload.mode != "lazy" or after.host.pool.free:
        return set()
    pool, cursor = before.pool, before.host.cursor
    behind = pool.free[pool.free.index(cursor) + 1 :] if cursor in pool.free else pool.free
    spans = tuple(ground.span(config, group) for group in range(len(config.groups)))
    way = set(behind[: host_facts.lazy_target(config, spans)])
    held = {entry[:2] for entry in after.host.pool.entries}
    return {entry[:2] for entry in pool.entries if entry[3] in way and entry[:2] not in held}


def finish(log: HostLog, base: World, request: int) -> HostRun:
    """Ask the host for a waiting request with the device's cache as it is, and without it; ``base`` has no plan open."""
    assert base.host is not None, "the caller asks"
    empty, record = door.step(base, act.ResetCache())
    asked = [_ask(base, request, "kept")]
    if record.done:
        asked.append(_ask(empty, request, "gone"))
    return HostRun(
        tuple(log.stored),
        log.lost,
        log.dropped,
        frozenset(log.known),
        log.full,
        frozenset(log.starved),
        base.host.pool,
        tuple(asked),
    )


def _ask(world: World, request: int, device: Device) -> Asked:
    """Look a request up on the device and behind it on the host, admit it, and let its load run (T14, T20, T29, T30)."""
    world, _ = door.step(world, act.BeginStep())
    world, found = door.step(world, act.Lookup(request))
    hit = world.hit
    assert hit is not None, "it was looked up"
    behind = reconciliation.asked_behind(world.config, hit)
    world, external = door.step(world, act.LookupExternal(request, behind))
    accepted = reconciliation.accept(world.config, hit, external.external)
    if accepted.branch == "looked up anew":
        world, found = door.step(world, act.Lookup(request, common=True))
        accepted = Accepted(accepted.branch, found.local, 0)
    if not accepted.external:
        return Asked(device, hit.local, behind, external.external, accepted, (), accepted.local)
    world, admitted = door.step(world, act.Allocate(request, 0, accepted.local, accepted.external, load=True))
    resumes = _loaded(world, request) if admitted.admitted else -1
    return Asked(device, hit.local, behind, external.external, accepted, admitted.pairs, resumes)


def _loaded(world: World, request: int) -> int:
    """Run the load of an admitted request to its end; return the tokens that count as computed then (T30)."""
    for action in (*macros.CLOSE, *(act.Execute(part) for part in world.config.parts)):
        world, _ = door.step(world, action)
    assert world.host is not None, "a host tier stays"
    event = world.host.loads[0].event
    for action in (act.RunLoad(event), act.CompleteLoad(request), act.BeginStep()):
        world, _ = door.step(world, action)
    return door.step(world, act.Promote(request))[1].computed
