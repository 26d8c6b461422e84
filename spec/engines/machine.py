"""The Hypothesis state machine: one rule draws from the enabled actions, a second one tries disabled actions.

One rule that draws an index finds deep faults that one rule per transition misses. The index names a type of action first,
those that carry a step on more often than others, then one of its actions: a world may list fifty prompts to submit and one
output to process. Runs start in worlds sampled by the
walker, so that few steps reach far. Bounded by examples and steps, never by time; the seed decides everything.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from attrs import define, field, frozen
from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.world import World, new_world
from kvproof.spec import judge as judges
from kvproof.spec.engines import amounts, disabled, rules, walk
from kvproof.spec.engines import enabled as lists
from kvproof.spec.engines import witnesses as wit
from kvproof.spec.engines.amounts import Limits
from kvproof.spec.judge import Judge, Violation
from kvproof.spec.laws.base import Law, Moment

STARTS = 6
START_STEPS = 120
HOST_START_STEPS = 300
"""With a host tier it takes longer until something was stored that is worth loading."""
PER_RULE = 3
WEIGHTS: dict[type[Action], int] = {
    act.Execute: 20,
    act.Output: 20,
    act.BeginStep: 12,
    act.Submit: 4,
    act.Lookup: 4,
    act.Allocate: 8,
    act.Drain: 2,
    act.BuildMetadata: 20,
    act.Dispatch: 20,
    act.LookupExternal: 4,
    act.Promote: 12,
    act.RunStore: 8,
    act.RunLoad: 12,
    act.CompleteStore: 4,
    act.CompleteLoad: 12,
}
"""How likely a type of action is drawn where it is enabled, against 1 for those that are not named."""


@frozen(slots=True)
class MachineResult:
    """What the machine found: the shrunk actions and their violation, or None; the counts are over all examples."""

    violation: Violation | None
    actions: tuple[Action, ...]
    legal: bool
    premises: dict[str, int]
    witnesses: dict[str, int]
    steps: int


@define(slots=True)
class _Search:
    """What outlives the examples of one run."""

    config: Config
    limits: Limits
    judge: Judge
    starts: list[tuple[tuple[Action, ...], World]]
    only: str
    tracker: wit.Tracker = field(factory=wit.Tracker)
    steps: int = 0
    failure: tuple[tuple[Action, ...], Violation, bool] | None = None


class _Broken(AssertionError):
    """A law does not hold; the search has the details."""


def _start_worlds(
    config: Config, laws: Sequence[Law], limits: Limits, seed_text: str, only: str
) -> list[tuple[tuple[Action, ...], World]]:
    """Return action lists and the worlds they lead to, the new world first; no law is broken on the way."""
    found: list[tuple[tuple[Action, ...], World]] = [((), new_world(config))]
    judged = [law for law in laws if law.check is not None]
    steps = START_STEPS if config.offload is None else HOST_START_STEPS
    for number in range(1, STARTS):
        walked = walk.walk(config, f"{seed_text}/start/{number}", steps, judged, limits, 0, only)
        actions = walked.actions[:-1] if walked.violations else walked.actions
        world = new_world(config)
        for action in actions:
            world = judges.attempt(world, action).after
        found.append((actions, world))
    return found


Kind = tuple[type[Action], bool]
"""A type of action; allocations that load are a kind of their own."""


def by_kind(actions: Sequence[Action]) -> dict[Kind, list[Action]]:
    """Return actions by kind, kinds and actions in the order of the list: the simplest first."""
    found: dict[Kind, list[Action]] = {}
    for action in actions:
        found.setdefault((type(action), isinstance(action, act.Allocate) and action.load), []).append(action)
    return found


def _machine(search: _Search) -> type[RuleBasedStateMachine]:
    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.actions: list[Action] = []
            self.world = new_world(search.config)

        @initialize(at=st.integers(0, len(search.starts) - 1))
        def start(self, at: int) -> None:
            actions, self.world = search.starts[at]
            self.actions = list(actions)

        @rule(data=st.data())
        def draw(self, data: st.DataObject) -> None:
            # Several actions a draw, or half of all would be refused ones.
            for _ in range(PER_RULE):
                kinds = by_kind(lists.enabled(self.world, search.limits))
                turn = [kind for kind in kinds for _ in range(WEIGHTS.get(kind[0], 1))]
                actions = kinds[turn[data.draw(st.integers(0, len(turn) - 1))]]
                self._apply(actions[data.draw(st.integers(0, len(actions) - 1))], True)

        @rule(at=st.integers(0, 199))
        def refuse(self, at: int) -> None:
            self._apply(disabled.pick(disabled.disabled(self.world, search.limits), at), False)

        def _apply(self, action: Action, legal: bool) -> None:
            moment = judges.attempt(self.world, action)
            found = self._judge(moment, legal)
            if found or moment.after is not self.world:
                self.actions.append(action)
            self.world = moment.after
            if found:
                search.failure = (tuple(self.actions), found[0], legal)
                raise _Broken(f"{found[0].law}: {found[0].evidence.message}")

        def _judge(self, moment: Moment, legal: bool) -> list[Violation]:
            position = len(self.actions)
            search.steps += 1
            search.tracker.observe(moment)
            search.judge.premises[rules.TOTALITY if legal else rules.GUARD] += 1
            found = search.judge.moment(moment, position)
            found += rules.violations(moment, legal, found, position)
            if search.only:
                return [violation for violation in found if violation.law == search.only]
            return judges.refuted(found)

    return Machine


@contextlib.contextmanager
def only_global_constants() -> Iterator[None]:
    """Keep Hypothesis from drawing constants that it reads in the sources of the modules loaded just now.

    Which modules those are depends on what this process did before and on how the package is installed, and so would the
    examples; besides, what was read is cached in a folder of the current directory. A Hypothesis that reads none has none
    of these names.
    """
    name = "_get_local_constants"
    collect, none = getattr(providers, name, None), getattr(providers, "Constants", None)
    permitted = getattr(providers, "CONSTANTS_CACHE", None)
    if collect is None or none is None or permitted is None:
        yield
        return
    setattr(providers, name, none)
    permitted.cache.clear()
    try:
        yield
    finally:
        setattr(providers, name, collect)
        permitted.cache.clear()


def run_machine(
    config: Config,
    laws: Sequence[Law],
    seed_number: int,
    max_examples: int,
    steps: int,
    limits: Limits | None = None,
    only: str = "",
) -> MachineResult:
    """Run the machine; a violation comes back with the action list that Hypothesis shrank it to.

    ``only`` names the one law or rule whose violations count, bent ones included.
    """
    bounds = limits or amounts.limits_for(config)
    starts = _start_worlds(config, laws, bounds, str(seed_number), only)
    search = _Search(config, bounds, Judge(laws), starts, only)
    machine = seed(seed_number)(_machine(search))
    chosen = settings(
        max_examples=max_examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        derandomize=False,
        print_blob=False,
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large),
        phases=(Phase.generate, Phase.shrink),
    )
    with only_global_constants(), contextlib.suppress(_Broken):
        run_state_machine_as_test(machine, settings=chosen)
    actions, violation, legal = search.failure or ((), None, True)
    return MachineResult(violation, actions, legal, dict(search.judge.premises), dict(search.tracker.counts), search.steps)
