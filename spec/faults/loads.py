"""Faults in external lookups and asynchronous loads: pins, mapping, completion, order of copies (semantics T20, T29, T30)."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import allocation, prefixes, step
from kvproof.core import pool as pools
from kvproof.core.allocation import Wanted
from kvproof.core.config import Config
from kvproof.core.offload import external, loads, transfers
from kvproof.core.offload.settings import Offload
from kvproof.core.offload.state import Host, Load, PendingHit
from kvproof.core.pool import NO_KEY, Pool
from kvproof.core.records import Record
from kvproof.core.world import Hit, Request, World
from kvproof.spec.faults.base import Fault

_check = loads.check
_check_external = step.check_external
_mapping = loads.mapping
_may_start = loads.may_start
_tell_connectors = step._tell_connectors

Lists = tuple[tuple[int, ...], ...]


# --- lookups and pins -------------------------------------------------------------------------------------------------


def _anywhere(config: Config, start: int) -> bool:
    del config, start
    return True


def _continued_anywhere(config: Config, host: Host, action: act.Allocate) -> None:
    """Check a load as if it began where its hit was looked up."""
    pending = external.pending_hit(host, action.request)
    _check(config, host, action if pending is None else evolve(action, local=pending.start))


def _loaded_anywhere(config: Config, hit: Hit, action: act.Allocate) -> None:
    """Check synchronous external tokens only."""
    if not action.load:
        _check_external(config, hit, action)


def _as_the_device(config: Config) -> Config:
    return config


def _stale_stays(host: Host, request: int) -> Host:
    del request
    return host


def _not_held(host: Host, pending: PendingHit) -> Host:
    return evolve(host, pending=(*host.pending, pending))


def _nothing_to_give_back(host: Host, request: int) -> Host:
    return external.without_pending(host, request)


def _held_at_last(pool: Pool, chosen: tuple[int, ...], pinned: tuple[int, ...]) -> Pool:
    del pinned
    return pools.touch(pool, chosen)


def _whole_lists(config: Config, hit: Hit, local: int) -> Lists:
    del config, local
    return hit.lists


# --- mapping ----------------------------------------------------------------------------------------------------------


def _whole_blocks(size: int, accepted: int) -> int:
    return accepted // size


def _scheduler_blocks(world: World, request: Request, pending: PendingHit) -> int:
    del request
    return pending.start // world.config.scheduler_block_size


def _as_it_is(size: int, start: int) -> int:
    del size
    return start


def _behind_keyed_blocks(world: World, request: Request, pending: PendingHit, accepted: int) -> loads.Pairs:
    """Let attention begin behind the blocks that are keyed on the device, whoever has them, where the table has room."""
    config, pairs = world.config, []
    for group, column, device, block in _mapping(world, request, pending, accepted):
        table, size = request.groups[group].table, config.sizes[group]
        if group in config.positional:
            column += keyed_prefix(world, request, group) // size - pending.start // size
            if not 0 <= column < len(table):
                continue
            device = table[column]
        pairs.append((group, column, device, block))
    return tuple(pairs)


def keyed_prefix(world: World, request: Request, group: int) -> int:
    """Return the tokens of a request's leading whole blocks that the device has keys of in a group."""
    size, end = world.config.sizes[group], 0
    while end + size < request.num_tokens:
        node = prefixes.ancestor(world.prefixes, request.tip, end + size)
        if pools.find(world.pool, node, group) == NO_KEY:
            break
        end += size
    return end


def _any_part(config: Config, accepted: int, found: int) -> bool:
    del config
    return 0 < accepted <= found


def _null_too(block: int) -> bool:
    del block
    return True


# --- while it runs ----------------------------------------------------------------------------------------------------


def _registered_at_once(wanted: Wanted) -> bool:
    del wanted
    return True


def _no_destinations(world: World) -> frozenset[int]:
    del world
    return frozenset()


def _never_waits(load: Load) -> bool:
    del load
    return False


def _always_waits(load: Load) -> bool:
    del load
    return True


def _starts_for_the_living(world: World, load: Load) -> bool:
    """What waits of a finished request is taken for running: it is never started, and waits for its report."""
    return not load.finished and _may_start(world, load)


# --- counters ---------------------------------------------------------------------------------------------------------


def _hits_as_offered(world: World, request: Request, action: act.Allocate, record: Record) -> tuple[World, Record]:
    offered = None if world.host is None else external.pending_hit(world.host, request.request)
    world, record = _tell_connectors(world, request, action, record)
    return world, record if offered is None else evolve(record, hits=offered.length)


def _counted_at_once(load: Load) -> int:
    return len(load.device)


def _counted_never(load: Load) -> int:
    del load
    return 0


# --- the worker -------------------------------------------------------------------------------------------------------


def _before_the_forward(offload: Offload) -> str:
    del offload
    return "zero"


FAULTS: tuple[Fault, ...] = (
    Fault(
        "M-LOAD-1",
        "a load takes e / E blocks of a group, in exact division",
        "#54736",
        ("LD-1",),
        ((loads, "blocks_taken", _whole_blocks),),
        scopes=(
            "fa4-m4-n2-host",
            "fa2-m4-n4-host",
        ),
    ),
    Fault(
        "M-LOAD-2",
        "the first column of a load is counted in scheduler blocks",
        "#54736",
        ("LD-1",),
        ((loads, "local_prefix", _scheduler_blocks), (loads, "first_column", _as_it_is)),
        scopes=(
            "fa4-m4-n2-host",
            "fa2-m4-n4-host",
        ),
    ),
    Fault(
        "M-LOAD-3",
        "the local prefix of a load is told by the keys on the device and not by the lookup that found it",
        "#54736",
        ("LD-3",),
        ((loads, "mapping", _behind_keyed_blocks),),
        scopes=(
            "fa4-m4-n2-host-tiny",
            "fa2-m4-n4-host",
        ),
    ),
    Fault(
        "M-LOAD-4",
        "less than the hit is loaded, its leading blocks, also where a group needs the last ones",
        "src",
        ("LD-5",),
        ((loads, "may_take", _any_part),),
        scopes=(
            "fa8-m8-h2-eagle-host",
            "fa4-m4-w4-n2-host",
            "fa2-m4-n4-host",
        ),
    ),
    Fault(
        "M-LOAD-5",
        "a request that finishes while its load runs frees its blocks at once",
        "src",
        ("LD-7",),
        ((loads, "must_wait", _never_waits),),
        scopes=(
            "fa4-host-both",
            "fa4-m4-host",
        ),
    ),
    Fault(
        "M-LOAD-6",
        "a load that was never issued counts as running when its request is aborted",
        "src",
        ("LV-3",),
        ((loads, "must_wait", _always_waits), (loads, "may_start", _starts_for_the_living)),
        scopes=("fa4-ahead-host-hold",),
    ),
    Fault(
        "M-LOAD-7",
        "null entries of a hit are loaded",
        "src",
        ("LD-4",),
        ((loads, "is_copied", _null_too),),
        scopes=(
            "fa4-m4-n2-host-tiny",
            "m2-m4-fa8-host",
        ),
    ),
    Fault(
        "M-MIS-1",
        "the host is looked up, and loaded from, behind a local prefix that ends inside a scheduler block",
        "#54736",
        ("CP-6", "LD-2"),
        (
            (external, "starts_aligned", _anywhere),
            (loads, "check", _continued_anywhere),
            (step, "check_external", _loaded_anywhere),
        ),
        scopes=("fa4-x4-m4-n2-host", "fa4-m4-n2-host", "fa4-host-both"),
    ),
    Fault(
        "M-LAZY-1",
        "lazy mode leaves fine-grained hits on, although nobody stores attention tails",
        "#54736",
        ("HB-8",),
        ((external, "host_view", _as_the_device),),
        scopes=("fa4-m4-w2-lazy",),
    ),
    Fault(
        "M-PIN-1",
        "what a lookup found is not held until the load touches it",
        "src",
        ("CP-5",),
        (
            (external, "pin", _not_held),
            (external, "unpin", _nothing_to_give_back),
            (loads, "exchange_pins", _held_at_last),
        ),
        scopes=(
            "fa4-host",
            "fa2-m4-n4-host",
        ),
    ),
    Fault(
        "M-LEAK-2",
        "a new lookup keeps what the last one pinned",
        "src",
        ("CP-1", "CP-4", "PC-10"),
        ((external, "drop_stale", _stale_stays),),
        scopes=(
            "fa4-lazy",
            "fa2-n4-host-tiny",
        ),
    ),
    Fault(
        "M-EARLY-2",
        "what is to be loaded is keyed when it is allocated, before it is there",
        "src",
        ("LD-6", "CC-1", "CC-4"),
        ((allocation, "registers_now", _registered_at_once),),
        scopes=("fa4-m4-n2-host", "fa4-host-both"),
    ),
    Fault(
        "M-TAIL-2",
        "the blocks of a local tail are adopted although external tokens take its place, and are loaded over",
        "src",
        ("CC-6",),
        ((step, "adopted_lists", _whole_lists),),
        scopes=(
            "fa4-m4-n2-host",
            "fa2-m4-n4-host",
        ),
    ),
    Fault(
        "M-ZERO-1",
        "what a load fills is zeroed like any new block",
        "src",
        ("LD-8",),
        ((loads, "destinations", _no_destinations),),
        scopes=(
            "fa4-m4-host",
            "m2-m4-fa8-host",
        ),
    ),
    Fault(
        "M-ORD-1",
        "stores begin with their step and are not ordered behind its forward",
        "#45704, #39306",
        ("CC-5",),
        ((transfers, "store_part", _before_the_forward),),
        scopes=(
            "fa4-host",
            "fa4-m4-host",
        ),
    ),
    Fault(
        "M-CNT-4",
        "external hits are counted as they were offered",
        "src",
        ("CN-3",),
        ((step, "_tell_connectors", _hits_as_offered),),
        scopes=(
            "fa4-x4-m4-n2-host",
            "fa4-m4-w4-host-ample",
        ),
    ),
    Fault(
        "M-CNT-5",
        "loaded blocks are counted when a load is asked for",
        "src",
        ("CN-4",),
        ((loads, "counted_when_asked", _counted_at_once), (loads, "counted_when_complete", _counted_never)),
        scopes=(
            "fa4-host",
            "fa2-n4-host-tiny",
        ),
    ),
)
