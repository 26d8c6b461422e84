"""Ids of laws and faults: what the code registers stands in docs/semantics.md.

The tests find the ids in the sources of `spec/laws` and `spec/faults`, whatever the classes there are called: an id is a
string constant that is nothing but an id. They say nothing while the folders hold no ids.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.tidy.sources import ROOT, name, python_files, tree

SEMANTICS = (ROOT / "docs/semantics.md").read_text(encoding="utf-8")
LAW_ID = re.compile(r"(?!UTF-)[A-Z]{2,4}-\d+[a-z]?")
FAULT_ID = re.compile(r"M-[A-Z0-9]+-\d+[a-z]?")
DEFINED_LAWS = set(re.findall(r"^- \*\*([A-Z]{2,4}-\d+)\*\* \[[SCD]\]", SEMANTICS, re.MULTILINE))
# a row of the fault table may define several; other rows and laws only refer to them
NAMED_FAULTS = set(re.findall(r"\bM-[A-Z0-9]+-\d+", SEMANTICS))


def ids_in(folder: str, pattern: re.Pattern[str]) -> dict[str, str]:
    """Id -> where it stands, for every string constant below `folder` that is exactly an id."""
    found: dict[str, str] = {}
    for path in python_files(folder):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and pattern.fullmatch(node.value):
                found[node.value] = f"{name(path)}:{node.lineno}"
    return found


def without_letter(identifier: str) -> str:
    """A law may be split into parts a, b, ...; the text defines the whole."""
    return identifier.rstrip("abcdefgh")


def test_the_text_defines_laws_and_faults():
    assert {"TB-1", "HB-15", "DS-9", "COW-1", "PC-12"} <= DEFINED_LAWS
    assert len(DEFINED_LAWS) > 100
    assert len(NAMED_FAULTS) > 80


@pytest.mark.parametrize(
    ("folder", "pattern", "defined"),
    [("spec/laws", LAW_ID, DEFINED_LAWS), ("spec/faults", FAULT_ID, NAMED_FAULTS), ("spec/faults", LAW_ID, DEFINED_LAWS)],
    ids=["laws", "faults", "laws that faults name"],
)
def test_every_id_in_the_code_stands_in_the_text(folder: str, pattern: re.Pattern[str], defined: set[str]):
    found = ids_in(folder, pattern)
    assert found, f"{folder} holds no ids"
    assert {key: place for key, place in found.items() if without_letter(key) not in defined} == {}


def test_the_search_finds_ids_in_sources(tmp_path: Path):
    source = tmp_path / "x.py"
    source.write_text('law(id="TB-1", text="see TB-2")\n')
    constants = [node.value for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.Constant)]
    assert [value for value in constants if isinstance(value, str) and LAW_ID.fullmatch(value)] == ["TB-1"]
    assert not LAW_ID.fullmatch("UTF-8")


def test_every_transition_id_in_core_docstrings_stands_in_the_text():
    headings = {int(number) for number in re.findall(r"^## T(\d+)\.", SEMANTICS, re.MULTILINE)}
    assert {0, 16, 39} <= headings
    wrong = []
    for path in python_files("core"):
        for number in re.findall(r"\bT(\d{1,2})\b", path.read_text(encoding="utf-8")):
            if int(number) not in headings:
                wrong.append(f"{name(path)}: T{number}")
    assert wrong == []
