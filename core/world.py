"""The world: every piece of state the semantics name, as immutable values (section 3)."""

from __future__ import annotations

from enum import IntEnum

from attrs import frozen

from kvproof.core import pool as pools
from kvproof.core.config import Config
from kvproof.core.offload import state as hosts
from kvproof.core.offload.state import Host
from kvproof.core.pool import Pool
from kvproof.core.prefixes import Prefixes

ABSENT = -1
NONE = -1


class Phase(IntEnum):
    """Where the open plan stands (T0); IDLE: no plan is open."""

    IDLE = 0
    PLAN_RUNNING = 1
    PLAN_WAITING = 2
    DRAINED = 3
    BUILT = 4


class Status(IntEnum):
    """Status of a live request (3.3); a finished request leaves the world.

    LOADING: it holds blocks that an asynchronous load fills (``WAITING_REMOTE``).
    """

    WAITING = 0
    RUNNING = 1
    PREEMPTED = 2
    LOADING = 3


@frozen(slots=True)
class GroupState:
    """What a request holds in one group (3.3). Block ids, columns and boundaries; -1 means none.

    ``table`` entry j covers tokens [jE, (j+1)E). ``num_cached`` leading entries need no registration (ABSENT until T18
    adopts or T7 registers). ``partial_index``/``partial_source``: a copy-on-write is owed there. ``retired`` leading columns
    are already nulled. The rest is used by recurrent groups: ``allocated``, the producer's ``tail_block`` at
    ``tail_boundary``, and the internal checkpoint reserved at ``checkpoint_position`` in column ``checkpoint_column`` (T38).
    """

    table: tuple[int, ...] = ()
    num_cached: int = ABSENT
    partial_index: int = NONE
    partial_source: int = NONE
    allocated: bool = False
    retired: int = 0
    tail_block: int = NONE
    tail_boundary: int = NONE
    checkpoint_position: int = NONE
    checkpoint_column: int = NONE


@frozen(slots=True)
class Request:
    """One live request (3.3). Token counts in tokens; ``tip`` is the prefix node of its last known token.

    ``in_flight`` is scheduled and not processed, ``placeholders`` counted in ``computed`` without a known token,
    ``stale`` the part of ``in_flight`` dispatched before the last preemption, to be ignored if ``drop_stale`` (T31, T36).
    ``loaded``: a load is complete and promoted, the request waits with the blocks it holds for its continuing allocation (T30).
    """

    request: int
    context: int
    tip: int
    num_tokens: int
    num_prompt: int
    skip_reading: bool
    groups: tuple[GroupState, ...]
    status: Status = Status.WAITING
    computed: int = 0
    in_flight: int = 0
    junction: int = 0
    num_preemptions: int = 0
    placeholders: int = 0
    stale: int = 0
    drop_stale: bool = False
    loaded: bool = False


@frozen(slots=True)
class Hit:
    """The lookup result that the next allocation may adopt (T11 to T13)."""

    request: int
    local: int
    lists: tuple[tuple[int, ...], ...]
    junction: int
    diverged: bool


@frozen(slots=True)
class Scheduled:
    """One request's share of a plan or step: it computes tokens [start, start + amount).

    ``fresh``: admitted or resumed in this plan, its rows are replaced whole. ``loaded_from`` is the local prefix behind
    which a connector loads up to ``start`` (equal to ``start`` without external tokens). ``drafts`` are the draft tokens
    that end the chunk. ``samples``: the chunk reaches the end of the tokens before the drafts, so its output carries at least
    one token. ``tip`` is the prefix node of the chunk's last token; while tokens of it are still to come from an earlier
    step's output it is that of the last one known, ``pending`` tokens before the drafts (T0 part 7, T36). ``loaded``: it goes
    on behind a completed asynchronous load, with blocks of its own and nothing adopted in this plan (T30).
    """

    request: int
    start: int
    amount: int
    fresh: bool
    loaded_from: int
    drafts: tuple[int, ...] = ()
    samples: bool = False
    pending: int = 0
    tip: int = NONE
    row: int = NONE
    loaded: bool = False


@frozen(slots=True)
class KeyRecord:
    """The key records of one block, kept for T39: primary (node, group, tokens) and its key-map entries."""

    block: int
    primary: tuple[int, int, int]
    entries: tuple[tuple[int, int, int, int], ...]


@frozen(slots=True)
class Plan:
    """Step-scoped state (3.4); empty between plans, except ``cached``, ``preempted_before`` and the handoffs of outputs.

    ``copies`` are (group, source, destination), ``handoffs`` (request, group, block, boundary), ``zero`` (group, block) in
    the order of taking, ``cached`` the keys (node, group, request) that recurrent groups registered, ``undo`` the key
    records per request for T39, ``preempted`` the requests preempted by this plan, ``preempted_before`` those preempted
    between the last plan and it. ``drained`` are the handoffs that the metadata of the step is built from, with a host tier;
    ``store`` and ``load`` are the events that it names, NONE for none.
    """

    scheduled: tuple[Scheduled, ...] = ()
    copies: tuple[tuple[int, int, int], ...] = ()
    handoffs: tuple[tuple[int, int, int, int], ...] = ()
    zero: tuple[tuple[int, int], ...] = ()
    cached: tuple[tuple[int, int, int], ...] = ()
    undo: tuple[tuple[int, tuple[KeyRecord, ...]], ...] = ()
    preempted: tuple[int, ...] = ()
    preempted_before: tuple[int, ...] = ()
    drained: tuple[tuple[int, int, int, int], ...] = ()
    store: int = NONE
    load: int = NONE


@frozen(slots=True)
class Step:
    """A dispatched step: what it runs, the next execute sub-phase, and the requests whose output is due (T0, T36).

    ``opened``: its first output was processed, and with it the frees that waited for it (T36.1). With a host tier, ``store``
    and ``load`` are the events built into it, NONE for none, and ``flush`` tells whether its plan preempted somebody.
    """

    scheduled: tuple[Scheduled, ...]
    copies: tuple[tuple[int, int, int], ...]
    zero: tuple[int, ...]
    part: int
    due: tuple[int, ...]
    opened: bool = False
    store: int = NONE
    load: int = NONE
    flush: bool = False


@frozen(slots=True)
class DeferredFree:
    """The tables of a request that was freed while a step of it was in flight: released at ``fence`` (T3, 3.4)."""

    fence: int
    tables: tuple[tuple[int, ...], ...]


@frozen(slots=True)
class Worker:
    """The worker's side (3.6): which request owns each row, the rows per group, the running column per row and group.

    There is one row per request that may run and per step that may be in flight: a row is used anew only when no step still
    reads it. ``rows[g][row]`` are (kernel) block ids, ``columns[row][g]`` is the column of the running state (NONE where there
    is none). ``accepted[row]`` counts the tokens kept of the row's last step: the running state lies that many columns,
    less one, behind the running column.
    """

    owners: tuple[int, ...]
    rows: tuple[tuple[tuple[int, ...], ...], ...]
    columns: tuple[tuple[int, ...], ...]
    accepted: tuple[int, ...]


@frozen(slots=True)
class World:
    """Everything. ``contents`` says per block what is really in it (see ``contents``).

    ``deferred`` are the frees that wait, oldest first; ``issued`` and ``processed`` count the steps with tokens that were
    dispatched and whose output processing began, if freeing is deferred (3.4). ``host`` is the host tier, None without one.
    """

    config: Config
    phase: Phase
    prefixes: Prefixes
    pool: Pool
    contents: tuple[tuple[int, ...], ...]
    requests: tuple[Request, ...]
    hit: Hit | None
    plan: Plan
    steps: tuple[Step, ...]
    worker: Worker
    deferred: tuple[DeferredFree, ...] = ()
    issued: int = 0
    processed: int = 0
    host: Host | None = None


def new_world(config: Config) -> World:
    """Return the initial world of a configuration: empty pool, no requests, no plan (section 3)."""
    count = config.max_running * config.max_steps_in_flight
    rows = ((),) * count
    return World(
        config=config,
        phase=Phase.IDLE,
        prefixes=Prefixes(),
        pool=pools.new_pool(config.num_blocks, config.events),
        contents=((),) * config.num_blocks,
        requests=(),
        hit=None,
        plan=Plan(),
        steps=(),
        worker=Worker(
            owners=(NONE,) * count,
            rows=(rows,) * len(config.groups),
            columns=((NONE,) * len(config.groups),) * count,
            accepted=(1,) * count,
        ),
        host=None if config.offload is None else hosts.new_host(config.offload.num_blocks, config.events),
    )
