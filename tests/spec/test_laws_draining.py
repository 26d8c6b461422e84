"""Liveness of the host side: worlds are carried to quiet from every point of a story, and the laws of the end and of whole runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core.config import Config, Group, Offload
from kvproof.core.offload.state import Track
from kvproof.core.world import Phase, World
from kvproof.spec import faults
from kvproof.spec.engines import drain
from kvproof.spec.engines.drain import Drained
from kvproof.spec.faults.base import planted
from kvproof.spec.laws.base import Findings
from tests.spec import stories
from tests.spec.host_stories import FULL, MAMBA, STABLE, HostRun, hosted, with_host

TOKENS = 11


def life(config: Config | None = None) -> HostRun:
    """A prompt is stored; sent again behind a wiped device it is loaded and ends while the load runs."""
    run = HostRun(config or hosted())
    run.send(0, TOKENS)
    run.compute(0, 8, 2, 1)
    run.do(act.Finish(0))
    run.quiet()
    run.do(act.ResetCache())
    run.send(1, TOKENS)
    run.load(1)
    return run


def reset() -> HostRun:
    """The host is reset while stores run."""
    run = HostRun(hosted())
    run.send(0, TOKENS)
    run.compute(0, 8, 2, 1)
    run.do(act.ResetHost())
    run.do(act.Finish(0))
    return run


def unissued() -> HostRun:
    """A load waits for a step in flight, and its request ends before a step was told of it."""
    run = HostRun(
        hosted(
            offload=Offload(num_blocks=16, workers=2, hold_loads=True),
            max_steps_in_flight=2,
            defer_block_free=True,
        )
    )
    run.send(0, TOKENS)
    run.compute(0, 8, 2, 1)
    run.do(act.Finish(0))
    run.quiet()
    run.do(act.ResetCache())
    run.send(2, (7,) * 9)
    run.send(1, TOKENS)
    run.do(act.BeginStep())
    run.do(act.Lookup(2))
    run.do(act.Allocate(2, 8))
    run.dispatch()
    run.load(1)
    run.dispatch()
    run.do(act.Finish(1))
    return run


def outstanding() -> HostRun:
    """A request has finished while its stores run."""
    run = HostRun(hosted())
    run.send(0, TOKENS)
    run.compute(0, 8, 2, 1)
    run.do(act.Finish(0))
    return run


def at_end(law: str, world: World) -> Findings:
    """Judge what a world comes to by a law of the end."""
    return ended(law, drain.drain(world))


def ended(law: str, drained: Drained) -> Findings:
    check = stories.LAWS[law].check_end
    assert check is not None
    return check(drained)


# --- draining -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("story", [life, reset, unissued, outstanding], ids=lambda story: story.__name__)
def test_every_world_of_a_story_becomes_quiet(story: Callable[[], HostRun]) -> None:
    """From any point, in the middle of a plan or of a step too: nothing is refused, no request or transfer is left, all is free."""
    run = story()
    for cut in range(len(run.actions) + 1):
        drained = drain.drain(replayed(run, cut))
        assert drained.refusal is None, (cut, drained.refusal)
        end = drained.world
        assert (end.phase, end.requests, end.steps) == (Phase.IDLE, (), ())
        assert end.host is not None
        assert not drain.waits_for_a_step(end)
        assert set(end.pool.ref) == set(end.host.pool.ref) == {0}
        for law in ("LV-2", "LV-3", "LV-4"):
            assert not ended(law, drained)


def replayed(run: HostRun, cut: int) -> World:
    """The world after the first actions of a run."""
    again = HostRun(run.world.config)
    for action in run.actions[:cut]:
        again.do(action)
    return again.world


def test_the_engine_steps_as_long_as_it_is_told_to() -> None:
    """LV-7 is what makes a queued store run: whoever steps only while work is pending carries it to the host."""
    run = outstanding()
    drained = Drained.of(run.world)
    drained.do(act.BeginStep())
    assert drain.settle(drained)
    assert drain.steps_until_quiet(drained, asked_only=True)
    assert not drain.waits_for_a_step(drained.world)


# --- the laws of the end --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("law", "story", "fault"),
    [
        ("LV-2", reset, "M-LEAK-1"),
        ("LV-3", unissued, "M-LOAD-6"),
        ("LV-4", outstanding, "M-LEAK-3"),
    ],
    ids=["LV-2", "LV-3", "LV-4"],
)
def test_a_law_of_the_end_sees_its_fault(law: str, story: Callable[[], HostRun], fault: str) -> None:
    assert not at_end(law, story().world)
    with planted(faults.by_id(fault)):
        assert at_end(law, story().world)


def test_a_law_of_the_end_sees_what_is_left() -> None:
    drained = drain.drain(outstanding().world)
    assert [ended(law, drained) for law in ("LV-2", "LV-4")] == [[], []]
    end = drained.world
    pinned = evolve(drained, world=evolve(end, pool=evolve(end.pool, ref=(0, 1, *end.pool.ref[2:]))))
    assert ended("LV-2", pinned)
    assert ended("LV-4", evolve(drained, world=with_host(end, tracks=(Track(0, (0, 0), (), True),))))
    loading = drain.drain(life().world)
    assert ended("LV-3", loading) == []
    assert ended("LV-3", evolve(loading, world=loading.start))


def test_the_premise_of_a_law_of_the_end() -> None:
    """Nothing held, nobody loading, nobody tracked: nothing is judged."""
    fresh = HostRun(hosted()).world
    assert [at_end(law, fresh) for law in ("LV-2", "LV-3", "LV-4")] == [None, None, None]


def test_what_is_refused_on_the_way_is_evidence() -> None:
    run = outstanding()
    broken = with_host(run.world, stores=(evolve(run.host.stores[0], device=(9,)), *run.host.stores[1:]))
    drained = drain.drain(broken)
    assert drained.refusal is not None
    assert ended("LV-2", drained)


# --- the laws of a run ----------------------------------------------------------------------------------------------------


def decoded(config: Config | None = None) -> HostRun:
    """A prompt of 11 tokens, decoded until its second block is full, and finished before a step could store it."""
    run = outstanding_of(config or hosted())
    for token in range(2, 7):
        run.do(act.BeginStep())
        run.do(act.Allocate(0, 1))
        run.step("", act.Output(0, (token,)))
    run.do(act.Finish(0))
    return run


def outstanding_of(config: Config) -> HostRun:
    """A prompt computed to its end."""
    run = HostRun(config)
    run.send(0, TOKENS)
    run.compute_all(0)
    return run


def crowded() -> HostRun:
    """A host with three usable blocks and a step that could store four; then there is room again."""
    run = HostRun(hosted(Group(FULL, 4), offload=Offload(num_blocks=4), hash_block_size=None, dcp_size=1))
    run.send(0, (7, 7, 7, 7, 7, 7, 7, 7, 7))
    run.compute(0, 9)
    run.send(1, TOKENS)
    run.compute(1, 11)
    run.do(act.BeginStep())
    run.do(act.Allocate(0, 1))
    run.do(act.Allocate(1, 1))
    run.step("", act.Output(0, (1,)), act.Output(1, (1,)))
    run.copy_and_complete()
    run.do(act.Finish(0))
    run.quiet()
    run.do(act.Finish(1))
    return run


def stable() -> HostRun:
    """Full attention on two ranks beside a replicated stable state (M-GEO-1): blocks of 8 and of 4 tokens."""
    run = HostRun(hosted(Group(FULL, 4), Group(STABLE, 4), hash_block_size=4))
    run.send(0, 33)
    run.compute_all(0)
    run.do(act.Finish(0))
    return run


@pytest.mark.parametrize(
    ("law", "story", "fault"),
    [
        ("LV-5", decoded, "M-FLUSH-1"),
        ("LV-5", crowded, "M-CUR-1"),
        ("LV-5", stable, "M-GEO-1"),
        ("LV-6", outstanding, "M-TAIL-3"),
        ("LV-6", outstanding, "M-REG-1"),
    ],
    ids=["LV-5 M-FLUSH-1", "LV-5 M-CUR-1", "LV-5 M-GEO-1", "LV-6 M-TAIL-3", "LV-6 M-REG-1"],
)
def test_a_law_of_a_run_sees_its_fault(law: str, story: Callable[[], HostRun], fault: str) -> None:
    run = story()
    assert stories.run_law(law, run.world.config, run.actions) == []
    with planted(faults.by_id(fault)):
        assert stories.run_law(law, run.world.config, run.actions)


def test_lv_6_promises_nothing_to_who_was_disturbed() -> None:
    """A reset of the host, an evicted key, a host without room: the prompt is not judged."""
    undisturbed = outstanding()
    assert stories.run_law("LV-6", undisturbed.world.config, undisturbed.actions) == []
    emptied = reset()
    assert stories.run_law("LV-6", emptied.world.config, emptied.actions) is None
    evicted = outstanding_of(hosted())
    evicted.do(act.EvictBlocks((1,)))
    evicted.do(act.Finish(0))
    assert stories.run_law("LV-6", evicted.world.config, evicted.actions) is None
    small = outstanding_of(hosted(offload=Offload(num_blocks=2)))
    small.do(act.Finish(0))
    assert stories.run_law("LV-6", small.world.config, small.actions) is None


def test_lv_6_knows_coarse_hits() -> None:
    """Attention alone hits whole blocks: 8 of 11 tokens."""
    run = HostRun(hosted(Group(FULL, 4), hash_block_size=None))
    run.send(0, TOKENS)
    run.compute_all(0)
    run.do(act.Finish(0))
    assert stories.run_law("LV-6", run.world.config, run.actions) == []
    with planted(faults.by_id("M-REG-1")):
        assert stories.run_law("LV-6", run.world.config, run.actions)


def test_lv_5_and_lv_6_speak_of_eager_storing() -> None:
    run = HostRun(hosted(Group(FULL, 4), Group(MAMBA, 4), offload=Offload("lazy", num_blocks=16)))
    run.send(0, TOKENS)
    run.compute_all(0)
    run.do(act.Finish(0))
    assert [stories.run_law(law, run.world.config, run.actions) for law in ("LV-5", "LV-6")] == [None, None]


def test_draining_ends_where_nothing_goes_on() -> None:
    """A report that is lost every time changes nothing: the blocks stay pinned, and the law says so."""
    run = life()
    run.step()
    run.do(act.Finish(1))
    with planted(faults.by_id("M-PUB-126")):
        drained = drain.drain(run.world)
        assert ended("LV-2", drained)
