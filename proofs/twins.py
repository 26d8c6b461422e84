"""Vacuity twins: each contract with its claims replaced by one that is false.

A contract whose preconditions nothing satisfies, or whose calls always raise, is confirmed without saying anything. Its
twin is then confirmed too; the twin of a sound contract is refuted.
"""

import ast


def contracts_of(tree: ast.Module) -> tuple[ast.FunctionDef, ...]:
    """The contracts of a module, in order: its top-level functions with an assert."""
    return tuple(
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and any(isinstance(part, ast.Assert) for part in node.body)
    )


def twin_source(source: str) -> str:
    """The source text of the module with every contract turned into its twin of the same name.

    The leading asserts (preconditions) and the assignments and calls stay; the asserts behind them become one `assert False`.
    Raises ValueError for a contract without a precondition, an assignment or a claim, which CrossHair would misread.
    """
    tree = ast.parse(source)
    for node in contracts_of(tree):
        node.body = _twin_body(node)
    return ast.unparse(tree) + "\n"


def _twin_body(node: ast.FunctionDef) -> list[ast.stmt]:
    parts = [part for part in node.body if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))]
    asserts = [isinstance(part, ast.Assert) for part in parts]
    calls = asserts.index(False) if False in asserts else 0
    claims = asserts.index(True, calls) if calls and True in asserts[calls:] else 0
    if not claims or not all(asserts[claims:]):
        raise ValueError(f"contract {node.name}: write preconditions, then assignments, then claims")
    return [*parts[:claims], ast.Assert(test=ast.Constant(value=False))]
