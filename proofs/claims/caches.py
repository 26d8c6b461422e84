"""Which keys a cache has, chosen freely among those of the first hash boundaries, and at what a group can resume with them.

What a group can resume at is told by looking through these choices, from the words of HB-10. Nothing here calls the functions
of `kvproof.core` that look a request up.
"""

from __future__ import annotations

from kvproof.core.pool import Pool

Keys = tuple[bool, ...]
"""Whether a group has the key of the first, the second ... hash boundary."""


def pool_with(*groups: Keys) -> Pool:
    """Return a pool in which each group has the chosen keys; the node of a boundary is its number of tokens.

    Each key has a block of its own: those of group 0 come first, and a boundary that a group has no key of leaves a gap.
    """
    first = [1 + sum(len(keys) for keys in groups[:group]) for group in range(len(groups))]
    found = [(at, group) for at in range(max(map(len, groups))) for group, keys in enumerate(groups) if any(keys[at : at + 1])]
    entries = tuple((4 * at + 4, group, seq, first[group] + at) for seq, (at, group) in enumerate(found))
    none = (-1,) * (1 + sum(map(len, groups)))
    return Pool((0,) * len(none), none, none, none, tuple(range(1, len(none))), entries, len(entries))


def attention(keys: Keys, tokens: int, limit: int, size: int = 4) -> bool:
    """HB-10: every full block before a boundary at or behind ``tokens`` is keyed, and that boundary is a block's end or a key.

    ``limit``: no match goes further.
    """
    if tokens == 0:
        return True
    for reached in range(tokens, min(limit, 4 * len(keys)) + 1, 4):
        whole = all(keys[end // 4 - 1] for end in range(size, reached + 1, size))
        if whole and (reached % size == 0 or keys[reached // 4 - 1]):
            return True
    return False


def state(keys: Keys, tokens: int) -> bool:
    """HB-10: there is a state of exactly so many tokens."""
    return tokens == 0 or keys[tokens // 4 - 1]


def window(keys: Keys, tokens: int) -> bool:
    """HB-10: the block before the next position is there, which is all that a window of 5 tokens reads of blocks of 4."""
    return tokens == 0 or keys[tokens // 4 - 1]


def fitting(full: Keys, states: Keys, read: Keys, limit: int, more: int) -> list[tuple[bool, bool, bool]]:
    """Return of 4 and of 8 tokens whether attention, states and the window can resume there, within a limit.

    ``more`` tokens behind the boundary must match as well, which a class of the EAGLE set gives up again (T35).
    """
    return [
        (
            at <= limit and attention(full, at + more, limit + more),
            at <= limit and state(states, at),
            at <= limit and at + more <= 8 and window(read, at) and window(read, at + more),
        )
        for at in (4, 8)
    ]


def deepest(fits: list[bool]) -> int:
    """Return the greatest boundary that fits, in tokens; ``fits`` tells of 0, 4, 8 ... tokens, and 0 always does."""
    return 4 * max(at for at, fit in enumerate(fits) if fit)
