"""Laws of sizes, ownership and ranks: family DS (semantics 5.3).

``geometry`` and ``reachability`` of ``core/`` are imported here as what DS-1, DS-2, DS-3, DS-4 and DS-10 judge, on
small grids around a configuration; what is true comes from counting in ``naive`` and from contents.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import asdict, frozen

from kvproof.core import geometry, reachability
from kvproof.core.actions import BuildMetadata, Dispatch, Execute
from kvproof.core.config import Config
from kvproof.core.world import Scheduled, Step, World
from kvproof.spec import ground, ground_host, naive, naive_hits
from kvproof.spec.laws.base import Evidence, Findings, Law, Moment

MOST_EVIDENCE = 4
"""Of a wrong formula the first few places of a grid say everything."""

LARGEST_GRID_BLOCK = 16
"""Positions are counted one by one, so blocks of a grid are kept small; ownership repeats with every virtual block."""


@frozen(slots=True)
class Layout:
    """How the positions of one attention group are laid out: tokens of a block on one rank, N, I, and the flag."""

    block_size: int
    dcp_size: int
    interleave: int
    sharded: bool

    def named(self) -> dict[str, int]:
        """Return the numbers of the layout by name, for evidence."""
        return asdict(self)


def divisors(number: int) -> list[int]:
    """Return the divisors of a positive number, ascending."""
    return [candidate for candidate in range(1, number + 1) if number % candidate == 0]


def layouts(config: Config) -> Iterator[Layout]:
    """Yield the layouts around a configuration: its block sizes, ranks 1, 2, 4 and its own, all interleaves, both flags."""
    sizes = sorted({min(group.block_size, LARGEST_GRID_BLOCK) for group in config.groups})
    for block_size in sizes:
        for dcp_size in sorted({1, 2, 4, min(config.dcp_size, 8)}):
            for interleave in divisors(block_size):
                yield Layout(block_size, dcp_size, interleave, True)
            yield Layout(block_size, dcp_size, 1, False)


def _first(found: Iterator[Evidence]) -> list[Evidence]:
    return [evidence for evidence, _ in zip(found, range(MOST_EVIDENCE), strict=False)]


# --- DS-1 -----------------------------------------------------------------------------------------------------------


def _spans_differ(config: Config) -> Iterator[Evidence]:
    for group, (spec, expected, actual) in enumerate(
        zip(config.groups, naive_hits.facts(config).spans, config.sizes, strict=True)
    ):
        if actual != expected:
            yield Evidence.of("a group's block does not span bs*N iff sharded", group=group, expected=expected, actual=actual)
        positions = len(config.cells[group])
        if positions != (expected if ground.has_positions(spec) else 0):
            yield Evidence.of("a block's contents have another span", group=group, expected=expected, actual=positions)
        if group in naive_hits.facts(config).attention:
            columns, step = config.row_capacity[group] // config.append_expansion, naive.row_step(spec.block_size)
            wanted = naive.columns_needed(config.max_model_len, spec.block_size, bool(spec.sharded), config.dcp_size)
            if not wanted <= columns < wanted + step or columns % step:
                yield Evidence.of("the worker's rows use another span", group=group, columns=columns, wanted=wanted, step=step)
    for layout in layouts(config):
        expected = naive.span(layout.block_size, layout.sharded, layout.dcp_size)
        for consumer, actual in (
            ("manager", geometry.effective_block_size(layout.block_size, layout.sharded, layout.dcp_size)),
            ("native connector", reachability.tokens_per_block(layout.block_size, layout.sharded, layout.dcp_size)),
            ("lazy target", reachability.lazy_span(layout.block_size, layout.sharded, layout.dcp_size)),
        ):
            if actual != expected:
                yield Evidence.of(
                    "a consumer uses another span", consumer=consumer, **layout.named(), expected=expected, actual=actual
                )


def _spans(config: Config) -> Findings:
    """DS-1: E = bs*N iff sharded, for every consumer of it."""
    return _first(_spans_differ(config))


def lazy_target(config: Config) -> int:
    """Return how far a lazy walk goes, in blocks: twice what a largest chunk may need over all cached groups (2.8)."""
    blocks = 0
    for group, spec in enumerate(config.groups):
        size = ground.span(config, group)
        if ground.is_recurrent(spec):
            blocks += 2
        elif spec.kind == ground.SLIDING:
            blocks += ground.columns(spec.window or 1, size) + 1
        elif spec.prefix_cacheable:
            blocks += ground.columns(config.max_chunk, size)
    return 2 * blocks


def _walked_blocks(moment: Moment) -> Findings:
    """DS-1 for a lazy host: the walk picks what is keyed and not on the host among as many free blocks as a step may need."""
    world, before, record = moment.before, moment.before.host, moment.record
    if record is None or before is None:
        return None
    pool, queue = world.pool, list(world.pool.free)
    if before.cursor in queue:
        queue = queue[queue.index(before.cursor) + 1 :]
    there = {(node, group) for node, group, _, _ in before.pool.entries}
    picked: list[int] = []
    for block in queue[: lazy_target(world.config)]:
        if len(picked) == len(before.pool.free):
            break
        key = (pool.key_node[block], pool.key_group[block])
        if key[0] >= 0 and key not in there:
            picked.append(block)
    if record.store_device == tuple(picked):
        return () if picked else None
    values = {"target": lazy_target(world.config), "expected": tuple(picked), "actual": record.store_device}
    return [Evidence.of("the lazy walk goes another way than the groups' spans say", **values)]


def _offloaded(moment: Moment) -> Findings:
    """DS-1 for the host tier, eager or lazy."""
    return _scanned_entries(moment) if ground_host.is_eager(moment.before) else _walked_blocks(moment)


def _scanned_entries(moment: Moment) -> Findings:
    """DS-1 for the host tier: where it has room left, the scan by index passed as many entries as hold confirmed tokens."""
    world, before, host = moment.before, moment.before.host, moment.after.host
    if moment.record is None or before is None or host is None or not host.pool.free:
        return None
    gone = (*world.plan.preempted, *world.plan.preempted_before)
    judged = False
    found = []
    for entry in world.plan.scheduled:
        request, was = ground.request_of(world, entry.request), ground_host.track_of(before, entry.request)
        now = ground_host.track_of(host, entry.request)
        if request is None or was is None or now is None:
            continue
        if entry.fresh and any(was.cursors):
            continue  # when the cursors of a preempted request go back is not what this is about
        confirmed = min(request.computed - request.placeholders, request.num_tokens)
        for group in ground_host.stable_groups(world.config):
            judged = True
            first = 0 if entry.request in gone else was.cursors[group]
            passed = max(first, *(place.column + 1 for place in ground_host.scanned(world, request, group, confirmed, 0)), 0)
            if now.cursors[group] != passed:
                found.append(
                    Evidence.of(
                        "the host's scan counts blocks of another span",
                        request=entry.request,
                        group=group,
                        confirmed=confirmed,
                        expected=passed,
                        actual=now.cursors[group],
                    )
                )
    return found if judged else None


# --- DS-2, DS-3, DS-4, DS-10: grids -----------------------------------------------------------------------------------


def _owners_differ(config: Config) -> Iterator[Evidence]:
    for layout in layouts(config):
        size, ranks, run, sharded = layout.block_size, layout.dcp_size, layout.interleave, layout.sharded
        count = 2 * naive.span(size, sharded, ranks) + 1
        places = naive.placements(count, size, ranks, run) if sharded else ()
        for position in range(count):
            expected = {places[position].rank} if sharded else set(range(ranks))
            owning = {rank for rank in range(ranks) if geometry.owns(position, rank, size, sharded, ranks, run)}
            mapped = {
                rank
                for rank in range(ranks)
                if geometry.slot_mapping(position, rank, 1, block_size=size, sharded=sharded, dcp_size=ranks, interleave=run)
                != geometry.PAD_SLOT
            }
            if owning != expected or mapped != expected:
                yield Evidence.of(
                    "a position is not written on exactly the ranks that hold it",
                    **layout.named(),
                    position=position,
                    expected=sorted(expected),
                    owning=sorted(owning),
                    mapped=sorted(mapped),
                )


def _owners(config: Config) -> Findings:
    """DS-2 on a grid: a sharded position has one writing rank, a replicated one all of them."""
    return _first(_owners_differ(config))


def _written_wrongly(moment: Moment, step: Step) -> Iterator[Evidence]:
    world = moment.after
    for entry in step.scheduled:
        nodes = ground.lineage(world.prefixes, entry.tip)
        for group in naive_hits.facts(world.config).attention:
            yield from _written_by(world, entry, group, nodes)


def _written_by(world: World, entry: Scheduled, group: int, nodes: list[int]) -> Iterator[Evidence]:
    config = world.config
    spec, size = config.groups[group], naive_hits.facts(config).spans[group]
    for position in range(entry.start, entry.start + entry.amount):
        if position + 1 >= len(nodes):
            return  # a token that is not known yet
        block = ground.row_block(world, group, entry.row, position // size)
        if block == ground.MISSING:
            return  # the row is too short: TB-7 and TB-11 judge that
        content = world.contents[block]
        cells = content[1:] if content and content[0] == group else ()
        ranks = [cells[rank * spec.block_size : (rank + 1) * spec.block_size] for rank in range(config.dcp_size)]
        holding = [rank for rank, held in enumerate(ranks) for cell in held if cell == nodes[position + 1]]
        good = len(holding) == 1 if spec.sharded else holding == list(range(config.dcp_size))
        if not good:
            yield Evidence.of(
                "a written position is not on exactly one rank of a sharded group or on every rank of a replicated one",
                request=entry.request,
                group=group,
                position=position,
                sharded=bool(spec.sharded),
                ranks=holding,
            )


def _written(moment: Moment) -> Findings:
    """DS-2 on contents: after the forward, count on how many ranks each scheduled position can be found."""
    if moment.record is None or not isinstance(moment.action, Execute) or moment.action.part != "forward":
        return None
    step = ground.pending_step(moment.before)
    if step is None or not naive_hits.facts(moment.after.config).attention or not step.scheduled:
        return None
    return _first(_written_wrongly(moment, step))


def _offsets_differ(config: Config) -> Iterator[Evidence]:
    for layout in layouts(config):
        if not layout.sharded:
            continue
        size, ranks, run = layout.block_size, layout.dcp_size, layout.interleave
        count = 2 * naive.span(size, True, ranks)
        seen: dict[tuple[int, int, int], int] = {}
        for position, place in enumerate(naive.placements(count, size, ranks, run)):
            rank = geometry.owner_rank(position, size, ranks, run)
            column = geometry.block_column(position, size, True, ranks)
            offset = geometry.block_offset(position, size, True, ranks, run)
            actual = (rank, column, offset)
            if actual != (place.rank, place.column, place.offset):
                yield Evidence.of(
                    "a position lies elsewhere than dealing in runs puts it",
                    **layout.named(),
                    position=position,
                    expected=(place.rank, place.column, place.offset),
                    actual=actual,
                )
            if actual in seen or not (0 <= rank < ranks and 0 <= offset < size):
                yield Evidence.of(
                    "two positions share a slot, or one has none",
                    **layout.named(),
                    position=position,
                    slot=actual,
                    other=seen.get(actual),
                )
            seen[actual] = position


def _bijection(config: Config) -> Findings:
    """DS-3: positions of a virtual block and (rank, offset) pairs correspond one to one."""
    return _first(_offsets_differ(config))


def _lengths_differ(config: Config) -> Iterator[Evidence]:
    for layout in layouts(config):
        if not layout.sharded:
            continue
        ranks, run = layout.dcp_size, layout.interleave
        counted = [0] * ranks
        for num_tokens, place in enumerate([None, *naive.placements(2 * layout.block_size * ranks + 1, run, ranks, run)]):
            if place is not None:
                counted[place.rank] += 1
            actual = [geometry.local_length(num_tokens, rank, ranks, run) for rank in range(ranks)]
            if actual != counted:
                yield Evidence.of(
                    "local lengths are not the owned positions",
                    **layout.named(),
                    num_tokens=num_tokens,
                    expected=tuple(counted),
                    actual=actual,
                )


def _local_lengths(config: Config) -> Findings:
    """DS-4 on a grid: local lengths count the owned positions, so they add up to the length."""
    return _first(_lengths_differ(config))


def held(config: Config, num_tokens: int) -> tuple[int, ...]:
    """Return how many of the first tokens each rank holds: one run per whole round, the rest dealt one by one."""
    rounds, rest = divmod(num_tokens, config.dcp_size * config.interleave)
    return tuple(
        rounds * config.interleave + length for length in naive.local_lengths(rest, config.dcp_size, config.interleave)
    )


def _dispatched_lengths(moment: Moment) -> Findings:
    """DS-4 on a dispatch: the lengths that the ranks are told are those that they hold."""
    config = moment.after.config
    if moment.record is None or not isinstance(moment.action, Dispatch) or config.dcp_size == 1 or not moment.after.steps:
        return None
    ends = [(entry.request, entry.start + entry.amount) for entry in moment.after.steps[-1].scheduled]
    if not ends:
        return None
    expected = tuple((request, end, *held(config, end)) for request, end in ends)
    if moment.record.local_lengths != expected:
        return [
            Evidence.of(
                "the ranks are told other lengths than they hold", expected=expected, actual=moment.record.local_lengths
            )
        ]
    return ()


def _branches_differ(config: Config) -> Iterator[Evidence]:
    for layout in layouts(config):
        for num_tokens in range(layout.block_size * layout.dcp_size + 1):
            lengths = naive.local_lengths(num_tokens, layout.dcp_size, layout.interleave)
            if geometry.has_context(num_tokens) != naive.has_context(lengths):
                yield Evidence.of(
                    "a rank's branch does not follow from the global length",
                    **layout.named(),
                    num_tokens=num_tokens,
                    local=lengths,
                )


def _one_branch(config: Config) -> Findings:
    """DS-10 on a grid: there is context to attend to iff some rank holds a token of it."""
    return _first(_branches_differ(config))


def _same_branch(moment: Moment) -> Findings:
    """DS-10 on a forward: every rank attends to context iff some rank holds a token of it."""
    if moment.record is None or not isinstance(moment.action, Execute) or moment.action.part != "forward":
        return None
    config, step = moment.before.config, ground.pending_step(moment.before)
    if config.dcp_size == 1 or step is None or not step.scheduled:
        return None
    expected = tuple(
        (entry.request, entry.start, *(naive.has_context(held(config, entry.start)),) * config.dcp_size)
        for entry in step.scheduled
    )
    if moment.record.branches != expected:
        return [Evidence.of("the ranks take different branches", expected=expected, actual=moment.record.branches)]
    return ()


# --- DS-5 -----------------------------------------------------------------------------------------------------------


def _copied_everywhere(moment: Moment) -> Findings:
    """DS-5: after the copies, each destination equals what its source was, on every rank."""
    if moment.record is None or not isinstance(moment.action, Execute) or moment.action.part != "copy":
        return None
    step = ground.pending_step(moment.before)
    if step is None or not step.copies:
        return None
    config = moment.after.config
    found = []
    for group, source, destination in step.copies:
        before, after = moment.before.contents[source], moment.after.contents[destination]
        if before != after:
            width = 1 if group in naive_hits.facts(config).recurrent else config.groups[group].block_size
            ranks = [
                rank
                for rank in range(config.dcp_size)
                if before[1 + rank * width : 1 + (rank + 1) * width] != after[1 + rank * width : 1 + (rank + 1) * width]
            ]
            found.append(
                Evidence.of("a copy differs from its source", group=group, source=source, destination=destination, ranks=ranks)
            )
    return found


LAWS: tuple[Law, ...] = (
    Law(
        id="DS-1",
        mark="D",
        sentence="A block of group g spans bs*N tokens iff the group is sharded, else bs; every consumer uses this "
        "span, the worker's rows and the host tier's scan included.",
        source="#54736, offload-scaling",
        faults=("M-GEO-1", "M-GEO-3", "M-GEO-4", "M-GEO-6", "M-PUB-4"),
        on=(BuildMetadata,),
        check=_offloaded,
        check_config=_spans,
    ),
    Law(
        id="DS-2",
        mark="S",
        sentence="Each position of a sharded group is written on exactly one rank, each position of a replicated group on "
        "every rank.",
        source="vLLM 0.33.0",
        faults=("M-SLOT-1",),
        on=(Execute,),
        check=_written,
        check_config=_owners,
    ),
    Law(
        id="DS-3",
        mark="S",
        sentence="Positions of a virtual block and pairs (rank, offset) correspond one to one.",
        source="vLLM 0.33.0",
        faults=("M-SLOT-2",),
        check_config=_bijection,
    ),
    Law(
        id="DS-4",
        mark="S",
        sentence="The local length on a rank counts the positions that it owns; over all ranks they add up to the length.",
        source="vLLM 0.33.0",
        faults=("M-SLOT-3",),
        on=(Dispatch,),
        check=_dispatched_lengths,
        check_config=_local_lengths,
    ),
    Law(
        id="DS-5",
        mark="S",
        sentence="A copy-on-write copies on every rank what that rank holds: the result equals the source.",
        source="#50493",
        faults=("M-COW-10",),
        on=(Execute,),
        check=_copied_everywhere,
    ),
    Law(
        id="DS-10",
        mark="S",
        sentence="All ranks of a step take the same branch on whether there is context to attend to, decided from global "
        "lengths.",
        source="#50493",
        faults=("M-CTX-1",),
        on=(Execute,),
        check=_same_branch,
        check_config=_one_branch,
    ),
)
