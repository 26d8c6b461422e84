"""What the kinds that read only the latest tokens share: hits found from the right, and a capped demand (T11, T17).

Such a kind is told by its skipped tokens alone: to resume at n tokens, a multiple of E, it needs the blocks from entry
``skipped(n) / E`` on; the entries before it are null. They never run back as n grows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kvproof.core import pool as pools
from kvproof.core import retention
from kvproof.core.kinds import positional
from kvproof.core.kinds.base import Admission, InStep
from kvproof.core.pool import NO_KEY, NULL_BLOCK, Pool
from kvproof.core.work import Work

if TYPE_CHECKING:
    from kvproof.core.config import Config, Group
    from kvproof.core.world import GroupState


def tokens_read(spec: Group) -> int:
    """Return the window of a group in tokens: W of a sliding window, its own position included, or C of a chunk (1.2)."""
    assert spec.window is not None, "a configuration without a window is refused"
    return spec.window


def demand(
    work: Work,
    group: int,
    state: GroupState,
    adopted: tuple[int, ...],
    wanted: Admission,
    step: InStep,
    skipped: int,
    admission_cap: Callable[[Group, int, int], int | None],
) -> int:
    """Return the demand of an attention table of which ``skipped`` leading tokens need no block, capped for the gate (T17)."""
    in_flight = retention.most_in_flight(work.config.max_chunk, work.config.max_steps_in_flight)
    cap = admission_cap(work.config.groups[group], in_flight, work.config.max_model_len)
    return positional.demand(work, group, state, adopted, wanted, step, tokens=wanted.slots, skipped=skipped, cap=cap)


def aligned_before_the_drop(config: Config, group: int, first: int, end: int, ahead: int, skipped: Callable[[int], int]) -> int:
    """Return how many blocks of a hit are lost because a run is cut to A before it gives up its EAGLE unit, and after it again.

    That is the way of ``short_runs = align``, for a run that reaches the first block and fills no window (T11). Such a run ends
    one block beyond a multiple of A, so that the first cut takes the block that should have been given up.
    """
    size = config.sizes[group]
    per = config.alignment // size
    if config.profile.short_runs == "drop" or not ahead or per == 1 or first:
        return 0
    far = (end + tokens_read(config.groups[group]) // size + 2) * size
    whole = (far - skipped(far)) // size + bool((far - skipped(far)) % size)
    return per if end < whole else 0


def find_hit(
    config: Config,
    pool: Pool,
    nodes: list[int],
    members: tuple[int, ...],
    limit: int,
    ahead: int,
    skipped: Callable[[int], int],
) -> tuple[int, tuple[tuple[int, ...], ...]]:
    """Return the deepest hit at most ``ahead`` blocks before ``limit``, in tokens, and one block list per member (T11, T35).

    Every member must have the keys of all blocks from the first one that a resume needs through ``ahead`` blocks behind the
    hit. ``nodes[i]`` is the node of boundary (i+1)H, ``skipped`` the tokens that need no blocks at a given count. A is a
    multiple of E here (2.4 condition 4). The lists are nulls, then the needed blocks up to the hit.
    """
    unit, size = config.hash_block_size, config.sizes[members[0]]
    per = config.alignment // size

    def blocks(index: int) -> tuple[int, ...]:
        node = nodes[(index + 1) * size // unit - 1]
        return tuple(pools.find(pool, node, group) for group in members)

    end = min(limit, len(nodes) * unit) // size - ahead
    end -= end % per
    while end > 0:
        first = skipped(end * size) // size
        run: list[tuple[int, ...]] = []
        at = end + ahead - 1
        while at >= first and NO_KEY not in (found := blocks(at)):
            run.append(found)
            at -= 1
        if at < first:
            end -= aligned_before_the_drop(config, members[0], first, end, ahead, skipped)
            nulls = (NULL_BLOCK,) * first
            needed = run[::-1][: end - first]
            return end * size, tuple((*nulls, *(found[member] for found in needed)) for member in range(len(members)))
        # A smaller hit that still needs the missing block fails as well: go on below it.
        end = at - ahead
        end -= end % per
    return 0, ((),) * len(members)
