"""The example cache under judgement: nothing of it is refuted, and each deliberate mistake by the law that is meant."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import pytest
from attrs import evolve

from examples.adapter import PagedCacheAdapter
from examples.paged_cache import PagedCache
from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.spec import judge
from kvproof.spec.conformance import api
from kvproof.spec.conformance.adapter import Observation, Shows
from kvproof.spec.conformance.budget import Budget
from kvproof.spec.conformance.oracle import Verdict
from kvproof.spec.conformance.shadow import Shadow
from kvproof.spec.counterexample import Counterexample
from kvproof.spec.engines import scopes
from tests.spec.conformance import faulty
from tests.spec.conformance.faulty import MISTAKES, Mistake


@pytest.mark.slow
def test_the_example_is_not_refuted_and_whatever_is_undetermined_says_why() -> None:
    report = api.check_all_laws(PagedCacheAdapter(), isolation=False)
    assert report.problems == ()
    assert [(law.law, law.why) for law in report.refuted] == []
    assert all(law.why for law in report if law.verdict is Verdict.UNDETERMINED)
    holds = {law.law for law in report if law.verdict is Verdict.HOLDS}
    assert holds >= {mistake.law for mistake in MISTAKES}
    assert len(holds) >= 50


@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.cache.__name__ for mistake in MISTAKES])
def test_each_mistake_is_refuted_by_the_law_that_is_meant(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    # A process of its own is for those that end or hang it; a shorter counterexample than this is not the point here.
    monkeypatch.setattr(api, "Budget", functools.partial(Budget, shrink_runs=40))
    report = api.check_all_laws(
        PagedCacheAdapter(mistake.cache),
        laws=[mistake.law],
        scopes=[mistake.scope],
        walks=mistake.walks,
        isolation=mistake.law == "LV-9",
        limit=1.0,
    )
    verdict = report.of(mistake.law)
    assert verdict.verdict is Verdict.REFUTED, verdict.why
    assert verdict.counterexample is not None
    assert verdict.counterexample.law == mistake.law
    if mistake.law != "LV-9":
        assert illegal(mistake, verdict.counterexample) == []


def illegal(mistake: Mistake, example: Counterexample) -> list[str]:
    """The actions of a counterexample that the model refuses: nobody has to bear what comes of those."""
    adapter, config = PagedCacheAdapter(mistake.cache), scopes.by_name(mistake.scope).config()
    adapter.start(config)
    shadow = Shadow(config, adapter.shows)
    found = []
    for action in example.actions:
        refusal = judge.attempt(shadow.world, action).refusal
        if refusal is not None and not judge.is_internal(refusal):
            found.append(f"{action}: {refusal}")
        shadow.observe(action, adapter.perform(action))
    return found


def test_every_mistake_is_in_the_table_and_differs_by_itself() -> None:
    caches = [value for value in vars(faulty).values() if isinstance(value, type) and issubclass(value, PagedCache)]
    assert {mistake.cache for mistake in MISTAKES} == set(caches) - {PagedCache}


class Tables(PagedCacheAdapter):
    shows = frozenset({Shows.HITS, Shows.ADMISSION, Shows.TABLES, Shows.COPIES})


def test_wrong_bytes_are_seen_from_tables_and_copies() -> None:
    report = api.check_all_laws(Tables(faulty.IgnoresContexts), scopes=["fa4"], laws=["CC-1", "PC-3"], walks=6, isolation=False)
    assert report.of("CC-1").verdict is Verdict.REFUTED
    assert report.of("PC-3").verdict is Verdict.UNDETERMINED
    assert "references" in report.of("PC-3").why


class Blind(PagedCacheAdapter):
    shows = frozenset({Shows.TABLES, Shows.COPIES, Shows.REFERENCES, Shows.FREE_QUEUE, Shows.KEYS})


def test_a_cache_that_shows_no_hits_is_not_held_to_hits_of_the_model() -> None:
    """It is never asked to adopt a hit, so that what it computes is known; what hangs on hits stays undetermined."""
    report = api.check_all_laws(Blind(), scopes=["fa4", "fa4-m4-n2"], laws=["CC", "TB", "PC", "HB"], walks=3, isolation=False)
    verdicts = {law.law: law.verdict for law in report}
    assert Verdict.REFUTED not in verdicts.values()
    assert verdicts["TB-1"] is Verdict.HOLDS
    assert verdicts["HB-15"] is Verdict.UNDETERMINED


SHOWN = sorted(PagedCacheAdapter.shows - {Shows.HITS, Shows.ADMISSION}, key=lambda capability: capability.value)


@pytest.mark.parametrize("hidden", SHOWN, ids=[capability.value for capability in SHOWN])
def test_what_is_not_shown_refutes_nothing(hidden: Shows) -> None:
    """The sound cache registers at another time than the model: a prediction that takes the place of a fact would show."""

    class Part(PagedCacheAdapter):
        shows = PagedCacheAdapter.shows - {hidden}

    report = api.check_all_laws(Part(), scopes=["fa4-m4-n2-tight"], walks=4, isolation=False)
    assert [(law.law, law.why) for law in report.refuted] == []


class Served(PagedCacheAdapter):
    """Shows what is served, and who holds blocks, but no keys."""

    shows = frozenset({Shows.HITS, Shows.ADMISSION, Shows.REFERENCES})


class Forgotten(PagedCacheAdapter):
    """Shows no key any more after a reset that was done, or of blocks that were evicted, until they are registered again."""

    def __init__(self, cache: type[PagedCache]) -> None:
        super().__init__(cache)
        self.hidden: set[tuple[int, int, str]] = set()

    def start(self, config: Config) -> None:
        self.hidden = set()
        super().start(config)

    def perform(self, action: Action) -> Observation:
        shown = super().perform(action)
        keys = list(shown.state.device.keys or ())
        gone: Sequence[int] = range(len(self.cache.pool.refs)) if shown.result.get("done") else ()
        if isinstance(action, act.EvictBlocks):
            gone = action.blocks
        self.hidden |= {(key.block, key.group, key.prefix) for key in keys if key.block in gone}
        keys = [key for key in keys if (key.block, key.group, key.prefix) not in self.hidden]
        return evolve(shown, state=evolve(shown.state, device=evolve(shown.state.device, keys=keys)))


FORGETFUL = (
    (Served, faulty.SaysItWasReset, "HB-16"),
    (Served, faulty.NeverEvicts, "HB-17"),
    (Forgotten, faulty.SaysItWasReset, "HB-10"),
    (Forgotten, faulty.NeverEvicts, "HB-10"),
)


@pytest.mark.parametrize(("adapter", "cache", "law"), FORGETFUL)
def test_what_is_served_though_it_is_said_to_be_forgotten_is_refuted(
    adapter: type[PagedCacheAdapter], cache: type[PagedCache], law: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "Budget", functools.partial(Budget, shrink_runs=40))
    asked: dict[str, Any] = {"laws": [law, "PC-13"], "scopes": ["fa4"], "walks": 4, "isolation": False}
    report = api.check_all_laws(adapter(cache), **asked)
    assert [refuted.law for refuted in report.refuted] == [law]
    verdict = report.of("PC-13").verdict
    assert verdict is (Verdict.UNDETERMINED if adapter is Served else Verdict.HOLDS)
    assert api.check_all_laws(adapter(PagedCache), **asked).of(law).verdict is Verdict.HOLDS
