"""``kvproof prove`` on the command line: what it says, writes and ends with."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("crosshair")

from kvproof.proofs import catalogue, exhausted, table, work
from kvproof.proofs import result as results
from kvproof.proofs.result import Asked
from kvproof.proofs.table import Row
from kvproof.proofs.verdicts import Said, Verdict
from kvproof.proofs.work import Answer, Unit
from kvproof.spec import cli
from tests.proofs.test_table import certificate
from tests.tidy.sources import ROOT

CLAIM = "geometry.ceiling_covers_and_is_least"
LEMMA = "grid.blocks_share_no_slot"
DEEP = next(one.name for one in catalogue.all_claims() if one.about.deep)
WIDER = next(one.name for one in catalogue.all_claims() if one.setting)


@pytest.fixture
def answers(monkeypatch, tmp_path):
    """Answers every question as the table says it must be, but for what a test changes; the table is one of its own."""
    changed: dict[Unit, Said] = {}
    asked: list[Unit] = []

    def answered(units, processes, finished):
        found = [Answer(unit, changed.get(unit, Said(table.expected_of(unit, {}), seconds=0.5))) for unit in units]
        asked.extend(units)
        for one in found:
            finished(one)
        return found

    monkeypatch.setattr(work, "answers", answered)
    monkeypatch.setattr(table, "FILE", tmp_path / "expected.json")
    monkeypatch.setattr(exhausted, "FILE", tmp_path / "exhausted.json")
    table.write({one.name: Row(Verdict.CONFIRMED, catalogue.faults_of(one)) for one in catalogue.everything()})
    exhausted.write({})
    return changed, asked


def prove(capsys, *arguments):
    code = cli.main(["prove", *map(str, arguments)])
    said = capsys.readouterr()
    return code, said.out, said.err


def lines(out):
    return [line.rstrip() for line in out.rstrip("\n").splitlines()]


# --- verdicts -----------------------------------------------------------------------------------------------------


def test_everything_as_the_table_says_holds(answers, capsys):
    code, out, _ = prove(capsys)
    assert code == 0
    assert lines(out)[-1] == "verdict: holds"
    _, asked = answers
    assert {unit.claim for unit in asked if unit.kind == "claim"} == {one.name for one in catalogue.everything()}
    row = next(line.split("│") for line in lines(out) if line.startswith("│ grid "))
    lemmas = catalogue.lemmas_of("grid")
    faulty = sum(len(one.faulty) for one in lemmas)
    assert [cell.strip() for cell in row[1:-1]] == [
        "grid", str(len(lemmas)), str(len(lemmas)), f"{len(lemmas)} of {len(lemmas)}", f"{len(lemmas)} of {len(lemmas)}",
        f"{faulty} of {faulty}", "0",
    ]  # fmt: skip


def test_every_claim_has_its_twins_asked(answers, capsys):
    prove(capsys, "--claim", CLAIM, "--claim", LEMMA, "--claim", CLAIM)
    _, asked = answers
    expected = []
    for name in (CLAIM, LEMMA):
        faulty = catalogue.faults_of(catalogue.by_name(name))
        assert faulty
        expected += [
            Unit(name, "claim"),
            *([Unit(name, "tie")] if name == LEMMA else []),
            Unit(name, "twin"),
            *(Unit(name, "faulty", fault) for fault in faulty),
        ]
    assert asked == expected


def test_a_quick_run_leaves_out_what_is_deep(answers, capsys):
    code, out, _ = prove(capsys, "--quick")
    assert code == 0
    assert lines(out)[0] == "kvproof prove, quick"
    _, asked = answers
    assert not any(catalogue.by_name(unit.claim).about.deep for unit in asked)
    assert len({unit.claim for unit in asked}) > 50


def test_a_refuted_claim_ends_with_2_its_values_and_the_line_that_shows_it_again(answers, capsys):
    changed, _ = answers
    changed[Unit(CLAIM, "claim")] = Said(Verdict.REFUTED, "AssertionError: when calling f(a = 1, b = 2)")
    code, out, _ = prove(capsys, "--quick")
    assert code == 2
    assert f"{CLAIM} is refuted (core.geometry.ceil_div)" in lines(out)
    assert "  AssertionError: when calling f(a = 1, b = 2)" in lines(out)
    known = catalogue.by_name(CLAIM)
    assert [f"  {known.sentence}", f"  all sizes: {known.about.bounds}"] == lines(out)[-5:-3]
    assert lines(out)[-2:] == ["verdict: refuted", f"kvproof prove --claim {CLAIM}"]


@pytest.mark.parametrize(
    ("unit", "verdict"),
    [
        (Unit(CLAIM, "claim"), Verdict.UNDETERMINED),
        (Unit(CLAIM, "twin"), Verdict.CONFIRMED),
        (Unit(CLAIM, "faulty", "floor for ceil"), Verdict.CONFIRMED),
        (Unit(CLAIM, "faulty", "floor for ceil"), Verdict.UNDETERMINED),
        (Unit(LEMMA, "twin"), Verdict.UNDETERMINED),
        (Unit(LEMMA, "tie"), Verdict.UNDETERMINED),
    ],
)
def test_anything_else_that_is_not_as_expected_ends_with_3(unit, verdict, answers, capsys):
    changed, _ = answers
    changed[unit] = Said(verdict, "because")
    code, out, _ = prove(capsys)
    assert code == 3
    assert any(line.startswith(f"{unit.name}: {verdict.value}, expected ") for line in lines(out))
    assert lines(out)[-2:] == ["verdict: undetermined", f"kvproof prove --claim {unit.claim}"]


@pytest.mark.parametrize("verdict", [Verdict.REFUTED, Verdict.RAISED])
def test_a_tie_that_is_refuted_ends_with_2_and_its_values(verdict, answers, capsys):
    changed, _ = answers
    changed[Unit(LEMMA, "tie")] = Said(verdict, "slot(1, 2) is 3, and the formula says 4")
    code, out, _ = prove(capsys)
    assert code == 2
    assert f"the tie of {LEMMA} is {verdict.value} (core.geometry.slot, core.geometry.expand_block_id)" in lines(out)
    assert "  slot(1, 2) is 3, and the formula says 4" in lines(out)
    assert any(line.startswith(f"{LEMMA}, tie: {verdict.value}, expected confirmed") for line in lines(out))
    assert lines(out)[-1] == f"kvproof prove --claim {LEMMA}"


def test_a_claim_that_the_table_does_not_know_ends_with_3(answers, capsys):
    rows = table.read()
    del rows[CLAIM]
    table.write(rows)
    code, out, _ = prove(capsys, "--quick")
    assert code == 3
    assert f"{CLAIM}: not in the table of expected verdicts (kvproof prove --update adds it)" in lines(out)
    assert lines(out)[-1] == "kvproof prove --quick"
    assert prove(capsys, "--claim", LEMMA)[0] == 0
    assert prove(capsys, "--claim", CLAIM)[0] == 3


def test_the_line_that_shows_it_again_can_be_pasted(answers, capsys):
    changed, _ = answers
    changed[Unit(WIDER, "claim")] = Said(Verdict.REFUTED, "f(0)")
    code, out, _ = prove(capsys)
    assert code == 2
    assert lines(out)[-1] == f"kvproof prove --claim '{WIDER}'"


def test_timing_says_what_took_long(answers, capsys):
    _, out, _ = prove(capsys, "--claim", CLAIM, "--timing")
    assert f"    0.50 s  {CLAIM}" in lines(out)
    assert any(line.endswith(" s") and line[:1].isdigit() for line in lines(out))


# --- the claims of a law -------------------------------------------------------------------------------------------


def naming(law):
    return [one for one in catalogue.everything() if law in one.about.laws]


def test_a_law_stands_for_the_claims_that_name_it(answers, capsys):
    _, asked = answers
    assert prove(capsys, "--law", "ds-2", "--law", "HO-2")[0] == 0
    names = list(dict.fromkeys(unit.claim for unit in asked))
    assert set(names) == {one.name for law in ("DS-2", "HO-2") for one in naming(law)}
    assert {"grid.one_rank_has_a_slot", "geometry.owner_is_a_rank", "outputs.a_drain_hands_everything_out_once"} <= set(names)
    asked.clear()
    prove(capsys, "--law", "HO-2", "--claim", CLAIM)
    assert {unit.claim for unit in asked} == {CLAIM, *(one.name for one in naming("HO-2"))}


def test_a_quick_run_asks_the_claims_of_a_law_that_are_not_deep(answers, capsys):
    _, asked = answers
    assert prove(capsys, "--law", "DS-2", "--quick")[0] == 0
    assert {unit.claim for unit in asked} == {one.name for one in naming("DS-2") if not one.about.deep}
    assert any(one.about.deep for one in naming("DS-2"))


def test_a_family_stands_for_the_claims_of_all_its_laws(answers, capsys):
    _, asked = answers
    assert naming("CN-2") == []
    assert prove(capsys, "--law", "CN")[0] == 0
    family = {one.name for one in catalogue.everything() if any(law.startswith("CN-") for law in one.about.laws)}
    assert {unit.claim for unit in asked} == family


def test_a_fault_is_planted_for_the_claims_of_a_law(answers, capsys):
    _, asked = answers
    assert prove(capsys, "--law", "HO-2", "--fault", "M-HO-2")[0] == 2
    assert {unit.claim for unit in asked if unit.kind == "faulty"} == {one.name for one in naming("HO-2")}


@pytest.mark.parametrize(
    ("judged", "said"),
    [
        (
            {"HB-4": exhausted.Exhausted(12, 60)},
            "HB-4 is exhausted, on all behaviours of 12 scopes: kvproof explore --law HB-4",
        ),
        ({"HB-4": exhausted.Exhausted(1, 6)}, "HB-4 is exhausted, on all behaviours of one scope: kvproof explore --law HB-4"),
        ({}, "HB-4 is tested, by walks, Hypothesis and recordings: kvproof check --law HB-4"),
    ],
)
def test_a_law_that_no_claim_names_says_what_it_rests_on(judged, said, answers, capsys):
    exhausted.write(judged)
    code, out, err = prove(capsys, "--law", "HB-4")
    assert (code, out) == (1, "")
    assert f"HB-4: no claim or lemma names it; {said}" in err


# --- planted faults -----------------------------------------------------------------------------------------------


def test_a_planted_fault_that_refutes_a_claim_ends_with_2(answers, capsys):
    changed, asked = answers
    code, out, _ = prove(capsys, "--claim", CLAIM, "--fault", "M-GEO-1")
    assert code == 2
    assert asked == [Unit(CLAIM, "faulty", "M-GEO-1")]
    assert lines(out)[0] == "kvproof prove, M-GEO-1 planted"
    assert lines(out)[-1] == f"kvproof prove --claim {CLAIM} --fault M-GEO-1"
    changed[Unit(CLAIM, "faulty", "floor for ceil")] = Said(Verdict.REFUTED, "f(0)")
    assert lines(prove(capsys, "--claim", CLAIM, "--fault", "floor for ceil")[1])[-1] == (
        f"kvproof prove --claim {CLAIM} --fault 'floor for ceil'"
    )


def test_a_planted_fault_is_counted_as_one(answers, capsys):
    changed, _ = answers
    lemma = "grid.one_rank_has_a_slot"
    changed[Unit(lemma, "tie", "M-SLOT-1")] = Said(Verdict.REFUTED, "slot_mapping(0) is 1, and the formula says 2")
    changed[Unit(CLAIM, "faulty", "M-SLOT-1")] = Said(Verdict.UNDETERMINED)
    code, out, _ = prove(capsys, "--claim", CLAIM, "--claim", lemma, "--fault", "M-SLOT-1")
    assert code == 2
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines(out) if line.startswith("│")]
    assert rows == [["geometry", "1", "0", "0", "1"], ["grid", "1", "1", "0", "0"]]
    assert all(word in lines(out)[2] for word in ("asked", "refuted", "confirmed", "undetermined"))
    assert lines(out)[-1] == f"kvproof prove --claim {lemma} --fault M-SLOT-1"


def test_a_planted_fault_that_no_claim_sees_ends_with_3_and_names_who_may_see_it(answers, capsys):
    changed, _ = answers
    changed[Unit(CLAIM, "faulty", "M-GEO-1")] = Said(Verdict.CONFIRMED)
    code, out, _ = prove(capsys, "--claim", CLAIM, "--fault", "M-GEO-1")
    assert code == 3
    assert lines(out)[-3:] == [
        "no claim or lemma that was asked sees M-GEO-1", "verdict: undetermined", "kvproof check --fault M-GEO-1",
    ]  # fmt: skip
    changed[Unit(CLAIM, "faulty", "no guard of rows")] = Said(Verdict.UNDETERMINED)
    code, out, _ = prove(capsys, "--claim", CLAIM, "--fault", "no guard of rows")
    assert code == 3
    assert lines(out)[-2:] == [
        "no claim or lemma that was asked sees no guard of rows, and 1 are undetermined", "verdict: undetermined",
    ]  # fmt: skip


def test_a_fault_is_planted_for_every_claim_and_reaches_the_ties_of_lemmas(answers, capsys):
    _, asked = answers
    prove(capsys, "--fault", "M-GEO-1")
    assert asked == [
        *(Unit(one.name, "faulty", "M-GEO-1") for one in catalogue.all_claims() if not one.setting),
        *(Unit(one.name, "tie", "M-GEO-1") for one in catalogue.all_lemmas()),
    ]


def test_a_wrong_formula_is_planted_in_its_lemmas(answers, capsys):
    _, asked = answers
    assert prove(capsys, "--fault", "blocks overlap")[0] == 2
    assert asked == [Unit(LEMMA, "faulty", "blocks overlap")]
    asked.clear()
    lemma = "grid.a_row_ends_with_the_last_position"  # of this name there is a faulty twin of claims, too
    assert prove(capsys, "--claim", lemma, "--fault", "floor for ceil")[0] == 2
    assert asked == [Unit(lemma, "faulty", "floor for ceil"), Unit(lemma, "tie", "floor for ceil")]


# --- wrong command lines ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--claim", "geometry.ceiling"], "no claim 'geometry.ceiling'"),
        (["--fault", "M-GEO-99"], "M-GEO-99"),
        (["--fault", "M-GEO-1", "--fault", "M-GEO-2"], "one fault"),
        (["--fault", "M-GEO-1", "--claim", WIDER], "which claims in a wider setting do not ask anew"),
        (["--fault", "blocks overlap", "--claim", CLAIM], f"is a wrong formula of {LEMMA} alone"),
        (["--fault", ""], "--fault '' names no fault"),
        (["--fault", "", "--quick"], "--fault '' names no fault"),
        (["--fault", "blocks overlapp"], "did you mean blocks overlap"),
        (["--fault", "rounded upp"], "`kvproof prove --fault list` the faulty twins"),
        (["--claim", ""], "no claim ''"),
        (["--quick", "--claim", DEEP], f"{DEEP} is deep, and --quick leaves out what is deep"),
        (["--law", "DS-22"], "no law 'DS-22' (did you mean DS-2"),
        (["--law", ""], "no law ''"),
        (["--law", "CP-12", "--quick"], "CP-12: all claims that name it are deep"),
        (["--law", "DS-2", "--claim", "list"], "a list asks nothing"),
        (["--law", "DS-2", "--write", "page.md"], "prove nothing: leave --quick, --claim, --law"),
        (["--claim", "list", "--quick"], "a list asks nothing"),
        (["--claim", "list", "--claim", "no.such"], "a list asks nothing"),
        (["--claim", "list", "--fault", "M-GEO-99"], "a list asks nothing"),
        (["--fault", "list", "--update"], "a list asks nothing"),
        (["--write", "page.md", "--timing"], "prove nothing"),
        (["--fault", "M-GEO-1", "--update"], "leave --fault and --write out"),
        (["--write", "page.md", "--update"], "leave --fault and --write out"),
        (["--write", "page.md", "--quick"], "prove nothing"),
        (["--certificate", "none.json"], "is no certificate"),
        (["--processes", "0"], "0 is not in the range"),
        (["--nonsense"], "No such option"),
    ],
)
def test_a_wrong_command_line_ends_with_1_and_says_what_to_do(arguments, said, answers, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = prove(capsys, *arguments)
    assert code == 1
    assert said in err
    assert out == ""
    assert not (tmp_path / "page.md").exists()


def test_an_interrupt_decides_nothing(answers, capsys, monkeypatch):
    def interrupted(*of):
        raise KeyboardInterrupt

    monkeypatch.setattr(work, "answers", interrupted)
    code, out, err = prove(capsys, "--quick")
    assert (code, out) == (1, "")
    assert "Interrupted: nothing was decided." in err


def test_a_table_that_cannot_be_read_ends_with_1(answers, capsys):
    table.FILE.write_text("{}", encoding="utf-8")
    code, _, err = prove(capsys, "--quick")
    assert code == 1
    assert "restore it from the repository" in err


# --- lists and JSON -----------------------------------------------------------------------------------------------


def test_the_list_has_every_claim_with_its_sentence(capsys):
    code, out, _ = prove(capsys, "--claim", "list")
    assert code == 0
    heads = [line for line in lines(out) if not line.startswith(" ")]
    assert [head.removesuffix(" (deep)") for head in heads] == [one.name for one in catalogue.everything()]
    assert f"{DEEP} (deep)" in heads
    said = " ".join(line.strip() for line in lines(out))
    assert f"{CLAIM} {catalogue.by_name(CLAIM).sentence}" in said
    assert max(map(len, lines(out))) <= 110
    code, out, _ = prove(capsys, "--claim", "list", "--json")
    assert [one["claim"] for one in json.loads(out)] == [one.name for one in catalogue.everything()]


def test_the_faulty_twins_are_listed_with_what_they_refute(capsys):
    code, out, _ = prove(capsys, "--fault", "list")
    assert code == 0
    heads = [line for line in lines(out) if not line.startswith(" ")]
    assert set(heads) == {fault for one in catalogue.everything() for fault in catalogue.faults_of(one)}
    assert len(heads) == len(set(heads))
    code, out, _ = prove(capsys, "--fault", "list", "--json")
    listed = {one["fault"]: one["refutes"] for one in json.loads(out)}
    assert listed["floor for ceil"] == [
        CLAIM, "geometry.attention_row_covers_the_context", "geometry.mamba_row_covers_the_context",
        "grid.a_row_ends_with_the_last_position",
    ]  # fmt: skip


def test_json_has_what_is_needed_to_read_it_alone(answers, capsys):
    changed, _ = answers
    changed[Unit(CLAIM, "twin")] = Said(Verdict.CONFIRMED)
    code, out, err = prove(capsys, "--claim", CLAIM, "--json")
    assert (code, err) == (3, "")
    document = json.loads(out)
    assert set(document) == {"verdict", "quick", "fault", "answers", "problems", "again"}
    assert document["verdict"] == "undetermined"
    assert document["again"] == f"kvproof prove --claim {CLAIM}"
    assert document["problems"] == [f"{CLAIM}, vacuity twin: confirmed, expected refuted"]
    first, twin = document["answers"][:2]
    assert first == {
        "claim": CLAIM,
        "kind": "claim",
        "fault": "",
        "verdict": "confirmed",
        "as_expected": True,
        "detail": "",
        "sentence": catalogue.by_name(CLAIM).sentence,
        "functions": ["kvproof.core.geometry.ceil_div"],
        "sizes": "all",
        "bounds": catalogue.by_name(CLAIM).about.bounds,
        "laws": [],
    }
    assert (twin["kind"], twin["as_expected"]) == ("twin", False)


def test_json_has_seconds_only_if_asked(answers, capsys):
    document = json.loads(prove(capsys, "--claim", CLAIM, "--json", "--timing")[1])
    assert document["answers"][0]["seconds"] == 0.5
    assert document["seconds"] >= 0
    assert document["again"] == ""


# --- what is written ----------------------------------------------------------------------------------------------


def test_an_update_writes_what_was_found_and_says_so(answers, capsys):
    rows = table.read()
    del rows[CLAIM]
    table.write(rows)
    code, _, err = prove(capsys, "--claim", CLAIM, "--update")
    assert code == 0
    assert lines(err)[-2:] == [f"{CLAIM}: new, confirmed", f"wrote {table.FILE}"]
    assert table.read()[CLAIM] == Row(Verdict.CONFIRMED, catalogue.faults_of(catalogue.by_name(CLAIM)))
    before = table.FILE.stat().st_mtime_ns
    code, out, err = prove(capsys, "--claim", CLAIM, "--update", "--json")
    assert (code, json.loads(out)["changes"]) == (0, [])
    assert lines(err)[-1] == "the table is as it was"
    assert table.FILE.stat().st_mtime_ns == before


def test_an_update_with_a_claim_that_became_undetermined_does_not_hold_until_somebody_says_why(answers, capsys):
    changed, _ = answers
    changed[Unit(CLAIM, "claim")] = Said(Verdict.UNDETERMINED)
    code, out, err = prove(capsys, "--claim", CLAIM, "--update")
    assert code == 3
    assert f"{CLAIM}: confirmed before, now undetermined" in lines(err)
    assert f"{CLAIM}: undetermined, and the table does not say why: write it into expected.json" in lines(out)
    rows = table.read()
    assert rows[CLAIM].verdict is Verdict.UNDETERMINED
    assert prove(capsys, "--claim", CLAIM)[0] == 3
    table.write({**rows, CLAIM: Row(Verdict.UNDETERMINED, rows[CLAIM].faulty, "too many paths")})
    assert prove(capsys, "--claim", CLAIM)[0] == 0


@pytest.mark.parametrize(
    ("unit", "verdict", "code"),
    [
        (Unit(CLAIM, "twin"), Verdict.CONFIRMED, 3),
        (Unit(CLAIM, "faulty", "floor for ceil"), Verdict.UNDETERMINED, 3),
        (Unit(LEMMA, "twin"), Verdict.CONFIRMED, 3),
        (Unit(LEMMA, "tie"), Verdict.UNDETERMINED, 3),
        (Unit(LEMMA, "tie"), Verdict.REFUTED, 2),
    ],
)
def test_an_update_writes_nothing_while_a_twin_or_a_tie_is_wrong(unit, verdict, code, answers, capsys):
    changed, _ = answers
    changed[unit] = Said(verdict)
    rows = table.read()
    del rows[CLAIM], rows[LEMMA]
    table.write(rows)
    before = table.FILE.read_bytes()
    said, _, err = prove(capsys, "--claim", CLAIM, "--claim", LEMMA, "--update")
    assert said == code
    assert "the table is left as it is" in err
    assert f"({unit.name}: {verdict.value})" in err
    assert table.FILE.read_bytes() == before


def test_an_update_without_a_new_claim_is_told_before_anything_is_asked(answers, capsys):
    _, asked = answers
    rows = table.read()
    del rows[CLAIM], rows[LEMMA]
    table.write(rows)
    code, out, err = prove(capsys, "--claim", CLAIM, "--update")
    assert (code, out, asked) == (1, "", [])
    assert f"{LEMMA}: not in the table of expected verdicts, and not asked" in err


def test_an_update_with_a_refuted_claim_writes_nothing_and_ends_with_2(answers, capsys):
    changed, _ = answers
    changed[Unit(CLAIM, "claim")] = Said(Verdict.REFUTED, "f(0)")
    before = table.FILE.read_bytes()
    code, out, err = prove(capsys, "--update")
    assert code == 2
    assert "the table is left as it is" in err
    assert lines(out)[-1] == f"kvproof prove --claim {CLAIM}"
    assert table.FILE.read_bytes() == before


def test_an_update_that_cannot_be_written_is_told_before_anything_is_asked(answers, capsys, tmp_path, monkeypatch):
    _, asked = answers
    (tmp_path / "table").mkdir()
    right = table.read()
    monkeypatch.setattr(table, "read", lambda: right)
    monkeypatch.setattr(table, "FILE", tmp_path / "table")
    code, _, err = prove(capsys, "--update")
    assert code == 1
    assert "it is a folder" in err
    assert asked == []


def test_the_page_is_written_from_the_table(answers, capsys, tmp_path):
    file = tmp_path / "page.md"
    code, out, _ = prove(capsys, "--write", file)
    assert (code, out) == (0, f"wrote {file}\n")
    assert file.read_text(encoding="utf-8").startswith("# Verified properties\n")
    _, asked = answers
    assert asked == []


def test_what_was_exhausted_is_taken_from_a_certificate(answers, capsys, tmp_path):
    file = tmp_path / "certificate.json"
    file.write_text(json.dumps(certificate()), encoding="utf-8")
    page = tmp_path / "page.md"
    code, out, _ = prove(capsys, "--certificate", file, "--write", page)
    assert (code, out) == (0, f"wrote {page}\nwrote {exhausted.FILE}\n")
    assert exhausted.read()["DS-1"] == exhausted.Exhausted(12, 60)
    assert "| 12 | 60 |" in page.read_text(encoding="utf-8")


def test_a_page_that_cannot_be_written_leaves_what_was_exhausted(answers, capsys, tmp_path):
    file = tmp_path / "certificate.json"
    file.write_text(json.dumps(certificate()), encoding="utf-8")
    before = exhausted.FILE.read_bytes()
    code, out, err = prove(capsys, "--certificate", file, "--write", tmp_path / "none" / "page.md")
    assert (code, out) == (1, "")
    assert "does not exist" in err
    assert exhausted.FILE.read_bytes() == before


def test_a_table_that_cannot_be_read_leaves_what_was_exhausted(answers, capsys, tmp_path):
    file = tmp_path / "certificate.json"
    file.write_text(json.dumps(certificate()), encoding="utf-8")
    table.FILE.write_text("{}", encoding="utf-8")
    before = exhausted.FILE.read_bytes()
    page = tmp_path / "page.md"
    assert prove(capsys, "--certificate", file, "--write", page)[0] == 1
    assert not page.exists()
    assert exhausted.FILE.read_bytes() == before


def test_a_partial_certificate_writes_nothing(answers, capsys, tmp_path):
    file = tmp_path / "certificate.json"
    file.write_text(json.dumps(certificate(scopes=[])), encoding="utf-8")
    before = exhausted.FILE.read_bytes()
    page = tmp_path / "page.md"
    code, out, err = prove(capsys, "--certificate", file, "--write", page)
    assert (code, out) == (1, "")
    assert "its scopes are not those of the catalogue" in err
    assert not page.exists()
    assert exhausted.FILE.read_bytes() == before


def test_json_says_what_was_written(answers, capsys, tmp_path):
    page = tmp_path / "page.md"
    code, out, _ = prove(capsys, "--write", page, "--json")
    assert (code, json.loads(out)) == (0, {"wrote": [str(page)]})


# --- the whole way ------------------------------------------------------------------------------------------------


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests/_path")}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("missing", ["crosshair", "z3"])
def test_without_the_extra_the_command_says_how_to_get_it(missing):
    code = f"import sys; sys.modules[{missing!r}] = None; from kvproof.spec import cli; sys.exit(cli.main(sys.argv[1:]))"
    done = run(code, "prove", "--quick")
    assert done.returncode == 1
    assert "needs the extra 'proofs': pip install -e '.[proofs]' (in the clone)" in done.stderr
    assert done.stdout == ""


def test_the_questions_of_a_run_are_those_of_its_claims():
    assert [unit.kind for unit in results.units(Asked(claims=(CLAIM,)))] == ["claim", "twin", "faulty"]
    wider = next(one.name for one in catalogue.all_claims() if one.setting)
    assert [unit.kind for unit in results.units(Asked(claims=(wider,)))] == ["claim"]


def test_one_claim_is_proved(capsys):
    code, out, _ = prove(capsys, "--claim", CLAIM, "--processes", "1")
    assert code == 0, out
    assert lines(out)[-1] == "verdict: holds"
