"""The functions of kvproof.core that one action runs, in order: what docs/walkthrough.md tells."""

from __future__ import annotations

import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from kvproof.core import actions as act
from kvproof.core.config import Group, configure
from kvproof.core.step import step
from kvproof.core.world import World
from tests.driving import Driver

CORE = Path(__file__).resolve().parents[1] / "core"


def partial_hit_world() -> tuple[World, act.Action]:
    """G6: B (12 tokens of A's and 4 more) was just looked up at N=2; its allocation is next."""
    config = configure((Group("full_attention", 4), Group("mamba_align", 4)), dcp_size=2, num_blocks=40)
    driver = Driver(config)
    driver.submit(0, 14)
    driver.chunk(0, 12)
    driver.chunk(0, 2)
    driver.do(act.Finish(0))
    driver.submit(1, (*range(1, 13), 51, 52, 53, 54))
    driver.do(act.BeginStep(), act.Lookup(1))
    return driver.world, act.Allocate(1, 4, 12)


def _name(code: CodeType) -> str | None:
    path = Path(code.co_filename).resolve()
    if CORE not in path.parents or code.co_name.startswith("<"):
        return None
    return f"{path.relative_to(CORE).with_suffix('').as_posix().replace('/', '.')}.{code.co_name}"


def calls(world: World, action: act.Action) -> list[tuple[int, str]]:
    """(depth, module.function) of every call inside ``step(world, action)``, in order; repeats in a row once."""
    found: list[tuple[int, str]] = []
    depth = 0

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal depth
        del argument
        name = _name(frame.f_code)
        if name is None:
            return
        if event == "call":
            if not found or found[-1] != (depth, name):
                found.append((depth, name))
            depth += 1
        elif event == "return":
            depth -= 1

    sys.setprofile(watch)
    try:
        step(world, action)
    finally:
        sys.setprofile(None)
    return found


if __name__ == "__main__":
    for level, function in calls(*partial_hit_world()):
        print("  " * level + function)
