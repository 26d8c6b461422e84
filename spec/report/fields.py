"""What the numbers in an answer are: the fields of a record that are tuples, in a few words, for readers of a report."""

from __future__ import annotations

from collections.abc import Iterable

MEANINGS: dict[str, str] = {
    "lists": "hit blocks, a list for each group; 0 is the null block",
    "junction": "the longest hit that some group had alone, in tokens",
    "demand": "blocks that are wanted; more than the pool has where a rule puts the request off to a later step",
    "free_before": "free blocks when the demand was compared",
    "new_blocks": "entries that were appended or replaced, a list for each group",
    "external_blocks": "blocks taken for external tokens, a list for each group",
    "taken": "blocks that left the free queue, in their order",
    "relocated": "(group, block, old column, new column)",
    "adopted": "blocks of the hit that are held now, by the table of the request or by the copy that it is owed",
    "copies": "(group, source block, destination block) that the step copies",
    "handoffs": "(request, group, block, boundary in tokens): states that were published to be stored",
    "zeroed": "blocks that the step zeroes first",
    "scheduled": "(request, tokens) of the step",
    "preempted": "requests that were preempted in the plan",
    "reads": "(request, group, column, block, boundary in tokens that is to stand there) of each recurrent state that was read",
    "branches": "(request, first token, then for each rank 1 if it attends to earlier tokens)",
    "local_lengths": "(request, tokens at the end of the step, then how many of them lie on each rank)",
    "tails": "(group, block, boundary in tokens) that a connector would take over",
    "events": "what a key map announced, as what(group, prefix node)",
    "pairs": "(group, column, device block, host block) of each copy of a load",
    "destinations": "device blocks that an asynchronous load fills",
    "store_device": "device blocks that are stored",
    "store_host": "the host blocks that they go to, in the same order",
    "store_meta": "for each of these blocks (prefix node, tokens) of its announced keys; empty for states and tails",
    "outcomes": "(request, group, block, boundary in tokens, what became of it) of each handoff",
    "load_device": "device blocks that are loaded",
    "load_host": "the host blocks that they come from, in the same order",
    "load_requests": "requests of the load",
    "offered": "tables that connectors are given, a list for each group",
    "counters": "counts since the last reading",
    "external": "tokens of the hit on the host",
    "queries": "tokens that were not hit on the device",
    "hits": "external tokens that were accepted",
}
"""Fields that say nothing by themselves; (a, b) is one entry of a list."""


def used(answers: Iterable[str]) -> list[tuple[str, str]]:
    """Return the fields that occur in answers, with what they mean, in the order of ``MEANINGS``."""
    text = " ".join(answers)
    words = set(text.replace(",", " ").replace(";", " ").split())
    return [(name, meaning) for name, meaning in MEANINGS.items() if name in words]
