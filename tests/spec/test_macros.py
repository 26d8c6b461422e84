"""Macros of a step, with and without a host tier."""

from __future__ import annotations

from kvproof.core import actions as act
from kvproof.core.config import Config, Group, Offload, configure
from kvproof.spec import macros
from tests.driving import Driver


def config(offload: Offload | None) -> Config:
    return configure((Group("full_attention", 4),), num_blocks=8, offload=offload)


def test_a_step_runs_with_the_sub_phases_of_its_configuration() -> None:
    for offload, parts in ((None, 5), (Offload(), 7), (Offload(flush="before_forward"), 7)):
        resolved = config(offload)
        driver = Driver(resolved)
        driver.do(act.Submit(0, (1, 2, 3)), act.BeginStep(), act.Lookup(0), act.Allocate(0, 3))
        steps = macros.run([(0, (9,))], resolved)
        assert sum(isinstance(action, act.Execute) for action in steps) == parts
        driver.do(*steps)
        assert driver.counts(0) == (3, 4, 0)
    assert macros.run([]) == macros.run([], config(None))
