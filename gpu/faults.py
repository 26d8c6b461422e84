"""Faults in the data path, planted in the tensor layer itself: each is caught by the comparison with the model.

A fault replaces functions of this folder, as those of ``spec/faults`` replace functions of the model; the model stays right.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from kvproof.gpu import copies, forward, geometry, offload, pool, rows
from kvproof.gpu.rows import Rows
from kvproof.gpu.streams import Streams
from kvproof.gpu.world import Share, Stage, Step, TensorWorld
from kvproof.spec import faults as models
from kvproof.spec import near
from kvproof.spec.exits import UserError
from kvproof.spec.faults.base import Fault, planted

__all__ = ["ALL", "by_id", "planted"]

_held: WeakKeyDictionary[Streams, Tensor] = WeakKeyDictionary()
"""The bytes of a world as they were before its last forward, for who copies them too early."""


# --- rows -------------------------------------------------------------------------------------------------------------


def _always_fits(start: int, count: int, capacity: int) -> bool:
    return True


def _staged_once(table: Rows, group: int, row: int, ids: Tensor) -> None:
    """Stage behind what the device has, not behind what is staged and not yet written there."""
    table.staged.append((group, row * table.capacity[group], ids))
    table.counts[group][row] += ids.numel()


# --- slots ------------------------------------------------------------------------------------------------------------


def _every_group_is_sharded(world: TensorWorld, group: int) -> bool:
    return world.config.dcp_size > 1


def _offset_in_the_block(positions: Tensor, *, block_size: int, sharded: bool, dcp_size: int, interleave: int) -> Tensor:
    return positions % block_size


def _columns_of_one_rank(positions: Tensor, *, block_size: int, sharded: bool, dcp_size: int) -> Tensor:
    return positions // block_size


def _owners_without_interleave(positions: Tensor, *, block_size: int, dcp_size: int, interleave: int) -> Tensor:
    return positions % dcp_size


# --- bytes ------------------------------------------------------------------------------------------------------------


def _not_zeroed(memory: Tensor, blocks: Tensor) -> None:
    """Write nothing."""


def _first_rank_only(memory: Tensor, sources: Tensor, destinations: Tensor) -> None:
    if sources.numel():
        memory[:1, destinations.long()] = memory[:1, sources.long()]


def _half_a_block(memory: Tensor, sources: Tensor, destinations: Tensor) -> None:
    if sources.numel():
        kept = max(memory.shape[2] // 2, 1)
        memory[:, destinations.long(), :kept] = memory[:, sources.long(), :kept]


def _remembering(original: Callable[[TensorWorld, Step], None]) -> Callable[[TensorWorld, Step], None]:
    @functools.wraps(original)
    def run(world: TensorWorld, step: Step) -> None:
        _held[world.streams] = world.memory.clone()
        original(world, step)

    return run


def _before_the_forward(world: TensorWorld) -> Tensor:
    return _held.get(world.streams, world.memory)


def _copied_at_completion(world: TensorWorld, event: int) -> None:
    """Say that a store is copied; its bytes move when its blocks are somebody else's already."""
    for store in offload.every_store(offload.host_of(world)):
        if store.event == event:
            store.stage = Stage.COPIED


def _completing(original: Callable[[TensorWorld, int, int], None]) -> Callable[[TensorWorld, int, int], None]:
    @functools.wraps(original)
    def complete(world: TensorWorld, event: int, acks: int) -> None:
        late = [store for store in offload.every_store(offload.host_of(world)) if store.event == event]
        original(world, event, acks)
        for store in late:
            copies.store(world, store.device, store.host)

    return complete


def _also_the_column_before(world: TensorWorld, event: int) -> None:
    """Load every block into its column and into the one before it, where local tokens lie."""
    for load in offload.every_load(offload.host_of(world)):
        if load.event != event:
            continue
        copies.load(world, load.host, load.device)
        load.stage = Stage.COPIED
        request = world.requests.get(load.request)
        for holding in request.groups if request is not None else ():
            table = holding.table.tolist()
            for device, host in zip(load.device.tolist(), load.host.tolist(), strict=True):
                at = table.index(device) - 1 if device in table else -1
                if at >= 0 and table[at] not in (0, *load.device.tolist()):
                    copies.load(world, torch.tensor([host]), torch.tensor([table[at]]))


# --- states -----------------------------------------------------------------------------------------------------------


def _state_of_the_column(table: Rows, group: int, row: int) -> int:
    return table.columns[row][group]


def _zero_at_the_start(world: TensorWorld, group: int, share: Share) -> Tensor:
    return forward.zero_state(world)


# --- counts -----------------------------------------------------------------------------------------------------------


def _no_pin(world: TensorWorld, blocks: Tensor) -> None:
    """Hold nothing."""


def _behind_the_queue(blocks: pool.Pool, given: Tensor) -> None:
    """Release as always, and put the freed blocks behind the others, keyed or not."""
    before = blocks.free
    _RELEASE(blocks, given)
    freed = blocks.free[~torch.isin(blocks.free, before)]
    blocks.free = torch.cat((before, freed))


_RELEASE = pool.release


def _fault(name: str, summary: str, laws: tuple[str, ...], scopes: tuple[str, ...], *patches: tuple[Any, str, Any]) -> Fault:
    return Fault(name, summary, "ours", laws, patches, scopes=scopes)


ALL: tuple[Fault, ...] = (
    _fault(
        "D-ROW-1",
        "no capacity check: a row runs over into its neighbour's",
        ("TB-13", "TB-11"),
        ("fa4-m4-n2", "m4-fa4"),
        (rows, "fits", _always_fits),
    ),
    _fault(
        "D-ROW-2",
        "entries are staged from the beginning of a row, not behind its last one",
        ("TB-13",),
        ("fa4-m4-n2",),
        (rows, "stage", _staged_once),
    ),
    _fault(
        "D-SLOT-1",
        "a replicated group is sharded over the ranks",
        ("CC-1",),
        ("fa4r-m4-n2", "fa4-fa4r-m4-n2"),
        (forward, "is_sharded", _every_group_is_sharded),
    ),
    _fault(
        "D-SLOT-2",
        "the offset inside a sharded block is v mod bs",
        ("CC-1",),
        ("fa4-m4-n2",),
        (geometry, "block_offsets", _offset_in_the_block),
    ),
    _fault(
        "D-SLOT-3",
        "the column is counted in blocks of one rank (wrong DCP width)",
        ("CC-1", "LV-9"),
        ("fa4-m4-n2",),
        (geometry, "block_columns", _columns_of_one_rank),
    ),
    _fault(
        "D-SLOT-4",
        "the owner ignores the interleave",
        ("CC-1",),
        ("fa2-m8-n2",),
        (geometry, "owner_ranks", _owners_without_interleave),
    ),
    _fault("D-ZERO-1", "new blocks are not zeroed", ("CC-1",), ("fa4-m4-n2",), (copies, "zero", _not_zeroed)),
    _fault(
        "D-COPY-1",
        "a block copy runs on the first rank alone",
        ("DS-5", "CC-2"),
        ("fa4-m4-n2", "fa4-m8-n2-roomy"),
        (copies, "copy", _first_rank_only),
    ),
    _fault(
        "D-COPY-2",
        "a block copy copies half of a block",
        ("DS-5",),
        ("fa4-m4-n2",),
        (copies, "copy", _half_a_block),
    ),
    _fault(
        "D-ORDER-1",
        "a store copies what lay there before the forward of its step ended",
        ("CC-5",),
        ("fa4-m4-n2-host",),
        (forward, "run", _remembering(forward.run)),
        (copies, "stored_from", _before_the_forward),
    ),
    _fault(
        "D-ORDER-2",
        "blocks of a store are reused before its copy ended: the bytes move behind the completion",
        ("CC-5",),
        ("fa4-m4-n2-host", "fa4-host-both"),
        (offload, "run_store", _copied_at_completion),
        (offload, "complete_store", _completing(offload.complete_store)),
    ),
    _fault(
        "D-ORDER-3",
        "blocks of a store are not pinned: they may be reused while it is copied",
        ("PC-3",),
        ("fa4-m4-n2-host", "fa4-host-both"),
        (offload, "pin", _no_pin),
    ),
    _fault(
        "D-LOAD-1",
        "a load also lands in the column before its own, over a local tail",
        ("CC-6",),
        ("fa4-host", "fa4-m8-n2-host-ample"),
        (offload, "run_load", _also_the_column_before),
    ),
    _fault(
        "D-STATE-1",
        "the running state is read without regard to the accepted drafts",
        ("CC-2",),
        ("fa4-m4+1", "fa2-m2+3-draft3"),
        (rows, "state_column", _state_of_the_column),
    ),
    _fault(
        "D-STATE-2",
        "every chunk starts from the state of no tokens",
        ("CC-2",),
        ("fa4-m4-n2",),
        (forward, "read_state", _zero_at_the_start),
    ),
    _fault(
        "D-POOL-1",
        "freed blocks queue behind the others, keyed or not",
        ("PC-1",),
        ("fa4-m4-n2",),
        (pool, "release", _behind_the_queue),
    ),
)
"""Every fault of the data path. Their ids begin with D."""


def by_id(name: str) -> Fault:
    """Return the fault of this id. Raises UserError that names the nearest ones, or who plants faults of the model."""
    for fault in ALL:
        if fault.id == name:
            return fault
    if any(fault.id == name for fault in models.ALL):
        raise UserError(
            f"{name} is a fault of the model, and both sides share its formulas: kvproof check --fault {name} plants it there. "
            "Faults of the tensor layer begin with D: kvproof gpu --fault list"
        )
    raise UserError(near.unknown("fault of the tensor layer", name, [fault.id for fault in ALL], "kvproof gpu --fault list"))
