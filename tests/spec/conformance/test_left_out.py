"""Optional fields of answers: a law that hangs on one that is left out says nothing, whatever the model would have answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import define, evolve

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.records import NONE
from kvproof.spec import faults, laws
from kvproof.spec.conformance import leftout, predict
from kvproof.spec.conformance.adapter import Observation, Shows
from kvproof.spec.conformance.masks import FIELDS, REQUIRED
from kvproof.spec.conformance.oracle import Verdict
from kvproof.spec.conformance.reference import ModelAdapter
from kvproof.spec.engines import scopes
from kvproof.spec.laws.base import Law, Moment
from tests.spec.conformance.following import play, walk


@define
class Lying(ModelAdapter):
    """The model, but one field of the answers to one action is false, or is left out."""

    of: type[Action] = act.Submit
    of_field: str = ""
    how: Callable[[Any], Any] | None = None

    def perform(self, action: Action) -> Observation:
        shown = ModelAdapter.perform(self, action)
        if type(action) is not self.of or self.of_field not in shown.result:
            return shown
        others = {name: value for name, value in shown.result.items() if name != self.of_field}
        if self.how is not None:
            others[self.of_field] = self.how(shown.result[self.of_field])
        return evolve(shown, result=others)


@define
class Terse(ModelAdapter):
    """The model, without any field of an answer that need not be there."""

    def perform(self, action: Action) -> Observation:
        shown = ModelAdapter.perform(self, action)
        needed = {"events", *REQUIRED.get(type(action), {})}
        return evolve(shown, result={name: value for name, value in shown.result.items() if name in needed})


def short(value: Any) -> Any:
    return value and value[:-1]


def twice(value: Any) -> Any:
    return value + value[-1:]


def more(value: int) -> int:
    return value + 1


def less(value: int) -> int:
    return value - (value > NONE)


def other(value: bool) -> bool:
    return not value


def is_nothing(value: Any) -> bool:
    return all(is_nothing(part) for part in value) if isinstance(value, tuple) else not value


LIES: tuple[tuple[type[Action], str, Callable[[Any], Any], str, str], ...] = (
    (act.Lookup, "diverged", other, "CA-1", "fa4-m4-n2"),
    (act.Allocate, "demand", more, "COW-6", "fa4-m4-n2"),
    (act.Allocate, "taken", short, "PC-8", "fa4-m4-n2"),
    (act.Allocate, "adopted", short, "PC-8", "fa4-m4-n2"),
    (act.Allocate, "relocated", twice, "TB-10", "fa4-m4+1"),
    (act.Allocate, "pairs", short, "LD-1", "fa4-host"),
    (act.Allocate, "queries", more, "CN-3", "fa4-m4-n2-host"),
    (act.Allocate, "hits", more, "CN-3", "fa4-m4-n2-host"),
    (act.BuildMetadata, "store_event", less, "CP-11", "fa4-m4-n2-host"),
    (act.BuildMetadata, "store_device", short, "IP-1", "fa4-m4-n2-host"),
    (act.BuildMetadata, "store_host", short, "IP-1", "fa4-m4-n2-host"),
    (act.BuildMetadata, "store_meta", short, "IP-1", "fa4-m4-n2-host"),
    (act.BuildMetadata, "load_event", more, "CP-11", "fa4-host"),
    (act.BuildMetadata, "load_device", short, "LD-1", "fa4-ahead-host-hold"),
    (act.BuildMetadata, "load_host", short, "LD-1", "fa4-ahead-host-hold"),
    (act.BuildMetadata, "load_requests", short, "LD-1", "fa4-ahead-host-hold"),
    (act.BuildMetadata, "outcomes", short, "HO-5", "fa4-m4-n2-host"),
    (act.Dispatch, "local_lengths", short, "DS-4", "fa2-n4"),
    (act.Dispatch, "pending_work", other, "LV-7", "fa4-m4-n2-host"),
    (act.Execute, "branches", short, "DS-10", "fa2-n4"),
    (act.Finish, "pending_work", other, "LV-7", "fa4-m4-n2-host"),
    (act.CompleteStore, "done", other, "PC-8", "fa4-m4-n2-host"),
    (act.CompleteStore, "pending_work", other, "LV-7", "fa4-m4-n2-host"),
    (act.ResetHost, "done", other, "CP-12", "fa4-m4-n2-host"),
    (act.ReadCounters, "gauge", more, "CN-5", "fa4-m4-n2-host"),
)
"""(action, field, a lie, the law that refutes it, scope)."""
SEEDS = {"CP-12": 0}
"""Walks in which what the lie is about comes up, where it is not the second one."""


@pytest.mark.parametrize(("action", "name", "how", "law", "scope"), LIES, ids=[f"{lie[0].__name__}-{lie[1]}" for lie in LIES])
def test_a_lie_is_refuted_where_it_is_shown_and_nothing_holds_on_what_is_left_out(
    action: type[Action], name: str, how: Callable[[Any], Any], law: str, scope: str
) -> None:
    judged = [laws.by_id(law)]
    shown = walk(Lying(of=action, of_field=name, how=how), scope, f"{law}/{SEEDS.get(law, 1)}", 900, until=(law,), laws=judged)
    assert shown.refuted == {law}
    missing = play(Lying(of=action, of_field=name), scope, shown.actions)
    assert missing.oracle.finding(law).verdict is Verdict.UNDETERMINED
    assert any(what.startswith("an answer without") for what in missing.oracle.finding(law).hidden)


@pytest.mark.parametrize("how", [twice, lambda value: ()], ids=["twice", "empty"])
@pytest.mark.parametrize("name", ["load_device", "load_host", "load_requests"])
def test_the_worker_is_told_of_each_copy_of_a_load_once(name: str, how: Callable[[Any], Any]) -> None:
    """LD-1: twice, or not at all, is refuted, whatever the loads that are shown to wait say."""
    liar = Lying(of=act.BuildMetadata, of_field=name, how=how)
    told = walk(liar, "fa4-ahead-host-hold", "LD-1/1", 900, until=("LD-1",), laws=[laws.by_id("LD-1")])
    assert told.refuted == {"LD-1"}
    assert "a step is told of other loads" in told.violations[0].evidence.message


FAULTS: tuple[tuple[str, str, int], ...] = (
    ("M-SLOT-3", "fa2-n4", 0),
    ("M-FLUSH-2", "fa2-m4-n4-host", 1),
    ("M-META-1", "fa4-m4-n2-host", 0),
    ("M-META-3", "fa4-m4-n2-host", 0),
    ("M-META-4", "fa4-m4-n2-host", 0),
    ("M-CNT-4", "fa4-x4-m4-n2-host", 0),
    ("M-CNT-3", "fa4-host", 0),
    ("M-LRU-1", "fa8-m2", 0),
    ("M-HO-4", "fa4-m4-host", 0),
    ("M-DIV-2", "fa4-m4-m4-n2", 0),
    ("M-MAM-3", "fa2-m2+3-draft3", 0),
    ("M-LOAD-7", "fa4-m4-n2-host-tiny", 0),
)


@pytest.mark.parametrize(("name", "scope", "number"), FAULTS, ids=[f"{name}-{scope}" for name, scope, _ in FAULTS])
def test_no_law_holds_of_a_fault_that_breaks_it_because_little_is_answered(name: str, scope: str, number: int) -> None:
    fault = faults.by_id(name)
    full = walk(ModelAdapter(fault=fault), scope, f"{name}/{number}", 300, until=fault.laws)
    assert full.refuted
    less_shown = play(Terse(fault=fault), scope, full.actions)
    assert full.refuted & less_shown.with_verdict(Verdict.HOLDS) == set()


@pytest.mark.parametrize("scope", ["fa4-m4-n2-host", "fa4-m4+1-n2-ahead-host", "fa4-m4-n2-events"])
def test_what_the_model_would_have_answered_changes_no_verdict(scope: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The predictions of all optional fields are nonsense: whoever leaves them out is judged the same."""
    judged: list[Law] = list(laws.ALL)
    honest = walk(Terse(), scope, "honest/0", 300, laws=judged)
    real, poisoned = predict.predict, set[str]()

    def nonsense(world: Any, action: Action, hints: predict.Hints) -> Moment:
        moment = real(world, action, hints)
        if moment.record is None:
            return moment
        optional: set[str] = FIELDS.get(type(action), {}).keys() - REQUIRED.get(type(action), {}).keys()
        poisoned.update(optional)
        values: dict[str, Any] = dict.fromkeys(optional, object())
        return evolve(moment, record=evolve(moment.record, **values))

    monkeypatch.setattr(predict, "predict", nonsense)
    again = play(Terse(), scope, honest.actions)
    assert len(poisoned) > 20
    assert {finding.law.id: (finding.verdict, finding.judged, finding.hidden) for finding in again.oracle.findings()} == {
        finding.law.id: (finding.verdict, finding.judged, finding.hidden) for finding in honest.oracle.findings()
    }
    assert honest.refuted == set()
    assert len(honest.with_verdict(Verdict.HOLDS)) > 15


def test_what_follows_is_what_is_true() -> None:
    """The rules of ``leftout`` against the model's own answers: each that applies gives the value that is shown."""
    applied = set[str]()
    for scope in ("fa4", "fa4-m4-n2", "fa4-m4-n2-host", "fa4-m4+1", "fa4-m4-n2-events", "fa4-ahead-host-hold"):
        run = walk(ModelAdapter(), scope, "follows/0", 400, laws=())
        for seen in run.seen:
            moment = seen.followed
            if moment.record is None or moment.refusal is not None:
                continue
            required = REQUIRED.get(type(moment.action), {}) | dict.fromkeys(("store_event", "load_event"), Shows.TRANSFERS)
            said = {name: getattr(moment.record, name) for name in required}
            for name, value in leftout.following(moment.before, moment.action, said).items():
                shown = getattr(moment.record, name)
                assert shown == value or (is_nothing(shown) and is_nothing(value)), (scope, moment.action, name)
                applied.add(name)
    assert applied >= {"diverged", "taken", "adopted", "relocated", "pairs", "outcomes", "store_device", "load_requests"}
    assert applied >= {"preempted", "lost", "deferred", "freed", "store_meta"}


def test_a_refusal_leaves_nothing_out() -> None:
    followed = walk(Terse(), "fa4", "refused/0", 1, laws=())
    config = scopes.by_name("fa4").config()
    assert leftout.unknown(config, [Shows.HITS], act.Lookup(0), ("local", "lists")) == ["junction", "diverged"]
    assert leftout.unknown(config, [Shows.COUNTERS], act.Allocate(0, 4), ()) == []  # without a connector there are none
    assert followed.actions
