"""The findings of docs/findings: refuted under the upstream value of their profile field, sound under ours."""

from __future__ import annotations

from typing import Literal

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import errors
from kvproof.core.config import SOUND, Config, Group, Profile, configure
from kvproof.spec import judge, laws, macros
from kvproof.spec.engines import twins
from kvproof.spec.judge import Judge
from tests.driving import Driver


def violated(config: Config, actions: list[act.Action]) -> set[str]:
    """Ids of the laws that a run breaks; refused actions are skipped."""
    court = Judge(laws.ALL)
    found = []
    for position, moment in enumerate(twins.moments(config, actions)):
        assert moment.refusal is None or not judge.is_internal(moment.refusal)
        found += court.moment(moment, position)
    return {violation.law for violation in found}


def copy_source_config(profile: Profile) -> Config:
    """N=4, full attention 2 (E=8), Mamba 4, H=4."""
    return configure(
        (Group("full_attention", 2), Group("mamba_align", 4)), dcp_size=4, num_blocks=12, retention=0, profile=profile
    )


def copy_source_actions() -> list[act.Action]:
    """A caches 4 of 5 tokens; B and C extend them and are admitted in one step, both with the hit 4."""
    shared = (1, 1, 1, 1, 1)
    return [
        act.Submit(0, shared),
        act.BeginStep(),
        *macros.admit(0, 4),
        *macros.run([(0, ())]),
        act.Submit(1, (*shared, 0, 1, 0, 1, 1, 1, 0, 0)),
        act.Submit(2, (*shared, 0, 1, 0, 1)),
        act.BeginStep(),
        *macros.admit(1, 4, 4),
        *macros.admit(2, 4, 4),
        *macros.run([(1, ()), (2, ())]),
    ]


def test_attention_copy_from_a_block_that_the_same_step_writes() -> None:
    """Finding copy-source: B's private copy, promoted at planning, is the source of C's copy in the same step."""
    upstream = evolve(SOUND, copy_source_guard="recurrent")
    broken = violated(copy_source_config(upstream), copy_source_actions())
    assert {"COW-4", "COW-7"} <= broken
    assert violated(copy_source_config(SOUND), copy_source_actions()) == set()


def test_the_refused_request_is_admitted_one_step_later() -> None:
    """Finding copy-source: the sound guard defers C by one step, with a demand above the pool, and no longer."""
    driver = Driver(copy_source_config(SOUND))
    actions = copy_source_actions()
    second = [index for index, action in enumerate(actions) if isinstance(action, act.BeginStep)][1]
    driver.do(*actions[: second + 4])
    refused = driver.do(act.Allocate(2, 4, 4))
    assert (refused.admitted, refused.demand >= 12 + 1) == (False, True)
    driver.close()
    driver.do(act.BeginStep())
    hit = driver.do(act.Lookup(2))
    assert driver.do(act.Allocate(2, 8 - hit.local, hit.local)).admitted is True


def test_the_source_is_the_last_block_of_the_list() -> None:
    """Finding copy-source with a hit of 12 in the second block: the guard looks at the block that is copied."""
    config = configure((Group("full_attention", 2), Group("mamba_align", 4)), dcp_size=4, num_blocks=16, retention=0)
    driver = Driver(config)
    driver.submit(0, 13)
    driver.chunk(0, 12)
    driver.submit(1, (*range(1, 14), *range(50, 67)))
    driver.submit(2, (*range(1, 14), 50, 51, 52, 53, 60))
    driver.do(act.BeginStep(), *macros.admit(1, 4, 12), act.Lookup(2))
    assert (driver.records[-1].local, len(driver.records[-1].lists[0])) == (12, 2)
    # the pool has 16 blocks; the recurrent group wants one more and takes its state from the free queue or shares it
    refused = driver.do(act.Allocate(2, 4, 12))
    assert (refused.admitted, refused.demand) == (False, 16 + 1 + 1)


def chunk_below_the_hit(profile: Profile) -> tuple[Config, list[act.Action]]:
    """N=2, FA8 (E=16), Mamba2. A leaves states at 6 and 8; its attention block goes. B computes 0..6 again, then 6..12
    in the step in which C, with the joint hit 8, copies B's block.
    """
    config = configure((Group("full_attention", 8), Group("mamba_align", 2)), dcp_size=2, num_blocks=20, profile=profile)
    prompt = tuple(range(30))
    return config, [
        act.Submit(0, prompt[:9]),
        act.BeginStep(),
        *macros.admit(0, 8),
        *macros.run([(0, ())]),
        act.Finish(0),
        act.EvictBlocks((1,)),
        act.Submit(1, prompt),
        act.Submit(2, prompt[:20]),
        act.BeginStep(),
        *macros.admit(1, 6),
        *macros.run([(1, ())]),
        act.BeginStep(),
        act.Allocate(1, 22),
        *macros.admit(2, 8, 8),
        *macros.run([(1, ()), (2, ())]),
    ]


def test_a_running_writer_below_the_hit_defers_too() -> None:
    """Finding copy-source: not only copies, also a chunk that starts below the hit leaves the source unwritten."""
    broken = violated(*chunk_below_the_hit(evolve(SOUND, copy_source_guard="recurrent")))
    assert "COW-4" in broken
    assert violated(*chunk_below_the_hit(SOUND)) == set()


def clip_config(profile: Profile) -> Config:
    """Mamba 4 and Mamba 8 in one model, clipping unit 4."""
    return configure(
        (Group("full_attention", 4), Group("mamba_align", 4), Group("mamba_align", 8)),
        num_blocks=16,
        clip_block_size=4,
        profile=profile,
    )


def test_a_chunk_runs_past_the_end_of_a_larger_recurrent_block() -> None:
    """Finding clip-stops: chunk ends 4 and 12 leave the state at 4 under the key of boundary 8."""
    actions = [
        act.Submit(0, tuple(range(14))),
        act.BeginStep(),
        *macros.admit(0, 4),
        *macros.run([(0, ())]),
        act.BeginStep(),
        act.Allocate(0, 8),
        *macros.run([(0, ())]),
    ]
    assert "CC-3" in violated(clip_config(evolve(SOUND, clip_stops="clip_unit")), actions)
    driver = Driver(clip_config(SOUND))
    driver.do(*actions[: 4 + len(macros.run([(0, ())])) + 1])
    with pytest.raises(errors.ChunkNotClipped):
        driver.do(act.Allocate(0, 8))
    assert driver.do(act.Allocate(0, 4)).admitted is True


def test_external_tokens_are_a_multiple_of_the_hit_alignment() -> None:
    """Correction C-4: with coarse hits a multiple of H is not enough."""
    driver = Driver(configure((Group("full_attention", 8), Group("mamba_align", 2)), num_blocks=12))
    assert (driver.world.config.hash_block_size, driver.world.config.alignment) == (2, 8)
    driver.submit(0, 21)
    driver.do(act.BeginStep(), act.Lookup(0))
    with pytest.raises(errors.MisalignedExternal, match="A = 8"):
        driver.do(act.Allocate(0, 1, 0, 4))
    assert driver.do(act.Allocate(0, 4, 0, 16)).admitted is True


def test_no_handoff_without_a_key() -> None:
    """Finding unkeyed-handoff: the tail's key is evicted before its producer pays the copy."""
    actions = [
        act.Submit(0, (1, 2, 3)),
        act.BeginStep(),
        *macros.admit(0, 2),
        *macros.run([(0, ())]),
        act.EvictBlocks((2,)),
        act.BeginStep(),
        act.Allocate(0, 1),
    ]
    published = {}
    for value in ("no", "yes"):
        config = configure(
            (Group("full_attention", 4), Group("mamba_align", 4)),
            hash_block_size=2,
            num_blocks=12,
            profile=evolve(SOUND, publish_unkeyed=value),
        )
        broken = violated(config, actions)
        driver = Driver(config)
        driver.do(*actions)
        published[value] = (driver.do(act.Drain()).handoffs, broken)
    assert published == {"no": ((), set()), "yes": (((0, 1, 3, 2),), {"HO-1"})}


def test_a_load_of_the_same_step_leaves_the_source_unwritten_too() -> None:
    """Finding copy-source: B's attention block is loaded in this step, behind the copies; C may not copy it yet."""
    config = configure(
        (Group("full_attention", 8), Group("mamba_align", 8)), hash_block_size=4, num_blocks=40, connectors=(False,)
    )
    driver = Driver(config)
    driver.submit(0, 14)
    for amount in (8, 4, 2):
        driver.chunk(0, amount)
    attention = driver.request(0).groups[0].table
    driver.do(act.Finish(0), act.EvictBlocks(attention))
    driver.submit(1, 14)
    driver.submit(2, 14)
    driver.do(act.BeginStep(), *macros.admit(1, 2, 0, 12))
    assert driver.do(act.Lookup(2)).local == 12
    refused = driver.do(act.Allocate(2, 2, 12))
    assert (refused.admitted, refused.demand > 40) == (False, True)


def test_the_second_attention_class_is_asked_up_to_the_full_limit() -> None:
    """Finding second-attention-class: the key at 8 of the coarser class covers the joint hit 4 (HB-15)."""
    hits = {}
    for rule in ("full", "current"):
        config = configure(
            (Group("full_attention", 4, False), Group("full_attention", 4), Group("mamba_align", 4)),
            dcp_size=2,
            num_blocks=30,
            profile=evolve(SOUND, attention_limit=rule),
        )
        driver = Driver(config)
        driver.submit(0, 10)
        for amount in (4, 4, 2):
            driver.chunk(0, amount)
        second = driver.request(0).groups[0].table[1]
        driver.do(act.Finish(0), act.EvictBlocks((second,)))
        driver.submit(1, 10)
        driver.do(act.BeginStep())
        moment = judge.attempt(driver.world, act.Lookup(1))
        broken = {violation.law for violation in Judge(laws.ALL).moment(moment, 0)}
        assert moment.record is not None
        hits[rule] = (moment.record.local, broken)
    assert hits == {"full": (4, set()), "current": (0, {"HB-15"})}


@pytest.mark.parametrize("rule", ["entry", "rank_block"])
def test_connectors_are_offered_what_holds_computed_tokens(rule: Literal["entry", "rank_block"]) -> None:
    """Finding offered-tables: on two ranks an entry behind the computed tokens is offered, too (DS-9)."""
    config = configure(
        (Group("full_attention", 2),),
        dcp_size=2,
        num_blocks=12,
        connectors=(False,),
        profile=evolve(SOUND, offered_blocks=rule),
    )
    actions = [act.Submit(0, (0,) * 4), act.BeginStep(), act.Lookup(0), act.Allocate(0, 4, lookahead=1), *macros.CLOSE]
    *_, last = twins.moments(config, [*actions, act.Finish(0)])
    assert last.record is not None
    law = next(law for law in laws.ALL if law.id == "DS-9")
    assert law.check_run is not None
    found = law.check_run(config, [*actions, act.Finish(0)])
    if rule == "entry":
        assert (last.record.offered, found) == (((1,),), [])
    else:
        assert last.record.offered == ((1, 2),)
        assert found
