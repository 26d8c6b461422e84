"""The functions of kvproof.core that an action runs, in order: what docs/walkthrough.md tells."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from kvproof.core import actions as act
from kvproof.core.config import Group, Offload, configure
from kvproof.core.step import step
from kvproof.core.world import World
from tests.driving import Driver

CORE = Path(__file__).resolve().parents[1] / "core"
Call = tuple[int, str]


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


HANDOFF: tuple[act.Action, ...] = (
    act.Submit(0, tuple(range(1, 51))),
    act.BeginStep(),
    act.Lookup(0),
    act.Allocate(0, 48),
    act.Drain(),
    act.BuildMetadata(),
    act.Dispatch(),
    *(act.Execute(part) for part in ("flush", "zero", "copy", "load", "precopy", "forward", "submit")),
    act.Output(0),
    act.RunStore(0),
    act.CompleteStore(0),
    act.BeginStep(),
    act.Allocate(0, 2),
    act.Drain(),
    act.BuildMetadata(),
    act.Dispatch(),
    *(act.Execute(part) for part in ("flush", "zero", "copy", "load", "precopy", "forward", "submit")),
    act.Output(0, (9,)),
    act.Finish(0),
    act.BeginStep(),
    act.Drain(),
    act.BuildMetadata(),
    act.Dispatch(),
    *(act.Execute(part) for part in ("flush", "zero", "copy", "load", "precopy", "forward", "submit")),
    act.RunStore(1),
    act.CompleteStore(1),
    act.ResetCache(),
    act.Submit(1, tuple(range(1, 51))),
    act.BeginStep(),
    act.Lookup(1),
    act.LookupExternal(1, 0),
    act.Allocate(1, 0, external=48, load=True),
    act.Drain(),
    act.BuildMetadata(),
    act.Dispatch(),
    *(act.Execute(part) for part in ("flush", "zero", "copy", "load", "precopy", "forward", "submit")),
    act.RunLoad(0),
    act.CompleteLoad(1),
    act.BeginStep(),
    act.Promote(1),
    act.Allocate(1, 2),
)
"""G2 and G3: the state at 48 of a prompt of 50 tokens goes to the host and comes back to an identical prompt."""

TOLD: dict[int, str] = {
    3: "Allocate(0, 48)",
    5: "BuildMetadata()",
    13: 'Execute("submit")',
    15: "RunStore(0)",
    16: "CompleteStore(0)",
    30: "Finish(0)",
    33: "BuildMetadata()",
    48: "LookupExternal(1, 0)",
    49: "Allocate(1, 0, external=48, load=True)",
    51: "BuildMetadata()",
    60: "RunLoad(0)",
    61: "CompleteLoad(1)",
    63: "Promote(1)",
}
"""The actions of HANDOFF whose functions the page shows, by place."""


def handoff_driver() -> Driver:
    """The world of G2 and G3: N=4, attention and Mamba with blocks of 16, H=16, an eager host tier."""
    groups = (Group("full_attention", 16), Group("mamba_align", 16))
    return Driver(configure(groups, dcp_size=4, hash_block_size=16, num_blocks=16, offload=Offload(num_blocks=8)))


def shown(name: str) -> bool:
    """Whether the page of the handoff names a function: those of the host tier, and where a state is published."""
    return name.startswith("offload.") or name == "kinds.recurrent.publish"


def handoff_calls() -> list[tuple[str, list[Call]]]:
    """For each told action of HANDOFF its text and the functions of the host tier that it runs."""
    driver, found = handoff_driver(), []
    for place, action in enumerate(HANDOFF):
        if place in TOLD:
            found.append((TOLD[place], calls(driver.world, action, shown)))
        driver.do(action)
    return found


def _name(code: CodeType) -> str | None:
    path = Path(code.co_filename).resolve()
    if CORE not in path.parents or code.co_name.startswith("<"):
        return None
    return f"{path.relative_to(CORE).with_suffix('').as_posix().replace('/', '.')}.{code.co_name}"


def calls(world: World, action: act.Action, wanted: Callable[[str], bool] = bool) -> list[Call]:
    """(depth, module.function) of every wanted call inside ``step(world, action)``, in order; repeats in a row once."""
    found: list[Call] = []
    depth = 0

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal depth
        del argument
        name = _name(frame.f_code)
        if name is None or not wanted(name):
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
    for told, functions in handoff_calls():
        print(told)
        for level, function in functions:
            print("  " * level + function)
