"""Geometry and rows of real releases: each pair of neighbours is told apart by the law that the change between them restored."""

from __future__ import annotations

import pytest

from kvproof.spec import laws
from kvproof.spec.vllm import configurations, releases, subjects
from kvproof.spec.vllm.process import ReleaseProcess

pytestmark = pytest.mark.vllm

SEED, RANDOM = 1, 12
ASKED = ("TB-11", "TB-12", "HB-1", "HB-11", "DS-1", "DS-2", "DS-3", "DS-4", "DS-6", "CA-2")


@pytest.fixture(scope="module")
def results():
    """Version -> what was found, each release asked once."""
    known: dict[str, subjects.Result] = {}

    def ask(version: str) -> subjects.Result:
        if version not in known:
            wanted = [law for law in laws.ALL if law.id in ASKED]
            with ReleaseProcess(releases.find(version)) as process:
                asked = configurations.everything(SEED, RANDOM, quick=True)
                known[version] = subjects.examined(process, wanted, asked, SEED)
        return known[version]

    return ask


@pytest.mark.parametrize(
    ("version", "refuted", "not_refuted"),
    [
        ("0.26.0", {"DS-1", "DS-6", "TB-11", "TB-12", "HB-11"}, {"DS-2", "DS-3", "DS-4"}),
        ("0.27.0", {"TB-11", "TB-12", "HB-11"}, {"DS-1", "DS-6"}),
        ("0.28.0", {"TB-11", "TB-12", "HB-11"}, {"DS-1", "DS-6", "CA-2"}),
        ("0.29.0", set(), {"TB-11", "TB-12", "HB-11", "DS-1", "DS-6", "CA-2"}),
        ("0.33.0", set(), set(ASKED)),
    ],
)
def test_a_release_breaks_the_laws_of_sizes_and_rows_that_it_did_not_keep_yet(results, version, refuted, not_refuted):
    found = results(version)
    broken = {law for law, one in found.laws.items() if one.verdict == "refuted"}
    assert refuted <= broken
    assert not (not_refuted & broken), {law: found.laws[law].found for law in not_refuted & broken}
    assert found.configurations > 40


def test_every_law_that_is_asked_holds_on_the_newest(results):
    found = results("0.33.0")
    assert {law: one.verdict for law, one in found.laws.items()} == dict.fromkeys(ASKED, "holds")
    assert found.laws["TB-11"].bent


def test_counterexamples_are_small_and_generated(results):
    scaled = results("0.26.0").laws["DS-6"].found
    assert scaled is not None
    assert len(scaled.arguments.groups) <= 2
    assert scaled.arguments.settings["dcp_size"] == 2
    overlong = results("0.28.0").laws["TB-11"].found
    assert overlong is not None
    assert len(overlong.actions) == 1
