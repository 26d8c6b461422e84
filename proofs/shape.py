"""What a claim must look like so that CrossHair reads it as it is meant. Another one is an error before anything is asked.

CrossHair takes the leading asserts of a function for preconditions and every assert behind them for a claim. It lets a function
raise what its docstring says that it raises, and it obeys comments that begin with its name. So a claim has one shape, and a
file of claims has nothing that switches any of it off.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize

from kvproof.proofs import twins
from kvproof.spec.exits import UserError

_RAISES = re.compile(r"^\s*:raises\b|^\s*raises\s*:", re.MULTILINE)
_OPTION = re.compile(r"#\s*crosshair\s*:")

Function = ast.FunctionDef | ast.AsyncFunctionDef


class ClaimError(UserError):
    """A claim, a lemma or a file of them is not as it must be; nothing was asked.

    Attributes:
        name: the claim, the lemma or the file.
        what: what is wrong with it, and what to do.
    """

    def __init__(self, name: str, what: str) -> None:
        super().__init__(name, what)
        self.name = name
        self.what = what

    def __str__(self) -> str:
        return f"{self.name}: {self.what}"


def names(file: str, source: str) -> tuple[str, ...]:
    """Return the claims in the text of a file of claims, in their order. Raises ClaimError for what is wrong first."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise ClaimError(f"proofs/claims/{file}.py", f"is no Python: {error.msg} in line {error.lineno}") from error
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and _OPTION.match(token.string):
            raise ClaimError(f"proofs/claims/{file}.py", f"line {token.start[0]} changes what CrossHair does: take it out")
    contracts = twins.contracts_of(tree)
    found: set[str] = set()
    for node in contracts:
        name = f"{file}.{node.name}"
        if node.name in found:
            raise ClaimError(name, "two claims have this name")
        found.add(node.name)
        wrong = _wrong(node)
        if wrong:
            raise ClaimError(name, wrong)
    for part in ast.walk(tree):
        if isinstance(part, Function) and part not in contracts and (_asserts(part) or _marked(part)):
            raise ClaimError(
                f"{file}.{part.name}",
                "CrossHair sees no claim in it: a claim is a function at the top level of the file, with its asserts at the "
                "top level of the function, and no other function asserts",
            )
    return tuple(node.name for node in contracts)


def _wrong(node: ast.FunctionDef) -> str:
    """Return what is wrong with a claim, or nothing."""
    said = ast.get_docstring(node)
    body = node.body if said is None else node.body[1:]
    kinds = "".join(_kind(part) for part in body)
    if not said:
        return "has no docstring: it is the sentence that the page prints"
    if _RAISES.search(said):
        return "its docstring says that it raises, which CrossHair takes for permission: leave that out"
    if len(node.decorator_list) != 1 or not _marked(node):
        return "has an assert and is no claim: say what it is about with @claim alone (kvproof.proofs.claim)"
    if not re.fullmatch("p+a+p+", kinds) or _asserts(node) != kinds.count("p"):
        return (
            "write preconditions, then assignments and calls, then claims: asserts at the top level of the function, and "
            "nothing else"
        )
    return ""


def _kind(part: ast.stmt) -> str:
    if isinstance(part, ast.Assert):
        return "p"
    called = isinstance(part, ast.Expr) and isinstance(part.value, ast.Call)
    return "a" if called or isinstance(part, ast.Assign | ast.AnnAssign | ast.AugAssign) else "?"


def _asserts(node: ast.AST) -> int:
    return sum(isinstance(part, ast.Assert) for part in ast.walk(node))


def _marked(node: Function) -> bool:
    """Tell whether a function is decorated as a claim."""
    called = [one.func for one in node.decorator_list if isinstance(one, ast.Call)]
    return any("claim" in (getattr(one, "id", ""), getattr(one, "attr", "")) for one in called)
