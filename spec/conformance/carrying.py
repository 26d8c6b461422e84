"""Where a run goes on behind an action that the model refuses and an implementation performed."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import allocation, freeing, outputs, prefixes
from kvproof.core import requests as lives
from kvproof.core.actions import Action
from kvproof.core.errors import Refusal
from kvproof.core.world import Phase, Status, World
from kvproof.spec import ground

PHASES: dict[type[Action], Phase] = {
    act.BeginStep: Phase.PLAN_RUNNING,
    act.Lookup: Phase.PLAN_WAITING,
    act.LookupExternal: Phase.PLAN_WAITING,
    act.Promote: Phase.PLAN_WAITING,
    act.Drain: Phase.DRAINED,
    act.BuildMetadata: Phase.BUILT,
    act.Dispatch: Phase.IDLE,
}
"""The phase after an action that the model refuses and the implementation did."""


def carried_on(world: World, action: Action) -> World:
    """Return the world after an action that the model refuses, as far as the action alone says; the rest is what is shown."""
    phase = PHASES.get(type(action))
    world = world if phase is None else evolve(world, phase=phase)
    if isinstance(action, act.Finish):
        return evolve(world, requests=tuple(live for live in world.requests if live.request != action.request), hit=None)
    if isinstance(action, act.Execute):
        return _executed(world)
    if isinstance(action, act.Preempt | act.Withdraw):
        return _preempted(world, action)
    if isinstance(action, act.Output):
        return _answered(world, action)
    request = ground.request_of(world, action.request) if isinstance(action, act.Allocate) else None
    if request is None or not isinstance(action, act.Allocate):
        return world
    wanted = allocation.wanted_tokens(world.config, request, action)
    start = wanted.local + wanted.external
    plan = (
        world.plan if action.load else evolve(world.plan, scheduled=(*world.plan.scheduled, allocation.share(request, wanted)))
    )
    going = evolve(request, status=Status.LOADING if action.load else Status.RUNNING, computed=start, loaded=False)
    return evolve(
        world,
        requests=tuple(going if live is request else live for live in world.requests),
        plan=plan,
        hit=None,
    )


def _executed(world: World) -> World:
    """Return a world in which the oldest unexecuted step is one part further: what the part would have written is not known."""
    parts = len(world.config.parts)
    at = next((at for at, step in enumerate(world.steps) if step.part < parts), None)
    if at is None:
        return world
    step = evolve(world.steps[at], part=world.steps[at].part + 1)
    return evolve(world, steps=(*world.steps[:at], step, *world.steps[at + 1 :]))


def _answered(world: World, action: act.Output) -> World:
    """Return a world in which the output of a request is processed although other tokens were due: it is due no more, and the
    next output is that of a later step.
    """
    step = world.steps[0] if world.steps else None
    if step is None or action.request not in step.due:
        return world
    world = outputs.without_due(freeing.open_step(world, step), action.request)
    request = ground.request_of(world, action.request)
    if request is None:
        return world
    entry, late = lives.share_of(step, action.request), outputs.is_stale(request)
    going = outputs.lower_in_flight(request, entry.amount, late)
    if entry.samples and not late:
        going = outputs.settle_placeholders(going, entry)
    table, tip = prefixes.extend(world.prefixes, going.tip, action.tokens)
    going = evolve(going, tip=tip, num_tokens=going.num_tokens + len(action.tokens))
    return evolve(world, prefixes=table, requests=tuple(going if live is request else live for live in world.requests))


def _preempted(world: World, action: act.Preempt | act.Withdraw) -> World:
    """Return a world in which a request is preempted although the model would preempt another one, as far as possible."""
    request = ground.request_of(world, action.request)
    if request is None:
        return world
    step = lives.withdraw if isinstance(action, act.Withdraw) else lives.preempt
    try:
        return step(world, request, action.drop_stale)[0]
    except Refusal:
        return world
