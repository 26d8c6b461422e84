"""The gate of fine-grained hits, condition by condition (2.4)."""

from __future__ import annotations

from attrs import frozen

from kvproof.core import kinds
from kvproof.core.config import Config
from kvproof.spec import naive


@frozen(slots=True)
class Condition:
    """One of the four conditions of 2.4: what it asks, whether it holds, and the values it was asked with."""

    number: int
    asks: str
    holds: bool
    values: str


def conditions(config: Config, names: dict[tuple[int, ...], str], allowed: bool) -> tuple[Condition, ...]:
    """Return the four conditions of 2.4 for a configuration; hits may end inside a block if all hold.

    ``names`` are those of the classes of cached groups, by their members; ``allowed`` says whether the caller allows it
    (``allow_partial_hash_hits``).
    """
    unit, ranks = config.hash_block_size, config.dcp_size
    count = len(config.groups)
    first = {name: config.groups[members[0]] for members, name in names.items()}
    states = {name: group.block_size for name, group in first.items() if _can(group.kind).snapshots}
    relation = ">" if ranks == 1 else ">="
    finer = any(size > unit or (ranks > 1 and size == unit) for size in states.values())
    sizes = ", ".join(f"{name} has bs = {size:,}, H = {unit:,}" for name, size in states.items())
    coarse = {
        name: naive.span(group.block_size, bool(group.sharded), ranks)
        for name, group in first.items()
        if not _can(group.kind).fine_grained_lookup
    }
    listed = ", ".join(f"{name}: {size:,}" for name, size in coarse.items())
    return (
        Condition(
            1,
            "prefix caching is on and there is more than one group",
            config.caching and count > 1,
            f"{count} group" + ("s" if count != 1 else ""),
        ),
        Condition(2, "the caller allows it (allow_partial_hash_hits)", allowed, "yes" if allowed else "no"),
        Condition(
            3,
            f"some Mamba block in align mode has bs {relation} H on {ranks} rank" + ("s" if ranks > 1 else ""),
            finer,
            sizes or "no such group",
        ),
        Condition(
            4,
            f"every group that cannot be looked up inside a block has E = H = {unit:,}",
            all(size == unit for size in coarse.values()),
            listed or "no such group",
        ),
    )


def _can(kind: str) -> kinds.base.Capabilities:
    return kinds.of(kind).CAPABILITIES
