"""Adapters that show only a part: what is shown is judged, and nothing that is not shown is relied on."""

from __future__ import annotations

from collections import Counter

import pytest
from attrs import evolve, frozen

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.spec import faults, laws
from kvproof.spec.conformance.adapter import Observation, Shows
from kvproof.spec.conformance.oracle import Verdict
from kvproof.spec.conformance.reference import ALL, ModelAdapter, highest_first, last_freed_first
from kvproof.spec.conformance.search import Searched
from tests.sampling import each
from tests.spec.conformance.following import play, walk
from tests.spec.conformance.partial import Bare, Forgetful, Silent, search

MOMENTS = tuple(law for law in laws.ALL if law.check is not None)
"""Laws that do not perform actions of their own."""
SCOPES = ("fa4-m4-n2", "fa4-m4-n2-host", "fa4-w4")


@frozen(slots=True)
class Thin:
    """What is shown, the laws that hold, those that are judged in some places, and faults: name, scope, law that says so."""

    shows: frozenset[Shows]
    holds: tuple[str, ...]
    judged: tuple[str, ...]
    faults: tuple[tuple[str, str, str], ...]

    @property
    def name(self) -> str:
        return "-".join(sorted(shown.value for shown in self.shows))


TABLES = ("TB-1", "TB-2", "TB-3", "TB-4", "TB-5", "TB-6", "TB-8", "RQ-1", "RQ-3", "RQ-4")
THIN = (
    Thin(
        frozenset({Shows.TABLES}),
        TABLES,
        ("TB-7",),
        (("M-TBL-2", "fa4-w4", "TB-3"), ("M-TBL-1", "m4-fa4", "TB-1"), ("M-MAM-1", "fa4-m2-n4", "TB-6")),
    ),
    Thin(
        frozenset({Shows.HITS}),
        ("HB-8", "HB-9", "CA-1"),
        ("HB-15",),
        (("M-HIT-1", "fa2x6", "HB-9"), ("M-CAP-3", "m4-fa4", "CA-1")),
    ),
    Thin(
        frozenset({Shows.TRANSFERS}),
        ("HO-6", "IP-1", "CP-9", "CP-11", "LV-7"),
        (),
        (("M-META-1", "fa4-m4-n2-host", "IP-1"), ("M-FLUSH-2", "fa2-m4-n4-host", "LV-7")),
    ),
    Thin(
        frozenset({Shows.TABLES, Shows.COPIES}),
        (*TABLES, "COW-7"),
        ("TB-7", "DS-2", "CC-1", "CC-2", "CC-7", "CC-8"),
        (("M-TBL-2", "fa4-w4", "TB-3"), ("M-WIN-1", "w4-fa4-w8-eagle-async", "TB-5")),
    ),
    Thin(
        frozenset({Shows.ROWS}),
        ("DS-4", "DS-10"),
        ("TB-11",),
        (("M-CAP-1", "m4-fa4", "TB-11"), ("M-CAP-2", "fa4-m4-m4-n2", "TB-11"), ("M-SLOT-3", "fa2-n4", "DS-4")),
    ),
    Thin(
        frozenset({Shows.REFERENCES, Shows.FREE_QUEUE}),
        ("PC-1", "PC-2", "PC-4", "PC-7"),
        ("PC-10",),
        (("M-POOL-3", "fa4-m2-n4", "PC-4"), ("M-PUB-70", "fa4-w4-host", "PC-1")),
    ),
    Thin(frozenset({Shows.KEYS}), ("HB-4", "HB-6"), ("HB-5", "PC-11"), (("M-NULL-1", "fa4-m4-n2", "HB-6"),)),
    Thin(
        frozenset({Shows.COUNTERS}),
        ("CN-3",),
        ("HO-5", "CN-1"),
        (("M-CNT-2", "fa4-m4-host", "CN-1"), ("M-CNT-3", "fa4-host", "HO-5")),
    ),
)
FAULTS = [(thin, *fault) for thin in THIN for fault in thin.faults]


def judged(done: list[Searched]) -> tuple[Counter[str], Counter[str]]:
    """Return how often each law was judged, and how often something that it asked for was hidden."""
    found = [finding for one in done for finding in one.findings]
    counted, hidden = Counter[str](), Counter[str]()
    for finding in found:
        counted[finding.law.id] += finding.judged
        hidden[finding.law.id] += sum(finding.hidden.values())
    return counted, hidden


@pytest.mark.parametrize("thin", THIN, ids=[thin.name for thin in THIN])
def test_what_is_shown_is_judged(thin: Thin) -> None:
    made, done = search(Bare(ModelAdapter(shows=thin.shows)), laws.ALL, *SCOPES)
    assert made.broken == {}
    assert [one.actions for one in done] == [500, 500, 500]
    counted, hidden = judged(done)
    assert {law for law in (*thin.holds, "LV-9") if counted[law] and not hidden[law]} == {*thin.holds, "LV-9"}
    assert all(counted[law] and hidden[law] for law in thin.judged)


@pytest.mark.parametrize(
    ("thin", "fault", "scope", "law"), FAULTS, ids=[f"{thin.name}-{fault}" for thin, fault, _, _ in FAULTS]
)
def test_a_fault_shows_in_what_is_shown(thin: Thin, fault: str, scope: str, law: str) -> None:
    planted = faults.by_id(fault)
    assert law in planted.laws
    made, _ = search(Bare(ModelAdapter(shows=thin.shows, fault=planted)), laws.ALL, scope, walks=3, steps=200)
    assert law in made.broken


@pytest.mark.parametrize("thin", each(2, THIN, lambda thin: thin.name))
def test_other_policies_are_as_good(thin: Thin) -> None:
    """Blocks numbered and evicted otherwise, fewer hits than there are: nothing is said against it."""
    for kind, arrange in ((Bare, highest_first), (Forgetful, last_freed_first)):
        own = ModelAdapter(shows=thin.shows, null_block=100, reversed_at_start=True)
        if Shows.FREE_QUEUE not in thin.shows:
            own.arrange = arrange
        made, done = search(kind(own), laws.ALL, "fa4-m4-n2-host", "fa4-m4-n2-tight", walks=1, steps=200)
        assert made.broken == {}
        assert [one.stopped for one in done] == [{}, {}]


# --- what is not relied on --------------------------------------------------------------------------------------------


class Watching(Bare):
    """Remembers what it was asked to do."""

    asked: list[Action]

    def perform(self, action: Action) -> Observation:
        self.asked = [*getattr(self, "asked", []), action]
        return super().perform(action)


def test_without_hits_nothing_is_adopted() -> None:
    adapter = Watching(ModelAdapter(shows=ALL - {Shows.HITS}))
    search(adapter, MOMENTS, "fa4-m4-n2-host", walks=2, steps=200)
    asked = [action for action in adapter.asked if isinstance(action, act.Submit | act.Allocate | act.LookupExternal)]
    assert len(asked) > 50
    for action in asked:
        assert not isinstance(action, act.LookupExternal)
        assert action.skip_reading if isinstance(action, act.Submit) else not (action.local or action.load)


def test_an_adopted_hit_that_is_not_shown_makes_the_rest_of_the_run_a_guess() -> None:
    full = walk(ModelAdapter(), "fa4-m4-n2", "guess", 150)
    less = play(ModelAdapter(shows=ALL - {Shows.HITS}), "fa4-m4-n2", full.actions)
    assert less.oracle.shadow.guess == "hits"
    assert less.with_verdict(Verdict.HOLDS) <= {"DS-1", "HB-1", "HB-11", "TB-12"}
    assert less.refuted == set()


def test_without_a_word_of_admission_there_is_plenty_of_room() -> None:
    adapter = Watching(ModelAdapter(shows=frozenset({Shows.HITS})))
    _, (searched,) = search(adapter, laws.ALL, "fa4-m4-n2-tight", walks=2, steps=200)
    assert searched.actions == 400
    assert adapter.inner.world is not None
    assert adapter.inner.world.config.num_blocks > 100


def test_tables_tell_what_was_admitted() -> None:
    """In a tight pool, without a status and without an answer: the computed tokens are those of the implementation."""
    adapter = Bare(ModelAdapter(shows=frozenset({Shows.TABLES, Shows.HITS})))
    made, _ = search(adapter, laws.ALL, "fa4-m4-n2-tight", walks=3, steps=200)
    assert made.broken == {}
    shadow, world = made.runs.shadow, adapter.inner.world
    assert shadow is not None
    assert world is not None
    assert adapter.inner.world is not None
    assert world.config.num_blocks < 20
    assert not shadow.guess


# --- handoffs ---------------------------------------------------------------------------------------------------------

OF_HANDOFFS = ("HO-1", "HO-2", "HO-7")


@pytest.mark.parametrize("waiting", [True, False])
@pytest.mark.parametrize("shows", [ALL, frozenset({Shows.HANDOFFS}), frozenset({Shows.HANDOFFS, Shows.KEYS, Shows.TABLES})])
def test_who_publishes_nothing_is_not_refuted(waiting: bool, shows: frozenset[Shows]) -> None:
    made, done = search(Silent(ModelAdapter(shows=shows), waiting=waiting), laws.ALL, "fa4-m4-n2", walks=3)
    assert made.broken == {}
    counted, hidden = judged(done)
    assert not any(counted[law] and not hidden[law] for law in ("HO-1", "HO-7"))
    assert counted["HO-2"] == 0 or waiting


def test_what_waits_is_what_was_shown_to() -> None:
    """The same laws hold for who shows what waits, and find who hands it out twice."""
    made, done = search(ModelAdapter(), laws.ALL, "fa4-m4-n2", walks=3)
    counted, hidden = judged(done)
    assert made.broken == {}
    assert all(counted[law] and not hidden[law] for law in OF_HANDOFFS)
    made, _ = search(ModelAdapter(fault=faults.by_id("M-HO-2")), laws.ALL, "fa4-m4-n2", walks=3)
    assert "HO-2" in made.broken


# --- rows -------------------------------------------------------------------------------------------------------------


class Overlong(Bare):
    """Takes every append; ``refused`` counts those that the model refuses."""

    refused = 0

    def perform(self, action: Action) -> Observation:
        before = self.inner.world
        shown = super().perform(action)
        if not isinstance(action, act.AppendRows) or shown.refusal is None:
            return shown
        assert before is not None
        type(self).refused += 1
        rows = dict(shown.state.rows or {})
        rows[action.row] = tuple(row + blocks for row, blocks in zip(rows[action.row], action.blocks, strict=True))
        return evolve(shown, refusal=None, state=evolve(shown.state, rows=rows))


def test_rows_are_appended_to_past_their_end_unasked() -> None:
    Overlong.refused = 0
    made, _ = search(Overlong(ModelAdapter(shows=frozenset({Shows.ROWS}))), laws.ALL, "fa4-m4-n2", walks=1)
    assert Overlong.refused
    broken = made.broken["TB-11"]
    assert isinstance(broken.actions[-1], act.AppendRows)
    actions, violation = made.shrunk(broken)
    assert len(actions) == 1
    assert violation.law == "TB-11"
