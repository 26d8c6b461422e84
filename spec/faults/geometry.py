"""Faults in sizes, widths, gates, ownership and local lengths (semantics section 2)."""

from __future__ import annotations

from typing import Any

from kvproof.core import config as configs
from kvproof.core import geometry, lookup, reachability
from kvproof.core.config import Config, Group
from kvproof.core.kinds import recurrent
from kvproof.spec.faults.base import Fault

_fine_grained_gate = geometry.fine_grained_gate
_gate = configs.gate


def _width_scaled_for_every_group(spec: Group, dcp_size: int, max_model_len: int) -> int:
    return geometry.ceil_div(max_model_len, spec.block_size * dcp_size)


def _size_scaled_for_every_group(block_size: int, sharded: bool, dcp_size: int) -> int:
    del sharded
    return block_size * dcp_size


def _gate_on_one_rank_only(**conditions: Any) -> bool:
    return conditions["dcp_size"] == 1 and _fine_grained_gate(**conditions)


def _gate_accepts_equal_sizes(dcp_size: int, block_size: int, hash_block_size: int) -> bool:
    del dcp_size
    return block_size >= hash_block_size


def _gate_ignores_coarse_groups(*, other_coarse_sizes: tuple[int, ...], **conditions: Any) -> bool:
    del other_coarse_sizes
    return _fine_grained_gate(other_coarse_sizes=(), **conditions)


def _gate_asks_for_interleave(
    groups: tuple[Group, ...], sizes: tuple[int, ...], unit: int, *, caching: bool, dcp_size: int, interleave: int
) -> bool:
    opened = _gate(groups, sizes, unit, caching=caching, dcp_size=dcp_size, interleave=interleave)
    return opened and unit % (interleave * dcp_size) == 0


def _short_segment_forgotten(j: int, n: int, count: int | None, window: int, eagle: bool = False) -> bool:
    del n
    return count is None or j % count >= count - (window + int(eagle))


def _owned_by_one_rank(position: int, rank: int, block_size: int, sharded: bool, dcp_size: int, interleave: int) -> bool:
    del sharded
    return geometry.owner_rank(position, block_size, dcp_size, interleave) == rank


def _offset_inside_one_rank(position: int, block_size: int, sharded: bool, dcp_size: int, interleave: int) -> int:
    del sharded, dcp_size, interleave
    return position % block_size


def _each_rank_for_itself(prefix_tokens: int, dcp_size: int) -> tuple[bool, ...]:
    return tuple(geometry.local_length(prefix_tokens, rank, dcp_size, 1) > 0 for rank in range(dcp_size))


def _same_length_on_every_rank(num_tokens: int, rank: int, dcp_size: int, interleave: int) -> int:
    del rank, interleave
    return geometry.ceil_div(num_tokens, dcp_size)


def _tokens_scaled_for_every_group(block_size: int, sharded: bool, dcp_size: int) -> int:
    del sharded
    return block_size * dcp_size


def _sizes_scaled_by_kind(groups: tuple[Group, ...], dcp_size: int) -> tuple[int, ...]:
    return tuple(group.block_size * (1 if group.kind == "mamba_align" else dcp_size) for group in groups)


def _every_group_is_hashed(groups: tuple[Group, ...], active: bool) -> tuple[bool, ...]:
    return (active,) * len(groups)


def _scratch_lists_are_cut_too(config: Config, group: int, tokens: int) -> int:
    return tokens // config.sizes[group]


FAULTS: tuple[Fault, ...] = (
    Fault(
        "M-GEO-2",
        "the worker's row of a replicated recurrent group is divided by the DCP size like an attention row",
        "#50493",
        ("TB-12",),
        ((recurrent, "row_width", _width_scaled_for_every_group),),
        scopes=("fa4-m4-n2", "fa4-m4-n2-tight"),
    ),
    Fault(
        "M-GEO-3",
        "the offloading connector takes every group's block for one that DCP shards",
        "offload-scaling",
        ("DS-1", "DS-6"),
        ((reachability, "tokens_per_block", _tokens_scaled_for_every_group),),
        scopes=("fa4-m4-n2", "fa2-m4-n4"),
    ),
    Fault(
        "M-GEO-4",
        "the lazy target takes every group's block for one that DCP shards",
        "#54736",
        ("DS-1",),
        ((reachability, "lazy_span", _size_scaled_for_every_group),),
        scopes=("fa4-m4-n2", "fa4-m4-w4-n2"),
    ),
    Fault(
        "M-GEO-6",
        "block sizes are scaled by the kind of a group instead of by its sharded flag",
        "offload-scaling",
        ("DS-1",),
        ((configs, "effective_sizes", _sizes_scaled_by_kind),),
        scopes=("fa4r-m4-n2", "fa4-fa4r-m4-n2"),
    ),
    Fault(
        "M-GEO-5",
        "block managers multiply every group's block size by the DCP size, replicated groups included",
        "src",
        ("TB-4", "DS-9"),
        ((geometry, "effective_block_size", _size_scaled_for_every_group),),
        scopes=("m4-m8-fa2-n2", "fa4-m4-n2"),
    ),
    Fault(
        "M-GATE-1",
        "fine-grained hits are on only without DCP",
        "#50493",
        ("HB-11", "DS-9", "CC-8"),
        ((geometry, "fine_grained_gate", _gate_on_one_rank_only),),
        scopes=("fa2-m8-n2", "m4-m8-fa2-n2"),
    ),
    Fault(
        "M-GATE-2",
        "on one rank the gate also opens for recurrent blocks as small as the hash block",
        "#50493",
        ("HB-11",),
        ((geometry, "mamba_gate_condition", _gate_accepts_equal_sizes),),
        scopes=("fa4-m4", "fa8-m2"),
    ),
    Fault(
        "M-GATE-3",
        "the gate does not ask whether every kind can hit where it lets hits end",
        "#50493",
        ("HB-11",),
        ((geometry, "fine_grained_gate", _gate_ignores_coarse_groups),),
        scopes=("fa1-m2+1-w4-n4-draft1", "fa2-m2-w4-ahead"),
    ),
    Fault(
        "M-SCR-1",
        "scratch groups take part in the divisibility of sizes and of lists that are cut",
        "#56396",
        ("HB-1", "LV-9"),
        ((configs, "hashed_groups", _every_group_is_hashed), (lookup, "kept_entries", _scratch_lists_are_cut_too)),
        scopes=("fa4-x2-m8",),
    ),
    Fault(
        "M-REACH-1",
        "reachability of offloaded chunks forgets that the last segment may be short",
        "offload-scaling",
        ("DS-7",),
        ((reachability, "chunk_reachable", _short_segment_forgotten),),
        scopes=("fa4-m4-n2",),
    ),
    Fault(
        "M-CTX-1",
        "a rank decides from its own share of the prefix whether there is context to attend to",
        "src",
        ("DS-10",),
        ((geometry, "context_branches", _each_rank_for_itself),),
        scopes=("fa4-m4-n2", "fa4-m2-n4"),
    ),
    Fault(
        "M-SLOT-1",
        "a replicated group's positions are written only on the rank that would own them if it were sharded",
        "src",
        ("DS-2", "CC-8"),
        ((geometry, "owns", _owned_by_one_rank),),
        scopes=("fa4r-m4-n2", "fa4-fa4r-m4-n2"),
    ),
    Fault(
        "M-SLOT-2",
        "the offset inside a rank's block is the position modulo the unscaled block size",
        "src",
        ("DS-3",),
        ((geometry, "block_offset", _offset_inside_one_rank),),
        scopes=("fa2-n4", "fa4-m4-n2"),
    ),
    Fault(
        "M-SLOT-3",
        "every rank takes the rounded-up share as its local length",
        "src",
        ("DS-4",),
        ((geometry, "local_length", _same_length_on_every_rank),),
        scopes=("fa2-n4", "fa4-m4-n2"),
    ),
    Fault(
        "M-SLOT-4",
        "the gate also asks that whole interleave rounds of all ranks fit into the hash block",
        "src",
        ("DS-8", "HB-11"),
        ((configs, "gate", _gate_asks_for_interleave),),
        scopes=("fa4-m4-n2", "fa4-m4-n2-tight"),
    ),
)
