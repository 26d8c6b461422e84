"""Faults in recurrent groups: hits, nulling, running columns, chunk ends, publication (semantics T11, T21, T22, 3.6)."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from kvproof.core import config as configs
from kvproof.core import execute, geometry, worker
from kvproof.core import step as door
from kvproof.core.actions import Allocate
from kvproof.core.config import Config, Group
from kvproof.core.kinds import recurrent
from kvproof.core.pool import NULL_BLOCK, Pool
from kvproof.core.work import Work
from kvproof.core.world import Request
from kvproof.spec.faults.base import Fault

_configure = configs.configure
_find_hit = recurrent.find_hit
_publish = recurrent.publish


def _miss_is_a_hit(
    config: Config, pool: Pool, nodes: list[int], members: tuple[int, ...], limit: int, drop: bool
) -> tuple[int, tuple[tuple[int, ...], ...]]:
    hit, lists = _find_hit(config, pool, nodes, members, limit, drop)
    if hit or config.classes[0] == members:
        return hit, lists
    # without a state the attention hit stands, and null entries take the place of the state
    return limit, ((NULL_BLOCK,) * geometry.ceil_div(limit, config.sizes[members[0]]),) * len(members)


def _up_to_the_first_null(entries: tuple[int, ...]) -> tuple[int, ...]:
    last = max((index for index, block in enumerate(entries) if block == NULL_BLOCK), default=-1)
    return entries[last + 1 :]


def _column_in_smallest_blocks(config: Config, group: int, computed: int) -> int:
    del group
    return worker.column_of(computed, min(spec.block_size for spec in config.groups))


def _clipped_at_hash_blocks(groups: tuple[Group, ...], **settings: Any) -> Config:
    config = _configure(groups, **settings)
    profile = evolve(config.profile, clip_stops="clip_unit")
    settings |= {"clip_block_size": config.hash_block_size, "profile": profile}
    return _configure(groups, **settings)


def _published_at_the_block_end(work: Work, group: int, block: int, boundary: int) -> None:
    size = work.config.sizes[group]
    _publish(work, group, block, geometry.ceil_div(boundary, size) * size)


def _nothing_external_in_the_split(request: Request, action: Allocate) -> int:
    if action.external:
        raise AssertionError("external tokens in the split of a prefill")
    return request.computed + action.local


def _always_read(start: int) -> bool:
    del start
    return True


FAULTS: tuple[Fault, ...] = (
    Fault(
        "M-HIT-2",
        "where a recurrent group misses, the attention hit is kept and an empty state is resumed",
        "#45238, #47491",
        ("HB-10", "HB-12", "HB-15", "CA-6", "CC-2"),
        ((recurrent, "find_hit", _miss_is_a_hit),),
        scopes=("fa4-m4-m4-n2", "fa2-m4-n4"),
    ),
    Fault(
        "M-MAM-1",
        "dead states are looked for from the end of the table and only up to the first null",
        "src",
        ("TB-6",),
        ((recurrent, "retired_blocks", _up_to_the_first_null),),
        scopes=("fa4-m2-n4", "fa1-m2-m4-n4"),
    ),
    Fault(
        "M-MAM-2",
        "the running column of a resumed request is counted in the smallest block size of all groups",
        "#53142, #55600",
        ("TB-7", "CC-2"),
        ((worker, "seed_column", _column_in_smallest_blocks),),
        scopes=("fa2-m4-n4", "fa4-m8-n2-roomy"),
    ),
    Fault(
        "M-MAM-5",
        "prefill chunks end at hash blocks instead of state blocks: a full block's key names the state of an earlier chunk end",
        "#47861",
        ("CC-3",),
        ((configs, "configure", _clipped_at_hash_blocks),),
        scopes=("fa2-m8", "fa1-m2-m4-n4"),
    ),
    Fault(
        "M-MAM-6",
        "the split of a prefill asserts that there are no external tokens",
        "#42554",
        ("LV-9",),
        ((door, "split_start", _nothing_external_in_the_split),),
        scopes=("fa4-st4", "fa1-m2-m4-n4"),
    ),
    Fault(
        "M-ZERO-2",
        "a chunk at the very beginning reads an initial state, which is whatever its block was used for",
        "src",
        ("CC-2",),
        ((execute, "reads_state", _always_read),),
        scopes=("fa2-m4-n4", "fa2-m2+3-draft3"),
    ),
    Fault(
        "M-HO-1",
        "a state is published for the end of its block and not for its own boundary",
        "src",
        ("HO-1",),
        ((recurrent, "publish", _published_at_the_block_end),),
        scopes=("fa2-m8", "fa2-m8-n2"),
    ),
)
