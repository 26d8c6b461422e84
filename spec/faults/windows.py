"""Faults in windows: which entries are nulled, when, and how many blocks the admission gate counts (semantics 2.8, T16)."""

from __future__ import annotations

from kvproof.core import allocation, geometry
from kvproof.core.allocation import Wanted
from kvproof.core.config import Group
from kvproof.core.kinds import full_attention, positional, sliding_window
from kvproof.core.work import Work
from kvproof.core.world import GroupState, Request
from kvproof.spec.faults.base import Fault


def _nulled_behind_some_window(work: Work, group: int, state: GroupState, processed: int) -> GroupState:
    """Null full attention as the sliding window group of the model is nulled."""
    widths = [spec.window for spec in work.config.groups if spec.kind == "sliding_window" and spec.window is not None]
    if not widths:
        return state
    return positional.null_skipped(work, group, state, geometry.skipped_tokens_window(processed, min(widths)))


def _flight_taken_for_done(request: Request, wanted: Wanted) -> int:
    del request
    return wanted.local + wanted.external


def _whole_sequence(spec: Group, in_flight: int, max_model_len: int) -> int | None:
    del spec, in_flight, max_model_len
    return None


FAULTS: tuple[Fault, ...] = (
    Fault(
        "M-TBL-2",
        "entries behind a window are nulled in full attention groups too",
        "src",
        ("TB-3", "CC-1"),
        ((full_attention, "null_skipped", _nulled_behind_some_window),),
        scopes=("fa4-w4", "fa2-c4-w4"),
    ),
    Fault(
        "M-WIN-1",
        "windows are nulled up to the tokens counted as computed, although a step in flight still reads what lies before",
        "src",
        ("TB-5", "CC-1"),
        ((allocation, "processed_tokens", _flight_taken_for_done),),
        scopes=("w4-fa4-w8-eagle-async", "many-n1"),
    ),
    Fault(
        "M-WIN-2",
        "the admission gate counts a block for every token of a windowed group and not for those it holds at a time",
        "#39734",
        ("LV-8",),
        ((sliding_window, "admission_cap", _whole_sequence),),
        scopes=("fa4-w4-gate",),
    ),
)
