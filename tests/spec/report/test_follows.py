"""What follows the last action of a run whose end or whole is judged, and where a run departs from one without the fault."""

from __future__ import annotations

import io

import pytest
from attrs import evolve
from rich.console import Console

from kvproof.core import actions as act
from kvproof.core.config import SOUND
from kvproof.spec import counterexample
from kvproof.spec.exploring import liveness
from kvproof.spec.report import around, as_test, departure, follows, forms, further, lineage, page, terminal
from kvproof.spec.report import film as films
from kvproof.spec.report.rerun import run_again
from tests.spec.report.found import found
from tests.spec.report.test_forms import data_of

LEFT = {
    "M-LEAK-1": ("LV-2", "block 1 has 1 reference, and nothing is there that holds it"),
    "M-LEAK-3": ("LV-4", "the store side still knows r0, which has finished"),
    "M-GEO-1": ("LV-5", "no host block has the key g2 r0@1 of r0"),
    "M-TAIL-5": ("LV-6", "the prompt that is sent again hits 0 tokens on the host; 2 tokens are promised"),
}


@pytest.mark.parametrize(("fault", "law", "left"), [(fault, *said) for fault, said in LEFT.items()], ids=list(LEFT))
def test_every_form_shows_what_follows_and_what_is_left_open(fault, law, left):
    example = found(fault)
    assert (example.law, example.position) == (law, -1)
    seen = run_again(example)
    film = seen.film
    assert film is not None
    assert film.follows is not None
    assert film.follows.left[0] == left
    for form in ("html", "markdown", "reviewer", "svg"):
        text = " ".join(forms.render(form, example, None, seen).split())
        assert left in text, form
    assert "+1" in forms.render("svg", example, None, seen)
    for form in ("markdown", "reviewer"):
        text = forms.render(form, example, None, seen)
        assert "RunStore(" in text.partition("What follows")[2]
    assert len(forms.render("markdown", example, None, seen).splitlines()) < 60


def test_the_player_goes_on_to_the_world_in_which_something_is_left_open():
    example = found("M-LEAK-3")
    data = data_of(page.render(example))
    last = data["frames"][-1]
    assert (last["label"], last["follows"], data["violation"]) == (f"+{data['following']}", True, len(data["frames"]) - 1)
    assert (data["actions"], data["left"]) == (len(example.actions), [LEFT["M-LEAK-3"][1]])
    assert [frame["follows"] for frame in data["frames"]].index(True) == len(example.actions) + 1
    # Every action that the law's judgement does is there, the last one that which did not end it.
    assert data["frames"][len(example.actions) + 1]["action"] == "Execute('zero')"
    assert last["action"] == "CompleteStore(1)"


def test_the_lives_of_blocks_go_on_behind_the_last_action():
    example = found("M-LEAK-1")
    film = films.shoot(example)
    life = lineage.life(film, "device", 1)
    assert life.events[-1].position >= film.told
    assert f'data-go="{life.events[-1].position}">{film.label(life.events[-1].position)}</button>' in page.render(example)


def test_what_follows_is_what_the_law_does_and_not_told_anew():
    """LV-6 resets the cache and sends the prompt of its evidence again."""
    film = films.shoot(found("M-TAIL-5"))
    assert film.follows is not None
    done = film.follows.actions
    assert [type(action) for action in done[-5:]] == [act.ResetCache, act.Submit, act.BeginStep, act.Lookup, act.LookupExternal]
    prompt = dict(found("M-TAIL-5").values)["prompt"]
    assert next(action.tokens for action in done if isinstance(action, act.Submit)) == prompt


def test_of_empty_steps_that_change_nothing_one_is_kept():
    film = films.shoot(found("M-LEAK-3"))
    step = [moment for moment in film.moments if isinstance(moment.action, act.BeginStep)][-1]
    again = evolve(step, after=step.before)
    moments, repeated = follows._folded([again] * 9)
    assert (len(moments), repeated) == (2, 7)
    assert follows._folded([]) == ((), 0)


def test_a_law_that_judges_one_action_has_nothing_that_follows():
    film = films.shoot(found("M-LRU-1"))
    assert film.follows is None
    assert further.sentence(found("M-LRU-1"), film) == ""
    assert "What follows" not in forms.render("reviewer", found("M-LRU-1"))


@pytest.mark.parametrize(("cycle", "said"), [(3, "can go on for ever"), (0, "nothing that has to happen can")])
def test_of_a_lasso_nothing_follows_and_what_is_open_is_told(cycle, said):
    """The actions of M-LEAK-3 to their end: there the store side knows a request that is gone."""
    example = found("M-LEAK-3")
    film = films.shoot(example)
    actions = tuple(moment.action for moment in film.moments)
    values = (("obligation", "finished requests"), ("left", (0,)), ("way", len(actions) - cycle), ("cycle", cycle))
    lasso = evolve(example, actions=actions, outcomes=tuple(map(counterexample.outcome_of, film.moments)), values=values)
    assert lasso.law in liveness.LAWS
    shown = films.shoot(lasso)
    assert shown.follows is not None
    assert (shown.follows.moments, shown.follows.left) == ((), (LEFT["M-LEAK-3"][1],))
    assert said in further.sentence(lasso, shown)


def test_the_terminal_says_what_follows_and_what_is_left_open():
    out = io.StringIO()
    terminal.show(Console(file=out, width=200), found("M-LEAK-3"), None, run_again(found("M-LEAK-3")))
    text = out.getvalue()
    assert "left open: the store side still knows r0, which has finished" in text
    assert "departs from one without the fault at action +10, CompleteStore(0)" in text


# --- without the fault --------------------------------------------------------------------------------------------------


def test_where_a_run_departs_is_told_although_the_law_breaks_later():
    """M-LRU-1 acts at the last action; idle steps behind it that break nothing move no departure."""
    example = found("M-LRU-1")
    longer = evolve(
        example,
        actions=(*example.actions, act.Submit(5, (1, 2))),
        outcomes=(*example.outcomes, example.outcomes[0]),
        position=len(example.actions),
    )
    film = films.shoot(longer)
    assert film.sound is not None
    assert film.sound.position == example.position
    told = around.departed(longer, film)
    assert told is not None
    assert told.text.startswith("This run departs from one without the fault at action 7, ")
    assert "free queue" in [name for name, _, _ in told.rows]
    # The state beside the broken one is that of the sound run, and not what the sound model makes of the faulty world.
    rows = {name: values for name, *values in around.around(longer, film).rows}
    assert rows["free queue"][1] == "as before"
    assert rows["free queue"][2] not in ("as before", rows["free queue"][0])


@pytest.mark.parametrize("fault", ["M-LEAK-3", "M-TAIL-5"])
def test_run_laws_and_faults_of_the_profile_have_a_column_without_the_fault(fault):
    example = found(fault)
    film = films.shoot(example)
    assert around.around(example, film).heads[1:] == (
        "when the run ends",
        "after what follows",
        "after what follows, without the fault",
    )
    told = around.departed(example, film)
    assert told is not None
    assert told.rows
    assert "without the fault" in page.render(example)


def test_where_there_is_nothing_to_compare_with_it_is_said_why():
    example = found("M-LRU-1")
    tensors = evolve(example, engine=counterexample.TENSORS, fault="D-1")
    told = around.departed(tensors, films.shoot(tensors))
    assert told is not None
    assert "Nothing is planted in the model for what the tensors broke" in told.text
    alone = evolve(example, actions=(), outcomes=(), position=-1)
    told = around.departed(alone, films.shoot(alone))
    assert told is not None
    assert "the new world is the same one" in told.text


def test_a_fault_that_changes_nothing_here_is_said_to_show_nowhere():
    """M-LRU-1 without the action at which it acts."""
    example = found("M-LRU-1")
    shorter = evolve(example, actions=example.actions[:-1], outcomes=example.outcomes[:-1], position=6)
    film = films.shoot(shorter)
    assert film.sound is not None
    assert film.sound.position is None
    told = around.departed(shorter, film)
    assert told is not None
    assert "is the same without the fault" in told.text


def test_another_configuration_is_named():
    """M-GEO-6 takes a replicated group for a sharded one: no action is needed to see it."""
    example = found("M-GEO-6")
    film = films.shoot(example)
    assert film.sound is not None
    assert film.sound.position == departure.CONFIGURATION
    told = around.departed(example, film)
    assert told is not None
    assert told.rows == (("sizes", "(4, 4, 2, 4)", "(2, 4, 2, 4)"),)


def test_the_blocks_in_question_of_a_run_law_are_those_where_the_run_departs():
    """The last action may be far behind what is wrong, and change blocks of which nothing is wrong."""
    example = found("M-LEAK-3")
    film = films.shoot(example)
    assert film.sound is not None
    assert film.sound.position is not None
    lives = lineage.in_question(example, film)
    assert list(lives) == lineage.touched(film, film.sound.position + 1)
    assert set(lives.values()) == {"changed where the run departs from one without the fault"}
    assert set(lives) != set(lineage.touched(film, film.broken))


def test_accepted_tokens_stand_under_their_name():
    """They are all in which a run with M-LATE-3 departs, and no path of the model's fields (T36.5)."""
    example = found("M-LATE-3")
    departed = around.departed(example, films.shoot(example))
    assert departed is not None
    (row,) = departed.rows
    assert row[0].endswith("tokens of its last step that the worker counts as accepted")
    assert row[1:] == ("1", "2")


def test_a_fault_that_writes_the_profile_itself_is_taken_out_of_it():
    """M-MAM-5 replaces what resolves a configuration, and its counterexample keeps the field that it sets there."""
    example = found("M-MAM-5")
    mended = departure.without_fault(example)
    assert example.profile != SOUND
    assert (mended.fault, mended.profile) == ("", SOUND)
    film = films.shoot(example)
    assert film.sound is not None
    assert film.sound.position == 3
    assert run_again(mended).violation is None
    assert "Without the fault it passes." in as_test.render(example, run_again(example))


def test_worlds_that_are_equal_have_no_difference():
    """With M-CTX-1 an answer departs, and no world."""
    departed = around.departed(found("M-CTX-1"), films.shoot(found("M-CTX-1")))
    assert departed is not None
    assert "the answer is another one" in departed.text
    assert not departed.rows


def test_evidence_that_is_not_found_is_told():
    example = found("M-HO-3")
    assert not run_again(example).notes
    other = evolve(example, values=(*example.values[:-1], (example.values[-1][0], 99)))
    (note,) = run_again(other).notes
    assert note.startswith(f"The file has other evidence: {example.message}; ")
    assert note.endswith("= 99.")
    assert run_again(other).here == example
