"""The graph of a scope as far as it is explored: orbits, and how each was first reached.

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
    An action is an index into ``names``, those that occur. ``edges`` counts what was followed, ``key_bytes`` is the sum of the
    keys' sizes.
    """

    numbers: dict[bytes, int] = Factory(dict)
    parents: array[int] = Factory(lambda: array("l"))
    actions: array[int] = Factory(lambda: array("l"))
    depths: array[int] = Factory(lambda: array("h"))
    edges: int = 0
    names: list[Action] = Factory(list)
    indices: dict[Action, int] = Factory(dict)
    key_bytes: int = 0

    def __len__(self) -> int:
        """Return the number of orbits found."""
        return len(self.parents)

    def name(self, action: Action) -> int:
        """Return the index of an action in ``names``."""
        at = self.indices.setdefault(action, len(self.names))
        if at == len(self.names):
            self.names.append(action)
        return at

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

    def path(self, orbit: int) -> tuple[Action, ...]:
        """Return the actions by which an orbit was first reached: they run from the new world, a shortest way there."""
        found: list[Action] = []
        while self.parents[orbit] >= 0:
            found.append(self.names[self.actions[orbit]])
            orbit = self.parents[orbit]
        return tuple(reversed(found))
