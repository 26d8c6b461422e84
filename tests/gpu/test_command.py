"""``kvproof gpu``: exit statuses, the table, JSON, and what it does not need."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from kvproof.gpu import faults, outputs, running, sources  # noqa: E402
from kvproof.gpu.compare import Difference  # noqa: E402
from kvproof.spec import cli  # noqa: E402

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
        (["--replay", "x.json", "--json"], "leave --run"),
        (["--report", __file__, "--run", "G6"], "cannot be"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else None,
)
def test_what_the_user_can_put_right_ends_with_1(arguments, words, capsys):
    assert cli.main(["gpu", *arguments]) == 1
    assert words in capsys.readouterr().err


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
