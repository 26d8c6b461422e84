"""What certificates and results say of given searches: verdicts, what keeps one from holding, faults and their table, sizes."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.spec import faults
from kvproof.spec.engines import scope_parts, witnesses
from kvproof.spec.exits import ExitCode
from kvproof.spec.exploring import certificate, jobs, pins, result, scopes
from kvproof.spec.exploring.bounds import Bounds
from kvproof.spec.exploring.graph import Graph
from kvproof.spec.exploring.jobs import Asked, Done, Job
from kvproof.spec.exploring.kills import Kill
from kvproof.spec.exploring.pins import Difference, Pin
from kvproof.spec.exploring.result import Killed, Result
from kvproof.spec.exploring.scope import Scope
from kvproof.spec.exploring.search import Explored

TINY = Scope(
    "tiny",
    (scope_parts.full(1),),
    Bounds(("ab",), submits=1, outputs=1, live=1, at_most={act.Withdraw: 1}),
    {"max_model_len": 3, "num_blocks": 4, "max_running": 1},
)
FAULT = "M-LRU-1"
NAMED = Asked(scopes=("tiny",))


@pytest.fixture(scope="module")
def whole() -> Done:
    """The tiny scope, explored from end to end."""
    return jobs.perform(Job(NAMED, TINY))


@pytest.fixture(scope="module")
def shown() -> Done:
    """A fault that the tiny scope shows after eight actions."""
    return jobs.perform(Job(Asked(fault=FAULT), TINY, FAULT))


def of_job(done: Done, asked: Asked, fault: str = "") -> Done:
    """What was found, as if the job had been asked for so."""
    certificate = evolve(done.certificate, fault=fault)
    return evolve(done, job=Job(asked, done.job.scope, fault), certificate=certificate)


def shorter(done: Done, length: int, law: str = "", scope: str = "") -> Done:
    """The same with another counterexample."""
    example = done.example
    assert example is not None
    found = evolve(example, actions=example.actions[:length], law=law or example.law, scope=scope or example.scope)
    return evolve(done, example=found)


def given_up(done: Done) -> Done:
    """The same, as if it had been given up."""
    return evolve(done, certificate=evolve(done.certificate, end="edges"))


# --- verdicts -----------------------------------------------------------------------------------------------------


def test_a_counterexample_outweighs_whatever_else_keeps_a_result_from_holding(whole, shown):
    found = Result(NAMED, [of_job(shown, NAMED), whole])
    assert len(found.problems) == 1
    assert "tiny: not pinned" in found.problems[0]
    assert found.verdict is ExitCode.REFUTED
    assert Result(NAMED, [whole]).verdict is ExitCode.UNDETERMINED


def test_a_fault_that_is_found_is_refuted_although_another_scope_was_given_up(whole, shown):
    asked = Asked(fault=FAULT)
    found = Result(asked, [shown, given_up(of_job(whole, asked, FAULT))])
    assert found.problems == ["given up, too large: M-LRU-1-tiny"]
    assert found.verdict is ExitCode.REFUTED


def test_faults_that_are_found_as_pinned_hold_and_others_do_not(shown):
    asked = Asked(every_fault=True, scopes=("tiny",))
    done = of_job(shown, asked, FAULT)
    assert Result(asked, [done], kills={FAULT: Kill("tiny", "PC-8", 8)}).verdict is ExitCode.HOLDS
    assert Result(asked, [done], kills={FAULT: Kill("tiny", "PC-8", 9)}).verdict is ExitCode.UNDETERMINED


def test_the_verdict_of_a_scope(whole, shown):
    fits = {"tiny": pins.of(whole.certificate)}
    differs = {"tiny": Pin(1, 1, 1)}
    missed = of_job(whole, Asked(fault="M-LOAD-1"), "M-LOAD-1")
    bounded = of_job(whole, Asked(depth=2))
    for done, pinned, verdict in (
        (whole, fits, "holds"),
        (whole, differs, "undetermined"),
        (given_up(whole), fits, "undetermined"),
        (missed, fits, "undetermined"),
        (shown, fits, "refuted"),
    ):
        assert Result(done.job.asked, [done], pinned).verdict_of(done) == verdict
    # The size of what a bound cut short is not that of the scope: only the whole graph is another one than the pinned.
    cut = evolve(bounded, certificate=evolve(bounded.certificate, end="depth"))
    both = Result(NAMED, [whole, cut], differs)
    assert [both.verdict_of(done) for done in both.done] == ["undetermined", "holds"]


# --- what is asked for --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked",
    [
        Asked(which="quick"),
        Asked(which="further"),
        Asked(which="product"),
        Asked(scopes=("tiny",)),
        Asked(fault=FAULT),
        Asked(every_fault=True),
        Asked(runs=1),
        Asked(depth=1),
    ],
)
def test_only_over_the_whole_catalogue_what_nothing_reached_is_a_finding(asked, whole):
    assert Result(Asked(), [whole]).whole
    assert Result(Asked(), [whole]).unreached == [name for name in witnesses.NAMES if name not in whole.certificate.witnesses]
    found = Result(asked, [of_job(whole, asked, asked.fault)])
    assert not found.whole
    assert (found.never, found.unreached) == ([], [])


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (Asked(), True),
        (Asked(which="further"), True),
        (Asked(which="product"), True),
        (Asked(which="quick"), False),
        (NAMED, False),
        (Asked(fault=FAULT), False),
        (Asked(every_fault=True), False),
        (Asked(runs=1), False),
        (Asked(depth=1), False),
    ],
)
def test_pins_of_scopes_that_are_gone_are_said_of_a_whole_set(asked, said):
    known = {scope.name: Pin(1, 1, 1) for scope in scopes.every()[:2]}
    found = Result(asked, [], {**known, "gone": Pin(2, 1, 1)}).differences
    assert found == ([Difference("gone", Pin(2, 1, 1), None)] if said else [])


def test_a_named_law_that_nothing_asked_is_no_finding_where_a_fault_is_looked_for(whole):
    named = evolve(whole, certificate=evolve(whole.certificate, premises={"LD-1": 0, "PC-1": 3}))
    assert Result(Asked(laws=("LD-1", "PC-1")), [named]).never == ["LD-1"]
    for asked in (Asked(fault=FAULT, laws=("LD-1",)), Asked(every_fault=True, laws=("LD-1",))):
        assert Result(asked, [of_job(named, asked, FAULT)]).never == []


# --- counterexamples and faults -----------------------------------------------------------------------------------


def test_the_shortest_counterexample_comes_first_and_of_one_length_the_first(shown):
    done = [shorter(shown, length, scope=scope) for length, scope in ((5, "a"), (3, "b"), (7, "c"), (3, "d"))]
    assert [example.scope for example in Result(NAMED, done).found] == ["b", "d", "a", "c"]


def test_of_the_scopes_that_show_a_fault_the_one_with_the_shortest_run_counts(whole, shown):
    done = [shorter(shown, length, scope=scope) for length, scope in ((5, "a"), (3, "b"), (7, "c"), (3, "d"))]
    missed = of_job(whole, Asked(fault=FAULT), FAULT)
    [killed] = Result(Asked(fault=FAULT), [missed, *done]).killed
    assert killed.kill == Kill("b", "PC-8", 3)
    assert killed.edges == whole.certificate.edges + 4 * shown.certificate.edges


def test_a_fault_is_as_pinned_only_if_scope_law_and_length_are():
    pinned = Kill("a", "PC-8", 8)
    for kill, same in (
        (pinned, True),
        (Kill("b", "PC-8", 8), False),
        (Kill("a", "PC-1", 8), False),
        (Kill("a", "PC-8", 7), False),
        (None, False),
    ):
        assert Killed(FAULT, kill, 1, 0.0, pinned).as_pinned == same
    assert not Killed(FAULT, None, 1, 0.0, None).as_pinned


def test_a_fault_that_is_neither_found_nor_pinned_is_said(whole):
    asked = Asked(every_fault=True, scopes=("tiny",))
    found = Result(asked, [of_job(whole, asked, FAULT)])
    assert found.problems == ["not as pinned: M-LRU-1: not found, pinned nowhere"]
    assert found.verdict is ExitCode.UNDETERMINED


def test_one_fault_is_not_compared_with_the_table_and_faults_without_a_pin_are_asked_for_with_all(shown):
    assert Result(Asked(fault=FAULT), [shown], kills={FAULT: Kill("tiny", "PC-8", 9)}).problems == []
    every = [fault.id for fault in faults.ALL]
    assert Result(Asked(every_fault=True), []).unpinned == every
    assert Result(Asked(every_fault=True, scopes=("tiny",)), []).unpinned == []
    assert Result(Asked(), []).unpinned == []


def test_what_is_given_up_is_said_in_the_document(whole):
    found = result.as_dict(Result(NAMED, [given_up(whole)], {"tiny": Pin(1, 1, 1)}))
    assert found["problems"] == ["given up, too large: tiny"]
    assert (found["verdict"], found["scopes"][0]["verdict"], found["pins"]) == ("undetermined", "undetermined", [])


# --- certificates, sizes ------------------------------------------------------------------------------------------


def test_only_what_was_seen_whole_within_its_bounds_is_whole_and_compared(whole):
    pinned = {"tiny": Pin(1, 1, 1)}
    for end, compared in (
        ("complete", True),
        ("depth", True),
        ("edges", False),
        ("violation", False),
        ("sampled", False),
        ("refused", False),
    ):
        found = evolve(whole.certificate, end=end)
        assert found.whole == compared
        assert [one.scope for one in pins.differences([found], pinned)] == ["tiny"] * compared
        assert pins.updated([found], pinned, ["tiny"]) == ({"tiny": pins.of(found)} if compared else pinned)
    assert set(certificate.ENDS) == {"complete", "depth", "edges", "violation", "sampled", "refused"}


def test_a_certificate_says_what_a_search_counted():
    graph, config = Graph(), TINY.config()
    assert graph.found(b"abc", -1, None) == (0, True)
    assert graph.found(b"de", 0, act.BeginStep()) == (1, True)
    assert graph.found(b"abc", 1, act.Drain()) == (0, False)
    premises, seen = {"PC-1": 2, "LD-1": 0, "PC-2": 4}, {"hit": 3}
    explored = Explored(graph, levels=[1, 1], premises=premises, witnesses=seen, refusals=6, runs=7, closed=8)
    found = certificate.certify("tiny", "", config, TINY.bounds, ("PC-1", "LD-1", "PC-3"), explored)
    assert (found.orbits, found.depth, found.levels, found.key_bytes, found.bytes_per_orbit) == (2, 1, (1, 1), 5, 2.5)
    assert (found.refusals, found.runs, found.closed, found.witnesses) == (6, 7, 8, seen)
    assert (found.premises, found.never) == ({"PC-1": 2, "LD-1": 0, "PC-3": 0}, ("LD-1", "PC-3"))
    assert certificate.certify("tiny", "", config, TINY.bounds, (), Explored(Graph())).depth == 0


def test_premises_add_up_and_of_situations_the_first_counts(whole):
    one, two = (
        evolve(whole.certificate, premises=premises, witnesses=seen)
        for premises, seen in (({"PC-1": 2, "LD-1": 0}, {"hit": 9}), ({"PC-1": 3, "PC-2": 1}, {"hit": 5, "withdrawal": 7}))
    )
    for both in ([one, two], [two, one]):
        assert certificate.merged_premises(both) == {"PC-1": 5, "LD-1": 0, "PC-2": 1}
        assert certificate.merged_witnesses(both) == {"hit": 5, "withdrawal": 7}


def test_a_size_is_as_pinned_only_if_every_number_is():
    pinned = Pin(5, 7, 3, 9)
    assert pins.agree(pinned, pinned)
    assert pins.agree(pinned, evolve(pinned, worlds=None))
    for name in ("orbits", "edges", "depth", "worlds"):
        assert not pins.agree(pinned, evolve(pinned, **{name: 8}))
    assert not pins.agree(None, pinned)
    assert not pins.agree(evolve(pinned, worlds=None), pinned)
