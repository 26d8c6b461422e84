"""Faults that are a value of a profile field: what a release does where the sound model does otherwise (3.1)."""

from __future__ import annotations

from kvproof.spec.faults.base import Fault

FAULTS: tuple[Fault, ...] = (
    Fault(
        "M-CAP-6",
        "the row guard checks and writes group by group, so a refusal leaves the first groups written",
        "#50493",
        ("TB-11",),
        profile=("append_guard", "per_group"),
        scopes=("fa2x6", "fa4-fa4r-m4-n2"),
    ),
    Fault(
        "M-PRE-1",
        "keys registered in a plan stay when the request is taken out of it, and name states nobody computed",
        "#43569, #57580, #56525",
        ("CC-3", "COW-4"),
        profile=("withdrawn_keys", "keep"),
        scopes=("fa8-m2-n2", "fa4-m2-n4"),
    ),
    Fault(
        "M-DEM-1",
        "the predicted demand of a recurrent group is capped at one new block",
        "#46892",
        ("PC-7", "LV-9"),
        profile=("recurrent_demand", "capped"),
        scopes=("m4-m8-fa2-n2", "fa4-m4-m4-n2"),
    ),
    Fault(
        "M-TAIL-4",
        "the attention tail of a prompt is registered at its last hash boundary, which a resend may not hit",
        "before 0.32",
        ("LV-10",),
        profile=("prompt_tail", "P"),
        scopes=("fa4-m2-n4", "fa8-m2-n2"),
    ),
    Fault(
        "M-EVT-4",
        "every copy of a key that goes is announced as the key's removal",
        "#55092",
        ("EV-4", "EV-5"),
        profile=("removed_event", "each_copy"),
        scopes=("fa4-m4-n2-events", "fa8-m4-events"),
    ),
    Fault(
        "M-COW-11",
        "an attention block is copied in the step that still has to write it: only recurrent sources are guarded",
        "docs/findings/copy-source.md",
        ("COW-4", "COW-7"),
        profile=("copy_source_guard", "recurrent"),
        scopes=("fa8-m2-n2", "fa4-m2-n4"),
    ),
    Fault(
        "M-HO-6",
        "a producer publishes its copy although the key of its tail was evicted meanwhile",
        "docs/findings/unkeyed-handoff.md",
        ("HO-1",),
        profile=("publish_unkeyed", "yes"),
        scopes=("m4-m8-fa2-n2",),
    ),
    Fault(
        "M-HIT-5",
        "a second attention class is asked up to the candidate only, and misses its key just above it",
        "docs/findings/second-attention-class.md",
        ("HB-15",),
        profile=("attention_limit", "current"),
        scopes=("fa4r-fa4-m4-n2",),
    ),
    Fault(
        "M-MAM-8",
        "chunks stop at the clipping unit only, and run past the end of a larger recurrent block",
        "docs/findings/clip-stops.md",
        ("CC-3",),
        profile=("clip_stops", "clip_unit"),
        scopes=("m4-m8-fa2-n2",),
    ),
)
