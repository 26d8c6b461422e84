"""Golden traces G2, G4, G9 and G12 of docs/semantics.md, section 9: their stores."""

from __future__ import annotations

from kvproof.core import actions as act
from kvproof.core.config import Group, Offload
from tests.offloading import FULL, MAMBA, Hosted, hosted, outcomes, pairs


def test_g2_what_is_stored() -> None:
    """G2: the handoff is stored in its step, the attention block of the prompt tail when the request finishes."""
    driver = Hosted(hosted(Group(FULL, 16), Group(MAMBA, 16), dcp_size=4))
    driver.submit(0, 50)
    first = driver.chunk(0, 48)
    assert (first.store_event, pairs(first), outcomes(first)) == (0, [(2, 1)], [(2, 48, "stored")])
    assert driver.chunk(0, 2).store_event == -1
    finished = driver.do(act.Finish(0))
    assert pairs(finished) == [(1, 2)]
    assert finished.pending_work
    assert pairs(driver.empty_step()) == [(1, 2)]
    driver.complete(0)
    driver.complete(1)
    assert (driver.host_keys(0), driver.host_keys(1)) == ({48: [2]}, {48: [1]})
    assert driver.counted(published=1, stored=1)
    assert driver.host.tracks == ()
    driver.wipe()


def test_g4_a_tail_that_decoding_filled_is_stored_once() -> None:
    """G4: attention block 1 carries 64 and 48; the scan picks it, the tail does not pick it again."""
    driver = Hosted(hosted(Group(FULL, 64), Group(MAMBA, 64), hash_block_size=16))
    driver.submit(0, 50)
    driver.chunk(0, 48)
    driver.chunk(0, 2)
    for _ in range(13):
        driver.chunk(0, 1)
    assert driver.chunk(0, 1).store_device == (2,)
    assert driver.request(0).computed == 64
    assert driver.cursors(0) == [0, 0]
    assert driver.keys(0) == {48: [1], 64: [1]}
    finished = driver.do(act.Finish(0))
    assert finished.store_device == (1,)
    driver.empty_step()
    for event in range(driver.host.next_store):
        driver.complete(event)
    assert (driver.host_keys(0), driver.host_keys(1)) == ({48: [3], 64: [3]}, {48: [1], 64: [2]})
    assert (len(driver.world.pool.free), len(driver.host.pool.free)) == (39, 19)


def test_g9_a_copy_on_its_way_out_is_pinned_again() -> None:
    """G9: block 3 has 1 reference at publication, 0 when metadata is built, 1 behind it, 0 at completion."""
    driver = Hosted(hosted(Group(FULL, 64), Group(MAMBA, 64), hash_block_size=16))
    driver.submit(0, 50)
    driver.chunk(0, 48)
    driver.do(act.BeginStep(), act.Allocate(0, 2))
    assert driver.handoffs() == [(0, 1, 3, 48)]
    seen = [driver.world.pool.ref[3]]
    for action in (act.Drain(), act.BuildMetadata()):
        driver.do(action)
        seen.append(driver.world.pool.ref[3])
    assert driver.records[-1].store_device == (3,)
    driver.do(act.Dispatch())
    driver.execute()
    driver.output()
    driver.complete(0)
    assert [*seen, driver.world.pool.ref[3]] == [1, 0, 1, 0]
    assert driver.world.pool.free[-1] == 3


def test_g12_outcomes_when_the_host_is_full() -> None:
    """G12: two stored, one dropped for a full host; the handoff of a request preempted and resumed in the step is gone."""
    driver = Hosted(hosted(Group(FULL, 16), Group(MAMBA, 16), dcp_size=2, offload=Offload(num_blocks=3)))
    driver.submit(0, 80)
    said = [outcomes(driver.chunk(0, 16))[0][1:] for _ in range(3)]
    assert said == [(16, "stored"), (32, "stored"), (48, "dropped_cpu_full")]
    driver.do(act.Preempt(0))
    built = driver.chunk(0, 16)
    assert [entry[2] for entry in outcomes(built)] == ["dropped_request_gone"]
    assert built.flush
    assert driver.counted(published=4, stored=2, dropped_cpu_full=1, dropped_request_gone=1)
