"""A counterexample that shows here something else than its file says: every form says so first, and the exit status does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.spec import check, cli, counterexample
from kvproof.spec.counterexample import Counterexample
from kvproof.spec.exploring import jobs, scopes
from kvproof.spec.exploring.jobs import Asked, Job
from kvproof.spec.report import files, forms, standing
from kvproof.spec.report import film as films
from tests.spec.report.found import FAULTS, found

GONE = "PC-8 holds on these 8 actions"


def gone() -> Counterexample:
    """A counterexample whose fault has been mended: the file still has it, the model does it right."""
    return evolve(found("M-LRU-1"), fault="")


@pytest.mark.parametrize("fault", FAULTS)
def test_what_breaks_as_its_file_says_has_no_notes(fault):
    seen = standing.look(found(fault))
    assert (seen.again, seen.gone, seen.notes) == (True, False, ())
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
    notes = standing.look(evolve(example, actions=actions)).notes
    assert notes[0].startswith("PC-8 holds on these 8 actions")
    assert notes[1].startswith("Action 3, Allocate(9, ")
    assert "is refused here (" in notes[1]
    assert "and was done when the file was written" in notes[1]
    assert "later answer" in notes[1]


def test_a_law_that_breaks_instead_is_named():
    example = evolve(found("M-LRU-1"), law="PC-1")
    assert standing.look(example).notes[-1].startswith("What breaks instead is PC-8, at action 7: the free queue is not in")


def test_a_law_that_breaks_elsewhere_is_seen_and_the_place_is_named():
    example = evolve(found("M-LRU-1"), position=2)
    seen = standing.look(example)
    assert seen.again
    assert seen.notes == ("PC-8 breaks at action 7 here, and not at action 2, Lookup(0), as the file says.",)
    assert "Not as the file says" in forms.render("markdown", example)


def test_an_answer_that_is_another_one_is_named():
    example = found("M-LRU-1")
    [at] = [at for at, one in enumerate(example.actions) if isinstance(one, act.Allocate)]
    record = example.outcomes[at].record
    assert record is not None
    outcomes = list(example.outcomes)
    outcomes[at] = evolve(outcomes[at], record=evolve(record, demand=99))
    seen = standing.look(evolve(example, outcomes=tuple(outcomes)))
    assert seen.again
    assert seen.notes[0].startswith(
        "Action 3, Allocate(0, new_tokens=1, external=2), answers otherwise than the file has it: here"
    )


@pytest.mark.parametrize("changes", [{"law": "XX-1"}, {"fault": "M-NONE-1"}])
def test_what_cannot_be_judged_is_not_seen(changes):
    seen = standing.look(evolve(found("M-LRU-1"), **changes))
    assert seen.gone
    assert next(iter(changes.values())) in seen.notes[0]
    assert seen.error is not None


@pytest.mark.parametrize("law", ["PC-8", "LV-8"])
def test_numbers_that_no_law_reckons_with_are_no_crash(law):
    actions = tuple(evolve(one, new_tokens=1 << 70) if isinstance(one, act.Allocate) else one for one in gone().actions)
    seen = standing.look(evolve(gone(), law=law, actions=actions))
    assert seen.gone
    assert seen.notes


def test_of_an_implementation_the_model_alone_can_tell_nothing():
    adapter = counterexample.Implementation("mine", tuple(counterexample.Shown(None) for _ in found("M-LRU-1").actions))
    example = evolve(gone(), implementation=adapter)
    seen = standing.look(example)
    assert (seen.again, seen.gone) == (None, False)
    # The fault changed what the model answered to the last action no further than its queue, which is in no record.
    assert seen.notes == ()
    other = evolve(example, actions=(*example.actions[:-1], act.Finish(9)))
    assert "are not those that were compared" in standing.look(other).notes[-1]


def test_a_configuration_that_a_fault_refuses_is_seen_again(tmp_path, capsys):
    """HB-1 alone has no world: the fault refuses a legal configuration, and does so again."""
    example = refused()
    seen = standing.look(example)
    assert (seen.again, seen.notes, seen.film) == (True, (), None)
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

    def counting(example):
        shots.append(example.law)
        return shoot(example)

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
    return evolve(example, settings=evolve(example.settings, hash_block_size=2))
