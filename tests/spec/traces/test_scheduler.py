"""Replay of scheduler-level recordings: they conform exactly, and a value changed anywhere is found where it stands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvproof.spec.cli import main
from kvproof.spec.exits import ExitCode
from kvproof.spec.traces import archive, replay, summary
from kvproof.spec.traces.errors import ReplayError
from tests.spec.traces.test_replay import from_lines, lines_of, upto

RECORDINGS = {
    "s1265_fa_mamba_swaX_dcp2": "preemptions, no host",
    "s20757_fa_draft_mamba_dcp1": "two batches with drafts, no host",
    "s2233_fa_mamba2_dcp1": "admissions with drafts",
    "s1347_fa_swa_dcp1": "a runner that reports resumed requests as cached ones",
    "s20666_fa_mamba_swaX_dcp4": "a reset that preempts",
    "s21032_fa_swa_dcp4": "priorities",
    "s1358_fa_draft_mamba_dcp2": "eager host, two batches, drafts, loads, deferred frees",
    "s1074_fa_mamba2_dcp2": "eager host, two batches, priorities, preemptions, loads",
    "s0274_fa_mamba2_dcp2": "lazy host, a request that finishes while it loads",
}


@pytest.mark.parametrize("name", RECORDINGS)
def test_it_conforms_and_keeps_the_laws(name: str) -> None:
    """Every value that the model determines is as recorded, and no law is violated but where the profile bends it."""
    from kvproof.spec import laws

    total = summary.replay_all([archive.open_recording(name)], laws.ALL)
    assert total.divergences == []
    assert total.violations == []
    assert total.verdict is ExitCode.HOLDS
    assert total.operations == archive.find(name).ops


def test_all_scheduler_level_recordings_conform() -> None:
    """81 recordings, 32 of them with a host tier, 18 with two batches in flight: 10,105 operations."""
    chosen = tuple(entry for entry in archive.entries() if entry.level == "scheduler")
    total = summary.replay_all(recording for _, recording in archive.recordings(chosen))
    assert total.divergences == []
    assert (total.recordings, total.operations, dict(total.not_covered)) == (81, 10_105, {})


# --- one changed value ----------------------------------------------------------------------------------------------

Change = Callable[[Any], Any]


def more(value: int) -> int:
    """One more."""
    return value + 1


def other(value: bool) -> bool:
    """The opposite."""
    return not value


def longer(value: list[list[int]]) -> list[list[int]]:
    """One block more in the last group."""
    return [*value[:-1], [*value[-1], 7]]


def shorter(value: list[Any]) -> list[Any]:
    """Without the last entry."""
    return value[:-1]


def swapped(value: list[Any]) -> list[Any]:
    """The first two entries exchanged."""
    return [value[1], value[0], *value[2:]]


def emptied(value: Any) -> Any:
    """The same kind of object, empty."""
    return type(value)()


def first_value(value: Any) -> tuple[Any, Any]:
    """Where the first leaf of a nested value stands: its container and key."""
    at = next(iter(value)) if isinstance(value, dict) else next(i for i, part in enumerate(value) if part not in ([], {}))
    inner = value[at]
    return first_value(inner) if isinstance(inner, dict | list) and inner else (value, at)


def deep(value: Any) -> Any:
    """The first number somewhere inside, one more."""
    container, key = first_value(value)
    container[key] += 1
    return value


def reach(line: dict[str, Any], path: tuple[str, ...]) -> tuple[Any, Any] | None:
    """The container and key of a path in a line; ``call:NAME`` stands for the first call of that name. None without it."""
    at: Any = line
    for part in path[:-1]:
        if part.startswith("call:"):
            at = next((call for call in at.get("calls", ()) if call["op"] == part[5:]), None)
        else:
            at = at.get(part) if isinstance(at, dict) else None
        if at is None:
            return None
    return (at, path[-1]) if isinstance(at, dict) and path[-1] in at else None


def tampered(name: str, op: str, path: tuple[str, ...], change: Change) -> tuple[int, replay.Divergence | None]:
    """Change the first value at a path in the lines of an operation, and replay up to there."""
    lines = lines_of(name)
    for line in lines[1:]:
        place = reach(line, path) if line["op"] == op else None
        if place is not None and place[0][place[1]] not in ([], {}, None):
            old = place[0][place[1]]
            if change is swapped and (len(old) < 2 or old[0] == old[1]):
                continue
            place[0][place[1]] = change(old)
            return line["i"], replay.replay(upto(from_lines(lines), line["i"])).divergence
    raise AssertionError(f"{name} has no {op} with {path}")


HOST, PLAIN, PREEMPTING = "s1358_fa_draft_mamba_dcp2", "s20757_fa_draft_mamba_dcp1", "s1265_fa_mamba_swaX_dcp2"
STEP: list[tuple[str, tuple[str, ...], Change, str]] = [
    (HOST, ("result", "scheduled"), deep, "scheduled"),
    (HOST, ("result", "drafts"), emptied, "drafts"),
    (HOST, ("result", "new"), shorter, "new"),
    (HOST, ("result", "cached"), shorter, "cached"),
    (PREEMPTING, ("result", "resumed"), emptied, "resumed"),
    (PREEMPTING, ("result", "preempted"), emptied, "preempted"),
    (HOST, ("result", "finished"), emptied, "finished"),
    (HOST, ("result", "copies"), deep, "copies"),
    (HOST, ("result", "handoffs"), deep, "handoffs"),
    (HOST, ("result", "zeroed"), swapped, "zeroed"),
    (HOST, ("result", "store", "event"), more, "store"),
    (HOST, ("result", "store", "device"), swapped, "store"),
    (HOST, ("result", "load", "host"), deep, "load"),
    (HOST, ("result", "load", "requests"), emptied, "load"),
    (HOST, ("result", "flush"), other, "flush"),
    (HOST, ("result", "call:lookup", "result", "local"), more, "lookup.local"),
    (HOST, ("result", "call:lookup", "result", "blocks"), longer, "lookup.blocks"),
    (HOST, ("result", "call:lookup", "result", "junction"), more, "lookup.junction"),
    (HOST, ("result", "call:lookup_external", "args", "from"), more, "lookup_external.from"),
    (HOST, ("result", "call:lookup_external", "result", "external"), more, "lookup_external.external"),
    (HOST, ("result", "call:lookup_external", "result", "async"), other, "lookup_external.async"),
    (HOST, ("result", "call:truncate", "args", "tokens"), more, "truncate.tokens"),
    (HOST, ("result", "call:clip", "result", "tokens"), more, "clip.tokens"),
    (HOST, ("result", "call:cache", "args", "tokens"), more, "cache.tokens"),
    (HOST, ("result", "call:allocate", "args", "before"), more, "allocate.before"),
    (HOST, ("result", "call:allocate", "result", "new_blocks"), deep, "allocate.new_blocks"),
    (HOST, ("result", "call:allocate", "result", "external_blocks"), emptied, "allocate.external_blocks"),
    (HOST, ("result", "call:allocate", "result", "admitted"), other, "allocate.admitted"),
    (HOST, ("result", "call:allocate", "args", "new_tokens"), more, "refusal"),
    (PREEMPTING, ("result", "call:free", "args", "request"), lambda name: f"{name}0", "calls"),
    (PREEMPTING, ("result", "call:preempt", "op"), lambda _: "free_deferred", "calls"),
]
STATES: list[tuple[str, str, tuple[str, ...], Change, str]] = [
    (HOST, "step", ("delta", "device", "ref"), deep, "device"),
    (HOST, "step", ("delta", "device", "free"), swapped, "device"),
    (HOST, "step", ("delta", "device", "keys"), shorter, "device"),
    (HOST, "complete_store", ("delta", "host", "keys"), shorter, "host"),
    (HOST, "complete_store", ("delta", "in_flight"), shorter, "in_flight"),
    (HOST, "abort", ("delta", "step", "deferred_frees"), emptied, "step"),
    (HOST, "step", ("delta", "counters", "published"), more, "counters"),
    (HOST, "step", ("delta", "transfers", "stores"), emptied, "transfers"),
    (HOST, "step", ("delta", "transfers", "loads"), emptied, "transfers"),
    (HOST, "step", ("delta", "transfers", "cursors"), deep, "transfers"),
    (HOST, "step", ("delta", "queues", "running"), shorter, "queues.running"),
    (HOST, "step", ("delta", "queues", "waiting"), shorter, "queues.waiting"),
    (HOST, "step", ("delta", "queues", "holding"), shorter, "queues.holding"),
]
OTHERS: list[tuple[str, str, tuple[str, ...], Change, str]] = [
    (HOST, "submit", ("result", "hashes"), more, "hashes"),
    (PLAIN, "update", ("args", "step"), more, "step"),
    (PLAIN, "update", ("args", "sampled"), emptied, "sampled"),
    (PLAIN, "update", ("result", "appended"), emptied, "appended"),
    (PLAIN, "update", ("result", "finished"), emptied, "finished"),
    (PLAIN, "update", ("result", "next_drafts"), lambda drafts: {key: [1, 1] for key in drafts}, "next_drafts"),
    (PLAIN, "update", ("result", "calls"), shorter, "calls"),
    (PLAIN, "update", ("result", "call:cache", "args", "tokens"), more, "calls"),
    (HOST, "update", ("result", "call:finish_hook", "args", "blocks"), deep, "calls"),
    (HOST, "abort", ("result", "call:free_deferred", "op"), lambda _: "free", "calls"),
    (HOST, "update", ("result", "events"), shorter, "events"),
    (HOST, "abort", ("result", "deferred"), other, "deferred"),
    (HOST, "complete_store", ("result", "done"), other, "done"),
    (HOST, "complete_load", ("result", "freed"), other, "freed"),
    (HOST, "reset", ("result", "ok"), other, "ok"),
]


@pytest.mark.parametrize(
    ("name", "op", "path", "change", "what"),
    [(name, "step", path, change, what) for name, path, change, what in STEP] + STATES + OTHERS,
)
def test_one_changed_value_is_found_where_it_stands(
    name: str, op: str, path: tuple[str, ...], change: Change, what: str
) -> None:
    """The recording diverges at the changed operation and in the changed field."""
    operation, found = tampered(name, op, path, change)
    assert found is not None
    assert (found.operation, found.what) == (operation, what)


def test_a_changed_row_of_a_request_is_found() -> None:
    """Rows are compared exactly, the tokens in flight included."""
    for field, change in (("status", lambda _: "waiting"), ("computed", more), ("in_flight", more), ("num_cached", emptied)):
        lines = lines_of(PLAIN)
        row = lines[5]["delta"]["requests"]["r1"]
        row[field] = change(row[field])
        if field == "num_cached":
            row[field] = [0, 0, 0]
        found = replay.replay(upto(from_lines(lines), 4)).divergence
        assert found is not None
        assert (found.operation, found.what) == (4, "requests.r1")


def test_drafts_that_nobody_proposed_are_found() -> None:
    """A chunk of a running request ends with the drafts proposed for it; more of them were never proposed."""
    lines = lines_of(PLAIN)
    update = next(line for line in lines if line.get("op") == "update" and any(line["result"]["next_drafts"].values()))
    update["result"]["next_drafts"] = {key: [] for key in update["result"]["next_drafts"]}
    found = replay.replay(from_lines(lines)).divergence
    assert found is not None
    assert found.what == "allocate.new_tokens"
    assert found.operation > update["i"]


def test_a_call_for_an_unknown_request_is_an_error() -> None:
    """A recording that names a request nobody submitted cannot be replayed."""
    lines = lines_of(PLAIN)
    lines[3]["result"]["calls"][0]["args"]["request"] = "ZZ"
    with pytest.raises(ReplayError, match="never submitted"):
        replay.replay(from_lines(lines))


def test_a_call_of_another_operation_is_found() -> None:
    """Inside a plan nothing is offered or freed unless a preemption asked for it."""
    lines = lines_of(PLAIN)
    lines[3]["result"]["calls"].insert(0, {"op": "free", "args": {"request": "r0"}, "result": {}})
    found = replay.replay(upto(from_lines(lines), 2)).divergence
    assert found is not None
    assert (found.operation, found.what) == (2, "calls")


def test_a_folder_of_recordings_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`kvproof replay FOLDER` replays what lies in it; a folder without recordings is an error."""
    assert main(["replay", str(tmp_path)]) == ExitCode.ERROR
    assert "holds no recording" in capsys.readouterr().err
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "one.ndjson").write_text(archive.unpack("s20032_fa_swa_dcp4"))
    (tmp_path / "two.ndjson.gz").write_bytes(archive.read_member("s21480_fa_dcp1"))
    assert main(["replay", str(tmp_path), "--no-laws", "--json"]) == ExitCode.HOLDS
    assert json.loads(capsys.readouterr().out)["recordings"] == 2
