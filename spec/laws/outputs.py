"""Laws of outputs, taken as functions of what was read: CC-7 and CC-8 (semantics 5.11).

An output depends on the bytes that the query at its position reads. Two runs therefore give the same outputs iff the same
prefix reads the same: what each executed share reads is compared with what the same tokens read in a run without any cache,
alone and from the first token on, and with that run on another number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import define, field, frozen

from kvproof.core.actions import Action, Allocate, BeginStep, BuildMetadata, Dispatch, Drain, Execute, Lookup, Output, Submit
from kvproof.core.config import Config
from kvproof.core.contents import GARBAGE, UNWRITTEN
from kvproof.core.errors import ConfigError
from kvproof.core.prefixes import Prefixes
from kvproof.core.world import Scheduled, World, new_world
from kvproof.spec import ground, judge
from kvproof.spec.engines import players, twins
from kvproof.spec.laws import equivalences
from kvproof.spec.laws.base import WRONG_CONTENT, Evidence, Findings, Law, Moment

MOST_PREFIXES = 10
"""So many prefixes of a run are computed again without a cache: the longest one, which reads the most, and others evenly."""

Read = tuple[object, ...]


@define(slots=True)
class Spelling:
    """Names prefixes by context and tokens alone, so that nodes of different worlds can be compared."""

    names: dict[tuple[int, int], int] = field(factory=dict)
    tokens: list[tuple[int, ...]] = field(factory=list)


@define(slots=True)
class Names:
    """The names of the prefix nodes of one run; nodes are appended only, so a name holds in every later world."""

    spelling: Spelling
    known: dict[int, int] = field(factory=dict)

    def of(self, prefixes: Prefixes, node: int) -> int:
        """Return the name of a node's prefix; what is no node (unwritten, garbage) names itself."""
        if node < 0:
            return node
        if node not in self.known:
            parent = self.of(prefixes, prefixes.parent[node]) if prefixes.parent[node] >= 0 else -1
            key = (parent, prefixes.token[node])
            names, tokens = self.spelling.names, self.spelling.tokens
            if key not in names:
                names[key] = len(tokens)
                tokens.append((*(tokens[parent] if parent >= 0 else ()), key[1]))
            self.known[node] = names[key]
        return self.known[node]


def values(world: World, group: int, block: int, cells: Sequence[int], names: Names) -> tuple[int, ...]:
    """Return what the ranks find in these cells of a block, each value once."""
    content = world.contents[block] if block > ground.NULL else ()
    if not content:
        return (UNWRITTEN,)
    if content[0] != group:
        return (GARBAGE,)
    return tuple(sorted({names.of(world.prefixes, content[cell]) for cell in cells}))


def read_at(world: World, entry: Scheduled, query: int, names: Names) -> Read:
    """Return what the query at one position of an executed share reads, per group: the keys and values of its window, and the
    recurrent state that has taken the position in.
    """
    config = world.config
    found: list[object] = []
    for group, spec in enumerate(config.groups):
        size = ground.span(config, group)
        if ground.has_positions(spec):
            where = ground.cells(config, group)
            found.append(
                tuple(
                    values(world, group, ground.row_block(world, group, entry.row, at // size), where[at % size], names)
                    for at in range(ground.first_read(spec, query), query + 1)
                )
            )
        elif ground.is_recurrent(spec):
            columns = [column for column, n in ground.states_written(spec, entry) if n == query + 1]
            block = ground.row_block(world, group, entry.row, columns[0]) if columns else ground.MISSING
            found.append(values(world, group, block, range(1, 1 + config.dcp_size), names))
    return tuple(found)


def executed(moment: Moment) -> Iterator[tuple[Scheduled, int, int]]:
    """Yield (share, position, node) for the last position of every share that a forward ran, and for its drafts.

    Shares whose tokens are not all known are left out: nobody uses their output.
    """
    if moment.record is None or not isinstance(moment.action, Execute) or moment.action.part != "forward":
        return
    step = ground.pending_step(moment.before)
    for entry in step.scheduled if step is not None else ():
        path = ground.lineage(moment.before.prefixes, entry.tip)
        end = entry.start + entry.amount
        if not entry.pending and end < len(path):
            for query in range(end - 1 - len(entry.drafts), end):
                yield entry, query, path[query + 1]


def _flat(read: object) -> Iterator[object]:
    """Yield everything in nested tuples."""
    for part in read if isinstance(read, tuple) else ():
        yield from _flat(part) if isinstance(part, tuple) else (part,)


def _is_dropped(moment: Moment, entry: Scheduled) -> bool:
    """Tell whether nobody takes the output of the share that was run: a load failed under it (T36.2)."""
    step = ground.pending_step(moment.before)
    return step is not None and ground.is_dropped(moment.before, entry, step)


@frozen(slots=True)
class Seen:
    """What a run read, as (action, prefix, what was read at its end), and its hits as (action, tokens), in order."""

    reads: tuple[tuple[int, int, Read], ...]
    hits: tuple[tuple[int, int], ...]


def seen_by(config: Config, actions: Sequence[Action], spelling: Spelling, start: players.Start = players.model) -> Seen:
    """Play a run and note what its forwards read and what its lookups hit."""
    reads: list[tuple[int, int, Read]] = []
    hits: list[tuple[int, int]] = []
    names = Names(spelling)
    for position, moment in enumerate(twins.moments(config, actions, start)):
        if moment.record is not None and isinstance(moment.action, Lookup):
            hits.append((position, moment.record.local))
        for entry, query, node in executed(moment):
            prefix = names.of(moment.after.prefixes, node)
            read = read_at(moment.after, entry, query, names)
            if not (GARBAGE in _flat(read) and _is_dropped(moment, entry)):
                reads.append((position, prefix, read))
    return Seen(tuple(reads), tuple(hits))


# --- the run without a cache ----------------------------------------------------------------------------------------


def uncached(config: Config, dcp_size: int) -> Config | None:
    """Return the configuration without caching, connectors, host tier and overlap, on so many ranks; None if that is not
    legal.
    """
    width = 1 if config.dcp_size != dcp_size else config.interleave
    room = sum(len(range(0, config.max_model_len + 1, group.block_size)) + 2 for group in config.groups)
    try:
        return twins.reconfigured(
            config,
            dcp_size=dcp_size,
            interleave=width,
            caching=False,
            connectors=(),
            offload=None,
            max_model_len=config.max_model_len + 1,
            max_chunk=None,
            long_prefill=None,
            num_blocks=1 + room + sum(group.speculative_blocks for group in config.groups),
            max_running=1,
            use_eagle=False,
            checkpoint_alignment=None,
            defer_block_free=False,
            max_steps_in_flight=1,
            async_outputs=False,
            retention=None,
        )
    except ConfigError:
        return None


def computed_alone(config: Config, context: int, tokens: tuple[int, ...], spelling: Spelling) -> Read | None:
    """Return what the last of these tokens reads if they are computed alone without a cache; None if that is refused."""
    world, names, done = new_world(config), Names(spelling), 0
    found: Read | None = None
    opening: tuple[Action, ...] = (Submit(0, tokens, context), BeginStep(), Lookup(0))
    for action in opening:
        world = judge.attempt(world, action).after
    while done < len(tokens):
        # The largest chunk that is legal here (T22).
        attempts = (judge.attempt(world, Allocate(0, amount)) for amount in range(len(tokens) - done, 0, -1))
        moment = next((attempt for attempt in attempts if attempt.record is not None), None)
        if moment is None or moment.record is None or not moment.record.admitted:
            return None
        done = max(entry.start + entry.amount for entry in moment.after.plan.scheduled)
        sampled = Output(0, (0,) if done == len(tokens) else ())
        parts: tuple[Action, ...] = tuple(Execute(part) for part in ground.parts(world.config))
        for action in (Drain(), BuildMetadata(), Dispatch(), *parts, sampled, BeginStep()):
            moment = judge.attempt(moment.after, action)
            if moment.refusal is not None:
                return None
            for entry, query, _ in executed(moment):
                if query + 1 == len(tokens):
                    found = read_at(moment.after, entry, query, names)
        world = moment.after
    return found


def differences(config: Config, seen: Seen, dcp_size: int, spelling: Spelling) -> Findings:
    """Compare what prefixes of a run read with what they read without a cache on this number of ranks."""
    plain = uncached(config, dcp_size)
    if plain is None:
        return None
    distinct = sorted({prefix for _, prefix, _ in seen.reads}, key=lambda prefix: (-len(spelling.tokens[prefix]), prefix))
    alone: dict[int, Read] = {}
    for prefix in distinct[:: max(-(-len(distinct) // MOST_PREFIXES), 1)]:
        context, *tokens = spelling.tokens[prefix]
        answer = computed_alone(plain, context, tuple(tokens), spelling)
        if answer is not None:
            alone[prefix] = answer
    if not alone:
        return None
    found = [
        Evidence.of(
            "a run reads something else than a run without a cache, so that its output differs",
            action=position,
            prefix=spelling.tokens[prefix],
            dcp_size=dcp_size,
            expected=alone[prefix],
            actual=read,
        )
        for position, prefix, read in seen.reads
        if prefix in alone and read != alone[prefix]
    ]
    return found[:1]


def _cache_changes_nothing(config: Config, actions: Sequence[Action], start: players.Start = players.model) -> Findings:
    """CC-7: what a run reads, the same tokens read alone without a cache."""
    spelling = Spelling()
    return differences(config, seen_by(config, actions, spelling, start), config.dcp_size, spelling)


def _ranks_change_nothing(config: Config, actions: Sequence[Action], start: players.Start = players.model) -> Findings:
    """CC-8: what a run reads, the same tokens read on one rank (or two), and hits are those of one rank (DS-9b)."""
    spelling = Spelling()
    seen = seen_by(config, actions, spelling, start)
    found = differences(config, seen, 1 if config.dcp_size > 1 else 2, spelling)
    hits = _hits_of_one_rank(config, actions, seen, start)
    return found if hits is None else [*(found or ()), *hits]


def _hits_of_one_rank(config: Config, actions: Sequence[Action], seen: Seen, start: players.Start) -> Findings:
    """Compare the hits of a run with those of the same actions on one rank with larger blocks."""
    merged = equivalences.on_one_rank(config)
    if merged is None or not seen.hits:
        return None
    try:
        twin = twins.reconfigured(config, groups=merged, dcp_size=1, interleave=1)
    except ConfigError:
        return None  # DS-9 says so
    there = {
        position: moment.record.local
        for position, moment in enumerate(twins.moments(twin, actions, start))
        if moment.record is not None and isinstance(moment.action, Lookup)
    }
    for position, local in seen.hits:
        if there.get(position, local) != local:
            return [
                Evidence.of(
                    "a hit differs from that of one rank with larger blocks",
                    action=position,
                    here=local,
                    one_rank=there[position],
                )
            ]
    return ()


LAWS: tuple[Law, ...] = (
    Law(
        id="CC-7",
        mark="S",
        sentence="Outputs, as functions of what was read, equal those of a run without any cache.",
        source="#50493, #54736",
        faults=("M-COW-1",),
        check_run=_cache_changes_nothing,
        bent_by=(*WRONG_CONTENT, ("lagging_groups", "any")),
    ),
    Law(
        id="CC-8",
        mark="S",
        sentence="Outputs are equal for every number of ranks, and so are hits where one rank with larger blocks has the same "
        "gate.",
        source="#50493",
        faults=("M-GATE-1", "M-SLOT-1"),
        check_run=_ranks_change_nothing,
        bent_by=(*WRONG_CONTENT, ("lagging_groups", "any")),
    ),
)
