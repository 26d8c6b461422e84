"""The one alphabet: manager-level actions (T0). Engines, recordings, adapters and counterexamples all speak it.

Request ids and tokens are small non-negative integers; token counts are in tokens; block ids index the device pool.
"""

from __future__ import annotations

from attrs import frozen


@frozen(slots=True)
class Submit:
    """A new request: its prompt, one opaque context id, and whether it opts out of reading the cache (T37)."""

    request: int
    tokens: tuple[int, ...]
    context: int = 0
    skip_reading: bool = False


@frozen(slots=True)
class BeginStep:
    """Open a plan: forget the recurrent states registered in the previous one (T0 part 1)."""


@frozen(slots=True)
class Lookup:
    """Look up the local hit of a waiting or preempted request (T11 to T13).

    ``common`` asks for the joint hit whatever the connectors can do: a divergent hit is looked up anew so if no connector
    brings tokens (T14.4).
    """

    request: int
    common: bool = False


@frozen(slots=True)
class Allocate:
    """Admit, resume or continue a request (T16).

    ``new_tokens`` are computed in this step, ``local`` is the adopted local hit (0 for a running request),
    ``external`` the tokens a connector supplies synchronously behind it, ``lookahead`` extra slots. ``drafts`` are the draft
    tokens that the last of the new tokens are (T36). ``full_sequence`` asks the admission gate of T16.2 first. ``load``: the
    external tokens come from the host tier, asynchronously, and nothing is computed yet: ``new_tokens`` is 0 (T20, T29).
    ``reserved`` blocks must stay free (T16.4).
    """

    request: int
    new_tokens: int
    local: int = 0
    external: int = 0
    lookahead: int = 0
    drafts: tuple[int, ...] = ()
    full_sequence: bool = False
    load: bool = False
    reserved: int = 0


@frozen(slots=True)
class Preempt:
    """Free a running request that has no amount in the open plan (T31).

    Between plans (a cache reset does that) it does not keep the next plan from admitting requests (T0 part 3).
    ``drop_stale``: outputs of its steps in flight are to be ignored when they arrive (T31.3).
    """

    request: int
    drop_stale: bool = False


@frozen(slots=True)
class Withdraw:
    """Take a request out of the open plan and preempt it (T39, then T31)."""

    request: int
    drop_stale: bool = False


@frozen(slots=True)
class Drain:
    """Close the plan: hand out the handoffs and copies of the step and release the copies' references (T23, T0 4-5)."""


@frozen(slots=True)
class BuildMetadata:
    """Build what the worker and connectors are told (T0 part 6)."""


@frozen(slots=True)
class Dispatch:
    """Write the worker's rows, advance ``computed`` and ``in_flight``, and close the step's plan (T0 part 7)."""


@frozen(slots=True)
class Execute:
    """Run one execute sub-phase of the oldest unexecuted step; see ``Config.parts`` for the names (T0)."""

    part: str


@frozen(slots=True)
class Output:
    """Process the output of one request of the oldest step, between plans (T36).

    ``tokens``: empty inside a prompt, else the accepted drafts and one sampled token, as far as the model length goes.
    ``failed``: a connector did not bring all external tokens of this chunk, only ``valid`` leading tokens of the request are
    there; then nothing is delivered (T36.2).
    """

    request: int
    tokens: tuple[int, ...] = ()
    failed: bool = False
    valid: int = 0


@frozen(slots=True)
class Finish:
    """Finish or abort a request in any status (T32)."""

    request: int


@frozen(slots=True)
class ResetCache:
    """Clear every key if no block is in use (T5)."""


@frozen(slots=True)
class EvictBlocks:
    """Remove all keys of the named blocks, whatever their references (T4)."""

    blocks: tuple[int, ...]


@frozen(slots=True)
class LookupExternal:
    """Look a waiting request up in the host tier behind its first ``start`` tokens, and pin the hit (T20).

    ``start`` is the local hit rounded down to S (T14.1); for a misaligned one nothing is looked up or pinned.
    """

    request: int
    start: int


@frozen(slots=True)
class Promote:
    """Consider a loading request again whose load is complete: register what was loaded, let it wait for its chunk (T30)."""

    request: int


@frozen(slots=True)
class RunStore:
    """Let the worker copy the blocks of a submitted store to the host; the oldest one first (T0 execute h, CC-5)."""

    event: int


@frozen(slots=True)
class RunLoad:
    """Let the worker copy the blocks of a submitted batch of loads to the device; the oldest one first (T0 execute g)."""

    event: int


@frozen(slots=True)
class CompleteStore:
    """``acks`` more workers report a store; the last one ends it. An unknown event changes nothing (T28, CP-9, CP-11)."""

    event: int
    acks: int = 1


@frozen(slots=True)
class CompleteLoad:
    """The worker reports the load of a request (T30).

    ``failed``: it did not bring everything, only ``valid`` leading tokens of the request, local ones included, are there.
    """

    request: int
    failed: bool = False
    valid: int = 0


@frozen(slots=True)
class ResetHost:
    """Reset the host tier: running transfers are abandoned; its keys go unless some are (T34)."""


@frozen(slots=True)
class ReadCounters:
    """Read what became of handoffs since the counters were read last (CN-1), and the gauge of pending stores (CN-5)."""


@frozen(slots=True)
class AppendRows:
    """Append block ids, one tuple per group, to a worker row that no request owns: the row table used directly (2.5)."""

    row: int
    blocks: tuple[tuple[int, ...], ...]


Action = (
    Submit
    | BeginStep
    | Lookup
    | Allocate
    | Preempt
    | Withdraw
    | Drain
    | BuildMetadata
    | Dispatch
    | Execute
    | Output
    | Finish
    | ResetCache
    | EvictBlocks
    | LookupExternal
    | Promote
    | RunStore
    | RunLoad
    | CompleteStore
    | CompleteLoad
    | ResetHost
    | ReadCounters
    | AppendRows
)

ACTIONS: tuple[type[Action], ...] = (
    Submit,
    BeginStep,
    Lookup,
    Allocate,
    Preempt,
    Withdraw,
    Drain,
    BuildMetadata,
    Dispatch,
    Execute,
    Output,
    Finish,
    ResetCache,
    EvictBlocks,
    LookupExternal,
    Promote,
    RunStore,
    RunLoad,
    CompleteStore,
    CompleteLoad,
    ResetHost,
    ReadCounters,
    AppendRows,
)
