"""What the model makes of an action, with the free blocks that the implementation took: eviction order is policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, SupportsIndex, overload

from attrs import evolve, frozen

from kvproof.core import pool as pools
from kvproof.core.actions import Action, Allocate, BuildMetadata, Finish, Output
from kvproof.core.offload.state import NONE, Host
from kvproof.core.pool import Pool
from kvproof.core.world import World
from kvproof.spec import ground, judge
from kvproof.spec.conformance import override
from kvproof.spec.laws.base import Moment

Lists = tuple[tuple[int, ...], ...]


class Steered(tuple[int, ...]):
    """A free queue in which the wanted blocks come first, in the order in which they are wanted, whatever joins it.

    An allocation that frees windows puts their blocks in front of the queue before it takes any: ordering the queue once would
    not do.
    """

    wanted: tuple[int, ...]

    @classmethod
    def of(cls, blocks: tuple[int, ...], wanted: tuple[int, ...]) -> Steered:
        """Return a queue of these blocks."""
        there = set(blocks)
        first = [block for block in wanted if block in there]
        ahead = set(first)
        queue = cls((*first, *(block for block in blocks if block not in ahead)))
        queue.wanted = wanted
        return queue

    def __add__(self, other: tuple[Any, ...]) -> tuple[Any, ...]:
        return Steered.of((*self, *other), self.wanted)

    def __radd__(self, other: tuple[int, ...]) -> tuple[int, ...]:
        return Steered.of((*other, *self), self.wanted)

    @overload
    def __getitem__(self, at: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[int, ...]: ...
    def __getitem__(self, at: SupportsIndex | slice) -> int | tuple[int, ...]:
        found = tuple.__getitem__(self, at)
        if not isinstance(at, slice) or not isinstance(found, tuple):
            return found
        # What is taken off the front leaves the queue: it goes into tables, in the order in which it was taken.
        return Steered.of(found, self.wanted) if at.stop is None else found


def steered(pool: Pool, wanted: tuple[int, ...]) -> Pool:
    """Return a pool whose next blocks are the wanted ones, as far as they are free then."""
    return evolve(pool, free=Steered.of(pool.free, wanted))


def settled(world: World) -> World:
    """Return a world whose free queues are plain ones again."""
    if isinstance(world.pool.free, Steered):
        world = evolve(world, pool=evolve(world.pool, free=tuple(world.pool.free)))
    if world.host is not None and isinstance(world.host.pool.free, Steered):
        pool = evolve(world.host.pool, free=tuple(world.host.pool.free))
        world = evolve(world, host=evolve(world.host, pool=pool))
    return world


@frozen(slots=True)
class Hints:
    """What tells which free blocks an implementation took, in the model's ids; None: it does not show it.

    Its answer, the tables of the request of an allocation, and the references of all blocks, both after the action.
    """

    result: Mapping[str, object]
    tables: Lists | None = None
    references: tuple[int, ...] | None = None


def predict(world: World, action: Action, hints: Hints) -> Moment:
    """Return what the model makes of an action; the free blocks it takes are those that the implementation took."""
    moment, result = judge.attempt(world, action), hints.result
    if isinstance(action, Allocate):
        wanted = taken_instead(moment, action, hints)
        if wanted:
            return again(moment, evolve(world, pool=steered(world.pool, wanted)))
    elif isinstance(action, BuildMetadata | Finish) and world.host is not None and moment.record is not None:
        stored, taken = result.get("store_device"), result.get("store_host")
        if isinstance(stored, tuple) and stored != moment.record.store_device and isinstance(action, BuildMetadata):
            world = walked_over(world, world.host, stored)
        if (
            isinstance(taken, tuple)
            and world.host is not None
            and (world is not moment.before or taken != moment.record.store_host)
        ):
            world = evolve(world, host=evolve(world.host, pool=steered(world.host.pool, taken)))
        if world is not moment.before:
            return again(moment, world)
    return moment


def leniently(world: World, action: Action, hints: Hints) -> Moment:
    """Return what the model makes of an action that the implementation performed and the model would have put off.

    An admission waits for what this very plan writes, and a key that is registered stands for more tokens than the block's last
    one (T17, T7). Whoever registers at another time than the model need do neither: here nobody waits, and the blocks of the
    request have no keys; those that are shown take their place.
    """
    request = ground.request_of(world, action.request) if isinstance(action, Allocate | Output) else None
    lists = () if request is None else tuple(state.table for state in request.groups)
    if isinstance(action, Allocate):
        action = evolve(action, full_sequence=False, reserved=0)
        lists += () if world.hit is None else world.hit.lists
    pool = world.pool
    for block in {block for blocks in lists for block in blocks if 0 < block < len(pool.ref)}:
        pool = pools.remove_all(pool, block)
    profile = evolve(world.config.profile, copy_source_guard="recurrent")
    easy = evolve(world, config=evolve(world.config, profile=profile), pool=pool, plan=evolve(world.plan, cached=()))
    tried = predict(easy, action, hints)
    plan = evolve(tried.after.plan, cached=world.plan.cached + tried.after.plan.cached)
    return evolve(tried, before=world, after=evolve(tried.after, config=world.config, plan=plan))


def mended(world: World, action: Action, hints: Hints) -> Moment | None:
    """Return what the model makes of an action if every block had the references that are counted; None if all have.

    Whoever counts otherwise breaks PC-3, and the model comes to a block that is released more often than it is held (T3), or to
    an empty pool. What follows from the action is known all the same: tokens, tables, who waits for what. The references that
    are shown take the place of these again.
    """
    whole = override.recounted(world, True, True)
    pool, host = override.requeued(whole.pool), whole.host
    if host is not None:
        host = evolve(host, pool=override.requeued(host.pool))
    if pool == world.pool and host == world.host:
        return None
    return evolve(predict(evolve(whole, pool=pool, host=host), action, hints), before=world)


def walked_over(world: World, host: Host, stored: tuple[int, ...]) -> World:
    """Return a world whose lazy walk comes over the stored blocks alone, as far as they are free; an eager one as it is (T33).

    Which free blocks come near eviction is policy. The queue is whole again after the action: see ``again``.
    """
    if world.config.offload is None or world.config.offload.mode == "eager":
        return world
    free = set(world.pool.free)
    walk = tuple(block for block in stored if block in free)
    return evolve(world, pool=evolve(world.pool, free=walk), host=evolve(host, cursor=NONE))


def again(moment: Moment, world: World) -> Moment:
    """Try an action once more in a steered world; the world before it stays that of the first attempt."""
    tried = judge.attempt(world, moment.action)
    after = moment.before if tried.after is world else settled(tried.after)
    if world.pool.free != moment.before.pool.free and len(world.pool.free) < len(moment.before.pool.free):
        queue = tuple(block for block in moment.before.pool.free if not after.pool.ref[block])
        after = evolve(after, pool=evolve(after.pool, free=queue))
    return Moment(moment.before, moment.action, tried.record, tried.refusal, after)


def taken_instead(moment: Moment, action: Allocate, hints: Hints) -> tuple[int, ...]:
    """Return the blocks to take in the order in which the model takes them; empty if it took those that were observed.

    A block that the model took stands somewhere in the request's tables: the implementation took what it has there. A copy that
    a key moves to may stand in no table: it is one that was free and is held now.
    """
    record, request = moment.record, ground.request_of(moment.after, action.request)
    if record is None or request is None or not record.taken:
        return ()
    said = hints.result.get("taken")
    if isinstance(said, tuple) and len(said) == len(record.taken):
        return () if said == record.taken else said
    instead: dict[int, int] = {}
    if hints.tables is not None:
        _pair(instead, tuple(state.table for state in request.groups), hints.tables)
    else:
        for name in ("external_blocks", "new_blocks"):
            shown = hints.result.get(name)
            if isinstance(shown, tuple):
                _pair(instead, getattr(record, name), shown)
    unknown = [block for block in record.taken if block not in instead]
    if unknown and hints.references is not None:
        used = set(instead.values())
        held = [block for block in moment.before.pool.free if hints.references[block] and block not in used]
        # A block that both took is the same one: the order in which they were free before is not that in which they were taken.
        same = {block: block for block in unknown if hints.references[block] and block not in used}
        instead.update(same)
        others = (block for block in held if block not in same)
        instead.update(zip((block for block in unknown if block not in same), others, strict=False))
    wanted = distinct(record.taken, instead)
    return () if wanted == record.taken else wanted


def distinct(taken: tuple[int, ...], instead: Mapping[int, int]) -> tuple[int, ...]:
    """Return what to take instead, no block twice: where the implementation took fewer blocks, the others take what is left."""
    used = {instead[block] for block in taken if block in instead}
    left = [block for block in taken if block not in used]
    wanted, given = [], set[int]()
    for block in taken:
        other = instead.get(block)
        if other is None or other in given:
            other = block if block in left else left[0] if left else block
        if other in left:
            left.remove(other)
        given.add(other)
        wanted.append(other)
    return tuple(wanted) if len(given) == len(wanted) else taken


def _pair(instead: dict[int, int], mine: Lists, theirs: Lists) -> None:
    for own, other in zip(mine, theirs, strict=False):
        for block, seen in zip(own, other, strict=False):
            if block != ground.NULL and seen != ground.NULL:
                instead[block] = seen
