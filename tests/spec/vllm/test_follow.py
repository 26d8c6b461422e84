"""Following recordings: what the engine did is taken over to the end, and the right law refutes what was altered."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kvproof.core.actions import Lookup
from kvproof.core.config import SOUND, VLLM_0_33_0, Profile
from kvproof.spec import laws
from kvproof.spec.cli import main
from kvproof.spec.conformance import watching
from kvproof.spec.exits import ExitCode
from kvproof.spec.judge import Violation
from kvproof.spec.laws.base import Evidence, Law
from kvproof.spec.traces import archive, replay
from kvproof.spec.traces.errors import ReplayError
from kvproof.spec.traces.following import Noted
from kvproof.spec.traces.read import Recording, read_bytes
from kvproof.spec.vllm import followed as totals
from kvproof.spec.vllm.follow import Followed, Found, at_rest, follow
from tests.sampling import each

Lines = list[dict[str, Any]]
SCHEDULER = tuple(entry for entry in archive.entries() if entry.level == "scheduler")
EAGER = "s1358_fa_draft_mamba_dcp2"
PLAIN = "s1265_fa_mamba_swaX_dcp2"
AT_REST = "s0354_fa_mamba2_dcp2"


def lines_of(name: str) -> Lines:
    """The lines of a shipped recording, to be altered."""
    return [json.loads(line) for line in archive.unpack(name).splitlines()]


def recording_of(lines: Lines) -> Recording:
    """The recording that altered lines are; what sizes the header names is for the laws to judge."""
    data = b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)
    return read_bytes(data, "altered", check_sizes=False)


def state_of(line: dict[str, Any]) -> dict[str, Any]:
    """The state or the difference of a line."""
    found: dict[str, Any] = line["delta"] if "delta" in line else line["state"]
    return found


def results(lines: Lines, op: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number and result of the lines of one operation."""
    return ((line["i"], line["result"]) for line in lines[1:] if line["op"] == op and "result" in line)


def calls(lines: Lines, op: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number and call of every call of one name."""
    for number, result in results(lines, "step"):
        yield from ((number, call) for call in result["calls"] if call["op"] == op)


def of(*ids: str) -> list[Law]:
    """Laws by their ids."""
    return [law for law in laws.ALL if law.id in ids]


def places(followed: Followed) -> Counter[tuple[str, int]]:
    """The refuted laws with the operations where they were."""
    return Counter((found.law, found.operation) for found in followed.refuted)


# --- what nobody altered --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", each(4, [entry.name for entry in SCHEDULER]))
def test_a_recording_that_conforms_is_followed_without_a_difference(name: str) -> None:
    """All 81: no difference, and action by action the violations of the replay, bent as there."""
    recording = archive.open_recording(name)
    replayed, followed = replay.replay(recording, laws.ALL), follow(recording, laws.ALL)
    assert (followed.counts, followed.ended, followed.operations) == (Counter(), "", len(recording.operations))
    assert followed.actions == replayed.actions
    assert followed.refuted == []

    def place(violation: Violation) -> tuple[str, int, bool]:
        return violation.law, violation.position, violation.bent

    seen = [found.violation for found in followed.violations if found.operation >= 0]
    assert Counter(map(place, seen)) == Counter(map(place, replayed.violations))


def test_it_judges_what_replay_judges_but_the_rows_of_the_worker() -> None:
    """A recording shows no rows: four laws need them. All others are judged as often as in the replay."""
    recording = archive.open_recording(EAGER)
    replayed, followed = replay.replay(recording, laws.ALL), follow(recording, laws.ALL)
    needs_rows = {law for law, parts in followed.hidden.items() if "rows" in parts}
    assert needs_rows == {"TB-11", "TB-13", "DS-4", "DS-10"}
    runs = {
        law.id for law in laws.ALL if law.check_run is not None or law.check_end is not None or law.check_config is not None
    }
    for law in laws.ALL:
        if law.id not in needs_rows | runs:
            assert followed.premises[law.id] == replayed.premises[law.id], law.id


# --- one altered value ----------------------------------------------------------------------------------------------------


def shorter_hit(lines: Lines) -> int:
    """A lookup answers a scheduler block less than the device has."""
    config = lines[0]["config"]
    unit = config["scheduler_block_size"]
    for number, call in calls(lines, "lookup"):
        result = call["result"]
        if result["local"] > unit:
            result["local"] = (result["local"] - 1) // unit * unit
            sizes = zip(result["blocks"], config["group_block_sizes"], strict=True)
            result["blocks"] = [blocks[: -(-result["local"] // size)] for blocks, size in sizes]
            return number
    raise AssertionError


def swapped_blocks(lines: Lines) -> int:
    """Two entries of a request's tables change places, between groups."""
    for line in lines[1:]:
        for row in (state_of(line).get("requests") or {}).values() if line["op"] == "step" else ():
            entries = [(table, at) for table in row["tables"] for at, block in enumerate(table) if block]
            if len(entries) > 3:
                (one, here), (other, there) = entries[0], entries[-1]
                one[here], other[there] = other[there], one[here]
                return int(line["i"])
    raise AssertionError


def missing_load_pair(lines: Lines) -> int:
    """The worker is not told of one copy of a load."""
    for number, result in results(lines, "step"):
        if result["load"] and len(result["load"]["device"]) > 1:
            result["load"]["device"].pop()
            result["load"]["host"].pop()
            return number
    raise AssertionError


def missing_store_pair(lines: Lines) -> int:
    """The worker is not told of one copy of a store."""
    for number, result in results(lines, "step"):
        store = result["store"]
        if store and len(store["device"]) > 1:
            for part in ("device", "host", "meta"):
                store[part].pop()
            return number
    raise AssertionError


def freed_and_referenced(lines: Lines) -> int:
    """A block that the end of a request frees keeps a reference."""
    held: dict[str, int] = {}
    for line in lines[1:]:
        ref = state_of(line).get("device", {}).get("ref")
        if ref is not None and line["op"] == "update" and line["result"]["finished"]:
            gone = [block for block in held if block not in ref]
            if gone:
                ref[gone[0]] = 1
                return int(line["i"])
        held = ref if ref is not None else held
    raise AssertionError


def dropped_handoff(lines: Lines) -> int:
    """A step does not hand out a handoff that waits."""
    for number, result in results(lines, "step"):
        if result["handoffs"]:
            result["handoffs"].popitem()
            return number
    raise AssertionError


def missing_key(lines: Lines) -> int:
    """A block loses its key in a step, for no reason."""
    for line in lines[1:]:
        keys = state_of(line).get("device", {}).get("keys", ())
        if line["op"] == "step" and len(keys) > 2:
            keys.pop(0)
            return int(line["i"])
    raise AssertionError


def foreign_key(lines: Lines) -> int:
    """A block has a key of a prefix that nobody ever had."""
    for line in lines[1:]:
        keys = state_of(line).get("device", {}).get("keys", ())
        if line["op"] == "step" and keys:
            keys[0][3] = "0123456789ab"
            return int(line["i"])
    raise AssertionError


def other_free_order(lines: Lines) -> int:
    """The first two free blocks change places."""
    for line in lines[1:]:
        free = state_of(line).get("device", {}).get("free", ())
        if line["op"] == "step" and len(free) > 2:
            free[0], free[1] = free[1], free[0]
            return int(line["i"])
    raise AssertionError


def counted_less(lines: Lines) -> int:
    """A stored handoff is not counted."""
    for line in lines[1:]:
        counters = state_of(line).get("counters")
        if line["op"] == "step" and counters and counters.get("stored"):
            counters["stored"] -= 1
            return int(line["i"])
    raise AssertionError


def misaligned_host_hit(lines: Lines) -> int:
    """A host lookup claims one token more."""
    for number, call in calls(lines, "lookup_external"):
        if call["result"]["external"]:
            call["result"]["external"] += 1
            return number
    raise AssertionError


def pinned_host_block(lines: Lines) -> int:
    """A free host block has a reference that nobody holds."""
    for line in lines[1:]:
        host = state_of(line).get("host") or {}
        if line["op"] == "complete_store" and "ref" in host and host["free"]:
            host["ref"][str(host["free"][-1])] = 1
            return int(line["i"])
    raise AssertionError


def missing_copy(lines: Lines) -> int:
    """A step does not hand out a copy-on-write."""
    for number, result in results(lines, "step"):
        if result["copies"]:
            result["copies"].pop()
            return number
    raise AssertionError


def silent_eviction(lines: Lines) -> int:
    """A key is evicted and nobody is told."""
    for line in lines[1:]:
        events = (line.get("result") or {}).get("events") or []
        for event in events:
            if event["kind"] == "removed":
                events.remove(event)
                return int(line["i"])
    raise AssertionError


ALTERED: dict[str, tuple[Callable[[Lines], int], str, Profile, frozenset[str]]] = {
    "a hit that is shorter": (shorter_hit, EAGER, VLLM_0_33_0, frozenset({"TB-2", "PC-3"})),
    "two blocks of a table swapped": (swapped_blocks, PLAIN, VLLM_0_33_0, frozenset({"TB-2", "PC-11"})),
    "a pair missing in a load": (missing_load_pair, EAGER, VLLM_0_33_0, frozenset({"CP-1"})),
    "a pair missing in a store": (missing_store_pair, EAGER, VLLM_0_33_0, frozenset({"PC-3", "CP-1", "HO-4"})),
    "a freed block that is referenced": (freed_and_referenced, PLAIN, VLLM_0_33_0, frozenset({"PC-1", "PC-2", "PC-3"})),
    "a handoff dropped": (dropped_handoff, PLAIN, VLLM_0_33_0, frozenset({"HO-2"})),
    "a key missing": (missing_key, PLAIN, VLLM_0_33_0, frozenset({"HB-5", "HB-7"})),
    "a key of no prefix": (foreign_key, PLAIN, VLLM_0_33_0, frozenset({"HB-2"})),
    "another free order": (other_free_order, PLAIN, VLLM_0_33_0, frozenset({"PC-8"})),
    "a hit that ends nowhere": (misaligned_host_hit, EAGER, VLLM_0_33_0, frozenset({"HB-8"})),
    "a host block pinned": (pinned_host_block, EAGER, VLLM_0_33_0, frozenset({"CP-1"})),
    # the release's profile bends the laws of contents and of events: it breaks them itself, though not here
    "a copy missing": (missing_copy, EAGER, SOUND, frozenset({"CC-3"})),
    "an eviction that is silent": (silent_eviction, EAGER, SOUND, frozenset({"EV-5"})),
}


@pytest.mark.parametrize(("alter", "name", "profile", "refuted"), ALTERED.values(), ids=ALTERED)
def test_what_was_altered_is_refuted_by_the_right_law(
    alter: Callable[[Lines], int], name: str, profile: Profile, refuted: frozenset[str]
) -> None:
    """It is followed to the end, the laws are refuted where the value stands, and before it nothing is."""
    lines = lines_of(name)
    number = alter(lines)
    followed = follow(recording_of(lines), laws.ALL, profile)
    before = places(follow(archive.open_recording(name), laws.ALL, profile))
    new = places(followed) - before
    assert (followed.ended, followed.operations) == ("", len(lines) - 1)
    assert followed.counts
    assert refuted <= {law for law, operation in new if operation == number}
    assert min(operation for _, operation in new) == number


def test_a_counter_that_was_not_counted_is_found_when_it_is_read() -> None:
    """The counters' sum is judged when an update reads them."""
    lines = lines_of(EAGER)
    number = counted_less(lines)
    followed = follow(recording_of(lines), laws.ALL)
    assert {law for law, _ in places(followed)} == {"HO-5"}
    assert min(operation for _, operation in places(followed)) >= number


def test_the_missing_copy_is_not_excused_by_a_profile_that_does_not_do_it() -> None:
    """A profile that bends CC-3 explains a violation only where the model under it has one in the same run."""
    lines = lines_of(EAGER)
    number = missing_copy(lines)
    assert ("CC-3", number) in places(follow(recording_of(lines), of("CC-3")))


def test_sizes_that_an_engine_resolved_otherwise_are_judged() -> None:
    """DS-1 on the header: a group that is spread over the ranks is counted as if it were not; the rest is followed."""
    lines = lines_of(PLAIN)
    config = lines[0]["config"]
    at = next(at for at, group in enumerate(config["groups"]) if group["dcp_sharded"])
    config["group_block_sizes"][at] = config["groups"][at]["block_size"]
    followed = follow(recording_of(lines), of("DS-1"))
    assert [(found.law, found.operation) for found in followed.refuted] == [("DS-1", -1)]
    assert followed.counts["group_block_sizes"] == 1
    assert followed.operations == len(lines) - 1


def test_a_gate_that_is_wrong_is_refuted_by_the_header() -> None:
    """HB-11: fine-grained hits turned off where they are possible."""
    lines = lines_of(PLAIN)
    lines[0]["config"]["fine_grained_hits"] = not lines[0]["config"]["fine_grained_hits"]
    assert [(found.law, found.operation) for found in follow(recording_of(lines), of("HB-11")).refuted] == [("HB-11", -1)]


# --- exceptions of the engine ---------------------------------------------------------------------------------------------


def cut(name: str, op: str) -> Lines:
    """A recording whose last line is an exception in the first operation of a name behind the tenth."""
    lines = lines_of(name)
    number = next(number for number, line in enumerate(lines) if number > 10 and line["op"] == op)
    last = {key: lines[number][key] for key in ("i", "op", "args")}
    return [*lines[:number], last | {"raised": "AssertionError: no"}]


@pytest.mark.parametrize("op", ["step", "update", "complete_store"])
def test_an_exception_of_the_engine_is_a_violation(op: str) -> None:
    lines = cut(EAGER, op)
    followed = follow(recording_of(lines), laws.ALL)
    assert (followed.raised, followed.refused) == ("AssertionError: no", "")
    assert [(found.law, found.operation, found.op) for found in followed.refuted] == [("LV-9", len(lines) - 2, op)]


def test_an_exception_where_the_model_refuses_as_well_is_none() -> None:
    """The script was out of contract: nobody has that request."""
    lines = cut(EAGER, "complete_store")
    lines[-1] |= {"op": "abort", "args": {"request": "nobody"}}
    followed = follow(recording_of(lines), laws.ALL)
    assert followed.refuted == []
    assert "never submitted" in followed.refused


# --- whole runs -----------------------------------------------------------------------------------------------------------


def forget(lines: Lines) -> None:
    """Host lookups from the start of a prompt find nothing, and pin nothing."""
    for _, call in calls(lines, "lookup_external"):
        if call["args"]["from"] == 0:
            call["result"] = {"external": 0, "async": False}


def local_nothing(lines: Lines) -> None:
    """Device lookups find nothing."""
    for _, call in calls(lines, "lookup"):
        call["result"] |= {"local": 0, "blocks": [[] for _ in call["result"]["blocks"]]}


def pinned_at_the_end(lines: Lines) -> None:
    """A block is held in the last state, by nobody."""
    state = lines[-1]["state"]
    state["device"]["ref"][str(state["device"]["free"].pop())] = 1


def loading_at_the_end(lines: Lines) -> None:
    """A load is still there in the last state."""
    name = next(line["args"]["request"] for line in lines[1:] if line["op"] == "complete_load")
    row = {"event": 0, "finished": True, "device": [1], "host": [1]}
    lines[-1]["state"]["transfers"]["loads"][name] = row


def remembered_at_the_end(lines: Lines) -> None:
    """The store side still knows a request that has finished."""
    name = next(line["args"]["request"] for line in lines[1:] if line["op"] == "submit")
    lines[-1]["state"]["transfers"]["cursors"][name] = [0] * len(lines[0]["config"]["groups"])


def never_on_the_host(lines: Lines) -> None:
    """The host never gets a key."""
    for line in lines[1:]:
        host = state_of(line).get("host")
        if host:
            host |= {part: [] for part in ("keys", "shared_keys") if part in host}


WATCHED: dict[str, Callable[[Lines], None]] = {
    "LV-2": pinned_at_the_end,
    "LV-3": loading_at_the_end,
    "LV-4": remembered_at_the_end,
    "LV-5": never_on_the_host,
    "LV-6": forget,
    "LV-10": local_nothing,
}


@pytest.mark.parametrize("law", WATCHED)
def test_a_law_of_whole_runs_is_judged_where_the_run_makes_the_experiment(law: str) -> None:
    """The recording as it is keeps the law and is judged; altered it breaks it, bent or not as the release's own run is."""
    kept = follow(archive.open_recording(AT_REST), of(law))
    assert (kept.premises[law], [found.law for found in kept.violations]) == (1, [])
    lines = lines_of(AT_REST)
    WATCHED[law](lines)
    followed = follow(recording_of(lines), of(law))
    assert followed.ended == ""
    assert law in {found.law for found in followed.refuted}


def test_a_run_that_does_not_end_at_rest_says_so() -> None:
    recording = archive.open_recording(EAGER)
    assert not at_rest(recording)
    assert at_rest(archive.open_recording(AT_REST))
    followed = follow(recording, of("LV-2", "DS-8"))
    assert followed.premises == Counter({"LV-2": 0, "DS-8": 0})
    assert followed.unjudged == {"LV-2": "the run does not end at rest", "DS-8": "it needs a run that can be driven"}


def test_every_law_of_whole_runs_is_either_watched_or_named() -> None:
    """A new one must be looked at: it is undetermined on recordings until then."""
    of_runs = {law.id for law in laws.ALL if law.check_run is not None}
    assert of_runs - watching.PLAYED - set(watching.WATCHED) == {"DS-8", "DS-9", "CC-7", "CC-8"}


def test_only_recordings_of_a_scheduler_are_followed() -> None:
    with pytest.raises(ReplayError, match="manager level"):
        follow(archive.open_recording("d_cow_dcp2"), ())


# --- the command ----------------------------------------------------------------------------------------------------------


def written(lines: Lines, folder: Path) -> str:
    """A file with a recording."""
    file = folder / "own.ndjson"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return str(file)


def test_the_command_goes_on_behind_a_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An engine that nobody knows: refuted by the law, with the operation and a line that shows it again."""
    lines = lines_of(PLAIN)
    number = dropped_handoff(lines)
    lines[0]["engine"] |= {"name": "ours", "version": "1"}
    file = written(lines, tmp_path)
    assert main(["replay", "--follow", file]) == ExitCode.REFUTED
    out = capsys.readouterr().out
    assert f"HO-2 does not hold in {file}, operation {number} (step):" in out
    assert f"kvproof replay --follow {file}" in out


def test_the_command_as_json_names_differences_without_failing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a step says of its requests is compared, and no law looks at it."""
    lines = lines_of(PLAIN)
    next(result for _, result in results(lines, "step") if result["new"])["new"][0]["computed"] += 1
    assert main(["replay", "--follow", "--json", written(lines, tmp_path)]) == ExitCode.HOLDS
    found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["violations"], found["differences"]) == ("holds", [], {"new": 1})
    assert found["operations"] == len(lines) - 1


def test_the_command_on_what_it_does_not_follow(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "--follow", "d_cow_dcp2"]) == ExitCode.UNDETERMINED
    assert "1 recording was not followed: at manager level " in capsys.readouterr().out
    assert main(["replay", "--follow", "--no-laws", PLAIN]) == ExitCode.ERROR
    assert "leave --no-laws out" in capsys.readouterr().err


def wrong_gate(lines: Lines) -> None:
    """The header names the other gate."""
    lines[0]["config"]["fine_grained_hits"] = not lines[0]["config"]["fine_grained_hits"]


def test_every_violated_law_is_printed_once_with_how_often(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two laws in three recordings: two finds, where the others are, no more of them undetermined, and a line that shows both."""
    for number, spoils in enumerate(((wrong_gate,), (wrong_gate,), (wrong_gate, dropped_handoff))):
        lines = lines_of(PLAIN)
        for spoil in spoils:
            spoil(lines)
        (tmp_path / f"{number}").mkdir()
        written(lines, tmp_path / f"{number}")
    one, two, three = (str(tmp_path / f"{number}" / "own.ndjson") for number in range(3))
    assert main(["replay", "--follow", "--json", str(tmp_path)]) == ExitCode.REFUTED
    found = json.loads(capsys.readouterr().out)
    times = Counter(violation["law"] for violation in found["violations"])
    assert times["HB-11"] == 3
    assert times["HO-2"] >= 1
    assert not set(times) & set(found["undetermined"])
    assert main(["replay", "--follow", str(tmp_path)]) == ExitCode.REFUTED
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines() if " does not hold in " in line] == list(times)
    assert f"HB-11 does not hold in {one}, the configuration" in out
    assert f"2 more of HB-11, also in {two}, {three}\n" in out
    row = next(line for line in out.splitlines() if "laws violated" in line)
    assert "HB-11 x3" in row
    last = out.rstrip().splitlines()[-1]
    assert last == f"kvproof replay --follow {one} {three}"
    assert main(last.split()[1:]) == ExitCode.REFUTED
    again = capsys.readouterr().out
    assert all(f"{law} does not hold in " in again for law in times)


def test_what_was_seen_violated_is_not_undetermined_and_every_law_is_counted_once() -> None:
    """A law that one recording leaves open and another violates is violated; the rest is judged, never met or left open."""
    missing = Violation("A", 0, Evidence("wrong"))
    total = totals.Total(undetermined={"A": "open", "B": "open"}, premises=Counter({"A": 0, "B": 3, "C": 2, "D": 0, "E": 1}))
    total.violations += [("one", Found(missing, 0, "step")), ("two", Found(missing, 0, "step"))]
    total.bent["E"] += 1
    assert total.left_open == {"B": "open"}
    assert (total.judged, total.never_met) == (["A", "C", "E"], ["D"])
    assert [(find.first.law, find.recording, find.times, find.recordings) for find in total.finds] == [
        ("A", "one", 2, ("one", "two"))
    ]


def test_a_release_without_a_profile_is_sent_to_follow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only at scheduler level, where following is possible."""
    lines = lines_of(PLAIN)
    lines[0]["engine"]["version"] = "0.1.0"
    assert main(["replay", written(lines, tmp_path)]) == ExitCode.ERROR
    assert "`--follow` judges the laws to its end" in capsys.readouterr().err
    lines = lines_of("d_cow_dcp2")
    lines[0]["engine"]["version"] = "0.1.0"
    assert main(["replay", written(lines, tmp_path)]) == ExitCode.ERROR
    error = capsys.readouterr().err
    assert "no profile for vllm 0.1.0" in error
    assert "--follow" not in error


def test_the_command_with_a_baseline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A declared violation is counted and does not fail; an entry that excuses nothing is an error."""
    lines = lines_of(PLAIN)
    dropped_handoff(lines)
    file, baseline = written(lines, tmp_path), tmp_path / "baseline.json"
    entry = {"law": "HO-2", "recording": "*own*", "reason": "known", "source": "here"}
    baseline.write_text(json.dumps({"format": "kvproof-baseline", "version": 1, "violations": [entry]}))
    assert main(["replay", "--follow", "--json", "--baseline", str(baseline), file]) == ExitCode.HOLDS
    assert json.loads(capsys.readouterr().out)["excused"] == {"HO-2": 1}
    assert main(["replay", "--follow", "--baseline", str(baseline), written(lines_of(PLAIN), tmp_path)]) == ExitCode.ERROR


# --- states of calls ------------------------------------------------------------------------------------------------------


def test_with_states_of_calls_a_violation_is_found_in_its_call() -> None:
    """A reference too many in the middle of a step: without the state it would be seen when the step is closed, or never."""
    lines = lines_of(PLAIN)
    number, call = next((number, call) for number, call in calls(lines, "lookup") if number > 2)
    states = {operation.index: state for operation, state in archive.open_recording(PLAIN).states()}
    before = states[number - 1].device
    call["delta"] = {"device": {"ref": {**{str(block): count for block, count in before["ref"].items()}, "1": 7}}}
    followed = follow(recording_of(lines), of("PC-3"))
    first = followed.refuted[0]
    assert (first.operation, type(followed.actions[first.violation.position])) == (number, Lookup)


def test_kinds_of_differences_do_not_name_requests_or_reasons() -> None:
    kinds = {
        Noted(3, "Output", "request 14 in_flight", 1, 0).kind: "Output.request in_flight",
        Noted(3, "Execute", "the model refuses it: row 1 of group 0", None, None).kind: "Execute.the model refuses it",
        Noted(3, "", "requests.r7", {}, {}).kind: "requests",
        Noted(3, "", "queues.running", [], []).kind: "queues.running",
    }
    assert all(found == expected for found, expected in kinds.items())
