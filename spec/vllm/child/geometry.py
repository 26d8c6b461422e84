"""The sizes that a release derives from a configuration: each is asked of the release's own code where it lives."""

from __future__ import annotations

import functools
import importlib
import inspect
import types
from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import rows
from configuration import Header, Unsupported, accepted, kv_cache_config, module, set_environment, vllm_config

CHUNK_SIZES = (1, 2, 3)
"""Blocks per chunk with which the native connector is asked."""

KEYS = 4
"""Chunks whose keys are asked for."""

MOST_TOKENS = 200
"""Tokens up to which storable chunks are counted."""


def answer(config: Header) -> dict[str, Any]:
    """Return the parts of a configuration's geometry: those that ``parts`` names, all without it.

    A part that the release refuses says so in ``refused``, one that it has not at all in ``lacks``.
    """
    set_environment(config)
    parts: dict[str, Callable[[Header], dict[str, Any]]] = {
        "sizes": sizes,
        "rows": widths,
        "slots": slots,
        "lengths": lengths,
        "lazy": lazy_spans,
        "divergent": divergent,
        **{f"native{blocks}": functools.partial(native, blocks_per_chunk=blocks) for blocks in CHUNK_SIZES},
        **{f"handoffs{blocks}": functools.partial(handoffs, blocks_per_chunk=blocks) for blocks in CHUNK_SIZES},
    }
    return {name: _part(part, config) for name, part in parts.items() if name in config.get("parts", parts)}


def _part(part: Callable[[Header], dict[str, Any]], config: Header) -> dict[str, Any]:
    try:
        return part(config)
    except Unsupported as error:
        return {"lacks": str(error)}
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}"}


def _objects(config: Header) -> tuple[Any, Any]:
    """Return the release's cache layout and configuration. Raises Unsupported for what it cannot express."""
    alone = config["host"] is None
    layout, whole = kv_cache_config(config), vllm_config(config if alone else {**config, "connectors": None})
    cache = whole.cache_config
    cache.enable_prefix_caching = config.get("caching", True)
    if len(config["groups"]) == 1:
        # with one group the engine's block size is that of its blocks
        cache.block_size = config["groups"][0]["block_size"]
    attention = module("v1.kv_cache_interface").AttentionSpec
    for group, wanted in zip(layout.kv_cache_groups, config["groups"], strict=True):
        spec = group.kv_cache_spec
        sharded = getattr(spec, "dcp_sharded", isinstance(spec, attention))
        if config["dcp_world_size"] > 1 and bool(sharded) != wanted["dcp_sharded"]:
            raise Unsupported(f"a {wanted['kind']} group with dcp_sharded {wanted['dcp_sharded']}")
    return layout, whole


# --- manager ------------------------------------------------------------------------------------------------------


def sizes(config: Header) -> dict[str, Any]:
    """Return S, H, E per group, the gate of hits inside blocks and the alignment of hits, as the cache manager has them."""
    layout, whole = _objects(config)
    scheduler, unit = module("v1.core.kv_cache_utils").resolve_kv_cache_block_sizes(layout, whole)
    build = module("v1.core.kv_cache_coordinator").get_kv_cache_coordinator
    ranks = config["dcp_world_size"]
    values = {
        "kv_cache_config": layout,
        "max_model_len": config["max_model_len"],
        "max_in_flight_tokens": config["max_step_tokens"],
        "use_eagle": config["use_eagle"],
        "enable_caching": config.get("caching", True),
        "enable_kv_cache_events": False,
        "dcp_world_size": ranks,
        "pcp_world_size": 1,
        "scheduler_block_size": scheduler,
        "hash_block_size": unit,
    }
    coordinator = build(**accepted(build, **values))
    # a coordinator of one group, or of none that is cached, has neither
    fine = bool(getattr(coordinator, "enable_partial_hash_hits", False))
    alignment = getattr(coordinator, "_cache_hit_alignment_tokens", scheduler)
    return {
        "scheduler_block_size": scheduler,
        "hash_block_size": unit,
        "group_block_sizes": [manager.block_size for manager in coordinator.single_type_managers],
        "fine_grained_hits": fine,
        "alignment": alignment,
    }


# --- worker -------------------------------------------------------------------------------------------------------


def widths(config: Header) -> dict[str, Any]:
    """Return the entries of a worker's row per group."""
    _objects(config)
    return {"capacity": rows.Tables(config).capacity}


def slots(config: Header) -> dict[str, Any]:
    """Return per rank and group the slots of the first positions; the row's entries are 1, 2, 3, ... in every group."""
    _objects(config)
    found = []
    for rank in range(config["dcp_world_size"]):
        tables = rows.Tables(config, rank)
        tables.append(0, [list(range(1, capacity + 1)) for capacity in tables.capacity], True)
        found.append(tables.slots(0, min(config["max_model_len"], rows.SLOTS)))
    return {"ranks": found}


def lengths(config: Header) -> dict[str, Any]:
    """Return per number of tokens how many of them each rank of a sharded group holds."""
    torch = importlib.import_module("torch")
    count = module("v1.attention.backends.utils").get_dcp_local_seq_lens
    tokens = torch.arange(rows.SLOTS + 1)
    ranks, run = config["dcp_world_size"], config.get("interleave", 1)
    return {"tokens": count(tokens, ranks, None, run).reshape(len(tokens), ranks).tolist()}


# --- host tier ----------------------------------------------------------------------------------------------------


def lazy_spans(config: Header) -> dict[str, Any]:
    """Return per group how many tokens the lazy host tier counts for one block, None where it counts no tokens.

    Its estimate for a step of n tokens is asked for growing n: it rises when n passes the block.
    """
    kind = module("v1.simple_kv_offload.manager").SimpleCPUOffloadScheduler
    estimate = kind._estimate_lazy_target_blocks
    ranks, found = config["dcp_world_size"], []
    for g in range(len(config["groups"])):
        layout, _ = _objects({**config, "groups": [config["groups"][g]]})
        size = config["groups"][g]["block_size"]
        least = estimate(layout, 1, ranks)
        longer = (n for n in range(1, 2 * size * ranks + 2) if estimate(layout, n, ranks) > least)
        first = next(longer, None)
        found.append(None if first is None else first - 1)
    return {"spans": found}


# --- connectors ---------------------------------------------------------------------------------------------------


def divergent(config: Header) -> dict[str, Any]:
    """Return whether the release takes the configuration's connectors together for such that can use a divergent hit."""
    base = module("distributed.kv_transfer.kv_connector.v1.base").KVConnectorBase_V1
    name = "supports_divergent_local_hybrid_hits"
    if not hasattr(base, name):
        raise Unsupported("a capability of connectors for divergent hits")
    able = type("Able", (base,), {name: property(lambda self: True)})
    children = [_empty(able if one["divergent"] else base) for one in config.get("connectors") or ()]
    if config["host"] is not None:
        host = module("distributed.kv_transfer.kv_connector.v1.simple_cpu_offload_connector").SimpleCPUOffloadConnector
        children.append(_empty(host))
    if not children:
        return {"together": False}
    if len(children) == 1:
        return {"together": bool(getattr(children[0], name))}
    kind = module("distributed.kv_transfer.kv_connector.v1.multi_connector").MultiConnector
    multi = _empty(kind)
    multi._connectors = children
    return {"together": bool(getattr(multi, name))}


def _empty(kind: type) -> Any:
    """Return an object of a class of the release, its methods that are left to others filled in, not initialized."""
    missing: dict[str, Any] = dict.fromkeys(getattr(kind, "__abstractmethods__", ()), _nothing)
    return object.__new__(type(kind.__name__, (kind,), missing))


def _nothing(self: Any, *args: Any, **kwargs: Any) -> None:
    return


def native(config: Header, blocks_per_chunk: int) -> dict[str, Any]:
    """Return the native connector's geometry with chunks of some blocks, and the keys and counts that follow from it.

    Keys are (index of the prefix hash, group) of a request's first chunks; counts are the storable chunks of its first
    0, 1, 2, ... tokens.
    """
    offloading = module("distributed.kv_transfer.kv_connector.v1.offloading.scheduler")
    resolved = _resolved(config, blocks_per_chunk)
    state = _request_state(offloading, resolved, config)
    state.update_offload_keys()
    groups = []
    for chunked, group in zip(resolved.kv_group_configs, state.group_states, strict=True):
        group.block_ids.extend(range(1, 4 * MOST_TOKENS))
        counted = [chunked, group] if len(inspect.signature(state.storable_chunks).parameters) == 3 else [chunked]
        groups.append(
            {
                "group": chunked.group_idx,
                "tokens_per_block": chunked.tokens_per_block,
                "tokens_per_chunk": chunked.tokens_per_chunk,
                "hashes_per_chunk": chunked.hashes_per_chunk,
                "window": chunked.sliding_window_size_in_chunks,
                "keys": [_key(key) for key in group.offload_keys[:KEYS]],
                "counts": [state.storable_chunks(*counted, tokens) for tokens in range(MOST_TOKENS + 1)],
            }
        )
    found = {
        "groups": groups,
        "blocks_per_chunk": resolved.blocks_per_chunk,
        "partial_tails": bool(getattr(resolved, "supports_partial_tail", False)),
    }
    # some releases do not keep the tokens of alignment
    return {**found, "alignment": resolved.alignment_tokens} if hasattr(resolved, "alignment_tokens") else found


def handoffs(config: Header, blocks_per_chunk: int) -> dict[str, Any]:
    """Return per offloaded group which handed over states are stored: the boundaries, of those up to three chunks.

    ``limit`` are the offloadable tokens, two chunks and a half; a handoff without a block, block 0, is asked for as well.
    """
    offloading = module("distributed.kv_transfer.kv_connector.v1.offloading.scheduler")
    kind, name = offloading.OffloadingConnectorScheduler, "_build_aligned_boundary_store_jobs"
    if not hasattr(kind, name):
        raise Unsupported("states handed over at boundaries")
    resolved = _resolved(config, blocks_per_chunk)
    found = []
    for chunked in resolved.kv_group_configs:
        span, unit = chunked.tokens_per_chunk, chunked.tokens_per_chunk // chunked.hashes_per_chunk
        limit = 2 * span + span // 2
        state = _request_state(offloading, resolved, config)
        state.req.num_tokens = limit
        state.req.block_hashes = [number.to_bytes(4, "big") for number in range(3 * chunked.hashes_per_chunk + 1)]
        stored: dict[str, list[int]] = {"0": [], "1": []}
        for block in (0, 1):
            for boundary in range(unit, 3 * span + 1, unit):
                scheduler = _scheduler_side(kind, resolved, state)
                if getattr(kind, name)(scheduler, {"r0": [(chunked.group_idx, block, boundary)]}):
                    stored[str(block)].append(boundary)
        found.append({"group": chunked.group_idx, "limit": limit, "stored": stored})
    return {"groups": found}


def _scheduler_side(kind: Any, resolved: Any, state: Any) -> Any:
    """Return as much of the connector's scheduler side as storing a handoff needs; its store takes every key."""
    scheduler = MagicMock(config=resolved, _req_status={"r0": state}, _jobs={}, _block_id_to_pending_jobs={})
    for name in ("_calc_num_offloadable_tokens", "_make_boundary_key"):
        method = inspect.getattr_static(kind, name)
        bound = method.__func__ if isinstance(method, staticmethod) else types.MethodType(method, scheduler)
        setattr(scheduler, name, bound)
    scheduler.manager.prepare_store = lambda keys, *rest: types.SimpleNamespace(keys_to_store=list(keys), store_spec=None)
    return scheduler


def _resolved(config: Header, blocks_per_chunk: int) -> Any:
    """Return what the connector's scheduler side resolves from the configuration."""
    layout, whole = _objects(config)
    offloading = module("distributed.kv_transfer.kv_connector.v1.offloading.scheduler")
    build = module("distributed.kv_transfer.kv_connector.v1.offloading.config").build_offloading_config
    transfer = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both"}
    whole.kv_transfer_config = module("config").KVTransferConfig(
        **transfer, engine_id="engine", kv_connector_extra_config={"blocks_per_chunk": blocks_per_chunk}
    )
    whole.model_config.model, whole.model_config.dtype = "model", "float32"
    base = module("v1.kv_offload.base").OffloadingSpec
    spec = _empty(base)
    base.__init__(spec, build(whole, layout))
    return offloading.SchedulerOffloadConfig.from_spec(spec, whole, layout)


def _request_state(offloading: Any, resolved: Any, config: Header) -> Any:
    """Return the connector's state of one request whose prefix hashes are numbered."""
    longest = max(chunked.hashes_per_chunk for chunked in resolved.kv_group_configs)
    request = types.SimpleNamespace(
        request_id="r0",
        kv_transfer_params=None,
        block_hashes=[number.to_bytes(4, "big") for number in range(KEYS * longest)],
        num_tokens=config["max_model_len"],
        num_prompt_tokens=10**9,
        is_finished=lambda: False,
    )
    contexts = module("v1.kv_offload.base")
    context = contexts.ReqContext(**accepted(contexts.ReqContext, req_id="r0", kv_transfer_params=None))
    return offloading.RequestOffloadState(resolved, request, context, types.SimpleNamespace())


def _key(key: Any) -> list[int]:
    """Return (index of the prefix hash, group) of a key."""
    base = module("v1.kv_offload.base")
    return [int.from_bytes(base.get_offload_block_hash(key), "big"), base.get_offload_group_idx(key)]
