"""Lassos and maximal runs: fair cycles of toy graphs, and what never ends under planted faults."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import config as configs
from kvproof.core.actions import Action
from kvproof.core.config import Offload
from kvproof.core.world import new_world
from kvproof.spec import cli, faults, laws
from kvproof.spec import counterexample as examples
from kvproof.spec import judge as judges
from kvproof.spec.engines.scope_parts import full
from kvproof.spec.exploring import canonical, fairness, jobs, liveness, obligations, pins, scopes, search
from kvproof.spec.exploring.bounds import Bounds
from kvproof.spec.exploring.graph import Graph
from kvproof.spec.exploring.jobs import Asked, Job
from kvproof.spec.exploring.liveness import EVERY, UNASKED, Node
from kvproof.spec.exploring.scope import Scope
from kvproof.spec.exploring.search import Explored, Options
from kvproof.spec.laws.base import Evidence

# --- fair cycles ------------------------------------------------------------------------------------------------------

A, B, C = 1, 2, 4


def graph(*edges):
    """Return the arrows of edges (source, target, kind), numbered in turn, and the kinds that leave each node."""
    arrows: dict[int, list[fairness.Arrow]] = {}
    for number, (source, target, kind) in enumerate(edges):
        arrows.setdefault(source, []).append((target, kind, number))
        arrows.setdefault(target, [])
    return arrows, {node: sum({kind for _, kind, _ in leaving}) for node, leaving in arrows.items()}


def fair_sets(edges, fair, elsewhere=None):
    arrows, enabled = graph(*edges)
    enabled = {node: kinds | (elsewhere or {}).get(node, 0) for node, kinds in enabled.items()}
    return {tuple(sorted(found)) for found in fairness.fair_sets(arrows, enabled, fair)}


def test_a_cycle_that_ignores_what_leads_out_of_it_is_not_fair():
    edges = [(0, 1, A), (1, 0, A), (1, 2, B)]
    assert fair_sets(edges, fair=A | B) == set()


def test_the_same_cycle_is_fair_if_nobody_has_to_leave_it():
    assert fair_sets([(0, 1, A), (1, 0, A), (1, 2, B)], fair=A) == {(0, 1)}
    assert fair_sets([(0, 1, A), (1, 0, A), (1, 0, B), (1, 2, B)], fair=A | B) == {(0, 1)}


def test_what_is_possible_outside_the_runs_in_question_counts():
    edges = [(0, 1, A), (1, 0, A)]
    assert fair_sets(edges, fair=A | B) == {(0, 1)}
    assert fair_sets(edges, fair=A | B, elsewhere={1: B}) == set()


def test_a_set_is_decomposed_until_it_is_fair():
    # At 2 a B leads away: only the inner cycle of 0 and 1 may ignore it.
    edges = [(0, 1, A), (1, 0, A), (1, 2, A), (2, 0, A), (2, 3, B)]
    assert fair_sets(edges, fair=A | B) == {(0, 1)}


def test_fairness_is_strong():
    # Under weak fairness the cycle could ignore B, which is not possible at 0.
    assert fair_sets([(0, 1, A), (1, 0, C), (1, 9, B)], fair=A | B | C) == set()


def test_a_node_alone_is_a_cycle_only_with_an_arrow_to_itself():
    assert fair_sets([(0, 1, A), (1, 1, B)], fair=A | B) == {(1,)}


def test_the_shortest_cycle_is_taken_if_it_is_fair():
    edges = [(0, 1, A), (1, 2, A), (2, 0, A), (1, 0, A)]
    arrows, enabled = graph(*edges)
    assert fairness.cycle(arrows, {0, 1, 2}, 0, enabled, A) == [0, 3]


def test_a_cycle_goes_where_fairness_leads_it():
    # The short way back over 1 could ignore the B at 1 for ever.
    edges = [(0, 1, A), (1, 0, A), (1, 2, B), (2, 0, A)]
    arrows, enabled = graph(*edges)
    [found] = fairness.fair_sets(arrows, enabled, A | B)
    taken = fairness.cycle(arrows, found, 0, enabled, A | B)
    assert taken == [0, 2, 3]


def test_a_cycle_goes_nowhere_for_what_its_own_nodes_do_not_offer():
    # The B is at 2, where the cycle of 0 and 1 never comes.
    arrows, enabled = graph((0, 1, A), (1, 0, A), (1, 2, A), (2, 0, B))
    assert fairness.cycle(arrows, {0, 1, 2}, 0, enabled, A | B) == [0, 1]


def test_a_cycle_may_ignore_what_need_not_be_fair():
    arrows, enabled = graph((0, 1, A), (1, 0, A), (1, 2, B), (2, 0, A))
    assert fairness.cycle(arrows, {0, 1, 2}, 0, enabled, A) == [0, 1]


def test_a_cycle_stays_inside_its_set():
    arrows, enabled = graph((0, 2, A), (2, 0, A), (0, 1, A), (1, 0, A))
    assert fairness.cycle(arrows, {0, 1}, 0, enabled, A) == [2, 3]


# --- worlds -----------------------------------------------------------------------------------------------------------


SETTINGS: dict[str, Any] = {"max_model_len": 4, "num_blocks": 5, "max_running": 1, "offload": Offload(num_blocks=4)}


def tiny():
    return configs.configure((full(1),), **SETTINGS)


ONE = Bounds(("aa",), submits=1, outputs=1, live=1, at_most={act.ResetHost: 1})
TWO = Bounds(("aa",), submits=2, outputs=1, live=1, alphabet=(0,), at_most={act.ResetCache: 1})


def judged(bounds=ONE, fault="", config=None):
    """Explore a tiny scope, and judge what becomes of it under fairness."""
    if fault:
        with faults.planted(faults.by_id(fault)):
            return judged(bounds, "", config)
    config = config or tiny()
    explored = search.explore(config, bounds, Options())
    assert explored.end == "complete"
    return liveness.judge(explored, config, bounds)


def keys_along(config, actions):
    """Return the keys, without a budget, of the worlds that actions lead to, and the nodes themselves."""
    nodes = [Node(new_world(config), False)]
    for action in actions:
        moment = judges.attempt(nodes[-1].world, action)
        assert moment.refusal is None, (action, moment.refusal)
        nodes.append(liveness.after(nodes[-1], moment))
    return [node.key() for node in nodes], nodes


def shown(lasso, config):
    """Check that a counterexample is one by running it: the obligation is open from the cycle on, and the key comes back."""
    assert liveness.shown_again(config, lasso.actions, lasso.violation)
    keys, nodes = keys_along(config, lasso.actions)
    first = len(lasso.way)
    assert keys[first] == keys[-1]
    assert all(lasso.obligation.left(node.world) for node in nodes[first:])
    if lasso.cycle:
        return nodes
    # Nothing that has to happen is possible behind a maximal run.
    kinds = {kind for _, kind in liveness.progress(nodes[-1], TWO, TWO.limits(config))}
    assert kinds <= {UNASKED}
    return nodes


def test_a_tiny_host_holds_and_every_premise_is_true():
    verdict = judged(TWO)
    assert (verdict.found, verdict.refused) == ((), None)
    assert set(verdict.premises) == {"LV-2", "LV-3", "LV-4", "LV-7"}


def test_a_lazy_host_that_stores_for_ever_holds(monkeypatch):
    # With less room than keyed blocks the lazy walk stores something again and again: one store or another is always open, and
    # each of them ends.
    offload = Offload(num_blocks=3, mode="lazy")
    settings: dict[str, Any] = {**SETTINGS, "max_chunk": 1, "offload": offload}
    config = configs.configure((full(1),), **settings)
    bounds = Bounds(("aa",), submits=1, outputs=1, live=1, alphabet=(0,))
    verdict = judged(bounds, config=config)
    assert (verdict.found, verdict.refused) == ((), None)
    assert verdict.premises["LV-7"] > 0
    monkeypatch.setattr(obligations, "ALL", tuple(evolve(one, ended=None) for one in obligations.ALL))
    assert {lasso.obligation.name for lasso in judged(bounds, config=config).found} == {"stores"}


@pytest.mark.parametrize(
    ("fault", "bounds", "law", "names"),
    [
        ("M-LEAK-1", ONE, "LV-2", {"device blocks"}),
        ("M-LEAK-3", TWO, "LV-4", {"finished requests"}),
    ],
)
def test_what_is_never_given_back_is_a_lasso(fault, bounds, law, names):
    verdict = judged(bounds, fault)
    assert {lasso.obligation.name for lasso in verdict.found} == names
    [lasso] = verdict.found
    assert lasso.obligation.law == law
    assert {type(action) for action in lasso.cycle} == {
        act.BeginStep,
        act.Drain,
        act.BuildMetadata,
        act.Dispatch,
        act.Execute,
    }
    with faults.planted(faults.by_id(fault)):
        shown(lasso, tiny())


def test_an_engine_that_stops_is_a_maximal_run():
    verdict = judged(ONE, "M-FLUSH-2")
    [lasso] = verdict.found
    assert (lasso.obligation.law, lasso.obligation.name, lasso.cycle) == ("LV-7", "queued stores", ())
    assert isinstance(lasso.way[-1], act.Finish)
    with faults.planted(faults.by_id("M-FLUSH-2")):
        nodes = shown(lasso, tiny())
    host = nodes[-1].world.host
    assert host is not None
    assert host.queued
    assert "nothing that has to happen can" in lasso.violation.evidence.message


def lasso_of(fault):
    with faults.planted(faults.by_id(fault)):
        explored = search.explore(tiny(), ONE, Options())
        return liveness.judge(explored, tiny(), ONE).found[0]


def test_a_lasso_is_none_where_the_fault_is_gone():
    for fault in ("M-LEAK-1", "M-FLUSH-2"):
        lasso = lasso_of(fault)
        assert not liveness.shown_again(tiny(), lasso.actions, lasso.violation)


def test_a_cycle_that_leaves_something_out_is_not_shown_again():
    lasso = lasso_of("M-LEAK-1")
    with faults.planted(faults.by_id("M-LEAK-1")):
        assert liveness.shown_again(tiny(), lasso.actions, lasso.violation)
        # Without the last action of the cycle the world does not come back.
        assert not liveness.shown_again(tiny(), lasso.actions[:-1], lasso.violation)


def test_a_lasso_alone_replays(monkeypatch):
    # Where neither a moment nor the drain shows what is wrong, the lasso does, and is judged again as such.
    law = next(law for law in laws.ALL if law.id == "LV-4")
    silent = [evolve(other, check_end=lambda drained: None) if other is law else other for other in laws.ALL]
    monkeypatch.setattr(laws, "ALL", tuple(silent))
    scope = Scope("tiny-host", (full(1),), TWO, SETTINGS)
    done = jobs.perform(Job(Asked(laws=("LV-4",), fault="M-LEAK-3"), scope, "M-LEAK-3"))
    example = done.example
    assert example is not None
    assert dict(example.values)["cycle"] > 0
    assert done.certificate.closed > 0
    assert done.certificate.end == "complete"
    with faults.planted(faults.by_id("M-LEAK-3")):
        assert examples.replay(examples.loads(examples.dumps(example)), laws.ALL).violation is not None
    assert examples.replay(example, laws.ALL).violation is None


def test_the_command_prints_a_lasso_and_exits_with_2(monkeypatch, capsys, tmp_path):
    silent = [evolve(law, check_end=lambda drained: None) if law.id == "LV-4" else law for law in laws.ALL]
    monkeypatch.setattr(laws, "ALL", tuple(silent))
    monkeypatch.setattr(scopes, "CATALOGUE", (Scope("tiny-host", (full(1),), TWO, SETTINGS),))
    monkeypatch.setattr(pins, "FILE", tmp_path / "pins.json")
    pins.write({})
    arguments = ["explore", "--processes", "1", "--scope", "tiny-host", "--law", "LV-4", "--fault", "M-LEAK-3"]
    assert cli.main(arguments) == 2
    out = capsys.readouterr().out
    assert "LV-4 does not hold" in out
    assert "a finished request is never forgotten" in out
    assert "lead back to the same world" in out
    [marked] = [at for at, line in enumerate(out.splitlines()) if "from here on in a cycle" in line]
    assert out.splitlines()[marked + 1].split()[:2] == ["44", "BeginStep()"]


HELD: tuple[Action, ...] = (
    act.Submit(0, (0, 0)),
    act.BeginStep(),
    act.Lookup(0),
    act.Allocate(0, 2),
    act.Drain(),
    act.BuildMetadata(),
    act.Dispatch(),
    *map(act.Execute, ("flush", "zero", "copy", "load", "precopy", "forward", "submit")),
    act.Output(0, (0,)),
    act.BeginStep(),
    act.Allocate(0, 1),
    act.Drain(),
    act.BuildMetadata(),
    act.Dispatch(),
    *map(act.Execute, ("flush", "zero", "copy", "load", "precopy", "forward", "submit")),
    act.RunStore(0),
    act.CompleteStore(0),
    act.EvictBlocks((1,)),
    act.Submit(1, (0, 0)),
    act.BeginStep(),
    act.LookupExternal(1, 0),
    act.Lookup(1),
    act.Allocate(1, 0, external=1, load=True),
    act.Drain(),
    act.BuildMetadata(),
    act.Dispatch(),
)
"""A load that waits for the step before it: the second request loads what the first one, whose output is due, has stored."""


def held_load(fault=""):
    """Judge what comes behind a load that is not issued yet."""
    config = configs.configure(
        (full(1),),
        max_model_len=4,
        num_blocks=6,
        max_running=2,
        max_steps_in_flight=2,
        defer_block_free=True,
        offload=Offload(num_blocks=3, hold_loads=True),
    )
    bounds = Bounds(("aa",), alphabet=(0,))
    if fault:
        with faults.planted(faults.by_id(fault)):
            return config, one_run(config, bounds)
    return config, one_run(config, bounds)


def one_run(config, bounds):
    """Judge the last world of a run alone."""
    graph, world = Graph(), new_world(config)
    graph.found(canonical.key(world), -1, None)
    for at, action in enumerate(HELD):
        moment = judges.attempt(world, action)
        assert moment.refusal is None, (action, moment.refusal)
        world = moment.after
        assert graph.found(canonical.key(world), at, action) == (at + 1, True)
    return liveness.judge(Explored(graph), config, bounds)


def test_a_load_that_is_never_issued_is_a_lasso():
    config, verdict = held_load("M-LOAD-6")
    first = verdict.found[0]
    assert (first.obligation.law, first.obligation.name, first.left) == ("LV-3", "loads", (1,))
    with faults.planted(faults.by_id("M-LOAD-6")):
        shown(first, config)


def test_a_held_load_ends():
    _, verdict = held_load()
    assert (verdict.found, verdict.refused) == ((), None)
    assert verdict.premises["LV-3"] > 0


def test_budgets_end_where_the_closed_system_begins():
    # Without a token to sample no output is in the graph; the closed system has them, and so everything ends.
    bounds = Bounds(("aa",), submits=1, outputs=0, live=1)
    explored = search.explore(tiny(), bounds, Options())
    assert not any(action.tokens for action in explored.graph.names if isinstance(action, act.Output))
    verdict = liveness.judge(explored, tiny(), bounds)
    assert (verdict.found, verdict.refused) == ((), None)
    # The steps whose outputs are due end there, and with them what the confirmed tokens store.
    assert verdict.premises["LV-7"] > 0


def test_progress_that_is_refused_is_shown(monkeypatch):
    config = tiny()
    explored = search.explore(config, ONE, Options())
    attempt = judges.attempt

    def stubborn(world, action):
        moment = attempt(world, action)
        return attempt(world, act.Submit(0, ())) if isinstance(action, act.CompleteStore) else moment

    monkeypatch.setattr(judges, "attempt", stubborn)
    verdict = liveness.judge(search.Explored(explored.graph), config, ONE)
    assert verdict.refused is not None
    assert verdict.refused.violation.law == "LV-9"
    assert isinstance(verdict.refused.actions[-1], act.CompleteStore)


def test_a_search_that_a_violation_ended_is_not_judged():
    config = tiny()
    explored = search.explore(config, ONE, Options())
    explored.found = search.Found(judges.Violation("CC-1", 0, Evidence.of("text")), ())
    assert liveness.judge(explored, config, ONE) == liveness.Verdict()


def test_every_obligation_has_its_bit_and_its_law():
    assert {obligation.law for obligation in obligations.ALL} == {"LV-2", "LV-3", "LV-4", "LV-7"}
    assert UNASKED | sum(liveness.BITS.values()) == EVERY
    for kind in (act.Submit, act.Lookup, act.Allocate, act.Preempt, act.Withdraw, act.ResetHost, act.EvictBlocks):
        assert kind not in liveness.PROGRESS


def test_what_finished_requests_leave_is_judged_at_every_finish():
    config, judged_laws = tiny(), [law for law in laws.ALL if law.id in jobs.AT_FINISH]
    explored = search.explore(config, TWO, Options(laws=judged_laws, at_finish=jobs.AT_FINISH))
    graph, names = explored.graph, explored.graph.names
    finishes = sum(at >= 0 and isinstance(names[at], act.Finish) for at in graph.actions)
    assert explored.found is None
    assert explored.runs == finishes > 100
    assert 0 < explored.premises["LV-5"] < finishes
    assert 0 < explored.premises["LV-6"] < finishes


def test_a_finished_request_whose_blocks_never_arrive_is_found_at_its_finish():
    fault = faults.by_id("M-FLUSH-1")
    scope = Scope("tiny-host", (full(1),), TWO, SETTINGS)
    options = jobs.options_of(Job(Asked(laws=("LV-5",)), scope))
    with faults.planted(fault):
        explored = search.explore(tiny(), TWO, options)
    assert explored.found is not None
    assert explored.found.violation.law == "LV-5"
    assert isinstance(explored.found.actions[-1], act.Finish)
