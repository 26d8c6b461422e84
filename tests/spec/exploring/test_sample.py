"""Random runs: where one ends, which are judged whole, what must be refused on the way, and what a seed decides."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import config as configs
from kvproof.core.world import new_world
from kvproof.spec import judge as judges
from kvproof.spec import laws
from kvproof.spec.engines import disabled, drain, rules
from kvproof.spec.engines import witnesses as wit
from kvproof.spec.engines.scope_parts import full
from kvproof.spec.exploring import alphabet, canonical, sample, search
from kvproof.spec.exploring.bounds import Bounds
from kvproof.spec.exploring.search import Explored, Options
from kvproof.spec.laws.base import Evidence, Law

CONFIG = configs.configure((full(1),), max_model_len=3, num_blocks=4, max_running=1)
ONE = Bounds(("ab",), submits=1, outputs=1, live=1, at_most={act.Withdraw: 1})
NONE = Bounds(("a",), submits=0, live=1)
"""Nothing but empty steps: every world has one action."""
ROUND = 4 + len(CONFIG.parts)
"""Actions of an empty step: it is begun, drained, built, dispatched, and its parts run."""
WRONG = (Evidence.of("wrong"),)
Runs = list[tuple[act.Action, ...]]


def law(**checks: Any) -> Law:
    """A law that is judged by these functions alone."""
    nothing = {"check": None, "check_config": None, "check_end": None, "check_run": None}
    return evolve(laws.ALL[0], on=(), bent_by=(), **{**nothing, **checks})


def sampled(bounds: Bounds, *judged: Law, runs: int = 1, seed: int = 0, only: tuple[str, ...] = ()) -> tuple[Explored, int]:
    return sample.sample(CONFIG, bounds, Options(laws=judged, only=only), "tiny", runs, seed)


def noting(seen: Runs) -> Law:
    """A law that notes the whole runs that it is asked about."""

    def noted(config, actions, start):
        seen.append(tuple(actions))
        return ()

    return law(check_run=noted)


# --- where a run ends ---------------------------------------------------------------------------------------------


def test_a_run_ends_where_it_met_nothing_new_for_long():
    assert (sample.STALE, sample.LENGTH, sample.WHOLE_EVERY) == (32, 400, 8)
    # The first round ends where it began; from there on nothing is new. What another run met is new to this one.
    for runs in (1, 3):
        found, last = sampled(NONE, runs=runs)
        assert found.graph.edges == runs * (ROUND - 1 + 32)
        assert (len(found.graph), last) == (ROUND, runs - 1)


def test_a_depth_bounds_the_actions_of_a_run(monkeypatch):
    assert sampled(evolve(NONE, depth=5), runs=3)[0].graph.edges == 15
    assert sampled(evolve(NONE, depth=500), runs=1)[0].graph.edges == ROUND - 1 + 32
    monkeypatch.setattr(sample, "STALE", 10**6)
    assert sampled(NONE)[0].graph.edges == 400


def stale_counts(actions: tuple[act.Action, ...]) -> Iterator[int]:
    """Yield for how many actions a run has met nothing new to it, after each."""
    world, left, told = new_world(CONFIG), ONE.start(), False
    met, stale = {canonical.key(world, (*left, told))}, 0
    limits = ONE.limits(CONFIG)
    for action in actions:
        left = dict(alphabet.enabled(world, left, ONE, limits))[action]
        moment = judges.attempt(world, action)
        world, told = moment.after, drain.told_after(told, moment)
        key = canonical.key(world, (*left, told))
        stale = stale + 1 if key in met else 0
        met.add(key)
        yield stale


def test_something_new_lets_a_run_go_on_as_long_as_at_first(monkeypatch):
    monkeypatch.setattr(sample, "STALE", 12)
    seen: Runs = []
    sampled(ONE, noting(seen), runs=12, only=(laws.ALL[0].id,))
    assert len(seen) == 12
    interrupted = 0
    for run in seen:
        *before, last = stale_counts(run)
        assert last == 12 > max(before)
        interrupted += sum(1 for stale in before if stale) > 11
    assert interrupted


# --- what is judged -----------------------------------------------------------------------------------------------


def test_whole_runs_are_judged_by_seed_or_where_laws_were_named():
    for runs, seed, whole in ((7, 1, 0), (8, 1, 1), (1, 8, 1), (17, 0, 3)):
        seen: Runs = []
        found, _ = sampled(evolve(NONE, depth=3), noting(seen), runs=runs, seed=seed)
        assert found.runs == len(seen) == whole
    found, _ = sampled(evolve(NONE, depth=3), noting([]), runs=5, seed=1, only=(laws.ALL[0].id,))
    assert found.runs == 5


def test_a_run_that_is_wrong_ends_all():
    bad = law(check_run=lambda config, actions, start: WRONG)
    found, last = sampled(evolve(NONE, depth=3), bad, runs=20, seed=3)
    assert (found.end, last, found.runs) == ("violation", 8, 1)
    assert found.found is not None
    assert len(found.found.actions) == 3


def test_an_action_that_is_wrong_ends_all():
    bad = law(check=lambda moment: WRONG if isinstance(moment.action, act.Drain) else ())
    found, last = sampled(NONE, bad, runs=20, seed=3)
    assert (found.end, last, found.graph.edges) == ("violation", 3, 2)
    assert found.found is not None
    assert found.found.actions == (act.BeginStep(), act.Drain())


def test_a_configuration_that_is_wrong_needs_no_run():
    found, last = sampled(NONE, law(check_config=lambda config: WRONG), runs=20, seed=3)
    assert (found.end, last, found.graph.edges) == ("violation", 3, 0)
    assert found.found is not None
    assert found.found.actions == ()


def test_what_was_seen_is_counted():
    found, _ = sampled(ONE, runs=6)
    assert found.premises[rules.TOTALITY] == found.graph.edges == found.kinds.total()
    single = [sampled(ONE, runs=1, seed=seed)[0].witnesses for seed in range(6)]
    names = {name for one in single for name in one}
    assert names
    assert found.witnesses == {name: min(one[name] for one in single if name in one) for name in names}


def test_the_orbits_of_runs_are_those_of_the_graph():
    whole = search.explore(CONFIG, ONE, Options())
    assert sampled(ONE, runs=6)[0].graph.numbers.keys() <= whole.graph.numbers.keys()


# --- seeds --------------------------------------------------------------------------------------------------------


def test_run_n_has_its_own_seed_and_that_of_its_scope(monkeypatch):
    drawn = []

    def noted(seed: str) -> Random:
        drawn.append(seed)
        return Random(seed)

    monkeypatch.setattr(sample, "Random", noted)
    assert sampled(evolve(NONE, depth=2), runs=3, seed=5)[1] == 7
    assert drawn == ["tiny/5", "tiny/6", "tiny/7"]


def test_a_kind_is_drawn_by_its_weight():
    choices: Any = [(act.BeginStep(), ()), (act.Finish(0), ()), (act.Finish(1), ())]
    weights: dict[type[act.Action], float] = {act.BeginStep: 0.0, act.Finish: 1.0}
    drawn = {sample.drawn(Random(seed), choices, weights)[0] for seed in range(20)}
    assert drawn == {act.Finish(0), act.Finish(1)}


# --- what must be refused -----------------------------------------------------------------------------------------


def tried(monkeypatch: pytest.MonkeyPatch, attempt: act.Action, bounds: Bounds, only: tuple[str, ...] = ()) -> Any:
    """Let one attempt be tried wherever attempts are; return the keys of the worlds, what was observed, and the search."""
    where, observed = [], []
    observe = wit.Tracker.observe

    def attempts(world, limits):
        where.append(canonical.key(world))
        return [(attempt, ())]

    def noted(self, moment):
        observed.append(moment)
        return observe(self, moment)

    monkeypatch.setattr(disabled, "attempts", attempts)
    monkeypatch.setattr(wit.Tracker, "observe", noted)
    found, _ = sampled(bounds, runs=2, only=only)
    return where, [moment for moment in observed if moment.action == attempt], found


def test_what_must_be_refused_is_tried_once_in_every_new_world(monkeypatch):
    bounds = evolve(NONE, refusals=True)
    where, observed, found = tried(monkeypatch, act.Finish(9), bounds)
    assert len(where) == len(set(where)) == len(found.graph) == ROUND == found.refusals == len(observed)
    assert found.premises[rules.GUARD] == ROUND
    assert tried(monkeypatch, act.Finish(9), NONE)[0] == []


def test_what_is_accepted_though_it_must_be_refused_is_a_violation_and_no_situation(monkeypatch):
    bounds = evolve(NONE, refusals=True)
    _, observed, found = tried(monkeypatch, act.Submit(3, (0,)), bounds)
    assert found.found is not None
    assert (found.found.violation.law, found.found.actions, found.found.legal) == ("GUARD", (act.Submit(3, (0,)),), False)
    assert (observed, found.graph.edges) == ([], 0)
    # Where the rule does not count, the run goes on without it.
    where, observed, found = tried(monkeypatch, act.Submit(3, (0,)), bounds, only=("PC-1",))
    assert (len(where), found.found, found.graph.edges) == (ROUND, None, 2 * (ROUND - 1 + 32))
    assert not any(moment.refusal is None for moment in observed)
