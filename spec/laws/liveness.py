"""Laws of liveness on the device side: family LV (semantics 5.13)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from attrs import define, evolve, field, frozen

from kvproof.core.actions import (
    Action,
    Allocate,
    Dispatch,
    EvictBlocks,
    Finish,
    Lookup,
    Output,
    Preempt,
    ResetCache,
    Submit,
    Withdraw,
)
from kvproof.core.config import Config
from kvproof.core.errors import PoolExhausted
from kvproof.core.pool import NULL_BLOCK
from kvproof.core.world import Hit, Request, World
from kvproof.spec import ground, judge, naive, naive_hits
from kvproof.spec.engines import players, twins
from kvproof.spec.laws import native
from kvproof.spec.laws.base import Evidence, Findings, Law, Moment


def most_blocks(world: World, covered: int, slots: int) -> int:
    """Return more blocks than any admission with these tokens can want: its columns, and per group a private copy, an internal
    checkpoint and the speculative states.
    """
    spans = naive_hits.facts(world.config).spans
    spare = sum(2 + group.speculative_blocks for group in world.config.groups)
    return sum(len(range(0, max(covered, slots), size)) for size in spans) + spare


def adopted_state(world: World, hit: Hit, group: int, local: int) -> int:
    """Return the block of the state that a recurrent group would adopt, the null block if none."""
    column = len(range(0, local, naive_hits.facts(world.config).spans[group])) - 1
    blocks = hit.lists[group]
    return blocks[column] if 0 <= column < len(blocks) else NULL_BLOCK


def is_there(world: World, group: int, block: int, node: int) -> bool:
    """Tell whether a block really holds the state of a node on every rank (3.2)."""
    content = world.contents[block]
    return len(content) > 1 and content[0] == group and set(content[1:]) == {node}


def registered_again(world: World, group: int, end: int, depth: int) -> bool:
    """Tell whether a coarse caching call of a chunk that ends at ``end`` covers just ``depth`` tokens: after an eviction by
    id it registers a state once more that an earlier step computed (T10.2b).
    """
    return not world.config.fine_grained and ground.cacheable_tokens(world.config, group, end) == depth


def is_made_now(world: World, group: int, node: int) -> bool:
    """Tell whether the open plan registers the key of a state itself: a planned load or chunk passes or ends on it, or a queued
    copy will hold it. Adopting it in this plan is then rightly put off (T17, COW-4).
    """
    depth = world.prefixes.depth[node]
    for entry in world.plan.scheduled:
        request = ground.request_of(world, entry.request)
        end = entry.start + entry.amount
        if (
            request is not None
            and (entry.loaded_from < depth <= end or registered_again(world, group, end, depth))
            and naive_hits.node_at(world.prefixes, request.tip, depth) == node
        ):
            return True
    holders = naive_hits.keys(world.pool).get((node, group), set())
    # With asynchronous outputs a plan also registers what the step before it computed: its tokens became known since.
    changed = {record.block for _, records in world.plan.undo for record in records}
    return bool(changed & holders) or any(of == group and destination in holders for of, _, destination in world.plan.copies)


def source_made_now(world: World, hit: Hit, local: int) -> bool:
    """Tell whether the open plan writes, below the hit, an attention block that the hit ends in: by a chunk, a load or a
    copy. What the block holds until then may be bytes left over from an earlier use, whatever they are (COW-4).
    """
    facts = naive_hits.facts(world.config)
    for group in facts.attention:
        column, rest = divmod(local, facts.spans[group])
        if rest == 0 or column >= len(hit.lists[group]):
            continue
        block, first = hit.lists[group][column], local - rest
        if any(of == group and destination == block for of, _, destination in world.plan.copies):
            return True
        for entry in world.plan.scheduled:
            owner = ground.request_of(world, entry.request)
            writes = entry.loaded_from < local and entry.start + entry.amount > first
            if owner is not None and writes and block in owner.groups[group].table:
                return True
    return False


def _admitted_when_it_fits(moment: Moment) -> Findings:
    """LV-1: an admission is not put off when there are blocks enough and the state it adopts has been computed."""
    world, action, record = moment.before, moment.action, moment.record
    if record is None or not isinstance(action, Allocate) or action.full_sequence:
        return None
    request = ground.request_of(world, action.request)
    hit = None if request is None else ground.hit_of(world, request)
    if request is None or hit is None:
        return None
    covered = request.computed + action.local + action.external
    if most_blocks(world, covered, covered + action.new_tokens + action.lookahead) + action.reserved > len(world.pool.free):
        return None
    states = [(group, adopted_state(world, hit, group, action.local)) for group in naive_hits.facts(world.config).recurrent]
    states = [(group, block) for group, block in states if block != NULL_BLOCK]
    node = naive_hits.node_at(world.prefixes, request.tip, action.local)
    if not states or not all(
        is_there(world, group, block, node) and not is_made_now(world, group, node) for group, block in states
    ):
        return None
    if source_made_now(world, hit, action.local):
        return None
    if not ground.sources_written(world, hit, request.tip, action.local):
        return None
    if not record.admitted:
        return [
            Evidence.of(
                "an admission is put off although blocks suffice and its state is there",
                request=request.request,
                local=action.local,
                states=tuple(states),
                demand=record.demand,
                free=record.free_before,
            )
        ]
    return ()


# --- LV-8 -----------------------------------------------------------------------------------------------------------


def most_in_flight(config: Config) -> int:
    """Return the most tokens of a request that are scheduled and not processed: a largest chunk per step in flight."""
    return sum(config.max_chunk for _ in range(config.max_steps_in_flight))


def window_holds(config: Config, group: int, num_tokens: int, ahead: int) -> int:
    """Return the most entries of a windowed group that are live while a request computes ``num_tokens`` tokens, ``ahead`` of
    them at most beyond the processed ones: from the first one that is read to the last one that is written, by trying.
    """
    spec, size = config.groups[group], ground.span(config, group)
    return max(
        ground.columns(min(done + ahead, num_tokens), size) - ground.unread(spec, done) // size for done in range(num_tokens)
    )


def gate_holds(config: Config, group: int, num_tokens: int) -> int:
    """Return what the admission gate may count at most for a group (2.8): the cap of a windowed group, else its columns, the
    two states and spare blocks of Mamba align, one scratch block.
    """
    spec, size, ahead = config.groups[group], ground.span(config, group), most_in_flight(config)
    whole = ground.columns(num_tokens, size)
    if ground.is_windowed(spec):
        reach = (spec.window or 1) + ahead - (1 if spec.kind == ground.SLIDING else 0)
        cap = ground.columns(min(reach, config.max_model_len), size) + (1 if spec.kind == ground.SLIDING else 0)
        return min(cap, whole)
    if ground.keeps_snapshots(spec):
        return 2 + spec.speculative_blocks + (0 if config.checkpoint_alignment is None else 1)
    return 1 if spec.kind == ground.SCRATCH else whole


def step_holds(config: Config, group: int, request: Request, end: int, slots: int) -> int:
    """Return the most blocks that a group of a request holds when its chunk to ``end`` is admitted, copies included."""
    spec, size = config.groups[group], ground.span(config, group)
    if ground.is_windowed(spec):
        return window_holds(config, group, max(slots, 1), most_in_flight(config) + slots - end)
    if ground.keeps_snapshots(spec):
        small = ground.columns(spec.speculative_blocks, spec.block_size)
        return 3 + 2 * config.max_steps_in_flight + spec.speculative_blocks + small
    return 1 if spec.kind == ground.SCRATCH else ground.columns(slots, size) + 1


def _alone(world: World, request: Request) -> bool:
    """Tell whether nothing but the tables of this request holds blocks."""
    mine = {block for state in request.groups for block in state.table if block != NULL_BLOCK}
    return not world.plan.copies and not world.deferred and len(world.pool.free) + len(mine) + 1 == world.config.num_blocks


def _no_deadlock(moment: Moment) -> Findings:
    """LV-8: alone in the pool, a request whose blocks fit is admitted; the admission gate neither asks for more than the caps
    nor lets in what cannot be computed to its end.
    """
    world, action, record = moment.before, moment.action, moment.record
    if record is None or not isinstance(action, Allocate):
        return None
    config, request = world.config, ground.request_of(world, action.request)
    if request is None:
        return None
    groups = range(len(config.groups))
    values = {"request": request.request, "free": record.free_before, "demand": record.demand}
    if action.full_sequence and not (action.local or action.external or request.computed):
        first = action.new_tokens
        most = max(
            sum(gate_holds(config, g, request.num_tokens) for g in groups),
            sum(step_holds(config, g, request, first, first + action.lookahead) for g in groups),
        )
        if not record.admitted and most + action.reserved <= len(world.pool.free):
            return [Evidence.of("the admission gate refuses a request whose caps fit", most=most, **values)]
        windows = [g for g in groups if ground.is_windowed(config.groups[g])]
        needed = sum(window_holds(config, g, request.num_tokens, config.max_chunk) for g in windows)
        needed += sum(ground.columns(request.num_tokens, ground.span(config, g)) for g in ground.full_groups(config))
        if record.admitted and needed > record.free_before:
            return [Evidence.of("the admission gate lets a request in that its windows do not fit", needed=needed, **values)]
        return ()
    if action.full_sequence or not _alone(world, request):
        return None
    end = request.computed + action.local + action.external + action.new_tokens
    slots = min(end + action.lookahead, config.max_model_len)
    most = sum(step_holds(config, g, request, end, slots) for g in groups)
    if most + action.reserved >= config.num_blocks:
        return None
    if not record.admitted:
        return [Evidence.of("a request alone in the pool is not admitted although its blocks fit", most=most, **values)]
    return ()


def _no_internal_refusal(moment: Moment) -> Findings:
    """LV-9: no action ends in a broken contract, an unforeseen empty pool or a crash."""
    refusal = moment.refusal
    if refusal is None:
        return ()
    if judge.is_internal(refusal):
        values = (("code", refusal.code), ("reason", refusal.message))
        # Under "lagging_groups = any" a list that is too short reaches T15, as in the engine.
        cut = {"group", "blocks", "tokens"} <= refusal.values.keys()
        return [Evidence("an action ends in an internal error", values, bendable=cut or isinstance(refusal, PoolExhausted))]
    return None


@frozen(slots=True)
class Sent:
    """A prompt as it was submitted: context, tokens, its prefix node, whether something disturbed it, and where its chunks
    began and ended, as far as it has finished.
    """

    context: int
    tokens: tuple[int, ...]
    node: int
    disturbed: bool = False
    ends: frozenset[int] = frozenset()


@define(slots=True)
class Resends:
    """Follows a run and judges the lookup of every prompt that an undisturbed request has computed before (LV-10).

    What disturbs: a preemption, external tokens, and the eviction of a key on the prompt's own prefix.
    """

    config: Config
    live: dict[int, Sent] = field(factory=dict)
    ends: dict[int, set[int]] = field(factory=dict)
    finished: list[Sent] = field(factory=list)
    judged: int = 0
    found: list[Evidence] = field(factory=list)

    def lose(self, world: World, blocks: Collection[int]) -> None:
        """Blocks lose their keys: prompts of whose prefix one of them was a part promise nothing any more."""
        lost = {node for node, _, _, block in world.pool.entries if block in blocks}

        def hurt(sent: Sent) -> bool:
            depths = ((node, world.prefixes.depth[node]) for node in lost)
            return any(naive_hits.node_at(world.prefixes, sent.node, depth) == node for node, depth in depths)

        if lost:
            self.finished = [sent for sent in self.finished if not hurt(sent)]
            self.live = {request: evolve(sent, disturbed=sent.disturbed or hurt(sent)) for request, sent in self.live.items()}

    def disturb(self, request: int) -> None:
        """A request was preempted or loaded: its chunks did not end where those of an undisturbed one end."""
        self.live[request] = evolve(self.live[request], disturbed=True)

    def see(self, moment: Moment) -> None:
        """Take in one action that was not refused."""
        action, record = moment.action, moment.record
        if record is None:
            return
        if isinstance(action, Submit):
            request = ground.request_of(moment.after, action.request)
            if request is not None:
                self.live[action.request] = Sent(action.context, action.tokens, request.tip)
                self.ends[action.request] = set()
        elif isinstance(action, Lookup):
            self.judge(action, moment)
        elif isinstance(action, Allocate):
            self.lose(moment.before, record.taken)
            if action.external and record.admitted:
                self.disturb(action.request)
        elif isinstance(action, Preempt | Withdraw):
            self.disturb(action.request)
        elif isinstance(action, Dispatch):
            for entry in moment.after.steps[-1].scheduled:
                self.ends[entry.request] |= {entry.start, entry.start + entry.amount}
        elif isinstance(action, ResetCache):
            if record.done:
                self.lose(moment.before, range(self.config.num_blocks))
        elif isinstance(action, EvictBlocks):
            self.lose(moment.before, action.blocks)
        elif isinstance(action, Output) and action.failed:
            self.lose(moment.before, ground.doubted(moment.before, action))
            for number in record.preempted:
                self.disturb(number)
        elif isinstance(action, Finish):
            sent = self.live.pop(action.request)
            request = ground.request_of(moment.before, action.request)
            if request is not None and request.computed >= len(sent.tokens) and not sent.disturbed:
                self.finished.append(evolve(sent, ends=frozenset(self.ends[action.request])))

    def computed(self, world: World) -> list[Sent]:
        """Return the undisturbed prompts that are computed to their end, by requests that live or have finished."""
        alive = [
            evolve(self.live[request.request], ends=frozenset(self.ends[request.request]))
            for request in world.requests
            if request.computed >= request.num_prompt and not self.live[request.request].disturbed
        ]
        return self.finished + alive

    def promised(self, sent: Sent) -> int:
        """Return the boundary that a resend of a prompt hits at least: ck(P, H), or ck(P, S) where hits are coarse (2.8).

        A model of one group drops its EAGLE unit from what lies below the last token.
        """
        config, facts = self.config, naive_hits.facts(self.config)
        length = len(sent.tokens)
        if facts.eagle and len(config.groups) == 1:
            return max(naive.checkpoint_boundary(length, facts.scheduler_block) - facts.scheduler_block, 0)
        return naive.checkpoint_boundary(length, naive_hits.alignment(config), bool(facts.eagle))

    def keeps(self, old: Sent, boundary: int) -> bool:
        """Tell whether a computed prompt left a state at a boundary: with fine-grained hits chunks end there (T22); else in
        align mode only if one happened to.
        """
        return self.config.fine_grained or not ground.snapshot_groups(self.config) or boundary in old.ends

    def judge(self, action: Lookup, moment: Moment) -> None:
        """Compare the hit of a resent prompt with its checkpoint boundary.

        Recurrent groups alone drop no EAGLE unit (T35): behind another prompt's longer prefix they hit more.
        """
        sent = self.live[action.request]
        request = ground.request_of(moment.before, action.request)
        expected = self.promised(sent)
        same = [old for old in self.computed(moment.before) if (old.context, old.tokens) == (sent.context, sent.tokens)]
        if (
            request is None
            or moment.record is None
            or not any(self.keeps(old, expected) for old in same)
            or request.num_tokens != len(sent.tokens)
            or request.skip_reading
            or expected == 0
        ):
            return
        self.judged += 1
        exact = self.config.fine_grained and bool(naive_hits.facts(self.config).attention)
        if moment.record.local < expected or (exact and moment.record.local != expected):
            self.found.append(
                Evidence.of(
                    "an identical resend does not hit the prompt's checkpoint",
                    request=action.request,
                    prompt=sent.tokens,
                    expected=expected,
                    actual=moment.record.local,
                )
            )


def _resend_hits(config: Config, actions: Sequence[Action], start: players.Start = players.model) -> Findings:
    """LV-10: nothing evicted: an identical resend of a computed prompt hits ck(P, H); coarse hits reach what is left of it."""
    if not config.caching or not naive_hits.facts(config).classes:
        return None
    if ground.snapshot_groups(config) and config.clip_block_size % config.hash_block_size:
        return None  # chunks then end where nothing is hashed
    resends = Resends(config)
    for moment in twins.moments(config, actions, start):
        resends.see(moment)
    return resends.found if resends.judged else None


LAWS: tuple[Law, ...] = (
    Law(
        id="LV-1",
        mark="C",
        sentence="An admission is not put off if blocks suffice and the recurrent state that it adopts was computed in an "
        "earlier step.",
        source="#29387",
        faults=("M-LV-1", "M-LOAD-8"),
        on=(Allocate,),
        check=_admitted_when_it_fits,
        bent_by=(("loaded_keys", "this_step"),),
    ),
    Law(
        id="LV-8",
        mark="C",
        sentence="Alone in the pool, a request whose blocks fit is admitted; the admission gate asks for no more than the caps "
        "and lets nothing in that its windows do not fit.",
        source="#39734",
        faults=("M-WIN-2",),
        on=(Allocate,),
        check=_no_deadlock,
    ),
    Law(
        id="LV-9",
        mark="C",
        sentence="An action whose precondition holds returns without an error: no broken contract, no empty pool, no crash.",
        source="vLLM 0.33.0",
        faults=("M-MAM-6", "M-SCR-1", "M-BND-1", "M-DEM-1", "M-PUB-22", "M-PUB-170"),
        check=_no_internal_refusal,
        check_config=native.loads_fit,
        bent_by=(("recurrent_demand", "capped"), ("lagging_groups", "any")),
    ),
    Law(
        id="LV-10",
        mark="C",
        sentence="With nothing evicted an identical resend of a computed prompt hits its checkpoint: with fine-grained hits "
        "the last hash boundary before its last token, with EAGLE a unit less, with coarse hits the same in scheduler blocks.",
        source="vLLM 0.33.0, #57444",
        faults=("M-RET-1", "M-TAIL-4", "M-PUB-40", "M-PUB-41", "M-PUB-46", "M-CKPT-2"),
        check_run=_resend_hits,
        bent_by=(
            ("prompt_tail", "P"),
            ("partial_key_after_promotion", "drop"),
            ("eagle_replay_unit", "S"),
            ("checkpoint_tail", "first"),
            ("void_drops", "without_drop"),
            ("empty_window", "one_block"),
            ("short_runs", "align"),
        ),
    ),
)
