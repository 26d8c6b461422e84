"""Laws of hash boundaries, keys and hits: family HB (semantics 5.2).

The truth comes from the key map, from walking prefixes and from the search of ``naive_hits``. ``configure`` is called by
HB-1 and HB-11 as what they judge, never to judge by.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvproof.core import config as configs
from kvproof.core.actions import Allocate, Lookup, Withdraw
from kvproof.core.config import Config
from kvproof.core.errors import ConfigError
from kvproof.core.pool import NO_KEY, NULL_BLOCK
from kvproof.core.world import Request, Status
from kvproof.spec import naive, naive_hits
from kvproof.spec.laws.base import Evidence, Findings, Law, Moment


def _accepted_sizes(config: Config) -> Findings:
    """HB-1: S and H of the configuration, and which prefix match units are accepted for its groups."""
    spans = naive_hits.facts(config).spans
    cacheable = tuple(group.prefix_cacheable for group in config.groups)
    active = config.caching or bool(config.connectors)
    found = []
    asked: list[int | None] = [None, *sorted({1, 2, 3, config.hash_block_size, *spans, min(spans) + 1, naive.common_multiple(spans)})]
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
                if not low < boundary <= high:
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


def _primary_has_tokens(moment: Moment) -> Findings:
    """HB-4: a block has a primary key iff it has the token count and the group of one."""
    pool = moment.after.pool
    if pool is moment.before.pool or all(node == NO_KEY for node in pool.key_node) and not any(
        tokens != NO_KEY for tokens in pool.key_tokens
    ):
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
        return None
    taken = moment.record.taken if moment.record is not None else ()
    found: list[Evidence] = []
    judged = False
    for node, group, _, block in naive_hits.inserted(before, after):
        replaced = before.key_node[block] != NO_KEY and block not in taken
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
    return found if judged else None


def _hit_is_aligned(moment: Moment) -> Findings:
    """HB-8 (local): a hit ends at a multiple of A."""
    if moment.record is None or moment.record.local == 0:
        return None
    step = naive_hits.alignment(moment.before.config)
    if moment.record.local % step:
        return [Evidence.of("a hit that does not end on the alignment", local=moment.record.local, alignment=step)]
    return ()


def _something_is_left_to_compute(moment: Moment) -> Findings:
    """HB-9: a hit, and with a recurrent group hit and external tokens together, leave the last token to be computed."""
    action, record = moment.action, moment.record
    if record is None or not isinstance(action, Lookup | Allocate):
        return None
    request = naive_hits.find(moment.before, action.request)
    if request is None:
        return None
    if isinstance(action, Lookup):
        covered, most = record.local, request.num_tokens - 1
    else:
        if request.status is Status.RUNNING or not record.admitted:
            return None
        recurrent = bool(naive_hits.facts(moment.before.config).recurrent)
        covered = action.local + action.external
        most = request.num_tokens - 1 if recurrent or not action.external else request.num_tokens
    if covered == 0:
        return None
    if covered > most:
        return [
            Evidence.of(
                "a hit leaves nothing to compute", request=request.request, covered=covered, num_tokens=request.num_tokens
            )
        ]
    return ()


def _joint_lookup(moment: Moment) -> Request | None:
    """Return the request of a lookup that promises one boundary for all groups, else None."""
    if moment.record is None or moment.record.diverged or not isinstance(moment.action, Lookup):
        return None
    return naive_hits.find(moment.before, moment.action.request)


def _hit_is_resumable(moment: Moment) -> Findings:
    """HB-10: every group's list is what it needs to resume at the joint hit."""
    request = _joint_lookup(moment)
    if request is None or moment.record is None or moment.record.local == 0:
        return None
    world, hit = moment.before, moment.record.local
    known = naive_hits.keys(world.pool)
    nodes = naive_hits.path(world.prefixes, request.tip)
    facts = naive_hits.facts(world.config)
    found = []
    for members in facts.classes:
        for group in members:
            size, blocks = facts.spans[group], moment.record.lists[group]
            if hit >= len(nodes) or len(blocks) != len(range(0, hit, size)):
                found.append(Evidence.of("a list does not cover the hit", group=group, hit=hit, blocks=blocks))
                continue
            if group in facts.recurrent:
                if any(blocks[:-1]) or blocks[-1] not in known.get((nodes[hit], group), ()):
                    found.append(Evidence.of("no state of exactly the hit", group=group, hit=hit, blocks=blocks))
                continue
            for column, block in enumerate(blocks):
                end = (column + 1) * size
                # the last block may be known by any boundary from the hit on, the others by their edge only
                boundaries = range(min(hit, end), min(end, len(nodes) - 1) + 1) if end >= hit else range(end, end + 1)
                if not any(block in known.get((nodes[n], group), ()) for n in boundaries):
                    found.append(
                        Evidence.of("a hit block has no key that covers the hit", group=group, hit=hit, column=column, block=block)
                    )
    return found


def gate_variants(config: Config) -> Iterator[tuple[int, int, int]]:
    """Yield (N, I, requested unit) around a configuration: what the gate depends on, and the interleave, which it must not."""
    smallest = min((group.block_size for group in config.groups if group.sharded), default=1)
    units = sorted({1, config.hash_block_size, *(group.block_size for group in config.groups)})
    for dcp_size in sorted({1, 2, config.dcp_size}):
        for interleave in sorted({1, smallest}):
            for unit in units:
                yield dcp_size, interleave, unit


def _gate_is_the_definition(config: Config) -> Findings:
    """HB-11: fine-grained hits are on iff the four conditions of 2.4 hold, here and around this configuration."""
    found = []
    facts = naive_hits.facts(config)
    expected = config.hash_block_size if config.fine_grained else facts.scheduler_block
    if config.fine_grained != facts.gate:
        found.append(
            Evidence.of(
                "the fine-grained gate is wrong",
                expected=facts.gate,
                actual=config.fine_grained,
                dcp_size=config.dcp_size,
                interleave=config.interleave,
                unit=config.hash_block_size,
            )
        )
    if config.alignment != expected:
        found.append(Evidence.of("the alignment does not follow the gate", expected=expected, actual=config.alignment))
    for dcp_size, interleave, unit in gate_variants(config):
        try:
            built = configs.configure(
                config.groups, dcp_size=dcp_size, interleave=interleave, hash_block_size=unit, caching=config.caching
            )
        except ConfigError:
            continue
        wanted = naive_hits.gate(
            config.groups, caching=config.caching, dcp_size=dcp_size, hash_block=built.hash_block_size
        )
        if built.fine_grained != wanted:
            found.append(
                Evidence.of(
                    "the fine-grained gate is wrong for these groups",
                    expected=wanted,
                    actual=built.fine_grained,
                    dcp_size=dcp_size,
                    interleave=interleave,
                    unit=built.hash_block_size,
                )
            )
    return found


def _bounded_by_the_snapshot(moment: Moment) -> Findings:
    """HB-12: with several ranks the joint hit is not beyond the deepest state of the replicated groups."""
    config = moment.before.config
    request = _joint_lookup(moment)
    if request is None or moment.record is None or config.dcp_size == 1 or not naive_hits.facts(config).recurrent:
        return None
    if request.skip_reading or not config.caching:
        return None
    attention = naive_hits.attention_hit(config, moment.before.pool, moment.before.prefixes, request)
    if attention == 0 and moment.record.local == 0:
        return None
    deepest = naive_hits.deepest_state(config, moment.before.pool, moment.before.prefixes, request)
    if moment.record.local > deepest:
        return [
            Evidence.of(
                "a joint hit beyond the deepest replicated state",
                request=request.request,
                local=moment.record.local,
                deepest=deepest,
                attention=attention,
            )
        ]
    return ()


def _only_the_prompt_tail_is_partial(moment: Moment) -> Findings:
    """HB-13: a partial attention key is inserted at the registering request's prompt tail and nowhere else."""
    if not isinstance(moment.action, Allocate):
        return None
    world = moment.after
    facts = naive_hits.facts(world.config)
    partial = [
        (node, group, block)
        for node, group, _, block in naive_hits.inserted(moment.before.pool, world.pool)
        if group in facts.attention and world.prefixes.depth[node] % facts.spans[group]
    ]
    request = naive_hits.find(world, moment.action.request)
    if not partial or request is None:
        return None
    unit = world.config.hash_block_size
    tail = naive.prompt_tail_boundary(
        request.num_prompt, unit, request.num_tokens // unit, world.config.profile.prompt_tail == "P-1"
    )
    return [
        Evidence.of(
            "a partial attention key that is not the prompt tail",
            request=request.request,
            group=group,
            block=block,
            boundary=world.prefixes.depth[node],
            tail=tail,
        )
        for node, group, block in partial
        if node != naive_hits.node_at(world.prefixes, request.tip, tail)
    ]


def _hit_is_the_greatest(moment: Moment) -> Findings:
    """HB-15: the joint hit equals the one found by trying every boundary."""
    request = _joint_lookup(moment)
    if request is None or moment.record is None:
        return None
    world = moment.before
    expected = naive_hits.joint_hit(world.config, world.pool, world.prefixes, request)
    if moment.record.local != expected:
        return [
            Evidence.of(
                "the joint hit is not the greatest boundary at which every group can resume",
                request=request.request,
                expected=expected,
                actual=moment.record.local,
            )
        ]
    return ()


LAWS: tuple[Law, ...] = (
    Law(
        id="HB-1",
        mark="D",
        sentence="A configuration is accepted iff H divides S and every cacheable block size and every block size divides "
        "S; H and S are those of 2.2.",
        source="vLLM 0.33.0",
        faults=("M-SCR-1",),
        check_config=_accepted_sizes,
        later=True,
    ),
    Law(
        id="HB-2",
        mark="S",
        sentence="Every key names a hash boundary within the tokens that some request knows when the key is inserted.",
        source="vLLM 0.33.0",
        faults=("M-SPEC-1",),
        check=_key_within_known_tokens,
        later=True,
    ),
    Law(
        id="HB-3",
        mark="S",
        sentence="A key inserted for a block in column j of a table names a boundary in (jE, (j+1)E], the one that the "
        "block's token count says.",
        source="vLLM 0.33.0",
        faults=("M-HASH-1",),
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
        "(roll-back of a withdrawn plan excepted).",
        source="vLLM 0.33.0",
        faults=("M-PROMO-2",),
        check=_promotion_increases,
    ),
    Law(
        id="HB-8",
        mark="D",
        sentence="A local hit ends at a multiple of A.",
        source="vllm#54736",
        faults=("M-LAZY-1",),
        on=(Lookup,),
        check=_hit_is_aligned,
        later=True,
    ),
    Law(
        id="HB-9",
        mark="S",
        sentence="A joint hit leaves at least the last token to be computed; with a recurrent group so do hit and external "
        "tokens together.",
        source="vllm#44599",
        faults=("M-HIT-1",),
        on=(Lookup, Allocate),
        check=_something_is_left_to_compute,
    ),
    Law(
        id="HB-10",
        mark="S",
        sentence="At a joint hit every group can resume: attention has a keyed block for every position before it, a "
        "recurrent group the state of exactly that boundary.",
        source="vllm#50493, vllm#50344",
        faults=("M-HIT-2", "M-HIT-3"),
        on=(Lookup,),
        check=_hit_is_resumable,
    ),
    Law(
        id="HB-11",
        mark="D",
        sentence="Fine-grained hits are on iff the four conditions of 2.4 hold.",
        source="vllm#50493",
        faults=("M-GATE-1", "M-GATE-2", "M-GATE-3", "M-SLOT-4"),
        check_config=_gate_is_the_definition,
    ),
    Law(
        id="HB-12",
        mark="S",
        sentence="With several DCP ranks the joint hit is not beyond the deepest replicated recurrent state that is keyed.",
        source="vllm#50493",
        faults=("M-HIT-2",),
        on=(Lookup,),
        check=_bounded_by_the_snapshot,
    ),
    Law(
        id="HB-13",
        mark="D",
        sentence="The only partial attention key that a request registers is the one of its prompt tail (T9.2).",
        source="vLLM 0.33.0",
        faults=("M-PART-1",),
        on=(Allocate,),
        check=_only_the_prompt_tail_is_partial,
    ),
    Law(
        id="HB-15",
        mark="C",
        sentence="The joint hit is the greatest aligned boundary within the limit at which every group can resume.",
        source="vLLM 0.33.0",
        faults=("M-HIT-4",),
        on=(Lookup,),
        check=_hit_is_the_greatest,
        later=True,
    ),
)
