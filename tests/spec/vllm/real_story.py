"""A script for tests: runs a real release's scheduler, lets transfers be reported with outputs, and prints every decision.

It runs in the process of a release, with that release's folder and the recorder's folder on its path; no kvproof is there.

    python real_story.py CHILD_FOLDER HEADER_CONFIG_JSON SEED
"""

from __future__ import annotations

import importlib
import json
import random
import sys
from typing import Any

sys.path.insert(0, sys.argv[1])

importlib.import_module("stand_ins").install()
drive: Any = importlib.import_module("drive")  # not before the stand-ins


class WithOutputs(drive.Driver):  # type: ignore[misc]
    """Reports of finished transfers wait for the next output of a step and arrive with it, several at once."""

    reports: list[Any] = []  # noqa: RUF012 (one driver per process)

    def report(self, output: Any) -> None:
        """Keep a report."""
        self.reports.append(output)

    def do_update(self, *args: Any) -> bool:
        """Report an output, and with it what was kept."""
        if not self.planned:
            return False
        loads: set[str] = set()
        stores: dict[int, int] = {}
        for report in self.reports:
            loads |= set(report.finished_recving or ())
            for event, acks in getattr(report.kv_connector_worker_meta, "completed_store_events", {}).items():
                stores[event] = stores.get(event, 0) + acks
        self.reports.clear()
        if not loads and not stores:
            return bool(super().do_update(*args))
        meta = drive.module("v1.simple_kv_offload.metadata").SimpleCPUOffloadWorkerMetadata(completed_store_events=stores)
        merged = drive.module("v1.outputs").KVConnectorOutput(finished_recving=loads or None, kv_connector_worker_meta=meta)
        original = self.scheduler.update_from_output

        def update(scheduler_output: Any, output: Any) -> Any:
            output.kv_connector_output = merged
            return original(scheduler_output, output)

        self.scheduler.update_from_output = update
        try:
            return bool(super().do_update(*args))
        finally:
            self.scheduler.update_from_output = original


def main() -> None:
    """Run, and print decisions as lines of JSON."""
    config, seed = json.loads(sys.argv[2]), random.Random(int(sys.argv[3]))
    scheduler = drive.build(config)
    run = WithOutputs(scheduler, config)
    schedule = scheduler.schedule

    def told(*args: Any, **kwargs: Any) -> Any:
        output = schedule(*args, **kwargs)
        tables = {entry.req_id: [list(group) for group in entry.block_ids] for entry in output.scheduled_new_reqs}
        print(json.dumps([output.num_scheduled_tokens, tables, sorted(output.preempted_req_ids or ())]))
        return output

    scheduler.schedule = told
    prompts = [[seed.randint(1, 3) for _ in range(seed.randint(3, config["max_model_len"] - 2))] for _ in range(4)]
    for _ in range(12):
        prompt = seed.choice(prompts)
        run.perform(["submit", prompt[: seed.randint(2, len(prompt))], seed.randint(1, 6), 0])
        for _ in range(seed.randint(0, 4)):
            run.perform(["step"])
            run.perform(["update", seed.randint(1, 99)])
            if seed.random() < 0.5:
                run.perform(["complete_store"])
            if seed.random() < 0.5:
                run.perform(["complete_load"])
            if seed.random() < 0.1:
                run.perform(["abort", seed.randint(0, 9)])
            if seed.random() < 0.1:
                run.perform(["reset", False, seed.random() < 0.5])
    for _ in range(40):
        run.perform(["step"])
        run.perform(["update", seed.randint(1, 99)])
        while run.perform(["complete_store"]) or run.perform(["complete_load"]):
            pass


if __name__ == "__main__":
    main()
