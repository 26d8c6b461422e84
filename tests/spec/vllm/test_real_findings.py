"""Findings of docs/findings on real releases: the smallest case of each, run and judged."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import msgspec
import pytest

from kvproof.spec import laws as all_laws
from kvproof.spec.traces.format import ConnectorConfig
from kvproof.spec.vllm import baseline, matrix, releases, runs, scopes_random, scripts
from kvproof.spec.vllm.process import ReleaseProcess
from kvproof.spec.vllm.runs import Case
from kvproof.spec.vllm.scope_parts import Scope, configured, full, mamba, sliding

pytestmark = pytest.mark.vllm

FIRST = tuple(range(1, 10))
OTHER = tuple(range(100, 109))
WINDOW = tuple(range(1, 30))
"""Prompts: of two blocks and a token, another such one, and one of 29 tokens."""


@pytest.fixture(scope="module")
def process(request):
    """The process of a release; KVPROOF_TEST_RELEASES may hold releases that are already unpacked."""
    version = getattr(request, "param", "0.33.0")
    unpacked = os.environ.get("KVPROOF_TEST_RELEASES")
    with ReleaseProcess(releases.find(str(Path(unpacked) / version) if unpacked else version)) as process:
        yield process


def play(process, config, script):
    """Return the outcome of a script, judged by all laws, with its recording."""
    return runs.play(process, Case(Scope(config.name, config), scripts.checked(script)), all_laws.ALL, keep=True)


def calls(outcome, op):
    """Return the results of all calls of a kind, in order."""
    rows = [json.loads(line) for line in outcome.lines.splitlines()[1:]]
    return [call["result"] for row in rows for call in row["result"].get("calls", ()) if call["op"] == op]


RESENT = [["submit", WINDOW, 1, 0], ["settle"], ["submit", WINDOW, 1, 0], ["settle"]]


@pytest.mark.parametrize(("ranks", "block"), [(1, 8), (2, 4)])
def test_a_run_that_fills_no_window_loses_a_multiple_of_the_alignment(process, ranks, block):
    """short-runs.md: 16 tokens can be resumed, 8 are hit; the followed profile says so, too."""
    config = configured(
        "short-runs", full(block), sliding(4, 32), ranks=ranks, budget=64, eagle=True, drafts=1, retention=None, room=3.0
    )
    outcome = play(process, config, RESENT)
    assert [found["local"] for found in calls(outcome, "lookup")] == [0, 8]
    assert not outcome.differences
    breach = outcome.broken("HB-15")
    assert breach is not None
    assert breach.bent
    assert {"expected": "16", "actual": "8"}.items() <= dict(breach.values).items()


def test_a_run_that_fills_its_window_loses_nothing(process):
    """short-runs.md: the same blocks under a window of two of them."""
    config = configured("long-runs", full(8), sliding(4, 8), budget=64, eagle=True, drafts=1, retention=None, room=3.0)
    outcome = play(process, config, RESENT)
    assert [found["local"] for found in calls(outcome, "lookup")] == [0, 16]
    assert outcome.broken("HB-15") is None


def padded(limit):
    """A full hit beside a running request, two drafts and a limit of long prefills."""
    config = configured("threshold", full(4), drafts=2, length=40, budget=16, threshold=limit, room=4.0)
    decodes = [["step"], ["update", 0]] * 5
    script = [
        ["submit", FIRST, 1, 0],
        ["settle"],
        ["submit", OTHER, 9, 0],
        *decodes,
        ["submit", FIRST, 1, 0],
        ["step"],
        ["settle"],
    ]
    return config, script


@pytest.mark.parametrize("process", ["0.29.0", "0.33.0"], indirect=True)
def test_a_padded_admission_is_cut_and_the_engine_asserts(process):
    """padded-threshold.md: the limit cuts the padding, and a padded request must have one token and all drafts."""
    outcome = play(process, *padded(2))
    assert outcome.failure.startswith("AssertionError")
    assert outcome.broken("LV-9") is not None
    assert outcome.refused == ""


@pytest.mark.parametrize("process", ["0.28.0", "0.33.0"], indirect=True)
def test_a_padded_admission_within_the_limit_runs(process):
    """padded-threshold.md: 0.33.0 with a limit of all the drafts and the token; 0.28.0 with any."""
    outcome = play(process, *padded(3 if process.release.version == "0.33.0" else 2))
    assert outcome.failure == ""
    assert outcome.broken("LV-9") is None


@pytest.mark.parametrize("process", ["0.26.0", "0.33.0"], indirect=True)
@pytest.mark.parametrize(("blocks", "raised"), [(4, "ValueError: Cannot get 1 free blocks from the pool"), (5, "")])
def test_an_external_hit_takes_a_block_more_than_predicted(process, blocks, raised):
    """external-demand.md: a prompt alone in the pool, one block short."""
    config = configured("demand", full(4), mamba(4), length=24, budget=8, connectors=(ConnectorConfig(False, 8),))
    outcome = play(
        process,
        msgspec.structs.replace(config, num_device_blocks=1 + blocks),
        [["submit", tuple(range(1, 13)), 1, 0], ["step"]],
    )
    assert outcome.failure == raised
    assert (outcome.broken("LV-9") is None) == (not raised)


@pytest.mark.parametrize("number", [2009, 2133, 2163, 2200, 2234, 2256, 2265, 2320, 2326, 2393])
def test_runs_that_once_differed_are_predicted_to_the_last_value(process, number):
    """Random runs in which connectors deferred frees, hits diverged inside a block, blocks were taken anew, copies were made in
    another order, runs filled no window, and resumed requests came last: nothing differs, and nothing but the profile breaks laws.
    """
    scope = scopes_random.scope(10_000_000 + number)
    case = Case(scope, scripts.generate(scope.config, f"hunt/{number}", 40, scope.ample))
    outcome = runs.play(process, case, all_laws.ALL)
    assert (outcome.differences, outcome.difference, outcome.problem) == ({}, "", "")
    assert [breach.law for breach in outcome.breaches if not breach.bent] == (["LV-9"] if outcome.failure else [])
    assert outcome.failure in ("", "ValueError: Cannot get 2 free blocks from the pool")


@pytest.mark.parametrize("process", ["0.30.0"], indirect=True)
def test_the_tail_of_an_older_release_is_that_of_the_whole_prompt(process):
    """A prompt of one hash block, half an entry of attention: its key is the prompt's tail before 0.32, and is no violation."""
    config = configured("old-tail", full(4), mamba(4), ranks=2)
    case = Case(Scope(config.name, config), scripts.checked([["submit", (1, 2, 3, 4), 1, 0], ["step"]]))
    own = runs.play(process, case, all_laws.ALL, profile=runs.followed(process.release.version))
    assert (own.breaches, own.differences, own.premises["HB-13"]) == ((), {}, 1)
    other = runs.play(process, case, all_laws.ALL)
    assert [breach.law for breach in other.breaches] == ["HB-13"]


TAIL_20 = tuple(range(1, 26))


@pytest.mark.parametrize(
    ("process", "settings", "hit"),
    [
        ("0.30.0", {}, 0),
        ("0.30.0", {"retention": 8}, 0),
        ("0.30.0", {"retention": None}, 20),
        ("0.30.0", {"recurrent": 8, "unit": 4}, 20),
        ("0.33.0", {}, 20),
    ],
    indirect=["process"],
)
def test_with_eagle_a_tail_at_the_end_of_a_recurrent_block_was_not_kept(process, settings, hit):
    """new-release.md: the states of multiples of S are retained, and no chunk ends at one; an entry declares it."""
    asked = {"recurrent": 4, "retention": 0, "unit": None} | settings
    groups = full(4), mamba(asked.pop("recurrent"), 1)
    config = configured("eagle-tail", *groups, ranks=2, eagle=True, drafts=1, room=6.0, **asked)
    script = scripts.checked([["submit", TAIL_20, 1, 0], ["settle"], ["submit", TAIL_20, 1, 0], ["step"]])
    version = process.release.version
    case = Case(Scope(config.name, config), script)
    outcome = runs.play(process, case, all_laws.ALL, keep=True, profile=runs.followed(version))
    assert [found["local"] for found in calls(outcome, "lookup")] == [0, hit]
    breach = outcome.broken("LV-10")
    assert (breach is None) == (hit == 20)
    entries = baseline.of_release(baseline.shipped(all_laws.ALL), version)
    assert breach is None or baseline.excused(entries, config, breach, {law.id: law for law in all_laws.ALL})


@pytest.mark.parametrize(("process", "said"), [("0.28.0", "outside its condition"), ("0.33.0", "")], indirect=["process"])
def test_the_entry_of_the_guard_of_rows_is_shown_by_its_appends(process, said):
    """The rows of 0.28.0 are not guarded at all; those of 0.33.0 group by group."""
    (entry,) = (one for one in baseline.shipped(all_laws.ALL) if one.law == "TB-11")
    job = matrix.Job("witness", process.release, ("TB-11",), entry=entry)
    stale = matrix.perform(job, lambda release: contextlib.nullcontext(process)).stale
    assert stale.endswith(said)
    assert bool(stale) == bool(said)
