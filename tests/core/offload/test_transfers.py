"""The worker's transfers (T0 execute a, g, h): when they are handed over, in which order they run, and who waits."""

from __future__ import annotations

import pytest

from kvproof.core import actions as act
from kvproof.core import errors
from kvproof.core.config import Group, Offload
from kvproof.core.offload.settings import parts
from kvproof.core.offload.state import Stage
from kvproof.core.step import refusal
from tests.core.offload.loading import Loading
from tests.offloading import FULL, hosted


def storing(**offload: object) -> Loading:
    """Full attention: request 0 has two full blocks, which the next step stores."""
    driver = Loading(hosted(Group(FULL, 4), offload=Offload(num_blocks=20, **offload)))  # type: ignore[arg-type]
    driver.submit(0, 8)
    driver.chunk(0, 8)
    return driver


def stages(driver: Loading) -> list[Stage]:
    """The stages of the running stores, abandoned ones included."""
    return [store.stage for store in (*driver.host.stores, *driver.host.abandoned_stores)]


def test_stores_begin_behind_the_forward_of_their_step() -> None:
    """M-ORD-1: handed over in the last part; before it the copy cannot run."""
    driver = storing()
    driver.do(act.BeginStep(), act.Allocate(0, 1))
    driver.dispatch()
    for part in parts(driver.world.config.offload):
        assert stages(driver) == [Stage.BUILT]
        assert isinstance(refusal(driver.world, act.RunStore(0)), errors.TransferOrder)
        driver.do(act.Execute(part))
    assert stages(driver) == [Stage.SUBMITTED]
    driver.do(act.RunStore(0))
    assert stages(driver) == [Stage.COPIED]
    assert [driver.host.contents[block] for block in (1, 2)] == [driver.world.contents[block] for block in (1, 2)]
    assert isinstance(refusal(driver.world, act.RunStore(0)), errors.TransferOrder)


def test_stores_may_begin_with_the_next_step() -> None:
    """T0: under ``next_step`` the flush part of the step behind hands them over, not that of their own."""
    driver = storing(store_submission="next_step")
    driver.do(act.BeginStep(), act.Allocate(0, 1))
    driver.close()
    assert stages(driver) == [Stage.BUILT]
    driver.do(act.BeginStep())
    driver.dispatch()
    driver.do(act.Execute("flush"))
    assert stages(driver) == [Stage.SUBMITTED]


@pytest.mark.parametrize("abandoned", [False, True])
@pytest.mark.parametrize("flush", ["first", "before_forward"])
def test_a_step_that_preempted_somebody_waits_for_all_transfers(flush: str, abandoned: bool) -> None:
    """M-RACE-1: in its flush part everything that was handed over is copied, stores and loads, from before a reset, too."""
    driver = storing(flush=flush)
    driver.do(act.Finish(0))
    driver.empty_step()
    driver.complete_stores()
    driver.wipe()
    driver.submit(1, 9)
    driver.load(1)
    driver.submit(2, (5, 6, 7, 8, 9))
    driver.chunk(2, 4)
    driver.do(act.BeginStep(), act.Allocate(2, 1))
    driver.close()
    assert (stages(driver), driver.row(1).stage) == ([Stage.SUBMITTED], Stage.SUBMITTED)
    driver.do(act.BeginStep(), act.Preempt(2))
    driver.dispatch()
    assert driver.world.steps[0].flush
    if abandoned:
        driver.do(act.ResetHost())
        assert not driver.host.stores + driver.host.loads
    order = driver.world.config.parts
    for part in order[: order.index("flush") + 1]:
        assert (stages(driver), driver.row(1).stage) == ([Stage.SUBMITTED], Stage.SUBMITTED)
        driver.do(act.Execute(part))
    assert (stages(driver), driver.row(1).stage) == ([Stage.COPIED], Stage.COPIED)
    assert [driver.cells(block) for block in driver.tables(1)[0]] == [[1, 2, 3, 4], [5, 6, 7, 8]]


def test_copies_of_one_direction_run_in_order() -> None:
    """T0: the second store waits for the first, the second batch of loads for the first."""
    driver = storing()
    driver.do(act.BeginStep(), act.Allocate(0, 1))
    driver.close()
    driver.submit(1, (5, 6, 7, 8, 9))
    driver.chunk(1, 4)
    driver.do(act.BeginStep(), act.Allocate(1, 1))
    driver.close((1, 9))
    assert stages(driver) == [Stage.SUBMITTED, Stage.SUBMITTED]
    assert isinstance(refusal(driver.world, act.RunStore(1)), errors.TransferOrder)
    driver.do(act.RunStore(0), act.RunStore(1))
    assert isinstance(refusal(driver.world, act.RunStore(7)), errors.TransferOrder)
    driver.do(act.CompleteStore(0), act.CompleteStore(1))
    for request in (0, 1):
        driver.do(act.Finish(request))
    driver.empty_step()
    driver.complete_stores()
    driver.wipe()
    driver.submit(2, 9)
    driver.submit(3, (5, 6, 7, 8, 9))
    driver.load(2)
    driver.load(3)
    assert isinstance(refusal(driver.world, act.RunLoad(1)), errors.TransferOrder)
    assert isinstance(refusal(driver.world, act.RunLoad(2)), errors.TransferOrder)
    driver.do(act.RunLoad(0), act.RunLoad(1))
    assert [driver.cells(block) for block in driver.tables(3)[0]] == [[5, 6, 7, 8]]


def test_an_abandoned_store_still_runs() -> None:
    """T34: after a reset the worker goes on; its copy lands where nobody looks."""
    driver = storing()
    driver.do(act.BeginStep(), act.Allocate(0, 1))
    driver.close()
    driver.do(act.ResetHost(), act.RunStore(0), act.CompleteStore(0))
    assert driver.host.abandoned_stores == ()
