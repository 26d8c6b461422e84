"""Configurations of a real scheduler under which generated scripts run.

A scope is the header's configuration of a scheduler-level recording (docs/trace-format.md, section 2). They are the group sets
and settings of docs/semantics.md, section 10, and the shapes of the deployments (docs/deployments.md) scaled down, so that a
prompt of some tens of tokens passes several boundaries.
"""

from __future__ import annotations

from typing import Any

from kvproof.spec import near
from kvproof.spec.traces.format import ConnectorConfig, GroupConfig
from kvproof.spec.vllm import scopes_random
from kvproof.spec.vllm.scope_parts import AMPLE, Scope, chunked, configured, eager, full, lazy, mamba, sliding

__all__ = ["ALL", "LEFT_OUT", "Scope", "by_name", "chosen"]

NO_HOST = "no host tier"
NO_DRAFTS = "no drafts"


def _scope(
    name: str,
    covers: str,
    leaves_out: str,
    *groups: GroupConfig,
    quick: bool = False,
    **settings: Any,
) -> Scope:
    room = settings.get("room", 1.0)
    return Scope(name, configured(name, *groups, **settings), covers, leaves_out, quick, ample=room >= AMPLE)


def _attention() -> list[Scope]:
    return [
        _scope(
            "fa4-tiny",
            "full attention alone, a pool of one sequence: preemption, eviction, the priority policy",
            f"{NO_HOST}, {NO_DRAFTS}, no recurrent group",
            full(4),
            length=40,
            budget=16,
            policy="priority",
        ),
        _scope(
            "fa4-n4-lazy",
            "one sharded group at four ranks with a lazy host tier and its events",
            f"{NO_DRAFTS}, one worker, no eviction by finished stores",
            full(4),
            ranks=4,
            length=120,
            budget=48,
            host=lazy(8, events=True),
            room=1.6,
        ),
        _scope(
            "fa2-eager",
            "full attention alone, stored eagerly by two workers; the first runner; a long-prefill limit",
            f"{NO_DRAFTS}, ample pools only",
            full(2),
            length=48,
            budget=16,
            host=eager(120, workers=2),
            room=AMPLE,
            runner="v1",
            threshold=6,
            quick=True,
        ),
        _scope(
            "fa4-eagle",
            "full attention with an EAGLE drafter that drops a unit, two steps ahead",
            f"{NO_HOST}, no recurrent group",
            full(4),
            length=48,
            budget=24,
            eagle=True,
            drafts=2,
            batches=2,
            room=2.0,
        ),
        _scope(
            "fa4-eagle-async",
            "the scheduler that plans on placeholders for tokens that are not sampled yet, with an EAGLE drafter; a tight pool",
            f"{NO_HOST}, no recurrent group",
            full(4),
            length=48,
            budget=24,
            eagle=True,
            drafts=2,
            batches=2,
            asynchronous=True,
            room=1.5,
        ),
        _scope(
            "fa4-c4",
            "full attention and chunked local attention, a full sequence must fit",
            f"{NO_HOST}, {NO_DRAFTS}",
            full(4),
            chunked(4, 8),
            length=48,
            budget=16,
            whole=True,
            room=1.5,
        ),
        _scope(
            "fa2-c2-lazy",
            "chunked local attention with a lazy host tier and its events",
            f"{NO_DRAFTS}, one worker",
            full(2),
            chunked(2, 6),
            length=36,
            budget=12,
            host=lazy(24, events=True),
            runner="v1",
        ),
    ]


def _windows() -> list[Scope]:
    return [
        _scope(
            "fa4-w4",
            "a sliding window that is no multiple of its block, kept at multiples of the retention interval",
            f"{NO_HOST}, {NO_DRAFTS}",
            full(4),
            sliding(4, 7),
            length=56,
            budget=16,
            retention=8,
            room=1.3,
        ),
        _scope(
            "fa4-w4-n2-eager",
            "a replicated window of smaller blocks under two ranks, stored eagerly, events on",
            f"{NO_DRAFTS}, no tight pool",
            full(4),
            sliding(4, 9),
            ranks=2,
            length=64,
            budget=32,
            retention=None,
            host=eager(160, events=True),
            room=AMPLE,
        ),
        _scope(
            "fa2-w2-eagle-lazy",
            "a window with an EAGLE drafter, sparse retention, stored lazily",
            "one worker, events off",
            full(2),
            sliding(2, 5),
            length=40,
            budget=16,
            eagle=True,
            drafts=2,
            host=lazy(24),
            runner="v1",
            threshold=4,
            room=1.5,
        ),
        _scope(
            "fa4-m4-w4-n2-eager",
            "recurrent states and a window whose block is the hash block: hits inside attention blocks",
            f"{NO_DRAFTS}, ample pools only",
            full(4),
            mamba(4),
            sliding(4, 5),
            ranks=2,
            length=64,
            budget=32,
            host=eager(160),
            room=AMPLE,
        ),
        _scope(
            "fa8-m8-w8-h4",
            "recurrent states and a window whose block is larger than the hash block: coarse hits, priority, two steps ahead",
            f"{NO_HOST}, {NO_DRAFTS}",
            full(8),
            mamba(8),
            sliding(8, 13),
            unit=4,
            length=72,
            budget=24,
            policy="priority",
            batches=2,
        ),
    ]


def _recurrent() -> list[Scope]:
    return [
        _scope(
            "fa4-m4",
            "one block size, one rank: hits at whole blocks, every state kept",
            f"{NO_HOST}, {NO_DRAFTS}, no hit inside a block",
            full(4),
            mamba(4),
            length=48,
            budget=24,
            retention=None,
        ),
        _scope(
            "fa16-m16-h4",
            "hits inside blocks at one rank, tight pool, priority",
            f"{NO_HOST}, {NO_DRAFTS}",
            full(16),
            mamba(16),
            unit=4,
            length=112,
            budget=48,
            policy="priority",
            room=1.2,
        ),
        _scope(
            "fa4-m4-n2",
            "attention split over two ranks, states replicated: hits inside attention blocks",
            f"{NO_HOST}, {NO_DRAFTS}",
            full(4),
            mamba(4),
            ranks=2,
            length=64,
            budget=32,
            quick=True,
            room=2.0,
        ),
        _scope(
            "fa4-m4-n4-eager",
            "four ranks, stored eagerly; identical prompts come back after the device forgot them",
            f"{NO_DRAFTS}, ample pools only",
            full(4),
            mamba(4),
            ranks=4,
            length=96,
            budget=64,
            host=eager(200),
            room=AMPLE,
            quick=True,
        ),
        _scope(
            "fa4-m16-n4-eager",
            "a recurrent block four times an attention block at four ranks: equal effective sizes, two workers, events on",
            f"{NO_DRAFTS}, no boundary inside a block",
            full(4),
            mamba(16),
            ranks=4,
            length=96,
            budget=64,
            host=eager(24, workers=2, events=True),
            room=1.5,
        ),
        _scope(
            "fa4-m8-h2-n2-lazy",
            "unequal effective sizes and hash blocks inside them at two ranks, stored lazily",
            f"{NO_DRAFTS}, one worker",
            full(4),
            mamba(8),
            ranks=2,
            unit=2,
            length=64,
            budget=32,
            host=lazy(40),
            quick=True,
            room=1.2,
        ),
        _scope(
            "fa2-m4-n4-lazy",
            "recurrent blocks smaller than an effective attention block at four ranks, stored lazily, events on",
            f"{NO_DRAFTS}, one worker",
            full(2),
            mamba(4),
            ranks=4,
            length=64,
            budget=32,
            retention=8,
            host=lazy(40, events=True),
            batches=2,
            room=1.4,
        ),
        _scope(
            "m4-fa4-m4-n2-eager-tiny",
            "two recurrent groups around attention, tiny pools of both tiers: preemption, dropped handoffs, two workers",
            NO_DRAFTS,
            mamba(4),
            full(4),
            mamba(4),
            ranks=2,
            length=64,
            budget=24,
            retention=16,
            host=eager(7, workers=2),
            policy="priority",
            runner="v1",
        ),
        _scope(
            "fa4-3m4-n8-eager",
            "the shape of a large deployment: eight ranks, one attention and three recurrent groups of one block size",
            f"{NO_DRAFTS}, one worker",
            full(4),
            mamba(4),
            mamba(4),
            mamba(4),
            ranks=8,
            length=160,
            budget=96,
            host=eager(240),
            room=AMPLE,
        ),
    ]


def _speculative() -> list[Scope]:
    return [
        _scope(
            "fa4-m4+1-n2-eagle-eager",
            "EAGLE with recurrent states and one spare block, stored eagerly; identical prompts come back",
            "ample pools only",
            full(4),
            mamba(4, 1),
            ranks=2,
            length=64,
            budget=32,
            eagle=True,
            drafts=1,
            host=eager(160),
            room=AMPLE,
            quick=True,
        ),
        _scope(
            "fa4-m4+1-d4-n2-eagle",
            "a drafter's own attention group under two ranks, two steps ahead, tight pool",
            NO_HOST,
            full(4),
            mamba(4, 1),
            full(4, draft=True),
            ranks=2,
            length=64,
            budget=32,
            eagle=True,
            drafts=1,
            batches=2,
            retention=32,
        ),
        _scope(
            "fa4-m4+1-n2-async-eager",
            "placeholders with recurrent states, one draft, stored eagerly by two workers",
            "events off, ample pools only",
            full(4),
            mamba(4, 1),
            ranks=2,
            length=64,
            budget=32,
            drafts=1,
            host=eager(160, workers=2),
            batches=2,
            asynchronous=True,
            room=AMPLE,
        ),
        _scope(
            "fa4-m4+3-n4-eager",
            "three drafts without the EAGLE drop: states move through spare blocks; priority",
            "events off, one worker",
            full(4),
            mamba(4, 3),
            ranks=4,
            length=96,
            budget=32,
            drafts=3,
            host=eager(16),
            policy="priority",
            room=1.3,
        ),
        _scope(
            "fa8-m4+2-h2",
            "two drafts, attention blocks larger than recurrent ones, hash blocks inside both; chunks smaller than a block",
            NO_HOST,
            full(8),
            mamba(4, 2),
            unit=2,
            length=56,
            budget=7,
            drafts=2,
            clip=4,
            retention=None,
            room=1.5,
        ),
    ]


def _connected() -> list[Scope]:
    return [
        _scope(
            "fa4-m4-incapable",
            "a connector that cannot restore recurrent states: it must not be offered a divergent hit",
            f"{NO_HOST}, {NO_DRAFTS}",
            full(4),
            mamba(4),
            connectors=(ConnectorConfig(False, 0),),
            length=64,
            budget=24,
            room=1.5,
            quick=True,
        ),
        _scope(
            "fa4-m4-capable",
            "a connector that can restore recurrent states and brings one block more",
            f"{NO_HOST}, {NO_DRAFTS}; synchronous loads",
            full(4),
            mamba(4),
            connectors=(ConnectorConfig(True, 4),),
            length=64,
            budget=24,
            room=1.5,
        ),
        _scope(
            "fa4-m4-n2-two",
            "two connectors of which one cannot restore states, at two ranks",
            f"{NO_HOST}, {NO_DRAFTS}",
            full(4),
            mamba(4),
            ranks=2,
            connectors=(ConnectorConfig(True, 8), ConnectorConfig(False, 0)),
            length=64,
            budget=32,
            room=1.5,
        ),
    ]


ALL: tuple[Scope, ...] = (*_attention(), *_windows(), *_recurrent(), *_speculative(), *_connected())
"""Every named scope."""

LEFT_OUT = (
    "stable recurrent groups and cache mode none",
    "scratch and cross-attention groups",
    "adapters, images, salts: every prompt has the same context",
    "prefill context parallelism and pipeline parallelism",
    "other connectors than SimpleCPU and the test connectors; failed loads",
    "resets that preempt running requests beside a host tier or connectors: refused by the engine while transfers run",
    "what workers do with the plan: only block tables (rows) are run, no kernel",
)
"""What no scope has."""


def by_name(name: str) -> Scope:
    """Return the scope of this name, also a random one. Raises UserError that lists the known ones."""
    number = name.removeprefix(scopes_random.PREFIX)
    if number != name and number.isdecimal():
        return scopes_random.scope(int(number))
    return near.named("scope", name, ALL)


def chosen(quick: bool) -> tuple[Scope, ...]:
    """Return the scopes of a full or a quick run."""
    return tuple(scope for scope in ALL if scope.quick or not quick)
