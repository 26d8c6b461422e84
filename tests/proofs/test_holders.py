"""The holders of the one-step claims: which tables a pool can have, and that a lost, a doubled or a foreign reference shows."""

from itertools import product

import pytest
from attrs import evolve

from kvproof.core import pool as pools
from kvproof.proofs import catalogue, symbolic
from kvproof.proofs.claims import holders
from kvproof.proofs.claims import pools_of_four as four
from kvproof.proofs.claims.pools_of_four import Draft

TABLES = list(product(range(4), repeat=2))


def drafts():
    for queue, refs in product(range(len(four.QUEUES)), product((1, 2), (1, 2), (1, 2))):
        yield Draft(queue, refs, (1, 1, 1), 0)


def test_a_pool_can_have_the_tables_that_its_references_suffice_for():
    seen = set()
    for draft, table in product(drafts(), TABLES):
        pool = four.pool_of(draft)
        suffices = all(pool.ref[block] >= table.count(block) for block in table if block)
        assert holders.held(draft, *table) == suffices
        if suffices:
            assert holders.accounted(pool, holders.others(pool, table), table)
            assert min(holders.others(pool, table)) >= 0
        seen.add(suffices)
    assert seen == {True, False}


@pytest.mark.parametrize("table", TABLES)
def test_a_request_names_a_block_once(table):
    once = table[0] != table[1] or not table[0]
    assert holders.own(*table) == once
    assert holders.unshared(table) == holders.unshared(table[:1], table[1:]) == once


def test_every_reference_that_is_wrong_shows():
    pool = four.pool_of(Draft(1, (1, 1, 2), (1, 1, 1), 0))
    table = (0, 3)
    rest = holders.others(pool, table)
    assert rest == (0, 1, 1)
    assert holders.accounted(pool, rest, table)
    for block, by in product(four.BLOCKS, (-1, 1)):
        ref = tuple(held + by * (at == block) for at, held in enumerate(pool.ref))
        assert not holders.accounted(evolve(pool, ref=ref), rest, table)
    assert not holders.accounted(pool, rest, (0, 2))
    assert not holders.accounted(pool, rest, (3, 3))
    assert not holders.accounted(pool, rest, (4, 3))


def test_the_queue_of_a_released_table_is_that_of_the_pool():
    for draft, table, block in product(drafts(), TABLES, four.BLOCKS):
        if not holders.held(draft, *table) or not holders.own(*table):
            continue
        old = pools.insert(four.pool_of(draft), 0, 0, block, 1)
        new = pools.release(old, table)
        assert holders.wanted_queue(old, new, table) == new.free


def test_the_step_claims_are_in_the_catalogue():
    names = {path.stem for path in symbolic.CLAIMS.glob("steps_*.py")}
    assert names == set(catalogue.STEPS)
    assert names < set(catalogue.FILES)


def test_a_pool_with_references_of_some_blocks_is_sound():
    empty = four.pool_of(Draft(3, (1, 1, 1), (1, 1, 1), 0))
    for chosen in ((), (2,), (1, 3), (1, 2, 3)):
        pool = holders.referenced(empty, chosen)
        assert four.sound(pool)
        assert holders.accounted(pool, (0, 0, 0), chosen)
