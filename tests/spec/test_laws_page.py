"""The page and the command that show the laws."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from kvproof.spec import cli, faults, laws, standing
from kvproof.spec.commands.laws import NOT_YET, as_markdown, command
from tests.tidy.sources import ROOT

PAGE = ROOT / "docs/laws.md"


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == as_markdown(), "run `kvproof laws --write docs/laws.md`"


def test_the_page_has_a_row_for_every_law_in_order():
    rows = re.findall(r"^\| ([A-Z]+-\d+) \| ([SCD]) \|", as_markdown(), re.MULTILINE)
    assert rows == [(law.id, law.mark) for law in laws.ALL]
    families = re.findall(r"^## (\w+):", as_markdown(), re.MULTILINE)
    assert families == list(laws.FAMILIES)
    assert {law.id.partition("-")[0] for law in laws.ALL} == set(families)


@pytest.mark.parametrize("law", laws.ALL, ids=[law.id for law in laws.ALL])
def test_a_law_waits_for_its_faults_iff_none_of_them_can_be_planted(law):
    known = {fault.id for fault in faults.ALL}
    assert law.faults
    assert law.later == (not known & set(law.faults))
    row = next(line for line in as_markdown().splitlines() if line.startswith(f"| {law.id} |"))
    assert (NOT_YET in row) == law.later


@pytest.mark.parametrize("fault", faults.ALL, ids=[fault.id for fault in faults.ALL])
def test_every_law_that_a_fault_breaks_names_it(fault):
    for law in fault.laws:
        assert fault.id in laws.by_id(law).faults


def test_the_json_form_holds_every_law():
    result = CliRunner().invoke(command, ["--json"])
    assert result.exit_code == 0
    found = {entry["id"]: entry for entry in json.loads(result.output)}
    assert list(found) == [law.id for law in laws.ALL]
    assert found["HB-11"]["faults"][0] == "M-GATE-1"
    assert "M-GATE-3" in found["HB-11"]["faults"]
    assert "M-GEO-1" in found["DS-1"]["faults"]
    assert found["HB-15"]["after"] == ["Lookup"]
    assert found["DS-8"]["judged_on"] == ["run"]


def test_one_law_is_said_in_full():
    """`kvproof laws ID`: sentence, what it is judged on, and its faults with what they do wrong; the case does not matter."""
    said = CliRunner().invoke(command, ["ds-6", "CA-2"])
    assert said.exit_code == 0
    assert said.output.startswith("DS-6 [S, soundness] DCP scaling\n" + laws.by_id("DS-6").sentence)
    assert "judged on: configuration\n" in said.output
    assert "judged on: action, after Lookup\n" in said.output
    assert "  M-CAP-4: several connectors can use a divergent hit if one of them can" in said.output
    assert "TB-1" not in said.output
    as_json = CliRunner().invoke(command, ["DS-6", "--json"])
    assert [entry["id"] for entry in json.loads(as_json.output)] == ["DS-6"]


def test_a_law_says_what_it_rests_on():
    """The label, the claims that settle it with their bounds, and the commands that ask for either."""
    said = CliRunner().invoke(command, ["HO-2", "HB-4"]).output
    proved, exhausted = said.split("\n\n")
    lines = proved.splitlines()
    at = lines.index("label: proved (shape)")
    assert lines[at + 1] == "claims that settle it, with their bounds:"
    assert lines[at + 2].startswith("  outputs.a_drain_hands_everything_out_once (deep): shape: four blocks without keys; ")
    behind = standing.read()
    parts, scopes = behind["HO-2"].parts, behind["HO-2"].scopes
    assert lines[at + 3 : at + 5] == [
        f"`kvproof prove --law HO-2` asks the claims that name it, among them settling it 1, saying a part of it {parts}.",
        f"`kvproof explore --law HO-2` judges it alone; it was judged on all behaviours of {scopes} scopes.",
    ]
    assert "label: exhausted\n`kvproof explore --law HB-4` judges it alone" in exhausted
    assert "kvproof prove" not in exhausted
    (entry,) = json.loads(CliRunner().invoke(command, ["HO-2", "--json"]).output)
    assert entry["label"] == "proved (shape)"
    assert entry["behind"]["proofs"][0]["deep"] is True
    assert (entry["behind"]["parts"], entry["behind"]["scopes"]) == (parts, scopes)


def test_a_family_lists_its_laws():
    """`kvproof laws HO`: a table of its laws alone; beside an id each law is said in full, once."""
    said = CliRunner().invoke(command, ["ho", "IP"])
    assert said.exit_code == 0
    listed = re.findall(r"^│ ([A-Z]+-\d+) ", said.output, re.MULTILINE)
    assert listed == [law.id for law in laws.ALL if law.id.startswith(("HO-", "IP-"))]
    mixed = CliRunner().invoke(command, ["IP", "IP-2", "CC-3"])
    assert re.findall(r"^([A-Z]+-\d) \[", mixed.output, re.MULTILINE) == [*(f"IP-{n}" for n in range(1, 6)), "CC-3"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["laws", "HB-19"], "no law 'HB-19' (did you mean HB-"),
        (["laws", "DS-6", "--write", "x"], "leave the ids out"),
        (["check", "--law", "DS-66"], "no law 'DS-66' (did you mean DS-6"),
        (["check", "--fault", "M-COW-12"], "no fault 'M-COW-12' (did you mean M-COW-"),
        (["check", "--scope", "fa4-m4-n3"], "no scope 'fa4-m4-n3' (did you mean fa4-m4-n2"),
        (["explain", "--deployment", "kimi-k3-tp8"], "called 'kimi-k3-tp8' (did you mean kimi-k3-tp8-dcp8"),
        (["explain", "--deployment", "zzz"], "called 'zzz'; `kvproof explain --list`"),
    ],
)
def test_unknown_names_are_answered_with_the_nearest_ones(arguments, message, capsys):
    assert cli.main(arguments) == 1
    assert message in capsys.readouterr().err


def test_the_table_shows_every_law_and_the_page_can_be_written(tmp_path):
    shown = CliRunner().invoke(command, [])
    assert shown.exit_code == 0
    assert all(law.id in shown.output for law in laws.ALL)
    file = tmp_path / "laws.md"
    written = CliRunner().invoke(command, ["--write", str(file)])
    assert (written.exit_code, written.output) == (0, "")
    assert file.read_text(encoding="utf-8") == as_markdown()
