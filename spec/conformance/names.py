"""Two languages: block ids and prefix ids of an implementation, and those of the model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from operator import index
from typing import TYPE_CHECKING

from attrs import define, field

from kvproof.core import prefixes
from kvproof.core.prefixes import NO_NODE, Prefixes

if TYPE_CHECKING:
    from hashlib import _Hash

STRANGE = -1
"""The context and the tokens of the path on which made-up prefixes lie; the last token of each is below it."""

MOST_MADE_UP = 1 << 20
"""Tokens of all made-up prefixes of a run: whose names are wrong now and then is far from it."""


@define(slots=True)
class Blocks:
    """Block ids of one tier: the implementation's, and the model's, whose null block is 0.

    Ids are counted from the null block's: that is their own number where it is 0. An id for which that is no number of the
    pool, or somebody else's, keeps its own if it can and else gets the lowest left, in the order in which they are first seen.
    What finds no number left keeps its own, which no pool has: laws then see a block out of range.
    """

    num_blocks: int
    null: int = 0
    _inward: dict[int, int] = field(factory=dict)
    _outward: dict[int, int] = field(factory=dict)
    _lowest: int = 1

    def __attrs_post_init__(self) -> None:
        self._name(self.null, 0)

    def inward(self, block: int) -> int:
        """Return the model's id of a block of the implementation. Raises TypeError for what is no number."""
        known = self._inward.get(block)
        if known is not None:
            return known
        block = index(block)
        for number in (block - self.null, block):
            if 0 < number < self.num_blocks and number not in self._outward:
                return self._name(block, number)
        while self._lowest in self._outward:
            self._lowest += 1
        return self._name(block, self._lowest if self._lowest < self.num_blocks else block)

    def outward(self, block: int) -> int:
        """Return the implementation's id of a block of the model; one never seen is counted from the null block."""
        return self._outward.get(block, block + self.null)

    def all_inward(self, blocks: Iterable[int]) -> tuple[int, ...]:
        """Return the model's ids of blocks of the implementation."""
        return tuple([self.inward(block) for block in blocks])

    def lists_inward(self, lists: Iterable[Iterable[int]]) -> tuple[tuple[int, ...], ...]:
        """Return lists of blocks in the model's ids."""
        return tuple([self.all_inward(blocks) for blocks in lists])

    def _name(self, there: int, here: int) -> int:
        self._inward[there] = here
        self._outward[here] = there
        return here


@define(slots=True)
class Digests:
    """The prefix ids of every node of one growing prefix table, both ways (``adapter.prefix_id``)."""

    _ids: list[str] = field(factory=list)
    _states: list[_Hash] = field(factory=list)
    _nodes: dict[tuple[str, int], int] = field(factory=dict)
    _depths: dict[str, int] = field(factory=dict)
    _strange: int = 0
    _made_up: int = 0
    _tip: int = NO_NODE

    def of(self, table: Prefixes, node: int) -> str:
        """Return the prefix id of a node; the roots have that of no tokens."""
        self._learn(table)
        return self._ids[node]

    def known(self, table: Prefixes, prefix: str, boundary: int | None = None) -> int | None:
        """Return the node of a prefix id at a boundary (None: whatever its boundary is), None if nobody ever had it."""
        self._learn(table)
        depth = self._depths.get(prefix) if boundary is None else boundary
        return None if depth is None else self._nodes.get((prefix, depth))

    def node(self, table: Prefixes, prefix: str, boundary: int) -> tuple[Prefixes, int]:
        """Return the node of a prefix id at a boundary, and the table that has it.

        For a prefix that nobody ever had one is made up: no token of it is anybody's. All of them lie on one path up to their
        last token, which is their own; the nodes of that path have no names that anybody would show. Raises ValueError if
        there are too many of them.
        """
        found = self.known(table, prefix, boundary)
        if found is not None:
            return table, found
        self._strange += 1
        own = STRANGE - self._strange
        self._made_up += boundary
        if self._made_up > MOST_MADE_UP:
            raise ValueError(
                f"too many prefixes that no request had, the last one {prefix!r} of {boundary} tokens: a prefix is named by "
                "what prefix_id gives for its tokens"
            )
        table, trunk = self._strange_path(table, boundary)
        table, node = prefixes.extend(table, trunk, (own,))
        self._learn(table)
        self._ids[node] = prefix
        self._nodes[(prefix, boundary)] = node
        self._depths.setdefault(prefix, boundary)
        return table, node

    def _strange_path(self, table: Prefixes, boundary: int) -> tuple[Prefixes, int]:
        """Return the node before the last token of a made-up prefix of so many tokens, none before a root."""
        if not boundary:
            return table, NO_NODE
        if self._tip == NO_NODE:
            table, self._tip = prefixes.root(table, STRANGE)
        missing = boundary - 1 - table.depth[self._tip]
        if missing <= 0:
            return table, prefixes.ancestor(table, self._tip, boundary - 1)
        table, self._tip = prefixes.extend(table, self._tip, (STRANGE,) * missing)
        return table, self._tip

    def _learn(self, table: Prefixes) -> None:
        """Note the ids of the nodes that the table got since the last time; a node never changes."""
        ids, states, nodes = self._ids, self._states, self._nodes
        for node in range(len(ids), len(table.parent)):
            parent, token, depth = table.parent[node], table.token[node], table.depth[node]
            if parent == NO_NODE:
                state = hashlib.sha256(f"{token}:".encode() if token else b"")
            else:
                state = states[parent].copy()
                state.update(b"%d" % token if depth == 1 else b",%d" % token)
            prefix = state.hexdigest()[:12]
            ids.append(prefix)
            states.append(state)
            if nodes.setdefault((prefix, depth), node) == node:
                self._depths.setdefault(prefix, depth)
