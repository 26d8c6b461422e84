"""A configuration of the model as the header that the process of a release reads (docs/trace-format.md, section 2).

Besides the header's own fields it has ``caching``, ``interleave`` and ``append_expansion``, which only geometry and rows read.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kvproof.core.config import Config, Group
from kvproof.spec import ground
from kvproof.spec.traces import format as trace_format

KINDS = {
    "full_attention": "full_attention",
    "sliding_window": "sliding_window",
    "chunked_local": "chunked_local",
    "mamba_align": "mamba",
}


class Inexpressible(Exception):
    """A release has nothing like this configuration; the message says what."""


def group(spec: Group, eagle: bool) -> dict[str, Any]:
    """Return one group of the header. Raises Inexpressible."""
    if spec.kind not in KINDS:
        raise Inexpressible(f"a group of kind {spec.kind}")
    found: dict[str, Any] = {
        "kind": KINDS[spec.kind],
        "block_size": spec.block_size,
        "dcp_sharded": bool(spec.sharded),
        "is_eagle_group": spec.draft and eagle,
    }
    if spec.window is not None:
        found["window"] = spec.window
    if ground.keeps_snapshots(spec):
        found |= {"mamba_cache_mode": "align", "num_speculative_blocks": spec.speculative_blocks}
    return found


def header(config: Config, unit: int | None) -> dict[str, Any]:
    """Return the header of a configuration with ``unit`` as the requested prefix match unit. Raises Inexpressible."""
    host = config.offload
    return {
        "groups": [group(spec, config.use_eagle) for spec in config.groups],
        "dcp_world_size": config.dcp_size,
        "interleave": config.interleave,
        "hash_block_size": unit,
        "scheduler_block_size": config.scheduler_block_size,
        "retention_interval": config.retention,
        "num_device_blocks": config.num_blocks,
        "host": None if host is None else {"mode": host.mode, "num_blocks": host.num_blocks, "events": False, "workers": 1},
        "connectors": [{"divergent": able, "tokens": 0} for able in config.connectors],
        "use_eagle": config.use_eagle,
        "num_draft_tokens": config.num_draft_tokens,
        "lookahead": config.num_draft_tokens,
        "clip_block_size": config.clip_block_size,
        "max_model_len": config.max_model_len,
        "max_step_tokens": config.max_chunk,
        "max_running": config.max_running,
        "caching": config.caching,
        "append_expansion": config.append_expansion,
        "scheduler": {
            "policy": "fcfs",
            "runner": "v2",
            "long_prefill_token_threshold": config.long_prefill or 0,
            "reserve_full_sequence": False,
            "concurrent_batches": config.max_steps_in_flight,
        },
    }


ONLY_HERE = ("caching", "interleave", "append_expansion")


def recorded(config: Config) -> trace_format.Config:
    """Return a configuration as the header of a recording says it, with the sizes that it has. Raises Inexpressible."""
    fields = header(config, config.hash_block_size)
    host = fields["host"]
    fields |= {
        "name": "asked",
        "seed": 0,
        "group_block_sizes": list(config.sizes),
        "fine_grained_hits": config.fine_grained,
        "host": host and {**host, "fine_grained_hits": config.fine_grained and host["mode"] == "eager"},
    }
    return msgspec.convert({name: value for name, value in fields.items() if name not in ONLY_HERE}, trace_format.Config)
