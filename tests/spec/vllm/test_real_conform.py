"""Real releases told apart by generated runs: the first of a pair is refuted by the law that its change restored, the second not.

No scenario is written here: a scope, a seed and a number of steps are all that is given.
"""

import datetime

import pytest

from kvproof.spec import laws
from kvproof.spec.exits import ExitCode
from kvproof.spec.vllm import baseline, matrix, releases, shrink
from kvproof.spec.vllm.matrix import Options

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

TODAY = datetime.date(2026, 12, 1)

PAIRS = [
    ("0.27.1", "0.28.0", "CA-1", "fa4-m4-incapable", 120),
    ("0.28.0", "0.29.0", "HB-11", "fa4-m4-n2", 40),
    ("0.29.0", "0.30.0", "LD-1", "fa2-m4-n4-lazy", 300),
    ("0.29.0", "0.30.0", "HB-8", "fa4-m8-h2-n2-lazy", 120),
    ("0.29.0", "0.30.0", "LV-6", "fa4-3m4-n8-eager", 300),
]
"""(first, second, law, scope, steps)."""


def judged(version, **options):
    release = releases.find(version)
    entries = {version: baseline.of_release(baseline.shipped(laws.ALL), version)}
    (table,) = matrix.judge(Options(processes=1, shrink_runs=60, subjects=False, **options), [release], entries, TODAY)
    assert not table.unusable
    assert table.problems == ()
    return table


@pytest.mark.deep
@pytest.mark.parametrize(("first", "second", "law", "scope", "steps"), PAIRS)
def test_the_first_of_a_pair_is_refuted_and_the_second_is_not(first, second, law, scope, steps):
    before = judged(first, scope=scope, laws=(law,), steps=steps)
    (finding,) = before.findings
    assert before.refuted == [law]
    assert finding.case is not None
    assert finding.outcome is not None
    assert finding.outcome.broken(law) is not None
    (original,) = [case for case in matrix.plan(Options(scope=scope, steps=steps)) if case.origin == finding.origin]
    assert shrink.cost(finding.case) < shrink.cost(original)
    after = judged(second, scope=scope, laws=(law,), steps=steps)
    row = after.row(law)
    assert row is not None
    assert (row.broken, after.refuted) == (0, [])
    assert row.judged > 0


def test_the_newest_release_holds_over_the_quick_scopes():
    table = judged("0.33.0", quick=True, steps=matrix.QUICK_STEPS)
    assert table.verdict() is ExitCode.HOLDS, [(finding.law, finding.breach) for finding in table.findings]
    assert table.steps > 300
    assert table.stale == ()
    assert sum(row.verdict == "holds" for row in table.rows) > 60


def test_a_case_gives_the_same_result_again():
    options = {"scope": "m4-fa4-m4-n2-eager-tiny", "steps": 40}
    first, second = judged("0.33.0", **options), judged("0.33.0", **options)
    assert (first.rows, first.operations) == (second.rows, second.operations)
