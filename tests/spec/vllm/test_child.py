"""Code of real releases, driven in their own process: recordings are reproduced, every release runs, crashes are answers."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from kvproof.spec.traces import archive
from kvproof.spec.traces.read import read_bytes
from kvproof.spec.vllm import recorded, releases, scopes, scripts
from kvproof.spec.vllm.process import ReleaseProcess, ReleaseRaised

RECORDED = tuple(entry.file for entry in archive.entries() if entry.level == "scheduler")
VERSIONS = ("0.26.0", "0.27.0", "0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.33.0")


def lines_of(name):
    return gzip.decompress(archive.read_member(name)).decode().splitlines()


@pytest.mark.parametrize("name", RECORDED)
def test_the_inputs_of_a_recording_are_a_script(name):
    recording = archive.open_recording(name)
    script = recorded.script_of(recording)
    assert scripts.checked(json.loads(json.dumps(scripts.as_json(script)))) == script
    assert len(script) == len(recording.operations) - 1
    assert sum(op[0] == "step" for op in script) == sum(operation.op == "step" for operation in recording.operations)


def test_a_managers_recording_has_no_script():
    entry = next(entry for entry in archive.entries() if entry.level == "manager")
    with pytest.raises(ValueError, match="need a scheduler's recording"):
        recorded.script_of(archive.open_recording(entry.file))


# --- with code of vLLM ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def process(request):
    """The process of the release that the test asks for; KVPROOF_TEST_RELEASES may hold releases that are already unpacked."""
    version = getattr(request, "param", "0.33.0")
    unpacked = os.environ.get("KVPROOF_TEST_RELEASES")
    release = releases.find(str(Path(unpacked) / version) if unpacked else version)
    with ReleaseProcess(release) as process:
        yield process


def run(process, config, script, **options):
    """Return the lines of a run and what its end says."""
    answers = list(process.run(config, script, **options))
    return [answer["line"] for answer in answers[:-1]], answers[-1]["end"]


@pytest.mark.vllm
@pytest.mark.parametrize("name", RECORDED)
def test_a_recording_is_reproduced_byte_for_byte(process, name):
    wanted = lines_of(name)
    script = scripts.as_json(recorded.script_of(archive.open_recording(name)))
    got, end = run(process, json.loads(wanted[0])["config"], script)
    assert got == wanted
    assert end == {"steps": sum(op[0] == "step" for op in script), "skipped": 0}


@pytest.mark.vllm
def test_calls_may_carry_their_states_and_nothing_else_changes(process):
    wanted = lines_of(RECORDED[1])
    script = scripts.as_json(recorded.script_of(archive.open_recording(RECORDED[1])))
    got, _ = run(process, json.loads(wanted[0])["config"], script, call_states=True)
    entries = [json.loads(line) for line in got]
    calls = [call for entry in entries[1:] for call in entry["result"].get("calls", ())]
    deltas = [call.pop("delta", {}) for call in calls]
    assert any(deltas)
    assert entries == [json.loads(line) for line in wanted]


@pytest.mark.vllm
@pytest.mark.parametrize("scope", scopes.ALL, ids=lambda scope: scope.name)
def test_the_scheduler_that_is_built_says_of_itself_what_was_asked_for(process, scope):
    lines, end = run(process, scope.header(), [])
    assert end == {"steps": 0, "skipped": 0}
    assert read_bytes("\n".join([*lines, ""]).encode(), scope.name).header.config == scope.config


@pytest.mark.deep
@pytest.mark.vllm
@pytest.mark.parametrize("process", VERSIONS, indirect=True)
def test_every_release_runs_scripts_to_their_end_and_its_recordings_can_be_read(process):
    """A scope that a release lacks is named so; one in which it raises ends with that, and the next one runs."""
    ended, lacking, raised = [], [], []
    for scope in scopes.ALL:
        script = scripts.generate(scope.config, f"every {scope.name}", 40, scope.ample)
        lines, end = run(process, scope.header(), scripts.as_json(script), call_states=True)
        assert "problem" not in end
        if "unsupported" in end:
            assert end["unsupported"]
            assert not lines
            lacking.append(scope.name)
            continue
        recording = read_bytes("\n".join([*lines, ""]).encode(), scope.name, check_sizes=False)
        assert recording.header.engine.version == process.release.version
        last = recording.operations[-1]
        if "raised" in end:
            assert last.raised == end["raised"], end["traceback"]
            raised.append(scope.name)
        else:
            assert last.raised is None
            assert end["steps"] == sum(operation.op == "step" for operation in recording.operations)
            ended.append(scope.name)
    assert len(ended) > len(scopes.ALL) / 2, (lacking, raised)


HEADER = json.loads(
    """{"name": "t", "groups": [{"kind": "full_attention", "block_size": 4, "dcp_sharded": true}], "dcp_world_size": 1,
    "hash_block_size": 4, "scheduler_block_size": 4, "group_block_sizes": [4], "fine_grained_hits": false,
    "retention_interval": null, "num_device_blocks": 20, "host": {"mode": "eager", "num_blocks": 20, "events": false,
    "workers": 3, "fine_grained_hits": false}, "use_eagle": false, "num_draft_tokens": 0, "lookahead": 0, "clip_block_size": 4,
    "max_model_len": 64, "max_step_tokens": 32, "max_running": 4, "seed": 0, "scheduler": {"policy": "fcfs", "runner": "v2",
    "long_prefill_token_threshold": 0, "reserve_full_sequence": false, "concurrent_batches": 1}}"""
)
PROMPT = list(range(1, 14))


def operations(lines):
    return [json.loads(line) for line in lines[2:]]


@pytest.mark.vllm
def test_a_store_is_done_when_all_workers_reported_it_and_not_before_its_step_ran(process):
    # an eager store of a step's blocks comes with the next step
    script = [["submit", PROMPT, 3, 0], ["step"], ["complete_store", 1], ["update", 1], ["step"], ["complete_store", 1]]
    script += [["update", 2], ["complete_store", 2], ["complete_store", 5], ["complete_store", 1], ["complete_load"]]
    lines, end = run(process, HEADER, script)
    stores = [(entry["args"], entry["result"]) for entry in operations(lines) if entry["op"] == "complete_store"]
    assert stores == [({"event": 0, "acks": 2}, {"done": False}), ({"event": 0, "acks": 1}, {"done": True})]
    assert end["skipped"] == 4


@pytest.mark.vllm
def test_what_was_stored_is_loaded_after_the_device_forgot(process):
    script = [["submit", PROMPT, 2, 0], ["settle"], ["reset", False, False], ["submit", PROMPT, 2, 0], ["step"], ["update", 1]]
    lines, end = run(process, HEADER, [*script, ["complete_load"], ["settle"]])
    entries = operations(lines)
    (load,) = [entry for entry in entries if entry["op"] == "complete_load"]
    assert load["args"] == {"request": "r1"}
    assert [entry["result"]["ok"] for entry in entries if entry["op"] == "reset"] == [True]
    assert entries[-1]["state"]["requests"] == {}
    assert end["skipped"] == 0


@pytest.mark.vllm
def test_what_does_not_apply_is_skipped_and_leaves_no_line(process):
    script = [["update", 1], ["complete_store", 1], ["complete_load"], ["abort", 3], ["abort", "nobody"], ["submit", [], 1, 0]]
    script += [["submit", [1] * 64, 1, 0], ["step"], ["step"]]
    lines, end = run(process, HEADER, script)
    assert [entry["op"] for entry in operations(lines)] == ["step"]
    assert end == {"steps": 1, "skipped": 8}


@pytest.mark.vllm
def test_the_same_script_gives_the_same_recording(process):
    script = [["submit", PROMPT, 9, 0], ["submit", PROMPT[:9], 9, 1], ["step"], ["update", 5], ["settle"]]
    assert run(process, HEADER, script) == run(process, HEADER, script)


@pytest.mark.vllm
def test_steps_overlap_and_a_scheduler_may_plan_on_tokens_not_sampled_yet(process):
    ahead = {**HEADER["scheduler"], "concurrent_batches": 2}
    script = [["submit", PROMPT, 4, 0], ["step"], ["step"], ["step"], ["update", 1], ["update", 2], ["settle"]]
    planned = {}
    for asynchronous in (False, True):
        config = {**HEADER, "scheduler": {**ahead, "asynchronous": asynchronous}}
        lines, end = run(process, config, script)
        planned[asynchronous] = [entry["result"]["scheduled"] for entry in operations(lines) if entry["op"] == "step"]
        assert end["skipped"] == 1
        assert operations(lines)[-1]["state"]["requests"] == {}
    assert planned[False][:2] == [{"r0": 13}, {}]
    assert planned[True][:2] == [{"r0": 13}, {"r0": 1}]


@pytest.mark.vllm
def test_an_unknown_entry_is_the_callers_mistake_and_the_process_goes_on(process):
    lines, end = run(process, HEADER, [["step"], ["jump"]])
    assert len(lines) == 3
    assert end["raised"] == "ValueError: unknown script entry 'jump'"
    with pytest.raises(ReleaseRaised, match="TypeError: string indices must be integers"):
        run(process, {**HEADER, "groups": "no header"}, [])
    assert run(process, HEADER, [["step"]])[1] == {"steps": 1, "skipped": 0}


@pytest.mark.vllm
def test_an_exception_of_the_engine_ends_the_recording_and_not_the_process(process):
    """With tokens that a connector claims at once, 0.33.0 admits a request for which the pool has no room."""
    groups = [HEADER["groups"][0], {"kind": "mamba", "block_size": 4, "dcp_sharded": False, "mamba_cache_mode": "align"}]
    groups[1]["num_speculative_blocks"] = 0
    sizes = {"dcp_world_size": 2, "scheduler_block_size": 8, "group_block_sizes": [8, 4], "num_device_blocks": 19}
    config = {**HEADER, **sizes, "groups": groups, "host": None, "connectors": [{"divergent": False, "tokens": 8}]}
    first, second, third = [[base + n for n in range(count)] for base, count in ((2000, 50), (3000, 30), (4000, 27))]
    script = [["submit", first, 1, 0], ["step"], ["update", 1], ["step"], ["update", 2], ["submit", second, 1, 1]]
    lines, end = run(process, config, [*script, ["submit", third, 1, 1], ["step"]])
    assert end["raised"] == "ValueError: Cannot get 1 free blocks from the pool"
    assert json.loads(lines[-1])["raised"] == end["raised"]
    assert "schedule" in end["traceback"]
    assert run(process, HEADER, [["step"]])[1] == {"steps": 1, "skipped": 0}
