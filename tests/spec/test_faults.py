"""The faults: planting is exact and reversible, each changes something, and each of its laws catches it by generation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from pathlib import Path

import pytest
from attrs import evolve

from kvproof.core import allocation, reachability
from kvproof.core import pool as pools
from kvproof.core.config import Config
from kvproof.core.errors import ConfigError
from kvproof.core.world import new_world
from kvproof.spec import cli, faults, judge
from kvproof.spec import laws as all_laws
from kvproof.spec.commands import faults as command
from kvproof.spec.engines import scopes, walk
from kvproof.spec.engines.scopes import Scope
from kvproof.spec.exploring import kills
from kvproof.spec.faults import shortest
from kvproof.spec.faults.base import Fault, FaultError
from kvproof.spec.faults.lengths import LENGTHS
from kvproof.spec.laws.base import Moment
from tests.sampling import each
from tests.tidy.sources import ROOT

LAWS = {law.id: law for law in all_laws.ALL}
IDS = [fault.id for fault in faults.ALL]
PAIRS = [(fault.id, law) for fault in faults.ALL for law in fault.laws]

# No transition of this slice calls it; it is judged on a grid.
NOT_CALLED: dict[str, Callable[[], list[object]]] = {
    "M-REACH-1": lambda: [reachability.chunk_reachable(j, 3, 2, 1) for j in range(3)],
    "M-BND-1": lambda: [reachability.window_block_bound(128, 1)],
    "M-PUB-2": lambda: [reachability.storable_blocks(600, 16, True, 2)],
    "M-GEO-3": lambda: [reachability.tokens_per_block(16, sharded, 2) for sharded in (True, False)],
    "M-GEO-4": lambda: [reachability.lazy_span(16, sharded, 2) for sharded in (True, False)],
}


def test_ids_are_unique_and_the_slice_is_complete() -> None:
    assert len(set(IDS)) == len(IDS) >= 51
    families = {"GEO": 2, "GATE": 2, "COW": 10, "CACHE": 2, "PROMO": 2, "HASH": 2, "SLOT": 4, "POOL": 3, "HO": 3, "KEY": 2}
    for family, count in families.items():
        assert sum(name.startswith(f"M-{family}-") for name in IDS) >= count, family


def test_every_mutation_of_section_6_is_planted() -> None:
    text = (ROOT / "docs/semantics.md").read_text(encoding="utf-8")
    section = text[text.index("## 6.1 ") : text.index("# 7. ")]
    rows = re.findall(r"^\| (M-[A-Z0-9]+-\d+) \|", section, re.MULTILINE)
    assert len(rows) > 190
    assert len(rows) == len(set(rows))
    assert set(rows) == set(IDS)


@pytest.mark.parametrize("fault", faults.ALL, ids=IDS)
def test_every_fault_says_what_it_does_where_and_by_which_laws(fault: Fault) -> None:
    assert (fault.profile is None) == bool(fault.patches)
    assert fault.summary
    assert fault.source
    assert fault.scopes
    assert fault.laws
    assert set(fault.laws) <= set(LAWS)
    assert not any(LAWS[law].later for law in fault.laws)
    assert [scope.name for scope in shortest.hinted(fault)] == list(fault.scopes)


def test_faults_and_laws_name_one_another() -> None:
    planned = {(name, law.id) for law in all_laws.ALL for name in law.faults if name in IDS}
    assert planned - set(PAIRS) == set()
    assert set(PAIRS) - planned == set()


@pytest.mark.parametrize("fault", faults.ALL, ids=IDS)
def test_planting_replaces_and_restores(fault: Fault) -> None:
    places = [(module, name, getattr(module, name)) for module, name, _ in fault.patches]
    with faults.planted(fault):
        for module, name, replacement in fault.patches:
            assert getattr(module, name) is replacement
    assert [(module, name, getattr(module, name)) for module, name, _ in fault.patches] == places


def test_an_error_inside_restores_too() -> None:
    original = pools.take
    with pytest.raises(ZeroDivisionError), faults.planted(faults.by_id("M-EVICT-1")):
        raise ZeroDivisionError
    assert pools.take is original
    with faults.planted(faults.by_id("M-POOL-1")):
        pass


def test_faults_are_planted_one_at_a_time() -> None:
    refused = pytest.raises(FaultError, match="M-EVICT-1 is planted already")
    with faults.planted(faults.by_id("M-EVICT-1")), refused, faults.planted(faults.by_id("M-POOL-1")):
        pytest.fail("a second fault was planted")


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ((pools, "no_such_function", len), "kvproof.core.pool has no function no_such_function"),
        ((pools, "NO_KEY", len), "no function NO_KEY"),
        ((allocation, "GroupState", len), "name the module that defines it"),
    ],
)
def test_a_wrong_place_is_refused_and_nothing_is_replaced(patch: faults.Patch, message: str) -> None:
    original = pools.take
    wrong = evolve(faults.by_id("M-EVICT-1"), patches=((pools, "take", len), patch))
    with pytest.raises(FaultError, match=message), faults.planted(wrong):
        pytest.fail("a wrong fault was planted")
    assert pools.take is original


def test_a_module_may_be_named() -> None:
    named = evolve(faults.by_id("M-EVICT-1"), patches=(("kvproof.core.pool", "find", replacement := max),))
    with faults.planted(named):
        assert vars(pools)["find"] is replacement


def test_an_unknown_fault_is_answered_with_the_nearest_ones_and_no_wall() -> None:
    with pytest.raises(FaultError, match=r"did you mean M-COW-9.*`kvproof faults` lists the known ones$") as refused:
        faults.by_id("M-COW-19")
    assert len(str(refused.value)) < 120


# --- each changes something ---------------------------------------------------------------------------------------


def outcomes(config: Config, seed: str, scope: Scope) -> list[Moment]:
    """What came of the actions that a walk tries, legal or not."""
    walker = walk.Walker.of(config, scope.limits(config), seed)
    world = new_world(config)
    moments = []
    for at in range(400):
        legal = at % 5 != 4
        moment = judge.attempt(world, walker.propose(world) if legal else walker.disabled(world))
        if legal:
            walker.observe(moment)
        moments.append(moment)
        world = moment.after
    return moments


@cache
def clean_run(name: str, number: int) -> tuple[Config, list[Moment]]:
    """A walk of the sound model."""
    scope = scopes.by_name(name)
    config = scope.config()
    return config, outcomes(config, f"clean/{name}/{number}", scope)


def same(config: Config, expected: list[Moment]) -> bool:
    """Whether the actions of a run give the same records, refusals and worlds under this configuration, here and now."""
    world = new_world(config)
    for before in expected:
        moment = judge.attempt(world, before.action)
        world = moment.after
        if (moment.record, type(moment.refusal)) != (before.record, type(before.refusal)):
            return False
        if evolve(world, config=before.after.config) != before.after:
            return False
    return True


def differs(fault: Fault, name: str, number: int) -> bool:
    """Whether a fault gives another configuration or none, or the same actions another record, refusal or world.

    The actions are those of a walk of the sound model, or of a walk with the fault: it may be that it only permits more.
    """
    config, clean = clean_run(name, number)
    scope = scopes.by_name(name)
    with faults.planted(fault):
        try:
            faulty = faults.configured(fault, config)
        except ConfigError:
            return True
        if evolve(faulty, profile=config.profile) != config or not same(faulty, clean):
            return True
        wrong = outcomes(faulty, f"faulty/{name}/{number}", scope)
    return not same(config, wrong)


@pytest.mark.parametrize("fault", each(4, faults.ALL, attrgetter("id")))
def test_every_fault_changes_a_record_or_a_world(fault: Fault) -> None:
    if fault.id in NOT_CALLED:
        before = NOT_CALLED[fault.id]()
        with faults.planted(fault):
            assert NOT_CALLED[fault.id]() != before
        return
    assert any(differs(fault, name, number) for number in range(60) for name in fault.scopes)


def test_without_a_fault_nothing_differs() -> None:
    nothing = Fault("M-NOTHING-1", "nothing", "here", (), profile=("append_guard", "all_groups"))
    assert not any(differs(nothing, scope.name, 0) for scope in scopes.ALL[::4])


# --- each of its laws catches it ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "law"), each(6, PAIRS, "-".join))
def test_every_law_of_a_fault_catches_it_alone(name: str, law: str) -> None:
    """`kvproof check` asks the same of every pair, with walks of its own."""
    fault = faults.by_id(name)
    kill = next(shortest.kills(fault, LAWS[law], shortest.hinted(fault)), None)
    assert kill is not None, f"{law} does not catch {name} in {shortest.WALKS} walks of {', '.join(fault.scopes)}"
    scope = scopes.by_name(kill.scope)
    config = scope.config()
    sound = walk.walk(config, kill.seed, shortest.WALK_STEPS, [LAWS[law]], scope.limits(config), only=law)
    assert sound.violations == (), "the law does not hold without the fault"


def test_every_fault_has_a_pinned_length() -> None:
    """The table that `make deep` checks knows exactly the faults that there are."""
    assert set(LENGTHS) == set(IDS)


@pytest.mark.deep
@pytest.mark.parametrize("fault", faults.ALL, ids=IDS)
def test_the_pinned_length_is_that_of_the_shortest_counterexample(fault: Fault) -> None:
    assert shortest.shortest(fault, shortest.hinted(fault)) == LENGTHS[fault.id]


# --- the command --------------------------------------------------------------------------------------------------


def test_the_page_is_current() -> None:
    assert (ROOT / "docs/faults.md").read_text(encoding="utf-8") == command.as_markdown()


def test_the_table_lists_every_fault(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert cli.main(["faults"]) == 0
    printed = capsys.readouterr().out
    assert [name for name in IDS if name not in printed] == []


def test_json_has_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["faults", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [entry["id"] for entry in listed] == IDS
    tail = next(entry for entry in listed if entry["id"] == "M-TAIL-4")
    assert tail["replaces"] == ["profile prompt_tail = P"]
    assert tail["laws"] == ["LV-10"]
    source = next(entry for entry in listed if entry["id"] == "M-COW-5")
    assert source["replaces"] == ["kvproof.core.work.queue_copy", "kvproof.core.plans.copy_ends"]


def test_one_fault_is_said_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    """`kvproof faults ID`: what it replaces, its laws, scopes and source; the case does not matter."""
    assert cli.main(["faults", "m-cow-5", "M-TAIL-4", "M-COW-5"]) == 0
    first, second = capsys.readouterr().out.split("\n\n")
    said = first.splitlines()
    fault = faults.by_id("M-COW-5")
    assert said[:3] == ["M-COW-5", fault.summary, f"source: {fault.source}"]
    assert "replaces: kvproof.core.work.queue_copy, kvproof.core.plans.copy_ends" in said
    assert f"  {fault.laws[0]}: {LAWS[fault.laws[0]].sentence}" in said
    assert any(line.endswith(": " + ", ".join(fault.scopes)) for line in said)
    assert (
        f"counterexample of walks and shrinking, in those scopes: {LENGTHS['M-COW-5']} actions, the fewest that they have found"
        in said
    )
    assert "replaces: profile prompt_tail = P" in second
    assert cli.main(["faults", "M-TAIL-4", "--json"]) == 0
    assert [entry["id"] for entry in json.loads(capsys.readouterr().out)] == ["M-TAIL-4"]
    assert cli.main(["faults", "M-TAIL-4", "--write", "x"]) == 1
    kill = kills.table()["M-TAIL-4"]
    line = f"kvproof explore --fault M-TAIL-4 --scope {kill.scope} --law {kill.law}"
    assert cli.main(["faults", "M-TAIL-4"]) == 0
    assert f"`{line}` plants it and shows that of the explorer." in capsys.readouterr().out
    assert cli.main(["faults", "M-TAIL-4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["explorer"]["command"] == line
    assert cli.main(["faults", "M-TAIL-44"]) == 1
    assert "did you mean M-TAIL-4" in capsys.readouterr().err


def test_the_two_counterexamples_of_a_fault_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """Of M-TAIL-2 the explorer has a shorter one than the walks, in another scope: neither is called the shortest of all."""
    fault, kill = faults.by_id("M-TAIL-2"), kills.table()["M-TAIL-2"]
    assert kill.length < LENGTHS["M-TAIL-2"]
    assert kill.scope not in fault.scopes
    assert cli.main(["faults", "M-TAIL-2"]) == 0
    said = capsys.readouterr().out
    assert "shortest" not in said
    own = f"counterexample of the explorer, in a scope of its own: {kill.length} actions, by CC-6 in {kill.scope}, where none is shorter"
    assert own in said.splitlines()


@pytest.mark.parametrize("fault", faults.ALL, ids=IDS)
def test_the_semantics_has_the_row_that_is_named_for_the_scenario(fault: Fault) -> None:
    rows = (ROOT / "docs/semantics.md").read_text(encoding="utf-8").split("# 6. Historic faults")[1].split("# 7. ")[0]
    assert f"\n| {fault.id} |" in rows


def test_write_replaces_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "faults.md"
    page.write_text("old")
    assert cli.main(["faults", "--write", str(page)]) == 0
    assert page.read_text(encoding="utf-8") == command.as_markdown()
    assert capsys.readouterr().out == ""
    assert cli.main(["faults", "--write", str(tmp_path / "nowhere" / "faults.md")]) == 1
