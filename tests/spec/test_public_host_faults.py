"""Public reports about connectors and the host pool: each report's numbers come out right, and wrong with its fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import frozen

from kvproof.core import actions as act
from kvproof.core.config import Config, Group, Offload, configure
from kvproof.spec import faults, macros
from tests.driving import Driver
from tests.hosting import FULL, MAMBA, WINDOW, HostDriver, attention, hybrid, tried


@frozen
class Report:
    """What a report's scenario comes to in the sound model and with the fault planted."""

    fault: str
    observe: Callable[[], object]
    right: object
    wrong: object


def offloaded(*groups: Group, **settings: Any) -> Config:
    """These groups with a host tier of 40 blocks."""
    given: dict[str, Any] = {"num_blocks": 40, "offload": Offload(num_blocks=40)}
    return configure(groups, **(given | settings))


def loading(driver: HostDriver, prompt: int = 50) -> list[int]:
    """Let request 1 load what the host has of its prompt; the step is executed. Returns the device blocks of the load."""
    pairs = driver.load(1, prompt).pairs
    driver.close()
    return [pair[2] for pair in pairs]


def stored(**settings: Any) -> HostDriver:
    """N=4, FA16 (E=64), Mamba16: 48 of 50 tokens are on the host, the device's keys are gone."""
    driver = HostDriver(hybrid(16, 16, dcp_size=4, **settings))
    driver.stored_prompt(0, 50, 48, 50)
    return driver


# --- what is stored ---------------------------------------------------------------------------------------------------


def resume_point_of_eagle() -> int:
    """#55036: blocks of 32, EAGLE, a prompt of 100: the resend resumes at 64, the store thinks of 96."""
    driver = HostDriver(hybrid(32, 32, use_eagle=True))
    driver.stored_prompt(0, 100, 64, 100)
    return driver.ask(1, 100)


def attention_behind_the_state() -> int:
    """#56615: FA64, Mamba64, H=16, EAGLE, P=100: the state stands at 80, a lookup wants attention up to 96."""
    driver = HostDriver(hybrid(64, 64, hash_block_size=16, use_eagle=True))
    driver.stored_prompt(0, 100, 80, 100)
    return driver.ask(1, 100)


def window_behind_the_hit() -> int:
    """#53951: FA16, SWA16 (W=17), EAGLE, sparse retention, P=100: the resend needs the blocks before 80 and behind it."""
    driver = HostDriver(offloaded(Group(FULL, 16), Group(WINDOW, 16, window=17), use_eagle=True, retention=0))
    driver.stored_prompt(0, 100, 100)
    return driver.ask(1, 100)


def prompt_below_two_units() -> int:
    """vllm-ascend#16317: S=64, a prompt of 100: the hit of one unit, 64, lies below the last token."""
    driver = HostDriver(attention(64))
    driver.stored_prompt(0, 100, 100)
    return driver.ask(1, 100)


def spare_states_of_a_store() -> list[int]:
    """vllm-ascend#16329: three speculative blocks: their references when the state before them is being stored."""
    driver = HostDriver(offloaded(Group(FULL, 16), Group(MAMBA, 16, speculative_blocks=3)))
    driver.prompt(0, 40, 16)
    return driver.refs(*driver.tables(0)[1][-3:])


def free_twice() -> int:
    """#42571: how often too often blocks stand in the free queue when a request with a window is gone."""
    driver = HostDriver(offloaded(Group(FULL, 16), Group(WINDOW, 16, window=33)))
    driver.prompt(0, 40, 32, 40)
    driver.do(act.Finish(0))
    driver.carry()
    free = driver.world.pool.free
    return len(free) - len(set(free))


def blocks_of_a_resumed_request() -> tuple[int, ...]:
    """#46595: a request is preempted, its keys are evicted, it computes 32 tokens anew: its blocks as they are stored."""
    driver = HostDriver(attention(16))
    driver.prompt(0, 60, 32)
    driver.do(act.Preempt(0), act.EvictBlocks((1, 2)))
    driver.chunk(0, 32)
    driver.do(act.BeginStep(), act.Allocate(0, 8))
    return driver.close().store_device


def announced_boundaries() -> list[list[int]]:
    """#44103: blocks of 32 and of 16, hashes of 16: the boundaries that the stored blocks of 64 tokens are announced with."""
    driver = HostDriver(offloaded(Group(FULL, 32), Group(FULL, 16), events=True))
    driver.prompt(0, 70, 64)
    driver.do(act.BeginStep(), act.Allocate(0, 6))
    meta = driver.close().store_meta or ()
    return [[driver.world.prefixes.depth[node] for node, _ in entry] for entry in meta]


# --- what is loaded ---------------------------------------------------------------------------------------------------


def load_beside_a_step_in_flight() -> bool | None:
    """#45357: a request ends while its second step is in flight; whether a load gets its blocks before that step is over."""
    lazy = Offload(mode="lazy", num_blocks=20)
    driver = HostDriver(attention(16, lazy, num_blocks=4, max_steps_in_flight=2, defer_block_free=True))
    driver.stored_prompt(0, 33, 32, 33)
    driver.submit(5, (7,) * 40)
    driver.do(act.BeginStep())
    driver.allocate(5, 32)
    driver.dispatch()
    driver.do(act.BeginStep(), act.Allocate(5, 8))
    driver.dispatch()
    driver.execute()
    driver.output()
    driver.do(act.Finish(5))
    return driver.load(1, 33).admitted


def sources_of_a_load() -> list[int]:
    """sglang#31427: references of the host blocks of a load whose copy runs."""
    driver = stored()
    loading(driver)
    return driver.host_refs(1, 2)


def columns_of_a_load() -> list[int]:
    """#46694: one draft, 48 tokens in blocks of 16 to be loaded: the columns that are filled."""
    driver = HostDriver(attention(16, num_draft_tokens=1))
    driver.stored_prompt(0, 50, 48, 50)
    return [pair[1] for pair in driver.load(1, 50).pairs]


def report_of_an_aborted_load() -> list[int]:
    """vllm-ascend#16662: references of what a load filled when its request was aborted and the load is reported."""
    driver = stored()
    blocks = loading(driver)
    driver.do(act.Finish(1), act.RunLoad(0), act.CompleteLoad(1))
    return driver.refs(*blocks)


def second_report() -> str | None:
    """#51786: what stands against a second report of a load."""
    driver = stored()
    loading(driver)
    driver.do(act.RunLoad(0), act.CompleteLoad(1))
    return driver.refused(act.CompleteLoad(1))


def report_that_nobody_expects() -> list[int]:
    """#52954: references of what a load of an aborted request fills, after the report of a store that never was."""
    driver = stored()
    blocks = loading(driver)
    driver.do(act.Finish(1), act.CompleteStore(99))
    return driver.refs(*blocks)


def left_of_a_failed_load() -> object:
    """local-inference-lab/vllm#293: spans of 64 and 16, 80 of 128 tokens valid: what a request keeps of a load, and which keys
    are left in each group of tokens that were brought at once.
    """
    groups = (Group(FULL, 16), Group(FULL, 16, False))
    driver = HostDriver(offloaded(*groups, dcp_size=4))
    driver.stored_prompt(0, 130, 128, 130)
    loading(driver, 130)
    driver.do(act.RunLoad(0), act.CompleteLoad(1, failed=True, valid=80))
    at_once = brought(130, 128, *groups, dcp_size=4)
    at_once.do(act.Output(0, failed=True, valid=80))
    return driver.request(1).computed, [list(at_once.keys(group)) for group in (0, 1)]


def brought(tokens: int, external: int, *groups: Group, **settings: Any) -> Driver:
    """A connector brings the first tokens of request 0 at once; the step is executed, no output is processed."""
    driver = Driver(configure(groups, num_blocks=40, connectors=(False,), **settings))
    driver.submit(0, tokens)
    driver.do(act.BeginStep(), *macros.admit(0, tokens - external, 0, external))
    driver.dispatch()
    driver.do(*macros.EXECUTE)
    return driver


def computed_of_a_sharer() -> int:
    """#49250: request 1 adopts 12 tokens of request 0 in the step in which 8 of them are brought, and none arrives."""
    driver = Driver(configure((Group(FULL, 4),), num_blocks=40, connectors=(False,)))
    driver.submit(0, 12)
    driver.submit(1, 14)
    driver.do(act.BeginStep(), *macros.admit(0, 4, 0, 8), *macros.admit(1, 2, 12))
    driver.dispatch()
    driver.do(*macros.EXECUTE, act.Output(0, failed=True, valid=0))
    return driver.request(1).computed


def taken_back() -> int:
    """#35223: 48 tokens are brought to two groups, 16 arrive: the hits that are taken back."""
    driver = brought(50, 48, Group(FULL, 16), Group(MAMBA, 16))
    return driver.do(act.Output(0, failed=True, valid=16)).lost


def tokens_of_another_context() -> int:
    """#53495: 48 tokens are on the host under one salt: what a request with the same tokens and another salt finds."""
    driver = HostDriver(attention(16))
    driver.stored_prompt(0, 49, 48, 49)
    return driver.ask(1, 49, context=1)


def pins_of_an_aborted_lookup() -> list[int]:
    """LMCache#5006: references of the host blocks of a hit whose request was aborted before its allocation."""
    driver = stored()
    driver.ask(1, 50)
    driver.close()
    driver.do(act.Finish(1))
    return driver.host_refs(1, 2)


REPORTS = (
    Report("M-PUB-44", resume_point_of_eagle, 64, 0),
    Report("M-PUB-45", attention_behind_the_state, 80, 0),
    Report("M-PUB-48", window_behind_the_hit, 80, 0),
    Report("M-PUB-52", prompt_below_two_units, 64, 0),
    Report("M-PUB-69", spare_states_of_a_store, [1, 1, 1], [2, 2, 2]),
    Report("M-PUB-70", free_twice, 0, 1),
    Report("M-PUB-88", load_beside_a_step_in_flight, False, True),
    Report("M-PUB-96", sources_of_a_load, [1, 1], [0, 0]),
    Report("M-PUB-110", blocks_of_a_resumed_request, (3, 4), ()),
    Report("M-PUB-114", columns_of_a_load, [0, 1, 2], [1, 2, 3]),
    Report("M-PUB-126", report_of_an_aborted_load, [0, 0], [2, 2]),
    Report("M-PUB-128", second_report, "NothingLoaded", "ContractBroken"),
    Report("M-PUB-129", report_that_nobody_expects, [2, 2], [1, 1]),
    Report("M-PUB-134", computed_of_a_sharer, 0, 14),
    Report(
        "M-PUB-136",
        left_of_a_failed_load,
        (64, [[64], [16, 32, 48, 64, 80]]),
        (80, [[64], [16, 32, 48, 64, 80, 96, 112, 128]]),
    ),
    Report("M-PUB-137", taken_back, 32, 64),
    Report("M-PUB-146", tokens_of_another_context, 0, 48),
    Report(
        "M-PUB-158", announced_boundaries, [[16, 32], [48, 64], [16], [32], [48], [64]], [[16], [32], [16], [32], [48], [64]]
    ),
    Report("M-PUB-174", pins_of_an_aborted_lookup, [0, 0], [1, 1]),
)


@pytest.mark.parametrize("report", REPORTS, ids=[report.fault for report in REPORTS])
def test_the_numbers_of_the_report(report: Report) -> None:
    assert report.observe() == report.right
    with faults.planted(faults.by_id(report.fault)):
        assert tried(report.observe) == report.wrong
