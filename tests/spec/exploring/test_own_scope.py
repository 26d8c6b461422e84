"""The example of docs/explore.md: a scope that is not in the package."""

from __future__ import annotations

from pathlib import Path

from examples import own_scope
from tests.tidy.sources import ROOT


def test_the_example_explores_its_scope_and_says_what_was_covered(capsys):
    own_scope.main()
    said = capsys.readouterr().out.splitlines()
    assert said[:4] == [
        "complete: 1367 orbits, 1725 edges, depth 62",
        "violation: none",
        "leaves out:",
        "  more than 2 requests",
    ]
    assert said[-1] == "81 laws were never judged, 13 situations were reached"


def test_the_page_shows_the_scope_of_the_example():
    source = Path(own_scope.__file__).read_text(encoding="utf-8")
    scope = source[source.index("MINE = Scope(") : source.index("\n)\n") + 3]
    assert scope in (ROOT / "docs/explore.md").read_text(encoding="utf-8")
