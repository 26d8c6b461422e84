"""Which mutants of core/ exist: Cosmic Ray's operators and deletion of statements, without what no oracle could see.

Annotations, docstrings, and the texts and values of refusals are left out: changing them changes no behaviour that the
laws, goldens and recordings speak about.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen
from cosmic_ray import mutating, plugins
from cosmic_ray.ast import ast_nodes, get_ast

CORE = Path(__file__).resolve().parents[2] / "core"
SKIPPED_FILES = {"errors.py", "base.py", "__init__.py", "actions.py", "records.py"}
# These operators yield code that cannot run, or differ from others only in how absurd they are.
SKIPPED_OPERATORS = ("core/VariableReplacer", "core/VariableInserter", "core/ExceptionReplacer", "core/RemoveDecorator")
# Replacing a comparison by an identity test is one of them: small integers compare the same, larger ones by accident.
ABSURD_OPERATORS = ("_Is", "_IsNot", "Pow", "RShift", "LShift", "BitOr", "BitAnd", "BitXor", "Invert")
# Members of an enumeration are equal exactly if they are the same.
SAME_OPERATORS = ("ReplaceComparisonOperator_Is_Eq", "ReplaceComparisonOperator_IsNot_NotEq")

Place = tuple[int, int]


@frozen
class Mutant:
    """One change: the file below core/, the operator, which of its occurrences there, and where it starts."""

    file: str
    operator: str
    occurrence: int
    place: Place


def files() -> list[Path]:
    """The files that are mutated."""
    return sorted(path for path in CORE.rglob("*.py") if path.name not in SKIPPED_FILES)


def _invisible(tree: ast.AST) -> list[tuple[Place, Place]]:
    """Source ranges that no oracle sees: annotations, docstrings, refusal texts, attribute defaults of classes, flags.

    The flags are ``slots`` of a decorator and ``strict`` of ``zip``: they decide what happens to a wrong program.
    """
    spans: list[tuple[Place, Place]] = []

    def hide(node: ast.AST) -> None:
        spans.append(((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)))  # type: ignore[attr-defined]

    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            hide(node.annotation)
        if isinstance(node, ast.keyword) and node.arg in ("slots", "strict"):
            hide(node)
        if isinstance(node, ast.ClassDef):
            for statement in node.body:
                if isinstance(statement, ast.AnnAssign) and statement.value is not None:
                    hide(statement.value)
        if isinstance(node, ast.FunctionDef):  # its signature: annotations, and the stars of keyword-only parameters
            first = node.body[0]
            spans.append(((node.lineno, node.col_offset), (first.lineno, first.col_offset)))
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            for part in (*node.exc.args, *(keyword.value for keyword in node.exc.keywords)):
                hide(part)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            hide(node)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            hide(node)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.BitOr):
            hide(node)
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Delete):
            hide(node)
    return spans


def _hidden(place: Place, spans: list[tuple[Place, Place]]) -> bool:
    return any(start <= place < stop for start, stop in spans)


def all_mutants() -> list[Mutant]:
    """Every mutant, in a fixed order."""
    return [mutant for path in files() for mutant in _of_file(path)]


def _of_file(path: Path) -> Iterator[Mutant]:
    source = path.read_text(encoding="utf-8")
    name = str(path.relative_to(CORE))
    tree = ast.parse(source)
    spans = _invisible(tree)
    for index, statement in enumerate(_deletable(tree)):
        place = (statement.lineno, statement.col_offset)
        if not _hidden(place, spans):
            yield Mutant(name, "delete statement", index, place)
    parsed = get_ast(source)
    for operator_name in sorted(plugins.operator_names()):
        if operator_name in SKIPPED_OPERATORS or operator_name.endswith(ABSURD_OPERATORS):
            continue
        if operator_name.startswith("core/ReplaceBinaryOperator_BitOr"):
            continue
        if operator_name.endswith(SAME_OPERATORS):
            continue
        operator = plugins.get_operator(operator_name)()
        occurrence = 0
        for node in ast_nodes(parsed):
            for start, _ in operator.mutation_positions(node):
                if not _hidden(tuple(start), spans):
                    yield Mutant(name, operator_name, occurrence, tuple(start))
                occurrence += 1


def _deletable(tree: ast.AST) -> list[ast.stmt]:
    """Assignments and calls inside functions, in source order."""
    found = [
        node
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Assign | ast.AugAssign | ast.Expr | ast.Continue | ast.Break)
    ]
    unique = {(node.lineno, node.col_offset): node for node in found}
    return [unique[place] for place in sorted(unique)]


def changed_line(mutant: Mutant, mutated: str) -> str:
    """The first line that differs, as mutated."""
    before = (CORE / mutant.file).read_text(encoding="utf-8").splitlines()
    after = mutated.splitlines()
    return next((new.strip() for old, new in zip(before, after, strict=False) if old != new), "")


def apply(mutant: Mutant) -> str | None:
    """The mutated source, or None if the operator changes nothing."""
    source = (CORE / mutant.file).read_text(encoding="utf-8")
    if mutant.operator != "delete statement":
        mutated: str | None = mutating.mutate_code(source, plugins.get_operator(mutant.operator)(), mutant.occurrence)
        return mutated
    statement = _deletable(ast.parse(source))[mutant.occurrence]
    lines = source.splitlines(keepends=True)
    first, last = statement.lineno - 1, (statement.end_lineno or statement.lineno) - 1
    head = lines[first].encode()[: statement.col_offset].decode()
    tail = lines[last].encode()[statement.end_col_offset :].decode()
    return "".join([*lines[:first], head + "pass" + tail, *lines[last + 1 :]])
