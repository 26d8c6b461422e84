"""Scenarios of section 6 on the host side, stores and what belongs to them: what is right, and what the fault makes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvproof.core import actions as act
from kvproof.core.config import SOUND, Group, Offload, Profile, configure
from kvproof.spec import faults
from kvproof.spec.faults import loads, stores, transfers
from tests.hosting import FULL, MAMBA, STABLE, WINDOW, HostDriver, attention, hybrid, tried
from tests.spec.test_host_load_faults import SCENARIOS as LOADING


def tail(**settings: Any) -> HostDriver:
    """G2: N=4, FA16 (E=64), Mamba16, a prompt of 50 in chunks to 48 and 50; the state at 48 is stored."""
    driver = HostDriver(hybrid(16, 16, dcp_size=4, **settings))
    driver.prompt(0, 50, 48, 50)
    driver.carry()
    return driver


def decoded() -> HostDriver:
    """G4: FA64, Mamba64, H=16, a prompt of 50, decoded to 64 computed tokens; every store so far is complete."""
    driver = HostDriver(hybrid(64, 64, hash_block_size=16))
    driver.prompt(0, 50, 48, 50)
    driver.carry()
    for _ in range(14):
        driver.chunk(0, 1)
        driver.carry()
    return driver


def one_state(offload: Offload | None = None, **settings: Any) -> HostDriver:
    """FA16, Mamba16: a chunk of 16 tokens publishes one state; its store is submitted."""
    driver = HostDriver(hybrid(16, 16, offload, **settings))
    driver.prompt(0, 17, 16)
    return driver


# --- completion -------------------------------------------------------------------------------------------------------


def one_of_two_workers() -> object:
    """Keys of the states on the host when the first of two workers has reported the store."""
    driver = one_state(Offload(num_blocks=20, workers=2))
    driver.do(act.RunStore(0), act.CompleteStore(0, 1))
    return driver.host_keys(1)


def before_the_copy() -> object:
    """Keys of the states on the host while the store runs."""
    return one_state().host_keys(1)


def ends_of_the_queue() -> object:
    """First and last of the host's free queue of 19 blocks when block 1 has been stored into (T28)."""
    driver = one_state()
    driver.do(act.RunStore(0), act.CompleteStore(0))
    return driver.host.pool.free[0], driver.host.pool.free[-1]


def found_again() -> object:
    """G2: what a resend finds on the host once everything is stored and the device's keys are gone."""
    driver = HostDriver(hybrid(16, 16, dcp_size=4))
    driver.stored_prompt(0, 50, 48, 50)
    return driver.ask(1, 50)


def tail_that_fills_up() -> object:
    """FA64, H=16, P=50: keys of attention on the host when all that was selected until 64 tokens completes only then."""
    driver = HostDriver(hybrid(64, 64, hash_block_size=16))
    driver.prompt(0, 50, 48, 50)
    for _ in range(14):
        driver.chunk(0, 1)
    driver.carry()
    return sorted(driver.host_keys(0))


def tracked_after_completion() -> object:
    """How many requests the store side remembers when the only one finished and then its stores completed."""
    driver = one_state()
    driver.do(act.Finish(0))
    driver.carry()
    driver.empty_step()
    driver.carry()
    return len(driver.host.tracks)


# --- counters ---------------------------------------------------------------------------------------------------------


def declined_offers() -> object:
    """G12: two host blocks, states at 16, 32 (stored), 48 (no room), 64 (the request was preempted before the step)."""
    driver = HostDriver(hybrid(16, 16, Offload(num_blocks=3), max_chunk=16))
    driver.prompt(0, 80, 16, 32, 48)
    driver.do(act.Preempt(0))
    driver.chunk(0, 16)
    return driver.counts_read()


def counted_across_a_reset() -> object:
    """What is read after a reset of one offer that was stored before it."""
    driver = one_state()
    driver.do(act.Finish(0))
    driver.carry()
    driver.empty_step()
    driver.carry()
    driver.do(act.ResetHost())
    return driver.counts_read()


def counted_without_offers() -> object:
    """What is counted when one attention block is stored, and nothing was published."""
    driver = HostDriver(attention(16))
    driver.prompt(0, 33, 16, 32)
    return driver.counts_read()


def gauge_of_a_queued_store() -> object:
    """G2: host blocks of stores to come when the finish queued one."""
    driver = tail()
    driver.do(act.Finish(0))
    return driver.do(act.ReadCounters()).gauge


def notices_of_a_full_pool() -> object:
    """Notices of two offers that found the host pool full."""
    driver = HostDriver(hybrid(16, 16, Offload(num_blocks=3), max_chunk=16))
    driver.prompt(0, 80, 16, 32, 48, 64)
    return sum(len(record.notices) for record in driver.records)


# --- selection --------------------------------------------------------------------------------------------------------


def room_for_one() -> object:
    """Two host blocks; the state at 80 takes one, the finish finds block 0 of attention and the tail of block 1."""
    driver = HostDriver(hybrid(16, 16, Offload(num_blocks=3), dcp_size=4))
    driver.prompt(0, 82, 80)
    table = driver.tables(0)[0]
    stored = driver.do(act.Finish(0)).store_device
    return [table.index(block) for block in stored]


def full_for_one_step() -> object:
    """One host block: it holds block 0 while block 1 is looked at for the first time."""
    driver = HostDriver(attention(16, Offload(num_blocks=2)))
    driver.prompt(0, 60, 16, 32, 40)
    driver.carry()
    driver.prefill(0, 41)
    driver.carry()
    return driver.host_keys(0)


def tail_of_a_full_block() -> object:
    """G4: what the finish stores of attention when the block of the tail has just become full."""
    return decoded().do(act.Finish(0)).store_device


def tail_in_flight() -> object:
    """G4, one token later: the block of the tail is being stored already when the request finishes."""
    driver = decoded()
    driver.chunk(0, 1)
    return driver.do(act.Finish(0)).store_device


def stored_at_the_finish() -> object:
    """G2: the attention block of the tail."""
    return tail().do(act.Finish(0)).store_device


def work_after_the_finish() -> object:
    """G2: whether the engine has to keep stepping for what the finish queued."""
    return tail().do(act.Finish(0)).pending_work


def cursors_of_two_kinds() -> object:
    """N=2, FA16 (E=32) and stable states every 16 tokens: cursors when 64 tokens are confirmed."""
    groups = (Group(FULL, 16), Group(STABLE, 16))
    driver = HostDriver(configure(groups, dcp_size=2, num_blocks=40, offload=Offload(num_blocks=20)))
    driver.prompt(0, 70, 16, 32, 48, 64, 70)
    return driver.host.tracks[0].cursors


def cursor_of_states() -> object:
    """FA16 and Mamba16 when 32 tokens are confirmed: states are published, no cursor passes them."""
    driver = HostDriver(hybrid(16, 16))
    driver.prompt(0, 40, 16, 32, 40)
    return driver.host.tracks[0].cursors


def offer_of_a_preempted_request() -> object:
    """A request is preempted between two plans, resumed by the second one, and publishes the state at 32."""
    driver = HostDriver(hybrid(16, 16))
    driver.prompt(0, 48, 16)
    driver.do(act.Preempt(0))
    driver.chunk(0, 16)
    return driver.counts_read()


def pinned_copy() -> object:
    """G9: references of block 3, which the producer moved its state to, when the metadata is built."""
    driver = HostDriver(hybrid(64, 64, hash_block_size=16))
    driver.prompt(0, 50, 48)
    driver.do(act.BeginStep(), act.Allocate(0, 2), act.Drain(), act.BuildMetadata())
    return driver.refs(3)


# --- metadata ---------------------------------------------------------------------------------------------------------


def boundaries(driver: HostDriver, meta: tuple[tuple[tuple[int, int], ...], ...] | None) -> object:
    """The boundaries that each stored block is announced with."""
    assert meta is not None
    return [[driver.world.prefixes.depth[node] for node, _ in entries] for entries in meta]


def lists_of_an_offer() -> object:
    """Entries of the lists of a store event with one state, and what the state is announced with."""
    driver = HostDriver(hybrid(16, 16, events=True))
    driver.submit(0, 17)
    driver.do(act.BeginStep())
    driver.allocate(0, 16)
    built = driver.close()
    return len(built.store_device), len(built.store_host), boundaries(driver, built.store_meta)


def lists_of_a_finish() -> object:
    """Entries of the lists that a finish queues with the tail of a prompt of 50, and what it is announced with."""
    driver = tail(events=True)
    done = driver.do(act.Finish(0))
    return len(done.store_device), len(done.store_host), boundaries(driver, done.store_meta)


def announced_behind_a_skipped_block() -> object:
    """Block 0 is on the host already, block 1 is stored: the boundaries that it is announced with."""
    driver = HostDriver(attention(16, events=True))
    driver.prompt(0, 17, 16, 17)
    driver.carry()
    driver.do(act.Finish(0))
    driver.do(act.EvictBlocks(tuple(driver.keys(0)[16])))
    driver.prompt(1, 40, 32)
    driver.do(act.BeginStep(), act.Allocate(1, 1))
    return boundaries(driver, driver.close().store_meta)


# --- order and resets -------------------------------------------------------------------------------------------------


def store_before_the_forward() -> object:
    """What stands against the copy of a state before the step that writes it has run."""
    driver = HostDriver(hybrid(16, 16))
    driver.submit(0, 17)
    driver.do(act.BeginStep())
    driver.allocate(0, 16)
    driver.dispatch()
    parts = driver.world.config.parts
    driver.do(*(act.Execute(part) for part in parts[: parts.index("forward")]))
    return driver.refused(act.RunStore(0))


def queued_block_of_the_dead() -> object:
    """G2: references of the attention block that the finish queued."""
    driver = tail()
    (block,) = driver.do(act.Finish(0)).store_device or (1,)
    return driver.refs(block)


def event_after_a_reset() -> object:
    """The number of the first store event after a reset with event 0 running."""
    driver = one_state()
    driver.do(act.ResetHost())
    driver.submit(1, (7,) * 17)
    driver.do(act.BeginStep())
    driver.allocate(1, 16)
    return driver.close().store_event


def reset_with_a_queued_store() -> object:
    """G2: the answer of a reset behind a finish, and the references of the block it had queued."""
    driver = tail()
    driver.do(act.Finish(0))
    return driver.do(act.ResetHost()).done, driver.refs(1)


def references_of_an_abandoned_store() -> object:
    """References of the block of a store that a reset abandoned and that is complete now; its request still holds it."""
    driver = one_state()
    driver.do(act.ResetHost(), act.RunStore(0), act.CompleteStore(0))
    return driver.refs(2)


# --- lazy mode --------------------------------------------------------------------------------------------------------


def counted_in_lazy_mode() -> object:
    """What is counted in lazy mode when a state is published."""
    return one_state(Offload(mode="lazy", num_blocks=20)).counts_read()


def hit_in_lazy_mode() -> object:
    """Lazy mode, N=4, FA16, Mamba16, P=50: what a resend finds on the host when everything keyed was stored."""
    driver = HostDriver(hybrid(16, 16, Offload(mode="lazy", num_blocks=20), dcp_size=4, num_blocks=8))
    driver.prompt(0, 50, 48, 50)
    driver.do(act.Finish(0))
    for _ in range(3):
        driver.empty_step()
        driver.carry()
    assert sorted(driver.host_keys(0)) == sorted(driver.host_keys(1)) == [48]
    return driver.ask(1, 50)


# --- what a profile says ----------------------------------------------------------------------------------------------


def blocks_behind_a_window(profile: Profile) -> object:
    """SWA16 (W=17): 48 tokens of A computed, its first two blocks free and one of them B's: what is stored of A."""
    groups = (Group(WINDOW, 16, window=17),)
    driver = HostDriver(configure(groups, num_blocks=6, offload=Offload(num_blocks=10), profile=profile))
    driver.prompt(0, 90, 48)
    driver.submit(1, (7,) * 40)
    driver.do(act.BeginStep())
    driver.allocate(0, 16)
    driver.allocate(1, 32)
    assert (driver.tables(0), driver.tables(1)) == ([[0, 0, 3, 4]], [[5, 2]])
    return driver.close().store_device


def prompt_that_ends_on_a_boundary(profile: Profile) -> object:
    """N=4, FA16 (E=64), Mamba16, P=48: what a resend finds on the host."""
    driver = HostDriver(hybrid(16, 16, dcp_size=4, profile=profile))
    driver.stored_prompt(0, 48, 32, 48)
    return driver.ask(1, 48)


def two_attention_tails(profile: Profile) -> object:
    """N=4, FA16 twice (E=64), Mamba16, P=50: what a resend finds on the host."""
    groups = (Group(FULL, 16), Group(FULL, 16), Group(MAMBA, 16))
    driver = HostDriver(configure(groups, dcp_size=4, num_blocks=40, offload=Offload(num_blocks=20), profile=profile))
    driver.stored_prompt(0, 50, 48, 50)
    return driver.ask(1, 50)


PROFILED: list[tuple[str, Callable[[Profile], object], object, object]] = [
    ("M-STALE-1", blocks_behind_a_window, (1, 3), (1, 2, 3)),
    ("M-TAIL-5", prompt_that_ends_on_a_boundary, 32, 0),
    ("M-TAIL-6", two_attention_tails, 48, 0),
]

SCENARIOS: list[tuple[str, Callable[[], object], object, object]] = [
    ("M-ACK-1", one_of_two_workers, {}, {16: [1]}),
    ("M-EARLY-1", before_the_copy, {}, {16: [1]}),
    ("M-LRU-2", ends_of_the_queue, (2, 1), (1, 19)),
    ("M-REG-1", found_again, 48, 0),
    ("M-TAIL-3", found_again, 48, 0),
    ("M-REPLAY-1", tail_that_fills_up, [], [48, 64]),
    ("M-LEAK-3", tracked_after_completion, 0, 1),
    (
        "M-CNT-1",
        declined_offers,
        {"published": 4, "stored": 2, "dropped_cpu_full": 1, "dropped_request_gone": 1},
        {"published": 4, "stored": 2, "dropped_request_gone": 1},
    ),
    ("M-CNT-2", counted_across_a_reset, {"published": 1, "stored": 1}, {}),
    ("M-CNT-3", counted_without_offers, {}, {"stored": 1}),
    ("M-CNT-6", gauge_of_a_queued_store, 1, 0),
    ("M-CNT-7", notices_of_a_full_pool, 1, 2),
    ("M-CPU-1", room_for_one, [0], "PoolExhausted"),
    ("M-CUR-1", full_for_one_step, {32: [1]}, {16: [1]}),
    ("M-DUP-1", tail_of_a_full_block, (1,), (1, 1)),
    ("M-DUP-2", tail_in_flight, (), (1,)),
    ("M-FLUSH-1", stored_at_the_finish, (1,), ()),
    ("M-FLUSH-2", work_after_the_finish, True, False),
    ("M-GEO-1", cursors_of_two_kinds, (2, 4), (2, 2)),
    ("M-STAB-1", cursor_of_states, (2, 0), (2, 2)),
    (
        "M-HO-3",
        offer_of_a_preempted_request,
        {"published": 2, "stored": 1, "dropped_request_gone": 1},
        {"published": 2, "stored": 2},
    ),
    ("M-HO-4", pinned_copy, [1], [0]),
    ("M-META-1", lists_of_an_offer, (1, 1, [[]]), (1, 1, [])),
    ("M-META-2", announced_behind_a_skipped_block, [[32]], [[16]]),
    ("M-META-3", lists_of_a_finish, (1, 1, [[]]), (1, 1, [])),
    ("M-META-4", lists_of_an_offer, (1, 1, [[]]), (1, 1, [[16]])),
    ("M-ORD-1", store_before_the_forward, "TransferOrder", None),
    ("M-RACE-1", queued_block_of_the_dead, [1], [0]),
    ("M-RST-1", event_after_a_reset, 1, 0),
    ("M-RST-2", reset_with_a_queued_store, (True, [0]), (True, [1])),
    ("M-LEAK-1", references_of_an_abandoned_store, [1], [2]),
    ("M-LAZY-1", hit_in_lazy_mode, 0, 48),
    ("M-LAZY-2", counted_in_lazy_mode, {}, {"published": 1, "dropped_request_gone": 1}),
]


@pytest.mark.parametrize(("name", "scenario", "right", "wrong"), SCENARIOS, ids=[name for name, *_ in SCENARIOS])
def test_the_scenario_of_a_fault(name: str, scenario: Callable[[], object], right: object, wrong: object) -> None:
    assert scenario() == right
    with faults.planted(faults.by_id(name)):
        assert tried(scenario) == wrong


def test_every_fault_of_the_host_side_has_a_scenario() -> None:
    """Those of public reports have theirs in ``test_public_host_faults``."""
    told = [name for name, *_ in (*SCENARIOS, *LOADING, *PROFILED) if faults.by_id(name).profile is None]
    assert sorted(told) == sorted(fault.id for fault in (*stores.FAULTS, *transfers.FAULTS, *loads.FAULTS) if not fault.profile)


@pytest.mark.parametrize(("name", "scenario", "right", "wrong"), PROFILED, ids=[name for name, *_ in PROFILED])
def test_the_scenario_of_a_field(name: str, scenario: Callable[[Profile], object], right: object, wrong: object) -> None:
    fault = faults.by_id(name)
    assert fault.profile is not None
    assert scenario(SOUND) == right
    assert scenario(faults.with_field(SOUND, fault.profile)) == wrong
