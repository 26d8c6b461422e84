"""One world on tensors: what the model's world holds, as a device and a worker beside it hold it (docs/semantics.md 3).

Block ids, tables, rows, references, queues, keys, tokens, digests and bytes are tensors on the device. Counts that a scheduler
keeps on the host (tokens computed, steps in flight, stages of transfers) are Python numbers. Nothing here comes from a world of
the model.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

import torch
from attrs import define, field
from torch import Tensor

from kvproof.core import kinds
from kvproof.core.config import Config
from kvproof.core.kinds.base import Capabilities
from kvproof.gpu import digests, rows
from kvproof.gpu import pool as pools
from kvproof.gpu.pool import Pool, Records
from kvproof.gpu.rows import Rows
from kvproof.gpu.streams import Streams

NONE = -1
POISON = -7
"""Stands for a token that never became known: what is computed of it is garbage (T36)."""


@define(slots=True)
class Line:
    """The tokens of one request and their digests, growing in place on the device.

    ``tokens`` int64[L], ``digests`` int64[L + 1]: entry n is the digest of the first n tokens; ``count`` tokens are known.
    """

    tokens: Tensor
    digests: Tensor
    context: int
    count: int = 0


@define(slots=True)
class Holding:
    """What a request holds in one group (3.3): ``table`` int32[columns], entry j covers tokens [jE, (j+1)E).

    ``partial_source`` is the block of an owed copy, int32 of shape [1]; the rest as in the model.
    """

    table: Tensor
    num_cached: int = NONE
    partial_index: int = NONE
    partial_source: Tensor | None = None
    allocated: bool = False
    retired: int = 0
    tail_boundary: int = NONE
    checkpoint: tuple[int, int] | None = None


class Status(IntEnum):
    """Status of a live request, by the names and numbers of 3.3."""

    WAITING = 0
    RUNNING = 1
    PREEMPTED = 2
    LOADING = 3


@define(slots=True)
class Request:
    """One live request (3.3); token counts in tokens."""

    request: int
    line: Line
    num_prompt: int
    groups: list[Holding]
    skip_reading: bool = False
    status: Status = Status.WAITING
    computed: int = 0
    in_flight: int = 0
    junction: int = 0
    placeholders: int = 0
    stale: int = 0
    drop_stale: bool = False
    loaded: bool = False
    preempted: bool = False

    @property
    def waiting(self) -> Status:
        """The status with which it waits: PREEMPTED if it ran before (T30)."""
        return Status.PREEMPTED if self.preempted else Status.WAITING

    @property
    def num_tokens(self) -> int:
        """The tokens that are known."""
        return self.line.count


@define(slots=True)
class Share:
    """One request's share of a step: it computes tokens [start, start + amount), the last of them ``drafts`` (3.4, T36).

    ``known`` tokens of ``line`` stand before the drafts; while ``pending`` tokens are still to come the drafts follow nothing.
    ``sampled`` are the outputs that the forward computed: position and value.
    """

    request: int
    line: Line
    start: int
    amount: int
    fresh: bool
    loaded_from: int
    drafts: tuple[int, ...]
    samples: bool
    pending: int
    known: int = 0
    row: int = NONE
    sampled: list[tuple[int, Tensor]] = field(factory=list)

    @property
    def end(self) -> int:
        """The tokens that are computed behind the share."""
        return self.start + self.amount

    @property
    def depth(self) -> int:
        """The tokens of the share's prefix that are known, drafts included."""
        return self.known + (0 if self.pending else len(self.drafts))


@define(slots=True)
class Step:
    """A dispatched step (3.4): ``copies`` are int32 sources and destinations, ``zero`` the blocks to be zeroed."""

    shares: list[Share]
    copies: tuple[Tensor, Tensor]
    zero: Tensor
    due: list[int]
    part: int = 0
    opened: bool = False
    store: int = NONE
    load: int = NONE
    flush: bool = False


@define(slots=True)
class Plan:
    """The open plan (3.4): ``copies`` are (group, source, destination), ``zero`` (group, blocks); ``undo`` is for T39.

    ``registered`` are (request, group, key) of what recurrent groups registered since the step began (COW-4). ``preempted``:
    somebody was since the last plan was dispatched, so that its step waits for the transfers (T0 a).
    """

    shares: list[Share] = field(factory=list)
    copies: list[tuple[int, Tensor, Tensor]] = field(factory=list)
    zero: list[tuple[int, Tensor]] = field(factory=list)
    undo: dict[int, Records] = field(factory=dict)
    registered: list[tuple[int, int, int]] = field(factory=list)
    preempted: bool = False
    store: int = NONE
    load: int = NONE


class Stage(IntEnum):
    """How far a transfer is (3.5)."""

    WAITING = 0
    BUILT = 1
    SUBMITTED = 2
    COPIED = 3


@define(slots=True)
class Store:
    """One store event: device blocks and the host blocks that they go to, int32[n] each."""

    event: int
    device: Tensor
    host: Tensor
    stage: Stage = Stage.BUILT
    acks: int = 0


@define(slots=True)
class Load:
    """A request's copies from the host, int32[n] each, behind its first ``start`` tokens (T29, T30).

    One that waits may begin when ``fence`` steps are processed (T36.1).
    """

    request: int
    device: Tensor
    host: Tensor
    start: int
    fence: int = 0
    event: int = NONE
    stage: Stage = Stage.WAITING
    finished: bool = False
    held: list[Tensor] = field(factory=list)
    condemned: bool = False


@define(slots=True)
class Pinned:
    """The pinned result of an external lookup: ``length`` tokens behind ``start``, host blocks per group (T20)."""

    start: int
    length: int
    lists: list[Tensor]


@define(slots=True)
class Host:
    """The host tier (3.5): its pool, its bytes int64[rank, block, word], pinned where there is CUDA, and its transfers."""

    pool: Pool
    memory: Tensor
    pinned: dict[int, Pinned] = field(factory=dict)
    loads: list[Load] = field(factory=list)
    abandoned_loads: list[Load] = field(factory=list)
    stores: list[Store] = field(factory=list)
    abandoned_stores: list[Store] = field(factory=list)
    queued: list[tuple[Tensor, Tensor]] = field(factory=list)
    next_store: int = 0
    next_load: int = 0


@define(slots=True)
class Hit:
    """What a lookup found, until it is adopted (T11): ``lists`` int32 blocks per group."""

    request: int
    local: int
    lists: list[Tensor]
    junction: int
    diverged: bool


@define(slots=True)
class TensorWorld:
    """Everything. ``memory`` int64[rank, block, word] are the bytes that all groups alias, ``ranks`` the ranks they are of.

    A block's first ``block_size`` words are the slots of an attention group, its first ``digests.WORDS`` the state of a
    recurrent one. ``reduce`` sums partial outputs over the ranks that are elsewhere.
    """

    config: Config
    device: torch.device
    pool: Pool
    memory: Tensor
    ranks: tuple[int, ...]
    rows: Rows
    streams: Streams
    reduce: Callable[[Tensor], Tensor]
    requests: dict[int, Request] = field(factory=dict)
    hit: Hit | None = None
    plan: Plan = field(factory=Plan)
    steps: list[Step] = field(factory=list)
    deferred: list[tuple[int, list[Tensor]]] = field(factory=list)
    issued: int = 0
    processed: int = 0
    host: Host | None = None
    outputs: list[tuple[int, int, Tensor]] = field(factory=list)


def unreduced(values: Tensor) -> Tensor:
    """Return partial outputs as they are: every rank is here."""
    return values


def most_keys(config: Config) -> int:
    """Return how many keys a block may have: one per hash boundary inside it, and room to spare."""
    return max(2, *(size // config.hash_block_size + 2 for size in config.sizes))


def words(config: Config) -> int:
    """Return the 64-bit words of a block on one rank: those of the largest group."""
    return max(spec.block_size if can(config, group).positions else digests.WORDS for group, spec in enumerate(config.groups))


def can(config: Config, group: int) -> Capabilities:
    """Return the capabilities of a group's kind."""
    return kinds.of(config.groups[group].kind).CAPABILITIES


def new_world(
    config: Config,
    device: torch.device,
    ranks: tuple[int, ...] | None = None,
    reduce: Callable[[Tensor], Tensor] = unreduced,
) -> TensorWorld:
    """Return the initial world on a device: empty pool, no requests, all bytes zero. ``ranks``: those held here (None: all)."""
    ranks = tuple(range(config.dcp_size)) if ranks is None else ranks
    width, keys = words(config), most_keys(config)
    host = None
    if config.offload is not None:
        count = config.offload.num_blocks
        here = torch.zeros((len(ranks), count, width), dtype=torch.int64, pin_memory=device.type == "cuda")
        host = Host(pools.new_pool(count, keys, torch.device("cpu")), here)
    return TensorWorld(
        config=config,
        device=device,
        pool=pools.new_pool(config.num_blocks, keys, device),
        memory=torch.zeros((len(ranks), config.num_blocks, width), dtype=torch.int64, device=device),
        ranks=ranks,
        rows=rows.new_rows(config, device),
        streams=Streams(device),
        reduce=reduce,
        host=host,
    )


def fresh_holdings(world: TensorWorld) -> list[Holding]:
    """Return what a request without blocks holds: an empty table per group."""
    return [Holding(torch.zeros(0, dtype=torch.int32, device=world.device)) for _ in world.config.groups]


def new_line(world: TensorWorld, context: int) -> Line:
    """Return the line of a request without tokens, with room for the model length and one token more."""
    room = world.config.max_model_len + 1
    start = torch.zeros(room + 1, dtype=torch.int64, device=world.device)
    start[0] = digests.root(context)
    return Line(torch.zeros(room, dtype=torch.int64, device=world.device), start, context)


def extend(line: Line, tokens: tuple[int, ...]) -> None:
    """Append tokens to a line, and their digests."""
    count = len(tokens)
    if count:
        added = torch.tensor(tokens, dtype=torch.int64, device=line.tokens.device)
        line.tokens[line.count : line.count + count] = added
        line.digests[line.count + 1 : line.count + count + 1] = digests.prefixes(line.digests[line.count], added)
        line.count += count


def chunk(share: Share, end: int) -> tuple[Tensor, Tensor]:
    """Return the tokens of a share's prefix up to ``end`` and the digests behind each, int64[end] and int64[end + 1] (T36).

    What never became known is poison.
    """
    line, sure = share.line, min(share.known, end)
    if sure == end:
        return line.tokens[:end], line.digests[: end + 1]
    drafts = () if share.pending else share.drafts
    rest = (*drafts, *(POISON,) * (end - sure))[: end - sure]
    added = torch.tensor(rest, dtype=torch.int64, device=line.tokens.device)
    behind = digests.prefixes(line.digests[sure], added)
    return torch.cat((line.tokens[:sure], added)), torch.cat((line.digests[: sure + 1], behind))
