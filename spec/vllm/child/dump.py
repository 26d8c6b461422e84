"""What a live scheduler of vLLM shows: its configuration and its state, in the words of docs/trace-format.md.

This file runs in the process of the engine. It imports the standard library only and knows vLLM's objects by the attributes
that it finds on them, so that one file serves every release.
"""

from __future__ import annotations

import hashlib
import importlib
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

COUNTERS = (
    "published",
    "stored",
    "dropped_cpu_full",
    "dropped_request_gone",
    "skipped_already_cached",
    "skipped_in_flight",
    "dropped_null_block",
    "dropped_not_hashed",
)
HANDOFF_LISTS = ("_pending_boundary_state_offloads", "_pending_partial_tail_offloads")
LOADING = "WAITING_FOR_REMOTE_KVS"


class CannotRecord(Exception):
    """The format has no words for what this scheduler is or does; the message says what."""


def digest(tokens: Iterable[int]) -> str:
    """The prefix_id of a list of tokens: 12 hex digits of SHA-256 over the decimal ids joined by commas."""
    return hashlib.sha256(",".join(map(str, tokens)).encode()).hexdigest()[:12]


class Prefixes:
    """Names of the engine's block hashes: which boundary and prefix each one stands for.

    A hash says nothing by itself, so it is learnt from the requests: the k-th hash of a request stands for its first k * H
    tokens, H being the hash block size in tokens. Hashes are kept for good: a key may outlive the request that made it.
    """

    def __init__(self, hash_block_size: int, outside: Callable[[Any], Any]) -> None:
        """Args: hash_block_size: H. outside: how the engine writes a hash in a cache event."""
        self.unit = hash_block_size
        self.outside = outside
        self.known: dict[Any, tuple[int, str]] = {}
        self.announced: dict[Any, tuple[int, str]] = {}
        self.seen: dict[str, tuple[int, Any, Any]] = {}

    def learn(self, name: str, tokens: Any, hashes: Any) -> None:
        """Take in the hashes that a request has got since the last look at it."""
        count, running, last = self.seen.get(name, (0, None, None))
        if count > len(hashes) or (count and hashes[count - 1] != last):
            count, running = 0, None  # another request under the same name, or its tokens were replaced
        if count == len(hashes):
            return
        running = hashlib.sha256() if running is None else running
        for index in range(count, len(hashes)):
            start = index * self.unit
            text = ",".join(map(str, tokens[start : start + self.unit]))
            running.update((("," if start else "") + text).encode())
            value = hashes[index]
            if value not in self.known:
                entry = (start + self.unit, running.hexdigest()[:12])
                self.known[value] = entry
                self.announced[self.outside(value)] = entry
        self.seen[name] = (len(hashes), running, hashes[-1])

    def forget(self, names: Any) -> None:
        """Drop what is kept of requests that are gone; their hashes stay."""
        for name in [name for name in self.seen if name not in names]:
            del self.seen[name]

    def of(self, value: Any, tokens: int | None = None) -> tuple[int, str]:
        """The boundary and prefix_id of a hash. One that no request has had gets an id of its own; `tokens` is its boundary."""
        entry = self.known.get(value)
        if entry is None:
            entry = (tokens or 0, hashlib.sha256(b"unknown:" + repr(value).encode()).hexdigest()[:12])
        return entry

    def of_announced(self, value: Any) -> tuple[int, str]:
        """The boundary and prefix_id of a hash as it stands in a cache event."""
        entry = self.announced.get(value)
        return self.of(value) if entry is None else entry


def host_side(connector: Any) -> Any:
    """The offloading side of a connector, possibly one of several: the object that has the host pool; None without one."""
    if connector is None:
        return None
    manager = getattr(connector, "scheduler_manager", None)
    if getattr(manager, "cpu_block_pool", None) is not None:
        return manager
    for child in getattr(connector, "_connectors", None) or ():
        found = host_side(child)
        if found is not None:
            return found
    return None


NEVER = 1 << 31
"""The fence of blocks that are held beside the tables until their request is freed."""


class Reader:
    """Reads the state of one scheduler. ``external_from`` are the starts of the last lookups of the host tier, by request."""

    def __init__(self, scheduler: Any) -> None:
        """Find the parts of a live scheduler. Raises CannotRecord if it is none that the format can describe."""
        self.scheduler = scheduler
        self.manager = scheduler.kv_cache_manager
        self.coordinator = self.manager.coordinator
        self.managers = tuple(self.coordinator.single_type_managers)
        self.pool = self.manager.block_pool
        self.host = host_side(scheduler.connector)
        self.asynchronous = plans_on_placeholders(scheduler)
        self.names = importlib.import_module(type(self.pool.null_block).__module__)
        outside = getattr(self.names, "maybe_convert_block_hash", lambda value: value)
        self.prefixes = Prefixes(self.pool.hash_block_size, outside)
        self.external_from: dict[str, int] = {}

    def learn(self) -> None:
        """Learn the hashes of all requests that the scheduler knows."""
        for name, request in self.scheduler.requests.items():
            self.learn_one(name, request)
        self.prefixes.forget(self.scheduler.requests)

    def learn_one(self, name: str, request: Any) -> None:
        """Learn the hashes of one request."""
        hashes = request.block_hashes
        count, _, last = self.prefixes.seen.get(name, (0, None, None))
        if count != len(hashes) or (hashes and hashes[-1] != last):
            self.prefixes.learn(name, request.all_token_ids, hashes)

    def key(self, packed: Any, tokens: int | None = None) -> tuple[int, int, str]:
        """Group, boundary and prefix_id of a key of a pool."""
        return (self.names.get_group_id(packed), *self.prefixes.of(self.names.get_block_hash(packed), tokens))

    def state(self) -> dict[str, Any]:
        """The whole state as docs/trace-format.md, section 3, writes it. Nothing of it is shared with the engine."""
        self.learn()
        return {
            "device": self.tier(self.pool),
            "host": None if self.host is None else self.tier(self.host.cpu_block_pool),
            "requests": {name: self.request(name, request) for name, request in sorted(self.scheduler.requests.items())},
            "step": self.step(),
            "counters": self.counters(),
            "in_flight": None if self.host is None else sorted(self.host._in_flight_store_gpu_blocks),
            "transfers": None if self.host is None else self.transfers(),
            "queues": self.queues(),
        }

    def tier(self, pool: Any) -> dict[str, Any]:
        """One pool: references, free queue, and the keys by which a lookup finds its blocks.

        Older releases give a host block its key when the store is chosen, and put it into the map when the store has ended.
        """
        keys: list[list[Any]] = []
        found = {
            packed: blocks if isinstance(blocks, dict) else {blocks.block_id: blocks}
            for packed, blocks in pool.cached_block_hash_to_block._cache.items()
        }
        ref: dict[str, int] = {}
        secondary = getattr(pool, "cached_block_hashes_by_block", {})
        for block in pool.blocks:
            number, packed = block.block_id, block.block_hash
            if block.ref_cnt and not block.is_null:
                ref[str(number)] = block.ref_cnt
            if packed is not None and number in found.get(packed, ()):
                keys.append([number, *self.key(packed, getattr(block, "block_hash_num_tokens", None)), "primary"])
            if number in secondary:
                keys += [[number, *row, "secondary"] for row in sorted(map(self.key, secondary[number]))]
        free = [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]
        return {"ref": ref, "free": free, "keys": keys, "shared_keys": self.shared(pool)}

    def shared(self, pool: Any) -> list[list[Any]]:
        """Keys that resolve to several blocks, with the blocks in lookup order."""
        rows = []
        for packed, blocks in pool.cached_block_hash_to_block._cache.items():
            if isinstance(blocks, dict) and len(blocks) > 1:
                rows.append([*self.key(packed), list(blocks)])
        return sorted(rows)

    def request(self, name: str, request: Any) -> dict[str, Any]:
        """One request; that of an asynchronous scheduler has placeholders."""
        row = {
            "status": status_of(request),
            "tokens": request.num_tokens,
            "computed": request.num_computed_tokens,
            "in_flight": request.num_in_flight_tokens,
            "tables": [[block.block_id for block in manager.req_to_blocks.get(name, ())] for manager in self.managers],
            "num_cached": [manager.num_cached_block.get(name) for manager in self.managers],
        }
        if self.asynchronous:
            row["placeholders"] = request.num_output_placeholders
        return row

    def step(self) -> dict[str, Any]:
        """What the running step has queued."""
        copies = [
            [source.block_id, target.block_id] for manager in self.managers for source, target in manager._pending_cow_copies
        ]
        handoffs = [
            [name, group, block.block_id, boundary]
            for manager in self.managers
            for attribute in HANDOFF_LISTS
            for name, group, block, boundary in getattr(manager, attribute, ())
        ]
        frees = [[fence, [block.block_id for block in blocks]] for fence, blocks in self.scheduler.deferred_frees]
        pins = getattr(self.manager, "_partial_tail_pins", {})
        frees += [[NEVER, [block.block_id for block in blocks]] for _, blocks in sorted(pins.items())]
        return {"copies": copies, "handoffs": handoffs, "deferred_frees": frees}

    def counters(self) -> dict[str, int] | None:
        """The outcomes of handoffs; zeros where a release counts none; None without a host tier."""
        if self.host is None:
            return None
        stats = getattr(self.host, "boundary_store_stats", None)
        return {name: getattr(stats, name, 0) for name in COUNTERS}

    def transfers(self) -> dict[str, Any]:
        """Everything between the tiers."""
        host = self.host
        lazy = host._lazy_mode
        cursor = getattr(host, "_cursor", None)
        return {
            "pending_hits": {name: self.pending(name, pending) for name, pending in sorted(host._pending_cpu_hits.items())},
            "loads": {
                name: {"event": load.load_event, "finished": load.finished, **transfer(load.transfer_meta)}
                for name, load in sorted(host._reqs_to_load.items())
            },
            "abandoned_loads": {
                name: {"event": load.load_event, **transfer(load.transfer_meta)}
                for name, load in sorted(host._abandoned_reqs_to_load.items())
            },
            "stores": {str(event): transfer(store) for event, store in sorted(host._store_event_to_blocks.items())},
            "abandoned_stores": {
                str(event): transfer(store) for event, store in sorted(host._abandoned_store_event_to_blocks.items())
            },
            "acks": {str(event): count for event, count in sorted(host._store_event_pending_counts.items())},
            "finish_queue": [transfer(store) for store in getattr(host, "_pending_finished_stores", ())],
            "cursors": {}
            if lazy
            else {name: list(store.num_stored_blocks) for name, store in sorted(host._reqs_to_store.items())},
            "lazy_cursor": None if cursor is None else cursor.block_id,
        }

    def pending(self, name: str, pending: Any) -> dict[str, Any]:
        """A pinned host hit. Older releases do not keep where it starts: that is what the lookup was asked."""
        blocks, length, *start = pending
        return {
            "length": length,
            "start": start[0] if start else self.external_from.get(name, 0),
            "blocks": [[block.block_id for block in group] for group in blocks],
        }

    def queues(self) -> dict[str, list[str]]:
        """The queues of requests. A release that sets skipped requests aside has no queue of its own for those with blocks."""
        scheduler = self.scheduler
        waiting: list[str] = [request.request_id for request in scheduler.waiting]
        if hasattr(scheduler, "kv_holding_waiting"):
            holding = [request.request_id for request in scheduler.kv_holding_waiting]
        else:
            skipped: list[Any] = list(getattr(scheduler, "skipped_waiting", ()))
            holding = [request.request_id for request in skipped if holds(request)]
            waiting = [request.request_id for request in skipped if not holds(request)] + waiting
        return {"running": [request.request_id for request in scheduler.running], "waiting": waiting, "holding": holding}


def holds(request: Any) -> bool:
    """Whether a waiting request has blocks."""
    return bool(request.num_computed_tokens > 0 or request.status.name == LOADING)


def plans_on_placeholders(scheduler: Any) -> bool:
    """Whether a scheduler plans on tokens that are not sampled yet, and drafts whose number alone it knows."""
    return hasattr(scheduler, "_spec_token_placeholders")


def status_of(request: Any) -> str:
    """The status of a request in the words of the format."""
    name = request.status.name
    if name.startswith("FINISHED"):
        return "finished"
    if name == LOADING:
        return "loading"
    return name.lower() if name in ("RUNNING", "PREEMPTED") else "waiting"


def transfer(meta: Any) -> dict[str, list[int]]:
    """The blocks of a transfer, index-parallel."""
    return {"device": list(meta.gpu_block_ids), "host": list(meta.cpu_block_ids)}


def not_shown(scheduler: Any) -> list[str]:
    """State fields that this release does not keep, so that a recording has an empty or a derived value for them."""
    reader = Reader(scheduler)
    missing = []
    if not any(hasattr(manager, name) for manager in reader.managers for name in HANDOFF_LISTS):
        missing.append("step.handoffs")
    if reader.host is not None:
        if not hasattr(reader.host, "boundary_store_stats"):
            missing.append("counters")
        if not hasattr(reader.host, "_pending_finished_stores"):
            missing.append("transfers.finish_queue")
    return missing


# --- header ---------------------------------------------------------------------------------------------------------------


def header(reader: Reader, *, name: str | None, seed: int, version: str | None) -> dict[str, Any]:
    """Line 1 of the recording of a scheduler.

    Args:
        reader: reads the scheduler.
        name: label of the group set; None derives one from the groups.
        seed: what the caller wants to be noted; live engines have none.
        version: of the engine; None asks vLLM.

    Raises:
        CannotRecord: the format cannot describe this configuration.
    """
    scheduler, vllm = reader.scheduler, reader.scheduler.vllm_config
    kinds = [group(reader, index) for index in range(len(reader.managers))]
    ranks = vllm.parallel_config.decode_context_parallel_size
    refuse_unknown(reader)
    config = {
        "name": name or "_".join(LABELS[entry["kind"]] for entry in kinds),
        "groups": kinds,
        "dcp_world_size": ranks,
        "hash_block_size": reader.pool.hash_block_size,
        "scheduler_block_size": math.lcm(*(manager.block_size for manager in reader.managers)),
        "group_block_sizes": [manager.block_size for manager in reader.managers],
        "fine_grained_hits": bool(getattr(reader.coordinator, "enable_partial_hash_hits", False)),
        "retention_interval": getattr(reader.coordinator, "retention_interval", None),
        "num_device_blocks": reader.pool.num_gpu_blocks,
        "host": host(reader),
        "use_eagle": bool(getattr(scheduler, "use_eagle_block_drop", scheduler.use_eagle)),
        "num_draft_tokens": scheduler.num_spec_tokens,
        "lookahead": scheduler.num_lookahead_tokens,
        "clip_block_size": scheduler.cache_config.block_size,
        "max_model_len": scheduler.max_model_len,
        "max_step_tokens": scheduler.max_num_scheduled_tokens,
        "max_running": scheduler.max_num_running_reqs,
        "seed": seed,
        "scheduler": {
            "policy": scheduler.policy.value,
            "runner": "v2" if scheduler.use_v2_model_runner else "v1",
            "long_prefill_token_threshold": scheduler.scheduler_config.long_prefill_token_threshold,
            "reserve_full_sequence": bool(scheduler.scheduler_reserve_full_isl),
            "concurrent_batches": vllm.max_concurrent_batches,
        },
    }
    if reader.asynchronous:
        config["scheduler"]["asynchronous"] = True
    others = connectors(scheduler.connector)
    if others:
        config["connectors"] = others
    engine = {"name": "vllm", "version": version or release(), "level": "scheduler"}
    return {"format": "kv-trace", "version": 1, "engine": engine, "config": config}


LABELS = {"full_attention": "fa", "sliding_window": "swa", "chunked_local": "chunk", "mamba": "mamba"}
KINDS = (  # the first class name that a specification has among its bases; order matters
    ("CrossAttentionSpec", None),
    ("EncoderOnlyAttentionSpec", None),
    ("CircularBufferSpec", None),
    ("HiSparseHotSpec", None),
    ("HiSparseResidentSpec", None),
    ("RSWASpec", None),
    ("SinkFullAttentionSpec", None),
    ("HiddenStateCacheSpec", None),
    ("MambaSpec", "mamba"),
    ("SlidingWindowSpec", "sliding_window"),
    ("ChunkedLocalAttentionSpec", "chunked_local"),
    ("FullAttentionSpec", "full_attention"),
)


def layers(spec: Any) -> Any:
    """The specification of a group's layers: of any one of them where the group has layers of one type and different sizes."""
    inner = getattr(spec, "kv_cache_specs", None)
    return next(iter(inner.values())) if inner else spec


def group(reader: Reader, index: int) -> dict[str, Any]:
    """One group of the header. Raises CannotRecord for a kind that the format does not know."""
    manager, entry = reader.managers[index], reader.manager.kv_cache_config.kv_cache_groups[index]
    spec = layers(entry.kv_cache_spec)
    bases = {base.__name__ for base in type(spec).__mro__}
    kind = next((kind for name, kind in KINDS if name in bases), None)
    if kind is None:
        raise CannotRecord(f"group {index} has layers of kind {type(spec).__name__}, which the format does not know")
    found: dict[str, Any] = {"kind": kind, "block_size": spec.block_size, "dcp_sharded": sharded(reader, manager, spec, kind)}
    if kind == "sliding_window":
        found["window"] = spec.sliding_window
    elif kind == "chunked_local":
        found["window"] = spec.attention_chunk_size
    elif kind == "mamba":
        found["mamba_cache_mode"] = spec.mamba_cache_mode
        found["num_speculative_blocks"] = spec.num_speculative_blocks
    if getattr(entry, "is_eagle_group", False):
        found["is_eagle_group"] = True
    return found


def sharded(reader: Reader, manager: Any, spec: Any, kind: str) -> bool:
    """Whether a group's positions are spread over the ranks of decode context parallelism."""
    said = getattr(spec, "dcp_sharded", None)
    if said is not None:
        return bool(said)
    if reader.scheduler.vllm_config.parallel_config.decode_context_parallel_size > 1:
        return bool(manager.block_size != spec.block_size)
    return kind in ("full_attention", "chunked_local")


def host(reader: Reader) -> dict[str, Any] | None:
    """The host tier of the header."""
    side = reader.host
    if side is None:
        return None
    return {
        "mode": "lazy" if side._lazy_mode else "eager",
        "num_blocks": side.cpu_block_pool.num_gpu_blocks,
        "events": bool(side.cpu_block_pool.enable_kv_cache_events),
        "workers": side._expected_worker_count,
        "fine_grained_hits": bool(getattr(side.cpu_coordinator, "enable_partial_hash_hits", False)),
    }


def connectors(connector: Any) -> list[dict[str, Any]]:
    """Connectors besides the host tier: whether each can use a divergent local hit, and how many tokens it claims."""
    if connector is None or getattr(connector, "scheduler_manager", None) is not None:
        return []
    several = getattr(connector, "_connectors", None)
    if several:
        return [entry for child in several for entry in connectors(child)]
    divergent = bool(getattr(connector, "supports_divergent_local_hybrid_hits", False))
    tokens = getattr(connector, "tokens", 0)
    return [{"divergent": divergent, "tokens": tokens if type(tokens) is int else 0}]


def refuse_unknown(reader: Reader) -> None:
    """Refuse configurations whose behaviour the format cannot describe. Raises CannotRecord."""
    scheduler = reader.scheduler
    for what, present in (
        ("an encoder-decoder model", getattr(scheduler, "is_encoder_decoder", False)),
        ("prefix caching switched off", not reader.manager.enable_caching),
        ("hashes that cover tokens behind their block", getattr(scheduler, "num_hash_lookahead_tokens", 0)),
        ("a replayed window after a prefix hit", getattr(scheduler, "prefix_replay_tokens", 0)),
        ("a drafter that reads several tokens ahead", (getattr(scheduler, "num_prefill_lookahead", 0) or 0) > 1),
        ("loads that wait for steps in flight", getattr(scheduler, "defer_async_loads", False)),
        ("several pools of blocks", any(manager.block_pool is not reader.pool for manager in reader.managers)),
    ):
        if present:
            raise CannotRecord(f"this scheduler has {what}, which the format does not know")
    for manager in reader.managers:
        if manager.block_size % reader.pool.hash_block_size:
            raise CannotRecord(
                f"hash blocks of {reader.pool.hash_block_size} tokens do not divide a block of {manager.block_size} tokens"
            )


def release() -> str:
    """The version that vLLM gives of itself."""
    try:
        version = importlib.import_module("vllm").__version__
    except Exception:
        return "unknown"
    return str(version)


# --- events ---------------------------------------------------------------------------------------------------------------


def events(reader: Reader, taken: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Cache events of the engine as the format writes them."""
    for event in taken:
        kind = type(event).__name__
        if kind == "AllBlocksCleared":
            yield {"kind": "cleared", "tier": ""}
            continue
        tier = "device" if event.medium in (None, "GPU") else "host"
        keys = [list(reader.prefixes.of_announced(value)) for value in event.block_hashes or ()]
        found = {"kind": "removed", "tier": tier, "group": event.group_idx or 0, "keys": keys}
        if kind == "BlockStored":
            parent = event.parent_block_hash
            tokens = list(event.token_ids)
            found.update(
                kind="stored",
                parent=None if parent is None else list(reader.prefixes.of_announced(parent)),
                block_size=event.block_size,
                num_tokens=len(tokens),
                tokens_id=digest(tokens) if tokens else None,
            )
        yield found
