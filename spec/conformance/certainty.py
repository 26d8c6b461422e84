"""What can be followed of an implementation that shows only a part of it, and what would be a guess.

A hit that is not shown must not be relied on; a request that opts out of reading the cache has none. Whether an allocation was
admitted is read off its tables; where nothing tells it, only one that must be admitted is followed.
"""

from __future__ import annotations

from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import config as configs
from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.records import Record
from kvproof.core.world import Request, Status, World
from kvproof.spec import ground, judge
from kvproof.spec.conformance.adapter import Shows
from kvproof.spec.conformance.reading import Lists
from kvproof.spec.engines import drain
from kvproof.spec.engines.amounts import Limits
from kvproof.spec.engines.walk import Walker
from kvproof.spec.laws.base import Moment

TELLING: frozenset[Shows] = frozenset((Shows.ADMISSION, Shows.TABLES))
"""Each tells whether an allocation was admitted. References and the free queue do not: what is freed may be taken at once."""
DRAWS = 40
"""So many actions are drawn to find one that is no guess."""


def unsure(world: World, action: Action, shows: frozenset[Shows]) -> str:
    """Return the capability without which nobody can follow what an action comes to; empty if it can be followed."""
    if Shows.HITS not in shows and hangs_on_a_hit(world, action):
        return Shows.HITS.value
    if Shows.ADMISSION in shows:
        return ""
    if isinstance(action, act.Output | act.CompleteLoad) and action.failed:
        return Shows.ADMISSION.value  # whom it takes its blocks from is not shown
    if isinstance(action, act.Allocate) and not TELLING & shows:
        return "" if must_be_admitted(world, action, judge.attempt(world, action).record) else Shows.ADMISSION.value
    return ""


def hangs_on_a_hit(world: World, action: Action) -> bool:
    """Tell whether an action hangs on a hit: a lookup on the host, or an admission of a request that reads the cache."""
    if isinstance(action, act.LookupExternal):
        return True
    request = ground.request_of(world, action.request) if isinstance(action, act.Allocate) else None
    if request is None or not isinstance(action, act.Allocate):
        return False
    return bool(action.local or action.load) or (is_first(request) and not request.skip_reading)


def is_first(request: Request) -> bool:
    """Tell whether the next allocation of a request adopts what its lookup finds."""
    return request.status is not Status.RUNNING and not request.loaded


def must_be_admitted(world: World, action: act.Allocate, record: Record | None) -> bool:
    """Tell whether every implementation admits an allocation: twice the blocks that it asks for are free, and nothing that it
    adopts can have been registered in this very plan (T17). ``record`` is the model's, None if it refuses.
    """
    if record is None or ((action.local or action.external) and world.plan.scheduled):
        return False
    return bool(record.admitted) and 2 * (record.demand + action.reserved) <= record.free_before


def roomy(config: Config, limits: Limits) -> Config:
    """Return a configuration whose device pool is so large that whatever is asked for must be admitted."""
    longest = sum(-(-entries // config.append_expansion) for entries in config.row_capacity)
    return configs.reconfigure(config, num_blocks=max(config.num_blocks, 4 * (limits.max_live + 1) * longest + 1))


# --- what tells an admission ------------------------------------------------------------------------------------------


def by_tables(before: Lists, shown: Lists, moment: Moment, action: act.Allocate) -> bool | None:
    """Tell by the tables of its request whether an allocation was admitted, None if they do not say.

    ``moment`` is the prediction. Longer tables are always an admission's; others may have lost what a window left.
    """
    if any(len(now) > len(old) for old, now in zip(before, shown, strict=False)):
        return True
    record, request = moment.record, ground.request_of(moment.after, action.request)
    if record is None or request is None:
        return None
    predicted = tuple(state.table for state in request.groups)
    if record.admitted and predicted == before:
        return None
    if shown == predicted:
        return record.admitted
    return False if shown == before else None


# --- generation -------------------------------------------------------------------------------------------------------


class Offer:
    """Draws actions that can be followed, from a walker: no request reads the cache if its hits are not shown."""

    def __init__(self, walker: Walker, shows: frozenset[Shows]) -> None:
        self.walker, self.shows = walker, shows
        self._whole = {Shows.HITS, Shows.ADMISSION} <= shows

    def propose(self, world: World) -> Action:
        """Return one legal action of this world that can be followed. Raises NothingToOffer."""
        if self._whole:
            return self.walker.propose(world)
        for _ in range(DRAWS):
            action = self._suited(self._drawn(world))
            if not unsure(world, action, self.shows):
                return action
        closing = drain.PLANS.get(world.phase)
        if closing is None:
            raise NothingToOffer("every action drawn hangs on what is not shown")
        return closing

    def _drawn(self, world: World) -> Action:
        """Return an action of the walker; where it is a lookup on the host that must not be relied on, one of the device."""
        action = self.walker.propose(world)
        if Shows.HITS in self.shows or not isinstance(action, act.LookupExternal):
            return action
        host, self.walker.host = self.walker.host, None
        try:
            return self.walker.propose(world)
        finally:
            self.walker.host = host

    def _suited(self, action: Action) -> Action:
        if isinstance(action, act.Submit) and Shows.HITS not in self.shows:
            return evolve(action, skip_reading=True)
        if isinstance(action, act.Allocate) and Shows.ADMISSION not in self.shows:
            return evolve(action, reserved=0)  # whether so many are left depends on how many are free
        return action

    def disabled(self, world: World) -> Action | None:
        """Return one action that must be refused in this world, None if it is not known that it must."""
        action = self.walker.disabled(world)
        return action if self._whole or not hangs_on_a_hit(world, action) else None


class NothingToOffer(Exception):
    """No action can be followed: each hangs on a decision that is not shown."""
