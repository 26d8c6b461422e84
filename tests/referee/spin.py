"""Runs SPIN on the Promela model and reads what it says, trusting none of it that could be cut short.

SPIN stops going deeper at its depth limit and still reports no errors, and with partial-order reduction or a hashed state
space it stores fewer states than there are. A run counts only if it says that it was whole.
"""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from attrs import evolve, frozen

from tests.referee.projection import Size, Step

MODEL = Path(__file__).with_name("pool.pml")
TOOLS = ("spin", "gcc")
INSTALL = "apt-get install spin gcc"

Edges = dict[bytes, set[tuple[Step, bytes]]]
"""Of every state the steps out of it and what they lead to."""


class SpinError(Exception):
    """SPIN cannot be run, found an error in the model, or did not look at everything."""


@frozen(slots=True)
class Verdict:
    """What SPIN found: the states without its own start, the transitions as it prints them, and what it took.

    ``depth`` is how deep its search went, ``memory`` is in megabytes, ``searched`` in wall-clock and processor seconds.
    """

    states: int
    transitions: str
    depth: int
    memory: float
    searched: tuple[float, float] = (0.0, 0.0)

    def agrees(self, states: int, edges: int) -> bool:
        """Tell whether these are the counts of SPIN, of the edges the first eight digits."""
        return self.states == states and self.transitions == transitions(edges)


def missing() -> list[str]:
    """Return the programs that are needed and not there."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def version() -> str:
    """Return what SPIN calls itself."""
    return run(["spin", "-V"], Path.cwd())[0].strip()


def compiler() -> str:
    """Return what the compiler calls itself."""
    return run(["gcc", "--version"], Path.cwd())[0].splitlines()[0]


def transitions(edges: int) -> str:
    """Return how SPIN prints the transitions of a graph with so many edges.

    It counts every stored state as one that a transition reached, which its own start is not, and its own step from there to
    the new pool. It prints eight digits.
    """
    return f"{edges + 2:.8g}"


def build(
    size: Size, folder: Path, model: str | None = None, defines: Sequence[str] = (), optimize: str = "-O1"
) -> tuple[float, float]:
    """Make the program ``pan`` in a folder, of the model or of another text; return the wall-clock and processor seconds."""
    source = folder / "pool.pml"
    source.write_text(model if model is not None else MODEL.read_text(encoding="utf-8"), encoding="utf-8")
    values = (("N", size.blocks), ("R", size.requests), ("L", size.columns), ("T", size.texts))
    began, used = time.perf_counter(), _used()
    run(
        ["spin", "-a", *(f"-D{name}={value}" for name, value in values), *(f"-D{name}" for name in defines), source.name],
        folder,
    )
    # Without -DNOREDUCE SPIN would leave out states; warnings are about text that SPIN made.
    run(["gcc", "-w", optimize, "-DSAFETY", "-DNOREDUCE", "-o", "pan", "pan.c"], folder)
    return time.perf_counter() - began, _used() - used


def search(folder: Path, depth: int, slots: int = 20) -> tuple[Verdict, str]:
    """Run ``pan`` with a depth limit and 2**``slots`` slots; return what it found and all it printed. Raises SpinError."""
    began, used = time.perf_counter(), _used()
    text, code = run([str(folder / "pan"), f"-m{depth}", f"-w{slots}", "-n"], folder)
    took = time.perf_counter() - began, _used() - used
    return evolve(read(text, code, depth), searched=took), text


CUT_SHORT = ("not completed", "out of memory", "reached -DMEMLIM", "Partial Order Reduction", "Bit statespace", "Hash-Compact")
"""What SPIN says of a search that does not store and follow every state."""


def read(text: str, code: int, depth: int) -> Verdict:
    """Read what a search with a depth limit printed. Raises SpinError unless it was whole and found no error."""
    report = "\n".join(line for line in text.splitlines() if not line.startswith("EDGE "))
    if "max search depth too small" in report:
        raise SpinError(f"the search was cut off at depth {depth}, its counts are too small: raise the limit")
    errors = re.search(r"errors: (\d+)", report)
    if code != 0 or errors is None or errors[1] != "0":
        raise SpinError(f"SPIN found an error (exit code {code}):\n{report[-2000:]}")
    for sign in CUT_SHORT:
        if sign in report:
            raise SpinError(f"the search does not count every state ({sign}):\n{report[-2000:]}")
    stored = _found(r"^\s*([\d.e+]+) states, stored", report)
    if "Full statespace search" not in report or not stored.isdigit():
        raise SpinError(f"the report of SPIN cannot be read:\n{report}")
    made = _found(r"^\s*([\d.e+]+) transitions \(= stored\+matched\)", report)
    reached = _found(r"depth reached (\d+)", report)
    memory = _found(r"([\d.]+)\s+total actual memory usage", report)
    return Verdict(int(stored) - 1, made, int(reached), float(memory))


def edges(printed: str) -> Edges:
    """Return the graph that a search with EDGES printed, without SPIN's own start."""
    found: Edges = {}
    for line in printed.splitlines():
        if line.startswith("EDGE "):
            _, name, what, other, before, after = line.split(" ")
            found.setdefault(bytes.fromhex(before), set()).add(((name, int(what), int(other)), bytes.fromhex(after)))
    return found


def _found(pattern: str, report: str) -> str:
    found = re.search(pattern, report, re.MULTILINE)
    if found is None:
        raise SpinError(f"the report of SPIN cannot be read:\n{report}")
    return found[1]


def _used() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def run(command: Sequence[str], folder: Path) -> tuple[str, int]:
    """Run a program in a folder; return what it printed and its exit code. Raises SpinError, unless it is ``pan`` that fails."""
    try:
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    except FileNotFoundError as error:
        raise SpinError(f"{command[0]} is missing: {INSTALL}") from error
    if done.returncode != 0 and not command[0].endswith("pan"):
        raise SpinError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}")
    return done.stdout, done.returncode
