"""The graph of a scope as far as it is explored: orbits, how each was first reached, and on demand every edge.

Orbits are numbered as they are found, so that a number never leads to a smaller depth than an earlier one.
"""

from __future__ import annotations

from array import array
from hashlib import blake2b

from attrs import Factory, define

from kvproof.core.actions import Action

DIGEST_BYTES = 16
"""An orbit is remembered by a digest of its key: two of n orbits collide with a probability below n*n / 2**129."""


@define(slots=True)
class Graph:
    """What is known of the graph.

    ``parents`` and ``actions`` say per orbit from where and by which action it was found first (-1 and None for the first one).
    ``sources``, ``targets`` and ``labels`` are the edges if ``with_edges``: a label is an index into ``alphabet``, the actions
    that occur. ``key_bytes`` is the sum of the keys' sizes.
    """

    with_edges: bool = False
    numbers: dict[bytes, int] = Factory(dict)
    parents: array[int] = Factory(lambda: array("l"))
    actions: array[int] = Factory(lambda: array("l"))
    depths: array[int] = Factory(lambda: array("h"))
    edges: int = 0
    sources: array[int] = Factory(lambda: array("l"))
    targets: array[int] = Factory(lambda: array("l"))
    labels: array[int] = Factory(lambda: array("l"))
    alphabet: dict[Action, int] = Factory(dict)
    key_bytes: int = 0

    def __len__(self) -> int:
        """Return the number of orbits found."""
        return len(self.parents)

    def name(self, action: Action) -> int:
        """Return the index of an action in ``alphabet``."""
        return self.alphabet.setdefault(action, len(self.alphabet))

    def found(self, key: bytes, parent: int, action: Action | None) -> tuple[int, bool]:
        """Return the number of the orbit with this key, and whether it is new; then ``action`` led to it from ``parent``."""
        digest = blake2b(key, digest_size=DIGEST_BYTES).digest()
        known = self.numbers.get(digest)
        if known is not None:
            return known, False
        number = len(self.parents)
        self.numbers[digest] = number
        self.key_bytes += len(key)
        self.parents.append(parent)
        self.actions.append(-1 if action is None else self.name(action))
        self.depths.append(0 if parent < 0 else self.depths[parent] + 1)
        return number, True

    def edge(self, source: int, action: Action, target: int) -> None:
        """Note an edge."""
        self.edges += 1
        if self.with_edges:
            self.sources.append(source)
            self.targets.append(target)
            self.labels.append(self.name(action))

    def path(self, orbit: int) -> tuple[Action, ...]:
        """Return the actions by which an orbit was first reached: they run from the new world, a shortest way there."""
        names = list(self.alphabet)
        found: list[Action] = []
        while self.parents[orbit] >= 0:
            found.append(names[self.actions[orbit]])
            orbit = self.parents[orbit]
        return tuple(reversed(found))
