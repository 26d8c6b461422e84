from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from kvproof.spec.exits import UserError
from kvproof.spec.traces import archive
from kvproof.spec.traces.errors import TraceError
from kvproof.spec.traces.read import Limits, Recording, read, read_bytes

Lines = list[dict[str, Any]]


def lines_of(name: str) -> Lines:
    return [json.loads(line) for line in archive.unpack(name).splitlines()]


def encode(lines: Lines) -> bytes:
    return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)


def refuse(data: bytes, **limits: int) -> TraceError:
    with pytest.raises(TraceError) as caught:
        read_bytes(data, "some.ndjson.gz", Limits(**limits))
    return caught.value


def plain(recording: Recording) -> tuple[Any, ...]:
    return recording.header, recording.operations


class TestGoodFiles:
    def test_gzip_and_plain_text_give_the_same(self):
        packed = archive.read_member("d_cow_dcp2")
        assert plain(read_bytes(packed, "a")) == plain(read_bytes(gzip.decompress(packed), "b"))

    def test_a_file_is_read_by_its_path(self, tmp_path):
        path = tmp_path / "x.ndjson.gz"
        path.write_bytes(archive.read_member("d_cow_dcp2"))
        recording = read(path)
        assert recording.name == str(path)
        assert len(recording.operations) == 20

    def test_the_worked_example_of_the_format_page(self):
        """docs/trace-format.md, section 8: numbers that a person wrote down."""
        recording = archive.open_recording("d_cow_dcp2")
        assert recording.config.group_block_sizes == [8, 4]
        states = list(recording.states())
        allocations = [(op, state) for op, state in states if op.op == "allocate"]
        first, first_state = allocations[0]
        assert first.args.new_tokens == 12
        assert first.result.new_blocks == [[1, 2], [0, 0, 3]]
        assert first_state.device["keys"] == [
            (1, 0, 8, "7fb9e1d1172d", "primary"),
            (2, 0, 12, "7909937abe13", "primary"),
            (3, 1, 12, "7909937abe13", "primary"),
        ]
        assert first_state.requests["A"]["num_cached"] == [1, 3]
        assert first_state.step["handoffs"] == [("A", 1, 3, 12)]
        shared, shared_state = allocations[2]
        assert shared.args.local == 12
        assert shared_state.requests["B"]["tables"] == [[1, 4], [0, 0, 3, 5]]
        assert shared_state.step["copies"] == [(2, 4)]
        assert {block: shared_state.device["ref"][block] for block in (2, 4)} == {2: 1, 4: 2}
        assert (0, 12, "7909937abe13", [2, 4]) in shared_state.device["shared_keys"]
        after_finish = next(state for op, state in states if op.op == "finish")
        assert after_finish.device["free"][-4:] == [39, 2, 1, 3]
        assert after_finish.device["free"][0] == 4

    def test_the_last_line_may_say_that_the_engine_raised(self):
        lines = lines_of("d_cow_dcp2")[:8]
        last = {key: lines[7][key] for key in ("i", "op", "args")} | {"raised": "ValueError: no"}
        recording = read_bytes(encode([*lines[:7], last]), "x")
        assert recording.operations[-1].raised == "ValueError: no"
        assert recording.operations[-1].change is None
        assert len(list(recording.states())) == len(recording.operations) - 1

    def test_states_already_yielded_do_not_change(self):
        recording = archive.open_recording("d_cow_dcp2")
        seen = [(state, json.dumps(state.as_dict())) for _, state in recording.states()]
        assert [json.dumps(state.as_dict()) for state, _ in seen] == [text for _, text in seen]
        assert len({text for _, text in seen}) > 10


class TestDamagedFiles:
    def test_missing_file(self, tmp_path):
        with pytest.raises(TraceError, match=r"nothing\.gz: cannot be read: no such file"):
            read(tmp_path / "nothing.gz")

    def test_folder(self, tmp_path):
        with pytest.raises(TraceError, match="cannot be read: is a directory"):
            read(tmp_path)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_unreadable_file(self, tmp_path):
        path = tmp_path / "x"
        path.touch(mode=0)
        with pytest.raises(TraceError, match="permission denied"):
            read(path)

    def test_empty_file(self):
        assert "empty" in refuse(b"").what
        assert "empty" in refuse(gzip.compress(b"")).what

    def test_every_truncation_of_a_gzip_file_is_noticed(self):
        data = archive.read_member("d_cow_dcp2")
        for length in range(3, len(data), 37):
            error = refuse(data[:length])
            assert "too early" in error.what
            assert error.line >= 1

    def test_damaged_gzip_stream(self):
        data = bytearray(archive.read_member("d_cow_dcp2"))
        data[12] ^= 0xFF  # the first bytes of the compressed data say how the rest is coded
        error = refuse(bytes(data))
        assert "the gzip stream is damaged" in error.what

    def test_a_flipped_byte_anywhere_is_noticed(self):
        """In the middle of the stream the damage may first show as a line that makes no sense."""
        data = archive.read_member("d_cow_dcp2")
        for place in range(10, len(data), 29):
            refuse(data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :])

    def test_wrong_checksum(self):
        data = bytearray(archive.read_member("d_cow_dcp2"))
        data[-6] ^= 0xFF
        assert "damaged" in refuse(bytes(data)).what

    def test_every_truncation_of_the_text_is_noticed(self):
        data = gzip.decompress(archive.read_member("d_cow_dcp2"))
        for length in range(1, len(data), 101):
            refuse(data[:length])

    def test_cut_between_two_lines(self):
        error = refuse(encode(lines_of("d_cow_dcp2")[:8]))
        assert (error.line, error.what) == (8, "the last line has no full state")

    def test_header_alone(self):
        assert "no operation" in refuse(encode(lines_of("d_cow_dcp2")[:1])).what

    @pytest.mark.parametrize(
        "text", [b"\x00\x01\n", b"hello\n", b"[]\n", b"{}\n", b'{"format":"other","version":1}\n', b"\xff\xfe\n"]
    )
    def test_something_else_than_a_recording(self, text):
        error = refuse(text)
        assert error.line == 1
        assert "not" in error.what

    def test_text_that_is_not_utf_8(self):
        lines = encode(lines_of("d_cow_dcp2")).splitlines(keepends=True)
        assert refuse(lines[0] + lines[1] + lines[2].replace(b'"A"', b'"\xff"')).line == 3

    def test_line_that_is_not_json(self):
        lines = encode(lines_of("d_cow_dcp2")).splitlines(keepends=True)
        assert refuse(lines[0] + lines[1] + b"{nonsense\n").line == 3


def change(path: str, value: Any) -> Callable[[Lines], None]:
    """Set what `path` names ("3.args.request": line 3, field args, field request); `...` deletes."""
    *steps, last = path.split(".")

    def apply(lines: Lines) -> None:
        target: Any = lines
        for step in steps:
            target = target[int(step) if isinstance(target, list) else step]
        key: Any = int(last) if isinstance(target, list) else last
        if value is ...:
            del target[key]
        else:
            target[key] = value

    return apply


# d_cow_dcp2: line 0 header, 1 init (state), 2 submit, 4 lookup, 5 allocate, 6 end_step
BAD = {
    "version 2": (change("0.version", 2), 1, "version 2 is not known"),
    "version as text": (change("0.version", "1"), 1, "version '1' is not known"),
    "version true": (change("0.version", True), 1, "version True is not known"),
    "no version": (change("0.version", ...), 1, "version None is not known"),
    "no engine": (change("0.engine", ...), 1, "missing required field `engine`"),
    "unknown level": (change("0.engine.level", "kernel"), 1, "Invalid enum value 'kernel'"),
    "no config field": (change("0.config.seed", ...), 1, "missing required field `seed`"),
    "unknown config field": (change("0.config.sead", 1), 1, "unknown field `sead`"),
    "text for a number": (change("0.config.seed", "0"), 1, "Expected `int`, got `str` - at `$.config.seed`"),
    "fraction for a number": (change("0.config.seed", 0.5), 1, "Expected `int`, got `float`"),
    "true for a number": (change("0.config.seed", True), 1, "Expected `int`, got `bool`"),
    "number for a truth value": (change("0.config.use_eagle", 0), 1, "Expected `bool`, got `int`"),
    "unknown kind": (change("0.config.groups.0.kind", "linear"), 1, "Invalid enum value 'linear'"),
    "no groups": (change("0.config.groups", []), 1, "length >= 1"),
    "65 groups": (change("0.config.groups", [{"kind": "mamba", "block_size": 1, "dcp_sharded": False}] * 65), 1, "length <= 64"),
    "block size 0": (change("0.config.groups.0.block_size", 0), 1, ">= 1"),
    "absurd block size": (change("0.config.groups.0.block_size", 10**12), 1, "<= 1048576"),
    "absurd pool": (change("0.config.num_device_blocks", 10**12), 1, "<= 1048576"),
    "negative pool": (change("0.config.num_device_blocks", -1), 1, ">= 1"),
    "absurd DCP size": (change("0.config.dcp_world_size", 10**6), 1, "<= 4096"),
    "absurd length": (change("0.config.max_model_len", 10**18), 1, "<= 16777216"),
    "number beyond 64 bits": (change("0.config.seed", 10**30), 1, ""),
    "wrong effective size": (change("0.config.group_block_sizes.0", 16), 1, "differ from the groups'"),
    "wrong S": (change("0.config.scheduler_block_size", 16), 1, "least common multiple"),
    "wrong H": (change("0.config.hash_block_size", 3), 1, "does not divide"),
    "window for full attention": (change("0.config.groups.0.window", 8), 1, "window is for"),
    "recurrent group without mode": (change("0.config.groups.1.mamba_cache_mode", ...), 1, "it needs both"),
    "scheduler at manager level": (
        change(
            "0.config.scheduler",
            {
                "policy": "fcfs",
                "runner": "v2",
                "long_prefill_token_threshold": 0,
                "reserve_full_sequence": False,
                "concurrent_batches": 1,
            },
        ),
        1,
        "scheduler is given",
    ),
    "no args": (change("3.args", ...), 4, "missing required field `args`"),
    "no result": (change("3.result", ...), 4, "missing required field `result`"),
    "no op": (change("3.op", ...), 4, "missing required field `op`"),
    "unknown op": (change("3.op", "fly"), 4, "unknown operation 'fly' at manager level"),
    "op of the other level": (change("3.op", "step"), 4, "unknown operation 'step'"),
    "unknown field of a line": (change("3.note", 1), 4, "unknown field `note`"),
    "gap in the numbers": (change("3.i", 7), 4, "i is 7, expected 2"),
    "a second init": (change("3.op", "init"), 4, "operation 2 is 'init'"),
    "first is not init": (change("1.op", "begin_step"), 2, "operation 0 is 'begin_step'"),
    "argument missing": (change("2.args.request", ...), 3, "submit args: Object missing required field `request`"),
    "argument of wrong type": (change("2.args.tokens", "abc"), 3, "submit args: Expected `array`"),
    "token of wrong type": (change("2.args.tokens.3", None), 3, "submit args: Expected `int`, got `null` - at `$.tokens[3]`"),
    "unknown argument": (change("2.args.priority", 1), 3, "unknown field `priority`"),
    "result of wrong type": (change("2.result.hashes", "3"), 3, "submit result: Expected `int`"),
    "negative result": (change("2.result.hashes", -3), 3, ">= 0"),
    "result missing a field": (change("4.result.junction", ...), 5, "lookup result: Object missing required field `junction`"),
    "no state and no delta": (change("3.delta", ...), 4, "neither state nor delta"),
    "state and delta": (change("1.delta", {}), 2, "state stands beside delta"),
    "raised and result": (change("3.raised", "E: x"), 4, "raised stands beside"),
    "unknown part of a delta": (change("3.delta.gpu", {}), 4, "unknown field `gpu`"),
    "part of wrong type": (change("3.delta.device", []), 4, "Expected `object`, got `array`"),
    "block as text": (change("3.delta.device", {"free": ["1"]}), 4, "Expected `int`, got `str`"),
    "absurd block": (change("3.delta.device", {"free": [1 << 40]}), 4, "<= 1048575"),
    "key row too short": (change("3.delta.device", {"keys": [[1, 0, 8, "7fb9e1d1172d"]]}), 4, "length 5"),
    "prefix id of wrong form": (change("3.delta.device", {"keys": [[1, 0, 8, "XYZ", "primary"]]}), 4, "length >= 12"),
    "unknown role of a key": (change("3.delta.device", {"keys": [[1, 0, 8, "7fb9e1d1172d", "third"]]}), 4, "Invalid enum value"),
    "delta for an absent host": (change("3.delta.host", {"free": [1]}), 4, "the delta changes host, which does not exist"),
    "delta for an absent list": (change("3.delta.in_flight", [1]), 4, "the delta changes in_flight, which does not exist"),
    "null for a part": (change("3.delta.host", None), 4, "the delta changes host"),
    "null for a list": (change("3.delta.in_flight", None), 4, "the delta changes in_flight"),
    "deleting an unknown request": (change("3.delta.requests", {"Z": None}), 4, "the delta changes requests.Z"),
    "incomplete state": (change("1.state.step.copies", ...), 2, "incomplete state: step.copies"),
    "state without a part": (change("1.state.device", ...), 2, "incomplete state: device"),
    "host in a state without one": (change("1.state.in_flight", []), 2, "in_flight (must be null without a host)"),
    "queues at manager level": (change("1.state.queues", {}), 2, "queues (must be absent)"),
    "too few tables": (change("2.delta.requests.A.tables", [[]]), 3, "request A has 1 tables"),
    "status unknown": (change("2.delta.requests.A.status", "asleep"), 3, "Invalid enum value 'asleep'"),
}  # fmt: skip


@pytest.mark.parametrize(("damage", "line", "what"), BAD.values(), ids=BAD.keys())
def test_a_bad_line_is_refused_with_its_place(damage, line, what):
    lines = lines_of("d_cow_dcp2")
    read_bytes(encode(lines), "x")  # the damage alone is what is refused
    damage(lines)
    error = refuse(encode(lines))
    assert error.line == line
    assert what in error.what
    assert str(error) == f"some.ndjson.gz:{line}: {error.what}; {error.advice}"
    assert isinstance(error, UserError)


def test_missing_full_state_at_a_twentieth_operation():
    lines = lines_of(next(entry.name for entry in archive.entries() if entry.ops > 45))
    lines[21]["delta"] = lines[21].pop("state")
    assert (refuse(encode(lines)).line, refuse(encode(lines)).what) == (22, "no full state")


def test_an_operation_after_one_that_raised():
    lines = lines_of("d_cow_dcp2")
    lines[3] = {key: lines[3][key] for key in ("i", "op", "args")} | {"raised": "E: x"}
    error = refuse(encode(lines))
    assert (error.line, error.what) == (5, "an operation follows one that raised")


def test_an_unknown_call_inside_a_scheduler_line():
    lines = lines_of(next(entry.name for entry in archive.entries() if entry.level == "scheduler"))
    number = next(i for i, line in enumerate(lines) if line.get("result", {}).get("calls"))
    call = lines[number]["result"]["calls"][0]
    good = dict(call)
    call["op"] = "fly"
    assert (refuse(encode(lines)).line, refuse(encode(lines)).what) == (number + 1, "unknown call 'fly'")
    call.update(good, args={})
    assert "args: Object missing required field" in refuse(encode(lines)).what


def line_with_calls(name: str) -> tuple[Lines, int]:
    """A scheduler-level recording and the number of a line that has two calls and a delta."""
    lines = lines_of(name)
    number = next(i for i, line in enumerate(lines) if "delta" in line and len(line["result"].get("calls", ())) > 1)
    return lines, number


class TestStatesOfCalls:
    NAME = "s1265_fa_mamba_swaX_dcp2"

    def test_a_call_may_say_what_it_changed(self):
        """The first difference is relative to the line before, the next to the first one; the line's own one is as without."""
        lines, number = line_with_calls(self.NAME)
        without = list(read_bytes(encode(lines), "x").states())
        first, *_, last = lines[number]["result"]["calls"]
        first["delta"] = {"device": {"free": [5, 6]}}
        last["delta"] = {"step": {"copies": [[5, 6]]}}
        recording = read_bytes(encode(lines), "x")
        operation, calls, after = list(recording.states_of_calls())[number - 1]
        before = without[number - 2][1]
        assert calls[1:-1] == (None,) * (len(operation.calls) - 2)
        assert calls[0] is not None
        assert calls[0].device == before.device | {"free": [5, 6]}
        assert calls[0].step == before.step
        assert calls[-1] is not None
        assert (calls[-1].device, calls[-1].step["copies"]) == (calls[0].device, [(5, 6)])
        assert after == without[number - 1][1]
        assert [state for _, state in recording.states()] == [state for _, state in without]

    def test_no_change_is_something_else_than_no_word(self):
        lines, number = line_with_calls(self.NAME)
        lines[number]["result"]["calls"][1]["delta"] = {}
        recording = read_bytes(encode(lines), "x")
        before = list(recording.states())[number - 2][1]
        assert list(recording.states_of_calls())[number - 1][1][:2] == (None, before)

    @pytest.mark.parametrize(
        ("delta", "what"),
        [
            ({"gpu": {}}, "unknown field `gpu`"),
            ({"in_flight": [1]}, "the delta changes in_flight, which does not exist"),
            ({"requests": {"Z": None}}, "the delta changes requests.Z"),
            ([], "Expected `object`, got `array`"),
        ],
    )
    def test_a_bad_one_is_refused_with_its_line(self, delta, what):
        lines, number = line_with_calls(self.NAME)
        lines[number]["result"]["calls"][0]["delta"] = delta
        error = refuse(encode(lines))
        assert error.line == number + 1
        assert what in error.what

    def test_tables_are_one_per_group(self):
        lines, number = line_with_calls(self.NAME)
        row = dict(
            next(iter(next(line["delta"]["requests"] for line in lines if line.get("delta", {}).get("requests")).values()))
        )
        lines[number]["result"]["calls"][0]["delta"] = {"requests": {"r": row | {"tables": [[]]}}}
        assert "has 1 tables" in refuse(encode(lines)).what


class TestHeader:
    def test_connectors(self):
        lines = lines_of("d_cow_dcp2")
        assert read_bytes(encode(lines), "x").config.connectors is None
        change("0.config.connectors", [{"divergent": True, "tokens": 16}])(lines)
        found = read_bytes(encode(lines), "x").config.connectors
        assert found is not None
        assert [(one.divergent, one.tokens) for one in found] == [(True, 16)]
        change("0.config.connectors.0.tokens", ...)(lines)
        assert "missing required field `tokens`" in refuse(encode(lines)).what

    @pytest.mark.parametrize("path", ["group_block_sizes.0", "scheduler_block_size", "hash_block_size"])
    def test_resolved_sizes_may_be_left_to_a_judge(self, path):
        lines = lines_of("d_cow_dcp2")
        change(f"0.config.{path}", 3)(lines)
        refuse(encode(lines))
        read_bytes(encode(lines), "x", check_sizes=False)

    def test_one_size_per_group(self):
        lines = lines_of("d_cow_dcp2")
        change("0.config.group_block_sizes", [8])(lines)
        with pytest.raises(TraceError, match="1 entries for 2 groups"):
            read_bytes(encode(lines), "x", check_sizes=False)


class TestLimits:
    def test_long_line(self):
        data = archive.read_member("d_cow_dcp2")
        longest = max(map(len, gzip.decompress(data).split(b"\n")))
        read_bytes(data, "x", Limits(line_bytes=longest))
        assert "more than" in refuse(data, line_bytes=longest - 1).what

    def test_a_line_without_end_is_not_read_to_its_end(self):
        """A small file that unpacks to 64 MiB on one line."""
        bomb = gzip.compress(b'{"format":"' + b"a" * (64 << 20))
        error = refuse(bomb, line_bytes=1 << 16)
        assert (error.line, error.what) == (1, "the line has more than 65,536 bytes")

    def test_whole_file(self):
        data = archive.read_member("d_cow_dcp2")
        size = len(gzip.decompress(data))
        read_bytes(data, "x", Limits(total_bytes=size))
        assert "when unpacked" in refuse(data, total_bytes=size - 1).what

    def test_number_of_operations(self):
        data = archive.read_member("d_cow_dcp2")
        read_bytes(data, "x", Limits(operations=20))
        error = refuse(data, operations=19)
        assert (error.line, error.what) == (21, "more than 19 operations")
