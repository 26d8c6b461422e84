"""What the scopes of a real scheduler are made of: groups, host tiers, test connectors, and the sizes that follow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from attrs import frozen

from kvproof.core.config import VLLM_0_33_0
from kvproof.core.config import Config as ModelConfig
from kvproof.spec.traces import format as trace_format
from kvproof.spec.traces import project
from kvproof.spec.traces.format import Config, ConnectorConfig, GroupConfig, HostConfig, SchedulerConfig

AMPLE = 6.0
"""Sequences of the greatest length in a pool that scripts hardly fill."""


@frozen(slots=True)
class Scope:
    """One configuration of the real scheduler.

    ``covers`` says what is exercised here, ``leaves_out`` what is not; ``quick`` scopes are run by ``--quick``, too. ``ample``:
    the pools hold all that a script uses, so that nothing is evicted and the laws about identical resends have their premise.
    """

    name: str
    config: Config
    covers: str = ""
    leaves_out: str = ""
    quick: bool = False
    ample: bool = False

    def header(self) -> dict[str, Any]:
        """Return the configuration as a release's process reads it: JSON values."""
        return header(self.config)


def header(config: Config) -> dict[str, Any]:
    """Return a configuration as a release's process reads it: JSON values."""
    fields: dict[str, Any] = msgspec.to_builtins(config)
    return fields


def full(block: int, sharded: bool = True, *, draft: bool = False) -> GroupConfig:
    """Return a full-attention group; ``block`` in tokens per rank, ``draft``: a drafter's own group."""
    return GroupConfig("full_attention", block, sharded, is_eagle_group=draft)


def mamba(block: int, spare: int = 0) -> GroupConfig:
    """Return a recurrent group in align mode with ``spare`` speculative blocks."""
    return GroupConfig("mamba", block, False, mamba_cache_mode="align", num_speculative_blocks=spare)


def sliding(block: int, window: int, sharded: bool = False) -> GroupConfig:
    """Return a sliding-window group; ``window`` in tokens."""
    return GroupConfig("sliding_window", block, sharded, window=window)


def chunked(block: int, chunk: int) -> GroupConfig:
    """Return a chunked-local group; ``chunk`` in tokens."""
    return GroupConfig("chunked_local", block, True, window=chunk)


def eager(blocks: int, *, workers: int = 1, events: bool = False) -> HostConfig:
    """Return an eager host tier; its fine-grained hits follow from the groups."""
    return HostConfig("eager", blocks, events, workers, False)


def lazy(blocks: int, *, events: bool = False) -> HostConfig:
    """Return a lazy host tier."""
    return HostConfig("lazy", blocks, events, 1, False)


def effective(groups: Sequence[GroupConfig], ranks: int) -> list[int]:
    """Return E per group: tokens under one table entry (2.1)."""
    return [group.block_size * (ranks if group.dcp_sharded else 1) for group in groups]


def one_sequence(config: Config) -> int:
    """Return blocks that hold one request of the greatest length beside its copies, over all groups, without the null block."""
    total = 0
    for group, size in zip(config.groups, config.group_block_sizes, strict=True):
        whole = math.ceil(config.max_model_len / size)
        if group.kind == "mamba":
            total += 3 + (group.num_speculative_blocks or 0)
        elif group.window is not None:
            total += min(whole, math.ceil((group.window + config.max_step_tokens) / size) + 1) + 1
        else:
            total += whole + 1
    return total


def configured(
    name: str,
    *groups: GroupConfig,
    ranks: int = 1,
    unit: int | None = None,
    retention: int | Literal["default"] | None = "default",
    room: float = 1.0,
    host: HostConfig | None = None,
    eagle: bool = False,
    drafts: int = 0,
    clip: int | None = None,
    length: int = 64,
    budget: int = 32,
    running: int = 4,
    policy: Literal["fcfs", "priority"] = "fcfs",
    runner: Literal["v1", "v2"] = "v2",
    threshold: int = 0,
    whole: bool = False,
    batches: int = 1,
    asynchronous: bool = False,
    connectors: Sequence[ConnectorConfig] = (),
) -> Config:
    """Return a header configuration with its derived sizes (2.1 to 2.4).

    ``room``: size of the device pool in sequences of the greatest length. ``clip``: unit of the clipping rule, by default the
    block size of the recurrent groups. Raises ConfigError if no engine could have it.
    """
    sizes = effective(groups, ranks)
    recurrent = [group.block_size for group in groups if group.kind == "mamba"]
    config = Config(
        name=name,
        groups=list(groups),
        dcp_world_size=ranks,
        hash_block_size=unit or math.gcd(*sizes),
        scheduler_block_size=math.lcm(*sizes),
        group_block_sizes=sizes,
        fine_grained_hits=False,
        retention_interval=_retention(groups) if retention == "default" else retention,
        num_device_blocks=1,
        host=host,
        use_eagle=eagle,
        num_draft_tokens=drafts,
        lookahead=drafts if eagle else 0,
        clip_block_size=clip or max(recurrent, default=min(group.block_size for group in groups)),
        max_model_len=length,
        max_step_tokens=budget,
        max_running=running,
        seed=0,
        scheduler=SchedulerConfig(policy, runner, threshold, whole, batches, asynchronous),
        connectors=list(connectors) or None,
    )
    return resolved(msgspec.structs.replace(config, num_device_blocks=1 + math.ceil(room * one_sequence(config))))


def _retention(groups: Sequence[GroupConfig]) -> int | None:
    """Return sparse retention where it means something; some releases refuse it for other groups."""
    return 0 if any(group.kind in ("mamba", "sliding_window") for group in groups) else None


def model(config: Config) -> ModelConfig:
    """Return the model's configuration for it, under the profile of vLLM. Raises ConfigError if the model cannot take it."""
    engine = trace_format.Engine("vllm", "any", "scheduler")
    header = trace_format.Header(trace_format.FORMAT, trace_format.VERSION, engine, config)
    return project.model_config(header, VLLM_0_33_0)


def resolved(config: Config) -> Config:
    """Return the configuration with the gate of fine-grained hits as the model resolves it. Raises ConfigError."""
    fine = model(config).fine_grained
    host = config.host
    if host is not None:
        host = msgspec.structs.replace(host, fine_grained_hits=fine and host.mode == "eager")
    return msgspec.structs.replace(config, fine_grained_hits=fine, host=host)
