"""Which part of a run is shown: actions around the violation, and the blocks that matter there, so that a page stays small."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from attrs import frozen

from kvproof.core.pool import Pool
from kvproof.core.world import World
from kvproof.spec import counterexample as examples
from kvproof.spec.counterexample import Counterexample
from kvproof.spec.laws.base import Moment
from kvproof.spec.report import blocks
from kvproof.spec.report.blocks import Tier
from kvproof.spec.report.names import Names

FRAMES, BEHIND = 241, 40
"""Worlds that are shown, and how many of them lie behind the violation at most."""
ROWS, CELLS = 200, 24_000
"""Blocks that are shown at most, and blocks times worlds."""
FEWEST = 24
"""Blocks that are shown in any case."""

DEVICE_NAMES = ("block", "blocks", "source", "destination", "device", "twice", "adopted", "only_free", "only_unreferenced")
"""Values of evidence that name device blocks, or blocks of the tier that ``tier`` names."""
HOST_NAMES = ("host",)
"""Values of evidence that name host blocks."""

Row = tuple[Tier, int]


@frozen(slots=True)
class Window:
    """Worlds ``first`` to ``last`` are shown (world n lies behind n actions), and of them ``rows``, ordered as the pools are.

    ``worlds`` and ``blocks`` count all there are.
    """

    first: int
    last: int
    rows: tuple[Row, ...]
    worlds: int
    blocks: int

    @property
    def said(self) -> str:
        """What is left out, "" if nothing is."""
        parts = []
        if self.first:
            parts.append(f"the {_counted(self.first, 'world')} before action {self.first - 1}")
        if self.last < self.worlds - 1:
            parts.append(f"the {_counted(self.worlds - 1 - self.last, 'action')} behind action {self.last - 1}")
        if len(self.rows) < self.blocks:
            parts.append(
                f"{self.blocks - len(self.rows):,} of {self.blocks:,} blocks, those that did not change for longest "
                "before the violation"
            )
        return f"Left out, so that the page stays small: {'; '.join(parts)}." if parts else ""


def _counted(count: int, what: str) -> str:
    return what if count == 1 else f"{count:,} {what}s"


def of(worlds: Sequence[World], broken: int, first_of_all: Iterable[Row] = ()) -> Window:
    """Return what is shown of a run whose law breaks in a world; ``first_of_all`` are blocks that must be there."""
    last = min(len(worlds) - 1, broken + BEHIND)
    first = max(0, last - FRAMES + 1)
    every = list(_all(worlds[0]))
    most = max(FEWEST, min(ROWS, CELLS // (last - first + 1)))
    if len(every) <= most:
        return Window(first, last, tuple(every), len(worlds), len(every))
    wanted: dict[Row, None] = {}
    for row in (*first_of_all, *_lately(worlds[first : last + 1], broken - first), *every):
        if len(wanted) == most:
            break
        wanted[row] = None
    return Window(first, last, tuple(row for row in every if row in wanted), len(worlds), len(every))


def _all(world: World) -> Iterator[Row]:
    """Yield the blocks of both tiers but for their null blocks."""
    for block in range(1, len(world.pool.ref)):
        yield "device", block
    for block in range(1, 0 if world.host is None else len(world.host.pool.ref)):
        yield "host", block


def _lately(worlds: Sequence[World], broken: int) -> Iterator[Row]:
    """Yield blocks by when they changed: first those of the violation, then back to the beginning, then those behind it."""
    for at in (*range(broken, 0, -1), *range(broken + 1, len(worlds))):
        yield from changed(worlds[at - 1], worlds[at])


def changed(before: World, after: World) -> list[Row]:
    """Return the blocks whose references, keys, bytes, places in tables changed, or whether they are free."""
    found: set[Row] = {("device", block) for block in _in_pool(before.pool, after.pool, before.contents, after.contents)}
    found |= {("device", block) for block in _in_tables(before, after)}
    if before.host is not None and after.host is not None:
        one, two = before.host, after.host
        found |= {("host", block) for block in _in_pool(one.pool, two.pool, one.contents, two.contents)}
    return sorted(row for row in found if row[1] > 0)


def _in_pool(before: Pool, after: Pool, old: Sequence[object], new: Sequence[object]) -> Iterator[int]:
    if before is not after:
        if before.ref is not after.ref:
            yield from (at for at, (one, two) in enumerate(zip(before.ref, after.ref, strict=True)) if one != two)
        if before.free is not after.free:
            yield from set(before.free) ^ set(after.free)
        if before.entries is not after.entries:
            yield from (entry[3] for entry in set(before.entries) ^ set(after.entries))
    if old is not new:
        yield from (at for at, (one, two) in enumerate(zip(old, new, strict=True)) if one is not two and one != two)


def _in_tables(before: World, after: World) -> set[int]:
    """Return the blocks whose places in tables changed."""
    if before.requests is after.requests:
        return set()
    one, two = (_places(world) for world in (before, after))
    return {block for *_, block in one ^ two}


def _places(world: World) -> set[tuple[int, int, int, int]]:
    return {
        (request.request, group, column, block)
        for request in world.requests
        for group, state in enumerate(request.groups)
        for column, block in enumerate(state.table)
    }


def named(example: Counterexample) -> Iterator[tuple[Tier, int, str]]:
    """Yield the blocks that evidence names, each with the name of the value; none if an implementation has its own."""
    if example.implementation is not None and example.engine != examples.TENSORS:
        return
    values = dict(example.values)
    tier: Tier = "host" if str(values.get("tier", "")) in ("host", "cpu") else "device"
    for name, value in example.values:
        where: Tier | None = "host" if name in HOST_NAMES else tier if name in DEVICE_NAMES else None
        if where is None:
            continue
        inner = value if isinstance(value, tuple | list) else (value,)
        for block in inner:
            if isinstance(block, int) and not isinstance(block, bool):
                yield where, block, name


def wrong(world: World, moments: Iterable[Moment]) -> list[Row]:
    """Return the blocks whose bytes are not what their keys claim in a world that some actions lead to."""
    names = Names.behind(moments)
    return [(block.tier, block.block) for block, _ in blocks.frame_of(world, 0, names).wrong]
