"""Breadth-first exploration of the projection: every state under its own name, or one state per orbit.

What has a name without meaning is a block, a request and a text. The states are closed under their exchange, so an orbit of
the group of all exchanges has as many states as the group has members that do not fix the state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby, permutations, product
from operator import itemgetter

from attrs import define, frozen

from kvproof.core.errors import KvproofError
from kvproof.spec.exploring.graph import Graph
from kvproof.spec.exploring.names import Numbers
from tests.referee.projection import Holding, Projection, State, Step
from tests.referee.spin import Edges


def plain(projection: Projection, state: State) -> bytes:
    """Return a state as the Promela model declares it, every name kept; what is unused is 0.

    References and primary key + 1 by block; length and blocks of the free queue; the number of blocks of every key, then the
    blocks of every key in the order of insertion; text + 1 of every request, the length of every table, every table; the
    number of copies and their ends.
    """
    size, pool, number = projection.size, state.pool, projection.number
    listed = [[block for node, _, _, block in pool.entries if node == key] for key in projection.keys]
    out = [*pool.ref[1:], *(number[node] for node in pool.key_node[1:])]
    out += (len(pool.free), *filled(pool.free, size.blocks))
    out += (len(blocks) for blocks in listed)
    for blocks in listed:
        out += filled(blocks, size.blocks)
    out += (text + 1 for text, _ in state.requests)
    out += (len(table) for _, table in state.requests)
    for _, table in state.requests:
        out += filled(table, size.columns)
    out += (len(state.copies), *filled([end for copy in state.copies for end in copy], 2 * size.blocks))
    return bytes(out)


def filled(names: Sequence[int], length: int) -> list[int]:
    """Return names with zeros behind them."""
    return [*names, *[0] * (length - len(names))]


def reduced(projection: Projection, state: State) -> tuple[bytes, int]:
    """Return what a state is called without names, and how many states are called that (the size of its orbit).

    The name is the least of those that the orders of the requests and the names of the texts give. Requests are first ordered
    by what they are without names, so that only equal ones remain to be exchanged; all that are idle are equal.
    """
    ref, found = state.pool.ref, state.pool.entries
    busy = [holding for holding in state.requests if holding[1]]
    alike = FACTORIALS[len(state.requests) - len(busy)]
    names: list[bytes] = []
    for texts, keys in projection.namings:
        entries = [(keys[entry[0]], entry[3]) for entry in found]
        if len(texts) > 1:
            entries.sort(key=itemgetter(0))
        if len(busy) < 2:
            names.append(renamed(state, keys, texts, entries, busy))
            continue
        places = list(ref)
        for at, (_, block) in enumerate(entries, 1):
            places[block] = places[block] * BASE + at
        told = [(texts[text], [places[block] for block in table]) for text, table in busy]
        order = sorted(range(len(busy)), key=told.__getitem__)
        equal = [[*group] for _, group in groupby(order, told.__getitem__)]
        if len(equal) == len(order):
            names.append(renamed(state, keys, texts, entries, [busy[request] for request in order]))
            continue
        for orders in product(*(permutations(group) for group in equal)):
            names.append(renamed(state, keys, texts, entries, [busy[request] for request in chain(*orders)]))
    if len(names) == 1:
        return names[0], projection.exchanges // alike
    name = min(names)
    # Every block stands in the free queue, a table or a copy, so only the identity of the blocks fixes a state.
    return name, projection.exchanges // (alike * names.count(name))


Entries = list[tuple[int, int]]
"""(key, block) in order of key and insertion."""
BASE = 256
"""More than there are places of entries."""
FACTORIALS = (1, 1, 2, 6, 24)


def renamed(state: State, keys: dict[int, int], texts: tuple[int, ...], entries: Entries, requests: list[Holding]) -> bytes:
    """Return a state with its requests in this order, keys and texts under other names, and blocks by first appearance."""
    pool, blocks = state.pool, Numbers(0)
    out = [len(requests), len(state.copies)]
    named: list[int] = []
    for text, table in requests:
        out += (texts[text], len(table))
        named += table
    for copy in state.copies:
        named += copy
    named += pool.free
    out += blocks.all(named)
    for key, block in entries:
        out += (key, blocks[block])
    ref, primary = pool.ref, pool.key_node
    for block in blocks:
        if block > 0:
            out += (ref[block], keys[primary[block]])
    return bytes(out)


@define(slots=True)
class Counts:
    """What an exploration came to: ``nodes`` stored and ``followed`` edges out of them; the ``states`` and ``edges`` they stand for."""

    nodes: int = 0
    followed: int = 0
    states: int = 0
    edges: int = 0
    levels: int = 0


def explore(projection: Projection, whole: bool = False) -> Counts:
    """Count the states of a projection: ``whole`` one by one, else by orbits."""
    graph, counts = Graph(), Counts()
    first = projection.first()
    name, stands_for = _named(projection, first, whole)
    number, _ = graph.found(name, -1, None)
    level = [(first, number, stands_for)]
    while level:
        counts.levels += 1
        following = []
        for state, number, stands_for in level:
            edges = 0
            for _, times, after in projection.steps(state, not whole):
                counts.followed += 1
                edges += times
                if after is state:
                    continue
                name, size = _named(projection, after, whole)
                reached, new = graph.found(name, number, None)
                if new:
                    following.append((after, reached, size))
            counts.states += stands_for
            counts.edges += stands_for * edges
        level = following
    counts.nodes = len(graph)
    return counts


def _named(projection: Projection, state: State, whole: bool) -> tuple[bytes, int]:
    return (plain(projection, state), 1) if whole else reduced(projection, state)


@frozen(slots=True)
class Difference:
    """Where core and the referee part: the steps that lead there, and what is an edge of only one of them from there on.

    ``broken`` is the error with which core ended in a step that the projection allows, "" if there was none.
    """

    way: tuple[Step, ...]
    core: tuple[tuple[Step, bytes], ...] = ()
    referee: tuple[tuple[Step, bytes], ...] = ()
    broken: str = ""


def difference(projection: Projection, edges: Edges) -> Difference | None:
    """Return the first state, by depth, that core leaves by other edges than the referee; None if the graphs are equal.

    Both begin with a new pool, so equal edges out of every state that is reached mean equal graphs.
    """
    first = projection.first()
    ways: dict[bytes, tuple[bytes, Step] | None] = {plain(projection, first): None}
    waiting = deque([first])
    while waiting:
        state = waiting.popleft()
        name = plain(projection, state)
        mine: set[tuple[Step, bytes]] = set()
        try:
            for step, _, after in projection.steps(state):
                target = plain(projection, after)
                mine.add((step, target))
                if target not in ways:
                    ways[target] = (name, step)
                    waiting.append(after)
        except (KvproofError, ValueError, LookupError) as error:
            return Difference(_way(ways, name), broken=f"{type(error).__name__}: {error}")
        theirs = edges.get(name, set())
        if mine != theirs:
            return Difference(_way(ways, name), tuple(sorted(mine - theirs)), tuple(sorted(theirs - mine)))
    return None


def _way(ways: Mapping[bytes, tuple[bytes, Step] | None], name: bytes) -> tuple[Step, ...]:
    steps: list[Step] = []
    before = ways[name]
    while before is not None:
        steps.append(before[1])
        before = ways[before[0]]
    return tuple(reversed(steps))


def states(projection: Projection) -> Iterator[State]:
    """Yield every state of a projection once, by depth, every name kept."""
    first = projection.first()
    seen = {plain(projection, first)}
    waiting = deque([first])
    while waiting:
        state = waiting.popleft()
        yield state
        for _, _, after in projection.steps(state):
            name = plain(projection, after)
            if name not in seen:
                seen.add(name)
                waiting.append(after)
