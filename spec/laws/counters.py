"""Laws of what the host tier counts and tells: family CN (semantics 5.12)."""

from __future__ import annotations

from attrs import astuple

from kvproof.core.actions import Allocate, BuildMetadata, CompleteLoad, Output, ReadCounters, ResetHost
from kvproof.core.offload.state import Counters, Stage
from kvproof.spec import ground, ground_host
from kvproof.spec.laws.base import Evidence, Findings, Law, Moment


def _difference(one: Counters, other: Counters) -> tuple[int, ...]:
    return tuple(a - b for a, b in zip(astuple(one), astuple(other), strict=True))


def _intervals_add_up(moment: Moment) -> Findings:
    """CN-1: what is read out is what was counted since the last reading, and a reset loses nothing of it."""
    before, host, record = moment.before.host, moment.after.host, moment.record
    if record is None or before is None or host is None:
        return None
    open_before, open_after = _difference(before.counters, before.drained), _difference(host.counters, host.drained)
    found = []
    if min(open_after) < 0:
        found.append(Evidence.of("more was read out than was counted", counters=host.counters, drained=host.drained))
    if isinstance(moment.action, ReadCounters):
        if record.counters != open_before or any(open_after):
            found.append(
                Evidence.of(
                    "a reading is not what was counted since the last one",
                    expected=open_before,
                    actual=record.counters,
                    left=open_after,
                )
            )
        return found if any(open_before) or found else None
    if isinstance(moment.action, ResetHost) and open_before != open_after:
        found.append(Evidence.of("a reset loses counts that were not read out", expected=open_before, actual=open_after))
    if record.outcomes:
        published, *others = (now - was for now, was in zip(open_after, open_before, strict=True))
        if published != sum(others) or published != len(record.outcomes):
            found.append(
                Evidence.of("a step's handoffs and what became of them differ", published=published, others=tuple(others))
            )
    return found if any(open_before) or record.outcomes or found else None


def _stored_are_handoffs(moment: Moment) -> Findings:
    """CN-2: only accepted handoffs count as stored."""
    before, host, record = moment.before.host, moment.after.host, moment.record
    if record is None or before is None or host is None or isinstance(moment.action, ResetHost):
        return None
    grown = host.counters.stored - before.counters.stored
    expected = sum(1 for row in record.outcomes if row[4] == ground_host.STORED)
    if not record.store_device and not grown:
        return None
    if grown != expected:
        return [Evidence.of("something else than handoffs counts as stored", counted=grown, handoffs=expected)]
    return ()


def _queries_and_hits(moment: Moment) -> Findings:
    """CN-3: an admission asks the connectors for all that was not hit locally, and hits what it accepts, once; what did not
    arrive is taken back once.
    """
    action, record = moment.action, moment.record
    if isinstance(action, Output) and record is not None and (action.failed or record.lost):
        entry = next(entry for entry in moment.before.steps[0].scheduled if entry.request == action.request)
        lost = entry.start - action.valid if action.failed else 0
        return [] if record.lost == lost else [Evidence.of("other hits are taken back", expected=lost, actual=record.lost)]
    if not isinstance(action, Allocate) or record is None:
        return None
    request, config = ground.request_of(moment.before, action.request), moment.before.config
    connectors = bool(config.connectors) or config.offload is not None
    if request is None or not connectors:
        return None
    first = not ground.is_admitted(request) and bool(record.admitted)
    expected = (request.num_tokens - action.local, action.external) if first else (0, 0)
    if (record.queries, record.hits) != expected or record.hits > record.queries:
        return [
            Evidence.of(
                "an admission counts other queries or hits",
                request=action.request,
                admitted=record.admitted,
                expected=expected,
                actual=(record.queries, record.hits),
            )
        ]
    return ()


def _issued_loads_count(moment: Moment) -> Findings:
    """CN-4: the blocks of a load count when it completes, abandoned or not, if a step was told of it."""
    before, host = moment.before.host, moment.after.host
    if moment.record is None or before is None or host is None or not (before.loads or before.abandoned_loads):
        return None
    grown = host.load_blocks - before.load_blocks
    expected = 0
    if isinstance(moment.action, CompleteLoad):
        loads = ground_host.all_loads(before)
        load = next((load for load in loads if load.request == moment.action.request), None)
        expected = len(load.device) if load is not None and load.stage > Stage.WAITING else 0
    if grown != expected:
        return [Evidence.of("other loads count than those that completed", counted=grown, expected=expected)]
    return ()


def _gauge_of_stores(moment: Moment) -> Findings:
    """CN-5: the gauge shows the host blocks of running, queued and abandoned stores."""
    host = moment.before.host
    if moment.record is None or host is None:
        return None
    expected = sum(len(store.host) for store in ground_host.all_stores(host)) + sum(len(left.host) for left in host.queued)
    if moment.record.gauge != expected:
        return [Evidence.of("the gauge leaves out stores, or counts others", expected=expected, actual=moment.record.gauge)]
    return () if expected else None


def _told_once(moment: Moment) -> Findings:
    """CN-6: a kind of notice is given once per world."""
    before, host, record = moment.before.host, moment.after.host, moment.record
    if record is None or before is None or host is None or not (record.notices or before.notices):
        return None
    again = [kind for kind in record.notices if kind in before.notices]
    if again or len(set(record.notices)) != len(record.notices) or set(host.notices) != {*before.notices, *record.notices}:
        return [Evidence.of("a notice is given twice, or is not kept", given=before.notices, now=record.notices)]
    return ()


LAWS: tuple[Law, ...] = (
    Law(
        id="CN-1",
        mark="D",
        sentence="What is read out of the counters is what was counted since the last reading; no reset loses any of it.",
        source="#54736, vLLM 0.33.0",
        faults=("M-CNT-2",),
        on=(BuildMetadata, ReadCounters, ResetHost),
        check=_intervals_add_up,
    ),
    Law(
        id="CN-2",
        mark="D",
        sentence="What counts as stored are handoffs that were accepted, nothing else.",
        source="vLLM 0.33.0",
        faults=("M-CNT-3",),
        check=_stored_are_handoffs,
    ),
    Law(
        id="CN-3",
        mark="D",
        sentence="An admission asks for all tokens that were not hit locally and hits those it accepts; it counts once.",
        source="vLLM 0.33.0",
        faults=("M-CNT-4", "M-PUB-137"),
        on=(Allocate, Output),
        check=_queries_and_hits,
    ),
    Law(
        id="CN-4",
        mark="D",
        sentence="Loaded blocks count when a load that was issued completes.",
        source="vLLM 0.33.0",
        faults=("M-CNT-5",),
        check=_issued_loads_count,
    ),
    Law(
        id="CN-5",
        mark="D",
        sentence="The gauge of pending stores is the host blocks of running, queued and abandoned stores.",
        source="vLLM 0.33.0",
        faults=("M-CNT-6",),
        on=(ReadCounters,),
        check=_gauge_of_stores,
    ),
    Law(
        id="CN-6",
        mark="D",
        sentence="Each kind of notice is given once.",
        source="vLLM 0.33.0",
        faults=("M-CNT-7",),
        check=_told_once,
    ),
)
