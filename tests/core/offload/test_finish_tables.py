"""What connectors are given at the end of a request (T32.2, T32.3)."""

from __future__ import annotations

from typing import Any

import pytest

from kvproof.core import actions as act
from kvproof.core.config import SOUND, VLLM_0_33_0, Group, Offload, Profile, configure
from tests.driving import Driver
from tests.offloading import FULL, MAMBA, WINDOW, Hosted, hosted


def finished(*groups: Group, lookahead: int = 0, **settings: Any) -> tuple[tuple[int, ...], ...]:
    """The tables offered by a request that finishes with 10 tokens computed."""
    driver = Hosted(hosted(*groups, **settings))
    driver.submit(0, 10)
    driver.chunk(0, 8)
    driver.do(act.BeginStep(), act.Allocate(0, 2, lookahead=lookahead))
    driver.close()
    offered = driver.do(act.Finish(0)).offered
    assert offered is not None
    return offered


@pytest.mark.parametrize(("profile", "entries"), [(SOUND, 2), (VLLM_0_33_0, 3)])
def test_attention_tables_are_cut_where_the_tokens_end(profile: Profile, entries: int) -> None:
    """C-66: N=2, E=8, lookahead to 24 tokens: 10 computed tokens are 2 entries; in blocks of one rank they are 3."""
    (table,) = finished(Group(FULL, 4), lookahead=14, dcp_size=2, profile=profile)
    assert table == (1, 2, 3)[:entries]


def test_other_tables_are_offered_whole() -> None:
    """T32.3: the state of the computed tokens stands in the running column, wherever that is."""
    offered = finished(Group(FULL, 4), Group(MAMBA, 8, speculative_blocks=1), lookahead=6)
    assert [len(table) for table in offered] == [3, 3]


def test_windows_are_nulled_before() -> None:
    """T32.2: W=5, 10 tokens computed: positions 6 to 9 are read again, the entry of 0..3 is not."""
    assert finished(Group(FULL, 4), Group(WINDOW, 4, window=5))[1][0] == 0


def test_a_step_in_flight_keeps_its_window() -> None:
    """C-46: an abort nulls only what no step in flight reads: 4 of 10 tokens are processed."""
    offload = Offload(num_blocks=20)
    driver = Hosted(hosted(Group(FULL, 4), Group(WINDOW, 4, window=5), offload=offload))
    driver.submit(0, 10)
    driver.chunk(0, 4)
    driver.do(act.BeginStep(), act.Allocate(0, 6))
    driver.dispatch()
    offered = driver.do(act.Finish(0)).offered
    assert offered is not None
    assert 0 not in offered[1]


def test_without_connectors_nothing_is_offered() -> None:
    """T32: tables are given to connectors only."""
    driver = Driver(configure((Group(FULL, 4),)))
    driver.submit(0, 10)
    driver.chunk(0, 10)
    assert driver.do(act.Finish(0)).offered is None
    driver = Driver(configure((Group(FULL, 4),), connectors=(True,)))
    driver.submit(0, 10)
    driver.chunk(0, 10)
    assert driver.do(act.Finish(0)).offered == ((1, 2, 3),)
