"""What is said of a refuted claim beyond its arguments: the assert that fails, the point of the grid, the constants."""

from __future__ import annotations

import pytest

pytest.importorskip("crosshair")

from kvproof.core import geometry
from kvproof.proofs import catalogue, replaying, symbolic
from kvproof.proofs.verdicts import Verdict

CLAIMS = '''
"""Claims that are false."""

import math

RANKS = (1, 2, 4)
BLOCK = 4
UNUSED = 3


def every(conditions):
    return all(list(conditions))


def small(n, most):
    return every((n + rank < most) & (rank < 5) for rank in RANKS)


def direct(n: int) -> None:
    assert n >= 0
    m = n + 1
    assert m > 0
    assert all(
        m * BLOCK * rank < 12 + n
        for rank in RANKS
    )


def over_a_list(n: int) -> None:
    assert n >= 0
    sums = [n + rank * step for rank in RANKS for step in (1, 5)]
    assert all(total < 10 for total in sums)


def in_a_helper(n: int) -> None:
    assert n >= 0
    right = small(n, 6)
    assert right


def with_a_text(n: int) -> None:
    assert n >= 0
    m = n + 1
    assert m != 7, "seven is not to be reached"


def guarded(n: int) -> None:
    assert n >= 0
    m = checked(n)
    assert m == n


def checked(n):
    assert n < 3
    return n
'''


@pytest.fixture
def module(tmp_path):
    file = tmp_path / "wrong.py"
    file.write_text(CLAIMS, encoding="utf-8")
    return symbolic.load(file, "wrong_claims")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            "direct(0)",
            "fails: assert all( m * BLOCK * rank < 12 + n for rank in RANKS ); false at rank = 4; with BLOCK = 4, RANKS = (1, 2, 4)",
        ),
        (
            "over_a_list(1)",
            "fails: assert all(total < 10 for total in sums); false at rank = 2, step = 5, total = 11; with RANKS = (1, 2, 4)",
        ),
        ("in_a_helper(2)", "fails: assert right; false at rank = 4; with RANKS = (1, 2, 4)"),
        ("with_a_text(6)", 'fails: assert m != 7, "seven is not to be reached"'),
        ("guarded(3)", "fails in wrong_claims.checked: assert n < 3"),
        ("direct(-1)", "fails: assert n >= 0; with BLOCK = 4, RANKS = (1, 2, 4)"),
        ("with_a_text(5)", ""),
        ("with_a_text(<object>)", ""),
        ("with_a_text(nothing_of_this_name)", ""),
    ],
)
def test_a_call_is_made_again_and_told(call, said, module):
    claim = getattr(module, call.partition("(")[0])
    assert replaying.told(claim, f"AssertionError: when calling {call}") == said


def test_a_refuted_claim_has_its_assert_beside_the_prover_s_words(module):
    said = symbolic.check(module.with_a_text, 10)
    assert said.verdict is Verdict.REFUTED
    assert said.detail == (
        "AssertionError: seven is not to be reached when calling with_a_text(6); "
        'fails: assert m != 7, "seven is not to be reached"'
    )


def test_a_planted_fault_is_there_when_the_call_is_made_again():
    known = catalogue.by_name("geometry.place_determines_the_position")
    function = symbolic.loaded("geometry").place_determines_the_position
    said = symbolic.check(function, 60, catalogue.patches(known, "M-SLOT-2"))
    assert said.verdict is Verdict.REFUTED
    before, _, more = said.detail.partition("; ")
    assert before.startswith("AssertionError: when calling place_determines_the_position(")
    assert more.startswith("fails: assert all(value == position for value in back); false at n = ")
    assert more.endswith("; with BLOCK = 4, INTERLEAVES = (1, 4), RANKS = (1, 2, 4)")
    assert geometry.block_offset(5, 4, True, 2, 1) == 2  # nothing is planted afterwards
