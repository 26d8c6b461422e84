"""Laws of the native offloading connector, judged on a configuration: DS-6, DS-7 and its part of LV-9 (semantics 2.7).

``native`` and ``reachability`` of ``core/`` are imported as what is judged, on chunks of one to three blocks; what is true
comes from counting tokens in ``naive``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kvproof.core import native, reachability
from kvproof.core.config import Config
from kvproof.spec import ground, naive, naive_hits
from kvproof.spec.laws.base import Evidence, Findings, Law

MOST_EVIDENCE = 4
MOST_CHUNKS = 4
CHUNK_SIZES = (1, 2, 3)
"""Blocks per chunk that a configuration is asked with."""

LARGEST_GRID_BLOCK = 16
MOST_TOKENS = 160
"""Tokens are counted one by one: groups whose chunks are longer are asked about their first tokens only."""


def _first(found: Iterator[Evidence]) -> list[Evidence]:
    return [evidence for evidence, _ in zip(found, range(MOST_EVIDENCE), strict=False)]


def _judged(config: Config) -> bool:
    """Tell whether something can be offloaded: blocks with keys (without prefix caching H need not divide a block)."""
    return config.caching and bool(naive_hits.facts(config).classes)


def _each(config: Config, ask: Callable[[Config, native.Native, native.Chunked], Iterator[Evidence]]) -> Iterator[Evidence]:
    for blocks in CHUNK_SIZES:
        geometry = native.resolve(config, blocks_per_chunk=blocks)
        for chunked in geometry.groups:
            yield from ask(config, geometry, chunked)


# --- DS-6 -----------------------------------------------------------------------------------------------------------


def _chunk_differs(config: Config, geometry: native.Native, chunked: native.Chunked) -> Iterator[Evidence]:
    """Yield the chunks whose key names another boundary than their blocks end at; block b of the table is entry b - 1."""
    span = naive_hits.facts(config).spans[chunked.group]
    unit, blocks = config.hash_block_size, geometry.blocks_per_chunk
    boundaries = tuple(range(unit, 2 * MOST_CHUNKS * span * blocks * config.dcp_size + 1, unit))
    table = tuple(range(1, MOST_CHUNKS * blocks + 1))
    for chunk in range(MOST_CHUNKS):
        boundary, group = native.chunk_key(boundaries, chunked, chunk)
        moved = native.chunk_blocks(geometry, table, chunk)
        held = [(block - 1) * span for block in moved], [block * span for block in moved]
        # What lies before the chunk's end: its own tokens for attention, the state at its end for a recurrent group.
        ends = held[1][-1] if held[1] else 0
        begins = held[0][0] if held[0] else 0
        expected = (chunk + 1) * blocks * span
        whole = len(moved) == blocks and begins == chunk * blocks * span
        if (boundary, group, ends) != (expected, chunked.group, expected) or not whole:
            yield Evidence.of(
                "the key of a chunk and the blocks that are copied stand for different tokens",
                group=chunked.group,
                blocks_per_chunk=blocks,
                chunk=chunk,
                key=boundary,
                key_group=group,
                blocks=moved,
                begins=begins,
                ends=ends,
                expected=expected,
            )


def _count_differs(config: Config, geometry: native.Native, chunked: native.Chunked) -> Iterator[Evidence]:
    """Yield the lengths at which another number of chunks is stored than the tokens fill."""
    span = naive_hits.facts(config).spans[chunked.group] * geometry.blocks_per_chunk
    whole = 0
    for tokens in range(min(MOST_CHUNKS * span, MOST_TOKENS) + 1):
        whole += tokens > 0 and tokens % span == 0
        counted = native.storable_chunks(config, geometry, chunked, tokens)
        if counted != whole:
            yield Evidence.of(
                "another number of chunks is stored than the tokens fill",
                group=chunked.group,
                blocks_per_chunk=geometry.blocks_per_chunk,
                tokens=tokens,
                expected=whole,
                actual=counted,
            )


def _handoff_differs(config: Config, geometry: native.Native, chunked: native.Chunked) -> Iterator[Evidence]:
    """Yield the handed over states that are stored although no chunk ends there, or the other way round."""
    if not ground.keeps_snapshots(config.groups[chunked.group]):
        return
    span, unit = naive_hits.facts(config).spans[chunked.group] * geometry.blocks_per_chunk, config.hash_block_size
    limit = 2 * span + span // 2
    ends = {end for end in range(span, limit + 1) if sum(1 for _ in range(span, end + 1, span)) * span == end}
    for boundary in range(unit, 3 * span + 1, unit):
        for block in (0, 1):
            expected = block != 0 and boundary in ends
            if native.accepts_handoff(chunked, block, boundary, limit) != expected:
                yield Evidence.of(
                    "a handed over state is stored where no storable chunk ends, or not where one does",
                    group=chunked.group,
                    blocks_per_chunk=geometry.blocks_per_chunk,
                    block=block,
                    boundary=boundary,
                    limit=limit,
                    expected=expected,
                )


def _keys_name_the_blocks(config: Config) -> Findings:
    """DS-6: chunk j's key names the end of its blocks, whole chunks are counted, and a handed over state ends one."""
    if not _judged(config):
        return None
    found: list[Evidence] = []
    for ask in (_chunk_differs, _count_differs, _handoff_differs):
        found += _first(_each(config, ask))
    return found


# --- DS-7 -----------------------------------------------------------------------------------------------------------


def _segments_differ(config: Config) -> Iterator[Evidence]:
    """Yield what the rule of 0.26 to 0.29 stores of the configuration's recurrent groups against the tails of segments."""
    facts = naive_hits.facts(config)
    wanted = {facts.spans[group] for group in facts.full}
    if len(wanted) != 1:
        return
    (aligned,) = wanted
    geometry = native.resolve(config, blocks_per_chunk=1)
    for chunked in geometry.groups:
        span = facts.spans[chunked.group]
        if chunked.group not in facts.recurrent or aligned % span or aligned == span:
            continue
        for n in range(2 * aligned // span + 2):
            expected, actual = naive.reachable_chunks(n, span, aligned, 1), set(native.segment_chunks(geometry, chunked, n))
            if actual != expected:
                yield Evidence.of(
                    "the reachable chunks of a group are wrong",
                    group=chunked.group,
                    n=n,
                    expected=sorted(expected),
                    actual=sorted(actual),
                )


def _reached(n: int, chunk: int, aligned: int, window: int, eagle: bool) -> set[int]:
    count = reachability.alignment_chunk_count(full_attention=False, alignment=aligned, chunk_tokens=chunk, window=window)
    return {j for j in range(n) if reachability.chunk_reachable(j, n, count, window, eagle)}


def _grid_differs(config: Config) -> Iterator[Evidence]:
    for chunk in sorted({min(size, LARGEST_GRID_BLOCK) for size in naive_hits.facts(config).spans}):
        for segment, window in ((2, 1), (3, 1), (3, 2), (4, 1), (4, 2), (4, 3)):
            for n, eagle in ((n, eagle) for n in range(2 * segment + 2) for eagle in (False, True)):
                expected = naive.reachable_chunks(n, chunk, segment * chunk, window, eagle)
                actual = _reached(n, chunk, segment * chunk, window, eagle)
                if actual != expected:
                    yield Evidence.of(
                        "the reachable chunks are not the tails of the segments",
                        chunk=chunk,
                        alignment=segment * chunk,
                        window=window,
                        n=n,
                        eagle=eagle,
                        expected=sorted(expected),
                        actual=sorted(actual),
                    )


def _mask_differs(config: Config) -> Iterator[Evidence]:
    """Yield what the mask of 0.33.0 keeps of windows against the blocks that an aligned resume or one at the end reads."""
    geometry = native.resolve(config, blocks_per_chunk=1)
    facts = naive_hits.facts(config)
    for chunked in geometry.groups:
        spec, span = config.groups[chunked.group], facts.spans[chunked.group]
        if spec.kind != ground.SLIDING or spec.window is None or chunked.group in facts.eagle:
            continue
        sizes = {facts.spans[group] for group in facts.full}
        aligned = None if len(sizes) > 1 else next(iter(sizes), max(facts.spans[group.group] for group in geometry.groups))
        for n in range(min(3 * (aligned or span) // span + 2, MOST_TOKENS)):
            expected = naive.window_stored(n, spec.window, span, aligned, config.retention)
            actual = {i for i, kept in enumerate(native.block_mask(config, geometry, chunked, n)) if kept}
            if actual != expected:
                yield Evidence.of(
                    "the blocks of a window that are stored are not those that a resume reads",
                    group=chunked.group,
                    n=n,
                    alignment=aligned,
                    expected=sorted(expected),
                    actual=sorted(actual),
                )


def _reachable(config: Config) -> Findings:
    """DS-7: a chunk is worth storing iff it is in the tail of a segment between two aligned boundaries, by either rule."""
    if not _judged(config):
        return _first(_grid_differs(config))
    return [*_first(_segments_differ(config)), *_first(_grid_differs(config)), *_first(_mask_differs(config))]


# --- LV-9 -----------------------------------------------------------------------------------------------------------


def _load_fails(config: Config, geometry: native.Native, chunked: native.Chunked) -> Iterator[Evidence]:
    """Yield the loads that a group refuses, or that fill other blocks than those which the request reads afterwards."""
    spec, span = config.groups[chunked.group], naive_hits.facts(config).spans[chunked.group]
    reach = min((spec.window or 0) + 3 * span, MOST_TOKENS)
    for total in range(1, reach + 1):
        read = [column for column in range(-(-total // span)) if (column + 1) * span > ground.unread(spec, total)]
        try:
            found = native.loading(config, geometry, chunked, 0, total)
        except Exception as error:  # whatever stops a legal load is the finding
            yield Evidence.of(
                "a load that fills just what is read afterwards is refused",
                function="native.loading",
                group=chunked.group,
                blocks_per_chunk=geometry.blocks_per_chunk,
                tokens=total,
                blocks=len(read),
                error=str(error),
            )
            continue
        filled = list(range(found.first, found.first + found.blocks))
        covered = geometry.blocks_per_chunk * found.end
        if filled != read or (read and not geometry.blocks_per_chunk * found.chunk <= read[0] <= read[-1] < covered):
            yield Evidence.of(
                "a load fills other columns than those that are read afterwards",
                function="native.loading",
                group=chunked.group,
                tokens=total,
                expected=read,
                actual=filled,
                chunks=(found.chunk, found.end),
            )


def loads_fit(config: Config) -> Findings:
    """LV-9 for the native connector: a load of any length fills what is read afterwards, and no bound refuses it."""
    if not _judged(config):
        return None
    return _first(_each(config, _load_fails))


LAWS: tuple[Law, ...] = (
    Law(
        id="DS-6",
        mark="S",
        sentence="The key of an offloaded chunk names the boundary at which the chunk's blocks end, as many chunks are stored "
        "as the tokens fill, and a handed over state is stored iff a chunk ends with it.",
        source="offload-scaling, #41549",
        faults=("M-GEO-3", "M-PUB-2"),
        check_config=_keys_name_the_blocks,
    ),
    Law(
        id="DS-7",
        mark="D",
        sentence="A chunk is reachable iff it is in the tail of a segment: 16-token chunks, alignment 32, window 1, four "
        "chunks give 1 and 3; of a window the blocks are stored that an aligned resume or one at the end reads.",
        source="offload-scaling",
        faults=("M-REACH-1",),
        check_config=_reachable,
    ),
)
