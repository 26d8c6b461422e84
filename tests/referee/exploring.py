"""Breadth-first exploration of the projection: every state under its own name, or one state per orbit.

What has a name without meaning is a block, a request and a text. The states are closed under their exchange, so an orbit of
the group of all exchanges has as many states as the group has members that do not fix the state.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, permutations, product
from math import factorial
from operator import itemgetter

from attrs import define

from kvproof.core.pool import Pool
from kvproof.spec.exploring.graph import Graph
from kvproof.spec.exploring.names import Numbers
from tests.referee.projection import IDLE, Holding, Projection, Size, State, Step


def plain(projection: Projection, state: State) -> bytes:
    """Return a state as the Promela model stores it, every name kept; what is unused is 0.

    References and primary key + 1 by block; length and blocks of the free queue; of every key its number of blocks and the
    blocks in the order of insertion; of every request text + 1, the table's length and blocks; the copies' number and ends.
    """
    size, pool = projection.size, state.pool
    out = [*pool.ref[1:]]
    out += (projection.number[node] for node in pool.key_node[1:])
    out += (len(pool.free), *filled(pool.free, size.blocks))
    for key in projection.keys:
        blocks = [block for node, _, _, block in pool.entries if node == key]
        out += (len(blocks), *filled(blocks, size.blocks))
    for text, table in state.requests:
        out += (text + 1, len(table), *filled(table, size.columns))
    out += (len(state.copies), *filled([end for copy in state.copies for end in copy], 2 * size.blocks))
    return bytes(out)


def filled(names: list[int] | tuple[int, ...], length: int) -> list[int]:
    """Return names with zeros behind them."""
    return [*names, *[0] * (length - len(names))]


def reduced(projection: Projection, state: State) -> tuple[bytes, int]:
    """Return what a state is called without names, and how many states are called that (the size of its orbit).

    The name is the least of those that the orders of the requests and the names of the texts give. Requests are first ordered
    by what they are without names, so that only equal ones remain to be exchanged; all that are idle are equal.
    """
    shared = projection.size.columns
    names: list[bytes] = []
    alike = 1
    for texts in permutations(range(len(projection.nodes))):
        keys = projection.number | {node: shared + 1 + texts[text] for text, node in enumerate(projection.keys[shared:])}
        entries = [(keys[node], block) for node, _, _, block in state.pool.entries]
        entries.sort(key=itemgetter(0))
        places: dict[int, int] = {}
        for at, (_, block) in enumerate(entries, 1):
            places[block] = places.get(block, 0) * BASE + at
        ref = state.pool.ref
        groups: dict[tuple[int, ...], list[Holding]] = {}
        for text, table in state.requests:
            told = (IDLE,) if text == IDLE else (texts[text], *(places.get(block, 0) * BASE + ref[block] for block in table))
            groups.setdefault(told, []).append((text, table))
        idle = groups.pop((IDLE,), [])
        alike = factorial(len(idle))
        for orders in product(*(permutations(groups[told]) for told in sorted(groups))):
            names.append(renamed(state, keys, texts, entries, [*chain(*orders)]))
    name = min(names)
    # Every block stands in the free queue, a table or a copy, so only the identity of the blocks fixes a state.
    return name, projection.exchanges // (alike * names.count(name))


Entries = list[tuple[int, int]]
"""(key, block) in order of key and insertion."""
BASE = 256
"""More than there are places of entries, or references."""


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
    for block in blocks:
        if block > 0:
            out += (pool.ref[block], keys[pool.key_node[block]])
    return bytes(out)


@define(slots=True)
class Counts:
    """What an exploration came to: ``nodes`` stored, ``states`` they stand for, ``edges`` followed, ``levels``."""

    nodes: int = 0
    states: int = 0
    edges: int = 0
    levels: int = 0


def explore(projection: Projection, whole: bool = False) -> Counts:
    """Count the states of a projection: ``whole`` one by one, else by orbits. Edges are those out of the nodes."""
    graph, counts = Graph(), Counts()
    first = projection.first()
    level = [first]
    name, states = _named(projection, first, whole)
    graph.found(name, -1, None)
    counts.states = states
    while level:
        counts.levels += 1
        following = []
        for state in level:
            for _, after in projection.steps(state):
                counts.edges += 1
                if after is state:
                    continue
                name, states = _named(projection, after, whole)
                _, new = graph.found(name, 0, None)
                if new:
                    counts.states += states
                    following.append(after)
        level = following
    counts.nodes = len(graph)
    return counts


def _named(projection: Projection, state: State, whole: bool) -> tuple[bytes, int]:
    return (plain(projection, state), 1) if whole else reduced(projection, state)


def states(projection: Projection) -> Iterator[tuple[State, bytes, list[tuple[Step, bytes]]]]:
    """Yield every state once, its name, and its edges as (step, name of the target)."""
    first = projection.first()
    seen = {plain(projection, first)}
    waiting = [first]
    for state in waiting:
        edges = []
        for step, after in projection.steps(state):
            name = plain(projection, after)
            edges.append((step, name))
            if name not in seen:
                seen.add(name)
                waiting.append(after)
        yield state, plain(projection, state), edges


SIZES: dict[str, Size] = {}
