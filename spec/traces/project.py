"""The model's world in the terms of the recordings: configuration, state rows and prefix ids (docs/trace-format.md)."""

from __future__ import annotations

import hashlib
from typing import Any

from attrs import define, field

from kvproof.core.config import Config, Group, Profile, configure
from kvproof.core.errors import ConfigError
from kvproof.core.pool import NO_KEY
from kvproof.core.world import Request, Status, World
from kvproof.spec.traces.format import Config as RecordedConfig
from kvproof.spec.traces.format import Header

KINDS = {
    "full_attention": "full_attention",
    "sliding_window": "sliding_window",
    "chunked_local": "chunked_local",
    "mamba": "mamba_align",
}
STATUS = {Status.WAITING: "waiting", Status.RUNNING: "running", Status.PREEMPTED: "preempted"}


def uncovered(header: Header) -> str | None:
    """Say what in a recording the model does not cover yet, or None if it covers everything."""
    config = header.config
    if header.engine.level != "manager":
        return "scheduler-level recordings"
    if config.host is not None:
        return "a host tier"
    for group in config.groups:
        if group.kind not in KINDS:
            return f"{group.kind} groups"
        if group.kind == "mamba" and group.mamba_cache_mode != "align":
            return f"mamba groups in {group.mamba_cache_mode} mode"
    return None


def model_config(header: Header, profile: Profile) -> Config:
    """Return the model's configuration for a recorded one. Raises ConfigError if the model cannot take it."""
    config = header.config
    reason = uncovered(header)
    if reason is not None:
        raise ConfigError(f"the model does not cover {reason} yet")
    return configure(
        tuple(
            Group(
                KINDS[group.kind],
                group.block_size,
                group.dcp_sharded,
                window=group.window,
                speculative_blocks=group.num_speculative_blocks or 0,
                draft=bool(group.is_eagle_group),
            )
            for group in config.groups
        ),
        dcp_size=config.dcp_world_size,
        hash_block_size=config.hash_block_size,
        max_model_len=config.max_model_len,
        num_blocks=config.num_device_blocks,
        retention=config.retention_interval,
        max_running=config.max_running,
        max_chunk=config.max_step_tokens,
        clip_block_size=config.clip_block_size,
        use_eagle=config.use_eagle,
        num_draft_tokens=config.num_draft_tokens,
        profile=profile,
    )


def resolved_differences(config: Config, recorded: RecordedConfig) -> list[tuple[str, object, object]]:
    """Return (name, model's value, recorded value) for every derived size that differs."""
    pairs = (
        ("group_block_sizes", list(config.sizes), recorded.group_block_sizes),
        ("scheduler_block_size", config.scheduler_block_size, recorded.scheduler_block_size),
        ("hash_block_size", config.hash_block_size, recorded.hash_block_size),
        ("fine_grained_hits", config.fine_grained, recorded.fine_grained_hits),
    )
    return [pair for pair in pairs if pair[1] != pair[2]]


@define(slots=True)
class Projector:
    """Turns worlds of one run into recorded state parts; remembers prefix ids, since prefix nodes never change.

    ``names`` maps the model's request ids to the recording's.
    """

    names: dict[int, str] = field(factory=dict)
    _prefix_ids: dict[int, str] = field(factory=dict)

    def prefix_id(self, world: World, node: int) -> str:
        """Return the engine-neutral id of a prefix: 12 hex digits of SHA-256 over its token ids (section 1)."""
        known = self._prefix_ids.get(node)
        if known is None:
            tokens: list[str] = []
            at = node
            while world.prefixes.depth[at]:
                tokens.append(str(world.prefixes.token[at]))
                at = world.prefixes.parent[at]
            known = hashlib.sha256(",".join(reversed(tokens)).encode()).hexdigest()[:12]
            self._prefix_ids[node] = known
        return known

    def device(self, world: World) -> dict[str, Any]:
        """Return ``device``: references, free queue, keys and shared keys (section 3)."""
        pool = world.pool
        keys = []
        shared: dict[tuple[int, int], list[int]] = {}
        depth = world.prefixes.depth
        for node, group, _, block in pool.entries:
            shared.setdefault((node, group), []).append(block)
            is_primary = pool.key_node[block] == node and pool.key_group[block] == group
            keys.append((block, group, depth[node], self.prefix_id(world, node), "primary" if is_primary else "secondary"))
        return {
            "ref": {block: count for block, count in enumerate(pool.ref) if count},
            "free": list(pool.free),
            "keys": sorted(keys, key=_key_order),
            "shared_keys": sorted(
                (group, depth[node], self.prefix_id(world, node), blocks)
                for (node, group), blocks in shared.items()
                if len(blocks) > 1
            ),
        }

    def request(self, request: Request) -> dict[str, Any]:
        """Return one row of ``requests`` (section 3)."""
        return {
            "status": STATUS[request.status],
            "tokens": request.num_tokens,
            "computed": request.computed,
            "in_flight": request.in_flight,
            "tables": [list(state.table) for state in request.groups],
            "num_cached": [None if state.num_cached == NO_KEY else state.num_cached for state in request.groups],
        }

    def step(self, world: World, drained: bool) -> dict[str, Any]:
        """Return ``step``: queued copies and undrained handoffs (section 3). Copies are gone once drained."""
        plan = world.plan
        return {
            "copies": [] if drained else [(source, destination) for _, source, destination in by_group(plan.copies, 0)],
            "handoffs": [
                (self.names[request], group, block, boundary) for request, group, block, boundary in by_group(plan.handoffs, 1)
            ],
            "deferred_frees": [],
        }


def by_group(rows: tuple[Any, ...], column: int) -> list[Any]:
    """Return rows group by group, in time order within a group (section 4, ``end_step``)."""
    return sorted(rows, key=lambda row: row[column])


def _key_order(row: tuple[int, int, int, str, str]) -> tuple[int, bool, int, int, str]:
    block, group, boundary, prefix, role = row
    return (block, role != "primary", group, boundary, prefix)
