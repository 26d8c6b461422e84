"""Allocate slots: nulling, demand, adoption, growth and registration for all groups of one request (T16 to T21)."""

from __future__ import annotations

from attrs import evolve, frozen

from kvproof.core import geometry, kinds, prefixes
from kvproof.core import pool as pools
from kvproof.core import work as works
from kvproof.core.actions import Allocate
from kvproof.core.config import Config
from kvproof.core.pool import NULL_BLOCK, Pool
from kvproof.core.records import Record
from kvproof.core.work import Work
from kvproof.core.world import GroupState, KeyRecord, Plan, Request, Scheduled, Status, World

Lists = tuple[tuple[int, ...], ...]
States = list[GroupState]


@frozen(slots=True)
class Wanted:
    """The numbers of one allocation, in tokens (T16): see ``kinds.base.Admission``; and the drafts that end it (T36).

    ``unsettled`` counts the drafts of the step in flight, which the plan takes for accepted. ``load``: an asynchronous load
    brings the external tokens, and nothing is computed yet (T29). ``loaded``: such a load is complete, the request goes on with
    the blocks it holds (T30).
    """

    first: bool
    local: int
    external: int
    slots: int
    main: int
    whole: bool = False
    drafts: tuple[int, ...] = ()
    unsettled: int = 0
    load: bool = False
    loaded: bool = False

    @property
    def settled(self) -> int:
        """What is left of ``main`` if every draft in flight is rejected (7.3.11)."""
        return self.main - self.unsettled


def wanted_tokens(config: Config, request: Request, action: Allocate) -> Wanted:
    """Return the token counts of an allocation, bounded by the model length (T16.1, T16.6), and its drafts."""
    covered = request.computed + action.local
    total = min(covered + action.external, config.max_model_len)
    return Wanted(
        first=request.status is not Status.RUNNING and not request.loaded,
        local=covered,
        external=action.external,
        slots=min(total + slots_behind(config, action), config.max_model_len),
        main=min(total + action.new_tokens, config.max_model_len),
        drafts=action.drafts,
        unsettled=unsettled_drafts(request),
        load=action.load,
        loaded=request.loaded,
    )


def slots_behind(config: Config, action: Allocate) -> int:
    """Return the slots behind the adopted and external tokens: the chunk's and the lookahead; none of a load (T16.6, LD-1)."""
    del config
    return 0 if action.load else action.new_tokens + action.lookahead


def unsettled_drafts(request: Request) -> int:
    """Return the drafts among a request's placeholders: all of them but the one of the token sampled behind (T36)."""
    return max(request.placeholders - 1, 0)


def allocate(
    world: World, request: Request, wanted: Wanted, lists: Lists, full_sequence: bool = False, reserved: int = 0
) -> tuple[World, Record]:
    """Allocate for a legal call: refused without effect but nulling, or admitted and registered (T16.2 to T16.7).

    ``lists`` are the adopted block lists per group (empty for a running request); ``full_sequence`` asks the admission gate
    first, ``reserved`` blocks must stay free. Raises ContractBroken or PoolExhausted only if the demand was wrong.
    """
    config = world.config
    work = work_on(world, request, registrable_nodes(world, request, wanted))
    free = len(work.pool.free)
    if full_sequence and (need := gate_demand(world, work, request, lists, wanted)) > free:
        states = list(request.groups)
        return refused(world, request, work, states, lists), Record("Allocate", admitted=False, demand=need, free_before=free)
    states = null_windows(work, request, wanted)
    need = total_demand(world, work, states, lists, wanted)
    keep_reservations(work, states)
    free = len(work.pool.free)
    if not fits(need, free, reserved):
        return refused(world, request, work, states, lists), Record("Allocate", admitted=False, demand=need, free_before=free)
    external: Lists = ((),) * len(states)
    if adopts(wanted, lists):
        external = admit(work, states, lists, wanted)
    new_blocks = []
    for group, state in enumerate(states):
        states[group], appended = kinds.of(config.groups[group].kind).grow(work, group, state, wanted)
        new_blocks.append(appended)
    before = work.pool
    if registers_now(wanted):
        register(work, states, registrable_tokens(request, wanted))
    world = admitted(world, request, work, states, wanted, before)
    return world, Record(
        "Allocate",
        admitted=True,
        demand=need,
        free_before=free,
        new_blocks=tuple(new_blocks),
        external_blocks=external,
        taken=tuple(work.taken),
        relocated=tuple(work.relocated),
        adopted=tuple(work.adopted),
    )


def fits(need: int, free: int, reserved: int) -> bool:
    """Tell whether a demand fits into the free blocks with ``reserved`` of them left for others (T16.4)."""
    return need + reserved <= free


def work_on(world: World, request: Request, nodes: list[int]) -> Work:
    """Return fresh scratch space for a request; ``nodes`` are the prefix nodes of the hash boundaries it may register."""
    return Work(
        config=world.config,
        pool=world.pool,
        prefixes=world.prefixes,
        request=request.request,
        num_prompt=request.num_prompt,
        junction=request.junction,
        nodes=nodes,
        num_tokens=request.num_tokens,
        computed=request.computed,
    )


def gate_demand(world: World, work: Work, request: Request, lists: Lists, wanted: Wanted) -> int:
    """Return the blocks that the admission gate counts: those of all known tokens, windowed groups capped (T16.2, 2.8).

    It comes before the windows are nulled, so that a refusal by it has no effect at all.
    """
    whole = min(request.num_tokens, world.config.max_model_len)
    asked = evolve(wanted, slots=whole, main=whole, whole=True)
    return total_demand(world, work, list(request.groups), lists, asked)


def registrable_nodes(world: World, request: Request, wanted: Wanted) -> list[int]:
    """Return the prefix nodes of the hash boundaries that may be registered: those of the known tokens (2.3, HB-14)."""
    del wanted
    return prefixes.boundary_nodes(world.prefixes, request.tip, world.config.hash_block_size)


def registrable_tokens(request: Request, wanted: Wanted) -> int:
    """Return the tokens of the caching call: those computed that are known, never drafts or placeholders (T16.7, HB-14)."""
    return min(wanted.main, request.num_tokens)


def registers_now(wanted: Wanted) -> bool:
    """Tell whether an allocation registers keys: a load's bytes are still to come (T16.7, LD-6, M-EARLY-2)."""
    return not wanted.load


def null_windows(work: Work, request: Request, wanted: Wanted) -> States:
    """Null and free what no dispatched or planned step reads any more, group by group (T16.3)."""
    processed = processed_tokens(request, wanted)
    return [
        kinds.of(work.config.groups[group].kind).null_skipped(work, group, state, processed)
        for group, state in enumerate(request.groups)
    ]


def processed_tokens(request: Request, wanted: Wanted) -> int:
    """Return the tokens that no step in flight still computes: its windows reach back from where it began (T16.3)."""
    return max(wanted.local + wanted.external - request.in_flight, 0)


def total_demand(world: World, work: Work, states: States, lists: Lists, wanted: Wanted) -> int:
    """Return the blocks all groups want (T16.4, T17)."""
    step = InStep(world)
    return sum(
        kinds.of(work.config.groups[group].kind).demand(work, group, state, lists[group], wanted, step)
        for group, state in enumerate(states)
    )


def keep_reservations(work: Work, states: States) -> None:
    """Note what the demand decided on internal checkpoints, also if the allocation is then refused (T38, PC-9)."""
    for group, (position, column) in work.checkpoints.items():
        states[group] = evolve(states[group], checkpoint_position=position, checkpoint_column=column)


@frozen(slots=True)
class InStep:
    """What the open plan of a world will do: see ``kinds.base.InStep`` (T17, COW-4)."""

    world: World

    def registered(self, node: int, group: int) -> bool:
        """Tell whether a recurrent group registered this key since the step began."""
        return registered_this_step(self.world.plan, node, group)

    def unwritten(self, group: int, index: int, block: int, boundary: int) -> bool:
        """Tell whether the plan still has to write bytes below ``boundary`` of a block at a table index."""
        return unwritten_in_plan(self.world, group, index, block, boundary)


def registered_this_step(plan: Plan, node: int, group: int) -> bool:
    """Tell whether a recurrent key was registered since the step began (T17, COW-4)."""
    return any(key[0] == node and key[1] == group for key in plan.cached)


def unwritten_in_plan(world: World, group: int, index: int, block: int, boundary: int) -> bool:
    """Tell whether a block gets bytes below ``boundary`` only in this plan: by a copy, a load or a forward (T17, COW-4).

    Copies run first, so a block that waits for its own bytes cannot be a source in the same step.
    """
    if any(destination == block for _, _, destination in world.plan.copies):
        return True
    tables = {request.request: request.groups[group].table for request in world.requests}
    return any(
        entry.loaded_from < boundary and block in tables[entry.request][index : index + 1] for entry in world.plan.scheduled
    )


def adopts(wanted: Wanted, lists: Lists) -> bool:
    """Tell whether adoption runs at all: a first allocation with some list or external tokens (T18)."""
    return wanted.first and (wanted.external > 0 or any(lists))


def admit(work: Work, states: States, lists: Lists, wanted: Wanted) -> Lists:
    """Adopt the local blocks of all groups, then take external blocks for all groups (T16.5).

    Two phases: external blocks of one group must not evict another group's untouched hits.
    """
    for group, state in enumerate(states):
        states[group] = adopt(work, group, state, lists[group], wanted)
    external = []
    for group, state in enumerate(states):
        states[group], blocks = take_external(work, group, state, wanted)
        external.append(blocks)
    return tuple(external)


def adopt(work: Work, group: int, state: GroupState, blocks: tuple[int, ...], wanted: Wanted) -> GroupState:
    """Adopt a group's hit: touch it, null what is skipped, note an owed copy (T18 phase 1). A scratch group adopts nothing."""
    size = work.config.sizes[group]
    spec = work.config.groups[group]
    if not spec.prefix_cacheable:
        return state
    skip = kinds.of(spec.kind).skipped_tokens(spec, wanted.local + wanted.external) // size
    kept = blocks[skip:]
    work.pool = pools.touch(work.pool, kept)
    work.adopted.extend(block for block in kept if block != NULL_BLOCK)
    state = evolve(state, table=(NULL_BLOCK,) * skip + kept, num_cached=skip + len(kept))
    if kept and wanted.local % size:
        state = owe_private_copy(state, wanted.local // size, kept[-1])
    return state


def owe_private_copy(state: GroupState, index: int, block: int) -> GroupState:
    """Note that the hit ends inside a shared block: it is copied before it is written, and registered when full (T18)."""
    return evolve(state, partial_index=index, partial_source=block, num_cached=index)


def take_external(work: Work, group: int, state: GroupState, wanted: Wanted) -> tuple[GroupState, tuple[int, ...]]:
    """Take blocks for the external tokens that a group will read (T18 phase 2). A scratch group stands for no tokens."""
    if wanted.external <= 0 or not work.config.groups[group].prefix_cacheable:
        return state, ()
    # Where e' of T18 is 0, a chunk of local attention ends here, and the nulls reach as far.
    total = wanted.local + wanted.external
    missing = geometry.ceil_div(total, work.config.sizes[group]) - len(state.table)
    blocks = works.take(work, group, missing)
    return evolve(state, table=state.table + blocks), blocks


def register(work: Work, states: States, tokens: int) -> None:
    """Register the keys of ``tokens`` known tokens in every group (T16.7, T7, T9, T10)."""
    config = work.config
    if not config.caching:
        return
    for group, state in enumerate(states):
        states[group] = kinds.of(config.groups[group].kind).register(
            work, group, state, cacheable_prefix(config, group, tokens)
        )


def cacheable_prefix(config: Config, group: int, tokens: int) -> int:
    """Return how many of ``tokens`` known tokens a caching call of a group covers; EAGLE lookups read one block more (2.8)."""
    if config.eagle[group]:
        size = config.sizes[group]
        return geometry.cacheable_tokens_eagle(tokens, config.fine_grained, config.scheduler_block_size, size)
    return geometry.cacheable_tokens(tokens, config.fine_grained, config.scheduler_block_size)


def refused(world: World, request: Request, work: Work, states: States, lists: Lists) -> World:
    """Return the world after a refused allocation: only window nulling may show (T16.4, PC-9)."""
    del lists
    return with_request(world, evolve(request, groups=tuple(states)), work.pool, world.plan)


def admitted(world: World, request: Request, work: Work, states: States, wanted: Wanted, before: Pool) -> World:
    """Return the world after a successful allocation; ``before`` is the pool as it was before registration (T16)."""
    start = wanted.local + wanted.external
    plan = world.plan
    scheduled = () if wanted.load else (share(request, wanted),)
    plan = Plan(
        scheduled=plan.scheduled + scheduled,
        copies=plan.copies + tuple(work.copies),
        handoffs=plan.handoffs + tuple(work.handoffs),
        zero=plan.zero + tuple(work.zero),
        cached=plan.cached + tuple(work.cached),
        undo=plan.undo if wanted.first else undo_records(plan, request.request, before, work.pool),
        preempted=plan.preempted,
        preempted_before=plan.preempted_before,
    )
    status = Status.LOADING if wanted.load else Status.RUNNING
    request = evolve(request, status=status, computed=start, groups=tuple(states), loaded=False)
    return with_request(world, request, work.pool, plan)


def share(request: Request, wanted: Wanted) -> Scheduled:
    """Return a request's share of the plan: its chunk, its drafts, and the tokens before them still to come (T36)."""
    start = wanted.local + wanted.external
    end = wanted.main - len(wanted.drafts)
    return Scheduled(
        request=request.request,
        start=start,
        amount=wanted.main - start,
        fresh=wanted.first or wanted.loaded,
        loaded_from=wanted.local,
        drafts=wanted.drafts,
        samples=end == request.num_tokens + request.placeholders,
        pending=max(end - request.num_tokens, 0),
        loaded=wanted.loaded,
    )


def external_counts(config: Config, request: Request, action: Allocate, admitted: bool) -> tuple[int, int]:
    """Return the external queries and hits of a first allocation, in tokens, counted when it is admitted (CN-3, M-CNT-4).

    What was not hit locally was asked for; only the tokens accepted behind the local ones were hit. Behind a load nothing is
    looked up anew.
    """
    if not admitted or not config.children or request.loaded:
        return 0, 0
    return request.num_tokens - action.local, action.external


def undo_records(plan: Plan, request: int, before: Pool, after: Pool) -> tuple[tuple[int, tuple[KeyRecord, ...]], ...]:
    """Return the plan's undo list with the records that registration changed (T39.2).

    The blocks stand in the order of their first change, which depends on no block's id: keys are given back in it.
    """
    if before.entries == after.entries:
        return plan.undo
    entries = sorted(set(before.entries) ^ set(after.entries), key=pools.inserted)
    changed = dict.fromkeys(entry[3] for entry in entries)
    records = tuple(
        KeyRecord(
            block,
            (before.key_node[block], before.key_group[block], before.key_tokens[block]),
            pools.keys_of(before, block),
        )
        for block in changed
    )
    return (*plan.undo, (request, records))


def with_request(world: World, request: Request, pool: Pool, plan: Plan) -> World:
    """Return the world with one request, the pool and the plan replaced; the lookup result is used up."""
    requests = tuple(request if other.request == request.request else other for other in world.requests)
    return World(
        world.config,
        world.phase,
        world.prefixes,
        pool,
        world.contents,
        requests,
        None,
        plan,
        world.steps,
        world.worker,
        world.deferred,
        world.issued,
        world.processed,
        world.host,
    )
