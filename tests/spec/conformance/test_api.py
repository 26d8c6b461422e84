"""One call judges an implementation: verdicts in words, counterexamples that can be read, differences with what explains them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from attrs import define, evolve, field

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.config import SOUND, Config
from kvproof.spec import cli, faults, laws
from kvproof.spec import counterexample as files
from kvproof.spec.conformance import examples
from kvproof.spec.conformance.adapter import AdapterError, Announcement, Observation, RequestState, Shows, State, Unsupported
from kvproof.spec.conformance.api import check_all_laws, chosen_laws, chosen_scopes
from kvproof.spec.conformance.hidden import Hidden
from kvproof.spec.conformance.oracle import Verdict
from kvproof.spec.conformance.play import Point
from kvproof.spec.conformance.reference import ModelAdapter, highest_first, showing_all_but
from kvproof.spec.conformance.reports import LawVerdict, Refuted, Report, ScopeRun, counted, law_lines, worst_first
from kvproof.spec.counterexample import Counterexample
from kvproof.spec.engines import scopes
from kvproof.spec.exits import UserError
from kvproof.spec.report import forms, lines, markdown

LAST = "fa4-m4-n2-host"


@define
class Undeclared:
    """A model that does not say which profile it has."""

    inner: ModelAdapter = field(factory=ModelAdapter)
    name: str = "undeclared"
    shows: frozenset[Shows] = frozenset(Shows) - {Shows.GEOMETRY}
    null_block: int = 0

    def start(self, config: Config) -> None:
        self.inner.start(config)

    def perform(self, action: Action) -> Observation:
        return self.inner.perform(action)


def report(adapter: Any, **asked: Any) -> Report:
    return check_all_laws(adapter, **{"isolation": False, "walks": 1, "steps": 60, "scopes": ["fa4-m4"], **asked})


@pytest.fixture(scope="module")
def faulty() -> Report:
    """The counters are lost by a reset: one law is refuted."""
    return report(ModelAdapter(fault=faults.by_id("M-CNT-2"), name="lossy"), scopes=[LAST], walks=3, steps=400, isolation=True)


# --- what is asked --------------------------------------------------------------------------------------------------


def test_laws_are_chosen_by_id_and_family_in_their_order() -> None:
    assert chosen_laws(None) == laws.ALL
    assert [law.id for law in chosen_laws(["guard", "rq", "cc-3"])] == ["CC-3", *(law.id for law in laws.family("RQ")), "GUARD"]
    with pytest.raises(UserError, match="no law 'CC-99'"):
        chosen_laws(["CC-99"])


def test_scopes_are_chosen_by_name() -> None:
    assert chosen_scopes(None) == chosen_scopes(["all"]) == scopes.ALL
    assert chosen_scopes(["quick"]) == scopes.chosen(True)
    assert [scope.name for scope in chosen_scopes(["fa4-m4", "fa4"])] == ["fa4", "fa4-m4"]
    assert len(chosen_scopes(["quick", "fa4"])) == len(scopes.chosen(True)) + 1
    with pytest.raises(UserError, match="no scope 'fa5'"):
        chosen_scopes(["fa5"])


def test_what_is_no_adapter_is_told_what_it_lacks() -> None:
    with pytest.raises(
        AdapterError, match="object is no adapter: it has no name, no shows, no null_block, no start, no perform"
    ):
        check_all_laws(object())  # type: ignore[arg-type]
    with pytest.raises(AdapterError, match="a frozenset of Shows is needed"):
        report(Undeclared(shows={"tables"}))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="no policy 'eviction'"):
        report(ModelAdapter(), policies=["eviction=own"])


def test_an_adapter_that_does_not_show_what_it_declares_is_told_so() -> None:
    @define
    class Mute(Undeclared):
        def perform(self, action: Action) -> Observation:
            return evolve(super().perform(action), state=State())

    with pytest.raises(AdapterError, match="declares"):
        report(Mute())


@define
class Silent(Undeclared):
    """Breaks PC-1, and shows nothing of what it declares under several groups or, ``worn``, from its fifth start on."""

    inner: ModelAdapter = field(factory=lambda: ModelAdapter(fault=faults.by_id("M-POOL-2")))
    worn: bool = False
    starts: int = 0
    silent: bool = False

    def start(self, config: Config) -> None:
        self.starts += 1
        self.silent = self.starts > 4 if self.worn else len(config.groups) > 1
        super().start(config)

    def perform(self, action: Action) -> Observation:
        shown = super().perform(action)
        return evolve(shown, state=State()) if self.silent else shown


WALKS = {"laws": ["PC-1", "PC-11"], "scopes": ["fa4", "fa4-m4", "fa2-m8"], "walks": 6, "steps": 250}


@pytest.mark.parametrize("worn", [False, True], ids=["under several groups", "after a while"])
def test_what_was_refuted_before_an_adapter_breaks_its_contract_stays_refuted(worn: bool) -> None:
    said = report(Silent(worn=worn), **WALKS)
    assert [law.law for law in said.refuted] == ["PC-1"]
    scope = "fa4" if worn else "fa4-m4"
    assert said.problems[0].startswith(f"{scope}: the adapter could not be judged any further: Submit: the adapter declares")
    assert "the adapter could not be judged any further" in said.text()
    assert "fa2-m8" not in {run.name for run in said.scopes}
    example = said.of("PC-1").counterexample
    assert example is not None
    # Whoever shows nothing any more cannot show a shorter one, nor what was shown after each action.
    assert (len(example.actions) > 20, len(said.problems)) == ((True, 2) if worn else (False, 1))
    assert "the first in fa4: " in said.of("PC-1").why
    with pytest.raises(Refuted, match="PC-1"):
        said.raise_if_refuted()


def test_an_adapter_that_breaks_its_contract_first_was_not_judged() -> None:
    with pytest.raises(AdapterError, match="declares"):
        report(Silent(), **WALKS | {"scopes": ["fa4-m4", "fa2-m8"]})


# --- verdicts -------------------------------------------------------------------------------------------------------


def test_the_model_is_not_refuted_and_every_law_has_a_verdict() -> None:
    told: list[str] = []
    said = report(ModelAdapter(), progress=told.append, walks=2)
    assert [law.law for law in said] == [*(law.id for law in chosen_laws(None)), "GUARD"]
    assert said.of("GUARD").verdict is Verdict.UNDETERMINED
    assert "nothing that must be refused was tried: name GUARD" in said.text()
    assert [law.law for law in report(ModelAdapter(), laws=["PC-1"])] == ["PC-1"]
    assert said.refuted == ()
    assert said.counterexamples == ()
    assert said.differences == ()
    assert said.problems == ()
    assert (said.actions, [scope.name for scope in said.scopes]) == (120, ["fa4-m4"])
    assert told == ["fa4-m4: walk 1 of 2", "fa4-m4: walk 2 of 2"]
    assert said.of("CC-3").verdict is Verdict.HOLDS
    assert said.of("CC-3").why == f"judged {said.of('CC-3').judged} times"
    assert said.of("EV-4").verdict is Verdict.UNDETERMINED
    assert said.of("EV-4").why == "its premise was never true in 120 actions in 1 scope"
    assert "formulas" in said.of("DS-3").why
    said.raise_if_refuted()
    with pytest.raises(KeyError, match="ZZ-1 was not judged"):
        said.of("ZZ-1")


def test_a_refuted_law_has_its_evidence_and_a_short_counterexample(faulty: Report) -> None:
    assert [law.law for law in faulty.refuted] == ["CN-1"]
    law = faulty.of("CN-1")
    assert law.sentence == laws.by_id("CN-1").sentence
    assert "a reset loses counts that were not read out" in law.why
    assert law.explained == ()
    assert law.counterexample is not None
    assert isinstance(law.counterexample.actions[-1], act.ResetHost | act.ReadCounters)
    assert len(law.counterexample.actions) < 25
    with pytest.raises(Refuted, match="CN-1 refuted: What is read out of the counters"):
        faulty.raise_if_refuted()


def test_the_same_seed_gives_the_same_report(faulty: Report) -> None:
    again = report(ModelAdapter(fault=faults.by_id("M-CNT-2"), name="lossy"), scopes=[LAST], walks=3, steps=400)
    assert again == faulty


def test_what_is_not_shown_is_named() -> None:
    said = report(showing_all_but(Shows.COPIES, Shows.GEOMETRY), walks=2)
    assert said.of("CC-3").verdict is Verdict.UNDETERMINED
    assert said.of("CC-3").why.startswith("it needs what is not shown: copies (")
    assert dict(said.of("CC-3").hidden)["copies"] > 0
    assert "geometry" in said.of("DS-1").why
    assert said.of("TB-1").verdict is Verdict.HOLDS
    assert "copies" not in said.shows
    assert not said.refuted


def test_a_scope_that_is_not_supported_is_skipped_and_said_so() -> None:
    @define
    class Nothing(Undeclared):
        def start(self, config: Config) -> None:
            raise Unsupported("not today")

    said = report(Nothing())
    assert [(scope.name, scope.actions, scope.skipped) for scope in said.scopes] == [("fa4-m4", 0, "not today")]
    assert {law.verdict for law in said} == {Verdict.UNDETERMINED}
    assert said.of("CC-3").why == "no scope could be searched"
    assert "skipped:\n  1 scope (fa4-m4): not today" in said.text()


def test_a_policy_that_no_configuration_has_skips_its_scopes() -> None:
    said = report(ModelAdapter(), policies=["retention=3"])
    assert "not with what is declared: retention 3" in said.scopes[0].skipped


def test_a_walk_that_ends_behind_a_violation_is_no_problem_of_the_judging() -> None:
    """A pool that offers blocks in use breaks PC-1; that no next state can be followed then is what comes of it."""

    @define
    class Offering(Undeclared):
        def perform(self, action: Action) -> Observation:
            shown = super().perform(action)
            pool = shown.state.device
            taken = sorted(pool.references or ())[:1]
            return evolve(shown, state=evolve(shown.state, device=evolve(pool, free=(*(pool.free or ()), *taken))))

    said = report(Offering(), walks=8, laws=["PC"])
    assert said.of("PC-1").verdict is Verdict.REFUTED
    assert said.problems == ()
    assert any("ended early behind a violation of PC-" in line for line in said.ended)
    assert said.as_dict()["ended"] == list(said.ended)
    assert f"ended early:\n  {said.ended[0]}" in said.text()
    unasked = report(Offering(), walks=8, laws=["HB-9"])
    assert "a walk ended early" in unasked.problems[0]


def test_one_that_cannot_start_has_its_reason_and_no_stray_problem() -> None:
    @define
    class Stillborn(Undeclared):
        def start(self, config: Config) -> None:
            raise RuntimeError("no memory")

    said = report(Stillborn())
    assert [law.law for law in said.refuted] == ["LV-9"]
    assert "raised RuntimeError: no memory" in said.of("LV-9").why
    assert said.problems == ()


def test_refuted_laws_come_by_the_length_of_their_counterexamples_and_what_was_left_out_last(faulty: Report) -> None:
    def law(name: str, example: Any) -> LawVerdict:
        return LawVerdict(name, "A sentence.", Verdict.REFUTED, "why", counterexample=example)

    longer = evolve(only(faulty), law="AA-1")
    example = evolve(
        longer,
        law="CC-1",
        actions=longer.actions[1:],
        outcomes=longer.outcomes[1:],
        implementation=None,
        position=longer.position - 1,
    )
    found = (LawVerdict("AA-0", "", Verdict.REFUTED, "why"), law("AA-1", longer), law("CC-1", example))
    hidden = [
        LawVerdict(f"BB-{at}", "", Verdict.UNDETERMINED, f"copies ({at} times)", hidden=(("copies", at),)) for at in (1, 2)
    ]
    left_out = [ScopeRun(f"s{at}", skipped="too big") for at in range(5)]
    said = Report("a", 0, (), (*found, *hidden), tuple(left_out))
    assert [verdict.law for verdict in worst_first(said.refuted)] == ["CC-1", "AA-1", "AA-0"]
    assert [found.law for found in said.counterexamples] == ["CC-1", "AA-1"]
    defined = law("CN-1", example)
    assert [verdict.law for verdict in worst_first((defined, *said.refuted))] == ["CC-1", "AA-1", "AA-0", "CN-1"]
    assert [verdict.law for verdict in evolve(said, laws=(*found, defined), known=("CC-1",)).in_order][-2:] == ["CN-1", "CC-1"]
    text = said.text()
    assert text.index("CC-1 refuted") < text.index("AA-1 refuted") < text.index("undetermined:") < text.index("skipped:")
    assert "  BB-1, BB-2: it needs what is not shown: copies\n" in text
    assert "  5 scopes (s0, s1, s2 and 2 more): too big" in text


# --- settings -------------------------------------------------------------------------------------------------------


def test_an_undeclared_setting_that_explains_a_violation_is_named() -> None:
    each = Undeclared(ModelAdapter(profile=evolve(SOUND, removed_event="each_copy")))
    said = report(each, scopes=["fa4-m4-n2-events"], walks=6, steps=250, laws=["EV-4", "CC-3"])
    law = said.of("EV-4")
    assert law.verdict is Verdict.REFUTED
    assert law.explained == ("removed_event=each_copy",)
    assert {group.explanation for group in said.differences} == {"explained by removed_event=each_copy"}
    assert "not declared: with removed_event=each_copy, as releases of vLLM have or had it, the model breaks" in said.text()
    declared = report(
        each, scopes=["fa4-m4-n2-events"], walks=6, steps=250, laws=["EV-4", "CC-3"], policies=["removed_event=each_copy"]
    )
    assert declared.differences == ()
    assert declared.of("EV-4").verdict is Verdict.HOLDS
    assert declared.of("EV-4").bent > 0
    assert "that a declared setting stands for" in declared.of("EV-4").why


def test_an_own_order_of_eviction_is_policy() -> None:
    said = report(Undeclared(ModelAdapter(arrange=highest_first)), policies=["eviction_order=own"], steps=200)
    assert said.differences
    for group in said.differences:
        assert group.settings == ("eviction_order=own",)
        assert group.explanation == "explained by eviction_order=own (declared)"


def test_a_difference_that_nothing_explains_says_so() -> None:
    @define
    class Wordy(Undeclared):
        def perform(self, action: Action) -> Observation:
            shown = super().perform(action)
            told = isinstance(action, act.Allocate) and shown.refusal is None
            return evolve(shown, result={**shown.result, "demand": 99}) if told else shown

    said = report(Wordy(), steps=150, laws=["CC"])
    (group,) = said.differences
    assert (group.action, group.what, group.settings) == ("Allocate", "demand", ())
    assert group.observed == "99"
    assert f"Allocate, demand: {counted(group.count, 'time')}, first in fa4-m4 at action {group.position}" in said.text()
    assert "no declared setting explains it" in said.text()


# --- forms ----------------------------------------------------------------------------------------------------------


def test_the_report_as_json(faulty: Report) -> None:
    said = json.loads(json.dumps(faulty.as_dict()))
    assert (said["adapter"], said["seed"]) == ("lossy", 0)
    assert len(said["laws"]) == len(laws.ALL) + 1  # and GUARD
    refuted = [law for law in said["laws"] if law["verdict"] == "refuted"]
    assert [law["law"] for law in refuted] == ["CN-1"]
    assert files.loads(json.dumps(refuted[0]["counterexample"])) == faulty.of("CN-1").counterexample
    assert said["scopes"][0]["name"] == LAST
    assert {"what", "action", "count", "settings", "declared"} <= said["differences"][0].keys()


def test_the_report_as_text(faulty: Report) -> None:
    text = faulty.text()
    assert text.startswith("lossy: 1 law refuted, ")
    assert "\nCN-1 refuted: " in text
    assert "\nundetermined:\n  " in text
    assert law_lines(faulty.of("CN-1"))[0].startswith("CN-1 refuted")
    assert any("ResetHost()" in line for line in law_lines(faulty.of("CN-1")))


def only(said: Report) -> Counterexample:
    (example,) = said.counterexamples
    return example


def test_a_counterexample_has_what_was_shown_and_survives_its_file(faulty: Report) -> None:
    example = only(faulty)
    assert example.implementation is not None
    assert example.implementation.adapter == "lossy"
    assert len(example.implementation.shown) == len(example.actions) == len(example.outcomes)
    first = example.implementation.shown[0]
    assert ("device.free", tuple(range(1, 12))) in first.state
    text = files.dumps(example)
    assert files.loads(text) == example
    assert files.dumps(files.loads(text)) == text
    (allocated,) = [at for at, action in enumerate(example.actions) if isinstance(action, act.Allocate)][:1]
    answer = dict(example.implementation.shown[allocated].answer)
    assert answer["admitted"] is True
    assert "events" in answer


def test_files_without_an_implementation_are_as_they_were(faulty: Report) -> None:
    plain = evolve(only(faulty), implementation=None)
    assert "implementation" not in json.loads(files.dumps(plain))
    assert files.loads(files.dumps(plain)) == plain


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda shown: shown.pop(), "actions and "),
        (lambda shown: shown[0].update(colour=1), "unknown field 'colour'"),
        (lambda shown: shown[0].update(refusal=7), "refusal"),
    ],
)
def test_a_damaged_implementation_is_refused(faulty: Report, damage: Any, words: str) -> None:
    document = json.loads(files.dumps(only(faulty)))
    damage(document["implementation"]["shown"])
    with pytest.raises(files.CounterexampleError, match=words):
        files.loads(json.dumps(document))


def test_the_pasted_test_judges_the_adapter_that_is_put_into_it(faulty: Report) -> None:
    names: dict[str, Any] = {}
    exec(forms.render("as-test", only(faulty)), names)
    [test] = [value for name, value in names.items() if name.startswith("test_")]
    with pytest.raises(NotImplementedError, match="return the adapter of your implementation here"):
        test()
    names["adapter"] = lambda: ModelAdapter(fault=faults.by_id("M-CNT-2"))
    with pytest.raises(AssertionError, match="CN-1: "):
        test()
    names["adapter"] = ModelAdapter
    test()


def test_the_report_command_shows_who_broke_it_and_says_who_can_show_it_again(
    faulty: Report, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cn-1.json"
    file.write_text(files.dumps(only(faulty)))
    assert cli.main(["report", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "broken by lossy, found by conformance" in shown
    assert f"check_all_laws(adapter, laws=['CN-1'], scopes=['{LAST}'], seed=0, walks=3, steps=400)" in shown
    assert cli.main(["report", str(file), "--replay"]) == 3
    replayed = capsys.readouterr().out
    assert "lossy broke CN-1, and only its adapter can show that again: check_all_laws(adapter, laws=['CN-1']" in replayed
    assert "broken by lossy" in markdown.render(only(faulty)).casefold()


def test_what_was_shown_is_told_in_words() -> None:
    told = files.Shown(
        None,
        (
            ("admitted", False),
            ("load_event", -1),
            ("events", ((("boundary", 8), ("group", 0), ("kind", "stored")),)),
            ("taken", ()),
        ),
        (("requests.0.tables", ((1, 2), ())), ("device.free", (3,))),
    )
    assert lines.shown_text(told) == "admitted False, events [stored(0,8)], requests.0.tables ((1,2),())"
    assert lines.shown_text(files.Shown("not today")) == "refused: not today"
    assert lines.shown_text(files.Shown(None, (("events", "odd"),))) == "events odd"


def test_a_state_is_told_by_its_changes() -> None:
    world = ModelAdapter()
    world.start(scopes.by_name("fa4").config())

    def point(state: State, **result: object) -> Point:
        config = scopes.by_name("fa4").config()
        assert world.world is not None
        return Point(config, world.world, shown=Observation(result, state))

    first = State(requests={0: RequestState(tables=((1,),), status="running"), 1: RequestState(computed=4)})
    second = State(requests={0: RequestState(tables=((1, 2),), status="running")})
    announced = Announcement("stored", "device", 0, "abc", 8)
    told = list(
        examples.shown(
            [point(first), point(second, events=(announced,)), Point(point(first).config, point(first).world, dead="died")]
        )
    )
    assert told[0].state == (
        ("requests.0.tables", ((1,),)),
        ("requests.0.status", "running"),
        ("requests.1.computed", 4),
    )
    assert told[1].state == (("requests.0.tables", ((1, 2),)), ("requests.1.computed", None))
    assert dict(told[1].answer)["events"] == (
        (("boundary", 8), ("group", 0), ("kind", "stored"), ("medium", "device"), ("prefix", "abc")),
    )
    assert told[2] == files.Shown("died")


def test_what_is_hidden_is_told_as_such() -> None:
    assert examples.visible((1, Hidden("tables"), [Hidden("keys")])) == (1, "not shown", ("not shown",))


BUDGETS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"walks": -1}, "walks is -1: a whole number from 1 on"),
    ({"walks": 0}, "walks is 0: a whole number from 1 on"),
    ({"walks": 1.5}, r"walks is 1.5: a whole number from 1 on"),
    ({"walks": True}, "walks is True: a whole number from 1 on"),
    ({"steps": -3}, "steps is -3: a whole number from 1 on"),
    ({"limit": 0}, "limit is 0: seconds are needed, more than 0"),
    ({"limit": -1.0}, r"limit is -1.0: seconds"),
    ({"limit": float("nan")}, "limit is nan: seconds"),
    ({"laws": "HB-9"}, r"laws is 'HB-9': a list of names is needed, such as \['HB-9'\]"),
    ({"laws": []}, r"laws is \[\]: name at least one"),
    ({"laws": [9]}, r"laws is \[9\]: a list of names"),
    ({"scopes": "fa4"}, r"scopes is 'fa4': a list of names is needed, such as \['fa4'\]"),
    ({"scopes": []}, r"scopes is \[\]: name at least one"),
)


@pytest.mark.parametrize(("asked", "words"), BUDGETS, ids=[words for _, words in BUDGETS])
def test_a_budget_with_which_nothing_is_tried_is_refused(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=f"^{words}"):
        check_all_laws(ModelAdapter(), **asked)
