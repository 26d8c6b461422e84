"""Faulty twins of the claims about events."""

from __future__ import annotations

from kvproof.core import events
from kvproof.core import pool as pools
from kvproof.core.offload import completion
from kvproof.proofs.planting import catalogued, planted

_payload = events.payload

PLANTED = (
    catalogued("M-EVT-1", "a_payload_reaches_back_to_the_key_before"),
    catalogued("M-PUB-8", "a_payload_reaches_back_to_the_key_before"),
    catalogued("M-EVT-3", "a_parent_is_where_the_payload_begins", "a_stored_event_names_its_tokens_and_its_parent"),
    planted(
        "the tokens behind the boundary's start",
        "a_payload_is_the_last_tokens_before_its_boundary",
        "a_stored_event_names_its_tokens_and_its_parent",
        at=events,
        payload=lambda table, node, boundary, size: _payload(table, node, boundary, boundary)[:size],
    ),
    planted(
        "partial keys are announced with a hash block",
        "a_payload_reaches_back_to_the_key_before",
        at=events,
        partial_size=lambda config, group, boundary: config.hash_block_size,
    ),
    planted(
        "every copied key has a payload",
        "an_event_without_payload_names_its_key_alone",
        at=events,
        event=lambda table, tables, note, medium, event=events.event: event(
            table, tables, (*note[:4], note[3], note[1]) if len(note) > 4 else note, medium
        ),
    ),
    planted(
        "a copied key is announced with the tokens before itself",
        "a_copied_event_has_the_tokens_that_were_captured",
        at=events,
        event=lambda table, tables, note, medium, event=events.event: event(table, tables, (*note[:5], note[1]), medium),
    ),
    planted("each copy that goes is announced", "a_key_is_removed_with_its_last_block", at=events, is_said=lambda *of: True),
    planted(
        "events are announced in the opposite order",
        "both_tiers_announce_in_their_order",
        at=events,
        announce=lambda config, table, notes, medium, announce=events.announce: announce(config, table, notes[::-1], medium),
    ),
    planted(
        "the last key is announced with the tokens of the entry always",
        "a_copied_key_is_announced_with_its_own_tokens",
        at=completion,
        payload_end=lambda config, group, meta, node: meta[-1][0] if meta else node,
    ),
    planted(
        "payloads are not compared with what was captured",
        "what_was_captured_in_another_size_has_no_payload",
        at=completion,
        notes=lambda config, keys, meta: tuple((pools.COPIED, node, group, 8, 8, node) for node, group, _ in keys),
    ),
)
