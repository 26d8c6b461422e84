"""What the rules look at on the host: its keys, what was lost there, and what the device had that was never stored.

Read from key maps and records; nothing here calls a store, load or lookup function of `core`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from attrs import frozen

from kvproof.core.config import Config
from kvproof.spec import ground

Key = tuple[int, int]
"""(prefix node, group)."""

How = Literal["handoff", "scan", "tail", "lazy"]


@frozen(slots=True)
class Stored:
    """A block that was chosen for the host: when, how, what it stands for, from which device block to which host block.

    ``request`` ran the chunk [start, end), or had just finished if the two are equal.
    """

    request: int
    start: int
    end: int
    how: How
    key: Key
    boundary: int
    device: int
    host: int


@frozen(slots=True)
class HostFacts:
    """The host when the second prompt asks it.

    ``keyed`` are its keys, ``known`` those that the device ever had. ``lost`` says when a key went out of the host's map, in
    words. ``dropped`` are handed over states that were not stored, with the outcome; ``full`` whether no host block was free
    when the first prompt finished, ``starved`` what a lazy walk had no free host block for. ``inside`` tells whether what
    lies inside a block is stored (T27), ``snapshots`` are the groups whose states come by handoffs, ``spans`` is E per group,
    ``target`` the blocks that the lazy walk looks at.
    """

    mode: Literal["eager", "lazy"]
    keyed: frozenset[Key]
    known: frozenset[Key]
    lost: dict[Key, str]
    dropped: dict[Key, str]
    full: bool
    starved: frozenset[Key]
    inside: bool
    snapshots: tuple[int, ...]
    spans: tuple[int, ...]
    target: int

    def why(self, key: Key, boundary: int) -> tuple[str, str] | None:
        """Return why a key is not on the host, as (rule, text); None if the device never had it."""
        if key in self.lost:
            return "host evicted", f"the host block of {boundary:,} was reused {self.lost[key]}"
        if key not in self.known:
            return None
        if self.mode == "lazy":
            if key in self.starved:
                return "host full", f"no host block was free any more when the walk of a step could have copied {boundary:,}"
            return "lazy", f"no step came to {boundary:,} on its walk over the next {self.target:,} blocks to be reused"
        if self.dropped.get(key) == "dropped_cpu_full":
            return "host full", f"no host block was free when the state of {boundary:,} was handed over"
        if key in self.dropped:
            return "not stored", f"the handoff of {boundary:,} was not stored ({self.dropped[key]})"
        if self.full:
            return "host full", f"no host block was free when the first prompt finished, {boundary:,} was left out"
        if boundary % self.spans[key[1]] and not self.inside:
            return "not stored", f"{boundary:,} lies inside a block, which is stored with fine-grained hits only"
        if key[1] in self.snapshots:
            return "not stored", f"no handoff offered the state of {boundary:,}"
        return "not stored", f"the block of {boundary:,} was not stored"


def boundaries(keys: Iterable[Key], group: int, nodes: list[int]) -> tuple[int, ...]:
    """Return the boundaries of a prompt that have a key of a group; ``nodes[n]`` is its prefix of n tokens."""
    held = {node for node, owner in keys if owner == group}
    return tuple(boundary for boundary, node in enumerate(nodes) if boundary and node in held)


def lazy_target(config: Config, spans: tuple[int, ...]) -> int:
    """Return how many blocks of the free queue the lazy walk looks at: twice what a largest step may need (2.8)."""
    most = 0
    for group, (spec, span) in enumerate(zip(config.groups, spans, strict=True)):
        if not spec.prefix_cacheable:
            continue
        if group in ground.recurrent_groups(config):
            most += 2
        elif spec.kind == ground.SLIDING:
            most += len(range(0, spec.window or 0, span)) + 1
        else:
            most += len(range(0, config.max_chunk, span))
    return 2 * most
