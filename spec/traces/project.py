"""The model's world in the terms of the recordings: configuration, state rows and prefix ids (docs/trace-format.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from attrs import asdict, define, field

from kvproof.core.config import Config, Group, Profile, configure
from kvproof.core.errors import ConfigError
from kvproof.core.offload.settings import Offload
from kvproof.core.offload.state import NONE, Host, Load, Queued, Store
from kvproof.core.pool import NO_KEY, NULL_BLOCK, Pool
from kvproof.core.world import Request, Status, World
from kvproof.spec.traces.format import Config as RecordedConfig
from kvproof.spec.traces.format import Header, HostConfig, SchedulerConfig

KINDS = {
    "full_attention": "full_attention",
    "sliding_window": "sliding_window",
    "chunked_local": "chunked_local",
    "mamba": "mamba_align",
}
STATUS = {
    Status.WAITING: "waiting",
    Status.RUNNING: "running",
    Status.PREEMPTED: "preempted",
    Status.LOADING: "loading",
}


def uncovered(header: Header) -> str | None:
    """Say what in a recording the model does not cover yet, or None if it covers everything."""
    config = header.config
    for group in config.groups:
        if group.kind not in KINDS:
            return f"{group.kind} groups"
        if group.kind == "mamba" and group.mamba_cache_mode != "align":
            return f"mamba groups in {group.mamba_cache_mode} mode"
    return None


def model_config(header: Header, profile: Profile) -> Config:
    """Return the model's configuration for a recorded one. Raises ConfigError if the model cannot take it."""
    config = header.config
    batches = 1 if config.scheduler is None else config.scheduler.concurrent_batches
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
        max_chunk=most_tokens(header),
        long_prefill=largest_prefill(header),
        clip_block_size=config.clip_block_size,
        use_eagle=config.use_eagle,
        num_draft_tokens=config.num_draft_tokens,
        events=config.host is not None and config.host.events,
        connectors=tuple(connector.divergent for connector in config.connectors or ()),
        defer_block_free=(config.host is not None or bool(config.connectors)) and batches > 1,
        max_steps_in_flight=batches,
        async_outputs=config.scheduler is not None and config.scheduler.asynchronous,
        offload=None if config.host is None else offload(config.host, config.scheduler),
        profile=profile,
    )


def most_tokens(header: Header) -> int:
    """Return the most tokens of a step; the driver of a manager-level recording lets one token with its drafts pass it."""
    config = header.config
    if header.engine.level != "manager":
        return config.max_step_tokens
    return max(config.max_step_tokens, 1 + config.num_draft_tokens)


def largest_prefill(header: Header) -> int | None:
    """Return the limit of a prefill chunk where it is not that of a step."""
    config = header.config
    if config.scheduler is not None:
        return config.scheduler.long_prefill_token_threshold or None
    return config.max_step_tokens if config.max_step_tokens < most_tokens(header) else None


def offload(host: HostConfig, scheduler: SchedulerConfig | None = None) -> Offload:
    """Return the settings of a recorded host tier. The steps of the first runner name resumed requests behind running ones."""
    last = scheduler is not None and scheduler.runner == "v1"
    return Offload(host.mode, host.num_blocks, host.workers, resumed="last" if last else "first")


def resolved_differences(config: Config, recorded: RecordedConfig) -> list[tuple[str, object, object]]:
    """Return (name, model's value, recorded value) for every derived size that differs."""
    pairs: list[tuple[str, object, object]] = [
        ("group_block_sizes", list(config.sizes), recorded.group_block_sizes),
        ("scheduler_block_size", config.scheduler_block_size, recorded.scheduler_block_size),
        ("hash_block_size", config.hash_block_size, recorded.hash_block_size),
        ("fine_grained_hits", config.fine_grained, recorded.fine_grained_hits),
    ]
    if config.offload is not None and recorded.host is not None:
        fine = config.fine_grained and config.offload.mode == "eager"
        pairs.append(("host.fine_grained_hits", fine, recorded.host.fine_grained_hits))
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
            known = _hex(reversed(tokens))
            self._prefix_ids[node] = known
        return known

    def pool(self, world: World, pool: Pool) -> dict[str, Any]:
        """Return ``device`` or ``host``: references, free queue, keys and shared keys of a tier's pool (section 3)."""
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

    def request(self, request: Request, asynchronous: bool = False) -> dict[str, Any]:
        """Return one row of ``requests`` (section 3); that of an ``asynchronous`` scheduler has placeholders."""
        row = {
            "status": STATUS[request.status],
            "tokens": request.num_tokens,
            "computed": request.computed,
            "in_flight": request.in_flight,
            "tables": [list(state.table) for state in request.groups],
            "num_cached": [None if state.num_cached == NO_KEY else state.num_cached for state in request.groups],
        }
        return row | {"placeholders": request.placeholders} if asynchronous else row

    def transfers(self, host: Host) -> dict[str, Any]:
        """Return ``transfers``: pins, loads, stores, cursors (section 3)."""
        stores = (*host.stores, *host.abandoned_stores)
        return {
            "pending_hits": {
                self.names[hit.request]: {
                    "length": hit.length,
                    "start": hit.start,
                    "blocks": [list(blocks) for blocks in hit.lists],
                }
                for hit in host.pending
            },
            "loads": {self.names[load.request]: load_row(load) | {"finished": load.finished} for load in host.loads},
            "abandoned_loads": {self.names[load.request]: load_row(load) for load in host.abandoned_loads},
            "stores": {store.event: store_row(store) for store in host.stores},
            "abandoned_stores": {store.event: store_row(store) for store in host.abandoned_stores},
            "acks": {store.event: store.acks for store in stores if store.acks},
            "finish_queue": [store_row(queued) for queued in host.queued],
            "cursors": {self.names[track.request]: list(track.cursors) for track in host.tracks},
            "lazy_cursor": None if host.cursor == NONE else host.cursor,
        }

    def step(self, world: World, drained: bool) -> dict[str, Any]:
        """Return ``step``: queued copies and undrained handoffs (section 3). Copies are gone once drained."""
        plan = world.plan
        return {
            "copies": [] if drained else [(source, destination) for _, source, destination in by_group(plan.copies, 0)],
            "handoffs": [
                (self.names[request], group, block, boundary) for request, group, block, boundary in by_group(plan.handoffs, 1)
            ],
            "deferred_frees": [
                (waiting.fence, [block for table in waiting.tables for block in without_head(table)])
                for waiting in world.deferred
            ],
        }


def without_head(table: Sequence[int]) -> Sequence[int]:
    """Return a table without the null entries it begins with, as the recorded engine holds it back."""
    head = next((at for at, block in enumerate(table) if block != NULL_BLOCK), len(table))
    return table[head:]


def digest(tokens: Sequence[int]) -> str:
    """Return the engine-neutral id of tokens: of a prefix, or of an event's payload (sections 1 and 5)."""
    return _hex(str(token) for token in tokens)


def _hex(tokens: Iterable[str]) -> str:
    return hashlib.sha256(",".join(tokens).encode()).hexdigest()[:12]


def counters(host: Host) -> dict[str, int]:
    """Return ``counters``: what became of handoffs since the last reset (section 3)."""
    return asdict(host.counters)


def load_row(load: Load) -> dict[str, Any]:
    """Return what ``loads`` and ``abandoned_loads`` have in common."""
    return {
        "event": None if load.event == NONE else load.event,
        "device": list(load.device),
        "host": list(load.host),
    }


def store_row(store: Store | Queued) -> dict[str, list[int]]:
    """Return the two lists of a store."""
    return {"device": list(store.device), "host": list(store.host)}


def by_group(rows: tuple[Any, ...], column: int) -> list[Any]:
    """Return rows group by group, in time order within a group (section 4, ``end_step``)."""
    return sorted(rows, key=lambda row: row[column])


def _key_order(row: tuple[int, int, int, str, str]) -> tuple[int, bool, int, int, str]:
    block, group, boundary, prefix, role = row
    return (block, role != "primary", group, boundary, prefix)
