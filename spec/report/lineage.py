"""The life of one block in a film: who took, wrote, copied, keyed, stored and gave it back, action by action."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve, frozen

from kvproof.core import actions as act
from kvproof.spec import ground
from kvproof.spec.counterexample import Counterexample
from kvproof.spec.laws.base import Moment
from kvproof.spec.report.film import Block, Film, Owner, Tier, block_name
from kvproof.spec.report.window import Row, named

MOST = 6
"""Blocks whose lives are told, the first ones; evidence that names more is about the pool as a whole."""


@frozen(slots=True)
class Event:
    """What an action did to a block, in words; ``kinds`` says it in single words, for programs."""

    position: int
    kinds: tuple[str, ...]
    text: str


@frozen(slots=True)
class Life:
    """The events of a block in their order, and why the report tells them."""

    tier: Tier
    block: int
    why: str
    events: tuple[Event, ...]

    @property
    def name(self) -> str:
        """The block as reports write it."""
        return block_name(self.tier, self.block)


def lives(example: Counterexample, film: Film) -> tuple[Life, ...]:
    """Return the lives of the blocks in question, the first ``MOST`` of them."""
    return tuple(life(film, *row, why) for row, why in list(in_question(example, film).items())[:MOST])


def in_question(example: Counterexample, film: Film) -> dict[Row, str]:
    """Return the blocks that the evidence names, in its order, with why they are in question; as far as they are shown.

    Where it names none, those in the columns that it names; else those that changed where the law breaks. A law on the end of a
    run breaks far behind the fault: there it is those that changed where the run departs from one without the fault.
    """
    shown = set(film.window.rows)
    found: dict[Row, str] = {}
    for tier, block, why in named(example):
        if (tier, block) in shown:
            found.setdefault((tier, block), why)
    if not found:
        found = {row: why for row, why in _in_columns(example, film) if row in shown}
    if not found and example.position < 0 and film.sound is not None and film.sound.position is not None:
        found = dict.fromkeys(
            touched(film, film.sound.position + 1), "changed where the run departs from one without the fault"
        )
    if not found:
        found = dict.fromkeys(touched(film, film.broken), f"changed by action {film.label(film.broken - 1)}")
    return found


def _in_columns(example: Counterexample, film: Film) -> Iterator[tuple[tuple[Tier, int], str]]:
    """Yield the blocks in the columns that the evidence names, of the table of a request in a group, with where they stand."""
    values = dict(example.values)
    number, group = values.get("request"), values.get("group")
    if not film.moments or not isinstance(number, int) or not isinstance(group, int):
        return
    world = film.moments[film.broken - 1].after
    request = ground.request_of(world, number)
    if request is None or not 0 <= group < len(request.groups):
        return
    table = request.groups[group].table
    for name in ("column", "columns", "index", "expected"):
        value = values.get(name)
        for column in value if isinstance(value, tuple) else (value,):
            if isinstance(column, int) and 0 <= column < len(table) and table[column] != ground.NULL:
                yield ("device", table[column]), f"column {column} of {film.names_in(film.broken).request(number)} in g{group}"


def touched(film: Film, number: int) -> list[tuple[Tier, int]]:
    """Return the blocks that changed with a frame, none for the first one."""
    if number <= film.window.first:
        return []
    before, after = film.frame(number - 1), film.frame(number)
    return [(two.tier, two.block) for one, two in zip(before.blocks(), after.blocks(), strict=True) if changed(one, two)]


def changed(before: Block, after: Block) -> bool:
    """Tell whether a block changed; that others went before it in the free queue is no change of its own."""
    moved = (before.place is None) == (after.place is None)
    return before != after and not (moved and evolve(before, place=after.place) == after)


def life(film: Film, tier: Tier, block: int, why: str = "") -> Life:
    """Return everything that happened to a block in the worlds that are shown."""
    found: list[Event] = []
    moments = film.moments[film.window.first :]
    for before, moment, after in zip(film.frames, moments, film.frames[1:], strict=False):
        one, two = before.of(tier, block), after.of(tier, block)
        changes = list(_changes(film, moment, one, two))
        if changes:
            found.append(Event(after.position, tuple(what for what, _ in changes), "; ".join(text for _, text in changes)))
    return Life(tier, block, why, tuple(found))


def _changes(film: Film, moment: Moment, before: Block, after: Block) -> Iterator[tuple[str, str]]:
    for owner in after.owners:
        if owner not in before.owners:
            yield "owned", f"becomes {_column(owner)}"
    for owner in before.owners:
        if owner not in after.owners:
            yield "released", f"is no longer {_column(owner)}"
    for pin in after.pins:
        if after.pins.count(pin) > before.pins.count(pin):
            yield "pinned", f"is held by {pin}"
    for pin in before.pins:
        if before.pins.count(pin) > after.pins.count(pin):
            yield "unpinned", f"is no longer held by {pin}"
    if before.refs != after.refs:
        yield "references", f"references {before.refs} → {after.refs}"
    if before.place is None and after.place is not None:
        yield "freed", f"joins the free queue at place {after.place}"
    if before.place is not None and after.place is None:
        yield "taken", f"leaves the free queue (it stood at place {before.place})"
    known = {(claim.group, claim.prefix) for claim in before.claims}
    now = {(claim.group, claim.prefix) for claim in after.claims}
    for group, prefix in sorted(now - known):
        yield "keyed", f"gets the key g{group} {prefix}"
    for group, prefix in sorted(known - now):
        yield "unkeyed", f"loses the key g{group} {prefix}"
    if (before.group, before.ranks) != (after.group, after.ranks):
        yield "written", f"{_writer(film, moment, after)}: {_bytes(before)} → {_bytes(after)}"


def _column(owner: Owner) -> str:
    request, group, column = owner
    return f"column {column} of {request} in g{group}"


def _bytes(block: Block) -> str:
    return block.bytes if block.group is None else f"g{block.group} {block.bytes}"


def _writer(film: Film, moment: Moment, after: Block) -> str:
    """Say what wrote a block's bytes: a part of a step, or a transfer, and from where."""
    action, world = moment.action, moment.before
    if isinstance(action, act.Execute):
        if action.part in ("copy", "precopy"):
            sources = _sources(moment, after)
            return f"{action.part} writes it" + (f" from {', '.join(map(str, sources))}" if sources else "")
        return "zeroed" if action.part == "zero" else f"{action.part} writes it"
    host = world.host
    if host is not None and isinstance(action, act.RunStore):
        running = [store for store in (*host.stores, *host.abandoned_stores) if store.event == action.event]
        devices = [
            device for store in running for device, to in zip(store.device, store.host, strict=False) if to == after.block
        ]
        return f"store {action.event} writes it from block {', '.join(map(str, devices))}"
    if host is not None and isinstance(action, act.RunLoad):
        loads = [load for load in (*host.loads, *host.abandoned_loads) if load.event == action.event]
        pairs = [pair for load in loads for pair in zip(load.device, load.host, strict=False)]
        return (
            f"load writes it from {', '.join(block_name('host', source) for device, source in pairs if device == after.block)}"
        )
    return f"{type(action).__name__} writes it"


def _sources(moment: Moment, after: Block) -> list[int]:
    """Return from which blocks the copies of the step that runs write a block."""
    step = ground.pending_step(moment.before)
    copies = () if step is None else step.copies
    return [source for _, source, destination in copies if destination == after.block]
