"""Renaming of worlds, actions and records, field by field: what the reduction of the explorer says changes nothing.

A renaming permutes the blocks of each tier (the null block keeps its name), gives requests, tokens and contexts other names,
appends the prefix nodes in another order with dead ones in between, and moves the numbers that only grow: insertions into a key
map and transfer events apart, steps all by the same amount. It knows nothing of the key of a world. Every class that a world,
an action or a record consists of has a table here that says of each field what it names; a field without an entry cannot be
renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define, fields, frozen

from kvproof.core import actions as act
from kvproof.core import prefixes
from kvproof.core.offload import state
from kvproof.core.prefixes import Prefixes
from kvproof.core.records import Event, Record
from kvproof.core.world import (
    DeferredFree,
    GroupState,
    Hit,
    KeyRecord,
    Plan,
    Request,
    Scheduled,
    Step,
    Worker,
    World,
)

Name = Callable[[int], int]
Rename = Callable[["Renaming", Any], Any]


@define
class Renaming:
    """New names by old ones. ``blocks`` and ``hosts`` are permutations, ``prefixes`` is the table that ``node`` leads to.

    ``steps`` is added to the numbers of steps, the fence of a load among them if loads ``wait`` for steps: else it is none.
    ``factor`` kernel blocks make a block.
    """

    blocks: Sequence[int]
    hosts: Sequence[int]
    request: Name
    token: Name
    context: Name
    old: Prefixes
    prefixes: Prefixes
    seq: Name
    host_seq: Name
    store: Name
    load: Name
    steps: int = 0
    wait: bool = False
    factor: int = 1

    def block(self, name: int) -> int:
        return self.blocks[name] if 0 <= name < len(self.blocks) else name

    def host(self, name: int) -> int:
        return self.hosts[name] if 0 <= name < len(self.hosts) else name

    def owner(self, name: int) -> int:
        return name if name < 0 else self.request(name)

    def kernel(self, entry: int) -> int:
        return self.blocks[entry // self.factor] * self.factor + entry % self.factor

    def store_event(self, name: int) -> int:
        return name if name < 0 else self.store(name)

    def load_event(self, name: int) -> int:
        return name if name < 0 else self.load(name)

    def fence(self, number: int) -> int:
        return number + self.steps

    def node(self, name: int) -> int:
        """Return the node of the renamed prefix; what is none, unwritten or garbage stays so. Raises KeyError."""
        if name < 0:
            return name
        chain = []
        while name >= 0:
            chain.append(self.old.token[name])
            name = self.old.parent[name]
        context, *tokens = reversed(chain)
        node = prefixes.child(self.prefixes, -1, self.context(context))
        for token in tokens:
            node = prefixes.child(self.prefixes, node, self.token(token)) if node >= 0 else -1
        if node < 0:
            raise KeyError(f"the renamed world lacks a prefix of {len(tokens)} tokens")
        return node


# --- what a field names -------------------------------------------------------------------------------------------


def same(names: Renaming, value: Any) -> Any:
    """A number, a flag or a text: it stays."""
    del names
    return value


@frozen
class Each:
    """A list of alike things, in an order that means something."""

    one: Rename

    def __call__(self, names: Renaming, value: Any) -> Any:
        return tuple(self.one(names, item) for item in value)


@frozen
class Fixed(Each):
    """As many alike things as the configuration says: one per group, per row, per rank."""


@frozen
class Ordered(Each):
    """A set of things, kept in the order of their names."""

    def __call__(self, names: Renaming, value: Any) -> Any:
        return tuple(sorted(self.one(names, item) for item in value))


@frozen(init=False)
class Row:
    """A tuple of things of these kinds, those behind the last kind as that one."""

    columns: tuple[Rename, ...]

    def __init__(self, *columns: Rename) -> None:
        object.__setattr__(self, "columns", columns)

    def __call__(self, names: Renaming, value: Any) -> Any:
        return tuple(self.column(at)(names, item) for at, item in enumerate(value))

    def column(self, at: int) -> Rename:
        return self.columns[min(at, len(self.columns) - 1)]


@frozen
class Maybe:
    """A thing, or None."""

    one: Rename

    def __call__(self, names: Renaming, value: Any) -> Any:
        return None if value is None else self.one(names, value)


@frozen
class Placed:
    """A tuple indexed by the blocks of a tier."""

    one: Rename
    host: bool = False

    def __call__(self, names: Renaming, value: Any) -> Any:
        found: list[Any] = [None] * len(value)
        for place, item in zip(names.hosts if self.host else names.blocks, value, strict=True):
            found[place] = self.one(names, item)
        return tuple(found)


@frozen
class Whole:
    """A value of a class that has a table of its own."""

    kind: type[Any]

    def __call__(self, names: Renaming, value: Any) -> Any:
        return by_table(names, value, table_of(self.kind))


def block(names: Renaming, value: int) -> int:
    return names.block(value)


def host_block(names: Renaming, value: int) -> int:
    return names.host(value)


def request(names: Renaming, value: int) -> int:
    return names.owner(value)


def token(names: Renaming, value: int) -> int:
    return names.token(value)


def context(names: Renaming, value: int) -> int:
    return names.context(value)


def node(names: Renaming, value: int) -> int:
    return names.node(value)


def store(names: Renaming, value: int) -> int:
    return names.store_event(value)


def load(names: Renaming, value: int) -> int:
    return names.load_event(value)


def step_number(names: Renaming, value: int) -> int:
    return names.fence(value)


def load_fence(names: Renaming, value: int) -> int:
    return names.fence(value) if names.wait else value


def kernel_block(names: Renaming, value: int) -> int:
    return names.kernel(value)


def seq(names: Renaming, value: int) -> int:
    return names.seq(value)


def host_seq(names: Renaming, value: int) -> int:
    return names.host_seq(value)


def cells(names: Renaming, value: tuple[int, ...]) -> tuple[int, ...]:
    """The contents of a block: the group, then nodes."""
    return value and (value[0], *(names.node(cell) for cell in value[1:]))


def prefix_table(names: Renaming, value: Prefixes) -> Prefixes:
    """The table of the renamed world; every prefix of the old one must be in it."""
    for name in range(len(value.parent)):
        names.node(name)
    return names.prefixes


def pool_table(name: Rename, host: bool, number: Rename) -> Mapping[str, Rename]:
    """Return the table of a pool: what a block of it is called, whether it is the host's, and its insertions."""
    return {
        "ref": Placed(same, host),
        "key_node": Placed(node, host),
        "key_group": Placed(same, host),
        "key_tokens": Placed(same, host),
        "free": Each(name),
        "entries": Ordered(Row(node, same, number, name)),
        "next_seq": number,
        "notes": same,
    }


class DevicePool:
    """Stands for a pool of device blocks, which has other names than one of host blocks."""


class HostPool:
    """Stands for a pool of host blocks."""


TABLES = Each(Each(block))
META = Each(Row(node, same))
COPIES = Each(Row(same, block, block))
HANDOFFS = Each(Row(request, same, block, same))

WORLD: Mapping[type[Any], Mapping[str, Rename]] = {
    DevicePool: pool_table(block, False, seq),
    HostPool: pool_table(host_block, True, host_seq),
    World: {
        "config": same,
        "phase": same,
        "prefixes": prefix_table,
        "pool": Whole(DevicePool),
        "contents": Placed(cells),
        "requests": Each(Whole(Request)),
        "hit": Maybe(Whole(Hit)),
        "plan": Whole(Plan),
        "steps": Each(Whole(Step)),
        "worker": Whole(Worker),
        "deferred": Each(Whole(DeferredFree)),
        "issued": step_number,
        "processed": step_number,
        "host": Maybe(Whole(state.Host)),
    },
    Request: {
        "request": request,
        "context": context,
        "tip": node,
        "num_tokens": same,
        "num_prompt": same,
        "skip_reading": same,
        "groups": Fixed(Whole(GroupState)),
        "status": same,
        "computed": same,
        "in_flight": same,
        "junction": same,
        "num_preemptions": same,
        "placeholders": same,
        "stale": same,
        "drop_stale": same,
        "loaded": same,
    },
    GroupState: {
        "table": Each(block),
        "num_cached": same,
        "partial_index": same,
        "partial_source": block,
        "allocated": same,
        "retired": same,
        "tail_block": block,
        "tail_boundary": same,
        "checkpoint_position": same,
        "checkpoint_column": same,
    },
    Hit: {"request": request, "local": same, "lists": Fixed(Each(block)), "junction": same, "diverged": same},
    Scheduled: {
        "request": request,
        "start": same,
        "amount": same,
        "fresh": same,
        "loaded_from": same,
        "drafts": Each(token),
        "samples": same,
        "pending": same,
        "tip": node,
        "row": same,
        "loaded": same,
    },
    KeyRecord: {
        "block": block,
        "primary": Row(node, same, same),
        "entries": Each(Row(node, same, seq, block)),
    },
    Plan: {
        "scheduled": Each(Whole(Scheduled)),
        "copies": COPIES,
        "handoffs": HANDOFFS,
        "zero": Each(Row(same, block)),
        "cached": Each(Row(node, same, request)),
        "undo": Each(Row(request, Each(Whole(KeyRecord)))),
        "preempted": Each(request),
        "preempted_before": Each(request),
        "drained": HANDOFFS,
        "store": store,
        "load": load,
    },
    Step: {
        "scheduled": Each(Whole(Scheduled)),
        "copies": COPIES,
        "zero": Each(block),
        "part": same,
        "due": Each(request),
        "opened": same,
        "store": store,
        "load": load,
        "flush": same,
    },
    DeferredFree: {"fence": step_number, "tables": TABLES},
    Worker: {
        "owners": Fixed(request),
        "rows": Fixed(Fixed(Each(kernel_block))),
        "columns": Fixed(Fixed(same)),
        "accepted": Fixed(same),
    },
    state.Host: {
        "pool": Whole(HostPool),
        "contents": Placed(cells, True),
        "pending": Each(Whole(state.PendingHit)),
        "loads": Each(Whole(state.Load)),
        "abandoned_loads": Each(Whole(state.Load)),
        "stores": Each(Whole(state.Store)),
        "abandoned_stores": Each(Whole(state.Store)),
        "queued": Each(Whole(state.Queued)),
        "tracks": Each(Whole(state.Track)),
        "in_flight": Ordered(block),
        "next_store": store,
        "next_load": load,
        "counters": same,
        "drained": same,
        "load_blocks": same,
        "cursor": block,
        "notices": Each(same),
    },
    state.PendingHit: {"request": request, "start": same, "length": same, "lists": Fixed(Each(host_block))},
    state.Load: {
        "request": request,
        "device": Each(block),
        "host": Each(host_block),
        "event": load,
        "stage": same,
        "finished": same,
        "held": TABLES,
        "fence": load_fence,
        "start": same,
        "condemned": same,
    },
    state.Store: {
        "event": store,
        "device": Each(block),
        "host": Each(host_block),
        "meta": Maybe(Each(META)),
        "stage": same,
        "acks": same,
    },
    state.Queued: {"device": Each(block), "host": Each(host_block), "meta": Maybe(Each(META))},
    state.Track: {"request": request, "cursors": Fixed(same), "events": Each(store), "finished": same, "told": TABLES},
}
"""Of every class of a world, what each field names."""

ACTIONS: Mapping[type[Any], Mapping[str, Rename]] = {
    act.Submit: {"request": request, "tokens": Each(token), "context": context, "skip_reading": same},
    act.BeginStep: {},
    act.Lookup: {"request": request, "common": same},
    act.Allocate: {
        "request": request,
        "new_tokens": same,
        "local": same,
        "external": same,
        "lookahead": same,
        "drafts": Each(token),
        "full_sequence": same,
        "load": same,
        "reserved": same,
    },
    act.Preempt: {"request": request, "drop_stale": same},
    act.Withdraw: {"request": request, "drop_stale": same},
    act.Drain: {},
    act.BuildMetadata: {},
    act.Dispatch: {},
    act.Execute: {"part": same},
    act.Output: {"request": request, "tokens": Each(token), "failed": same, "valid": same},
    act.Finish: {"request": request},
    act.ResetCache: {},
    act.EvictBlocks: {"blocks": Each(block)},
    act.LookupExternal: {"request": request, "start": same},
    act.Promote: {"request": request},
    act.RunStore: {"event": store},
    act.RunLoad: {"event": load},
    act.CompleteStore: {"event": store, "acks": same},
    act.CompleteLoad: {"request": request, "failed": same, "valid": same},
    act.ResetHost: {},
    act.ReadCounters: {},
    act.AppendRows: {"row": same, "blocks": TABLES},
}
"""Of every action, what each field names."""


RECORDS: Mapping[type[Any], Mapping[str, Rename]] = {
    Record: {
        "action": same,
        "local": same,
        "lists": TABLES,  # of host blocks where the host is looked up
        "junction": same,
        "diverged": same,
        "admitted": same,
        "demand": same,
        "free_before": same,
        "new_blocks": TABLES,
        "external_blocks": TABLES,
        "taken": Each(block),
        "relocated": Each(Row(same, block, same)),
        "adopted": Each(block),
        "copies": COPIES,
        "handoffs": HANDOFFS,
        "zeroed": Each(block),
        "scheduled": Each(Row(request, same)),
        "preempted": Each(request),
        "reads": Each(Row(request, same, same, block, same)),
        "branches": Each(Row(request, same)),
        "local_lengths": Each(Row(request, same)),
        "done": same,
        "num_tokens": same,
        "deferred": same,
        "tails": Each(Row(same, block, same)),
        "lost": same,
        "rejected": same,
        "events": Each(Whole(Event)),
        "external": same,
        "pairs": Each(Row(same, same, block, host_block)),
        "queries": same,
        "hits": same,
        "destinations": Each(block),
        "store_event": store,
        "store_device": Each(block),
        "store_host": Each(host_block),
        "store_meta": Maybe(Each(META)),
        "outcomes": Each(Row(request, same, block, same)),
        "load_event": load,
        "load_device": Each(block),
        "load_host": Each(host_block),
        "load_requests": Each(request),
        "flush": same,
        "offered": Maybe(TABLES),
        "computed": same,
        "freed": same,
        "counters": same,
        "gauge": same,
        "pending_work": same,
        "notices": same,
    },
    Event: {
        "kind": same,
        "medium": same,
        "group": same,
        "node": node,
        "boundary": same,
        "parent": node,
        "tokens": Each(token),
        "size": same,
    },
}
"""Of records and events, what each field names."""


def by_table(names: Renaming, value: Any, table: Mapping[str, Rename]) -> Any:
    """Return a value with every field renamed as the table says. Raises KeyError for a field that it does not name."""
    return type(value)(**{one.name: table[one.name](names, getattr(value, one.name)) for one in fields(type(value))})


def table_of(kind: type[Any]) -> Mapping[str, Rename]:
    """Return the table of a class."""
    return WORLD.get(kind) or RECORDS.get(kind) or ACTIONS[kind]


def renamed(names: Renaming, value: Any) -> Any:
    """Return a world, an action or a record under other names."""
    table = table_of(type(value))
    if isinstance(value, Record) and value.action == "LookupExternal":
        table = {**table, "lists": Each(Each(host_block))}
    return by_table(names, value, table)
