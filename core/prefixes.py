"""The append-only prefix table: a prefix is a node id, equal prefix and context means equal id (semantics 2.3).

Nodes are per token. A node is appended once and never changes, so ids stay valid in every later world. The root of a
context has depth 0; the node at depth n stands for the first n tokens. ``run`` names the oldest node of the chain of
consecutive ids that ends here, which makes walking to an ancestor cost one step per branch instead of one per token.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from attrs import frozen

NO_NODE = -1


@frozen(slots=True)
class Prefixes:
    """Parallel tuples indexed by node id, and the sorted index of the nodes that do not follow their parent's id.

    ``token`` of a root is its context id. ``branches`` holds (parent, token, node).
    """

    parent: tuple[int, ...] = ()
    token: tuple[int, ...] = ()
    depth: tuple[int, ...] = ()
    run: tuple[int, ...] = ()
    branches: tuple[tuple[int, int, int], ...] = ()


def child(prefixes: Prefixes, parent: int, token: int) -> int:
    """Return the node for ``token`` after ``parent`` (a root if ``parent`` is -1), or -1 if there is none (2.3)."""
    following = parent + 1
    if (
        parent >= 0
        and following < len(prefixes.parent)
        and prefixes.parent[following] == parent
        and prefixes.token[following] == token
    ):
        return following
    branches = prefixes.branches
    at = bisect_left(branches, (parent, token, -1))
    if at < len(branches) and branches[at][0] == parent and branches[at][1] == token:
        return branches[at][2]
    return NO_NODE


def extend(prefixes: Prefixes, tip: int, tokens: Sequence[int]) -> tuple[Prefixes, int]:
    """Append ``tokens`` after ``tip``; return the table and the node of the last token (2.3). No errors."""
    used = 0
    for token in tokens:
        node = child(prefixes, tip, token)
        if node == NO_NODE:
            break
        tip = node
        used += 1
    if used == len(tokens):
        return prefixes, tip
    parent, token_of = list(prefixes.parent), list(prefixes.token)
    depth, run = list(prefixes.depth), list(prefixes.run)
    branches = list(prefixes.branches)
    for token in tokens[used:]:
        node = len(parent)
        follows = tip == node - 1 and tip >= 0
        parent.append(tip)
        token_of.append(token)
        depth.append(depth[tip] + 1 if tip >= 0 else 0)
        run.append(run[tip] if follows else node)
        if not follows:
            insort(branches, (tip, token, node))
        tip = node
    return Prefixes(tuple(parent), tuple(token_of), tuple(depth), tuple(run), tuple(branches)), tip


def root(prefixes: Prefixes, context: int) -> tuple[Prefixes, int]:
    """Return the root node of an opaque context id, appended if it is new (2.3)."""
    return extend(prefixes, NO_NODE, (context,))


def ancestor(prefixes: Prefixes, node: int, depth: int) -> int:
    """Return the node at ``depth`` tokens on the path to ``node``; ``0 <= depth <= depth[node]`` (2.3).

    Raises ValueError for a depth below 0: no walk towards the root would end there.
    """
    if depth < 0:
        raise ValueError(f"a prefix has no {depth} tokens")
    above = prefixes.depth[node] - depth
    first = prefixes.run[node]
    while node - above < first:
        above -= node - first + 1
        node = prefixes.parent[first]
        first = prefixes.run[node]
    return node - above


def path(prefixes: Prefixes, node: int, start: int, stop: int) -> list[int]:
    """Return the nodes at depths ``start+1 .. stop`` on the path to ``node`` (node p+1 is "through position p")."""
    node = ancestor(prefixes, node, stop)
    pieces: list[range] = []
    depth = stop
    while depth > start:
        first = prefixes.run[node]
        lowest = max(first, node - (depth - start) + 1)
        pieces.append(range(lowest, node + 1))
        depth -= node - lowest + 1
        if depth > start:
            node = prefixes.parent[first]
    nodes: list[int] = []
    for piece in reversed(pieces):
        nodes.extend(piece)
    return nodes


def boundary_nodes(prefixes: Prefixes, node: int, unit: int) -> list[int]:
    """Return the nodes at depths ``unit, 2*unit, ...`` not beyond ``node``: the hash chain of a prefix (2.3)."""
    return path(prefixes, node, 0, prefixes.depth[node])[unit - 1 :: unit]
