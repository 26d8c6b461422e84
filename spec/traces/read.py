"""Strict reader of recordings: what it returns has the right version, fields, types, order and size, or it raises."""

from __future__ import annotations

import gzip
import io
import itertools
import math
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import attrs
import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from kvproof.spec.traces import format as trace_format
from kvproof.spec.traces import state as trace_state
from kvproof.spec.traces.errors import TraceError
from kvproof.spec.traces.format import Config, Event, Header
from kvproof.spec.traces.state import RecordedState, StateObject

GZIP_MAGIC = b"\x1f\x8b"
FULL_STATE_EVERY = 20


@attrs.frozen(slots=True)
class Limits:
    """Sizes above which a file is refused; all are far above any recording that this project ships.

    Attributes:
        line_bytes: length of one line after decompression.
        total_bytes: length of the whole file after decompression.
        operations: number of operation lines.
    """

    line_bytes: int = 16 << 20
    total_bytes: int = 512 << 20
    operations: int = 1_000_000


DEFAULT_LIMITS = Limits()


@attrs.frozen(slots=True)
class Call:
    """A manager-level call that a scheduler made: typed arguments and result (types in `spec.traces.format`).

    `change` is the difference to the state after the last call before it in the same line that has one, for the first of them
    to the state after the previous line; None where none was recorded.
    """

    op: str
    args: Any
    result: Any
    change: StateObject | None = None


@attrs.frozen(slots=True)
class Operation:
    """One operation line.

    Attributes:
        index: `i`, counted from 0.
        op: name of the operation.
        args: typed arguments, the first type listed for the operation in `format.OPERATIONS`.
        result: typed result, the second type; None when the engine raised.
        raised: "TypeName: message" of the engine's exception, on a last line only.
        calls: the scheduler's manager-level calls, in order.
        change: the state or delta of the line; None when the engine raised.
        is_full: whether `change` is a complete state.
    """

    index: int
    op: str
    args: Any
    result: Any
    raised: str | None
    calls: tuple[Call, ...]
    change: StateObject | None
    is_full: bool

    @property
    def line(self) -> int:
        """Line of the file, counted from 1."""
        return self.index + 2

    @property
    def events(self) -> list[Event] | None:
        """Cache events that the operation carries, or None when the line has no such field."""
        events = getattr(self.result, "events", UNSET)
        return None if events is UNSET else events


@attrs.frozen(slots=True)
class Recording:
    """A recording that was read completely and is well-formed.

    Attributes:
        name: how the caller named it; messages begin with it.
        header: line 1.
        operations: all further lines.
    """

    name: str
    header: Header
    operations: tuple[Operation, ...]

    @property
    def config(self) -> Config:
        """The recorded configuration."""
        return self.header.config

    def states(self) -> Iterator[tuple[Operation, RecordedState]]:
        """Each operation with the full state after it; an operation in which the engine raised has no state and is left out."""
        current: RecordedState | None = None
        for operation in self.operations:
            if operation.change is None:
                continue
            current = _follow(self.name, operation, current)
            yield operation, current

    def states_of_calls(self) -> Iterator[tuple[Operation, tuple[RecordedState | None, ...], RecordedState | None]]:
        """Each operation with the state after each of its calls (None where none was recorded), and the one after it; None for
        an operation in which the engine raised.
        """
        before: RecordedState | None = None
        for operation in self.operations:
            inside = _within(self.name, operation, before)
            if operation.change is None:
                yield operation, inside, None
                continue
            before = _follow(self.name, operation, before)
            yield operation, inside, before


class _Line(Struct, frozen=True, forbid_unknown_fields=True):
    i: int
    op: str
    args: Raw
    result: Raw | UnsetType = UNSET
    state: StateObject | UnsetType = UNSET
    delta: StateObject | UnsetType = UNSET
    raised: str | UnsetType = UNSET


_decode_line = msgspec.json.Decoder(_Line).decode
_decode_state = msgspec.json.Decoder(StateObject).decode
_decode_calls: dict[str, dict[str, tuple[msgspec.json.Decoder[Any], msgspec.json.Decoder[Any]]]] = {
    level: {name: (msgspec.json.Decoder(args), msgspec.json.Decoder(result)) for name, (args, result) in table.items()}
    for level, table in trace_format.OPERATIONS.items()
}


def read(path: Path | str, limits: Limits = DEFAULT_LIMITS, *, check_sizes: bool = True) -> Recording:
    """Read a recording from a file, gzip-compressed or plain.

    Args:
        path: the file.
        limits: sizes above which it is refused.
        check_sizes: refuse a header whose resolved sizes (`group_block_sizes`, `scheduler_block_size`) are not those that its
            groups give; without it they are what the engine resolved, to be judged.

    Raises:
        TraceError: the file cannot be opened, or is not a well-formed recording of version 1; names the line.
    """
    name = os.fspath(path)
    try:
        with Path(path).open("rb") as file:
            return read_stream(file, name, limits, check_sizes=check_sizes)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise TraceError(name, 0, f"cannot be read: {reason}", "name an existing recording") from error


def read_bytes(data: bytes, name: str, limits: Limits = DEFAULT_LIMITS, *, check_sizes: bool = True) -> Recording:
    """Read a recording from memory; `name` is what messages call it. Raises TraceError as `read` does."""
    return read_stream(io.BytesIO(data), name, limits, check_sizes=check_sizes)


def read_stream(file: BinaryIO, name: str, limits: Limits = DEFAULT_LIMITS, *, check_sizes: bool = True) -> Recording:
    """Read a recording from a seekable binary stream. Raises TraceError as `read` does."""
    lines = _lines(file, name, limits)
    first = next(lines, None)
    if first is None:
        raise TraceError(name, 0, "the file is empty", "record again")
    header = _header(first, name, check_sizes)
    operations: list[Operation] = []
    for index, line in enumerate(lines):
        if index >= limits.operations:
            raise TraceError(name, index + 2, f"more than {limits.operations:,} operations", "split the recording")
        if operations and operations[-1].raised is not None:
            raise TraceError(name, index + 2, "an operation follows one that raised", "end the recording there")
        operations.append(_operation(line, index, header, name))
    if not operations:
        raise TraceError(name, 1, "the header is followed by no operation", "record again: the first one is init")
    last = operations[-1]
    if last.raised is None and not last.is_full:
        raise TraceError(
            name, last.line, "the last line has no full state", "the recording was cut off here; get a complete copy"
        )
    recording = Recording(name, header, tuple(operations))
    for _ in recording.states_of_calls():  # every delta must apply, or the file is refused as a whole
        pass
    return recording


def _lines(file: BinaryIO, name: str, limits: Limits) -> Iterator[bytes]:
    """The lines without their ends; refuses too long ones before it holds them whole."""
    compressed = file.read(2) == GZIP_MAGIC
    file.seek(0)
    stream: Any = gzip.GzipFile(fileobj=file, mode="rb") if compressed else file
    number, total = 0, 0
    while True:
        number += 1
        try:
            line: bytes = stream.readline(limits.line_bytes + 2)
        except EOFError:
            raise TraceError(name, number, "the gzip stream ends too early", "get a complete copy of the file") from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise TraceError(name, number, f"the gzip stream is damaged ({error})", "get an intact copy") from None
        if not line:
            return
        total += len(line)
        if not line.endswith(b"\n"):
            if len(line) > limits.line_bytes:
                raise TraceError(name, number, f"the line has more than {limits.line_bytes:,} bytes", "split the recording")
            raise TraceError(name, number, "the line has no end", "the file was cut off here; get a complete copy")
        if len(line) > limits.line_bytes + 1:
            raise TraceError(name, number, f"the line has more than {limits.line_bytes:,} bytes", "split the recording")
        if total > limits.total_bytes:
            raise TraceError(
                name,
                number,
                f"the file has more than {limits.total_bytes:,} bytes when unpacked",
                "split the recording",
            )
        yield line.rstrip(b"\r\n")


def _header(line: bytes, name: str, check_sizes: bool) -> Header:
    advice = "line 1 must be the header of a kv-trace recording, see docs/trace-format.md"
    try:
        loose = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TraceError(name, 1, f"not JSON ({error})", advice) from None
    if not isinstance(loose, dict) or loose.get("format") != trace_format.FORMAT:
        raise TraceError(name, 1, f'not a recording: "format" is not "{trace_format.FORMAT}"', advice)
    version = loose.get("version")
    if type(version) is not int or version != trace_format.VERSION:
        raise TraceError(
            name,
            1,
            f"format version {version!r} is not known",
            f"this release reads version {trace_format.VERSION}: record again or use another release",
        )
    try:
        header = msgspec.json.decode(line, type=Header)
    except msgspec.ValidationError as error:
        raise TraceError(name, 1, str(error), advice) from None
    for what in itertools.chain(_size_contradictions(header.config) if check_sizes else (), _contradictions(header)):
        raise TraceError(name, 1, what, "correct the configuration in line 1")
    return header


def _size_contradictions(config: Config) -> Iterator[str]:
    """What the resolved sizes of a header say against its groups (docs/trace-format.md, section 1)."""
    ranks = config.dcp_world_size
    effective = [group.block_size * (ranks if group.dcp_sharded else 1) for group in config.groups]
    if config.group_block_sizes != effective:
        yield f"group_block_sizes {config.group_block_sizes} differ from the groups' {effective}"
    if config.scheduler_block_size != math.lcm(*effective):
        yield f"scheduler_block_size {config.scheduler_block_size} is not the least common multiple of {effective}"
    if any(size % config.hash_block_size for size in effective):
        yield f"hash_block_size {config.hash_block_size} does not divide every one of {effective}"


def _contradictions(header: Header) -> Iterator[str]:
    """What the fields of a header say against each other (docs/trace-format.md, section 2)."""
    config = header.config
    if len(config.group_block_sizes) != len(config.groups):
        yield f"group_block_sizes has {len(config.group_block_sizes)} entries for {len(config.groups)} groups"
    for index, group in enumerate(config.groups):
        if (group.kind in ("sliding_window", "chunked_local")) != (group.window is not None):
            yield f"group {index} ({group.kind}): window is for sliding_window and chunked_local, and they need it"
        recurrent = (group.mamba_cache_mode is not None, group.num_speculative_blocks is not None)
        if recurrent != ((True, True) if group.kind == "mamba" else (False, False)):
            yield f"group {index} ({group.kind}): mamba_cache_mode and num_speculative_blocks are for mamba, and it needs both"
    if (header.engine.level == "scheduler") != (config.scheduler is not None):
        yield f"engine.level is {header.engine.level}, but scheduler is {'' if config.scheduler else 'not '}given"


def _operation(line: bytes, index: int, header: Header, name: str) -> Operation:
    number = index + 2
    advice = "compare with docs/trace-format.md"
    try:
        raw = _decode_line(line)
    except msgspec.DecodeError as error:
        raise TraceError(name, number, str(error), advice) from None
    except UnicodeDecodeError:
        raise TraceError(name, number, "the line is not UTF-8", advice) from None
    if raw.i != index:
        raise TraceError(name, number, f"i is {raw.i}, expected {index}", "operations are numbered 0, 1, 2, ...")
    level = header.engine.level
    if raw.op not in _decode_calls[level]:
        raise TraceError(name, number, f"unknown operation {raw.op!r} at {level} level", advice)
    if (raw.op == "init") != (index == 0):
        raise TraceError(name, number, f"operation {index} is {raw.op!r}", "init is the first operation and only that")
    args = _part(raw.args, level, raw.op, 0, name, number)
    if raw.raised is not UNSET:
        if raw.result is not UNSET or raw.state is not UNSET or raw.delta is not UNSET:
            raise TraceError(name, number, "raised stands beside a result or state", "a line has either of them")
        return Operation(index, raw.op, args, None, raw.raised, (), None, False)
    if raw.result is UNSET:
        raise TraceError(name, number, "Object missing required field `result`", advice)
    result = _part(raw.result, level, raw.op, 1, name, number)
    calls = tuple(_call(call, header, name, number) for call in _given(getattr(result, "calls", UNSET)))
    change, is_full = _change(raw, header, name)
    return Operation(index, raw.op, args, result, None, calls, change, is_full)


def _change(raw: _Line, header: Header, name: str) -> tuple[StateObject, bool]:
    number = raw.i + 2
    if raw.state is not UNSET and raw.delta is not UNSET:
        raise TraceError(name, number, "state stands beside delta", "a line has either of them")
    if raw.state is not UNSET:
        wrong = trace_state.missing_from_full(
            raw.state, host=header.config.host is not None, queues=header.engine.level == "scheduler"
        )
        if wrong:
            raise TraceError(name, number, f"incomplete state: {', '.join(wrong)}", "a state has all its parts")
    elif raw.delta is UNSET:
        raise TraceError(name, number, "neither state nor delta", "every operation gives one of them")
    elif raw.i % FULL_STATE_EVERY == 0:
        raise TraceError(name, number, "no full state", f"every {FULL_STATE_EVERY}th operation gives one")
    change = raw.delta if raw.state is UNSET else raw.state
    assert change is not UNSET
    _check_rows(change, header, name, number)
    return change, raw.state is not UNSET


def _check_rows(change: StateObject, header: Header, name: str, number: int) -> None:
    """Refuse requests whose tables are not one per group, or whose placeholders do not fit the header. Raises TraceError."""
    groups = len(header.config.groups)
    scheduler = header.config.scheduler
    asynchronous = scheduler is not None and scheduler.asynchronous
    for request, row in (change.requests or {}).items() if change.requests is not UNSET else ():
        if row is not None and (row.placeholders is not UNSET) != asynchronous:
            raise TraceError(
                name,
                number,
                f"request {request} has {'no ' if asynchronous else ''}placeholders",
                "every request of an asynchronous scheduler has them, and no other one",
            )
        if row is not None and not len(row.tables) == len(row.num_cached) == groups:
            raise TraceError(
                name,
                number,
                f"request {request} has {len(row.tables)} tables",
                f"there are {groups} groups, one table each",
            )


def _call(call: trace_format.RawCall, header: Header, name: str, number: int) -> Call:
    if call.op not in _decode_calls["call"]:
        raise TraceError(name, number, f"unknown call {call.op!r}", "compare with docs/trace-format.md, section 5")
    args = _part(call.args, "call", call.op, 0, name, number)
    # an engine's call that returns nothing is written as an empty object
    result = _part(call.result, "call", call.op, 1, name, number)
    if call.delta is UNSET:
        return Call(call.op, args, result)
    try:
        change = _decode_state(call.delta)
    except msgspec.DecodeError as error:
        raise TraceError(name, number, f"{call.op} delta: {error}", "compare with docs/trace-format.md") from None
    _check_rows(change, header, name, number)
    return Call(call.op, args, result, change)


def _part(raw: Raw, level: str, op: str, which: int, name: str, number: int) -> Any:
    try:
        return _decode_calls[level][op][which].decode(raw)
    except msgspec.DecodeError as error:
        place = ("args", "result")[which]
        raise TraceError(name, number, f"{op} {place}: {error}", "compare with docs/trace-format.md") from None


def _given(calls: Any) -> Any:
    return () if calls is UNSET else calls


def _within(name: str, operation: Operation, before: RecordedState | None) -> tuple[RecordedState | None, ...]:
    """Return the state after each call of an operation, None where none was recorded."""
    states: list[RecordedState | None] = []
    for call in operation.calls:
        if call.change is not None and before is not None:
            before = _applied(name, operation, before, call.change)
        states.append(None if call.change is None else before)
    return tuple(states)


def _follow(name: str, operation: Operation, before: RecordedState | None) -> RecordedState:
    assert operation.change is not None
    if operation.is_full:
        return trace_state.full(operation.change)
    assert before is not None  # operation 0 has a full state, or reading had failed
    return _applied(name, operation, before, operation.change)


def _applied(name: str, operation: Operation, before: RecordedState, change: StateObject) -> RecordedState:
    """Return the state that follows by a difference. Raises TraceError."""
    try:
        return trace_state.after(before, change)
    except KeyError as error:
        raise TraceError(
            name,
            operation.line,
            f"the delta changes {error.args[0]}, which does not exist",
            "compare with the lines before",
        ) from None
