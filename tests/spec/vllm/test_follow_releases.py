"""Following recordings of older releases: what they do in their own way is no violation, what they do wrong still is one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvproof.core.config import VLLM_0_33_0
from kvproof.spec import laws
from kvproof.spec.traces import replay
from kvproof.spec.traces.errors import TraceError
from kvproof.spec.traces.format import NEVER
from kvproof.spec.traces.read import Recording, read_bytes
from kvproof.spec.vllm.child import starting
from kvproof.spec.vllm.follow import Followed, follow

RECORDED = Path(__file__).parent / "recorded"
ASYNCHRONOUS = "asynchronous-0.28.0"
"""Drafts, two batches in flight, an abort with a step under way, a preemption by a reset; at rest at its end."""
DISCARDING = "asynchronous-0.26.0"
"""A reset preempts a request of which a step with two drafts is under way."""
PINNED = "pinned-0.28.0"
"""A lazy host tier; the plan of the last step hands over block 5, which is in no table, and holds it until its request ends."""

Lines = list[dict[str, Any]]


def lines_of(name: str) -> Lines:
    """The lines of a recording, to be altered."""
    return [json.loads(line) for line in (RECORDED / f"{name}.ndjson").read_text().splitlines()]


def recording_of(lines: Lines) -> Recording:
    """The recording that these lines are."""
    return read_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines), "altered", check_sizes=False)


def rows(line: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of requests in a line, those behind its calls included."""
    parts = [line.get("state"), line.get("delta"), *(call.get("delta") for call in line.get("result", {}).get("calls", ()))]
    return (row for part in parts if part for row in part.get("requests", {}).values() if row)


def refuted(followed: Followed) -> set[str]:
    """The laws that are refuted; the recording was followed to its end."""
    assert followed.ended == ""
    return {found.law for found in followed.refuted}


# --- asynchronous schedulers ----------------------------------------------------------------------------------------------


def test_an_asynchronous_scheduler_is_followed_without_a_difference() -> None:
    recording = recording_of(lines_of(ASYNCHRONOUS))
    followed = follow(recording, laws.ALL)
    assert followed.config.async_outputs
    assert refuted(followed) == set()
    assert all(followed.premises[law] for law in ("RQ-1", "RQ-2", "RQ-3", "RQ-4", "TB-14"))
    assert max(row["placeholders"] for line in lines_of(ASYNCHRONOUS)[1:] for row in rows(line)) == 6
    assert not followed.counts


def test_without_the_word_its_placeholders_are_a_mystery() -> None:
    """What was taken for violations of the release before the header had the word."""
    lines = lines_of(ASYNCHRONOUS)
    del lines[0]["config"]["scheduler"]["asynchronous"]
    for line in lines[1:]:
        for row in rows(line):
            del row["placeholders"]
    followed = follow(recording_of(lines), laws.ALL)
    assert not followed.config.async_outputs
    assert {"RQ-3", "RQ-4"} <= refuted(followed)


@pytest.mark.parametrize("field", ["placeholders", "in_flight"])
def test_a_count_that_is_wrong_is_refuted(field: str) -> None:
    lines = lines_of(ASYNCHRONOUS)
    step = next(line for line in lines[1:] if line["op"] == "step" and any(row["placeholders"] for row in rows(line)))
    for row in list(rows(step))[-1:]:
        row[field] += 1
    found = follow(recording_of(lines), laws.ALL).refuted
    assert ("RQ-1", step["i"]) in {(one.law, one.operation) for one in found}


def test_drafts_that_stay_counted_are_refuted() -> None:
    """An output that rejects drafts does not lower the computed tokens."""
    lines = lines_of(ASYNCHRONOUS)
    drafts = {line["i"]: line["result"]["drafts"] for line in lines[1:] if line["op"] == "step"}
    line, name = next(
        (line, name)
        for line in lines[1:]
        if line["op"] == "update"
        for name, count in drafts[line["args"]["step"]].items()
        if 0 < len(line["args"]["sampled"][name]) < 1 + count
        and name == list(line["args"]["sampled"])[-1]  # of the others it is not recorded how far they are in between
        and line.get("delta", {}).get("requests", {}).get(name)
    )
    line["delta"]["requests"][name]["computed"] += 1
    found = follow(recording_of(lines), laws.ALL).refuted
    assert ("RQ-3", line["i"]) in {(one.law, one.operation) for one in found}


def test_outputs_that_are_discarded_without_being_late_are_refuted() -> None:
    """0.26.0 counts the placeholders of a preempted step and discards as many outputs: a step with two drafts costs the two
    outputs behind it. The placeholders of these stay, and later tokens are delivered for earlier positions.
    """
    recording = recording_of(lines_of(DISCARDING))
    followed = follow(recording, laws.ALL)
    assert refuted(followed) == {"RQ-1", "RQ-3", "RQ-4"}
    dropped = [line for line in lines_of(DISCARDING)[1:] if line["op"] == "update" and any(line["args"]["sampled"].values())]
    lost = [line["i"] for line in dropped if not line["result"]["appended"]][1:]  # the first of them is late
    assert min(found.operation for found in followed.refuted) == lost[0]
    assert len(lost) == 2
    # what follows is judged from where the request really is: no output is missed afterwards
    assert not [noted for noted in followed.differences if "no output of request" in noted.what]


def test_an_asynchronous_recording_is_replayed_with_the_drafts_that_were_accepted() -> None:
    recording = recording_of(lines_of(ASYNCHRONOUS))
    outcome = replay.replay(recording, laws.ALL, VLLM_0_33_0)
    assert outcome.divergence is None
    assert outcome.violations == []
    assert outcome.operations == len(recording.operations)
    other = replay.replay(recording_of(lines_of(DISCARDING)), (), VLLM_0_33_0)
    assert other.divergence is not None
    assert other.divergence.what == "appended"


@pytest.mark.parametrize(("word", "said"), [(True, "has no placeholders"), (False, "has placeholders")])
def test_placeholders_stand_in_recordings_of_asynchronous_schedulers_only(word: bool, said: str) -> None:
    lines = lines_of(ASYNCHRONOUS)
    if word:
        for row in rows(lines[2]):
            del row["placeholders"]
    else:
        lines[0]["config"]["scheduler"]["asynchronous"] = False
    with pytest.raises(TraceError, match=f"request r0 {said}"):
        recording_of(lines)


# --- blocks held beside the tables ----------------------------------------------------------------------------------------


def test_a_block_held_beside_the_tables_is_not_free_when_the_lazy_walk_goes() -> None:
    recording = recording_of(lines_of(PINNED))
    followed = follow(recording, laws.ALL)
    last = recording.operations[-1]
    end = list(recording.states())[-1][1]
    assert last.op == "step"
    assert [fence for fence, _ in end.step["deferred_frees"]] == [NEVER]
    assert not {"DS-1", "PC-8", "PC-1", "PC-2", "PC-3"} & refuted(followed)
    assert followed.premises["DS-1"]
    assert followed.premises["PC-8"]


def test_a_lazy_walk_that_passes_a_block_over_is_refuted_there_all_the_same() -> None:
    lines = lines_of(PINNED)
    store = lines[-1]["result"]["store"]
    assert store is not None
    store["device"], store["host"] = store["device"][1:], store["host"][1:]
    found = follow(recording_of(lines), laws.ALL).refuted
    assert ("DS-1", lines[-1]["i"]) in {(one.law, one.operation) for one in found}


def test_a_free_queue_in_another_order_is_refuted_there_all_the_same() -> None:
    lines = lines_of(PINNED)
    free = lines[-1]["state"]["device"]["free"]
    free.append(free.pop(0))
    found = follow(recording_of(lines), laws.ALL).refuted
    assert ("PC-8", lines[-1]["i"]) in {(one.law, one.operation) for one in found}


def test_recorder_and_reader_name_the_fence_alike() -> None:
    assert starting.recorder().dump.NEVER == NEVER
