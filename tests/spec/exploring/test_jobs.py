"""What a job makes of a search: what it is asked, when liveness is judged behind it, what is shrunk, and how jobs are shared out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core.config import Offload
from kvproof.spec import counterexample, laws
from kvproof.spec.engines import rules, scope_parts
from kvproof.spec.engines import shrink as shrinking
from kvproof.spec.exploring import jobs, kills, liveness, scopes
from kvproof.spec.exploring.bounds import Bounds
from kvproof.spec.exploring.graph import Graph
from kvproof.spec.exploring.jobs import Asked, Job
from kvproof.spec.exploring.kills import Kill
from kvproof.spec.exploring.liveness import Refused, Verdict
from kvproof.spec.exploring.scope import Scope
from kvproof.spec.exploring.search import Explored, Found, Options
from kvproof.spec.judge import Violation
from kvproof.spec.laws.base import Evidence

SETTINGS: dict[str, Any] = {"max_model_len": 3, "num_blocks": 4, "max_running": 1}
TINY = Scope("tiny", (scope_parts.full(1),), Bounds(("ab",), submits=1, outputs=1, live=1), SETTINGS)
HOST = evolve(TINY, name="tiny-host", settings={**SETTINGS, "offload": Offload(num_blocks=4)})
FAULT = "M-LRU-1"


def violation(law: str, position: int = -1) -> Violation:
    return Violation(law, position, Evidence.of("wrong"))


# --- what is asked ------------------------------------------------------------------------------------------------


def test_a_job_judges_all_laws_and_rules_those_named_or_those_of_its_fault(monkeypatch):
    monkeypatch.setattr(laws, "ALL", (evolve(laws.ALL[0], later=True), *laws.ALL[1:]))
    every = Job(Asked(), TINY).law_ids
    assert laws.ALL[0].id not in every
    assert {rules.GUARD, rules.TOTALITY} <= set(every)
    assert len(every) == len(set(every)) == len(laws.ALL)  # without the later one, with the rule that is no law
    assert Job(Asked(laws=("PC-1",)), TINY).law_ids == ("PC-1",)
    assert "PC-8" in Job(Asked(), TINY, FAULT).law_ids


def test_a_job_judges_whole_runs_now_and_then_and_at_every_finish():
    plain = jobs.options_of(Job(Asked(), TINY))
    assert (plain.only, plain.runs_every, plain.at_finish) == ((), 512, ("LV-5", "LV-6"))
    assert not plain.all_runs
    assert [law.id for law in plain.laws] == [law.id for law in laws.ALL if not law.later]
    chosen = jobs.options_of(Job(Asked(laws=("PC-1", "LV-5")), TINY))
    assert ({law.id for law in chosen.laws}, chosen.only) == ({"PC-1", "LV-5"}, ("PC-1", "LV-5"))
    assert kills.options(("PC-1",), most_edges=9).most_edges == 9


def test_a_fault_of_which_some_laws_are_asked_is_looked_for_in_the_whole_catalogue(monkeypatch):
    other = evolve(TINY, name="other")
    monkeypatch.setattr(scopes, "CATALOGUE", (TINY, other))
    monkeypatch.setattr(kills, "table", lambda: {FAULT: Kill("other", "PC-8", 8)})
    for asked, where in (
        (Asked(fault=FAULT), ["other"]),
        (Asked(fault=FAULT, laws=("PC-8",)), ["tiny", "other"]),
        (Asked(fault=FAULT, scopes=("tiny",)), ["tiny"]),
        (Asked(every_fault=True, scopes=("tiny", "other")), ["other"]),
    ):
        assert [job.scope.name for job in jobs.jobs(asked)] == where


def test_only_the_graph_within_the_own_bounds_of_a_scope_is_the_one_that_is_pinned():
    done = jobs.perform(Job(Asked(), TINY))
    for job, same in (
        (Job(Asked(), TINY), True),
        (Job(Asked(fault=FAULT), TINY, FAULT), False),
        (Job(Asked(runs=3), TINY), False),
        (Job(Asked(depth=500), TINY), True),
    ):
        assert evolve(done, job=job).of_scope == same


def test_worlds_are_counted_of_whole_graphs_alone():
    done = jobs.perform(Job(Asked(full=True, fault=FAULT), TINY, FAULT))
    assert (done.certificate.end, done.certificate.worlds) == ("violation", None)


# --- liveness -----------------------------------------------------------------------------------------------------


def with_liveness(monkeypatch, verdict: Verdict, end: Any = "complete", scope: Scope = HOST, **asked: Any) -> Explored:
    """Return a search to which liveness says this, if it is asked."""
    explored = Explored(Graph(), end=end, premises={"LV-2": 3})
    monkeypatch.setattr(liveness, "judge", lambda *given: verdict)
    jobs._judge_liveness(Job(Asked(**asked), scope), scope.config(), explored, lambda what: None)
    return explored


def lasso(law: str) -> liveness.Lasso:
    obligation: Any = SimpleNamespace(law=law, message="never", name="toy")
    return liveness.Lasso(obligation, (act.BeginStep(),), ())


def test_liveness_is_judged_behind_what_was_seen_whole_within_its_bounds(monkeypatch):
    verdict = Verdict((lasso("LV-2"), lasso("LV-3")), worlds=7, premises={"LV-2": 4, "LV-3": 1})
    for end in ("complete", "depth"):
        explored = with_liveness(monkeypatch, verdict, end)
        assert (explored.closed, explored.premises) == (7, {"LV-2": 7, "LV-3": 1})
        assert explored.found is not None
        assert (explored.found.violation.law, explored.found.actions) == ("LV-2", (act.BeginStep(),))
    for other in (
        with_liveness(monkeypatch, verdict, "edges"),
        with_liveness(monkeypatch, verdict, "violation"),
        with_liveness(monkeypatch, verdict, scope=TINY),
        with_liveness(monkeypatch, verdict, laws=("PC-1",)),
    ):
        assert (other.closed, other.premises, other.found) == (0, {"LV-2": 3}, None)


def test_frees_that_wait_are_owed_without_a_host_tier(monkeypatch):
    waiting = evolve(TINY, settings={**SETTINGS, "defer_block_free": True, "max_steps_in_flight": 2})
    assert with_liveness(monkeypatch, Verdict(worlds=7), scope=waiting).closed == 7


def test_progress_that_is_refused_comes_before_a_lasso(monkeypatch):
    refused = Refused(violation("LV-9"), (act.Drain(),))
    explored = with_liveness(monkeypatch, Verdict((lasso("LV-2"),), refused))
    assert explored.found == Found(refused.violation, refused.actions)


# --- counterexamples ----------------------------------------------------------------------------------------------


def shrunk(monkeypatch, engine: str, law: str, position: int, actions: int = 3, all_runs: bool = False) -> bool:
    """Tell whether what a search found is made shorter."""
    called = []

    def shrink(config, actions, found, *given):
        called.append(found)
        return actions, found

    monkeypatch.setattr(shrinking, "shrink", shrink)
    monkeypatch.setattr(counterexample, "build", lambda *given, **more: SimpleNamespace())
    monkeypatch.setattr(counterexample, "replay", lambda *given: SimpleNamespace(violation=violation(law)))
    explored = Explored(Graph(), found=Found(violation(law, position), (act.BeginStep(),) * actions))
    jobs._example(Job(Asked(), HOST), HOST.config(), Options(all_runs=all_runs), explored, engine, 0)
    return bool(called)


def test_what_a_search_finds_first_is_as_short_as_it_gets_and_other_runs_are_made_shorter(monkeypatch):
    explorer, sampler = jobs.EXPLORER, jobs.SAMPLER
    assert shrunk(monkeypatch, explorer, "LV-10", -1)  # a whole run, one of those that are judged now and then
    assert shrunk(monkeypatch, sampler, "PC-1", 2)
    others: tuple[Any, ...] = (
        (explorer, "PC-1", 2),  # at an edge
        (explorer, "LV-4", -1),  # at an end: every world between plans is asked
        (explorer, "LV-9", -1),  # progress that is refused
        (sampler, "DS-1", -1, 0),  # the configuration alone
        (explorer, "LV-10", -1, 3, True),  # every run is judged
    )
    for found in others:
        assert not shrunk(monkeypatch, *found)


@pytest.mark.parametrize("law", sorted(liveness.LAWS))
def test_a_lasso_is_left_as_it_is(monkeypatch, law):
    assert not shrunk(monkeypatch, jobs.EXPLORER, law, -1)
    quiet = [evolve(one, check_end=None) for one in laws.ALL]
    monkeypatch.setattr(laws, "ALL", tuple(quiet))
    assert not shrunk(monkeypatch, jobs.EXPLORER, law, -1)


# --- sharing ------------------------------------------------------------------------------------------------------


def test_searches_for_faults_go_together_and_never_with_a_whole_graph():
    scope, fault = Job(Asked(), TINY), Job(Asked(), TINY, FAULT)
    assert jobs.BATCH == 12
    assert jobs.batches([]) == []
    assert jobs.batches([scope, scope]) == [[0], [1]]
    assert jobs.batches([fault, scope, fault, fault, scope]) == [[0], [1], [2, 3], [4]]
    assert [len(batch) for batch in jobs.batches([fault] * 25)] == [12, 12, 1]
