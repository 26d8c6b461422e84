"""What becomes of handoffs: every answer of T24 and T25, and the counters that tell of it (HO-5)."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core.config import Group, Offload
from kvproof.core.offload import admission, handoffs
from kvproof.core.offload.counters import FIELDS
from tests.offloading import FULL, MAMBA, Hosted, hosted, outcomes, pairs


def drained(offered: tuple[tuple[int, int, int, int], ...], host_blocks: int = 20, events: bool = False) -> Hosted:
    """A world with a state of request 0 in block 2, in which these handoffs wait for the metadata of the open step."""
    offload = Offload(num_blocks=host_blocks)
    driver = Hosted(hosted(Group(FULL, 16), Group(MAMBA, 16), offload=offload, events=events))
    driver.submit(0, 33)
    driver.do(act.BeginStep(), act.Lookup(0), act.Allocate(0, 16), act.Drain())
    assert driver.tables(0) == [[1], [2]]
    driver.world = evolve(driver.world, plan=evolve(driver.world.plan, drained=offered))
    return driver


def test_every_answer_about_a_block() -> None:
    """Null, without a key, stored, already being stored: the first answer that applies, and one counter each (T25)."""
    driver = drained(tuple((0, 1, block, 16) for block in (0, 5, 2, 2)))
    built = driver.do(act.BuildMetadata())
    assert outcomes(built) == [
        (0, 16, "dropped_null_block"),
        (5, 16, "dropped_not_hashed"),
        (2, 16, "stored"),
        (2, 16, "skipped_in_flight"),
    ]
    assert pairs(built) == [(2, 1)]
    assert driver.host.in_flight == (2,)
    assert driver.counted(published=4, dropped_null_block=1, dropped_not_hashed=1, stored=1, skipped_in_flight=1)


def test_a_state_that_the_host_has() -> None:
    """Computed again after the device forgot it, a state is handed off again and not stored again (T25)."""
    driver = Hosted(hosted(Group(FULL, 16), Group(MAMBA, 16)))
    for request in (0, 1):
        driver.submit(request, 33)
    assert outcomes(driver.chunk(0, 16)) == [(2, 16, "stored")]
    driver.do(act.Finish(0))
    driver.empty_step()
    driver.complete(0)
    driver.complete(1)
    driver.wipe()
    again = outcomes(driver.chunk(1, 16))
    assert [entry[1:] for entry in again] == [(16, "skipped_already_cached")]
    assert driver.counted(published=2, stored=1, skipped_already_cached=1)


def test_handoffs_are_decided_request_by_request() -> None:
    """They are published group by group; the store side sees all of a request's together (T23, T24)."""
    offered = ((0, 1, 2, 16), (1, 1, 3, 16), (0, 2, 4, 16), (1, 2, 5, 16), (2, 2, 6, 16))
    assert [entry[2] for entry in handoffs.by_request(offered)] == [2, 4, 3, 5, 6]


def test_a_full_host_is_noticed_once() -> None:
    """Two handoffs find no room: both are counted, one notice is given (CN-6)."""
    offered = ((0, 1, 2, 16), (0, 1, 1, 16), (0, 1, 1, 16))
    driver = drained(offered, host_blocks=2)
    built = driver.do(act.BuildMetadata())
    assert [entry[2] for entry in outcomes(built)] == ["stored", "dropped_cpu_full", "dropped_cpu_full"]
    assert built.notices == ("dropped_cpu_full",)
    driver.do(act.Dispatch())
    driver.execute()
    driver.output()
    assert outcomes(again := driver.chunk(0, 16))[0][2] == "dropped_cpu_full"
    assert again.notices == ()


def test_a_stored_handoff_gives_no_notice() -> None:
    """Only a handoff that finds no room is noticed (CN-6)."""
    built = drained(((0, 1, 2, 16),), host_blocks=2).do(act.BuildMetadata())
    assert [entry[2] for entry in outcomes(built)] == ["stored"]
    assert built.notices == ()


@pytest.mark.parametrize("between", [True, False])
def test_handoffs_of_a_preempted_request_vanish(between: bool) -> None:
    """What was published and not drained goes with the request, in the plan or between plans (T23, T31)."""
    driver = Hosted(hosted(Group(FULL, 16), Group(MAMBA, 16)))
    driver.submit(0, 33)
    driver.do(act.BeginStep(), act.Lookup(0), act.Allocate(0, 16))
    if between:
        driver.close()
        driver.do(act.Preempt(0), act.BeginStep())
    else:
        driver.close()
        driver.do(act.BeginStep(), act.Preempt(0))
    driver.do(act.Drain())
    assert driver.do(act.BuildMetadata()).outcomes == ()


@pytest.mark.parametrize(("host_blocks", "stored"), [(20, 4), (3, 2)])
def test_handoffs_are_consumed_request_by_request(host_blocks: int, stored: int) -> None:
    """T23, T24: published group by group, decided request by request; where the host is full the second one loses its states."""
    offload = Offload(num_blocks=host_blocks)
    driver = Hosted(hosted(Group(FULL, 16), Group(MAMBA, 16), Group(MAMBA, 16, speculative_blocks=1), offload=offload))
    driver.submit(0, 33)
    driver.submit(1, tuple(range(100, 133)))
    driver.do(act.BeginStep(), act.Lookup(0), act.Allocate(0, 16), act.Lookup(1), act.Allocate(1, 16))
    published = driver.do(act.Drain()).handoffs
    assert [(request, group) for request, group, _, _ in published] == [(0, 1), (1, 1), (0, 2), (1, 2)]
    decided = driver.do(act.BuildMetadata()).outcomes
    assert [(request, group) for request, group, _, _, _ in decided] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert [outcome for *_, outcome in decided] == ["stored"] * stored + ["dropped_cpu_full"] * (4 - stored)


def test_handoffs_and_positional_blocks_share_an_event() -> None:
    """Handoffs first, then the scan: one event, linked to the request once (T0(6), T24)."""
    driver = Hosted(hosted(Group(FULL, 16), Group(MAMBA, 16)))
    driver.submit(0, 48)
    driver.chunk(0, 16)
    second = driver.chunk(0, 16)
    assert second.store_device == (4, 1)
    assert driver.host.tracks[0].events == (0, 1)
    assert second.store_event == 1


def test_every_handoff_has_an_empty_entry() -> None:
    """With events, handoffs are described without payload, in the place of their block (IP-1, IP-4)."""
    driver = drained(((0, 1, 5, 16), (0, 1, 2, 16)), events=True)
    assert driver.do(act.BuildMetadata()).store_meta == ((),)


def test_what_is_on_its_way_is_not_called_cached() -> None:
    """T25: the first answer that applies, for a block of which a store runs and whose key the host has from another one."""
    driver = Hosted(hosted(Group(FULL, 16), Group(MAMBA, 16)))
    driver.submit(0, 33)
    driver.chunk(0, 16)
    driver.complete(0)
    pools = (driver.world.pool, driver.host.pool)
    assert admission.classify(*pools, (), 2) == "skipped_already_cached"
    assert admission.classify(*pools, (2,), 2) == "skipped_in_flight"


def test_answers_are_names_of_counters() -> None:
    """What T24 and T25 say is what the counters count (HO-5)."""
    answers = {name for name in admission.Admission.__args__ if name != admission.READY}  # type: ignore[attr-defined]
    assert answers | {handoffs.STORED, handoffs.GONE, handoffs.FULL, "published"} == set(FIELDS)
