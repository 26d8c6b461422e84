"""Local and external tokens of an admission: tails, divergent hits and truncated lists (T14, T15)."""

from __future__ import annotations

import pytest

from kvproof.core import actions as act
from kvproof.core import lookup
from kvproof.core.config import Group, configure
from kvproof.core.errors import ContractBroken, ShortExternal
from kvproof.core.step import refusal
from tests.driving import Driver


def tail_of_4() -> Driver:
    """FA4 (E=8) and Mamba4 on two ranks, S=8, H=4: request 1 shares 12 tokens with a finished one and was looked up."""
    groups = (Group("full_attention", 4), Group("mamba_align", 4))
    driver = Driver(configure(groups, dcp_size=2, num_blocks=24, max_model_len=64, connectors=(False,)))
    driver.submit(0, 14)
    for amount in (12, 2):
        driver.chunk(0, amount)
    driver.do(act.Finish(0))
    driver.submit(1, (*range(1, 13), *range(50, 62)))
    driver.do(act.BeginStep(), act.Lookup(1))
    return driver


@pytest.mark.parametrize(("external", "refused"), [(4, True), (8, False), (12, False)])
def test_external_tokens_replace_a_tail_only_if_they_reach_further(external: int, refused: bool) -> None:
    """T14.3 (CA-7): the local hit of 12 is 8 and a tail of 4; as many external tokens are a pointless load."""
    driver = tail_of_4()
    assert driver.records[-1].local == 12
    found = refusal(driver.world, act.Allocate(1, 4, 8, external))
    assert isinstance(found, ShortExternal) is refused
    if not refused:
        assert found is None
        driver.do(act.Allocate(1, 4, 8, external))
        assert driver.world.plan.scheduled[0].loaded_from == 8


def test_a_tail_gives_way_to_more_tokens_only() -> None:
    """T14.3, strictly."""
    assert [lookup.replaces_tail(tail, 4) for tail in (3, 4, 5)] == [True, False, False]


def diverged() -> Driver:
    """G5 at a scale of 4: attention is keyed to 8, the only state left is that at 4; the connectors are capable."""
    groups = (Group("full_attention", 4), Group("mamba_align", 4))
    driver = Driver(configure(groups, num_blocks=24, max_model_len=64, max_chunk=4, connectors=(True,)))
    driver.submit(0, 14)
    for _ in range(3):
        driver.chunk(0, 4)
    driver.do(act.Finish(0))
    driver.do(act.EvictBlocks((driver.keys(1)[8][0], *(driver.keys(group)[12][0] for group in (0, 1)))))
    driver.submit(1, 14)
    driver.do(act.BeginStep(), act.Lookup(1))
    return driver


def test_a_divergent_hit_is_looked_up_anew_without_external_tokens() -> None:
    """T14.4: the joint hit and its junction take the place of the divergent one."""
    driver = diverged()
    deep = driver.records[-1]
    assert (deep.local, deep.junction, deep.diverged) == (8, 0, True)
    assert (driver.request(1).junction, [len(blocks) for blocks in deep.lists]) == (0, [2, 1])
    joint = driver.do(act.Lookup(1, common=True))
    assert (joint.local, joint.junction, joint.diverged) == (4, 8, False)
    assert (driver.request(1).junction, [len(blocks) for blocks in joint.lists]) == (8, [1, 1])
    assert driver.do(act.Allocate(1, 4, 4)).admitted
    driver.close()
    assert driver.request(1).computed == 8


def test_the_joint_lookup_of_connectors_that_cannot_diverge_is_the_lookup() -> None:
    """T13, T14.4."""
    driver = tail_of_4()
    found = driver.records[-1]
    assert driver.do(act.Lookup(1, common=True)) == found


def test_a_request_that_opts_out_hits_nothing_in_either_lookup() -> None:
    """T11."""
    driver = diverged()
    driver.close()
    driver.do(act.Submit(2, tuple(range(1, 15)), skip_reading=True), act.BeginStep())
    for common in (False, True):
        found = driver.do(act.Lookup(2, common))
        assert (found.local, found.lists, found.diverged) == (0, ((), ()), False)


def test_lists_are_cut_at_block_edges_only() -> None:
    """T15: `E | n` of every group but scratch ones."""
    config = configure((Group("full_attention", 4), Group("mamba_align", 8), Group("scratch", 16)), num_blocks=8)
    lists = ((1, 2, 3), (0, 4), ())
    assert lookup.truncate(config, lists, 8) == ((1, 2), (0,), ())
    with pytest.raises(ContractBroken, match="cut to 6 tokens, inside a block of 4 of group 0"):
        lookup.truncate(config, lists, 6)
    with pytest.raises(ContractBroken, match="cut to 12 tokens, inside a block of 8 of group 1"):
        lookup.truncate(config, lists, 12)
