"""Faults in completions, resets, counters and what is still to be stored (semantics T28, T34, 5.12)."""

from __future__ import annotations

from attrs import evolve

from kvproof.core.config import Config
from kvproof.core.offload import completion, counters, reset, tracks
from kvproof.core.offload.state import Counters, Host, Queued, Store, Track
from kvproof.core.pool import NO_KEY
from kvproof.core.records import Record
from kvproof.core.world import World
from kvproof.spec.faults.base import Fault

_counted = counters.counted
_reset = reset.reset


# --- completion -------------------------------------------------------------------------------------------------------


def _any_worker(config: Config, store: Store) -> bool:
    del config, store
    return True


def _never_done(track: Track) -> bool:
    del track
    return False


def _no_device_blocks(store: Store) -> tuple[int, ...]:
    del store
    return ()


# --- resets -----------------------------------------------------------------------------------------------------------


def _numbers_start_again(host: Host) -> int:
    del host
    return 0


def _nothing_undrained(host: Host) -> Counters:
    del host
    return Counters()


def _reset_beside_the_queue(world: World, host: Host) -> tuple[World, Record]:
    """Leave queued stores alone, and call the reset done all the same."""
    world, record = _reset(world, evolve(host, queued=()))
    after = world.host
    if after is None or not host.queued or not reset.may_clear(after):
        return world, record
    none = (NO_KEY,) * len(after.pool.ref)
    pool = evolve(after.pool, key_node=none, key_group=none, key_tokens=none, entries=())
    return evolve(world, host=evolve(after, pool=pool, queued=host.queued)), evolve(record, done=True)


# --- counters ---------------------------------------------------------------------------------------------------------


def _full_is_not_counted(outcome: str, amount: int) -> int:
    return 0 if outcome == "dropped_cpu_full" else _counted(outcome, amount)


def _no_queue(host: Host) -> tuple[Queued, ...]:
    del host
    return ()


def _nothing_waits(host: Host) -> bool:
    del host
    return False


def _not_given(host: Host, kind: str) -> bool:
    del host, kind
    return False


FAULTS: tuple[Fault, ...] = (
    Fault(
        "M-ACK-1",
        "a store is complete with the report of its first worker",
        "src",
        ("CP-9",),
        ((completion, "is_complete", _any_worker),),
        scopes=(
            "fa4-lazy",
            "fa2-n4-host-tiny",
        ),
    ),
    Fault(
        "M-LEAK-1",
        "an abandoned store keeps its device blocks for ever",
        "src",
        ("LV-2", "PC-3", "PC-10"),
        ((completion, "abandoned_device", _no_device_blocks),),
        scopes=(
            "fa4-host",
            "fa4-m4-n2-host-tiny",
        ),
    ),
    Fault(
        "M-LEAK-3",
        "a finished request whose stores were running is remembered for ever",
        "src",
        ("LV-4",),
        ((tracks, "is_done", _never_done),),
        scopes=(
            "fa4-m4-host",
            "fa4-m4-n2-host",
        ),
    ),
    Fault(
        "M-RST-1",
        "a reset starts the numbers of store events again",
        "src",
        ("CP-11",),
        ((reset, "next_event", _numbers_start_again),),
        scopes=(
            "fa4-host",
            "fa4-host-both",
        ),
    ),
    Fault(
        "M-RST-2",
        "a reset is done although stores of finished requests are queued and hold blocks",
        "src",
        ("CP-12",),
        ((reset, "reset", _reset_beside_the_queue),),
        scopes=("many-n1-host",),
    ),
    Fault(
        "M-CNT-1",
        "a handoff dropped for a full host pool is published and counted nowhere else",
        "#54736",
        ("HO-5",),
        ((counters, "counted", _full_is_not_counted),),
        scopes=(
            "fa4-m4-n2-host-tiny",
            "fa4-m4-n2-host",
        ),
    ),
    Fault(
        "M-CNT-2",
        "a reset drops what was counted and not read yet",
        "src",
        ("CN-1",),
        ((reset, "restarted", _nothing_undrained),),
        scopes=(
            "fa4-m4-host",
            "fa8-m8-h2-eagle-host",
        ),
    ),
    Fault(
        "M-CNT-6",
        "the gauge of pending stores leaves out those that finished requests queued",
        "src",
        ("CN-5",),
        ((counters, "queued", _no_queue),),
        scopes=(
            "fa4-host-both",
            "fa4-m4-n2-host",
        ),
    ),
    Fault(
        "M-CNT-7",
        "a notice is given every time",
        "src",
        ("CN-6",),
        ((counters, "given", _not_given),),
        scopes=(
            "fa4-m4-n2-host-tiny",
            "many-n1-host",
        ),
    ),
    Fault(
        "M-FLUSH-2",
        "a queued store of a finished request does not count as pending work",
        "src",
        ("LV-7",),
        ((counters, "awaits_step", _nothing_waits),),
        scopes=(
            "fa2-m4-n4-host",
            "fa4-ahead-host-hold",
        ),
    ),
)
