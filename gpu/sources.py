"""Where runs come from: golden traces, recordings, the random walker, paths of exploration and the Hypothesis machine.

Each source yields one ``Ran`` per run. Sources are bounded by steps, never by time, and the seed decides everything.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from random import Random

import hypothesis
from attrs import frozen
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import strategies as st

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.gpu import differential, goldens
from kvproof.gpu.compare import Difference
from kvproof.gpu.counterexamples import Origin
from kvproof.gpu.differential import Differential
from kvproof.spec.engines import enabled as lists
from kvproof.spec.engines import machine
from kvproof.spec.engines.scopes import Scope
from kvproof.spec.engines.walk import Walker
from kvproof.spec.exploring import alphabet, sample
from kvproof.spec.exploring.scope import Scope as Bounded
from kvproof.spec.traces import archive, project, replay
from kvproof.spec.traces.archive import Entry

REFUSED_EVERY = 7
"""Every so many attempts of a walk is one that must be refused."""
EXPLORED, EXPLORED_STEPS = "explore/", 80
"""What the names of paths of exploration begin with (its scopes and those of checks share names), and their length."""
STARTS, START_STEPS = 4, 100
"""Examples of the Hypothesis machine begin at the new world or behind one of so many walks less one, of so many steps."""


@frozen(slots=True)
class Ran:
    """One run: where it came from, its configuration, and both sides at its end or at the first difference.

    ``before`` counts actions and outputs of runs that came before it and ended without a difference (those of Hypothesis).
    """

    origin: Origin
    config: Config
    both: Differential
    before: tuple[int, int] = (0, 0)

    @property
    def performed(self) -> int:
        """The actions performed on both sides."""
        return self.before[0] + self.both.performed

    @property
    def outputs(self) -> int:
        """The outputs compared."""
        return self.before[1] + len(self.both.outputs)


def golden(name: str) -> str | None:
    """Return the golden trace of a name, its own (``G2, G3``) or one of those in it (``G3``); None if there is none."""
    return next((own for own in goldens.SCRIPTS if name == own or (name in own.split(", ") and name.startswith("G"))), None)


GOLDEN_NAMES: tuple[str, ...] = tuple(
    dict.fromkeys(part for name in goldens.SCRIPTS for part in name.split(", ") if part.startswith("G"))
)
"""The golden traces by their names in the semantics."""


def run_golden(name: str, device: str) -> Ran:
    """Run one golden trace, by its own name. That the model does not perform it is a difference as well."""
    try:
        script = goldens.SCRIPTS[name]()
    except goldens.Stopped as stopped:
        return Ran(Origin(name), stopped.script.config, stopped_at(stopped, device))
    return Ran(Origin(name), script.config, differential.run(script.config, script.actions, device))


def stopped_at(stopped: goldens.Stopped, device: str) -> Differential:
    """Perform what a golden trace came to on both sides; without another difference it is the model's at its end."""
    both = differential.run(stopped.script.config, stopped.script.actions, device)
    if both.difference is None and stopped.action is not None:
        both.legal(stopped.action)
    if both.difference is None:
        both.difference = Difference(differential.MODEL, "the model performs the golden trace", str(stopped))
    return both


def run_goldens(device: str) -> Iterator[Ran]:
    """Run every golden trace."""
    for name in goldens.SCRIPTS:
        yield run_golden(name, device)


def run_recordings(entries: Sequence[Entry], device: str) -> Iterator[Ran]:
    """Run what the shipped recordings come to as actions of the model, each under its engine's profile."""
    for entry, recording in archive.recordings(tuple(entries)):
        if project.uncovered(recording.header) is None:
            replayed = replay.replay(recording)
            yield Ran(Origin(entry.name), replayed.config, differential.run(replayed.config, replayed.actions, device))


def walked(scope: Scope, seed: int, steps: int, device: str, fault: str = "") -> Ran:
    """Walk ``steps`` actions of a scope on both sides, refused ones among them, up to the first difference."""
    config = scope.config()
    limits = scope.limits(config)
    walker = Walker.of(config, limits, f"tensors/{scope.name}/{seed}")
    both = differential.begin(config, device)
    for attempt in range(1, steps + 1):
        legal = attempt % REFUSED_EVERY != 0
        moment = both.legal(walker.propose(both.model)) if legal else both.act(walker.disabled(both.model))
        if both.difference is not None:
            break
        if legal:
            walker.observe(moment)
    return Ran(Origin(scope.name, seed, fault, limits), config, both)


def run_walks(scopes: Sequence[Scope], seeds: Sequence[int], steps: int, device: str, fault: str = "") -> Iterator[Ran]:
    """Walk every scope with every seed."""
    for scope in scopes:
        for seed in seeds:
            yield walked(scope, seed, steps, device, fault)


def explored(scope: Bounded, seed: int, device: str, steps: int = EXPLORED_STEPS) -> Ran:
    """Take a path through the graph that an exploration of a scope covers, drawn within its bounds, on both sides."""
    config, bounds = scope.config(), scope.bounds
    random, left, limits = Random(f"tensors/{scope.name}/{seed}"), bounds.start(), bounds.limits(config)
    weights = {kind: random.choice(sample.WEIGHTS) for kind in act.ACTIONS}
    both = differential.begin(config, device)
    for _ in range(steps):
        choices = list(alphabet.enabled(both.model, left, bounds, limits))
        if not choices:
            break
        action, left = sample.drawn(random, choices, weights)
        both.legal(action)
        if both.difference is not None:
            break
    return Ran(Origin(EXPLORED + scope.name, seed, limits=limits), config, both)


class Differs(AssertionError):
    """Model and tensors differ; the search has the run."""


def machine_run(scope: Scope, seed: int, examples: int, steps: int, device: str, fault: str = "") -> Ran:
    """Let Hypothesis draw runs of a scope from the enabled actions; a difference comes back as the run it shrank it to.

    Examples begin at the new world or behind a walk, so that few draws reach far. Without a difference the last run comes back.
    """
    config = scope.config()
    limits = scope.limits(config)
    starts: list[tuple[Action, ...]] = [()]
    starts += [tuple(walked(scope, seed * 100 + at, START_STEPS, device).both.actions) for at in range(1, STARTS)]
    last: list[Differential] = []
    before = (0, 0)

    def example(data: st.DataObject) -> None:
        nonlocal before
        for done in last:
            before = (before[0] + done.performed, before[1] + len(done.outputs))
        both = differential.run(config, starts[data.draw(st.integers(0, len(starts) - 1))], device)
        last[:] = [both]
        for _ in range(steps):
            if both.difference is not None:
                raise Differs
            kinds = machine.by_kind(lists.enabled(both.model, limits))
            turn = [kind for kind in kinds for _ in range(machine.WEIGHTS.get(kind[0], 1))]
            actions = kinds[turn[data.draw(st.integers(0, len(turn) - 1))]]
            both.legal(actions[data.draw(st.integers(0, len(actions) - 1))])

    chosen = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        print_blob=False,
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large),
        phases=(Phase.generate, Phase.shrink),
    )
    with machine.only_global_constants(), contextlib.suppress(Differs):
        hypothesis.seed(seed)(chosen(given(st.data())(example)))()
    return Ran(Origin(scope.name, seed, fault, limits), config, last[-1], before)
