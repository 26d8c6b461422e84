"""docs/walkthrough.md names every function that runs, in order."""

from __future__ import annotations

from pathlib import Path

from tests import walkthrough_trace
from tests.walkthrough_trace import Call

PAGE = Path(__file__).resolve().parents[2] / "docs" / "walkthrough.md"


def told(block: str) -> list[Call]:
    """The (depth, function) of each line of a block of the page."""
    lines = [line for line in block.splitlines() if line.strip()]
    return [((len(line) - len(line.lstrip())) // 2, line.split()[0]) for line in lines]


def blocks() -> list[str]:
    """The call trees of the page, in order."""
    return [part.split("```")[0] for part in PAGE.read_text(encoding="utf-8").split("```text\n")[1:]]


def test_the_walkthrough_of_an_allocation_is_what_runs() -> None:
    assert told(blocks()[0]) == walkthrough_trace.calls(*walkthrough_trace.partial_hit_world())


def test_the_walkthrough_of_a_handoff_is_what_runs() -> None:
    shown = blocks()[1:]
    expected = walkthrough_trace.handoff_calls()
    assert [told(block) for block in shown] == [calls for _, calls in expected]


def test_the_handoff_ends_in_the_hit_that_policy_promises() -> None:
    driver = walkthrough_trace.handoff_driver()
    records = [driver.do(action) for action in walkthrough_trace.HANDOFF]
    found = next(record for record in records if record.action == "LookupExternal")
    assert (found.external, found.lists) == (48, ((2,), (0, 0, 1)))
    load = next(record for record in records if record.pairs)
    assert load.pairs == ((0, 0, 3, 2), (1, 2, 4, 1))
    assert driver.tables(1) == [[3], [0, 0, 4, 5]]
