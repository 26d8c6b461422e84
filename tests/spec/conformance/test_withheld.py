"""What is not shown makes laws undetermined: it never lets one pass that was broken, and never breaks one that holds."""

from __future__ import annotations

from random import Random

import pytest

from kvproof.spec import faults
from kvproof.spec.conformance.adapter import Shows
from kvproof.spec.conformance.oracle import Verdict
from kvproof.spec.conformance.reference import ALL, ModelAdapter, highest_first, in_order, last_freed_first, showing_all_but
from kvproof.spec.engines import scopes
from tests.sampling import each
from tests.spec.conformance.following import Followed, play, walk
from tests.spec.conformance.test_adapter_faults import FOUND

SHOWN = tuple(capability for capability in Shows if capability is not Shows.GEOMETRY)
SAMPLE = FOUND[::4]


@pytest.mark.parametrize(("name", "scope", "number"), each(3, SAMPLE, lambda case: f"{case[0]}-{case[1]}"))
def test_no_law_that_was_refuted_holds_with_less_shown(name: str, scope: str, number: int) -> None:
    """Each single capability withheld, then several: refuted or undetermined."""
    fault = faults.by_id(name)
    full = walk(ModelAdapter(fault=fault), scope, f"{name}/{number}", 300, until=fault.laws)
    random = Random(name)
    more = [tuple(random.sample(SHOWN, size)) for size in (2, 4, 8)]
    for hidden in [(capability,) for capability in Shows] + more:
        less = play(showing_all_but(*hidden, fault=fault), scope, full.actions)
        held = less.with_verdict(Verdict.HOLDS)
        assert held.isdisjoint(full.refuted), f"{held & full.refuted} hold without {[shown.value for shown in hidden]}"


def subsets() -> list[tuple[str, frozenset[Shows], int]]:
    """Draw, per third scope, capabilities to withhold and a null block."""
    random = Random("subsets")
    return [
        (scope.name, frozenset(random.sample(SHOWN, random.choice((1, 1, 2, 3, 5, 8)))), random.choice((0, 1, 3, 50)))
        for scope in scopes.ALL[::3]
    ]


@pytest.mark.parametrize(("scope", "hidden", "null_block"), subsets(), ids=[scope for scope, _, _ in subsets()])
def test_a_sound_adapter_is_never_refuted_whatever_it_shows(scope: str, hidden: frozenset[Shows], null_block: int) -> None:
    arrange = in_order if Shows.FREE_QUEUE not in hidden else Random(scope).choice((last_freed_first, highest_first))
    followed = walk(ModelAdapter(shows=ALL - hidden, null_block=null_block, arrange=arrange), scope, "subset", 200)
    assert followed.refuted == set()
    if Shows.TRANSFERS not in hidden:
        assert [seen.problems for seen in followed.seen if seen.problems] == []
    crashed = [what for finding in followed.oracle.findings() for what in finding.hidden if "make sense" in what]
    assert crashed == []


def test_nothing_shown_leaves_only_the_own_bookkeeping() -> None:
    """Laws that hold with nothing shown look at requests, steps and refusals alone, which follow from the actions."""
    for scope in ("fa4-m4-n2", "fa2-n4-eagle-async", "fa4-m4-n2-host"):
        followed = walk(ModelAdapter(shows=frozenset()), scope, "nothing", 200)
        assert followed.refuted == set()
        assert {law.partition("-")[0] for law in followed.with_verdict(Verdict.HOLDS)} <= {"RQ", "LV"}


EXAMPLES = {
    Shows.HITS: ("HB-15", "CA-6"),
    Shows.ADMISSION: ("TB-6", "PC-9"),
    Shows.COPIES: ("CC-1", "CC-3"),
    Shows.HANDOFFS: ("HO-1", "HO-2"),
    Shows.ZEROED: ("LD-8",),
    Shows.TRANSFERS: ("IP-1", "CP-1", "CC-6"),
    Shows.COUNTERS: ("CN-1", "HO-5"),
    Shows.EVENTS: ("EV-1", "EV-4"),
    Shows.TABLES: ("TB-1", "TB-3", "PC-3", "CC-1"),
    Shows.REFERENCES: ("PC-1", "PC-3"),
    Shows.FREE_QUEUE: ("PC-1", "PC-8"),
    Shows.KEYS: ("HB-2", "HB-3", "CC-3"),
    Shows.HOST: ("CP-1", "CP-2"),
    Shows.ROWS: ("TB-11", "TB-13"),
    Shows.INTERNALS: ("TB-14",),
    Shows.GEOMETRY: ("TB-12", "HB-1", "HB-11", "DS-1"),
}


def hosted(hidden: Shows) -> Followed:
    return walk(showing_all_but(hidden), "fa4-m4-n2-host", "e2", 400)


@pytest.mark.parametrize("hidden", Shows, ids=[capability.value for capability in Shows])
def test_laws_that_read_what_is_hidden_are_undetermined_and_say_why(hidden: Shows) -> None:
    followed = hosted(hidden)
    for law in EXAMPLES[hidden]:
        finding = followed.oracle.finding(law)
        assert finding.verdict is Verdict.UNDETERMINED, law
        assert hidden.value in finding.reason, (law, finding.reason)


def test_every_capability_has_laws_that_need_it() -> None:
    full = walk(ModelAdapter(), "fa4-m4-n2-host", "e2", 400)
    holds = full.with_verdict(Verdict.HOLDS)
    for hidden, laws in EXAMPLES.items():
        assert set(laws) <= holds, (hidden, set(laws) - holds)
