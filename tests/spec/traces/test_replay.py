"""Replay: the covered recordings conform exactly, and a recording that was tampered with anywhere does not."""

from __future__ import annotations

import gzip
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from kvproof.spec.cli import main
from kvproof.spec.exits import ExitCode
from kvproof.spec.judge import Violation
from kvproof.spec.laws.base import Evidence, Law, Moment
from kvproof.spec.traces import archive, declared, errors, read, replay, summary

NAMED_RECORDINGS = 487
NAMED_OPERATIONS = 40_464
HOST_RECORDINGS = 159
HOST_OPERATIONS = 10_921


def lines_of(name: str) -> list[dict[str, Any]]:
    """A shipped recording as decoded lines."""
    return [json.loads(line) for line in archive.unpack(name).splitlines()]


def from_lines(lines: list[dict[str, Any]]) -> read.Recording:
    """A recording from decoded lines."""
    text = "\n".join(json.dumps(line, separators=(",", ":")) for line in lines) + "\n"
    return read.read_bytes(gzip.compress(text.encode()), "changed")


def upto(recording: read.Recording, index: int) -> read.Recording:
    """The recording cut behind an operation: later full states would contradict a change made there."""
    return attrs.evolve(recording, operations=recording.operations[: index + 1])


def test_every_covered_recording_conforms() -> None:
    """All recordings, 487 with 40,464 operations, 159 of them of managers with a host tier: no divergence."""
    hosts: list[replay.Replay] = []

    def count(done: replay.Replay) -> None:
        if done.config.offload is not None and done.recording.startswith("manager/"):
            hosts.append(done)

    total = summary.replay_archive(progress=count)
    assert total.divergences == []
    assert (total.recordings, total.operations) == (NAMED_RECORDINGS, NAMED_OPERATIONS)
    assert (len(hosts), sum(done.operations for done in hosts)) == (HOST_RECORDINGS, HOST_OPERATIONS)
    assert total.not_covered == {}
    # Every declared difference was met, and nothing was bridged that is not declared.
    assert set(total.declared) == set(declared.DECLARED)


@pytest.mark.deep
def test_laws_hold_on_the_recordings_but_for_what_the_profile_bends() -> None:
    """On what was recorded no law is violated except where a field of the engine's profile says so.

    `kvproof check` judges a selection of the recordings.
    """
    from kvproof.spec import laws

    total = summary.replay_archive(laws.ALL)
    assert total.violations == []
    assert total.recordings == NAMED_RECORDINGS
    assert total.verdict is ExitCode.HOLDS


def change_free_queue(line: dict[str, Any]) -> None:
    """Swap the first two blocks of the recorded free queue."""
    free = line["delta"]["device"]["free"]
    free[0], free[1] = free[1], free[0]


def change(*path: Any, to: Any) -> Callable[[dict[str, Any]], None]:
    """Set one value in a line."""

    def apply(line: dict[str, Any]) -> None:
        at: Any = line
        for key in path[:-1]:
            at = at[key]
        assert at[path[-1]] != to
        at[path[-1]] = to

    return apply


# Operation of d_cow_dcp2 -> a change of what was recorded there (docs/trace-format.md, section 8).
TAMPERINGS: list[tuple[int, str, Callable[[dict[str, Any]], None]]] = [
    (1, "hashes", change("result", "hashes", to=4)),
    (3, "local", change("result", "local", to=4)),
    (13, "blocks", change("result", "blocks", to=[[1, 2], [0, 0, 4]])),
    (13, "junction", change("result", "junction", to=8)),
    (4, "new_blocks", change("result", "new_blocks", to=[[1, 2], [0, 3, 0]])),
    (4, "admitted", change("result", to={"admitted": False, "new_blocks": None, "external_blocks": None})),
    (4, "device", change_free_queue),
    (4, "device", change("delta", "device", "ref", "1", to=2)),
    (4, "device", change("delta", "device", "keys", 1, 2, to=8)),
    (4, "device", change("delta", "device", "keys", 0, 3, to="000000000000")),
    (4, "requests.A", change("delta", "requests", "A", "num_cached", to=[1, 2])),
    (4, "requests.A", change("delta", "requests", "A", "tables", to=[[1, 2], [3]])),
    (4, "requests.A", change("delta", "requests", "A", "computed", to=12)),
    (4, "requests.A", change("delta", "requests", "A", "status", to="waiting")),
    (4, "step", change("delta", "step", "handoffs", 0, 3, to=8)),
    (5, "handoffs", change("result", "handoffs", to={})),
    (5, "zeroed", change("result", "zeroed", to=[2, 1])),
    (5, "scheduled", change("args", "scheduled", to=[["A", 11]])),
    (5, "preempted", change("args", "preempted", to=["A"])),
    (4, "first", change("args", "first", to=False)),
    (4, "refusal", change("args", "async_load", to=True)),
    (4, "refusal", change("args", "drafts", to=1)),
    (15, "finished", change("args", "finished", to=[])),
    (9, "num_tokens", change("result", "num_tokens", to=16)),
    (10, "blocks", change("result", "blocks", to=[[1], [2]])),
    (10, "requests", change("delta", "requests", to={})),
    (14, "step", change("delta", "step", "copies", to=[[2, 5]])),
    (14, "device", change("delta", "device", "shared_keys", 0, 3, to=[4, 2])),
    (15, "copies", change("result", "copies", to=[])),
]


@pytest.mark.parametrize(("at", "what", "tamper"), TAMPERINGS)
def test_one_changed_value_is_found_where_it_stands(at: int, what: str, tamper: Callable[[dict[str, Any]], None]) -> None:
    """The clean recording diverges nowhere, the tampered one at the changed operation and in the changed field."""
    lines = lines_of("d_cow_dcp2")
    clean = replay.replay(from_lines(lines))
    assert clean.divergence is None
    assert clean.operations == len(lines) - 1
    assert lines[at + 1]["i"] == at
    tamper(lines[at + 1])
    found = replay.replay(upto(from_lines(lines), at)).divergence
    assert found is not None
    assert (found.operation, found.what) == (at, what)


def test_a_decision_the_model_refuses_is_a_divergence() -> None:
    """An operation that is illegal in the model diverges as a refusal that says why."""
    lines = lines_of("d_cow_dcp2")
    lines[5]["args"]["new_tokens"] = 13
    found = replay.replay(upto(from_lines(lines), 4)).divergence
    assert found is not None
    assert found.what == "refusal"
    assert "T22" in str(found.expected)


# Operation 24 of m11295_fa_mamba_dcp1: three drafts, two accepted, one sampled token.
@pytest.mark.parametrize(
    ("what", "tamper"),
    [
        ("rejected", change("args", "rejected", to=0)),
        ("refusal", change("args", "rejected", to=2)),
        ("rejected", change("args", "tokens", to=[2, 1])),
        ("num_tokens", change("result", "num_tokens", to=1)),
        ("rejected", change("args", "rejected", to=4)),
    ],
)
def test_a_changed_output_of_drafts_is_found(what: str, tamper: Callable[[dict[str, Any]], None]) -> None:
    """Accepted and rejected drafts of a recording are predicted, too (T36)."""
    name = "m11295_fa_mamba_dcp1"
    lines = lines_of(name)
    assert (lines[25]["args"]["tokens"], lines[25]["args"]["rejected"]) == ([2, 1, 2], 1)
    assert replay.replay(upto(from_lines(lines), 24)).divergence is None
    tamper(lines[25])
    found = replay.replay(upto(from_lines(lines), 24)).divergence
    assert found is not None
    assert (found.operation, found.what) == (24, what)


def test_an_unknown_engine_is_refused() -> None:
    """A recording of an engine without a profile names the engines that have one."""
    lines = lines_of("d_cow_dcp2")
    lines[0]["engine"]["version"] = "0.1.0"
    with pytest.raises(errors.ReplayError, match=r"no profile for vllm 0\.1\.0; known engines: vllm 0\.33\.0"):
        replay.replay(from_lines(lines))


def beyond(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines with recurrent groups that keep no states, which the model has not."""
    for group in lines[0]["config"]["groups"]:
        if group["kind"] == "mamba":
            group["mamba_cache_mode"] = "none"
    return lines


def test_a_recording_beyond_the_model_is_refused() -> None:
    """What the model does not cover is named, never silently passed."""
    with pytest.raises(errors.ReplayError, match="does not cover mamba groups in none mode"):
        replay.replay(from_lines(beyond(lines_of("d_cow_dcp2"))))


def test_wrong_derived_sizes_diverge_in_the_header() -> None:
    """A recorded effective block size that the geometry does not give is the first divergence."""
    lines = lines_of("d_cow_dcp2")
    lines[0]["config"]["fine_grained_hits"] = False
    found = replay.replay(from_lines(lines)).divergence
    assert found is not None
    assert (found.operation, found.what, found.expected, found.recorded) == (-1, "fine_grained_hits", True, False)


def always_broken(bent_by: tuple[tuple[str, str], ...] = ()) -> Law:
    """A law that is violated by every submit."""
    from kvproof.core.actions import Submit

    def check(moment: Moment) -> list[Evidence]:
        return [Evidence.of("never", request=moment.action)]

    return Law("XX-1", "S", "Never.", "test", (), on=(Submit,), check=check, bent_by=bent_by)


def test_violations_fail_unless_bent_or_excused() -> None:
    """A violated law refutes; bent by the engine's profile or declared in a baseline it is counted instead."""
    recordings = [archive.open_recording("d_cow_dcp2")]
    plain = summary.replay_all(recordings, (always_broken(),))
    assert plain.verdict is ExitCode.REFUTED
    assert [violation.law for _, violation in plain.violations] == ["XX-1", "XX-1"]
    bent = summary.replay_all(recordings, (always_broken((("withdrawn_keys", "keep"),)),))
    assert (bent.verdict, bent.bent["XX-1"]) == (ExitCode.HOLDS, 2)
    entry = summary.BaselineEntry("XX-1", "d_cow*", "because", "here")
    other = summary.BaselineEntry("XX-2", "*", "because", "here")
    excused = summary.replay_all(recordings, (always_broken(),), (entry, other))
    assert (excused.verdict, excused.excused["XX-1"], excused.stale) == (ExitCode.HOLDS, 2, [other])
    assert not entry.excuses("m1", Violation("XX-1", 0, Evidence.of("never")))


def ended_by(name: str, at: int, op: str, args: dict[str, Any], message: str) -> list[dict[str, Any]]:
    """A shipped recording up to operation ``at``, then an operation in which the engine raised."""
    return [*lines_of(name)[: at + 2], {"i": at + 1, "op": op, "args": args, "raised": message}]


CONTINUE = {
    "request": "A",
    "new_tokens": 2,
    "local": 0,
    "external": 0,
    "async_load": False,
    "lookahead": 0,
    "drafts": 0,
    "first": False,
}
# d_cow_dcp2 up to operation 6 (begin_step): A has computed 12 of its 14 tokens; then a call outside of its contract.
OUT_OF_CONTRACT = [
    ("allocate", CONTINUE | {"new_tokens": 3}, "AssertionError: ", "request 0 knows 14 tokens"),
    ("allocate", CONTINUE | {"new_tokens": 0}, "ValueError: nothing to allocate", "new tokens must be positive"),
    ("allocate", CONTINUE | {"first": True}, "AssertionError: ", "first is True, possible is False"),
    ("append_token", {"request": "A", "tokens": [9], "rejected": 0}, "AssertionError: ", "executed step waits"),
    ("finish", {"request": "ZZ"}, "KeyError: 'ZZ'", "never submitted"),
]


@pytest.mark.parametrize(("op", "args", "message", "reason"), OUT_OF_CONTRACT)
def test_an_exception_after_an_argument_out_of_contract_is_predicted(
    op: str, args: dict[str, Any], message: str, reason: str
) -> None:
    """The engine raised where the model refuses: no divergence, and the report names the refusal."""
    found = replay.replay(from_lines(ended_by("d_cow_dcp2", 6, op, args, message)))
    assert (found.divergence, found.operations) == (None, 7)
    assert found.raised is not None
    assert (found.raised.operation, found.raised.op, found.raised.message) == (7, op, message)
    assert found.raised.law is None
    assert reason in found.raised.refused
    assert found.raised.refused_operation == 7


def test_an_exception_where_the_model_goes_on_is_a_divergence() -> None:
    """The engine raised in an operation that the model performs, and nothing was wrong before it."""
    found = replay.replay(from_lines(ended_by("d_cow_dcp2", 6, "allocate", CONTINUE, "ValueError: empty pool")))
    assert found.divergence is not None
    assert (found.divergence.what, found.divergence.operation) == ("the engine raised", 7)
    assert found.raised is not None
    assert (found.raised.law, found.raised.refused) == (None, "")


def test_an_exception_of_a_scheduler_is_a_divergence() -> None:
    """Which calls the scheduler had made in its last operation is not recorded, so that the model cannot try it."""
    name = next(entry.name for entry in archive.selection() if entry.level == "scheduler")
    lines = lines_of(name)
    at = next(index for index, line in enumerate(lines[1:]) if line["op"] == "step")
    found = replay.replay(from_lines(ended_by(name, at, "step", {}, "AssertionError: ")))
    assert found.divergence is not None
    assert (found.divergence.what, found.divergence.operation) == ("the engine raised", at + 1)
    assert found.raised is not None
    assert (found.raised.law, found.raised.refused) == (None, "")


def test_the_first_law_broken_before_an_exception_is_named() -> None:
    """The law that broke first, in the operation where it did; what the raising operation itself would break does not count."""
    lines = ended_by("d_cow_dcp2", 12, "submit", {"request": "C", "tokens": [1]}, "RuntimeError: corrupt")
    found = replay.replay(from_lines(lines), (always_broken(),))
    assert found.raised is not None
    assert found.raised.law is not None
    assert (found.raised.law.law, found.raised.law_operation) == ("XX-1", 1)
    assert [violation.law for violation in found.violations] == ["XX-1", "XX-1"]  # two submits before it, not the third
    assert found.raised.refused == ""


def test_an_action_out_of_contract_before_the_exception_is_named() -> None:
    """The engine did what the model refuses, and raised later: the replay ends at the first, the report names it."""
    lines = ended_by("d_cow_dcp2", 6, "allocate", CONTINUE, "RuntimeError: corrupt")
    lines[5]["args"]["new_tokens"] = 13
    found = replay.replay(from_lines(lines))
    assert found.divergence is not None
    assert (found.divergence.what, found.divergence.operation) == ("refusal", 4)
    assert found.raised is not None
    assert (found.raised.operation, found.raised.refused_operation) == (7, 4)
    assert "T22" in found.raised.refused


def test_command_reports_exceptions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`kvproof replay` of a recording that ends with an exception: 0 if the model refuses as well, 2 if it does not."""
    file = tmp_path / "raised.ndjson"

    def run(args: dict[str, Any], *options: str) -> tuple[int, str]:
        lines = ended_by("d_cow_dcp2", 6, "allocate", args, "ValueError: [no]")
        file.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
        code = main(["replay", str(file), *options])
        return code, capsys.readouterr().out

    code, out = run(CONTINUE | {"new_tokens": 3})
    assert code == ExitCode.HOLDS
    assert "operation 7 (allocate), line 9: the engine raised ValueError: [no]" in out
    assert "no law was broken before it" in out
    assert "out of contract: operation 7: Allocate(" in out
    code, out = run(CONTINUE, "--no-laws")
    assert code == ExitCode.REFUTED
    assert "differs in the engine raised" in out
    assert "the laws were not judged" in out
    assert "no action before the first divergence was out of contract" in out
    code, out = run(CONTINUE | {"new_tokens": 3}, "--json")
    (raised,) = json.loads(out)["raised"]
    assert (raised["operation"], raised["law"], raised["out_of_contract_operation"]) == (7, None, 7)
    assert "14 tokens" in raised["out_of_contract"]


def test_no_recording_at_all_is_undetermined() -> None:
    """Nothing replayed is not a pass."""
    assert summary.replay_all([]).verdict is ExitCode.UNDETERMINED


def test_command_holds_and_refutes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`kvproof replay`: 0 for a conforming recording, 2 with place and reproduction for a diverging one."""
    assert main(["replay", "d_cow_dcp2"]) == ExitCode.HOLDS
    lines = lines_of("d_cow_dcp2")
    lines[6]["result"]["zeroed"] = [2, 1]
    file = tmp_path / "bad.ndjson"
    file.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    capsys.readouterr()
    assert main(["replay", str(file)]) == ExitCode.REFUTED
    out = capsys.readouterr().out
    assert "operation 5 (end_step), line 7 differs in zeroed" in out
    assert "expected  [1, 2]" in out
    assert "recorded  [2, 1]" in out
    assert out.rstrip().splitlines()[-1] == f"kvproof replay {file}"


def test_divergences_that_are_not_printed_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Seven recordings diverge: five are printed, and the rest is said."""
    lines = lines_of("d_cow_dcp2")
    lines[6]["result"]["zeroed"] = [2, 1]
    for number in range(7):
        (tmp_path / f"{number}.ndjson").write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    assert main(["replay", "--no-laws", str(tmp_path)]) == ExitCode.REFUTED
    out = capsys.readouterr().out
    assert out.count("differs in zeroed") == 5
    assert "2 more recordings diverge" in out


def test_a_violated_law_is_printed_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each law where it was seen first, how often, and a line with the recordings that show all of them."""
    found = summary.Summary(recordings=3)
    places = [("one", "PC-1"), ("one", "PC-1"), ("two", "PC-1"), ("two", "PC-3"), ("three", "PC-1")]
    found.violations += [(name, Violation(law, 4, Evidence("wrong"))) for name, law in places]
    monkeypatch.setattr(summary, "replay_all", lambda *_: found)
    assert main(["replay", "d_cow_dcp2"]) == ExitCode.REFUTED
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if "does not hold" in line] == [
        "PC-1 does not hold in one, action 4:",
        "PC-3 does not hold in two, action 4:",
    ]
    assert "  3 more of PC-1\n" in out
    assert "PC-1 x4, PC-3 x1" in out
    assert out.rstrip().splitlines()[-1] == "kvproof replay one two"


def test_the_line_that_reproduces_keeps_the_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Profile, baseline and `--no-laws` decide what is found; the line under the table has them, and finds it again."""
    lines = lines_of("d_cow_dcp2")
    lines[6]["result"]["zeroed"] = [2, 1]
    file, excuses = tmp_path / "bad one.ndjson", tmp_path / "base.json"
    file.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    excuses.write_text(json.dumps({"format": "kvproof-baseline", "version": 1, "violations": []}))
    options = ["--no-laws", "--baseline", str(excuses), "--profile", "vllm-0.33.0"]
    assert main(["replay", str(file), *options]) == ExitCode.REFUTED
    last = capsys.readouterr().out.rstrip().splitlines()[-1]
    assert last == f"kvproof replay {shlex.join(options)} '{file}'"
    assert main(shlex.split(last)[1:]) == ExitCode.REFUTED
    assert capsys.readouterr().out.rstrip().splitlines()[-1] == last


def test_command_json_and_uncovered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--json` is machine-readable; a chosen recording that is not covered makes the verdict undetermined."""
    file = tmp_path / "beyond.ndjson"
    file.write_text("\n".join(json.dumps(line) for line in beyond(lines_of("d_cow_dcp2"))) + "\n")
    assert main(["replay", "d_cow_dcp2", str(file), "--json"]) == ExitCode.UNDETERMINED
    result = json.loads(capsys.readouterr().out)
    assert (result["recordings"], result["operations"], result["verdict"]) == (1, 20, "undetermined")
    assert result["not_covered"] == {"mamba groups in none mode": 1}
    assert result["declared"]["in_flight"] > 0
    assert list(result["declared"]) == sorted(declared.DECLARED)


def test_command_takes_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every recording below a folder, compressed or not, and how many of them the model covers; an empty folder is an error."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/one.ndjson.gz").write_bytes(archive.read_member("d_cow_dcp2"))
    lines = beyond(lines_of("d_cow_dcp2"))
    (tmp_path / "two.ndjson").write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    (tmp_path / "index.json").write_text("{}")
    assert main(["replay", str(tmp_path)]) == ExitCode.UNDETERMINED
    out = " ".join(capsys.readouterr().out.split())
    assert "recordings covered │ 1 of 2" in out
    assert "not covered: mamba groups in none mode │ 1" in out
    assert main(["replay", str(tmp_path / "deep")]) == ExitCode.HOLDS
    (tmp_path / "empty").mkdir()
    assert main(["replay", str(tmp_path / "empty")]) == ExitCode.ERROR
    assert "holds no recording" in capsys.readouterr().err


def spoil_request(lines: list[dict[str, Any]]) -> None:
    """Let a lookup name a request that nobody submitted."""
    lines[4]["args"]["request"] = "ZZ"


def spoil_retention(lines: list[dict[str, Any]]) -> None:
    """A retention interval that is no multiple of S."""
    lines[0]["config"]["retention_interval"] = 11


def test_command_errors_are_exit_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Unknown recordings, bad baselines and stale entries end with 1 and say what to do."""
    assert main(["replay", "no_such"]) == ExitCode.ERROR
    assert "kvproof replay --list" in capsys.readouterr().err
    assert main(["replay", str(tmp_path / "none.ndjson.gz")]) == ExitCode.ERROR
    assert "there is no file" in capsys.readouterr().err
    for spoil in (spoil_request, spoil_retention):
        lines = lines_of("d_cow_dcp2")
        spoil(lines)
        file = tmp_path / "bad.ndjson"
        file.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
        assert main(["replay", str(file)]) == ExitCode.ERROR
        err = capsys.readouterr().err
        assert "Traceback" not in err
        assert "never submitted" in err or "is not legal" in err
    baseline = tmp_path / "baseline.json"
    assert main(["replay", "d_cow_dcp2", "--baseline", str(baseline)]) == ExitCode.ERROR
    baseline.write_text('{"format": "kvproof-baseline", "version": 2, "violations": []}')
    assert main(["replay", "d_cow_dcp2", "--baseline", str(baseline)]) == ExitCode.ERROR
    assert "version 2" in capsys.readouterr().err
    entry = {"law": "CC-99", "recording": "*", "reason": "r", "source": "s"}
    baseline.write_text(json.dumps({"format": "kvproof-baseline", "version": 1, "violations": [entry]}))
    assert main(["replay", "d_cow_dcp2", "--baseline", str(baseline)]) == ExitCode.ERROR
    assert "no law is called CC-99" in capsys.readouterr().err
    entry = {"law": "CC-1", "recording": "m*", "reason": "r", "source": "s"}
    baseline.write_text(json.dumps({"format": "kvproof-baseline", "version": 1, "violations": [entry]}))
    assert main(["replay", "d_cow_dcp2", "--baseline", str(baseline)]) == ExitCode.HOLDS
    entry = {"law": "CC-1", "recording": "*", "reason": "r", "source": "s"}
    baseline.write_text(json.dumps({"format": "kvproof-baseline", "version": 1, "violations": [entry]}))
    assert main(["replay", "d_cow_dcp2", "--baseline", str(baseline)]) == ExitCode.ERROR
    assert "excuse nothing any more" in capsys.readouterr().err
