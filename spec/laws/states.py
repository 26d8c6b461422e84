"""Laws of what is null and what is there in the tables of windowed and recurrent groups: TB-5, TB-6, TB-7, TB-10 (5.1).

What a step reads follows from where it starts: with a step in flight that is where the oldest one starts, not where the
optimistic count of computed tokens stands.
"""

from __future__ import annotations

from kvproof.core.actions import Allocate, Dispatch, Output
from kvproof.core.errors import ContractBroken
from kvproof.core.world import NONE, Request, Scheduled, World
from kvproof.spec import ground
from kvproof.spec.laws.base import WRONG_CONTENT, Evidence, Findings, Law, Moment
from kvproof.spec.laws.tables import TABLES_CHANGE

# --- TB-5 -----------------------------------------------------------------------------------------------------------


def _windows_nulled(moment: Moment) -> Findings:
    """TB-5: after an allocation nothing that is not read any more is kept, and everything that is read is there."""
    action, record = moment.action, moment.record
    if not isinstance(action, Allocate) or record is None or (action.full_sequence and ground.put_off(record)):
        return None
    old, new = ground.request_of(moment.before, action.request), ground.request_of(moment.after, action.request)
    if old is None or new is None:
        return None
    config = moment.after.config
    start = min(old.computed + action.local + action.external, config.max_model_len)
    processed = max(start - old.in_flight, 0)
    # An admission reads from where it starts, whatever is in flight from before a preemption.
    shares = ground.shares(moment.after, new.request)
    begins = [start, *(entry.start for step, entry in shares if not ground.is_stale(moment.after, entry, step))]
    judged = False
    found: list[Evidence] = []
    for group, spec in enumerate(config.groups):
        table, size = new.groups[group].table, ground.span(config, group)
        if not table or not (ground.is_windowed(spec) or ground.is_recurrent(spec)):
            continue
        judged = True
        dead = ground.unread(spec, processed) // size
        kept = [column for column, block in enumerate(table[:dead]) if block != ground.NULL]
        if kept:
            found.append(_evidence("an entry that nobody reads any more is kept", new, group, kept, processed))
        if ground.is_windowed(spec):
            first = min(ground.unread(spec, begin) for begin in begins) // size
            lost = [column for column, block in enumerate(table) if column >= first and block == ground.NULL]
            if lost:
                found.append(_evidence("an entry of the live window is null", new, group, lost, min(begins)))
    return found if judged else None


def _evidence(message: str, request: Request, group: int, entries: list[int], tokens: int) -> Evidence:
    table = request.groups[group].table
    return Evidence.of(message, request=request.request, group=group, columns=entries, tokens=tokens, table=table)


# --- TB-6 -----------------------------------------------------------------------------------------------------------


def _states_of(request: Request, group: int) -> set[int]:
    """Return the columns in which a request holds a block of a recurrent group."""
    return {column for column, block in enumerate(request.groups[group].table) if block != ground.NULL}


def _share_of(moment: Moment, old: Request) -> Scheduled:
    """Return what an admitted allocation plans; one that loads plans nothing yet, and its next chunk starts behind the load."""
    action = moment.action
    if isinstance(action, Allocate) and action.load:
        return Scheduled(old.request, action.local + action.external, 0, True, action.local)
    return moment.after.plan.scheduled[-1]


def _wanted_states(moment: Moment, old: Request, group: int) -> set[int]:
    """Return the columns in which a request may hold states after an allocation (T21).

    That of the state it reads, and the running one with the speculative ones behind it. With steps in flight also the
    column that each of them writes, behind drafts the speculative ones. Rejected drafts leave columns behind the confirmed
    tokens that earlier steps ran in, and spare ones further ahead. A backend that exports internal checkpoints writes one
    column before each running one. While a late output is due, its tokens count as in flight and nulling lags behind.
    """
    config, spec = moment.before.config, moment.before.config.groups[group]
    size, spare, held = spec.block_size, spec.speculative_blocks, _states_of(old, group)
    entry = _share_of(moment, old)
    shares = [
        share for step, share in ground.shares(moment.after, old.request) if not ground.is_stale(moment.after, share, step)
    ]
    confirmed = min(share.start for share in (*shares, entry))
    wanted = {column for column in held if column > ground.column_of_state(entry.start + entry.amount, size)}
    if confirmed > 0:
        wanted |= set(range(ground.column_of_state(confirmed, size), ground.columns(confirmed + spare, size)))
    if old.stale:
        processed = max(entry.start - old.in_flight, 1)
        wanted |= {column for column in held if column >= ground.column_of_state(processed, size)}
    for share in (*shares, entry):
        running = ground.column_of_state(share.start + share.amount, size)
        wanted |= set(range(running, running + 1 + (spare if share.drafts or share is entry else 0)))
        if config.checkpoint_alignment is not None:
            wanted.add(running - 1)
    return wanted


def _moved_states(moment: Moment, old: Request, group: int, columns: set[int]) -> set[int]:
    """Return the blocks behind columns of a request's row: a row only grows, so one that moved stands in its old column, too.

    A step whose drafts were rejected runs further left than planned, in a column whose block has moved meanwhile (T21.4).
    """
    if old.request not in moment.before.worker.owners:
        return set()
    row = moment.before.worker.owners.index(old.request)
    return {ground.row_block(moment.before, group, row, column) for column in columns}


def _few_states(moment: Moment) -> Findings:
    if moment.record is None or moment.before.requests is moment.after.requests:
        return None
    groups = ground.snapshot_groups(moment.after.config)
    allocated = moment.action.request if isinstance(moment.action, Allocate) else None
    succeeded = bool(moment.record.admitted)
    judged = False
    found = []
    for old, new in ground.changed_requests(moment.before, moment.after):
        for group in groups:
            states = _states_of(new, group)
            fresh = new.request == allocated and succeeded
            wanted = _wanted_states(moment, old, group) if fresh else _states_of(old, group)
            judged = judged or bool(wanted)
            if fresh and states - wanted:
                moved = _moved_states(moment, old, group, wanted)
                wanted |= {column for column in states - wanted if new.groups[group].table[column] in moved}
            if states - wanted:
                found.append(
                    Evidence.of(
                        "a request holds recurrent states that nothing needs",
                        request=new.request,
                        group=group,
                        columns=sorted(states - wanted),
                        wanted=sorted(wanted),
                        table=new.groups[group].table,
                    )
                )
    return found if judged else None


# --- TB-7 -----------------------------------------------------------------------------------------------------------


def _state_columns_present(moment: Moment) -> Findings:
    if moment.record is None or not moment.after.steps:
        return None
    world = moment.after
    groups = ground.recurrent_groups(world.config)
    judged = False
    found = []
    for entry in world.steps[-1].scheduled:
        for group in groups:
            judged = True
            uses = [("written", column) for column in _written_columns(world, entry, group)]
            if entry.start > 0:
                uses += [("read", column) for column in _read_columns(moment, entry, group)]
                found += _wrong_column(moment, entry, group)
            found += [
                Evidence.of(
                    f"the worker's row has no block in a column that is {use}",
                    request=entry.request,
                    group=group,
                    column=column,
                    row=world.worker.rows[group][entry.row],
                )
                for use, column in uses
                if ground.row_block(world, group, entry.row, column) <= ground.NULL
            ]
    return found if judged else None


def _written_columns(world: World, entry: Scheduled, group: int) -> list[int]:
    """Return the columns of the states that a share writes; in align mode also those that drafts may need behind it."""
    spec = world.config.groups[group]
    last = ground.column_of_state(entry.start + entry.amount, spec.block_size)
    spare = range(last, last + spec.speculative_blocks + 1) if ground.keeps_snapshots(spec) else ()
    return sorted({column for column, _ in ground.states_written(spec, entry)} | set(spare))


def _earlier_share(moment: Moment, entry: Scheduled) -> Scheduled | None:
    """Return the request's last share before this one whose output is due, of the same admission."""
    if entry.fresh:
        return None
    shares = [share for _, share in ground.shares(moment.before, entry.request)]
    return shares[-1] if shares else None


def _read_columns(moment: Moment, entry: Scheduled, group: int) -> list[int]:
    """Return the columns from which the running state may be read.

    Where the output of the step before is still due, how many of its drafts are kept decides, so that all are possible.
    """
    worker, earlier = moment.after.worker, _earlier_share(moment, entry)
    if earlier is None:
        return [worker.columns[entry.row][group] + worker.accepted[entry.row] - 1]
    first = ground.column_of_state(earlier.start + earlier.amount, moment.after.config.groups[group].block_size)
    return [first + kept for kept in range(len(earlier.drafts) + 1)]


def _wrong_column(moment: Moment, entry: Scheduled, group: int) -> list[Evidence]:
    """Compare the column that the worker reads with where the state lies: of an admission that follows from its start; later
    the contents tell, as long as no step of the request is in flight.
    """
    world, expected = moment.after, NONE
    read = world.worker.columns[entry.row][group] + world.worker.accepted[entry.row] - 1
    if entry.fresh:
        expected = ground.column_of_state(entry.start, world.config.groups[group].block_size)
    elif _earlier_share(moment, entry) is None:
        node = ground.lineage(world.prefixes, entry.tip)[entry.start]
        holding = [
            column
            for column in range(len(world.worker.rows[group][entry.row]) // world.config.append_expansion)
            if (block := ground.row_block(world, group, entry.row, column)) > ground.NULL
            and ground.is_state(world.config, group, world.contents[block], node)
        ]
        expected = read if read in holding or not holding else holding[-1]
    if expected in (NONE, read):
        return []
    return [
        Evidence.of(
            "the running state is looked for in a column that does not hold it",
            request=entry.request,
            group=group,
            boundary=entry.start,
            column=read,
            expected=expected,
        )
    ]


# --- TB-10 ----------------------------------------------------------------------------------------------------------


def _relocated_blocks(moment: Moment) -> Findings:
    """TB-10: what stands in another column after an allocation was a spare state of the request alone, and was reported."""
    action, record = moment.action, moment.record
    if not isinstance(action, Allocate):
        return None
    old, new = ground.request_of(moment.before, action.request), ground.request_of(moment.after, action.request)
    if old is None or new is None or not ground.is_admitted(old):
        return None
    if record is None:
        return _held_by_others(moment, old)
    moved: list[tuple[int, int, int, int]] = []
    for group, (was, now) in enumerate(zip(old.groups, new.groups, strict=True)):
        place = {block: column for column, block in enumerate(was.table) if block != ground.NULL}
        moved += [
            (group, block, place[block], column)
            for column, block in enumerate(now.table)
            if block in place and place[block] != column and block not in record.taken  # given back and taken again
        ]
    if not moved and not record.relocated:
        return None
    pool = moment.before.pool
    keyed = {block for _, _, _, block in pool.entries}
    found = []
    for group, block, before, after in moved:
        if pool.ref[block] != 1 or pool.key_node[block] >= 0 or block in keyed:
            found.append(
                Evidence.of(
                    "a block that others hold or that carries a key was moved to another column",
                    request=action.request,
                    group=group,
                    block=block,
                    columns=(before, after),
                    ref=pool.ref[block],
                )
            )
        if block in new.groups[group].table[before : before + 1] or not ground.keeps_snapshots(
            moment.after.config.groups[group]
        ):
            found.append(
                Evidence.of(
                    "a block moved and stayed", request=action.request, group=group, block=block, columns=(before, after)
                )
            )
    if sorted(record.relocated) != sorted(moved):
        found.append(Evidence.of("other blocks moved than were reported", reported=record.relocated, moved=tuple(moved)))
    return found


def _held_by_others(moment: Moment, request: Request) -> Findings:
    """TB-10 where an allocation ends in a broken contract: a spare state is held by others, and so it cannot be moved."""
    if not isinstance(moment.refusal, ContractBroken):
        return None
    pool, found = moment.before.pool, []
    for group in ground.snapshot_groups(moment.before.config):
        spare = moment.before.config.groups[group].speculative_blocks
        for block in request.groups[group].table[-spare:] if spare else ():
            if block == moment.refusal.values.get("block") and pool.ref[block] != 1:
                found.append(
                    Evidence.of(
                        "a spare state that has to move is held by others",
                        request=request.request,
                        group=group,
                        block=block,
                        ref=pool.ref[block],
                    )
                )
    return found or None


LAWS: tuple[Law, ...] = (
    Law(
        "TB-5",
        "S",
        "After an allocation the entries that no step reads any more are null, those of tokens in flight counted as read, and "
        "every entry of a live window or chunk is there.",
        "vLLM 0.33.0",
        ("M-WIN-1", "M-PUB-72"),
        on=(Allocate,),
        check=_windows_nulled,
    ),
    Law(
        "TB-6",
        "D",
        "After an allocation a request holds per Mamba-align group the state it reads, one per chunk in flight or planned, "
        "each with its internal checkpoint, and the speculative blocks, no more; until the next one only fewer.",
        "vLLM 0.33.0",
        ("M-MAM-1",),
        on=(*TABLES_CHANGE, Output),
        check=_few_states,
    ),
    Law(
        "TB-7",
        "S",
        "A dispatched step finds blocks in the worker's row at the columns it writes states to, the speculative ones included, "
        "and at the one it reads, which holds the state of the tokens before it.",
        "vLLM 0.33.0, #53142",
        ("M-MAM-2", "M-PUB-66", "M-SPEC-4"),
        on=(Dispatch,),
        check=_state_columns_present,
        bent_by=WRONG_CONTENT,
    ),
    Law(
        "TB-10",
        "S",
        "A block that an allocation moves to another column had one reference and no key, leaves its column, and is reported.",
        "vLLM 0.33.0",
        ("M-MAM-4", "M-PUB-69"),
        on=(Allocate,),
        check=_relocated_blocks,
    ),
)
