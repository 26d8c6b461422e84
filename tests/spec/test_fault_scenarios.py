"""Scenarios of section 6 with their numbers: what is right, and what the planted fault makes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import reachability
from kvproof.core.config import SOUND, Config, Group, Profile, configure
from kvproof.spec import faults, macros
from kvproof.spec.engines import amounts
from tests.driving import Driver

FA, SWA, MAMBA = "full_attention", "sliding_window", "mamba_align"


def lazy_target(profile: Profile) -> object:
    """N=2, FA16 and a replicated window of 33 in blocks of 16, 256 batched tokens."""
    del profile
    attention, window = (reachability.lazy_span(16, sharded, 2) for sharded in (True, False))
    return reachability.lazy_target(
        (reachability.lazy_blocks_other(256, attention), reachability.lazy_blocks_window(33, window))
    )


def nulled_attention(profile: Profile) -> object:
    """FA16 beside SWA16 (W=4), 40 tokens computed: which of the first two attention entries are null."""
    del profile
    driver = Driver(configure((Group(FA, 16), Group(SWA, 16, window=4)), num_blocks=16, max_chunk=36))
    driver.submit(0, 41)
    for amount in (36, 4, 1):
        driver.chunk(0, amount)
    return [block == 0 for block in driver.tables(0)[0]][:2]


def drafting(**settings: Any) -> Driver:
    """FA16 and Mamba16 with three speculative blocks: a prompt of 20 is computed and one token sampled."""
    groups = (Group(FA, 16), Group(MAMBA, 16, speculative_blocks=3))
    defaults: dict[str, Any] = {"num_blocks": 32, "max_model_len": 64, "num_draft_tokens": 3}
    driver = Driver(configure(groups, **(defaults | settings)))
    driver.submit(0, 20)
    for amount in (16, 4):
        driver.chunk(0, amount)
    return driver


def accepted_one_of_three(profile: Profile) -> object:
    """Computed tokens after a step with three drafts of which one is accepted (G15)."""
    del profile
    driver = drafting()
    driver.do(act.BeginStep(), act.Allocate(0, 4, drafts=(1, 2, 3)))
    driver.close((0, (1, 5)))
    return driver.request(0).computed


def keyed_over_drafts(profile: Profile) -> object:
    """15 tokens and three drafts, H=16: boundaries that are keyed when the drafts are planned."""
    del profile
    driver = Driver(configure((Group(FA, 16),), num_blocks=8, max_model_len=64, num_draft_tokens=3))
    driver.submit(0, 14)
    driver.chunk(0, 14)
    driver.do(act.BeginStep(), act.Allocate(0, 4, drafts=(1, 2, 3)))
    return sorted(driver.keys(0))


def late_output(**settings: Any) -> Driver:
    """A decode with three drafts is in flight when its request is preempted; its output is still to come."""
    driver = drafting(max_steps_in_flight=2, **settings)
    driver.do(act.BeginStep(), act.Allocate(0, 4, drafts=(1, 2, 3)), *macros.CLOSE, act.BeginStep())
    return driver


def in_flight_after_a_late_output(profile: Profile) -> object:
    """Tokens in flight when the output of a preempted request has arrived (G15)."""
    del profile
    driver = late_output()
    driver.do(act.Preempt(0), *macros.CLOSE, *macros.EXECUTE, act.Output(0, (1, 5)))
    return driver.request(0).in_flight


def late_output_to_be_dropped(profile: Profile) -> object:
    """Known and computed tokens when a late output arrives that the preemption asked to drop."""
    del profile
    driver = late_output()
    driver.do(act.Preempt(0, drop_stale=True), *macros.CLOSE, *macros.EXECUTE, act.Output(0, (1, 5)))
    return driver.request(0).num_tokens, driver.request(0).computed


def resend(config: Config, prompt: int) -> int:
    """Compute a prompt in chunks as large as may be, finish it, and look it up again."""
    driver = Driver(config)
    driver.submit(0, prompt)
    while (done := driver.request(0).computed) < prompt:
        driver.chunk(0, amounts.chunk(config, driver.request(0), done, prompt - done))
    driver.do(act.Finish(0))
    driver.submit(1, prompt)
    return driver.do(act.BeginStep(), act.Lookup(1)).local


def window_of_one_token(profile: Profile) -> object:
    """FA4 and SWA4 (W=1), a resend of 9 tokens."""
    return resend(configure((Group(FA, 4), Group(SWA, 4, window=1)), num_blocks=16, profile=profile), 9)


def run_of_no_whole_window(profile: Profile) -> object:
    """FA8, SWA4 (W=32), EAGLE: a resend of 29 tokens."""
    groups = (Group(FA, 8), Group(SWA, 4, window=32))
    return resend(configure(groups, num_blocks=40, use_eagle=True, profile=profile), 29)


def checkpoint_before_the_end(profile: Profile) -> object:
    """FA8, Mamba8, H=2, EAGLE, checkpoints at every fourth token: a resend of 20 tokens."""
    groups = (Group(FA, 8), Group(MAMBA, 8))
    settings: dict[str, Any] = {"hash_block_size": 2, "num_blocks": 32, "use_eagle": True, "checkpoint_alignment": 4}
    return resend(configure(groups, profile=profile, **settings), 20)


def retained_boundary(profile: Profile) -> object:
    """FA64, Mamba64, SWA16 (W=17), H=16, EAGLE, retention 0: a resend of 95 tokens."""
    groups = (Group(FA, 64), Group(MAMBA, 64), Group(SWA, 16, window=17))
    settings: dict[str, Any] = {"hash_block_size": 16, "num_blocks": 64, "use_eagle": True, "retention": 0}
    return resend(configure(groups, profile=profile, **settings), 95)


SCENARIOS: list[tuple[str, Callable[[Profile], object], object, object]] = [
    ("M-GEO-4", lazy_target, 24, 22),
    ("M-TBL-2", nulled_attention, [False, False], [True, True]),
    ("M-SPEC-1", keyed_over_drafts, [], [16]),
    ("M-SPEC-2", accepted_one_of_three, 22, 24),
    ("M-INF-1", in_flight_after_a_late_output, 0, 4),
    ("M-LATE-1", late_output_to_be_dropped, (21, 0), (23, 0)),
    ("M-HIT-6", window_of_one_token, 8, 0),
    ("M-HIT-8", run_of_no_whole_window, 16, 8),
    ("M-CKPT-2", checkpoint_before_the_end, 18, 16),
    ("M-RET-1", retained_boundary, 64, 0),
]


@pytest.mark.parametrize(("name", "scenario", "right", "wrong"), SCENARIOS, ids=[name for name, *_ in SCENARIOS])
def test_the_scenario_of_a_fault(name: str, scenario: Callable[[Profile], object], right: object, wrong: object) -> None:
    fault = faults.by_id(name)
    changes: dict[str, Any] = dict([fault.profile] if fault.profile else [])
    assert scenario(SOUND) == right
    with faults.planted(fault):
        assert scenario(evolve(SOUND, **changes)) == wrong
