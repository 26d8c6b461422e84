"""Recorded state: the parts of a state object, and the state after each operation rebuilt from the deltas."""

from __future__ import annotations

from typing import Any, Literal

import attrs
import msgspec
from msgspec import UNSET, Struct, UnsetType

from kvproof.spec.traces.format import Block, BlockLists, Copy, Count, Group, PrefixId, Request, Tokens, Whole

KeyRow = tuple[Block, Group, Tokens, PrefixId, Literal["primary", "secondary"]]
SharedKeyRow = tuple[Group, Tokens, PrefixId, list[Block]]


class _Part(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of the parts: a delta gives some of the fields, a full state all of them."""


class Pool(_Part, frozen=True):
    """One tier: reference counts, free queue (next to be reused first), keys, and keys that several blocks carry."""

    ref: dict[Block, Count] | UnsetType = UNSET
    free: list[Block] | UnsetType = UNSET
    keys: list[KeyRow] | UnsetType = UNSET
    shared_keys: list[SharedKeyRow] | UnsetType = UNSET


class RequestRow(Struct, frozen=True, forbid_unknown_fields=True):
    """One request; always complete. Counts in tokens, except `num_cached`: table entries per group.

    `placeholders` stands in the recordings of asynchronous schedulers and in no other.
    """

    status: Literal["waiting", "running", "preempted", "loading", "finished"]
    tokens: Tokens
    computed: Tokens
    in_flight: Count
    tables: BlockLists
    num_cached: list[Count | None]
    placeholders: Whole | UnsetType = UNSET


class StepPart(_Part, frozen=True):
    """What the running step has queued."""

    copies: list[Copy] | UnsetType = UNSET
    handoffs: list[tuple[Request, Group, Block, Tokens]] | UnsetType = UNSET
    deferred_frees: list[tuple[Count, list[Block]]] | UnsetType = UNSET


class Counters(_Part, frozen=True):
    """Handoff outcomes."""

    published: Count | UnsetType = UNSET
    stored: Count | UnsetType = UNSET
    dropped_cpu_full: Count | UnsetType = UNSET
    dropped_request_gone: Count | UnsetType = UNSET
    skipped_already_cached: Count | UnsetType = UNSET
    skipped_in_flight: Count | UnsetType = UNSET
    dropped_null_block: Count | UnsetType = UNSET
    dropped_not_hashed: Count | UnsetType = UNSET


class PendingHit(Struct, frozen=True, forbid_unknown_fields=True):
    """Pinned host hit of `length` tokens after the first `start`."""

    length: Tokens
    start: Tokens
    blocks: BlockLists


class LoadRow(Struct, frozen=True, forbid_unknown_fields=True):
    """A load; `event` is null while it is not issued."""

    event: Count | None
    finished: bool
    device: list[Block]
    host: list[Block]


class AbandonedLoadRow(Struct, frozen=True, forbid_unknown_fields=True):
    """A load whose host tier was reset."""

    event: Count | None
    device: list[Block]
    host: list[Block]


class StoreRow(Struct, frozen=True, forbid_unknown_fields=True):
    """A store, lists index-parallel."""

    device: list[Block]
    host: list[Block]


class Transfers(_Part, frozen=True):
    """Everything between the tiers."""

    pending_hits: dict[Request, PendingHit] | UnsetType = UNSET
    loads: dict[Request, LoadRow] | UnsetType = UNSET
    abandoned_loads: dict[Request, AbandonedLoadRow] | UnsetType = UNSET
    stores: dict[Count, StoreRow] | UnsetType = UNSET
    abandoned_stores: dict[Count, StoreRow] | UnsetType = UNSET
    acks: dict[Count, Count] | UnsetType = UNSET
    finish_queue: list[StoreRow] | UnsetType = UNSET
    cursors: dict[Request, list[Count]] | UnsetType = UNSET
    lazy_cursor: Block | UnsetType | None = UNSET


class Queues(_Part, frozen=True):
    """A scheduler's queues of requests."""

    running: list[Request] | UnsetType = UNSET
    waiting: list[Request] | UnsetType = UNSET
    holding: list[Request] | UnsetType = UNSET


class StateObject(_Part, frozen=True):
    """A state or a delta as it stands in a line."""

    device: Pool | UnsetType = UNSET
    host: Pool | UnsetType | None = UNSET
    requests: dict[Request, RequestRow | None] | UnsetType = UNSET
    step: StepPart | UnsetType = UNSET
    counters: Counters | UnsetType | None = UNSET
    in_flight: list[Block] | UnsetType | None = UNSET
    transfers: Transfers | UnsetType | None = UNSET
    queues: Queues | UnsetType = UNSET


@attrs.frozen(slots=True)
class RecordedState:
    """The recorded state after one operation, as plain dictionaries, lists, tuples, integers and strings.

    The fields have the names and contents of docs/trace-format.md, section 3, with block and event numbers as integers and
    key rows as tuples. A part is None where the recording has none: `host`, `counters`, `in_flight` and `transfers` without
    a host tier, `queues` at manager level. A state is never changed after it was made: unchanged parts are shared with the
    state before, so do not write into them.
    """

    device: dict[str, Any]
    host: dict[str, Any] | None
    requests: dict[str, dict[str, Any]]
    step: dict[str, Any]
    counters: dict[str, int] | None
    in_flight: list[int] | None
    transfers: dict[str, Any] | None
    queues: dict[str, Any] | None

    def as_dict(self) -> dict[str, Any]:
        """The eight parts by name, for printing and for a comparison of whole states."""
        return {name: getattr(self, name) for name in attrs.fields_dict(RecordedState)}


def missing_from_full(state: StateObject, *, host: bool, queues: bool) -> list[str]:
    """Names of the parts and fields that a full state must have and this one has not; also parts it must not have.

    Args:
        state: the object under `state` of a line.
        host: whether the configuration has a host tier.
        queues: whether the recording is at scheduler level.
    """
    wrong = []
    for name in state.__struct_fields__:
        part = getattr(state, name)
        if name == "queues" and not queues:
            if part is not UNSET:
                wrong.append("queues (must be absent)")
        elif part is UNSET:
            wrong.append(name)
        elif part is None and host:
            wrong.append(f"{name} (null, but there is a host)")
        elif part is not None and not host and name in ("host", "counters", "in_flight", "transfers"):
            wrong.append(f"{name} (must be null without a host)")
        elif isinstance(part, _Part):
            wrong += [f"{name}.{field}" for field in part.__struct_fields__ if getattr(part, field) is UNSET]
        elif isinstance(part, dict):  # requests
            wrong += [f"requests.{key}" for key, row in part.items() if row is None]
    return wrong


def full(state: StateObject) -> RecordedState:
    """The recorded state that a complete state object describes."""
    plain = msgspec.to_builtins(state)
    return RecordedState(**{name: plain.get(name) for name in StateObject.__struct_fields__})


def after(before: RecordedState, delta: StateObject) -> RecordedState:
    """The state that follows `before` by `delta`.

    In each part the entries given replace the old ones entirely; in `requests` null deletes (section 3).

    Raises:
        KeyError: the delta has an entry for a part that this recording has not, or deletes an unknown request; the argument
            names it.
    """
    changes: dict[str, Any] = msgspec.to_builtins(delta)
    for name, change in changes.items():
        old = getattr(before, name)
        if old is None or change is None:
            raise KeyError(name)
        if not isinstance(old, dict):  # in_flight is replaced whole
            continue
        new = {**old, **change}
        if name == "requests":
            for key in [key for key, row in change.items() if row is None]:
                if key not in old:
                    raise KeyError(f"requests.{key}")
                del new[key]
        changes[name] = new
    return attrs.evolve(before, **changes) if changes else before
