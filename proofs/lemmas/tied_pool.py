"""On what pools the formulas of `any_pool` are compared with the transitions: those that random transitions reach."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

from kvproof.core import pool as pools
from kvproof.core.errors import ContractBroken, PoolExhausted
from kvproof.core.pool import NULL_BLOCK, Pool
from kvproof.proofs.lemmas.any_pool import AnyPool

POOLS = 400
LONGEST = 40
"""Most transitions that lead to a pool."""

NODES, GROUPS, TOKENS = 5, 3, 6

Case = tuple[Pool, tuple[Any, ...]]
"""A pool, and what a transition is asked to do with it."""

REGISTERING = ("insert", "promote", "insert_partial", "replace_partial")


def cases(function: Callable[..., Any]) -> tuple[Case, ...]:
    """Return pools and arguments of a transition."""
    choice = random.Random(function.__name__)
    return tuple((pool, _arguments(function.__name__, choice, pool)) for pool in reached())


def difference(name: str, case: Case, formula: Callable[..., AnyPool], function: Callable[..., Any]) -> str:
    """Return in words where a formula and a transition differ; empty where they do not."""
    pool, arguments = case
    made, said = arrays(pool), f"{name}({', '.join(map(str, arguments))}) of {pool}"
    if name == "promote" and pool.key_tokens[arguments[2]] >= arguments[3]:
        try:
            function(pool, *arguments)
        except ContractBroken:
            return ""
        return f"{said} is not refused, as it must be (T7)"
    real = function(pool, *arguments)
    if name == "take":
        real, taken = real
        if taken != pool.free[: arguments[0]]:
            return f"{said} takes {taken}, not the front of the queue"
        for block in taken:
            made = formula(made, block)
    elif name in ("touch", "release"):
        for block in arguments[0]:
            made = formula(made, block)
    else:
        made = formula(made, *arguments)
    there, expected = cells(made, len(pool.ref)), cells(arrays(real), len(pool.ref))
    wrong = next((cell for cell in expected if there.get(cell) != expected[cell]), None)
    if wrong is None:
        return "" if there.keys() == expected.keys() else f"{said}: the formula has further entries"
    return f"{said}: {wrong} is {expected[wrong]}, and the formula says {there.get(wrong)}"


def arrays(pool: Pool) -> AnyPool:
    """Return the arrays of a pool."""
    had = [(node, group, block) for node, group, _, block in pool.entries]
    numbers = {(node, group, block): seq for node, group, seq, block in pool.entries}
    return AnyPool(
        pool.ref.__getitem__,
        lambda block: block in pool.free,
        pool.key_node.__getitem__,
        pool.key_group.__getitem__,
        pool.key_tokens.__getitem__,
        lambda node, group, block: had.count((node, group, block)),
        lambda node, group, block: numbers.get((node, group, block), -1),
        pool.next_seq,
    )


def cells(pool: AnyPool, blocks: int) -> dict[object, object]:
    """Return every cell of the arrays of a pool with so many blocks; numbers of insertions where there is an entry."""
    found: dict[object, object] = {"next_seq": pool.next_seq}
    for block in range(blocks):
        found["ref", block] = pool.ref(block)
        found["free", block] = pool.free(block)
        found["primary", block] = (pool.node(block), pool.group(block), pool.tokens(block))
        for node, group in product(range(-1, NODES), range(-1, GROUPS)):
            found["entries", node, group, block] = pool.entries(node, group, block)
            if pool.entries(node, group, block):
                found["seq", node, group, block] = pool.seq(node, group, block)
    return found


# --- pools --------------------------------------------------------------------------------------------------------


@cache
def reached() -> tuple[Pool, ...]:
    """Return pools that random transitions reach."""
    choice = random.Random("pools")
    return tuple(_reached(choice) for _ in range(POOLS))


def _reached(choice: random.Random) -> Pool:
    pool = pools.new_pool(choice.randrange(2, 8))
    for _ in range(choice.randrange(LONGEST)):
        name = choice.choice(("take", "touch", "release", "evict", "move", *REGISTERING, *REGISTERING))
        try:
            found = getattr(pools, name)(pool, *_arguments(name, choice, pool))
        except (ContractBroken, PoolExhausted):
            continue
        pool = found[0] if name == "take" else found
    return pool


def _arguments(name: str, choice: random.Random, pool: Pool) -> tuple[Any, ...]:
    """Return what a transition is asked to do: mostly what it may do."""
    blocks = range(1, len(pool.ref))
    if name == "take":
        return (choice.randrange(len(pool.free) + 1),)
    if name == "touch":
        return ([choice.choice((NULL_BLOCK, *blocks)) for _ in range(choice.randrange(5))],)
    if name == "release":
        given = [block for block, ref in enumerate(pool.ref) for _ in range(choice.randrange(ref + 1))]
        given += [NULL_BLOCK] * choice.randrange(2)
        choice.shuffle(given)
        return (given,)
    if name == "evict":
        return (choice.choice((NULL_BLOCK, *blocks)),)
    if name == "move":
        return choice.choice(blocks), choice.choice(blocks)
    return (*_key(choice, pool), choice.choice(blocks), choice.randrange(1, TOKENS))


def _key(choice: random.Random, pool: Pool) -> tuple[int, int]:
    """Return a key that some block has, or any."""
    if pool.entries and choice.random() < 0.5:
        return choice.choice(pool.entries)[:2]
    return choice.randrange(NODES), choice.randrange(GROUPS)
