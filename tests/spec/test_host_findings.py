"""Findings of the host tier in docs/findings: refuted or poorer under the release's value of their field, sound under ours."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core.config import SOUND, Config, Group, Offload, Profile, configure
from kvproof.core.offload import completion
from kvproof.spec import judge, laws
from kvproof.spec.engines import drain, twins
from kvproof.spec.judge import Judge
from tests.offloading import FULL, MAMBA, WINDOW, Hosted, hosted


def violated(config: Config, actions: list[act.Action]) -> set[str]:
    """Ids of the laws that a run breaks."""
    court = Judge(laws.ALL)
    found = []
    for position, moment in enumerate(twins.moments(config, actions)):
        assert moment.refusal is None or not judge.is_internal(moment.refusal)
        found += court.moment(moment, position)
    return {violation.law for violation in found}


def reported_config(profile: Profile) -> Config:
    """FA4, Mamba4, a window of 1 in blocks of 2, H=2, 8 device blocks."""
    return configure(
        (Group(FULL, 4), Group(MAMBA, 4), Group(WINDOW, 2, window=1)),
        hash_block_size=2,
        num_blocks=8,
        offload=Offload(num_blocks=20),
        events=True,
        profile=profile,
    )


def reported_actions(config: Config) -> list[act.Action]:
    """A prompt of 7 in chunks to 4, 6 and 7."""
    run: list[act.Action] = [act.Submit(0, tuple(range(1, 8)))]
    for chunk in (4, 2, 1):
        run += [act.BeginStep(), *((act.Lookup(0),) if chunk == 4 else ()), act.Allocate(0, chunk)]
        run += [act.Drain(), act.BuildMetadata(), act.Dispatch(), *(act.Execute(part) for part in config.parts)]
        run += [act.Output(0, (9,) if chunk == 1 else ())]
    return run


def test_a_running_state_is_stored_under_the_index_of_a_window() -> None:
    """Finding reported-ids: the release stores block 3, the state its request goes on from, and loses its key."""
    upstream = reported_config(evolve(SOUND, positional_ids="accumulated"))
    actions = reported_actions(upstream)
    assert {"HO-8", "HO-10", "HO-11"} <= violated(upstream, actions)
    assert violated(reported_config(SOUND), actions) == set()
    last = list(twins.moments(upstream, actions))[-1].after
    assert last.host is not None
    (store,) = (store for store in last.host.stores if 3 in store.device)
    assert completion.keys_now(last.pool, 3) == ()
    assert store.device == (1, 3, 4)


def test_what_is_stored_anew_is_not_pinned_for_ever() -> None:
    """Finding lazy-churn: LV-2 asks that what was pinned is released, not that nothing is stored any more."""
    driver = Hosted(hosted(Group(FULL, 4), offload=Offload(mode="lazy", num_blocks=7), num_blocks=12, max_chunk=8))
    driver.submit(0, 40)
    for _ in range(5):
        driver.chunk(0, 8)
    before = driver.world
    driver.do(act.Finish(0))
    running = driver.empty_step()
    assert running.store_device
    (law,) = (law for law in laws.ALL if law.id == "LV-2")
    assert law.check_end is not None
    assert law.check_end(drain.Drained(before, driver.world)) == []
    left = law.check_end(drain.Drained(driver.world, driver.world))
    assert left is not None
    assert [dict(evidence.values)["blocks"] for evidence in left] == [sorted(running.store_device), sorted(running.store_host)]


@pytest.mark.parametrize(
    ("groups", "settings", "prompt", "chunks", "release", "sound"),
    [
        ((Group(FULL, 16), Group(MAMBA, 16)), {"dcp_size": 4}, 50, (48, 2), 48, 48),
        ((Group(FULL, 16), Group(MAMBA, 16)), {"dcp_size": 4}, 48, (32, 16), 0, 32),
        ((Group(FULL, 64), Group(FULL, 128), Group(MAMBA, 64)), {"hash_block_size": 16}, 50, (48, 2), 0, 48),
    ],
)
def test_external_hits_of_a_resend(
    groups: tuple[Group, ...], settings: dict[str, Any], prompt: int, chunks: tuple[int, int], release: int, sound: int
) -> None:
    """Finding finish-tail: what an identical resend gets from the host (LV-6)."""
    upstream = evolve(SOUND, finish_tail="prompt", finish_tail_groups="first")
    for profile, expected in ((upstream, release), (SOUND, sound)):
        driver = Hosted(hosted(*groups, profile=profile, **settings))
        driver.submit(0, prompt)
        for chunk in chunks:
            driver.chunk(0, chunk)
        driver.do(act.Finish(0))
        driver.empty_step()
        for event in range(driver.host.next_store):
            driver.complete(event)
        driver.wipe()
        driver.submit(1, prompt)
        driver.do(act.BeginStep())
        assert driver.do(act.Lookup(1)).local == 0
        assert driver.do(act.LookupExternal(1, 0)).external == expected
