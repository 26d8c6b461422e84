"""Local lookups: the joint hit, the per-group hit, and which of the two a request gets (T11 to T13, T15)."""

from __future__ import annotations

from kvproof.core import geometry, kinds
from kvproof.core.config import Config
from kvproof.core.errors import ContractBroken
from kvproof.core.pool import Pool
from kvproof.core.world import Hit, Request

Lists = tuple[tuple[int, ...], ...]


def lookup(config: Config, pool: Pool, request: Request, nodes: list[int]) -> Hit:
    """Return the local hit under the connectors' policy (T13); nothing if nothing is cached or reading is skipped.

    ``nodes`` are the prefix nodes of the request's hash boundaries.
    """
    if not supports_divergence(config.children) or not reads_cache(config, request):
        return joint(config, pool, request, nodes)
    local, lists, junction, diverged = lookup_per_group(config, pool, nodes, longest_hit(request.num_tokens))
    return Hit(request.request, local, lists, junction, diverged)


def joint(config: Config, pool: Pool, request: Request, nodes: list[int]) -> Hit:
    """Return the joint hit, whatever the connectors can do: what is left of a divergent one without external tokens (T14.4)."""
    if not reads_cache(config, request):
        return Hit(request.request, 0, ((),) * len(config.groups), 0, False)
    local, lists, junction = lookup_common(config, pool, nodes, longest_hit(request.num_tokens))
    return Hit(request.request, local, lists, junction, False)


def reads_cache(config: Config, request: Request) -> bool:
    """Tell whether a request is looked up at all: something is cached, and it does not opt out of reading (T11)."""
    return config.caching and bool(config.classes) and not request.skip_reading


def longest_hit(num_tokens: int) -> int:
    """Return the longest legal hit: the last token is always recomputed (T11, HB-9)."""
    return num_tokens - 1


def supports_divergence(connectors: tuple[bool, ...]) -> bool:
    """Tell whether divergent hits may be offered: there is a connector and all of them can (T13)."""
    return bool(connectors) and all(connectors)


def lookup_common(config: Config, pool: Pool, nodes: list[int], limit: int) -> tuple[int, Lists, int]:
    """Return the largest hit at which every class can resume, its lists and the junction (T11, T35).

    Full-attention classes come first and are looked up once, since their hits can be shortened; the others lower the
    candidate until a pass leaves it alone. A class of the EAGLE group set owes a drop until it was looked up behind the
    candidate (``verified``). The junction is the longest hit that a class returned, 0 if the joint hit is as long.
    """
    found: dict[int, tuple[int, Lists]] = {}
    verified: frozenset[int] = frozenset()
    current, longest = limit, 0
    while True:
        before = current
        for index, members in enumerate(config.classes):
            kind = kinds.of(config.groups[members[0]].kind)
            if kind.CAPABILITIES.prefix_closed and index in found:
                current = min(current, found[index][0])
                continue
            drop = owes_drop(config, members, index in verified)
            asked = asked_limit(config, members, limit, current)
            if index not in verified:
                asked = with_margin(config, members, asked)
            hit, lists = kind.find_hit(config, pool, nodes, members, asked, drop)
            found[index] = (hit, lists)
            longest = max(longest, hit)
            if hit < current:
                verified = still_verified(config, verified, drop)
            if drop:
                verified |= {index}
            current = reconcile(current, hit)
        if current == before or one_pass(config):
            break
    return current, _joint_lists(config, found, current), longest if longest > current else 0


def asked_limit(config: Config, members: tuple[int, ...], limit: int, current: int) -> int:
    """Return up to where a class is asked before any margin: the candidate, full attention up to the full limit (T11).

    A full-attention hit above the candidate is one that the class can shorten, and under the candidate as the limit the key
    just above it would be missed (field ``attention_limit``).
    """
    closed = kinds.of(config.groups[members[0]].kind).CAPABILITIES.prefix_closed
    return limit if closed and config.profile.attention_limit == "full" else current


def owes_drop(config: Config, members: tuple[int, ...], verified: bool) -> bool:
    """Tell whether a class gives up a unit in this query: once per candidate, in the EAGLE group set (T35)."""
    return config.eagle[members[0]] and not verified


def with_margin(config: Config, members: tuple[int, ...], asked: int) -> int:
    """Return the limit of a query that owes a drop: one margin further (2.8, T11, T35).

    A class that drops must match behind the candidate, as far as there are hashes; recurrent classes never drop. A model
    with a single group is asked up to the limit itself.
    """
    recurrent = kinds.of(config.groups[members[0]].kind).CAPABILITIES.recurrent
    if not config.eagle[members[0]] or recurrent or len(config.groups) == 1:
        return asked
    return asked + geometry.eagle_margin(config.sizes[members[0]], config.hash_block_size, config.fine_grained)


def still_verified(config: Config, verified: frozenset[int], drop: bool) -> frozenset[int]:
    """Return the classes whose drop is still verified after a class lowered the candidate, with or without a drop (T11)."""
    if drop and config.profile.void_drops == "without_drop":
        return verified
    return frozenset()


def one_pass(config: Config) -> bool:
    """Tell whether one pass settles the joint hit: a single class, or full attention and one other class (T11)."""
    if len(config.classes) == 1:
        return True
    first = kinds.of(config.groups[config.classes[0][0]].kind)
    return len(config.classes) == 2 and first.CAPABILITIES.prefix_closed


def reconcile(current: int, hit: int) -> int:
    """Return the candidate after a class answered: the smaller of the two (T11)."""
    return min(current, hit)


def _joint_lists(config: Config, found: dict[int, tuple[int, Lists]], hit: int) -> Lists:
    """Return the lists per group, full attention cut to the joint hit (T11)."""
    lists: list[tuple[int, ...]] = [()] * len(config.groups)
    for index, members in enumerate(config.classes):
        entries = geometry.ceil_div(hit, config.sizes[members[0]])
        for group, blocks in zip(members, found[index][1], strict=True):
            lists[group] = blocks[:entries]
    return tuple(lists)


def lookup_per_group(config: Config, pool: Pool, nodes: list[int], limit: int) -> tuple[int, Lists, int, bool]:
    """Return the full-attention hit with every class looked up alone, and whether some class is shorter (T12).

    Identical to the joint lookup without recurrent or full-attention groups, or when a class is deeper than full
    attention (its blocks were lost then), or shorter and no connector can make up for it.
    """
    abilities = [kinds.of(config.groups[members[0]].kind).CAPABILITIES for members in config.classes]
    closed = [index for index, can in enumerate(abilities) if can.prefix_closed]
    found: dict[int, tuple[int, Lists]] = {}
    if config.recurrent and closed and len(config.groups) > 1:
        for index, members in enumerate(config.classes):
            kind = kinds.of(config.groups[members[0]].kind)
            asked = with_margin(config, members, limit)
            found[index] = kind.find_hit(config, pool, nodes, members, asked, owes_drop(config, members, False))
        deepest = attention_hit(config, [found[index][0] for index in closed])
        shorter = [config.classes[index] for index, (hit, _) in found.items() if hit < deepest]
        hits = tuple(hit for hit, _ in found.values())
        if none_is_deeper(hits, deepest) and all(may_lag(config, members) for members in shorter):
            return deepest, _joint_lists(config, found, deepest), 0, bool(shorter)
    local, lists, junction = lookup_common(config, pool, nodes, limit)
    return local, lists, junction, False


def attention_hit(config: Config, hits: list[int]) -> int:
    """Return the full-attention hit, given those of the full-attention classes in order (T12).

    Under ``lagging_groups = any`` it is that of the first class, and another one may be shorter as well.
    """
    return hits[0] if config.profile.lagging_groups == "any" else min(hits)


def none_is_deeper(hits: tuple[int, ...], deepest: int) -> bool:
    """Tell whether no class hits more than full attention, ``deepest``: if one does, attention blocks were lost (T12)."""
    return max(hits) <= deepest


def may_lag(config: Config, members: tuple[int, ...]) -> bool:
    """Tell whether a class may be shorter than the full-attention hit (T12, field ``lagging_groups``).

    A connector brings the external tokens and the state at their end. What a window, or another full-attention class, reads
    before them it does not bring.
    """
    return config.profile.lagging_groups == "any" or kinds.of(config.groups[members[0]].kind).CAPABILITIES.recurrent


def truncate(config: Config, lists: Lists, tokens: int) -> Lists:
    """Cut the lists of a hit to ``tokens``, a multiple of every block size (T15). No references change.

    A recurrent list may be shorter: external tokens bring the state. Raises ContractBroken for tokens that end inside a
    block, for another list that does not reach them, and for a scratch group with blocks.
    """
    return tuple(_truncated(config, group, blocks, tokens) for group, blocks in enumerate(lists))


def _truncated(config: Config, group: int, blocks: tuple[int, ...], tokens: int) -> tuple[int, ...]:
    can, size = kinds.of(config.groups[group].kind).CAPABILITIES, config.sizes[group]
    entries = kept_entries(config, group, tokens)
    if can.cacheable and tokens % size:
        raise ContractBroken(
            f"a hit is cut to {tokens} tokens, inside a block of {size} of group {group}: cut it to a multiple of S (T15)",
            group=group,
            size=size,
            tokens=tokens,
        )
    if (blocks and not can.cacheable) or (len(blocks) < entries and not can.recurrent):
        raise ContractBroken(
            f"a hit of {len(blocks)} blocks in group {group} cannot be cut to {tokens} tokens, which are {entries} (T15)",
            group=group,
            blocks=len(blocks),
            tokens=tokens,
        )
    return blocks[:entries]


def kept_entries(config: Config, group: int, tokens: int) -> int:
    """Return the entries that ``tokens`` tokens fill in a group: none of a scratch group, which has no list (T15, M-SCR-1)."""
    return tokens // config.sizes[group] if config.groups[group].prefix_cacheable else 0


def replaces_tail(tail: int, external: int) -> bool:
    """Tell whether external tokens take the place of a local tail: only if they reach further (T14.3, CA-7)."""
    return external > tail
