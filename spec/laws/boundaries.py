"""Laws of hash boundaries and keys: family HB without the hits (semantics 5.2).

The truth comes from the key map and from walking prefixes. ``configure`` is called by HB-1 as what it judges.
"""

from __future__ import annotations

from kvproof.core import config as configs
from kvproof.core.actions import Allocate, EvictBlocks, Output, ResetCache, Withdraw
from kvproof.core.config import Config
from kvproof.core.errors import ConfigError
from kvproof.core.pool import NO_KEY, NULL_BLOCK
from kvproof.core.world import Request, Status
from kvproof.spec import ground, naive, naive_hits
from kvproof.spec.laws.base import Evidence, Findings, Law, Moment


def _accepted_sizes(config: Config) -> Findings:
    """HB-1: S and H of the configuration, and which prefix match units are accepted for its groups."""
    spans = naive_hits.facts(config).spans
    cacheable = tuple(bool(group.prefix_cacheable) for group in config.groups)
    active = config.caching or bool(config.connectors)
    found = []
    units = {1, 2, 3, config.hash_block_size, *spans, min(spans) + 1, naive.common_multiple(spans)}
    asked: list[int | None] = [None, *sorted(units)]
    for unit in asked:
        expected = naive.resolve_sizes(spans, cacheable, active=active, requested=unit)
        try:
            built = configs.configure(
                config.groups,
                dcp_size=config.dcp_size,
                interleave=config.interleave,
                hash_block_size=unit,
                max_model_len=config.max_model_len,
                num_blocks=config.num_blocks,
                caching=config.caching,
                connectors=config.connectors,
            )
        except ConfigError as error:
            if not expected.refused:
                found.append(Evidence.of("a legal prefix match unit is refused", unit=unit, spans=spans, reason=str(error)))
            continue
        if expected.refused:
            found.append(Evidence.of("an illegal prefix match unit is accepted", unit=unit, spans=spans, why=expected.refused))
        elif (built.scheduler_block_size, built.hash_block_size) != (expected.scheduler_block, expected.hash_block):
            found.append(
                Evidence.of(
                    "S or H is not that of 2.2",
                    unit=unit,
                    spans=spans,
                    expected=(expected.scheduler_block, expected.hash_block),
                    actual=(built.scheduler_block_size, built.hash_block_size),
                )
            )
    unit = config.hash_block_size
    own = naive.resolve_sizes(spans, cacheable, active=active, requested=unit if active else None)
    if own.refused or (config.scheduler_block_size, unit) != (own.scheduler_block, own.hash_block):
        found.append(
            Evidence.of(
                "S or H of the configuration does not fit its block sizes",
                spans=spans,
                scheduler_block=config.scheduler_block_size,
                unit=unit,
                why=own.refused,
            )
        )
    return found


def _key_within_known_tokens(moment: Moment) -> Findings:
    """HB-2: each inserted key names a hash boundary of some live request's known tokens."""
    new = naive_hits.inserted(moment.before.pool, moment.after.pool)
    if not new:
        return None
    prefixes, unit = moment.after.prefixes, moment.after.config.hash_block_size
    found = []
    for node, group, _, block in new:
        depth = prefixes.depth[node]
        if depth % unit or depth == 0:
            found.append(Evidence.of("a key between hash boundaries", block=block, group=group, boundary=depth, unit=unit))
        elif not any(naive_hits.node_at(prefixes, live.tip, depth) == node for live in moment.after.requests):
            found.append(
                Evidence.of("a key names tokens that no request has", block=block, group=group, boundary=depth, node=node)
            )
    return found


def _key_in_its_column(moment: Moment) -> Findings:
    """HB-3: each inserted key of a block in a table names a boundary of that column, as its token count says."""
    new = naive_hits.inserted(moment.before.pool, moment.after.pool)
    if not new:
        return None
    world, spans = moment.after, naive_hits.facts(moment.after.config).spans
    found: list[Evidence] = []
    judged = False
    for node, group, _, block in new:
        boundary = world.prefixes.depth[node]
        for request in world.requests:
            for index, entry in enumerate(request.groups[group].table):
                if entry != block or block == NULL_BLOCK:
                    continue
                judged = True
                low, high = index * spans[group], (index + 1) * spans[group]
                if not low < boundary <= high and not _is_checkpoint(request, group, index, boundary):
                    found.append(
                        Evidence.of(
                            "a key names a boundary outside its column",
                            request=request.request,
                            group=group,
                            column=index,
                            block=block,
                            boundary=boundary,
                            column_tokens=(low, high),
                        )
                    )
        tokens = world.pool.key_tokens[block]
        if (world.pool.key_node[block], world.pool.key_group[block]) == (node, group) and tokens not in (boundary, NO_KEY):
            found.append(
                Evidence.of(
                    "a primary key names another boundary than its token count",
                    block=block,
                    group=group,
                    boundary=boundary,
                    tokens=tokens,
                )
            )
    return found if judged or found else None


def _is_checkpoint(request: Request, group: int, column: int, boundary: int) -> bool:
    """Tell whether a column holds the internal checkpoint at a boundary, which may lie outside its range (T38, T10.2a)."""
    state = request.groups[group]
    return (state.checkpoint_column, state.checkpoint_position) == (column, boundary)


def _primary_has_tokens(moment: Moment) -> Findings:
    """HB-4: a block has a primary key iff it has the token count and the group of one."""
    pool = moment.after.pool
    if pool is moment.before.pool or (set(pool.key_node) == {NO_KEY} and set(pool.key_tokens) == {NO_KEY}):
        return None
    return [
        Evidence.of("a primary key without tokens, or the reverse", block=block, node=node, group=group, tokens=tokens)
        for block, (node, group, tokens) in enumerate(zip(pool.key_node, pool.key_group, pool.key_tokens, strict=True))
        if len({node == NO_KEY, group == NO_KEY, tokens == NO_KEY}) != 1 or (tokens != NO_KEY and tokens <= 0)
    ]


def _map_matches_blocks(moment: Moment) -> Findings:
    """HB-5: the map names a block under its primary and under what was added to that primary, nothing else."""
    pool, before = moment.after.pool, moment.before.pool
    if (pool.entries is before.entries and pool.key_node is before.key_node) or not (
        pool.entries or any(node != NO_KEY for node in pool.key_node)
    ):
        return None
    found = []
    by_block: dict[int, list[tuple[int, int, int]]] = {}
    for node, group, seq, block in pool.entries:
        by_block.setdefault(block, []).append((seq, node, group))
    for block, node in enumerate(pool.key_node):
        held = sorted(by_block.get(block, ()))
        names = [(key, group) for _, key, group in held]
        primary = (node, pool.key_group[block])
        if node == NO_KEY:
            if held:
                found.append(Evidence.of("the map names a block without a primary key", block=block, keys=names))
        elif primary not in names:
            found.append(Evidence.of("the map does not know a primary key", block=block, primary=primary, keys=names))
        elif names[0] != primary:
            found.append(
                Evidence.of("the map still names a block under a key it gave up", block=block, primary=primary, keys=names)
            )
        if len(names) != len(set(names)):
            found.append(Evidence.of("the map names a block twice under one key", block=block, keys=names))
    if by_block.keys() - set(range(len(pool.key_node))):
        found.append(Evidence.of("the map names a block outside the pool", blocks=sorted(by_block)))
    return found


def _null_is_never_keyed(moment: Moment) -> Findings:
    """HB-6: no key resolves to the null block."""
    pool = moment.after.pool
    if pool.entries is moment.before.pool.entries or not pool.entries:
        return None
    named = [(node, group) for node, group, _, block in pool.entries if block == NULL_BLOCK]
    if named or pool.key_node[NULL_BLOCK] != NO_KEY:
        return [Evidence.of("the null block carries keys", block=NULL_BLOCK, keys=named)]
    return ()


def _promotion_increases(moment: Moment) -> Findings:
    """HB-7: a primary key that replaces another stands for more tokens, unless the block was handed out in between."""
    before, after = moment.before.pool, moment.after.pool
    if isinstance(moment.action, Withdraw):
        return _withdrawn_keeps_others(moment)
    taken = moment.record.taken if moment.record is not None else ()
    found: list[Evidence] = []
    judged = False
    for node, group, _, block in naive_hits.inserted(before, after):
        replaced = before.key_node[block] != NO_KEY and block not in taken and not _holds_checkpoint(moment, block)
        if replaced and (node, group) == (after.key_node[block], after.key_group[block]):
            judged = True
            if after.key_tokens[block] <= before.key_tokens[block]:
                found.append(
                    Evidence.of(
                        "a primary key gives way to one for no more tokens",
                        block=block,
                        group=group,
                        was=before.key_tokens[block],
                        tokens=after.key_tokens[block],
                    )
                )
    for node, group, block in _vanished(moment):
        judged = True
        if after.key_tokens[block] <= before.key_tokens[block]:
            found.append(Evidence.of("a key vanishes without eviction, reuse or promotion", block=block, group=group, key=node))
    return found if judged else None


def _holds_checkpoint(moment: Moment, block: int) -> bool:
    """Tell whether a block is some request's internal checkpoint: its keys are replaced or removed whole (T10.2a)."""
    return any(
        block in state.table[state.checkpoint_column : state.checkpoint_column + 1]
        for request in moment.after.requests
        for state in request.groups
        if state.checkpoint_column >= 0
    )


def _vanished(moment: Moment) -> list[tuple[int, int, int]]:
    """Return (node, group, block) of the keys that an action removed, but for eviction by id, reset, reuse, and the move
    of a producer's keys to its copy.
    """
    record, action = moment.record, moment.action
    if record is None or isinstance(action, ResetCache) or moment.before.pool.entries is moment.after.pool.entries:
        return []
    gone = set(action.blocks) if isinstance(action, EvictBlocks) else set(record.taken)
    gone |= ground.doubted(moment.before, action)
    gone |= {entry[3] for entry in moment.before.pool.entries if _holds_checkpoint(moment, entry[3])}
    now = {(node, group, block) for node, group, _, block in moment.after.pool.entries}
    queued = [copy for copy in moment.after.plan.copies if copy not in moment.before.plan.copies]
    return [
        (node, group, block)
        for node, group, _, block in moment.before.pool.entries
        if (node, group, block) not in now
        and block not in gone
        and not any(source == block and (node, group, copy) in now for _, source, copy in queued)
    ]


def _withdrawn_keeps_others(moment: Moment) -> list[Evidence]:
    """HB-7: a withdrawal changes keys on the blocks of the withdrawn request only (T39)."""
    request = next((live for live in moment.before.requests if live.request == getattr(moment.action, "request", None)), None)
    if moment.record is None or request is None:
        return []
    mine = {block for state in request.groups for block in state.table}
    before = {entry for entry in moment.before.pool.entries if entry[3] not in mine}
    lost = sorted(before - set(moment.after.pool.entries))
    return [Evidence.of("a withdrawal takes keys of blocks that are not its own", keys=lost)] if lost else []


def _registering(moment: Moment) -> Request | None:
    """Return the request whose caching call an action may have made: an allocation's, or that of a processed output."""
    if moment.record is None or not isinstance(moment.action, Allocate | Output):
        return None
    return ground.request_of(moment.after, moment.action.request)


def _only_the_prompt_tail_is_partial(moment: Moment) -> Findings:
    """HB-13: a partial attention key is inserted at the registering request's prompt tail and nowhere else."""
    world, request = moment.after, _registering(moment)
    if request is None:
        return None
    facts = naive_hits.facts(world.config)
    partial = [
        (node, group, block)
        for node, group, _, block in naive_hits.inserted(moment.before.pool, world.pool)
        if group in facts.attention and world.prefixes.depth[node] % facts.spans[group]
    ]
    if not partial:
        return None
    unit = world.config.hash_block_size
    found = []
    for node, group, block in partial:
        last_excluded = group not in facts.eagle and world.config.profile.prompt_tail == "P-1"
        tail = naive.prompt_tail_boundary(request.num_prompt, unit, request.num_tokens // unit, last_excluded)
        if group not in facts.full or node != naive_hits.node_at(world.prefixes, request.tip, tail):
            found.append(
                Evidence.of(
                    "a partial attention key that is not the prompt tail",
                    request=request.request,
                    group=group,
                    block=block,
                    boundary=world.prefixes.depth[node],
                    tail=tail,
                )
            )
    return found


def _only_confirmed_tokens_are_keyed(moment: Moment) -> Findings:
    """HB-14: what a caching call inserts is within the request's known tokens that are computed when its step has run.

    An allocation may key the tokens its chunk ends at, an output those before the ones still in flight; drafts and
    placeholders are not known.
    """
    request = _registering(moment)
    old = ground.request_of(moment.before, request.request) if request is not None else None
    new = naive_hits.inserted(moment.before.pool, moment.after.pool)
    if request is None or old is None or not new:
        return None
    world, action = moment.after, moment.action
    if isinstance(action, Allocate):
        end = old.computed + action.local + action.external + action.new_tokens
        most = min(end, old.num_tokens)
    else:
        most = min(request.computed - request.in_flight, request.num_tokens)
    found = []
    if isinstance(action, Output) and request.status is not Status.RUNNING:
        found.append(Evidence.of("the output of a request that does not run registers keys", request=request.request))
    for node, group, _, block in new:
        boundary = world.prefixes.depth[node]
        limit = ground.cacheable_tokens(world.config, group, most)
        if boundary > limit or naive_hits.node_at(world.prefixes, request.tip, boundary) != node:
            found.append(
                Evidence.of(
                    "a key counts drafts, placeholders or tokens in flight",
                    request=request.request,
                    group=group,
                    block=block,
                    boundary=boundary,
                    cacheable=limit,
                    num_tokens=request.num_tokens,
                )
            )
    return found


LAWS: tuple[Law, ...] = (
    Law(
        id="HB-1",
        mark="D",
        sentence="A configuration is accepted iff H divides S and every cacheable block size and every block size divides "
        "S; H and S are those of 2.2.",
        source="vLLM 0.33.0",
        faults=("M-SCR-1",),
        check_config=_accepted_sizes,
    ),
    Law(
        id="HB-2",
        mark="S",
        sentence="Every key names a hash boundary within the tokens that some request knows when the key is inserted.",
        source="vLLM 0.33.0",
        faults=("M-SPEC-1",),
        check=_key_within_known_tokens,
    ),
    Law(
        id="HB-3",
        mark="S",
        sentence="A key inserted for a block in column j of a table names a boundary in (jE, (j+1)E], the one that the "
        "block's token count says (internal checkpoints excepted).",
        source="vLLM 0.33.0",
        faults=("M-HASH-1", "M-PUB-14"),
        check=_key_in_its_column,
    ),
    Law(
        id="HB-4",
        mark="D",
        sentence="A block has a primary key iff it has the token count and the group of one.",
        source="vLLM 0.33.0",
        faults=("M-HASH-2",),
        check=_primary_has_tokens,
    ),
    Law(
        id="HB-5",
        mark="S",
        sentence="The key map names a block under its primary key and the secondary keys added to it, and under no other.",
        source="vLLM 0.33.0",
        faults=("M-PROMO-1",),
        check=_map_matches_blocks,
    ),
    Law(
        id="HB-6",
        mark="S",
        sentence="No key resolves to the null block.",
        source="vLLM 0.33.0",
        faults=("M-NULL-1",),
        check=_null_is_never_keyed,
    ),
    Law(
        id="HB-7",
        mark="D",
        sentence="The token count of a block's primary key strictly increases until the block is evicted or reused "
        "(roll-back of a withdrawn plan and internal checkpoints excepted).",
        source="vLLM 0.33.0",
        faults=("M-PROMO-2",),
        check=_promotion_increases,
    ),
    Law(
        id="HB-13",
        mark="D",
        sentence="The only partial attention key that a request registers is the one of its prompt tail (T9.2).",
        source="vLLM 0.33.0",
        faults=("M-PART-1",),
        on=(Allocate, Output),
        check=_only_the_prompt_tail_is_partial,
    ),
    Law(
        id="HB-14",
        mark="S",
        sentence="Keys count confirmed tokens only: no drafts, no placeholders, and after an output none that are in flight.",
        source="vLLM 0.33.0",
        faults=("M-SPEC-1",),
        on=(Allocate, Output),
        check=_only_confirmed_tokens_are_keyed,
    ),
)
