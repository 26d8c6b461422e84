"""Runs a refuted claim once more, with the values that refute it, to say which of its asserts fails and where in its grid.

CrossHair names the arguments alone. What a claim fixes itself, such as ranks and interleaves, stands in constants of its file
and in comprehensions over them, so the counterexample is not whole without the point of the grid.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from types import FrameType, FunctionType, TracebackType

CALLING = "when calling "
LONGEST = 90
"""Characters of a constant that is still shown."""

Scope = dict[str, object]


def told(function: FunctionType, message: str) -> str:
    """Return what CrossHair's message leaves out: the assert that fails, the point of the grid, the constants.

    Empty if the call in the message cannot be made again, or holds then; what is planted must be in place.
    """
    try:
        eval(message.partition(CALLING)[2], {**function.__globals__})
    except AssertionError as error:
        return _of(function, error)
    except Exception:  # a value that has no text that could be read back: the message alone has to do
        return ""
    return ""


def _of(function: FunctionType, error: AssertionError) -> str:
    frames = list(_frames(error.__traceback__))
    here = next((place for place in frames if place[0].f_code is function.__code__), None)
    if here is None:
        return ""
    if frames[-1] is not here:
        inner, line = frames[-1]
        module = str(inner.f_globals.get("__name__", "")).removeprefix("kvproof.")
        return f"fails in {module}.{inner.f_code.co_qualname}: {_line(inner, line)}"
    body, failed = _tree(function).body, here[1] - function.__code__.co_firstlineno + 1
    statement = next((part for part in body if part.lineno <= failed <= (part.end_lineno or part.lineno)), None)
    if not isinstance(statement, ast.Assert):
        return ""
    scope = {**function.__globals__, **here[0].f_locals}
    point, helper = _point(statement.test, body, scope)
    said = f"fails: {_text(statement, function)}" + (f"; false at {point}" if point else "")
    constants = ", ".join(_constants(*(one for one in (function, helper) if one)))
    return said + (f"; with {constants}" if constants else "")


def _frames(traceback: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    while traceback is not None:
        yield traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next


def _line(frame: FrameType, line: int) -> str:
    try:
        lines, first = inspect.getsourcelines(frame.f_code)
    except (OSError, TypeError):
        return "its source is not at hand"
    return lines[line - max(first, 1)].strip()


def _tree(function: FunctionType) -> ast.FunctionDef:
    """Return the source of a function, its lines counted from that of its first decorator."""
    tree = ast.parse(_source(function)).body[0]
    assert isinstance(tree, ast.FunctionDef)
    return tree


def _source(function: FunctionType) -> str:
    return textwrap.dedent(inspect.getsource(function))


def _text(part: ast.stmt, function: FunctionType) -> str:
    """Return a statement of a function as it stands there, on one line."""
    return " ".join((ast.get_source_segment(_source(function), part) or ast.unparse(part)).split())


# --- the point of the grid ----------------------------------------------------------------------------------------


def _point(test: ast.expr, body: Sequence[ast.stmt], scope: Scope) -> tuple[str, FunctionType | None]:
    """Return for which values of its comprehension a test is false first, and the helper in which that stands, if in one."""
    if not isinstance(test, ast.Name):
        return _of_every(test, body, scope), None
    call = _bound(test.id, body)
    helper = scope.get(ast.unparse(call.func)) if isinstance(call, ast.Call) else None
    if not isinstance(call, ast.Call) or not isinstance(helper, FunctionType):
        return "", None
    last = _tree(helper).body[-1]
    given = ", ".join(ast.unparse(part) for part in (*call.args, *call.keywords))
    bound: inspect.BoundArguments = eval(f"__bind__({given})", {**scope, "__bind__": inspect.signature(helper).bind})
    inside = {**helper.__globals__, **bound.arguments}
    return (_of_every(last.value, (), inside) if isinstance(last, ast.Return) else ""), helper


def _of_every(test: ast.expr | None, body: Sequence[ast.stmt], scope: Scope) -> str:
    """Return the first values for which `all(...)` or `every(...)` of a comprehension is false; empty for any other test."""
    if not isinstance(test, ast.Call) or ast.unparse(test.func).rpartition(".")[2] not in ("all", "every"):
        return ""
    if len(test.args) != 1 or not isinstance(made := test.args[0], ast.GeneratorExp):
        return ""
    held = _evaluated(made.elt, made.generators, scope)
    at = next((index for index, one in enumerate(held) if not one), None)
    if at is None:
        return ""
    values = _targets(made.generators, scope)[at]
    of = made.generators[0].iter
    source = _bound(of.id, body) if isinstance(of, ast.Name) and len(made.generators) == 1 else None
    if isinstance(source, ast.ListComp) and not made.generators[0].ifs:  # item by item what the claim made before
        values = _targets(source.generators, scope)[at] | values
    return ", ".join(f"{name} = {value!r}" for name, value in values.items())


def _targets(generators: Sequence[ast.comprehension], scope: Scope) -> list[dict[str, object]]:
    """Return the values of the names that a comprehension runs through, for each of its items."""
    names = dict.fromkeys(
        part.id for one in generators for part in ast.walk(one.target) if isinstance(part, ast.Name) and part.id != "_"
    )
    made = ast.Dict([ast.Constant(name) for name in names], [ast.Name(name, ast.Load()) for name in names])
    return [dict(values) for values in _evaluated(made, generators, scope) if isinstance(values, dict)]


def _evaluated(item: ast.expr, generators: Sequence[ast.comprehension], scope: Scope) -> list[object]:
    """Return the items of a comprehension."""
    found: list[object] = eval(ast.unparse(ast.ListComp(item, list(generators))), dict(scope))
    return found


def _bound(name: str, body: Sequence[ast.stmt]) -> ast.expr | None:
    """Return what a name is bound to in the statements of a claim."""
    for part in body:
        if isinstance(part, ast.Assign) and len(part.targets) == 1 and ast.unparse(part.targets[0]) == name:
            return part.value
    return None


def _constants(*functions: FunctionType) -> list[str]:
    """Return the sizes that functions take from constants of their file."""
    found: dict[str, str] = {}
    for function in functions:
        for name in sorted({part.id for part in ast.walk(_tree(function)) if isinstance(part, ast.Name) and part.id.isupper()}):
            value = function.__globals__.get(name)
            if isinstance(value, int | tuple) and len(text := repr(value)) <= LONGEST:
                found[name] = f"{name} = {text}"
    return list(found.values())
