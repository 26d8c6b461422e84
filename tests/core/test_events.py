"""The event stream of the device (semantics 3.7, T1, T4 to T8, T39), by exact events."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import events
from kvproof.core import pool as pools
from kvproof.core.config import SOUND, Config, Group, configure
from kvproof.core.pool import Pool
from kvproof.core.records import Event, Record
from tests.driving import Driver

EACH_COPY = evolve(SOUND, removed_event="each_copy")
KEEP = evolve(SOUND, withdrawn_keys="keep")


def hybrid(attention: int, mamba: int, **settings: Any) -> Config:
    """One full-attention and one Mamba-align group, dense retention, events on."""
    settings = {"num_blocks": 40, "events": True} | settings
    return configure((Group("full_attention", attention), Group("mamba_align", mamba)), **settings)


def attention(size: int, **settings: Any) -> Config:
    """One full-attention group, events on."""
    return configure((Group("full_attention", size),), **({"num_blocks": 8, "events": True} | settings))


def said(driver: Driver, record: Record) -> list[tuple[object, ...]]:
    """The events of a record with boundaries for nodes: (stored, group, n, size), (removed, group, n), (cleared,)."""
    depth = driver.world.prefixes.depth
    words: list[tuple[object, ...]] = []
    for event in record.events:
        if event.kind == "stored":
            words.append(("stored", event.group, depth[event.node], event.size))
        else:
            words.append((event.kind, event.group, depth[event.node]) if event.kind == "removed" else (event.kind,))
    return words


def allocated(driver: Driver, request: int, amount: int) -> list[tuple[object, ...]]:
    """One step with one request; the events of its allocation. No other action of the step says anything."""
    first = len(driver.records)
    driver.chunk(request, amount)
    (record,) = (record for record in driver.records[first:] if record.action == "Allocate")
    assert all(other is record or not other.events for other in driver.records[first:])
    return said(driver, record)


# --- what is registered ---------------------------------------------------------------------------------------------


def test_registered_keys_are_announced_with_the_tokens_before_their_boundary() -> None:
    """G1 at P=50: a full entry of two ranks, the prompt tail inside the next one, and the state at 48."""
    driver = Driver(hybrid(16, 16, dcp_size=2))
    driver.submit(0, 50)
    driver.do(act.BeginStep())
    record = driver.allocate(0, 48)
    # Node n is the one after n tokens: 1, 2, 3, ... follow the root 0.
    assert record.events == (
        Event("stored", "device", group=0, node=32, boundary=32, tokens=tuple(range(1, 33)), size=32),
        Event("stored", "device", group=0, node=48, boundary=48, parent=32, tokens=tuple(range(33, 49)), size=16),
        Event("stored", "device", group=1, node=48, boundary=48, parent=32, tokens=tuple(range(33, 49)), size=16),
    )


def test_promotion_removes_what_gives_way_and_announces_the_tail_again() -> None:
    """G8: block 2 stands for 48, then for 64; T9.2 gives it 48 back as a second key, once."""
    driver = Driver(hybrid(16, 16, dcp_size=2))
    driver.submit(0, 50)
    allocated(driver, 0, 48)
    assert allocated(driver, 0, 2) == []
    for _ in range(13):
        assert allocated(driver, 0, 1) == []
    assert allocated(driver, 0, 1) == [("removed", 0, 48), ("stored", 0, 64, 32), ("stored", 0, 48, 16), ("stored", 1, 64, 16)]
    assert allocated(driver, 0, 1) == []


def test_a_promotion_drops_the_tail_if_the_profile_says_so() -> None:
    """#49125: with `drop` the partial key does not come back."""
    driver = Driver(hybrid(16, 16, dcp_size=2, profile=evolve(SOUND, partial_key_after_promotion="drop")))
    driver.submit(0, 63)
    allocated(driver, 0, 48)
    assert allocated(driver, 0, 15) == []
    assert allocated(driver, 0, 1) == [("removed", 0, 48), ("stored", 0, 64, 32), ("stored", 1, 64, 16)]


def test_keys_that_move_to_a_copy_are_not_announced() -> None:
    """G9: the producer's key 48 goes from block 2 to block 3 without a word."""
    driver = Driver(hybrid(64, 64, hash_block_size=16))
    driver.submit(0, 50)
    assert allocated(driver, 0, 48) == [("stored", 0, 48, 48), ("stored", 1, 48, 16)]
    assert driver.keys(1) == {48: [2]}
    assert allocated(driver, 0, 2) == []
    assert driver.keys(1) == {48: [3]}


def test_a_second_block_with_the_same_key_is_announced_too() -> None:
    """Two requests that read no cache compute one prompt: each block's key is announced (3.7). Adopting one is not."""
    driver = Driver(attention(4))
    for request, skips in ((0, True), (1, True), (2, False)):
        driver.do(act.Submit(request, (1, 2, 3, 4, 5), 0, skips))
    assert [allocated(driver, request, 5) for request in (0, 1)] == [[("stored", 0, 4, 4)]] * 2
    assert driver.keys(0) == {4: [1, 3]}
    assert allocated(driver, 2, 1) == []


# --- what is removed ------------------------------------------------------------------------------------------------


def keyed(*keys: tuple[int, int], each: int = 1) -> Pool:
    """A pool of four blocks with events; the first ``each`` of them have these keys (node, tokens), not yet announced."""
    pool = pools.new_pool(4, events=True)
    for block in range(1, each + 1):
        for node, tokens in keys:
            pool = pools.insert(pool, node, 0, block, tokens)
    assert pool.notes == ()
    return pool


def test_taking_a_block_notes_its_primary_first() -> None:
    """T1: one note per key, primary first, whatever the order of insertion."""
    pool = keyed((9, 16), (5, 8))
    assert pools.take(pool, 1)[0].notes == ((pools.LOST, 9, 0), (pools.LOST, 5, 0))
    given = pools.restore_keys(pool, 1, (5, 0, 8), pool.entries)
    assert given.notes == ()
    assert pools.take(given, 1)[0].notes == ((pools.LOST, 5, 0), (pools.LOST, 9, 0))
    assert pools.take(given, 2)[0].notes == ((pools.LOST, 5, 0), (pools.LOST, 9, 0))


def test_only_the_last_copy_that_goes_takes_the_key_along() -> None:
    """T1: of two copies that are taken together, the second is the last one."""
    pool = keyed((9, 16), each=2)
    assert pools.take(pool, 1)[0].notes == ((pools.LEFT, 9, 0),)
    assert pools.take(pool, 2)[0].notes == ((pools.LEFT, 9, 0), (pools.LOST, 9, 0))
    assert pools.evict(pool, 2).notes == ((pools.LEFT, 9, 0),)


@pytest.mark.parametrize(("profile", "count"), [(SOUND, 1), (EACH_COPY, 2)])
def test_which_copies_are_announced_is_a_matter_of_the_profile(profile: Any, count: int) -> None:
    """#55092: `last_copy` says once that a key is gone, `each_copy` for every block."""
    driver = Driver(attention(4, profile=profile))
    for request in (0, 1):
        driver.do(act.Submit(request, (1, 2, 3, 4, 5), 0, True))
        driver.chunk(request, 5)
    assert driver.keys(0) == {4: [1, 3]}
    assert said(driver, driver.do(act.EvictBlocks((1,)))) == [("removed", 0, 4)] * (count - 1)
    assert said(driver, driver.do(act.EvictBlocks((3,)))) == [("removed", 0, 4)]
    assert said(driver, driver.do(act.EvictBlocks((3,)))) == []


def test_a_block_that_is_handed_out_loses_its_key_before_others_are_announced() -> None:
    """T1, then T7: the pool's last keyed block is reused for another prompt."""
    driver = Driver(attention(4, num_blocks=3))
    driver.submit(0, (1, 1, 1, 1, 1))
    driver.chunk(0, 5)
    driver.do(act.Finish(0))
    driver.submit(1, (2, 2, 2, 2, 2))
    assert allocated(driver, 1, 5) == [("removed", 0, 4), ("stored", 0, 4, 4)]


def test_replace_mode_removes_every_key_first() -> None:
    """T8 in replace mode: whatever the block stood for was overwritten, even for more tokens."""
    pool = keyed((9, 16), (5, 8))
    after = pools.replace_partial(pool, 7, 0, 1, 12)
    assert (after.key_node[1], after.key_tokens[1]) == (7, 12)
    assert [entry[:2] for entry in after.entries] == [(7, 0)]
    assert after.notes == ((pools.LOST, 9, 0), (pools.LOST, 5, 0), (pools.PARTIAL, 7, 0))
    again = pools.replace_partial(evolve(after, notes=()), 7, 0, 1, 12)
    assert again.notes == ((pools.LOST, 7, 0), (pools.PARTIAL, 7, 0))
    assert pools.replace_partial(evolve(pool, notes=None), 7, 0, 1, 12) == evolve(after, notes=None)


def test_a_key_that_a_block_has_is_not_announced_again() -> None:
    """T8, EV-6: neither as a primary nor as a second key."""
    pool = keyed((9, 16), (5, 8))
    assert pools.insert_partial(pool, 9, 0, 1, 16) is pool
    assert pools.insert_partial(pool, 5, 0, 1, 8) is pool
    assert pools.enter(pool, pools.PARTIAL, 5, 0, 1, 8) is pool
    assert pools.insert_partial(pool, 5, 0, 2, 8).notes == ((pools.PARTIAL, 5, 0),)


def test_a_reset_announces_that_it_cleared() -> None:
    """T5: `cleared` if the map was cleared, be it empty, and nothing if a block is in use."""
    driver = Driver(attention(4))
    assert driver.do(act.ResetCache()).events == (Event("cleared", "device"),)
    driver.submit(0, 9)
    driver.chunk(0, 9)
    refused = driver.do(act.ResetCache())
    assert (refused.done, refused.events) == (False, ())
    driver.do(act.Finish(0))
    assert driver.do(act.ResetCache()).events == (Event("cleared", "device"),)


# --- roll-back ------------------------------------------------------------------------------------------------------


def planned(config: Config) -> tuple[Driver, list[tuple[object, ...]], list[tuple[object, ...]]]:
    """G17 with the step to 64 tokens planned and withdrawn: what the plan says, and what the withdrawal says."""
    driver = Driver(config)
    driver.submit(0, 50)
    driver.chunk(0, 48)
    driver.chunk(0, 2)
    while driver.request(0).computed < 63:
        driver.chunk(0, 1)
    driver.do(act.BeginStep())
    plan = said(driver, driver.do(act.Allocate(0, 1)))
    return driver, plan, said(driver, driver.do(act.Withdraw(0)))


def test_a_roll_back_announces_the_difference() -> None:
    """G17: the plan promoted 48 to 64 and gave 48 back; the withdrawal takes the 64 away, and 48 was there all the time."""
    driver, plan, withdrawal = planned(hybrid(64, 64, hash_block_size=16))
    assert plan == [("removed", 0, 48), ("stored", 0, 64, 64), ("stored", 0, 48, 48), ("stored", 1, 64, 64)]
    assert withdrawal == [("removed", 0, 64), ("removed", 1, 64)]
    assert (driver.keys(0), driver.keys(1)) == ({48: [1]}, {48: [3]})


def test_a_roll_back_announces_what_comes_back() -> None:
    """Without the tail's return the promotion removed 48: the withdrawal announces it again, with H tokens."""
    _, plan, withdrawal = planned(hybrid(64, 64, hash_block_size=16, profile=evolve(SOUND, partial_key_after_promotion="drop")))
    assert plan == [("removed", 0, 48), ("stored", 0, 64, 64), ("stored", 1, 64, 64)]
    assert withdrawal == [("removed", 0, 64), ("stored", 0, 48, 48), ("removed", 1, 64)]


def test_nothing_is_rolled_back_and_nothing_said_if_the_profile_keeps_the_keys() -> None:
    """T39 under `keep`."""
    assert planned(hybrid(64, 64, hash_block_size=16, profile=KEEP))[2] == []


def test_a_key_given_back_is_announced_as_its_boundary_says() -> None:
    """T39: at a block's end with the tokens of the block, inside it with those of a hash block."""
    config = hybrid(16, 16, dcp_size=2)
    sizes = [events.payload_size(config, 0, pools.RESTORED, boundary) for boundary in (32, 48, 64)]
    assert sizes == [32, 16, 32]
    pool = keyed((9, 16), each=2)
    other = pools.restore_keys(pool, 1, (5, 0, 8), ((5, 0, 0, 1),))
    assert other.notes == ((pools.LEFT, 9, 0), (pools.RESTORED, 5, 0))


def test_a_partial_attention_entry_carries_the_tokens_since_its_block_began() -> None:
    """Its parent is the block before, which was announced; 0.33.0 names the boundary one hash block before, which was not."""
    parents: tuple[tuple[Any, list[int]], ...] = (("block", [16, 32, 48]), ("hash", [16, 16, 16]))
    for parent, sizes in parents:
        config = hybrid(64, 64, hash_block_size=16, profile=evolve(SOUND, partial_parent=parent))
        assert [events.payload_size(config, 0, pools.PARTIAL, boundary) for boundary in (80, 96, 112)] == sizes
        assert [events.payload_size(config, 1, pools.PARTIAL, boundary) for boundary in (80, 96, 112)] == [16, 16, 16]


def test_a_partial_entry_at_the_end_of_a_block_carries_a_hash_block() -> None:
    """T8 says H wherever the boundary lies; the recordings have six such events (EAGLE, a state the mask left out)."""
    config = hybrid(16, 32, hash_block_size=16)
    assert [events.payload_size(config, 1, what, 96) for what in (pools.FULL, pools.PARTIAL)] == [32, 16]


# --- off, and nothing left ------------------------------------------------------------------------------------------


def test_without_events_nothing_is_noted_or_recorded() -> None:
    """`events` is off by default; the keys are the same either way."""
    on, off = Driver(hybrid(16, 16, dcp_size=2)), Driver(hybrid(16, 16, dcp_size=2, events=False))
    for driver in (on, off):
        driver.submit(0, 50)
        driver.chunk(0, 48)
        driver.do(act.Finish(0))
        driver.do(act.EvictBlocks((1,)), act.ResetCache())
    assert any(record.events for record in on.records)
    assert [evolve(record, events=()) for record in on.records] == off.records
    assert off.world.pool.notes is None
    assert evolve(on.world.pool, notes=None) == off.world.pool


def test_no_note_outlives_its_action() -> None:
    """Worlds that hold the same are equal, whatever was announced on the way to them."""
    driver = Driver(hybrid(16, 16, dcp_size=2))
    driver.submit(0, 50)
    driver.chunk(0, 48)
    before = driver.world
    driver.do(act.EvictBlocks((1, 2)))
    together = driver.world
    driver.world = before
    driver.do(act.EvictBlocks((2,)), act.EvictBlocks((1,)))
    assert driver.world == together
    assert together.pool.notes == ()
