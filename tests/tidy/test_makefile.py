"""What a target of the Makefile installs: no more than it needs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.tidy.sources import ROOT

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


def printed(target: str, venv: Path) -> list[str]:
    """Return the commands that a target would run for an environment, whatever the make was told that runs these tests."""
    alone = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS")}
    command = ["make", "--dry-run", f"VENV={venv}", target]
    done = subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def installs(target: str, venv: Path) -> list[str]:
    """Return what a target would give to `pip install`, a line for each call."""
    return [line.partition("requirements/lock.txt ")[2] for line in printed(target, venv) if " --quiet install " in line]


def test_claims_are_proved_without_the_test_packages_and_torch(tmp_path: Path) -> None:
    """A newcomer's first `make prove` brings the two provers alone."""
    assert installs("prove", tmp_path / "new") == ["-e .", "-e '.[proofs]'"]


def test_the_test_packages_are_enough_to_prove(tmp_path: Path) -> None:
    """Their stamp stands for that of the provers: `make prove` after `make test` installs nothing."""
    lines = printed("test", tmp_path / "new")
    touched = [Path(word).name for line in lines if line.startswith("touch ") for word in line.split()[1:]]
    assert touched.index(".installed-runtime") < touched.index(".installed-proofs")
    for name in ("pyvenv.cfg", *touched):
        (tmp_path / name).touch()
    assert installs("prove", tmp_path) == []
    (tmp_path / ".installed-proofs").unlink()
    assert installs("prove", tmp_path) == ["-e '.[proofs]'"]
