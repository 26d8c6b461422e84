"""The recorder in the process of a real release, through `kvproof record`: it changes nothing, and the model reads along."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvproof.spec.traces import archive
from kvproof.spec.traces.read import read
from kvproof.spec.traces.replay import replay
from kvproof.spec.vllm import releases
from kvproof.spec.vllm.process import environment

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
CHILD = ROOT / "spec" / "vllm" / "child"
RECORDED = tuple(entry.file for entry in archive.entries() if entry.level == "scheduler")
WITH_HOST = tuple(name for name in RECORDED if archive.open_recording(name).config.host is not None)
CONFIGS = (*WITH_HOST[::8], *[name for name in RECORDED if name not in WITH_HOST][::24])


def config_of(name: str) -> str:
    """The configuration of a shipped recording, as JSON."""
    return json.dumps(json.loads(archive.unpack(name).splitlines()[0])["config"])


def story(config: str, seed: int, *prefix: str, version: str = "0.33.0") -> list[str]:
    """Run the story on a release, under a command if one is given, and return the decisions that it prints."""
    unpacked = os.environ.get("KVPROOF_TEST_RELEASES")
    release = releases.find(str(Path(unpacked) / version) if unpacked else version)
    settings = environment(release.folder)
    settings["PYTHONPATH"] = os.pathsep.join((settings["PYTHONPATH"], str(ROOT / "tests" / "_path")))
    command = [*prefix, sys.executable, str(HERE / "real_story.py"), str(CHILD), config, str(seed)]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("[")]


@pytest.mark.vllm
@pytest.mark.parametrize("name", CONFIGS)
def test_a_recorded_run_decides_as_an_unrecorded_one_and_replays(name, tmp_path):
    config, out = config_of(name), tmp_path / "out"
    decided = story(config, 5)
    assert len(decided) > 40
    assert story(config, 5, sys.executable, "-m", "kvproof.spec", "record", "--calls", str(out), "--") == decided
    (file,) = out.iterdir()
    recording = read(file)
    assert sum(operation.op == "step" for operation in recording.operations) == len(decided)
    assert replay(recording).divergence is None
    if name in WITH_HOST:
        follows = [
            later.op
            for first, later in zip(recording.operations, recording.operations[1:], strict=False)
            if first.op == "update"
        ]
        assert "complete_store" in follows or "complete_load" in follows


@pytest.mark.deep
@pytest.mark.vllm
@pytest.mark.parametrize("version", ["0.26.0", "0.29.0"])
def test_older_releases_decide_as_without_it_too(version, tmp_path):
    config, out = config_of("s0082_fa_dcp4"), tmp_path / "out"
    decided = story(config, 3, version=version)
    record = (sys.executable, "-m", "kvproof.spec", "record", "--calls", str(out), "--")
    assert story(config, 3, *record, version=version) == decided
    (file,) = out.iterdir()
    recording = read(file, check_sizes=False)
    assert recording.header.engine.version == version
    assert sum(operation.op == "step" for operation in recording.operations) == len(decided)
