"""Corrections that laws of the host tier led to: C-62 and C-63."""

from __future__ import annotations

from kvproof.core import actions as act
from kvproof.core.config import Group, Offload
from kvproof.core.offload.state import Stage
from tests.offloading import FULL, MAMBA, Hosted, hosted


def test_the_edge_of_an_entry_has_the_tokens_of_a_block_whatever_its_primary_key_is() -> None:
    """C-62: a full block whose keys were evicted by id gets the prompt's tail back, inside it, as its primary key."""
    driver = Hosted(hosted(Group(FULL, 4), Group(MAMBA, 4), dcp_size=2, hash_block_size=2, events=True))
    driver.submit(0, 7)
    for amount in (4, 2, 1, 1):
        driver.chunk(0, amount)
    driver.do(act.EvictBlocks((driver.tables(0)[0][0],)))
    record = driver.chunk(0, 1)
    assert list(driver.keys(0)) == [6]
    depth = driver.world.prefixes.depth
    assert record.store_device == (1,)
    assert record.store_meta is not None
    assert [(depth[node], size) for node, size in record.store_meta[0]] == [(2, 2), (4, 2), (6, 2), (8, 8)]


def test_a_store_of_the_open_plan_is_not_handed_over_by_the_step_before_it() -> None:
    """C-63: where stores begin with the next step, that is the step behind theirs, not one that is still to run before it."""
    driver = Hosted(
        hosted(
            Group(FULL, 4),
            offload=Offload(num_blocks=20, store_submission="next_step"),
            max_steps_in_flight=2,
            defer_block_free=True,
        )
    )
    driver.submit(0, 17)
    driver.chunk(0, 8)
    driver.do(act.BeginStep(), act.Allocate(0, 4))
    driver.dispatch()
    (first,) = driver.host.stores
    driver.do(act.BeginStep(), act.Allocate(0, 4), act.Drain(), act.BuildMetadata())
    second = driver.host.stores[-1]
    assert second.event != first.event
    driver.do(act.Execute("flush"))
    assert {store.stage for store in driver.host.stores} == {Stage.BUILT}
    driver.do(act.Dispatch())
    for part in driver.world.config.parts[1:]:
        driver.do(act.Execute(part))
    driver.do(act.Execute("flush"))
    assert [store.stage for store in driver.host.stores] == [Stage.SUBMITTED, Stage.BUILT]
