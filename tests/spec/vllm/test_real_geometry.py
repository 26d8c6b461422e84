"""Geometry and rows of real releases: each pair of neighbours is told apart by the law that the change between them restored."""

from __future__ import annotations

import itertools

import pytest

from kvproof.core import config as configs
from kvproof.spec import laws
from kvproof.spec.vllm import configurations, releases, subjects
from kvproof.spec.vllm.headers import header
from kvproof.spec.vllm.process import ReleaseProcess

pytestmark = pytest.mark.vllm

SEED, RANDOM = 1, 12
NEWEST = "0.33.0"
ASKED = ("TB-11", "TB-12", "HB-1", "HB-11", "DS-1", "DS-2", "DS-3", "DS-4", "DS-6", "CA-2")


@pytest.fixture(scope="module")
def results():
    """Version -> what was found, each release asked once."""
    known: dict[str, subjects.Result] = {}

    def ask(version: str) -> subjects.Result:
        if version not in known:
            wanted = [law for law in laws.ALL if law.id in ASKED]
            with ReleaseProcess(releases.find(version)) as process:
                stride = 1 if version == NEWEST else 3
                asked = itertools.islice(configurations.everything(SEED, RANDOM, quick=True), 0, None, stride)
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
    assert found.configurations > 10


def test_every_law_that_is_asked_holds_on_the_newest(results):
    found = results(NEWEST)
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


PAIR = (configs.Group("full_attention", 16), configs.Group("mamba_align", 32))


def test_an_overlong_append_goes_into_the_next_row_of_an_old_release_and_is_refused_by_a_new_one():
    config = configs.configure(PAIR, dcp_size=2, max_model_len=256, max_running=2)
    asked = {**header(config, 8), "max_running": 2}
    nine = list(range(1, 10))
    appends = [[0, [nine, []]], [1, [[20], [21]]], [1, [nine, []]]]
    with ReleaseProcess(releases.find("0.28.0")) as old:
        assert old.geometry({**asked, "parts": ["rows"]})["rows"] == {"capacity": [8, 4]}
        first, second, third = old.rows(asked, appends)
    assert first["counts"][0] == [9, 0]
    assert first["rows"][0][0] == nine
    assert second["rows"][0] == [[*nine[:8], 20], [20]], "the other request's block took the place of the ninth"
    assert third["outside"] == [[0, 16, 8], [0, 17, 9]], "the last row has no next one: past the table's memory"
    with ReleaseProcess(releases.find(NEWEST)) as new:
        assert new.geometry({**asked, "parts": ["rows"]})["rows"] == {"capacity": [8, 8]}
        first, second, third = new.rows(asked, appends)
    assert "exceeds row capacity (9 > 8)" in first["error"]
    assert first["counts"] == [[0, 0], [0, 0]]
    assert "error" not in second
    assert "exceeds row capacity (10 > 8)" in third["error"]
    assert third["rows"] == second["rows"]


def test_the_sizes_of_a_configuration_are_those_of_the_release():
    config = configs.configure(PAIR, dcp_size=2, hash_block_size=8, max_model_len=256)
    asked = {**header(config, 8), "parts": ["sizes", "native1", "lengths", "slots"]}
    with ReleaseProcess(releases.find("0.26.0")) as old:
        found = old.geometry(asked)
    assert found["sizes"]["group_block_sizes"] == [32, 32]
    assert [one["tokens_per_block"] for one in found["native1"]["groups"]] == [32, 64]
    assert found["lengths"]["tokens"][5] == [3, 2]
    assert [rank[0][:4] for rank in found["slots"]["ranks"]] == [[16, -1, 17, -1], [-1, 16, -1, 17]]
