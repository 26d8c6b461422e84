"""How long each engine takes to kill each fault: explorer, walker, Hypothesis; docs/faults.md shows what is kept.

    python -m benchmarks.kill_times [--faults ID ...] [--limit 6] [--processes 2] [--json FILE | --keep]

Every engine plants the fault and judges one law, that of the table of kills. The explorer searches the scope that is pinned for
the fault, to the shortest counterexample. Walker and state machine search the scopes that the fault names, as `kvproof check`
does, until they find it; nothing is shrunk but by Hypothesis itself. Each search is a process of its own that has ``--limit``
seconds of CPU; what is counted is the CPU time of that process, so that a busy machine changes little.
"""

from __future__ import annotations

import argparse
import datetime
import multiprocessing
import os
import platform
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random

import hypothesis

from kvproof.core.errors import ConfigError
from kvproof.spec import faults
from kvproof.spec import laws as all_laws
from kvproof.spec.distribution import version
from kvproof.spec.engines import machine, scopes, walk
from kvproof.spec.exploring import jobs, kills
from kvproof.spec.exploring import scopes as exploring
from kvproof.spec.exploring.kills import Kill
from kvproof.spec.faults import Fault, times
from kvproof.spec.faults.times import ENGINES, Row, Time, Times
from kvproof.spec.output import write_atomically

WALK_STEPS = 300
MACHINE_STEPS = 50
FEWEST_EXAMPLES = 8

Key = tuple[str, str]
"""A fault and an engine."""

Search = Callable[[], tuple[bool, int, int]]
"""Tells whether the law was broken, the work that was done for it, and the length of the run that shows it."""


def explored(fault: Fault, kill: Kill) -> tuple[bool, int, int]:
    """Search the pinned scope level by level; the unit is an edge."""
    done = jobs.perform(jobs.Job(jobs.Asked(laws=(kill.law,), fault=fault.id), exploring.by_name(kill.scope), fault.id))
    return done.example is not None, done.certificate.edges, 0 if done.example is None else len(done.example.actions)


def walked(fault: Fault, law: str) -> tuple[bool, int, int]:
    """Walk in each scope of the fault, then a second time, and so on; the unit is a step."""
    judged = [known for known in all_laws.ALL if known.id == law]
    steps = 0
    for number in count():
        for name in fault.scopes:
            scope = scopes.by_name(name)
            with faults.planted(fault):
                try:
                    config = faults.configured(fault, scope.config())
                except ConfigError:
                    return law == "HB-1", steps, 0
                length = WALK_STEPS if config.offload is None else 2 * WALK_STEPS
                found = walk.walk(config, f"{fault.id}/{name}/{number}", length, judged, scope.limits(config), only=law)
            steps += found.steps
            if found.violations:
                return True, steps, len(found.actions)
    raise AssertionError("unreachable")


def by_machine(fault: Fault, law: str) -> tuple[bool, int, int]:
    """Run the state machine with 8, 16, 32, ... examples in each scope of the fault in turn; the unit is an example."""
    judged = [known for known in all_laws.ALL if known.id == law]
    tried = 0
    for doubled in count():
        examples = FEWEST_EXAMPLES << doubled
        for name in fault.scopes:
            scope = scopes.by_name(name)
            seed = Random(f"{fault.id}/{name}/{doubled}").getrandbits(32)
            with faults.planted(fault):
                try:
                    config = faults.configured(fault, scope.config())
                except ConfigError:
                    return law == "HB-1", tried, 0
                ran = machine.run_machine(config, judged, seed, examples, MACHINE_STEPS, scope.limits(config), law)
            tried += examples
            if ran.violation is not None:
                return True, tried, len(ran.actions)
    raise AssertionError("unreachable")


def search(fault: Fault, law: str, engine: str) -> Search | None:
    """Return how an engine looks for a fault; None where it is not asked: see ``Row``."""
    kill = kills.table().get(fault.id)
    if engine == "walker":
        return partial(walked, fault, law)
    if engine == "hypothesis":
        return None if kill is not None and not kill.length else partial(by_machine, fault, law)
    return None if kill is None else partial(explored, fault, kill)


def measured(searches: dict[Key, Search], limit: int, processes: int) -> Iterator[tuple[Key, Time]]:
    """Do searches, each in a process of its own, so many at a time; yield what each came to, as soon as it ends."""
    context = multiprocessing.get_context("fork")  # what is imported is shared: only the search is measured
    waiting = list(searches)
    running: dict[Connection, tuple[Key, BaseProcess]] = {}
    while waiting or running:
        while waiting and len(running) < processes:
            key = waiting.pop(0)
            here, there = context.Pipe(duplex=False)
            process = context.Process(target=_alone, args=(searches[key], limit, there))
            process.start()
            there.close()
            running[here] = (key, process)
        for ready in wait(list(running)):
            assert isinstance(ready, Connection)
            key, ended = running.pop(ready)
            try:
                found = ready.recv()
            except EOFError:
                found = Time(False, float(limit))
            ended.join()
            ready.close()
            if ended.exitcode not in (0, -signal.SIGXCPU, -signal.SIGKILL):
                raise RuntimeError(f"the search of {key} ended with status {ended.exitcode}")
            yield key, found


def _alone(search: Search, limit: int, connection: Connection) -> None:
    """Search, and say what came of it. The kernel ends the process when its seconds are spent."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
    began = time.process_time()
    found, work, actions = search()
    seconds = round(time.process_time() - began, 2)
    connection.send(Time(True, seconds, actions, work) if found else Time(False, seconds))
    connection.close()


def rows(chosen: list[Fault], limit: int, processes: int) -> list[Row]:
    """Measure all engines on some faults, and print what each comes to."""
    known = kills.table()
    laws = {fault.id: known[fault.id].law if fault.id in known else fault.laws[0] for fault in chosen}
    searches = {
        (fault.id, engine): looking
        for fault in chosen
        for engine in ENGINES
        if (looking := search(fault, laws[fault.id], engine)) is not None
    }
    found: dict[Key, Time] = {}
    for key, took in measured(searches, limit, processes):
        found[key] = took
        print(
            f"{len(found):4} of {len(searches)}  {key[0]:11} {laws[key[0]]:7} {key[1]:10} {took.said(ENGINES[key[1]])}",
            flush=True,
        )
    return [
        Row(name, law, found.get((name, "explorer")), found[name, "walker"], found.get((name, "hypothesis")))
        for name, law in laws.items()
    ]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", nargs="+", metavar="ID", help="only these faults")
    parser.add_argument("--limit", type=int, default=6, help="CPU seconds that one engine has for one fault")
    parser.add_argument("--processes", type=int, default=2, help="searches at the same time")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--keep", action="store_true", help=f"write the figures to {times.FOLDER.name}/, for docs/faults.md")
    options = parser.parse_args()
    chosen = [faults.by_id(name) for name in options.faults] if options.faults else list(faults.ALL)
    began = time.monotonic()
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    measurement = Times(
        date=today,
        kvproof=version(),
        python=platform.python_version(),
        hypothesis=hypothesis.__version__,
        machine=platform.machine(),
        cores=os.cpu_count() or 1,
        limit=options.limit,
        rows=tuple(rows(chosen, options.limit, options.processes)),
    )
    for line in times.summary(measurement):
        print(line)
    print(f"{time.monotonic() - began:.0f} s")
    for file in (options.json, times.FOLDER / f"{today}-kill-times.json" if options.keep else None):
        if file is not None:
            write_atomically(file, times.dumps(measurement))
    return 0


if __name__ == "__main__":
    sys.exit(main())
