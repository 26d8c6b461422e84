"""Faults in what the host tier stores: handoffs, the scan by index, tails and finishes, metadata (semantics T24 to T27)."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from kvproof.core import pool as pools
from kvproof.core.config import Config
from kvproof.core.offload import choosing, completion, finishing, handoffs, metadata, positional, tails
from kvproof.core.offload.choosing import Choice, Picked
from kvproof.core.offload.state import Host, Lists, Meta, Store, Track
from kvproof.core.pool import NO_KEY, NULL_BLOCK, Pool
from kvproof.core.world import Plan, Request, World
from kvproof.spec.faults.base import Fault

_consume = handoffs.consume
_flush = finishing.flush
_pick = positional.pick
_pick_group = positional.pick_group
_register = completion.register
_end_store = completion.end
_reserve = choosing.reserve
_scan_step = positional.scan_step

Handoff = tuple[int, int, int, int]


# --- units and kinds --------------------------------------------------------------------------------------------------


def _every_entry_scaled(config: Config, group: int) -> int:
    return config.groups[group].block_size * config.dcp_size


def _states_too(config: Config, group: int) -> bool:
    return bool(config.groups[group].prefix_cacheable)


# --- the scan ---------------------------------------------------------------------------------------------------------


def _passed_without_room(world: World, request: Request, tables: Lists, cursors: tuple[int, ...], choice: Choice) -> Picked:
    picked = _pick(world, request, tables, cursors, choice)
    for group, table in enumerate(tables):
        if positional.is_scanned(world.config, group):
            picked.cursors[group] = max(picked.cursors[group], positional.ready_entries(world, request, group, table))
    return picked


def _stored_counts_the_scan(world: World, host: Host, choice: Choice) -> Host:
    before = len(choice.blocks)
    host = _scan_step(world, host, choice)
    stored = host.counters.stored + len(choice.blocks) - before
    return evolve(host, counters=evolve(host.counters, stored=stored))


def _described_one_off(
    world: World, request: Request, group: int, table: tuple[int, ...], choice: Choice, picked: Picked
) -> None:
    """Describe every entry of the scan, skipped ones included, and let the first descriptions stand for what was picked."""
    first, before = picked.cursors[group], len(picked.blocks)
    _pick_group(world, request, group, table, choice, picked)
    metas: list[Meta] = []
    for index in range(first, picked.cursors[group]):
        block = positional.block_at(world, request, group, table[index], index, choice)
        unknown = block == NULL_BLOCK or choice.device.key_node[block] == NO_KEY
        metas.append(() if unknown else positional.entry_meta(world, request, group, index, choice, block))
    picked.metas[before:] = metas[: len(picked.blocks) - before]


# --- tails and finishes -----------------------------------------------------------------------------------------------


def _never_picked(picked: Picked, block: int) -> bool:
    del picked, block
    return False


def _never_in_flight(choice: Choice, block: int) -> bool:
    del choice, block
    return False


def _always_room(choice: Choice, picked: Picked) -> bool:
    del choice, picked
    return True


def _no_group(config: Config) -> tuple[int, ...]:
    del config
    return ()


def _as_soon_as_keyed() -> bool:
    return True


def _nothing_flushed(world: World, request: Request, track: Track, choice: Choice) -> None:
    del world, request, track, choice


def _flushed_without_pins(world: World, request: Request, track: Track, choice: Choice) -> None:
    """Queue what the request leaves behind, and let its blocks go with it."""
    before = len(choice.blocks)
    _flush(world, request, track, choice)
    choice.device = pools.release(choice.device, choice.blocks[before:])


def _no_tail_meta(world: World, request: Request, group: int) -> tuple[Meta, ...]:
    del world, request, group
    return ()


# --- handoffs ---------------------------------------------------------------------------------------------------------


def _nobody_is_gone(plan: Plan, host: Host, request: int) -> bool:
    del plan, host, request
    return False


def _not_pinned(before: Pool, after: Pool) -> Pool:
    del after
    return before


def _no_handoff_meta(handoff: Handoff) -> tuple[Meta, ...]:
    del handoff
    return ()


def _states_described_by_column(
    world: World, host: Host, choice: Choice
) -> tuple[Host, tuple[handoffs.Outcome, ...], tuple[str, ...]]:
    """Describe a state like a block of positions: its key, with the tokens of a whole block."""
    host, outcomes, notices = _consume(world, host, choice)
    if choice.meta is not None:
        stored = [(group, block) for _, group, block, _, outcome in outcomes if outcome == handoffs.STORED]
        choice.meta[:] = [((choice.device.key_node[block], world.config.sizes[group]),) for group, block in stored]
    return host, outcomes, notices


def _lazy_is_eager(config: Config) -> bool:
    del config
    return False


# --- the host's blocks ------------------------------------------------------------------------------------------------


def _given_back_unkeyed(world: World, host: Host, store: Store) -> tuple[World, Host]:
    """Give the host blocks back first, so that they stand with those that hold nothing."""
    world, ended = _end_store(world, host, store)
    return world, evolve(ended, pool=evolve(ended.pool, free=pools.release(host.pool, store.host).free))


def _keyed_when_taken(choice: Choice, blocks: Sequence[int]) -> tuple[Pool, tuple[int, ...]]:
    pool, taken = _reserve(choice, blocks)
    for block, there in zip(blocks, taken, strict=True):
        if choice.device.key_node[block] != NO_KEY:
            pool = completion.register(pool, there, completion.keys_now(choice.device, block))
    return pool, taken


def _stamped_when_taken(choice: Choice, blocks: Sequence[int]) -> tuple[Pool, tuple[int, ...]]:
    """Give the host blocks the primary keys of what they will hold, without an entry in the key map."""
    pool, taken = _reserve(choice, blocks)
    node, group, tokens = list(pool.key_node), list(pool.key_group), list(pool.key_tokens)
    for block, there in zip(blocks, taken, strict=True):
        node[there], group[there] = choice.device.key_node[block], choice.device.key_group[block]
        tokens[there] = choice.device.key_tokens[block]
    return evolve(pool, key_node=tuple(node), key_group=tuple(group), key_tokens=tuple(tokens)), taken


def _unless_stamped(pool: Pool, block: int, keys: tuple[tuple[int, int, int], ...]) -> Pool:
    """Register nothing for a block that has this very key already, as a primary (T6)."""
    known = (pool.key_node[block], pool.key_group[block])
    return _register(pool, block, tuple(key for key in keys if key[:2] != known))


FAULTS: tuple[Fault, ...] = (
    Fault(
        "M-GEO-1",
        "the host side counts blocks of bs*N tokens in every group",
        "#54736",
        ("DS-1", "LV-5"),
        ((positional, "entry_size", _every_entry_scaled),),
        scopes=("fa4-m4-w4-n2-host",),
    ),
    Fault(
        "M-STAB-1",
        "states of Mamba align are stored by index like positions",
        "#54736",
        ("HO-8", "IP-5"),
        ((positional, "is_scanned", _states_too),),
        scopes=(
            "fa4-m4+1-n2-ahead-host",
            "fa4-m4-n2-host",
            "many-n1-host",
        ),
    ),
    Fault(
        "M-TAIL-3",
        "no attention tail is stored when a request finishes",
        "#54736",
        ("LV-6",),
        ((tails, "groups", _no_group),),
        scopes=(
            "fa8-m8-h2-eagle-host",
            "fa4-m4-n2-host",
        ),
    ),
    Fault(
        "M-HO-3",
        "handoffs of requests that are gone, or were preempted in the step, are stored",
        "#54736",
        ("HO-3",),
        ((handoffs, "is_gone", _nobody_is_gone),),
        scopes=(
            "many-n1-host",
            "fa8-m8-h2-eagle-host",
        ),
    ),
    Fault(
        "M-HO-4",
        "the block of a stored handoff is not pinned",
        "src",
        ("HO-4",),
        ((handoffs, "pinned", _not_pinned),),
        scopes=(
            "fa4-m4-host",
            "fa4-m4-n2-host",
        ),
    ),
    Fault(
        "M-META-1",
        "the metadata of a stored handoff is left out of its list",
        "#54736",
        ("IP-1",),
        ((handoffs, "metas", _no_handoff_meta),),
        scopes=("fa4-m4-n2-host",),
    ),
    Fault(
        "M-META-2",
        "what events say of stored blocks is listed with the entries that the scan skipped, and shifts",
        "#54736",
        ("IP-2",),
        ((positional, "pick_group", _described_one_off),),
        scopes=(
            "fa2-n4-host-tiny",
            "fa4-m4-n2-host",
        ),
    ),
    Fault(
        "M-META-3",
        "the metadata of a stored tail is left out of its list",
        "#54736",
        ("IP-3",),
        ((tails, "metas", _no_tail_meta),),
        scopes=("fa4-m4-n2-host",),
    ),
    Fault(
        "M-META-4",
        "a stored handoff is announced with the tokens of a whole block",
        "#54736",
        ("IP-4", "EV-1"),
        ((handoffs, "consume", _states_described_by_column),),
        scopes=(
            "fa4-m4-n2-host",
            "many-n1-host",
        ),
    ),
    Fault(
        "M-DUP-1",
        "the tail of a finished request is chosen again beside the scan that chose its block",
        "#54736",
        ("HO-6",),
        ((tails, "is_picked", _never_picked),),
        scopes=(
            "fa2-m4-n4-host",
            "fa8-m8-h2-eagle-host",
        ),
    ),
    Fault(
        "M-DUP-2",
        "the tail of a finished request is chosen although a store of its block runs",
        "#54736",
        ("HO-6",),
        ((tails, "is_in_flight", _never_in_flight),),
        scopes=(
            "fa2-m4-n4-host",
            "fa8-m8-h2-eagle-host",
        ),
    ),
    Fault(
        "M-STALE-1",
        "the scan trusts the block ids it was told, whatever the window has freed since",
        "#42959, #42903",
        ("HO-10",),
        profile=("positional_ids", "accumulated"),
        scopes=(
            "fa4-w4-host",
            "fa4-m4-w4-n2-host",
        ),
    ),
    Fault(
        "M-FLUSH-1",
        "nothing is stored when a request finishes",
        "#53498, #53532",
        ("LV-5",),
        ((finishing, "flush", _nothing_flushed),),
        scopes=(
            "fa4-m4-n2-host",
            "fa4-m8-n2-host-ample",
        ),
    ),
    Fault(
        "M-REG-1",
        "a host block is stamped with its key before the copy, so that registering it does nothing",
        "#53498",
        ("LV-6",),
        ((choosing, "reserve", _stamped_when_taken), (completion, "register", _unless_stamped)),
        scopes=(
            "fa4-w4-host",
            "fa4-m8-n2-host-ample",
        ),
    ),
    Fault(
        "M-LRU-2",
        "a complete store gives its host blocks back before they get their keys",
        "ours",
        ("PC-15",),
        ((completion, "end", _given_back_unkeyed),),
        scopes=("fa4-m4-n2-host", "fa4-w4-host"),
    ),
    Fault(
        "M-CPU-1",
        "the tail of a finished request is chosen without asking for a free host block",
        "#54736",
        ("CP-7",),
        ((tails, "has_room", _always_room),),
        scopes=(
            "fa8-m8-h2-eagle-host",
            "fa4-m4-n2-host-tiny",
        ),
    ),
    Fault(
        "M-CUR-1",
        "the cursor passes blocks that the host had no room for",
        "src",
        ("LV-5",),
        ((positional, "pick", _passed_without_room),),
        scopes=("fa2-n4-host-tiny",),
    ),
    Fault(
        "M-REPLAY-1",
        "an attention tail is stored as soon as it is keyed, while its block is still written",
        "src",
        ("HO-11", "CC-4"),
        ((tails, "joins_scan", _as_soon_as_keyed),),
        scopes=(
            "fa4-m4-n2-host-tiny",
            "fa8-m8-h2-eagle-host",
        ),
    ),
    Fault(
        "M-EARLY-1",
        "a host block gets its key when it is taken, before anything is copied",
        "src",
        ("CP-2", "CP-3"),
        ((choosing, "reserve", _keyed_when_taken),),
        scopes=(
            "fa4-host",
            "fa4-m4-host",
        ),
    ),
    Fault(
        "M-RACE-1",
        "what a finished request leaves to be stored is not pinned, and is overwritten before the copy",
        "src",
        ("CC-5",),
        ((finishing, "flush", _flushed_without_pins),),
        scopes=(
            "fa4-host",
            "fa4-m4-n2-host-tiny",
        ),
    ),
    Fault(
        "M-LAZY-2",
        "lazy mode consumes handoffs",
        "#54736",
        ("CP-10",),
        ((metadata, "is_lazy", _lazy_is_eager),),
        scopes=("fa1-m4-n4-lazy",),
    ),
    Fault(
        "M-CNT-3",
        "blocks that the scan stores are counted as stored handoffs",
        "src",
        ("CN-2", "HO-5"),
        ((positional, "scan_step", _stored_counts_the_scan),),
        scopes=(
            "fa4-host",
            "fa4-w4-host",
        ),
    ),
)
