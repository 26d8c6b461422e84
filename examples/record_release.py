"""Runs the scheduler of a vLLM release that is not installed, to be recorded: docs/record.md has the commands.

The release is the one that ``kvproof conform vllm --version X`` fetches. It is imported here as conform imports it: with the
packages of the extra ``vllm``, and stand-ins for those that its scheduler imports and never calls (transformers, PIL, ...).
With vLLM installed none of this is needed: build a Scheduler as your own code does.
"""

from __future__ import annotations

import importlib
import sys

from kvproof.spec.vllm import process, releases, scopes


def main(version: str) -> None:
    """Send one prompt twice; the second request hits what the first one left."""
    sys.path[:0] = [str(process.CHILD.parent), str(releases.find(version).folder)]
    importlib.import_module("stand_ins").install()
    drive = importlib.import_module("drive")  # imports the release: not before the stand-ins
    config = scopes.by_name("fa4-m4-n2").header()
    scheduler = drive.build(config)  # an object of vllm.v1.core.sched.scheduler.Scheduler
    driver = drive.Driver(scheduler, config)
    prompt = list(range(1, 22))
    for name in ("first", "second"):
        driver.perform(("submit", prompt, 4, 0, name))
        while name in scheduler.requests:
            driver.perform(("step",))
            driver.perform(("update", 0))  # the sampled tokens are drawn by this number
    print(f"vLLM {version}: {driver.steps} steps")


if __name__ == "__main__":
    main(sys.argv[1])
