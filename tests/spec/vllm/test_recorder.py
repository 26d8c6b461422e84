"""The recorder on a toy with vLLM's names: what it writes, that it changes nothing, and how a recording ends."""

from __future__ import annotations

import gzip
import importlib
import json
import os
from types import SimpleNamespace as Bag
from typing import Any

import pytest

from kvproof.spec.traces.read import read, read_bytes
from kvproof.spec.vllm.child import starting
from tests.spec.vllm import toys

hooks = starting.recorder()
dump, writing, completions, calls = hooks.dump, hooks.writing, hooks.completions, hooks.Calls


@pytest.fixture
def toy():
    with toys.toy_on_path():
        yield importlib.import_module(toys.MODULE)


def recorded(toy, act, **options):
    """The lines that a toy scheduler's life gives, and the recorder."""
    lines: list[str] = []
    scheduler = toy.Scheduler(**options.pop("settings", {}))
    recorder = hooks.attach(scheduler, lines.append, **options)
    act(scheduler)
    recorder.close()
    return lines, recorder


class TestWhatIsWritten:
    def test_a_life_is_a_well_formed_recording(self, toy):
        lines, recorder = recorded(toy, lambda scheduler: toys.story(toy, scheduler))
        assert recorder.problem is None
        recording = read_bytes(toys.as_bytes(lines), "toy")
        assert recording.header.engine.version == "9.9.9"
        assert [operation.op for operation in recording.operations][:4] == ["init", "submit", "submit", "step"]
        kinds = {call.op for operation in recording.operations for call in operation.calls}
        assert kinds == {"lookup", "allocate", "preempt", "free"}
        assert len(recording.operations) == recorder.operations

    def test_states_are_full_at_the_start_every_twenty_lines_and_at_the_end(self, toy):
        lines, _ = recorded(toy, lambda scheduler: toys.story(toy, scheduler))
        full = [line["i"] for line in toys.parsed(lines)[1:] if "state" in line]
        assert full == [*range(0, len(lines) - 1, 20), len(lines) - 2]
        assert full[-1] % 20  # or the last line would not show anything

    def test_keys_are_named_by_their_tokens(self, toy):
        def act(scheduler):
            toys.submit(toy, scheduler, "a", [1, 2, 3])
            scheduler.schedule()

        lines, _ = recorded(toy, act)
        keys = toys.parsed(lines)[-1]["state"]["device"]["keys"]
        assert keys == [[1, 0, 2, dump.digest([1, 2]), "primary"]]
        assert dump.digest(range(1, 13)) == "7909937abe13"  # as docs/trace-format.md, section 8, has it

    def test_the_keys_of_a_request_that_is_gone_when_the_state_is_read_have_names(self, toy):
        def act(scheduler):
            toys.submit(toy, scheduler, "a", [1, 2, 3], most=1)
            toys.step(scheduler)

        lines, _ = recorded(toy, act, settings={"num_spec_tokens": 1})
        last = toys.parsed(lines)[-1]
        assert last["result"]["finished"] == ["a"]
        assert [call["op"] for call in last["result"]["calls"]] == ["cache", "free"]
        assert [row[2:4] for row in last["state"]["device"]["keys"]] == [
            [2, dump.digest([1, 2])],
            [4, dump.digest([1, 2, 3, 7])],
        ]

    def test_a_call_inside_a_call_is_shown_for_a_preemption_only(self, toy):
        def act(scheduler):
            toys.submit(toy, scheduler, "a", [1, 2, 3])
            toys.step(scheduler)
            scheduler.reset_prefix_cache(reset_running_requests=True)

        lines, _ = recorded(toy, act)
        last = toys.parsed(lines)[-1]
        assert last["args"] == {"preempt_running": True, "host": False}
        assert [call["op"] for call in last["result"]["calls"]] == ["preempt", "free"]
        assert last["result"]["ok"] is True

    def test_each_of_several_aborts_has_a_line(self, toy):
        def act(scheduler):
            for name in "abc":
                toys.submit(toy, scheduler, name, [1, 2, 3])
            toys.step(scheduler)
            scheduler.finish_requests(None, toy.RequestStatus.FINISHED_ABORTED)
            scheduler.finish_requests(["nobody"], toy.RequestStatus.FINISHED_ABORTED)

        lines, _ = recorded(toy, act)
        aborts = [line for line in toys.parsed(lines)[1:] if line["op"] == "abort"]
        assert [line["args"]["request"] for line in aborts] == ["a", "b", "c"]
        assert [call["args"]["request"] for line in aborts for call in line["result"]["calls"]] == ["a", "b", "c"]
        read_bytes(toys.as_bytes(lines), "toy")

    def test_drafts_belong_to_the_update_before_them(self, toy):
        def act(scheduler):
            scheduler.update_draft_token_ids = lambda drafts: None
            recorder = hooks.attach(scheduler, inner.append)
            toys.submit(toy, scheduler, "a", [1, 2, 3])
            toys.step(scheduler)
            scheduler.update_draft_token_ids(Bag(req_ids=["a", "gone"], draft_token_ids=[[4, 5], [6]]))
            toys.submit(toy, scheduler, "b", [1, 2, 3])
            scheduler.update_draft_token_ids(Bag(req_ids=["a"], draft_token_ids=[[9]]))
            recorder.close()

        inner: list[str] = []
        act(toy.Scheduler())
        update = next(line for line in toys.parsed(inner)[1:] if line["op"] == "update")
        assert update["result"]["next_drafts"] == {"a": [4, 5]}


class TestCallStates:
    def test_the_states_of_calls_lead_to_the_state_of_their_line(self, toy):
        lines, _ = recorded(toy, lambda scheduler: toys.story(toy, scheduler), call_states=True)
        recording = read_bytes(toys.as_bytes(lines), "toy")
        shown = 0
        for operation, inside, end in recording.states_of_calls():
            shown += len(inside)
            assert None not in inside
            if inside and operation.op != "step":
                assert inside[-1] == end
        assert shown > 20

    def test_the_difference_of_a_call_has_what_the_scheduler_does_right_behind_it(self, toy):
        def act(scheduler):
            toys.submit(toy, scheduler, "a", [1, 2, 3])
            toys.submit(toy, scheduler, "b", [4, 4])
            scheduler.schedule()

        lines, _ = recorded(toy, act, call_states=True)
        lookup, first, *_ = toys.parsed(lines)[-1]["result"]["calls"]
        assert lookup["delta"] == {}
        assert first["delta"]["requests"]["a"]["status"] == "running"
        assert first["delta"]["queues"] == {"running": ["a"], "waiting": ["b"]}

    def test_without_them_the_lines_are_the_same_otherwise(self, toy):
        plain, _ = recorded(toy, lambda scheduler: toys.story(toy, scheduler))
        shown, _ = recorded(toy, lambda scheduler: toys.story(toy, scheduler), call_states=True)
        stripped = toys.parsed(shown)
        for line in stripped[1:]:
            for call in line["result"].get("calls", ()):
                del call["delta"]
        assert stripped == toys.parsed(plain)
        assert plain != shown


class TestPassive:
    def test_decisions_are_the_same_with_and_without(self, toy):
        seen: list[Any] = []
        recorded(toy, lambda scheduler: seen.append(toys.story(toy, scheduler)), call_states=True)
        assert seen == [toys.story(toy, toy.Scheduler())]

    def test_nothing_of_it_stays(self, toy):
        scheduler = toy.Scheduler()
        before = [dict(vars(owner)) for owner in (scheduler, scheduler.kv_cache_manager)]
        recorder = hooks.attach(scheduler, [].append)
        assert "schedule" in vars(scheduler)
        recorder.close()
        assert [dict(vars(owner)) for owner in (scheduler, scheduler.kv_cache_manager)] == before

    def test_a_method_that_the_object_itself_had_is_put_back(self, toy):
        scheduler = toy.Scheduler()
        own = scheduler.schedule
        scheduler.schedule = own
        hooks.attach(scheduler, [].append).close()
        assert vars(scheduler)["schedule"] is own

    def test_an_iterator_of_events_is_not_used_up(self, toy):
        scheduler = toy.Scheduler()
        scheduler.kv_cache_manager.take_events = lambda: iter("xy")
        recorder = hooks.attach(scheduler, [].append)
        recorder.current = hooks.Operation("update", {}, {})
        assert list(scheduler.kv_cache_manager.take_events()) == ["x", "y"]
        assert recorder.current.events[0] == ["x", "y"]
        recorder.current = None
        recorder.close()


class TestEnds:
    def test_an_exception_of_the_engine_is_the_last_line(self, toy):
        scheduler = toy.Scheduler()
        lines: list[str] = []

        def fail(*_: Any) -> None:
            raise RuntimeError("no more")

        scheduler.kv_cache_manager.take_kv_cache_block_copies = fail
        recorder = hooks.attach(scheduler, lines.append)
        toys.submit(toy, scheduler, "a", [1, 2, 3])
        with pytest.raises(RuntimeError):
            scheduler.schedule()
        toys.submit(toy, scheduler, "b", [1, 2, 3])  # goes on, unrecorded
        recorder.close()
        assert toys.parsed(lines)[-1] == {"i": 2, "op": "step", "args": {}, "raised": "RuntimeError: no more"}
        assert recorder.problem == "the engine raised RuntimeError in operation 2"
        assert read_bytes(toys.as_bytes(lines), "toy").operations[-1].raised == "RuntimeError: no more"

    @pytest.mark.parametrize(
        ("settings", "what"),
        [
            ({"cache_salt": "x"}, "has a cache salt"),
            ({"mm_features": [1]}, "has inputs that are no tokens"),
            ({"resumable": True}, "gets its input piece by piece"),
            ({"sampling_params": None}, "is a pooling request"),
        ],
    )
    def test_what_the_format_has_no_words_for_ends_the_recording_and_not_the_engine(self, toy, settings, what):
        def act(scheduler):
            toys.submit(toy, scheduler, "a", [1, 2, 3])
            toys.submit(toy, scheduler, "b", [1, 2, 3], **settings)
            assert toys.step(scheduler) == {"a": 3, "b": 1}

        lines, recorder = recorded(toy, act)
        assert recorder.problem == f"the recording ends after operation 1: request b {what}, which the format does not know"
        assert recorder.notes == [recorder.problem]
        assert [operation.op for operation in read_bytes(toys.as_bytes(lines), "toy").operations] == ["init", "submit"]

    def test_an_output_of_an_unknown_step_ends_it(self, toy):
        def act(scheduler):
            toys.submit(toy, scheduler, "a", [1, 2, 3])
            output = scheduler.schedule()
            copy = type(output)(**vars(output))
            scheduler.update_from_output(copy, toys.answer(copy, {"a": [7]}))

        lines, recorder = recorded(toy, act)
        assert "not the oldest one planned" in str(recorder.problem)
        assert toys.parsed(lines)[-1]["op"] == "step"

    def test_a_mistake_of_the_recorder_itself_ends_it_too(self, toy):
        def act(scheduler):
            toys.submit(toy, scheduler, "a", [1, 2, 3])
            del scheduler.deferred_frees
            toys.step(scheduler)

        lines, recorder = recorded(toy, act)
        assert "the recorder failed (AttributeError" in str(recorder.problem)
        assert isinstance(recorder.failure, AttributeError)
        assert "state" in toys.parsed(lines)[-1]

    @pytest.mark.parametrize(
        ("settings", "what"),
        [
            ({"is_encoder_decoder": True}, "an encoder-decoder model"),
            ({"num_hash_lookahead_tokens": 1}, "hashes that cover tokens behind their block"),
        ],
    )
    def test_a_configuration_without_words_is_refused(self, toy, settings, what):
        with pytest.raises(hooks.CannotRecord, match=what):
            hooks.attach(toy.Scheduler(**settings), [].append)

    def test_a_kind_of_layers_without_words_is_refused(self, toy):
        scheduler = toy.Scheduler()
        scheduler.kv_cache_manager.kv_cache_config.kv_cache_groups[0].kv_cache_spec = Bag(block_size=2)
        with pytest.raises(hooks.CannotRecord, match="group 0 has layers of kind SimpleNamespace"):
            hooks.attach(scheduler, [].append)

    def test_the_end_of_a_scheduler_is_the_end_of_the_recording(self, toy, tmp_path):
        scheduler = toy.Scheduler()
        hooks.attach(scheduler, writing.File(str(tmp_path / "a.ndjson.gz")))
        toys.step(scheduler)
        scheduler.shutdown()
        assert len(read(tmp_path / "a.ndjson.gz").operations) == 3
        assert "schedule" not in vars(scheduler)


class TestDelta:
    def test_changed_entries_are_replaced_and_gone_requests_deleted(self):
        before = {"device": {"ref": {"1": 1}, "free": [2]}, "requests": {"a": 1, "b": 2}, "in_flight": [1], "host": None}
        after = {"device": {"ref": {"1": 2}, "free": [2]}, "requests": {"b": 3}, "in_flight": [], "host": None}
        assert writing.delta(before, after) == {
            "device": {"ref": {"1": 2}},
            "requests": {"b": 3, "a": None},
            "in_flight": [],
        }
        assert writing.delta(after, after) == {}

    def test_a_line_is_open_until_the_next_one_comes(self):
        lines: list[str] = []
        writer = writing.Writer(lines.append)
        result: dict[str, Any] = {}
        writer.line("init", {}, {}, {"requests": {}})
        writer.line("update", {}, result, {"requests": {"a": 1}})
        result["late"] = True
        assert len(lines) == 1
        writer.line("step", {}, {}, {"requests": {"a": 1}})
        assert json.loads(lines[1]) == {
            "i": 1,
            "op": "update",
            "args": {},
            "result": {"late": True},
            "delta": {"requests": {"a": 1}},
        }
        writer.close()
        writer.close()
        assert json.loads(lines[-1])["state"] == {"requests": {"a": 1}}
        assert len(lines) == 3


class TestPrefixes:
    def test_a_hash_stands_for_the_tokens_before_it(self):
        prefixes = dump.Prefixes(2, lambda value: value.upper())
        prefixes.learn("a", [1, 2, 3, 4, 5], ["x"])
        prefixes.learn("a", [1, 2, 3, 4, 5], ["x", "y"])
        assert prefixes.of("x") == (2, dump.digest([1, 2]))
        assert prefixes.of("y") == (4, dump.digest([1, 2, 3, 4]))
        assert prefixes.of_announced("Y") == prefixes.of("y")

    def test_another_request_of_the_same_name_is_learnt_anew(self):
        prefixes = dump.Prefixes(1, str)
        prefixes.learn("a", [1, 2], ["x", "y"])
        prefixes.learn("a", [5, 6, 7], ["u", "v", "w"])
        assert prefixes.of("w") == (3, dump.digest([5, 6, 7]))
        prefixes.forget(())
        assert prefixes.seen == {}
        assert prefixes.of("y") == (2, dump.digest([1, 2]))

    def test_a_hash_that_no_request_had_has_an_id_of_its_own(self):
        prefixes = dump.Prefixes(1, str)
        boundary, name = prefixes.of(b"?", 12)
        assert boundary == 12
        assert len(name) == 12
        assert prefixes.of(b"!", 12)[1] != name


class TestReports:
    def output(self, **fields: Any) -> Any:
        found = {"finished_recving": None, "finished_sending": None, "kv_connector_worker_meta": None, **fields}
        return Bag(**found)

    def stores(self, **events: int) -> Any:
        return Bag(completed_store_events={int(name[1:]): count for name, count in events.items()})

    def reader(self, state: dict[str, Any], requests: Any = (), running: Any = ()) -> Any:
        return Bag(
            state=lambda: state,
            pool=Bag(kv_event_queue=[]),
            host=Bag(
                cpu_block_pool=Bag(kv_event_queue=[]),
                _store_event_to_blocks=dict.fromkeys(running),
                _abandoned_store_event_to_blocks={},
            ),
            scheduler=Bag(requests=requests),
        )

    def state(self, **acks: int) -> dict[str, Any]:
        return {"transfers": {"acks": {name[1:]: count for name, count in acks.items()}}}

    def test_one_line_for_each_transfer_loads_first(self):
        report = completions.Report(self.output(finished_recving=["a"], kv_connector_worker_meta=self.stores(e3=1)))
        report.reached("complete_load", "a", self.reader({"transfers": {"acks": {}}, "after": "load"}))
        free = {"op": "free", "args": {"request": "a"}, "result": {}}
        last = self.reader({"after": "all"})
        lines = report.lines(last, self.state(), (0, 0), [free])
        assert [(op, args) for op, args, *_ in lines] == [
            ("complete_load", {"request": "a"}),
            ("complete_store", {"event": 3, "acks": 1}),
        ]
        assert lines[0][2] == {"freed": True, "calls": [free]}
        assert lines[0][3]["after"] == "load"
        assert lines[1][2] == {"done": True}
        assert lines[1][3] == {"after": "all"}

    def test_a_store_that_not_all_workers_acknowledged_only_counts(self):
        report = completions.Report(self.output(kv_connector_worker_meta=self.stores(e3=1, e4=2)))
        lines = report.lines(self.reader({"after": "all"}, running=[3]), self.state(a3=1), (0, 0), [])
        assert lines[0][2] == {"done": False}
        assert lines[0][3] == self.state(a3=2)
        assert lines[1][2] == {"done": True}

    def test_the_report_of_several_connectors_is_searched(self):
        meta = Bag(metadata=(None, Bag(other=1), self.stores(e0=1)))
        assert completions.completed_stores(meta) == {0: 1}
        assert completions.completed_stores(None) == {}

    @pytest.mark.parametrize("field", ["invalid_block_ids", "failed_recving", "finished_sending"])
    def test_failures_have_no_words(self, field):
        with pytest.raises(dump.CannotRecord):
            completions.Report(self.output(**{field: {1}}))


class TestFiles:
    def test_a_file_has_its_name_when_it_is_complete(self, tmp_path):
        path = tmp_path / "a.ndjson.gz"
        file = writing.File(str(path))
        file("one")
        assert [entry.name for entry in tmp_path.iterdir()] == ["a.ndjson.gz.part"]
        with pytest.raises(FileExistsError):
            writing.File(str(path))
        file.close()
        file.close()
        file("late")
        assert gzip.decompress(path.read_bytes()) == b"one\n"
        assert [entry.name for entry in tmp_path.iterdir()] == ["a.ndjson.gz"]

    def test_an_abandoned_one_is_gone(self, tmp_path):
        file = writing.File(str(tmp_path / "a.ndjson"))
        file("one")
        file.abandon()
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    def test_a_forked_process_writes_nothing(self, tmp_path):
        path = tmp_path / "a.ndjson.gz"
        file = writing.File(str(path))
        file("one")
        child = os.fork()
        if not child:
            try:
                file("of the child")
                file.close()
                file.file.close()
            finally:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        file("two")
        file.close()
        assert gzip.decompress(path.read_bytes()) == b"one\ntwo\n"
