"""How what was found is told: whose values are, what became of blocks, in which order, and what is said before it is shorter."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest

from examples.adapter import PagedCacheAdapter
from examples.paged_cache import BlockPool, PagedCache
from kvproof.core.actions import Action
from kvproof.spec import counterexample as files
from kvproof.spec.cli import main
from kvproof.spec.conformance import api, budget, reports
from kvproof.spec.conformance.adapter import Observation
from kvproof.spec.conformance.budget import Budget
from kvproof.spec.conformance.oracle import Verdict
from kvproof.spec.engines import shrink
from kvproof.spec.exits import UserError
from kvproof.spec.report import legend, lines, markdown
from tests.spec.conformance import faulty
from tests.spec.conformance.test_policies import LastFreedFirst

HERE: dict[str, Any] = {"scopes": ["fa4"], "isolation": False}


@pytest.fixture(autouse=True)
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shortest counterexamples are not the point here."""
    monkeypatch.setattr(api, "Budget", functools.partial(Budget, shrink_runs=40))


class RegistersAndReuses(faulty.RegistersThePreempted):
    """The two mistakes at once: one of soundness, one of order."""

    pool_type = LastFreedFirst.pool_type


@functools.cache
def both() -> api.Report:
    return api.check_all_laws(PagedCacheAdapter(RegistersAndReuses), laws=["PC-8", "CC-3"], walks=6, **HERE)


def test_the_action_that_made_the_key_is_named_and_shows_the_key() -> None:
    """CC-3 is judged at rest: the last action is not the one at fault."""
    example = both().of("CC-3").counterexample
    assert example is not None
    values = dict(example.values)
    at = int(str(values["registered_at"]).removeprefix("action ").partition(",")[0])
    assert at < example.position
    assert type(example.actions[at]).__name__ in ("Preempt", "Withdraw")
    assert values["registered_at"] == f"action {at}, {lines.action_text(example.actions[at])}"
    block, boundary = values["block"], values["boundary"]
    assert f"keys +{block}@{boundary}" in legend.changes(example)[at]
    assert f"refs {block}:1>0" in legend.changes(example)[at]
    # In the text, in Markdown, and after a way through a file.
    again = files.loads(files.dumps(example))
    for text in ("\n".join(reports.story(again)), markdown.render(again)):
        (line,) = (line for line in text.splitlines() if f"keys +{block}@{boundary}" in line)
        assert str(at) in line
        assert "keys +block@tokens came" in text
        assert "prefixes are numbered as their tokens come up" in text
        assert "(followed by the oracle)" in text


def test_whose_a_value_is() -> None:
    example = both().of("PC-8").counterexample
    assert example is not None
    said = {name: owner for name, _, owner in legend.values(example)}
    assert said["actual"] == f"from what {both().adapter} shows"
    assert said["expected"] == "the oracle's"
    tokens = api.check_all_laws(PagedCacheAdapter(faulty.ReleasesTwice), laws=["PC-3"], walks=2, **HERE).of("PC-3")
    assert tokens.counterexample is not None
    owners = {name: owner for name, _, owner in legend.values(tokens.counterexample)}
    assert (owners["ref"], owners["counted"]) == (f"from what {both().adapter} shows", "the oracle's")
    assert legend.whose(files.loads(_as_of_the_model(example)), "actual") == ""


def _as_of_the_model(example: files.Counterexample) -> str:
    return json.dumps(json.loads(files.dumps(example)) | {"implementation": None})


def test_laws_of_soundness_come_first_however_long_their_counterexamples_are() -> None:
    shown = both().counterexamples
    assert [example.law for example in shown] == ["CC-3", "PC-8"]
    assert len(shown[0].actions) > len(shown[1].actions)
    text = both().text()
    assert text.index("CC-3 refuted") < text.index("PC-8 refuted")


# --- an order of one's own --------------------------------------------------------------------------------------------


class _LosesOne(LastFreedFirst.pool_type):  # type: ignore[misc,valid-type]
    def release(self, blocks: Any) -> None:
        super().release(blocks)
        if len(self.free) > 6:
            self.free.pop()


class LosesOne(PagedCache):
    """Reuses the block that was freed last, and loses one now and then: that is no matter of order."""

    pool_type = _LosesOne


class _KeepsKeys(LastFreedFirst.pool_type):  # type: ignore[misc,valid-type]
    take = faulty.KeysOutliveReuse.pool_type.take


class KeepsKeys(PagedCache):
    """Reuses the block that was freed last, with its keys."""

    pool_type: type[BlockPool] = _KeepsKeys


def test_a_declared_order_is_permitted_and_what_is_wrong_with_eviction_is_not() -> None:
    asked: dict[str, Any] = {"laws": ["PC-1", "PC-5", "PC-8"], "walks": 2, "steps": 150, **HERE}
    undeclared = api.check_all_laws(PagedCacheAdapter(LastFreedFirst), **asked)
    assert [law.law for law in undeclared.refuted] == ["PC-8"]
    assert undeclared.of("PC-8").explained == ("eviction_order=own",)
    assert "eviction_order=own would permit it" in undeclared.text()
    asked["policies"] = ["eviction_order=own"]
    declared = api.check_all_laws(PagedCacheAdapter(LastFreedFirst), **asked)
    assert declared.refuted == ()
    law = declared.of("PC-8")
    assert law.verdict is Verdict.HOLDS
    assert law.bent > 0
    assert {law.law for law in api.check_all_laws(PagedCacheAdapter(LosesOne), **asked).refuted} == {"PC-1", "PC-8"}
    assert "PC-5" in {law.law for law in api.check_all_laws(PagedCacheAdapter(KeepsKeys), **asked).refuted}


# --- what is known ----------------------------------------------------------------------------------------------------

COMMAND = ("conform", "adapter", f"{__name__}:reusing", "--no-isolation", "--scope", "fa4", "--walks", "3")


def reusing() -> PagedCacheAdapter:
    return PagedCacheAdapter(LastFreedFirst)


def sound() -> PagedCacheAdapter:
    return PagedCacheAdapter()


def test_a_known_law_is_told_and_is_no_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMAND, "--law", "PC-8", "--law", "PC-1", "--known", "PC-8"]) == 0
    said = capsys.readouterr()
    assert "PC-8 refuted (known): " in said.out
    assert "verdict: nothing refuted that is not known: 1 law held" in said.out
    assert "refuted as known: PC-8" in said.out
    assert "conform adapter: PC-8 is refuted in fa4, by " in said.err  # before its counterexample was shortened
    assert main([*COMMAND, "--law", "PC-8", "--law", "PC-1", "--known", "PC-1"]) == 2
    assert "PC-1 is known to be refuted and holds: leave --known PC-1 out" in capsys.readouterr().out
    words = [word.replace(":reusing", ":sound") for word in COMMAND]
    assert main([*words, "--law", "PC-8", "--known", "PC-8"]) == 3
    assert main([*words, "--law", "PC-8", "--policy", "eviction_order=own"]) == 0


def test_a_known_law_has_to_be_one_that_is_judged() -> None:
    with pytest.raises(UserError, match="PC-1 is known to be refuted and is not judged"):
        api.check_all_laws(sound(), laws=["PC-8"], known=["PC-1"])
    with pytest.raises(UserError, match="PC-99"):
        api.check_all_laws(sound(), known=["PC-99"])


def test_the_last_line_is_of_the_first_law_that_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    words = [word.replace(":reusing", ":wrong_twice") for word in COMMAND]
    assert main([*words, "--law", "PC-8", "--law", "CC-3", "--walks", "6"]) == 2
    out = capsys.readouterr().out
    assert "--law CC-3 " in out.splitlines()[-1]
    assert out.index("CC-3 refuted") < out.index("PC-8 refuted")


def wrong_twice() -> PagedCacheAdapter:
    return PagedCacheAdapter(RegistersAndReuses)


def test_the_usual_budget_is_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conform", "adapter", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"Walks per scope; default {budget.WALKS}." in said
    assert f"Actions per walk; default {budget.STEPS}, with a host tier {budget.HOST_STEPS}." in said


# --- shortening -------------------------------------------------------------------------------------------------------


def test_all_counterexamples_share_what_may_be_spent_on_them() -> None:
    assert Budget().share(1) == budget.SHRINK_ACTIONS
    assert Budget().share(12) * 12 <= budget.SHRINK_ALL < 12 * budget.SHRINK_ACTIONS
    assert Budget(shrink_all=0).share(0) == 0


class Counting(PagedCacheAdapter):
    """Counts what it performs."""

    performed = 0

    def perform(self, action: Action) -> Observation:
        type(self).performed += 1
        return super().perform(action)


def test_the_bound_bounds_what_is_performed(monkeypatch: pytest.MonkeyPatch) -> None:
    def spent(most: int) -> int:
        monkeypatch.setattr(api, "Budget", functools.partial(Budget, shrink_all=most))
        Counting.performed = 0
        report = api.check_all_laws(Counting(faulty.RegistersThePreempted), laws=["CC-3"], walks=6, **HERE)
        assert [law.law for law in report.refuted] == ["CC-3"]
        return Counting.performed

    assert spent(0) < spent(2000) <= spent(0) + 2000 + 300


def interrupting(at: int) -> type[PagedCacheAdapter]:
    """An adapter at whose action the user interrupts, once."""

    class Interrupted(PagedCacheAdapter):
        performed = 0

        def perform(self, action: Action) -> Observation:
            Interrupted.performed += 1
            if Interrupted.performed == at:
                raise KeyboardInterrupt
            return super().perform(action)

    return Interrupted


def test_an_interrupt_of_a_walk_leaves_what_was_found() -> None:
    asked: dict[str, Any] = {"laws": ["PC-8", "CC-3"], "walks": 6, "interruptible": True, **HERE}
    report = api.check_all_laws(interrupting(700)(RegistersAndReuses), **asked)
    assert report.problems[0].startswith("interrupted in fa4: ")
    assert [law.law for law in report.refuted] == ["PC-8"]
    assert report.of("PC-8").counterexample is not None
    asked["interruptible"] = False
    with pytest.raises(KeyboardInterrupt):
        api.check_all_laws(interrupting(700)(RegistersAndReuses), **asked)


def test_an_interrupt_of_the_shortening_leaves_the_shortest_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {"laws": ["PC-8"], "walks": 2, "interruptible": True, **HERE}
    told: list[str] = []
    whole = api.check_all_laws(PagedCacheAdapter(LastFreedFirst), announce=told.append, **asked).counterexamples[0]
    walked = int(told[0].partition("by ")[2].partition(" ")[0])
    done = shrink._without_steps

    def interrupted(*arguments: Any) -> Any:
        del arguments
        raise KeyboardInterrupt

    monkeypatch.setattr(shrink, "_without_steps", interrupted)
    report = api.check_all_laws(PagedCacheAdapter(LastFreedFirst), **asked)
    assert report.problems == (
        "interrupted while the counterexample of PC-8 was shortened: what follows is of what was judged up to there",
    )
    (example,) = report.counterexamples
    assert len(whole.actions) < len(example.actions) <= walked
    assert example.implementation is not None
    assert all(shown.refusal is None for shown in example.implementation.shown)
    assert done is not shrink._without_steps


def test_a_law_is_announced_before_its_counterexample_is_shortened() -> None:
    told: list[str] = []
    api.check_all_laws(
        PagedCacheAdapter(LastFreedFirst), laws=["PC-8"], walks=2, announce=told.append, progress=told.append, **HERE
    )
    (at,) = (at for at, line in enumerate(told) if line.startswith("PC-8 is refuted in fa4, by "))
    (then,) = (at for at, line in enumerate(told) if line.startswith("PC-8: shortening its counterexample of "))
    assert at < then
