"""A long run of the newest release: every named scope several times, random scopes, all subjects."""

import datetime

import pytest

from kvproof.spec import laws
from kvproof.spec.exits import ExitCode
from kvproof.spec.vllm import baseline, matrix, releases
from kvproof.spec.vllm.matrix import Options

VERSION = "0.33.0"


@pytest.mark.deep
@pytest.mark.timeout(7200)
def test_ten_thousand_generated_steps_of_the_newest_release():
    entries = {VERSION: baseline.of_release(baseline.shipped(laws.ALL), VERSION)}
    options = Options(steps=matrix.DEEP_STEPS)
    (table,) = matrix.judge(options, [releases.find(VERSION)], entries, datetime.date(2026, 12, 1))
    assert table.unusable == ""
    assert table.steps >= 10_000
    assert table.problems == ()
    assert table.stale == ()
    assert table.verdict() is ExitCode.HOLDS, [(finding.law, finding.origin, finding.breach) for finding in table.findings]
