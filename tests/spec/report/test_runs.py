"""Finished runs as one kind of value, their pages, and the comparison of two."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from attrs import evolve

from kvproof.proofs import labelling
from kvproof.spec import cli, laws
from kvproof.spec.exploring import jobs, pins
from kvproof.spec.exploring import result as results
from kvproof.spec.exploring.jobs import Asked, Job
from kvproof.spec.exploring.scope import Scope
from kvproof.spec.report import files, index, labels, runs
from kvproof.spec.report.runs import Change, LawRow, Run, RunError
from tests.spec.exploring.test_certificate import TINY
from tests.spec.report.found import found


def explored(fault=""):
    """A run of the explorer over one tiny scope, as a summary."""
    asked = Asked(scopes=("tiny",), fault=fault)
    done = jobs.perform(Job(asked, TINY, fault))
    return results.as_dict(results.Result(asked, [done], {"tiny": pins.of(done.certificate)}))


CHECKED = {
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
    assert run.faults == {"M-LRU-1": "PC-8 in fa4", "M-KEY-1": " (not by PC-11)"}
    assert run.situations == (1, 1)


def test_an_exploration_is_read():
    run = runs.of(explored())
    assert (run.kind, run.verdict, run.found) == ("explore", "holds", ())
    assert run.laws["PC-1"].verdict == "holds"
    assert run.laws["LD-1"] == LawRow("undetermined", 0)
    assert run.scopes["tiny"].size.endswith("edges, complete")
    assert "more than 1 requests" in run.scopes["tiny"].leaves_out


def test_a_law_that_a_fault_breaks_is_refuted_in_that_run():
    run = runs.of(explored("M-LRU-1"))
    assert [(one.law, one.fault, one.length) for one in run.found] == [("PC-8", "M-LRU-1", 8)]
    assert run.faults["M-LRU-1"] == "PC-8 in tiny after 8 actions"
    assert run.laws["PC-8"].verdict == "refuted"


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
