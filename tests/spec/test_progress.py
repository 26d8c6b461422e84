"""What long work says on standard error while it runs."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable

import click
import pytest

from kvproof.spec import check, cli, progress
from kvproof.spec.check import Options
from kvproof.spec.exits import ExitCode
from kvproof.spec.progress import Shown, Told

LONG = ["check", "--fault", "M-GEO-2", "--law", "CC-3", "--scope", "fa4", "--quick"]
PLAIN = r"check: M-GEO-2, CC-3: walk \d+ of at most 30; 0 of 1 done, \d+ s"


def said_within(seconds: float, said: Callable[[], str]) -> str:
    """Wait until something is said, at most so many seconds."""
    text, until = "", time.monotonic() + seconds
    while not text and time.monotonic() < until:
        time.sleep(0.005)
        text = said()
    return text


def test_a_plain_line_says_what_is_done_how_far_and_since_when(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.02)
    with Shown("replay", 3) as shown:
        shown.advance()
        shown.doing("m12")
        text = said_within(10, lambda: capsys.readouterr().err)
    assert re.fullmatch(r"replay: m12; 1 of 3 done, \d+ s", text.splitlines()[-1])
    capsys.readouterr()
    time.sleep(0.1)
    assert capsys.readouterr().err == ""


def test_what_moves_while_nothing_is_done_is_said_too() -> None:
    moved = [""]
    shown = Shown("conform", 2, quiet=True, more=lambda: moved[0])
    assert re.fullmatch(r"conform; 0 of 2 done, \d+ s", shown.line())
    moved[0] = "3 runs"
    assert re.fullmatch(r"conform; 0 of 2 done, 3 runs, \d+ s", shown.line())


def test_short_work_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert progress.PLAIN_SECONDS >= 15
    with Shown("replay", 1) as shown:
        shown.doing("m12")
        shown.advance()
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_a_search_says_how_far_it_is_but_not_beside_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.01)
    assert cli.main(LONG) == ExitCode.UNDETERMINED
    assert re.search(PLAIN, capsys.readouterr().err)
    assert cli.main([*LONG, "--json"]) == ExitCode.UNDETERMINED
    assert "walk" not in capsys.readouterr().err


def test_a_replay_names_the_recording_at_hand_but_not_beside_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.001)
    doing, lines = Shown.doing, [""]

    def doing_until_said(self: Shown, what: str) -> None:
        doing(self, what)
        assert said_within(30, lambda: lines[-1] if what in lines[-1] else ""), "no line while the work stood still"

    with monkeypatch.context() as patched:
        patched.setattr(Shown, "doing", doing_until_said)
        patched.setattr("click.echo", lambda line, **_: lines.append(str(line)))
        assert cli.main(["replay", "d_cow_dcp2", "m12605_fa_mamba_dcp4"]) == ExitCode.HOLDS
    assert any(re.fullmatch(r"replay: \S*d_cow_dcp2\S*; 0 of 2 done, \d+ s", line) for line in lines)
    capsys.readouterr()
    assert cli.main(["replay", "d_cow_dcp2", "--json"]) == ExitCode.HOLDS
    assert capsys.readouterr().err == ""


def test_jobs_of_one_process_are_named_when_they_begin() -> None:
    begun: list[str] = []
    finished: list[str] = []
    options = Options(scope="fa4", quick=True, laws=("PC-1",), processes=1)
    check.run(options, lambda job: finished.append(job.name), begun.append)
    assert begun == finished == ["walk fa4", "machine fa4"]


def test_laws_that_are_not_named_for_the_fault_are_announced_as_a_long_search(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(LONG) == ExitCode.UNDETERMINED
    captured = capsys.readouterr()
    assert captured.err.startswith("CC-3: not named for M-GEO-2, whose laws are TB-12; the search may take long")
    assert "not caught by CC-3" in captured.out
    assert cli.main(["check", "--fault", "M-GEO-2", "--law", "TB-12"]) == ExitCode.REFUTED
    assert capsys.readouterr().err == ""


def test_what_is_told_without_a_thread_is_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = Told("conform adapter")
    told.doing("fa4: walk 1 of 3")
    assert capsys.readouterr().err == ""  # work that is shorter says nothing
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    told.doing("fa4: walk 2 of 3")
    Told("conform adapter", quiet=True).doing("not off a terminal")
    told.end()
    assert re.fullmatch(r"conform adapter: fa4: walk 2 of 3; \d+ s\n", capsys.readouterr().err)


def test_what_is_told_on_a_terminal_is_written_over_and_wiped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "TERMINAL_SECONDS", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    def nobody_reads(*words: object, **how: object) -> None:
        raise OSError("nobody reads")

    told = Told("kvproof", quiet=True)
    told.doing("one")
    told.end()
    told.end()
    monkeypatch.setattr(click, "echo", nobody_reads)
    told.doing("two")
    assert "kvproof: one; 0 s" in capsys.readouterr().err
