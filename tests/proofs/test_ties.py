"""The tie of a lemma: its formulas are compared with the functions of the model as they are then, and a difference is told."""

from __future__ import annotations

import pytest

pytest.importorskip("z3")

from attrs import evolve

from kvproof.core import geometry
from kvproof.core import pool as pools
from kvproof.proofs import catalogue, tie
from kvproof.proofs.lemmas import grid, tied_grid
from kvproof.proofs.shape import ClaimError
from kvproof.proofs.verdicts import Verdict

LEMMAS = {one.name: one for one in catalogue.all_lemmas()}
SLOTS = LEMMAS["grid.one_rank_has_a_slot"]


def asked(one, *patches):
    return tie.ask(one, tied_grid.cases, tied_grid.difference, patches)


@pytest.mark.parametrize("name", LEMMAS)
def test_every_lemma_is_tied_to_the_model(name):
    said = catalogue.tied(LEMMAS[name])
    assert said.verdict is Verdict.CONFIRMED, said.detail
    number = int(said.detail.removesuffix(" values compared").replace(",", ""))
    assert number >= 400 * len(LEMMAS[name].formulas)


@pytest.mark.parametrize("broken", ["slot_mapping", "block_offset", "local_length", "owner_rank", "block_column"])
def test_a_function_that_is_wrong_for_three_ranks_alone_breaks_the_ties_of_its_lemmas(broken):
    real = getattr(geometry, broken)

    def wrong(*arguments, **named):
        return real(*arguments, **named) + (3 in (*arguments, named.get("dcp_size")))

    found = {name: asked(one, (geometry, broken, wrong)) for name, one in LEMMAS.items() if broken in one.formulas}
    assert found
    for said in found.values():
        assert said.verdict is Verdict.REFUTED
        assert said.detail.startswith(f"{broken}(")
        assert "dcp_size = 3" in said.detail or " = 3" in said.detail


def test_a_fault_of_the_catalogue_reaches_a_tie():
    # M-SLOT-1: a replicated group has a slot on the owner alone; block 216 of one token, position 1 on rank 0 of 2
    said = catalogue.tied(SLOTS, "M-SLOT-1")
    assert said.verdict is Verdict.REFUTED
    assert "sharded = False" in said.detail
    assert catalogue.tied(LEMMAS["grid.cacheable_prefixes_grow"], "M-SLOT-1").verdict is Verdict.CONFIRMED
    assert geometry.slot_mapping(1, 0, 216, block_size=1, sharded=False, dcp_size=2, interleave=1) == 216


@pytest.mark.parametrize(
    ("fault", "formula"),
    [("M-POOL-2", "touch"), ("M-EVICT-2", "evict"), ("M-PROMO-2", "insert_partial"), ("M-POOL-3", "release")],
)
def test_faults_of_the_pool_reach_the_ties_of_their_transitions(fault, formula):
    refuted = {one.about.of[0].__name__ for one in catalogue.lemmas_of("any_pool") if not_tied(one, fault)}
    assert refuted == {formula}


def not_tied(one, fault):
    return catalogue.tied(one, fault).verdict is Verdict.REFUTED


def test_a_promotion_that_is_not_refused_is_told():
    lemma = LEMMAS["any_pool.promote_keeps_it_sound"]
    module = catalogue._loaded("lemmas", "tied_pool")

    def promote(pool, *arguments):
        return pools.insert(pool, *arguments)

    said = tie.ask(lemma, module.cases, module.difference, ((pools, "promote", promote),))
    assert said.verdict is Verdict.REFUTED


def test_a_function_that_raises_is_told():
    said = asked(SLOTS, (geometry, "block_offset", lambda *of: 1 // 0))
    assert said.verdict is Verdict.RAISED
    assert said.detail.startswith("ZeroDivisionError")


def test_a_tie_without_values_says_nothing():
    said = tie.ask(SLOTS, lambda function: (), tied_grid.difference)
    assert (said.verdict, said.detail) == (Verdict.UNDETERMINED, "nothing was compared with slot_mapping")
    assert tie.ask(evolve(SLOTS, formulas={}), tied_grid.cases, tied_grid.difference).verdict is Verdict.UNDETERMINED


def test_values_that_would_not_tell_a_wrong_formula_say_nothing():
    # of one rank alone, "every rank writes" is right
    def on_one_rank(function):
        return [case for case in tied_grid.cases(function) if case[1]["dcp_size"] == 1]

    said = tie.ask(SLOTS, on_one_rank, tied_grid.difference)
    assert said.verdict is Verdict.UNDETERMINED
    assert said.detail == "the values do not tell 'a replicated group is written by its owner' from the model"


def test_a_lemma_that_nothing_ties_is_an_error(monkeypatch):
    monkeypatch.setattr(catalogue, "TIES", {"any_pool": "tied_pool"})
    catalogue.everything.cache_clear()
    try:
        with pytest.raises(ClaimError, match="no formula of it is compared with a function"):
            catalogue.everything()
    finally:
        catalogue.everything.cache_clear()


def test_the_tie_of_a_wrong_formula_is_refuted():
    for one in grid.LEMMAS:
        for wrong in one.faulty.values():
            assert asked(evolve(one, formulas={**one.formulas, **wrong}, faulty={})).verdict is Verdict.REFUTED
