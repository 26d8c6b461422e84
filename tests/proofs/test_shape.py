"""A claim that CrossHair would read otherwise than it is meant, or that nothing can refute, is an error before anything is asked."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from kvproof.spec import laws

pytest.importorskip("crosshair")

from kvproof.proofs import catalogue, shape, symbolic, work
from kvproof.proofs.planting import Planted
from kvproof.proofs.shape import ClaimError
from kvproof.spec import cli

HEAD = """
from kvproof.core import geometry
from kvproof.proofs.claim import claim

"""
SOUND = '''
@claim(geometry.ceil_div, bounds="all")
def sound(n: int) -> None:
    """A sentence of a claim."""
    assert n >= 0
    m = geometry.ceil_div(n, 1)
    assert m == n
'''


def names(body: str) -> tuple[str, ...]:
    return shape.names("odd", HEAD + body)


def test_a_claim_of_the_right_shape_is_found():
    assert names(SOUND) == ("sound",)
    assert names(SOUND.replace("    assert m == n", "    geometry.ceil_div(m, 1)\n    assert m == n")) == ("sound",)
    assert names("") == ()


@pytest.mark.parametrize("file", catalogue.FILES)
def test_the_claims_of_the_project_have_the_right_shape(file):
    assert shape.names(file, symbolic.source(file)) == symbolic.names(file)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        # what CrossHair takes for permission to raise
        ('claim."""', 'claim.\n\n    :raises ValueError: always.\n    """', "takes for permission"),
        ('claim."""', 'claim.\n\n    raises: ValueError\n    """', "takes for permission"),
        # options of CrossHair
        ("    m = ", "    # crosshair: off\n    m = ", "line 10 changes what CrossHair does"),
        # asserts that CrossHair does not see as the contract
        ("    assert n >= 0\n", "", "write preconditions, then assignments and calls, then claims"),
        ("    m = geometry.ceil_div(n, 1)\n    assert m == n", "", "write preconditions"),
        ("    assert m == n", "    for k in (m,):\n        assert k == n", "write preconditions"),
        ("    assert m == n", "    if m:\n        assert m == n\n    assert m >= 0", "write preconditions"),
        ("    m = ", "    with open('x'):\n        assert n\n    m = ", "write preconditions"),
        ("    assert m == n", "    assert m == n\n    m = 1", "write preconditions"),
        ("    m = ", "    return\n    m = ", "write preconditions"),
        ("    assert n >= 0\n", "    if n >= 0:\n        assert n\n", "write preconditions"),
        ("    assert n >= 0\n    m = geometry.ceil_div(n, 1)\n    assert m == n", "    if n:\n        assert n", "sees no claim in it"),
        ("def sound", "async def sound", "sees no claim in it"),
        ("\n@claim", "\nclass Group:\n    pass\n\n\n@claim", None),
        # what is no claim, or no longer the function that is read
        ('@claim(geometry.ceil_div, bounds="all")\n', "", "say what it is about with @claim alone"),
        ("\ndef sound", "\n@staticmethod\ndef sound", "say what it is about with @claim alone"),
        ('    """A sentence of a claim."""\n', "", "has no docstring"),
        (SOUND, SOUND + SOUND, "two claims have this name"),
        (SOUND, SOUND + "\n\ndef check(n):\n    if n:\n        assert n > 2\n", "odd.check: CrossHair sees no claim in it"),
        (SOUND, "def (", "is no Python"),
    ],
)  # fmt: skip
def test_another_shape_is_refused(before, after, said):
    assert before in SOUND
    text = SOUND.replace(before, after)
    if said is None:
        assert names(text) == ("sound",)
        return
    with pytest.raises(ClaimError) as refused:
        names(text)
    assert said in str(refused.value)
    assert str(refused.value).startswith(("odd.", "proofs/claims/odd.py: "))


# --- before anything is asked -------------------------------------------------------------------------------------

CLAIM = "geometry.ceiling_covers_and_is_least"


@pytest.fixture
def catalogued(monkeypatch):
    """Lets a test change what the catalogue reads; whoever asks a prover has asked too much."""
    cached = (catalogue.all_claims, catalogue.all_lemmas, catalogue.everything, catalogue.planted)

    def asked(*of):
        raise AssertionError

    def clear():
        for one in cached:
            one.cache_clear()

    monkeypatch.setattr(work, "answers", asked)
    clear()
    yield monkeypatch
    monkeypatch.undo()
    clear()


def refused(capsys, *arguments):
    assert cli.main(["prove", *arguments]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    return said.err


ASKING = [["--quick"], ["--claim", "grid.blocks_share_no_slot"], ["--update"], ["--fault", "M-GEO-1"], ["--claim", "list"]]


@pytest.mark.parametrize("arguments", ASKING, ids=" ".join)
def test_a_claim_without_a_faulty_twin_ends_with_1(catalogued, capsys, arguments):
    right = catalogue.planted
    twinless: Any = lambda file: tuple(one for one in right(file) if one.name != "floor for ceil")  # noqa: E731
    twinless.cache_clear = right.cache_clear
    catalogued.setattr(catalogue, "planted", twinless)
    said = refused(capsys, *arguments)
    assert said.startswith(f"Error: {CLAIM}: has no faulty twin, and what nothing refutes says nothing: write one")
    assert "proofs/planted/geometry.py" in said


@pytest.mark.parametrize("arguments", ASKING, ids=" ".join)
def test_a_claim_that_is_switched_off_ends_with_1(catalogued, capsys, arguments):
    right = symbolic.source
    sentence = "covers the number (2.1).\n\n    :raises Exception: never.\n    "

    def source(file):
        return right(file).replace("covers the number (2.1).", sentence)

    catalogued.setattr(symbolic, "source", source)
    assert refused(capsys, *arguments).startswith(f"Error: {CLAIM}: its docstring says that it raises")


def test_a_decorated_function_of_another_name_is_not_dropped(catalogued, capsys):
    right = symbolic.source
    name = "ceiling_covers_and_is_least"

    def source(file):
        text = right(file)
        start = text.find("@claim(geometry.ceil_div, sizes", 0)
        return text if file != "geometry" else text[:start] + text[text.index("@claim", start + 1) :]

    catalogued.setattr(symbolic, "source", source)
    assert refused(capsys, "--quick").startswith(f"Error: geometry.{name}: CrossHair sees no claim in it")


@pytest.mark.parametrize("error", [ImportError("no such name"), AssertionError("odd"), SystemExit(0)])
def test_a_file_that_cannot_be_loaded_ends_with_1(catalogued, capsys, error):
    right = importlib.import_module

    def load(name):
        if name.endswith("claims.sizes"):
            raise error
        return right(name)

    catalogued.setattr(importlib, "import_module", load)
    said = refused(capsys, "--quick")
    assert said.startswith(f"Error: proofs/claims/sizes.py: cannot be loaded: {type(error).__name__}: ")
    assert "Traceback" not in said


def test_a_twin_of_a_claim_that_nobody_has_ends_with_1(catalogued, capsys):
    odd: Any = lambda file: (Planted("a fault", ("no_such_claim",), ()),)  # noqa: E731
    odd.cache_clear = catalogue.planted.cache_clear
    catalogued.setattr(catalogue, "planted", odd)
    assert "'a fault' refutes 'no_such_claim', but there is no such claim" in refused(capsys, "--quick")


def test_a_law_that_nobody_has_ends_with_1(catalogued, capsys):
    catalogued.setattr(laws, "ALL", [law for law in laws.ALL if law.id != "DS-1"])
    assert "there is no law 'DS-1'" in refused(capsys, "--quick")
