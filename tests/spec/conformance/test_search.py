"""Generation against an adapter: what is wrong with it is found, what is not is not, and the same seed finds the same."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from attrs import define, evolve, field

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.config import SOUND, VLLM_0_33_0, Config
from kvproof.spec import faults, laws
from kvproof.spec.conformance.adapter import Observation, Shows, Unsupported
from kvproof.spec.conformance.budget import Budget
from kvproof.spec.conformance.isolation import guarded
from kvproof.spec.conformance.judging import GUARD
from kvproof.spec.conformance.oracle import LawFinding, Verdict
from kvproof.spec.conformance.play import Crash, Runs, Unrepeatable
from kvproof.spec.conformance.reference import ModelAdapter, highest_first
from kvproof.spec.conformance.search import Search, Searched
from kvproof.spec.conformance.settings import declared_by
from kvproof.spec.conformance.shadow import MOVING, Shadow
from kvproof.spec.engines import players, scopes
from kvproof.spec.laws.base import Law

EVERY = (*laws.ALL, GUARD)


@define
class Wrapped:
    """The model behind an adapter that may do something else."""

    inner: ModelAdapter = field(factory=ModelAdapter)
    name: str = "wrapped"
    shows: frozenset[Shows] = frozenset(Shows)
    null_block: int = 0
    performed: int = 0

    def start(self, config: Config) -> None:
        self.performed = 0
        self.inner.start(config)

    def perform(self, action: Action) -> Observation:
        self.performed += 1
        return self.inner.perform(action)

    def geometry(self, config: Config) -> Any:
        return self.inner.geometry(config)


def search(
    adapter: Any, *names: str, judged: tuple[Law, ...] = EVERY, isolation: bool = False, limit: float = 30.0, **budget: Any
) -> tuple[Search, list[Searched]]:
    guard = guarded(adapter, isolation, limit)
    made = Search(guard, judged, declared_by(adapter), 0, Budget(**budget))
    try:
        return made, [made.scope(scopes.by_name(name)) for name in names]
    finally:
        guard.close()


def finding(searched: Searched, law: str) -> LawFinding:
    return next(one for one in searched.findings if one.law.id == law)


# --- a sound implementation -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["fa4-m4-n2-events", "fa4-m4-n2-host-tiny", "fa4-m4+1-n2-ahead-host", "fa4-w4"])
def test_nothing_is_said_against_the_model(scope: str) -> None:
    made, (searched,) = search(ModelAdapter(), scope, walks=2, steps=200)
    assert made.broken == {}
    assert made.counted == {}
    assert (searched.walks, searched.actions, searched.skipped, searched.stopped) == (2, 400, "", {})
    verdicts = {one.law.id: one.verdict for one in searched.findings}
    assert verdicts["CC-3"] == verdicts["LV-9"] == verdicts["GUARD"] == verdicts["DS-1"] == Verdict.HOLDS
    assert Verdict.REFUTED not in verdicts.values()
    assert not any(one.hidden for one in searched.findings)


def test_who_numbers_and_evicts_otherwise_is_as_good() -> None:
    own = ModelAdapter(null_block=100, arrange=highest_first, reversed_at_start=True)
    made, _ = search(own, "fa4-m4-n2-events", "fa4-m4-n2-host", walks=2, steps=250)
    assert {law for law in made.broken if not law.startswith("PC")} == set()
    assert {what for _, what, found in made.counted if not found} == set()


def test_the_same_seed_finds_the_same() -> None:
    fault = faults.by_id("M-EVT-5")
    runs = [search(ModelAdapter(fault=fault), "fa4-m4-n2-events", walks=3) for _ in range(2)]
    (one, (first,)), (other, (second,)) = runs
    assert one.broken == other.broken != {}
    assert (first.actions, first.stopped, one.counted) == (second.actions, second.stopped, other.counted)


def test_whole_runs_are_judged_through_the_adapter() -> None:
    made, (searched,) = search(ModelAdapter(), "fa4-m8-n2-host-ample", walks=6, steps=250)
    for law in ("CC-7", "DS-8", "LV-2", "LV-6", "LV-10"):
        assert finding(searched, law).judged, law
        assert finding(searched, law).verdict is Verdict.HOLDS
    assert made.runs.performed > searched.actions


# --- faulty ones ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "scope", "law"),
    [
        ("M-EVT-5", "fa4-m4-n2-events", "EV-4"),
        ("M-HO-2", "fa4-m4-n2", "HO-2"),
        ("M-CNT-2", "fa4-m4-n2-host", "CN-1"),
        ("M-GATE-1", "fa4-m4-n2", "HB-11"),
    ],
)
def test_a_fault_is_found_by_its_law_and_shown_by_few_actions(fault: str, scope: str, law: str) -> None:
    planted = faults.by_id(fault)
    assert law in planted.laws
    made, _ = search(ModelAdapter(fault=planted), scope, walks=6)
    broken = made.broken[law]
    actions, violation = made.shrunk(broken)
    assert violation.law == law
    assert len(actions) <= min(len(broken.actions), 60)


def test_a_refuted_law_does_not_hide_the_others() -> None:
    """The counters are wrong in every walk, and so are other laws tried to the end of it."""
    planted = faults.by_id("M-CNT-2")
    made, (searched,) = search(ModelAdapter(fault=planted), "fa4-m4-n2-host", walks=4, steps=400)
    assert set(made.broken) == {"CN-1"}
    assert searched.actions > 3 * 400
    assert len(finding(searched, "CN-1").violations) > 1


@define
class Refusing(Wrapped):
    def perform(self, action: Action) -> Observation:
        if isinstance(action, act.Finish):
            state = self.inner.perform(act.Finish(99)).state
            return Observation(state=state, refusal="not today")
        return super().perform(action)


def test_a_legal_action_that_is_refused_breaks_lv_9() -> None:
    made, _ = search(Refusing(), "fa4-m4", walks=2, steps=200)
    broken = made.broken["LV-9"]
    assert broken.actions[-1] == act.Finish(broken.actions[-1].request)  # type: ignore[union-attr]
    assert "not today" in str(broken.violation.evidence.values)
    actions, _ = made.shrunk(broken)
    assert [type(action) for action in actions] == [act.Submit, act.Finish]


@define
class Lenient(Wrapped):
    """Accepts the unknown: it answers what must be refused as if it were nothing."""

    def perform(self, action: Action) -> Observation:
        shown = super().perform(action)
        if shown.refusal is None:
            return shown
        result: dict[str, object] = {"admitted": False} if isinstance(action, act.Allocate) else {}
        if isinstance(action, act.Lookup):
            result = {"local": 0, "lists": ()}
        return Observation({"events": (), "copies": (), "handoffs": (), "zeroed": (), **result}, shown.state)


def test_an_illegal_action_that_is_accepted_breaks_the_guard_rule_and_is_not_tried_again() -> None:
    judged = tuple(law for law in EVERY if law.id in ("GUARD", "CC-3"))
    made, (searched,) = search(Lenient(), "fa4-m4", judged=judged, walks=4, steps=100)
    assert set(made.broken) == {"GUARD"}
    assert "must be refused here and is accepted" in made.broken["GUARD"].violation.evidence.message
    assert searched.actions > 300
    actions, violation = made.shrunk(made.broken["GUARD"])
    assert violation.law == "GUARD"
    assert len(actions) <= 3


ONLY_GUARD = tuple(law for law in EVERY if law.id == "GUARD")


@pytest.mark.parametrize("part", [Shows.TABLES, Shows.REFERENCES, Shows.FREE_QUEUE, Shows.KEYS])
def test_whether_a_refused_action_changed_what_is_not_shown_is_undetermined(part: Shows) -> None:
    """Accepted it is refuted with nothing shown at all; refused it is passed only by who shows that nothing changed."""
    shows = frozenset(Shows) - {part}
    made, (searched,) = search(ModelAdapter(shows=shows), "fa4-m4", judged=ONLY_GUARD, walks=2, steps=100)
    assert made.broken == {}
    assert finding(searched, "GUARD").verdict is Verdict.UNDETERMINED
    assert part.value in finding(searched, "GUARD").hidden
    made, _ = search(
        Lenient(ModelAdapter(shows=frozenset()), shows=frozenset()), "fa4-m4", judged=ONLY_GUARD, walks=2, steps=100
    )
    assert set(made.broken) == {"GUARD"}


@define
class Careless(Lenient):
    """Accepts reports of transfers that there are not, and no other illegal action."""

    def perform(self, action: Action) -> Observation:
        if isinstance(action, MOVING):
            return super().perform(action)
        return Wrapped.perform(self, action)


def test_a_transfer_that_is_not_shown_is_not_known_to_be_illegal() -> None:
    shows = frozenset(Shows) - {Shows.TRANSFERS}
    made, _ = search(Careless(), "fa4-host", judged=ONLY_GUARD, walks=2, steps=200)
    assert isinstance(made.broken["GUARD"].actions[-1], MOVING)
    careless = Careless(ModelAdapter(shows=shows), shows=shows)
    made, (searched,) = search(careless, "fa4-host", judged=ONLY_GUARD, walks=2, steps=200)
    assert made.broken == {}
    assert finding(searched, "GUARD").hidden["transfers"]
    assert finding(searched, "GUARD").verdict is Verdict.UNDETERMINED


def test_without_the_guard_rule_nothing_illegal_is_tried() -> None:
    shows = frozenset(Shows) - {Shows.ROWS}
    made, (searched,) = search(Lenient(ModelAdapter(shows=shows), shows=shows), "fa4-m4", judged=laws.ALL, walks=2, steps=100)
    assert made.broken == {}
    assert searched.actions == 200


def test_who_shows_rows_is_asked_for_too_long_ones_without_the_guard_rule() -> None:
    made, _ = search(Lenient(), "fa4-m4", judged=laws.ALL, walks=2, steps=100)
    assert set(made.broken) == {"TB-11"}


# --- crashes --------------------------------------------------------------------------------------------------------


def crash() -> None:
    raise KeyError("block 7")


def leave() -> None:
    os._exit(3)


def hang() -> None:
    time.sleep(1000)


@define
class Failing(Wrapped):
    failing: Callable[[], None] = crash
    on: type[Action] = act.Dispatch

    def perform(self, action: Action) -> Observation:
        if isinstance(action, self.on):
            self.failing()
        return super().perform(action)


@pytest.mark.parametrize(
    ("failing", "isolation", "words"),
    [
        (crash, False, "raised KeyError: 'block 7'"),
        (crash, True, "raised KeyError: 'block 7'"),
        (leave, True, "ended its process with exit status 3 at Dispatch()"),
        (hang, True, "did not answer within 1 s to Dispatch()"),
    ],
)
def test_a_crash_or_hang_is_a_verdict_with_its_actions(failing: Callable[[], None], isolation: bool, words: str) -> None:
    judged = tuple(law for law in EVERY if law.id in ("LV-9", "PC-1"))
    limits: dict[str, Any] = {"limit": 1.0} if failing is hang else {}
    made, (searched,) = search(Failing(failing=failing), "fa4", judged=judged, isolation=isolation, walks=2, steps=60, **limits)
    broken = made.broken["LV-9"]
    assert set(made.broken) == {"LV-9"}
    assert isinstance(broken.actions[-1], act.Dispatch)
    assert words in broken.violation.evidence.message
    assert not broken.violation.evidence.bendable
    assert searched.walks == 2
    actions, violation = made.shrunk(broken)
    assert words in violation.evidence.message
    assert dict(violation.evidence.values)["ended"] == ("hung" if failing is hang else "died" if failing is leave else "raised")
    if failing is not hang:
        assert [type(action) for action in actions] == [act.BeginStep, act.Drain, act.BuildMetadata, act.Dispatch]


def test_after_three_hangs_no_more_is_tried() -> None:
    made, (first, second) = search(
        Failing(failing=hang), "fa4", "fa4-m4", isolation=True, limit=0.5, walks=5, steps=60, judged=laws.family("LV")
    )
    assert (first.walks, second.walks, made.hangs) == (3, 0, 3)
    assert list(second.stopped) == ["the implementation hung 3 times, so no more is tried"]


def test_a_law_that_cannot_make_sense_of_a_run_is_not_judged() -> None:
    """An implementation that shows tables of blocks that no pool has."""

    def puzzled(config: Config, actions: Any, start: players.Start = players.model) -> Any:
        raise IndexError("block 99")

    law = Law("ZZ-1", "S", "Nothing.", "nowhere", (), check_run=puzzled)
    made, (searched,) = search(ModelAdapter(), "fa4", judged=(law,), walks=1, steps=20)
    assert made.broken == {}
    assert searched.cannot == {"ZZ-1": "it needs a run that it can make sense of (IndexError: block 99)"}
    assert finding(searched, "ZZ-1").verdict is Verdict.UNDETERMINED


def test_a_crash_while_a_run_is_carried_to_its_end_is_shown_by_the_actions_that_led_there() -> None:
    """A walk of one action, and then the laws of the end begin to step."""
    judged = tuple(law for law in EVERY if law.id in ("LV-9", "LV-2", "LV-5"))
    made, (searched,) = search(Failing(on=act.Finish), "fa4-host", judged=judged, walks=1, steps=1)
    broken = made.broken["LV-9"]
    assert [type(action) for action in broken.actions] == [act.Submit, act.Finish]
    assert "when the run was carried on" in searched.cannot["LV-5"]
    assert finding(searched, "LV-2").judged == 0


def test_who_cannot_even_be_started_breaks_lv_9() -> None:
    @define
    class Stillborn(Wrapped):
        def start(self, config: Config) -> None:
            raise ValueError(f"{config.num_blocks} blocks")

    made, _ = search(Stillborn(), "fa4", walks=1)
    assert "ValueError" in made.broken["LV-9"].violation.evidence.message
    assert made.broken["LV-9"].actions == ()


def test_what_is_not_supported_is_skipped_with_the_reason() -> None:
    @define
    class Plain(Wrapped):
        def start(self, config: Config) -> None:
            if config.dcp_size > 1:
                raise Unsupported("one rank only")
            super().start(config)

    made, (alone, ranks) = search(Plain(), "fa4-m4", "fa4-m4-n2", walks=1, steps=50)
    assert (alone.skipped, alone.actions) == ("", 50)
    assert (ranks.skipped, ranks.actions) == ("one rank only", 0)
    assert made.broken == {}


# --- what is hidden -------------------------------------------------------------------------------------------------


def test_what_is_not_shown_is_undetermined_and_never_holds() -> None:
    few = ModelAdapter(shows=frozenset({Shows.HITS, Shows.TABLES}))
    made, (searched,) = search(few, "fa4-m4-n2-host", walks=3, steps=300)
    assert made.broken == {}
    assert searched.actions == 900
    assert finding(searched, "TB-1").verdict is Verdict.HOLDS
    for law in ("CC-3", "PC-1", "LV-6", "DS-9", "EV-1"):
        assert finding(searched, law).verdict is Verdict.UNDETERMINED, law
    assert finding(searched, "PC-1").hidden


# --- differences ----------------------------------------------------------------------------------------------------


def test_differences_name_the_setting_that_explains_them() -> None:
    made, _ = search(Wrapped(ModelAdapter(profile=evolve(SOUND, removed_event="each_copy"))), "fa4-m4-n2-events", walks=6)
    assert made.counted
    for (_, what, found), count in made.counted.items():
        assert what == "events"
        assert [setting.text for setting in found] == ["removed_event=each_copy"]
        assert count
    assert {"EV-4"} <= set(made.broken) <= {"EV-4", "EV-5"}


def test_a_declared_profile_predicts_and_bends() -> None:
    @define
    class Declaring(Wrapped):
        profile: Any = VLLM_0_33_0

    made, (searched,) = search(Declaring(ModelAdapter()), "fa4-m4-n2-events", walks=4)
    assert made.counted == {}
    assert made.broken == {}
    assert any(violation.bent for one in searched.findings for violation in one.violations)


def test_an_answer_that_nothing_explains_says_so() -> None:
    @define
    class Late(Wrapped):
        """Holds back every event of an allocation."""

        def perform(self, action: Action) -> Observation:
            shown = super().perform(action)
            silent = isinstance(action, act.Allocate) and shown.refusal is None
            return evolve(shown, result={**shown.result, "events": ()}) if silent else shown

    made, _ = search(Late(), "fa4-m4-n2-events", walks=2)
    assert {(action, what) for action, what, found in made.counted if not found} == {("Allocate", "events")}
    assert "EV-5" in made.broken


# --- runs -----------------------------------------------------------------------------------------------------------


def runs_of(adapter: Any) -> Runs:
    return Runs(guarded(adapter, False), lambda config: Shadow(config, adapter.shows, adapter.null_block))


ACTIONS: list[Action] = [act.Submit(0, (1, 2, 3, 4, 5)), act.BeginStep(), act.Lookup(0), act.Allocate(0, 5)]


def test_what_was_performed_is_not_performed_again() -> None:
    runs, config = runs_of(ModelAdapter()), scopes.by_name("fa4").config()
    first = players.played(runs.begin, config, ACTIONS)
    assert runs.performed == 4
    second = players.played(runs.begin, config, ACTIONS)
    assert (runs.performed, second.world) == (4, first.world)
    second.act(act.Drain())
    assert runs.performed == 5
    third = players.played(runs.begin, config, ACTIONS[:3])
    third.act(act.Drain())
    assert runs.performed == 5 + 3 + 1
    again = first.again()
    assert again.act(act.Drain()).after == second.world
    assert runs.performed == 9
    again.act(act.BuildMetadata())
    assert runs.performed == 9 + 5 + 1


def test_a_refused_action_leads_to_the_same_place() -> None:
    runs, config = runs_of(ModelAdapter()), scopes.by_name("fa4").config()
    run = runs.begin(config)
    for action in ACTIONS:
        before = run.world
        assert run.act(act.Dispatch()).refusal is not None
        assert run.world is before
        run.act(action)
    assert runs.performed == 8
    players.played(runs.begin, config, ACTIONS)
    assert runs.performed == 8
    assert run.point.actions() == tuple(ACTIONS)


def test_behind_a_crash_everything_is_a_crash() -> None:
    runs, config = runs_of(Failing(on=act.Lookup)), scopes.by_name("fa4").config()
    run = runs.begin(config)
    refusals = [run.act(action).refusal for action in ACTIONS]
    assert [isinstance(refusal, Crash) for refusal in refusals] == [False, False, True, True]
    assert runs.performed == 3
    assert [point.actions() for point in runs.crashes] == [tuple(ACTIONS[:3])]


def test_who_does_not_repeat_itself_is_found_out() -> None:
    @define
    class Moody(Wrapped):
        starts: int = 0

        def start(self, config: Config) -> None:
            self.starts += 1
            self.inner.reversed_at_start = self.starts > 1
            super().start(config)

    runs, config = runs_of(Moody()), scopes.by_name("fa4").config()
    players.played(runs.begin, config, [*ACTIONS, act.Drain()])
    run = players.played(runs.begin, config, ACTIONS)
    with pytest.raises(Unrepeatable, match="the same 1 actions from the start show something else at Submit"):
        run.act(act.Allocate(7, 1))


def test_after_many_points_the_first_ones_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, config = runs_of(ModelAdapter()), scopes.by_name("fa4").config()
    monkeypatch.setattr("kvproof.spec.conformance.play.MOST_POINTS", 3)
    players.played(runs.begin, config, ACTIONS)
    players.played(runs.begin, config, ACTIONS)
    assert runs.performed == 8


# --- the end of a walk ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["fa4-m4-n2", "fa4-m4-n2-host-tiny"])
def test_a_walk_ends_at_rest_with_a_reset_and_prompts_that_are_looked_up_again(scope: str) -> None:
    """What random walks seldom reach: the reset is done, and nothing that was sent before is found."""
    done: list[tuple[Action, Observation]] = []

    class Heard(Wrapped):
        def perform(self, action: Action) -> Observation:
            done.append((action, super().perform(action)))
            return done[-1][1]

    judged = tuple(law for law in laws.ALL if law.id in ("PC-13", "PC-14"))
    made, (searched,) = search(Heard(), scope, judged=judged, walks=1, steps=120)
    assert made.broken == {}
    assert searched.actions == 120
    assert len(done) > 120
    at = max(at for at, (action, _) in enumerate(done) if isinstance(action, act.ResetCache))
    assert done[at][1].result["done"] is True
    found = [shown.result["local"] for action, shown in done[at:] if isinstance(action, act.Lookup)]
    assert found
    assert set(found) == {0}
    assert all(finding(searched, law).judged for law in ("PC-13", "PC-14"))


# --- public reports that only an adapter can show (docs/public-faults.md) ---------------------------------------------


def test_a_failed_load_that_is_taken_for_a_complete_one_is_refuted() -> None:
    """Entry 138, where the failure is reported: the keys of what never arrived, or a request that goes on without it."""

    class Deaf(Wrapped):
        def perform(self, action: Action) -> Observation:
            if isinstance(action, act.CompleteLoad) and action.failed:
                action = act.CompleteLoad(action.request)
            return super().perform(action)

    judged = tuple(law for law in laws.ALL if law.id == "LD-5")
    made, _ = search(Deaf(), "fa4-host", "fa4-m4-n2-host", judged=judged, walks=6, steps=500)
    assert "LD-5" in made.broken


def test_a_connector_whose_chunk_is_not_that_of_the_groups_is_refuted() -> None:
    """Entry 10: 256 tokens for every group, whatever its blocks span."""

    class Chunked(Wrapped):
        def geometry(self, config: Config) -> Any:
            return evolve(super().geometry(config), offload_tokens_per_block=(256,) * len(config.groups))

    judged = tuple(law for law in laws.ALL if law.id in ("DS-1", "DS-6"))
    made, _ = search(Chunked(), "fa4-m4-n2-host", judged=judged, walks=1, steps=5)
    assert set(made.broken) == {"DS-1", "DS-6"}
