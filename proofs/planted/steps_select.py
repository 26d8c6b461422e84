"""Faulty twins of the claims about selecting blocks for storing."""

from __future__ import annotations

from kvproof.core.offload import admission, choosing, positional
from kvproof.proofs.planting import catalogued, planted

PLANTED = (
    catalogued("M-META-2", "scan_a_table_of_two"),
    planted(
        "the cursor passes what the host has no room for",
        "scan_a_table_of_two",
        at=positional,
        without_room=lambda index, ready: ready,
    ),
    planted(
        "what is being stored is picked again",
        "scan_a_table_of_two",
        at=admission,
        is_in_flight=lambda in_flight, block: False,
    ),
    planted("an unfinished block counts as ready", "scan_a_table_of_two", at=positional, ready_entries=lambda *of: 2),
    planted(
        "a null entry denotes whatever the group has",
        "scan_behind_a_window",
        at=positional,
        block_at=lambda world, request, group, block, index, choice: block or choice.device.entries[0][3],
    ),
    planted(
        "a null entry denotes nothing",
        "scan_behind_a_window",
        at=positional,
        block_at=lambda world, request, group, block, index, choice: block,
    ),
    catalogued("M-DUP-1", "select_the_tail_of_a_prompt"),
    catalogued("M-DUP-2", "select_the_tail_of_a_prompt"),
    catalogued("M-CPU-1", "select_the_tail_of_a_prompt"),
    catalogued("M-META-3", "select_the_tail_of_a_prompt"),
    catalogued("M-EVICT-1", "choose_two_blocks"),
    planted("chosen blocks are not pinned", "choose_two_blocks", at=choosing, pin=lambda device, blocks: device),
    planted(
        "the scan begins at the same place in every step",
        "a_step_is_scanned_request_by_request",
        at=positional,
        moved=lambda config, track, picked, told: track,
    ),
    planted(
        "requests that go on are scanned first",
        "a_step_is_scanned_request_by_request",
        at=positional,
        in_order=lambda world: list(world.plan.scheduled),
    ),
)
