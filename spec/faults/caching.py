"""Faults in keys, their registration, lookups and publications (semantics T4 to T11, T23)."""

from __future__ import annotations

from bisect import bisect_left

from attrs import evolve

from kvproof.core import allocation, lookup, plans, requests, retention
from kvproof.core import pool as pools
from kvproof.core.actions import Submit
from kvproof.core.kinds import caching, full_attention, scratch
from kvproof.core.pool import NO_KEY, Pool
from kvproof.core.work import Work
from kvproof.core.world import GroupState, Plan
from kvproof.spec.faults.base import Fault

_owe_private_copy = allocation.owe_private_copy
_register = allocation.register
_move = pools.move
_tail_boundaries = full_attention.tail_boundaries
_full_entries = caching.full_entries


def _count_not_lowered(state: GroupState, index: int, block: int) -> GroupState:
    return evolve(_owe_private_copy(state, index, block), num_cached=state.num_cached)


def _rounded_to_the_hash_block(work: Work, states: allocation.States, tokens: int) -> None:
    if work.config.fine_grained:
        tokens -= tokens % work.config.hash_block_size
    _register(work, states, tokens)


def _primary_forgotten(pool: Pool, block: int) -> Pool:
    """Forget what the block stood for and leave its keys in the map."""
    return Pool(
        pool.ref,
        _without(pool.key_node, block),
        _without(pool.key_group, block),
        _without(pool.key_tokens, block),
        pool.free,
        pool.entries,
        pool.next_seq,
        pool.notes,
    )


def _without(values: tuple[int, ...], block: int) -> tuple[int, ...]:
    return (*values[:block], NO_KEY, *values[block + 1 :])


def _known_keys_removed(pool: Pool, block: int) -> Pool:
    """Remove the keys the block knows of: its primary and what came after it. Those left behind earlier stay."""
    if pool.key_node[block] == NO_KEY:
        return pool
    primary = (pool.key_node[block], pool.key_group[block])
    since = max(entry[2] for entry in pool.entries if entry[3] == block and entry[:2] == primary)
    kept = tuple(entry for entry in pool.entries if entry[3] != block or entry[2] < since)
    return evolve(_primary_forgotten(pool, block), entries=kept)


def _partial_entry_replaces(pool: Pool, node: int, group: int, block: int, tokens: int) -> Pool:
    if pools.holds(pool, node, group, block) and pool.key_tokens[block] == tokens:
        return pool
    return pools.insert(pools.clear_for_promotion(pool, block), node, group, block, tokens)


def _node_by_block_index(work: Work, group: int, boundary: int) -> int:
    return work.nodes[boundary // work.config.sizes[group]]


def _tokens_lost(pool: Pool, source: int, destination: int) -> Pool:
    pool = _move(pool, source, destination)
    return evolve(pool, key_tokens=_without(pool.key_tokens, destination))


def _always(block: int) -> bool:
    del block
    return True


def _found_in_any_group(pool: Pool, node: int, group: int) -> int:
    del group
    at = bisect_left(pool.entries, (node,))
    if at < len(pool.entries) and pool.entries[at][0] == node:
        return pool.entries[at][3]
    return NO_KEY


def _no_context(action: Submit) -> int:
    del action
    return 0


def _whole_request(num_tokens: int) -> int:
    return num_tokens


def _tail_without_its_end(work: Work, group: int, tokens: int) -> tuple[int, ...]:
    """Leave the prompt tail out where the cacheable tokens end with it."""
    return tuple(boundary for boundary in _tail_boundaries(work, group, tokens) if boundary < tokens)


def _last_entry_left_out(work: Work, group: int, tokens: int) -> int:
    """Count an entry as full only if a token lies behind it."""
    return _full_entries(work, group, max(tokens - 1, 0))


def _every_chunk_end(work: Work, group: int, tokens: int) -> tuple[int, ...]:
    boundaries = _tail_boundaries(work, group, tokens)
    if tokens % work.config.hash_block_size or tokens % work.config.sizes[group] == 0 or tokens in boundaries:
        return boundaries
    return (*boundaries, tokens)


def _scratch_registered(work: Work, group: int, state: GroupState, tokens: int) -> GroupState:
    start, stop = max(state.num_cached, 0), min(caching.full_entries(work, group, tokens), len(state.table))
    if work.config.sizes[group] % work.config.hash_block_size or start >= stop:
        return state
    caching.register_full(work, group, state.table, start, stop, retention.attention_mask)
    return evolve(state, num_cached=stop)


def _all_stay(plan: Plan) -> tuple[tuple[int, int, int, int], ...]:
    return plan.handoffs


def _kept_handoffs(plan: Plan, request: int) -> Plan:
    del request
    return plan


def _registrations_stay(previous: Plan) -> Plan:
    return Plan(cached=previous.cached)


FAULTS: tuple[Fault, ...] = (
    Fault(
        "M-CACHE-1",
        "adopting a hit that ends inside a block leaves that block counted as registered",
        "src",
        ("TB-14",),
        ((allocation, "owe_private_copy", _count_not_lowered),),
        scopes=("fa8-m2-n2", "fa4-m2-n4"),
    ),
    Fault(
        "M-CACHE-2",
        "with fine-grained hits the cacheable tokens are rounded down to the hash block: a running state is keyed again",
        "src",
        ("CC-3",),
        ((allocation, "register", _rounded_to_the_hash_block),),
        scopes=("fa2-m8", "m4-m8-fa2-n2"),
    ),
    Fault(
        "M-PROMO-1",
        "registering a block for more tokens leaves its old key in the map, even when the block is evicted",
        "src",
        ("HB-5",),
        ((pools, "clear_for_promotion", _primary_forgotten), (pools, "remove_all", _known_keys_removed)),
        scopes=("fa1-m2-m4-n4", "fa4-fa4r-m4-n2"),
    ),
    Fault(
        "M-PROMO-2",
        "registering a boundary replaces what the block stood for without asking that it stands for more tokens",
        "src",
        ("HB-7",),
        ((pools, "insert_partial", _partial_entry_replaces),),
        scopes=("fa4-m4-n2", "fa2-m4-n4"),
    ),
    Fault(
        "M-HASH-1",
        "the hash of a partial entry is taken by block index and not by hash-block index",
        "src",
        ("HB-3",),
        ((caching, "partial_node", _node_by_block_index),),
        scopes=("fa8-m2-n2", "fa4-fa4r-m4-n2"),
    ),
    Fault(
        "M-HASH-2",
        "moving keys to another block loses how many tokens the primary stands for",
        "src",
        ("HB-4", "HO-1"),
        ((pools, "move", _tokens_lost),),
        scopes=("fa2-m8", "m4-m8-fa2-n2"),
    ),
    Fault(
        "M-NULL-1",
        "the null block is registered like any other",
        "src",
        ("HB-6",),
        ((caching, "registrable", _always),),
        scopes=("fa4-m4-n2", "fa8-m2-n2"),
    ),
    Fault(
        "M-HIT-1",
        "a hit may cover the whole request and leave no token to compute",
        "#44599, #51094",
        ("HB-9",),
        ((lookup, "longest_hit", _whole_request),),
        scopes=("fa2x6", "fa1-m2-m4-n4"),
    ),
    Fault(
        "M-KEY-1",
        "keys lack the group: one group's block answers another group's lookup",
        "src",
        ("PC-11",),
        ((pools, "find", _found_in_any_group),),
        scopes=("fa4-m4", "fa2-m4-n4"),
    ),
    Fault(
        "M-KEY-2",
        "keys lack the context (adapter, multimodal input, salt)",
        "src",
        ("TB-9", "CC-1"),
        ((requests, "context_of", _no_context),),
        scopes=("fa8-m2-n2", "fa2-n4"),
    ),
    Fault(
        "M-PART-1",
        "every hash boundary at which a chunk ends becomes a partial attention entry",
        "src",
        ("HB-13",),
        ((full_attention, "tail_boundaries", _every_chunk_end),),
        scopes=("fa4-m4-n2", "fa8-m2-n2"),
    ),
    Fault(
        "M-KEY-3",
        "a prompt tail that ends with what is computed gets no key",
        "ours",
        ("HB-18",),
        ((full_attention, "tail_boundaries", _tail_without_its_end),),
        scopes=("fa8-m2-n2", "fa4-m4-n2"),
    ),
    Fault(
        "M-KEY-4",
        "a full entry that ends with what is computed is registered a step later",
        "ours",
        ("HB-18",),
        ((caching, "full_entries", _last_entry_left_out),),
        scopes=("fa4", "fa4-m4"),
    ),
    Fault(
        "M-SCR-2",
        "a scratch group takes part in the caching call, and its private block is keyed",
        "src",
        ("TB-15",),
        ((scratch, "register", _scratch_registered),),
        scopes=("fa4-x4-m4-n2", "fa4-x4-m4+2-draft2-ahead"),
    ),
    Fault(
        "M-HO-2",
        "a drain hands the publications out and leaves them queued",
        "src",
        ("HO-2",),
        ((plans, "left_over_handoffs", _all_stay),),
        scopes=("fa4-m4", "m4-fa4"),
    ),
    Fault(
        "M-HO-5",
        "freeing a request leaves its undrained publications queued",
        "src",
        ("HO-7",),
        ((requests, "forget_handoffs", _kept_handoffs),),
        scopes=("fa1-m2-m4-n4", "fa4-m2-n4"),
    ),
    Fault(
        "M-LV-1",
        "what was registered in a step counts as not yet computed in all later ones",
        "src",
        ("LV-1",),
        ((plans, "fresh_plan", _registrations_stay),),
        scopes=("fa4-m8-n2-roomy", "fa4-m4-n2"),
    ),
)
