"""Prompts worth submitting: resends, extensions, truncations and branches of known ones, around every boundary."""

from __future__ import annotations

from collections.abc import Iterator

from kvproof.core import prefixes
from kvproof.core.world import World
from kvproof.spec.engines import amounts, host
from kvproof.spec.engines.amounts import Limits

Prompt = tuple[tuple[int, ...], int]


def known(world: World, count: int = 3) -> list[Prompt]:
    """Return (tokens, context) of the deepest ends of the prefix table, the youngest first, at most ``count``.

    The ends of rejected drafts are among them: a prompt that goes on as they did finds what was registered too early.
    """
    table = world.prefixes
    parents = set(table.parent)
    ends = [node for node in range(len(table.parent) - 1, -1, -1) if node not in parents and table.depth[node] > 0]
    return [spelled(world, node) for node in ends[:count]]


def spelled(world: World, node: int) -> Prompt:
    """Return the tokens and the context of a prefix node."""
    table = world.prefixes
    tokens = tuple(table.token[at] for at in prefixes.path(table, node, 0, table.depth[node]))
    return tokens, table.token[prefixes.ancestor(table, node, 0)]


def nodes_of(world: World, tokens: tuple[int, ...], context: int) -> list[int]:
    """Return the prefix nodes of these tokens, one after another, as far as there are any."""
    found, node = [], prefixes.child(world.prefixes, -1, context)
    for token in tokens:
        node = prefixes.child(world.prefixes, node, token) if node >= 0 else -1
        found.append(node)
    return [node for node in found if node >= 0]


def free_id(world: World) -> int:
    """Return the smallest request id that nothing mentions, the host neither (T37)."""
    taken = mentioned(world) | host.mentioned(world)
    return next(number for number in range(len(taken) + 1) if number not in taken)


def mentioned(world: World) -> set[int]:
    """Return the ids that are live or scheduled in a step that is not processed to its end (T37)."""
    return {request.request for request in world.requests} | {entry.request for step in world.steps for entry in step.scheduled}


def around(world: World, limits: Limits) -> Iterator[Prompt]:
    """Yield prompts: resends, extensions, truncations and branches of known ones, then fresh ones, around boundaries."""
    sizes = amounts.lengths(world.config, limits)
    first, other = limits.alphabet[0], limits.alphabet[-1]
    roots = [(tokens[: limits.max_prompt], context) for tokens, context in known(world)]
    for tokens, context in roots:
        yield tokens, context
        yield tokens, limits.contexts[0] if context != limits.contexts[0] else limits.contexts[-1]
    for size in sizes:
        yield (first,) * size, limits.contexts[0]
    for tokens, context in roots:
        for size in sizes:
            if size < len(tokens):
                yield tokens[:size], context
                branch = first if tokens[size] == other else other
                yield (*tokens[:size], branch, *tokens[size + 1 :]), context
            elif size > len(tokens):
                yield (*tokens, *(other,) * (size - len(tokens))), context
    for size in sizes:
        yield (other,) + (first,) * (size - 1), limits.contexts[0]
