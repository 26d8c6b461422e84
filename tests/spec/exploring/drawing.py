"""Renamings drawn at random for a world (see ``renaming``)."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from attrs import evolve

from kvproof.core import prefixes
from kvproof.core.prefixes import Prefixes
from kvproof.core.world import World
from tests.spec.exploring.renaming import Name, Renaming


def drawn(world: World, random: Random, dead: int = 3, alphabet: Sequence[int] = (), contexts: Sequence[int] = ()) -> Renaming:
    """Draw a renaming of a world, with up to so many dead prefix nodes.

    Tokens and contexts are permuted if they are given, else they get any other names.
    """
    host = world.host
    numbers = [names_of(random), permuted(alphabet, random), permuted(contexts, random)]
    return Renaming(
        blocks=shuffled(world.config.num_blocks, random),
        hosts=shuffled(0 if host is None else len(host.pool.ref), random),
        request=numbers[0],
        token=numbers[1],
        context=numbers[2],
        old=world.prefixes,
        prefixes=reordered(world.prefixes, numbers[1], numbers[2], random, dead),
        seq=moved(world.pool.next_seq, random),
        host_seq=moved(0 if host is None else host.pool.next_seq, random),
        store=moved(0 if host is None else host.next_store, random),
        load=moved(0 if host is None else host.next_load, random),
        steps=random.randrange(5) if world.config.defer_block_free else 0,
        wait=world.config.offload is not None and world.config.offload.hold_loads,
        factor=world.config.append_expansion,
    )


def after(names: Renaming, world: World, other: World) -> Renaming:
    """Return the renaming of the world behind an action, which leads to the prefixes of the renamed one's."""
    return evolve(names, old=world.prefixes, prefixes=other.prefixes)


def shuffled(count: int, random: Random) -> list[int]:
    """Return a permutation that leaves the null block alone."""
    names = list(range(1, count))
    random.shuffle(names)
    return [0, *names] if count else []


def names_of(random: Random) -> Name:
    """Return other names for small numbers, each a different one."""
    prime = 211
    factor, more = random.randrange(1, prime), random.randrange(prime)
    return lambda name: (name * factor + more) % prime + name // prime * prime


def permuted(names: Sequence[int], random: Random) -> Name:
    """Return a permutation of names, or any other names if there are none."""
    if not names:
        return names_of(random)
    return dict(zip(names, random.sample(names, len(names)), strict=True)).__getitem__


def moved(following: int, random: Random) -> Name:
    """Return other numbers in the same order: those given out already lie apart, those to come follow one another."""
    numbers, last = [], random.randrange(3)
    for _ in range(following):
        numbers.append(last)
        last += 1 + random.randrange(3)
    return lambda number: numbers[number] if number < following else last + number - following


def reordered(table: Prefixes, token: Name, context: Name, random: Random, dead: int) -> Prefixes:
    """Return a table with the renamed prefixes, appended in another order, and up to so many others in between."""
    renamed_nodes: dict[int, int] = {-1: -1}
    waiting = [name for name, parent in enumerate(table.parent) if parent < 0]
    children: dict[int, list[int]] = {}
    for name, parent in enumerate(table.parent):
        children.setdefault(parent, []).append(name)
    found = Prefixes()
    others = sorted((random.random() for _ in range(dead)), reverse=True)
    total = len(table.parent)
    while waiting:
        name = waiting.pop(random.randrange(len(waiting)))
        parent = table.parent[name]
        told = context(table.token[name]) if parent < 0 else token(table.token[name])
        found, renamed_nodes[name] = prefixes.extend(found, renamed_nodes[parent], (told,))
        waiting += children.get(name, ())
        while others and others[-1] < len(renamed_nodes) / total:
            others.pop()
            at = random.choice(list(renamed_nodes.values()))
            found, _ = prefixes.extend(found, at, (random.randrange(1000, 1010),))  # a token that nobody has
    return found
