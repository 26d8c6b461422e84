"""Rules that a reviewer would otherwise have to look for."""

from __future__ import annotations

import ast
import re
import sys

import pytest

from tests.tidy.sources import ROOT, functions, name, python_files, tracked_files, tree

CORE = python_files("core")
ROOM_FILES = python_files("core", "spec", "gpu", "proofs")
ALL_PYTHON = [*ROOM_FILES, *python_files("tests", "examples"), *(ROOT / "benchmarks").rglob("*.py")]

MOST_LINES_IN_A_FILE = 600
MOST_LINES_IN_A_CORE_FUNCTION = 60

# A folder of somebody's machine; written in pieces, or this file would be its own finding.
MACHINE_PATH = re.compile(r"(?<![\w.~)}>-])/(?:" + "|".join(["wo" + "rk", "ro" + "ot", "ho" + "me"]) + r")/\w")


def ids(paths):
    return [name(path) for path in paths]


def test_there_is_something_to_look_at():
    assert len(CORE) > 5
    assert len(tracked_files()) > len(ROOM_FILES)


def test_no_file_names_a_path_of_one_machine():
    found = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{name(path)}:{i}" for i, line in enumerate(text.splitlines(), 1) if MACHINE_PATH.search(line)]
    assert found == []


def test_the_pattern_for_machine_paths_bites():
    hit, miss = "see /" + "home/me/x", "the tables/" + "work/list"
    assert MACHINE_PATH.search(hit)
    assert not MACHINE_PATH.search(miss)


@pytest.mark.parametrize("path", CORE, ids=ids(CORE))
def test_core_imports_core_attrs_and_the_standard_library_only(path):
    wrong = []
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            # `from kvproof import spec` names its room in the second half
            modules = [f"kvproof.{alias.name}" for alias in node.names] if node.module == "kvproof" else [node.module or ""]
        else:
            continue
        wrong += [f"line {node.lineno}: {module}" for module in modules if not allowed_in_core(module)]
    assert wrong == []


def allowed_in_core(module: str) -> bool:
    top = module.partition(".")[0]
    if top == "kvproof":
        return module == "kvproof.core" or module.startswith("kvproof.core.")
    return top in {"attr", "attrs"} or (top in sys.stdlib_module_names and top not in IMPURE)


# Clock, randomness, input and output have no place in the model.
IMPURE = {
    "asyncio", "datetime", "gc", "http", "io", "logging", "multiprocessing", "os", "pathlib", "pickle", "random", "secrets",
    "shutil", "signal", "socket", "subprocess", "sys", "tempfile", "threading", "time", "urllib", "uuid",
}  # fmt: skip


@pytest.mark.parametrize(
    ("module", "verdict"),
    [
        ("kvproof.core.pool", True),
        ("kvproof.spec", False),
        ("kvproof.corelike", False),
        ("attrs", True),
        ("enum", True),
        ("random", False),
        ("msgspec", False),
    ],
)
def test_the_import_rule_bites(module, verdict):
    assert allowed_in_core(module) is verdict


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without those of its docstring."""
    lines = height(function)
    return lines - height(function.body[0]) if ast.get_docstring(function) is not None else lines


def height(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


@pytest.mark.parametrize("path", CORE, ids=ids(CORE))
def test_functions_in_core_are_short_enough_to_read_at_once(path):
    long = [
        f"{function.name}: {lines} lines"
        for function in functions(path)
        if (lines := code_lines(function)) > MOST_LINES_IN_A_CORE_FUNCTION
    ]
    assert long == []


@pytest.mark.parametrize("path", CORE, ids=ids(CORE))
def test_every_public_function_and_class_in_core_has_a_docstring(path):
    module = tree(path)
    assert ast.get_docstring(module), "the module has none"
    bodies = [module.body, *(node.body for node in module.body if isinstance(node, ast.ClassDef))]
    public = [
        node
        for body in bodies
        for node in body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    ]
    assert [node.name for node in public if not ast.get_docstring(node)] == []


@pytest.mark.parametrize("path", CORE, ids=ids(CORE))
def test_core_calls_functions_through_their_modules(path):
    """A fault rebinds a function in its module; `from module import function` would not see it."""
    wrong = []
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kvproof.core"):
            file = ROOT / ((node.module or "").removeprefix("kvproof.").replace(".", "/") + ".py")
            if file.is_file():
                defined = {item.name for item in tree(file).body if isinstance(item, ast.FunctionDef)}
                wrong += [f"line {node.lineno}: {alias.name}" for alias in node.names if alias.name in defined]
    assert wrong == []


def test_no_file_is_too_long():
    lengths = {name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in ALL_PYTHON}
    assert {path: lines for path, lines in lengths.items() if lines > MOST_LINES_IN_A_FILE} == {}


EMPTY_NAMES = re.compile(r"(Manager|Helper|Util|Utils|_manager|_helper|_util|_utils|^manager|^helpers?|^utils?)$")


def test_names_say_what_a_thing_is():
    found = [name(path) for path in ALL_PYTHON if EMPTY_NAMES.search(path.stem)]
    for path in ALL_PYTHON:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and EMPTY_NAMES.search(node.name):
                found.append(f"{name(path)}:{node.lineno} {node.name}")
    assert found == []
