import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import attrs
import pytest
from attrs import evolve

from kvproof.core.records import Record
from kvproof.spec import check, cli, counterexample, faults, laws
from kvproof.spec.check import Done, Job, Options, Result
from kvproof.spec.engines import rules, scopes, witnesses
from kvproof.spec.exits import ExitCode, UserError
from kvproof.spec.exploring import kills
from kvproof.spec.laws.base import Evidence
from kvproof.spec.report import files as report_files
from kvproof.spec.report import lines, outcome
from tests.tidy.sources import ROOT

OPTIONS = Options()


def passed():
    """A result in which everything was tried and nothing was found."""
    premises = Counter({law.id: 1 for law in laws.ALL})
    premises[rules.GUARD] = 1
    seen = dict.fromkeys(witnesses.NAMES, 1)
    killed = [
        Done(Job("fault", OPTIONS, fault=fault.id), 1, {}, killed=tuple((law, "fa4") for law in fault.laws))
        for fault in faults.ALL
    ]
    walked = Done(Job("walk", OPTIONS, scope="fa4"), 5, dict(premises), seen)
    return Result(OPTIONS, tuple(laws.ALL), [walked, *killed])


def without(result, at, **fields):
    result.done[at] = evolve(result.done[at], **fields)
    return result


def example():
    options = Options(fault="M-EVICT-1", laws=("PC-5",), scope="fa4")
    return check.perform(Job("fault", options, fault="M-EVICT-1")).found[0]


def test_everything_tried_and_nothing_found_holds():
    assert passed().verdict is ExitCode.HOLDS
    assert outcome.remarks(passed()) == []


def test_a_counterexample_or_a_bad_recording_refutes():
    assert without(passed(), 0, found=(example(),)).verdict is ExitCode.REFUTED
    assert without(passed(), 0, problems=("m1, action 3: PC-1: gone",)).verdict is ExitCode.REFUTED


def test_a_premise_that_was_never_true_is_undetermined():
    premises = {**passed().done[0].premises, "PC-1": 0}
    result = without(passed(), 0, premises=premises)
    assert result.verdict is ExitCode.UNDETERMINED
    assert outcome.remarks(result) == ["premise never true: PC-1"]


def test_a_situation_that_was_never_reached_is_undetermined():
    seen = {name: 1 for name in witnesses.NAMES if name != "promotion"}
    result = without(passed(), 0, witnesses=seen)
    assert result.verdict is ExitCode.UNDETERMINED
    assert outcome.remarks(result) == ["situations never reached: promotion"]


def test_a_fault_that_one_of_its_laws_misses_is_undetermined():
    at = next(at for at, done in enumerate(passed().done) if done.job.fault == "M-COW-2")
    result = without(passed(), at, killed=(("COW-2", "fa4"),))
    assert result.verdict is ExitCode.UNDETERMINED
    assert outcome.remarks(result) == ["fault M-COW-2 is not caught by CC-1"]


def test_a_planted_fault_that_is_not_found_is_undetermined():
    options = Options(fault="M-COW-2")
    result = Result(options, tuple(laws.ALL), [Done(Job("fault", options, fault="M-COW-2"), 9, {})])
    assert result.verdict is ExitCode.UNDETERMINED
    assert [row.verdict for row in outcome.rows(result)] == ["undetermined", "undetermined"]


def test_the_jobs_of_a_check_cover_scopes_faults_and_recordings():
    jobs = check.jobs(OPTIONS)
    assert {job.scope for job in jobs if job.kind == "walk"} == {scope.name for scope in scopes.ALL}
    assert {job.scope for job in jobs if job.kind == "machine"} == {scope.name for scope in scopes.ALL}
    assert {job.fault for job in jobs if job.kind == "fault"} == {fault.id for fault in faults.ALL}
    assert sum(job.kind == "traces" for job in jobs) == check.TRACE_JOBS
    assert {job.kind for job in check.jobs(Options(scope="fa4"))} == {"walk", "machine"}
    assert [job.fault for job in check.jobs(Options(fault="M-COW-2"))] == ["M-COW-2"]
    assert {job.fault for job in check.jobs(Options(laws=("COW-5",))) if job.kind == "fault"} == {"M-COW-7"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Options(laws=("ZZ-1",)), r"no law 'ZZ-1'; `kvproof laws` lists the known ones$"),
        (Options(fault="M-ZZ-1"), r"no fault 'M-ZZ-1' \(did you mean .*; `kvproof faults` lists the known ones$"),
        (Options(scope="zz"), "no scope 'zz'; known: "),
    ],
)
def test_unknown_names_are_refused_with_the_known_ones(options, message):
    with pytest.raises(UserError, match=message):
        check.jobs(options)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes_with_any_number_of_processes(capsys):
    said = []
    for processes in ("1", "2"):
        line = ["check", "--quick", "--scope", "fa4", "--json", "--seed", "3", "--processes", processes]
        assert cli.main(line) == ExitCode.UNDETERMINED  # one group reaches no recurrent premise
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert json.loads(said[0])["seed"] == 3


@pytest.mark.slow
def test_the_machine_finds_the_same_wherever_kvproof_is_installed_and_leaves_no_folder(tmp_path):
    """Under `tests/` Hypothesis reads no constants in our sources; beside it, it would."""
    (tmp_path / "site" / "kvproof").mkdir(parents=True)
    for room in ("core", "spec", "gpu", "proofs"):
        (tmp_path / "site" / "kvproof" / room).symlink_to(ROOT / room)
    code = (
        "from kvproof.spec import check\n"
        "done = check.perform(check.Job('machine', check.Options(quick=True), scope='fa2-n4'))\n"
        "print(check.__file__, sorted(done.premises.items()), sorted(done.witnesses.items()), done.steps)"
    )
    said: dict[Path, str] = {}
    for place in (ROOT / "tests" / "_path", tmp_path / "site"):
        folder = tmp_path / f"run {len(said)}"
        folder.mkdir()
        environment = {**os.environ, "PYTHONPATH": str(place)}
        ran = subprocess.run(
            [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=True
        )
        where, _, said[place] = ran.stdout.partition(" ")
        assert where.startswith(str(place))
        assert list(folder.iterdir()) == []
    assert len(set(said.values())) == 1


def test_a_fault_is_found_reported_and_shown_again(tmp_path, capsys):
    line = ["check", "--fault", "M-EVICT-1", "--law", "PC-5", "--scope", "fa4"]
    assert cli.main([*line, "--report", str(tmp_path / "out")]) == ExitCode.REFUTED
    said = capsys.readouterr().out.rstrip().splitlines()
    (file,) = [path for path in (tmp_path / "out").glob("*.json") if path.name != "check.json"]
    assert said[-1] == f"kvproof report {file} --replay"
    command = "kvproof check --fault M-EVICT-1 --law PC-5 --seed 0 --scope fa4"
    assert file.with_suffix(".md").read_text().splitlines()[-1] == f"    {command}"
    assert json.loads((tmp_path / "out" / "check.json").read_text())["verdict"] == "refuted"
    assert cli.main(said[-1].split()[1:]) == ExitCode.REFUTED
    again = capsys.readouterr().out.rstrip().splitlines()
    assert again[0].startswith("PC-5 breaks again, at action ")
    assert again[-1] == said[-1]
    assert cli.main(["report", str(file)]) == ExitCode.HOLDS
    assert cli.main(["report", str(file), "--markdown"]) == ExitCode.HOLDS
    assert capsys.readouterr().out.endswith(f"    {command}\n")


def test_of_many_recordings_that_differ_the_first_are_printed_and_all_are_in_the_json(capsys, monkeypatch):
    problems = [f"m{number}.ndjson.gz, operation 6: differs in refusal" for number in (1, 1, 1, 2, 3, 4, 4, 5)]
    result = without(passed(), 0, problems=tuple(problems), found=(example(),))
    result = without(result, 1, killed=())
    monkeypatch.setattr(check, "run", lambda *of: result)
    assert cli.main(["check"]) == ExitCode.REFUTED
    said = capsys.readouterr().out.splitlines()
    first = said.index(problems[0])
    assert said[first : first + 4] == [
        *(problems[at] for at in (0, 3, 4)), "... and 2 more such lines about recordings: --json and --report DIR have them all",
    ]  # fmt: skip
    assert sum("differs in refusal" in line for line in said) == 3
    assert said[first + 4].startswith("fault ")
    assert cli.main(["check", "--json"]) == ExitCode.REFUTED
    assert json.loads(capsys.readouterr().out)["problems"] == problems


@pytest.mark.parametrize("problems", [("a", "b", "c"), ("a",), ()])
def test_few_problems_are_printed_as_they_are(problems, capsys, monkeypatch):
    monkeypatch.setattr(check, "run", lambda *of: without(passed(), 0, problems=problems))
    cli.main(["check"])
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if line in problems] == list(problems)
    assert not any(line.startswith("...") for line in said)


def test_a_planted_fault_names_the_command_that_finds_the_shortest_run(capsys):
    kill = kills.table()["M-EVICT-1"]
    line = f"kvproof explore --fault M-EVICT-1 --scope {kill.scope} --law {kill.law}"
    assert cli.main(["check", "--fault", "M-EVICT-1", "--law", "PC-5", "--scope", "fa4"]) == ExitCode.REFUTED
    said = capsys.readouterr().out.splitlines()
    assert said[said.index("verdict: refuted") + 1] == f"`{line}` finds the shortest run of that scope"
    assert cli.main(["check", "--law", "COW", "--scope", "fa4", "--quick", "--processes", "1"]) == ExitCode.UNDETERMINED
    assert "shortest" not in capsys.readouterr().out
    assert kills.command("") == ""


def test_the_line_under_a_counterexample_finds_it_again(capsys):
    assert cli.main(["check", "--fault", "M-EVICT-1", "--json"]) == ExitCode.REFUTED
    first = json.loads(capsys.readouterr().out)["counterexamples"][0]
    assert cli.main(["check", "--fault", "M-EVICT-1"]) == ExitCode.REFUTED
    line = capsys.readouterr().out.rstrip().splitlines()[-1]
    assert line.startswith("kvproof check --fault M-EVICT-1 --law PC-5 --seed 0 --scope ")
    assert cli.main([*line.split()[1:], "--json"]) == ExitCode.REFUTED
    assert json.loads(capsys.readouterr().out)["counterexamples"] == [first]


def test_a_counterexample_that_no_longer_shows_is_undetermined(tmp_path, capsys):
    file = tmp_path / "old.json"
    file.write_text(counterexample.dumps(evolve(example(), fault="")))
    assert cli.main(["report", str(file), "--replay"]) == ExitCode.UNDETERMINED
    assert "PC-5 holds on these" in capsys.readouterr().out


def test_a_counterexample_names_what_the_fault_does_and_replaces(capsys):
    fault = faults.by_id("M-EVICT-1")
    text = f"{fault.id}: {fault.summary} (replaces pool.take)"
    assert lines.fault_text(fault.id) == text
    assert lines.fault_text("M-ZZ-1") == "M-ZZ-1 (not known to this kvproof)"
    assert cli.main(["check", "--fault", "m-evict-1", "--law", "pc-5", "--scope", "fa4"]) == ExitCode.REFUTED
    assert f"planted fault: {text}" in capsys.readouterr().out


def test_one_fault_at_a_time(capsys):
    assert cli.main(["check", "--fault", "M-GEO-2", "--fault", "M-COW-2"]) == ExitCode.ERROR
    assert "one fault at a time, not 2 (M-GEO-2, M-COW-2)" in capsys.readouterr().err
    assert check.one_fault(("m-geo-2", "M-GEO-2")) == "M-GEO-2"
    assert check.one_fault(()) == ""


def test_ids_are_known_in_any_case():
    assert check.named_laws(("cc-3", "CC-3", "guard", "zz-1")) == ("CC-3", rules.GUARD, "zz-1")


def test_a_family_stands_for_its_laws(capsys):
    assert check.named_laws(("ip", "IP-2", "CC-3")) == ("IP-1", "IP-2", "IP-3", "IP-4", "IP-5", "CC-3")
    assert cli.main(["check", "--law", "COW", "--scope", "fa4", "--quick", "--processes", "1"]) == ExitCode.UNDETERMINED
    said = capsys.readouterr().out
    assert re.search(r"COW +walk .* \d of 7 ", said)
    assert not re.search(r"^ *PC ", said, re.MULTILINE)


def test_a_law_that_does_not_catch_the_fault_is_named_whether_it_should_or_not(capsys):
    assert cli.main(["check", "--fault", "M-GEO-2", "--law", "CC-3", "--scope", "fa4", "--quick"]) == ExitCode.UNDETERMINED
    assert "fault M-GEO-2 is not caught by CC-3" in capsys.readouterr().out


def test_the_shortest_counterexample_comes_first():
    short = evolve(example(), law="PC-9", actions=example().actions[:1])
    early, late = evolve(example(), law="CC-1"), evolve(example(), law="PC-1")
    result = without(passed(), 0, found=(late, early))
    assert without(result, 1, found=(short,)).found == [short, early, late]


def test_the_counterexamples_of_an_earlier_check_do_not_stay_in_the_folder(tmp_path):
    first, second = evolve(example(), law="CC-1"), evolve(example(), law="PC-1")
    old = outcome.write(without(passed(), 0, found=(first, second)), tmp_path)
    foreign = tmp_path / "01-mine.json"
    foreign.write_text("{}")
    (new,) = outcome.write(without(passed(), 0, found=(first,)), tmp_path)
    assert new == old[0]
    forms = {new.with_suffix(suffix).name for suffix in report_files.WRITTEN}
    names = {"check.json", report_files.INDEX, "01-mine.json", new.name, *forms}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert json.loads((tmp_path / "check.json").read_text())["files"] == [new.name]
    assert outcome.write(passed(), tmp_path) == []
    assert {path.name for path in tmp_path.iterdir()} == {"check.json", report_files.INDEX, "01-mine.json"}


@pytest.mark.parametrize("text", ["", "[]", '{"files": 3}', '{"files": ["../01-a.json", 4, null, "keep.json"]}'])
def test_what_another_check_json_lists_is_left_alone(tmp_path, text):
    folder = tmp_path / "out"
    folder.mkdir()
    kept = [tmp_path / "01-a.json", folder / "keep.json"]
    for file in kept:
        file.write_text("kept")
    (folder / "check.json").write_text(text)
    outcome.write(passed(), folder)
    assert [file.read_text() for file in kept] == ["kept", "kept"]


def test_the_page_explains_every_column_and_situation():
    page = (ROOT / "docs/check.md").read_text(encoding="utf-8")
    table, situations = page.split("## Situations")
    named = [name for name in re.findall(r"^\| ([^|]+) \|", situations, re.MULTILINE) if name != "situation"]
    assert named == list(witnesses.NAMES)
    for column in ("family", "engine", "steps", "judged", "premises", "witnesses", "verdict"):
        assert f"| {column} |" in table
    for record in attrs.fields(Record):
        assert record.name == "action" or f"`{record.name}`" in table


@pytest.mark.parametrize(
    "line",
    [
        ["check", "--law", "ZZ-1"],
        ["check", "--fault", "M-ZZ-1"],
        ["check", "--scope", "zz"],
        ["check", "--seed", "x"],
        ["check", "--processes", "0"],
        ["report", "nowhere.json"],
    ],
)
def test_what_the_user_got_wrong_ends_with_status_one(line, capsys):
    assert cli.main(line) == ExitCode.ERROR
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Error" in captured.err


def test_a_report_folder_that_cannot_be_written_ends_with_status_one_before_the_work(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert cli.main(["check", "--report", str(tmp_path / "file")]) == ExitCode.ERROR
    assert "it is not a folder" in capsys.readouterr().err


def test_a_refuted_law_ends_with_status_two(monkeypatch, capsys):
    broken = next(law for law in laws.ALL if law.id == "PC-1")
    always = evolve(broken, check=lambda moment: [Evidence.of("broken here")])
    monkeypatch.setattr(laws, "ALL", (always,))
    assert cli.main(["check", "--quick", "--scope", "fa4", "--processes", "1"]) == ExitCode.REFUTED
    said = capsys.readouterr().out
    assert "broken here" in said
    assert said.rstrip().splitlines()[-1] == "kvproof check --law PC-1 --seed 0 --scope fa4 --quick"
