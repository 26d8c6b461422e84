"""Throughput of the model, of the laws, and of replay; both sides of each ratio are measured in the same run.

    python benchmarks/throughput.py [--repeat 5] [--json FILE]

Model: the actions of every covered recording are applied again, laws off and on, in alternating rounds. Replay: the same
recordings, with full comparison of results and states, laws off and on. Best of the rounds; times are of this process.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.step import step
from kvproof.core.world import new_world
from kvproof.spec import judge, laws
from kvproof.spec.distribution import version
from kvproof.spec.judge import Judge
from kvproof.spec.output import write_atomically
from kvproof.spec.traces import archive, project, replay
from kvproof.spec.traces.read import Recording

Run = tuple[Config, list[Action]]


def model(runs: list[Run]) -> None:
    """Apply every action, laws off."""
    for config, actions in runs:
        world = new_world(config)
        for action in actions:
            world, _ = step(world, action)


def judged(runs: list[Run]) -> None:
    """Apply every action and judge it by all laws."""
    for config, actions in runs:
        court = Judge(laws.ALL)
        court.configuration(config)
        world = new_world(config)
        for position, action in enumerate(actions):
            moment = judge.attempt(world, action)
            court.moment(moment, position)
            world = moment.after


def seconds(work: Callable[[], object]) -> float:
    """Time one call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5, help="rounds (best counts)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    recordings: list[Recording] = [
        recording for _, recording in archive.recordings() if project.uncovered(recording.header) is None
    ]
    outcomes = [replay.replay(recording) for recording in recordings]
    runs: list[Run] = [(outcome.config, outcome.actions) for outcome in outcomes]
    actions = sum(len(done) for _, done in runs)
    operations = sum(outcome.operations for outcome in outcomes)
    sides: dict[str, Callable[[], object]] = {
        "model": lambda: model(runs),
        "model_with_laws": lambda: judged(runs),
        "replay": lambda: [replay.replay(recording) for recording in recordings],
        "replay_with_laws": lambda: [replay.replay(recording, laws.ALL) for recording in recordings],
    }
    best = dict.fromkeys(sides, float("inf"))
    for _ in range(options.repeat):
        for name, work in sides.items():
            best[name] = min(best[name], seconds(work))
    figures = {
        "actions": actions,
        "operations": operations,
        "recordings": len(recordings),
        "laws": len(laws.ALL),
        "actions_per_second": round(actions / best["model"]),
        "actions_per_second_with_laws": round(actions / best["model_with_laws"]),
        "laws_cost_factor": round(best["model_with_laws"] / best["model"], 2),
        "replay_operations_per_second": round(operations / best["replay"]),
        "replay_operations_per_second_with_laws": round(operations / best["replay_with_laws"]),
        "replay_laws_cost_factor": round(best["replay_with_laws"] / best["replay"], 2),
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
