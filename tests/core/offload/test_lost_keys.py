"""A store whose device block loses its keys by an eviction while it runs (T4, T28, C-65)."""

from __future__ import annotations

import pytest

from kvproof.core import actions as act
from kvproof.core.config import Group
from tests.offloading import FULL, Hosted, hosted


@pytest.mark.parametrize("events", [False, True])
def test_what_was_evicted_by_id_is_not_registered_on_the_host(events: bool) -> None:
    driver = Hosted(hosted(Group(FULL, 4), events=events))
    driver.submit(0, 9)
    driver.chunk(0, 8)
    built = driver.chunk(0, 1)
    assert built.store_device == (1, 2)
    driver.do(act.EvictBlocks((2,)))
    completed = driver.complete(0)
    assert driver.host_keys(0) == {4: [1]}
    assert len(driver.host.pool.free) == 19
    assert [event.boundary for event in completed.events] == ([4] if events else [])
    driver.do(act.Finish(0))
    assert driver.world.pool.free[0] == 3
    assert set(driver.world.pool.free) == set(range(1, 40))
