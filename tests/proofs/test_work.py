"""The worker processes of a proof run: their order, what they leave, and how they end."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("crosshair")

from kvproof.proofs import catalogue, work
from kvproof.proofs.verdicts import Verdict
from kvproof.proofs.work import Answer, Unit
from kvproof.spec.exits import UserError
from tests.proofs import asked
from tests.tidy.sources import ROOT

CLAIM = "geometry.ceiling_covers_and_is_least"
UNITS = [Unit(CLAIM, "claim"), Unit(CLAIM, "twin"), Unit(CLAIM, "faulty", "floor for ceil")]


@pytest.fixture
def workers(monkeypatch, tmp_path):
    """Lets worker processes do something else, with a folder for their files; says which of them are left."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(work, "longest_first", list)
    before = set(multiprocessing.active_children())

    def doing(what):
        monkeypatch.setattr(work, "answer", what)

    yield doing
    assert set(multiprocessing.active_children()) == before
    assert list(tmp_path.iterdir()) == []


def test_crosshair_answers_a_claim_and_its_twins(workers):
    told: list[Answer] = []
    answers = work.answers(UNITS, 1, told.append)
    assert [answer.unit for answer in answers] == UNITS
    assert [answer.said.verdict for answer in answers] == [Verdict.CONFIRMED, Verdict.REFUTED, Verdict.REFUTED]
    assert "ceiling_covers_and_is_least(" in answers[2].said.detail
    assert sorted(told, key=lambda answer: UNITS.index(answer.unit)) == answers


def test_z3_answers_a_lemma_and_its_twins():
    name = "grid.blocks_share_no_slot"
    for unit, verdict in (
        (Unit(name, "claim"), Verdict.CONFIRMED),
        (Unit(name, "twin"), Verdict.REFUTED),
        (Unit(name, "faulty", "blocks overlap"), Verdict.REFUTED),
        (Unit(name, "tie"), Verdict.CONFIRMED),
        (Unit("grid.one_rank_has_a_slot", "tie", "M-SLOT-1"), Verdict.REFUTED),
    ):
        assert work.answer(unit).said.verdict is verdict


def test_an_interrupt_is_the_parents_and_files_go_where_it_takes_them_away(workers, tmp_path):
    workers(asked.surroundings)
    for answer in work.answers(UNITS, 2):
        what, _, folder = answer.said.detail.partition(" ")
        assert what == "ignored"
        assert Path(folder).is_relative_to(tmp_path)
        assert not Path(folder).exists()


def test_a_process_that_ends_without_an_answer_is_told(workers):
    workers(asked.end)
    with pytest.raises(UserError, match="ended without a word; if memory is short, use fewer --processes"):
        work.answers(UNITS, 1)


def test_what_a_question_raises_ends_everything(workers):
    workers(asked.refuse)
    with pytest.raises(ZeroDivisionError, match=r"geometry\.ceiling"):
        work.answers(UNITS, 2)


def test_what_cannot_be_sent_is_told_all_the_same(workers):
    workers(asked.odd_error)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        work.answers(UNITS, 1)


def test_what_a_question_raises_says_where(workers):
    workers(asked.refuse)
    with pytest.raises(ZeroDivisionError) as raised:
        work.answers(UNITS, 1)
    assert "in refuse" in "".join(raised.value.__notes__)


def test_a_claim_that_ends_the_process_is_no_success(workers):
    workers(asked.leave)
    assert {(answer.said.verdict, answer.said.detail) for answer in work.answers(UNITS, 1)} == {
        (Verdict.RAISED, "SystemExit: 0")
    }


@pytest.mark.skipif(not hasattr(signal, "SIGPROF"), reason="no limit of processor time here")
def test_an_endless_loop_is_ended_at_its_limit_and_the_rest_is_answered(workers, monkeypatch):
    workers(asked.endless)
    monkeypatch.setattr(work, "SECONDS", 0.5)
    monkeypatch.setattr(work, "WAITING", 1e6)
    first, *others = work.answers(UNITS, 1)
    assert (first.said.verdict, first.said.detail) == (
        Verdict.UNDETERMINED, "no answer within 1 seconds of processor time: ended",
    )  # fmt: skip
    assert [answer.said.verdict for answer in others] == [Verdict.CONFIRMED] * 2


def test_a_question_that_only_waits_is_ended_by_the_clock(workers, monkeypatch):
    workers(asked.forever)
    monkeypatch.setattr(work, "SECONDS", 0.01)
    for answer in work.answers(UNITS, 2):
        assert answer.said.verdict is Verdict.UNDETERMINED
        assert answer.said.detail == "no answer within 0.2 seconds by the clock: ended"


def test_a_question_has_the_time_of_its_kind():
    deep = next(one.name for one in catalogue.all_claims() if one.about.deep)
    assert work.seconds(Unit(CLAIM, "claim")) == work.seconds(Unit(deep, "twin")) == 60
    assert work.seconds(Unit(deep, "claim")) == work.seconds(Unit("grid.blocks_share_no_slot", "tie")) == 600


def test_an_interrupt_ends_processes_that_would_never_answer(workers):
    workers(asked.last_waits)

    def interrupt(answer):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work.answers([Unit(CLAIM, "twin"), Unit(CLAIM, "claim", "last")], 2, interrupt)


def test_a_process_ends_with_its_parent_and_takes_the_files_away(tmp_path):
    program = tmp_path / "asking_for_ever.py"
    program.write_text(asked.PARENT, encoding="utf-8")
    (files := tmp_path / "files").mkdir()
    places = {"TMPDIR": str(files), "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    parent = subprocess.Popen([sys.executable, program], env={**os.environ, **places}, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert list(files.iterdir()) != []
    parent.kill()
    try:
        # The end of what its process, which computes for ever, could say as well.
        assert parent.communicate(timeout=60)[0] == ""
    except subprocess.TimeoutExpired:
        os.kill(child, signal.SIGKILL)
        raise
    assert list(files.iterdir()) == []


def test_processes_of_others_are_left_alone(workers):
    workers(asked.end)
    other = multiprocessing.get_context("spawn").Process(target=asked.forever, args=(UNITS[0],))
    other.start()
    try:
        with pytest.raises(UserError):
            work.answers(UNITS, 1)
        assert other.is_alive()
    finally:
        other.kill()
        other.join()


def test_deep_claims_are_asked_first():
    deep = next(one.name for one in catalogue.all_claims() if one.about.deep)
    units = [*UNITS, Unit(deep, "twin"), Unit(deep, "claim")]
    assert work.longest_first(units) == [units[-1], *units[:-1]]


def test_a_question_has_a_name():
    assert [unit.name for unit in UNITS] == [CLAIM, f"{CLAIM}, vacuity twin", f"{CLAIM}, floor for ceil planted"]
    assert Unit("grid.x", "tie").name == "grid.x, tie"
    assert Unit("grid.x", "tie", "M-SLOT-1").name == "grid.x, tie, M-SLOT-1 planted"
