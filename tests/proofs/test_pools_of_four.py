"""The pools of the proofs are all sound pools of their shape, they are those the model reaches, and names do not matter."""

import random
from itertools import permutations, product
from typing import Any

import pytest
from attrs import evolve

from kvproof.core import pool as pools
from kvproof.core.kinds import copying
from kvproof.core.pool import NO_KEY, Pool
from kvproof.proofs.claims import pool_copies
from kvproof.proofs.claims import pools_of_four as four
from kvproof.proofs.claims.pools_of_four import Draft

NEXT_SEQ = 2
KEYS = list(product((0, 1), (0,), range(NEXT_SEQ), four.BLOCKS))
ENTRIES = [(), *((key,) for key in KEYS), *permutations(KEYS, 2)]


def drafts(refs):
    """All legal drafts with small numbers and tokens of 1, with their keys."""
    for queue, counts, keys in product(range(len(four.QUEUES)), refs, ENTRIES):
        draft = Draft(queue, counts, (1, 1, 1), NEXT_SEQ)
        if four.legal(draft, *keys):
            yield draft, keys


@pytest.fixture
def every_queue(monkeypatch):
    monkeypatch.setattr(four, "QUEUES", four.EVERY_QUEUE)


def test_the_pools_made_are_the_sound_ones_among_all_key_maps(every_queue):
    none, whole = (NO_KEY, NO_KEY, NO_KEY), [(0, 0, 1), (1, 0, 1)]
    torn = [(0, NO_KEY, 1), (0, 0, NO_KEY), (NO_KEY, 0, 1)]
    free = four.EVERY_QUEUE[-1]
    sound = set()
    for primaries in product([none, *whole, *torn], repeat=3):
        node, group, tokens = zip(none, *primaries, strict=True)
        for entries in ENTRIES:
            pool = Pool((0, 0, 0, 0), node, group, tokens, free, entries, NEXT_SEQ)
            if four.sound(pool):
                sound.add(pool)
    made = {four.pool_of(draft, *keys) for draft, keys in drafts([(1, 1, 1)])}
    assert sound == {pool for pool in made if pool.free == free}
    assert len(sound) == 1 + 12 + (6 * 6 - 6)  # no key; one; two, inserted one after the other and not the same


def test_the_pools_made_are_the_sound_ones_among_all_queues(every_queue):
    none = (NO_KEY,) * 4
    queues = [queue for length in range(5) for queue in product(range(4), repeat=length)]
    candidates = [Pool(ref, none, none, none, free) for ref, free in product(product((-1, 0, 1), repeat=4), queues)]
    sound = {pool for pool in candidates if four.sound(pool)}
    made = {four.pool_of(Draft(queue, (1, 1, 1), (1, 1, 1), 0)) for queue in range(len(four.QUEUES))}
    assert sound == made
    assert len(made) == 16


def renamed(pool, names):
    """The pool with block x called names[x]."""
    at = [names.index(block) for block in range(4)]
    return Pool(
        tuple(pool.ref[x] for x in at),
        tuple(pool.key_node[x] for x in at),
        tuple(pool.key_group[x] for x in at),
        tuple(pool.key_tokens[x] for x in at),
        tuple(names[x] for x in pool.free),
        tuple((node, group, seq, names[x]) for node, group, seq, x in pool.entries),
        pool.next_seq,
    )


def redirect(pool, source):
    work = pool_copies.work_on(pool)
    copying.redirect(work, 0, pool_copies.owing(0, source, 0))
    return work.pool


TRANSITIONS = {
    "take": lambda pool, one, other: pools.take(pool, 2)[0],
    "touch": lambda pool, one, other: pools.touch(pool, (one, other)),
    "release": lambda pool, one, other: pools.release(pool, (one, other)),
    "evict": lambda pool, one, other: pools.evict(pool, one),
    "reset": lambda pool, one, other: pools.reset(pool)[0],
    "insert": lambda pool, one, other: pools.insert(pool, 1, 0, one, 2),
    "promote": lambda pool, one, other: pools.promote(pool, 0, 0, one, 2),
    "promote to as many": lambda pool, one, other: pools.promote(pool, 0, 0, one, 1),
    "insert partial": lambda pool, one, other: pools.insert_partial(pool, 0, 0, one, 2),
    "move": pools.move,
    "restore": lambda pool, one, other: pools.restore_keys(pool, one, (0, 0, 3), ((0, 0, 5, one),)),
    "redirect": lambda pool, one, other: redirect(pool, one),
}


@pytest.mark.parametrize("name", TRANSITIONS)
def test_a_transition_does_not_depend_on_the_names_of_blocks(name):
    transition = TRANSITIONS[name]
    seen = 0
    for draft, keys in drafts([(1, 1, 1), (1, 2, 3)]):
        pool = four.pool_of(draft, *keys)
        for one, other in product(four.BLOCKS, repeat=2):
            after = four.attempt(transition, pool, one, other)
            for names in ((0, 2, 1, 3), (0, 2, 3, 1)):  # these two make all six
                told = four.attempt(transition, renamed(pool, names), names[one], names[other])
                assert told == (None if after is None else renamed(after, names))
            seen += after is not None
    assert seen > 100


def test_the_renaming_test_bites():
    pool = evolve(pools.new_pool(4), free=(2, 1, 3))
    names = (0, 2, 1, 3)

    def lowest_first(of):
        return evolve(of, free=tuple(sorted(of.free)))

    assert lowest_first(renamed(pool, names)) != renamed(lowest_first(pool), names)


def test_the_model_reaches_sound_pools_only():
    choice = random.Random(4)
    reached = set()
    for _ in range(60):
        pool = pools.new_pool(4)
        for _ in range(60):
            one, other = choice.choice(four.BLOCKS), choice.choice(four.BLOCKS)
            transition = choice.choice([name for name in TRANSITIONS if name not in {"restore", "redirect"}])
            pool = four.attempt(TRANSITIONS[transition], pool, one, other) or pool
            assert four.sound(pool)
            reached.add(pool)
    assert len(reached) > 500
    assert {len(pool.entries) for pool in reached} >= {0, 1, 2, 3}


SPOILED: dict[str, dict[str, Any]] = {
    "negative count": {"ref": (0, -1, 0, 0)},
    "null block counted down": {"ref": (-1, 0, 0, 0)},
    "in the queue and in use": {"ref": (0, 1, 0, 0)},
    "not in the queue": {"free": (1, 2)},
    "twice in the queue": {"free": (1, 2, 3, 3)},
    "null block in the queue": {"free": (1, 2, 3, 0)},
    "primary without an entry": {"entries": ()},
    "entry without a primary": {"key_node": (-1,) * 4, "key_group": (-1,) * 4, "key_tokens": (-1,) * 4},
    "primary without tokens": {"key_tokens": (-1, -1, -1, -1)},
    "entry of another node": {"entries": ((1, 0, 0, 1),)},
    "key twice": {"entries": ((0, 0, 0, 1), (0, 0, 1, 1)), "next_seq": 2},
    "out of order": {"entries": ((1, 0, 1, 1), (0, 0, 0, 1)), "next_seq": 2},
    "inserted in the future": {"next_seq": 0},
}


@pytest.mark.parametrize("spoiled", SPOILED)
def test_a_spoiled_pool_is_not_sound(spoiled):
    pool = pools.insert(pools.new_pool(4), 0, 0, 1, 1)
    assert four.sound(pool)
    assert not four.sound(evolve(pool, **SPOILED[spoiled]))


def test_a_key_is_lost_with_its_last_block_and_left_before():
    first, second, other = (5, 0, 0, 1), (5, 0, 1, 2), (6, 0, 2, 1)
    assert four.goings((second,), first) == ((pools.LEFT, 5, 0),)  # block 2 still has it
    assert four.goings((other,), first) == ((pools.LOST, 5, 0),)
    assert four.goings((), first, second) == ((pools.LEFT, 5, 0), (pools.LOST, 5, 0))
    assert four.goings((), first, other) == ((pools.LOST, 5, 0), (pools.LOST, 6, 0))


def test_of_two_keys_of_a_block_the_primary_comes_first():
    late, early, elsewhere = (5, 0, 3, 1), (6, 0, 1, 1), (7, 0, 0, 2)
    assert four.primary_first((late, early, elsewhere), 1) == (early, late)
    assert four.primary_first((early, late), 1) == (early, late)
    assert four.primary_first((late, elsewhere), 2) == (elsewhere,)


def test_blocks_2_and_3_are_in_use_with_a_key_each():
    made = [
        four.pool_of(draft, *keys) for draft, keys in drafts([(1, 1, 1)]) if len(keys) == 2 and four.both_keyed(draft, *keys)
    ]
    assert {pool.free for pool in made} == {(), (1,)}
    assert all([len(four.entries_of(pool.entries, block)) for block in four.BLOCKS] == [0, 1, 1] for pool in made)
