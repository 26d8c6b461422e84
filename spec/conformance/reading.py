"""What an adapter showed, in the model's terms: block ids, prefix nodes, tuples. Parts seen before are not read again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import Any, TypeVar, cast, get_args, get_type_hints

from attrs import define, field

from kvproof.core.actions import Action, AppendRows, EvictBlocks
from kvproof.core.config import Config
from kvproof.core.pool import NO_KEY
from kvproof.core.prefixes import Prefixes
from kvproof.core.records import NONE, Event, Record
from kvproof.spec.conformance import forms
from kvproof.spec.conformance.adapter import AdapterError, Announcement, Key
from kvproof.spec.conformance.names import Blocks, Digests

Lists = tuple[tuple[int, ...], ...]
T = TypeVar("T")
KeyRow = tuple[int, int, int, bool]
"""One key of one block: (node, group, block, primary)."""


@define(slots=True)
class Reader:
    """Reads what one adapter shows in one run; remembers names, and what it read last of each part."""

    config: Config
    device: Blocks
    host: Blocks
    digests: Digests = field(factory=Digests)
    _memo: dict[object, tuple[object, Any]] = field(factory=dict)

    @classmethod
    def of(cls, config: Config, null_block: int) -> Reader:
        """Return the reader of a run under a configuration."""
        hosts = 0 if config.offload is None else config.offload.num_blocks
        return cls(config, Blocks(config.num_blocks, null_block), Blocks(hosts, null_block))

    # --- parts of a state ---------------------------------------------------------------------------------------------

    def references(self, blocks: Blocks, shown: Mapping[int, int]) -> tuple[int, ...]:
        """Return the reference count of every block of a tier."""

        def read() -> tuple[int, ...]:
            counts = [0] * blocks.num_blocks
            for block, count in shown.items():
                here = blocks.inward(block)
                if not 0 <= here < len(counts):
                    raise ValueError(f"the pool has {len(counts)} blocks, and block {block} is none of them")
                counts[here] = index(count)
            return tuple(counts)

        return self._once((id(blocks), "references"), shown, read)

    def free(self, blocks: Blocks, shown: Sequence[int]) -> tuple[int, ...]:
        """Return a tier's free queue, the block that is taken next first."""
        return self._once((id(blocks), "free"), shown, lambda: blocks.all_inward(shown))

    def keys(self, blocks: Blocks, shown: Sequence[Key], table: Prefixes) -> tuple[Prefixes, tuple[KeyRow, ...]]:
        """Return the prefix table with the nodes of a tier's keys, and the keys by node, group and preference.

        Nodes never change, so what was read before stays right in every later table.
        """
        rows: tuple[KeyRow, ...]
        known = self._memo.get((id(blocks), "keys"))
        if known is not None and known[0] is shown:
            rows = known[1]
            return table, rows
        found = []
        try:
            for key in shown:
                self._check(key)
                table, node = self.digests.node(table, key.prefix, key.boundary)
                found.append((node, key.group, blocks.inward(key.block), key.primary))
        except (TypeError, ValueError, AttributeError) as error:
            raise unreadable("keys", shown, error) from error
        rows = tuple(sorted(found, key=lambda row: row[:2]))
        self._memo[(id(blocks), "keys")] = (shown, rows)
        return table, rows

    def _check(self, key: Key) -> None:
        """Check that a key is one of a group, at a boundary that a request could have. Raises AdapterError."""
        if not 0 <= index(key.group) < len(self.config.groups):
            raise AdapterError(f"{key!r}: there is no group {key.group} (they count from 0)")
        # A prefix that nobody ever had becomes a path of so many tokens.
        if not 0 <= index(key.boundary) <= forms.farthest(self.config):
            raise AdapterError(
                f"{key!r}: no request has {key.boundary} tokens: the longest one has {self.config.max_model_len}"
            )
        if not isinstance(key.prefix, str):
            raise AdapterError(f"{key!r}: a prefix is named by what prefix_id gives, got {key.prefix!r}")

    def tables(self, request: int, shown: Sequence[Sequence[int]]) -> Lists:
        """Return the tables of a request."""
        return self._once(("tables", request), shown, lambda: self.device.lists_inward(shown))

    def counts(self, what: str, shown: Sequence[int | None]) -> tuple[int, ...]:
        """Return a count per group, that of a group without one included (None)."""
        try:
            found = tuple([NO_KEY if count is None else index(count) for count in shown])
        except TypeError as error:
            raise unreadable(what, shown, error) from error
        if len(found) != len(self.config.groups):
            raise AdapterError(f"{what} = {shown!r}: one count per group is needed, {len(self.config.groups)} in all")
        return found

    def rows(self, shown: Mapping[int, Sequence[Sequence[int]]]) -> dict[int, Lists]:
        """Return the worker's rows by number; their entries may be smaller than blocks (2.5)."""
        factor = self.config.append_expansion

        def entry(block: int) -> int:
            return self.device.inward(block // factor) * factor + block % factor

        try:
            return {row: tuple(tuple(entry(block) for block in blocks) for blocks in lists) for row, lists in shown.items()}
        except (TypeError, ValueError, AttributeError) as error:
            raise unreadable("rows", shown, error) from error

    def _once(self, part: tuple[object, object], shown: object, read: Callable[[], T]) -> T:
        """Return what was read of a part before if the very same object is shown again."""
        known = self._memo.get(part)
        if known is not None and known[0] is shown:
            return cast(T, known[1])
        try:
            value = read()
        except (TypeError, ValueError, AttributeError) as error:
            raise unreadable(part[0] if isinstance(part[0], str) else str(part[1]), shown, error) from error
        self._memo[part] = (shown, value)
        return value

    # --- answers ------------------------------------------------------------------------------------------------------

    def result(self, shown: Mapping[str, object], table: Prefixes, on_host: bool) -> tuple[Prefixes, dict[str, Any]]:
        """Return the prefix table, and the fields of an answer in the model's ids; ``on_host``: its lists are host blocks.

        Raises AdapterError for what cannot be read.
        """
        found: dict[str, Any] = {}
        for name, value in shown.items():
            try:
                if name == "events":
                    table, found[name] = self._events(value, table)
                elif name == "store_meta" and value is not None:
                    table, found[name] = self._meta(value, table)
                elif name == "lists" and on_host:
                    found[name] = self._lists(name, value, self.host)
                else:
                    found[name] = self._field(name, value)
            except (TypeError, ValueError, AttributeError) as error:
                raise unreadable(name, value, error) from error
        return table, found

    def blocks(self, shown: Mapping[str, object], names: Sequence[str]) -> dict[str, object]:
        """Return those of some fields of an answer that are there; they hold block ids and no prefixes."""
        try:
            return {name: self._field(name, shown[name]) for name in names if name in shown}
        except (TypeError, ValueError, AttributeError) as error:
            raise unreadable(" or ".join(names), [shown.get(name) for name in names], error) from error

    def _field(self, name: str, value: Any) -> Any:
        if name in _BLOCKS:
            return self.device.all_inward(value)
        if name in _HOST_BLOCKS:
            return self.host.all_inward(value)
        if name in _LISTS:
            return None if value is None else self._lists(name, value, self.device)
        if name in _NUMBERS:
            return self._number(name, value)
        if name in _FLAGS:
            return _flag(value)
        width = _WIDTHS.get(name)
        if width is not None and any(len(row) != width for row in value):
            raise ValueError(f"its rows have {width} entries")
        places = BLOCKS_OF_ROWS.get(name)
        if places is None:
            return value
        tiers = {place: self.host if place == _HOST_PLACE.get(name) else self.device for place in places}
        return tuple(tuple(tiers[at].inward(entry) if at in tiers else entry for at, entry in enumerate(row)) for row in value)

    def _lists(self, name: str, value: Any, blocks: Blocks) -> Lists:
        """Return one list per group; none at all where there is nothing in any."""
        lists, groups = blocks.lists_inward(value), len(self.config.groups)
        if len(lists) != groups and (lists or name == "lists"):
            raise ValueError(f"one list per group is needed, {groups} in all")
        return lists

    def _number(self, name: str, value: Any) -> int:
        """Return a count, or the number of an event (-1: none)."""
        number, least = index(value), NONE if name in _EVENTS else 0
        most = forms.farthest(self.config) if name in _TOKENS else None
        if number < least or (most is not None and number > most):
            raise ValueError(f"a number from {least} {'on' if most is None else f'to {most}'} is needed")
        return number

    def _events(self, shown: Any, table: Prefixes) -> tuple[Prefixes, tuple[Event, ...]]:
        events = []
        for said in shown:
            table, event = self._event(said, table)
            events.append(event)
        return table, tuple(events)

    def _event(self, said: Announcement, table: Prefixes) -> tuple[Prefixes, Event]:
        if said.kind not in _KINDS:
            raise ValueError(f"its kind {said.kind!r} is none of {', '.join(_KINDS)}")
        if said.kind == "cleared":
            return table, Event("cleared", said.medium)
        table, node = self._named(table, said.prefix, said.boundary)
        if said.kind == "removed":
            return table, Event("removed", said.medium, said.group, node)
        parent = NONE
        if index(said.size) < 0:
            raise ValueError(f"a payload has no {said.size} tokens")
        if said.parent:
            table, parent = self._named(table, said.parent, max(said.boundary - said.size, 0), strict=False)
        return table, Event("stored", said.medium, said.group, node, said.boundary, parent, tuple(said.tokens), said.size)

    def _meta(self, shown: Any, table: Prefixes) -> tuple[Prefixes, tuple[tuple[tuple[int, int], ...], ...]]:
        metas = []
        for entry in shown:
            items = []
            for prefix, tokens in entry:
                table, node = self._named(table, prefix, tokens, strict=False)
                items.append((node, tokens))
            metas.append(tuple(items))
        return table, tuple(metas)

    def _named(self, table: Prefixes, prefix: str, boundary: int, strict: bool = True) -> tuple[Prefixes, int]:
        """Return the node of a prefix; ``strict``: at this boundary, else wherever somebody had it."""
        if not isinstance(prefix, str):
            raise TypeError(f"a prefix is named by what prefix_id gives, got {prefix!r}")
        if index(boundary) > forms.farthest(self.config):
            raise ValueError(f"no request has {boundary} tokens: the longest one has {self.config.max_model_len}")
        found = None if strict and boundary >= 0 else self.digests.known(table, prefix)
        return (table, found) if found is not None else self.digests.node(table, prefix, max(boundary, 0))

    # --- actions ------------------------------------------------------------------------------------------------------

    def outward(self, action: Action) -> Action:
        """Return an action in the implementation's block ids."""
        if isinstance(action, EvictBlocks):
            return EvictBlocks(tuple(self.device.outward(block) for block in action.blocks))
        if isinstance(action, AppendRows):
            lists = tuple(tuple(self.device.outward(block) for block in blocks) for blocks in action.blocks)
            return AppendRows(action.row, lists)
        return action


def unreadable(what: str, shown: object, error: Exception) -> AdapterError:
    """Return the error of a part that is shown and cannot be read."""
    return AdapterError(f"{what} = {forms.shortened(shown)} cannot be read: {error}")


def _flag(value: Any) -> bool | None:
    """Return a truth value. None: it is not known. Raises ValueError for what only passes for one, such as a text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str) or value not in (0, 1):
        raise ValueError("True or False is needed")
    return bool(value)


_HINTS = get_type_hints(Record)
_NUMBERS = frozenset(name for name, hint in _HINTS.items() if hint is int)
_FLAGS = frozenset(name for name, hint in _HINTS.items() if hint in (bool, bool | None))
_EVENTS = frozenset(("store_event", "load_event"))
_TOKENS = frozenset(("local", "external", "junction", "computed", "num_tokens", "lost", "queries", "hits"))
_KINDS = get_args(get_type_hints(Event)["kind"])
_BLOCKS = frozenset(("taken", "adopted", "zeroed", "destinations", "store_device", "load_device"))
_HOST_BLOCKS = frozenset(("store_host", "load_host"))
_LISTS = frozenset(("lists", "new_blocks", "external_blocks", "offered"))
BLOCKS_OF_ROWS: dict[str, tuple[int, ...]] = {
    "relocated": (1,),
    "copies": (1, 2),
    "handoffs": (2,),
    "reads": (3,),
    "tails": (1,),
    "pairs": (2, 3),
    "outcomes": (2,),
}
"""Where the rows of a field have block ids."""
_WIDTHS = {"relocated": 4, "copies": 3, "handoffs": 4, "reads": 5, "tails": 3, "pairs": 4, "outcomes": 5, "scheduled": 2}
"""Entries of the rows of a field."""
_HOST_PLACE = {"pairs": 3}
