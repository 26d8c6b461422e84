"""Laws on the geometry and the rows of a release: what real releases had wrong is found by generated configurations, and only that."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from attrs import evolve

from kvproof.core import config as configs
from kvproof.core import geometry
from kvproof.core.config import Config
from kvproof.spec import laws
from kvproof.spec.vllm import configurations, subjects
from kvproof.spec.vllm.asking import Subject
from kvproof.spec.vllm.configurations import Arguments
from kvproof.spec.vllm.headers import Inexpressible, header
from tests.spec.vllm.fake_release import FakeRelease

SEED = 3


def some(count: int = 14) -> list[Arguments]:
    """A few generated configurations, known ones among them."""
    return [*itertools.islice(configurations.known(quick=True), 0, None, 8), *configurations.generated(SEED, count)]


def judged(release: FakeRelease, *ids: str, count: int = 14) -> dict[str, subjects.Judged]:
    wanted = [law for law in laws.ALL if not ids or law.id in ids]
    return subjects.examined(release, wanted, some(count), SEED).laws


def test_a_release_that_answers_like_the_model_keeps_every_law_that_can_be_asked():
    found = judged(FakeRelease())
    assert {law: one.verdict for law, one in found.items() if one.verdict != "holds"} == {
        "DS-7": "undetermined",
        "DS-10": "undetermined",
    }
    assert set(found) == {"TB-11", "TB-12", "HB-1", "HB-11", "DS-1", "DS-2", "DS-3", "DS-4", "DS-6", "DS-7", "DS-10", "CA-2"}
    assert "has_context" in found["DS-10"].why
    assert found["TB-11"].bent


class EveryGroupScaled(FakeRelease):
    """The native connector multiplies every group's block by the ranks, as before the scaling was right."""

    def native(self, config: Config, blocks: int) -> dict[str, Any]:
        found = super().native(config, blocks)
        for one in found["groups"]:
            if not config.groups[one["group"]].sharded:
                for name in ("tokens_per_block", "tokens_per_chunk", "hashes_per_chunk"):
                    one[name] *= config.dcp_size
                one["keys"] = [[one["hashes_per_chunk"] * (chunk + 1) - 1, one["group"]] for chunk in range(4)]
                one["counts"] = [n // one["tokens_per_chunk"] for n in range(201)]
        return found


class NarrowRows(FakeRelease):
    """Recurrent groups' rows are as narrow as if they were sharded."""

    def capacity(self, config: Config) -> list[int]:
        return [
            geometry.ceil_div(width, config.dcp_size) if config.groups[g].kind == "mamba_align" else width
            for g, width in enumerate(config.row_capacity)
        ]


class NoGuard(FakeRelease):
    """An append goes on into the next row."""

    def write(self, widths: Any, counts: Any, flat: Any, row: int, blocks: Any) -> str:
        for g, ids in enumerate(blocks):
            self.put(widths[g], counts[g], flat[g], row, ids)
        return ""


class GateShut(FakeRelease):
    """Hits never end inside a block where there are several ranks."""

    def sizes(self, config: Config) -> dict[str, Any]:
        found = super().sizes(config)
        if config.dcp_size > 1:
            found |= {"fine_grained_hits": False, "alignment": config.scheduler_block_size}
        return found


class AnyConnector(FakeRelease):
    """One able connector is taken for all."""

    def divergent(self, config: Config) -> dict[str, Any]:
        return {"together": any(config.children)}


class LazySpan(FakeRelease):
    """The lazy tier counts tokens of one rank."""

    def lazy(self, config: Config) -> dict[str, Any]:
        return {"spans": [group.block_size for group in config.groups]}


class OtherRank(FakeRelease):
    """Runs are dealt to the ranks from the last one on."""

    def slots(self, config: Config) -> dict[str, Any]:
        return {"ranks": list(reversed(super().slots(config)["ranks"]))}


class RankZero(FakeRelease):
    """Every rank writes the positions of the first."""

    def slots(self, config: Config) -> dict[str, Any]:
        first, *_ = super().slots(config)["ranks"]
        return {"ranks": [first] * config.dcp_size}


class Shares(FakeRelease):
    """Tokens are divided evenly, whatever the interleave."""

    def lengths(self, config: Config) -> dict[str, Any]:
        return {"tokens": [[geometry.ceil_div(n, config.dcp_size)] * config.dcp_size for n in range(320)]}


class EveryHandoff(FakeRelease):
    """States are stored at every boundary."""

    def handoffs(self, config: Config, blocks: int) -> dict[str, Any]:
        found = super().handoffs(config, blocks)
        unit = config.hash_block_size
        for one in found["groups"]:
            one["stored"]["1"] = list(range(unit, one["limit"] + 1, unit))
        return found


class AnyUnit(FakeRelease):
    """A prefix match unit that divides no block is accepted."""

    def geometry(self, config: Any) -> Any:
        (part,) = config["parts"]
        unit = config["hash_block_size"]
        found = super().geometry({**config, "hash_block_size": None})
        return (
            {part: {**found[part], "hash_block_size": unit}}
            if part == "sizes" and unit and "refused" not in found[part]
            else found
        )


MUTANTS = [
    (EveryGroupScaled, {"DS-1", "DS-6"}),
    (NarrowRows, {"TB-12"}),
    (NoGuard, {"TB-11"}),
    (GateShut, {"HB-11"}),
    (AnyConnector, {"CA-2"}),
    (LazySpan, {"DS-1"}),
    (OtherRank, {"DS-2", "DS-3"}),
    (RankZero, {"DS-2", "DS-3"}),
    (Shares, {"DS-4"}),
    (EveryHandoff, {"DS-6"}),
    (AnyUnit, {"DS-6", "HB-1", "HB-11"}),
]


@pytest.mark.parametrize(("mutant", "expected"), MUTANTS, ids=[mutant.__name__ for mutant, _ in MUTANTS])
def test_what_a_release_has_wrong_breaks_its_law_and_no_other(mutant, expected):
    found = judged(mutant())
    broken = {law for law, one in found.items() if one.verdict == "refuted"}
    assert broken == expected
    for law in broken:
        one = found[law].found
        assert one is not None
        assert one.evidence.message


def test_the_smallest_configuration_is_kept():
    found = judged(NarrowRows(), "TB-12")["TB-12"].found
    assert found is not None
    (group,) = found.arguments.groups
    assert (group.kind, group.block_size) == ("mamba_align", 1)
    assert found.arguments.settings == {"dcp_size": 2, "max_model_len": 2}


def test_rows_are_shown_with_the_appends_that_lead_there():
    found = judged(NoGuard(), "TB-11")["TB-11"].found
    assert found is not None
    (append,) = found.actions
    values: dict[str, Any] = dict(found.evidence.values)
    assert append.row == 0
    assert any(have > most for have, most in zip(values["needed"], values["capacity"], strict=True))


def test_nothing_stays_rebound():
    before = (configs.configure, geometry.effective_block_size)
    judged(FakeRelease(), "DS-1", count=2)
    assert (configs.configure, geometry.effective_block_size) == before


def test_what_a_release_has_not_is_moot_and_said():
    release = FakeRelease()
    release.replicated = release.hands_over = release.splits = False
    found = judged(release)
    assert {one.verdict for law, one in found.items() if law not in ("DS-7", "DS-10")} == {"holds"}
    assert "handoffs" in found["DS-6"].moot
    assert "lazy of a replicated attention group" in found["DS-1"].moot
    assert not found["TB-11"].hidden


class NoRows(FakeRelease):
    """The rows cannot be asked for."""

    def rows(self, config: Any, appends: Any = ()) -> Any:
        if isinstance(config, Config):
            return {"refused": "TypeError: no such tables"}
        return super().rows(config, appends)


def test_rows_that_cannot_be_asked_for_leave_their_laws_undetermined():
    found = judged(NoRows())
    assert found["TB-12"].verdict == "undetermined"
    assert "no such tables" in found["TB-12"].why
    assert found["HB-1"].verdict == "holds"


class Refuses(FakeRelease):
    def sizes(self, config: Config) -> dict[str, Any]:
        return {"refused": "AssertionError: not with several ranks"} if config.dcp_size > 1 else super().sizes(config)


def test_configurations_that_a_release_refuses_are_skipped_and_counted():
    found = subjects.examined(Refuses(), [law for law in laws.ALL if law.id == "TB-12"], some(6), SEED)
    assert found.skipped["AssertionError: not with several ranks"]
    assert found.laws["TB-12"].verdict == "holds"
    assert found.configurations + sum(found.skipped.values()) == len(some(6))


def test_random_configurations_are_the_same_for_the_same_seed_and_all_legal():
    first, again = list(configurations.generated(5, 30)), list(configurations.generated(5, 30))
    assert first == again
    assert len({one.groups for one in first}) > 15
    assert first != list(configurations.generated(6, 30))
    for one in first:
        one.resolve()


def test_known_configurations_are_the_scopes_and_the_deployments():
    origins = {one.origin for one in configurations.known()}
    assert {"scope fa4-m4-n2", "deployment kimi-k3-tp8-dcp8"} <= origins
    for one in configurations.known(quick=True):
        assert max(group.block_size for group in one.resolve().groups) < 2 * configurations.LARGEST_BLOCK, one.origin


def test_minimising_keeps_what_fails_and_tries_no_more_than_it_may():
    wide = next(one for one in configurations.generated(5, 50) if len(one.groups) > 2)
    tried = []

    def fails(one: Arguments) -> bool:
        tried.append(one)
        return any(group.kind == "full_attention" for group in one.groups)

    start = evolve(wide, groups=(configs.Group("full_attention", 8), *wide.groups))
    smallest = configurations.minimised(start, fails, attempts=100)
    assert [group.kind for group in smallest.groups] == ["full_attention"]
    assert smallest.groups[0].block_size == 1
    assert len(tried) <= 100


def test_a_header_says_what_a_release_has_nothing_like():
    config = configs.configure((configs.Group("scratch", 4), configs.Group("full_attention", 4)))
    with pytest.raises(Inexpressible, match="scratch"):
        header(config, None)


def test_the_same_question_is_sent_once():
    asked = []

    class Counting(FakeRelease):
        def geometry(self, config: Any) -> Any:
            asked.append(config)
            return super().geometry(config)

    subject = Subject(Counting())
    groups = (configs.Group("full_attention", 4), configs.Group("mamba_align", 4))
    assert subject.with_rows(groups).row_capacity == subject.with_rows(groups).row_capacity
    assert len(asked) == 2
