"""The reduced exploration of the referee's projection against SPIN on the same projection unreduced, both in one run.

    python -m benchmarks.referee [--repeat 3] [--edges 30000] [--json FILE]

Both sides must come to the same counts, or nothing is measured. Rounds alternate; the best of each side counts, in processor
seconds of one core (wall-clock seconds beside it: on a busy machine they say little). SPIN is compiled once with -O3. Beside
it: the edges per second of the explorer itself, whose every edge is judged by all laws, on a scope cut off after so many edges.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

from kvproof.spec import laws
from kvproof.spec.distribution import version
from kvproof.spec.exploring import scopes
from kvproof.spec.exploring.search import Options, Search
from kvproof.spec.output import write_atomically
from tests.referee import exploring, spin
from tests.referee.projection import Projection, Size
from tests.referee.sizes import LARGE

DEPTH = 10_000_000
SLOTS = 24


def judged(edges: int) -> dict[str, object]:
    """Explore a scope of the catalogue, all laws judged, until so many edges were followed."""
    scope = scopes.by_name("fa2r-fa2-m2-m4-n2")
    config = scope.config()
    began, used = time.perf_counter(), time.process_time()
    explored = Search.of(config, scope.bounds, Options(laws.ALL, most_edges=edges)).run()
    took, spent = time.perf_counter() - began, time.process_time() - used
    followed = explored.graph.edges
    return {
        "explorer_scope": scope.name,
        "explorer_laws": len(laws.ALL),
        "explorer_edges": followed,
        "explorer_edges_per_second_with_laws": round(followed / spent),
        "explorer_edges_per_wall_second_with_laws": round(followed / took),
    }


def both(size: Size, folder: Path) -> tuple[exploring.Counts, tuple[float, float], spin.Verdict]:
    """Run both sides once: the reduced counts, their wall-clock and processor seconds, and what SPIN says."""
    began, used = time.perf_counter(), time.process_time()
    counts = exploring.explore(Projection(size))
    took = time.perf_counter() - began, time.process_time() - used
    verdict, _ = spin.search(folder, DEPTH, SLOTS)
    return counts, took, verdict


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3, help="rounds (best counts)")
    parser.add_argument("--edges", type=int, default=30_000, help="edges of the explorer's scope")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    if missing := spin.missing():
        print(f"{' and '.join(missing)} missing: {spin.INSTALL}", file=sys.stderr)
        return 1
    load = os.getloadavg()[0]
    size = LARGE.size
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        compiled = spin.build(size, folder, optimize="-O3")
        rounds = [both(size, folder) for _ in range(max(options.repeat, 1))]
    for counts, _, verdict in rounds:
        if not verdict.agrees(counts.states, counts.edges):
            print(f"the counts differ: {counts} and {verdict}", file=sys.stderr)
            return 1
    counts, _, verdict = rounds[-1]
    wall, spent = (min(times) for times in zip(*(took for _, took, _ in rounds), strict=True))
    spin_wall, spin_spent = (min(times) for times in zip(*(round_.searched for _, _, round_ in rounds), strict=True))
    figures: dict[str, object] = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "blocks": size.blocks,
        "requests": size.requests,
        "columns": size.columns,
        "texts": size.texts,
        "orbits": counts.nodes,
        "edges_of_orbits": counts.followed,
        "states": counts.states,
        "edges": counts.edges,
        "reduced_cpu_s": round(spent, 2),
        "reduced_wall_s": round(wall, 2),
        "reduced_edges_per_cpu_second": round(counts.followed / spent),
        "spin_search_cpu_s": round(spin_spent, 2),
        "spin_search_wall_s": round(spin_wall, 2),
        "spin_compile_cpu_s": round(compiled[1], 2),
        "spin_compile_wall_s": round(compiled[0], 2),
        "spin_states_per_cpu_second": round(verdict.states / spin_spent),
        "spin_depth_reached": verdict.depth,
        "spin_memory_mb": round(verdict.memory),
        "ratio_to_search_cpu": round(spent / spin_spent, 4),
        "ratio_to_compile_and_search_cpu": round(spent / (spin_spent + compiled[1]), 4),
        "ratio_to_search_wall": round(wall / spin_wall, 4),
        "ratio_to_compile_and_search_wall": round(wall / (spin_wall + compiled[0]), 4),
        **judged(options.edges),
        "rounds": len(rounds),
        "load_before": round(load, 1),
        "load_after": round(os.getloadavg()[0], 1),
        "cores": os.cpu_count(),
        "spin": spin.version(),
        "gcc": spin.compiler(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "kvproof": version(),
    }
    for name, value in figures.items():
        print(f"{name:42} {value}")
    if options.json:
        write_atomically(options.json, json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
