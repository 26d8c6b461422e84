"""Every claim and lemma says what it is about, has its twins, and stands in the table and on the page."""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType

import pytest

pytest.importorskip("crosshair")

from kvproof.core import (
    connectors,
    contents,
    events,
    geometry,
    lookup,
    native,
    phases,
    prefixes,
    reachability,
    reconciliation,
    retention,
)
from kvproof.core.kinds import scratch
from kvproof.core.offload import admission, counters, lazy, promotion, reset, tracks
from kvproof.proofs import catalogue, claim, exhausted, labelling, page, symbolic, table, twins
from kvproof.proofs.catalogue import Claim
from kvproof.proofs.verdicts import Verdict
from kvproof.spec import faults, laws, standing
from kvproof.spec.exits import UserError
from tests.tidy.sources import ROOT

EVERYTHING = catalogue.everything()
CLAIMS = [one for one in catalogue.all_claims() if not one.setting]
LAWS = {law.id for law in laws.ALL}
WHOLE = (
    *(connectors, contents, events, geometry, lookup, native, phases, prefixes, reachability, reconciliation, retention),
    *(scratch, admission, counters, lazy, promotion, reset, tracks),
)
"""Modules of the model of which each public function is what a claim is about."""


def ids(known):
    return [one.name for one in known]


# --- claims -------------------------------------------------------------------------------------------------------


def test_there_are_enough_claims_about_functions_of_the_model():
    assert len(CLAIMS) >= 80
    assert len(set(ids(EVERYTHING))) == len(EVERYTHING)


def test_every_file_of_claims_is_in_the_catalogue():
    files = {path.stem for path in (ROOT / "proofs/claims").glob("*.py") if symbolic.names(path.stem)}
    assert files == set(catalogue.FILES)
    assert {path.stem for path in (ROOT / "proofs/planted").glob("*.py")} - {"__init__"} <= files


@pytest.mark.parametrize("file", catalogue.FILES)
def test_every_claim_has_the_shape_of_which_a_twin_can_be_made(file):
    assert twins.twin_source(symbolic.source(file)).count("assert False") == len(symbolic.names(file))


@pytest.mark.parametrize("one", EVERYTHING, ids=ids(EVERYTHING))
def test_every_claim_says_what_it_is_about(one):
    about = one.about
    assert about.of
    for function in about.of:
        assert function.__module__.startswith("kvproof.core."), function
        assert getattr(importlib.import_module(function.__module__), function.__name__) is function
    assert set(about.settles) <= set(about.laws) <= LAWS
    assert len(set(about.laws)) == len(about.laws)
    assert about.bounds == about.bounds.strip()
    assert about.bounds not in {"", "GRID"}
    assert len(one.sentence.split()) >= 5, "a sentence that a reviewer understands"
    assert one.sentence[0].isupper()
    assert one.sentence.endswith(".")
    assert not one.sentence.split()[0].rstrip(".,:;").startswith(tuple(LAWS)), "the id stands at the end"


@pytest.mark.parametrize("module", WHOLE, ids=lambda module: module.__name__)
def test_every_function_of_a_module_is_what_a_claim_is_about(module):
    functions = {
        name
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }
    spoken_of = {function.__name__ for one in CLAIMS for function in one.about.of if function.__module__ == module.__name__}
    assert functions - spoken_of == set()
    assert functions


def test_a_function_with_an_assert_that_is_no_claim_is_refused():
    def odd() -> None:
        """Do nothing."""

    with pytest.raises(TypeError, match="odd has an assert and is no claim"):
        claim.about(odd)
    with pytest.raises(ValueError, match="names the functions that it is about"):
        claim.claim(bounds="all integers")
    with pytest.raises(ValueError, match="and its bounds"):
        claim.claim(geometry.ceil_div, bounds="")


def test_laws_that_are_settled_are_among_the_laws():
    @claim.claim(geometry.ceil_div, bounds="all", laws=("DS-1", "DS-2"), settles=("DS-2", "DS-3"))
    def said() -> None:
        """Say something
        on two lines."""

    assert claim.about(said).laws == ("DS-2", "DS-3", "DS-1")
    assert claim.sentence(said) == "Say something on two lines."


def test_a_claim_in_a_wider_setting_is_deep_and_has_no_twins_of_its_own():
    wider = [one for one in catalogue.all_claims() if one.setting]
    assert {one.file for one in wider} == {file for files in catalogue.WIDER.values() for file in files}
    for one in wider:
        assert one.name == f"{one.file}.{one.function}[{one.setting}]"
        assert one.about.deep
        assert one.patches
        assert catalogue.faults_of(one) == ()


# --- faulty twins -------------------------------------------------------------------------------------------------


def test_every_claim_has_a_faulty_twin():
    assert [
        one.name for one in EVERYTHING if not (isinstance(one, Claim) and one.setting) and not catalogue.faults_of(one)
    ] == []


@pytest.mark.parametrize("file", catalogue.FILES)
def test_faulty_twins_rebind_what_is_there_in_the_model(file):
    names = symbolic.names(file)
    planted = catalogue.planted(file)
    meant = {one.name: one.patches for one in planted}
    refuted = [(one.name, name) for one in planted for name in one.refutes]
    assert len(set(refuted)) == len(refuted)
    for one in planted:
        assert one.patches == meant[one.name], f"two faults are called {one.name!r}"
        assert one.refutes
        assert set(one.refutes) <= set(names), one.name
        assert one.patches
        for place, name, instead in one.patches:
            module = place if isinstance(place, ModuleType) else importlib.import_module(place)
            assert module.__name__.startswith("kvproof.core."), one.name
            assert getattr(module, name) is not instead, one.name


def test_a_fault_is_found_by_its_name():
    known = catalogue.by_name("geometry.ceiling_covers_and_is_least")
    assert isinstance(known, Claim)
    (place, name, _), *_ = catalogue.patches(known, "floor for ceil")
    assert (place, name) == (geometry, "ceil_div")
    assert catalogue.patches(known, "M-GEO-1") == tuple(faults.by_id("M-GEO-1").patches)


def test_a_fault_of_another_file_is_found():
    known = catalogue.by_name("boundaries.chunk_skips_up_to_its_start")
    assert isinstance(known, Claim)
    assert catalogue.patches(known, "floor for ceil")[0][1] == "ceil_div"


def test_faults_that_nobody_has_or_that_no_function_shows_are_refused():
    known = catalogue.by_name("geometry.ceiling_covers_and_is_least")
    assert isinstance(known, Claim)
    with pytest.raises(UserError, match="M-GEO-99"):
        catalogue.patches(known, "M-GEO-99")
    setting = next(fault.id for fault in faults.ALL if not fault.patches)
    with pytest.raises(UserError, match="setting of a profile"):
        catalogue.patches(known, setting)


def test_an_unknown_claim_is_answered_with_near_ones():
    with pytest.raises(UserError, match=r"did you mean geometry\.ceiling_covers_and_is_least"):
        catalogue.by_name("geometry.ceiling_covers_and_is_last")


# --- the table and the page ---------------------------------------------------------------------------------------


def test_the_table_has_every_claim_with_its_faulty_twins():
    rows = table.read()
    assert {name: row.faulty for name, row in rows.items()} == {one.name: catalogue.faults_of(one) for one in EVERYTHING}


def test_what_is_not_confirmed_says_why():
    for name, row in table.read().items():
        assert bool(row.why) == (row.verdict is not Verdict.CONFIRMED), name
        assert row.why != table.NOT_SAID, name


def test_every_law_is_looked_for_in_what_was_exhausted():
    assert set(exhausted.read()) == LAWS


def test_the_page_is_as_generated():
    assert (ROOT / "docs/verified-properties.md").read_text(encoding="utf-8") == page.text(table.read(), exhausted.read())


def test_the_command_line_says_of_each_law_what_the_page_says() -> None:
    assert standing.read() == labelling.behind(), "python -m kvproof.proofs.labelling writes it"


def test_the_page_says_for_what_a_law_is_proved_and_which_claims_are_deep() -> None:
    said = (ROOT / "docs/verified-properties.md").read_text(encoding="utf-8")
    for law, name in (
        ("HO-2", "outputs.a_drain_hands_everything_out_once"),
        ("CP-12", "storing.a_reset_that_is_done_leaves_an_empty_host"),
    ):
        known = catalogue.by_name(name)
        row = next(line for line in said.splitlines() if line.startswith(f"| [{law}](laws.md) | "))
        assert f"| proved (shape) | `{name}`, deep (shape: {known.about.bounds}) |" in row
        assert f"| `{name.partition('.')[2]}`, deep | " in said
    assert "(shape: four blocks without keys" in said


def test_what_is_tested_is_said_alike_on_both_pages() -> None:
    for page_of in ("docs/verified-properties.md", "docs/prove.md"):
        assert "judged by walks, Hypothesis and recordings in" in (ROOT / page_of).read_text(encoding="utf-8")
