"""Reading CrossHair's verdicts, and asking it about functions whose verdict is known."""

from __future__ import annotations

import ast

import pytest

pytest.importorskip("crosshair")

from crosshair.statespace import AnalysisMessage, MessageType

from kvproof.proofs import symbolic, twins
from kvproof.proofs.verdicts import Verdict

CLAIMS = '''
"""Claims of which the verdict is known."""

import math


def doubled(n: int) -> None:
    assert n >= 1
    m = n + n
    assert m > n


def never_seven(n: int) -> None:
    assert n >= 0
    m = n + 1
    assert m != 7


def divides(n: int) -> None:
    assert n >= 0
    m = 10 // n
    assert m >= 0


def vacuous(n: int) -> None:
    assert n >= 0
    assert n < 0
    m = n
    assert m == n + 1


def needs_more_than_it_has(n: int, m: int) -> None:
    assert n > 2
    assert m > 2
    k = n * n * n + m * m * m
    assert k != 1729 * 1729 * 1729
'''


def message(state, text="", function="x"):
    return AnalysisMessage(state, text, "file.py", 1, 0, "")


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([message(MessageType.CONFIRMED)], Verdict.CONFIRMED),
        ([message(MessageType.POST_FAIL, "AssertionError: when calling f(0)")], Verdict.REFUTED),
        ([message(MessageType.EXEC_ERR, "AssertionError: when calling f(0)")], Verdict.REFUTED),
        ([message(MessageType.EXEC_ERR, "TypeError: when calling f(0)")], Verdict.RAISED),
        ([message(MessageType.CANNOT_CONFIRM)], Verdict.UNDETERMINED),
        ([message(MessageType.PRE_UNSAT)], Verdict.UNDETERMINED),
        ([message(MessageType.CONFIRMED), message(MessageType.CANNOT_CONFIRM)], Verdict.UNDETERMINED),
        ([message(MessageType.CONFIRMED), message(MessageType.CONFIRMED)], Verdict.UNDETERMINED),
        ([message(MessageType.CONFIRMED), message(MessageType.EXEC_ERR, "AssertionError")], Verdict.REFUTED),
        ([message(MessageType.SYNTAX_ERR, "no such name")], Verdict.RAISED),
        (
            [message(MessageType.EXEC_ERR, "NotADirectoryError: MultiplexedPath only supports directories")],
            Verdict.UNDETERMINED,
        ),
        ([message(MessageType.IMPORT_ERR, "no such module")], Verdict.RAISED),
        ([], Verdict.UNDETERMINED),
    ],
)
def test_silence_is_never_read_as_confirmed(messages, expected):
    assert symbolic.read(messages)[0] is expected


def test_what_is_not_confirmed_says_why():
    assert symbolic.read([]) == (Verdict.UNDETERMINED, "CrossHair says nothing")
    assert symbolic.read([message(MessageType.CANNOT_CONFIRM, "Not confirmed.")])[1] == "Not confirmed."
    assert (
        symbolic.read([message(MessageType.EXEC_ERR, "AssertionError:\n  when  calling")])[1] == "AssertionError: when calling"
    )


@pytest.fixture
def file(tmp_path, monkeypatch):
    (tmp_path / "known.py").write_text(CLAIMS, encoding="utf-8")
    monkeypatch.setattr(symbolic, "CLAIMS", tmp_path)
    symbolic.loaded.cache_clear()
    yield "known"
    symbolic.loaded.cache_clear()


def test_the_names_of_a_file_are_those_of_its_functions_with_asserts(file):
    assert symbolic.names(file) == ("doubled", "never_seven", "divides", "vacuous", "needs_more_than_it_has")


@pytest.mark.parametrize(
    ("name", "seconds", "verdict", "twin"),
    [
        ("doubled", 10, Verdict.CONFIRMED, Verdict.REFUTED),
        ("never_seven", 10, Verdict.REFUTED, Verdict.REFUTED),
        ("needs_more_than_it_has", 0.2, Verdict.UNDETERMINED, Verdict.REFUTED),
    ],
)
def test_crosshair_says_what_is_known(file, name, seconds, verdict, twin):
    claim = symbolic.check(getattr(symbolic.loaded(file), name), seconds)
    assert claim.verdict is verdict
    assert symbolic.check(getattr(symbolic.loaded(file, twin=True), name), 10).verdict is twin


def test_a_call_that_raises_is_not_refuted(file):
    said = symbolic.check(symbolic.loaded(file).divides, 10)
    assert said.verdict is Verdict.RAISED
    assert said.detail.startswith("ZeroDivisionError")


def test_a_counterexample_has_the_values(file):
    assert "never_seven(6)" in symbolic.check(symbolic.loaded(file).never_seven, 10).detail


def test_the_twin_of_a_vacuous_claim_is_not_refuted(file):
    assert symbolic.check(symbolic.loaded(file).vacuous, 10).verdict is not Verdict.REFUTED
    assert symbolic.check(symbolic.loaded(file, twin=True).vacuous, 10).verdict is not Verdict.REFUTED


def test_names_are_rebound_for_one_question_only(file):
    module = symbolic.loaded(file)
    assert symbolic.check(module.doubled, 10, ((module, "__doc__", "other"),)).verdict is Verdict.CONFIRMED
    assert module.__doc__ == "Claims of which the verdict is known."


def test_a_file_that_cannot_be_loaded_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text("import no_such_module_anywhere\n", encoding="utf-8")
    monkeypatch.setattr(symbolic, "CLAIMS", tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        symbolic.loaded("broken")


# --- twins --------------------------------------------------------------------------------------------------------

CONTRACT = """
def sound(n: int) -> None:
    assert n >= 0
    m = n + 1
    assert m > 0
"""


def test_a_twin_keeps_preconditions_and_calls():
    twin = twins.twin_source(CONTRACT)
    assert "assert n >= 0" in twin
    assert "m = n + 1" in twin
    assert "assert m > 0" not in twin
    assert "assert False" in twin
    assert [node.name for node in twins.contracts_of(ast.parse(twin))] == ["sound"]


def test_a_twin_keeps_a_call_whose_value_nobody_takes():
    twin = twins.twin_source(
        "def f(n: int) -> None:\n    'Words.'\n    assert n >= 0\n    found = []\n    found.append(n)\n    assert found\n"
    )
    assert "found.append(n)" in twin
    assert "Words" not in twin


@pytest.mark.parametrize(
    "body",
    [
        "    assert n >= 0\n    assert n > -1\n",  # only preconditions: vacuously confirmed
        "    m = n\n    assert m == n\n",
        "    assert n >= 0\n    m = n\n    assert m == n\n    m = 2\n",
        "    assert n >= 0\n    m = n\n    assert m == n\n    k = m\n    assert k == n\n",
    ],
)
def test_a_claim_of_another_shape_is_refused(body):
    with pytest.raises(ValueError, match="preconditions, then assignments, then claims"):
        twins.twin_source(f"def odd(n: int) -> None:\n{body}")
