"""Each formula of a lemma equals the function that it stands for, and Z3 says what the lemma and its twins must come to."""

from __future__ import annotations

import inspect
import random
from itertools import product
from typing import Any

import pytest
from attrs import evolve

pytest.importorskip("z3")

import z3

from kvproof.core import geometry
from kvproof.core import pool as pools
from kvproof.core.errors import ContractBroken
from kvproof.core.pool import Pool
from kvproof.proofs import catalogue, lemma
from kvproof.proofs.claim import About
from kvproof.proofs.lemma import Lemma, Statement
from kvproof.proofs.lemmas import any_pool, grid, terms, tied_grid, tied_pool
from kvproof.proofs.verdicts import Verdict
from tests.tidy.sources import ROOT

LEMMAS = {one.name: one for one in catalogue.all_lemmas()}
SHORT = [name for name in LEMMAS if name.startswith("any_pool.")] + ["grid.blocks_share_no_slot"]  # `prove` asks all
FORMULAS = {**grid.FORMULAS, **any_pool.FORMULAS}


@pytest.mark.parametrize("name", SHORT)
def test_z3_confirms_the_lemma_and_refutes_its_twins(name):
    one = LEMMAS[name]
    assert lemma.ask(one, "claim").verdict is Verdict.CONFIRMED
    assert lemma.ask(one, "twin").verdict is Verdict.REFUTED
    assert one.faulty
    for fault in one.faulty:
        said = lemma.ask(one, "faulty", fault)
        assert said.verdict is Verdict.REFUTED
        assert " = " in said.detail


def test_every_lemma_is_made_of_the_formulas_of_the_functions_that_it_is_about():
    for one in LEMMAS.values():
        assert set(one.formulas) == {function.__name__ for function in one.about.of}
        assert all(FORMULAS[name] is formula for name, formula in one.formulas.items())
        assert all(set(wrong) <= set(one.formulas) for wrong in one.faulty.values())
    assert {name for one in LEMMAS.values() for name in one.formulas} == set(FORMULAS)


def test_every_file_of_lemmas_is_in_the_catalogue():
    files = {path.stem for path in (ROOT / "proofs/lemmas").glob("*.py")}
    assert files - {"__init__", "terms"} == {*catalogue.LEMMAS, *catalogue.TIES.values()}
    assert set(catalogue.TIES) == set(catalogue.LEMMAS)
    assert all(one.name.partition(".")[0] in catalogue.LEMMAS for one in LEMMAS.values())


def value_of(term: Any, values: dict[Any, Any]) -> object:
    """The value of a term of Z3 where its variables have these values."""
    found: Any = z3.simplify(z3.substitute(term, *((variable, z3.IntVal(value)) for variable, value in values.items())))
    return found.as_long() if z3.is_int_value(found) else z3.is_true(found)


# --- formulas of the grid -----------------------------------------------------------------------------------------

REAL = {function.__name__: function for one in grid.LEMMAS for function in one.about.of}


@pytest.mark.parametrize("name", grid.FORMULAS)
def test_a_formula_of_the_grid_equals_its_function(name):
    formula, function = grid.FORMULAS[name], REAL[name]
    assert list(inspect.signature(formula).parameters) == list(inspect.signature(function).parameters)
    cases = tied_grid.cases(function)
    assert len(cases) >= 2000
    assert [said for case in cases if (said := tied_grid.difference(name, case, formula, function))] == []
    assert len({function(*placed.values(), **named) for placed, named in cases}) > 5


@pytest.mark.parametrize("name", grid.FORMULAS)
def test_a_formula_of_the_grid_is_the_same_for_z3(name):
    formula = grid.FORMULAS[name]
    choice = random.Random(name)
    concrete = ("block_size", "dcp_size", "interleave", "sharded", "eagle", "fine_grained", "token_alignment", "rule")
    for number in range(50):
        values = tied_grid.values(choice, *grid.GRID[40 * number % len(grid.GRID)])
        arguments = {parameter: values[parameter] for parameter in inspect.signature(formula).parameters}
        symbols = {key: value if key in concrete else z3.Int(key) for key, value in arguments.items()}
        made, expected = formula(**symbols), formula(**arguments)
        for term, value in zip(*((one if isinstance(one, tuple) else (one,)) for one in (made, expected)), strict=True):
            assert value_of(term, {z3.Int(key): arguments[key] for key in arguments if key not in concrete}) == value


def test_the_values_of_the_grid_are_those_of_its_points():
    placed = [case[0] for case in tied_grid.cases(geometry.owner_rank)]
    assert {(one["block_size"], one["dcp_size"], one["interleave"]) for one in placed} == set(grid.GRID)
    with pytest.raises(KeyError, match="unheard_of"):
        tied_grid.cases(lambda unheard_of: 0)


def test_the_grid_is_as_large_as_promised():
    assert len(set(grid.GRID)) == len(grid.GRID) >= 85
    assert all(size % interleave == 0 for size, _, interleave in grid.GRID)
    one = LEMMAS["grid.one_rank_has_a_slot"]
    assert len(one.state(one.formulas)) == len(grid.GRID)
    assert str(len(grid.GRID)) in one.about.bounds


def test_the_differential_test_bites():
    wrong = LEMMAS["grid.local_lengths_count_the_owned_positions"].faulty["an even share for each rank"]["local_length"]
    assert wrong(50, 1, 2, 16) != REAL["local_length"](50, 1, 2, 16)


# --- formulas of the pool -----------------------------------------------------------------------------------------

arrays = tied_pool.arrays


@pytest.mark.parametrize("name", any_pool.FORMULAS)
def test_a_formula_of_the_pool_equals_its_transition(name):
    formula, transition = any_pool.FORMULAS[name], getattr(pools, name)
    cases = tied_pool.cases(transition)
    assert [said for case in cases if (said := tied_pool.difference(name, case, formula, transition))] == []
    assert sum(_changes(name, pool, arguments) for pool, arguments in cases) > 50


def _changes(name, pool, arguments):
    try:
        found = getattr(pools, name)(pool, *arguments)
    except ContractBroken:
        return False
    return (found[0] if name == "take" else found) != pool


def test_the_pools_that_are_compared_have_keys_and_references():
    reached = tied_pool.reached()
    assert sum(len(pool.entries) > 2 for pool in reached) > 100
    assert sum(any(ref > 1 for ref in pool.ref) for pool in reached) > 100
    assert len({len(pool.ref) for pool in reached}) == 6


def entries_at(pool: Pool) -> tuple[tuple[int, int], ...]:
    return tuple(dict.fromkeys([entry[:2] for entry in pool.entries] + [(0, 0), (4, 2)]))


def test_pools_that_the_model_reaches_are_sound_in_every_cell():
    keyed = 0
    for pool in tied_pool.reached()[:150]:
        at = tuple(range(len(pool.ref)))
        assert any_pool.sound(arrays(pool), len(pool.ref), pool.ref.__getitem__, at, entries_at(pool))
        keyed += len(pool.entries) >= 2
    assert keyed > 30


SPOILED: dict[str, dict[str, Any]] = {
    "negative count": {"ref": (0, -1, 0, 0)},
    "null block counted": {"ref": (1, 0, 0, 0)},
    "in the queue and in use": {"ref": (0, 1, 0, 0)},
    "not in the queue": {"free": (1, 2)},
    "primary without an entry": {"entries": ()},
    "entry without a primary": {"key_node": (-1,) * 4, "key_group": (-1,) * 4, "key_tokens": (-1,) * 4},
    "primary without tokens": {"key_tokens": (-1,) * 4},
    "key twice": {"entries": ((0, 0, 0, 1), (0, 0, 1, 1)), "next_seq": 2},
    "primary inserted later": {"entries": ((0, 0, 1, 1), (1, 0, 0, 1)), "next_seq": 2},
    "one number for two": {"entries": ((0, 0, 0, 1), (1, 0, 0, 1))},
    "inserted in the future": {"next_seq": 0},
}


@pytest.mark.parametrize("spoiled", SPOILED)
def test_a_spoiled_pool_is_not_sound(spoiled):
    pool = pools.insert(pools.new_pool(4), 0, 0, 1, 1)
    at, keys = (0, 1, 2, 3), ((0, 0), (1, 0))
    assert any_pool.sound(arrays(pool), 4, pool.ref.__getitem__, at, keys)
    wrong = evolve(pool, **SPOILED[spoiled])
    assert not any_pool.sound(arrays(wrong), 4, wrong.ref.__getitem__, at, keys)


def test_a_block_with_more_references_than_holders_is_not_sound():
    pool = arrays(pools.new_pool(4))
    assert not any_pool.sound(pool, 4, lambda block: 1 if block == 2 else 0, (0, 1, 2, 3), ())


# --- terms --------------------------------------------------------------------------------------------------------


A, B = terms.integers("a b")
OPERATIONS = {
    "when": lambda a, b: terms.when(a < b, a, b + 1),
    "every": lambda a, b: terms.every(a < b, b > 1),
    "some": lambda a, b: terms.some(a < b, b > 1),
    "never": lambda a, b: terms.never(a < b),
    "implies": lambda a, b: terms.implies(a < b, b > 1),
    "div": lambda a, b: terms.div(a, b),
    "up": lambda a, b: terms.up(a, b),
    "least": lambda a, b: terms.least(a, b),
    "most": lambda a, b: terms.most(a, b),
    "count": lambda a, b: terms.count(a < b, b > 1, a > 0),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_means_the_same_for_python_and_z3(name):
    operation = OPERATIONS[name]
    made = operation(A, B)
    assert terms.symbolic(made)
    for a, b in product(range(-5, 6), range(1, 5)):
        value = operation(a, b)
        assert not terms.symbolic(value)
        assert value_of(made, {A: a, B: b}) == value


# --- what is asked ------------------------------------------------------------------------------------------------


def trial(*statements: Statement) -> Lemma:
    return Lemma("trial", "A trial.", About((pools.take,), "all", "any"), lambda formulas: statements, {})


FREE = Statement((A >= 0,), A + 1 > 0, "free")
FALSE = Statement((A >= 0,), A > 0, "false")
VACUOUS = Statement((A >= 0, A < 0), A > 0, "vacuous")


def test_one_false_statement_refutes_a_lemma():
    said = lemma.ask(trial(FREE, FALSE), "claim")
    assert said.verdict is Verdict.REFUTED
    assert said.detail == "false: a = 0"


def test_one_vacuous_statement_is_told_by_the_twin():
    assert lemma.ask(trial(FREE, VACUOUS), "claim").verdict is Verdict.CONFIRMED
    said = lemma.ask(trial(FREE, VACUOUS, FREE), "twin")
    assert said.verdict is Verdict.CONFIRMED
    assert said.detail == "vacuous"
    assert lemma.ask(trial(FREE), "twin").verdict is Verdict.REFUTED


@pytest.mark.parametrize("kind", ["claim", "twin"])
def test_a_lemma_without_statements_says_nothing(kind):
    assert lemma.ask(trial(), kind).verdict is Verdict.UNDETERMINED


def test_an_unknown_answer_is_undetermined(monkeypatch):
    monkeypatch.setattr(z3.Solver, "check", lambda self: z3.unknown)
    monkeypatch.setattr(z3.Solver, "reason_unknown", lambda self: "timeout")
    for kind in ("claim", "twin"):
        said = lemma.ask(trial(FREE), kind)
        assert (said.verdict, said.detail) == (Verdict.UNDETERMINED, "free: timeout")


def test_a_refutation_outweighs_an_unknown_answer(monkeypatch):
    answers = iter([z3.unknown, z3.sat])
    monkeypatch.setattr(z3.Solver, "check", lambda self: next(answers))
    monkeypatch.setattr(z3.Solver, "model", lambda self: type("Nothing", (), {"decls": lambda self: []})())
    assert lemma.ask(trial(FREE, FALSE), "claim").verdict is Verdict.REFUTED
