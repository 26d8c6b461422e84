"""Which parts of a moment laws may see: what an adapter does not show is hidden, what follows from the actions never is.

Every masked object is a new one with hidden parts of its own, so that no two unknown things are taken for the same by ``is``;
where nothing of an object is hidden it stays the very same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from attrs import evolve, frozen

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.offload.state import Host, Load
from kvproof.core.pool import Pool
from kvproof.core.records import Record
from kvproof.core.world import GroupState, Hit, Plan, Request, Step, World
from kvproof.spec import ground
from kvproof.spec.conformance.adapter import Shows
from kvproof.spec.conformance.hidden import Hidden

FIELDS: dict[type[Action], dict[str, Shows]] = {
    act.Lookup: dict.fromkeys(("local", "lists", "junction", "diverged"), Shows.HITS),
    act.LookupExternal: {"external": Shows.HITS, "lists": Shows.HITS, "notices": Shows.COUNTERS},
    act.Allocate: {
        **dict.fromkeys(
            (
                *("admitted", "demand", "free_before", "new_blocks", "external_blocks", "taken", "relocated", "adopted"),
                "pairs",
            ),
            Shows.ADMISSION,
        ),
        **dict.fromkeys(("queries", "hits"), Shows.COUNTERS),
    },
    act.Drain: {
        "copies": Shows.COPIES,
        "handoffs": Shows.HANDOFFS,
        "zeroed": Shows.ZEROED,
        "destinations": Shows.ZEROED,
    },
    act.BuildMetadata: {
        **dict.fromkeys(
            (
                *("store_event", "store_device", "store_host", "store_meta"),
                *("load_event", "load_device", "load_host", "load_requests", "flush"),
            ),
            Shows.TRANSFERS,
        ),
        "outcomes": Shows.HANDOFFS,
        "notices": Shows.COUNTERS,
    },
    act.Dispatch: {"local_lengths": Shows.ROWS, "pending_work": Shows.TRANSFERS},
    act.Execute: {"branches": Shows.ROWS},
    act.Output: {"preempted": Shows.ADMISSION, "lost": Shows.COUNTERS},
    act.Finish: {
        "deferred": Shows.ADMISSION,
        "tails": Shows.HANDOFFS,
        **dict.fromkeys(("offered", "store_device", "store_host", "store_meta", "pending_work"), Shows.TRANSFERS),
    },
    act.ResetCache: {"done": Shows.ADMISSION},
    act.ResetHost: {"done": Shows.ADMISSION},
    act.CompleteStore: {"done": Shows.ADMISSION, "pending_work": Shows.TRANSFERS},
    act.CompleteLoad: {"freed": Shows.ADMISSION},
    act.ReadCounters: {"counters": Shows.COUNTERS, "gauge": Shows.COUNTERS},
}
"""Per action the fields of its record that an implementation decides, and the capability that shows each.

All other fields follow from the actions, or are not used by the action.
"""

REQUIRED: dict[type[Action], dict[str, Shows]] = {
    action: {name: FIELDS[action][name] for name in names}
    for action, names in {
        act.Lookup: ("local", "lists"),
        act.LookupExternal: ("external", "lists"),
        act.Allocate: ("admitted",),
        act.Drain: ("copies", "handoffs", "zeroed"),
        act.ReadCounters: ("counters",),
    }.items()
}
"""Fields without which a capability would mean nothing: an adapter that declares it shows them."""

DERIVED: frozenset[Shows] = frozenset((Shows.TABLES, Shows.KEYS, Shows.REFERENCES))
OF_CONNECTORS: frozenset[Shows] = frozenset((Shows.TRANSFERS, Shows.COUNTERS))
"""Without a connector there is nothing of these to be hidden."""
HOSTED: frozenset[Shows] = frozenset((Shows.HOST, Shows.TRANSFERS, Shows.COUNTERS))
PLAN, INTERNALS, BYTES, COURSE = "plan", "internals", "bytes", "course"
LOST: dict[type[Action], frozenset[str]] = {
    act.Allocate: frozenset((PLAN, INTERNALS)),
    act.Execute: frozenset((BYTES,)),
    **dict.fromkeys((act.Submit, act.CompleteStore, act.Promote, act.ResetHost), frozenset((COURSE,))),
    **dict.fromkeys((act.Dispatch, act.Output, act.RunStore, act.RunLoad, act.CompleteLoad), frozenset((BYTES, COURSE))),
}
"""What can no longer be followed after the model refused such an action and the implementation performed it.

What an open plan holds is known again once it is drained; bytes, internals and the course of the run stay unknown. The course
is what follows from the actions alone: the tokens and counts of requests, steps, transfers, what waits to be freed. It is lost
where nothing says what the action did to it: the world that is followed would have it unchanged, and laws would judge that.
"""
MOVED: tuple[str, ...] = (
    "store_event",
    "store_device",
    "store_host",
    "load_event",
    "load_device",
    "load_host",
    "load_requests",
)
"""Fields of a step's metadata that say which bytes the worker moves."""
LEFT_OUT = "an answer without"
WAITING = "handoffs that wait"
"""Shown or not: what an implementation publishes is its own, so that it cannot be predicted."""
UNFOLLOWED = "what becomes of a step that the model refuses"
_COUNTED: tuple[str, ...] = (
    *("tip", "num_tokens", "num_prompt", "status", "computed", "in_flight", "placeholders", "stale", "drop_stale", "loaded"),
)
"""What of a request follows from the actions and is not asked of an adapter."""
_COURSE: tuple[str, ...] = ("hit", "plan", "steps", "worker", "deferred", "issued", "processed")
"""What of a world does."""
_INTERNAL: tuple[str, ...] = (
    *("partial_index", "partial_source", "allocated", "retired", "tail_block", "tail_boundary"),
    *("checkpoint_position", "checkpoint_column"),
)


@frozen(slots=True)
class Mask:
    """What one adapter shows under one configuration."""

    config: Config
    shows: frozenset[Shows]
    whole: bool
    """Nothing of a world is hidden."""
    absent: frozenset[str] = frozenset()
    """Parts that a declared capability could show and this adapter does not, such as ``host keys``."""
    lost: frozenset[str] = frozenset()
    """Parts that are followed, not shown, and could not be followed: see ``LOST``."""
    withheld: frozenset[str] = frozenset()
    """Fields that an answer left out and that stay in the world: see ``leftout.IN_WORLDS``."""

    @classmethod
    def of(cls, config: Config, shows: Iterable[Shows], absent: Iterable[str] = ()) -> Mask:
        """Return the mask of an adapter."""
        shown, missing = frozenset(shows), frozenset(absent)
        needed = set(Shows) - {Shows.GEOMETRY, Shows.ADMISSION, Shows.EVENTS}
        if config.offload is None:
            needed -= {Shows.HOST, Shows.TRANSFERS, Shows.COUNTERS}
        return cls(config, shown, needed <= shown and not missing, missing)

    def lacks(self, *needed: Shows) -> str:
        """Return the name of the first capability that is missing, empty if none is."""
        return next((capability.value for capability in needed if capability not in self.shows), "")

    def derived(self) -> str:
        """Return what is missing for the model's own bookkeeping to be that of the implementation, empty if nothing is."""
        return self.lacks(Shows.TABLES, Shows.KEYS, Shows.REFERENCES) or (UNFOLLOWED if INTERNALS in self.lost else "")

    def contents(self) -> str:
        """Return what is missing to follow the bytes on the device, empty if nothing is."""
        transfers = () if self.config.offload is None else (Shows.TRANSFERS,)
        what = self.lacks(Shows.TABLES, Shows.COPIES, *transfers) or (UNFOLLOWED if BYTES in self.lost else "")
        return what or self.left_out(*MOVED)

    def left_out(self, *fields: str) -> str:
        """Return the first of these fields of the world that an answer left out, empty if none did."""
        return next((f"{LEFT_OUT} {name}" for name in fields if name in self.withheld), "")

    # --- worlds -------------------------------------------------------------------------------------------------------

    def world(self, world: World) -> World:
        """Return a world in which everything is hidden that is not shown."""
        if self.whole and not self.lost and not self.withheld:
            return world
        changes: dict[str, Any] = {"pool": self._pool(world.pool)}
        what = self.contents()
        if what:
            changes["contents"] = Hidden(what)
        hits = self.lacks(Shows.HITS) or self.left_out("junction")
        if self.lost or hits or self.lacks(Shows.TABLES, Shows.INTERNALS, Shows.KEYS, Shows.REFERENCES):
            changes["requests"] = tuple(self._request(request) for request in world.requests)
        looked = None if world.hit is None else ground.request_of(world, world.hit.request)
        if world.hit is not None and self.lacks(Shows.HITS) and not (looked is not None and looked.skip_reading):
            changes["hit"] = self._hit(world.hit)
        if (
            self.lost
            or self.absent
            or self.withheld
            or self.lacks(Shows.COPIES, Shows.ZEROED, Shows.HANDOFFS, Shows.TRANSFERS, *DERIVED)
        ):
            changes["plan"] = self._plan(world.plan)
        if self.withheld or self.lacks(Shows.COPIES, Shows.ZEROED, Shows.TRANSFERS):
            changes["steps"] = tuple(self._step(step) for step in world.steps)
        if self.lacks(Shows.TABLES):
            changes["deferred"] = Hidden(Shows.TABLES.value)
            if self.lacks(Shows.ROWS):
                changes["worker"] = Hidden(Shows.TABLES.value)
        if world.host is not None and (self.absent or self.withheld or self.contents() or self.lacks(*HOSTED)):
            changes["host"] = self._host(world.host)
        if COURSE in self.lost:
            changes |= {name: Hidden(UNFOLLOWED) for name in _COURSE}
            if world.host is not None:
                changes["host"] = Hidden(UNFOLLOWED)
        return evolve(world, **changes)

    def without_worker(self, world: World) -> World:
        """Return a world whose worker is hidden, too, unless the rows are shown: for laws about the worker itself."""
        unknown: dict[str, Any] = {"worker": Hidden(Shows.ROWS.value)}
        return evolve(world, **unknown) if self.lacks(Shows.ROWS) else world

    def _pool(self, pool: Pool) -> Pool:
        changes: dict[str, Any] = {}
        if self.lacks(Shows.REFERENCES):
            changes["ref"] = Hidden(Shows.REFERENCES.value)
        if self.lacks(Shows.FREE_QUEUE):
            changes["free"] = Hidden(Shows.FREE_QUEUE.value)
        if self.lacks(Shows.KEYS):
            changes |= _no_keys(Shows.KEYS.value)
        elif self.derived():
            changes["next_seq"] = Hidden(self.derived())
            if self.lacks(Shows.TABLES):
                changes["entries"] = _unordered(pool, Shows.TABLES.value)
        return evolve(pool, **changes) if changes else pool

    def _request(self, request: Request) -> Request:
        unknown = self.lacks(Shows.HITS) or self.left_out("junction")
        hits: dict[str, Any] = {"junction": Hidden(unknown)} if unknown and not request.skip_reading else {}
        if COURSE in self.lost:
            hits |= {name: Hidden(UNFOLLOWED) for name in _COUNTED}
        return evolve(request, groups=tuple(self._state(state) for state in request.groups), **hits)

    def _state(self, state: GroupState) -> GroupState:
        changes: dict[str, Any] = {}
        if self.lacks(Shows.TABLES):
            changes["table"] = Hidden(Shows.TABLES.value)
        if self.lacks(Shows.INTERNALS):
            changes["num_cached"] = Hidden(Shows.INTERNALS.value)
        what = self.derived()
        if what:
            changes |= {name: Hidden(what) for name in _INTERNAL}
        return evolve(state, **changes) if changes else state

    def _hit(self, hit: Hit) -> Hit:
        unknown: dict[str, Any] = {name: Hidden(Shows.HITS.value) for name in ("local", "lists", "junction", "diverged")}
        return evolve(hit, **unknown)

    def _plan(self, plan: Plan) -> Plan:
        parts = {"copies": Shows.COPIES, "zero": Shows.ZEROED, "handoffs": Shows.HANDOFFS, "drained": Shows.HANDOFFS}
        changes: dict[str, Any] = {name: Hidden(shown.value) for name, shown in parts.items() if self.lacks(shown)}
        what = self.derived()
        if what:
            changes |= {name: Hidden(what) for name in ("cached", "undo")}
        # Which blocks an open plan is about only tables tell; its copies and handoffs are shown when it is drained.
        what = self.lacks(Shows.TABLES) or (UNFOLLOWED if PLAN in self.lost else "")
        if what:
            changes |= {name: Hidden(what) for name in ("copies", "zero", "handoffs")}
        if WAITING in self.absent:
            changes["handoffs"] = Hidden(WAITING)
        return evolve(plan, **changes, **self._events()) if changes or self._events() else plan

    def _step(self, step: Step) -> Step:
        parts = {"copies": Shows.COPIES, "zero": Shows.ZEROED}
        changes: dict[str, Any] = {name: Hidden(shown.value) for name, shown in parts.items() if self.lacks(shown)}
        return evolve(step, **changes, **self._events()) if changes or self._events() else step

    def _events(self) -> dict[str, Any]:
        """Return the numbers of a step's transfers that are hidden."""
        if self.config.offload is None:
            return {}
        whats = {name: self.lacks(Shows.TRANSFERS) or self.left_out(f"{name}_event") for name in ("store", "load")}
        return {name: Hidden(what) for name, what in whats.items() if what}

    def _host(self, host: Host) -> Host:
        changes: dict[str, Any] = {}

        def hide(what: str, *names: str) -> None:
            if what:
                changes.update({name: Hidden(what) for name in names})

        own, moved, counted = Shows.HOST, Shows.TRANSFERS, Shows.COUNTERS
        hide(self.contents() or self.lacks(own), "contents")
        hide(self.lacks(moved), "loads", "abandoned_loads", "stores", "abandoned_stores", "queued", "in_flight")
        hide(self.lacks(moved) or self.left_out("store_event"), "next_store")
        hide(self.lacks(moved) or self.left_out("load_event"), "next_load")
        hide(self.left_out("notices"), "notices")
        hide(self.lacks(own), "pending", "cursor")
        hide(self.lacks(own, moved), "tracks")
        hide(self.lacks(counted), "counters", "drained", "load_blocks", "notices")
        for part in self.absent & _HOST_PARTS.keys():
            hide(part, *_HOST_PARTS[part])
        if self.lacks(Shows.TABLES) and not self.lacks(moved):
            for name in ("loads", "abandoned_loads"):
                loads: tuple[Load, ...] = getattr(host, name)
                changes.setdefault(name, tuple(_without_tables(load) for load in loads))
        unsaid = self.left_out("store_meta")
        for name in ("stores", "abandoned_stores", "queued") if unsaid else ():
            stores: tuple[Any, ...] = getattr(host, name)
            changes.setdefault(name, tuple(evolve(store, **{"meta": Hidden(unsaid)}) for store in stores))
        changes["pool"] = self._host_pool(host.pool)
        return evolve(host, **changes)

    def _host_pool(self, pool: Pool) -> Pool:
        own = self.lacks(Shows.HOST)
        changes: dict[str, Any] = {}
        for part, name in (("host references", "ref"), ("host free queue", "free")):
            what = own or (part if part in self.absent else "")
            if what:
                changes[name] = Hidden(what)
        what = own or ("host keys" if "host keys" in self.absent else "")
        if what:
            changes |= _no_keys(what)
        elif self.lacks(Shows.TRANSFERS):
            changes |= {"entries": _unordered(pool, Shows.TRANSFERS.value), "next_seq": Hidden(Shows.TRANSFERS.value)}
        return evolve(pool, **changes) if changes else pool

    # --- records ------------------------------------------------------------------------------------------------------

    def record(self, action: Action, record: Record, unsure: Iterable[str] = (), told: bool = False) -> Record:
        """Return a record in which everything is hidden that is not shown; ``unsure``: fields that the adapter left out;
        ``told``: something else tells whether an allocation was admitted.
        """
        changes: dict[str, Any] = {
            name: Hidden(capability.value)
            for name, capability in FIELDS.get(type(action), {}).items()
            if capability not in self.shows
            and not (told and name == "admitted")
            and (self.config.children or capability not in OF_CONNECTORS)
        }
        if self.config.events and self.lacks(Shows.EVENTS):
            changes["events"] = Hidden(Shows.EVENTS.value)
        if isinstance(action, act.Execute) and self.contents():
            changes["reads"] = Hidden(self.contents())
        for name in unsure:
            if name not in changes:
                changes[name] = Hidden(f"{LEFT_OUT} {name}")
        return evolve(record, **changes) if changes else record


_HOST_PARTS: dict[str, tuple[str, ...]] = {
    "host pins": ("pending",),
    "host loads": ("loads",),
    "host abandoned loads": ("abandoned_loads",),
    "host stores": ("stores", "in_flight"),
    "host abandoned stores": ("abandoned_stores",),
    "host queued stores": ("queued", "in_flight"),
    "host cursors": ("tracks",),
    "host counters": ("counters", "drained", "load_blocks", "notices"),
    "lazy cursor": ("cursor",),
}
"""Parts of a host state that may be missing, and what of the host side is then hidden."""


def _unordered(pool: Pool, what: str) -> tuple[tuple[int, int, Hidden, int], ...]:
    """Return the key map of a pool without the order of insertion: whether a key was there all the time nobody knows."""
    return tuple((node, group, Hidden(what), block) for node, group, _, block in pool.entries)


def _without_tables(load: Load) -> Load:
    unknown: dict[str, Any] = {"held": Hidden(Shows.TABLES.value)}
    return evolve(load, **unknown) if load.held else load


def _no_keys(what: str) -> dict[str, Any]:
    return {name: Hidden(what) for name in ("key_node", "key_group", "key_tokens", "entries", "next_seq")}
