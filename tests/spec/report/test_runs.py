"""Finished runs as one kind of value, their pages, and the comparison of two."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from kvproof.proofs import labelling
from kvproof.spec import cli, counterexample, laws
from kvproof.spec.exploring import jobs, pins
from kvproof.spec.exploring import result as results
from kvproof.spec.exploring.jobs import Asked, Job
from kvproof.spec.exploring.scope import Scope
from kvproof.spec.report import files, index, labels, runs, templating
from kvproof.spec.report.runs import Change, LawRow, Run, RunError
from tests.spec.exploring.test_certificate import TINY
from tests.spec.report.found import found


def explored(fault=""):
    """A run of the explorer over one tiny scope, as a summary."""
    asked = Asked(scopes=("tiny",), fault=fault)
    done = jobs.perform(Job(asked, TINY, fault))
    return results.as_dict(results.Result(asked, [done], {"tiny": pins.of(done.certificate)}))


CHECKED: dict[str, Any] = {
    "verdict": "refuted",
    "premises": {"walk": {"PC-8": 4, "LD-1": 0}, "hypothesis": {"PC-8": 2}},
    "witnesses": {"hit": 3, "preemption": 0},
    "situations_never_reached": ["preemption"],
    "faults": [
        {"id": "M-LRU-1", "killed": {"PC-8": "fa4"}, "steps": 9},
        {"id": "M-KEY-1", "killed": {}, "steps": 9},
    ],
    "faults_survived": {"M-KEY-1": ["PC-11"]},
    "recordings": 7,
    "problems": ["a line"],
    "counterexamples": [],
}


def test_a_check_is_read():
    run = runs.of(CHECKED)
    assert (run.kind, run.verdict, run.recordings, run.problems) == ("check", "refuted", 7, ("a line",))
    assert run.laws == {"LD-1": LawRow("undetermined", 0), "PC-8": LawRow("holds", 6)}
    assert run.faults == {"M-LRU-1": "PC-8 in fa4", "M-KEY-1": ""}
    assert run.situations == (1, 1)


def test_an_exploration_is_read():
    run = runs.of(explored())
    assert (run.kind, run.verdict, run.found) == ("explore", "holds", ())
    assert run.laws["PC-1"].verdict == "holds"
    assert run.laws["LD-1"] == LawRow("undetermined", 0)
    assert run.scopes["tiny"].size.endswith("edges, complete")
    assert "more than 1 requests" in run.scopes["tiny"].leaves_out


def test_a_check_with_a_fault_has_the_laws_of_the_fault():
    row = {"family": "PC-8", "engine": "walk", "steps": 9, "judged": "in fa4", "premises": 3, "verdict": "refuted"}
    run = runs.of({**CHECKED, "premises": {}, "faults": CHECKED["faults"][:1], "faults_survived": {}, "rows": [row]})
    assert (run.name, run.planted, run.scopes) == ("check with M-LRU-1 planted", ("M-LRU-1",), {})
    assert run.laws == {"PC-8": LawRow("refuted", 3)}


def test_what_each_engine_of_a_check_did_and_what_was_never_judged_is_read():
    row = {"family": "PC", "engine": "walk", "steps": 9, "judged": "1 of 2", "premises": 3, "verdict": "holds"}
    rows = [row, {**row, "family": "TB", "verdict": "undetermined"}, {**row, "family": "faults"}]
    run = runs.of({**CHECKED, "rows": rows, "premise_never_true": ["TB-5", "PC-8"]})
    assert run.scopes == {"walk": runs.ScopeRow("undetermined", "9 steps, 2 families of laws")}
    assert run.laws["TB-5"] == LawRow("undetermined", 0)
    assert run.laws["PC-8"] == LawRow("holds", 6)


def test_a_law_that_a_fault_breaks_is_refuted_in_that_run():
    run = runs.of(explored("M-LRU-1"))
    assert [(one.law, one.fault, one.length) for one in run.found] == [("PC-8", "M-LRU-1", 8)]
    assert run.faults["M-LRU-1"] == "PC-8 in tiny after 8 actions"
    assert run.laws["PC-8"].verdict == "refuted"
    assert run.name == "explore with M-LRU-1 planted"
    assert [(name, row.verdict) for name, row in run.scopes.items()] == [("tiny (M-LRU-1 planted)", "refuted")]


def test_of_a_search_that_ended_at_a_violation_no_other_law_holds():
    document = explored()
    assert "holds" in {row.verdict for row in runs.of(document).laws.values()}
    document["verdict"] = document["scopes"][0]["verdict"] = "refuted"
    assert {row.verdict for row in runs.of(document).laws.values()} == {"undetermined"}


def test_releases_and_adapters_are_read():
    row = {"law": "PC-1", "verdict": "holds"}
    finding = {"law": "DS-1", "operation": 3, "message": "wrong"}
    release = {"release": "0.26.0", "unusable": "", "laws": [row, {"law": "DS-1", "verdict": "refuted"}], "findings": [finding]}
    run = runs.of({"verdict": "refuted", "releases": [release]})
    assert run.releases == {"0.26.0": {"PC-1": "holds", "DS-1": "refuted"}}
    assert [(one.law, one.scope, one.message) for one in run.found] == [("DS-1", "vLLM 0.26.0", "wrong")]
    adapter = {
        "adapter": "mine",
        "laws": [{"law": "PC-1", "verdict": "holds", "judged": 3, "counterexample": None}],
        "scopes": [{"name": "fa4", "walks": 2, "actions": 9, "skipped": ""}],
        "problems": [],
    }
    assert runs.of(adapter).verdict == "holds"
    assert runs.of(adapter).kind == "conform adapter mine"


def test_a_run_on_tensors_is_read():
    row = {"source": "walks", "runs": 2, "actions": 1_500, "outputs": 9, "verdict": "holds", "remark": ""}
    document = {
        "verdict": "holds",
        "device": "cpu",
        "torch": "2.13.0",
        "rows": [row],
        "faults_survived": ["D-ROW-1"],
        "counterexamples": [],
    }
    run = runs.of(document)
    assert (run.kind, run.verdict, run.faults) == ("gpu on cpu", "holds", {"D-ROW-1": ""})
    assert run.scopes["walks"].size == "2 runs, 1,500 actions, 9 outputs"
    page = index.render(document, [])
    assert "D-ROW-1" in page
    assert "1 sources" not in page
    assert ", 1 source" in page
    assert "scope" not in page.partition("<body>")[2].replace('scope="', "")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"adapter": 1}', '{"format": "kvproof-certificate"}', "[" * 100_000])
def test_what_is_no_run_is_refused_by_name(tmp_path, text):
    (tmp_path / "check.json").write_text(text)
    with pytest.raises(RunError, match=r"check\.json: (is no summary|cannot be read)"):
        runs.read(tmp_path)


def test_a_counterexample_is_no_run(tmp_path):
    file = tmp_path / "found.json"
    file.write_text(counterexample.dumps(found("M-LRU-1")))
    with pytest.raises(RunError, match=r"found\.json: .*: it is a counterexample: name the summary beside it, or their folder"):
        runs.read(file)


def test_a_folder_without_results_is_refused(tmp_path):
    with pytest.raises(RunError, match=r"holds none of check\.json, "):
        runs.read(tmp_path)


# --- two runs ---------------------------------------------------------------------------------------------------------


def test_equal_runs_do_not_differ():
    run = runs.of(explored())
    assert runs.changes(run, run) == []


def test_what_differs_is_told_and_what_is_worse():
    before = runs.of(CHECKED)
    now = evolve(
        before,
        verdict="holds",
        laws={"PC-8": LawRow("refuted", 6), "LD-1": LawRow("holds", 2), "CC-1": LawRow("holds", 1)},
        faults={"M-LRU-1": "", "M-KEY-1": "PC-11 in fa4"},
    )
    changes = {(one.what, one.name): one for one in runs.changes(before, now)}
    assert {name: one.worse for name, one in changes.items()} == {
        ("verdict", "all"): False,
        ("law", "PC-8"): True,
        ("law", "LD-1"): False,
        ("law", "CC-1"): False,
        ("fault", "M-LRU-1"): True,
        ("fault", "M-KEY-1"): False,
    }
    assert str(changes["law", "PC-8"]) == "law PC-8: holds > refuted"
    assert str(changes["law", "CC-1"]) == "law CC-1: none > holds"


def test_a_law_that_is_judged_no_more_and_a_new_counterexample_are_worse():
    assert Change("law", "PC-1", "holds", "undetermined").worse
    assert Change("law", "PC-1", "holds", "").worse
    assert Change("counterexample", "PC-1 in fa4", "", "3 actions").worse
    assert not Change("counterexample", "PC-1 in fa4", "3 actions", "").worse


@pytest.mark.parametrize(
    ("before", "now", "worse"),
    [
        ("holds, 3 orbits, 4 edges, complete", "undetermined, 3 orbits, 4 edges, edges", True),
        ("holds, 3 orbits, 4 edges, complete", "", True),
        ("holds, 3 orbits, 4 edges, complete", "holds, 5 orbits, 4 edges, complete", False),
        ("undetermined, 3 orbits", "holds, 3 orbits", False),
        ("undetermined, 3 orbits", "refuted, 3 orbits", True),
        ("", "refuted, 3 orbits", True),
    ],
)
def test_a_scope_that_held_and_does_not_any_more_is_worse(before, now, worse):
    assert Change("scope", "fa1", before, now).worse is worse


@pytest.mark.parametrize(
    ("what", "before", "now", "worse"),
    [
        ("law", "refuted", "undetermined", True),
        ("law", "undetermined", "refuted", False),
        ("scope", "refuted, 3 orbits", "holds, 3 orbits", True),
        ("verdict", "undetermined", "refuted", False),
        ("counterexample", "", "3 actions", False),
    ],
)
def test_with_a_fault_planted_it_is_worse_not_to_be_refuted(what, before, now, worse):
    assert Change(what, "PC-8", before, now, planted=True).worse is worse


def test_a_fault_that_one_law_finds_no_more_is_worse():
    assert Change("fault", "M-LRU-1", "PC-8 in fa4, PC-9 in fa4", "PC-9 in fa4 (not by PC-8)").worse
    assert not Change("fault", "M-LRU-1", "PC-9 in fa4 (not by PC-8)", "PC-8 in fa4, PC-9 in fa4").worse
    assert Change("fault", "M-LRU-1", "PC-9 in fa4 (not by PC-8)", "").worse


def test_versions_situations_recordings_and_problems_are_compared():
    before = evolve(runs.of(CHECKED), kvproof="0.1.0")
    now = evolve(before, kvproof="0.2.0", situations=(0, 2), recordings=8, problems=("a line", "another"))
    assert [(str(one), one.worse) for one in runs.changes(before, now)] == [
        ("version of kvproof: 0.1.0 > 0.2.0", False),
        ("number of situations reached: 1 > 0", True),
        ("number of recordings replayed: 7 > 8", False),
        ("problem another: none > there", True),
    ]


def test_a_fault_of_the_tensors_that_survives_is_told():
    document = {"verdict": "holds", "device": "cpu", "torch": "2", "rows": [], "faults_survived": [], "counterexamples": []}
    [change] = runs.changes(runs.of(document), runs.of({**document, "faults_survived": ["D-ROW-1"]}))
    assert (str(change), change.worse) == ("fault D-ROW-1: caught > none", True)


def test_two_counterexamples_of_one_place_do_not_hide_each_other():
    one = runs.Found("PC-8", "", "fa4", 3, "wrong")
    before, now = (evolve(runs.of(CHECKED), found=found) for found in ((one,), (one, evolve(one, length=5))))
    assert [str(change) for change in runs.changes(before, now)] == ["counterexample PC-8 in fa4: 3 actions > 3, 5 actions"]


def test_empty_runs_are_equal():
    empty = {**CHECKED, "verdict": "undetermined", "premises": {}, "witnesses": {}, "faults": [], "faults_survived": {}}
    assert runs.changes(runs.of(empty), runs.of(empty)) == []
    assert [one.worse for one in runs.changes(runs.of(CHECKED), runs.of(empty)) if one.what == "law"] == [False, True]
    assert index.render(empty, [])


def test_runs_with_different_faults_are_not_compared():
    with pytest.raises(RunError, match="a run of explore and one of explore with M-LRU-1 planted cannot be compared"):
        runs.changes(runs.of(explored()), runs.of(explored("M-LRU-1")))


def test_a_folder_of_one_adapter_is_read_and_one_of_several_asks_which(tmp_path):
    report = {"adapter": "mine", "laws": [], "scopes": [], "problems": []}
    (tmp_path / "mine.json").write_text(json.dumps(report))
    (tmp_path / "mine-PC-1.json").write_text("{}")
    (tmp_path / "broken.json").write_text("{")
    assert runs.read(tmp_path).kind == "conform adapter mine"
    (tmp_path / "other.json").write_text(json.dumps(report))
    with pytest.raises(RunError, match=r"holds 2 runs: name one of mine\.json, other\.json"):
        runs.read(tmp_path)


def test_runs_of_different_kinds_are_not_compared():
    with pytest.raises(RunError, match="a run of check and one of explore"):
        runs.changes(runs.of(CHECKED), runs.of(explored()))


def test_the_command_compares(tmp_path, capsys):
    for name, document in (("old", CHECKED), ("new", {**CHECKED, "premises": {"walk": {"PC-8": 0}}})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "check.json").write_text(json.dumps(document))
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    assert cli.main(["report", old, "--against", old]) == 0
    assert capsys.readouterr().out == "no difference\n"
    assert cli.main(["report", new, "--against", old]) == 3
    assert capsys.readouterr().out.splitlines() == [
        "law LD-1: undetermined > none",
        "worse: law PC-8: holds > undetermined",
        "2 differences, 1 for the worse",
    ]
    assert cli.main(["report", new, "--against", old, "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["worse"] == 1


# --- the page ---------------------------------------------------------------------------------------------------------


def test_a_page_says_everything_and_needs_nothing(tmp_path):
    example = found("M-LRU-1")
    document = explored("M-LRU-1")
    written = files.write([example], document, tmp_path, "explore.json")
    text = (tmp_path / "index.html").read_text()
    links = re.findall(r'href="([^"]+)"', text)
    assert sorted(links) == sorted([written[0].name, *(written[0].with_suffix(suffix).name for suffix in files.WRITTEN)])
    assert all((tmp_path / link).is_file() for link in links)
    assert not re.findall(r"https?://|url\(|<script", text)
    assert "PC-8 (M-LRU-1 planted)" in text
    assert text == index.render(document, written)
    stamped = index.render(document, written, "built on a Monday")
    assert "built on a Monday" in stamped
    assert stamped.replace('<p class="soft">built on a Monday</p>', "").split() == text.split()


def text_of(document):
    return " ".join(re.sub(r"<[^>]+>", " ", index.render(document, []).partition("<body>")[2]).split())


@pytest.mark.parametrize("number", [1, 2])
def test_everything_is_counted_in_its_number(number):
    laws = {f"PC-{at}": 3 for at in range(1, number + 1)}
    ids = [{"id": f"M-LRU-{at}", "killed": {"PC-8": "fa4"}, "steps": 9} for at in range(number)]
    many = {"premises": {"walk": laws}, "faults": ids, "faults_survived": {}, "recordings": number}
    text = text_of({**CHECKED, **many, "witnesses": dict.fromkeys(map(str, range(number)), 1)})
    words = ["law judged", "planted fault", "recording", "situation reached"]
    if number == 2:
        words = ["laws judged", "planted faults", "recordings", "situations reached"]
    assert f"2 of {number} {words[0]}".replace("2", str(number), 1) in text
    assert all(f"{number} {word}" in text for word in words[1:])


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("complete", "Every behaviour within the bounds of these scopes was seen"),
        ("sampled", "that is a test, and no proof"),
        ("depth", "Not every behaviour within the bounds was seen"),
    ],
)
def test_a_page_promises_no_more_than_was_done(end, said):
    document = explored()
    for one in document["scopes"]:
        one["end"] = end
    assert said in text_of(document)
    assert "within the bounds" not in text_of({**CHECKED, "verdict": "holds"})


def test_scopes_stand_above_the_laws_and_a_fault_is_named():
    text = text_of(explored("M-LRU-1"))
    assert text.index("tiny (M-LRU-1 planted)") < text.index("Judged: how often")
    assert text.startswith(
        "kvproof explore with M-LRU-1 planted: refuted A fault is planted, so that refuted is what is wanted"
    )


def test_a_page_is_dark_where_the_system_is():
    """The values are those of the player, so that both look alike."""
    dark = re.search(r"prefers-color-scheme: dark\) \{\s*:root \{(.*?)\}", index.render(CHECKED, []), re.DOTALL)
    player = re.search(r':root\[data-theme="dark"\] \{(.*?)\}', templating.source("style.css"), re.DOTALL)
    assert dark is not None
    assert player is not None
    variables = [set(re.findall(r"--[a-z-]+: #[0-9a-f]{6}", found[1])) for found in (dark, player)]
    assert variables[0] == variables[1] != set()


def test_a_later_run_takes_away_what_an_earlier_one_wrote(tmp_path):
    first = files.write([found("M-LRU-1")], explored("M-LRU-1"), tmp_path, "explore.json")
    assert len(list(tmp_path.iterdir())) == 2 + 1 + len(files.WRITTEN)
    files.write([], explored(), tmp_path, "explore.json")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["explore.json", "index.html"]
    assert not first[0].exists()


def test_a_law_stands_there_with_its_sentence_and_label():
    rows = {
        row.law: row for row in index.rows(Run("check", "holds", laws={"PC-8": LawRow("holds", 3), "XX-1": LawRow("holds", 1)}))
    }
    assert rows["PC-8"].sentence == next(law.sentence for law in laws.ALL if law.id == "PC-8")
    assert rows["PC-8"].label
    assert (rows["XX-1"].sentence, rows["XX-1"].label) == ("", "")


def test_the_labels_are_those_of_the_page_of_verified_properties():
    assert labels.read() == labelling.found(), "python -m kvproof.proofs.labelling writes them"


def test_the_labels_are_read_back(tmp_path):
    labels.write({"PC-1": "proved (grid)"}, tmp_path / "labels.json")
    assert labels.read(tmp_path / "labels.json") == {"PC-1": "proved (grid)"}


def test_names_lead_nowhere_else(tmp_path):
    assert isinstance(TINY, Scope)
    assert index.render(CHECKED, [Path("nowhere/x.json")])


def test_a_verdict_that_is_no_word_is_refused():
    with pytest.raises(TypeError):
        Run(kind="explore", verdict=7)  # type: ignore[arg-type]
    assert Run(kind="explore", verdict="holds").verdict == "holds"
