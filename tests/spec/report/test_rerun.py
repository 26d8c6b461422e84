"""A counterexample that shows here something else than its file says: every form says so first, and the exit status does."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from rich.console import Console

from kvproof.core import actions as act
from kvproof.core.errors import ContractBroken
from kvproof.spec import check, cli, counterexample, judge, laws
from kvproof.spec.counterexample import Counterexample
from kvproof.spec.exploring import jobs, kills, scopes
from kvproof.spec.exploring.jobs import Asked, Job
from kvproof.spec.report import departure, files, forms, lineage, lines, terminal
from kvproof.spec.report import film as films
from kvproof.spec.report.rerun import State, run_again
from tests.spec.report.found import FAULTS, found

GONE = "PC-8 holds on these 8 actions"


def gone() -> Counterexample:
    """A counterexample whose fault has been mended: the file still has it, the model does it right."""
    return evolve(found("M-LRU-1"), fault="")


@pytest.mark.parametrize("fault", FAULTS)
def test_what_breaks_as_its_file_says_has_no_notes(fault):
    seen = run_again(found(fault))
    assert (seen.state, seen.gone, seen.notes) == (State.BREAKS, False, ())
    assert seen.violation is not None
    assert "Not seen here" not in "".join(forms.render(form, found(fault), None, seen) for form in forms.FORMS)


@pytest.mark.parametrize("form", forms.FORMS)
def test_every_form_says_that_the_law_does_not_break_here(form):
    text = forms.render(form, gone()).replace("\n", " ")
    assert GONE in text
    assert "not seen here" in text.casefold()
    assert text.index(GONE) < text.index("BeginStep") if "BeginStep" in text else True


def test_a_headline_says_no_more_that_the_law_does_not_hold():
    for form in ("html", "markdown"):
        text = forms.render(form, gone())
        assert "PC-8 does not break here" in text
        assert "PC-8 does not hold</h1>" not in text
        assert "# PC-8 does not hold" not in text


def test_an_action_that_is_refused_here_is_named():
    """Request 9 is not there: the allocation is refused, and what comes behind it is another run."""
    example = found("M-LRU-1")
    actions = tuple(evolve(one, request=9) if isinstance(one, act.Allocate) else one for one in example.actions)
    notes = run_again(evolve(example, actions=actions)).notes
    assert notes[0].startswith("PC-8 holds on these 8 actions")
    assert notes[1].startswith("The file says, at action 7, ")
    assert notes[2].startswith("Action 3, Allocate(9, ")
    assert "is refused here (" in notes[2]
    assert "and was done when the file was written" in notes[2]
    assert "later answer" in notes[2]


def test_a_law_that_breaks_instead_is_named():
    example = evolve(found("M-LRU-1"), law="PC-1")
    assert run_again(example).notes[-1].startswith("What breaks instead is PC-8, at action 7: the free queue is not in")


def test_a_law_that_breaks_elsewhere_is_seen_and_the_place_is_named():
    example = evolve(found("M-LRU-1"), position=2)
    seen = run_again(example)
    assert seen.state is State.BREAKS
    assert seen.notes == ("PC-8 breaks at action 7 here, and not at action 2, Lookup(0), as the file says.",)
    assert "Not as the file says" in forms.render("markdown", example)


def test_an_answer_that_is_another_one_is_named():
    example = found("M-LRU-1")
    [at] = [at for at, one in enumerate(example.actions) if isinstance(one, act.Allocate)]
    record = example.outcomes[at].record
    assert record is not None
    outcomes = list(example.outcomes)
    outcomes[at] = evolve(outcomes[at], record=evolve(record, demand=99))
    seen = run_again(evolve(example, outcomes=tuple(outcomes)))
    assert seen.state is State.BREAKS
    assert seen.notes[0].startswith(
        "Action 3, Allocate(0, new_tokens=1, external=2), answers otherwise than the file has it: there admitted True, demand 99,"
    )
    assert seen.here.outcomes == example.outcomes


@pytest.mark.parametrize("changes", [{"law": "XX-1"}, {"fault": "M-NONE-1"}])
def test_what_cannot_be_judged_is_not_seen(changes):
    seen = run_again(evolve(found("M-LRU-1"), **changes))
    assert (seen.state, seen.gone) == (State.UNJUDGED, True)
    assert next(iter(changes.values())) in seen.notes[0]


@pytest.mark.parametrize("law", ["PC-8", "LV-8"])
def test_numbers_that_no_law_reckons_with_are_no_crash(law):
    actions = tuple(evolve(one, new_tokens=1 << 70) if isinstance(one, act.Allocate) else one for one in gone().actions)
    seen = run_again(evolve(gone(), law=law, actions=actions))
    assert seen.gone
    assert seen.notes


def test_of_an_implementation_the_model_alone_can_tell_nothing():
    adapter = counterexample.Implementation("mine", tuple(counterexample.Shown(None) for _ in found("M-LRU-1").actions))
    example = evolve(gone(), implementation=adapter)
    seen = run_again(example)
    assert (seen.state, seen.gone) == (State.OUTSIDE, False)
    # The fault changed what the model answered to the last action no further than its queue, which is in no record.
    assert seen.notes == ()
    other = evolve(example, actions=(*example.actions[:-1], act.Finish(9)))
    assert "are not those that were compared" in run_again(other).notes[-1]


def test_a_configuration_that_a_fault_refuses_is_seen_again(tmp_path, capsys):
    """HB-1 alone has no world: the fault refuses a legal configuration, and does so again."""
    example = refused()
    seen = run_again(example)
    assert (seen.state, seen.notes, seen.film) == (State.BREAKS, (), None)
    # Any other law, and the same configuration without the fault: nothing was broken, or it cannot be asked.
    with pytest.raises(counterexample.CounterexampleError, match="the configuration is refused"):
        check.replay(evolve(example, law="PC-1"))
    assert check.replay(evolve(example, fault="")).violation is None
    file = tmp_path / "found.json"
    file.write_text(counterexample.dumps(example))
    assert cli.main(["report", str(file), "--replay"]) == 2
    assert "HB-1 breaks again" in capsys.readouterr().out


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "gone.json"
    path.write_text(counterexample.dumps(gone()))
    return path


def test_showing_it_ends_with_status_3_and_says_why(file, capsys):
    assert cli.main(["report", str(file)]) == 3
    out = capsys.readouterr().out
    assert out.startswith("PC-8 does not break here\n! PC-8 holds on these 8 actions")


@pytest.mark.parametrize("form", forms.FORMS)
def test_a_form_of_it_is_given_and_the_status_is_3(file, capsys, form):
    assert cli.main(["report", str(file), f"--{form}"]) == 3
    captured = capsys.readouterr()
    assert captured.out == forms.render(form, gone(), str(file))
    assert GONE in captured.err


def test_replaying_says_it_for_programs_too(file, capsys):
    assert cli.main(["report", str(file), "--replay", "--json"]) == 3
    said = json.loads(capsys.readouterr().out)
    assert (said["law"], said["breaks_again"], said["position"]) == ("PC-8", False, None)
    assert said["notes"][0].startswith(GONE)
    file.write_text(counterexample.dumps(found("M-LRU-1")))
    assert cli.main(["report", str(file), "--replay", "--json"]) == 2
    assert json.loads(capsys.readouterr().out) == {"law": "PC-8", "breaks_again": True, "position": 7, "notes": []}


# --- files ------------------------------------------------------------------------------------------------------------


def test_one_film_serves_all_files_of_a_counterexample(tmp_path, monkeypatch):
    shots: list[str] = []
    shoot = films.shoot

    def counting(example, **asked):
        shots.append(example.law)
        return shoot(example, **asked)

    monkeypatch.setattr(films, "shoot", counting)
    files.write([found("M-LRU-1"), found("M-HO-3")], {"premises": {}, **EMPTY}, tmp_path, "check.json")
    assert shots == ["PC-8", "HO-3"]


EMPTY = {
    "verdict": "holds",
    "witnesses": {},
    "situations_never_reached": [],
    "faults": [],
    "faults_survived": {},
    "recordings": 0,
    "problems": [],
    "counterexamples": [],
}


def test_nothing_that_is_written_names_the_folder(tmp_path):
    for name in ("one", "two"):
        files.write([found("M-LRU-1")], {"premises": {}, **EMPTY}, tmp_path / name, "check.json")
    for one in (tmp_path / "one").iterdir():
        text = one.read_text()
        assert str(tmp_path) not in text
        assert text == (tmp_path / "two" / one.name).read_text()
    [page] = (tmp_path / "one").glob("*-explorer.md")
    assert page.read_text().splitlines()[-1] == "    kvproof explore --fault M-LRU-1 --law PC-8 --scope fa2-m2-loads"


def refused() -> Counterexample:
    """M-SCR-1 makes a configuration illegal that is not, which is all that its counterexample says."""
    scope = scopes.by_name("fa2-m4-c2-w4-st2-x1")
    example = jobs.perform(Job(Asked(fault="M-SCR-1", laws=("HB-1",)), scope, "M-SCR-1")).example
    assert example is not None
    # Stated, since with the fault another one would be the default, which is another violation.
    assert example.settings.hash_block_size == 2
    return example


# --- what a file claims, and what is so here --------------------------------------------------------------------------------


def every_form(example: Counterexample) -> str:
    """Return what all forms and the terminal say of a counterexample, without the script of the page."""
    seen, out = run_again(example), io.StringIO()
    terminal.show(Console(file=out, width=400), example, None, seen)
    said = "\n".join((out.getvalue(), *(forms.render(form, example, None, seen) for form in PAGES)))
    return re.sub(r"<script>.*?</script>", "", said, flags=re.DOTALL)


PAGES = ("html", "markdown", "reviewer", "svg")


@pytest.mark.parametrize("fault", ["M-LEAK-3", "M-TAIL-5"])
def test_where_the_law_holds_nothing_is_left_open_and_nothing_follows(fault):
    """Both laws judge what becomes of a run: the file has the evidence, and the mended model none."""
    example = departure.without_fault(found(fault))
    seen = run_again(example)
    assert (seen.gone, seen.here.message, seen.here.values) == (True, "", ())
    assert seen.film is not None
    assert (seen.film.follows, len(seen.film.moments)) == (None, len(example.actions))
    said = every_form(example)
    assert "Left open" not in said
    assert "left open" not in said
    assert "What follows" not in said
    assert "Why nothing shorter" not in said
    assert "Why earlier checking" not in said
    # The evidence of the file is told as the file's.
    assert f"The file says, at {lines.place(example)}: {example.message}; " in seen.notes[1]


def test_a_fault_that_changes_nothing_is_not_said_to_show_in_what_a_law_works_out():
    example = evolve(found("M-LRU-1"), fault="M-HO-3")
    said = every_form(example)
    assert "Every answer and every world of this run is the same without the fault." in said
    assert "works out for itself" not in said


@pytest.mark.parametrize(
    "claimed",
    [
        (("obligation", "finished requests"), ("left", (0,)), ("way", 5), ("cycle", 3)),
        (("obligation", "finished requests"), ("left", (0,)), ("way", 8), ("cycle", 0)),
        (("obligation", "finished requests"), ("left", (0,)), ("way", 99), ("cycle", 0)),
        (("obligation", "finished requests"), ("left", (0,)), ("way", -1), ("cycle", 9)),
        (("obligation", "no such thing"), ("way", 2), ("cycle", 3)),
        (("cycle", 3),),
    ],
)
@pytest.mark.parametrize("fault", ["", "M-LEAK-3"])
def test_a_cycle_that_a_file_claims_is_judged(claimed, fault):
    """The run of M-LEAK-3 goes on: it is no cycle, and what it leaves open is found by the law on its end, with the fault."""
    example = evolve(found("M-LEAK-3"), fault=fault, values=claimed)
    seen = run_again(example)
    assert seen.state is (State.BREAKS if fault else State.HOLDS)
    assert "cycle" not in dict(seen.here.values)
    said = every_form(example)
    assert "can go on for ever" not in said
    assert "from here on in a cycle" not in said
    assert "Traceback" not in said
    assert ("Left open" in said) is bool(fault)


def test_a_claimed_cycle_of_another_law_or_of_an_implementation_is_none():
    values = (("obligation", "stores"), ("way", 2), ("cycle", 3))
    other = evolve(found("M-LRU-1"), values=values)
    assert run_again(other).here == found("M-LRU-1")
    shown = counterexample.Implementation("mine", tuple(counterexample.Shown(None) for _ in other.actions))
    mine = evolve(found("M-LEAK-3"), values=values, implementation=shown)
    assert "from here on in a cycle" not in every_form(mine)
    assert "can go on for ever" not in every_form(mine)


def test_sizes_of_a_file_that_its_settings_do_not_come_to_are_told():
    example = found("M-LRU-1")
    assert example.geometry is not None
    wrong = evolve(example, geometry=evolve(example.geometry, scheduler_block_size=99))
    seen = run_again(wrong)
    assert seen.notes == ("The file has other sizes than its settings come to: scheduler_block_size 99, here 2.",)
    assert seen.here == example
    assert "S = 99" not in every_form(wrong)


def test_a_law_in_other_words_is_told():
    example = evolve(found("M-LRU-1"), sentence="The queue is a circle.")
    seen = run_again(example)
    assert seen.notes == ("The file has the law in other words: The queue is a circle.",)
    assert seen.here == found("M-LRU-1")


@pytest.mark.parametrize("changes", [{"law": "XX-1"}, {"fault": "M-NONE-1"}])
def test_of_what_cannot_be_judged_every_form_says_so_and_no_more(changes):
    example = evolve(found("M-LRU-1"), **changes)
    seen = run_again(example)
    assert seen.head == f"{example.law} cannot be judged here"
    pages = [forms.render(form, example, None, seen) for form in PAGES if form != "svg"]
    for text in pages:
        assert seen.head in text
        assert "Why nothing shorter" not in text
        assert "does not hold" not in text
    if "fault" in changes:
        with pytest.raises(films.NoWorld, match="M-NONE-1"):
            forms.render("svg", example, None, seen)


def test_blocks_that_an_implementation_named_are_none_of_the_model():
    """Its evidence names block 1 by its own numbers; the model's block 1 may be another one."""
    shown = counterexample.Implementation("mine", tuple(counterexample.Shown(None) for _ in found("M-HO-3").actions))
    example = evolve(found("M-HO-3"), values=(("block", 1),), implementation=shown, fault="")
    film = run_again(example).film
    assert film is not None
    assert "block" not in lineage.in_question(example, film).values()
    assert ("device", 1) in lineage.in_question(evolve(example, implementation=None), film)


def with_implementation(example: Counterexample, **changes: Any) -> Counterexample:
    """Return a counterexample as if an implementation had broken the law, without a planted fault."""
    shown = counterexample.Implementation("mine", tuple(counterexample.Shown(None) for _ in example.actions))
    return evolve(example, implementation=shown, **{"fault": "", **changes})


def test_whether_an_action_is_legal_is_said_of_the_worlds_of_the_file():
    """Without the fault an earlier answer is another one, so that the refusal behind it may be the right answer."""
    example = found("M-LRU-1")
    actions = (*example.actions[:-1], act.Allocate(0, new_tokens=1))
    claimed = evolve(example, law="LV-9", fault="", actions=actions, position=len(actions) - 1, legal=True)
    assert check.replay(claimed).violation is not None
    for at, outcome in enumerate(claimed.outcomes[:-1]):
        other = evolve(outcome, record=None, code="another", message="refused then")
        outcomes = (*claimed.outcomes[:at], other, *claimed.outcomes[at + 1 :])
        seen = run_again(evolve(claimed, outcomes=outcomes))
        assert seen.state is State.UNJUDGED
        assert f"and action {at} (" in seen.notes[0]
        assert f"Action {at}, " in " ".join(seen.notes)


@pytest.mark.parametrize(("legal", "law"), [(True, "LV-9"), (False, "GUARD")])
def test_a_failure_inside_is_wrong_in_every_world(legal, law, monkeypatch):
    example = evolve(found("M-LRU-1"), law=law, fault="", legal=legal)
    outcomes = (*example.outcomes[:2], evolve(example.outcomes[2], record=None, code="another"), *example.outcomes[3:])
    attempt = judge.attempt

    def failing(world, action):
        done = attempt(world, action)
        if not isinstance(action, act.Finish):
            return done
        return evolve(done, record=None, refusal=ContractBroken("crashed"), after=world)

    monkeypatch.setattr(judge, "attempt", failing)
    violation = counterexample.replay(evolve(example, outcomes=outcomes), laws.ALL).violation
    assert violation is not None
    assert (violation.law, violation.position) == (law, 7)


def test_a_law_that_breaks_before_the_place_of_the_file_is_seen_there():
    """The same queue is wrong behind the last action and behind one more: the first one is told."""
    example = found("M-HIT-1")
    last, outcome = example.actions[-1], example.outcomes[-1]
    longer = evolve(
        example, actions=(*example.actions, last), outcomes=(*example.outcomes, outcome), position=example.position + 1
    )
    seen = run_again(longer)
    assert seen.here.position == example.position
    assert seen.notes[0].startswith(f"{example.law} breaks at action {example.position} here, and not at action")
    assert "no run of less than" not in forms.render("reviewer", longer, None, seen)
    assert "no run of less than" in forms.render("reviewer", example)


def test_a_law_that_breaks_where_there_is_no_world_to_show_breaks_all_the_same(monkeypatch):
    def nothing(example, **asked):
        raise MemoryError("too much")

    monkeypatch.setattr(films, "shoot", nothing)
    seen = run_again(found("M-LRU-1"))
    assert (seen.state, seen.film) == (State.BREAKS, None)
    assert seen.notes == (
        f"There is no world to show: it is beyond what can be judged (MemoryError: too much{seen.why.partition('too much')[2]}.",
    )
    text = forms.render("reviewer", found("M-LRU-1"), None, seen)
    assert "Nothing but this configuration" not in text


def test_numbers_beyond_the_key_of_a_world_are_folded_no_further():
    example = found("M-GEO-1")
    seen = run_again(evolve(example, settings=evolve(example.settings, num_blocks=1 << 16)))
    assert seen.state is State.BREAKS
    assert seen.film is not None
    assert seen.film.follows is not None


@pytest.mark.parametrize(
    ("law", "instead"),
    [("LV-5", "What breaks instead is LV-4, without regard to one action: a finished request is never forgotten")],
)
def test_a_law_on_the_run_as_a_whole_may_break_instead(law, instead):
    assert run_again(evolve(found("M-LEAK-3"), law=law)).notes[-1].startswith(instead)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"law": "ZZ-1"}, "no law 'ZZ-1'"),
        ({"fault": "M-NONE-1"}, "no fault 'M-NONE-1'"),
        ({"settings": evolve(found("M-LRU-1").settings, num_blocks=0)}, "the configuration is refused"),
        ({"settings": evolve(found("M-LRU-1").settings, num_blocks=1 << 20)}, "too large"),
    ],
)
def test_an_implementation_is_not_judged_where_the_model_cannot_run_beside_it(changes, said):
    example = with_implementation(found("M-LRU-1"), **changes)
    seen = run_again(example)
    assert seen.state is State.UNJUDGED
    assert said in seen.notes[0]
    assert seen.head.endswith("cannot be judged here")
    assert "It breaks at" not in forms.render("reviewer", example, None, seen)


def test_replaying_what_an_implementation_broke_claims_nothing_of_the_model(tmp_path, capsys):
    file = tmp_path / "mine.json"
    file.write_text(counterexample.dumps(with_implementation(found("M-LRU-1"), fault="M-LRU-1")))
    assert cli.main(["report", str(file)]) == 0
    assert cli.main(["report", str(file), "--replay"]) == 3
    said = capsys.readouterr().out
    assert "mine broke PC-8, and only its adapter can show that again: check_all_laws(adapter, laws=['PC-8']" in said
    assert "holds on these" not in said
    assert cli.main(["report", str(file), "--replay", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["breaks_again"] is None


# --- all of them ----------------------------------------------------------------------------------------------------------


@pytest.mark.deep
@pytest.mark.parametrize("fault", kills.table())
def test_the_counterexample_of_every_fault_is_as_its_file_says(fault):
    """Read from its file it has no notes, and the test that is made of it passes without the fault."""
    example = counterexample.loads(counterexample.dumps(found(fault)))
    seen = run_again(example)
    assert (seen.state, seen.notes) == (State.BREAKS, ())
    assert seen.here == example
    assert check.replay(departure.without_fault(example)).violation is None
    assert len(forms.render("markdown", example, None, seen).splitlines()) < 60
    assert len(forms.render("html", example, None, seen).encode()) < 2_000_000
