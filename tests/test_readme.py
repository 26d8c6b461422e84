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
from kvproof.spec.exploring import jobs, scopes
from kvproof.spec.exploring.jobs import Asked, Job
from kvproof.spec.report import markdown
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


def test_the_counterexample_is_what_the_program_prints() -> None:
    """The Markdown form of M-LRU-1 in the scope that is named, but for who ran it."""
    told = README.split("````markdown\n")[1].split("````")[0]
    scope = scopes.by_name("fa1-contexts")
    example = jobs.perform(Job(Asked(fault="M-LRU-1"), scope, "M-LRU-1")).example
    assert example is not None
    assert _without_versions(told) == _without_versions(markdown.render(example))
    assert len(told.splitlines()) < markdown.MAX_LINES


def _without_versions(text: str) -> str:
    return re.sub(r"kvproof \S+, Python \S+", "", text)
