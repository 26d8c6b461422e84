"""Judging crashes, illegal actions and whole runs: what counts as a violation, and what is not judged."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.errors import ContractBroken
from kvproof.core.world import World
from kvproof.spec import judge, laws
from kvproof.spec.conformance.adapter import Shows
from kvproof.spec.conformance.hidden import Hidden, NotShown
from kvproof.spec.conformance.isolation import Direct
from kvproof.spec.conformance.judging import GUARD, Judging
from kvproof.spec.conformance.oracle import Verdict
from kvproof.spec.conformance.play import Crash, Point, Runs
from kvproof.spec.conformance.reference import ALL, ModelAdapter
from kvproof.spec.conformance.shadow import Seen, Shadow
from kvproof.spec.engines import rules, scopes
from kvproof.spec.laws.base import Evidence, Law, Moment
from tests.spec.conformance.following import walk

HOSTED = scopes.by_name("fa4-m4-n2-host").config()
TIGHT = scopes.by_name("fa4-m4-n2-tight").config()
TOTALITY = tuple(law for law in laws.ALL if law.id == rules.TOTALITY)


def judging(shows: frozenset[Shows] = ALL, config: Config = HOSTED, chosen: tuple[Law, ...] = (*TOTALITY, GUARD)) -> Judging:
    adapter = Direct(ModelAdapter(shows=shows))
    return Judging.of(chosen, config, Runs(adapter, lambda config: Shadow(config, shows)))


def before(action: type[Action]) -> tuple[World, Action]:
    """A world in which an action is legal, and the action."""
    seen = walk(ModelAdapter(), "fa4-m4-n2-host", "e2", 200, laws=()).seen
    one = next(one.followed for one in seen if isinstance(one.moment.action, action) and one.followed.record is not None)
    return one.before, one.action


def crash(world: Any, action: Action) -> Moment:
    return Moment(world, action, None, Crash("ended with status 1"), world)


def test_a_crash_at_a_legal_action_breaks_lv_9_and_at_another_one_it_does_not() -> None:
    world, submit = before(act.Submit)
    assert [found.law for found in judging().moment(crash(world, submit), 5)] == ["LV-9"]
    assert judge.attempt(world, act.Drain()).refusal is not None
    assert judging().moment(crash(world, act.Drain()), 5) == []


def test_a_crash_in_a_run_that_is_a_guess_is_none() -> None:
    _, submit = before(act.Submit)
    assert judging().moment(crash(Hidden("hits"), submit), 5) == []


@pytest.mark.parametrize("action", [act.RunStore, act.CompleteStore, act.RunLoad, act.CompleteLoad])
def test_whether_an_action_on_a_transfer_was_legal_only_transfers_tell(action: type[Action]) -> None:
    moment = crash(*before(action))
    assert [found.law for found in judging().moment(moment, 5)] == ["LV-9"]
    assert judging(ALL - {Shows.TRANSFERS}).moment(moment, 5) == []


# --- what must be refused -----------------------------------------------------------------------------------------------


def tried(moment: Moment, followed: Moment, after: World, problems: tuple[str, ...] = ()) -> Point:
    """The point behind an illegal action."""
    start = Point(HOSTED, followed.before)
    return Point(HOSTED, after, start, moment, None, Seen(moment, followed, (), problems))


def test_an_illegal_action_is_refused_and_changes_nothing() -> None:
    world, submit = before(act.Submit)
    other = judge.attempt(world, submit).after
    no = ContractBroken("no")
    refused = Moment(world, act.Drain(), None, no, world)
    assert judging().guard(tried(refused, refused, world), 1) == []
    (found,) = judging().guard(tried(refused, refused, other), 1)
    assert (found.law, found.evidence.message) == (GUARD.id, "Drain is refused and changes what is shown")
    done = Moment(world, act.Drain(), None, None, other)
    (found,) = judging().guard(tried(done, done, other, ("the model refuses it: no",)), 1)
    assert found.evidence.message == "Drain must be refused here and is accepted"
    (found,) = judging().guard(tried(crash(world, act.Drain()), refused, world), 1)
    assert found.evidence.message.startswith("Drain must be refused here: ")


def test_in_a_run_that_is_a_guess_nothing_must_be_refused() -> None:
    world, submit = before(act.Submit)
    hidden: Any = Hidden("hits")
    refused = Moment(world, act.Drain(), None, ContractBroken("no"), world)
    guess = Moment(hidden, act.Drain(), hidden, Hidden("hits"), Hidden("hits"))  # type: ignore[arg-type]
    one = judging()
    assert one.guard(tried(guess, refused, judge.attempt(world, submit).after), 1) == []
    assert one.oracle.finding(GUARD.id).judged == 0


# --- whole runs ---------------------------------------------------------------------------------------------------------

PROMPT = tuple(number % 2 for number in range(21))


def _of_runs(check: Any) -> Law:
    return evolve(laws.ALL[0], id="XX-1", on=(), check=None, check_config=None, check_run=check, check_end=None)


@pytest.mark.parametrize(("amount", "verdict"), [(8, Verdict.HOLDS), (20, Verdict.UNDETERMINED)])
def test_a_whole_run_does_not_go_where_only_a_guess_leads(amount: int, verdict: Verdict) -> None:
    """In a tight pool nothing tells whether more than half of it was admitted."""
    actions = (act.Submit(0, PROMPT, skip_reading=True), act.BeginStep(), act.Lookup(0), act.Allocate(0, amount))

    def performs(config: Config, given: tuple[Action, ...], start: Any) -> list[Evidence]:
        player = start(config)
        for action in given:
            player.act(action)
        return []

    one = judging(frozenset(), TIGHT, (_of_runs(performs),))
    assert one.run(TIGHT, actions) == []
    finding = one.oracle.finding("XX-1")
    assert finding.verdict is verdict
    assert ("admission" in finding.hidden) == (verdict is Verdict.UNDETERMINED)


def test_an_end_that_asks_for_what_is_not_shown_is_undetermined() -> None:
    """Each law of the end for itself: one that needs less is judged."""

    def asks(_: Any) -> list[Evidence]:
        raise NotShown("keys")

    needs = evolve(_of_runs(None), check_end=asks)
    other = evolve(needs, id="XX-2", check_end=lambda _: [])
    one = judging(ALL, HOSTED, (needs, other))
    assert one.run(HOSTED, (act.Submit(0, PROMPT),)) == []
    assert one.oracle.finding("XX-1").reason == "it needs what is not shown: keys (1 times)"
    assert one.oracle.finding("XX-1").verdict is Verdict.UNDETERMINED
    assert one.oracle.finding("XX-2").verdict is Verdict.HOLDS
