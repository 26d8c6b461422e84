"""Faults of public bug reports about connectors and the host pool: ``M-PUB-n`` is entry n of docs/public-faults.md (6.4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import allocation, freeing, geometry, outputs, prefixes, recovery
from kvproof.core import pool as pools
from kvproof.core.config import Config
from kvproof.core.errors import ContractBroken
from kvproof.core.offload import choosing, completion, external, handoffs, loads, metadata, positional, tails, tracks
from kvproof.core.offload.choosing import Choice, Picked
from kvproof.core.offload.state import NONE, Host, Lists, Load, Meta, PendingHit, Stage, Track
from kvproof.core.pool import Pool
from kvproof.core.prefixes import Prefixes
from kvproof.core.records import Record
from kvproof.core.world import Request, Scheduled, World
from kvproof.spec.faults.base import Fault

_complete = loads.complete
_complete_store = completion.complete
_concerned = recovery.concerned
_consume = handoffs.consume
_find_suffix = external.find_suffix
_issue_loads = metadata.issue_loads
_lost_tokens = outputs.lost_tokens
_mapping = loads.mapping
_pick = positional.pick
_pick_group = positional.pick_group
_tables_told = positional.tables_told

Consumed = tuple[Host, tuple[handoffs.Outcome, ...], tuple[str, ...]]


# --- which boundaries are stored --------------------------------------------------------------------------------------


def _states_below_the_last_token(world: World, host: Host, choice: Choice) -> Consumed:
    """Keep of a prompt only the state at the last boundary below its last token, where EAGLE resumes a unit lower."""
    unit, prompts = world.config.hash_block_size, {request.request: request.num_prompt for request in world.requests}

    def kept(handoff: handoffs.Handoff) -> bool:
        prompt = prompts.get(handoff[0], 0)
        return handoff[3] > prompt or handoff[3] == geometry.checkpoint_boundary(prompt, unit)

    plan = evolve(world.plan, drained=tuple(handoff for handoff in world.plan.drained if kept(handoff)))
    return _consume(evolve(world, plan=plan), host, choice)


def _tail_at_the_state(world: World, request: Request, group: int) -> int:
    return geometry.checkpoint_boundary(request.num_prompt, world.config.hash_block_size, world.config.eagle[group])


def _window_without_the_block_behind(
    world: World, request: Request, group: int, table: tuple[int, ...], choice: Choice, picked: Picked
) -> None:
    """Store of a window in the EAGLE group set what a lookup without a drop would need: not the block behind the hit."""
    spec, first = world.config.groups[group], len(picked.blocks)
    _pick_group(world, request, group, table, choice, picked)
    if spec.window is None or not world.config.eagle[group]:
        return
    size = world.config.sizes[group]
    behind = geometry.checkpoint_boundary(request.num_prompt, world.config.hash_block_size, True) // size
    nodes = prefixes.boundary_nodes(world.prefixes, request.tip, size)
    if behind < len(nodes):
        for at in reversed(range(first, len(picked.blocks))):
            if choice.device.key_node[picked.blocks[at]] == nodes[behind]:
                del picked.blocks[at], picked.metas[at]


def _one_unit_less(world: World, host: Host, request: Request, start: int) -> tuple[int, Lists]:
    shorter = evolve(request, num_tokens=request.num_tokens - world.config.scheduler_block_size)
    return _find_suffix(world, host, shorter, start)


# --- references -------------------------------------------------------------------------------------------------------


def _speculative_blocks_pinned(world: World, host: Host, choice: Choice) -> Consumed:
    """Pin every block that a request has in the group of a stored handoff, speculative ones too."""
    host, outcomes, notices = _consume(world, host, choice)
    for number, group, _, _, outcome in outcomes:
        if outcome == handoffs.STORED:
            request = next(other for other in world.requests if other.request == number)
            spare = world.config.groups[group].speculative_blocks
            choice.device = pools.touch(choice.device, request.groups[group].table[-spare:] if spare else ())
    return host, outcomes, notices


def _window_blocks_twice(world: World, request: Request, tables: Lists, cursors: tuple[int, ...], choice: Choice) -> Picked:
    """List the first block of a window that the scan finds once more, where the host has room for it."""
    picked = _pick(world, request, tables, cursors, choice)
    windows = {group for group, spec in enumerate(world.config.groups) if spec.window is not None}
    for block, meta in zip(tuple(picked.blocks), tuple(picked.metas), strict=True):
        if choice.device.key_group[block] in windows and len(picked.blocks) < choosing.room(choice):
            picked.blocks.append(block)
            picked.metas.append(meta)
            break
    return picked


def _released_as_a_batch(pool: Pool, blocks: Sequence[int]) -> Pool:
    """Give the references back first, then queue every entry of the list that has none left, as often as it is listed."""
    listed, ref = pools.releasable(blocks), list(pool.ref)
    for block in listed:
        ref[block] -= 1
        if ref[block] < 0:
            raise ContractBroken(f"block {block} is released more often than it is held (T3)", block=block)
    free = [block for block in listed if ref[block] == 0]
    keyed = tuple(block for block in free if pool.key_node[block] != pools.NO_KEY)
    unkeyed = tuple(block for block in free if pool.key_node[block] == pools.NO_KEY)
    return evolve(pool, ref=tuple(ref), free=pools.requeue(pool.free, unkeyed, keyed))


def _released_once_issued(world: World, host: Host) -> tuple[Host, Record]:
    """Give the host blocks of a load back as soon as its copy is issued."""
    host, record = _issue_loads(world, host)
    return evolve(host, pool=pools.release(host.pool, record.load_host)), record


def _device_given_back(world: World, host: Host, load: Load) -> World:
    host = loads.without(host, load)
    if load.event == NONE:
        host = evolve(host, pool=pools.release(host.pool, load.host))
    return evolve(world, host=host, pool=pools.release(world.pool, load.device))


def _handed_over_at_once(world: World, host: Host) -> tuple[Host, Record]:
    """Let the writer of loads begin when it is told of them, whatever steps are in flight."""
    host, record = _issue_loads(world, host)
    loads_ = tuple(evolve(load, stage=Stage.SUBMITTED) if load.stage is Stage.BUILT else load for load in host.loads)
    return evolve(host, loads=loads_), record


def _nothing_is_held_back(world: World, request: Request) -> bool:
    del world, request
    return False


# --- lists ------------------------------------------------------------------------------------------------------------


def _trusted(config: Config) -> bool:
    del config
    return True


def _resumed_behind_the_old(track: Track, request: Request, *, fresh: bool) -> Lists:
    """Append what a resumed request holds now to what was reported of it before."""
    if not fresh or not track.told:
        return _tables_told(track, request, fresh=fresh)
    return tuple(old + table for old, table in zip(track.told, positional.tables_of(request), strict=True))


def _cursors_only(host: Host, requests: Iterable[int]) -> Host:
    gone = set(requests)
    kept = (evolve(track, cursors=(0,) * len(track.cursors)) if track.request in gone else track for track in host.tracks)
    return evolve(host, tracks=tuple(kept))


def _slots_for_drafts(config: Config, action: act.Allocate) -> int:
    return config.num_draft_tokens if action.load else action.new_tokens + action.lookahead


def _paired_from_the_tail(world: World, request: Request, pending: PendingHit, accepted: int) -> loads.Pairs:
    """Let the blocks of a load end where the table ends, lookahead included."""
    pairs = []
    for group, column, _, block in _mapping(world, request, pending, accepted):
        table = request.groups[group].table
        column += len(table) - geometry.ceil_div(pending.start + accepted, world.config.sizes[group])
        pairs.append((group, column, table[column], block))
    return tuple(pairs)


def _by_chunk_number(world: World, request: Request, group: int, index: int, choice: Choice, block: int) -> Meta:
    """Describe block number ``index`` of any group by hash number ``index``, with the first group's size."""
    del group, choice, block
    node = prefixes.ancestor(world.prefixes, request.tip, (index + 1) * world.config.hash_block_size)
    return ((node, world.config.sizes[0]),)


# --- reports of workers -----------------------------------------------------------------------------------------------


def _dropped_for_the_aborted(world: World, host: Host, action: act.CompleteLoad) -> tuple[World, Record]:
    if loads.reported(host, action.request).finished:
        return world, Record("CompleteLoad")
    return _complete(world, host, action)


def _kept_for_a_second_report(host: Host, load: Load) -> Host:
    """Keep a reported load for the other child, who reports it as well."""
    if load in host.loads:
        host = evolve(host, abandoned_loads=(*host.abandoned_loads, load))
    else:
        host = evolve(host, abandoned_loads=tuple(other for other in host.abandoned_loads if other is not load))
    return evolve(host, loads=tuple(other for other in host.loads if other is not load))


def _unknown_report_frees(world: World, host: Host, event: int, acks: int) -> tuple[World, Record]:
    """Take the report of a store that nobody knows for the end of the oldest request that still loads."""
    world, record = _complete_store(world, host, event, acks)
    if completion.find(host, event)[0] is None and world.host is not None and world.host.loads:
        load = world.host.loads[0]
        tables = load.held
        for request in world.requests:
            if request.request == load.request:
                tables = tuple(state.table for state in request.groups)
        world = evolve(world, pool=freeing.release_tables(world.pool, tables))
    return world, record


def _in_blocks_of_one_group(config: Config, start: int, valid: int) -> int:
    return max(start, valid // config.sizes[-1] * config.sizes[-1])


# --- loads that failed ------------------------------------------------------------------------------------------------


def _whose_chunk_it_was(world: World, entry: Scheduled, missing: int) -> tuple[Request, ...]:
    """Let only the request start again that the tokens were brought to; who shares its blocks goes on with them."""
    return tuple(request for request in _concerned(world, entry, missing) if request.request == entry.request)


def _keys_of_one_group(table: Prefixes, pool: Pool, missing: int) -> Pool:
    """Take the keys behind the missing token from the blocks of the first group alone."""
    first = tuple(entry for entry in pool.entries if entry[1] == 0)
    for block in sorted({block for node, _, _, block in first if recovery.goes_on(table, node, missing)}):
        pool = pools.evict(pool, block)
    return pool


def _lost_in_every_group(config: Config, entry: Scheduled, valid: int) -> int:
    return len(config.groups) * _lost_tokens(config, entry, valid)


# --- keys and silence -------------------------------------------------------------------------------------------------


def _bare_tokens(world: World, host: Host, request: Request, start: int) -> tuple[int, Lists]:
    """Look the tokens of a request up in every context, and take the longest hit."""
    table = world.prefixes
    tokens = [table.token[node] for node in prefixes.path(table, request.tip, 0, table.depth[request.tip])]
    best = _find_suffix(world, host, request, start)
    for root in (node for node, depth in enumerate(table.depth) if depth == 0):
        tip = root
        for token in tokens:
            following = prefixes.child(table, tip, token)
            if following == prefixes.NO_NODE:
                break
            tip = following
        if table.depth[tip] > start:
            best = max(best, _find_suffix(world, host, evolve(request, tip=tip), start))
    return best


def _pinned_for_ever(host: Host, request: int) -> Host:
    del request
    return host


FAULTS: tuple[Fault, ...] = (
    Fault(
        "M-PUB-44",
        "of a prompt's states only the one at the last boundary below its last token is stored, EAGLE or not",
        "#55036",
        ("LV-6",),
        ((handoffs, "consume", _states_below_the_last_token),),
        scopes=("fa8-m8-h2-eagle-host",),
    ),
    Fault(
        "M-PUB-45",
        "the attention tail is stored for the boundary of the state, although the lookup gives up one unit of attention",
        "#56615",
        ("LV-6",),
        ((tails, "tail_boundary", _tail_at_the_state),),
        scopes=(
            "fa8-m8-h2-eagle-host",
            "fa4-m4-w2-h2-eagle-host",
        ),
    ),
    Fault(
        "M-PUB-48",
        "of a window in the EAGLE group set the block behind the hit, which the drop asks for, is not stored",
        "#53951",
        ("LV-6",),
        ((positional, "pick_group", _window_without_the_block_behind),),
        scopes=("fa4-m4-w2-h2-eagle-host",),
    ),
    Fault(
        "M-PUB-52",
        "a whole unit is taken off the limit of an external lookup",
        "vllm-ascend#16317",
        ("LV-6",),
        ((external, "find_suffix", _one_unit_less),),
        scopes=(
            "fa4-host-both",
            "fa4-m4-w4-host-ample",
        ),
    ),
    Fault(
        "M-PUB-69",
        "with a stored state the speculative blocks of its request are pinned",
        "vllm-ascend#16329",
        ("TB-10",),
        ((handoffs, "consume", _speculative_blocks_pinned),),
        scopes=("fa2-m2+1-draft1-host",),
    ),
    Fault(
        "M-PUB-70",
        "a window block is listed twice in one store, and queued as free twice when it is released",
        "#42571",
        ("PC-1",),
        ((positional, "pick", _window_blocks_twice), (pools, "release", _released_as_a_batch)),
        scopes=(
            "fa4-w4-host",
            "fa4-m4-w4-host-ample",
        ),
    ),
    Fault(
        "M-PUB-88",
        "the blocks of a request that ends with a step in flight are free at once, and a load that is not ordered behind it "
        "fills them",
        "#45357",
        ("CC-3",),
        ((freeing, "is_held_back", _nothing_is_held_back), (metadata, "issue_loads", _handed_over_at_once)),
        scopes=("fa4-w4-ahead-lazy", "fa4-m4+1-n2-ahead-host"),
    ),
    Fault(
        "M-PUB-96",
        "the host blocks of a load are released when its copy is issued",
        "sglang#31427",
        ("CP-1",),
        ((metadata, "issue_loads", _released_once_issued), (loads, "give_back", _device_given_back)),
        scopes=(
            "fa4-host",
            "m2-m4-fa8-host",
        ),
    ),
    Fault(
        "M-PUB-110",
        "the block ids of a resumed request are appended to its old list",
        "#46595",
        ("HO-10",),
        (
            (positional, "trusts_told", _trusted),
            (positional, "tables_told", _resumed_behind_the_old),
            (tracks, "clear_cursors", _cursors_only),
        ),
        scopes=(
            "fa4-m4-host",
            "fa4-host",
        ),
    ),
    Fault(
        "M-PUB-114",
        "the blocks of an asynchronous load include those for drafts, and are paired from the tail",
        "#46694",
        ("LD-1",),
        ((allocation, "slots_behind", _slots_for_drafts), (loads, "mapping", _paired_from_the_tail)),
        scopes=(
            "fa4-m4+1-n2-ahead-host",
            "many-n1-host",
        ),
    ),
    Fault(
        "M-PUB-126",
        "the report of a load whose request was aborted is dropped",
        "vllm-ascend#16662",
        ("LV-2",),
        ((loads, "complete", _dropped_for_the_aborted),),
        scopes=(
            "fa4-host",
            "fa4-m4-host",
        ),
    ),
    Fault(
        "M-PUB-128",
        "a load that was reported is reported by a second child and released again",
        "#51786",
        ("CP-1",),
        ((loads, "without", _kept_for_a_second_report),),
        scopes=(
            "fa2-n4-host-tiny",
            "fa4-m4-host",
        ),
    ),
    Fault(
        "M-PUB-129",
        "a report that nobody asked for frees the blocks of a request that loads",
        "#52954",
        ("LD-7",),
        ((completion, "complete", _unknown_report_frees),),
        scopes=(
            "fa4-m4-w4-n2-host",
            "fa2-m4-n4-host",
        ),
    ),
    Fault(
        "M-PUB-134",
        "who shares the blocks of a request whose load failed goes on with them",
        "#49250",
        ("CC-1",),
        ((recovery, "concerned", _whose_chunk_it_was),),
        scopes=("fa4-c4", "fa4-host-missing"),
    ),
    Fault(
        "M-PUB-136",
        "recovery from a failed load knows one group: what is left is counted in its blocks, and only its keys go",
        "local-inference-lab/vllm#293",
        ("LD-5", "CC-3"),
        ((loads, "valid_prefix", _in_blocks_of_one_group), (recovery, "without_keys", _keys_of_one_group)),
        scopes=("fa4-m4-host",),
    ),
    Fault(
        "M-PUB-137",
        "the tokens that did not arrive are taken back once for each group",
        "#35223",
        ("CN-3",),
        ((outputs, "lost_tokens", _lost_in_every_group),),
        scopes=("fa4-m4-host",),
    ),
    Fault(
        "M-PUB-146",
        "the host is asked for bare tokens, whatever their context",
        "#53495",
        ("CC-1",),
        ((external, "find_suffix", _bare_tokens),),
        scopes=(
            "fa4-host-both",
            "fa4-host",
        ),
    ),
    Fault(
        "M-PUB-158",
        "events describe block j of every group by hash j and with one size",
        "#44103",
        ("IP-2",),
        ((positional, "entry_meta", _by_chunk_number),),
        scopes=("fa4-m4-n2-host",),
    ),
    Fault(
        "M-PUB-174",
        "what a lookup pinned stays pinned when its request is aborted",
        "LMCache#5006",
        ("CP-4",),
        ((external, "drop_at_finish", _pinned_for_ever),),
        scopes=(
            "fa4-m4-host",
            "m2-m4-fa8-host",
        ),
    ),
)
