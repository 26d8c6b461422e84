"""The header configuration of a recording (docs/trace-format.md, section 2) as the objects that a scheduler is built from.

The configuration objects are attribute bags with what the header says; whatever else a release reads is answered by the
defaults and the properties of its own configuration classes. Nothing depends on a version number: constructors are looked at.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import os
from typing import Any

Header = dict[str, Any]

PAGE = 4096
"""Bytes of one block of all groups together; only the ratio of device to host matters."""


class Unsupported(Exception):
    """A release does not have what a configuration asks for. The message says what."""


def module(name: str) -> Any:
    """Return a module of the release."""
    return importlib.import_module(f"vllm.{name}")


def accepted(target: Any, **values: Any) -> dict[str, Any]:
    """Return those of the keyword values that a class or function of the release takes."""
    parameters = inspect.signature(target).parameters
    return {name: value for name, value in values.items() if name in parameters}


class Part:
    """Attribute bag in the place of a configuration object of the release; what is not set is asked of the release's class.

    A property is computed on the bag, a method is bound to it, a field gives its default.
    """

    def __init__(self, kind: type | None, **values: Any) -> None:
        self.__dict__.update(values)
        self.__dict__["_kind"] = kind

    def __getattr__(self, name: str) -> Any:
        kind = self.__dict__.get("_kind")
        if kind is None or name.startswith("__"):
            raise AttributeError(name)
        found = inspect.getattr_static(kind, name, None)
        if isinstance(found, property) and found.fget is not None:
            return found.fget(self)
        if isinstance(found, functools.cached_property):
            return found.func(self)
        if inspect.isfunction(found):
            return functools.partial(found, self)
        if isinstance(found, staticmethod | classmethod):
            return getattr(kind, name)
        return default_of(kind, name)


def default_of(kind: type, name: str) -> Any:
    """Return the default of a field of a configuration class. Raises AttributeError for an unknown or a required field."""
    for one in dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ():
        if one.name != name:
            continue
        # a pydantic dataclass keeps its own field object where a plain one has the default
        for source in (one.default, one):
            factory = getattr(source, "default_factory", dataclasses.MISSING)
            if callable(factory):
                return factory()
        value = getattr(one.default, "default", one.default)
        if value is not dataclasses.MISSING and not repr(value).startswith("PydanticUndefined"):
            return value
    raise AttributeError(f"{kind.__name__} has no default for {name!r}")


def config_class(name: str) -> type | None:
    """Return a configuration class of the release, None if it has none of that name."""
    found = getattr(module("config"), name, None)
    return found if isinstance(found, type) else None


def group_spec(group: Header, config: Header) -> Any:
    """Return the release's specification of one group's layers."""
    interface = module("v1.kv_cache_interface")
    dtype = importlib.import_module("torch").float32
    kinds = {
        "full_attention": ("FullAttentionSpec", {}),
        "sliding_window": ("SlidingWindowSpec", {"sliding_window": group.get("window")}),
        "chunked_local": ("ChunkedLocalAttentionSpec", {"attention_chunk_size": group.get("window")}),
        "mamba": ("MambaSpec", {}),
    }
    if group["kind"] not in kinds:
        raise Unsupported(f"group kind {group['kind']!r}")
    name, extra = kinds[group["kind"]]
    kind = getattr(interface, name)
    values: dict[str, Any] = {"block_size": group["block_size"], "dcp_sharded": group["dcp_sharded"], **extra}
    if group["kind"] == "mamba":
        values |= {"shapes": ((1, 4),), "dtypes": (dtype,), "mamba_cache_mode": group.get("mamba_cache_mode") or "align"}
        values |= {"num_speculative_blocks": group.get("num_speculative_blocks") or 0}
    else:
        values |= {"num_kv_heads": 1, "head_size": 8, "dtype": dtype}
    return kind(**accepted(kind, **values))


def kv_cache_config(config: Header) -> Any:
    """Return the release's layout of the device pool: one backing allocation that all groups share."""
    interface = module("v1.kv_cache_interface")
    groups, names = [], []
    for g, group in enumerate(config["groups"]):
        spec = group_spec(group, config)
        eagle = bool(group.get("is_eagle_group", False))
        values = accepted(interface.KVCacheGroupSpec, is_eagle_group=eagle)
        if eagle and not values:
            raise Unsupported("groups of a drafter")
        groups.append(interface.KVCacheGroupSpec(layer_names=[f"layer{g}"], kv_cache_spec=spec, **values))
        names.append(f"layer{g}")
    blocks = config["num_device_blocks"]
    layout = {"size": blocks * PAGE, "layers": names, "shared_by": names, "layer_stride": PAGE, "block_stride": PAGE}
    tensor = interface.KVCacheTensor(**accepted(interface.KVCacheTensor, **layout))
    values = {"num_blocks": blocks, "kv_cache_tensors": [tensor], "kv_cache_groups": groups}
    values |= {"prefix_cache_retention_interval": config["retention_interval"]}
    return interface.KVCacheConfig(**accepted(interface.KVCacheConfig, **values))


def set_environment(config: Header) -> None:
    """Set what a release reads from the environment instead of from its configuration."""
    name = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL"
    os.environ.pop(name, None)
    sparse = any(group["kind"] in ("sliding_window", "mamba") for group in config["groups"])
    # where every boundary is kept anyway, a release refuses the setting instead of ignoring it
    if config["retention_interval"] is not None and (sparse or config["retention_interval"]):
        if accepted(module("v1.kv_cache_interface").KVCacheConfig, prefix_cache_retention_interval=None):
            return
        if name not in module("envs").environment_variables:
            raise Unsupported("a retention interval")
        os.environ[name] = str(config["retention_interval"])


def speculative(config: Header) -> Part | None:
    """Return the drafter's configuration, None without one."""
    drafts = config["num_draft_tokens"]
    if not drafts and not config["use_eagle"]:
        return None
    eagle = config["use_eagle"]
    return Part(
        config_class("SpeculativeConfig"),
        num_speculative_tokens=drafts,
        method="eagle" if eagle else "ngram",
        num_speculative_tokens_per_batch_size=None,
        disable_eagle_block_drop=False,
        # the header's drafter drops one unit; hashes that look ahead would make that needless
        disable_lookahead_block_hashes=True,
        max_num_new_slots_for_drafting=0,
        use_eagle=lambda: eagle,
        use_eagle_block_drop=lambda: eagle,
        needs_eagle_block_drop=lambda: eagle,
        uses_draft_model=lambda: not eagle and config["lookahead"] > 0,
        use_multi_module_mtp=lambda: False,
        use_dflash=lambda: False,
        use_dspark=lambda: False,
    )


def transfer(config: Header) -> Any:
    """Return the configuration of the connector, None without one."""
    kind = module("config").KVTransferConfig
    connectors = config.get("connectors")
    if connectors and config["host"] is not None:
        raise Unsupported("test connectors beside a host tier")
    if connectors:
        # the classes are found by the name of this folder's module
        children = [
            {
                "kv_connector": "TestConnector",
                "kv_connector_module_path": "connectors",
                "kv_role": "kv_both",
                "kv_connector_extra_config": {**one, "unit": config.get("scheduler_block_size")},
            }
            for one in connectors
        ]
        if len(children) == 1:
            return kind(**children[0])
        extra = {"connectors": children}
        return kind(kv_connector="MultiConnector", kv_role="kv_both", kv_connector_extra_config=extra)
    host = config["host"]
    if host is None:
        return None
    size = host["num_blocks"] * PAGE
    extra_config = {
        "cpu_bytes_to_use": size * host["workers"],
        "cpu_bytes_to_use_per_rank": size,
        "lazy_offload": host["mode"] == "lazy",
    }
    return kind(kv_connector="SimpleCPUOffloadConnector", kv_role="kv_both", kv_connector_extra_config=extra_config)


def events(config: Header) -> Any:
    """Return the configuration of cache events: published to nobody, if on."""
    if config["host"] is None or not config["host"]["events"]:
        return None
    return module("config").KVEventsConfig(enable_kv_cache_events=True, publisher="null")


def _cache(config: Header) -> Part:
    mamba = any(group["kind"] == "mamba" for group in config["groups"])
    return Part(
        config_class("CacheConfig"),
        block_size=config["clip_block_size"],
        num_gpu_blocks=config["num_device_blocks"],
        num_gpu_blocks_override=None,
        enable_prefix_caching=True,
        prefix_match_unit=config["hash_block_size"],
        mamba_cache_mode="align" if mamba else "none",
        mamba_block_size=None,
        prefix_cache_retention_interval=config["retention_interval"],
    )


def _scheduler(config: Header) -> Part:
    wanted = config["scheduler"]
    return Part(
        config_class("SchedulerConfig"),
        policy=wanted["policy"],
        max_num_seqs=config["max_running"],
        max_num_active_seqs=None,
        max_num_batched_tokens=config["max_step_tokens"],
        max_num_scheduled_tokens=None,
        max_model_len=config["max_model_len"],
        enable_chunked_prefill=True,
        long_prefill_token_threshold=wanted["long_prefill_token_threshold"],
        scheduler_reserve_full_isl=wanted["reserve_full_sequence"],
        async_scheduling=wanted["concurrent_batches"] > 1,
        disable_hybrid_kv_cache_manager=False,
        watermark=0.0,
    )


def vllm_config(config: Header) -> Part:
    """Return the object in the place of the release's whole configuration."""
    wanted = config["scheduler"]
    workers = config["host"]["workers"] if config["host"] else 1
    return Part(
        config_class("VllmConfig"),
        model_config=Part(
            config_class("ModelConfig"),
            max_model_len=config["max_model_len"],
            original_max_model_len=config["max_model_len"],
            is_encoder_decoder=False,
            is_diffusion=False,
            is_multimodal_model=False,
            supports_multimodal_inputs=False,
            multimodal_config=None,
            uses_mrope=False,
            uses_xdrope=False,
            runner_type="generate",
            return_sampling_mask=False,
            enable_return_routed_experts=False,
            skip_tokenizer_init=True,
            use_mla=False,
        ),
        cache_config=_cache(config),
        scheduler_config=_scheduler(config),
        parallel_config=Part(
            config_class("ParallelConfig"),
            world_size=workers,
            tensor_parallel_size=workers,
            decode_context_parallel_size=config["dcp_world_size"],
            prefill_context_parallel_size=1,
            pipeline_parallel_size=1,
            data_parallel_size=1,
            data_parallel_index=0,
            data_parallel_rank=0,
        ),
        observability_config=Part(config_class("ObservabilityConfig")),
        speculative_config=speculative(config),
        kv_transfer_config=transfer(config),
        kv_events_config=events(config),
        lora_config=None,
        ec_transfer_config=None,
        diffusion_config=None,
        use_v2_model_runner=wanted["runner"] == "v2",
        max_concurrent_batches=wanted["concurrent_batches"],
        num_speculative_tokens=config["num_draft_tokens"],
        num_lookahead_tokens=config["lookahead"],
        num_hash_lookahead_tokens=0,
    )


def check_rules(whole: Part) -> None:
    """Let the release check block sizes against step sizes and ranks as it does when it starts. Raises Unsupported."""
    check = getattr(whole, "validate_block_size", None)
    if check is None:
        return
    try:
        check()
    except (AssertionError, ValueError) as error:
        raise Unsupported(f"these block sizes; it says: {str(error) or 'a long-prefill limit below the block size'}") from error


def check_sizes(config: Header, layout: Any, whole: Part) -> None:
    """Compare the sizes that the release derives with the header's. Raises Unsupported where they differ.

    The caller gives the scheduler the header's S and H, as the release's engine would its own.
    """
    utils = module("v1.core.kv_cache_utils")
    derived = utils.resolve_kv_cache_block_sizes(layout, whole)
    wanted = (config["scheduler_block_size"], config["hash_block_size"])
    if tuple(derived) != wanted:
        raise Unsupported(f"scheduler and hash block size {wanted} (it derives {tuple(derived)})")
