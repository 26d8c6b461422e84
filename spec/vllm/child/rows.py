"""The worker's block-table rows of a release: its own table class, as wide as its own runner makes it, its kernels run here."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import MagicMock

import kernels
import torch
from configuration import Header, Unsupported, kv_cache_config, module, set_environment, vllm_config

SLOTS = 320
"""Tokens of a batch for which slots are computed."""


class _Captured(BaseException):
    """The runner is about to build its tables: what it would build them with."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        super().__init__()
        self.arguments = arguments


class Tables:
    """The block tables of one configuration."""

    def __init__(self, config: Header, rank: int = 0) -> None:
        set_environment(config)
        buffers, tables = module("v1.worker.gpu.buffer_utils"), module("v1.worker.gpu.block_table")
        self.language = kernels.put_in(buffers, tables)
        self.arguments = arguments(config, rank)
        self.tables = tables.BlockTables(**self.arguments)
        self.language.tensors = [table.gpu for table in self.tables.block_tables] + list(self.tables.input_block_tables)

    @property
    def capacity(self) -> list[int]:
        """Entries of a row, per group."""
        return [table.gpu.shape[1] for table in self.tables.block_tables]

    def append(self, row: int, blocks: Sequence[Sequence[int]], overwrite: bool) -> dict[str, Any]:
        """Append block ids per group to a row and return all rows; ``error`` is set if the release refuses.

        A refused append may have staged some groups: they are written before the rows are read, so that they are seen.
        """
        self.language.outside.clear()
        answer: dict[str, Any] = {}
        try:
            self.tables.append_block_ids(row, tuple(list(ids) for ids in blocks), overwrite)
        except Exception as error:
            answer["error"] = f"{type(error).__name__}: {error}"
        self.tables.apply_staged_writes()
        return {**answer, **self.state()}

    def state(self) -> dict[str, Any]:
        """Return, per group and row, the entries up to the row's count, its count, and what was written outside the table.

        A count that is larger than the row reads on into the next one, as the release's gathering does.
        """
        rows, counts = [], []
        for group, table in enumerate(self.tables.block_tables):
            flat, width = table.gpu.flatten().tolist(), table.gpu.shape[1]
            counts.append(self.tables.num_blocks.np[group].tolist())
            rows.append([flat[row * width : row * width + count] for row, count in enumerate(counts[-1])])
        groups = [table.gpu for table in self.tables.block_tables]
        outside = [
            [next(g for g, one in enumerate(groups) if one.data_ptr() == tensor.data_ptr()), offset, value]
            for tensor, offset, value in self.language.outside
        ]
        return {"rows": rows, "counts": counts, "outside": outside}

    def slots(self, row: int, tokens: int) -> list[list[int]]:
        """Return, per group, the slot of each of a row's first positions, -1 where this rank writes none."""
        end = torch.tensor([0, tokens], dtype=torch.int32)
        found = self.tables.compute_slot_mappings(
            torch.tensor([row], dtype=torch.int32), end, torch.arange(tokens, dtype=torch.int64), tokens
        )
        return [group[:tokens] for group in found.tolist()]


def answer(config: Header, appends: Sequence[Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Perform appends ``[row, ids per group, overwrite]`` one after the other; yield what each left behind."""
    tables = Tables(config)
    for row, blocks, *rest in appends:
        yield tables.append(row, blocks, bool(rest and rest[0]))


def arguments(config: Header, rank: int = 0) -> dict[str, Any]:
    """Return what the release's runner would build its tables with: its own code runs up to that place."""
    runner = module("v1.worker.gpu.model_runner")
    layout, whole = kv_cache_config(config), vllm_config({**config, "connectors": None})
    ranks, run = config["dcp_world_size"], config.get("interleave", 1)
    whole.parallel_config.cp_kv_cache_interleave_size = run
    whole.cache_config.enable_prefix_caching = config.get("caching", True)
    me = MagicMock(
        max_model_len=config["max_model_len"],
        is_encoder_decoder=False,
        speculator=None,
        pcp_manager=None,
        vllm_config=whole,
        cache_config=whole.cache_config,
        scheduler_config=whole.scheduler_config,
        parallel_config=whole.parallel_config,
        dcp_size=ranks,
        dcp_rank=rank,
        cp_interleave=run,
        max_num_reqs=config["max_running"],
        max_num_tokens=SLOTS,
        device=torch.device("cpu"),
    )
    with _captured(runner, _kernel_sizes(config)):
        try:
            runner.GPUModelRunner.initialize_kv_cache(me, layout)
        except _Captured as captured:
            return captured.arguments
    raise Unsupported("block tables: its runner does not build them where it lays out its cache")


def _kernel_sizes(config: Header) -> list[int]:
    """Return the block sizes of the kernels: the manager's, or a part of them where the release splits blocks."""
    factor = config.get("append_expansion", 1)
    splits = "kernel_block_sizes" in inspect.signature(module("v1.worker.gpu.block_table").BlockTables).parameters
    sizes = [group["block_size"] for group in config["groups"]]
    if factor > 1 and (not splits or any(size % factor for size in sizes)):
        raise Unsupported(f"blocks that a kernel sees as {factor}")
    return [size // factor for size in sizes]


@contextmanager
def _captured(runner: Any, kernel_sizes: list[int]) -> Iterator[None]:
    """Let the building of block tables end the call, and what a device is needed for before it be nothing."""

    def tables(**arguments: Any) -> None:
        raise _Captured(arguments)

    replaced = {
        "BlockTables": tables,
        "init_attn_backend": lambda *args, **kwargs: (MagicMock(), MagicMock(), kernel_sizes),
        "maybe_create_adaptive_verification_manager": lambda *args, **kwargs: None,
        "get_max_chunk_logits": lambda *args, **kwargs: 0,
    }
    before = {name: getattr(runner, name) for name in replaced if hasattr(runner, name)}
    try:
        for name in before:
            setattr(runner, name, replaced[name])
        yield
    finally:
        for name, value in before.items():
            setattr(runner, name, value)
