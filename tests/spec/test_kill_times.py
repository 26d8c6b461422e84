"""What is kept of the time to kill: read, written and shown on the page of faults, and a search that runs out of its time."""

from __future__ import annotations

import pytest
from attrs import evolve

from benchmarks import kill_times
from kvproof.spec import faults
from kvproof.spec.commands import faults as command
from kvproof.spec.exits import UserError
from kvproof.spec.exploring import kills
from kvproof.spec.faults import times
from kvproof.spec.faults.times import Row, Time, Times

KEPT = Times(
    date="2026-12-01",
    kvproof="0.1.0",
    python="3.11.7",
    hypothesis="6.170.17",
    machine="x86_64",
    cores=2,
    limit=6,
    rows=(
        Row("M-LRU-1", "PC-8", Time(True, 0.06, 8, 1147), Time(True, 0.02, 81, 94), Time(False, 6.0)),
        Row("M-GEO-2", "TB-12", Time(True, 0.0, 0, 0), Time(True, 0.0, 0, 0), None),
        Row("M-COW-10", "DS-5", None, Time(True, 0.5, 30, 94), Time(True, 1.25, 79, 8)),
    ),
)


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setattr(times, "FOLDER", tmp_path)
    return tmp_path


def test_a_measurement_comes_back_as_it_was_written(folder):
    file = folder / "2026-12-01-kill-times.json"
    file.write_text(times.dumps(KEPT))
    assert times.read(file) == KEPT
    assert times.dumps(times.read(file)) == file.read_text()
    assert [line.count('"fault"') for line in file.read_text().splitlines() if '"fault"' in line] == [1, 1, 1]


def test_the_latest_day_counts(folder):
    assert times.newest() is None
    for date in ("2026-12-01", "2027-01-01", "2026-12-31"):
        (folder / f"{date}-kill-times.json").write_text(times.dumps(evolve(KEPT, date=date)))
    (folder / "2028-01-01-throughput.json").write_text("{}")
    assert times.newest() == evolve(KEPT, date="2027-01-01")


@pytest.mark.parametrize("text", ["", "[]", "{}", times.dumps(KEPT).replace('"version": 1', '"version": 2'), '{"format": "x"}'])
def test_what_is_no_measurement_is_refused_by_name(folder, text):
    (folder / "2026-12-01-kill-times.json").write_text(text)
    with pytest.raises(UserError, match=r"2026-12-01-kill-times\.json: is no measurement of kill times"):
        times.newest()


def test_the_page_shows_the_times_below_the_lengths(folder):
    without = command.as_markdown()
    assert "## Time to kill" not in without
    (folder / "2026-12-01-kill-times.json").write_text(times.dumps(KEPT))
    page = command.as_markdown()
    assert page.startswith(without)
    lines = page[len(without) :].splitlines()
    assert lines[1] == "## Time to kill"
    assert lines[-3:] == [
        "| M-LRU-1 | PC-8 | 0.06 s, 1,147 edges, 8 actions | 0.02 s, 94 steps, 81 actions | not found in 6 s |",
        "| M-GEO-2 | TB-12 | 0.00 s | 0.00 s | - |",
        "| M-COW-10 | DS-5 | - | 0.50 s, 94 steps, 30 actions | 1.25 s, 8 examples, 79 actions |",
    ]
    assert "- Explorer: 2 of 2 found, half of them within 0.03 s" in lines
    assert "- Hypothesis: 1 of 2 found, half of them within 1.25 s" in lines
    nothing = evolve(KEPT, rows=(evolve(KEPT.rows[0], explorer=Time(False, 6.0)),))
    assert times.summary(nothing)[0] == "Explorer: none of 1 found"


def test_each_engine_finds_a_fault_and_says_how(capsys):
    (row,) = kill_times.rows([faults.by_id("M-COW-10")], 60, 2)
    assert row.law == kills.table()["M-COW-10"].law
    assert all(took is not None and took.found and took.work for took in map(row.of, times.ENGINES))
    assert row.explorer is not None
    assert row.explorer.actions == kills.table()["M-COW-10"].length
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_what_the_configuration_shows_is_no_work_for_the_state_machine():
    (row,) = kill_times.rows([faults.by_id("M-GEO-2")], 60, 1)
    assert row.hypothesis is None
    assert [took.actions for took in (row.explorer, row.walker) if took is not None] == [0, 0]


def endless():
    while True:
        pass


def broken():
    raise ValueError("broken")


def test_a_search_that_spends_its_seconds_did_not_find_it():
    assert list(kill_times.measured({("M-X", "walker"): endless}, 1, 1)) == [(("M-X", "walker"), Time(False, 1.0))]


def test_a_search_that_ends_in_an_error_is_no_result(capfd):
    with pytest.raises(RuntimeError, match="ended with status 1"):
        list(kill_times.measured({("M-X", "walker"): broken}, 60, 1))
    assert "ValueError: broken" in capfd.readouterr().err
