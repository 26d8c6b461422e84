"""What a transition decided, in one flat record per action (architecture: every decision comes back in a record).

Fields that an action does not use keep their empty value. Ids are those of requests, groups and blocks; token counts
are in tokens; a read is (request, group, column, block, boundary).
"""

from __future__ import annotations

from typing import Literal

from attrs import frozen

NONE = -1


@frozen(slots=True)
class Event:
    """One announcement of a tier's key map, so that others can follow which keys it has (3.7).

    ``stored``: the key (node, group) of a block, new to that block, stands for the first ``boundary`` tokens; the payload is
    its last ``size`` tokens, and ``parent`` the node before them. ``removed``: the key lost its last block (under a profile:
    any of its blocks). ``cleared``: every key is gone. What an event does not use keeps its empty value; -1 means none.
    """

    kind: Literal["stored", "removed", "cleared"]
    medium: str
    group: int = NONE
    node: int = NONE
    boundary: int = NONE
    parent: int = NONE
    tokens: tuple[int, ...] = ()
    size: int = 0


@frozen(slots=True)
class Record:
    """The decisions of one action."""

    action: str
    local: int = 0
    """Lookup: tokens of the local hit."""
    lists: tuple[tuple[int, ...], ...] = ()
    """Lookup: hit blocks per group, null entries included."""
    junction: int = 0
    """Lookup: the longest hit some group had beyond the joint hit, 0 if none."""
    diverged: bool = False
    """Lookup: some group's own hit is shorter than the full-attention hit that is reported."""
    admitted: bool | None = None
    """Allocate: whether the demand fitted."""
    demand: int = 0
    """Allocate: blocks wanted over all groups (T17)."""
    free_before: int = 0
    """Allocate: free blocks when the demand was compared."""
    new_blocks: tuple[tuple[int, ...], ...] = ()
    """Allocate: entries appended or replaced per group, in the engine's order."""
    external_blocks: tuple[tuple[int, ...], ...] = ()
    """Allocate: blocks taken for external tokens, per group."""
    taken: tuple[int, ...] = ()
    """Allocate: every block handed out by the pool, in order."""
    relocated: tuple[tuple[int, int, int, int], ...] = ()
    """Allocate: (group, block, old column, new column) of every speculative block that moved."""
    adopted: tuple[int, ...] = ()
    """Allocate: every non-null block adopted from the lookup, in order."""
    copies: tuple[tuple[int, int, int], ...] = ()
    """Drain: (group, source, destination) of the step's copies, group by group."""
    handoffs: tuple[tuple[int, int, int, int], ...] = ()
    """Drain: (request, group, block, boundary) published in the step, group by group."""
    zeroed: tuple[int, ...] = ()
    """Drain: attention blocks to be zeroed before the step runs, group by group in the order of taking."""
    scheduled: tuple[tuple[int, int], ...] = ()
    """Dispatch: (request, tokens) of the step."""
    preempted: tuple[int, ...] = ()
    """Dispatch: requests preempted in the plan. Output: those that start again, since tokens that they read did not arrive."""
    reads: tuple[tuple[int, int, int, int, int], ...] = ()
    """Execute forward: recurrent states read, (request, group, column, block, boundary)."""
    branches: tuple[tuple[int, ...], ...] = ()
    """Execute forward: (request, start, then per rank 1 if it attends to context)."""
    local_lengths: tuple[tuple[int, ...], ...] = ()
    """Dispatch: (request, end, then per rank the tokens below the end that a sharded group keeps there)."""
    done: bool = False
    """ResetCache, ResetHost: whether the keys were cleared. CompleteStore: whether the store has ended."""
    num_tokens: int = 0
    """Submit, Output: tokens of the request known afterwards."""
    deferred: bool = False
    """Finish: the blocks are held back until the steps in flight are processed."""
    tails: tuple[tuple[int, int, int], ...] = ()
    """Finish: (group, block, boundary) of the states that a connector in a producer's role would take over."""
    lost: int = 0
    """Output: external tokens that were counted as hits (CN-3) and did not arrive."""
    rejected: int = 0
    """Output: drafts of the chunk that are not among the tokens delivered; unless it is late, ``computed`` falls by them."""
    events: tuple[Event, ...] = ()
    """Every action, with ``Config.events``: what the device's key map announced, in the order of its changes, then the host's
    (3.7)."""
    external: int = 0
    """LookupExternal: tokens of the host's hit behind the start; its blocks per group are in ``lists``."""
    pairs: tuple[tuple[int, int, int, int], ...] = ()
    """Allocate, a load: (group, column, device block, host block) of every copy that it asks for (T29)."""
    queries: int = 0
    """Allocate, admitted for the first time with a connector: tokens that were not hit locally (CN-3)."""
    hits: int = 0
    """Allocate, as for ``queries``: external tokens that were accepted (CN-3)."""
    destinations: tuple[int, ...] = ()
    """Drain: attention blocks of the plan that an asynchronous load fills, taken off ``zeroed`` (T0 b, LD-8)."""
    store_event: int = NONE
    """BuildMetadata: the store event of the step, NONE for none. The next three are index-parallel (IP-1)."""
    store_device: tuple[int, ...] = ()
    """BuildMetadata, Finish: device blocks to be stored; at Finish those that are queued for the next step."""
    store_host: tuple[int, ...] = ()
    """BuildMetadata, Finish: the host blocks that they go to."""
    store_meta: tuple[tuple[tuple[int, int], ...], ...] | None = None
    """BuildMetadata, Finish: per block (prefix node, payload tokens) of its events; None without events."""
    outcomes: tuple[tuple[int, int, int, int, str], ...] = ()
    """BuildMetadata: (request, group, block, boundary, outcome) of every handoff; outcomes are the counters' names (T24)."""
    load_event: int = NONE
    """BuildMetadata: the load event of the step, NONE for none."""
    load_device: tuple[int, ...] = ()
    """BuildMetadata: device blocks to be loaded, index-parallel with ``load_host``."""
    load_host: tuple[int, ...] = ()
    """BuildMetadata: the host blocks that they come from."""
    load_requests: tuple[int, ...] = ()
    """BuildMetadata: the requests of the load event, in their order."""
    flush: bool = False
    """BuildMetadata, with a host tier: the step waits for running transfers, since its plan preempted somebody (T0 a)."""
    offered: tuple[tuple[int, ...], ...] | None = None
    """Finish: the tables that connectors are given (T32.3); None without connectors."""
    computed: int = 0
    """Promote: tokens of the request that count as computed."""
    freed: bool = False
    """CompleteLoad: the request had finished, and its blocks were freed now."""
    counters: tuple[int, ...] = ()
    """ReadCounters: what was counted since the last reading, in the order of ``Counters``."""
    gauge: int = 0
    """ReadCounters: host blocks of running, queued and abandoned stores (CN-5)."""
    pending_work: bool = False
    """Dispatch, Finish, CompleteStore: a store is queued or running, so the engine has to keep stepping (LV-7)."""
    notices: tuple[str, ...] = ()
    """LookupExternal, BuildMetadata: the kinds of notice given for the first time (CN-6)."""
