"""The second mode: every rank is a process of its own with the bytes of its rank alone, joined by ``torch.distributed``.

All processes make the same decisions, as the workers of an engine get the same metadata; each writes and copies the bytes of
its rank, and an output is summed over all of them. gloo is used, or nccl where there are as many CUDA devices as ranks.
"""

from __future__ import annotations

import json
import multiprocessing
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from attrs import asdict, frozen
from torch import Tensor

from kvproof.gpu import differential
from kvproof.spec.engines import scopes
from kvproof.spec.engines.walk import Walker
from kvproof.spec.exits import UserError

GLOO, NCCL = "gloo", "nccl"
PATIENCE = timedelta(seconds=120)
"""How long a process waits for the others before it gives up."""


@frozen(slots=True)
class RankRun:
    """What one rank did: actions performed, outputs compared, and the first difference, empty if there is none."""

    rank: int
    performed: int
    outputs: int
    difference: str = ""


def available(backend: str, size: int) -> str:
    """Return why ranks cannot run with a backend, empty if they can."""
    if not dist.is_available():
        return "this torch has no torch.distributed"
    if backend == NCCL and (not dist.is_nccl_available() or torch.cuda.device_count() < size):
        return f"nccl needs {size} CUDA devices, {torch.cuda.device_count()} are visible"
    if backend == GLOO and not dist.is_gloo_available():
        return "this torch has no gloo"
    return ""


def run(scope: str, seed: int, steps: int, backend: str = GLOO) -> tuple[RankRun, ...]:
    """Walk a scope with one process per rank and compare each with the model. Raises UserError if that is not possible here."""
    size = scopes.by_name(scope).config().dcp_size
    why = available(backend, size)
    if why:
        raise UserError(f"ranks as processes with {backend}: not run, {why}")
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="kvproof-ranks-") as folder:
        workers = [context.Process(target=work, args=(rank, size, scope, seed, steps, backend, folder)) for rank in range(size)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        files = [Path(folder, f"{rank}.json") for rank in range(size)]
        lost = [str(rank) for rank, file in enumerate(files) if not file.exists()]
        if lost:
            raise UserError(f"ranks {', '.join(lost)} ended without a result: see what they printed")
        return tuple(RankRun(**json.loads(file.read_text(encoding="utf-8"))) for file in files)


def work(rank: int, size: int, scope: str, seed: int, steps: int, backend: str, folder: str) -> None:
    """Be one rank: walk, compare, and leave the result in a file of the folder."""
    torch.set_num_threads(1)
    device = torch.device(f"cuda:{rank}") if backend == NCCL else torch.device("cpu")
    if backend == NCCL:
        torch.cuda.set_device(device)
    dist.init_process_group(backend, init_method=f"file://{folder}/meet", rank=rank, world_size=size, timeout=PATIENCE)
    try:
        found = walk(rank, scope, seed, steps, device, summed)
        Path(folder, f"{rank}.json").write_text(json.dumps(asdict(found)), encoding="utf-8")
    finally:
        dist.destroy_process_group()


def summed(values: Tensor) -> Tensor:
    """Return the sum of partial outputs over all ranks; integers, so that the order does not matter."""
    total = values.clone()
    dist.all_reduce(total)
    return total


def walk(rank: int, name: str, seed: int, steps: int, device: torch.device, reduce: Callable[[Tensor], Tensor]) -> RankRun:
    """Walk a scope with the bytes of one rank; all ranks stop behind the action at which one of them differs."""
    scope = scopes.by_name(name)
    config = scope.config()
    walker = Walker.of(config, scope.limits(config), f"tensors/{name}/{seed}")
    both = differential.begin(config, device, (rank,), reduce)
    for _ in range(steps):
        action = walker.propose(both.model)
        walker.observe(both.act(action))
        stops = torch.tensor([0 if both.difference is None else 1], device=device)
        if int(reduce(stops)):
            break
    return RankRun(rank, both.performed, len(both.outputs), "" if both.difference is None else both.difference.text())
