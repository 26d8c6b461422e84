"""Reset of the host tier: what is dropped, what runs on, and what the counters keep (T34, CN-1)."""

from __future__ import annotations

from kvproof.core import actions as act
from kvproof.core.config import Group, Offload
from kvproof.core.offload.counters import FIELDS
from tests.offloading import FULL, MAMBA, Hosted, hosted, outcomes, pairs


def storing() -> Hosted:
    """A world in which store 0 (a state) runs and a finished request's attention block is queued."""
    driver = Hosted(hosted(Group(FULL, 16), Group(MAMBA, 16), dcp_size=4, offload=Offload(num_blocks=20, workers=2)))
    driver.submit(0, 50)
    assert driver.chunk(0, 48).store_device == (2,)
    driver.chunk(0, 2)
    driver.do(act.Finish(0))
    assert [left.device for left in driver.host.queued] == [(1,)]
    return driver


def test_running_and_queued_stores() -> None:
    """A running store is abandoned with its reports, a queued one dropped; the keys stay until the rest is reported."""
    driver = storing()
    driver.do(act.CompleteStore(0))
    assert driver.do(act.ReadCounters()).gauge == 2
    assert not driver.do(act.ResetHost()).done
    host = driver.host
    assert (host.queued, host.stores, host.tracks, host.in_flight) == ((), (), (), ())
    assert [(store.event, store.acks) for store in host.abandoned_stores] == [(0, 1)]
    assert (driver.world.pool.ref[1], driver.world.pool.ref[2]) == (0, 1)
    assert driver.do(act.ReadCounters()).gauge == 1
    done = driver.complete(0)
    assert (done.done, done.pending_work) == (True, False)
    assert driver.host_keys(1) == {}
    assert driver.world.pool.ref[2] == driver.host.pool.ref[1] == 0
    assert driver.do(act.ResetHost()).done


def test_event_numbers_go_on() -> None:
    """A late report of an old store must not meet a new one of its number (CP-11)."""
    driver = storing()
    driver.do(act.ResetHost())
    driver.submit(1, (7,) * 40)
    stored = [driver.chunk(1, 16).store_event for _ in range(2)]
    assert stored == [1, 2]


def test_keys_go_when_nothing_runs() -> None:
    """With every store reported the host's key map is cleared and every block is free (CP-12)."""
    driver = storing()
    driver.empty_step()
    driver.complete(0, acks=2)
    driver.complete(1, acks=2)
    assert (driver.host_keys(0), driver.host_keys(1)) == ({48: [2]}, {48: [1]})
    assert driver.do(act.ResetHost()).done
    assert driver.host.pool.entries == ()
    assert len(driver.host.pool.free) == 19


def test_counters_are_read_by_interval() -> None:
    """What was counted since the last reading is told once; a reset keeps what was not read yet (CN-1, M-CNT-2)."""
    driver = Hosted(hosted(Group(FULL, 16), Group(MAMBA, 16), dcp_size=2, offload=Offload(num_blocks=3)))
    driver.submit(0, 80)
    driver.chunk(0, 16)
    assert told(driver) == {"published": 1, "stored": 1}
    assert told(driver) == {}
    driver.chunk(0, 16)
    driver.chunk(0, 16)
    driver.do(act.ResetHost())
    assert driver.counted(published=2, stored=1, dropped_cpu_full=1)
    assert told(driver) == {"published": 2, "stored": 1, "dropped_cpu_full": 1}
    assert told(driver) == {}
    assert outcomes(driver.chunk(0, 16)) == [(driver.tables(0)[1][3], 64, "dropped_request_gone")]
    assert told(driver) == {"published": 1, "dropped_request_gone": 1}


def told(driver: Hosted) -> dict[str, int]:
    """What a reading of the counters says, zeros left out."""
    counts = driver.do(act.ReadCounters()).counters
    return {name: count for name, count in zip(FIELDS, counts, strict=True) if count}


def test_a_store_that_was_not_submitted_is_abandoned_too() -> None:
    """With a step dispatched and not executed its store is in the metadata: it will be copied (T34)."""
    driver = Hosted(hosted(Group(FULL, 16), Group(MAMBA, 16)))
    driver.submit(0, 33)
    driver.do(act.BeginStep(), act.Lookup(0), act.Allocate(0, 16))
    driver.dispatch()
    assert pairs(driver.records[-2]) == [(2, 1)]
    assert not driver.do(act.ResetHost()).done
    driver.execute()
    driver.output()
    assert driver.complete(0).done
    assert driver.do(act.ResetHost()).done


def test_pins_of_lookups_are_dropped() -> None:
    """What a lookup has pinned for an allocation that did not come yet goes with the reset (CP-4)."""
    driver = storing()
    driver.empty_step()
    driver.complete(0, acks=2)
    driver.complete(1, acks=2)
    driver.wipe()
    driver.submit(1, 50)
    driver.do(act.BeginStep(), act.Lookup(1))
    assert driver.do(act.LookupExternal(1, 0)).external == 48
    driver.close()
    assert [driver.host.pool.ref[block] for block in (1, 2)] == [1, 1]
    assert driver.do(act.ResetHost()).done
    assert driver.host.pending == ()
    assert len(driver.host.pool.free) == 19


def test_a_report_of_an_unknown_event_leaves_an_abandoned_store_alone() -> None:
    """CP-11: only the abandoned store's own number ends it, a later one changes nothing."""
    driver = storing()
    driver.do(act.CompleteStore(0), act.ResetHost())
    before = driver.world
    assert not driver.do(act.CompleteStore(7)).done
    assert driver.world == before
