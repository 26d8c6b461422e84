"""Keys that are shown take the place of the predicted ones; their order of insertion is not shown and must not look like a change."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import pool as pools
from kvproof.core import prefixes
from kvproof.core.actions import Dispatch
from kvproof.core.config import Group, configure
from kvproof.core.pool import Pool
from kvproof.core.records import Record
from kvproof.core.world import new_world
from kvproof.spec.conformance import override
from kvproof.spec.laws import boundaries
from kvproof.spec.laws.base import Moment

TABLE, ROOT = prefixes.root(prefixes.Prefixes(), 0)
TABLE, TIP = prefixes.extend(TABLE, ROOT, tuple(range(8)))
FOUR, EIGHT = prefixes.ancestor(TABLE, TIP, 4), TIP


def keyed(*keys: tuple[int, int, int]) -> Pool:
    """A pool of four blocks with keys (node, block, tokens), entered in this order."""
    pool = pools.new_pool(4)
    for node, block, tokens in keys:
        pool = pools.insert(pool, node, 0, block, tokens)
    return pool


def test_keys_that_stay_as_they_were_are_those_of_before_whatever_was_predicted() -> None:
    before = keyed((FOUR, 1, 4))
    predicted = pools.insert_partial(pools.promote(before, EIGHT, 0, 1, 8), FOUR, 0, 1, 4)
    shown = override.with_keys(predicted, TABLE, override.key_rows(before), before)
    assert shown.entries is before.entries
    assert shown.key_node is before.key_node
    assert shown.key_tokens is before.key_tokens


def test_a_block_that_stands_for_the_same_keeps_its_place_although_others_change() -> None:
    before = keyed((FOUR, 1, 4))
    predicted = pools.insert_partial(pools.promote(before, EIGHT, 0, 1, 8), FOUR, 0, 1, 4)
    rows = override.key_rows(pools.insert(before, EIGHT, 0, 2, 8))
    shown = override.with_keys(predicted, TABLE, rows, before)
    assert before.entries[0] in shown.entries


def test_an_additional_key_counts_as_added_to_the_primary_one() -> None:
    before = keyed((FOUR, 1, 4))
    rows = ((FOUR, 0, 1, False), (EIGHT, 0, 1, True))
    shown = override.with_keys(before, TABLE, rows, before)
    assert shown.key_node[1] == EIGHT
    assert shown.key_tokens[1] == 8
    assert [entry[0] for entry in pools.keys_of(shown, 1)] == [EIGHT, FOUR]


def test_blocks_of_one_key_keep_the_order_in_which_they_are_shown() -> None:
    before = keyed((FOUR, 1, 4), (FOUR, 2, 4))
    rows = ((FOUR, 0, 1, False), (FOUR, 0, 2, True), (EIGHT, 0, 1, True))
    shown = override.with_keys(before, TABLE, rows, before)
    assert override.key_rows(shown) == rows
    assert override.with_keys(shown, TABLE, rows, shown).entries is shown.entries


def test_two_primary_keys_of_a_block_are_still_seen() -> None:
    """The order is repaired, a contradiction is not."""
    before = keyed((FOUR, 1, 4))
    shown = override.with_keys(before, TABLE, ((FOUR, 0, 1, True), (EIGHT, 0, 1, True)), before)
    assert [entry[0] for entry in pools.keys_of(shown, 1)] == [FOUR, EIGHT]
    assert shown.key_node[1] == EIGHT


def violations(law: str, before: Pool, after: Pool) -> list[str]:
    start = new_world(configure((Group("full_attention", 8),), num_blocks=4))
    check = next(own.check for own in boundaries.LAWS if own.id == law)
    assert check is not None
    moment = Moment(evolve(start, pool=before), Dispatch(), Record("Dispatch"), None, evolve(start, pool=after))
    return [evidence.message for evidence in check(moment) or ()]


def test_what_an_implementation_keeps_beside_a_full_key_is_no_violation() -> None:
    before = keyed((FOUR, 1, 4))
    shown = override.with_keys(before, TABLE, ((FOUR, 0, 1, False), (EIGHT, 0, 1, True)), before)
    assert violations("HB-5", before, shown) == []
    assert violations("HB-7", before, shown) == []
    twice = override.with_keys(before, TABLE, ((FOUR, 0, 1, True), (EIGHT, 0, 1, True)), before)
    assert violations("HB-5", before, twice) == ["the map still names a block under a key it gave up"]
