"""In which order a search judges: of each level the ends first, then the edges; and what it does at a bound of depth."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import config as configs
from kvproof.core.config import Offload
from kvproof.core.errors import ConfigError
from kvproof.core.world import Phase, World, new_world
from kvproof.spec import faults, laws
from kvproof.spec import judge as judges
from kvproof.spec.engines import drain
from kvproof.spec.engines.scope_parts import full
from kvproof.spec.exploring import alphabet, canonical, jobs, liveness, scopes, search
from kvproof.spec.exploring.bounds import Bounds
from kvproof.spec.exploring.jobs import Asked, Job
from kvproof.spec.exploring.scope import Scope
from kvproof.spec.exploring.search import Explored, Options
from kvproof.spec.laws.base import Evidence, Law

SETTINGS: dict[str, Any] = {"max_model_len": 4, "num_blocks": 5, "max_running": 1, "offload": Offload(num_blocks=4)}
ONE = Bounds(("aa",), submits=1, outputs=1, live=1, at_most={act.ResetHost: 1})
TWO = Bounds(("aa",), submits=2, outputs=1, live=1, alphabet=(0,), at_most={act.ResetCache: 1})
HOST = Scope("tiny-host", (full(1),), TWO, SETTINGS)
WRONG = (Evidence.of("wrong"),)


def law(**checks) -> Law:
    """A law that is judged by these functions alone."""
    nothing = {"check": None, "check_config": None, "check_end": None, "check_run": None}
    return evolve(laws.ALL[0], on=(), bent_by=(), **{**nothing, **checks})


def only(name: str) -> list[Law]:
    return [one for one in laws.ALL if one.id == name]


def worlds_of(explored: Explored) -> list[World]:
    """Return the world of each orbit, as the search met it first."""
    graph = explored.graph
    found = [new_world(HOST.config())]
    for orbit in range(1, len(graph)):
        found.append(judges.attempt(found[graph.parents[orbit]], graph.names[graph.actions[orbit]]).after)
    return found


@pytest.fixture(scope="module")
def explored():
    return search.explore(HOST.config(), TWO, Options())


# --- the order of a level ---------------------------------------------------------------------------------------------


def test_the_end_of_a_world_is_judged_before_the_edges_of_its_level(explored):
    """Of two worlds of one level the earlier has a wrong edge, the later one a wrong end: that takes one action less."""
    found, depths = worlds_of(explored), explored.graph.depths
    idle = [at for at, world in enumerate(found) if world.phase is Phase.IDLE]
    later = next(at for at in idle if depths[at - 1] == depths[at] and found[at - 1] != found[at])
    bad = law(
        check_end=lambda drained: WRONG if drained.start == found[later] else (),
        check=lambda moment: WRONG if moment.before == found[later - 1] else (),
    )
    result = search.explore(HOST.config(), TWO, Options(laws=[bad]))
    assert result.found is not None
    assert (len(result.found.actions), result.end) == (depths[later], "violation")
    by_edge = search.explore(HOST.config(), TWO, Options(laws=[evolve(bad, check_end=None)]))
    assert by_edge.found is not None
    assert len(by_edge.found.actions) == depths[later] + 1


# --- a bound of depth -------------------------------------------------------------------------------------------------


def first_wrong_end(name: str, fault: str, depth: int | None) -> int | None:
    """Return after how many actions a search finds that a law of the end does not hold under a fault."""
    with faults.planted(faults.by_id(fault)):
        found = search.explore(HOST.config(), evolve(TWO, depth=depth), Options(laws=only(name))).found
    return None if found is None else len(found.actions)


def test_worlds_at_the_bound_are_asked_for_their_end():
    shortest = first_wrong_end("LV-4", "M-LEAK-3", None)
    assert shortest == 21
    assert first_wrong_end("LV-4", "M-LEAK-3", shortest) == shortest
    assert first_wrong_end("LV-4", "M-LEAK-3", shortest - 1) is None


def test_an_end_that_is_wrong_after_as_many_actions_as_the_bound_allows_is_found(explored):
    found, depths = worlds_of(explored), explored.graph.depths
    far = next(
        at for at in range(len(found)) if depths[at] == 14 and found[at].phase is Phase.IDLE and found[at] not in found[:at]
    )
    bad = law(check_end=lambda drained: WRONG if drained.start == found[far] else ())
    for depth, there in ((13, False), (14, True), (15, True)):
        result = search.explore(HOST.config(), evolve(TWO, depth=depth), Options(laws=[bad]))
        assert (result.found is not None) == there
        assert result.end == ("violation" if there else "depth")


def test_an_edge_beyond_the_bound_is_not_followed(explored):
    bad = law(check=lambda moment: WRONG if isinstance(moment.action, act.Output) else ())
    shortest = search.explore(HOST.config(), TWO, Options(laws=[bad])).found
    assert shortest is not None
    length = len(shortest.actions)
    assert search.explore(HOST.config(), evolve(TWO, depth=length), Options(laws=[bad])).found == shortest
    assert search.explore(HOST.config(), evolve(TWO, depth=length - 1), Options(laws=[bad])).found is None


# --- whole runs -------------------------------------------------------------------------------------------------------


def leaves(explored: Explored) -> set[int]:
    """The orbits through which nothing new was reached."""
    return set(range(len(explored.graph))) - set(explored.graph.parents)


def test_the_run_to_every_end_of_the_search_tree_is_judged(explored):
    seen: set[tuple[act.Action, ...]] = set()

    def noted(config, actions, start):
        seen.add(tuple(actions))
        return ()

    every = search.explore(HOST.config(), TWO, Options(laws=[law(check_run=noted)], runs_every=1))
    assert seen == {explored.graph.path(orbit) for orbit in leaves(explored)}
    assert every.runs == len(seen) > 20
    assert every.premises[laws.ALL[0].id] == len(seen)
    for often in (7, 10**6):
        seen.clear()
        some = search.explore(HOST.config(), TWO, Options(laws=[law(check_run=noted)], runs_every=often))
        assert some.runs == len(seen) == -(-every.runs // often)
    assert search.explore(HOST.config(), TWO, Options(laws=[law(check_run=noted)])).runs == 0


def test_the_runs_to_the_bound_are_judged_too(explored):
    depth = 9
    seen: set[tuple[act.Action, ...]] = set()

    def noted(config, actions, start):
        seen.add(tuple(actions))
        return ()

    result = search.explore(HOST.config(), evolve(TWO, depth=depth), Options(laws=[law(check_run=noted)], runs_every=1))
    assert result.end == "depth"
    inside = [orbit for orbit in range(len(explored.graph)) if explored.graph.depths[orbit] <= depth]
    inner = {explored.graph.parents[orbit] for orbit in inside}
    assert seen == {explored.graph.path(orbit) for orbit in inside if orbit not in inner}
    assert any(len(run) == depth for run in seen)


def test_a_run_that_is_wrong_ends_the_search():
    bad = law(check_run=lambda config, actions, start: WRONG if isinstance(actions[-1], act.ResetCache) else ())
    result = search.explore(HOST.config(), TWO, Options(laws=[bad], runs_every=1))
    assert result.end == "violation"
    assert result.found is not None
    assert (result.found.violation.position, type(result.found.actions[-1])) == (-1, act.ResetCache)


def test_with_all_runs_the_shortest_wrong_one_is_found():
    bad = law(check_run=lambda config, actions, start: WRONG if isinstance(actions[-1], act.Dispatch) else ())
    result = search.explore(HOST.config(), TWO, Options(laws=[bad], all_runs=True))
    assert result.found is not None
    kinds = [type(action).__name__ for action in result.found.actions]
    assert kinds == ["BeginStep", "Drain", "BuildMetadata", "Dispatch"]


# --- orbits -----------------------------------------------------------------------------------------------------------


def test_what_the_engine_was_told_last_tells_orbits_apart():
    """One engine was told that stores are pending, another one that none are; then a reset made the worlds the same."""
    scope = scopes.by_name("fa1-host")
    config, bounds = scope.config(), evolve(scope.bounds, at_most={act.ResetHost: 1})
    limits = bounds.limits(config)
    seen, waiting = set(), [(new_world(config), bounds.start(), False)]
    while waiting:
        world, left, told = waiting.pop()
        if (name := (canonical.key(world, left), told)) in seen:
            continue
        seen.add(name)
        for action, less in alphabet.enabled(world, left, bounds, limits):
            moment = judges.attempt(world, action)
            waiting.append((moment.after, less, drain.told_after(told, moment)))
    explored = search.explore(config, bounds, Options())
    assert len(explored.graph) == len(seen) == 2215
    assert len(seen) - len({key for key, _ in seen}) == 12


def test_an_engine_steps_on_as_long_as_requests_are_there():
    config = HOST.config()
    submitted = judges.attempt(new_world(config), act.Submit(0, (0, 0)))
    assert drain.told_after(False, submitted)
    assert drain.told_after(True, judges.attempt(new_world(config), act.ResetCache()))
    assert not drain.told_after(False, judges.attempt(new_world(config), act.ResetCache()))
    gone = judges.attempt(submitted.after, act.Finish(0))
    assert gone.record is not None
    assert not gone.record.pending_work
    assert not drain.told_after(True, gone)  # the last word counts


# --- what a job makes of it -------------------------------------------------------------------------------------------


def silent(monkeypatch, name: str) -> None:
    """Take the drain from a law, so that its lasso alone shows what is wrong."""
    quiet = [evolve(one, check_end=lambda drained: None) if one.id == name else one for one in laws.ALL]
    monkeypatch.setattr(laws, "ALL", tuple(quiet))


def test_liveness_is_judged_behind_a_bounded_search_too(monkeypatch):
    silent(monkeypatch, "LV-4")
    scope = evolve(HOST, bounds=evolve(TWO, depth=21))
    done = jobs.perform(Job(Asked(laws=("LV-4",), fault="M-LEAK-3"), scope, "M-LEAK-3"))
    assert (done.certificate.end, done.certificate.depth) == ("depth", 21)
    assert done.certificate.closed > 0
    assert done.example is not None
    assert done.example.law == "LV-4"


def test_progress_that_is_refused_is_the_counterexample_of_a_job(monkeypatch):
    """A store is never taken back: every report of one is refused, which no law of an edge shows if it is not asked there."""
    attempt = judges.attempt

    def stubborn(world, action):
        return attempt(world, act.Submit(0, ()) if isinstance(action, act.CompleteStore) else action)

    config = HOST.config()
    explored = search.explore(config, TWO, Options())
    monkeypatch.setattr(judges, "attempt", stubborn)
    monkeypatch.setattr(search, "explore", lambda *given: Explored(explored.graph))
    done = jobs.perform(Job(Asked(laws=("LV-9",)), HOST))
    assert done.example is not None
    assert done.example.law == "LV-9"
    assert isinstance(done.example.actions[-1], act.CompleteStore)


def test_progress_that_is_refused_is_nothing_that_could_happen(monkeypatch):
    """Where every report is refused and nobody asks for LV-9, the store is open for ever, whatever else is done."""
    attempt = judges.attempt

    def stubborn(world, action):
        return attempt(world, act.Submit(0, ()) if isinstance(action, act.CompleteStore) else action)

    config = HOST.config()
    graph = search.explore(config, TWO, Options()).graph
    monkeypatch.setattr(judges, "attempt", stubborn)
    verdict = liveness.judge(Explored(graph), config, TWO, ("LV-2",))
    assert verdict.refused is None
    assert "stores" in {lasso.obligation.name for lasso in verdict.found}
    [lasso] = [lasso for lasso in verdict.found if lasso.obligation.name == "stores"]
    assert liveness.shown_again(config, lasso.actions, lasso.violation)


def test_a_configuration_that_a_fault_makes_illegal_is_not_called_complete():
    scope = Scope("rows", (full(1),), ONE, {"max_model_len": 4, "num_blocks": 5, "max_running": 1})
    refused = configs.configure((full(1),), max_model_len=4, num_blocks=5, max_running=1)
    assert scope.config() == refused
    job = Job(Asked(fault="M-LRU-1", laws=("PC-8",)), scope, "M-LRU-1")
    done = jobs._refused_configuration(job, ConfigError("no"))
    assert (done.certificate.end, done.certificate.orbits, done.example) == ("refused", 0, None)
