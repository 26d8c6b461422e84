"""Laws of what connectors can do, of divergent hits and of external tokens: CA-1 to CA-5 and CA-7 (semantics 5.10).

How deep a class of groups hits by itself, and the joint hit, come from the search of ``naive_hits``. CA-6 is in ``hits``.
"""

from __future__ import annotations

from attrs import frozen

from kvproof.core.actions import Allocate, Lookup
from kvproof.core.config import Config
from kvproof.core.errors import ContractBroken
from kvproof.core.world import Hit, Request, Status, World
from kvproof.spec import ground, naive_hits
from kvproof.spec.laws.base import Evidence, Findings, Law, Moment


def can_diverge(config: Config) -> bool:
    """Tell whether the connectors together can use a divergent hit: there is one, and none of them cannot (T13).

    A host tier is one that cannot: it restores what its own lookup found.
    """
    return config.offload is None and len(config.connectors) > 0 and False not in config.connectors


@frozen(slots=True)
class Depths:
    """How deep the classes of a request hit, each by itself, in tokens: full attention together, and the others."""

    full: int
    recurrent: tuple[int, ...]
    windowed: tuple[int, ...]

    @property
    def some_deeper(self) -> bool:
        """Whether a class hits more than full attention: attention blocks were lost (T12)."""
        return any(own > self.full for own in (*self.recurrent, *self.windowed))

    @property
    def states_lag(self) -> bool:
        """Whether recurrent classes, and they alone, hit less than full attention (T12)."""
        return any(own < self.full for own in self.recurrent) and not any(own < self.full for own in self.windowed)


def depths(world: World, request: Request) -> Depths | None:
    """Return how deep each class hits, None where T12 does not tell them apart: it takes states and full attention."""
    config, facts = world.config, naive_hits.facts(world.config)
    if not facts.recurrent or not facts.full or not config.caching or request.skip_reading:
        return None
    own = {members: naive_hits.class_hit(config, world.pool, world.prefixes, request, members) for members in facts.classes}
    full = {hit for members, hit in own.items() if members[0] in facts.full}
    if len(full) > 1:
        return None
    return Depths(
        full=min(full),
        recurrent=tuple(hit for members, hit in own.items() if members[0] in facts.recurrent),
        windowed=tuple(
            hit for members, hit in own.items() if members[0] not in facts.full and members[0] not in facts.recurrent
        ),
    )


def _looked_up(moment: Moment) -> Request | None:
    if moment.record is None or not isinstance(moment.action, Lookup):
        return None
    return ground.request_of(moment.before, moment.action.request)


def _joint(world: World, request: Request) -> int:
    return naive_hits.joint_hit(world.config, world.pool, world.prefixes, request)


def _diverges_by_permission(moment: Moment) -> Findings:
    """CA-1: a divergent hit is offered to connectors that can use it, and not where the joint one is asked for."""
    if _looked_up(moment) is None or moment.record is None or not isinstance(moment.action, Lookup):
        return None
    connectors = moment.before.config.connectors
    if moment.record.diverged and (moment.action.common or not can_diverge(moment.before.config)):
        return [
            Evidence.of(
                "a divergent hit is offered although the connectors cannot use it, or the joint hit was asked for",
                request=moment.action.request,
                connectors=connectors,
                common=moment.action.common,
                local=moment.record.local,
            )
        ]
    return ()


def _all_children_decide(moment: Moment) -> Findings:
    """CA-2: where states lag behind attention, the hit diverges iff there are connectors and all of them can use it."""
    request = _looked_up(moment)
    if request is None or moment.record is None or not isinstance(moment.action, Lookup) or moment.action.common:
        return None
    found = depths(moment.before, request)
    if found is None or found.some_deeper or not found.states_lag:
        return None
    expected = can_diverge(moment.before.config)
    if moment.record.diverged != expected:
        return [
            Evidence.of(
                "what the connectors can do together is not what every one of them can do",
                request=request.request,
                connectors=moment.before.config.connectors,
                expected=expected,
                diverged=moment.record.diverged,
            )
        ]
    return ()


def _admitted_hit(moment: Moment) -> tuple[Request, Hit, Allocate] | None:
    """Return what an accepted first allocation adopts: the request, the hit of its lookup, and the action."""
    action, hit = moment.action, moment.before.hit
    if not isinstance(action, Allocate) or moment.record is None or hit is None:
        return None
    request = ground.request_of(moment.before, action.request)
    if request is None or hit.request != request.request or request.status is Status.RUNNING or request.loaded:
        return None
    return request, hit, action


def _joint_without_external(moment: Moment) -> Findings:
    """CA-3: where the states of a request lag behind its attention, what it adopts without external tokens is the joint hit."""
    admission = _admitted_hit(moment)
    if admission is None or not can_diverge(moment.before.config):
        return None
    request, _, action = admission
    found = depths(moment.before, request)
    if action.external or found is None or not found.states_lag:
        return None
    expected = _joint(moment.before, request)
    if action.local != expected:
        return [
            Evidence.of(
                "a request adopts another hit than the joint one without external tokens",
                request=request.request,
                local=action.local,
                expected=expected,
            )
        ]
    return ()


def _attention_was_lost(moment: Moment) -> Findings:
    """CA-4: where another class hits more than full attention, no more than the joint hit is reported, and no divergent one.

    Whoever reports less loses nothing but speed: that is HB-15.
    """
    request = _looked_up(moment)
    if request is None or moment.record is None:
        return None
    found = depths(moment.before, request)
    if found is None or not found.some_deeper:
        return None
    expected = _joint(moment.before, request)
    if moment.record.diverged or moment.record.local > expected:
        return [
            Evidence.of(
                "attention blocks were lost below a deeper hit of another group, and more than the joint hit is reported",
                request=request.request,
                full=found.full,
                local=moment.record.local,
                diverged=moment.record.diverged,
                expected=expected,
            )
        ]
    return ()


def _cut_where_it_may_be(moment: Moment) -> Findings:
    """CA-5: lists that are cut end on block edges, reach the end (recurrent ones excepted), and scratch groups have none."""
    action, hit = moment.action, moment.before.hit
    if not isinstance(action, Allocate) or not action.external or hit is None or hit.request != action.request:
        return None
    cut = moment.record is not None and action.local != hit.local
    if not cut and not isinstance(moment.refusal, ContractBroken):
        return None
    found = []
    for group, (spec, blocks) in enumerate(zip(moment.before.config.groups, hit.lists, strict=True)):
        size = ground.span(moment.before.config, group)
        if not spec.prefix_cacheable:
            wrong = bool(blocks)
        elif action.local % size:
            wrong = True
        else:
            wrong = len(blocks) < action.local // size and not ground.is_recurrent(spec)
        if wrong:
            found.append(
                Evidence.of(
                    "a list is cut inside a block, or does not reach the end",
                    request=action.request,
                    group=group,
                    blocks=blocks,
                    tokens=action.local,
                    span=size,
                )
            )
    return found if found or cut else None


def _longer_than_the_tail(moment: Moment) -> Findings:
    """CA-7: a local hit is shortened only for external tokens that reach further than it did."""
    admission = _admitted_hit(moment)
    if admission is None:
        return None
    request, hit, action = admission
    if action.local >= hit.local:
        return None
    if action.local + action.external <= hit.local:
        return [
            Evidence.of(
                "external tokens take the place of local ones without reaching further",
                request=request.request,
                hit=hit.local,
                local=action.local,
                external=action.external,
            )
        ]
    return ()


LAWS: tuple[Law, ...] = (
    Law(
        id="CA-1",
        mark="S",
        sentence="A divergent hit is offered only to connectors that can use it.",
        source="#50344",
        faults=("M-CAP-3",),
        on=(Lookup,),
        check=_diverges_by_permission,
    ),
    Law(
        id="CA-2",
        mark="D",
        sentence="Connectors together can use a divergent hit iff there is one and each of them can.",
        source="#50344",
        faults=("M-CAP-4", "M-CAP-5"),
        on=(Lookup,),
        check=_all_children_decide,
    ),
    Law(
        id="CA-3",
        mark="S",
        sentence="Without external tokens a request whose states lag behind its attention adopts the joint hit.",
        source="vLLM 0.33.0",
        faults=("M-DIV-1",),
        on=(Allocate,),
        check=_joint_without_external,
    ),
    Law(
        id="CA-4",
        mark="S",
        sentence="If another group hits more than full attention, no more than the joint hit is used, and it is not divergent.",
        source="vLLM 0.33.0, #46453",
        faults=("M-DIV-2",),
        on=(Lookup,),
        check=_attention_was_lost,
        bent_by=(("empty_window", "one_block"), ("short_runs", "align")),
    ),
    Law(
        id="CA-5",
        mark="S",
        sentence="The lists of a hit are cut at block edges only, and no further than they reach (recurrent ones excepted).",
        source="#50344",
        faults=("M-DIV-3", "M-DIV-4"),
        on=(Allocate,),
        check=_cut_where_it_may_be,
        bent_by=(("lagging_groups", "any"),),
    ),
    Law(
        id="CA-7",
        mark="D",
        sentence="External tokens take the place of a local tail inside a scheduler block only if they reach further.",
        source="vLLM 0.33.0",
        faults=("M-TAIL-1",),
        on=(Allocate,),
        check=_longer_than_the_tail,
    ),
)
