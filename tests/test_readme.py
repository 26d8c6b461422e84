"""What the README shows is true: its Python runs, its commands exist, its figures are those of the archive."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from kvproof.spec import distribution
from kvproof.spec.cli import main
from kvproof.spec.exits import ExitCode
from kvproof.spec.traces import archive, project

README = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_python_example_prints_what_its_comment_says() -> None:
    """The example runs as it stands and prints the table in its comment."""
    code = README.split("```python\n")[1].split("```")[0]
    told = re.search(r"# (\(.*?\)): ", code)
    assert told is not None
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "README.md", "exec"), {})
    assert out.getvalue().strip() == told.group(1)


def test_every_command_and_option_shown_exists(capsys: pytest.CaptureFixture[str]) -> None:
    """Each `kvproof NAME --option` of the README is known to the command line."""
    known = distribution.command_entry_points()
    for line in re.findall(r"^kvproof (.+)$", README, re.MULTILINE):
        words = line.split("#")[0].split()
        assert words[0] in known
        path = [words[0], *([words[1]] if words[0] == "conform" else [])]
        assert main([*path, "--help"]) == ExitCode.HOLDS
        help_text = capsys.readouterr().out
        for option in re.findall(r"--[a-z-]+", line):
            assert option in help_text


def test_the_figures_of_the_recordings() -> None:
    """487 recordings ship, 247 are covered."""
    recordings = list(archive.recordings())
    covered = [entry for entry, recording in recordings if project.uncovered(recording.header) is None]
    for figure in (len(recordings), len(covered)):
        assert re.search(rf"\b{figure}\b", README)
