"""Fair cycles of a finite graph: does a run go on for ever without what it ignores being able to happen again and again?

Arrows have a kind, given as a bit. Fairness is strong, per kind: a kind that is enabled again and again is taken again and
again. A set of nodes carries such a run if it is strongly connected and every fair kind that leaves one of its nodes is also
the kind of an arrow inside. Nodes at which a missing kind is enabled can only be visited finitely often, so that they are
taken out, and what is left is decomposed again (the condition of Streett).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

Arrow = tuple[int, int, int]
"""(target, bit of the kind, number of the edge)."""

Arrows = Mapping[int, Sequence[Arrow]]
"""The arrows that leave each node; those of the runs in question only."""


def fair_sets(arrows: Arrows, enabled: Mapping[int, int], fair: int) -> Iterator[frozenset[int]]:
    """Yield the largest sets of nodes in which a fair run can go on for ever.

    ``enabled`` are the kinds that leave each node at all, on arrows that these runs do not take, too; ``fair`` the kinds that
    must not be ignored for ever.
    """
    left: list[Collection[int]] = [arrows.keys()]
    while left:
        for nodes in _components(arrows, left.pop()):
            taken = _kinds_inside(arrows, nodes)
            if not taken:
                continue
            missing = _union(enabled, nodes) & fair & ~taken
            if not missing:
                yield nodes
                continue
            rest = {node for node in nodes if not enabled[node] & missing}
            if rest:
                left.append(rest)


def _components(arrows: Arrows, nodes: Collection[int]) -> list[frozenset[int]]:
    import networkx as nx  # takes longer to load than most commands need, and most of them do not judge liveness

    graph = nx.DiGraph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from((node, target) for node in nodes for target, _, _ in arrows[node] if target in nodes)
    return [frozenset(found) for found in nx.strongly_connected_components(graph)]


def _kinds_inside(arrows: Arrows, nodes: Collection[int]) -> int:
    taken = 0
    for node in nodes:
        for target, kind, _ in arrows[node]:
            if target in nodes:
                taken |= kind
    return taken


def _union(enabled: Mapping[int, int], nodes: Collection[int]) -> int:
    kinds = 0
    for node in nodes:
        kinds |= enabled[node]
    return kinds


def cycle(arrows: Arrows, nodes: Collection[int], start: int, enabled: Mapping[int, int], fair: int) -> list[int]:
    """Return the edges of a fair cycle through ``start`` in a set of :func:`fair_sets`: the shortest one if that is fair.

    Else it is led through what its own nodes do not let it ignore.
    """
    needed = 0
    while True:
        edges, visited, taken = _tour(arrows, nodes, start, needed)
        wanted = _union(enabled, visited) & fair
        if not wanted & ~taken:
            return edges
        needed |= wanted


def _tour(arrows: Arrows, nodes: Collection[int], start: int, needed: int) -> tuple[list[int], set[int], int]:
    """Return a cycle through an arrow of every needed kind: its edges, its nodes and its kinds."""
    at, edges, visited, taken = start, [], {start}, 0
    while True:
        way = _nearest(arrows, nodes, at, start, needed & ~taken)
        for target, kind, edge in way:
            edges.append(edge)
            visited.add(target)
            taken |= kind
            at = target
        if at == start and not needed & ~taken:
            return edges, visited, taken


def _nearest(arrows: Arrows, nodes: Collection[int], at: int, start: int, kinds: int) -> list[Arrow]:
    """Return a shortest way to the end of an arrow of one of these kinds, or back to the start if there are none."""
    came: dict[int, tuple[int, Arrow]] = {}
    level = [at]
    while level:
        following = []
        for node in level:
            for arrow in arrows[node]:
                target, kind, _ = arrow
                if target not in nodes:
                    continue
                if kind & kinds if kinds else target == start:
                    return [*_back(came, at, node), arrow]
                if target != at and target not in came:
                    came[target] = (node, arrow)
                    following.append(target)
        level = following
    raise AssertionError("a strongly connected set has a way to each of its arrows")


def _back(came: Mapping[int, tuple[int, Arrow]], at: int, node: int) -> list[Arrow]:
    way = []
    while node != at:
        node, arrow = came[node]
        way.append(arrow)
    return way[::-1]
