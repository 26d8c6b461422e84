"""Faulty twins of the claims about prefixes, hits and capabilities that are combined, and lists that run in parallel."""

from __future__ import annotations

from kvproof.core import connectors, lookup, prefixes
from kvproof.core.connectors import Connector
from kvproof.core.offload import admission, completion, handoffs, metadata
from kvproof.core.prefixes import Prefixes
from kvproof.proofs.planting import planted

_extend = prefixes.extend


def _always_new(table: Prefixes, tip: int, tokens: tuple[int, ...]) -> tuple[Prefixes, int]:
    """Append tokens although they are known."""
    token_of = (*table.token, *tokens)
    first = len(table.parent)
    chain = range(first, first + len(tokens))
    depth = table.depth[tip] + 1 if tip >= 0 else 0
    depths = (*table.depth, *(depth + at for at in range(len(tokens))))
    return Prefixes((*table.parent, tip, *chain[:-1]), token_of, depths, (*table.run, *chain), table.branches), chain[-1]


def _without_context(table: Prefixes, context: int) -> tuple[Prefixes, int]:
    """Return one root for all contexts."""
    del context
    return _extend(table, -1, (0,))


def _any_child_can(connector: Connector) -> bool:
    """Ask for one child that can."""
    return any(child.name in connectors.NIXL for child in connector.children)


PLANTED = (
    planted("known prefixes are appended again", "equal_prefixes_are_one_node", at=prefixes, extend=_always_new),
    planted("one root for all contexts", "different_prefixes_are_different_nodes", at=prefixes, root=_without_context),
    planted(
        "a new token takes the last node", "a_node_never_changes", at=prefixes, extend=lambda table, tip, tokens: (table, 1)
    ),
    planted(
        "ancestors found by counting ids back",
        "ancestors_are_the_shorter_prefixes",
        at=prefixes,
        ancestor=lambda table, node, depth: node - (table.depth[node] - depth),
    ),
    planted(
        "the chain begins at the first token",
        "the_hash_chain_has_a_node_per_unit",
        at=prefixes,
        boundary_nodes=lambda table, node, unit: prefixes.path(table, node, 0, table.depth[node])[::unit],
    ),
    planted("the greater candidate wins", "a_candidate_is_only_lowered", at=lookup, reconcile=max),
    planted(
        "some class is no deeper",
        "divergence_needs_full_attention_to_be_deepest",
        at=lookup,
        none_is_deeper=lambda hits, deepest: min(hits) <= deepest,
    ),
    planted("one that can is enough", "several_connectors_can_only_what_all_can", at=lookup, supports_divergence=any),
    planted(
        "one child that can is enough",
        "a_multi_connector_asks_its_children",
        at=connectors,
        supports_divergent_hits=_any_child_can,
    ),
    planted(
        "a tail goes for as many external tokens",
        "external_tokens_replace_a_tail_only_if_they_reach_further",
        at=lookup,
        replaces_tail=lambda tail, external: external >= tail,
    ),
    planted(
        "blocks on their way are stored again",
        "a_candidate_gets_the_first_answer_that_applies",
        at=admission,
        is_in_flight=lambda in_flight, block: False,
    ),
    planted(
        "handoffs in the order of their requests' numbers", "handoffs_go_request_by_request", at=handoffs, by_request=sorted
    ),
    planted(
        "only finished requests are gone",
        "a_request_is_gone_if_it_gave_its_blocks_up",
        at=handoffs,
        is_gone=lambda plan, host, request: any(track.request == request and track.finished for track in host.tracks),
    ),
    planted(
        "finished requests first",
        "what_events_say_stands_as_the_blocks_do",
        at=metadata,
        merged=lambda chosen, queued: (*(meta for left in queued for meta in left.meta or ()), *chosen),
    ),
    planted("lists are not checked", "lists_of_a_store_have_one_length", at=completion, check_parallel=lambda store: None),
    planted(
        "only the primary is copied",
        "the_keys_of_a_stored_block_come_primary_first",
        at=completion,
        keys_now=lambda device, block, keys=completion.keys_now: keys(device, block)[:1],
    ),
)
