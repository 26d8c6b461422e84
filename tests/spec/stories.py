"""What the law tests share: playing a story with named moments, tampering with a moment, and judging it by one law."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import evolve

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.errors import ContractBroken, PoolExhausted
from kvproof.core.records import Record
from kvproof.core.world import World, new_world
from kvproof.spec import ground
from kvproof.spec.judge import Judge, attempt, refuted
from kvproof.spec.laws import ALL
from kvproof.spec.laws.base import Evidence, Findings, Moment

LAWS = {law.id: law for law in ALL}
Moments = dict[str, Moment]
Tamper = Callable[[Moment], Moment]
Change = Callable[[World], World]


class Run:
    """Plays actions, none of which may be refused, and names some of the moments."""

    def __init__(self, config: Config) -> None:
        self.world = new_world(config)
        self.named: Moments = {}
        self.actions: list[Action] = []

    def do(self, action: Action, name: str = "") -> Moment:
        """Play one action."""
        moment = attempt(self.world, action)
        assert moment.refusal is None, moment.refusal
        self.world = moment.after
        self.actions.append(action)
        if name:
            self.named[name] = moment
        return moment

    def dispatch(self, name: str = "") -> None:
        """Close the plan and dispatch the step; the moments are called after their actions."""
        for action in (act.Drain(), act.BuildMetadata(), act.Dispatch()):
            self.do(action, name and f"{name} {type(action).__name__}")

    def execute(self, name: str = "") -> None:
        """Execute the oldest step; the moments are called after the parts."""
        for part in self.world.config.parts:
            self.do(act.Execute(part), name and f"{name} {part}")

    def step(self, name: str = "", *outputs: act.Output) -> None:
        """Close the plan, execute the step and process its outputs."""
        self.dispatch(name)
        self.execute(name)
        for output in outputs:
            self.do(output, name and f"{name} Output {output.request}")

    def admit(self, request: int, amount: int, name: str = "", **more: Any) -> Record:
        """Look a request up and allocate this amount behind its hit; returns the record of the lookup."""
        hit = answer(self.do(act.Lookup(request), name and f"{name} Lookup"))
        self.do(act.Allocate(request, amount, local=hit.local, **more), name)
        return hit

    def compute(self, request: int, *amounts: int, token: int = 1) -> None:
        """Admit a request and compute it in chunks of these amounts; the last one samples a token."""
        self.do(act.BeginStep())
        local = answer(self.do(act.Lookup(request), f"lookup {request}")).local
        for at, amount in enumerate(amounts):
            if at:
                self.do(act.BeginStep())
            self.do(act.Allocate(request, amount, local=0 if at else local), f"allocate {request} {at}")
            self.step(f"{request} {at}", act.Output(request, (token,) if at == len(amounts) - 1 else ()))

    def compute_all(self, request: int, token: int = 1) -> None:
        """Admit a request and compute it to the end of its prompt, in the largest chunks that are legal."""
        self.do(act.BeginStep())
        local = answer(self.do(act.Lookup(request))).local
        done, length = local, self.tokens_of(request)
        while True:
            chunks = (act.Allocate(request, size, local=local) for size in range(length - done, 0, -1))
            self.do(next(chunk for chunk in chunks if attempt(self.world, chunk).refusal is None))
            done, local = done + self.world.plan.scheduled[-1].amount, 0
            self.step(f"{request} to {done}", act.Output(request, (token,) if done == length else ()))
            if done == length:
                return
            self.do(act.BeginStep())

    def tokens_of(self, request: int) -> int:
        """Return how many tokens of a request are known."""
        found = ground.request_of(self.world, request)
        assert found is not None
        return found.num_tokens


def whole_step(*outputs: act.Output) -> list[Action]:
    """Return the actions that close a plan, execute its step and process these outputs."""
    return [act.Drain(), act.BuildMetadata(), act.Dispatch(), *(act.Execute(part) for part in ground.PARTS), *outputs]


def answer(moment: Moment) -> Record:
    """Return the record of a moment that was not refused."""
    assert moment.record is not None
    return moment.record


# --- tampering ----------------------------------------------------------------------------------------------------------


def after(change: Change) -> Tamper:
    """Change the world behind a moment."""
    return lambda moment: evolve(moment, after=change(moment.after))


def before(change: Change) -> Tamper:
    """Change the world before a moment."""
    return lambda moment: evolve(moment, before=change(moment.before))


def both(change: Change) -> Tamper:
    """Change the worlds on both sides of a moment."""
    return lambda moment: evolve(moment, before=change(moment.before), after=change(moment.after))


def recorded(**changes: Any) -> Tamper:
    """Change what a moment recorded."""
    return lambda moment: evolve(moment, record=evolve(answer(moment), **changes))


def acted(**changes: Any) -> Tamper:
    """Change the action of a moment."""
    return lambda moment: evolve(moment, action=evolve(moment.action, **changes))


def emptied(moment: Moment) -> Moment:
    """Let a moment end in an empty pool."""
    return evolve(moment, record=None, refusal=PoolExhausted("1 block is wanted and 0 are free"), after=moment.before)


def crashed(moment: Moment) -> Moment:
    """Let a moment end in a broken contract."""
    return evolve(moment, record=None, refusal=ContractBroken("crashed", block=0), after=moment.before)


def put(values: tuple[Any, ...], index: int, value: Any) -> tuple[Any, ...]:
    """Return a tuple with one value replaced."""
    return (*values[:index], value, *values[index + 1 :])


def with_request(world: World, request: int, **changes: Any) -> World:
    """Return a world in which a live request is changed."""
    found = ground.request_of(world, request)
    assert found is not None
    changed = evolve(found, **changes)
    return evolve(world, requests=tuple(changed if other is found else other for other in world.requests))


def with_state(world: World, request: int, group: int, **changes: Any) -> World:
    """Return a world in which what a request holds in one group is changed."""
    found = ground.request_of(world, request)
    assert found is not None
    state = evolve(found.groups[group], **changes)
    return with_request(world, request, groups=put(found.groups, group, state))


def with_content(world: World, block: int, cells: tuple[int, ...]) -> World:
    """Return a world in which a block holds other cells."""
    return evolve(world, contents=put(world.contents, block, cells))


def with_row(world: World, group: int, row: int, ids: tuple[int, ...]) -> World:
    """Return a world in which a worker row has other entries."""
    rows = put(world.worker.rows, group, put(world.worker.rows[group], row, ids))
    return evolve(world, worker=evolve(world.worker, rows=rows))


def with_worker(world: World, row: int, group: int, column: int, accepted: int = 1) -> World:
    """Return a world in which the worker looks for a running state elsewhere."""
    columns = put(world.worker.columns, row, put(world.worker.columns[row], group, column))
    return evolve(world, worker=evolve(world.worker, columns=columns, accepted=put(world.worker.accepted, row, accepted)))


def with_pool(world: World, **changes: Any) -> World:
    """Return a world with a changed pool."""
    return evolve(world, pool=evolve(world.pool, **changes))


def with_plan(world: World, **changes: Any) -> World:
    """Return a world with a changed plan."""
    return evolve(world, plan=evolve(world.plan, **changes))


def with_share(world: World, step: int, share: int, **changes: Any) -> World:
    """Return a world in which one share of a dispatched step is changed."""
    found = world.steps[step]
    scheduled = put(found.scheduled, share, evolve(found.scheduled[share], **changes))
    return evolve(world, steps=put(world.steps, step, evolve(found, scheduled=scheduled)))


# --- judging ------------------------------------------------------------------------------------------------------------


def judged(law: str, moment: Moment) -> Findings:
    """Judge a moment by one law, which must be judged after such an action."""
    check = LAWS[law].check
    assert check is not None
    assert not LAWS[law].on or isinstance(moment.action, LAWS[law].on)
    return check(moment)


def bites(law: str, moment: Moment, tamper: Tamper) -> None:
    """Assert that a law holds in a moment and does not in the same one tampered with."""
    kept = judged(law, moment)
    assert kept is not None
    assert not kept, kept
    found = judged(law, tamper(moment))
    assert found
    assert all(isinstance(evidence, Evidence) for evidence in found)


def holds_throughout(moments: Moments) -> None:
    """Assert that no law is broken in any moment of a story."""
    for name, moment in moments.items():
        for law in LAWS.values():
            if law.check is not None and (not law.on or isinstance(moment.action, law.on)):
                assert not law.check(moment), (law.id, name)


def run_law(law: str, config: Config, actions: Sequence[Action]) -> Findings:
    """Judge a whole run by a law that compares runs."""
    check = LAWS[law].check_run
    assert check is not None
    return check(config, actions)


def broken(config: Config, actions: Sequence[Action]) -> set[str]:
    """Play actions on a new world and return the laws they break; all of them must be bent by the profile."""
    judge, world, found = Judge(tuple(LAWS.values())), new_world(config), []
    for position, action in enumerate(actions):
        moment = attempt(world, action)
        assert moment.refusal is None, moment.refusal
        found += judge.moment(moment, position)
        world = moment.after
    assert not refuted(found), refuted(found)
    return {violation.law for violation in found}
