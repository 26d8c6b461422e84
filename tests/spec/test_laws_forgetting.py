"""Laws of keys that are taken back: each on a moment that keeps it, and on the same moment or run tampered with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import pytest

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.config import Config, Group, configure
from kvproof.core.records import Record
from kvproof.core.world import World
from kvproof.spec import faults, laws
from kvproof.spec.engines import twins
from kvproof.spec.faults import planted
from kvproof.spec.judge import attempt
from kvproof.spec.laws import forgetting
from kvproof.spec.laws.base import Law, Moment
from tests.spec.stories import (
    LAWS,
    Moments,
    Run,
    Tamper,
    after,
    answer,
    before,
    bites,
    holds_throughout,
    judged,
    recorded,
    run_law,
    with_pool,
)

PROMPT = (0, 1, 1, 0, 1, 0, 0, 1, 1)
PAIR = (Group("full_attention", 4), Group("mamba_align", 4))
OLDER = tuple(law for law in laws.ALL if law not in forgetting.LAWS)


def computed(config: Config) -> Run:
    """Request 0 has computed nine tokens: blocks 1 to 3 of the first group, two of them full."""
    run = Run(config)
    run.do(act.Submit(0, PROMPT))
    run.compute_all(0)
    return run


@cache
def story() -> Moments:
    """Keys evicted by id, a reset while blocks are in use, and one when nobody holds any."""
    run = computed(configure(PAIR, dcp_size=2, hash_block_size=2, num_blocks=16))
    run.do(act.ResetCache(), "in use")
    keyed = [block for block, node in enumerate(run.world.pool.key_node) if node >= 0]
    run.do(act.EvictBlocks((keyed[0],)), "one")
    run.do(act.EvictBlocks((keyed[0],)), "again")
    run.do(act.Finish(0))
    run.do(act.ResetCache(), "done")
    run.do(act.ResetCache(), "nothing left")
    assert run.named["done"].before.pool.entries
    return run.named


def without_a_key(world: World) -> World:
    return with_pool(world, entries=world.pool.entries[:-1])


def keys_of(name: str) -> Callable[[World], World]:
    """Change to the keys before a moment of the story."""

    def change(world: World) -> World:
        known = story()[name].before.pool
        return with_pool(
            world, entries=known.entries, key_node=known.key_node, key_group=known.key_group, key_tokens=known.key_tokens
        )

    return change


def primaries_of(name: str) -> Callable[[World], World]:
    """Change to what the blocks stood for before a moment of the story; the map stays as it is."""
    return lambda world: with_pool(world, key_node=story()[name].before.pool.key_node)


CASES: tuple[tuple[str, str, str, Tamper], ...] = (
    ("PC-13", "a reset that leaves the keys", "done", after(keys_of("done"))),
    ("PC-13", "a reset that leaves what blocks stand for", "done", after(primaries_of("done"))),
    ("PC-13", "a reset that was not done and clears", "in use", after(lambda world: with_pool(world, entries=()))),
    ("PC-13", "a reset that was not done and takes one key", "in use", after(without_a_key)),
    ("PC-13", "an eviction that leaves the keys", "one", after(keys_of("one"))),
    ("PC-13", "an eviction that leaves what the block stands for", "one", after(primaries_of("one"))),
    ("PC-13", "an eviction that takes another key", "again", after(without_a_key)),
    ("PC-14", "done in use", "in use", recorded(done=True)),
    ("PC-14", "not done at rest", "done", recorded(done=False)),
    ("PC-14", "not done without keys", "nothing left", recorded(done=False)),
    (
        "PC-14",
        "done while one block is held",
        "done",
        before(lambda world: with_pool(world, ref=(0, 0, 1, *world.pool.ref[3:]))),
    ),
)


@pytest.mark.parametrize(("law", "what", "name", "tamper"), CASES, ids=[f"{case[0]}: {case[1]}" for case in CASES])
def test_a_tampered_moment_breaks_the_law_and_the_true_one_keeps_it(law: str, what: str, name: str, tamper: Tamper) -> None:
    del what
    bites(law, story()[name], tamper)


def test_no_law_is_broken_in_the_story() -> None:
    holds_throughout(story())


def test_a_refused_action_is_not_judged() -> None:
    refused = attempt(story()["done"].before, act.EvictBlocks((-1,)))
    assert refused.refusal is not None
    assert judged("PC-13", refused) is None


# --- what is served ---------------------------------------------------------------------------------------------------


def lookup(run: Run, request: int, *prompt: int) -> None:
    run.do(act.Submit(request, prompt))
    run.do(act.BeginStep())
    run.do(act.Lookup(request))


def after_a_reset(config: Config) -> Sequence[Action]:
    """The prompt is sent, computed, forgotten, and sent again."""
    run = computed(config)
    run.do(act.Finish(0))
    run.do(act.ResetCache())
    lookup(run, 1, *PROMPT)
    return run.actions


def after_an_eviction(config: Config) -> Sequence[Action]:
    """The prompt is sent, its first block is evicted when nobody holds it, and it is sent again."""
    run = computed(config)
    run.do(act.Finish(0))
    run.do(act.EvictBlocks((1, 2)))
    lookup(run, 1, *PROMPT)
    return run.actions


@pytest.mark.parametrize(
    ("law", "actions", "fault"),
    [("HB-16", after_a_reset, "M-RST-3"), ("HB-17", after_an_eviction, "M-EVICT-2")],
)
@pytest.mark.parametrize("groups", [PAIR[:1], PAIR], ids=["attention", "attention and states"])
def test_a_law_of_a_run_sees_its_fault(
    law: str, actions: Callable[[Config], Sequence[Action]], fault: str, groups: tuple[Group, ...]
) -> None:
    config = configure(groups, num_blocks=16)
    done = actions(config)
    assert run_law(law, config, done) is None  # no hit, so nothing was served
    with planted(faults.by_id(fault)):
        assert run_law(law, config, done)
        assert run_law("HB-17" if law == "HB-16" else "HB-16", config, done) in (None, [])


def test_what_is_computed_again_may_be_hit_again() -> None:
    """A reset and an eviction, then the prompt is computed anew: both laws are judged, and hold."""
    config = configure(PAIR[:1], num_blocks=16)
    run = computed(config)
    run.do(act.Finish(0))
    run.do(act.ResetCache())
    run.do(act.EvictBlocks((9,)))
    lookup(run, 1, *PROMPT)
    run.do(act.Allocate(1, 9))
    run.step("", act.Output(1, (1,)))
    lookup(run, 2, *PROMPT)
    assert run_law("HB-16", config, run.actions) == []
    assert run_law("HB-17", config, run.actions) == []


def test_a_hit_may_be_on_what_the_open_plan_computes() -> None:
    config = configure(PAIR[:1], num_blocks=16)
    run = Run(config)
    run.do(act.Submit(0, PROMPT))
    run.do(act.Submit(1, PROMPT))
    run.do(act.BeginStep())
    run.do(act.Lookup(0))
    run.do(act.Allocate(0, 9))
    moment = run.do(act.Lookup(1))
    assert moment.record is not None
    assert moment.record.local == 8
    assert run_law("HB-16", config, run.actions) == []


def test_a_hit_on_another_prefix_was_computed_by_nobody() -> None:
    """Four tokens of request 1 were computed by request 0; the eight that it is said to hit were not."""
    run = computed(configure(PAIR[:1], num_blocks=16))
    lookup(run, 1, *PROMPT[:4], 1, 1, 1, 1, 1)
    moments = list(twins.moments(run.world.config, run.actions))
    assert moments[-1].record is not None
    assert moments[-1].record.local == 4
    for local, broken in ((4, 0), (8, 1)):
        served = forgetting.Computed()
        for moment in (*moments[:-1], recorded(local=local)(moments[-1])):
            served.see(moment)
        assert (served.judged, len(served.found)) == (1, broken)


def test_a_block_that_a_request_holds_when_it_is_evicted_may_get_keys_again() -> None:
    """Its owner is its holder, and may register it."""
    config = configure(PAIR[:1], num_blocks=16)
    run = computed(config)
    run.do(act.EvictBlocks((3,)))
    for _ in range(3):
        run.do(act.BeginStep())
        run.do(act.Allocate(0, 1))
        run.step("", act.Output(0, (1,)))
    lookup(run, 1, *PROMPT, 1, 1, 1, 1)
    assert {block for blocks in moment_of(run).lists for block in blocks} == {1, 2, 3}
    assert run_law("HB-17", config, run.actions) is None


def moment_of(run: Run) -> Record:
    """What the last action of a run answered."""
    return answer(list(twins.moments(run.world.config, run.actions))[-1])


def test_without_caching_nothing_is_judged() -> None:
    config = configure(PAIR[:1], num_blocks=16, caching=False)
    assert [run_law(law, config, after_a_reset(config)) for law in ("HB-16", "HB-17")] == [None, None]


def watches(law: Law, moment: Moment) -> bool:
    return law.check is not None and (not law.on or isinstance(moment.action, law.on))


def test_no_older_law_minds_what_a_reset_or_an_eviction_only_says() -> None:
    """Why there are laws of their own (C-82): what is served is right, and the key map and the blocks agree."""
    for actions, fault in ((after_a_reset, "M-RST-3"), (after_an_eviction, "M-EVICT-2")):
        config = configure(PAIR, num_blocks=16)
        done = actions(config)
        with planted(faults.by_id(fault)):
            run = Run(config)
            for action in done:
                moment = run.do(action)
                found = {law.id for law in OLDER if watches(law, moment) and judged(law.id, moment)}
                assert found == set(), action
            assert not any(run_law(law.id, config, done) for law in OLDER if law.check_run is not None)


def test_a_reset_that_is_announced_and_not_done_breaks_ev_5_too() -> None:
    config = configure(PAIR[:1], num_blocks=16, events=True)
    done = after_a_reset(config)
    with planted(faults.by_id("M-RST-3")):
        run = Run(config)
        for action in done:
            moment = run.do(action)
            assert bool(isinstance(action, act.ResetCache)) is bool(watches(LAWS["EV-5"], moment) and judged("EV-5", moment))


def test_every_law_has_a_case() -> None:
    assert {case[0] for case in CASES} | {"HB-16", "HB-17"} == {law.id for law in forgetting.LAWS}
