"""Random runs within the bounds of a scope, for graphs too large to be finished: the same laws, nothing exhausted.

Each run draws from what is enabled in its world and within what is left of the bounds: first a kind of action, by weights that
are drawn for the run (so that some runs hardly ever finish a request, or preempt), then one of that kind. A run is decided by
its seed alone, so that a violation is found again by that one run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from attrs import Factory, define

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.world import World, new_world
from kvproof.spec import judge as judges
from kvproof.spec.engines import disabled, drain, rules
from kvproof.spec.engines import witnesses as wit
from kvproof.spec.engines.amounts import Limits
from kvproof.spec.exploring import alphabet, canonical
from kvproof.spec.exploring.bounds import Bounds, Budget
from kvproof.spec.exploring.graph import Graph
from kvproof.spec.exploring.search import Explored, Found, Options, violations
from kvproof.spec.judge import Judge, Violation

LENGTH = 400
"""Actions of a run where the bounds say nothing."""
WHOLE_EVERY = 8
"""Of the seeds, those whose whole run is judged, too, unless single laws were asked for: it costs as much as all the rest."""
WEIGHTS = (0.02, 0.2, 1.0)
"""How much a run favours a kind of action."""
STALE = 32
"""A run that met no orbit new to it for so many actions has spent its budgets: it ends."""


@define(slots=True)
class Sample:
    """Random runs under way; ``length`` bounds the actions of one."""

    config: Config
    bounds: Bounds
    limits: Limits
    options: Options
    judge: Judge
    length: int
    explored: Explored = Factory(lambda: Explored(Graph()))

    def run(self, random: Random, whole: bool) -> bool:
        """Do one run; False if it shows a violation. ``whole``: judge it by the laws that look at whole runs, too."""
        explored, graph = self.explored, self.explored.graph
        world, left = new_world(self.config), self.bounds.start()
        tracker = wit.Tracker()
        weights: dict[type[Action], float] = {kind: random.choice(WEIGHTS) for kind in act.ACTIONS}
        done: list[Action] = []
        told = False
        here, new = graph.found(canonical.key(world, (*left, told)), -1, None)
        met, stale = {here}, 0
        while len(done) < self.length and stale < STALE:
            if new and self.bounds.refusals and not self._refused(world, done, tracker):
                return False
            choices = list(alphabet.enabled(world, left, self.bounds, self.limits))
            if not choices:
                break
            action, left = drawn(random, choices, weights)
            moment = judges.attempt(world, action)
            tracker.observe(moment)
            explored.kinds[type(action).__name__] += 1
            graph.edges += 1
            found = violations(self.judge, moment, True, len(done))
            done.append(action)
            if self.counts(found, done, True):
                return False
            world, told = moment.after, drain.told_after(told, moment)
            here, new = graph.found(canonical.key(world, (*left, told)), here, action)
            stale = stale + 1 if here in met else 0
            met.add(here)
            for name in tracker.counts:
                if tracker.counts[name]:
                    explored.witnesses[name] = min(len(done), explored.witnesses.get(name, len(done)))
            tracker.counts.clear()
        if not whole:
            return True
        explored.runs += 1
        return not self.counts(self.judge.run(self.config, done), done, True)

    def _refused(self, world: World, done: list[Action], tracker: wit.Tracker) -> bool:
        """Try what must be refused in a world; False if something is not."""
        for action, _ in disabled.attempts(world, self.limits):
            self.explored.refusals += 1
            moment = judges.attempt(world, action)
            if moment.refusal is not None:  # what is accepted here is a violation, and shows no situation
                tracker.observe(moment)
            if self.counts(violations(self.judge, moment, False, len(done)), [*done, action], False):
                return False
        return True

    def counts(self, found: list[Violation], actions: list[Action], legal: bool) -> bool:
        """Keep the first violation that counts; tell whether there is one."""
        counting = self.options.counting(found)
        if counting:
            self.explored.found = Found(counting[0], tuple(actions), legal)
            self.explored.end = "violation"
        return bool(counting)


def drawn(random: Random, choices: list[tuple[Action, Budget]], weights: Mapping[type[Action], float]) -> tuple[Action, Budget]:
    """Draw a kind of action by its weight, then one of that kind."""
    kinds = list(dict.fromkeys(type(action) for action, _ in choices))
    chosen = random.choices(kinds, [weights[kind] for kind in kinds])[0]
    return random.choice([choice for choice in choices if type(choice[0]) is chosen])


def sample(
    config: Config,
    bounds: Bounds,
    options: Options,
    scope: str,
    runs: int,
    seed: int,
    progress: Callable[[str], None] = lambda what: None,
) -> tuple[Explored, int]:
    """Do random runs until one shows a violation; return what they came to, and the seed of the last one.

    Run n has the seed ``seed + n``. ``bounds.depth`` bounds the actions of a run.
    """
    judge = Judge(options.laws)
    length = LENGTH if bounds.depth is None else bounds.depth
    sampled = Sample(config, bounds, bounds.limits(config), options, judge, length)
    last = seed
    if not sampled.counts(judge.configuration(config), [], True):
        for number in range(runs):
            last = seed + number
            if not sampled.run(Random(f"{scope}/{last}"), bool(options.only) or last % WHOLE_EVERY == 0):
                break
            progress(f"run {number + 1} of {runs}, {len(sampled.explored.graph)} orbits")
    sampled.explored.premises = {**judge.premises, rules.TOTALITY: sampled.explored.kinds.total()}
    return sampled.explored, last
