"""The model itself as an adapter: it runs a world of its own and shows what any implementation would, ids and digests.

It shows everything or a part of it, can number its blocks otherwise or take them in another order, and can carry a planted
fault or the profile of a release: what the oracle says of it is known beforehand.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from attrs import define, evolve

from kvproof.core import actions as act
from kvproof.core import config as configs
from kvproof.core import lookup, reachability
from kvproof.core import step as door
from kvproof.core.actions import Action
from kvproof.core.config import Config, Profile
from kvproof.core.errors import ConfigError, Refusal
from kvproof.core.world import World, new_world
from kvproof.spec import judge
from kvproof.spec.conformance.adapter import AdapterError, Geometry, Observation, Shows, Unsupported
from kvproof.spec.conformance.projecting import Projection
from kvproof.spec.faults import base as faults
from kvproof.spec.faults.base import Fault

ALL: frozenset[Shows] = frozenset(Shows)
Arrange = Callable[[tuple[int, ...], tuple[int, ...]], tuple[int, ...]]
"""A policy of taking blocks: from the free queue before an action and the model's after it, the one of this adapter."""


def in_order(before: tuple[int, ...], after: tuple[int, ...]) -> tuple[int, ...]:
    """Take blocks in the model's order."""
    del before
    return after


def last_freed_first(before: tuple[int, ...], after: tuple[int, ...]) -> tuple[int, ...]:
    """Take what was freed last first, whether it has keys or not."""
    known = set(before)
    freed = [block for block in after if block not in known]
    return (*freed, *(block for block in after if block in known))


def highest_first(before: tuple[int, ...], after: tuple[int, ...]) -> tuple[int, ...]:
    """Take the free block with the highest id."""
    del before
    return tuple(sorted(after, reverse=True))


@define(slots=True)
class ModelAdapter:
    """The model behind the protocol ``Adapter``.

    ``profile`` is its own, None for that of the configuration. ``fault`` is planted around its own steps alone. ``null_block``
    is the id of its null block, and all ids count from there. ``arrange`` orders its free queue anew after every action, and
    ``reversed_at_start`` turns it around in the beginning.
    """

    profile: Profile | None = None
    shows: frozenset[Shows] = ALL
    fault: Fault | None = None
    null_block: int = 0
    arrange: Arrange = in_order
    reversed_at_start: bool = False
    name: str = "model"
    world: World | None = None
    _projection: Projection | None = None

    def start(self, config: Config) -> None:
        """Begin anew. Raises Unsupported if the configuration is none with this profile or fault."""
        own = self._configured(config)
        world = new_world(own)
        if self.reversed_at_start:
            world = evolve(world, pool=evolve(world.pool, free=world.pool.free[::-1]))
        self.world = evolve(world, pool=evolve(world.pool, free=self.arrange((), world.pool.free)))
        self._projection = Projection(own, self.shows, self.null_block)

    def perform(self, action: Action) -> Observation:
        """Perform one action of the alphabet, in this adapter's block ids. Raises AdapterError before ``start``."""
        world, projection = self.world, self._projection
        if world is None or projection is None:
            raise AdapterError("nothing was started: call start(config) before perform(action)")
        after, result, refusal = self._step(world, self._inward(action), projection)
        free = self.arrange(world.pool.free, after.pool.free)
        if free != after.pool.free:
            after = evolve(after, pool=evolve(after.pool, free=free))
        self.world = after
        return Observation(result, projection.state(after), refusal)

    def geometry(self, config: Config) -> Geometry:
        """Return the sizes that this model derives. Raises Unsupported."""
        own = self._configured(config)
        with self._planted():
            offloaded = tuple(
                reachability.tokens_per_block(group.block_size, bool(group.sharded), own.dcp_size) for group in own.groups
            )
            divergent = lookup.supports_divergence(own.children)
        return Geometry(
            sizes=own.sizes,
            row_capacity=own.row_capacity,
            scheduler_block_size=own.scheduler_block_size,
            fine_grained=own.fine_grained,
            offload_tokens_per_block=offloaded,
            divergent_hits=divergent,
        )

    def _configured(self, config: Config) -> Config:
        changes: dict[str, Any] = {} if self.profile is None else {"profile": self.profile}
        try:
            with self._planted():
                own = configs.reconfigure(config, **changes)
                return own if self.fault is None else faults.configured(self.fault, own)
        except ConfigError as error:
            raise Unsupported(str(error)) from error

    def _planted(self) -> AbstractContextManager[object]:
        return nullcontext() if self.fault is None else faults.planted(self.fault)

    def _step(self, world: World, action: Action, projection: Projection) -> tuple[World, dict[str, object], str | None]:
        try:
            with self._planted():
                after, record = door.step(world, action)
        except Refusal as refusal:
            return (world if refusal.world is None else refusal.world), {}, refusal.message
        except Exception as error:
            return world, {}, f"crashed with {judge.describe_crash(error)}"
        return after, projection.result(action, record, after.prefixes), None

    def _inward(self, action: Action) -> Action:
        if not self.null_block:
            return action
        if isinstance(action, act.EvictBlocks):
            return act.EvictBlocks(tuple(block - self.null_block for block in action.blocks))
        if isinstance(action, act.AppendRows):
            lists = tuple(tuple(block - self.null_block for block in blocks) for blocks in action.blocks)
            return act.AppendRows(action.row, lists)
        return action


def showing_all_but(*hidden: Shows, **settings: Any) -> ModelAdapter:
    """Return a model that shows everything but some capabilities."""
    return ModelAdapter(shows=ALL - frozenset(hidden), **settings)
