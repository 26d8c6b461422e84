"""The caches of the claims about lookups: which keys they have, and at what a group can resume with them, counted by hand."""

from __future__ import annotations

from itertools import product

import pytest

from kvproof.core import pool as pools
from kvproof.proofs.claims import caches

KEYS = list(product((False, True), repeat=3))


@pytest.mark.parametrize(("one", "other"), list(product(KEYS, KEYS)))
def test_a_cache_has_the_chosen_keys_in_blocks_of_their_own(one, other):
    pool = caches.pool_with(one, other)
    found = {(node, group): pools.find(pool, node, group) for node, group in product((4, 8, 12, 16), (0, 1))}
    assert {key for key, block in found.items() if block != -1} == {
        (4 * at + 4, group) for group, keys in enumerate((one, other)) for at, key in enumerate(keys) if key
    }
    assert all(block == 3 * group + node // 4 for (node, group), block in found.items() if block != -1)
    assert list(pool.entries) == sorted(pool.entries)
    assert pool.free == (1, 2, 3, 4, 5, 6)


def test_a_group_without_keys_takes_no_blocks():
    pool = caches.pool_with((), (True, True))
    assert pool.entries == ((4, 1, 0, 1), (8, 1, 1, 2))
    assert pool.ref == (0, 0, 0)


def test_keys_can_stand_as_primaries():
    pool = caches.keyed(caches.pool_with((True, False, True)))
    assert pool.key_node == pool.key_tokens == (-1, 4, -1, 12)
    assert pool.key_group == (-1, 0, -1, 0)


@pytest.mark.parametrize(
    ("keys", "limit", "size", "reached"),
    [
        ((True, True, True), 12, 4, 12),
        ((True, True, True), 11, 4, 8),
        ((True, False, True), 12, 4, 4),
        ((False, True, True), 12, 4, 0),
        ((True, True, True), 12, 8, 12),  # the key of 12 lies inside the second block
        ((False, True, False), 12, 8, 8),  # of a block of 8 only its end need be keyed
        ((True, False, True), 12, 8, 4),
        ((True, True, True), 7, 8, 4),
    ],
)
def test_attention_reaches_as_far_as_its_blocks_are_keyed(keys, limit, size, reached):
    fits = [caches.attention(keys, tokens, limit, size) for tokens in (0, 4, 8, 12)]
    assert fits == [tokens <= reached for tokens in (0, 4, 8, 12)]
    assert caches.deepest(fits) == reached


def test_a_state_and_a_window_stand_at_their_own_boundary():
    for of in (caches.state, caches.window):
        assert [of((False, True, False), tokens) for tokens in (0, 4, 8, 12)] == [True, False, True, False]


def test_under_eagle_attention_and_the_window_match_behind_the_boundary():
    both, first = (True, True), (True, False)
    assert caches.fitting(both, both, both, 8, 0) == [(True, True, True)] * 2
    assert caches.fitting(both, both, both, 8, 4) == [(True, True, True), (False, True, False)]
    assert caches.fitting(first, first, first, 8, 4) == [(False, True, False), (False, False, False)]
    assert caches.fitting(both, both, both, 3, 0) == [(False, False, False)] * 2
