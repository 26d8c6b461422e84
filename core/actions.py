"""The one alphabet: manager-level actions (T0). Engines, recordings, adapters and counterexamples all speak it.

Request ids and tokens are small non-negative integers; token counts are in tokens; block ids index the device pool.

A docstring says what the action is and what its fields are, then *When* it comes and what the block management has to *Do*.
docs/actions.md is generated from them.
"""

from __future__ import annotations

from attrs import frozen


@frozen(slots=True)
class Submit:
    """A new request: its prompt, one opaque context id, and whether it opts out of reading the cache (T37).

    When: outside an open plan. The id is one that no live request has and that no step in flight and no transfer mentions any
    more.

    Do: keep the request as a waiting one. Nothing is looked up, no block is taken.
    """

    request: int
    tokens: tuple[int, ...]
    context: int = 0
    skip_reading: bool = False


@frozen(slots=True)
class BeginStep:
    """Open a plan: forget the recurrent states registered in the previous one (T0 part 1).

    When: outside an open plan, while fewer steps than ``Config.max_steps_in_flight`` are dispatched and not processed.

    Do: begin to plan. Running requests are planned first, waiting ones behind them.
    """


@frozen(slots=True)
class Lookup:
    """Look up the local hit of a waiting or preempted request (T11 to T13).

    ``common`` asks for the joint hit whatever the connectors can do: a divergent hit is looked up anew so if no connector
    brings tokens (T14.4).

    When: in an open plan that has preempted nobody, before an ``Allocate`` that admits the request; or with no ``Allocate``
    behind it, if the scheduler changes its mind.

    Do: find the longest prefix from which every group can resume, at most all tokens but the last. Nothing is held or taken
    yet; the hit stands until the next action on a waiting request or the end of the plan.
    """

    request: int
    common: bool = False


@frozen(slots=True)
class Allocate:
    """Admit, resume or continue a request (T16).

    ``new_tokens`` are computed in this step, ``local`` is the adopted local hit (0 for a running request),
    ``external`` the tokens a connector supplies synchronously behind it, ``lookahead`` extra slots behind the new tokens, which
    need blocks and are never computed by it. ``drafts`` are the draft tokens that the last of the new tokens are (T36).
    ``full_sequence`` asks the admission gate of T16.2 first: the blocks of all known tokens would have to be free, not only
    those of this chunk. ``load``: the external tokens come from the host tier, asynchronously, and nothing is computed yet:
    ``new_tokens`` is 0 (T20, T29). ``reserved`` blocks must stay free behind it, or it is not admitted (T16.4).

    When: in an open plan, at most once per request and plan. Running requests come first, then waiting and preempted ones,
    each behind its own lookup; none of these comes in a plan that has preempted somebody.

    Do: if the blocks suffice, hold those of the adopted hit, take new ones, so that the tables reach over ``local``,
    ``external``, the new tokens and the lookahead, and queue a private copy of a block that the hit ends in and that will be
    written. If they do not: take nothing and answer that the request was not admitted. The new tokens are planned, not
    computed; those of the hit count as computed now.
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

    When: in an open plan before any waiting request is looked up, whether blocks are short or not, or between plans.

    Do: give the request's blocks back; their keys stay. Its tables are empty, it has computed nothing, and it waits to be
    looked up again.
    """

    request: int
    drop_stale: bool = False


@frozen(slots=True)
class Withdraw:
    """Take a request out of the open plan and preempt it (T39, then T31), with ``drop_stale`` as in ``Preempt``.

    When: in an open plan, of a running request that has an amount in it, before any waiting request is looked up.

    Do: forget the amount, and what was queued and registered for it, then give the blocks back as in ``Preempt``.
    """

    request: int
    drop_stale: bool = False


@frozen(slots=True)
class Drain:
    """Close the plan: hand out the handoffs and copies of the step and release the copies' references (T23, T0 4-5).

    When: once per plan, after its last ``Allocate``.

    Do: hand the queued copies to the worker and give back the references that they held. What they copy from may be reused
    from then on: the worker copies before it writes.
    """


@frozen(slots=True)
class BuildMetadata:
    """Build what the worker and connectors are told (T0 part 6).

    When: once per plan, after ``Drain``.

    Do: with a host tier, choose the blocks to be stored and name the loads that begin. Without one: nothing.
    """


@frozen(slots=True)
class Dispatch:
    """Write the worker's rows, advance ``computed`` and ``in_flight``, and close the step's plan (T0 part 7).

    When: once per plan, after ``BuildMetadata``.

    Do: count the planned tokens of every request as computed, drafts included, and as in flight until their output. The model
    has keys of the blocks that they fill since their ``Allocate``; a cache may as well register them here.
    """


@frozen(slots=True)
class Execute:
    """Run one execute sub-phase of the oldest unexecuted step; see ``Config.parts`` for the names (T0).

    When: after ``Dispatch``, once for each part in their order. With two steps in flight the next plan may be open meanwhile.

    Do: nothing: it is the worker's. The oracle writes and reads the bytes itself, by the tables and copies that were shown.
    """

    part: str


@frozen(slots=True)
class Output:
    """Process the output of one request of the oldest step, between plans (T36).

    ``tokens``: empty inside a prompt, else the accepted drafts and one sampled token, as far as the model length goes.
    ``failed``: a connector did not bring all external tokens of this chunk, only ``valid`` leading tokens of the request are
    there; then nothing is delivered (T36.2).

    When: between plans, after all parts of the step, once for each request that was scheduled in it, live or not.

    Do: append the tokens to those that are known. Their last one is not computed; what was in flight is not in flight any
    more. Rejected drafts do not count as computed any more, and blocks that became full with certainty get their keys. The
    output of a finished request changes nothing; that of one that was preempted after its step was dispatched changes no count
    of computed tokens and no key, and its tokens are void if the preemption said ``drop_stale``.
    """

    request: int
    tokens: tuple[int, ...] = ()
    failed: bool = False
    valid: int = 0


@frozen(slots=True)
class Finish:
    """Finish or abort a request in any status (T32).

    When: between plans, at any time in the life of a request.

    Do: forget the request and give its blocks back, the end of each table first. Keys stay until the block is reused. With
    steps in flight the blocks may have to be held back until the worker is done with them (``Config.defer_block_free``).
    """

    request: int


@frozen(slots=True)
class ResetCache:
    """Clear every key if no block is in use (T5).

    When: between plans.

    Do: remove all keys if no block is held, and answer whether that was done.
    """


@frozen(slots=True)
class EvictBlocks:
    """Remove all keys of the named blocks, whatever their references (T4).

    When: between plans.

    Do: remove the keys of these blocks. Who holds them keeps them.
    """

    blocks: tuple[int, ...]


@frozen(slots=True)
class LookupExternal:
    """Look a waiting request up in the host tier behind its first ``start`` tokens, and pin the hit (T20).

    ``start`` is the local hit rounded down to S (T14.1); for a misaligned one nothing is looked up or pinned.

    When: with a host tier, in an open plan, behind a ``Lookup`` of the same request and before its ``Allocate``.

    Do: find the longest prefix behind ``start`` that the host holds, and pin its host blocks for a load.
    """

    request: int
    start: int


@frozen(slots=True)
class Promote:
    """Consider a loading request again whose load is complete: register what was loaded, let it wait for its chunk (T30).

    When: with a host tier, in an open plan that has preempted nobody, after ``CompleteLoad`` of the request.

    Do: register the blocks whose bytes have come. The request is then allocated for like a waiting one, without a lookup.
    """

    request: int


@frozen(slots=True)
class RunStore:
    """Let the worker copy the blocks of a submitted store to the host; the oldest one first (T0 execute h, CC-5).

    When: with a host tier, at any time between the part that submits the store and its completion.

    Do: nothing: it is the worker's.
    """

    event: int


@frozen(slots=True)
class RunLoad:
    """Let the worker copy the blocks of a submitted batch of loads to the device; the oldest one first (T0 execute g).

    When: with a host tier, at any time between the part that submits the loads and their completion.

    Do: nothing: it is the worker's.
    """

    event: int


@frozen(slots=True)
class CompleteStore:
    """``acks`` more workers report a store; the last one ends it. An unknown event changes nothing (T28, CP-9, CP-11).

    When: with a host tier, between plans, for a store that ran; also for an event that nobody knows.

    Do: once the last worker has reported, register the host blocks and let the device blocks of the store go.
    """

    event: int
    acks: int = 1


@frozen(slots=True)
class CompleteLoad:
    """The worker reports the load of a request (T30).

    ``failed``: it did not bring everything, only ``valid`` leading tokens of the request, local ones included, are there.

    When: with a host tier, between plans, for a load that ran.

    Do: let the host blocks of the load go. The request may be promoted; what a failed load did not bring is computed again.
    """

    request: int
    failed: bool = False
    valid: int = 0


@frozen(slots=True)
class ResetHost:
    """Reset the host tier: running transfers are abandoned; its keys go unless some are (T34).

    When: with a host tier, between plans.

    Do: forget what the host holds and what is under way, as far as the worker does not need it any more.
    """


@frozen(slots=True)
class ReadCounters:
    """Read what became of handoffs since the counters were read last (CN-1), and the gauge of pending stores (CN-5).

    When: with a host tier, between plans.

    Do: answer with the counts since they were read last.
    """


@frozen(slots=True)
class AppendRows:
    """Append block ids, one tuple per group, to a worker row that no request owns: the row table used directly (2.5).

    When: between plans, of a row that belongs to no request; beyond the end of a row only if the adapter shows rows.

    Do: append to the row, or refuse if a group's row would become longer than its capacity.
    """

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
