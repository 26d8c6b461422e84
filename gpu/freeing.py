"""Giving blocks back: at once, or behind the fence of the steps in flight if freeing is deferred (T3, T31, T32, T36.1)."""

from __future__ import annotations

import torch
from torch import Tensor

from kvproof.gpu import pool as pools
from kvproof.gpu.world import Request, Step, TensorWorld


def free_request(world: TensorWorld, request: Request) -> None:
    """Free all blocks of a request; while a step of it is in flight they are held back if freeing is deferred (T31, T32)."""
    tables = [holding.table for holding in request.groups]
    if is_held_back(world, request.request):
        world.deferred.append((world.issued, tables))
    else:
        release_tables(world, tables)


def is_held_back(world: TensorWorld, request: int) -> bool:
    """Tell whether freeing a request has to wait: a step of it is in flight and not processed yet (T3)."""
    return world.config.defer_block_free and any(request in step.due and not step.opened for step in world.steps)


def release_tables(world: TensorWorld, tables: list[Tensor]) -> None:
    """Release tables one after the other, each tail first (T3)."""
    for table in tables:
        pools.release(world.pool, table.flip(0))


def free_ends(world: TensorWorld, ends: Tensor) -> None:
    """Give back the references of the ends of a step's copies: one release, at once or fenced (T0 part 5)."""
    fence = world.issued + (1 if world.plan.shares else 0)
    if ends.numel() and world.config.defer_block_free and fence > world.processed:
        world.deferred.append((fence, [ends.flip(0)]))
    else:
        pools.release(world.pool, ends)


def open_step(world: TensorWorld, step: Step) -> None:
    """Note that the outputs of the oldest step begin to be processed, and release what waited for it (T36.1)."""
    if step.opened:
        return
    step.opened = True
    if not world.config.defer_block_free:
        return
    world.processed += 1
    while world.deferred and world.deferred[0][0] <= world.processed:
        _, tables = world.deferred.pop(0)
        if world.config.profile.deferred_free_order == "flattened":
            tables = [torch.cat(tables)]
        release_tables(world, tables)
