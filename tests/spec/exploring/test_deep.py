"""The whole catalogue and every fault, as `kvproof explore` and `kvproof explore --faults` run them: too long for CI."""

from __future__ import annotations

import json

import pytest

from kvproof.spec import cli

pytestmark = pytest.mark.deep


def test_the_whole_catalogue_holds_and_is_as_pinned(capsys):
    code = cli.main(["explore", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["problems"] == []
    assert (code, document["verdict"], document["counterexamples"]) == (0, "holds", [])


def test_every_fault_has_its_pinned_shortest_counterexample(capsys):
    code = cli.main(["explore", "--faults", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["problems"] == []
    assert (code, document["verdict"]) == (0, "holds")
