"""The positional scan: which entries are considered, which blocks they denote, and where the cursors stand (T26)."""

from __future__ import annotations

from typing import Any

import pytest

from kvproof.core import actions as act
from kvproof.core.config import VLLM_0_33_0, Group, Offload
from kvproof.core.offload import tails
from tests.offloading import FULL, MAMBA, STABLE, WINDOW, Hosted, hosted, pairs


def stored_with_last_plan(driver: Hosted) -> list[int]:
    """The device blocks that the metadata of the step dispatched last stores."""
    return list(driver.records[-2].store_device)


def test_every_group_is_scanned_in_its_own_blocks() -> None:
    """N=2, FA16 and a stable recurrent group of 16: 64 confirmed tokens are 2 attention blocks and 4 states (M-GEO-1)."""
    driver = Hosted(hosted(Group(FULL, 16), Group(STABLE, 16), dcp_size=2))
    driver.submit(0, 65)
    driver.chunk(0, 64)
    assert driver.cursors(0) == [0, 0]
    assert driver.tables(0) == [[1, 2], [3, 4, 5, 6]]
    assert pairs(driver.chunk(0, 1)) == [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6)]
    assert driver.cursors(0) == [2, 4]


def test_mamba_align_and_scratch_groups_are_not_scanned() -> None:
    """Columns of a Mamba-align group change their meaning, and scratch groups have no keys (HO-8, M-SCR-1)."""
    driver = Hosted(hosted(Group(FULL, 16), Group(MAMBA, 16), Group("scratch", 16)))
    driver.submit(0, 33)
    driver.chunk(0, 32)
    stored = driver.chunk(0, 1)
    assert driver.cursors(0) == [2, 0, 0]
    assert set(stored.store_device) == set(driver.tables(0)[0][:2])


def test_blocks_of_the_current_step_wait() -> None:
    """What a step computes is stored with the next one; a chunk that ends inside a block stores the full ones (T26)."""
    driver = Hosted(hosted(Group(FULL, 4)))
    driver.submit(0, 20)
    assert driver.chunk(0, 6).store_event == -1
    assert driver.chunk(0, 6).store_device == (1,)
    assert driver.chunk(0, 8).store_device == (2, 3)
    assert driver.cursors(0) == [3]


def test_placeholders_are_not_confirmed() -> None:
    """With asynchronous outputs the block that a placeholder fills is stored when its token is known (7.3.6)."""
    config = hosted(Group(FULL, 4), async_outputs=True, max_steps_in_flight=2, defer_block_free=True)
    driver = Hosted(config)
    driver.submit(0, 7)
    driver.do(act.BeginStep(), act.Lookup(0), act.Allocate(0, 7))
    driver.dispatch()
    driver.do(act.BeginStep(), act.Allocate(0, 1))
    driver.dispatch()
    assert stored_with_last_plan(driver) == [1]
    assert (driver.request(0).computed, driver.request(0).placeholders) == (8, 2)
    driver.execute()
    driver.output((0, 9))
    driver.do(act.BeginStep(), act.Allocate(0, 1))
    driver.dispatch()
    assert stored_with_last_plan(driver) == []
    assert driver.cursors(0) == [1]
    driver.execute()
    driver.output((0, 9))
    driver.do(act.BeginStep(), act.Allocate(0, 1))
    driver.dispatch()
    assert stored_with_last_plan(driver) == [2]


def test_drafts_in_flight_are_not_confirmed() -> None:
    """An aborted request whose drafts are in flight counts them as computed; what is not known is not stored (T27)."""
    config = hosted(
        Group(FULL, 4), Group(WINDOW, 4, window=20), num_draft_tokens=3, max_steps_in_flight=2, defer_block_free=True
    )
    driver = Hosted(config)
    driver.submit(0, 8)
    driver.chunk(0, 8)
    driver.do(act.BeginStep(), act.Allocate(0, 4, drafts=(3, 3, 3)))
    driver.dispatch()
    assert driver.cursors(0) == [2, 2]
    assert (driver.request(0).computed, driver.request(0).num_tokens) == (12, 9)
    assert driver.do(act.Finish(0)).store_device == ()


def window(**settings: Any) -> Hosted:
    """FA4 and SWA4 with W=5: behind 12 tokens the first two window entries are null."""
    driver = Hosted(hosted(Group(FULL, 4), Group(WINDOW, 4, window=5), **settings))
    driver.submit(0, 16)
    driver.chunk(0, 12)
    return driver


def test_a_nulled_entry_is_stored_from_the_key_map() -> None:
    """The window passed the entries, their blocks are free but keyed: they are stored from the free queue (T26)."""
    driver = window()
    assert driver.tables(0) == [[1, 2, 3], [4, 5, 6]]
    built = driver.chunk(0, 4)
    assert driver.tables(0)[1][:2] == [0, 0]
    assert built.store_device == (1, 2, 3, 4, 5, 6)
    assert driver.world.pool.ref[4] == 1
    assert driver.cursors(0) == [3, 3]


def test_a_nulled_entry_without_a_key_is_passed() -> None:
    """The freed block was taken by another request in the same plan: the entry denotes nothing (HO-10, M-STALE-1)."""
    driver = window(num_blocks=10, offload=Offload(num_blocks=20))
    driver.submit(1, (7,) * 4)
    driver.do(act.BeginStep(), act.Allocate(0, 4))
    assert driver.world.pool.free[-2:] == (5, 4)
    driver.do(act.Lookup(1), act.Allocate(1, 4))
    assert driver.tables(1) == [[9], [5]]
    driver.dispatch()
    assert stored_with_last_plan(driver) == [1, 2, 3, 4, 6]
    assert driver.cursors(0) == [3, 3]


@pytest.mark.parametrize(("resumed", "stored"), [("first", [1, 2, 3]), ("last", [1, 3, 2])])
def test_new_and_resumed_requests_come_before_continuing_ones(resumed: Any, stored: list[int]) -> None:
    """The store side sees admitted requests first, then resumed ones, then those that go on (T26, C-78)."""
    driver = Hosted(hosted(Group(FULL, 4), offload=Offload(num_blocks=20, resumed=resumed)))
    for request, token in ((9, 2), (1, 1), (0, 5)):
        driver.submit(request, (token,) * 6)
    driver.chunk(9, 4)
    driver.do(act.Finish(9))
    driver.chunk(1, 4)
    driver.complete(0)
    driver.do(act.Preempt(1))
    assert driver.do(act.ResetHost()).done
    driver.chunk(0, 4)
    driver.submit(2, (2,) * 6)
    driver.do(act.BeginStep(), act.Allocate(0, 1))
    for request in (1, 2):
        driver.allocate(request, 1)
    assert [entry.request for entry in driver.world.plan.scheduled] == [0, 1, 2]
    assert [driver.tables(request)[0][0] for request in range(3)] == [3, 2, 1]
    driver.dispatch()
    assert stored_with_last_plan(driver) == stored


def test_a_full_host_delays() -> None:
    """The cursor stays at the block for which there was no room, and the groups behind are not scanned (M-CUR-1)."""
    driver = Hosted(hosted(Group(FULL, 4), Group(WINDOW, 4, window=20), offload=Offload(num_blocks=3)))
    driver.submit(0, 20)
    driver.chunk(0, 12)
    assert pairs(driver.chunk(0, 4)) == [(1, 1), (2, 2)]
    assert driver.cursors(0) == [2, 0]
    assert driver.chunk(0, 1).store_event == -1
    driver.complete(0)
    assert driver.chunk(0, 1).store_device == (3, 7)
    assert driver.cursors(0) == [4, 0]


def test_what_one_request_picks_does_not_evict_what_it_is_compared_with() -> None:
    """A request's blocks are classified before host blocks are taken for any of them (T26)."""
    driver = Hosted(hosted(Group(FULL, 4), offload=Offload(num_blocks=3)))
    driver.submit(0, 8)
    driver.chunk(0, 8)
    driver.do(act.Finish(0))
    driver.empty_step()
    driver.complete(0)
    assert driver.host_keys(0) == {4: [1], 8: [2]}
    driver.submit(1, (6, 6, 6, 6))
    driver.chunk(1, 4)
    driver.submit(2, (*range(1, 9), 3, 3, 3, 3, 3))
    driver.chunk(2, 4)
    built = driver.chunk(2, 1)
    assert len(built.store_device) == 1
    assert driver.cursors(2) == [3]


def test_a_preempted_request_is_scanned_anew() -> None:
    """Its cursors go back to zero when the metadata is built; what is on the host is passed (T26, T0(6))."""
    driver = Hosted(hosted(Group(FULL, 4)))
    driver.submit(0, 12)
    driver.chunk(0, 8)
    driver.chunk(0, 1)
    assert driver.cursors(0) == [2]
    driver.do(act.BeginStep(), act.Preempt(0))
    assert driver.cursors(0) == [2]
    assert driver.close().flush
    assert driver.cursors(0) == [0]
    assert driver.do(act.CompleteStore(0)).done
    assert driver.chunk(0, 1).store_event == -1
    assert driver.cursors(0) == [2]


def test_a_request_that_the_store_side_does_not_know_is_passed() -> None:
    """After a reset of the host tier nobody knows the running requests: nothing of them is stored (T34)."""
    driver = Hosted(hosted(Group(FULL, 4)))
    driver.submit(0, 12)
    driver.chunk(0, 8)
    assert driver.do(act.ResetHost()).done
    assert driver.chunk(0, 4).store_event == -1
    assert driver.do(act.Finish(0)).store_device == ()


def test_meta_has_an_entry_per_boundary() -> None:
    """FA32 and FA16 with H=16: for blocks of 32 the inner boundary with 16 tokens, the edge with 32 (IP-1, IP-2)."""
    driver = Hosted(hosted(Group(FULL, 32), Group(FULL, 16), hash_block_size=16, events=True))
    driver.submit(0, 33)
    driver.chunk(0, 32)
    built = driver.chunk(0, 1)
    assert built.store_meta is not None
    depth = driver.world.prefixes.depth
    assert [[(depth[node], size) for node, size in meta] for meta in built.store_meta] == [
        [(16, 16), (32, 32)],
        [(16, 16)],
        [(32, 16)],
    ]
    assert len(built.store_meta) == len(built.store_device) == len(built.store_host)


def test_the_release_trusts_the_ids_it_was_told() -> None:
    """Under the release's profile a nulled entry still names its old block, whatever became of it (``positional_ids``)."""
    driver = window(num_blocks=10, offload=Offload(num_blocks=20), profile=VLLM_0_33_0)
    driver.submit(1, (7,) * 4)
    driver.do(act.BeginStep(), act.Allocate(0, 4), act.Lookup(1), act.Allocate(1, 4))
    driver.dispatch()
    assert stored_with_last_plan(driver) == [1, 2, 3, 4, 5, 6]


def test_a_tail_that_is_stored_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored as soon as it is keyed, the tail's block fills while its copy runs and gets a key that the copy lacks (M-REPLAY-1)."""
    monkeypatch.setattr(tails, "joins_scan", lambda: True)
    driver = Hosted(hosted(Group(FULL, 64), Group(MAMBA, 64), hash_block_size=16))
    driver.submit(0, 50)
    driver.chunk(0, 48)
    assert 1 in driver.chunk(0, 2).store_device
    event = driver.host.next_store - 1
    for older in range(event):
        driver.complete(older)
    driver.copy(event)
    for _ in range(14):
        driver.chunk(0, 1)
    driver.do(act.CompleteStore(event))
    assert driver.host_keys(0) == {48: [2], 64: [2]}
    copied = [node for node in driver.host.contents[2][1:] if node >= 0]
    assert max(driver.world.prefixes.depth[node] for node in copied) == 50
