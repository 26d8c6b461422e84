"""Faults in steps in flight: late outputs and what is counted of them (semantics T31, T36, T37)."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import outputs, requests
from kvproof.core.world import Request, Scheduled, World
from kvproof.spec.faults.base import Fault

_lower_in_flight = outputs.lower_in_flight


def _late_ones_stay(request: Request, amount: int, late: bool) -> Request:
    after = _lower_in_flight(request, amount, late)
    return evolve(after, in_flight=request.in_flight) if late else after


def _never_stale(request: Request) -> bool:
    del request
    return False


def _worker_is_not_told(world: World, entry: Scheduled, delivered: int) -> World:
    del entry, delivered
    return world


def _nothing_owed(request: Request) -> bool:
    del request
    return False


FAULTS: tuple[Fault, ...] = (
    Fault(
        "M-INF-1",
        "late outputs do not lower the tokens in flight",
        "src",
        ("RQ-1",),
        ((outputs, "lower_in_flight", _late_ones_stay),),
        scopes=("fa1-m4+3-n4-async", "fa4-ahead-defer"),
    ),
    Fault(
        "M-LATE-1",
        "the output of a step that was dispatched before a preemption is processed like any other",
        "#49620",
        ("RQ-2",),
        ((outputs, "is_stale", _never_stale),),
        scopes=("fa2-st4-n2-eagle-ahead", "fa4-d4r-m4+1-n2-eagle-async"),
    ),
    Fault(
        "M-LATE-2",
        "a request is resumed before the late output that it is to deliver has arrived",
        "#49620",
        ("RQ-4",),
        ((requests, "owes_late_output", _nothing_owed),),
        scopes=("fa1-m2+1-w4-n4-draft1", "fa4-d4r-m4+1-n2-eagle-async"),
    ),
    Fault(
        "M-LATE-3",
        "a late output does not tell the worker which drafts were kept, and a step in flight goes on from another state",
        "ours (C-85)",
        ("CC-2",),
        ((outputs, "count_late", _worker_is_not_told),),
        scopes=("fa1-m4+3-n4-async", "fa4-d4r-m4+1-n2-eagle-async"),
    ),
)
