"""The kv-trace format, version 1, as types: header, arguments and results of every operation (docs/trace-format.md).

Every type refuses unknown fields, missing fields and wrong types. Counts carry bounds far above any recording, so that an
absurd number is refused where it stands and not when memory runs out.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

FORMAT = "kv-trace"
VERSION = 1

NEVER = 1 << 31
"""The fence, in `deferred_frees`, of blocks that are held beside the tables until their request is freed."""

MAX_GROUPS = 64
MAX_RANKS = 4096
MAX_BLOCK_TOKENS = 1 << 20
MAX_BLOCKS = 1 << 20
MAX_TOKENS = 1 << 24

Whole = Annotated[int, Meta(ge=-(1 << 53), le=1 << 53)]
Count = Annotated[int, Meta(ge=0, le=1 << 53)]
Tokens = Annotated[int, Meta(ge=0, le=MAX_TOKENS)]  # a number of tokens, or a boundary
BlockTokens = Annotated[int, Meta(ge=1, le=MAX_BLOCK_TOKENS)]  # tokens in one block
Block = Annotated[int, Meta(ge=0, lt=MAX_BLOCKS)]  # a block's number; 0 is the null block
Blocks = Annotated[int, Meta(ge=1, le=MAX_BLOCKS)]  # size of a pool, null block included
Group = Annotated[int, Meta(ge=0, lt=MAX_GROUPS)]
TokenIds = Annotated[list[Whole], Meta(max_length=MAX_TOKENS)]
PrefixId = Annotated[str, Meta(min_length=12, max_length=12, pattern="^[0-9a-f]{12}$")]
Request = Annotated[str, Meta(min_length=1, max_length=200)]
BlockLists = list[list[Block]]  # one list per group
Copy = tuple[Block, Block]  # source, destination
Handoff = tuple[Group, Block, Tokens]  # group, block, boundary


class _Strict(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all types here."""


# --- header ---------------------------------------------------------------------------------------------------------------


class Engine(_Strict, frozen=True):
    """Who was recorded, and at which level of its scheduler."""

    name: str
    version: str
    level: Literal["manager", "scheduler"]


class GroupConfig(_Strict, frozen=True):
    """One group. `block_size` is tokens per block and rank; `window` is a window or chunk length in tokens."""

    kind: Literal["full_attention", "sliding_window", "chunked_local", "mamba"]
    block_size: BlockTokens
    dcp_sharded: bool
    window: Annotated[int, Meta(ge=1, le=MAX_TOKENS)] | None = None
    mamba_cache_mode: Literal["align", "all", "none"] | None = None
    num_speculative_blocks: Annotated[int, Meta(ge=0, le=4096)] | None = None
    is_eagle_group: bool = False


class HostConfig(_Strict, frozen=True):
    """The host tier; `num_blocks` includes the null block, `workers` acknowledge each store."""

    mode: Literal["eager", "lazy"]
    num_blocks: Blocks
    events: bool
    workers: Annotated[int, Meta(ge=1, le=MAX_RANKS)]
    fine_grained_hits: bool


class SchedulerConfig(_Strict, frozen=True):
    """Settings of a recorded scheduler; absent in manager-level recordings.

    `asynchronous`: it plans on placeholders for tokens that are not sampled yet; absent: it plans on known tokens only.
    """

    policy: Literal["fcfs", "priority"]
    runner: Literal["v1", "v2"]
    long_prefill_token_threshold: Tokens
    reserve_full_sequence: bool
    concurrent_batches: Annotated[int, Meta(ge=1, le=1024)]
    asynchronous: bool = False


class ConnectorConfig(_Strict, frozen=True):
    """A connector besides the host tier that supplies `tokens` external tokens at once (0: none); `divergent`: it can use a
    divergent local hit.
    """

    divergent: bool
    tokens: Tokens


class Config(_Strict, frozen=True):
    """Configuration of the recorded engine. `group_block_sizes` are the effective sizes E, in tokens per table entry.

    `connectors` are those besides the host tier, in their order; null or absent: none.
    """

    name: str
    groups: Annotated[list[GroupConfig], Meta(min_length=1, max_length=MAX_GROUPS)]
    dcp_world_size: Annotated[int, Meta(ge=1, le=MAX_RANKS)]
    hash_block_size: BlockTokens
    scheduler_block_size: Annotated[int, Meta(ge=1, le=MAX_TOKENS)]
    group_block_sizes: list[Annotated[int, Meta(ge=1, le=MAX_TOKENS)]]
    fine_grained_hits: bool
    retention_interval: Tokens | None
    num_device_blocks: Blocks
    host: HostConfig | None
    use_eagle: bool
    num_draft_tokens: Annotated[int, Meta(ge=0, le=4096)]
    lookahead: Annotated[int, Meta(ge=0, le=4096)]
    clip_block_size: BlockTokens
    max_model_len: Tokens
    max_step_tokens: Tokens
    max_running: Count
    seed: Count
    scheduler: SchedulerConfig | None = None
    connectors: list[ConnectorConfig] | None = None


class Header(_Strict, frozen=True):
    """Line 1."""

    format: str
    version: int
    engine: Engine
    config: Config


# --- parts of results ------------------------------------------------------------------------------------------------------


class StoredEvent(_Strict, frozen=True, tag_field="kind", tag="stored"):
    """Cache event: keys appeared in a tier."""

    tier: Literal["device", "host"]
    group: Group
    keys: list[tuple[Tokens, PrefixId]]
    parent: tuple[Tokens, PrefixId] | None
    block_size: Tokens
    num_tokens: Tokens
    tokens_id: PrefixId | None


class RemovedEvent(_Strict, frozen=True, tag_field="kind", tag="removed"):
    """Cache event: keys vanished from a tier."""

    tier: Literal["device", "host"]
    group: Group
    keys: list[tuple[Tokens, PrefixId]]


class ClearedEvent(_Strict, frozen=True, tag_field="kind", tag="cleared"):
    """Cache event: everything vanished; `tier` is empty."""

    tier: str


Event = StoredEvent | RemovedEvent | ClearedEvent


class Store(_Strict, frozen=True):
    """Copies device to host, the lists index-parallel; `meta` counts items per entry when events are on."""

    event: Count
    device: list[Block]
    host: list[Block]
    meta: list[Count] | None


class Load(_Strict, frozen=True):
    """Copies host to device, the first two lists index-parallel."""

    event: Count
    device: list[Block]
    host: list[Block]
    requests: list[Request]


class RawCall(_Strict, frozen=True):
    """A manager-level call inside a scheduler-level line, before arguments, result and state difference are typed."""

    op: str
    args: Raw
    result: Raw
    delta: Raw | UnsetType = UNSET


class NewRequest(_Strict, frozen=True):
    """A request that a step admits: tokens already computed, and its tables."""

    request: Request
    computed: Tokens
    tables: BlockLists


class CachedRequest(_Strict, frozen=True):
    """A request that a step continues: the blocks added to its tables, null for none."""

    request: Request
    computed: Tokens
    new_blocks: BlockLists | None
    resumed: bool


# --- arguments -------------------------------------------------------------------------------------------------------------


class Nothing(_Strict, frozen=True):
    """No arguments, or no result."""


class RequestArgs(_Strict, frozen=True):
    """Operations on one request that need nothing more."""

    request: Request


class SubmitArgs(_Strict, frozen=True):
    """A prompt, as token ids."""

    request: Request
    tokens: TokenIds


class ScheduledSubmitArgs(_Strict, frozen=True):
    """The same for a scheduler: at most `max_tokens` sampled tokens; a smaller `priority` is more important."""

    request: Request
    tokens: TokenIds
    max_tokens: Tokens
    priority: Whole


class LookupExternalArgs(_Strict, frozen=True):
    """Host lookup of the suffix that starts at token `start` (`from` in the file)."""

    request: Request
    start: Tokens = field(name="from")


class AllocateArgs(_Strict, frozen=True):
    """Allocation in a manager-level recording; all counts in tokens."""

    request: Request
    new_tokens: Tokens
    local: Tokens
    external: Tokens
    async_load: bool
    lookahead: Tokens
    drafts: Tokens
    first: bool


class AllocateCallArgs(_Strict, frozen=True):
    """Allocation by a scheduler; `reserved` blocks must stay free, `before` tokens are computed after adopting hits."""

    request: Request
    new_tokens: Tokens
    local: Tokens
    external: Tokens
    async_load: bool
    lookahead: Tokens
    reserved: Count
    full_sequence_must_fit: bool
    before: Tokens


class EndStepArgs(_Strict, frozen=True):
    """What the step scheduled (request, tokens), in order; which requests were preempted, and which finished before it."""

    scheduled: list[tuple[Request, Tokens]]
    preempted: list[Request]
    finished: list[Request]


class AppendTokenArgs(_Strict, frozen=True):
    """Sampled tokens, and how many drafts were rejected."""

    request: Request
    tokens: TokenIds
    rejected: Tokens


class CompleteStoreArgs(_Strict, frozen=True):
    """`acks` workers report the store `event` as done."""

    event: Count
    acks: Count


class ResetArgs(_Strict, frozen=True):
    """Which tiers are to forget their prefix cache."""

    device: bool
    host: bool


class ScheduledResetArgs(_Strict, frozen=True):
    """A reset asked of a scheduler."""

    preempt_running: bool
    host: bool


class UpdateArgs(_Strict, frozen=True):
    """Output of the step in line `step`: sampled token ids per request, empty while it prefills."""

    step: Count
    sampled: dict[Request, TokenIds]


class FinishHookArgs(_Strict, frozen=True):
    """Tables offered to the offloading side."""

    request: Request
    blocks: BlockLists


class CacheArgs(_Strict, frozen=True):
    """Keys are registered for the first `tokens` tokens."""

    request: Request
    tokens: Tokens


class ClipArgs(_Strict, frozen=True):
    """A chunk wanted at `start`; `tokens` may be negative with asynchronous placeholders."""

    request: Request
    start: Tokens
    tokens: Whole


class TruncateArgs(_Strict, frozen=True):
    """The last lookup result is cut to `tokens`."""

    tokens: Tokens


# --- results ---------------------------------------------------------------------------------------------------------------


class SubmitResult(_Strict, frozen=True):
    """Complete hash blocks of the prompt."""

    hashes: Count


class LookupResult(_Strict, frozen=True):
    """Device hit: tokens, blocks per group with nulls, and the junction boundary (0 = none)."""

    local: Tokens
    blocks: BlockLists
    junction: Tokens


class LookupExternalResult(_Strict, frozen=True):
    """Host hit in tokens (`asynchronous` is `async` in the file)."""

    external: Tokens
    asynchronous: bool = field(name="async")


class AllocateResult(_Strict, frozen=True):
    """Blocks appended per group and blocks taken for external tokens; both null when refused."""

    admitted: bool
    new_blocks: BlockLists | None
    external_blocks: BlockLists | None


class PromoteResult(_Strict, frozen=True):
    """Computed tokens after a load."""

    computed: Tokens


class EndStepResult(_Strict, frozen=True):
    """Everything a step hands over; `flush` and `events` only with a host."""

    handoffs: dict[Request, list[Handoff]]
    copies: list[Copy]
    zeroed: list[Block]
    store: Store | None
    load: Load | None
    flush: bool | UnsetType = UNSET
    events: list[Event] | UnsetType = UNSET


class AppendTokenResult(_Strict, frozen=True):
    """Tokens known afterwards."""

    num_tokens: Tokens


class FinishResult(_Strict, frozen=True):
    """Whether freeing waits for a load, and the tables offered to the host (null without host)."""

    deferred: bool
    blocks: BlockLists | None


class CompleteStoreResult(_Strict, frozen=True):
    """Whether all workers have reported."""

    done: bool
    calls: list[RawCall] | UnsetType = UNSET
    events: list[Event] | UnsetType = UNSET


class CompleteLoadResult(_Strict, frozen=True):
    """Whether the request had finished meanwhile."""

    freed: bool
    calls: list[RawCall] | UnsetType = UNSET
    events: list[Event] | UnsetType = UNSET


class ResetResult(_Strict, frozen=True):
    """Whether each tier was reset; null when not asked for or absent."""

    device: bool | None
    host: bool | None


class ScheduledResetResult(_Strict, frozen=True):
    """Whether the reset happened."""

    ok: bool
    calls: list[RawCall] | UnsetType = UNSET
    events: list[Event] | UnsetType = UNSET


class StepResult(_Strict, frozen=True):
    """One scheduling pass; counts in tokens, `zeroed` null if none or not needed."""

    scheduled: dict[Request, Tokens]
    drafts: dict[Request, Count]
    new: list[NewRequest]
    cached: list[CachedRequest]
    resumed: list[Request]
    preempted: list[Request]
    finished: list[Request]
    copies: list[Copy]
    handoffs: dict[Request, list[Handoff]]
    zeroed: list[Block] | None
    store: Store | None
    load: Load | None
    flush: bool
    calls: list[RawCall]
    events: list[Event] | UnsetType = UNSET


class UpdateResult(_Strict, frozen=True):
    """Tokens appended per request, requests that stopped, and the next drafts."""

    appended: dict[Request, TokenIds]
    finished: list[Request]
    next_drafts: dict[Request, TokenIds]
    calls: list[RawCall] | UnsetType = UNSET
    events: list[Event] | UnsetType = UNSET


class AbortResult(_Strict, frozen=True):
    """Whether freeing waits for a load."""

    deferred: bool
    calls: list[RawCall] | UnsetType = UNSET
    events: list[Event] | UnsetType = UNSET


class ClipResult(_Strict, frozen=True):
    """The clipped chunk in tokens: 0 is not scheduled; a negative value is passed on unchanged."""

    tokens: Whole


OPERATIONS: dict[str, dict[str, tuple[Any, Any]]] = {
    "manager": {
        "init": (Nothing, Nothing),
        "submit": (SubmitArgs, SubmitResult),
        "begin_step": (Nothing, Nothing),
        "lookup": (RequestArgs, LookupResult),
        "lookup_external": (LookupExternalArgs, LookupExternalResult),
        "allocate": (AllocateArgs, AllocateResult),
        "promote_loaded": (RequestArgs, PromoteResult),
        "preempt": (RequestArgs, Nothing),
        "end_step": (EndStepArgs, EndStepResult),
        "append_token": (AppendTokenArgs, AppendTokenResult),
        "finish": (RequestArgs, FinishResult),
        "complete_store": (CompleteStoreArgs, CompleteStoreResult),
        "complete_load": (RequestArgs, CompleteLoadResult),
        "reset": (ResetArgs, ResetResult),
    },
    "scheduler": {
        "init": (Nothing, Nothing),
        "submit": (ScheduledSubmitArgs, SubmitResult),
        "step": (Nothing, StepResult),
        "update": (UpdateArgs, UpdateResult),
        "abort": (RequestArgs, AbortResult),
        "complete_store": (CompleteStoreArgs, CompleteStoreResult),
        "complete_load": (RequestArgs, CompleteLoadResult),
        "reset": (ScheduledResetArgs, ScheduledResetResult),
    },
    # the calls inside scheduler-level lines
    "call": {
        "lookup": (RequestArgs, LookupResult),
        "lookup_external": (LookupExternalArgs, LookupExternalResult),
        "allocate": (AllocateCallArgs, AllocateResult),
        "truncate": (TruncateArgs, Nothing),
        "clip": (ClipArgs, ClipResult),
        "cache": (CacheArgs, Nothing),
        "preempt": (RequestArgs, Nothing),
        "free": (RequestArgs, Nothing),
        "free_deferred": (RequestArgs, Nothing),
        "finish_hook": (FinishHookArgs, Nothing),
    },
}
