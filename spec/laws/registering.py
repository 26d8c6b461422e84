"""The law of what an allocation registers: HB-18, the other side of HB-13 and HB-14 (semantics 5.2).

Those say that no key too many is inserted; this one that none is left out. A key that is missing harms nobody at once: it is a
hit that a later request does not get. Which full entries are kept is counted from 2.9 by ``naive``, and nothing else is asked:
what was keyed before and was taken away (T4) is not registered again. Whether hits are fine-grained is read off the
configuration: HB-11 asks whether that is right, and a gate that stays closed is a policy (PM-4).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kvproof.core.actions import Allocate
from kvproof.core.config import Config
from kvproof.core.world import Request, World
from kvproof.spec import ground, ground_host, naive, naive_hits
from kvproof.spec.laws.base import Evidence, Findings, Law, Moment


def _registers_what_is_named(moment: Moment) -> Findings:
    action, record = moment.action, moment.record
    if not isinstance(action, Allocate) or record is None or not record.admitted or action.load:
        return None
    old, new = ground.request_of(moment.before, action.request), ground.request_of(moment.after, action.request)
    config = moment.after.config
    if old is None or new is None or not config.caching:
        return None
    end = min(old.computed + action.local + action.external + action.new_tokens, old.num_tokens)
    keyed = {(node, group, block) for node, group, _, block in moment.after.pool.entries}
    path = ground.lineage(moment.after.prefixes, new.tip)
    judged, found = False, []
    for group, spec in enumerate(config.groups):
        if not spec.prefix_cacheable or group in ground.scratch_groups(config):
            continue
        limit = ground_host.cacheable_tokens(config, group, end)
        for column, boundary in _named(moment.after, old, new, group, limit):
            judged = True
            block = new.groups[group].table[column]
            if (path[boundary], group, block) not in keyed:
                found.append(
                    Evidence.of(
                        "a boundary that an allocation computes gets no key",
                        request=action.request,
                        group=group,
                        column=column,
                        block=block,
                        boundary=boundary,
                    )
                )
    return found if judged else None


def _named(world: World, old: Request, new: Request, group: int, limit: int) -> Iterator[tuple[int, int]]:
    """Yield (column, boundary) of everything that ``limit`` cacheable tokens let a group register now, as far as it has blocks.

    Full entries that were not considered before (T7, T9.1, T10.1), and the boundary inside the last block (T9.2, T10.2b).
    """
    config, state = world.config, new.groups[group]
    size, unit = ground.span(config, group), config.hash_block_size
    hashed = min(limit, naive.floor_multiple(new.num_tokens, unit))
    first = max(old.groups[group].num_cached, 0)
    kept = _kept(config, new, group, len(state.table))
    for column in range(first, min(hashed // size, len(state.table))):
        if state.table[column] != ground.NULL and column in kept and column != state.checkpoint_column:
            yield column, (column + 1) * size
    inside = _inside(config, new, group, limit)
    if inside is not None and inside % size and hashed < inside + size - inside % size:
        column = inside // size
        if column < len(state.table) and state.table[column] != ground.NULL and column != state.checkpoint_column:
            yield column, inside


def _kept(config: Config, request: Request, group: int, columns: int) -> Collection[int]:
    """Return the columns whose full entry the retention of 2.9 keeps."""
    spec = config.groups[group]
    if spec.kind == ground.SLIDING:
        return naive.window_kept(
            columns,
            window=spec.window or 1,
            effective_size=ground.span(config, group),
            alignment=naive_hits.alignment(config),
            retention=config.retention,
            reach=_reach(config, request, group),
            eagle=group in ground.eagle_groups(config),
        )
    if ground.keeps_snapshots(spec):
        size = ground.span(config, group)
        return naive.mamba_kept(columns, size, naive_hits.alignment(config), config.retention, _reach(config, request, group))
    return range(columns)


def _reach(config: Config, request: Request, group: int) -> tuple[int, ...]:
    """Return where a resend may resume (2.8), the junction, and for a group of the EAGLE set a block before it (2.9)."""
    unit = naive_hits.alignment(config) if config.profile.eagle_replay_unit == "A" else ground.scheduler_block(config)
    points = tuple(naive.replay_boundaries(request.num_prompt, unit, bool(ground.eagle_groups(config))))
    if not request.junction:
        return points
    before = request.junction - ground.span(config, group) if group in ground.eagle_groups(config) else 0
    return (*points, request.junction, *((before,) if before > 0 else ()))


def _inside(config: Config, request: Request, group: int, limit: int) -> int | None:
    """Return the boundary inside a block that is registered once ``limit`` tokens are cacheable, None if there is none.

    T9.2 of full attention as soon as it is among them; T10.2b of a chunk that ends at the prompt's checkpoint.
    """
    spec, unit = config.groups[group], config.hash_block_size
    if spec.kind == ground.FULL:
        excluded = group not in ground.eagle_groups(config) and config.profile.prompt_tail == "P-1"
        tail = naive.prompt_tail_boundary(request.num_prompt, unit, request.num_tokens // unit, excluded)
        return tail if 0 < tail <= limit else None
    if ground.keeps_snapshots(spec):
        checkpoint = naive.checkpoint_boundary(request.num_prompt, unit, bool(ground.eagle_groups(config)))
        return checkpoint if 0 < checkpoint == limit else None
    return None


LAWS: tuple[Law, ...] = (
    Law(
        id="HB-18",
        mark="C",
        sentence="An allocation registers every boundary that it computes and that T7, T9 and T10 name: the full entries that "
        "retention keeps, the prompt tail, and the prompt's checkpoint where its chunk ends there.",
        source="vLLM 0.33.0",
        faults=("M-KEY-3", "M-KEY-4"),
        on=(Allocate,),
        check=_registers_what_is_named,
    ),
)
