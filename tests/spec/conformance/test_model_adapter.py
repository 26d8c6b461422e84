"""The model as an adapter that shows everything: the shadow rebuilds its worlds exactly, and laws say what they say of them."""

from __future__ import annotations

from collections import Counter

import pytest

from kvproof.core.world import new_world
from kvproof.spec import laws
from kvproof.spec.conformance.adapter import Adapter, HasGeometry, Shows
from kvproof.spec.conformance.oracle import Verdict
from kvproof.spec.conformance.reference import (
    ALL,
    Arrange,
    ModelAdapter,
    highest_first,
    last_freed_first,
    showing_all_but,
)
from kvproof.spec.engines import scopes
from kvproof.spec.judge import Judge, attempt
from tests.spec.conformance.following import walk

DIVERSE = (
    "fa4",
    "m4-m8-fa2-n2",
    "fa2x6",
    "fa1-m3-n8",
    "fa4-m4-n2-events",
    "fa1-m2+1-w4-n4-draft1",
    "c2-fa4-m4-h2-eagle-ahead",
    "fa4-x4-m4+2-draft2-ahead",
    "fa8-m8-h2-eagle-ckpt",
    "fa2-n4-eagle-async",
    "fa4-ahead-defer",
    "fa4-m4-n2-host",
    "fa4-m8-n2-lazy",
    "fa4-host-missing",
    "fa4-m4+1-n2-ahead-host",
)


def test_it_is_an_adapter() -> None:
    assert isinstance(ModelAdapter(), Adapter)
    assert isinstance(ModelAdapter(), HasGeometry)


@pytest.mark.parametrize("scope", DIVERSE)
def test_nothing_differs_and_laws_find_what_they_find_in_the_model(scope: str) -> None:
    followed = walk(showing_all_but(Shows.GEOMETRY), scope, "same", 300)  # sizes are judged in test_sizes
    assert followed.differences == []
    judge, world = Judge(laws.ALL), new_world(followed.config)
    found = []
    for position, action in enumerate(followed.actions):
        moment = attempt(world, action)
        found += judge.moment(moment, position)
        world = moment.after
    assert followed.violations == found
    assert followed.oracle.shadow.world == world
    judged = Counter({finding.law.id: finding.judged for finding in followed.oracle.findings()})
    assert +judged == judge.premises
    assert not any(finding.hidden for finding in followed.oracle.findings())


@pytest.mark.parametrize("scope", DIVERSE)
def test_it_passes_the_very_same_worlds_on_where_nothing_changed(scope: str) -> None:
    followed = walk(ModelAdapter(), scope, "identity", 80)
    for seen, later in zip(followed.seen, followed.seen[1:], strict=False):
        assert later.moment.before is seen.moment.after
        if seen.moment.refusal is not None and seen.moment.refusal.world is None:
            assert seen.moment.after is seen.moment.before


@pytest.mark.parametrize("null_block", [0, 1, 7, 1000])
@pytest.mark.parametrize("scope", ["m4-fa4", "fa4-m4-n2-events", "fa2-n4-host-tiny", "fa4-c4-lazy", "fa4-ahead-host-hold"])
def test_other_block_ids_are_no_difference(scope: str, null_block: int) -> None:
    followed = walk(ModelAdapter(null_block=null_block), scope, "ids", 300)
    assert followed.differences == []
    assert followed.refuted == set()


@pytest.mark.parametrize("scope", ["fa4", "fa8-m2-n2", "fa4-m4-w4-n2", "fa4-m4-n2-host"])
def test_a_free_queue_may_begin_in_any_order(scope: str) -> None:
    followed = walk(ModelAdapter(reversed_at_start=True), scope, "reversed", 300)
    assert followed.differences == []
    assert followed.refuted == set()


@pytest.mark.parametrize("arrange", [last_freed_first, highest_first])
@pytest.mark.parametrize("scope", [*DIVERSE, "fa4-lazy", "fa2-w4-n2-lazy"])
def test_eviction_order_is_no_fault_where_no_order_is_declared(scope: str, arrange: Arrange) -> None:
    adapter = showing_all_but(Shows.FREE_QUEUE, arrange=arrange, null_block=5)
    followed = walk(adapter, scope, "policy", 300)
    assert {what for _, what in followed.differences} <= {"host cursor"}  # where a lazy walk stands is the order, too
    assert followed.refuted == set()


def test_a_declared_order_is_judged() -> None:
    followed = walk(ModelAdapter(arrange=last_freed_first), "fa4", "policy", 300)
    assert followed.refuted & {"EV-1", "PC-8", "PC-12"}


def test_every_law_with_moments_holds_somewhere() -> None:
    """No law of a fully shown run is undetermined for another reason than that its premise was never true."""
    held: set[str] = set()
    for scope in DIVERSE:
        followed = walk(ModelAdapter(), scope, "held", 250)
        held |= followed.with_verdict(Verdict.HOLDS)
        assert followed.refuted == set()
        for finding in followed.oracle.findings():
            if finding.verdict is Verdict.UNDETERMINED and finding.law.check is not None:
                assert finding.reason == "its premise was never true"
    assert len(held) > 90


def test_all_capabilities_are_shown() -> None:
    assert frozenset(Shows) == ALL
    adapter = ModelAdapter()
    adapter.start(scopes.by_name("fa4-m4-n2-host").config())
