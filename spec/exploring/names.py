"""Names by first appearance: what a key calls the blocks, requests, prefix nodes and tokens of a world.

Two worlds that differ in names alone get the same labels, as long as both are walked in the same order. A node is spelled out
where it first appears, by its parent's label and its token's, so that a key holds the live part of the prefix table and nothing
of what no block, request or plan mentions any more.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvproof.core.prefixes import Prefixes


class Numbers(dict[int, int]):
    """Labels by first appearance; -1 (none) keeps its name, and 0 does where it is the null block."""

    def __init__(self, *fixed: int) -> None:
        super().__init__({name: name for name in (-1, *fixed)})
        self._next = len(fixed)

    def __missing__(self, name: int) -> int:
        label = self[name] = self._next
        self._next += 1
        return label

    def all(self, names: Iterable[int]) -> list[int]:
        """Return the labels of names in turn."""
        return [self[name] for name in names]


class Kept(Numbers):
    """Every name is its own label: nothing is renamed."""

    def __missing__(self, name: int) -> int:
        self[name] = name
        return name


class Nodes(dict[int, int]):
    """Labels of prefix nodes, and in ``spelled`` what each new one is: its parent's label and its token's.

    Contents say -2 for garbage and -1 for unwritten; both keep their name.
    """

    def __init__(self, prefixes: Prefixes, tokens: Numbers, contexts: Numbers) -> None:
        super().__init__({-1: -1, -2: -2})
        self._parent, self._token = prefixes.parent, prefixes.token
        self._tokens, self._contexts = tokens, contexts
        self.spelled: list[int] = []

    def __missing__(self, node: int) -> int:
        chain = [node]
        above = self._parent[node]
        while above not in self:
            chain.append(above)
            above = self._parent[above]
        label = self[above]
        for name in reversed(chain):
            names = self._contexts if label == -1 else self._tokens
            self.spelled += (label, names[self._token[name]])
            label = self[name] = len(self) - 2
        return label

    def all(self, names: Iterable[int]) -> list[int]:
        """Return the labels of nodes in turn."""
        return [self[name] for name in names]


class Labels:
    """The labels of one world. ``kept``: blocks and tokens keep their names, only what is dead or monotone is dropped."""

    __slots__ = ("blocks", "contexts", "hosts", "kept", "nodes", "requests", "tokens")

    def __init__(self, prefixes: Prefixes, kept: bool = False) -> None:
        made = Kept if kept else Numbers
        self.kept = kept
        self.blocks, self.hosts = made(0), made(0)
        self.requests = Numbers()
        self.tokens, self.contexts = made(), made()
        self.nodes = Nodes(prefixes, self.tokens, self.contexts)
