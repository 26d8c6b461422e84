"""Runs CrossHair over claims and reads its verdicts. Everything here happens in a worker process of its own.

CrossHair reads the source of what it analyses, and looks for options in the package around it. So each file of claims, and the
file of its twins, is loaded once more as a module on its own, from a file that stays as long as the process.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType

from crosshair.core_and_libs import analyze_function, run_checkables
from crosshair.options import AnalysisKind, AnalysisOptionSet
from crosshair.statespace import AnalysisMessage, MessageType

from kvproof.proofs import replaying, twins
from kvproof.proofs.planting import Patch, rebound
from kvproof.proofs.verdicts import Said, Verdict

CLAIMS = Path(__file__).parent / "claims"


ASSERTING = "CrossHair takes a function that begins with an assert for a contract and cannot go on: raise a typed error there"
"""What its search for options ends in; that says nothing of the claim."""


def names(file: str) -> tuple[str, ...]:
    """Return the claims of a file of claims, in their order."""
    return tuple(node.name for node in twins.contracts_of(ast.parse(source(file))))


def source(file: str) -> str:
    """Return the text of a file of claims."""
    return (CLAIMS / f"{file}.py").read_text(encoding="utf-8")


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="kvproof-twins-")


@cache
def loaded(file: str, twin: bool = False) -> ModuleType:
    """Return a file of claims, or its vacuity twins, as a module of its own."""
    path = CLAIMS / f"{file}.py"
    if twin:
        path = Path(_folder().name) / f"{file}.py"
        path.write_text(twins.twin_source(source(file)), encoding="utf-8")
    return load(path, f"kvproof_{'twins' if twin else 'claims'}_{file}")


def load(path: Path, name: str) -> ModuleType:
    """Return a file as a module of this name, which belongs to no package."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def check(function: FunctionType, seconds: float, patches: tuple[Patch, ...] = ()) -> Said:
    """Return what CrossHair says of a claim within so many seconds of processor time, with some names rebound meanwhile."""
    options = AnalysisOptionSet(
        analysis_kind=(AnalysisKind.asserts,),
        per_condition_timeout=seconds,
        per_path_timeout=seconds / 4,  # half of it is what Z3 has for a question, by the clock: much, for a busy machine
        max_uninteresting_iterations=sys.maxsize,
        report_all=True,
    )
    began = time.process_time()
    with rebound(patches):
        messages = list(run_checkables(analyze_function(function, options)))
        verdict, detail = read(messages)
        more = replaying.told(function, detail) if verdict is Verdict.REFUTED else ""
    return Said(verdict, f"{detail}; {more}" if more else detail, time.process_time() - began)


def read(messages: list[AnalysisMessage]) -> tuple[Verdict, str]:
    """Return the verdict and the words of CrossHair's messages about one claim; silence is never read as confirmed."""
    fine = (MessageType.CONFIRMED, MessageType.CANNOT_CONFIRM, MessageType.PRE_UNSAT)
    bad = [message for message in messages if message.state not in fine]
    if bad and "MultiplexedPath" in bad[0].message:
        return Verdict.UNDETERMINED, f"{ASSERTING} ({' '.join(bad[0].message.split())})"
    if bad:
        failed = bad[0].message.startswith("AssertionError")
        return (Verdict.REFUTED if failed else Verdict.RAISED), " ".join(bad[0].message.split())
    if len(messages) == 1 and messages[0].state is MessageType.CONFIRMED:
        return Verdict.CONFIRMED, ""
    return Verdict.UNDETERMINED, "; ".join(message.message for message in messages) or "CrossHair says nothing"
