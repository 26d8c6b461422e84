"""How long each engine takes to kill each fault: explorer, walker, Hypothesis, one after the other in the same process.

    python benchmarks/kill_times.py [--fault ID ...] [--examples 128] [--walks 60] [--json FILE]

Every engine plants the fault and judges one law, that of the table of kills. The explorer searches the scope that is pinned for
the fault, to the shortest counterexample. Walker and state machine search the scopes that the fault names, as `kvproof check`
does; nothing is shrunk but by Hypothesis itself. A dash: not found within the bounds. Ratios compare seconds: both sides
are of one run.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from pathlib import Path
from random import Random

from attrs import asdict, frozen

from kvproof.core.errors import ConfigError
from kvproof.spec import faults
from kvproof.spec import laws as all_laws
from kvproof.spec.distribution import version
from kvproof.spec.engines import machine, scopes, walk
from kvproof.spec.exploring import jobs, kills
from kvproof.spec.exploring import scopes as exploring
from kvproof.spec.exploring.kills import Kill
from kvproof.spec.faults import Fault
from kvproof.spec.output import write_atomically

WALK_STEPS = 300
MACHINE_STEPS = 50


@frozen(slots=True)
class Time:
    """What one engine did until it broke the law: its own unit of work (None: not found), and seconds."""

    found: bool
    work: int
    seconds: float
    length: int


@frozen(slots=True)
class Row:
    """A fault, the law that every engine was asked about, and the three engines: edges, steps, examples."""

    fault: str
    law: str
    explorer: Time
    walker: Time
    hypothesis: Time


def explored(fault: Fault, kill: Kill) -> Time:
    """Search the pinned scope level by level."""
    began = time.perf_counter()
    done = jobs.perform(jobs.Job(jobs.Asked(laws=(kill.law,), fault=fault.id), exploring.by_name(kill.scope), fault.id))
    length = 0 if done.example is None else len(done.example.actions)
    return Time(done.example is not None, done.certificate.edges, time.perf_counter() - began, length)


def walked(fault: Fault, law: str, most: int) -> Time:
    """Walk in each scope of the fault, then a second time, and so on; the unit is a step."""
    judged = [known for known in all_laws.ALL if known.id == law]
    began, steps = time.perf_counter(), 0
    for number in range(most):
        for name in fault.scopes:
            scope = scopes.by_name(name)
            try:
                with faults.planted(fault):
                    config = faults.configured(fault, scope.config())
                    length = WALK_STEPS if config.offload is None else 2 * WALK_STEPS
                    seed = f"{fault.id}/{name}/{number}"
                    found = walk.walk(config, seed, length, judged, scope.limits(config), only=law)
            except ConfigError:
                return Time(law == "HB-1", steps, time.perf_counter() - began, 0)
            steps += found.steps
            if found.violations:
                return Time(True, steps, time.perf_counter() - began, len(found.actions))
    return Time(False, steps, time.perf_counter() - began, 0)


def by_machine(fault: Fault, law: str, most: int) -> Time:
    """Run the state machine with 8, 16, 32, ... examples in the first scope of the fault; the unit is an example."""
    judged = [known for known in all_laws.ALL if known.id == law]
    scope = scopes.by_name(fault.scopes[0])
    began, examples, tried = time.perf_counter(), 8, 0
    seed = Random(f"{fault.id}/{scope.name}").getrandbits(32)
    while examples <= most:
        tried += examples
        try:
            with faults.planted(fault):
                config = faults.configured(fault, scope.config())
                ran = machine.run_machine(config, judged, seed, examples, MACHINE_STEPS, scope.limits(config), law)
        except ConfigError:
            return Time(law == "HB-1", 0, time.perf_counter() - began, 0)
        if ran.violation is not None:
            return Time(True, tried, time.perf_counter() - began, len(ran.actions))
        examples *= 2
    return Time(False, tried, time.perf_counter() - began, 0)


def ratios(rows: list[Row]) -> dict[str, float]:
    """Return medians over the faults that both engines found: seconds of the explorer against those of the other."""
    found = {}
    for other in ("walker", "hypothesis"):
        pairs = [
            (row.explorer.seconds, getattr(row, other).seconds)
            for row in rows
            if row.explorer.found and getattr(row, other).found
        ]
        if pairs:
            found[f"explorer / {other}"] = round(statistics.median(mine / theirs for mine, theirs in pairs if theirs), 2)
    return found


def said(one: Time, unit: str) -> str:
    """Return what an engine did, in a cell."""
    return (
        f"{one.work:>9,} {unit} {one.seconds:7.2f} s {one.length:4}"
        if one.found
        else f"{'-':>9} {unit} {one.seconds:7.2f} s    -"
    )


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fault", action="append", help="only this fault; may be repeated")
    parser.add_argument("--examples", type=int, default=128, help="most examples of one run of the state machine")
    parser.add_argument("--walks", type=int, default=60, help="most walks in each scope")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    rows = []
    print(f"{'fault':11} {'law':7} {'explorer':^33} {'walker':^33} {'hypothesis':^33}")
    for name, kill in kills.table().items():
        if options.fault and name not in options.fault:
            continue
        fault = faults.by_id(name)
        row = Row(
            name,
            kill.law,
            explored(fault, kill),
            walked(fault, kill.law, options.walks),
            by_machine(fault, kill.law, options.examples),
        )
        rows.append(row)
        cells = (said(row.explorer, "edges"), said(row.walker, "steps"), said(row.hypothesis, "examples"))
        print(f"{name:11} {kill.law:7} " + " | ".join(cells), flush=True)
    for what, ratio in ratios(rows).items():
        print(f"median seconds, {what}: {ratio}")
    if options.json:
        figures = {
            "rows": [asdict(row) for row in rows],
            "ratios": ratios(rows),
            "python": platform.python_version(),
            "machine": platform.machine(),
            "kvproof": version(),
        }
        write_atomically(options.json, json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
