"""Faults of public bug reports that the model can express: ``M-PUB-n`` is entry n of docs/public-faults.md (6.4).

Each replacement does what the report describes, at the place of the model that corresponds to it.
"""

from __future__ import annotations

from attrs import asdict, evolve, frozen

from kvproof.core import allocation, execute, geometry, lookup, plans, requests
from kvproof.core import pool as pools
from kvproof.core.config import Config, Group
from kvproof.core.kinds import caching, full_attention, positional
from kvproof.core.pool import NO_KEY, Pool
from kvproof.core.records import Record
from kvproof.core.work import Work
from kvproof.core.world import Hit, Request, Scheduled, World
from kvproof.spec.faults.base import Fault

_find_hit = full_attention.find_hit
_full_node = caching.full_node
_partial_node = caching.partial_node
_refused = allocation.refused
_lookup = lookup.lookup
_preempt = requests.preempt
_write_rows = plans.write_rows
_move_running_states = execute._move_running_states

Lists = tuple[tuple[int, ...], ...]


# --- units ----------------------------------------------------------------------------------------------------------


def _scaled(config: Config, group: int) -> bool:
    return config.sizes[group] != config.groups[group].block_size


def _scaled_block_keyed_by_its_index(work: Work, group: int, index: int) -> int:
    return work.nodes[index] if _scaled(work.config, group) else _full_node(work, group, index)


def _scaled_block_asked_by_its_index(
    config: Config, pool: Pool, nodes: list[int], members: tuple[int, ...], limit: int, drop: bool
) -> tuple[int, Lists]:
    """Look block j up under hash j: each hash is stretched over the hash blocks of a whole block."""
    if _scaled(config, members[0]):
        per_block = config.sizes[members[0]] // config.hash_block_size
        nodes = [node for node in nodes for _ in range(per_block)]
    return _find_hit(config, pool, nodes, members, limit, drop)


def _every_block_keyed_by_its_index(work: Work, group: int, index: int) -> int:
    del group
    return work.nodes[index]


def _width_of_the_container(spec: Group, dcp_size: int, max_model_len: int) -> int:
    del dcp_size
    return geometry.attention_row_width(max_model_len, spec.block_size, False, 1)


def _length_in_unscaled_blocks(
    config: Config, pool: Pool, nodes: list[int], members: tuple[int, ...], limit: int, drop: bool
) -> tuple[int, Lists]:
    hit, lists = _find_hit(config, pool, nodes, members, limit, drop)
    rebuilt = min(hit, len(lists[0]) * config.groups[members[0]].block_size)
    rebuilt -= rebuilt % config.alignment
    return rebuilt, tuple(blocks[: geometry.ceil_div(rebuilt, config.sizes[members[0]])] for blocks in lists)


def _page_below(work: Work, group: int, boundary: int) -> int:
    """Return the boundary of the last whole scheduler block, which DCP widens, or the boundary itself before the first."""
    config = work.config
    if group not in config.recurrent or config.dcp_size == 1:
        return boundary
    return boundary - boundary % config.scheduler_block_size or boundary


def _full_state_keyed_at_its_page(work: Work, group: int, index: int) -> int:
    return caching.boundary_node(work, _page_below(work, group, (index + 1) * work.config.sizes[group]))


def _partial_state_keyed_at_its_page(work: Work, group: int, boundary: int) -> int:
    return _partial_node(work, group, _page_below(work, group, boundary))


# --- hits -----------------------------------------------------------------------------------------------------------


@frozen(slots=True)
class _Remembering(Request):
    """A request with the answer that its last lookup got before its allocation failed."""

    remembered: Hit | None = None
    tokens_then: int = 0


def _lookup_remembered(world: World, request: Request, work: Work, states: allocation.States, lists: allocation.Lists) -> World:
    hit = world.hit
    world = _refused(world, request, work, states, lists)
    if hit is None:
        return world
    fields = asdict(request, recurse=False) | {"groups": tuple(states)}
    fields |= {"remembered": hit, "tokens_then": request.num_tokens}
    keeper = _Remembering(**fields)
    others = tuple(keeper if other.request == request.request else other for other in world.requests)
    return evolve(world, requests=others)


def _remembered_answer(config: Config, pool: Pool, request: Request, nodes: list[int]) -> Hit:
    if isinstance(request, _Remembering) and request.remembered and request.tokens_then == request.num_tokens:
        return request.remembered
    return _lookup(config, pool, request, nodes)


def _resident_blocks_counted(
    config: Config, pool: Pool, nodes: list[int], members: tuple[int, ...], limit: int, drop: bool
) -> tuple[int, Lists]:
    """Go on behind a missing block, and count what is there."""
    hit, lists = _find_hit(config, pool, nodes, members, limit, drop)
    unit, size = config.hash_block_size, config.sizes[members[0]]
    columns = []
    for end in range(size, min(limit, len(nodes) * unit) + 1, size):
        blocks = [pools.find(pool, nodes[end // unit - 1], group) for group in members]
        if NO_KEY not in blocks:
            columns.append(blocks)
    counted = len(columns) * size
    counted -= counted % config.alignment
    if counted <= hit:
        return hit, lists
    return counted, tuple(zip(*columns[: counted // size], strict=True))


# --- allocation -----------------------------------------------------------------------------------------------------


def _rolled_back_in_another_order(
    world: World, request: Request, work: Work, states: allocation.States, lists: allocation.Lists
) -> World:
    """Put the free block that was popped before the failure back behind the others."""
    free = work.pool.free
    work.pool = evolve(work.pool, free=free[1:] + free[:1])
    return _refused(world, request, work, states, lists)


def _nothing_leaves_the_queue(work: Work, adopted: tuple[int, ...]) -> int:
    del work, adopted
    return 0


# --- the worker -----------------------------------------------------------------------------------------------------


def _resumed_state_stays(world: World, memory: execute.Memory, entry: Scheduled) -> World:
    before = list(memory)
    world = _move_running_states(world, memory, entry)
    if entry.fresh:
        memory[:] = before
    return world


@frozen(slots=True)
class _Stashing(Request):
    """A request with the block ids, per group, that the worker had not been told when it was withdrawn."""

    stash: Lists = ()


def _delta_survives(world: World, request: Request) -> tuple[World, Record]:
    owners, rows = world.worker.owners, world.worker.rows
    told = [0] * len(request.groups)
    if request.request in owners:
        row = owners.index(request.request)
        told = [len(group[row]) // world.config.append_expansion for group in rows]
    stash = tuple(state.table[sent:] for state, sent in zip(request.groups, told, strict=True))
    world, record = _preempt(world, request)
    stashed = tuple(
        _Stashing(**(asdict(other, recurse=False) | {"stash": stash})) if other.request == request.request else other
        for other in world.requests
    )
    return evolve(world, requests=stashed), record


def _delta_emitted_again(world: World, live: dict[int, Request]) -> tuple[plans.Worker, tuple[Scheduled, ...]]:
    """Write the row of a resumed request with the stashed delta behind its table."""
    resumed = {entry.request for entry in world.plan.scheduled if entry.fresh}
    told = {}
    for number, request in live.items():
        told[number] = request
        if number in resumed and isinstance(request, _Stashing):
            groups = zip(request.groups, request.stash, strict=True)
            told[number] = evolve(request, groups=tuple(evolve(state, table=state.table + ids) for state, ids in groups))
    return _write_rows(world, told)


FAULTS: tuple[Fault, ...] = (
    Fault(
        "M-PUB-1",
        "block j of a group that DCP shards is registered and looked up under prefix hash j, which ends elsewhere",
        "#26296",
        ("CC-3", "HB-10"),
        (
            (caching, "full_node", _scaled_block_keyed_by_its_index),
            (full_attention, "find_hit", _scaled_block_asked_by_its_index),
        ),
        scopes=("fa2-m4-n4", "fa4-m4-n2"),
    ),
    Fault(
        "M-PUB-4",
        "the rows of an attention group are sized from its container, which DCP does not divide",
        "#50823",
        ("DS-1",),
        ((full_attention, "row_width", _width_of_the_container),),
        scopes=("fa4-m4-n2-long",),
    ),
    Fault(
        "M-PUB-14",
        "a replaced pool forgets the hash block size: a block of several hash blocks is registered under an earlier hash",
        "kvcached#451",
        ("CC-3", "HB-3"),
        ((caching, "full_node", _every_block_keyed_by_its_index),),
        scopes=("fa8-m2", "fa4-m2-n4"),
    ),
    Fault(
        "M-PUB-29",
        "a hit that was looked up before an allocation failed is used again after blocks were evicted",
        "#18957",
        ("HB-10",),
        ((allocation, "refused", _lookup_remembered), (lookup, "lookup", _remembered_answer)),
        scopes=("fa4-m4-n2-tight", "m4-fa2-tight"),
    ),
    Fault(
        "M-PUB-32",
        "the attention scan goes on behind a missing block and counts every block that is present",
        "llm-d-inference-sim#705",
        ("HB-10",),
        ((full_attention, "find_hit", _resident_blocks_counted),),
        scopes=("fa4", "fa2x6"),
    ),
    Fault(
        "M-PUB-36",
        "the length of a hit is rebuilt from the number of its blocks in unscaled tokens",
        "vllm-ascend#13330",
        ("HB-15", "DS-9"),
        ((full_attention, "find_hit", _length_in_unscaled_blocks),),
        scopes=("fa4-m4-n2", "fa2-n4"),
    ),
    Fault(
        "M-PUB-57",
        "under DCP a recurrent state is registered at the last whole scheduler block, behind which it already is",
        "sglang#34760",
        ("CC-3",),
        ((caching, "full_node", _full_state_keyed_at_its_page), (caching, "partial_node", _partial_state_keyed_at_its_page)),
        scopes=("fa4-m4-n2", "fa4-m2-n4"),
    ),
    Fault(
        "M-PUB-68",
        "the running state of a request that is admitted with a hit is not copied to its new column",
        "tpu-inference#3412",
        ("CC-2",),
        ((execute, "_move_running_states", _resumed_state_stays),),
        scopes=("fa4-m4-n2", "fa2-m8"),
    ),
    Fault(
        "M-PUB-109",
        "block ids that a withdrawn request had not sent to the worker yet are appended to its row when it is resumed",
        "vllm-rbln#676",
        ("TB-13",),
        ((requests, "preempt", _delta_survives), (plans, "write_rows", _delta_emitted_again)),
        scopes=("fa4-m4-n2", "fa4"),
    ),
    Fault(
        "M-PUB-166",
        "a failed allocation gives the blocks it had popped back at the other end of the free queue",
        "inference-sim#354",
        ("PC-9",),
        ((allocation, "refused", _rolled_back_in_another_order),),
        scopes=("fa4", "m4-fa2-tight"),
    ),
    Fault(
        "M-PUB-170",
        "adopted blocks that leave the free queue are not counted in the demand",
        "sonar#661",
        ("PC-7", "LV-9"),
        ((positional, "evictable", _nothing_leaves_the_queue),),
        scopes=("fa4", "fa2x6"),
    ),
)
