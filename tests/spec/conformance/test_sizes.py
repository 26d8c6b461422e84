"""Laws about sizes: judged on what an implementation derives from a configuration."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvproof.spec import faults, laws
from kvproof.spec.conformance import sizes
from kvproof.spec.conformance.adapter import Geometry, Unsupported
from kvproof.spec.conformance.oracle import Oracle, Verdict
from kvproof.spec.conformance.reference import ALL, ModelAdapter
from kvproof.spec.engines import scopes

WRONG = (
    ("M-GEO-2", "fa4-m4-n2", "TB-12"),
    ("M-GATE-1", "m4-m8-fa2-n2", "HB-11"),
    ("M-GATE-2", "fa4-m4", "HB-11"),
    ("M-GATE-3", "fa1-m2+1-w4-n4-draft1", "HB-11"),
    ("M-PUB-20", "fa4-m4+1", "TB-12"),
    ("M-GEO-3", "fa4-m4-n2", "DS-6"),
    ("M-CAP-4", "fa4r-m4-n2", "CA-1"),
    ("M-CAP-5", "fa4-m4-n2", "CA-2"),
)


def judged(adapter: ModelAdapter, scope: str) -> Oracle:
    config = scopes.by_name(scope).config()
    oracle = Oracle(laws.ALL, config, adapter.shows)
    oracle.configuration(adapter.geometry(config))
    return oracle


@pytest.mark.parametrize("scope", [scope.name for scope in scopes.ALL])
def test_the_sizes_of_the_model_are_right(scope: str) -> None:
    oracle = judged(ModelAdapter(), scope)
    assert [finding for finding in oracle.findings() if finding.violations] == []
    for law in ("DS-1", "HB-1", "HB-11", "TB-12", "CA-1", "CA-2"):
        assert oracle.finding(law).verdict is Verdict.HOLDS


@pytest.mark.parametrize(("fault", "scope", "law"), WRONG, ids=[f"{fault}-{law}" for fault, _, law in WRONG])
def test_wrong_sizes_are_found(fault: str, scope: str, law: str) -> None:
    assert judged(ModelAdapter(fault=faults.by_id(fault)), scope).finding(law).verdict is Verdict.REFUTED


def test_formulas_are_undetermined() -> None:
    oracle = judged(ModelAdapter(), "fa4-m4-n2")
    for law in ("DS-3", "DS-7"):
        assert (oracle.finding(law).verdict, oracle.finding(law).reason) == (Verdict.UNDETERMINED, sizes.FORMULAS)


def test_sizes_that_are_not_shown_or_not_asked_for_leave_their_laws_undetermined() -> None:
    config = scopes.by_name("fa4-m4-n2").config()
    oracle = Oracle(laws.ALL, config, ALL)
    assert "were not asked for" in oracle.finding("TB-12").reason
    oracle.configuration(Geometry(sizes=config.sizes))
    assert "row_capacity" in oracle.finding("TB-12").reason
    assert "fine_grained" in oracle.finding("HB-11").reason


def test_a_gate_can_be_followed() -> None:
    config = scopes.by_name("fa4-m4-n2").config()
    assert sizes.with_gate(config, Geometry()) is config
    assert sizes.with_gate(config, Geometry(fine_grained=config.fine_grained)) is config
    other = sizes.with_gate(config, Geometry(fine_grained=not config.fine_grained))
    alignment = config.scheduler_block_size if config.fine_grained else config.hash_block_size
    assert other == evolve(config, fine_grained=not config.fine_grained, alignment=alignment)


def test_a_configuration_that_an_implementation_refuses_is_unsupported() -> None:
    fault = faults.by_id("M-SCR-1")
    with pytest.raises(Unsupported):
        ModelAdapter(fault=fault).start(scopes.by_name(fault.scopes[0]).config())
