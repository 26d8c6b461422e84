"""The execute phase: bytes change here and nowhere else (T0 execute a to i).

The parts of a step run in the order of ``PARTS``: zero new blocks (b), copy-on-write (c), synchronous loads (d), move
the running recurrent state to its new column (e), forward (f). Waiting for transfers, stores and asynchronous loads
(a, g, h, i) join with the host tier.
"""

from __future__ import annotations

from attrs import evolve

from kvproof.core import contents, geometry, prefixes, worker
from kvproof.core.config import Config
from kvproof.core.contents import Cells
from kvproof.core.world import Scheduled, Step, World

PARTS: tuple[str, ...] = ("zero", "copy", "load", "precopy", "forward")
Memory = list[Cells]
Read = tuple[int, int, int, int, int]


def run_part(world: World, step: Step, part: str) -> tuple[tuple[Cells, ...], World, tuple[Read, ...]]:
    """Run one part of a step; return the new contents, the world with its running columns, and the states read.

    Raises ContractBroken if a row lacks a column that the step needs.
    """
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
    else:
        reads = _forward(world, memory, step)
    return tuple(memory), world, reads


def run_copies(memory: Memory, step: Step, config: Config) -> None:
    """Run the step's whole-block copies (T0 c). They are unordered; every read sees the memory before any of them."""
    del config
    before = tuple(memory)
    for _, source, destination in step.copies:
        memory[destination] = contents.copy_block(before[source], memory[destination])


def _load(world: World, memory: Memory, entry: Scheduled) -> None:
    """Let a connector fill the external tokens of a request in every group (T0 d)."""
    for group in (*world.config.positional, *world.config.recurrent):
        if group in world.config.recurrent:
            node = prefixes.ancestor(world.prefixes, entry.tip, entry.start)
            column = worker.column_of(entry.start, world.config.groups[group].block_size)
            block = worker.block_at(world.config, world.worker, group, entry.row, column)
            memory[block] = (group, *(node,) * world.config.dcp_size)
        else:
            write_tokens(world, memory, group, entry, entry.loaded_from, entry.start)


def _move_running_states(world: World, memory: Memory, entry: Scheduled) -> World:
    """Copy each running state into the step's column where the column changes (T0 e, 3.6)."""
    config = world.config
    columns = list(world.worker.columns[entry.row])
    for group in config.recurrent:
        column = worker.column_of(entry.start + entry.amount, config.groups[group].block_size)
        running = columns[group]
        if entry.start > 0 and running != column:
            source = worker.block_at(config, world.worker, group, entry.row, running)
            destination = worker.block_at(config, world.worker, group, entry.row, column)
            memory[destination] = contents.copy_block(memory[source], memory[destination])
        columns[group] = column
    return with_worker_columns(world, entry.row, tuple(columns))


def with_worker_columns(world: World, row: int, columns: tuple[int, ...]) -> World:
    """Return the world with the running columns of one row replaced (3.6)."""
    if world.worker.columns[row] == columns:
        return world
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
        worker.set_columns(world.worker, row, columns),
        world.deferred,
        world.issued,
        world.processed,
    )


def _forward(world: World, memory: Memory, step: Step) -> tuple[Read, ...]:
    """Write the scheduled tokens of every request, then advance the recurrent states (T0 f)."""
    config = world.config
    for entry in step.scheduled:
        for group in config.positional:
            write_tokens(world, memory, group, entry, entry.start, entry.start + entry.amount)
    reads: list[Read] = []
    for entry in step.scheduled:
        end = prefixes.ancestor(world.prefixes, entry.tip, entry.start + entry.amount)
        for group in config.recurrent:
            column = world.worker.columns[entry.row][group]
            block = worker.block_at(config, world.worker, group, entry.row, column)
            state: Cells = (end,) * config.dcp_size
            if reads_state(entry.start):
                reads.append((entry.request, group, column, block, entry.start))
                before = contents.state_values(memory[block], group, config.dcp_size)
                state = contents.advance_state(before, prefixes.ancestor(world.prefixes, entry.tip, entry.start), end)
            memory[block] = (group, *state)
    return tuple(reads)


def branches(world: World, step: Step) -> tuple[tuple[int, ...], ...]:
    """Return per request its start and the branch each rank takes on attending to context (2.6, DS-10)."""
    return tuple(
        (entry.request, entry.start, *geometry.context_branches(entry.start, world.config.dcp_size)) for entry in step.scheduled
    )


def reads_state(start: int) -> bool:
    """Tell whether a chunk reads an initial state: at 0 it is the constant zero and nothing is read (CC-2)."""
    return start > 0


def write_tokens(world: World, memory: Memory, group: int, entry: Scheduled, start: int, stop: int) -> None:
    """Write the keys and values of positions [start, stop) of a request into an attention group (T0 f, 2.6)."""
    config = world.config
    spec = config.groups[group]
    size = geometry.effective_block_size(spec.block_size, bool(spec.sharded), config.dcp_size)
    cells = contents.block_cells(False, spec.block_size, config.dcp_size)
    nodes = prefixes.path(world.prefixes, entry.tip, start, stop)
    position = start
    while position < stop:
        column = geometry.block_column(position, spec.block_size, bool(spec.sharded), config.dcp_size)
        last = min((column + 1) * size, stop)
        block = worker.block_at(config, world.worker, group, entry.row, column)
        memory[block] = contents.write_positions(
            memory[block],
            group,
            cells,
            config.cells[group],
            position - column * size,
            nodes[position - start : last - start],
        )
        position = last


def settle_accepted(world: World, entry: Scheduled, kept: int) -> World:
    """Note how many tokens of a row's last step were kept, the accepted drafts and one more (3.6, T36.5)."""
    accepted = world.worker.accepted
    if accepted[entry.row] == kept:
        return world
    accepted = (*accepted[: entry.row], kept, *accepted[entry.row + 1 :])
    return evolve(world, worker=evolve(world.worker, accepted=accepted))
