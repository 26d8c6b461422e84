"""The forms of a counterexample: what stands in each, that it is the same every time, and that nothing is fetched."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any
from xml.etree import ElementTree

import attrs
import pytest
from attrs import evolve
from markupsafe import escape

from kvproof.core import actions as act
from kvproof.core.execute import PARTS
from kvproof.core.records import Record
from kvproof.spec import check, cli, counterexample, faults, laws
from kvproof.spec.judge import Violation
from kvproof.spec.laws.base import Evidence
from kvproof.spec.report import (
    around,
    as_test,
    candidates,
    departure,
    fields,
    forms,
    lineage,
    page,
    picture,
    reviewer,
    words,
)
from kvproof.spec.report import film as films
from kvproof.spec.report.forms import FORMS
from kvproof.spec.report.rerun import run_again
from tests.spec.report.found import FAULTS, found, taken_at_its_word


def data_of(text):
    """Return what a page embeds for its player."""
    inside = re.search(r'<script type="application/json" id="film-data">(.*?)</script>', text, re.DOTALL)
    assert inside is not None
    return json.loads(inside[1])


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("form", FORMS)
def test_the_same_counterexample_gives_the_same_text(fault, form):
    example = found(fault)
    text = forms.render(form, example, "found.json")
    assert text == forms.render(form, counterexample.loads(counterexample.dumps(example)), "found.json")
    assert example.law in text
    assert text.endswith("\n")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_page_needs_nothing_but_itself(fault):
    text = page.render(found(fault), "found.json")
    assert len(text.encode()) < 200_000
    assert not re.findall(r"(?:src|href)\s*=|url\(|@import|https?://", text)
    assert "default-src 'none'" in text


@pytest.mark.parametrize("fault", FAULTS)
def test_the_player_has_every_frame_and_the_one_that_breaks_the_law(fault):
    example = found(fault)
    data = data_of(page.render(example, "found.json"))
    film = films.shoot(example)
    following = 0 if film.follows is None else len(film.follows.moments)
    assert (following > 0) is (fault == "M-GEO-1")
    assert len(data["frames"]) == len(example.actions) + following + 1
    assert [frame["position"] for frame in data["frames"]] == list(range(-1, len(example.actions) + following))
    assert data["violation"] == (example.position + 1 if example.position >= 0 else len(example.actions) + following)
    state: dict[str, Any] = {}
    for number, frame in enumerate(data["frames"]):
        state |= frame["blocks"]
        assert {name: one["refs"] for name, one in state.items()} == {
            f"{block.tier[0]}{block.block}": block.refs for block in film.frames[number].blocks()
        }
    assert data["order"] == list(state)


def test_what_stands_in_a_counterexample_cannot_leave_its_place():
    example = evolve(found("M-LRU-1"), message="</script><script>alert(1)</script>", scope="<b>&amp;")
    text = page.render(example, None)
    assert "<script>alert" not in text
    assert text.count("</script>") == 2
    for form in ("markdown", "reviewer", "svg"):
        assert forms.render(form, example, None)
    ElementTree.fromstring(picture.render(example))


def longer_than(count):
    """A counterexample of more actions: empty steps before the ones that matter."""
    example = found("M-LRU-1")
    config = example.settings.config(example.profile)
    idle = (act.BeginStep(), act.Drain(), act.BuildMetadata(), act.Dispatch(), *map(act.Execute, config.parts))
    actions = (*(idle * (count // len(idle) + 1)), *example.actions)
    assert len(actions) > count
    violation = Violation(example.law, len(actions) - 1, Evidence(example.message, example.values))
    with faults.planted(faults.by_id("M-LRU-1")):
        return counterexample.build(
            config,
            actions,
            violation,
            example.sentence,
            legal=True,
            engine=example.engine,
            seed=0,
            scope=example.scope,
            fault="M-LRU-1",
        )


def test_a_long_counterexample_stays_small():
    assert len(page.render(longer_than(200), None).encode()) < 1_000_000


# --- what it says -----------------------------------------------------------------------------------------------------


def test_a_lookup_is_told_by_the_rules():
    """r1 resends a prompt of three tokens: behind two of them every group can resume, and the third is recomputed."""
    example = found("M-COW-2")
    lookup = candidates.last_lookup(example, films.shoot(example))
    assert lookup is not None
    assert (lookup.request, lookup.joint, lookup.answered) == ("r1", 2, 2)
    assert [one.kind for one in lookup.classes] == ["full_attention"] * 2 + ["mamba_align"] * 2
    for one in lookup.classes:
        assert {candidate.boundary: candidate.rule for candidate in one.candidates}[2] == "hit"


def test_a_key_that_went_is_told_with_the_action_that_took_it():
    """The hit would end behind 2 tokens; the key of block 1 is taken away before the lookup."""
    from kvproof.core import config as configs
    from kvproof.spec.engines.scope_parts import full
    from tests.spec.report.test_film import CLOSE, executed, shot

    config = configs.configure((full(2),), max_model_len=8, num_blocks=6, max_running=1)
    run = [act.Submit(0, (7, 8, 9, 7)), act.BeginStep(), act.Lookup(0), act.Allocate(0, 4), *CLOSE, *executed(config)]
    run += [
        act.Output(0, (5,)),
        act.Finish(0),
        act.EvictBlocks((1,)),
        act.Submit(0, (7, 8, 9, 7)),
        act.BeginStep(),
        act.Lookup(0),
    ]
    film = shot(config, *run)
    example = evolve(found("M-LRU-1"), actions=tuple(run), position=len(run) - 1)
    lookup = candidates.last_lookup(example, film)
    assert lookup is not None
    assert (lookup.request, lookup.joint, lookup.answered) == ("r0.2", 0, 0)
    [only] = lookup.classes
    evict = run.index(act.EvictBlocks((1,)))
    assert [(one.boundary, one.rule, one.text) for one in only.candidates] == [
        (4, "cap", "above n-1 = 3: the last token is recomputed"),
        (2, "evicted", f"no key: it went at action {evict}"),
    ]


def test_a_picture_is_a_picture_with_a_title_and_a_description():
    example = found("M-HO-3")
    root = ElementTree.fromstring(picture.render(example))
    names = {element.tag.rpartition("}")[2]: element.text for element in root if element.text}
    assert names["title"] == f"HO-3: {example.message}, at action 35, BuildMetadata()"
    assert names["desc"].startswith("One row per block")
    said = [element.text for element in root.iter() if element.tag.endswith("text")]
    # Block 2 is the state that is handed over: it has a table and the new store.
    assert said.count("0×2•") > 1
    assert "35" in said


@pytest.mark.parametrize("fault", FAULTS)
def test_a_reviewer_reads_everything_that_is_asked(fault):
    example = found(fault)
    text = reviewer.render(example, "found.json")
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    around = ["Before and after"] if example.actions else []
    lives = ["What became of the blocks in question"] if lineage.lives(example, films.shoot(example)) else []
    assert [heading for heading in headings if heading not in ("Keys and bytes then", "What the lookup could hit")] == [
        "Property",
        "Without the fault",
        "Configuration",
        *(["What happens"] if example.actions else []),
        *(["What follows"] if example.law == "LV-5" else []),
        *around,
        *lives,
        "Notation",
        "Why nothing shorter shows it",
        "See it again",
        "Why earlier checking missed it",
    ]
    assert text.count("**✗ the law breaks here**") == (example.position >= 0)
    assert f"no run of less than {len(example.actions)} actions" in text
    assert "    kvproof report found.json --replay" in text


def test_what_the_sound_model_would_have_done_stands_beside_what_was_done():
    """M-HO-3 stores the handoff of a request that was preempted before the step: without the fault nothing is stored."""
    example = found("M-HO-3")
    rows = {name: values for name, *values in around.around(example, films.shoot(example)).rows}
    before, after, sound = rows["store 2"]
    assert (before, after, sound) == ("-", "2 to h3 (built)", "-")
    assert rows["free queue of the host"] == ["h3, h1", "h1", "as before"]
    assert rows["r0, table of g1"] == ["0:- 1:2", "as before", "as before"]
    text = reviewer.render(example)
    assert "| store 2 | - | 2 to h3 (built) | - |" in text
    assert "departs from one without the fault at action 35, BuildMetadata(): the answer is another one" in text
    assert "- without the fault: outcomes [[0,1,2,4,'dropped_request_gone']]" in text
    assert "departs from one without the fault at action 35" in page.render(example)


def test_a_reviewer_is_told_what_a_lookup_could_hit_if_that_breaks_the_law():
    """M-HIT-1 lets a hit end where the last token would not be computed any more: the rules say where it may end."""
    example = found("M-HIT-1")
    lookup = candidates.last_lookup(example, films.shoot(example))
    assert lookup is not None
    assert lookup.position == example.position
    text = reviewer.render(example)
    assert "## What the lookup could hit" in text
    said = f"can resume {lookup.request} at {lookup.joint} tokens and no later; the answer was {lookup.answered}."
    assert said in text
    assert lookup.joint != lookup.answered
    assert text.count("| cap |") == sum(one.rule == "cap" for each in lookup.classes for one in each.candidates) > 0


@pytest.mark.parametrize("fault", FAULTS)
def test_a_reviewer_meets_no_action_and_no_answer_that_is_not_explained(fault):
    example = found(fault)
    shown = page.render(example)
    for name, meaning in words.notation(example, films.shoot(example)):
        assert f"<code>{name}</code>:</dt> <dd>{escape(meaning)}</dd>" in shown
    notation = reviewer.render(example).partition("## Notation")[2].partition("## Why nothing")[0]
    explained = set(re.findall(r"^- ([A-Za-z_]+):", notation, re.MULTILINE))
    moments = films.shoot(example).moments  # what follows is on the page, too
    actions = [moment.action for moment in moments]
    assert {type(action).__name__ for action in actions} <= explained
    assert {action.part for action in actions if isinstance(action, act.Execute)} <= explained
    records = [moment.record for moment in moments if moment.record is not None]
    answered = {name for record in records for name in counterexample.changed_fields(record) if name != "action"}
    assert answered <= explained


def test_prefixes_in_lists_of_evidence_have_their_names():
    def told(example):
        return reviewer.render(example, seen=taken_at_its_word(example))

    example = evolve(found("M-LRU-1"), values=(("expected", (((1,), (2,)), (2,))),))
    assert "numbers in it are prefixes" not in told(example)
    content = evolve(example, values=(("content", (0, 1, 2, -1)),))
    assert "- numbers in it are prefixes: 1 is r0@1, 2 is r0@2\n" in told(content)
    assert "what is read without a cache: for each group" in told(evolve(example, law="CC-7"))
    assert "- key = `2` (r0@2: the prefix that the key stands for)" in told(evolve(example, values=(("key", 2),)))


def test_words_are_of_actions_and_parts_that_are_there():
    assert set(words.PARTS) == {*PARTS, "flush", "submit"}
    assert not set(words.FLAGS) & set(fields.MEANINGS)
    # Every field of an answer has a word in one of the two.
    assert set(words.FLAGS) | set(fields.MEANINGS) == {field.name for field in attrs.fields(Record)} - {"action"}


def test_without_a_planted_fault_nobody_says_what_would_have_been_right():
    example = evolve(found("M-HO-3"), fault="")
    film = films.shoot(example)
    assert film.sound is None
    assert around.departed(example, film) is None
    assert all(len(row) == 3 for row in around.around(example, film).rows)
    assert "without the fault" not in reviewer.render(example).lower()


def test_every_field_that_is_explained_is_one_of_a_record():
    known = {field.name for field in attrs.fields(Record)}
    assert set(fields.MEANINGS) <= known
    tuples = {field.name for field in attrs.fields(Record) if field.default == ()}
    assert tuples - set(fields.MEANINGS) <= {"notices"}


def test_a_configuration_alone_needs_no_action():
    example = found("M-LRU-1")
    bare = evolve(example, actions=(), outcomes=(), position=-1)
    seen = taken_at_its_word(bare)
    assert "No action is needed" in reviewer.render(bare, seen=seen)
    assert "a test that never resolves it" in reviewer.render(bare, seen=seen)
    assert '<table class="film"' in page.render(bare, seen=seen)


@pytest.mark.parametrize("fault", ["M-LRU-1", "M-HO-3"])
def test_the_pasted_test_fails_under_the_fault_and_passes_without(fault, tmp_path):
    file = tmp_path / "test_pasted.py"
    file.write_text(as_test.render(found(fault)))
    (tmp_path / "conftest.py").write_text(
        "import pytest\n"
        "from kvproof.spec import faults\n\n"
        "def pytest_addoption(parser):\n    parser.addoption('--plant')\n\n"
        "@pytest.fixture(autouse=True)\n"
        "def plant(request):\n"
        "    name = request.config.getoption('--plant')\n"
        "    if name is None:\n        yield\n        return\n"
        "    with faults.planted(faults.by_id(name)):\n        yield\n"
    )
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    assert subprocess.run(run, capture_output=True, check=False).returncode == 0
    planted = subprocess.run([*run, "--plant", fault], capture_output=True, text=True, check=False)
    assert planted.returncode == 1
    assert f"{found(fault).law}: {found(fault).message}" in planted.stdout


@pytest.mark.parametrize("fault", ["M-LRU-1", "M-DEM-1"])
def test_the_pasted_test_says_which_fault_is_taken_out_and_passes_without(fault):
    """M-DEM-1 is a field of the profile: it has its sound value again, or the test would fail for ever."""
    example = found(fault)
    text = as_test.render(example)
    said = " ".join(text.split())
    assert f"with a fault planted, which is taken out here: {fault}: " in said
    assert "Without the fault it passes." in said
    wanted = {"M-LRU-1": "faults.by_id('M-LRU-1')", "M-DEM-1": "set recurrent_demand of the profile in EXAMPLE"}[fault]
    assert wanted in said
    assert counterexample.replay(departure.without_fault(example), laws.ALL).violation is None
    assert check.replay(example).violation is not None
    again = counterexample.loads(re.search(r'EXAMPLE = r"""(.*?)"""', text, re.DOTALL)[1])  # type: ignore[index]
    assert (again.fault, again.profile) == ("", departure.without_fault(example).profile)


def test_a_pasted_test_of_the_code_as_it_stands_says_that_it_fails():
    text = as_test.render(evolve(found("M-DEM-1"), fault=""))
    assert "It fails as long as the model breaks the law by these actions" in text
    assert "taken out" not in text


def test_what_an_implementation_broke_is_asked_of_it():
    example = evolve(found("M-LRU-1"), implementation=counterexample.Implementation("mine", (), walks=3), engine="walker")
    text = as_test.render(example)
    assert "check_all_laws(adapter(), laws=['PC-8']" in text
    assert "walks=3" in text
    compile(text, "test_pasted.py", "exec")


def of_an_adapter():
    """A counterexample of an adapter that showed tables after every action."""
    example = evolve(found("M-LRU-1"), fault="", engine="conformance")
    shown = tuple(counterexample.Shown(None, (), (("requests.0.tables", ((at,),)),)) for at in range(len(example.actions)))
    return evolve(example, implementation=counterexample.Implementation("mine", shown))


def test_what_an_adapter_showed_stands_apart_from_what_the_model_answers():
    example = of_an_adapter()
    for form in ("markdown", "reviewer"):
        text = forms.render(form, example)
        assert "| | action | mine showed | the model answers |" in text
        [row] = [line for line in text.splitlines() if line.startswith("| 3 |")]
        assert "| requests.0.tables ((3,),) | admitted True, demand 4" in row
    text = forms.render("reviewer", example)
    assert "the model under the same actions, not mine" in text
    of_model = ["## Before and after (the model)", "## What became of the blocks in question (the model)"]
    behind = text.index("What follows is the model")
    assert all(text.index(head) > behind for head in of_model)
    assert text.index("mine showed") < behind


def test_a_page_of_an_adapter_names_both_worlds():
    text = page.render(of_an_adapter())
    frame = data_of(text)["frames"][4]
    assert frame["answer"].startswith("mine showed: requests.0.tables ((3,),) | the model answers: admitted True, demand 4")
    assert '<th scope="col">mine showed</th><th scope="col">the model answers</th>' in text
    assert "Before and after (the model)" in text
    assert "What became of the blocks in question (the model)" in text
    plain = page.render(found("M-LRU-1"))
    assert "the model answers" not in plain
    assert "(the model)" not in plain


def test_of_the_model_alone_there_is_one_world():
    assert "the model answers" not in forms.render("markdown", found("M-LRU-1"))
    assert "(the model)" not in forms.render("reviewer", found("M-LRU-1"))


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "found.json"
    path.write_text(counterexample.dumps(found("M-LRU-1")))
    return path


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_printed_or_written(file, capsys, form):
    assert cli.main(["report", str(file), f"--{form}"]) == 0
    printed = capsys.readouterr().out
    assert printed == forms.render(form, found("M-LRU-1"), str(file))
    out = file.with_suffix(".out")
    assert cli.main(["report", str(file), f"--{form}", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert out.read_text() == printed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--out", "x.html"], "--out FILE takes a form"),
        (["--html", "--out", ""], "--out is given an empty name: name a file, or a folder"),
        (["--json"], "--json goes with --replay alone or with --against"),
        (["--json", "--replay", "--svg"], "--json goes with --replay alone or with --against"),
        (["--html", "--markdown"], "--html and --markdown are 2 pages: name a folder for them by --out DIR"),
        (["--svg", "--as-test", "--out", __file__], "is a file, and 2 forms are asked for: name a folder"),
        (["--against", "old", "--html"], "leave the forms and --replay out"),
    ],
)
def test_a_wrong_command_line_says_what_to_do(file, capsys, arguments, said):
    assert cli.main(["report", str(file), *arguments]) == 1
    assert said in capsys.readouterr().err


def test_the_counterexample_itself_is_never_overwritten(file, capsys):
    before = file.read_text()
    assert cli.main(["report", str(file), "--svg", "--out", str(file)]) == 1
    assert "is the counterexample itself" in capsys.readouterr().err
    assert file.read_text() == before


def test_several_forms_go_into_a_folder_each_under_its_own_name(file, tmp_path, capsys):
    folder = tmp_path / "pages"
    assert cli.main(["report", str(file), "--html", "--markdown", "--as-test", "--out", str(folder)]) == 0
    names = ["found.html", "found.md", "test_pc_8_the_free_queue_is_not_in_eviction_order.py"]
    assert capsys.readouterr().out.splitlines() == [str(folder / name) for name in names]
    assert sorted(one.name for one in folder.iterdir()) == names
    assert (folder / "found.md").read_text().startswith("# PC-8 does not hold")
    assert cli.main(["report", str(file), "--svg", "--out", str(folder)]) == 0
    assert (folder / "found.svg").read_text().startswith("<svg")


def test_a_folder_is_no_counterexample(tmp_path, capsys):
    assert cli.main(["report", str(tmp_path)]) == 1
    assert "is a folder: name a counterexample in it" in capsys.readouterr().err


@pytest.mark.parametrize("form", FORMS)
def test_a_fault_that_nobody_knows_is_told_by_every_form_but_the_picture(form, file, capsys):
    file.write_text(counterexample.dumps(evolve(found("M-LRU-1"), fault="M-NONE-1")))
    assert cli.main(["report", str(file), f"--{form}"]) == (1 if form == "svg" else 3)
    said = capsys.readouterr()
    assert "M-NONE-1" in said.err
    assert form == "svg" or "M-NONE-1" in said.out
    assert form not in ("html", "markdown", "reviewer") or "PC-8 cannot be judged here" in said.out


def test_every_law_of_the_tests_is_of_another_family():
    families = {faults.by_id(fault).laws[0].partition("-")[0] for fault in FAULTS}
    assert len(families) >= 5
    assert {law.id for law in laws.ALL} >= {found(fault).law for fault in FAULTS}


def test_why_a_test_missed_it_needs_no_situation():
    whole = found("M-LRU-1")
    example = evolve(whole, actions=whole.actions[:1], outcomes=whole.outcomes[:1], position=0)
    film = films.shoot(example)
    assert reviewer.missed(example, film).startswith("A test that does not judge PC-8 passes: ")
    assert reviewer.missed(found("M-HO-3"), films.shoot(found("M-HO-3"))).startswith("This run brings about: ")


def test_text_of_a_file_is_no_markup_and_no_command_of_a_page():
    whole = found("M-LRU-1")
    example = evolve(whole, message="x\n# LV-9 holds\n```\n<script>alert(1)</script>", scope="$(rm -rf ~)")
    for name in ("reviewer", "markdown"):
        text = forms.render(name, example, "found.json", run_again(example))
        assert "\n# LV-9 holds" not in text
        assert "\n```\n<script" not in text
        assert "\\<script>" in text
    assert "--scope '$(rm -rf ~)'" in counterexample.command(example)
