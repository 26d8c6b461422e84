"""The prepared script for a device, run on a CPU: what it says, what it writes, and how it ends."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")

from click.testing import CliRunner  # noqa: E402

from kvproof.gpu import bandwidth, device_report, faults, ranks, running  # noqa: E402
from kvproof.gpu.bandwidth import Bandwidth  # noqa: E402
from kvproof.spec.engines import scopes  # noqa: E402
from kvproof.spec.exits import UserError  # noqa: E402

ALL_WALKS = device_report.WALKS


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    """Fewer and shorter parts: each has tests of its own."""
    monkeypatch.setattr(device_report, "WALKS", (("fa4-m4-n2", 60), ("fa4-lazy", 60)))
    monkeypatch.setattr(device_report, "MOVED_ON_CPU", 1 << 20)
    monkeypatch.setattr(bandwidth, "SIZES", (1 << 16,))
    monkeypatch.setattr(faults, "ALL", faults.ALL[3:5])
    monkeypatch.setattr(ranks, "run", lambda scope, seed, steps, backend: (ranks.RankRun(0, 5, 1), ranks.RankRun(1, 5, 1)))


def run(*arguments):
    return CliRunner().invoke(device_report.command, list(arguments))


def test_on_a_cpu_it_says_so_and_holds(tmp_path):
    out = tmp_path / "report.json"
    done = run("--device", "cpu", "--out", str(out))
    assert done.exit_code == 0, done.output
    assert "CPU (no CUDA device was used)" in done.output
    said = json.loads(out.read_text())
    assert (said["format"], said["version"], said["holds"]) == ("kvproof-device-report", 1, True)
    assert said["versions"]["torch"] == torch.__version__
    assert said["versions"]["device"] == "cpu"
    assert said["differential"]["differences"] == []
    assert said["differential"]["actions"] > 1000
    assert said["differential"]["prefixes_without_cache"] > 0
    assert len(said["faults"]["caught"]) == 2
    assert said["faults"]["survived"] == []
    assert {one["what"] for one in said["bandwidth"]} == {"plain copy", "block gather", "block copies"}
    assert said["date"].endswith("+00:00")
    if torch.cuda.device_count() < 2:
        assert said["ranks"]["nccl"]["run"] is False
        assert "not run: nccl needs 2 CUDA devices" in done.output
    # A short table last.
    assert done.output.rstrip().splitlines()[-1].split()[0] == "memory"


def test_a_difference_ends_with_2(tmp_path, monkeypatch):
    monkeypatch.setattr(ranks, "run", lambda *arguments: (ranks.RankRun(0, 5, 1, "bytes at block 3"),))
    done = run("--device", "cpu", "--out", str(tmp_path / "report.json"))
    assert done.exit_code == 2
    assert "rank 0: bytes at block 3" in done.output


def test_a_part_that_raises_does_not_hold_and_the_others_run(tmp_path, monkeypatch):
    def fails(*arguments):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(device_report, "compare", fails)
    out = tmp_path / "report.json"
    assert run("--device", "cpu", "--out", str(out)).exit_code == 2
    said = json.loads(out.read_text())
    assert said["errors"] == {"model = tensors": "RuntimeError: out of memory"}
    assert said["holds"] is False
    assert said["bandwidth"]


def test_a_fault_that_is_not_caught_does_not_hold(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "catch", lambda fault, device: None)
    out = tmp_path / "report.json"
    assert run("--device", "cpu", "--out", str(out)).exit_code == 2
    assert len(json.loads(out.read_text())["faults"]["survived"]) == 2


def test_ranks_that_fail_are_reported(tmp_path, monkeypatch):
    def fails(*arguments):
        raise UserError("ranks 1 ended without a result")

    monkeypatch.setattr(ranks, "run", fails)
    done = run("--device", "cpu", "--out", str(tmp_path / "report.json"))
    assert done.exit_code == 2
    assert "ranks 1 ended without a result" in done.output


def test_block_copies_should_reach_four_fifths_of_a_plain_copy():
    def measured(part):
        return Bandwidth("block copies", 1 << 16, 1 << 20, 1e9 * part, part)

    assert [device_report.enough(measured(part)) for part in (0.79, 0.8, 1.1)] == [False, True, True]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_without_a_device_is_an_error_of_the_user(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["device_report", "--device", "cuda"])
    with pytest.raises(SystemExit) as ended:
        device_report.main()
    assert ended.value.code == 1
    assert "there is no CUDA device" in capsys.readouterr().err


def test_the_walks_cover_kinds_ranks_drafts_flight_and_both_host_modes():
    names = [scope.name for scope in scopes.ALL]
    walks = ALL_WALKS
    assert all(name in names for name, _ in walks)
    configs = [scopes.by_name(name).config() for name, _ in walks]
    kinds = {group.kind for config in configs for group in config.groups}
    assert kinds == {"full_attention", "mamba_align", "sliding_window", "chunked_local", "mamba_stable", "scratch"}
    assert {config.dcp_size for config in configs} >= {1, 2, 4}
    assert any(config.num_draft_tokens for config in configs)
    assert any(config.max_steps_in_flight == 2 for config in configs)
    assert {config.offload.mode for config in configs if config.offload} == {"eager", "lazy"}
