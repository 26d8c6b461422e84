"""Lemmas about the block pool with any number of blocks and keys: each transition keeps it sound, by array induction.

A pool is a handful of arrays over block numbers that nothing bounds (`AnyPool`). A transition is a formula that says what
stands in each cell afterwards. `sound` says of two cells and two keys, each of them any, what must hold; a lemma shows that it
holds after a transition if it held before. Since the cells are any, it holds of all of them, in every pool that transitions
reach.

What is left out: the order of the free queue (the CrossHair claims about four blocks have it), the notes of events, `move` and
`restore_keys`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import combinations, product

import z3
from attrs import evolve, frozen

from kvproof.core import pool as pools
from kvproof.core.pool import NO_KEY, NULL_BLOCK
from kvproof.proofs.claim import About
from kvproof.proofs.lemma import Formulas, Lemma, Statement
from kvproof.proofs.lemmas.terms import Term, every, implies, integers, most, never, some, when

Cells = Callable[..., Term]
"""An array: what stands at an index."""


@frozen(slots=True)
class AnyPool:
    """The arrays of a pool: of a block its references, whether it is free, the node, group and tokens of its primary.

    ``entries(node, group, block)`` is how often the key map has a key for a block, ``seq`` the number of that insertion.
    """

    ref: Cells
    free: Cells
    node: Cells
    group: Cells
    tokens: Cells
    entries: Cells
    seq: Cells
    next_seq: Term


# --- formulas -----------------------------------------------------------------------------------------------------


def put(cells: Cells, index: Term, value: Term) -> Cells:
    """Return an array of blocks with another value in one cell."""
    return lambda x: when(x == index, value, cells(x))


def holds(pool: AnyPool, node: Term, group: Term, block: Term) -> Term:
    """3.2."""
    return pool.entries(node, group, block) >= 1


def remove_all(pool: AnyPool, block: Term) -> AnyPool:
    """T6."""
    return evolve(
        pool,
        node=put(pool.node, block, NO_KEY),
        group=put(pool.group, block, NO_KEY),
        tokens=put(pool.tokens, block, NO_KEY),
        entries=lambda n, g, x: when(x == block, 0, pool.entries(n, g, x)),
    )


def take(pool: AnyPool, block: Term) -> AnyPool:
    """T1 for the block at the front of the queue."""
    return evolve(remove_all(pool, block), ref=put(pool.ref, block, 1), free=put(pool.free, block, False))


def touch(pool: AnyPool, block: Term) -> AnyPool:
    """T2 for one block."""
    counted = when(block == NULL_BLOCK, 0, 1)
    return evolve(
        pool,
        ref=put(pool.ref, block, pool.ref(block) + counted),
        free=put(pool.free, block, every(block == NULL_BLOCK, pool.free(block))),
    )


def release(pool: AnyPool, block: Term) -> AnyPool:
    """T3 for one block."""
    counted = when(block == NULL_BLOCK, 0, 1)
    last = every(block != NULL_BLOCK, pool.ref(block) == 1)
    return evolve(
        pool,
        ref=put(pool.ref, block, pool.ref(block) - counted),
        free=put(pool.free, block, some(pool.free(block), last)),
    )


def evict(pool: AnyPool, block: Term) -> AnyPool:
    """T4."""
    return remove_all(pool, block)


def insert(pool: AnyPool, node: Term, group: Term, block: Term, tokens: Term) -> AnyPool:
    """T6."""
    had = holds(pool, node, group, block)
    first = every(never(had), pool.node(block) == NO_KEY)

    def here(n: Term, g: Term, x: Term) -> Term:
        return every(never(had), n == node, g == group, x == block)

    return evolve(
        pool,
        node=put(pool.node, block, when(first, node, pool.node(block))),
        group=put(pool.group, block, when(first, group, pool.group(block))),
        tokens=put(pool.tokens, block, when(first, tokens, pool.tokens(block))),
        entries=lambda n, g, x: pool.entries(n, g, x) + when(here(n, g, x), 1, 0),
        seq=lambda n, g, x: when(here(n, g, x), pool.next_seq, pool.seq(n, g, x)),
        next_seq=pool.next_seq + when(had, 0, 1),
    )


def promote(pool: AnyPool, node: Term, group: Term, block: Term, tokens: Term) -> AnyPool:
    """T7 for one block, when it may be promoted."""
    return insert(remove_all(pool, block), node, group, block, tokens)


def insert_partial(pool: AnyPool, node: Term, group: Term, block: Term, tokens: Term) -> AnyPool:
    """T8 without replace mode."""
    had = holds(pool, node, group, block)
    smaller = every(never(had), pool.node(block) != NO_KEY, pool.tokens(block) < tokens)
    return insert(chosen(smaller, remove_all(pool, block), pool), node, group, block, tokens)


def replace_partial(pool: AnyPool, node: Term, group: Term, block: Term, tokens: Term) -> AnyPool:
    """T8 in replace mode."""
    return insert(remove_all(pool, block), node, group, block, tokens)


def chosen(condition: Term, then: AnyPool, otherwise: AnyPool) -> AnyPool:
    """Return one of two pools, as the condition says."""

    def of(one: Cells, other: Cells) -> Cells:
        return lambda *index: when(condition, one(*index), other(*index))

    return AnyPool(
        of(then.ref, otherwise.ref),
        of(then.free, otherwise.free),
        of(then.node, otherwise.node),
        of(then.group, otherwise.group),
        of(then.tokens, otherwise.tokens),
        of(then.entries, otherwise.entries),
        of(then.seq, otherwise.seq),
        when(condition, then.next_seq, otherwise.next_seq),
    )


# --- what must hold -----------------------------------------------------------------------------------------------

Key = tuple[Term, Term]
"""A node and a group."""

Entry = tuple[Term, Term, Term]
"""A key and a block."""


def held_right(pool: AnyPool, blocks: Term, held: Cells, x: Term) -> Term:
    """PC-1, PC-3, PC-4: a block has as many references as holders, and is free if and only if it has none.

    ``blocks`` is the number of blocks, ``held`` counts the holders of each.
    """
    return every(
        pool.ref(x) >= 0,
        pool.ref(x) == held(x),
        implies(x == NULL_BLOCK, pool.ref(x) == 0),
        pool.free(x) == every(x > NULL_BLOCK, x < blocks, pool.ref(x) == 0),
    )


def primary_right(pool: AnyPool, x: Term) -> Term:
    """3.2: a primary has a node, a group and tokens, or none of them; it stands in the key map; the null block has none."""
    unkeyed = pool.node(x) == NO_KEY
    return every(
        some(
            every(unkeyed, pool.group(x) == NO_KEY, pool.tokens(x) == NO_KEY),
            every(pool.node(x) >= 0, pool.group(x) >= 0, pool.tokens(x) >= 1, x != NULL_BLOCK),
        ),
        some(unkeyed, pool.entries(pool.node(x), pool.group(x), x) == 1),
    )


def entry_right(pool: AnyPool, entry: Entry) -> Term:
    """3.2, T6: a block has a key once at most; a block with a key has a primary, and none that was inserted later."""
    there, x = pool.entries(*entry), entry[2]
    return every(
        there >= 0,
        there <= 1,
        implies(
            there == 1,
            every(
                entry[0] >= 0,
                entry[1] >= 0,
                pool.node(x) != NO_KEY,
                pool.seq(*entry) >= 0,
                pool.seq(*entry) < pool.next_seq,
                pool.seq(pool.node(x), pool.group(x), x) <= pool.seq(*entry),
            ),
        ),
    )


def told_apart(pool: AnyPool, one: Entry, other: Entry) -> Term:
    """3.2: no two entries have one number."""
    same = every(*(a == b for a, b in zip(one, other, strict=True)))
    both = every(pool.entries(*one) == 1, pool.entries(*other) == 1)
    return some(same, never(both), pool.seq(*one) != pool.seq(*other))


def sound(pool: AnyPool, blocks: Term, held: Cells, at: tuple[Term, ...], keys: tuple[Key, ...]) -> Term:
    """Return whether all of this holds of these blocks and keys."""
    entries = [(*key, x) for key, x in product(keys, at)]
    return every(
        *(held_right(pool, blocks, held, x) for x in at),
        *(primary_right(pool, x) for x in at),
        *(entry_right(pool, entry) for entry in entries),
        *(told_apart(pool, one, other) for one, other in combinations(entries, 2)),
    )


def same_block(old: AnyPool, new: AnyPool, x: Term, key: Key) -> Term:
    """Return whether nothing of a block changed, as far as its references, its primary and one key go."""
    return every(
        *(before(x) == after(x) for before, after in zip(_of_blocks(old), _of_blocks(new), strict=True)),
        old.entries(*key, x) == new.entries(*key, x),
        implies(old.entries(*key, x) == 1, old.seq(*key, x) == new.seq(*key, x)),
    )


def _of_blocks(pool: AnyPool) -> tuple[Cells, ...]:
    return pool.ref, pool.free, pool.node, pool.group, pool.tokens


# --- statements ---------------------------------------------------------------------------------------------------

blocks, block, x, y, node, group, tokens, n, g, k, h = integers("blocks block x y node group tokens n g k h")
KEY: Key = (node, group)


def _cells(name: str, *sorts: z3.SortRef) -> Cells:
    array = z3.Array(name, *sorts)
    return lambda *index: z3.Select(array, *index)


_INT = z3.IntSort()
ANY = AnyPool(
    _cells("ref", _INT, _INT),
    _cells("free", _INT, z3.BoolSort()),
    _cells("node_of", _INT, _INT),
    _cells("group_of", _INT, _INT),
    _cells("tokens_of", _INT, _INT),
    _cells("entries", _INT, _INT, _INT, _INT),
    _cells("seq", _INT, _INT, _INT, _INT),
    z3.Int("next_seq"),
)
HELD = _cells("held", _INT, _INT)

BOUNDS = "any number of blocks, references and keys"

Effect = Callable[[AnyPool, AnyPool], Term]
"""What is claimed of the block that a transition is about, of the pool before and after."""


def stated(
    name: str, arguments: tuple[Term, ...], premise: Term, holders: int, effect: Effect, f: Formulas
) -> tuple[Statement, ...]:
    """Return that a transition keeps a pool sound, does what it is for, and changes no other block.

    ``holders`` says how many holders the block gains or loses, unless it is the null block.
    """
    new: AnyPool = f[name](ANY, *arguments)
    # What is known before, of the cells that matter: the two any blocks, the block of the transition, the keys that are any,
    # and the primaries of all three.
    at = (x, y, block)
    keys = ((n, g), (k, h), KEY, *((ANY.node(one), ANY.group(one)) for one in at))
    before = (blocks >= 1, ANY.next_seq >= 0, block >= 0, block < blocks, premise, sound(ANY, blocks, HELD, at, keys))
    held = put(HELD, block, HELD(block) + when(block == NULL_BLOCK, 0, holders))
    return (
        Statement(before, sound(new, blocks, held, (x, y), ((n, g), (k, h))), "sound"),
        Statement(before, effect(ANY, new), "the block"),
        Statement((*before, x != block), every(same_block(ANY, new, x, (n, g)), new.next_seq >= ANY.next_seq), "other blocks"),
    )


def _unkeyed(pool: AnyPool) -> Term:
    return every(pool.node(block) == NO_KEY, pool.entries(n, g, block) == 0)


def _standing(pool: AnyPool) -> Term:
    return every(pool.node(block) == node, pool.group(block) == group, pool.tokens(block) == tokens)


def _keys_stay(old: AnyPool, new: AnyPool) -> Term:
    return every(
        old.node(block) == new.node(block),
        old.group(block) == new.group(block),
        old.tokens(block) == new.tokens(block),
        old.entries(n, g, block) == new.entries(n, g, block),
    )


def _taken(old: AnyPool, new: AnyPool) -> Term:
    return every(new.ref(block) == 1, _unkeyed(new))


def _carried(old: AnyPool, new: AnyPool) -> Term:
    first = old.node(block) == NO_KEY
    primary = every(old.node(block) == new.node(block), old.group(block) == new.group(block))
    stays = every(primary, old.tokens(block) == new.tokens(block))
    grown = new.next_seq == old.next_seq + when(holds(old, *KEY, block), 0, 1)
    return every(
        holds(new, *KEY, block),
        when(first, _standing(new), stays),
        grown,
        _others_stay(old, new),
        old.ref(block) == new.ref(block),
    )


def _others_stay(old: AnyPool, new: AnyPool) -> Term:
    other = never(every(n == node, g == group))
    same = every(old.entries(n, g, block) == new.entries(n, g, block), old.seq(n, g, block) == new.seq(n, g, block))
    return implies(every(other, old.entries(n, g, block) == 1), same)


def _alone(old: AnyPool, new: AnyPool) -> Term:
    other = never(every(n == node, g == group))
    return every(_standing(new), holds(new, *KEY, block), implies(other, new.entries(n, g, block) == 0))


def _partial(old: AnyPool, new: AnyPool) -> Term:
    smaller = every(never(holds(old, *KEY, block)), old.tokens(block) < tokens)
    primary = every(old.node(block) == new.node(block), old.group(block) == new.group(block))
    stays = every(primary, old.tokens(block) == new.tokens(block), _others_stay(old, new))
    return every(holds(new, *KEY, block), when(smaller, _alone(old, new), stays))


# --- lemmas -------------------------------------------------------------------------------------------------------

FORMULAS: dict[str, Callable[..., AnyPool]] = {
    function.__name__: function for function in (take, touch, release, evict, insert, promote, insert_partial, replace_partial)
}
"""The transitions by the names of the functions that they stand for."""

REGISTERED = every(block != NULL_BLOCK, node >= 0, group >= 0, tokens >= 1)


def _lemma(
    formula: str,
    sentence: str,
    effect: Effect,
    *,
    arguments: tuple[Term, ...] = (block,),
    premise: Term = True,
    holders: int = 0,
    laws: tuple[str, ...],
    faulty: dict[str, Callable[..., AnyPool]],
) -> Lemma:
    return Lemma(
        f"any_pool.{formula}_keeps_it_sound",
        sentence,
        About((getattr(pools, formula),), "all", BOUNDS, laws),
        partial(stated, formula, arguments, premise, holders, effect),
        {formula: FORMULAS[formula]},
        {name: {formula: wrong} for name, wrong in faulty.items()},
    )


def _with_primary_alone(pool: AnyPool, block: Term) -> AnyPool:
    """Return a pool in which a block has lost every key but its primary."""

    def primary(n: Term, g: Term) -> Term:
        return every(n == pool.node(block), g == pool.group(block))

    return evolve(pool, entries=lambda n, g, x: when(every(x == block, never(primary(n, g))), 0, pool.entries(n, g, x)))


def _kept(pool: AnyPool, node: Term, group: Term, block: Term, tokens: Term) -> AnyPool:
    return insert(pool, node, group, block, tokens)


LEMMAS: tuple[Lemma, ...] = (
    _lemma(
        "take",
        "Taking the front of the free queue keeps the pool sound: counts equal holders, the free blocks are those without "
        "references, and the block that is taken has one reference and no key; no other block changes (T1, PC-1, PC-3, PC-5).",
        _taken,
        premise=ANY.free(block),
        holders=1,
        laws=("PC-1", "PC-3", "PC-4", "PC-5"),
        faulty={
            "its keys stay": lambda pool, block: evolve(pool, ref=take(pool, block).ref, free=take(pool, block).free),
            "it stays free": lambda pool, block: evolve(take(pool, block), free=pool.free),
            "it is not counted": lambda pool, block: evolve(take(pool, block), ref=pool.ref),
            "only the primary goes": lambda pool, block: evolve(take(pool, block), entries=pool.entries),
        },
    ),
    _lemma(
        "touch",
        "A reference more keeps the pool sound: a block that was free is free no more, the null block is not counted, and no "
        "key changes (T2, PC-1, PC-3).",
        _keys_stay,
        holders=1,
        laws=("PC-1", "PC-3", "PC-4"),
        faulty={
            "it stays free": lambda pool, block: evolve(touch(pool, block), free=pool.free),
            "the null block is counted": lambda pool, block: evolve(
                touch(pool, block), ref=put(pool.ref, block, pool.ref(block) + 1)
            ),
            "counted once": lambda pool, block: evolve(touch(pool, block), ref=put(pool.ref, block, when(block == 0, 0, 1))),
        },
    ),
    _lemma(
        "release",
        "Giving a reference back keeps the pool sound: the block is free again if and only if it was the last one, its keys "
        "stay, and the null block is not counted (T3, PC-1, PC-3, PC-4).",
        _keys_stay,
        premise=some(block == NULL_BLOCK, HELD(block) >= 1),
        holders=-1,
        laws=("PC-1", "PC-3", "PC-4"),
        faulty={
            "free while others hold it": lambda pool, block: evolve(
                release(pool, block), free=put(pool.free, block, block != NULL_BLOCK)
            ),
            "never free again": lambda pool, block: evolve(release(pool, block), free=pool.free),
            "the null block is counted": lambda pool, block: evolve(
                release(pool, block), ref=put(pool.ref, block, pool.ref(block) - 1)
            ),
            "its keys go": lambda pool, block: remove_all(release(pool, block), block),
        },
    ),
    _lemma(
        "evict",
        "Evicting a block by its number takes its primary and every other key, leaves its references, and keeps the pool "
        "sound (T4, PC-13).",
        lambda old, new: every(_unkeyed(new), old.ref(block) == new.ref(block), old.free(block) == new.free(block)),
        laws=("PC-1", "PC-3", "PC-13"),
        faulty={
            "secondary keys stay": lambda pool, block: evolve(evict(pool, block), entries=pool.entries),
            "the primary stays": lambda pool, block: evolve(pool, entries=evict(pool, block).entries),
            "the key goes from every block": lambda pool, block: evolve(
                evict(pool, block),
                entries=lambda n, g, x: when(
                    some(x == block, every(n == pool.node(block), g == pool.group(block))), 0, pool.entries(n, g, x)
                ),
            ),
        },
    ),
    _lemma(
        "insert",
        "Registering a key keeps the pool sound: a block has a key once at most, a primary that it had stays, else the key is "
        "its primary, its other keys stay, and no insertion has the number of another (T6, 3.2).",
        _carried,
        arguments=(node, group, block, tokens),
        premise=REGISTERED,
        laws=(),
        faulty={
            "a key is inserted again": lambda pool, node, group, block, tokens: evolve(
                insert(pool, node, group, block, tokens),
                entries=lambda n, g, x: pool.entries(n, g, x) + when(every(n == node, g == group, x == block), 1, 0),
            ),
            "the last key is the primary": lambda pool, node, group, block, tokens: evolve(
                insert(pool, node, group, block, tokens), node=put(pool.node, block, node), group=put(pool.group, block, group)
            ),
            "every insertion has one number": lambda pool, node, group, block, tokens: evolve(
                insert(pool, node, group, block, tokens), next_seq=pool.next_seq
            ),
            "other secondary keys go": lambda pool, node, group, block, tokens: insert(
                _with_primary_alone(pool, block), node, group, block, tokens
            ),
            "a secondary key alone": lambda pool, node, group, block, tokens: evolve(
                insert(pool, node, group, block, tokens), node=pool.node, group=pool.group, tokens=pool.tokens
            ),
        },
    ),
    _lemma(
        "promote",
        "Registering a full block over fewer tokens keeps the pool sound, and afterwards the block stands for the key that was "
        "registered and has no other (T7, HB-3).",
        _alone,
        arguments=(node, group, block, tokens),
        premise=every(REGISTERED, ANY.tokens(block) < tokens),
        laws=("HB-3",),
        faulty={
            "smaller keys stay": _kept,
            "the tokens stay": lambda pool, node, group, block, tokens: evolve(
                promote(pool, node, group, block, tokens), tokens=pool.tokens
            ),
        },
    ),
    _lemma(
        "insert_partial",
        "Registering a boundary inside a block keeps the pool sound: a primary for fewer tokens goes with all other keys, one "
        "for as many or more stays with all of them, and the block carries the key (T8, HB-3).",
        _partial,
        arguments=(node, group, block, tokens),
        premise=REGISTERED,
        laws=("HB-3",),
        faulty={
            "smaller keys stay": _kept,
            "larger keys go": promote,
            "larger keys go and their tokens stay": lambda pool, node, group, block, tokens: chosen(
                holds(pool, node, group, block), pool, promote(pool, node, group, block, most(tokens, pool.tokens(block)))
            ),
            "keys for as many tokens go": lambda pool, node, group, block, tokens: chosen(
                every(never(holds(pool, node, group, block)), pool.tokens(block) <= tokens),
                promote(pool, node, group, block, tokens),
                insert(pool, node, group, block, tokens),
            ),
        },
    ),
    _lemma(
        "replace_partial",
        "Registering a boundary of a block whose contents were overwritten keeps the pool sound, and the block has no other "
        "key (T8 in replace mode).",
        _alone,
        arguments=(node, group, block, tokens),
        premise=REGISTERED,
        laws=("HB-3",),
        faulty={"smaller keys stay": _kept, "only smaller keys go": insert_partial},
    ),
)
