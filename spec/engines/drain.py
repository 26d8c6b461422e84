"""Carrying a world to quiet under fairness: every step executes, every copy completes, every request ends (5.13).

Only what an engine would do by itself happens: the open plan is closed, steps run and deliver, copies run in their order, all
workers report, loads are promoted, requests finish, and empty steps carry what waits for one. What is legal is read off the
world as in ``enabled``; a refusal on the way is kept and ends the walk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from attrs import Factory, define, field

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.errors import Refusal
from kvproof.core.offload.state import Stage
from kvproof.core.world import Phase, Status, World
from kvproof.spec.engines import flight, host, players

if TYPE_CHECKING:
    from kvproof.spec.laws.base import Moment

TOKEN = 0
"""What an output samples where it must bring a token."""

MOST_ROUNDS = 64
"""More rounds than any world of a scope needs: what is not quiet then never will be."""

MOST_ACTIONS = 2048
"""More actions than what is under way in any world of a scope takes."""

PLANS: dict[Phase, Action] = {
    Phase.PLAN_RUNNING: act.Drain(),
    Phase.PLAN_WAITING: act.Drain(),
    Phase.DRAINED: act.BuildMetadata(),
    Phase.BUILT: act.Dispatch(),
}


@define(slots=True)
class Drained:
    """A world on its way to quiet: where it began, where it is, what was done, and the refusal that ended it, if any.

    ``start`` and ``world`` are for laws to look at; what to do next is read off the world of the ``player``.
    """

    start: World
    world: World
    moments: list[Moment] = field(factory=list)
    refusal: Refusal | None = None
    asked: int = 0
    """Empty steps that were made because the tier said that stores were pending."""
    player: players.Player = Factory(lambda self: players.Model(self.world), takes_self=True)

    @classmethod
    def of(cls, world: World) -> Drained:
        """Begin at a world of the model, in any phase."""
        return cls(world, world)

    def do(self, action: Action) -> bool:
        """Do one action; tell whether it was accepted."""
        moment = self.player.act(action)
        self.moments.append(moment)
        if moment.refusal is not None:
            self.refusal = moment.refusal
            return False
        self.world = moment.after
        return True


def settle(drained: Drained) -> bool:
    """Close the plan, execute and deliver every step, run and report every copy that a step has handed over.

    Ends where nothing is under way, or nothing of it changes anything any more: then the world never becomes quiet.
    """
    for _ in range(MOST_ACTIONS):
        before = drained.player.world
        for action in _pending(before):
            if not drained.do(action):
                return False
            if drained.player.world != before:
                break
        else:
            return True
    return True


def _pending(world: World) -> Iterator[Action]:
    """Yield what is under way in a world, the first thing to be done first."""
    if world.phase is not Phase.IDLE:
        yield PLANS[world.phase]
        return
    part = flight.next_part(world)
    if part is not None:
        yield act.Execute(part)
    for number in flight.outputs_due(world):
        yield act.Output(number, _delivered(world, number))
    yield from host.copies(world)
    for store, acks in host.acks_left(world):
        yield act.CompleteStore(store.event, acks)
    for load in host.loads(world):
        if load.stage is Stage.COPIED:
            yield act.CompleteLoad(load.request)


def _delivered(world: World, number: int) -> tuple[int, ...]:
    """Return what the due output of a request brings: one token where it must, no draft accepted."""
    return (TOKEN,) if flight.most_delivered(world, number) > 0 else ()


def empty_step(drained: Drained) -> bool:
    """Make a step in which nothing is scheduled, promote what may be, and settle."""
    if not drained.do(act.BeginStep()):
        return False
    for request in host.promotable(drained.player.world):
        if not drained.do(act.Promote(request.request)):
            return False
    return settle(drained)


def steps_until_quiet(drained: Drained, asked_only: bool = False) -> bool:
    """Make empty steps until no transfer is left; ``asked_only``: only while the tier says that stores are pending (LV-7)."""
    for _ in range(MOST_ROUNDS):
        if not (pending_work(drained) if asked_only else waits_for_a_step(drained.player.world)):
            return True
        drained.asked += 1
        if not empty_step(drained):
            return False
    return True


def pending_work(drained: Drained) -> bool:
    """Return what the last step, finish or completion said about pending stores."""
    told = (moment.record for moment in reversed(drained.moments) if isinstance(moment.action, TELLS))
    return next((record.pending_work for record in told if record is not None), False)


TELLS = (act.Dispatch, act.Finish, act.CompleteStore)
"""After these an engine is told whether work of the tier is pending: then it steps on although no request is there."""


def told_after(told: bool, moment: Moment) -> bool:
    """Return whether an engine steps on by itself after an action: requests are there, or work was said to be pending last.

    ``told`` is the same before the action. What was said matters only once no request is there; when the last one goes, it is
    said anew.
    """
    record = moment.record
    if record is not None and isinstance(moment.action, TELLS):
        told = record.pending_work
    return told or bool(moment.after.requests)


def waits_for_a_step(world: World) -> bool:
    """Tell whether a transfer is not complete, or a loaded request waits to be considered: only a further step helps."""
    if world.host is None:
        return False
    return bool(host.stores(world) or world.host.queued or host.loads(world) or host.promotable(world))


def drain(world: World) -> Drained:
    """Carry a world of the model to quiet."""
    return carried(players.Model(world))


def carried(player: players.Player) -> Drained:
    """Carry a run to quiet: first what runs, then the loads, then every request ends, then what these left."""
    drained = Drained(player.shown, player.shown, player=player)
    if not settle(drained):
        return drained
    for _ in range(MOST_ROUNDS):
        if not (host.loads(player.world) or host.promotable(player.world)):
            break
        if not empty_step(drained):
            return drained
    return finish_all(drained)


def finish_all(drained: Drained) -> Drained:
    """Let every request that is not loading end, then step until nothing is pending."""
    for request in drained.player.world.requests:
        if request.status is not Status.LOADING and not drained.do(act.Finish(request.request)):
            return drained
    if settle(drained) and steps_until_quiet(drained):
        settle(drained)
    return drained
