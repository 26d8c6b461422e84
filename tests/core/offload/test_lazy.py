"""Lazy storing: the walk over the device's free queue, its target and its cursor (T33, 2.8)."""

from __future__ import annotations

import pytest

from kvproof.core import actions as act
from kvproof.core.config import Group, Offload
from kvproof.core.offload import counters, lazy
from kvproof.core.offload.state import Counters
from tests.offloading import FULL, MAMBA, STABLE, WINDOW, Hosted, hosted, pairs

LAZY = Offload(mode="lazy", num_blocks=20)


@pytest.mark.parametrize(("ranks", "target"), [(1, 40), (2, 24)])
def test_target_of_attention_and_a_replicated_window(ranks: int, target: int) -> None:
    """FA16 and replicated SWA16 (W=33), 256 batched tokens: 40 blocks at N=1, 24 at N=2 (2.8)."""
    groups = (Group(FULL, 16), Group(WINDOW, 16, sharded=False, window=33))
    config = hosted(*groups, offload=LAZY, dcp_size=ranks, max_chunk=256)
    assert lazy.target(config) == target


def test_target_of_recurrent_and_scratch_groups() -> None:
    """Two blocks for each recurrent group, none for a scratch group (2.8)."""
    groups = (Group(FULL, 16), Group(MAMBA, 16), Group(STABLE, 16), Group("scratch", 16))
    assert lazy.target(hosted(*groups, offload=LAZY, max_chunk=32)) == 2 * (2 + 2 + 2)


def finished(num_blocks: int = 40, host_blocks: int = 20, chunk: int = 8) -> Hosted:
    """A world in lazy mode in which a request of 16 tokens has finished: its four attention blocks are free and keyed."""
    offload = Offload(mode="lazy", num_blocks=host_blocks)
    driver = Hosted(hosted(Group(FULL, 4), offload=offload, num_blocks=num_blocks, max_chunk=chunk))
    driver.submit(0, 16)
    for _ in range(16 // chunk):
        assert driver.chunk(0, chunk).store_event == -1
    assert driver.do(act.Finish(0)).store_device == ()
    return driver


def test_blocks_near_the_front_of_the_queue_are_stored() -> None:
    """The walk covers twice the blocks of a step; what it stores leaves the queue and comes back behind (T33)."""
    driver = finished(num_blocks=6, chunk=4)
    assert lazy.target(driver.world.config) == 2
    assert driver.host.cursor == 5
    assert list(driver.world.pool.free) == [5, 4, 3, 2, 1]
    built = driver.empty_step()
    assert pairs(built) == [(4, 1), (3, 2)]
    assert built.store_meta is None
    assert list(driver.world.pool.free) == [5, 2, 1]
    assert driver.complete(0).done
    assert list(driver.world.pool.free) == [5, 2, 1, 4, 3]
    assert driver.host_keys(0) == {16: [1], 12: [2]}
    assert driver.empty_step().store_device == ()
    assert driver.host.cursor == 3


def test_no_more_than_the_host_has_room_for() -> None:
    """With one free host block one block is stored, and the cursor stands on it (T33)."""
    driver = finished(num_blocks=6, host_blocks=2)
    assert pairs(driver.empty_step()) == [(4, 1)]
    assert driver.host.cursor == 4
    driver.complete(0)
    assert list(driver.world.pool.free) == [5, 3, 2, 1, 4]
    assert driver.host.cursor == 4
    assert driver.empty_step().store_event == -1


def test_the_cursor_stays_where_the_walk_ended() -> None:
    """A walk that found nothing goes on behind its last block; it starts anew once that block is used (T33)."""
    driver = Hosted(hosted(Group(FULL, 4), offload=LAZY, max_chunk=4))
    driver.empty_step()
    assert driver.host.cursor == 2
    driver.empty_step()
    assert driver.host.cursor == 4
    for request in range(8):
        driver.submit(request, (request, request))
    driver.do(act.BeginStep())
    for request in range(8):
        driver.allocate(request, 2)
    assert (driver.world.pool.ref[4], driver.world.pool.free[0]) == (1, 9)
    driver.close()
    assert driver.host.cursor == 10


def test_what_the_host_has_is_not_stored_again() -> None:
    """A free block whose key is on the host is passed (T33)."""
    driver = finished(num_blocks=6, chunk=4)
    assert [driver.empty_step().store_device for _ in range(3)] == [(4, 3), (2,), (1,)]
    for event in range(3):
        driver.complete(event)
    assert list(driver.world.pool.free) == [5, 4, 3, 2, 1]
    driver.submit(1, (7,) * 4)
    driver.chunk(1, 4)
    driver.do(act.Finish(1))
    assert driver.empty_step().store_device == (5,)
    assert driver.empty_step().store_event == -1
    assert driver.host.cursor == 3


def test_nothing_of_the_eager_mode_happens() -> None:
    """No track, nothing in flight, nothing queued, no counter moves: handoffs are not looked at (CP-10)."""
    driver = Hosted(hosted(Group(FULL, 16), Group(MAMBA, 16), offload=LAZY))
    driver.submit(0, 32)
    driver.chunk(0, 16)
    driver.chunk(0, 16)
    assert driver.world.plan.drained == ()
    driver.do(act.Finish(0))
    host = driver.host
    assert (host.tracks, host.in_flight, host.queued, host.counters) == ((), (), (), Counters())
    assert driver.empty_step().store_device
    assert driver.host.in_flight == ()


def test_events_of_lazy_stores_carry_no_payload() -> None:
    """Nothing is captured when a block is chosen: size E, no tokens (3.7, T28)."""
    driver = Hosted(hosted(Group(FULL, 4), offload=LAZY, events=True, num_blocks=6, max_chunk=8))
    driver.submit(0, 8)
    driver.chunk(0, 8)
    driver.do(act.Finish(0))
    assert driver.empty_step().store_meta is None
    said = driver.complete(0).events
    assert [(event.medium, event.kind, event.boundary, event.size, event.tokens) for event in said] == [
        ("host", "stored", 8, 4, ()),
        ("host", "stored", 4, 4, ()),
    ]


@pytest.mark.parametrize(("host_blocks", "steps", "ends"), [(7, 200, False), (9, 5, True), (11, 3, True)])
def test_an_idle_engine_goes_on_storing(host_blocks: int, steps: int, ends: bool) -> None:
    """Finding lazy-churn: with too few host blocks every step finds something to store, and so asks for another one (LV-7)."""
    offload = Offload(mode="lazy", num_blocks=host_blocks)
    driver = Hosted(hosted(Group(FULL, 4), offload=offload, num_blocks=12, max_chunk=8))
    driver.submit(0, 40)
    for _ in range(5):
        driver.chunk(0, 8)
    driver.do(act.Finish(0))
    driver.empty_step()
    made = 0
    while counters.pending_work(driver.host) and made < 200:
        running = [store.event for store in driver.host.stores]
        driver.empty_step()
        for event in running:
            driver.complete(event)
        made += 1
    assert (made, not counters.pending_work(driver.host)) == (steps, ends)
