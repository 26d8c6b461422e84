"""Configurations of a real scheduler drawn at random: group set, sizes, host tier and scheduler settings by a seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

from kvproof.spec.traces.format import ConnectorConfig, GroupConfig, HostConfig
from kvproof.spec.vllm.scope_parts import (
    AMPLE,
    Scope,
    chunked,
    configured,
    eager,
    effective,
    full,
    lazy,
    mamba,
    sliding,
)

PREFIX = "random-"
"""A scope's name that begins with this and ends in a number is that of a random scope."""


def scope(seed: int) -> Scope:
    """Return the random scope of a seed: group set, sizes, host tier and scheduler settings drawn at random."""
    draw = Random(f"scope/{seed}")
    ranks = draw.choice((1, 1, 2, 2, 4))
    base = draw.choice((2, 4, 4, 8))
    drafts = draw.choice((0, 0, 0, 1, 2, 3))
    eagle = drafts > 0 and draw.random() < 0.6
    groups = _random_groups(draw, ranks, base, drafts, eagle)
    sizes = effective(groups, ranks)
    span = math.lcm(*sizes)
    unit = math.gcd(*sizes)
    if len(groups) > 1 and draw.random() < 0.4:
        unit //= draw.choice([step for step in (1, 2, 4) if unit % step == 0])
    roomy = draw.random() < 0.35
    length = max(draw.choice((3, 5, 6)) * span + draw.randrange(span), 28)
    host, connectors = _random_offload(draw, groups, roomy, length, min(sizes))
    name = f"{PREFIX}{seed}"
    sparse = any(group.kind in ("mamba", "sliding_window") for group in groups)  # nothing else is kept by interval
    config = configured(
        name,
        *groups,
        ranks=ranks,
        unit=unit,
        retention=draw.choice((None, 0, 0, 0, span, 2 * span)) if sparse else None,
        room=AMPLE if roomy else draw.choice((1.0, 1.1, 1.5, 2.0)),
        host=host,
        eagle=eagle,
        drafts=drafts,
        clip=_random_clip(draw, groups),
        length=length,
        budget=max(draw.choice((1, 2, 3, 5)) * max(base, span // 2), 1 + drafts, 8),
        running=draw.choice((2, 3, 4)),
        policy=draw.choice(("fcfs", "fcfs", "priority")),
        runner=draw.choice(("v2", "v2", "v1")),
        threshold=draw.choice((0, 0, 0, base, span)),
        whole=draw.random() < 0.25,
        batches=draw.choice((1, 1, 1, 2)),
        connectors=connectors,
    )
    return Scope(name, config, "drawn at random", "what `scopes.LEFT_OUT` lists", ample=roomy)


def _random_groups(draw: Random, ranks: int, base: int, drafts: int, eagle: bool) -> list[GroupConfig]:
    kind = draw.choice(("fa", "fa_w", "fa_c", "fa_m", "fa_m", "fa_m", "fa_m", "m_fa_m", "fa_m_w", "fa_m_w", "fa_d_m"))
    recurrent = base * draw.choice((1, 1, 1, 2, 4))
    window = sliding(base * draw.choice((1, 1, 2)), draw.randrange(2, 4 * base))
    if kind == "fa":
        return [full(base)]
    if kind == "fa_w":
        return [full(base), window]
    if kind == "fa_c" and ranks == 1 and not eagle:
        return [full(base), chunked(base, base * draw.choice((1, 2, 3)))]
    if kind == "m_fa_m":
        return [mamba(recurrent, drafts), full(base), mamba(recurrent, drafts)]
    if kind == "fa_m_w":
        return [full(base), mamba(recurrent, drafts), window]
    if kind == "fa_d_m" and eagle:
        return [full(base), mamba(recurrent, drafts), full(base, draft=True)]
    return [full(base), mamba(recurrent, drafts)]


def _random_clip(draw: Random, groups: Sequence[GroupConfig]) -> int:
    sizes = [group.block_size for group in groups]
    recurrent = [group.block_size for group in groups if group.kind == "mamba"]
    return min(sizes) if not recurrent or draw.random() < 0.3 else max(recurrent)


def _random_offload(
    draw: Random, groups: Sequence[GroupConfig], roomy: bool, length: int, smallest: int
) -> tuple[HostConfig | None, tuple[ConnectorConfig, ...]]:
    kind = draw.choice(("none", "eager", "eager", "eager", "lazy", "lazy", "connectors"))
    events = draw.random() < 0.3
    blocks = 8 * len(groups) * math.ceil(length / smallest) if roomy else draw.choice((3, 5, 9, 20, 40))
    if kind == "eager":
        return eager(blocks, workers=draw.choice((1, 1, 2)), events=events), ()
    if kind == "lazy":
        return lazy(blocks, events=events), ()
    if kind == "connectors" and any(group.kind == "mamba" for group in groups):
        count = draw.choice((1, 1, 2))
        return None, tuple(ConnectorConfig(draw.random() < 0.5, draw.choice((0, 0, smallest))) for _ in range(count))
    return None, ()
