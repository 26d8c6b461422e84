"""The whole catalogue, the scopes beside it, the product, and every fault, as `kvproof explore` runs them: too long for CI."""

from __future__ import annotations

import json

import pytest

from kvproof.spec import cli
from kvproof.spec.exploring import scopes

pytestmark = pytest.mark.deep


def test_the_whole_catalogue_holds_and_is_as_pinned(capsys):
    code = cli.main(["explore", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["problems"] == []
    assert (code, document["verdict"], document["counterexamples"]) == (0, "holds", [])


def test_every_fault_has_its_pinned_shortest_counterexample(capsys):
    code = cli.main(["explore", "--faults", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["faults_without_a_scope"] == []
    assert [killed for killed in document["faults"] if killed["found"] != killed["pinned"]] == []
    assert (code, document["verdict"]) == (0, "holds")


@pytest.mark.parametrize("name", [scope.name for scope in scopes.FURTHER])
def test_the_scopes_beside_the_catalogue_hold_and_are_as_pinned(capsys, name):
    code = cli.main(["explore", "--scope", name, "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["problems"] == []
    assert (code, document["counterexamples"]) == (0, [])


@pytest.mark.parametrize("name", [scope.name for scope in scopes.PRODUCT])
def test_the_product_holds_and_is_as_pinned(capsys, name):
    code = cli.main(["explore", "--scope", name, "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["problems"] == []
    assert (code, document["counterexamples"]) == (0, [])
    reached = document["witnesses"]
    assert "hit" in reached
    assert "EAGLE drop shortened a hit" in reached or "eagle" not in name
