"""What stands beside the numbers and the names on a page: fields of lists, legible text, marks that say what is so here."""

from __future__ import annotations

import io
from typing import Any
from xml.etree import ElementTree

import pytest
from attrs import evolve
from rich.console import Console

from kvproof.core import actions as act
from kvproof.core import config as configs
from kvproof.core.config import Offload
from kvproof.core.offload.state import Load, PendingHit
from kvproof.spec.engines.scope_parts import full
from kvproof.spec.report import candidates, forms, page, picture, reviewer, shapes, terminal, words
from kvproof.spec.report import film as films
from kvproof.spec.report.legible import legible
from kvproof.spec.report.names import Names
from kvproof.spec.report.rerun import run_again
from tests.spec.report.found import found, taken_at_its_word
from tests.spec.report.test_film import CLOSE, executed, shot
from tests.spec.report.test_forms import data_of, of_an_adapter
from tests.spec.report.test_rerun import gone

# --- fields of evidence -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("law", "name", "value", "said"),
    [
        ("HO-2", "handoffs", ((0, 1, 2, 2),), "each (request, group, block, boundary)"),
        ("HO-1", "expected", ((0, 1, 2, 2), (1, 1, 3, 4)), "each (request, group, block, boundary)"),
        ("HB-5", "primary", (2, 0), "(prefix, group)"),
        ("HB-6", "keys", ((2, 2),), "each (prefix, group)"),
        ("HB-7", "keys", ((2, 2, 5, 1),), "each (prefix, group, how many came before, block)"),
        ("PC-13", "keys", (("block", 1, 0, 1),), "each (where it stands, prefix, group, block)"),
        ("EV-5", "only_replayed", ((0, 1),), "each (group, prefix)"),
        ("CN-3", "actual", (4, 2), "(queries, hits)"),
        ("DS-4", "actual", ((0, 4, 2, 2),), "each (request, tokens, on each rank)"),
        ("LD-1", "expected", ((0, 3),), "each (column, host block)"),
        ("IP-4", "meta", ((2, 2),), "each (prefix, tokens)"),
        ("COW-7", "copies", ((1, 2, 9),), "each (group, source block, destination block)"),
        ("HO-5", "outcomes", (("stored", 4),), "each (what became of a handoff, how many)"),
        # A list of blocks is no row, and neither is a list of another length.
        ("PC-8", "expected", (4, 3, 2, 1), ""),
        ("PC-13", "keys", ((1, 0),), ""),
        ("HO-2", "handoffs", (), ""),
        ("PC-8", "expected", 4, ""),
    ],
)
def test_fields_of_lists_have_names(law, name, value, said):
    names = shapes.of(law, name, value)
    assert (shapes.said(names, value) if names else "") == said


def test_every_form_names_the_fields_of_evidence_and_its_prefixes():
    example = evolve(found("M-HO-3"), law="HB-6", values=(("keys", ((2, 0),)),))
    film = films.shoot(example)
    [(_, _, why)] = words.values(example, film)
    assert why == "each (prefix, group), prefix 2 is r0@2"
    seen = taken_at_its_word(example)
    assert why in page.render(example, seen=seen)
    assert why in reviewer.render(example, seen=seen)
    assert "each (prefix, group)" in forms.render("markdown", example, seen=seen)
    out = io.StringIO()
    terminal.show(Console(file=out, width=200), example)
    assert "keys = ((2, 0),) (each (prefix, group))" in out.getvalue()
    # Prefixes of an implementation have numbers of their own.
    [(_, _, why)] = words.values(evolve(of_an_adapter(), law="HB-6", values=example.values), film)
    assert why == "each (prefix, group)"


# --- legible text -------------------------------------------------------------------------------------------------------

ODD = "a\x00b\x1b[31mc\x7f\x85\u2028\u202e\ufffe\r"


def test_control_characters_become_signs_and_nothing_else_changes():
    assert legible(ODD) == "a\u2400b\u241b[31mc\u2421\ufffd\ufffd\ufffd\ufffd\u240d"
    assert legible("a\n\tb é → ✗ ×2• 漢") == "a\n\tb é → ✗ ×2• 漢"


@pytest.mark.parametrize("form", [*forms.FORMS])
def test_no_form_has_a_control_character(form):
    example = evolve(found("M-LRU-1"), message=f"bad {ODD}", scope=ODD, values=(("actual", ODD),), sentence=ODD)
    text = forms.render(form, example)
    if form == "as-test":  # the counterexample in it is exact; JSON escapes what Python cannot read
        text = text.partition("EXAMPLE")[0]
        compile(forms.render(form, example), "test_pasted.py", "exec")
    assert text == legible(text)
    assert "a\u2400b" in text
    if form == "svg":
        ElementTree.fromstring(text)
    if form == "html":
        assert data_of(text)["frames"]


def test_a_terminal_gets_no_control_character():
    out = io.StringIO()
    example = evolve(found("M-LRU-1"), message=ODD, values=((ODD, ODD),), scope=ODD)
    terminal.show(Console(file=out, width=200), example, None, run_again(example))
    assert legible(out.getvalue()) == out.getvalue()
    assert "a\u2400b" in out.getvalue()


# --- marks --------------------------------------------------------------------------------------------------------------


def test_the_mark_says_that_the_law_does_not_break_here():
    text = page.render(gone())
    data = data_of(text)
    assert (data["mark"], data["wrong"]) == ("the file says that PC-8 breaks here: it does not", False)
    assert text.count("the file says that PC-8 breaks here: it does not") == 2
    assert "✗ breaks PC-8" not in text
    assert "<h1>PC-8 does not break here</h1>" in text
    assert "<title>PC-8 does not break here - kvproof</title>" in text
    assert "Jump to where the file has it" in text
    assert "Block 1 (changed by action 7):" in forms.render("reviewer", gone())
    assert "The column between thick lines is where the law breaks by the file, and does not break here." in text
    assert "The column between thick lines is where the law breaks." in page.render(found("M-LRU-1"))
    for form in ("markdown", "reviewer"):
        assert "**the file says that PC-8 breaks here: it does not**" in forms.render(form, gone())
        assert "the law breaks here**" not in forms.render(form, gone())
    assert 'class="v"' not in forms.render("svg", gone())
    assert 'class="v"' in forms.render("svg", found("M-LRU-1"))


def test_the_mark_says_where_the_law_breaks_if_that_is_elsewhere():
    example = evolve(found("M-LRU-1"), position=2)
    assert (run_again(example).mark, run_again(example).here.position) == ("✗ breaks PC-8", 7)
    unknown = evolve(found("M-LRU-1"), law="XX-1")
    assert "that cannot be judged" in run_again(unknown).mark


def test_the_terminal_shows_both_worlds_of_an_adapter_and_marks_the_action():
    out = io.StringIO()
    example = of_an_adapter()
    terminal.show(Console(file=out, width=400), example, None, run_again(example))
    text = out.getvalue()
    [heads] = [line for line in text.splitlines() if "mine showed" in line]
    assert heads.index("mine showed") < heads.index("the model answers")
    [row] = [line for line in text.splitlines() if "Allocate(" in line]
    assert row.index("requests.0.tables") < row.index("admitted True")
    [broken] = [line for line in text.splitlines() if "✗" in line]
    assert "Finish(0)  ✗ breaks PC-8" in broken


# --- the picture --------------------------------------------------------------------------------------------------------


def test_a_configuration_alone_is_shown_as_the_new_world():
    bare = evolve(found("M-LRU-1"), actions=(), outcomes=(), position=-1, fault="")
    assert "There are no actions. What the player" in page.render(bare)
    seen = taken_at_its_word(bare)
    text = page.render(bare, seen=seen)
    assert "There are no actions: the configuration alone breaks the law." in text
    data = data_of(text)
    assert (len(data["frames"]), data["violation"], data["actions"]) == (1, 0, 0)
    shown = [
        element.text for element in ElementTree.fromstring(picture.render(bare, seen)).iter() if element.tag.endswith("text")
    ]
    assert "start" in shown
    count = bare.settings.num_blocks - 1
    assert [one for one in shown if one and one.startswith("·")] == [f"·{place}" for place in range(count)]
    assert any("there is no action" in (one or "") for one in shown)


def test_the_title_of_a_picture_is_not_cut():
    example = evolve(found("M-LRU-1"), message="a word and " * 24 + "the end")
    root = ElementTree.fromstring(picture.render(example, taken_at_its_word(example)))
    heads = [element.text or "" for element in root if element.get("class") == "b" and element.get("x") == "8"]
    assert " ".join(heads).endswith("the end, at action 7, Finish(0)")
    assert len(heads) > 2
    assert all(len(one) * picture.LETTER <= int(root.get("width", "0")) for one in heads)
    # Blocks begin below the last line of the title.
    first = min(int(element.get("y", "0")) for element in root if element.tag.endswith("rect") and element.get("class") == "n")
    assert first > max(int(element.get("y", "0")) for element in root if element.text in heads)


def test_dashed_frames_are_what_the_legend_says_they_are_however_many():
    """Evidence that names more blocks than lives are told of: all of them have a frame."""
    example = evolve(found("M-HO-3"), values=(("blocks", (1, 2, 3, 4, 5, 6, 7, 8)),))
    film = films.shoot(example)
    count = len(film.frames[-1].device)
    named = [f"d{block}" for block in range(1, min(count, 8) + 1)]
    text = page.render(example, seen=taken_at_its_word(example))
    assert data_of(text)["named"] == named
    assert picture.render(example, taken_at_its_word(example)).count('class="n"') == len(named)
    assert "a block in question, which the evidence names" in text
    small = evolve(found("M-GEO-1"), values=(("blocks", (1, 2, 3, 4, 5, 6, 7, 8)),))
    assert "The first 6 of 8 blocks in question." in page.render(small, seen=taken_at_its_word(small))


def test_what_a_cell_says_is_made_once():
    """The player has no rule of its own for what stands in a cell: it comes with the data, but for the place in the queue."""
    data = data_of(page.render(found("M-HO-3")))
    film = films.shoot(found("M-HO-3"))
    state: dict[str, Any] = {}
    for frame, shown in zip(film.frames, data["frames"], strict=True):
        state |= shown["blocks"]
        for block in frame.blocks():
            mine = state[f"{block.tier[0]}{block.block}"]["glyph"]
            assert mine.replace("#", str(block.place)) == block.glyph


# --- names --------------------------------------------------------------------------------------------------------------


def test_loads_and_hits_keep_the_name_of_their_request():
    """A load outlives its request; the number comes again, and the load is still that of the first one."""
    config = configs.configure((full(1),), max_model_len=4, num_blocks=5, max_running=1, offload=Offload(num_blocks=4))
    film = shot(config, act.Submit(0, (7, 8)))
    world = film.worlds[-1]
    load, hit = Load(0, (1,), (1,)), PendingHit(0, 0, 1, ((2,),))
    names = Names.behind(film.moments)
    held = evolve(world, host=evolve(world.host, loads=(load,), pending=(hit,)))
    names.learn(held)
    names.submitted[0] += 1
    later = evolve(held, host=evolve(held.host, loads=(), abandoned_loads=(load,)))
    names.learn(later)
    assert (names.request(0), names.of(load), names.of(hit)) == ("r0.2", "r0", "r0")
    said = [pin for block in films.frame_of(later, 0, names).blocks() for pin in block.pins]
    assert said == ["abandoned load of r0", "abandoned load of r0", "hit of r0"]
    names.learn(evolve(later, host=evolve(later.host, abandoned_loads=(), pending=())))
    assert names.of(load) == "r0.2"


def test_another_group_is_told_in_words_of_this_run():
    """What keeps the other group from a boundary is told of keys: there is no first prompt here."""
    from kvproof.spec.engines.scope_parts import mamba

    config = configs.configure((full(2), mamba(2)), max_model_len=8, num_blocks=12, max_running=1)
    prompt = (7, 8, 9, 7, 8, 9)
    run = [act.Submit(0, prompt), act.BeginStep(), act.Lookup(0), act.Allocate(0, 4), *CLOSE, *executed(config)]
    run += [act.Output(0, ()), act.Finish(0)]
    [state] = [
        block.block for block in shot(config, *run).frames[-1].device if any(claim.text == "g1 r0@4" for claim in block.claims)
    ]
    run += [act.EvictBlocks((state,)), act.Submit(0, prompt), act.BeginStep(), act.Lookup(0)]
    film = shot(config, *run)
    example = evolve(found("M-LRU-1"), actions=tuple(run), position=len(run) - 1)
    lookup = candidates.last_lookup(example, film)
    assert lookup is not None
    texts = {(each.kind, one.boundary): (one.rule, one.text) for each in lookup.classes for one in each.candidates}
    rule, text = texts["full_attention", 4]
    assert rule in ("other group", "connector")
    assert text == f"g1: evicted, no key: it went at action {run.index(act.EvictBlocks((state,)))}"
    assert not any("prompt" in text for _, text in texts.values()), texts
