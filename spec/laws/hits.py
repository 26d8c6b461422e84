"""Laws of hits and of the gate that decides where they may end: HB-8 to HB-12 and HB-15 (semantics 5.2), EAGLE included.

The truth comes from the key map and from the search of ``naive_hits``. ``configure`` is called by HB-11 as what it judges.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvproof.core import config as configs
from kvproof.core.actions import Allocate, Lookup, LookupExternal
from kvproof.core.config import Config, Group
from kvproof.core.errors import ConfigError
from kvproof.core.pool import NULL_BLOCK
from kvproof.core.world import Request, Status
from kvproof.spec import ground, ground_host, naive_hits
from kvproof.spec.laws.base import Evidence, Findings, Law, Moment


def _hit_is_aligned(moment: Moment) -> Findings:
    """HB-8: a hit ends at a multiple of A, an external one of H, or of S where the host's hits are coarse."""
    if moment.record is None:
        return None
    if isinstance(moment.action, LookupExternal):
        length, unit = moment.record.external, ground_host.alignment(moment.before.config)
        if length % unit or length < 0:
            return [Evidence.of("an external hit that does not end on the host's alignment", external=length, alignment=unit)]
        return () if length else None
    if moment.record.local == 0:
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
    request = ground.request_of(moment.before, action.request)
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
    return ground.request_of(moment.before, moment.action.request)


def _hit_is_resumable(moment: Moment) -> Findings:
    """HB-10: every group's list is what it needs to resume at the joint hit."""
    request = _joint_lookup(moment)
    if request is None or moment.record is None or moment.record.local == 0:
        return None
    world, hit = moment.before, moment.record.local
    known = naive_hits.keys(world.pool)
    nodes = ground.lineage(world.prefixes, request.tip)
    facts = naive_hits.facts(world.config)
    found = []
    for group, spec in enumerate(world.config.groups):
        size, blocks = facts.spans[group], moment.record.lists[group]
        if not spec.prefix_cacheable:
            if blocks:
                found.append(Evidence.of("a group that is never cached has a list", group=group, blocks=blocks))
        elif hit >= len(nodes) or len(blocks) != len(range(0, hit, size)):
            found.append(Evidence.of("a list does not cover the hit", group=group, hit=hit, blocks=blocks))
        elif group in facts.recurrent:
            if (ground.keeps_snapshots(spec) and any(blocks[:-1])) or blocks[-1] not in known.get((nodes[hit], group), ()):
                found.append(Evidence.of("no state of exactly the hit", group=group, hit=hit, blocks=blocks))
        else:
            found += _columns_are_keyed(known, nodes, (group, spec, size), hit, blocks)
    return found


def _columns_are_keyed(
    known: naive_hits.Keys, nodes: list[int], group: tuple[int, Group, int], hit: int, blocks: tuple[int, ...]
) -> Iterator[Evidence]:
    """Yield the entries of an attention list that the hit needs and that carry no key of it.

    Full attention needs all of them, a windowed group those that the next position reads; the rest may be null.
    """
    index, spec, size = group
    needed = ground.unread(spec, hit) // size
    for column, block in enumerate(blocks):
        if block == NULL_BLOCK and column < needed:
            continue
        end = (column + 1) * size
        # The last block may be known by any boundary from the hit on, the others by their edge only.
        inside = end >= hit and spec.kind == ground.FULL
        boundaries = range(min(hit, end), min(end, len(nodes) - 1) + 1) if inside else range(end, end + 1)
        if not any(n < len(nodes) and block in known.get((nodes[n], index), ()) for n in boundaries):
            yield Evidence.of("a hit block has no key of the hit", group=index, hit=hit, column=column, block=block)


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
        wanted = naive_hits.gate(config.groups, caching=config.caching, dcp_size=dcp_size, hash_block=built.hash_block_size)
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


def _no_class_is_overruled(moment: Moment) -> Findings:
    """CA-6: the joint hit is not beyond what any class can resume at by itself."""
    request = _joint_lookup(moment)
    if request is None or moment.record is None or moment.record.local == 0:
        return None
    world = moment.before
    found = []
    for members in naive_hits.facts(world.config).classes:
        own = naive_hits.class_hit(world.config, world.pool, world.prefixes, request, members)
        if moment.record.local > own:
            found.append(
                Evidence.of(
                    "a joint hit beyond the hit of a group",
                    request=request.request,
                    groups=members,
                    local=moment.record.local,
                    own=own,
                )
            )
    return found


LAWS: tuple[Law, ...] = (
    Law(
        id="HB-8",
        mark="D",
        sentence="A local hit is a multiple of A; an external one is a multiple of H if the host's hits are fine-grained, "
        "else of S.",
        source="#54736",
        faults=("M-LAZY-1",),
        on=(Lookup, LookupExternal),
        check=_hit_is_aligned,
    ),
    Law(
        id="HB-9",
        mark="S",
        sentence="A joint hit leaves at least the last token to be computed; with a recurrent group so do hit and external "
        "tokens together.",
        source="#44599",
        faults=("M-HIT-1",),
        on=(Lookup, Allocate),
        check=_something_is_left_to_compute,
    ),
    Law(
        id="HB-10",
        mark="S",
        sentence="At a joint hit every group can resume: attention has a keyed block for every position that it still reads, "
        "a recurrent group the state of exactly that boundary.",
        source="#50493, #50344",
        faults=("M-HIT-2", "M-HIT-3", "M-PUB-1", "M-PUB-28", "M-PUB-29", "M-PUB-32", "M-PUB-33"),
        on=(Lookup,),
        check=_hit_is_resumable,
    ),
    Law(
        id="HB-11",
        mark="D",
        sentence="Fine-grained hits are on iff the four conditions of 2.4 hold.",
        source="#50493",
        faults=("M-GATE-1", "M-GATE-2", "M-GATE-3", "M-SLOT-4"),
        check_config=_gate_is_the_definition,
    ),
    Law(
        id="HB-12",
        mark="S",
        sentence="With several DCP ranks the joint hit is not beyond the deepest replicated recurrent state that is keyed.",
        source="#50493",
        faults=("M-HIT-2",),
        on=(Lookup,),
        check=_bounded_by_the_snapshot,
    ),
    Law(
        id="HB-15",
        mark="C",
        sentence="The joint hit is the greatest aligned boundary within the limit at which every group can resume and those "
        "that owe an EAGLE drop also match what they give up.",
        source="vLLM 0.33.0",
        faults=("M-HIT-2", "M-HIT-4", "M-HIT-5", "M-PUB-36", "M-HIT-6", "M-HIT-7", "M-HIT-8"),
        on=(Lookup,),
        check=_hit_is_the_greatest,
        bent_by=(
            ("attention_limit", "current"),
            ("void_drops", "without_drop"),
            ("empty_window", "one_block"),
            ("short_runs", "align"),
        ),
    ),
    Law(
        id="CA-6",
        mark="S",
        sentence="The joint hit is not beyond the hit of any group by itself.",
        source="#50344",
        faults=("M-PUB-33", "M-HIT-2"),
        on=(Lookup,),
        check=_no_class_is_overruled,
    ),
)
