"""docs/walkthrough.md names every function that runs, in order."""

from __future__ import annotations

from pathlib import Path

from tests import walkthrough_trace

PAGE = Path(__file__).resolve().parents[2] / "docs" / "walkthrough.md"


def test_the_walkthrough_is_what_runs() -> None:
    """The call tree of the page equals the traced one, function by function and depth by depth."""
    block = PAGE.read_text(encoding="utf-8").split("```text\n")[1].split("```")[0]
    told = []
    for line in block.splitlines():
        stripped = line.lstrip()
        told.append(((len(line) - len(stripped)) // 2, stripped.split()[0]))
    assert told == walkthrough_trace.calls(*walkthrough_trace.partial_hit_world())
