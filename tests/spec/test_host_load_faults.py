"""Scenarios of section 6 on the host side, lookups and loads: what is right, and what the planted fault makes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvproof.core import actions as act
from kvproof.core.config import Offload
from kvproof.spec import faults
from tests.hosting import HostDriver, hybrid, tried


def stored(**settings: Any) -> HostDriver:
    """G2: N=4, FA16 (E=64), Mamba16: 48 of 50 tokens are on the host, the device's keys are gone."""
    driver = HostDriver(hybrid(16, 16, dcp_size=4, **settings))
    driver.stored_prompt(0, 50, 48, 50)
    return driver


def longer() -> HostDriver:
    """The same sizes with a prompt of 114 whose first 112 tokens are on the host."""
    driver = HostDriver(hybrid(16, 16, dcp_size=4))
    driver.stored_prompt(0, 114, 64, 112, 114)
    return driver


def held(driver: HostDriver) -> None:
    """Leave a load of request 1 behind that waits for the step of request 5, which is in flight."""
    driver.submit(5, (7,) * 20)
    driver.do(act.BeginStep())
    driver.allocate(5, 16)
    driver.dispatch()
    driver.load(1, 50)
    driver.dispatch()


def holding() -> HostDriver:
    """Two steps may be in flight, and loads wait for those that are."""
    offload = Offload(num_blocks=20, hold_loads=True)
    return stored(offload=offload, max_steps_in_flight=2, defer_block_free=True)


# --- lookups ----------------------------------------------------------------------------------------------------------


def kept_local() -> object:
    """Hits counted when 48 tokens are hit locally and the host offers 16 from the start: the local ones stay (T14.3)."""
    driver = HostDriver(hybrid(16, 16, dcp_size=4))
    driver.stored_prompt(0, 17, 16, 17)
    driver.prompt(1, 50, 48, 50)
    driver.carry()
    assert driver.ask(2, 50) == 16
    admitted = driver.do(act.Allocate(2, 2, local=48))
    return admitted.queries, admitted.hits


def misaligned() -> object:
    """S=64: what is found and pinned behind 48 local tokens when 112 are on the host."""
    driver = longer()
    driver.prompt(1, 50, 48, 50)
    return driver.ask(2, 114, 48), len(driver.host.pending)


def asked_twice() -> object:
    """References of the two host blocks of a hit that was looked up twice."""
    driver = stored()
    driver.ask(1, 50)
    driver.external(1)
    return driver.host_refs(1, 2)


def held_until_the_load() -> object:
    """References of the two host blocks of a hit between its lookup and its allocation."""
    driver = stored()
    driver.ask(1, 50)
    return driver.host_refs(1, 2)


def loaded_over_a_local_tail() -> object:
    """48 tokens are local, 112 on the host: references of the blocks that the load fills, one for its table and one for it."""
    driver = longer()
    driver.prompt(1, 50, 48, 50)
    driver.carry()
    assert driver.ask(2, 114) == 112
    pairs = driver.do(act.Allocate(2, 0, external=112, load=True)).pairs
    return driver.refs(*(pair[2] for pair in pairs))


# --- mapping ----------------------------------------------------------------------------------------------------------


def pairs_of_48() -> object:
    """G3: (group, column, device block, host block) of what is loaded for 48 tokens."""
    return stored().load(1, 50).pairs


def columns_behind_64() -> object:
    """64 tokens are local, 48 external: (group, column) of what is loaded."""
    driver = longer()
    driver.prompt(1, 65, 64)
    return [pair[:2] for pair in driver.load(2, 114, 64).pairs]


def columns_beside_known_keys() -> object:
    """FA16, Mamba64: three attention blocks are keyed on the device, no state is, 64 tokens are on the host."""
    driver = HostDriver(hybrid(16, 64))
    driver.stored_prompt(0, 66, 64, 66)
    driver.prompt(1, 60, 48)
    driver.do(act.Finish(1), act.EvictBlocks(tuple(driver.keys(1)[48])))
    return [pair[:2] for pair in driver.load(2, 66).pairs]


def fewer_than_hit() -> object:
    """48 tokens are hit, 16 accepted: what stands against it, or the groups that are loaded."""
    driver = stored()
    driver.ask(1, 50)
    return [pair[0] for pair in driver.do(act.Allocate(1, 0, external=16, load=True)).pairs]


def zeroed_with_a_load() -> object:
    """Attention blocks to be zeroed, and those that the load fills."""
    driver = stored()
    driver.load(1, 50)
    drained = driver.do(act.Drain())
    return drained.zeroed, drained.destinations


# --- while it runs ----------------------------------------------------------------------------------------------------


def keys_while_loading() -> object:
    """G3: boundaries of attention on the device while the load runs."""
    driver = stored()
    driver.load(1, 50)
    return sorted(driver.keys(0))


def finished_while_loading() -> object:
    """G3: references of the destinations when the request finished while its load runs."""
    driver = stored()
    pairs = driver.load(1, 50).pairs
    driver.close()
    driver.do(act.Finish(1))
    return driver.refs(*(pair[2] for pair in pairs))


def finished_before_the_load() -> object:
    """Loads that wait when the request finished before its load was issued."""
    driver = holding()
    held(driver)
    driver.do(act.Finish(1))
    return len(driver.host.loads)


def counted_before_the_load() -> object:
    """Loaded blocks counted when the request finished before its load was issued."""
    driver = holding()
    held(driver)
    driver.do(act.Finish(1))
    return driver.host.load_blocks


SCENARIOS: list[tuple[str, Callable[[], object], object, object]] = [
    ("M-CNT-4", kept_local, (2, 0), (2, 16)),
    ("M-CNT-5", counted_before_the_load, 0, 2),
    ("M-EARLY-2", keys_while_loading, [], [48]),
    ("M-LEAK-2", asked_twice, [1, 1], [2, 2]),
    ("M-LOAD-1", pairs_of_48, ((0, 0, 3, 2), (1, 2, 4, 1)), ((1, 2, 4, 1),)),
    ("M-LOAD-2", columns_behind_64, [(0, 1), (1, 6)], [(0, 1), (1, 3)]),
    ("M-LOAD-3", columns_beside_known_keys, [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)], [(0, 3), (1, 0)]),
    ("M-LOAD-4", fewer_than_hit, "LoadMismatch", [0]),
    ("M-LOAD-5", finished_while_loading, [2, 2], [0, 0]),
    ("M-LOAD-6", finished_before_the_load, 0, 1),
    ("M-LOAD-7", pairs_of_48, ((0, 0, 3, 2), (1, 2, 4, 1)), ((0, 0, 3, 2), (1, 0, 0, 0), (1, 1, 0, 0), (1, 2, 4, 1))),
    ("M-MIS-1", misaligned, (0, 0), (64, 1)),
    ("M-PIN-1", held_until_the_load, [1, 1], [0, 0]),
    ("M-TAIL-2", loaded_over_a_local_tail, [2, 2, 2], [3, 2, 2]),
    ("M-ZERO-1", zeroed_with_a_load, ((), (3,)), ((3,), ())),
]


@pytest.mark.parametrize(("name", "scenario", "right", "wrong"), SCENARIOS, ids=[name for name, *_ in SCENARIOS])
def test_the_scenario_of_a_fault(name: str, scenario: Callable[[], object], right: object, wrong: object) -> None:
    assert tried(scenario) == right
    with faults.planted(faults.by_id(name)):
        assert tried(scenario) == wrong
