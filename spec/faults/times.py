"""How long each engine took to kill each fault: a measurement that is kept, read for the page of faults.

The figures are those of one run on one machine; they are kept in ``benchmarks/results`` beside the sources and are no part of
an installation. Nothing is decided by them.
"""

from __future__ import annotations

import json
import statistics
import textwrap
from pathlib import Path
from typing import Any

import msgspec
from attrs import frozen

from kvproof.spec.exits import UserError

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
PATTERN = "????-??-??-kill-times.json"
FORMAT = "kvproof-kill-times"
VERSION = 1
WIDTH = 118
ENGINES = {"explorer": "edges", "walker": "steps", "hypothesis": "examples"}
"""The engines, and in what each of them counts its work."""


@frozen(slots=True)
class Time:
    """What one engine did with one fault.

    ``seconds`` of its process's CPU until the law was broken, or until it was given up if that was not ``found``; ``actions``
    of the run that broke it, and ``work`` that was done for it, in the unit of ``ENGINES``, both None if not found.
    """

    found: bool
    seconds: float
    actions: int | None = None
    work: int | None = None

    def said(self, unit: str) -> str:
        """Return it in words; a run of no actions is a configuration that shows the fault by itself."""
        if not self.found or self.actions is None or self.work is None:
            return f"not found in {self.seconds:.3g} s"
        return (
            f"{self.seconds:.2f} s, {self.work:,} {unit}, {self.actions} actions" if self.actions else f"{self.seconds:.2f} s"
        )


@frozen(slots=True)
class Row:
    """A fault and the one law that the engines were asked about.

    ``explorer`` is None where no scope is pinned for the fault, ``hypothesis`` where the configuration alone shows it: the
    state machine judges actions only.
    """

    fault: str
    law: str
    explorer: Time | None
    walker: Time
    hypothesis: Time | None

    def of(self, engine: str) -> Time | None:
        """Return what an engine did, None if it was not asked."""
        return {"explorer": self.explorer, "walker": self.walker, "hypothesis": self.hypothesis}[engine]


@frozen(slots=True)
class Times:
    """A measurement: its day (ISO), with what it was done, the CPU seconds that an engine had for a fault, and its rows."""

    date: str
    kvproof: str
    python: str
    hypothesis: str
    machine: str
    cores: int
    limit: int
    rows: tuple[Row, ...]


def dumps(times: Times) -> str:
    """Return the JSON form, a line for each fault."""
    plain: dict[str, Any] = msgspec.to_builtins(times)
    rows = plain.pop("rows")
    head = [
        f" {json.dumps(name)}: {json.dumps(value)}" for name, value in {"format": FORMAT, "version": VERSION, **plain}.items()
    ]
    body = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    return "{\n" + ",\n".join(head) + ',\n "rows": [\n' + body + "\n ]\n}\n"


def read(file: Path) -> Times:
    """Return a kept measurement. Raises UserError if the file is none."""
    try:
        document = json.loads(file.read_bytes())
        kind = (document.pop("format"), document.pop("version"))
        made = msgspec.convert(document, Times)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{file}: is no measurement of kill times ({error}): restore it, or measure again") from error
    if kind != (FORMAT, VERSION):
        raise UserError(f"{file}: is no measurement of kill times (it is {kind[0]!r}, version {kind[1]!r}): measure again")
    return made


def newest(folder: Path | None = None) -> Times | None:
    """Return the measurement of the latest day that is kept, None where there is none. Raises UserError."""
    files = sorted((FOLDER if folder is None else folder).glob(PATTERN))
    return read(files[-1]) if files else None


def summary(times: Times) -> list[str]:
    """Return a sentence for each engine: how many faults it found, and how fast."""
    said = []
    for engine in ENGINES:
        asked = [took for row in times.rows if (took := row.of(engine)) is not None]
        found = [took.seconds for took in asked if took.found]
        if not found:
            said.append(f"{engine.capitalize()}: none of {len(asked)} found")
            continue
        said.append(
            f"{engine.capitalize()}: {len(found)} of {len(asked)} found, half of them within {statistics.median(found):.2f} s"
        )
    return said


def as_markdown(times: Times) -> list[str]:
    """Return the section of the page of faults, line by line."""
    about = (
        f"Measured once, on {times.date}, with kvproof {times.kvproof}, Python {times.python}, Hypothesis "
        f"{times.hypothesis}, on {times.machine} with {times.cores} cores. Each engine plants the fault and judges one "
        f"law, in a process of its own that has {times.limit} s of CPU. The explorer searches the scope of the table "
        "above to the shortest counterexample. Walker and Hypothesis search the scopes that the fault names until "
        "something breaks the law; only Hypothesis shrinks that, and its time includes it. A cell is the CPU time, "
        "the work until then, and the actions of the run that was found; the time alone where the configuration shows "
        "it by itself, which Hypothesis is not asked about. Another machine gives other times: `python -m "
        "benchmarks.kill_times --keep` measures again."
    )
    page = [
        "## Time to kill",
        "",
        *textwrap.wrap(about, WIDTH, break_long_words=False, break_on_hyphens=False),
        "",
        *(f"- {line}" for line in summary(times)),
        "",
        "| id | law | explorer | walker | Hypothesis |",
        "|---|---|---|---|---|",
    ]
    for row in times.rows:
        cells = ["-" if (took := row.of(engine)) is None else took.said(unit) for engine, unit in ENGINES.items()]
        page.append(f"| {row.fault} | {row.law} | {' | '.join(cells)} |")
    return page
