"""What a local hit is, by search over all boundaries, and the small facts of a world that laws need (2.1 to 2.4, HB-15).

Nothing here calls a lookup, size or transition function of `core/`: prefixes are walked token by token, keys are read
from the pool's map, sizes are counted from the configuration's inputs. Token counts in tokens, blocks are device ids.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from attrs import frozen

from kvproof.core.config import Config, Group
from kvproof.core.pool import Pool
from kvproof.core.prefixes import Prefixes
from kvproof.core.world import Request
from kvproof.spec import ground, naive

Entry = tuple[int, int, int, int]
Keys = dict[tuple[int, int], set[int]]


@frozen(slots=True)
class Facts:
    """Sizes of a configuration, counted from its inputs (2.1, 2.2, 2.4, 3.1).

    ``spans`` are E per group in tokens, ``scheduler_block`` S, ``gate`` whether 2.4 opens fine-grained hits, ``classes``
    the groups that are looked up together, ``recurrent`` and ``attention`` the group indices of each sort, ``full`` those of
    full attention, ``eagle`` the EAGLE group set.
    """

    spans: tuple[int, ...]
    scheduler_block: int
    gate: bool
    classes: tuple[tuple[int, ...], ...]
    recurrent: tuple[int, ...]
    attention: tuple[int, ...]
    full: tuple[int, ...]
    eagle: frozenset[int]


def facts(config: Config) -> Facts:
    """Return the counted sizes of a configuration."""
    return _facts(config.groups, config.dcp_size, config.hash_block_size, config.caching, ground.eagle_groups(config))


@lru_cache(maxsize=512)
def _facts(groups: tuple[Group, ...], dcp_size: int, hash_block: int, caching: bool, eagle: frozenset[int]) -> Facts:
    spans = tuple(naive.span(group.block_size, ground.is_sharded(group), dcp_size) for group in groups)
    classes: list[list[int]] = []
    for index, group in enumerate(groups):
        if not group.prefix_cacheable:
            continue
        for members in classes:
            if ground.same_spec(groups[members[0]], group):
                members.append(index)
                break
        else:
            classes.append([index])
    return Facts(
        spans=spans,
        scheduler_block=naive.common_multiple(spans),
        gate=gate(groups, caching=caching, dcp_size=dcp_size, hash_block=hash_block),
        classes=tuple(tuple(members) for members in classes),
        recurrent=tuple(index for index, group in enumerate(groups) if ground.is_recurrent(group)),
        attention=tuple(index for index, group in enumerate(groups) if ground.has_positions(group)),
        full=tuple(index for index, group in enumerate(groups) if group.kind == ground.FULL),
        eagle=eagle,
    )


def gate(groups: tuple[Group, ...], *, caching: bool, dcp_size: int, hash_block: int) -> bool:
    """Return what 2.4 says about fine-grained hits, without a connector's veto."""
    return ground.gate(groups, caching=caching, dcp_size=dcp_size, hash_block=hash_block)


def alignment(config: Config) -> int:
    """Return A in tokens: H where the model says that hits are fine-grained, else S.

    Whether they should be is judged by HB-11 alone: a closed gate loses hits and nothing else (PM-4).
    """
    return config.hash_block_size if config.fine_grained else facts(config).scheduler_block


# --- prefixes -----------------------------------------------------------------------------------------------------


def node_at(prefixes: Prefixes, node: int, depth: int) -> int:
    """Return the ancestor of ``node`` at ``depth`` tokens, -1 if the prefix is shorter."""
    if node < 0 or depth < 0 or prefixes.depth[node] < depth:
        return -1
    while prefixes.depth[node] > depth:
        node = prefixes.parent[node]
    return node


# --- keys ---------------------------------------------------------------------------------------------------------


def keys(pool: Pool) -> Keys:
    """Return the key map: which blocks a key (node, group) resolves to."""
    found: Keys = {}
    for node, group, _, block in pool.entries:
        found.setdefault((node, group), set()).add(block)
    return found


def inserted(before: Pool, after: Pool) -> list[Entry]:
    """Return the key-map entries inserted between two pools; entries given back by a roll-back are old ones (T39)."""
    if after.entries is before.entries:
        return []
    return [entry for entry in after.entries if entry[2] >= before.next_seq]


# --- hits ---------------------------------------------------------------------------------------------------------


def has_all(known: Collection[tuple[int, int]], node: int, members: tuple[int, ...]) -> bool:
    """Tell whether every group of a class has the key of a node."""
    return all((node, group) in known for group in members)


def attention_reach(
    known: Collection[tuple[int, int]], nodes: list[int], members: tuple[int, ...], size: int, unit: int
) -> int:
    """Return the deepest boundary n' that a full-attention class reaches: all full blocks below it keyed, and n' a block
    edge or a key itself. ``nodes[n]`` is the node of the first n tokens, up to the limit; ``size`` is E, ``unit`` H.
    """
    reached = 0
    for end in range(unit, len(nodes), unit):
        keyed = has_all(known, nodes[end], members)
        if keyed:
            reached = end
        elif end % size == 0:
            break  # a full block is missing, nothing behind it counts
    return reached


def margin(config: Config, members: tuple[int, ...]) -> int:
    """Return the tokens behind a hit that a class must match too: what its EAGLE drop gives up, 0 if it owes none (T35).

    A hash unit where hits may end inside its blocks, else a block; a state cannot be rewound, so recurrent groups never drop.
    """
    counted = facts(config)
    if members[0] not in counted.eagle or members[0] in counted.recurrent:
        return 0
    return min(alignment(config), counted.spans[members[0]])


def class_resumes(
    config: Config, members: tuple[int, ...], known: Collection[tuple[int, int]], nodes: list[int], n: int
) -> bool:
    """Tell whether a class of groups has what it needs to resume at n tokens and, if it owes one, for its EAGLE drop (HB-15).

    Full attention is keyed from the left to n, a windowed group in every entry that the window or chunk of the next position
    meets, a recurrent group at exactly n. ``nodes[n]`` is the node of the first n tokens, as far as the class may match.
    """
    counted, spec = facts(config), config.groups[members[0]]
    if members[0] in counted.recurrent:
        return n < len(nodes) and has_all(known, nodes[n], members)
    size, more = counted.spans[members[0]], margin(config, members)
    if spec.kind == ground.FULL:
        return attention_reach(known, nodes, members, size, config.hash_block_size) >= n + more
    if n % size or n + more >= len(nodes):
        return False
    first = ground.unread(spec, n) // size
    return all(has_all(known, nodes[end], members) for end in range((first + 1) * size, n + more + 1, size))


def joint_hit(config: Config, pool: Pool, prefixes: Prefixes, request: Request) -> int:
    """Return the greatest boundary at which every class can resume, by trying all of them (HB-15).

    A class that owes an EAGLE drop may match that much beyond the last hit, as far as tokens are hashed; in a model of one
    group nothing may.
    """
    classes = facts(config).classes
    if not config.caching or request.skip_reading or not classes:
        return 0
    return _greatest(config, pool, prefixes, request, classes)


def class_hit(config: Config, pool: Pool, prefixes: Prefixes, request: Request, members: tuple[int, ...]) -> int:
    """Return the greatest boundary at which one class of groups can resume, the others left out (CA-6)."""
    return _greatest(config, pool, prefixes, request, (members,))


def _greatest(config: Config, pool: Pool, prefixes: Prefixes, request: Request, classes: tuple[tuple[int, ...], ...]) -> int:
    nodes = ground.lineage(prefixes, request.tip)
    hashed = naive.floor_multiple(request.num_tokens, config.hash_block_size)
    known = keys(pool).keys()
    visible: dict[tuple[int, ...], list[int]] = {}
    for members in classes:
        beyond = margin(config, members) if len(config.groups) > 1 else 0
        last = max(request.num_tokens - 1, min(request.num_tokens - 1 + beyond, hashed))
        visible[members] = nodes[: last + 1]
    for n in reversed(range(0, request.num_tokens, alignment(config))):
        if n == 0 or all(class_resumes(config, members, known, visible[members], n) for members in classes):
            return n
    return 0


def deepest_state(config: Config, pool: Pool, prefixes: Prefixes, request: Request) -> int:
    """Return the deepest boundary below the last token whose state every recurrent group has, 0 if none (HB-12)."""
    nodes = ground.lineage(prefixes, request.tip)
    known = keys(pool).keys()
    for n in range(request.num_tokens - 1, 0, -1):
        if has_all(known, nodes[n], facts(config).recurrent):
            return n
    return 0


def attention_hit(config: Config, pool: Pool, prefixes: Prefixes, request: Request) -> int:
    """Return how deep full attention alone reaches below the last token, 0 if nothing is keyed."""
    nodes = ground.lineage(prefixes, request.tip)[: request.num_tokens]
    known = keys(pool).keys()
    reaches = [
        attention_reach(known, nodes, members, facts(config).spans[members[0]], config.hash_block_size)
        for members in facts(config).classes
        if members[0] in facts(config).full
    ]
    return min(reaches, default=0)
