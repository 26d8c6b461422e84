"""Mutation score of core/ with laws, goldens and recordings as the only oracle.

    python -m tests.mutation.run [--count 500] [--seed 1] [--jobs 2] [--out FILE] [--only FILE:LINE] [--host]

Each mutant runs in a forked process that imports kvproof.core afresh with the mutated source. Killed: a golden, a worked
number, a recording or a law fails, or it takes five times the processor time of the clean run. The same seed samples the same mutants of the same source.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.util
import json
import multiprocessing
import os
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import ModuleSpec
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType

from tests.mutation import mutants, oracle

HOST_SIDE = ("offload/", "native.py", "connectors.py", "reconciliation.py", "recovery.py")
CPU_FACTOR = 5
WALL_S = 900
_cpu_limit_s = 60


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module of kvproof.core from a mutated source."""

    def __init__(self, module: str, source: str, path: str) -> None:
        self.module, self.source, self.path = module, source, path

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /) -> ModuleSpec | None:
        """Claim the mutated module and nothing else."""
        del path, target
        return importlib.util.spec_from_loader(fullname, self) if fullname == self.module else None

    def exec_module(self, module: ModuleType) -> None:
        """Run the mutated source."""
        exec(compile(self.source, self.path, "exec"), module.__dict__)


def module_name(file: str) -> str:
    """Import name of a file below core/."""
    return "kvproof.core." + file.removesuffix(".py").replace("/", ".")


def _child(mutant: mutants.Mutant, source: str, sender: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_cpu_limit_s, _cpu_limit_s))
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 1)
    os.dup2(devnull, 2)
    for name in [name for name in sys.modules if oracle.depends_on_core(name)]:
        del sys.modules[name]
    sys.meta_path.insert(0, _Finder(module_name(mutant.file), source, mutant.file))
    try:
        killer = oracle.judge()
    except BaseException as error:
        killer = f"error: {type(error).__name__}"
    sender.send(killer)
    sender.close()
    os._exit(0)


def run_one(mutant: mutants.Mutant) -> str | None:
    """What killed a mutant, or None if it survived."""
    source = mutants.apply(mutant)
    return "no change" if source is None else run_source(mutant, source)


def run_source(mutant: mutants.Mutant, source: str) -> str | None:
    """What refutes the model with the mutant's file replaced by ``source``."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_child, args=(mutant, source, sender))
    process.start()
    sender.close()
    killer: str | None = "time"
    if receiver.poll(WALL_S):
        try:
            killer = receiver.recv()
        except EOFError:
            killer = "time"
    process.join(5)
    if process.is_alive():
        process.kill()
    return killer


def main() -> int:
    """Sample, run, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only")
    parser.add_argument("--host", action="store_true", help="sample the host side only, and let only its oracles judge")
    options = parser.parse_args()
    everything = [one for one in mutants.all_mutants() if not options.host or one.file.startswith(HOST_SIDE)]
    if options.only:
        sample = [one for one in everything if f"{one.file}:{one.place[0]}".startswith(options.only)]
    else:
        sample = random.Random(options.seed).sample(everything, min(options.count, len(everything)))
    oracle.prepare(options.host)
    global _cpu_limit_s
    began = time.perf_counter()
    used = time.process_time()
    assert oracle.judge() is None, "the oracle refuses the unchanged model"
    _cpu_limit_s = int(CPU_FACTOR * (time.process_time() - used)) + 5
    same = (mutants.CORE / everything[0].file).read_text(encoding="utf-8")
    assert run_source(everything[0], same) is None, "the oracle refuses the unchanged model in a process of its own"
    print(f"{len(everything)} mutants exist, {len(sample)} sampled; a mutant may use {_cpu_limit_s} s", flush=True)
    killers: Counter[str] = Counter()
    survivors = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for number, (mutant, killer) in enumerate(zip(sample, pool.map(run_one, sample), strict=True), 1):
            if killer is None:
                survivors.append(mutant)
                line = mutants.changed_line(mutant, mutants.apply(mutant) or "")
                print(
                    f"SURVIVED core/{mutant.file}:{mutant.place[0]} {mutant.operator.removeprefix('core/')}: {line}", flush=True
                )
            elif killer != "no change":
                killers[killer.split(":")[0]] += 1
            if number % 50 == 0:
                print(f"  {number} done, {len(survivors)} survive, {time.perf_counter() - began:.0f} s", flush=True)
    judged = sum(killers.values()) + len(survivors)
    print(
        f"killed {judged - len(survivors)} of {judged} = {100 * (judged - len(survivors)) / max(judged, 1):.1f} %; by {dict(killers)}"
    )
    if options.out:
        rows = [
            {
                "file": one.file,
                "line": one.place[0],
                "column": one.place[1],
                "operator": one.operator,
                "occurrence": one.occurrence,
            }
            for one in survivors
        ]
        options.out.write_text(
            json.dumps({"seed": options.seed, "judged": judged, "killers": dict(killers), "survivors": rows}, indent=1)
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
