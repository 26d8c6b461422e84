"""Faults of public bug reports that the model can express: ``M-PUB-n`` is entry n of docs/public-faults.md (6.4).

Each replacement does what the report describes, at the place of the model that corresponds to it.
"""

from __future__ import annotations

from typing import Any

from attrs import asdict, evolve, frozen

from kvproof.core import allocation, contents, events, execute, geometry, kinds, lookup, outputs, plans, requests, worker
from kvproof.core import config as configs
from kvproof.core import pool as pools
from kvproof.core.actions import Output
from kvproof.core.config import Config, Group
from kvproof.core.kinds import caching, full_attention, positional, recurrent, sliding_window
from kvproof.core.pool import NO_KEY, Pool
from kvproof.core.records import Record
from kvproof.core.work import Work
from kvproof.core.world import Hit, Request, Scheduled, Step, Worker, World
from kvproof.spec.faults.base import Fault

_find_hit = full_attention.find_hit
_full_node = caching.full_node
_partial_node = caching.partial_node
_refused = allocation.refused
_lookup = lookup.lookup
_preempt = requests.preempt
_write_rows = plans.write_rows
_move_running_states = execute._move_running_states
_window_hit = sliding_window.find_hit
_groups_by_content = configs._groups_by_content
_replay_boundaries = geometry.replay_boundaries
_process = outputs.process
_payload_size = events.payload_size

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


def _width_without_speculative_blocks(spec: Group, dcp_size: int, max_model_len: int) -> int:
    del dcp_size
    return geometry.ceil_div(max_model_len, spec.block_size)


def _payload_in_unscaled_blocks(config: Config, group: int, what: int, boundary: int) -> int:
    size = _payload_size(config, group, what, boundary)
    return config.groups[group].block_size if size == config.sizes[group] and config.groups[group].sharded else size


def _scratch_has_positions(groups: tuple[Group, ...]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    holding_states, snapshots, _ = _groups_by_content(groups)
    return holding_states, snapshots, tuple(group for group in range(len(groups)) if group not in holding_states)


def _scratch_has_cells(groups: tuple[Group, ...], dcp_size: int, interleave: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
    return tuple(
        contents.cell_map(
            kinds.of(group.kind).CAPABILITIES.recurrent, group.block_size, bool(group.sharded), dcp_size, interleave
        )
        for group in groups
    )


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
    fields: dict[str, Any] = asdict(request, recurse=False)
    fields |= {"groups": tuple(states), "remembered": hit, "tokens_then": request.num_tokens}
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


def _popped_after_the_window(
    config: Config, pool: Pool, nodes: list[int], members: tuple[int, ...], limit: int, drop: bool
) -> tuple[int, Lists]:
    """Find the blocks of a window without the one behind it, then give up the last of them."""
    hit, lists = _window_hit(config, pool, nodes, members, limit, False)
    if not drop or not hit:
        return hit, lists
    hit -= config.sizes[members[0]]
    hit -= hit % config.alignment
    return hit, tuple(blocks[: hit // config.sizes[members[0]]] for blocks in lists)


def _answer_of_the_last_class(config: Config, pool: Pool, nodes: list[int], limit: int) -> tuple[int, Lists, int]:
    """Ask every class by itself; each overwrites the hit."""
    lists: list[tuple[int, ...]] = [()] * len(config.groups)
    hit = 0
    for members in config.classes:
        kind = kinds.of(config.groups[members[0]].kind)
        asked = lookup.with_margin(config, members, limit)
        hit, found = kind.find_hit(config, pool, nodes, members, asked, lookup.owes_drop(config, members, False))
        for group, blocks in zip(members, found, strict=True):
            lists[group] = blocks
    cut = (blocks[: geometry.ceil_div(hit, size)] for blocks, size in zip(lists, config.sizes, strict=True))
    return hit, tuple(cut), 0


# --- EAGLE ----------------------------------------------------------------------------------------------------------


def _lower_boundary_only(prompt: int, unit: int, eagle: bool = False) -> tuple[int, ...]:
    return _replay_boundaries(prompt, unit, eagle)[:1]


def _boundary_without_the_drop(prompt: int, unit: int, eagle: bool = False) -> tuple[int, ...]:
    del eagle
    return _replay_boundaries(prompt, unit)


def _checkpoint_without_the_drop(work: Work, tokens: int) -> bool:
    return tokens == geometry.checkpoint_boundary(work.num_prompt, work.config.hash_block_size)


def _every_class_drops(config: Config, members: tuple[int, ...], verified: bool) -> bool:
    del members
    return (config.use_eagle or config.num_draft_tokens > 0) and not verified


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


def _delta_survives(world: World, request: Request, drop_stale: bool = False) -> tuple[World, Record]:
    owners, rows = world.worker.owners, world.worker.rows
    told = [0] * len(request.groups)
    if request.request in owners:
        row = owners.index(request.request)
        told = [len(group[row]) // world.config.append_expansion for group in rows]
    stash = tuple(state.table[sent:] for state, sent in zip(request.groups, told, strict=True))
    world, record = _preempt(world, request, drop_stale)
    stashed = tuple(_stashing(other, stash) if other.request == request.request else other for other in world.requests)
    return evolve(world, requests=stashed), record


def _stashing(request: Request, stash: Lists) -> _Stashing:
    fields: dict[str, Any] = asdict(request, recurse=False)
    fields["stash"] = stash
    return _Stashing(**fields)


def _delta_emitted_again(world: World, live: dict[int, Request]) -> tuple[Worker, tuple[Scheduled, ...]]:
    """Write the row of a resumed request with the stashed delta behind its table."""
    resumed = {entry.request for entry in world.plan.scheduled if entry.fresh}
    told = {}
    for number, request in live.items():
        told[number] = request
        if number in resumed and isinstance(request, _Stashing):
            groups = zip(request.groups, request.stash, strict=True)
            told[number] = evolve(request, groups=tuple(evolve(state, table=state.table + ids) for state, ids in groups))
    return _write_rows(world, told)


def _seeded_behind_the_speculative_blocks(world: World, live: dict[int, Request]) -> tuple[Worker, tuple[Scheduled, ...]]:
    """Take the last column of the table for that of a loaded state."""
    rows, entries = _write_rows(world, live)
    for entry in entries:
        if entry.fresh and entry.loaded_from < entry.start:
            columns = list(rows.columns[entry.row])
            for group in world.config.snapshots:
                columns[group] += world.config.groups[group].speculative_blocks
            rows = worker.set_columns(rows, entry.row, tuple(columns))
    return rows, entries


# --- steps in flight ------------------------------------------------------------------------------------------------


def _nothing_in_flight(world: World, request: Request, drop_stale: bool = False) -> tuple[World, Record]:
    """Forget what is in flight; the late output lowers the count below zero."""
    world, record = _preempt(world, request, drop_stale)
    reset = tuple(evolve(other, in_flight=0) if other.request == request.request else other for other in world.requests)
    return evolve(world, requests=reset), record


def _late_output_advances(world: World, action: Output, step: Step) -> tuple[World, Record]:
    before = requests.alive(world, action.request)
    entry = requests.share_of(step, action.request)
    world, record = _process(world, action, step)
    if before is None or not outputs.is_stale(before):
        return world, record
    advanced = tuple(
        evolve(other, computed=other.computed + entry.amount) if other.request == action.request else other
        for other in world.requests
    )
    return evolve(world, requests=advanced), record


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
        "M-PUB-8",
        "the event of a full block that DCP shards carries the tokens of the block on one rank",
        "#50118, sglang#35298",
        ("EV-2",),
        ((events, "payload_size", _payload_in_unscaled_blocks),),
        scopes=("fa4-m4-n2-events", "fa2-w2-n2-eagle"),
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
        "M-PUB-20",
        "the rows of a recurrent group have no columns for its speculative blocks",
        "vllm-ascend#11466",
        ("TB-12",),
        ((recurrent, "row_width", _width_without_speculative_blocks),),
        scopes=("fa4-m4+1", "fa2-m2+3-draft3"),
    ),
    Fault(
        "M-PUB-22",
        "positions are mapped to columns in a group whose row has one column for one private block",
        "#54296",
        ("TB-12", "LV-9"),
        ((configs, "_groups_by_content", _scratch_has_positions), (configs, "_cells", _scratch_has_cells)),
        scopes=("fa4-x4-m4-n2",),
    ),
    Fault(
        "M-PUB-28",
        "the EAGLE block is given up after the window was found, which leaves one block less than a window",
        "#17398",
        ("HB-10",),
        ((sliding_window, "find_hit", _popped_after_the_window),),
        scopes=("fa2-w2-n2-eagle", "fa4-m4-w2-h2-eagle"),
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
        "M-PUB-33",
        "every class overwrites the joint hit, and the answer of the last one stands",
        "TensorRT-LLM#10875",
        ("CA-6", "HB-10"),
        ((lookup, "lookup_common", _answer_of_the_last_class),),
        scopes=("fa4-m4-n2", "fa4-w4"),
    ),
    Fault(
        "M-PUB-36",
        "the length of a hit is rebuilt from the number of its blocks in unscaled tokens",
        "vllm-ascend#13330",
        ("HB-15", "DS-9"),
        ((full_attention, "find_hit", _length_in_unscaled_blocks),),
        scopes=("fa2-n4", "fa4-m4-n2"),
    ),
    Fault(
        "M-PUB-40",
        "of the two boundaries at which EAGLE may resume behind a prompt only one is retained",
        "#54713",
        ("LV-10",),
        ((geometry, "replay_boundaries", _lower_boundary_only),),
        scopes=("fa4-m4-w2-h2-eagle",),
    ),
    Fault(
        "M-PUB-41",
        "the retained boundary is computed without the EAGLE drop and lies behind what a lookup reaches",
        "local-inference-lab/vllm#556",
        ("LV-10",),
        (
            (geometry, "replay_boundaries", _boundary_without_the_drop),
            (recurrent, "is_checkpoint", _checkpoint_without_the_drop),
        ),
        scopes=("fa4-m4-w2-h2-eagle", "many-n2"),
    ),
    Fault(
        "M-PUB-46",
        "every class gives up a unit of its hit because there is a drafter, whatever cache that has",
        "local-inference-lab/vllm#466",
        ("LV-10",),
        ((lookup, "owes_drop", _every_class_drops),),
        scopes=("fa2-m2+3-draft3", "many-n1"),
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
        "M-PUB-66",
        "behind loaded tokens the running state is looked for in the last column, past the speculative blocks",
        "#51766",
        ("TB-7", "CC-2"),
        ((plans, "write_rows", _seeded_behind_the_speculative_blocks),),
        scopes=("m2-m4-fa2-n2-ckpt", "fa4-x4-m4+2-draft2-ahead"),
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
        "M-PUB-72",
        "a preemption forgets what is in flight, late outputs lower the count below zero, and blocks in the window are freed",
        "vllm-ascend#14301",
        ("TB-5",),
        ((requests, "preempt", _nothing_in_flight),),
        scopes=("w4-fa4-w8-eagle-async", "fa2-m2-w4-ahead"),
    ),
    Fault(
        "M-PUB-92",
        "the output of a step that was dispatched before a preemption advances the computed tokens",
        "#49620",
        ("TB-4",),
        ((outputs, "process", _late_output_advances),),
        scopes=("fa2-n4-eagle-async", "fa4-ahead-defer"),
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
        "M-PUB-156",
        "the event of a partial attention key names the boundary one hash block before as its parent, which nobody announced",
        "#58119",
        ("EV-3",),
        profile=("partial_parent", "hash"),
        scopes=("fa4-m4-n2-events", "fa8-m4-events"),
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
