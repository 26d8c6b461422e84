"""The finish flush and the block of the prompt tail (T27)."""

from __future__ import annotations

import pytest

from kvproof.core import actions as act
from kvproof.core.config import SOUND, VLLM_0_33_0, Group, Offload, Profile
from kvproof.core.errors import DuplicateRequest
from kvproof.core.offload import tails
from tests.offloading import FULL, MAMBA, WINDOW, Hosted, hosted, pairs


def run(driver: Hosted, prompt: int, *chunks: int) -> None:
    """Submit request 0 and compute its chunks."""
    driver.submit(0, prompt)
    for chunk in chunks:
        driver.chunk(0, chunk)


@pytest.mark.parametrize(("profile", "stored"), [(SOUND, (1,)), (VLLM_0_33_0, ())])
def test_a_prompt_that_ends_on_a_hash_boundary(profile: Profile, stored: tuple[int, ...]) -> None:
    """N=4, P=48, H=16: T9.2 registered 32; the release asks for 48, which has no key (``finish_tail``, C-40)."""
    driver = Hosted(hosted(Group(FULL, 16), Group(MAMBA, 16), dcp_size=4, profile=profile))
    run(driver, 48, 32, 16)
    assert driver.keys(0) == {32: [1]}
    assert driver.do(act.Finish(0)).store_device == stored


@pytest.mark.parametrize(("profile", "stored"), [(SOUND, {1, 2}), (VLLM_0_33_0, {1})])
def test_every_attention_group_has_a_tail(profile: Profile, stored: set[int]) -> None:
    """FA64 twice in different sizes: both tails are stored, by the release the first one (``finish_tail_groups``, C-41)."""
    groups = (Group(FULL, 64), Group(FULL, 128), Group(MAMBA, 64))
    driver = Hosted(hosted(*groups, hash_block_size=16, profile=profile))
    run(driver, 50, 48, 2)
    assert (driver.keys(0), driver.keys(1)) == ({48: [1]}, {48: [2]})
    assert set(driver.do(act.Finish(0)).store_device) == stored


def tailed(host_blocks: int = 20, **settings: object) -> Hosted:
    """FA64, Mamba64, H=16: P=50 computed, its tail's key 48 on attention block 1."""
    config = hosted(Group(FULL, 64), Group(MAMBA, 64), hash_block_size=16, offload=Offload(num_blocks=host_blocks), **settings)
    driver = Hosted(config)
    run(driver, 50, 48, 2)
    assert driver.keys(0) == {48: [1]}
    return driver


def test_a_tail_without_room_is_left() -> None:
    """The state took the only host block: nothing is stored, and nothing fails (CP-7, M-CPU-1)."""
    driver = tailed(host_blocks=2)
    finished = driver.do(act.Finish(0))
    assert (finished.store_device, finished.pending_work) == ((), True)


def test_a_tail_whose_store_runs_is_not_stored_again() -> None:
    """Decoding filled the block and the scan stored it; the request finishes before that is complete (M-DUP-2)."""
    driver = tailed()
    for _ in range(14):
        driver.chunk(0, 1)
    stored = driver.chunk(0, 1)
    assert 1 in stored.store_device
    assert 1 in driver.host.in_flight
    assert driver.do(act.Finish(0)).store_device == ()


def test_a_tail_that_the_host_has_is_not_stored_again() -> None:
    """An identical request finds the boundary on the host (T27)."""
    driver = tailed()
    driver.do(act.Finish(0))
    driver.empty_step()
    for event in range(driver.host.next_store):
        driver.complete(event)
    driver.wipe()
    driver.submit(1, 50)
    driver.chunk(1, 48)
    driver.chunk(1, 2)
    assert driver.do(act.Finish(1)).store_device == ()


def test_a_tail_that_is_not_computed_yet() -> None:
    """Aborted before the boundary, a request leaves no tail (T27)."""
    driver = Hosted(hosted(Group(FULL, 64), Group(MAMBA, 16), hash_block_size=16))
    run(driver, 50, 16)
    assert driver.do(act.Finish(0)).store_device == ()


def test_without_fine_grained_hits_no_tail_is_stored() -> None:
    """FA32 and FA16 with H=16 have coarse hits: no lookup asks for a key inside a block (T27)."""
    driver = Hosted(hosted(Group(FULL, 32), Group(FULL, 16), hash_block_size=16))
    assert tails.groups(driver.world.config) == ()
    run(driver, 52, 32, 20)
    assert driver.keys(0) == {32: [1]}
    assert driver.do(act.Finish(0)).store_device == ()


def test_an_eagle_tail() -> None:
    """With a drafter the whole prompt is registered: P=96 and E=64 leave the boundary 96 (T9.2)."""
    driver = Hosted(hosted(Group(FULL, 64), Group(MAMBA, 64), hash_block_size=16, use_eagle=True))
    run(driver, 96, 80, 16)
    assert driver.keys(0) == {64: [1], 96: [2]}
    finished = driver.do(act.Finish(0))
    assert 2 in finished.store_device


def test_what_the_scan_did_not_reach() -> None:
    """Blocks of the last steps are stored at the end, windows from the key map; they join the next step's event (M-FLUSH-1)."""
    driver = Hosted(hosted(Group(FULL, 4), Group(WINDOW, 4, window=5)))
    run(driver, 13, 12, 1)
    driver.complete(0)
    before = driver.host.tracks[0].cursors
    driver.chunk(0, 1)
    driver.chunk(0, 1)
    driver.chunk(0, 1)
    assert (before, driver.cursors(0)) == ((3, 3), [3, 3])
    finished = driver.do(act.Finish(0))
    assert len(finished.store_device) == 2
    assert finished.store_meta is None
    assert (driver.host.tracks, driver.host.in_flight) == ((), tuple(sorted(finished.store_device)))
    assert pairs(driver.empty_step()) == pairs(finished)


def test_queued_stores_come_behind_those_of_the_step() -> None:
    """Two finished requests and a running one: its own selection first, then what they left, in their order (T0(6))."""
    driver = Hosted(hosted(Group(FULL, 4), events=True))
    for request in range(3):
        driver.submit(request, (request,) * 9)
    driver.do(act.BeginStep())
    for request in range(3):
        driver.allocate(request, 4)
    driver.close()
    left = [driver.do(act.Finish(request)) for request in (1, 0)]
    assert [finished.store_device for finished in left] == [(2,), (1,)]
    built = driver.chunk(2, 1)
    assert pairs(built) == [(3, 3), (2, 1), (1, 2)]
    assert built.store_meta is not None
    assert [meta[0][0] for meta in built.store_meta] == [driver.world.pool.key_node[block] for block in (3, 2, 1)]
    assert driver.host.queued == ()


def test_an_id_is_taken_as_long_as_the_store_side_knows_it() -> None:
    """A finished request whose stores run is not submitted again: its record would be taken for the new one's (T37)."""
    driver = Hosted(hosted(Group(FULL, 4)))
    run(driver, 9, 4, 1)
    driver.do(act.Finish(0))
    with pytest.raises(DuplicateRequest):
        driver.submit(0, 5)
    driver.complete(0)
    driver.submit(0, 5)


def test_a_waiting_request_leaves_nothing() -> None:
    """A request that was never admitted, and one that waits preempted, leave nothing to be stored (T27)."""
    driver = Hosted(hosted(Group(FULL, 4)))
    run(driver, 9, 4)
    driver.do(act.Preempt(0))
    driver.submit(1, 9)
    assert driver.do(act.Finish(1)).store_device == ()
    assert driver.do(act.Finish(0)).store_device == ()
    assert driver.host.tracks == ()
