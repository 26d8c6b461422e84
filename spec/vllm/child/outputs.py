"""What a step tells the workers, as the result of a `step` has it (docs/trace-format.md, section 5)."""

from __future__ import annotations

from typing import Any

import dump
from calls import lists


def step_result(reader: dump.Reader, output: Any, handoffs: dict[str, Any]) -> dict[str, Any]:
    """What a step tells the worker."""
    cached = output.scheduled_cached_reqs
    again = set(cached.resumed_req_ids)
    new = output.scheduled_new_reqs
    # one runner gets resumed requests as new ones
    resumed = again | {entry.req_id for entry in new if reader.scheduler.requests[entry.req_id].num_preemptions > 0}
    store, load, flush = transfers(reader, output.kv_connector_metadata)
    return {
        "scheduled": dict(output.num_scheduled_tokens),
        "drafts": {name: len(drafts) for name, drafts in output.scheduled_spec_decode_tokens.items()},
        "new": [
            {"request": entry.req_id, "computed": entry.num_computed_tokens, "tables": lists(entry.block_ids)} for entry in new
        ],
        "cached": [
            {
                "request": name,
                "computed": cached.num_computed_tokens[place],
                "new_blocks": None if cached.new_block_ids[place] is None else lists(cached.new_block_ids[place]),
                "resumed": name in again,
            }
            for place, name in enumerate(cached.req_ids)
        ],
        "resumed": sorted(resumed),
        "preempted": sorted(output.preempted_req_ids or ()),
        "finished": sorted(output.finished_req_ids),
        "copies": [[copy.src_block_id, copy.dst_block_id] for copy in output.kv_cache_block_copies or ()],
        "handoffs": handoffs,
        "zeroed": list(output.new_block_ids_to_zero) if output.new_block_ids_to_zero else None,
        "store": store,
        "load": load,
        "flush": flush,
    }


def transfers(reader: dump.Reader, meta: Any) -> tuple[dict[str, Any] | None, dict[str, Any] | None, bool]:
    """The store and the load that a step gives to the workers, and whether running transfers must finish first."""
    if not hasattr(meta, "store_event"):  # several connectors: look for the host tier's part
        meta = next((part for part in getattr(meta, "metadata", None) or () if hasattr(part, "store_event")), None)
    if meta is None or reader.host is None:
        return None, None, False
    store = load = None
    if meta.store_event >= 0:
        kept = getattr(reader.host._store_event_to_blocks.get(meta.store_event), "block_meta", None)
        store = {
            "event": meta.store_event,
            "device": list(meta.store_gpu_blocks),
            "host": list(meta.store_cpu_blocks),
            "meta": None if kept is None else [len(entry) for entry in kept],
        }
    if meta.load_event >= 0:
        load = {
            "event": meta.load_event,
            "device": list(meta.load_gpu_blocks),
            "host": list(meta.load_cpu_blocks),
            "requests": list(meta.load_event_to_reqs[meta.load_event]),
        }
    return store, load, bool(meta.need_flush)
