"""Naive truths for the laws: walking, counting and token placement on the raw fields of a world.

Nothing here calls a size or transition function of ``core``, and nothing trusts a size that a configuration resolved:
the helpers read the inputs of a configuration (groups, DCP size, interleave) and the bare tuples of a world. Token
counts are in tokens, positions are 0-based, block id 0 is the null block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from kvproof.core.actions import Output
from kvproof.core.config import Config, Group
from kvproof.core.contents import GARBAGE, UNWRITTEN
from kvproof.core.prefixes import Prefixes
from kvproof.core.records import Record
from kvproof.core.world import Hit, Phase, Request, Scheduled, Status, Step, World
from kvproof.spec import naive

NULL = 0
PARTS: tuple[str, ...] = ("zero", "copy", "load", "precopy", "forward")
"""The sub-phases of a step without a host tier, in the order of T0."""
"""The parts of an executed step in their order (T0)."""
MISSING = -1
PLANNING = (Phase.PLAN_RUNNING, Phase.PLAN_WAITING)

FULL, SLIDING, CHUNKED = "full_attention", "sliding_window", "chunked_local"
ALIGN, STABLE, SCRATCH = "mamba_align", "mamba_stable", "scratch"
KIND_IN_NAIVE = {
    FULL: "full",
    SLIDING: "sliding",
    CHUNKED: "chunked",
    ALIGN: "mamba_align",
    STABLE: "mamba_stable",
    SCRATCH: "scratch",
}
"""Names of the group kinds in the definitions of ``naive``."""

# --- what a kind keeps and reads (1.2, 2.8) -------------------------------------------------------------------------


def is_recurrent(group: Group) -> bool:
    """Tell whether a group keeps one state per block (1.2)."""
    return group.kind in (ALIGN, STABLE)


def keeps_snapshots(group: Group) -> bool:
    """Tell whether a group keeps states only where chunks end, with nulls between them (1.2, Mamba align)."""
    return group.kind == ALIGN


def has_positions(group: Group) -> bool:
    """Tell whether a group keeps one cell per position (1.2)."""
    return group.kind in (FULL, SLIDING, CHUNKED)


def is_windowed(group: Group) -> bool:
    """Tell whether a group reads only a window of the past (1.2)."""
    return group.kind in (SLIDING, CHUNKED)


def reads(group: Group, query: int, position: int) -> bool:
    """Tell whether the query at position ``query`` reads ``position`` in an attention group (1.2, CC-1)."""
    if position > query:
        return False
    width = group.window or 1
    if group.kind == SLIDING:
        return query - position < width
    if group.kind == CHUNKED:
        return query // width == position // width
    return True


@lru_cache(maxsize=1 << 14)
def first_read(group: Group, query: int) -> int:
    """Return the first position that the query at position ``query`` reads in an attention group, by asking each."""
    return next(position for position in range(query + 1) if reads(group, query, position))


def unread(group: Group, tokens: int) -> int:
    """Return how many leading tokens nobody reads any more once ``tokens`` are computed: their entries may be null (2.8).

    An attention group's next query tells; of a recurrent group only the state at ``tokens`` is read, which lies with the
    last of them.
    """
    if is_recurrent(group):
        return max(tokens - 1, 0)
    return first_read(group, tokens) if has_positions(group) else 0


# --- sizes ----------------------------------------------------------------------------------------------------------


def is_sharded(group: Group) -> bool:
    """Tell whether DCP splits the group's positions; full attention is split unless it says otherwise (2.1)."""
    return group.kind == FULL if group.sharded is None else group.sharded


def span(config: Config, group: int) -> int:
    """Return the tokens under one table entry: the block size, times N iff the group is sharded (2.1)."""
    spec = config.groups[group]
    return spec.block_size * config.dcp_size if is_sharded(spec) else spec.block_size


def attention_groups(config: Config) -> list[int]:
    """Return the groups that keep one cell per position."""
    return [g for g, group in enumerate(config.groups) if has_positions(group)]


def full_groups(config: Config) -> list[int]:
    """Return the full-attention groups."""
    return [g for g, group in enumerate(config.groups) if group.kind == FULL]


def recurrent_groups(config: Config) -> list[int]:
    """Return the groups that keep one state per block."""
    return [g for g, group in enumerate(config.groups) if is_recurrent(group)]


def snapshot_groups(config: Config) -> list[int]:
    """Return the recurrent groups in align mode."""
    return [g for g, group in enumerate(config.groups) if keeps_snapshots(group)]


def scratch_groups(config: Config) -> list[int]:
    """Return the groups with one private block per request."""
    return [g for g, group in enumerate(config.groups) if group.kind == SCRATCH]


def eagle_groups(config: Config) -> frozenset[int]:
    """Return the EAGLE group set, grown from the flagged groups (or all) until no equal group is left out (3.1)."""
    return _eagle_groups(config.groups, config.use_eagle)


@lru_cache(maxsize=256)
def _eagle_groups(groups: tuple[Group, ...], use_eagle: bool) -> frozenset[int]:
    if not use_eagle:
        return frozenset()
    flagged = [g for g, group in enumerate(groups) if group.draft]
    chosen = set(flagged or range(len(groups)))
    while True:
        more = {g for g in range(len(groups)) if any(same_spec(groups[g], groups[other]) for other in chosen)}
        if more <= chosen:
            return frozenset(chosen)
        chosen |= more


def same_spec(one: Group, other: Group) -> bool:
    """Tell whether two groups are of one class: equal in everything but the draft flag (1.2)."""
    parts = ("kind", "block_size", "prefix_cacheable", "window", "speculative_blocks")
    return is_sharded(one) == is_sharded(other) and all(getattr(one, part) == getattr(other, part) for part in parts)


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


def gate(groups: tuple[Group, ...], *, caching: bool, dcp_size: int, hash_block: int) -> bool:
    """Return what 2.4 says about fine-grained hits, without a connector's veto."""
    return _gate(groups, dcp_size, hash_block, caching)


@lru_cache(maxsize=256)
def _gate(groups: tuple[Group, ...], dcp_size: int, hash_block: int, caching: bool) -> bool:
    asked = tuple(
        naive.GateGroup(KIND_IN_NAIVE[group.kind], group.block_size, is_sharded(group), bool(group.prefix_cacheable))
        for group in groups
    )
    return naive.gate(asked, caching=caching, allow=True, dcp_size=dcp_size, hash_block=hash_block)


@lru_cache(maxsize=256)
def _scheduler_block(groups: tuple[Group, ...], dcp_size: int) -> int:
    return naive.common_multiple(tuple(naive.span(group.block_size, is_sharded(group), dcp_size) for group in groups))


def scheduler_block(config: Config) -> int:
    """Return S in tokens, the least common multiple of what the entries of all groups span (2.2)."""
    return _scheduler_block(config.groups, config.dcp_size)


def cacheable_tokens(config: Config, group: int, tokens: int) -> int:
    """Return the tokens that a caching call of ``tokens`` tokens covers in a group (2.8).

    All with fine-grained hits, else whole scheduler blocks and, in a group of the EAGLE set, one entry more.
    """
    fine = gate(config.groups, caching=config.caching, dcp_size=config.dcp_size, hash_block=config.hash_block_size)
    eagle = span(config, group) if group in eagle_groups(config) else 0
    return naive.cacheable_tokens(tokens, fine, scheduler_block(config), eagle)


# --- prefixes -------------------------------------------------------------------------------------------------------


def reports_failure(action: object) -> bool:
    """Tell whether an action says that a synchronous load did not bring everything (T36.2)."""
    return isinstance(action, Output) and action.failed


def is_dropped(world: World, entry: Scheduled, step: Step) -> bool:
    """Tell whether nobody takes the output of a dispatched share: its request is gone, or drops late ones (T36.3, T36.4)."""
    request = request_of(world, entry.request)
    return request is None or (request.drop_stale and is_stale(world, entry, step))


def lost_tables(before: World, after: World) -> list[tuple[int, ...]]:
    """Return the tables of live requests that hold nothing any more, in the order of the requests and groups."""
    return [
        state.table
        for request in before.requests
        for state in request.groups
        if (left := request_of(after, request.request)) is not None and not any(group.table for group in left.groups)
    ]


def doubted(world: World, action: object) -> set[int]:
    """Return the device blocks with a key that goes on behind the valid tokens of a load reported as failed (T36.2).

    Empty for every other action.
    """
    missing = missing_node(world, action)
    if missing is None:
        return set()
    return {block for node, _, _, block in world.pool.entries if missing in lineage(world.prefixes, node)}


def missing_node(world: World, action: object) -> int | None:
    """Return the prefix node of the first token that did not arrive, None if the action is no report of a failed load.

    The report is the output of a chunk of the oldest step.
    """
    if not isinstance(action, Output) or not action.failed:
        return None
    entry = next(entry for entry in world.steps[0].scheduled if entry.request == action.request)
    return lineage(world.prefixes, entry.tip)[action.valid + 1]


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
    """Return the prefix path of a scheduled request, its drafts included; MISSING where nothing right can be said.

    That is so everywhere if the root is not of the request's context. Tokens of an output that has not come yet are not in
    it: the path ends before them (``Scheduled.pending``).
    """
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


def put_off(record: Record) -> bool:
    """Tell whether an allocation was not admitted; of other actions it says nothing."""
    return record.admitted is not None and not record.admitted


def is_admitted(request: Request) -> bool:
    """Tell whether a request holds blocks from an admission: it runs, is loading, or goes on behind a load (T30, T37)."""
    return request.loaded or request.status in (Status.RUNNING, Status.LOADING)


def hit_of(world: World, request: Request) -> Hit | None:
    """Return the lookup result that an admission of this request adopts, None where it was not the one looked up, or has its
    blocks already.
    """
    hit = world.hit
    return None if hit is None or hit.request != request.request or is_admitted(request) else hit


def changed_requests(before: World, after: World) -> Iterator[tuple[Request, Request]]:
    """Yield the requests that live before and after and are not the same value."""
    if before.requests is after.requests:
        return
    known = {request.request: request for request in before.requests}
    for request in after.requests:
        old = known.get(request.request)
        if old is not None and old is not request:
            yield old, request


def shares(world: World, request: int) -> Iterator[tuple[Step, Scheduled]]:
    """Yield the shares of a request in dispatched steps whose output is still due for it, the oldest step first."""
    for step in world.steps:
        if request in step.due:
            for entry in step.scheduled:
                if entry.request == request:
                    yield step, entry


def is_stale(world: World, entry: Scheduled, step: Step) -> bool:
    """Tell whether a share of a dispatched step was dispatched before the request's last preemption (T31, T36).

    Read off what is there: the request does not run, or a later step or the open plan admits it anew.
    """
    request = request_of(world, entry.request)
    if request is None or request.status is not Status.RUNNING:
        return True
    later = [other for candidate in world.steps[_index(world.steps, step) + 1 :] for other in candidate.scheduled]
    return any(other.fresh and other.request == entry.request for other in (*later, *world.plan.scheduled))


def _index(steps: tuple[Step, ...], step: Step) -> int:
    return next(at for at, candidate in enumerate(steps) if candidate is step)


def held_back(world: World) -> Iterator[tuple[int, int]]:
    """Yield (position in its tables, block) of every block that a deferred free still holds (3.4)."""
    for waiting in world.deferred:
        for place, table in enumerate(waiting.tables):
            for block in table:
                if block != NULL:
                    yield place, block


def references(world: World) -> list[int]:
    """Count the references every block should have (PC-3).

    Table entries, both ends of copies that are not drained yet, what deferred frees hold, and what the host side pins:
    sources of stores, destinations of loads, and tables kept for a load.
    """
    count = [0] * world.config.num_blocks
    for block in host_side_pins(world):
        if 0 < block < len(count):
            count[block] += 1
    for request in world.requests:
        for state in request.groups:
            for block in state.table:
                if 0 < block < len(count):
                    count[block] += 1
    if world.phase in PLANNING:
        for _, source, destination in world.plan.copies:
            count[source] += 1
            count[destination] += 1
    for _, block in held_back(world):
        count[block] += 1
    return count


def host_side_pins(world: World) -> Iterator[int]:
    """Yield the device block of every reference that the host side holds: stores and loads, queued and abandoned ones too."""
    host = world.host
    if host is None:
        return
    for store in (*host.stores, *host.abandoned_stores):
        yield from store.device
    for left in host.queued:
        yield from left.device
    for load in (*host.loads, *host.abandoned_loads):
        yield from load.device
        for table in load.held:
            yield from table


def parts(config: Config) -> tuple[str, ...]:
    """Return the execute sub-phases of a step, in the order of T0.

    With a host tier a step waits for running transfers if it preempted somebody, at first or just before the forward, and
    submits its own at the end.
    """
    if config.offload is None:
        return PARTS
    if config.offload.flush == "first":
        return ("flush", *PARTS, "submit")
    return (*PARTS[:-1], "flush", PARTS[-1], "submit")


def at_rest(world: World) -> bool:
    """Tell whether no plan is open and every dispatched step has been executed (section 5)."""
    return world.phase is Phase.IDLE and all(step.part >= len(parts(world.config)) for step in world.steps)


# --- the worker -----------------------------------------------------------------------------------------------------


def pending_step(world: World) -> Step | None:
    """Return the oldest step that still has a part to execute."""
    for step in world.steps:
        if step.part < len(parts(world.config)):
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
        if entry.fresh and not entry.loaded and entry.loaded_from > 0:
            for group, spec in enumerate(config.groups):
                size = span(config, group)
                if spec.prefix_cacheable and entry.loaded_from % size:
                    yield entry, group, entry.loaded_from // size


def states_written(spec: Group, entry: Scheduled) -> list[tuple[int, int]]:
    """Return (column, boundary) of every state that the forward of a share writes in a recurrent group (3.6).

    The state at the end of the tokens before the drafts and the one after each draft stand in a row of columns from the
    one in which the chunk ends; where drafts follow a block edge, the state at the edge also goes where its key says. A
    positionally stable group keeps the state at every edge that the chunk passes.
    """
    size, end = spec.block_size, entry.start + entry.amount
    sure = end - len(entry.drafts)
    first = column_of_state(end, size)
    if spec.kind == STABLE:
        edges = [n for n in range(entry.start + 1, end + 1) if n % size == 0 or n == end]
        return [(column_of_state(n, size), n) for n in edges]
    written = [(first + at, n) for at, n in enumerate(range(sure, end + 1))]
    if entry.drafts and sure % size == 0 and sure > entry.start:
        written.append((sure // size - 1, sure))
    return written


def used_blocks(world: World, entry: Scheduled) -> Iterator[int]:
    """Yield the blocks that a scheduled request reads or writes in its step."""
    end = entry.start + entry.amount
    for group, spec in enumerate(world.config.groups):
        size = span(world.config, group)
        wanted: Iterable[int] = ()
        if has_positions(spec):
            wanted = range(first_read(spec, entry.start) // size, columns(end, size))
        elif is_recurrent(spec):
            running = world.worker.columns[entry.row][group]
            wanted = {column for column, _ in states_written(spec, entry)} | ({running} if entry.start > 0 else set())
        for column in wanted:
            yield row_block(world, group, entry.row, column)


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
