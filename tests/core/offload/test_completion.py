"""The end of a store: reports of the workers, keys, references, and who was waiting (T28)."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core.config import Group, Offload
from kvproof.core.errors import ContractBroken, NegativeNumber, NoHostTier, PhaseError, TransferOrder
from kvproof.core.offload.state import Stage
from tests.driving import Driver
from tests.offloading import FULL, MAMBA, Hosted, hosted


def storing(workers: int = 1, **settings: object) -> Hosted:
    """A world in which store 0 of attention block 1 is submitted."""
    driver = Hosted(hosted(Group(FULL, 4), offload=Offload(num_blocks=20, workers=workers), **settings))
    driver.submit(0, 12)
    driver.chunk(0, 4)
    assert driver.chunk(0, 4).store_device == (1,)
    return driver


def test_two_workers() -> None:
    """The first report may come before the other's copy is done; keys and references wait for the last (CP-9)."""
    driver = storing(workers=2)
    early = driver.do(act.CompleteStore(0))
    assert (early.done, early.pending_work) == (False, True)
    assert driver.host_keys(0) == {}
    with pytest.raises(TransferOrder, match="bytes"):
        driver.do(act.CompleteStore(0))
    driver.copy(0)
    with pytest.raises(TransferOrder, match="each reports once"):
        driver.do(act.CompleteStore(0, 2))
    last = driver.do(act.CompleteStore(0))
    assert (last.done, last.pending_work) == (True, False)
    assert driver.host_keys(0) == {4: [1]}
    assert driver.host.in_flight == ()


def test_both_workers_at_once() -> None:
    """One action may report for several workers."""
    driver = storing(workers=2)
    assert driver.complete(0, acks=2).done


def test_three_workers() -> None:
    """Two of three reports are not all (CP-9)."""
    driver = storing(workers=3)
    driver.copy(0)
    assert not driver.do(act.CompleteStore(0)).done
    assert not driver.do(act.CompleteStore(0)).done
    assert driver.host_keys(0) == {}
    assert driver.do(act.CompleteStore(0)).done
    assert driver.host_keys(0) == {4: [1]}


def test_what_cannot_be_reported() -> None:
    """Nothing before the store is submitted, no zero workers, nothing while a plan is open; no host tier, no store."""
    driver = storing()
    with pytest.raises(NegativeNumber):
        driver.do(act.CompleteStore(0, 0))
    driver.do(act.BeginStep(), act.Allocate(0, 4))
    with pytest.raises(PhaseError):
        driver.do(act.CompleteStore(0))
    driver.dispatch()
    with pytest.raises(TransferOrder, match="BUILT"):
        driver.do(act.CompleteStore(1))
    for action in (act.CompleteStore(0), act.ResetHost(), act.ReadCounters(), act.RunStore(0)):
        with pytest.raises(NoHostTier):
            Driver(evolve(driver.world.config, offload=None)).do(action)


def test_an_unknown_event_changes_nothing() -> None:
    """A report of a store that is not there, or no longer, changes nothing (CP-11)."""
    driver = storing()
    before = driver.world
    assert not driver.do(act.CompleteStore(7)).done
    assert driver.world == before
    driver.complete(0)
    before = driver.world
    assert not driver.do(act.CompleteStore(0)).done
    assert driver.world == before


def test_keys_of_now_are_registered() -> None:
    """The host block gets the primary with its tokens, and the secondaries that came since without (T28, HB-4)."""
    driver = Hosted(hosted(Group(FULL, 8), Group(MAMBA, 4), hash_block_size=4, dcp_size=1))
    driver.submit(0, 7)
    driver.chunk(0, 4)
    driver.chunk(0, 3)
    driver.chunk(0, 1)
    stored = driver.chunk(0, 1)
    assert driver.keys(0) == {4: [1], 8: [1]}
    (event,) = (store.event for store in driver.host.stores if 1 in store.device)
    assert stored.store_event == event
    for older in range(event + 1):
        driver.complete(older)
    assert driver.host_keys(0) == {8: [driver.host_keys(0)[8][0]], 4: driver.host_keys(0)[8]}
    block = driver.host_keys(0)[8][0]
    assert driver.host.pool.key_tokens[block] == 8


def test_one_key_on_two_host_blocks() -> None:
    """Two requests may store equal content at once; a lookup gets the first (PM-3)."""
    driver = Hosted(hosted(Group(FULL, 4)))
    for request in (0, 1):
        driver.submit(request, 9)
    driver.do(act.BeginStep())
    for request in (0, 1):
        driver.do(act.Lookup(request))
        driver.do(act.Allocate(request, 3 + request))
    driver.close()
    driver.do(act.BeginStep(), act.Allocate(0, 1), act.Allocate(1, 1))
    assert driver.close().store_device == (2,)
    driver.do(act.BeginStep(), act.Allocate(0, 1), act.Allocate(1, 1))
    assert driver.close().store_device == (1,)
    driver.complete(0)
    driver.complete(1)
    assert driver.keys(0)[4] == [2, 1]
    assert driver.host_keys(0)[4] == [1, 2]


def test_a_finished_request_is_kept_until_its_stores_are_complete() -> None:
    """Its record goes with its last event, not before; its id is taken that long (LV-4, T37)."""
    driver = storing()
    driver.chunk(0, 4)
    assert list(driver.host.tracks[0].events) == [0, 1]
    assert driver.do(act.Finish(0)).store_device == (3,)
    assert driver.host.tracks[0].finished
    driver.complete(0)
    assert list(driver.host.tracks[0].events) == [1]
    driver.complete(1)
    assert driver.host.tracks == ()
    assert driver.host.queued


def test_a_later_store_may_be_complete_first() -> None:
    """T28: a finished request is kept for the event that is left, whichever that is."""
    driver = storing()
    driver.chunk(0, 4)
    driver.do(act.Finish(0))
    driver.copy(0, 1)
    driver.do(act.CompleteStore(1, 1))
    assert list(driver.host.tracks[0].events) == [0]
    driver.do(act.CompleteStore(0, 1))
    assert driver.host.tracks == ()


def test_broken_contracts_are_told() -> None:
    """Lists that do not belong together are no store (IP-1)."""
    driver = storing()
    driver.copy(0)
    assert driver.world.host is not None
    (store,) = driver.host.stores
    driver.world = evolve(driver.world, host=evolve(driver.host, stores=(evolve(store, meta=()),)))
    with pytest.raises(ContractBroken, match="index-parallel"):
        driver.do(act.CompleteStore(0))
    assert store.stage is Stage.COPIED
