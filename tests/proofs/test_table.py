"""The table of expected verdicts, what was exhausted, and the page that is made of both."""

from __future__ import annotations

import json

import pytest
from attrs import evolve

pytest.importorskip("crosshair")

from kvproof.proofs import catalogue, exhausted, page, table, work
from kvproof.proofs.exhausted import Exhausted
from kvproof.proofs.table import Row
from kvproof.proofs.verdicts import Said, Verdict
from kvproof.proofs.work import Answer, Unit
from kvproof.spec import laws
from kvproof.spec.exits import UserError
from kvproof.spec.exploring import certificate as certificates
from kvproof.spec.exploring import pins
from kvproof.spec.exploring.certificate import Certificate
from kvproof.spec.exploring.scopes import CATALOGUE, FURTHER

A, B, C = (one.name for one in catalogue.everything()[:3])
FAULT = catalogue.faults_of(catalogue.by_name(B))[0]


def right() -> dict[str, Row]:
    """The table in which everything is confirmed."""
    return {one.name: Row(Verdict.CONFIRMED, catalogue.faults_of(one)) for one in catalogue.everything()}


def said(name, kind: work.Kind = "claim", verdict=Verdict.CONFIRMED, fault="", detail=""):
    return Answer(Unit(name, kind, fault), Said(verdict, detail))


# --- differences --------------------------------------------------------------------------------------------------


def test_what_is_as_expected_is_no_difference():
    answers = [said(A), said(A, "twin", Verdict.REFUTED), said(B, "faulty", Verdict.REFUTED, FAULT)]
    assert table.differences(answers, right()) == []
    assert table.unexpected(answers, right()) == []


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (said(A, verdict=Verdict.REFUTED, detail="f(0)"), f"{A}: refuted, expected confirmed"),
        (
            said(A, verdict=Verdict.UNDETERMINED, detail="Not confirmed."),
            f"{A}: undetermined, expected confirmed (Not confirmed.)",
        ),
        (said(A, "twin", Verdict.CONFIRMED), f"{A}, vacuity twin: confirmed, expected refuted"),
        (said(A, "twin", Verdict.UNDETERMINED), f"{A}, vacuity twin: undetermined, expected refuted ()"),
        (said(B, "faulty", Verdict.CONFIRMED, FAULT), f"{B}, {FAULT} planted: confirmed, expected refuted"),
        (said(B, "faulty", Verdict.RAISED, FAULT, "KeyError"), f"{B}, {FAULT} planted: raised, expected refuted (KeyError)"),
    ],
)
def test_a_verdict_that_is_not_as_expected_is_a_difference(answer, line):
    assert table.differences([answer], right()) == [line]
    assert table.unexpected([answer], right()) == [answer]


def test_better_than_expected_is_a_difference_too():
    rows = {**right(), A: Row(Verdict.UNDETERMINED, catalogue.faults_of(catalogue.by_name(A)), "too many paths")}
    assert table.differences([said(A)], rows) == [f"{A}: confirmed, expected undetermined"]
    assert table.differences([said(A, verdict=Verdict.UNDETERMINED)], rows) == []


def test_claims_and_faulty_twins_that_are_new_or_gone_are_differences():
    rows = right()
    del rows[A]
    rows[B] = Row(Verdict.CONFIRMED, (*rows[B].faulty, "forgotten"))
    rows["geometry.old"] = Row(Verdict.CONFIRMED, ())
    faulty = ", ".join(catalogue.faults_of(catalogue.by_name(B)))
    assert table.differences([], rows) == [
        f"{A}: not in the table of expected verdicts (kvproof prove --update adds it)",
        f"{B}: faulty twins {faulty}, expected {faulty}, forgotten",
        "geometry.old: in the table of expected verdicts, but there is no such claim (kvproof prove --update takes it out)",
    ]
    assert table.differences([], rows, [C]) == []
    assert len(table.differences([], rows, [A])) == 1


def test_a_claim_that_is_new_must_be_confirmed():
    assert table.expected_of(Unit("geometry.new", "claim"), {}) is Verdict.CONFIRMED
    assert table.expected_of(Unit("geometry.new", "twin"), {}) is Verdict.REFUTED
    assert table.expected_of(Unit("grid.new", "tie"), {}) is Verdict.CONFIRMED


# --- updates ------------------------------------------------------------------------------------------------------


def test_an_update_takes_what_was_found_and_keeps_the_rest():
    why = "too many paths"
    before = {**right(), A: Row(Verdict.UNDETERMINED, ("forgotten",), why), "geometry.old": Row(Verdict.CONFIRMED, ())}
    after = table.updated([said(B, verdict=Verdict.UNDETERMINED), said(C, "twin", Verdict.REFUTED)], before)
    assert list(after) == [one.name for one in catalogue.everything()]
    assert after[A] == before[A]  # its twins are not said to be refuted: nobody asked them
    assert after[B] == Row(Verdict.UNDETERMINED, catalogue.faults_of(catalogue.by_name(B)), table.NOT_SAID)
    assert after[C] == before[C]
    assert table.changes(before, after) == [f"{B}: confirmed before, now undetermined", "geometry.old: gone"]


def test_an_update_takes_the_twins_of_what_was_asked():
    before = {**right(), A: Row(Verdict.CONFIRMED, ("forgotten",)), B: Row(Verdict.UNDETERMINED, right()[B].faulty, "because")}
    del before[C]
    after = table.updated([said(A), said(B), said(C)], before)
    assert after == right()
    assert table.changes(before, after) == [
        f"{A}: other faulty twins", f"{B}: undetermined before, now confirmed", f"{C}: new, confirmed",
    ]  # fmt: skip
    assert table.changes({A: Row(Verdict.UNDETERMINED, (), "x")}, {A: Row(Verdict.UNDETERMINED, (), "y")}) == [
        f"{A}: another reason"
    ]


def test_an_undetermined_claim_without_a_reason_is_a_difference():
    faulty = catalogue.faults_of(catalogue.by_name(A))
    rows = {**right(), A: Row(Verdict.UNDETERMINED, faulty, table.NOT_SAID)}
    answer = said(A, verdict=Verdict.UNDETERMINED)
    assert table.differences([answer], rows) == [
        f"{A}: undetermined, and the table does not say why: write it into expected.json"
    ]
    assert table.differences([answer], {**rows, A: Row(Verdict.UNDETERMINED, faulty, "too many paths")}) == []


@pytest.mark.parametrize(
    "answer",
    [
        said(A, "twin", Verdict.CONFIRMED),
        said(A, "twin", Verdict.UNDETERMINED),
        said(B, "faulty", Verdict.CONFIRMED, FAULT),
        said(B, "faulty", Verdict.RAISED, FAULT),
        said("grid.blocks_share_no_slot", "tie", Verdict.REFUTED),
        said("grid.blocks_share_no_slot", "tie", Verdict.UNDETERMINED),
    ],
)
def test_a_twin_or_a_tie_that_is_not_as_expected_has_no_place_in_the_table(answer):
    assert table.hindering([said(A), answer], right()) == [answer]
    with pytest.raises(UserError, match="nor has one with a twin or a tie that is not as expected"):
        table.updated([said(A), answer], right())


def test_what_was_neither_asked_nor_known_is_told():
    rows = right()
    del rows[A], rows[C]
    units = [Unit(A, "claim"), Unit(C, "twin")]
    assert table.unasked(units, rows) == [C]
    assert table.unasked(units, right()) == []


def test_a_claim_that_comes_to_be_confirmed_loses_its_reason():
    before = {**right(), A: Row(Verdict.UNDETERMINED, (), "too many paths")}
    assert table.updated([said(A)], before)[A].why == ""


@pytest.mark.parametrize("verdict", [Verdict.REFUTED, Verdict.RAISED])
def test_a_false_claim_has_no_place_in_the_table(verdict):
    with pytest.raises(UserError, match=f"{A}: {verdict.value}: a claim that is false has no place in the table"):
        table.updated([said(A, verdict=verdict)], right())


def test_a_claim_that_was_never_asked_is_not_made_up():
    rows = right()
    del rows[A]
    with pytest.raises(UserError, match=f"{A} was not asked and is not in the table"):
        table.updated([said(B)], rows)


# --- files --------------------------------------------------------------------------------------------------------


def test_a_table_is_read_as_it_was_written(tmp_path):
    rows = {A: Row(Verdict.UNDETERMINED, ("x", "y"), "because"), B: Row(Verdict.CONFIRMED, ())}
    table.write(rows, tmp_path / "expected.json")
    assert table.read(tmp_path / "expected.json") == rows
    assert list(table.read(tmp_path / "expected.json")) == [A, B]


def test_what_was_exhausted_is_read_as_it_was_written(tmp_path):
    found = {"DS-1": Exhausted(3, 400), "DS-2": Exhausted(0, 0)}
    exhausted.write(found, tmp_path / "exhausted.json")
    assert exhausted.read(tmp_path / "exhausted.json") == found


@pytest.mark.parametrize("read", [table.read, exhausted.read])
@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"format": "other", "version": 1, "claims": {}, "laws": {}}', '{"format": 1, "version": 1}']
)
def test_another_file_is_refused(read, text, tmp_path):
    file = tmp_path / "file.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match="restore it from the repository"):
        read(file)
    with pytest.raises(UserError, match="restore it from the repository"):
        read(tmp_path / "none.json")


def test_unknown_verdicts_are_refused(tmp_path):
    file = tmp_path / "expected.json"
    table.write({A: Row(Verdict.CONFIRMED, ())}, file)
    file.write_text(file.read_text(encoding="utf-8").replace("confirmed", "certain"), encoding="utf-8")
    with pytest.raises(UserError, match="is no table of expected verdicts"):
        table.read(file)


# --- certificates -------------------------------------------------------------------------------------------------

JUDGED = {"DS-1": 5, "HB-16": 0}
"""How often some laws are judged in each scope; the others once."""
LAWS = tuple(law.id for law in laws.ALL)


def scope(one, **changes):
    """The certificate of a scope as pinned, as if it had been explored."""
    pin = pins.read()[one.name]
    laws_ = tuple(law.id for law in laws.ALL)
    made = Certificate(
        scope=one.name, fault="", profile="sound", settings={}, bounds=certificates.bounds_as_dict(one.bounds), leaves_out=(),
        laws=laws_, end="complete", orbits=pin.orbits, edges=pin.edges, depth=pin.depth, levels=pin.levels or (), kinds={}, key_bytes=0,
        witnesses={}, premises={law: JUDGED.get(law, 1) for law in laws_}, runs=1, refusals=0, closed=0,
    )  # fmt: skip
    return {**certificates.as_dict(evolve(made, **changes)), "verdict": "holds"}


def certificate(*, scopes=None, **changes):
    """The certificate of a whole exploration, but for what is changed."""
    every = [scope(one) for one in CATALOGUE] if scopes is None else scopes
    premises: dict[str, int] = {}
    for one in every:
        for law, count in one["premises"].items():
            premises[law] = premises.get(law, 0) + count
    document = {
        "format": "kvproof-certificate", "version": 1, "verdict": "holds", "problems": [], "counterexamples": [],
        "premises": premises, "scopes": every,
    }  # fmt: skip
    return {**document, **changes}


def first_scope(**changes):
    """The same with another first scope."""
    return certificate(scopes=[scope(CATALOGUE[0], **changes), *(scope(one) for one in CATALOGUE[1:])])


def written(tmp_path, document):
    file = tmp_path / "certificate.json"
    file.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return file


def test_a_whole_exploration_says_how_often_each_law_was_judged(tmp_path):
    found = exhausted.of_certificate(written(tmp_path, certificate()))
    assert len(CATALOGUE) == 12
    assert found["DS-1"] == Exhausted(12, 60)
    assert found["HB-16"] == Exhausted(0, 0)
    assert found["DS-2"] == Exhausted(12, 12)
    assert list(found) == [law.id for law in laws.ALL]


def test_a_scope_that_ends_at_its_own_bound_counts(tmp_path):
    assert exhausted.of_certificate(written(tmp_path, first_scope(end="depth")))["DS-1"] == Exhausted(12, 60)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"verdict": "refuted"}, "its verdict is 'refuted'"),
        ({"verdict": "undetermined"}, "its verdict is 'undetermined'"),
        ({"problems": ["given up"]}, "with 1 problems"),
        ({"counterexamples": [{}]}, "its verdict is 'holds', with 0 problems"),
        ({"format": "other"}, "it is 'other', version 1"),
        ({"version": 99}, "version 99"),
        ({"premises": {}}, "its premises are not the sum"),
        ({"scopes": []}, "its scopes are not those of the catalogue"),
    ],
)
def test_a_certificate_that_says_nothing_is_refused(changes, said, tmp_path):
    with pytest.raises(UserError, match="only an exploration of the whole catalogue that holds says anything") as refused:
        exhausted.of_certificate(written(tmp_path, {**certificate(), **changes}))
    assert said in str(refused.value)


def parts():
    return [scope(one) for one in CATALOGUE]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (lambda: certificate(scopes=parts()[:1]), "its scopes are not those of the catalogue"),
        (lambda: certificate(scopes=parts()[1:]), f"({CATALOGUE[0].name})"),
        (lambda: certificate(scopes=[*parts(), parts()[0]]), f"({CATALOGUE[0].name})"),
        (lambda: certificate(scopes=[*parts(), scope(FURTHER[0])]), f"({FURTHER[0].name})"),
        (lambda: first_scope(fault="M-GEO-1"), "M-GEO-1 was planted"),
        (lambda: first_scope(end="edges"), "was not seen as a whole, or is not as pinned"),
        (lambda: first_scope(end="sampled"), "was not seen as a whole"),
        (lambda: first_scope(end="depth", depth=3), "is not as pinned"),
        (lambda: first_scope(orbits=9), "is not as pinned"),
        (lambda: first_scope(edges=9), "is not as pinned"),
        (lambda: first_scope(bounds={}), "has other bounds"),
        (lambda: first_scope(laws=("DS-1",), premises={"DS-1": 5}), "was not judged in"),
        (lambda: first_scope(laws=(*LAWS, "DS-99"), premises=dict.fromkeys((*LAWS, "DS-99"), 1)), "no such law"),
        (lambda: first_scope(premises=dict.fromkeys((law.id for law in laws.ALL), -5)), "judged less than never"),
    ],
)
def test_a_scope_that_was_not_seen_as_a_whole_is_refused(document, said, tmp_path):
    with pytest.raises(UserError, match="only an exploration of the whole catalogue that holds says anything") as refused:
        exhausted.of_certificate(written(tmp_path, document()))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "document",
    [
        "",
        "{}",
        "[]",
        "[" * 100_000,
        lambda: certificate(premises=[]),
        lambda: certificate(premises={"DS-1": "many"}),
        lambda: certificate(scopes=[{**scope(CATALOGUE[0]), "orbits": "9"}]),
        lambda: certificate(scopes=[{**scope(CATALOGUE[0]), "verdict": "undetermined"}]),
    ],
)
def test_a_file_that_is_no_certificate_is_refused(document, tmp_path):
    with pytest.raises(UserError, match="is no certificate of an exploration"):
        exhausted.of_certificate(written(tmp_path, document if isinstance(document, str) else document()))
    with pytest.raises(UserError, match="is no certificate of an exploration"):
        exhausted.of_certificate(tmp_path / "none.json")


# --- the page -----------------------------------------------------------------------------------------------------

NONE = {law.id: Exhausted(0, 0) for law in laws.ALL}
SETTLED = catalogue.by_name("grid.places_and_positions_are_one_to_one")
DS_3 = next(law for law in laws.ALL if law.id == "DS-3")
PC_14 = next(law for law in laws.ALL if law.id == "PC-14")


def test_a_confirmed_claim_that_states_the_whole_law_proves_it():
    row = Row(Verdict.CONFIRMED, ())
    assert page.label(DS_3, {SETTLED.name: row}, NONE) == "proved (grid)"
    assert page.label(PC_14, {SETTLED.name: row}, NONE) == "tested"


@pytest.mark.parametrize("verdict", [Verdict.UNDETERMINED, Verdict.REFUTED, Verdict.RAISED])
def test_undetermined_is_never_counted_as_proved(verdict):
    rows = {SETTLED.name: Row(verdict, (), "because")}
    assert page.label(DS_3, rows, NONE) == "tested"
    assert "0 confirmed, " in page.text(rows, NONE)


def test_a_law_that_was_judged_in_a_whole_scope_is_exhausted():
    assert page.label(PC_14, {}, {"PC-14": Exhausted(1, 9)}) == "exhausted"
    assert page.label(PC_14, {}, {"PC-14": Exhausted(0, 0)}) == "tested"
    assert page.label(PC_14, {}, {}) == "tested"


def test_a_claim_that_says_a_part_of_a_law_proves_nothing_of_it():
    part = catalogue.by_name("grid.slots_of_a_rank_have_no_gap")
    assert "DS-3" in part.about.laws
    assert page.label(DS_3, {part.name: Row(Verdict.CONFIRMED, ())}, NONE) == "tested"


def test_the_page_has_every_claim_and_every_law_once():
    text = page.text(right(), NONE)
    lines = text.splitlines()
    for one in catalogue.everything():
        name = one.name.partition(".")[2]
        deep = ", deep" if one.about.deep else ""
        assert sum(line.startswith((f"| `{name}`{deep} |", f"| `{one.name}`{deep} |")) for line in lines) >= 1
        assert one.sentence in text
    for law in laws.ALL:
        assert sum(line.startswith(f"| [{law.id}](laws.md) |") for line in lines) == 1
    assert f"{len(right())} claims and lemmas: {len(right())} confirmed, 0 undetermined" in text
    assert all(
        line.count("|") == lines[at - 1].count("|")
        for at, line in enumerate(lines)
        if line.startswith("|") and lines[at - 1].startswith("|")
    )


def test_an_undetermined_claim_says_why_on_the_page():
    rows = {**right(), A: Row(Verdict.UNDETERMINED, (), "too many paths")}
    assert "undetermined (too many paths)" in page.text(rows, NONE)
    assert "not asked yet" in page.text({}, NONE)
