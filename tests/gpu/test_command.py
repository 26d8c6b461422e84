"""``kvproof gpu``: exit statuses, the table, JSON, and what it does not need."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from kvproof.gpu import counterexamples, faults, goldens, outputs, running, sources  # noqa: E402
from kvproof.gpu.compare import Difference  # noqa: E402
from kvproof.spec import cli  # noqa: E402
from kvproof.spec.progress import Told  # noqa: E402

NO_CUDA = not torch.cuda.is_available()


def test_named_runs_that_hold(capsys):
    assert cli.main(["gpu", "--run", "G6", "--run", "fa4-m4-n2", "--steps", "60", "--run", "d_cow_dcp2"]) == 0
    out = capsys.readouterr().out
    assert "CPU tensors, no GPU" in out
    assert "verdict: holds" in out
    assert next(line for line in out.splitlines() if "named runs" in line).split()[:3] == ["named", "runs", "3"]


def test_json_of_a_run_is_the_same_for_the_same_seed(capsys):
    arguments = ["gpu", "--run", "fa4-m4-n2", "--steps", "60", "--seed", "3", "--json"]
    assert cli.main(arguments) == 0
    first = capsys.readouterr().out
    assert cli.main(arguments) == 0
    assert capsys.readouterr().out == first
    said = json.loads(first)
    assert (said["verdict"], said["device"], said["seed"]) == ("holds", "cpu", 3)
    assert [row["source"] for row in said["rows"]] == ["named runs", "outputs, no cache"]
    assert said["rows"][0]["actions"] > 30


def test_a_fault_is_refuted_and_written(capsys, tmp_path):
    assert cli.main(["gpu", "--fault", "D-SLOT-3", "--report", str(tmp_path)]) == 2
    out = capsys.readouterr().out
    files = sorted(tmp_path.glob("*D-SLOT-3*.json"))
    assert len(files) == 1
    assert out.rstrip().splitlines()[-1] == f"kvproof gpu --replay {files[0]}"
    assert json.loads((tmp_path / "gpu.json").read_text())["verdict"] == "refuted"


def test_a_fault_that_too_short_walks_miss_is_undetermined(capsys):
    assert cli.main(["gpu", "--fault", "D-LOAD-1", "--run", "fa4-host", "--steps", "3"]) == 3
    assert "fault D-LOAD-1 was not caught" in capsys.readouterr().out


def test_the_faults_are_listed(capsys):
    assert cli.main(["gpu", "--fault", "list"]) == 0
    assert [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()] == [fault.id for fault in faults.ALL]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--run", "nothing"], "no run 'nothing'"),
        (["--fault", "D-SLOT-8"], "did you mean D-SLOT-"),
        (["--fault", "D-SLOT-2", "--run", "G6"], "'G6' is none"),
        (["--device", "tpu"], "is not one of"),
        (["--replay", "nowhere.json"], "cannot be read"),
        (["--replay", "x.json", "--json"], "leave --json out"),
        (["--replay", "x.json", "--quick", "--steps", "5", "--seed", "0"], "leave --quick, --seed, --steps out"),
        (["--replay", "x.json", "--run", "G6", "--fault", "D-SLOT-2"], "leave --fault, --run out"),
        (["--replay", ""], "--replay is given an empty name: name a file"),
        (["--report", __file__, "--run", "G6"], "cannot be"),
        (["--report", "", "--run", "G6"], "--report is given an empty name: name a folder"),
        (["--fault", ""], "--fault is given an empty name: name a fault"),
        (["--fault", "list", "--json"], "leave --json out"),
        (["--fault", "list", "--run", "fa4", "--seed", "1"], "leave --run, --seed out"),
        (["--fault", "D-SLOT-2", "--quick"], "leave --quick out"),
        (["--fault", "M-LOAD-1"], "kvproof check --fault M-LOAD-1"),
        (["--fault", "M-NIX-1"], "no fault of the tensor layer 'M-NIX-1'"),
        (["--fault", "D-SLOT-2", "--run", "fa4-m4-m2"], "did you mean fa4-m4-n2"),
        (["--fault", "D-SLOT-2", "--run", "explore/fa2"], "'explore/fa2' is none"),
        (["--run", "fa4", "--quick"], "leave --quick out"),
        (["--run", "G6", "--steps", "9"], "leave --steps out"),
        (["--run", "d_cow_dcp2", "--run", "G6", "--seed", "1"], "leave --seed out"),
        (["--run", "G66"], "did you mean G6 or G16?"),
        (["--run", "g6"], "did you mean G6"),
        (["--run", "fa4-m4-m2"], "did you mean fa4-m4-n2"),
        (["--run", "explore/nix"], "kvproof explore --scope list"),
        (["--run", "G6", "--run", "d_cow_dcp3"], "d_cow_dcp2"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else None,
)
def test_what_the_user_can_put_right_ends_with_1(arguments, words, capsys):
    assert cli.main(["gpu", *arguments]) == 1
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("name", ["G2", "G3", "G2, G3", "G1, 40 tokens", "G10"])
def test_a_golden_trace_is_run_by_each_of_its_names(name, capsys):
    assert cli.main(["gpu", "--run", name, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["rows"][0]["runs"] == 1
    own = sources.golden(name)
    assert own is not None
    assert said["rows"][0]["actions"] == len(goldens.SCRIPTS[own]().actions)


def test_no_other_part_of_a_golden_traces_name_is_one():
    assert [sources.golden(name) for name in ("40 tokens", "", "G5", "G1")] == [None, None, None, "G1"]
    assert sources.GOLDEN_NAMES[:4] == ("G1", "G2", "G3", "G4")


@pytest.mark.skipif(not NO_CUDA, reason="there is a CUDA device")
def test_cuda_without_a_device_ends_with_1(capsys):
    assert cli.main(["gpu", "--device", "cuda", "--run", "G6"]) == 1
    assert "there is no CUDA device" in capsys.readouterr().err


def test_counterexamples_of_other_engines_are_sent_away(capsys, tmp_path):
    assert cli.main(["check", "--fault", "M-GEO-2", "--report", str(tmp_path), "--json"]) == 2
    capsys.readouterr()
    file = next(tmp_path.glob("*M-GEO-2*.json"))
    assert cli.main(["gpu", "--replay", str(file)]) == 1
    assert f"use kvproof report {file} --replay" in capsys.readouterr().err


def test_a_difference_of_outputs_alone_refutes(capsys, monkeypatch):
    monkeypatch.setattr(outputs, "everywhere", lambda both, device: outputs.Compared(1, Difference("output", 1, 2)))
    assert cli.main(["gpu", "--run", "G6"]) == 2
    assert "CC-7 does not hold" in capsys.readouterr().out


def ran(differs):
    """A run with a difference, or without."""
    done = sources.run_golden("G13", "cpu")
    done.both.difference = Difference("free queue", [1], [2]) if differs else None
    return done


@pytest.mark.parametrize(
    ("rows", "verdicts"),
    [
        # (differs, ...) of the runs of each source; behind three differences nothing is run.
        ([(True, True, True), (False, False)], ["refuted", "undetermined"]),
        ([(True, True), (False, False), (False, True), (False,)], ["refuted", "holds", "refuted", "undetermined"]),
        ([(True, True, False, False), (False,)], ["refuted", "holds"]),
    ],
)
def test_a_source_that_was_not_run_to_its_end_does_not_hold(rows, verdicts, monkeypatch):
    monkeypatch.setattr(counterexamples, "build", lambda *given, **settings: "an example")
    monkeypatch.setattr(running, "caught", lambda *given: running.Row("faults", verdict="holds"))
    given = [(f"source {at}", (ran(differs) for differs in row)) for at, row in enumerate(rows)]
    monkeypatch.setattr(running, "parts", lambda options, device: given)
    result = running.run(running.Options(), Told("gpu", quiet=True))
    assert [row.verdict for row in result.rows[: len(rows)]] == verdicts
    cut = [row for row in result.rows[: len(rows)] if row.verdict == "undetermined"]
    assert all((row.runs, row.remark) == (0, "not run to its end: 3 differences were found") for row in cut)
    # Neither are the outputs of runs that never came.
    assert result.rows[len(rows)].source == "outputs, no cache"
    assert result.rows[len(rows)].verdict == "undetermined"


def test_the_page_of_a_report_counts_sources_and_its_files_have_names_that_can_be_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(outputs, "everywhere", lambda both, device: outputs.Compared(1, Difference("output", 1, 2)))
    assert cli.main(["gpu", "--run", "G2, G3", "--run", "explore/fa1-host", "--steps", "9", "--report", str(tmp_path)]) == 2
    capsys.readouterr()
    page = (tmp_path / "index.html").read_text()
    assert "2 sources" in page
    assert "<h2>Sources</h2>" in page
    assert "scopes" not in page
    names = sorted(file.name for file in tmp_path.glob("*.json"))
    assert names == ["01-CC-7-G2-G3-tensors.json", "02-CC-7-explore-fa1-host-tensors.json", "gpu.json"]
    # The next run there removes what this one left.
    assert cli.main(["gpu", "--run", "fa4-m4-n2", "--steps", "30", "--report", str(tmp_path)]) == 2
    assert sorted(file.name for file in tmp_path.glob("*.json")) == ["01-CC-7-fa4-m4-n2-tensors.json", "gpu.json"]


def test_a_source_without_a_run_decides_nothing(capsys, monkeypatch):
    monkeypatch.setattr(sources, "run_goldens", lambda device: iter(()))
    monkeypatch.setattr(running, "parts", lambda options, device: [("golden traces", sources.run_goldens(device))])
    assert cli.main(["gpu"]) == 3
    assert "verdict: undetermined" in capsys.readouterr().out


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{code}"], capture_output=True, text=True, check=False
    )


def test_without_torch_the_pip_line_is_given():
    done = python("sys.modules['torch'] = None\nfrom kvproof.spec.cli import main\nsys.exit(main(['gpu', '--quick']))")
    assert done.returncode == 1
    assert "needs the extra 'gpu': pip install -e '.[gpu]' (in the clone)" in done.stderr


def test_no_other_command_and_no_help_loads_torch():
    code = """
from kvproof.spec.cli import main
assert main(['--help']) == 0
assert main(['gpu', '--help']) == 0
assert main(['laws', 'CC-1']) == 0
assert main(['replay', '--list']) == 0
sys.exit(7 if 'torch' in sys.modules else 0)
"""
    done = python(code)
    assert done.returncode == 0, done.stderr
