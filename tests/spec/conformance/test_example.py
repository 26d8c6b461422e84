"""The example cache under judgement: nothing of it is refuted, and each deliberate mistake by the law that is meant."""

from __future__ import annotations

import pytest

from examples.adapter import PagedCacheAdapter
from kvproof.spec.conformance.adapter import Shows
from kvproof.spec.conformance.api import check_all_laws
from kvproof.spec.conformance.reports import Verdict
from tests.spec.conformance import faulty
from tests.spec.conformance.faulty import MISTAKES, Mistake


def test_the_example_is_not_refuted_and_whatever_is_undetermined_says_why() -> None:
    report = check_all_laws(PagedCacheAdapter())
    assert report.problems == ()
    assert [(law.law, law.why) for law in report.refuted] == []
    assert all(law.why for law in report if law.verdict is Verdict.UNDETERMINED)
    holds = {law.law for law in report if law.verdict is Verdict.HOLDS}
    assert holds >= {mistake.law for mistake in MISTAKES}
    assert len(holds) >= 50


@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.cache.__name__ for mistake in MISTAKES])
def test_each_mistake_is_refuted_by_the_law_that_is_meant(mistake: Mistake) -> None:
    report = check_all_laws(
        PagedCacheAdapter(mistake.cache), laws=[mistake.law], scopes=[mistake.scope], walks=mistake.walks, limit=1.0
    )
    verdict = report.of(mistake.law)
    assert verdict.verdict is Verdict.REFUTED, verdict.why
    assert verdict.counterexample is not None
    assert verdict.counterexample.law == mistake.law


def test_every_mistake_is_in_the_table_and_differs_by_itself() -> None:
    caches = [value for value in vars(faulty).values() if isinstance(value, type) and issubclass(value, faulty.PagedCache)]
    assert {mistake.cache for mistake in MISTAKES} == set(caches) - {faulty.PagedCache}


class TablesAlone(PagedCacheAdapter):
    shows = frozenset({Shows.TABLES, Shows.COPIES})


def test_wrong_bytes_are_seen_from_tables_alone() -> None:
    report = check_all_laws(TablesAlone(faulty.IgnoresContexts), scopes=["fa4"], laws=["CC-1", "PC-3"], walks=20)
    assert report.of("CC-1").verdict is Verdict.REFUTED
    assert report.of("PC-3").verdict is Verdict.UNDETERMINED
    assert "references" in report.of("PC-3").why
