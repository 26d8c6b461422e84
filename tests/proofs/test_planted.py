"""A formula that is made wrong in the source of core/: `kvproof prove` there ends with 2 and names the claim."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("crosshair")

from tests.tidy.sources import ROOT

ROOMS = ("core", "spec", "gpu", "proofs")
CLAIM = "geometry.ceiling_covers_and_is_least"
CEIL, FLOOR = "    return -(-a // b)\n", "    return a // b\n"


@pytest.fixture
def floored(tmp_path):
    """A copy of the source tree in which `ceil_div` rounds down."""
    for room in ROOMS:
        shutil.copytree(ROOT / room, tmp_path / "kvproof" / room, ignore=shutil.ignore_patterns("__pycache__", "*.gz"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path / "kvproof")
    file = tmp_path / "kvproof/core/geometry.py"
    source = file.read_text(encoding="utf-8")
    assert source.count(CEIL) == 1
    file.write_text(source.replace(CEIL, FLOOR), encoding="utf-8")
    return tmp_path


def prove(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-m", "kvproof.spec", "prove", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def refuted(out: str) -> set[str]:
    return set(re.findall(r"^(\S+) is refuted \(", out, re.MULTILINE))


def test_floor_for_ceil_in_the_source_refutes_its_claim(floored):
    done = prove(floored, "--claim", CLAIM, "--processes", "1")
    assert done.returncode == 2, done.stderr
    assert refuted(done.stdout) == {CLAIM}
    assert "when calling ceiling_covers_and_is_least(" in done.stdout
    assert done.stdout.rstrip().endswith(f"verdict: refuted\nkvproof prove --claim {CLAIM}")


@pytest.mark.deep
def test_a_quick_run_names_every_claim_that_needs_the_ceiling(floored):
    done = prove(floored, "--quick")
    assert done.returncode == 2, done.stderr
    found = refuted(done.stdout)
    assert CLAIM in found
    assert len([name for name in found if name.startswith("geometry.")]) >= 3  # rows are counted with it, too
    assert not any(name.startswith(("grid.", "any_pool.", "pool.", "pool_keys.")) for name in found)


@pytest.mark.deep
def test_everything_is_as_the_table_says():
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests/_path")}
    done = subprocess.run(
        [sys.executable, "-m", "kvproof.spec", "prove", "--json"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    document = json.loads(done.stdout)
    assert document["problems"] == []
    assert (done.returncode, document["verdict"]) == (0, "holds")
    kinds = [(answer["kind"], answer["verdict"]) for answer in document["answers"]]
    assert kinds.count(("claim", "confirmed")) >= 80
    assert {verdict for kind, verdict in kinds if kind in ("twin", "faulty")} == {"refuted"}
    assert {verdict for kind, verdict in kinds if kind == "tie"} == {"confirmed"}
