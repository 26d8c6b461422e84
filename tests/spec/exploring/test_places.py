"""What a search does at each place: attempts that must be refused, ends, whole runs, a bound of edges, and what counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import config as configs
from kvproof.core.config import Config, Offload
from kvproof.core.errors import Refusal
from kvproof.core.world import Phase, World, new_world
from kvproof.spec import judge as judges
from kvproof.spec import laws
from kvproof.spec.engines import disabled, drain, prompts, rules
from kvproof.spec.engines import witnesses as wit
from kvproof.spec.engines.scope_parts import full
from kvproof.spec.exploring import alphabet, canonical, search
from kvproof.spec.exploring.bounds import Bounds
from kvproof.spec.exploring.search import Explored, Options
from kvproof.spec.judge import Judge, Violation
from kvproof.spec.laws.base import Evidence, Law, Moment

PLAIN = configs.configure((full(1),), max_model_len=3, num_blocks=4, max_running=1)
HOST = configs.configure((full(1),), max_model_len=3, num_blocks=4, max_running=1, offload=Offload(num_blocks=3))
ONE = Bounds(("aa",), submits=1, outputs=1, live=1)
WRONG = (Evidence.of("wrong"),)
NAME = laws.ALL[0].id
Runs = list[tuple[act.Action, ...]]


def law(**checks: Any) -> Law:
    """A law that is judged by these functions alone."""
    nothing = {"check": None, "check_config": None, "check_end": None, "check_run": None}
    return evolve(laws.ALL[0], on=(), bent_by=(), **{**nothing, **checks})


def noting(seen: Runs) -> Law:
    def noted(config, actions, start):
        seen.append(tuple(actions))
        return ()

    return law(check_run=noted)


def worlds_of(explored: Explored, config: Config) -> list[World]:
    """Return the world of each orbit, as the search met it first."""
    graph, found = explored.graph, [new_world(config)]
    for orbit in range(1, len(graph)):
        found.append(judges.attempt(found[graph.parents[orbit]], graph.names[graph.actions[orbit]]).after)
    return found


def graph_of(bounds: Bounds, config: Config = PLAIN, **options: Any) -> Explored:
    return search.explore(config, bounds, Options(**options))


# --- what must be refused -----------------------------------------------------------------------------------------


def trying(monkeypatch: pytest.MonkeyPatch, wanted: Callable[[World], list[act.Action]]) -> tuple[list[bytes], list[Moment]]:
    """Let these attempts be tried; return, as they fill, the keys of the worlds and the moments of which situations are noted."""
    where: list[bytes] = []
    observed: list[Moment] = []
    observe = wit.Tracker.observe

    def attempts(world, limits):
        where.append(canonical.key(world))
        return [(action, ()) for action in wanted(world)]

    def noted(self, moment):
        observed.append(moment)
        return observe(self, moment)

    monkeypatch.setattr(disabled, "attempts", attempts)
    monkeypatch.setattr(wit.Tracker, "observe", noted)
    return where, observed


def test_what_must_be_refused_is_tried_in_every_world(monkeypatch):
    where, observed = trying(monkeypatch, lambda world: [act.Finish(9)])
    found = graph_of(evolve(ONE, refusals=True))
    assert found.end == "complete"
    assert found.refusals == len(where) == len(found.graph) == found.premises[rules.GUARD]
    assert len(set(where)) > 20
    assert len([moment for moment in observed if moment.action == act.Finish(9)]) == len(where)
    assert found.graph.edges == found.kinds.total() == len(observed) - len(where)
    where.clear()
    assert (graph_of(ONE).refusals, where) == (0, [])


def shorter_prompts(world: World) -> list[act.Action]:
    """A prompt that the bounds do not have, where one could be submitted."""
    return [act.Submit(prompts.free_id(world), (0,))] if world.phase is Phase.IDLE and not world.requests else []


def test_what_is_accepted_though_it_must_be_refused_is_a_violation_and_no_situation(monkeypatch):
    _, observed = trying(monkeypatch, shorter_prompts)
    found = graph_of(evolve(ONE, refusals=True)).found
    assert found is not None
    assert (found.violation.law, found.actions, found.legal) == ("GUARD", (act.Submit(0, (0,)),), False)
    assert observed == []
    legal = graph_of(ONE, laws=[law(check=lambda moment: WRONG)]).found
    assert legal is not None
    assert legal.legal


def test_what_is_accepted_is_followed_within_the_bounds(monkeypatch):
    """Where the rule does not count, it is as if the bounds had that prompt, too: the same orbits, the same budgets."""
    for submits in (1, 2):
        bounds = evolve(ONE, submits=submits)
        known = graph_of(evolve(bounds, prompts=("a", "aa"), alphabet=(0,)))
        with monkeypatch.context() as patched:
            _, observed = trying(patched, shorter_prompts)
            found = graph_of(evolve(bounds, refusals=True, alphabet=(0,)), only=("PC-1",))
        assert found.found is None
        assert found.graph.numbers.keys() == known.graph.numbers.keys()
        assert len(found.graph) > len(graph_of(evolve(bounds, alphabet=(0,))).graph)
        assert not any(
            isinstance(one.action, act.Submit) and len(one.action.tokens) == 1 for one in observed if not one.refusal
        )


def test_a_disturbance_that_is_left_out_is_not_followed_though_it_is_accepted(monkeypatch):
    trying(monkeypatch, lambda world: [act.ResetCache()] if world.phase is Phase.IDLE else [])
    assert graph_of(evolve(ONE, refusals=True), only=("PC-1",)).graph.numbers.keys() == graph_of(ONE).graph.numbers.keys()


# --- ends ---------------------------------------------------------------------------------------------------------


def ends_of(monkeypatch: pytest.MonkeyPatch, config: Config, bounds: Bounds = ONE, **options: Any) -> list[World]:
    """Return the worlds that are brought to an end."""
    seen: list[World] = []

    def noted(world):
        seen.append(world)
        return drain.Drained.of(world)

    monkeypatch.setattr(drain, "drain", noted)
    graph_of(bounds, config, laws=[law(check_end=lambda drained: ())], **options)
    return seen


def test_every_world_between_plans_is_brought_to_an_end(monkeypatch):
    explored = graph_of(ONE, HOST)
    idle = [world for world in worlds_of(explored, HOST) if world.phase is Phase.IDLE]
    assert {bool(world.requests) for world in idle} == {bool(world.steps) for world in idle} == {True, False}
    assert ends_of(monkeypatch, HOST) == idle


def test_without_a_host_tier_or_if_nobody_asks_no_world_is_brought_to_an_end(monkeypatch):
    assert ends_of(monkeypatch, PLAIN) == []
    assert ends_of(monkeypatch, HOST, ends=False) == []


# --- whole runs ---------------------------------------------------------------------------------------------------


def test_at_a_finish_the_laws_of_finishes_alone_are_judged():
    at_finish: Runs = []
    other: Runs = []
    first, second = noting(at_finish), evolve(noting(other), id="XX-1")
    found = graph_of(ONE, HOST, laws=[first, second], at_finish=(NAME,))
    graph = found.graph
    finishes = {
        graph.path(orbit) for orbit in range(1, len(graph)) if isinstance(graph.names[graph.actions[orbit]], act.Finish)
    }
    assert set(at_finish) == finishes
    assert found.runs == len(at_finish) == len(finishes) > 5
    assert other == []


def test_where_every_run_is_judged_none_is_judged_twice():
    seen: Runs = []
    found = graph_of(ONE, HOST, laws=[noting(seen)], at_finish=(NAME,), all_runs=True, runs_every=1)
    assert found.runs == len(seen) == len(set(seen)) == len(found.graph) - 1
    assert graph_of(ONE, PLAIN, laws=[noting(seen)], at_finish=(NAME,)).runs == 0


def test_a_finish_behind_which_a_run_is_wrong_ends_the_search():
    found = graph_of(ONE, HOST, laws=[law(check_run=lambda *given: WRONG)], at_finish=(NAME,))
    assert (found.end, found.runs) == ("violation", 1)
    assert found.found is not None
    assert isinstance(found.found.actions[-1], act.Finish)


# --- bounds, situations -------------------------------------------------------------------------------------------


def test_a_bound_of_edges_gives_a_search_up_between_worlds():
    bounds = evolve(ONE, prompts=("a", "aa"))
    here = len(list(alphabet.enabled(new_world(PLAIN), bounds.start(), bounds, bounds.limits(PLAIN))))
    whole = graph_of(bounds)
    assert (whole.end, whole.found) == ("complete", None)
    for most in (1, here):
        found = graph_of(bounds, most_edges=most)
        assert (found.end, found.graph.edges, len(found.levels), found.found) == ("edges", here, 1, None)
    assert graph_of(bounds, most_edges=here + 1).graph.edges > here
    assert graph_of(bounds, most_edges=whole.graph.edges + 1).end == "complete"


def test_a_configuration_that_is_wrong_needs_no_search():
    found = graph_of(ONE, laws=[law(check_config=lambda config: WRONG)])
    assert (found.end, len(found.graph), found.levels) == ("violation", 0, [])
    assert found.found is not None
    assert found.found.actions == ()


def test_what_a_way_has_lost_is_known_at_its_end_and_nowhere_else(monkeypatch):
    """A tracker that loses and enters one thing more at every action has as many of each as the way is long."""
    seen: Counter[int] = Counter()

    def observe(self, moment):
        assert len(self.lost) == len(self.inside)
        seen[len(self.lost)] += 1
        self.lost.add((len(self.lost), 0))
        self.inside.add((len(self.inside), 0))

    monkeypatch.setattr(wit.Tracker, "observe", observe)
    found = graph_of(ONE)
    assert sorted(seen) == list(range(len(found.levels)))
    assert seen.total() == found.graph.edges
    assert all(seen[depth] >= found.levels[depth] - 1 for depth in range(len(found.levels) - 1))
    assert sum(found.levels) == len(found.graph)


# --- what counts --------------------------------------------------------------------------------------------------


def test_all_violations_count_but_bent_ones_or_those_that_are_named():
    one, two, bent = (Violation(name, 0, WRONG[0], bent) for name, bent in (("A-1", False), ("A-2", False), ("A-3", True)))
    assert Options().counting([one, bent, two]) == [one, two]
    assert Options(only=("A-2", "A-3")).counting([one, bent, two]) == [bent, two]
    assert Options(only=("A-4",)).counting([one, bent, two]) == []


def test_an_action_is_judged_by_its_rule_too():
    refused = judges.attempt(new_world(PLAIN), act.Finish(9))
    accepted = judges.attempt(new_world(PLAIN), act.BeginStep())
    assert isinstance(refused.refusal, Refusal)
    judge = Judge(())
    assert [one.law for one in search.violations(judge, refused, True, 4)] == [rules.TOTALITY]
    assert judge.premises[rules.GUARD] == 0
    assert [(one.law, one.position) for one in search.violations(judge, accepted, False, 4)] == [(rules.GUARD, 4)]
    assert search.violations(judge, accepted, True, 4) == search.violations(judge, refused, False, 4) == []
    assert judge.premises[rules.GUARD] == 2


def test_the_first_violation_that_counts_is_the_one_that_is_shown():
    first, second = law(check=lambda moment: WRONG), evolve(law(check=lambda moment: WRONG), id="XX-1")
    for only, name in (((), NAME), (("XX-1",), "XX-1")):
        found = graph_of(ONE, laws=[first, second], only=only).found
        assert found is not None
        assert (found.violation.law, len(found.actions)) == (name, 1)
