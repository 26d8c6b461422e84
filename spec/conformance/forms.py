"""The form of what an adapter shows, checked in one place before anything uses it: types, lengths, and numbers in their range.

What has the right form and is wrong is for the laws. What has not would end in the middle of the oracle, or keep it busy for
ever; the error names the part and says what is needed. Parts that ``reading`` translates as a whole are read there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import Any

from attrs import define, fields_dict

from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.offload.state import Counters
from kvproof.core.world import new_world
from kvproof.spec.conformance.adapter import AdapterError, HostState, Observation, Pin, PoolState, RequestState, State, Transfer
from kvproof.spec.traces import project

FARTHEST = 1 << 16
"""Tokens beyond the longest request at which something may be shown before it is nonsense: laws look at it until then."""
LONGEST = 200
"""Characters of a value in an error."""
COUNTED: frozenset[str] = frozenset(fields_dict(Counters)) | {"load_blocks"}
STATUSES: tuple[str, ...] = tuple(project.STATUS.values())


def shortened(shown: object) -> str:
    """Return a value in an error, cut if it is long."""
    text = repr(shown)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def farthest(config: Config) -> int:
    """Return the most tokens that anything shown may stand for."""
    return config.max_model_len + FARTHEST


@define(slots=True)
class Forms:
    """Checks what one adapter shows in one run; what is the very same object as last time is not checked again."""

    config: Config
    rows: int
    _checked: dict[str, object]

    @classmethod
    def of(cls, config: Config) -> Forms:
        """Return the checks of a run under a configuration."""
        return cls(config, len(new_world(config).worker.owners), {})

    def check(self, action: Action, observation: Observation) -> None:
        """Check an observation. Raises AdapterError."""
        try:
            self._observation(observation)
        except AdapterError as error:
            raise AdapterError(f"{type(action).__name__}: {error}") from error

    def _observation(self, observation: Observation) -> None:
        state = observation.state
        _kind("state", state, State)
        _kind("result", observation.result, Mapping)
        _kind("state.device", state.device, PoolState)
        if observation.refusal is not None and not isinstance(observation.refusal, str):
            raise _wrong("refusal", observation.refusal, "the message of a refusal is needed, or None where there is none")
        if state.requests is not None:
            _kind("state.requests", state.requests, Mapping)
            for name, said in state.requests.items():
                _number("state.requests", name)
                self._request(f"request {name}", said)
        for part, width in (("copies", 2), ("handoffs", 4)):
            rows = getattr(state, part)
            if rows is not None and not self._same(part, rows):
                _rows(f"state.{part}", rows, width)
        if state.deferred is not None and not self._same("deferred", state.deferred):
            for fence, blocks in _rows("state.deferred", state.deferred, 2, numbers=False):
                _number("state.deferred", fence)
                _numbers("state.deferred", blocks)
        if state.rows is not None and not self._same("rows", state.rows):
            self._rows(state.rows)
        if state.host is not None:
            self._host(state.host)

    def _same(self, part: str, shown: object) -> bool:
        same = self._checked.get(part) is shown
        self._checked[part] = shown
        return same

    def _request(self, name: str, said: Any) -> None:
        _kind(name, said, RequestState)
        if self._same(name, said):
            return
        if said.num_cached is not None:
            for count in _sequence(f"{name} num_cached", said.num_cached):
                if count is not None:
                    _number(f"{name} num_cached", count, 0, farthest(self.config))
        for part in ("computed", "in_flight"):
            count = getattr(said, part)
            if count is not None:
                _number(f"{name} {part}", count, 0, farthest(self.config), "a number of tokens")
        if said.status is not None and (not isinstance(said.status, str) or said.status not in STATUSES):
            raise _wrong(f"{name} status", said.status, f"one of {', '.join(STATUSES)} is needed")

    def _rows(self, shown: Any) -> None:
        for row, lists in _kind("state.rows", shown, Mapping).items():
            _number("state.rows", row, 0, self.rows - 1, "the number of a row")
            _lists(f"state.rows[{row}]", lists, len(self.config.groups))

    # --- the host tier ------------------------------------------------------------------------------------------------

    def _host(self, host: Any) -> None:
        _kind("state.host", host, HostState)
        _kind("state.host.pool", host.pool, PoolState)
        for pin in self._parts(host, "pins", Pin):
            _number("state.host.pins", pin.request, 0)
            for count in (pin.start, pin.length):
                _number("state.host.pins", count, 0, farthest(self.config), "a number of tokens")
            _lists("state.host.pins", pin.lists, len(self.config.groups))
        for name in ("loads", "abandoned_loads", "stores", "abandoned_stores", "queued"):
            for moved in self._parts(host, name, Transfer):
                _numbers(f"state.host.{name}", moved.device)
                _numbers(f"state.host.{name}", moved.host)
                for count in (moved.event, moved.request):
                    _number(f"state.host.{name}", count, -1)
                _number(f"state.host.{name}", moved.acks, 0)
        if host.cursors is not None and not self._same("cursors", host.cursors):
            for request, cursors in _kind("state.host.cursors", host.cursors, Mapping).items():
                _number("state.host.cursors", request, 0)
                if len(_numbers("state.host.cursors", cursors, 0, farthest(self.config))) != len(self.config.groups):
                    raise _wrong("state.host.cursors", cursors, f"one per group is needed, {len(self.config.groups)} in all")
        if host.cursor is not None:
            _number("state.host.cursor", host.cursor)
        if host.counters is not None and not self._same("counters", host.counters):
            for name, count in _kind("state.host.counters", host.counters, Mapping).items():
                if name not in COUNTED:
                    raise _wrong(
                        "state.host.counters", host.counters, f"no {name!r} is counted; known: {', '.join(sorted(COUNTED))}"
                    )
                _number("state.host.counters", count)

    def _parts(self, host: HostState, name: str, kind: type) -> Iterable[Any]:
        shown = getattr(host, name)
        if shown is None or self._same(name, shown):
            return ()
        parts = _sequence(f"state.host.{name}", shown)
        for part in parts:
            _kind(f"an entry of state.host.{name}", part, kind)
        return parts


# --- single values --------------------------------------------------------------------------------------------------


def _wrong(what: str, shown: object, needed: str) -> AdapterError:
    return AdapterError(f"{what} = {shortened(shown)}: {needed}")


def _kind(what: str, shown: Any, kind: Any) -> Any:
    if not isinstance(shown, kind):
        raise AdapterError(f"{what} is {shortened(shown)}, a {kind.__name__} is needed")
    return shown


def _number(what: str, shown: Any, least: int | None = None, most: int | None = None, of: str = "a number") -> None:
    try:
        index(shown)
    except TypeError:
        raise _wrong(what, shown, f"{of} is needed") from None
    if (least is not None and shown < least) or (most is not None and shown > most):
        within = f"{least} to {most}" if most is not None else f"{least} or more"
        raise _wrong(what, shown, f"{of} is needed, {within}")


def _sequence(what: str, shown: Any) -> Sequence[Any]:
    if not isinstance(shown, Sequence) or isinstance(shown, str | bytes):
        raise _wrong(what, shown, "a sequence is needed")
    return shown


def _numbers(what: str, shown: Any, least: int | None = None, most: int | None = None) -> Sequence[int]:
    for number in _sequence(what, shown):
        _number(what, number, least, most)
    return shown  # type: ignore[no-any-return]


def _lists(what: str, shown: Any, count: int | None = None) -> None:
    for numbers in _sequence(what, shown):
        _numbers(what, numbers)
    if count is not None and len(shown) != count:
        raise _wrong(what, shown, f"one list per group is needed, {count} in all")


def _rows(what: str, shown: Any, width: int, numbers: bool = True) -> Sequence[Any]:
    for row in _sequence(what, shown):
        if len(_numbers(what, row) if numbers else _sequence(what, row)) != width:
            raise _wrong(what, row, f"rows of {width} entries are needed")
    return shown  # type: ignore[no-any-return]
