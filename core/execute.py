"""The execute phase: bytes change here and nowhere else (T0 execute a to i).

The parts of a step run in the order of ``Config.parts``: zero new blocks (b), copy-on-write (c), synchronous loads (d), move
the running recurrent state to its new column (e), forward (f). With a host tier a step also waits for running transfers if
its plan preempted somebody (a), and hands its loads and stores over (g, h); finished copies are actions of their own (i).
"""

from __future__ import annotations

from attrs import evolve

from kvproof.core import contents, geometry, prefixes, worker
from kvproof.core.config import Config
from kvproof.core.contents import Cells
from kvproof.core.offload import settings, transfers
from kvproof.core.pool import NULL_BLOCK
from kvproof.core.world import Scheduled, Step, Worker, World

PARTS: tuple[str, ...] = settings.parts(None)
"""The parts of a step without a host tier; ``Config.parts`` are those of a configuration."""
POSITIONED: tuple[str, ...] = ("precopy", "forward")
"""The parts that depend on where a chunk really starts, which the output of the step before may still change (7.3.11)."""
Memory = list[Cells]
Read = tuple[int, int, int, int, int]


def run_part(world: World, step: Step, part: str) -> tuple[tuple[Cells, ...], World, tuple[Read, ...]]:
    """Run one part of a step; return the new contents, the world with its running columns, and the states read.

    Raises ContractBroken if a row lacks a column that the step needs.
    """
    if world.host is not None:
        world = transfers.run_part(world, world.host, step, part)
    memory = list(world.contents)
    reads: tuple[Read, ...] = ()
    if part == "zero":
        for block in step.zero:
            memory[block] = ()
    elif part == "copy":
        run_copies(memory, step, world.config)
    elif part == "load":
        for entry in step.scheduled:
            if entry.loaded_from < entry.start:
                _load(world, memory, entry)
    elif part == "precopy":
        for entry in step.scheduled:
            world = _move_running_states(world, memory, entry)
    elif part == "forward":
        world, reads = _forward(world, memory, step)
    return tuple(memory), world, reads


def run_copies(memory: Memory, step: Step, config: Config) -> None:
    """Run the step's whole-block copies (T0 c). They are unordered; every read sees the memory before any of them."""
    del config
    before = tuple(memory)
    for _, source, destination in step.copies:
        memory[destination] = contents.copy_block(before[source], memory[destination])


def _load(world: World, memory: Memory, entry: Scheduled) -> None:
    """Let a connector fill the external tokens of a request in every group (T0 d)."""
    for group in world.config.positional:
        write_tokens(world, memory, group, entry, entry.loaded_from, entry.start)
    for group in world.config.recurrent:
        for boundary in state_boundaries(world.config, group, entry.loaded_from, entry.start):
            write_state(world, memory, group, entry, boundary, true_state(world, entry, boundary))


def state_boundaries(config: Config, group: int, start: int, end: int) -> tuple[int, ...]:
    """Return the boundaries whose states a recurrent group keeps of the tokens (start, end] (T21, design of the stable kind).

    The end alone, or, in a table whose columns never change their meaning, the end of every block too.
    """
    if group in config.snapshots:
        return (end,)
    size = config.groups[group].block_size
    return (*range((start // size + 1) * size, end, size), end)


def true_state(world: World, entry: Scheduled, boundary: int) -> Cells:
    """Return, per rank, the state after ``boundary`` tokens of a request."""
    return (node_at(world, entry, boundary),) * world.config.dcp_size


def node_at(world: World, entry: Scheduled, boundary: int) -> int:
    """Return the prefix node of a boundary of a chunk; GARBAGE if its tokens never became known (T36)."""
    if boundary > world.prefixes.depth[entry.tip]:
        return contents.GARBAGE
    return prefixes.ancestor(world.prefixes, entry.tip, boundary)


def write_state(world: World, memory: Memory, group: int, entry: Scheduled, boundary: int, state: Cells) -> None:
    """Write a state into the column of its boundary (T0 f); a column without a block takes nothing."""
    _write_column(world, memory, group, entry.row, worker.column_of(boundary, world.config.groups[group].block_size), state)


def _write_column(world: World, memory: Memory, group: int, row: int, column: int, state: Cells) -> None:
    block = worker.block_at(world.config, world.worker, group, row, column)
    if block != NULL_BLOCK:
        memory[block] = (group, *state)


def _move_running_states(world: World, memory: Memory, entry: Scheduled) -> World:
    """Copy each running state into the step's column where the column changes; one kept token then (T0 e, 3.6).

    A row counts its kept tokens once for all groups: if the column of one group changes, every running state moves to the
    front of its slots. Tables whose columns never change their meaning are read where the state stands.
    """
    config = world.config
    old = world.worker.columns[entry.row]
    new = tuple(
        worker.column_of(entry.start + entry.amount, config.groups[group].block_size) if group in config.recurrent else column
        for group, column in enumerate(old)
    )
    if entry.start == 0 or all(old[group] == new[group] for group in config.snapshots):
        return with_worker(world, worker.set_columns(world.worker, entry.row, new))
    for group in config.snapshots:
        running = worker.state_column(world.worker, group, entry.row)
        if running != new[group]:
            copy_state(world, memory, group, entry.row, running, new[group])
    return with_worker(world, worker.set_accepted(worker.set_columns(world.worker, entry.row, new), entry.row, 1))


def copy_state(world: World, memory: Memory, group: int, row: int, source: int, destination: int) -> None:
    """Copy the state of one column of a row into another, which a step always has a block for (T0 e, 3.6, TB-7)."""
    config = world.config
    block = worker.block_at(config, world.worker, group, row, destination)
    memory[block] = contents.copy_block(memory[worker.block_at(config, world.worker, group, row, source)], memory[block])


def with_worker(world: World, changed: Worker) -> World:
    """Return the world with its worker replaced."""
    return World(
        world.config,
        world.phase,
        world.prefixes,
        world.pool,
        world.contents,
        world.requests,
        world.hit,
        world.plan,
        world.steps,
        changed,
        world.deferred,
        world.issued,
        world.processed,
        world.host,
    )


def _forward(world: World, memory: Memory, step: Step) -> tuple[World, tuple[Read, ...]]:
    """Write the scheduled tokens of every request, then advance the recurrent states (T0 f).

    Until its output says more, one token of a step counts as kept: the one that is no draft.
    """
    config = world.config
    for entry in step.scheduled:
        for group in config.positional:
            write_tokens(world, memory, group, entry, entry.start, entry.start + entry.amount)
    reads: list[Read] = []
    rows = world.worker
    for entry in step.scheduled:
        for group in config.recurrent:
            before = None
            if reads_state(entry.start):
                read = read_state(world, group, entry)
                reads.append(read)
                before = contents.state_values(memory[read[3]], group, config.dcp_size)
            advance(world, memory, group, entry, before)
        if config.recurrent:
            rows = worker.set_accepted(rows, entry.row, 1)
    return with_worker(world, rows) if rows is not world.worker else world, tuple(reads)


def read_state(world: World, group: int, entry: Scheduled) -> Read:
    """Return where a chunk reads its initial state: the running state's column, or, in a stable table, that of its start."""
    if group in world.config.snapshots:
        column = worker.state_column(world.worker, group, entry.row)
    else:
        column = worker.column_of(entry.start, world.config.groups[group].block_size)
    block = worker.block_at(world.config, world.worker, group, entry.row, column)
    return entry.request, group, column, block, entry.start


def advance(world: World, memory: Memory, group: int, entry: Scheduled, before: Cells | None) -> None:
    """Write the states of a chunk that a recurrent group keeps, from the initial state ``before`` (None: at 0) (T0 f, 3.6)."""
    config = world.config

    def state(boundary: int) -> Cells:
        if before is None:
            return true_state(world, entry, boundary)
        return contents.advance_state(before, node_at(world, entry, entry.start), node_at(world, entry, boundary))

    end = entry.start + entry.amount
    if group not in config.snapshots:
        for boundary in state_boundaries(config, group, entry.start, end):
            write_state(world, memory, group, entry, boundary, state(boundary))
        return
    certain = end - len(entry.drafts)
    column = world.worker.columns[entry.row][group]
    for boundary in range(certain, end + 1):
        _write_column(world, memory, group, entry.row, column + boundary - certain, state(boundary))
    exported = worker.checkpoint(config, group, entry)
    if exported is not None:
        position, column = exported
        block = worker.checkpoint_block(config, world.worker, group, entry.row, column)
        if block != NULL_BLOCK:
            memory[block] = (group, *state(position))
    if entry.drafts and certain % config.groups[group].block_size == 0:
        keep_full_state(world, memory, group, entry, certain)


def keep_full_state(world: World, memory: Memory, group: int, entry: Scheduled, boundary: int) -> None:
    """Copy the state at the end of a block from its slot into the column whose key promises it (3.6)."""
    certain = entry.start + entry.amount - len(entry.drafts)
    slot = world.worker.columns[entry.row][group] + boundary - certain
    block = worker.own_block(
        world.config,
        world.worker,
        group,
        entry.row,
        worker.column_of(boundary, world.config.groups[group].block_size),
    )
    if block != NULL_BLOCK:
        source = worker.block_at(world.config, world.worker, group, entry.row, slot)
        memory[block] = contents.copy_block(memory[source], memory[block])


def settle_accepted(world: World, entry: Scheduled, kept: int) -> World:
    """Tell the worker how many tokens of a step are kept, 1 + accepted drafts, when its output is processed (T36.5, 3.6).

    From then on the running state is the one behind the last kept token, and the states at the ends of blocks that the
    accepted drafts passed stand in the columns whose keys promise them. ``entry`` is the request's share of the step.
    """
    if world.worker.owners[entry.row] != entry.request:
        return world
    world = keep_accepted(world, entry, kept)
    certain = entry.start + entry.amount - len(entry.drafts)
    memory = list(world.contents)
    for group in world.config.snapshots:
        size = world.config.groups[group].block_size
        for boundary in range((certain // size + 1) * size, certain + kept, size):
            keep_full_state(world, memory, group, entry, boundary)
    return evolve(world, contents=tuple(memory))


def keep_accepted(world: World, entry: Scheduled, kept: int) -> World:
    """Tell the worker which state of a step is the running one, unless the row has gone to somebody else (T36.5, 3.6).

    The worker counts by itself: a preemption since leaves its row as it is until a later dispatch takes it away.
    """
    if world.worker.owners[entry.row] != entry.request:
        return world
    return with_worker(world, worker.keep(world.worker, entry.row, kept))


def branches(world: World, step: Step) -> tuple[tuple[int, ...], ...]:
    """Return per request its start and the branch each rank takes on attending to context (2.6, DS-10)."""
    return tuple(
        (entry.request, entry.start, *geometry.context_branches(entry.start, world.config.dcp_size)) for entry in step.scheduled
    )


def reads_state(start: int) -> bool:
    """Tell whether a chunk reads an initial state: at 0 it is the constant zero and nothing is read (CC-2)."""
    return start > 0


def write_tokens(world: World, memory: Memory, group: int, entry: Scheduled, start: int, stop: int) -> None:
    """Write the keys and values of positions [start, stop) of a request into an attention group (T0 f, 2.6).

    Entries that a window nulled take nothing; the cells of tokens that never became known are garbage (T36).
    """
    config = world.config
    spec = config.groups[group]
    size = geometry.effective_block_size(spec.block_size, bool(spec.sharded), config.dcp_size)
    cells = contents.block_cells(False, spec.block_size, config.dcp_size)
    known = min(stop, world.prefixes.depth[entry.tip])
    nodes = prefixes.path(world.prefixes, entry.tip, start, known) if start < known else []
    nodes.extend([contents.GARBAGE] * (stop - max(start, known)))
    position = start
    while position < stop:
        column = geometry.block_column(position, spec.block_size, bool(spec.sharded), config.dcp_size)
        last = min((column + 1) * size, stop)
        block = worker.block_at(config, world.worker, group, entry.row, column)
        if block != NULL_BLOCK:
            memory[block] = contents.write_positions(
                memory[block],
                group,
                cells,
                config.cells[group],
                position - column * size,
                nodes[position - start : last - start],
            )
        position = last
