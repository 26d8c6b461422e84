"""Of long runs and large pools a part is shown, and the page says what is left out."""

from __future__ import annotations

import re

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.spec import counterexample, faults
from kvproof.spec.judge import Violation
from kvproof.spec.laws.base import Evidence
from kvproof.spec.report import film as films
from kvproof.spec.report import forms, lineage, page, picture, window
from tests.spec.report.found import found, taken_at_its_word
from tests.spec.report.test_forms import data_of, longer_than


def large(count, blocks):
    """M-LRU-1 behind so many idle actions, in a pool of so many blocks."""
    example = found("M-LRU-1")
    config = evolve(example.settings, num_blocks=blocks).config(example.profile)
    idle = (act.BeginStep(), act.Drain(), act.BuildMetadata(), act.Dispatch(), *map(act.Execute, config.parts))
    actions = (*(idle * (count // len(idle))), *example.actions)
    violation = Violation(example.law, len(actions) - 1, Evidence(example.message, example.values))
    with faults.planted(faults.by_id("M-LRU-1")):
        return counterexample.build(
            config, actions, violation, example.sentence, legal=True, engine=example.engine, seed=0, scope="", fault="M-LRU-1"
        )


@pytest.fixture(scope="module")
def huge():
    return large(1200, 1600)


def test_a_page_of_a_long_run_in_a_large_pool_is_small_and_says_what_is_left_out(huge):
    text = page.render(huge)
    assert len(text.encode()) < 700_000
    data = data_of(text)
    assert len(data["frames"]) == window.FRAMES
    assert len(data["order"]) == window.CELLS // window.FRAMES
    first = len(huge.actions) - window.FRAMES + 1
    assert data["first"] == first
    said = re.search(r'id="left-out">(.*?)</p>', text)
    assert said is not None
    left = 1599 - len(data["order"])
    assert said[1].startswith(
        f"Left out, so that the page stays small: the {first:,} worlds before action {first - 1}; {left:,} of 1,599 blocks"
    )
    # The violation is there, and so are the blocks that it is about.
    assert data["frames"][data["violation"]]["action"] == "Finish(0)"
    assert {"d1", "d2", "d3"} <= set(data["order"])
    assert text == page.render(huge)


def test_the_queue_of_a_large_pool_is_listed_in_part_and_places_are_right(huge):
    film = films.shoot(huge)
    data = data_of(page.render(huge))
    last = data["frames"][-1]
    assert (len(last["free"]), last["count"]) == (page.MOST_FREE, 1599)
    places = {f"d{block}": place for place, block in enumerate(last["free"])} | last["far"]
    shown = {f"d{block.block}": block.place for block in film.frames[-1].device}
    assert {name: places[name] for name in shown} == shown
    assert any(place is not None and place >= page.MOST_FREE for place in shown.values())


def test_a_small_run_is_shown_whole():
    film = films.shoot(found("M-HO-3"))
    assert film.window.said == ""
    assert len(film.frames) == len(found("M-HO-3").actions) + 1
    assert "left-out" not in page.render(found("M-HO-3"))


def test_what_lies_behind_the_violation_is_cut_too():
    example = evolve(longer_than(300), position=20)
    film = films.shoot(example)
    assert (film.window.first, film.window.last) == (0, 21 + window.BEHIND)
    behind = len(example.actions) - film.window.last
    assert f"the {behind} actions behind action {film.window.last - 1}" in film.window.said


def test_a_block_that_the_evidence_names_is_shown_however_many_there_are(huge):
    example = evolve(huge, values=(("block", 1234),))
    film = films.shoot(example)
    assert ("device", 1234) in film.window.rows
    assert lineage.lives(example, film)[0].name == "1234"
    assert ">1234</text>" in picture.render(example, taken_at_its_word(example))


def test_a_page_whose_worlds_hold_too_much_shows_fewer_of_them(monkeypatch):
    example = longer_than(200)
    whole = data_of(page.render(example))
    monkeypatch.setattr(page, "MOST_BYTES", 20_000)
    text = page.render(example)
    data = data_of(text)
    assert films.FEW < len(data["frames"]) < len(whole["frames"])
    assert data["frames"][data["violation"]]["action"] == "Finish(0)"
    assert 'id="left-out"' in text
    # What changed first is the whole state again.
    assert set(data["frames"][0]["blocks"]) == set(data["order"])
    monkeypatch.setattr(page, "MOST_BYTES", 0)
    assert len(data_of(page.render(example))["frames"]) == films.FEW + 1


@pytest.mark.parametrize("form", forms.FORMS)
def test_every_form_of_a_long_run_has_a_bound(huge, form):
    assert len(forms.render(form, huge).encode()) < 700_000


def test_a_film_says_which_blocks_changed():
    """What the window goes by are the changes that the frames show."""
    film = films.shoot(found("M-HO-3"))
    worlds = film.worlds
    for number in range(1, len(worlds)):
        shown = [row for row in lineage.touched(film, number) if not _only_pins(film, number, row)]
        assert set(shown) <= set(window.changed(worlds[number - 1], worlds[number]))


def _only_pins(film, number, row):
    one, two = film.frame(number - 1).of(*row), film.frame(number).of(*row)
    return evolve(one, pins=(), place=None) == evolve(two, pins=(), place=None)
