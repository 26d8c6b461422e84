"""Laws of liveness on the device side: family LV (semantics 5.13)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from attrs import define, evolve, field, frozen

from kvproof.core.actions import Action, Allocate, EvictBlocks, Finish, Lookup, Preempt, ResetCache, Submit, Withdraw
from kvproof.core.config import Config
from kvproof.core.errors import PoolExhausted
from kvproof.core.pool import NULL_BLOCK
from kvproof.core.world import Hit, Status, World
from kvproof.spec import ground, judge, naive, naive_hits
from kvproof.spec.engines import twins
from kvproof.spec.laws.base import Evidence, Findings, Law, Moment


def most_blocks(world: World, covered: int, slots: int) -> int:
    """Return more blocks than any admission with these tokens can want: its columns, and a private copy per group."""
    spans = naive_hits.facts(world.config).spans
    return sum(len(range(0, max(covered, slots), size)) + 1 for size in spans)


def adopted_state(world: World, hit: Hit, group: int, local: int) -> int:
    """Return the block of the state that a recurrent group would adopt, the null block if none."""
    column = len(range(0, local, naive_hits.facts(world.config).spans[group])) - 1
    blocks = hit.lists[group]
    return blocks[column] if 0 <= column < len(blocks) else NULL_BLOCK


def is_there(world: World, group: int, block: int, node: int) -> bool:
    """Tell whether a block really holds the state of a node on every rank (3.2)."""
    content = world.contents[block]
    return len(content) > 1 and content[0] == group and set(content[1:]) == {node}


def registered_again(world: World, end: int, depth: int) -> bool:
    """Tell whether a coarse caching call of a chunk that ends at ``end`` covers just ``depth`` tokens: after an eviction by
    id it registers a state once more that an earlier step computed (T10.2b).
    """
    facts = naive_hits.facts(world.config)
    return not world.config.fine_grained and end - end % facts.scheduler_block == depth


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
            and (entry.loaded_from < depth <= end or registered_again(world, end, depth))
            and naive_hits.node_at(world.prefixes, request.tip, depth) == node
        ):
            return True
    holders = naive_hits.keys(world.pool).get((node, group), set())
    return any(of == group and destination in holders for of, _, destination in world.plan.copies)


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
    if record is None or not isinstance(action, Allocate) or world.hit is None:
        return None
    request = ground.request_of(world, action.request)
    if request is None or request.status is Status.RUNNING:
        return None
    covered = request.computed + action.local + action.external
    if most_blocks(world, covered, covered + action.new_tokens + action.lookahead) > len(world.pool.free):
        return None
    states = [
        (group, adopted_state(world, world.hit, group, action.local)) for group in naive_hits.facts(world.config).recurrent
    ]
    states = [(group, block) for group, block in states if block != NULL_BLOCK]
    node = naive_hits.node_at(world.prefixes, request.tip, action.local)
    if not states or not all(
        is_there(world, group, block, node) and not is_made_now(world, group, node) for group, block in states
    ):
        return None
    if source_made_now(world, world.hit, action.local):
        return None
    if not ground.sources_written(world, world.hit, request.tip, action.local):
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


def _no_internal_refusal(moment: Moment) -> Findings:
    """LV-9: no action ends in a broken contract, an unforeseen empty pool or a crash."""
    refusal = moment.refusal
    if refusal is None:
        return ()
    if judge.is_internal(refusal):
        values = (("code", refusal.code), ("reason", refusal.message))
        return [Evidence("an action ends in an internal error", values, bendable=isinstance(refusal, PoolExhausted))]
    return None


@frozen(slots=True)
class Sent:
    """A prompt as it was submitted: context, tokens, its prefix node, and whether something disturbed it."""

    context: int
    tokens: tuple[int, ...]
    node: int
    disturbed: bool = False


@define(slots=True)
class Resends:
    """Follows a run and judges the lookup of every prompt that an undisturbed request has computed before (LV-10).

    What disturbs: a preemption, external tokens, and the eviction of a key on the prompt's own prefix.
    """

    config: Config
    live: dict[int, Sent] = field(factory=dict)
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
        elif isinstance(action, Lookup):
            self.judge(action, moment)
        elif isinstance(action, Allocate):
            self.lose(moment.before, record.taken)
            if action.external and record.admitted:
                self.disturb(action.request)
        elif isinstance(action, Preempt | Withdraw):
            self.disturb(action.request)
        elif isinstance(action, ResetCache):
            if record.done:
                self.lose(moment.before, range(self.config.num_blocks))
        elif isinstance(action, EvictBlocks):
            self.lose(moment.before, action.blocks)
        elif isinstance(action, Finish):
            sent = self.live.pop(action.request)
            request = ground.request_of(moment.before, action.request)
            if request is not None and request.computed >= len(sent.tokens) and not sent.disturbed:
                self.finished.append(sent)

    def computed(self, world: World) -> list[Sent]:
        """Return the undisturbed prompts that are computed to their end, by requests that live or have finished."""
        alive = [
            self.live[request.request]
            for request in world.requests
            if request.computed >= request.num_prompt and not self.live[request.request].disturbed
        ]
        return self.finished + alive

    def judge(self, action: Lookup, moment: Moment) -> None:
        """Compare the hit of a resent prompt with its checkpoint boundary."""
        sent = self.live[action.request]
        request = ground.request_of(moment.before, action.request)
        expected = naive.checkpoint_boundary(len(sent.tokens), self.config.hash_block_size)
        if (
            request is None
            or moment.record is None
            or not any((old.context, old.tokens) == (sent.context, sent.tokens) for old in self.computed(moment.before))
            or request.num_tokens != len(sent.tokens)
            or request.skip_reading
            or expected == 0
        ):
            return
        self.judged += 1
        if moment.record.local != expected:
            self.found.append(
                Evidence.of(
                    "an identical resend does not hit the prompt's checkpoint",
                    request=action.request,
                    prompt=sent.tokens,
                    expected=expected,
                    actual=moment.record.local,
                )
            )


def _resend_hits(config: Config, actions: Sequence[Action]) -> Findings:
    """LV-10: fine-grained, nothing evicted: an identical resend of a computed prompt hits ck(P, H)."""
    if not config.caching or not config.fine_grained or config.clip_block_size % config.hash_block_size:
        return None
    resends = Resends(config)
    for moment in twins.moments(config, actions):
        resends.see(moment)
    return resends.found if resends.judged else None


LAWS: tuple[Law, ...] = (
    Law(
        id="LV-1",
        mark="C",
        sentence="An admission is not put off if blocks suffice and the recurrent state that it adopts was computed in an "
        "earlier step.",
        source="#29387",
        faults=("M-LV-1",),
        on=(Allocate,),
        check=_admitted_when_it_fits,
    ),
    Law(
        id="LV-9",
        mark="C",
        sentence="An action whose precondition holds returns without an error: no broken contract, no empty pool, no crash.",
        source="vLLM 0.33.0",
        faults=("M-MAM-6", "M-SCR-1", "M-BND-1", "M-DEM-1", "M-PUB-22", "M-PUB-170"),
        check=_no_internal_refusal,
        bent_by=(("recurrent_demand", "capped"),),
    ),
    Law(
        id="LV-10",
        mark="C",
        sentence="With fine-grained hits and nothing evicted, an identical resend of a computed prompt hits its last hash "
        "boundary before its last token.",
        source="vLLM 0.33.0, #57444",
        faults=("M-RET-1", "M-TAIL-4", "M-PUB-40", "M-PUB-41", "M-PUB-46"),
        check_run=_resend_hits,
        bent_by=(("prompt_tail", "P"), ("partial_key_after_promotion", "drop")),
    ),
)
