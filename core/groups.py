"""Cache groups: what a configuration says of one, and which groups belong together (1.2, 3.1)."""

from __future__ import annotations

from attrs import evolve, frozen

from kvproof.core import kinds
from kvproof.core.errors import ConfigError

MAX_BLOCKS = 1 << 24
MAX_ROWS = 4096
MAX_BLOCK_TOKENS = 1 << 20
"""Most tokens of one block over all ranks: the contents of a block have a cell per token."""


@frozen(slots=True)
class Group:
    """One cache group: its kind and tokens per block on one rank; None stands for the kind's own value (1.2, 3.1).

    ``sharded``: DCP splits its positions. ``prefix_cacheable``: only scratch groups opt out, and they always do (C-12).
    ``window``: W of a sliding window or C of chunked local attention, in tokens. ``speculative_blocks``: spare state blocks
    of Mamba align. ``draft``: cache of a speculative drafter.
    """

    kind: str
    block_size: int
    sharded: bool | None = None
    prefix_cacheable: bool | None = None
    window: int | None = None
    speculative_blocks: int = 0
    draft: bool = False


def positive(name: str, value: int | None, limit: int) -> int:
    """Return a value that must be an integer in 1..limit. Raises ConfigError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= limit:
        raise ConfigError(f"{name} must be an integer in 1..{limit}, got {value!r}")
    return value


def count(name: str, value: int, limit: int) -> int:
    """Return a value that must be an integer in 0..limit. Raises ConfigError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= limit:
        raise ConfigError(f"{name} must be in 0..{limit}, got {value!r}")
    return value


def resolve(groups: tuple[Group, ...], dcp_size: int) -> tuple[Group, ...]:
    """Return the groups with their kinds' values filled in. Raises ConfigError for what a kind cannot be (2.1, C-12)."""
    if not groups:
        raise ConfigError("a configuration needs at least one group")
    return tuple(_resolve_one(f"groups[{index}] ({group.kind})", group, dcp_size) for index, group in enumerate(groups))


def _resolve_one(name: str, group: Group, dcp_size: int) -> Group:
    """Return a group with its kind's values filled in. Raises ConfigError for what the kind cannot be."""
    can = kinds.of(group.kind).CAPABILITIES
    positive(f"{name}: block_size", group.block_size, MAX_BLOCK_TOKENS // dcp_size)
    if group.prefix_cacheable not in (None, can.cacheable):
        what = "cannot opt out of prefix caching: only scratch groups will" if can.cacheable else "is never cached"
        raise ConfigError(f"{name} {what} (C-12)")
    if can.windowed:
        positive(f"{name}: window", group.window, MAX_BLOCKS)
    elif group.window is not None:
        raise ConfigError(f"{name} has no window: leave it out")
    count(f"{name}: speculative_blocks", group.speculative_blocks, MAX_ROWS)
    if group.speculative_blocks and not can.snapshots:
        raise ConfigError(f"{name} has no speculative blocks: only Mamba align has")
    if group.draft and not can.positions:
        raise ConfigError(f"{name} cannot be a draft group: a drafter's cache holds token positions (T35)")
    sharded = can.sharded_by_default if group.sharded is None else group.sharded
    if dcp_size > 1 and not can.several_ranks:
        raise ConfigError(f"{name} does not work on {dcp_size} DCP ranks: use one rank (2.1)")
    if sharded and not can.may_be_sharded and dcp_size > 1:
        raise ConfigError(f"{name} cannot be sharded over {dcp_size} DCP ranks: set sharded=False (2.1)")
    return evolve(group, sharded=sharded, prefix_cacheable=can.cacheable)


def lookup_classes(groups: tuple[Group, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the groups that are looked up together, those with equal specs, full attention first (1.2, T11)."""
    found: dict[Group, list[int]] = {}
    for index, group in enumerate(groups):
        if group.prefix_cacheable:
            found.setdefault(evolve(group, draft=False), []).append(index)
    order = sorted(found.items(), key=lambda item: not kinds.of(item[0].kind).CAPABILITIES.prefix_closed)
    return tuple(tuple(members) for _, members in order)


def eagle_groups(groups: tuple[Group, ...], classes: tuple[tuple[int, ...], ...], use_eagle: bool) -> tuple[bool, ...]:
    """Tell per group whether it belongs to the EAGLE group set (3.1).

    The flagged groups, or all if none is flagged, recurrent ones included; a class with one of them belongs to it whole.
    """
    if not use_eagle:
        return (False,) * len(groups)
    flagged = any(group.draft for group in groups)
    chosen = {index for index, group in enumerate(groups) if group.draft or not flagged}
    for members in classes:
        if chosen & set(members):
            chosen |= set(members)
    return tuple(index in chosen for index in range(len(groups)))
