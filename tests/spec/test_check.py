import json
from collections import Counter

import pytest
from attrs import evolve

from kvproof.spec import check, cli, counterexample, faults, laws
from kvproof.spec.check import Done, Job, Options, Result
from kvproof.spec.engines import rules, scopes, witnesses
from kvproof.spec.exits import ExitCode, UserError
from kvproof.spec.laws.base import Evidence
from kvproof.spec.report import outcome

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
        (Options(laws=("ZZ-1",)), "no law 'ZZ-1'; known: "),
        (Options(fault="M-ZZ-1"), "no fault 'M-ZZ-1'; known: "),
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


def test_a_fault_is_found_reported_and_shown_again(tmp_path, capsys):
    line = ["check", "--fault", "M-EVICT-1", "--law", "PC-5", "--scope", "fa4"]
    assert cli.main([*line, "--report", str(tmp_path / "out")]) == ExitCode.REFUTED
    said = capsys.readouterr().out.rstrip().splitlines()
    (file,) = [path for path in (tmp_path / "out").glob("*.json") if path.name != "check.json"]
    assert said[-1] == f"kvproof report {file} --replay"
    assert file.with_suffix(".md").read_text().rstrip().endswith(said[-1])
    assert json.loads((tmp_path / "out" / "check.json").read_text())["verdict"] == "refuted"
    assert cli.main(said[-1].split()[1:]) == ExitCode.REFUTED
    assert capsys.readouterr().out.rstrip().splitlines()[-1] == said[-1]
    assert cli.main(["report", str(file)]) == ExitCode.HOLDS
    assert cli.main(["report", str(file), "--markdown"]) == ExitCode.HOLDS
    assert capsys.readouterr().out.endswith(said[-1] + "\n")


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
