"""Laws of what is really in the blocks: everything read and everything keyed is what it should be (semantics 5.11)."""

from __future__ import annotations

from kvproof.core.actions import CompleteLoad, EvictBlocks, Execute, Finish, Output, ResetCache, RunLoad
from kvproof.core.contents import GARBAGE
from kvproof.core.world import World
from kvproof.spec import ground
from kvproof.spec.laws.base import WRONG_CONTENT, Evidence, Findings, Law, Moment


def _attention_reads(moment: Moment) -> Findings:
    if moment.record is None or not isinstance(moment.action, Execute) or moment.action.part != "forward":
        return None
    step = ground.pending_step(moment.before)
    groups = ground.attention_groups(moment.before.config)
    if step is None or not step.scheduled or not groups:
        return None
    world = moment.after
    found = []
    for entry in step.scheduled:
        path = ground.true_path(moment.before, entry)
        # Tokens that are not known yet are read as garbage: nobody uses such an output (T36).
        end = min(entry.start + entry.amount, len(path) - 1)
        for group in groups:
            size = ground.span(world.config, group)
            first = ground.first_read(world.config.groups[group], entry.start)
            for column in range(first // size, ground.columns(end, size)):
                block = ground.row_block(world, group, entry.row, column)
                content = world.contents[block] if block > ground.NULL else ()
                last = min(end, (column + 1) * size)
                wrong = ground.misplaced(world.config, group, content, path, max(first, column * size), last)
                if wrong is not None and not (wrong[1] == GARBAGE and ground.is_dropped(moment.before, entry, step)):
                    found.append(
                        Evidence.of(
                            "attention reads something else than its prefix",
                            request=entry.request,
                            group=group,
                            block=block,
                            position=wrong[0],
                            found=wrong[1],
                            expected=path[wrong[0] + 1],
                        )
                    )
    return found


def _state_reads(moment: Moment) -> Findings:
    if moment.record is None or not isinstance(moment.action, Execute) or moment.action.part != "forward":
        return None
    world = moment.before
    step = ground.pending_step(world)
    groups = ground.recurrent_groups(world.config)
    if step is None or not groups:
        return None
    reads = {(request, group): (block, boundary) for request, group, _, block, boundary in moment.record.reads}
    judged = False
    found = []
    for entry in step.scheduled:
        if entry.pending:
            # Where it really starts an earlier output tells; without it only what nobody takes may run (T36, C-85).
            if not ground.is_dropped(world, entry, step):
                judged = True
                found.append(
                    Evidence.of(
                        "a chunk runs before the output that tells where it starts",
                        request=entry.request,
                        start=entry.start,
                        pending=entry.pending,
                    )
                )
            continue
        path = ground.true_path(world, entry)
        for group in groups:
            read = reads.get((entry.request, group))
            if entry.start == 0 and read is None:
                continue
            judged = True
            if read is None or read[1] != entry.start or entry.start == 0:
                found.append(
                    Evidence.of(
                        "a chunk does not read the state at its start, or reads one at the very beginning",
                        request=entry.request,
                        group=group,
                        start=entry.start,
                        read=read,
                    )
                )
            elif world.contents[read[0]][1:2] == (GARBAGE,) and ground.is_dropped(world, entry, step):
                continue  # a load failed, and nobody takes what this chunk computes (T36.2)
            elif not ground.is_state(world.config, group, world.contents[read[0]], path[entry.start]):
                found.append(
                    Evidence.of(
                        "the initial state is not that of the prefix",
                        request=entry.request,
                        group=group,
                        block=read[0],
                        start=entry.start,
                        expected=path[entry.start],
                        found=world.contents[read[0]],
                    )
                )
    return found if judged else None


def _keys_true(moment: Moment) -> Findings:
    if moment.record is None:
        return None
    before, world = moment.before, moment.after
    if before.pool is world.pool and before.contents is world.contents:
        return None
    if not world.pool.entries or not ground.at_rest(world):
        return None
    found = []
    recurrent = [ground.is_recurrent(group) for group in world.config.groups]
    paths: dict[int, list[int]] = {}
    for node, group, _, block in world.pool.entries:
        content = world.contents[block]
        if recurrent[group]:
            right = ground.is_state(world.config, group, content, node)
        else:
            right = _block_true(world, group, node, content, paths)
        if not right:
            found.append(
                Evidence.of(
                    "a key names a block that does not hold its prefix",
                    group=group,
                    block=block,
                    key=node,
                    boundary=len(ground.lineage(world.prefixes, node)) - 1,
                    content=content,
                )
            )
    return found


def _block_true(world: World, group: int, node: int, content: tuple[int, ...], paths: dict[int, list[int]]) -> bool:
    path = paths.get(node)
    if path is None:
        path = paths[node] = ground.lineage(world.prefixes, node)
    boundary = len(path) - 1
    first = (boundary - 1) // ground.span(world.config, group) * ground.span(world.config, group)
    return ground.misplaced(world.config, group, content, path, first, boundary) is None


LAWS: tuple[Law, ...] = (
    Law(
        "CC-1",
        "S",
        "Every attention read of a request finds, at each position of its window or chunk, the request's own prefix through "
        "it, drafts included.",
        "#50493, #54736, vLLM 0.33.0",
        ("M-COW-2", "M-TBL-2", "M-KEY-2", "M-WIN-1", "M-DIV-4", "M-EARLY-2", "M-PUB-134", "M-PUB-146"),
        on=(Execute,),
        check=_attention_reads,
        bent_by=(*WRONG_CONTENT, ("lagging_groups", "any")),
    ),
    Law(
        "CC-2",
        "S",
        "A chunk that starts after the first token reads the state of exactly the tokens before it, accepted drafts included; "
        "the first reads none.",
        "#50493, #54736, vLLM 0.33.0",
        ("M-MAM-2", "M-HIT-2", "M-HIT-3", "M-SPEC-3", "M-ZERO-2", "M-MAM-7", "M-CKPT-3", "M-PUB-66", "M-PUB-68", "M-LATE-3"),
        on=(Execute,),
        check=_state_reads,
        bent_by=WRONG_CONTENT,
    ),
    Law(
        "CC-3",
        "S",
        "At rest every key names a block that holds its prefix: all positions of its block, or the state at its boundary.",
        "#50493, #54736, vLLM 0.33.0",
        (
            "M-PRE-1",
            "M-MAM-5",
            "M-CACHE-2",
            "M-CKPT-1",
            "M-CKPT-3",
            "M-MAM-7",
            "M-MAM-8",
            "M-PUB-1",
            "M-PUB-14",
            "M-PUB-57",
            "M-PUB-88",
            "M-PUB-136",
        ),
        on=(Execute, Output, Finish, ResetCache, EvictBlocks, RunLoad, CompleteLoad),
        check=_keys_true,
        bent_by=(*WRONG_CONTENT, ("lagging_groups", "any")),
    ),
)
