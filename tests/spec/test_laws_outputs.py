"""CC-7 and CC-8: what a run reads is what the same tokens read without a cache, on any number of ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core.config import VLLM_0_33_0, Config, Group, configure
from kvproof.core.contents import GARBAGE, UNWRITTEN
from kvproof.spec import faults
from kvproof.spec.faults.base import planted
from kvproof.spec.laws import outputs
from tests.spec.stories import LAWS, Run, run_law

FULL = Group("full_attention", 4)
ALIGN = Group("mamba_align", 4)
PROMPT = (0, 0, 1, 1, 0, 1, 0, 1, 1, 1, 0, 0, 1, 1)
EVERYTHING = (
    FULL,
    Group("sliding_window", 2, sharded=False, window=5),
    Group("mamba_align", 4, speculative_blocks=2),
    Group("scratch", 4),
)
STABLE = (FULL, Group("mamba_stable", 2), Group("scratch", 4))


def resending(config: Config) -> Run:
    """Request 0 computes 14 tokens, request 1 shares 12 of them and computes four more."""
    run = Run(config)
    run.do(act.Submit(0, PROMPT))
    run.compute_all(0)
    run.do(act.Submit(1, (*PROMPT[:12], 1, 0, 0, 1)))
    run.compute_all(1)
    return run


def drafting(config: Config) -> Run:
    """A resend that decodes with drafts, some of them rejected."""
    run = resending(config)
    for sampled in ((1, 1), (1, 0, 1), (0,)):
        run.do(act.BeginStep())
        run.do(act.Allocate(1, 3, drafts=(1, 0)))
        run.do(act.Allocate(0, 1))
        run.step("", act.Output(1, sampled), act.Output(0, (1,)))
    return run


def two_ranks(**settings: Any) -> Config:
    return configure((FULL, ALIGN), dcp_size=2, num_blocks=24, hash_block_size=2, **settings)


@pytest.mark.parametrize("law", ["CC-7", "CC-8"])
@pytest.mark.parametrize(
    ("config", "play"),
    [
        (two_ranks(), resending),
        (configure((FULL, ALIGN), hash_block_size=2, num_blocks=24), resending),
        (configure(EVERYTHING, num_blocks=60, num_draft_tokens=2, max_model_len=40), drafting),
        (configure(EVERYTHING, num_blocks=60, num_draft_tokens=2, max_model_len=40, dcp_size=2, append_expansion=2), drafting),
        (configure(STABLE, num_blocks=40), resending),
        (configure((FULL, Group("chunked_local", 2, window=4)), num_blocks=24), resending),
    ],
    ids=["two ranks", "one rank", "drafts", "drafts on two ranks", "stable states", "chunks"],
)
def test_a_run_reads_what_it_would_read_without_a_cache(law: str, config: Config, play: Callable[[Config], Run]):
    if law == "CC-8" and any(group.kind == "chunked_local" for group in config.groups):
        assert run_law(law, config, play(config).actions) is None  # there is no other number of ranks for them
    else:
        assert run_law(law, config, play(config).actions) == []


def writing_on(config: Config) -> Run:
    """Request 0 goes on after request 1 wrote behind the tokens that they share."""
    run = resending(config)
    run.do(act.BeginStep())
    run.do(act.Allocate(0, 1))
    run.step("", act.Output(0, (1,)))
    return run


@pytest.mark.parametrize(
    ("law", "fault", "config"),
    [
        ("CC-7", "M-COW-1", lambda: two_ranks()),
        ("CC-8", "M-COW-1", lambda: two_ranks()),
        ("CC-8", "M-GATE-1", lambda: two_ranks()),
        ("CC-8", "M-SLOT-1", lambda: configure((Group("full_attention", 4, sharded=False), ALIGN), dcp_size=2, num_blocks=24)),
    ],
)
def test_a_planted_fault_changes_what_is_read_or_hit(law: str, fault: str, config: Callable[[], Config]):
    actions = writing_on(config()).actions
    assert run_law(law, config(), actions) == []
    with planted(faults.by_id(fault)):
        found = run_law(law, config(), actions)
    assert found
    assert fault in LAWS[law].faults or law == "CC-8"


def test_the_evidence_names_the_prefix_and_both_readings():
    config = two_ranks()
    actions = writing_on(config).actions
    with planted(faults.by_id("M-COW-1")):
        found = run_law("CC-7", config, actions)
    assert found is not None
    values = dict(found[0].values)
    assert values["prefix"][:13] == (0, *PROMPT[:12])  # type: ignore[index]
    assert values["expected"] != values["actual"]
    assert ("copy_source_guard", VLLM_0_33_0.copy_source_guard) in LAWS["CC-7"].bent_by


def test_a_run_in_which_nothing_is_computed_says_nothing():
    config = configure((FULL,))
    assert run_law("CC-7", config, (act.Submit(0, (1, 2)), act.BeginStep())) is None
    assert run_law("CC-8", config, ()) is None


def test_names_of_prefixes_are_the_same_in_every_world():
    spelling = outputs.Spelling()
    one, other = resending(two_ranks()).world, resending(configure((FULL,), num_blocks=24)).world
    here, there = outputs.Names(spelling), outputs.Names(spelling)
    tips = [(request.tip, twin.tip) for request, twin in zip(one.requests, other.requests, strict=True)]
    assert all(here.of(one.prefixes, mine) == there.of(other.prefixes, yours) for mine, yours in tips)
    name = here.of(one.prefixes, tips[0][0])
    assert spelling.tokens[name] == (0, *PROMPT, 1)
    assert here.of(one.prefixes, GARBAGE) == GARBAGE


def test_what_is_read_has_one_value_per_position_and_rank():
    run = resending(two_ranks())
    entry = next(share for share in run.named["1 to 16 Dispatch"].after.steps[-1].scheduled)
    world, names = run.named["1 to 16 forward"].after, outputs.Names(outputs.Spelling())
    read = outputs.read_at(world, entry, 15, names)
    attention, state = read
    assert isinstance(attention, tuple)
    assert len(attention) == 16
    assert all(len(values) == 1 and values[0] >= 0 for values in attention)
    assert state == attention[-1]
    lost = evolve(world, contents=((),) * len(world.contents))
    assert outputs.read_at(lost, entry, 15, names) == (((UNWRITTEN,),) * 16, (UNWRITTEN,))


def test_the_run_without_a_cache_is_refused_by_nobody_and_needs_no_hits():
    config = configure(EVERYTHING, num_blocks=10, num_draft_tokens=2, use_eagle=True, max_model_len=24)
    plain = outputs.uncached(config, 1)
    assert plain is not None
    assert not plain.caching
    assert outputs.uncached(configure((FULL, Group("chunked_local", 2, window=4))), 2) is None
    spelling = outputs.Spelling()
    read = outputs.computed_alone(plain, 0, PROMPT, spelling)
    assert read is not None
    assert len(read) == 3
    assert outputs.computed_alone(evolve(plain, num_blocks=3), 0, PROMPT, spelling) is None
