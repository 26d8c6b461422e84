"""Sound caches that decide otherwise than the model: laws of soundness say nothing against them, others say what they mean."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from attrs import evolve

from examples.adapter import PagedCacheAdapter
from examples.paged_cache import NULL, BlockPool, Hit, PagedCache, Request
from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.spec import laws
from kvproof.spec.conformance import api, reports
from kvproof.spec.conformance.adapter import Observation, PoolState, State
from tests.sampling import each

MARKS = {law.id: law.mark for law in laws.ALL}


class _LastFreedFirst(BlockPool):
    def release(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            if block != NULL:
                self.refs[block] -= 1
                if not self.refs[block]:
                    self.free.appendleft(block)


class LastFreedFirst(PagedCache):
    """Reuses the block that was freed last."""

    pool_type = _LastFreedFirst


class FullBlocksOnly(PagedCache):
    """Takes whole blocks from the cache and nothing of the next one."""

    def match(self, request: Request, group: int, limit: int) -> tuple[int, list[int]]:
        length, blocks = super().match(request, group, limit)
        span = self.layouts[group].span
        return length - length % span, blocks[: length // span]


class NeverShares(PagedCache):
    """Finds nothing in its cache, whatever there is."""

    def lookup(self, name: int) -> Hit:
        super().lookup(name)
        hit = Hit(0, [[] for _ in self.layouts], 0)
        self.hit = (name, hit)
        return hit


class HalfOfIt(PagedCache):
    """Uses the cache for the first half of a prompt only."""

    def limit(self, request: Request) -> int:
        return (len(request.tokens) - 1) // 2


class ForgetsTheFinished(PagedCache):
    """The keys of a request go with it."""

    def finish(self, name: int) -> None:
        tables = self.requests[name].tables
        own = [block for table in tables for block in table if block != NULL and self.pool.refs[block] == 1]
        super().finish(name)
        for block in own:
            self.pool.forget(block)


class RegistersNothing(PagedCache):
    """Has a cache in name only."""

    def register(self, request: Request, group: int, start: int) -> None:
        pass


POLICIES = (LastFreedFirst, FullBlocksOnly, NeverShares, HalfOfIt, ForgetsTheFinished, RegistersNothing)
SCOPES = ("fa4", "fa4-m4-n2", "fa4-m4-n2-tight", "fa4-m2-n4")


@pytest.mark.parametrize("policy", each(2, POLICIES, lambda policy: policy.__name__))
def test_a_policy_of_its_own_breaks_no_law_of_soundness(policy: type[PagedCache]) -> None:
    report = api.check_all_laws(PagedCacheAdapter(policy), scopes=SCOPES, walks=3, steps=200, isolation=False)
    assert [(law.law, law.why) for law in report.refuted if MARKS[law.law] == "S"] == []
    assert not report.problems
    assert len([law for law in report if law.verdict is api.Verdict.HOLDS]) >= 25
    for law in report.refuted:
        assert "policy" in "\n".join(reports.law_lines(law))


class Numbered(PagedCacheAdapter):
    """The cache with other ids for its blocks: ``outward`` of block 0 is the null block."""

    first, step = 0, 1

    def outward(self, block: int) -> int:
        return self.null_block if block == NULL else self.first + self.step * block

    def inward(self, block: int) -> int:
        return NULL if block == self.null_block else (block - self.first) // self.step

    def perform(self, action: Action) -> Observation:
        if isinstance(action, act.EvictBlocks):
            action = act.EvictBlocks(tuple(self.inward(block) for block in action.blocks))
        shown = super().perform(action)
        device, requests = shown.state.device, shown.state.requests
        assert device.references is not None
        assert device.free is not None
        assert device.keys is not None
        assert requests is not None
        pool = PoolState(
            {self.outward(block): count for block, count in device.references.items()},
            [self.outward(block) for block in device.free],
            [evolve(key, block=self.outward(key.block)) for key in device.keys],
        )
        named = {name: evolve(request, tables=self.lists(request.tables)) for name, request in requests.items()}
        return Observation(
            {name: self.renamed(name, value) for name, value in shown.result.items()}, State(pool, named), shown.refusal
        )

    def lists(self, lists: Any) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(self.outward(block) for block in blocks) for blocks in lists)

    def renamed(self, name: str, value: Any) -> object:
        if name in ("lists", "new_blocks", "external_blocks"):
            return self.lists(value)
        if name in ("taken", "adopted"):
            return tuple(self.outward(block) for block in value)
        if name == "copies":
            return tuple((group, self.outward(source), self.outward(copy)) for group, source, copy in value)
        return value


class Behind(Numbered):
    null_block, first = 7, 7


class BelowZero(Numbered):
    null_block, first = -1, -1


class FarAway(Numbered):
    null_block, first, step = 10**12, 5000, 37


class InTheMiddle(Numbered):
    """The null block has a number that another one would have, and that one has another."""

    null_block = 3

    def outward(self, block: int) -> int:
        return {NULL: 3, 3: NULL}.get(block, block)

    inward = outward


@pytest.mark.parametrize("numbered", [Behind, BelowZero, FarAway, InTheMiddle])
def test_numbers_of_blocks_mean_nothing(numbered: type[Numbered]) -> None:
    mine = api.check_all_laws(numbered(), scopes=["fa4-m4-n2-tight"], walks=2, steps=150, isolation=False)
    other = api.check_all_laws(PagedCacheAdapter(), scopes=["fa4-m4-n2-tight"], walks=2, steps=150, isolation=False)
    assert [(law.law, law.verdict) for law in mine] == [(law.law, law.verdict) for law in other]
    assert not mine.refuted
    assert not mine.problems
