"""Naive truths for the laws: walking, counting and token placement on the raw fields of a world.

Nothing here calls a size or transition function of ``core``, and nothing trusts a size that a configuration resolved:
the helpers read the inputs of a configuration (groups, DCP size, interleave) and the bare tuples of a world. Token
counts are in tokens, positions are 0-based, block id 0 is the null block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from kvproof.core.config import Config, Group
from kvproof.core.contents import GARBAGE, UNWRITTEN
from kvproof.core.prefixes import Prefixes
from kvproof.core.world import Hit, Phase, Request, Scheduled, Step, World
from kvproof.spec import naive

NULL = 0
PARTS: tuple[str, ...] = ("zero", "copy", "load", "precopy", "forward")
"""The parts of an executed step in their order (T0)."""
MISSING = -1
PLANNING = (Phase.PLAN_RUNNING, Phase.PLAN_WAITING)

# --- sizes ----------------------------------------------------------------------------------------------------------


def is_recurrent(group: Group) -> bool:
    """Tell whether a group keeps one state per block (1.2)."""
    return group.kind == "mamba_align"


def is_sharded(group: Group) -> bool:
    """Tell whether DCP splits the group's positions; attention is split unless it says otherwise (2.1)."""
    return not is_recurrent(group) if group.sharded is None else group.sharded


def span(config: Config, group: int) -> int:
    """Return the tokens under one table entry: the block size, times N iff the group is sharded (2.1)."""
    spec = config.groups[group]
    return spec.block_size * config.dcp_size if is_sharded(spec) else spec.block_size


def attention_groups(config: Config) -> list[int]:
    """Return the groups that keep one cell per position."""
    return [g for g, group in enumerate(config.groups) if not is_recurrent(group)]


def recurrent_groups(config: Config) -> list[int]:
    """Return the groups that keep one state per block."""
    return [g for g, group in enumerate(config.groups) if is_recurrent(group)]


def columns(tokens: int, size: int) -> int:
    """Return how many entries of ``size`` tokens it takes to cover ``tokens`` tokens; a started one counts."""
    full, rest = divmod(tokens, size)
    return full + (1 if rest else 0)


def column_of_state(boundary: int, block_size: int) -> int:
    """Return the column that holds the state after ``boundary`` > 0 tokens: the last one begun (3.6)."""
    return columns(boundary, block_size) - 1


@lru_cache(maxsize=1024)
def _cells(block_size: int, sharded: bool, dcp_size: int, interleave: int) -> tuple[tuple[int, ...], ...]:
    if sharded:
        places = naive.placements(block_size * dcp_size, block_size, dcp_size, interleave)
        return tuple((1 + place.rank * block_size + place.offset,) for place in places)
    return tuple(tuple(1 + rank * block_size + offset for rank in range(dcp_size)) for offset in range(block_size))


def cells(config: Config, group: int) -> tuple[tuple[int, ...], ...]:
    """Return, per position inside an entry of an attention group, the cells of the block that hold it (2.6).

    Found by dealing the tokens to the ranks one after the other; index 0 of a block's contents names its group.
    """
    spec = config.groups[group]
    return _cells(spec.block_size, is_sharded(spec), config.dcp_size, config.interleave)


@lru_cache(maxsize=256)
def _gate(groups: tuple[Group, ...], dcp_size: int, hash_block: int, caching: bool) -> bool:
    kinds = {"mamba_align": "mamba_align", "full_attention": "full"}
    asked = tuple(
        naive.GateGroup(kinds[group.kind], group.block_size, is_sharded(group), bool(group.prefix_cacheable))
        for group in groups
    )
    return naive.gate(asked, caching=caching, allow=True, dcp_size=dcp_size, hash_block=hash_block)


def cacheable_tokens(config: Config, tokens: int) -> int:
    """Return the tokens of a caching call: all with fine-grained hits, else whole scheduler blocks (2.8)."""
    fine = _gate(config.groups, config.dcp_size, config.hash_block_size, config.caching)
    if fine:
        return tokens
    block = naive.common_multiple(tuple(span(config, group) for group in range(len(config.groups))))
    return naive.cacheable_tokens(tokens, False, block)


# --- prefixes -------------------------------------------------------------------------------------------------------


def lineage(prefixes: Prefixes, node: int) -> list[int]:
    """Return the path to a node, found by following parents only: index n is the node after n tokens, 0 the root."""
    parent = prefixes.parent
    path = []
    while node >= 0:
        path.append(node)
        node = parent[node]
    path.reverse()
    return path


def same_prefix(world: World, one: Request, other: Request, tokens: int) -> bool:
    """Tell whether two requests agree in context and in their first ``tokens`` tokens, token by token (2.3)."""
    if one.context != other.context or min(one.num_tokens, other.num_tokens) < tokens:
        return False
    first, second = lineage(world.prefixes, one.tip), lineage(world.prefixes, other.tip)
    token = world.prefixes.token
    return all(token[a] == token[b] for a, b in zip(first[1 : tokens + 1], second[1 : tokens + 1], strict=True))


def true_path(world: World, entry: Scheduled) -> list[int]:
    """Return the prefix path of a scheduled request; entries are MISSING if its root is not of the request's context."""
    path = lineage(world.prefixes, entry.tip)
    for request in world.requests:
        if request.request == entry.request and world.prefixes.token[path[0]] != request.context:
            return [MISSING] * len(path)
    return path


# --- requests, owners, references -----------------------------------------------------------------------------------


def request_of(world: World, request: int) -> Request | None:
    """Return a live request by its id, None if there is none."""
    for candidate in world.requests:
        if candidate.request == request:
            return candidate
    return None


def changed_requests(before: World, after: World) -> Iterator[tuple[Request, Request]]:
    """Yield the requests that live before and after and are not the same value."""
    if before.requests is after.requests:
        return
    known = {request.request: request for request in before.requests}
    for request in after.requests:
        old = known.get(request.request)
        if old is not None and old is not request:
            yield old, request


def references(world: World) -> list[int]:
    """Count the references every block should have: table entries, and both ends of copies not yet drained (PC-3)."""
    count = [0] * world.config.num_blocks
    for request in world.requests:
        for state in request.groups:
            for block in state.table:
                if 0 < block < len(count):
                    count[block] += 1
    if world.phase in PLANNING:
        for _, source, destination in world.plan.copies:
            count[source] += 1
            count[destination] += 1
    return count


def at_rest(world: World) -> bool:
    """Tell whether no plan is open and every dispatched step has been executed (section 5)."""
    return world.phase is Phase.IDLE and all(step.part >= len(PARTS) for step in world.steps)


# --- the worker -----------------------------------------------------------------------------------------------------


def pending_step(world: World) -> Step | None:
    """Return the oldest step that still has a part to execute."""
    for step in world.steps:
        if step.part < len(PARTS):
            return step
    return None


def row_block(world: World, group: int, row: int, column: int) -> int:
    """Return the manager block in a column of a worker row, MISSING if the row does not reach it (2.5)."""
    factor = world.config.append_expansion
    entries = world.worker.rows[group][row]
    at = column * factor
    return entries[at] // factor if 0 <= at < len(entries) else MISSING


def consumers(world: World, step: Step) -> Iterator[tuple[Scheduled, int, int]]:
    """Yield (entry, group, column) where an admission of this step resumed inside an entry: a copy is owed there."""
    config = world.config
    for entry in step.scheduled:
        if entry.fresh and entry.loaded_from > 0:
            for group, spec in enumerate(config.groups):
                size = span(config, group)
                if spec.prefix_cacheable and entry.loaded_from % size:
                    yield entry, group, entry.loaded_from // size


# --- contents -------------------------------------------------------------------------------------------------------


def misplaced(
    config: Config, group: int, content: Sequence[int], path: Sequence[int], start: int, stop: int
) -> tuple[int, int] | None:
    """Return the first position of [start, stop), all of one entry, that does not hold its node, with what is found.

    ``path[p + 1]`` is the node through position p. Foreign bytes are GARBAGE, memory nobody wrote is UNWRITTEN.
    """
    if start >= stop:
        return None
    if not content:
        return start, UNWRITTEN
    if content[0] != group:
        return start, GARBAGE
    where = cells(config, group)
    size = len(where)
    for position in range(start, stop):
        node = path[position + 1]
        for cell in where[position % size]:
            if content[cell] != node:
                return position, content[cell]
    return None


def is_state(config: Config, group: int, content: Sequence[int], node: int) -> bool:
    """Tell whether a block holds the recurrent state of a prefix node on every rank (3.2)."""
    return tuple(content) == (group, *(node,) * config.dcp_size)


def sources_written(world: World, hit: Hit, tip: int, local: int) -> bool:
    """Tell whether every attention block that a hit of ``local`` tokens ends in already holds the prefix below it (COW-4).

    Where it does not, the open plan still has to write it, and putting the admission off by a step is right (T17).
    """
    path = lineage(world.prefixes, tip)
    for group in attention_groups(world.config):
        size = span(world.config, group)
        if local % size == 0 or local // size >= len(hit.lists[group]):
            continue
        content = world.contents[hit.lists[group][local // size]]
        if misplaced(world.config, group, content, path, local // size * size, local) is not None:
            return False
    return True
