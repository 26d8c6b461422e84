"""Faults that are planted in the adapter alone: the shadow predicts with the sound model, and laws find them."""

from __future__ import annotations

import pytest

from kvproof.spec import faults
from kvproof.spec.conformance.reference import ModelAdapter
from tests.spec.conformance.following import walk

FOUND = (
    ("M-GEO-2", "fa4-m4-n2", 0),
    ("M-GEO-6", "fa4r-m4-n2", 0),
    ("M-GEO-5", "m4-m8-fa2-n2", 0),
    ("M-GATE-1", "fa2-m8-n2", 0),
    ("M-GATE-2", "fa4-m4", 0),
    ("M-GATE-3", "fa1-m2+1-w4-n4-draft1", 0),
    ("M-SLOT-3", "fa2-n4", 0),
    ("M-SLOT-4", "fa4-m4-n2-tight", 0),
    ("M-TBL-1", "m4-fa4", 0),
    ("M-CAP-1", "m4-fa4", 0),
    ("M-CAP-2", "fa4-m4-m4-n2", 0),
    ("M-COW-1", "fa8-m2-n2", 0),
    ("M-COW-2", "fa4-m2-n4", 0),
    ("M-COW-3", "fa4-m2-n4", 1),
    ("M-COW-4", "fa2-m8", 0),
    ("M-COW-5", "fa8-m2-n2", 0),
    ("M-COW-6", "fa2-m8", 0),
    ("M-COW-7", "fa1-m2-m4-n4", 0),
    ("M-COW-9", "fa8-m2-n2", 0),
    ("M-CACHE-1", "fa4-m2-n4", 1),
    ("M-CACHE-2", "fa2-m8", 0),
    ("M-PROMO-2", "fa4-m4-n2", 11),
    ("M-NULL-1", "fa4-m4-n2", 0),
    ("M-HIT-1", "fa2x6", 0),
    ("M-KEY-1", "fa4-m4", 0),
    ("M-PART-1", "fa4-m4-n2", 0),
    ("M-SCR-2", "fa4-x4-m4-n2", 0),
    ("M-HO-2", "fa4-m4", 0),
    ("M-LV-1", "fa4-m8-n2-roomy", 0),
    ("M-POOL-1", "fa8-m2", 0),
    ("M-POOL-2", "fa4", 0),
    ("M-POOL-3", "fa4-m2-n4", 0),
    ("M-EVICT-1", "fa2x6", 0),
    ("M-LRU-1", "fa8-m2", 0),
    ("M-ATOM-1", "fa2-m8", 0),
    ("M-HIT-2", "fa4-m4-m4-n2", 0),
    ("M-MAM-1", "fa4-m2-n4", 0),
    ("M-MAM-6", "fa4-st4", 0),
    ("M-TBL-2", "fa4-w4", 0),
    ("M-WIN-1", "w4-fa4-w8-eagle-async", 0),
    ("M-WIN-2", "fa4-w4-gate", 1),
    ("M-HIT-3", "fa8-m8-h2-eagle-ckpt", 0),
    ("M-CAP-3", "m4-fa4", 0),
    ("M-CAP-5", "fa4-m4-n2", 1),
    ("M-DIV-2", "fa4-m4-m4-n2", 0),
    ("M-SPEC-1", "fa4-m4+1", 0),
    ("M-MAM-3", "fa2-m2+3-draft3", 0),
    ("M-MAM-4", "fa4-m4+1", 0),
    ("M-CKPT-1", "fa8-m8-h2-eagle-ckpt", 0),
    ("M-INF-1", "fa1-m4+3-n4-async", 0),
    ("M-EVT-1", "fa4-m4-n2-events", 0),
    ("M-EVT-2", "fa4-m4-n2-events", 0),
    ("M-EVT-3", "fa4-m4-n2-events", 0),
    ("M-EVT-5", "fa8-m4-events", 0),
    ("M-CAP-6", "fa2x6", 1),
    ("M-EVT-4", "fa4-m4-n2-events", 0),
    ("M-DEF-1", "fa2-m4-st2-n4", 0),
    ("M-HIT-6", "fa4-w4-one", 0),
    ("M-DIV-4", "fa4-m4-w2-h2-eagle", 0),
    ("M-GEO-1", "fa4-m4-w4-n2-host", 0),
    ("M-HO-3", "many-n1-host", 0),
    ("M-HO-4", "fa4-m4-host", 0),
    ("M-META-1", "fa4-m4-n2-host", 0),
    ("M-META-2", "fa2-n4-host-tiny", 1),
    ("M-META-3", "fa4-m4-n2-host", 0),
    ("M-META-4", "fa4-m4-n2-host", 0),
    ("M-EARLY-1", "fa4-host", 0),
    ("M-LAZY-2", "fa1-m4-n4-lazy", 0),
    ("M-CNT-3", "fa4-host", 0),
    ("M-CNT-2", "fa4-m4-host", 1),
    ("M-FLUSH-2", "fa2-m4-n4-host", 1),
    ("M-LOAD-7", "fa4-m4-n2-host-tiny", 0),
    ("M-PIN-1", "fa4-host", 0),
    ("M-LEAK-2", "fa4-lazy", 0),
    ("M-ZERO-1", "fa4-m4-host", 0),
    ("M-CNT-4", "fa4-x4-m4-n2-host", 0),
    ("M-CNT-5", "fa2-n4-host-tiny", 0),
    ("M-PUB-1", "fa2-m4-n4", 0),
    ("M-PUB-4", "fa4-m4-n2-long", 0),
    ("M-PUB-8", "fa4-m4-n2-events", 0),
    ("M-PUB-20", "fa4-m4+1", 0),
    ("M-PUB-22", "fa4-x4-m4-n2", 0),
    ("M-PUB-28", "fa2-w2-n2-eagle", 0),
    ("M-PUB-33", "fa4-m4-n2", 0),
    ("M-PUB-36", "fa2-n4", 0),
    ("M-PUB-57", "fa4-m4-n2", 0),
    ("M-PUB-92", "fa2-n4-eagle-async", 1),
    ("M-PUB-166", "fa4", 0),
    ("M-PUB-170", "fa2x6", 0),
    ("M-PUB-69", "fa2-m2+1-draft1-host", 1),
    ("M-PUB-70", "fa4-w4-host", 0),
    ("M-PUB-110", "fa4-m4-host", 1),
    ("M-PUB-158", "fa4-m4-n2-host", 1),
    ("M-PUB-174", "fa4-m4-host", 0),
)
"""(fault, scope, number of the walk)."""


@pytest.mark.parametrize(("name", "scope", "number"), FOUND, ids=[f"{name}-{scope}" for name, scope, _ in FOUND])
def test_a_law_of_the_fault_refutes_the_adapter(name: str, scope: str, number: int) -> None:
    fault = faults.by_id(name)
    followed = walk(ModelAdapter(fault=fault), scope, f"{name}/{number}", 300, until=fault.laws)
    assert followed.refuted & set(fault.laws)


def test_the_faults_are_of_many_families() -> None:
    """At least 60 faults, host ones included, that break laws of nearly all families."""
    assert len(FOUND) >= 60
    broken = {law.partition("-")[0] for name, _, _ in FOUND for law in faults.by_id(name).laws}
    assert broken >= {"TB", "HB", "DS", "COW", "HO", "IP", "PC", "CP", "LD", "CA", "CC", "CN", "LV", "RQ", "EV"}


def test_the_shadow_is_sound_while_a_fault_is_planted() -> None:
    """The same walk without the fault differs nowhere: what refutes it is what the adapter shows."""
    fault = faults.by_id("M-COW-1")
    wrong = walk(ModelAdapter(fault=fault), "fa8-m2-n2", "M-COW-1/0", 300, until=fault.laws)
    assert wrong.differences
    right = walk(ModelAdapter(), "fa8-m2-n2", "M-COW-1/0", 300)
    assert right.differences == []
    assert right.refuted == set()
