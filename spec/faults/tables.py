"""Faults in the worker's block-table rows (semantics 2.5, 3.6, T0 part 7)."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import plans, worker
from kvproof.core.config import Config
from kvproof.core.records import Record
from kvproof.core.world import Request, Worker, World
from kvproof.spec.faults.base import Fault

_dispatch = plans.dispatch


def _no_check(config: Config, group: int, row: int, start: int, blocks: tuple[int, ...]) -> None:
    del config, group, row, start, blocks


def _count_before_expansion(config: Config, count: int) -> int:
    del config
    return count


def _dispatch_writes_back(world: World) -> tuple[World, Record]:
    world, record = _dispatch(world)
    rows = {entry.request: entry.row for entry in world.steps[-1].scheduled}
    requests = tuple(
        _with_row(request, world.worker, rows[request.request]) if request.request in rows else request
        for request in world.requests
    )
    return evolve(world, requests=requests), record


def _with_row(request: Request, rows: Worker, row: int) -> Request:
    groups = tuple(evolve(state, table=rows.rows[group][row]) for group, state in enumerate(request.groups))
    return evolve(request, groups=groups)


FAULTS: tuple[Fault, ...] = (
    Fault(
        "M-TBL-1",
        "the expanded kernel block ids of the worker's row replace the manager's own table",
        "src",
        ("TB-1",),
        ((plans, "dispatch", _dispatch_writes_back),),
        scopes=("m4-fa4", "fa4-m4-m4-n2"),
    ),
    Fault(
        "M-CAP-1",
        "block ids are appended to a worker's row without comparing with its capacity",
        "#50493",
        ("TB-11",),
        ((worker, "check_capacity", _no_check),),
        scopes=("m4-fa4", "fa2x6"),
    ),
    Fault(
        "M-CAP-2",
        "the capacity check counts manager blocks although the row holds kernel blocks",
        "#50493",
        ("TB-11",),
        ((worker, "expanded_count", _count_before_expansion),),
        scopes=("fa4-m4-m4-n2", "m4-fa4"),
    ),
)
