"""A difference of the tensors becomes a normal counterexample: shrunk, saved, shown, and run again."""

from __future__ import annotations

import io
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from attrs import evolve  # noqa: E402
from rich.console import Console  # noqa: E402

from kvproof.core import actions as act  # noqa: E402
from kvproof.gpu import counterexamples, faults, running  # noqa: E402
from kvproof.gpu.compare import Difference  # noqa: E402
from kvproof.spec import cli, laws  # noqa: E402
from kvproof.spec import counterexample as examples  # noqa: E402
from kvproof.spec.engines import rules  # noqa: E402
from kvproof.spec.report import as_test, markdown, terminal  # noqa: E402


def example_of(name):
    """The counterexample of a fault, built while it is planted."""
    ran = running.catch(faults.by_id(name), "cpu")
    assert ran is not None
    with faults.planted(faults.by_id(name)):
        return ran, counterexamples.build(ran.config, ran.both, ran.origin)


def test_a_wrong_slot_is_shrunk_to_one_chunk_of_two_tokens():
    ran, example = example_of("D-SLOT-2")
    # Two tokens on two ranks: position 1 belongs at offset 0 of rank 1, v mod bs puts it at 1.
    assert len(example.actions) <= len(ran.both.actions)
    assert isinstance(example.actions[0], act.Submit)
    assert example.actions[-1] == act.Execute("forward")
    values = dict(example.values)
    assert (values["part"], values["tier"], values["group"]) == ("bytes", "device", 0)
    assert {"block", "slot", "rank", "request", "position", "expected", "tensors"} <= set(values)
    assert (example.law, example.engine, example.fault, example.scope) == ("CC-1", "tensors", "D-SLOT-2", "fa4-m4-n2")
    assert example.position == len(example.actions) - 1


def test_it_is_saved_and_read_and_shown_like_any_other(tmp_path, capsys):
    _, example = example_of("D-SLOT-2")
    assert examples.loads(examples.dumps(example)) == example
    file = tmp_path / "example.json"
    file.write_text(examples.dumps(example))
    assert cli.main(["report", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "CC-1 does not hold" in shown
    assert "broken by the tensor layer on cpu" in shown
    assert "planted fault: D-SLOT-2, of the tensor layer" in shown
    assert shown.rstrip().splitlines()[-1] == f"kvproof gpu --replay {file}"
    assert "the tensor layer on cpu" in markdown.render(example)


def test_it_runs_again_on_tensors_and_report_says_so(tmp_path, capsys):
    _, example = example_of("D-SLOT-2")
    file = tmp_path / "example.json"
    file.write_text(examples.dumps(example))
    assert cli.main(["report", str(file), "--replay"]) == 1
    assert f"use kvproof gpu --replay {file}" in capsys.readouterr().err
    assert cli.main(["gpu", "--replay", str(file)]) == 2
    assert "CC-1 breaks again at action" in capsys.readouterr().out
    unplanted = tmp_path / "unplanted.json"
    unplanted.write_text(examples.dumps(example).replace('"fault": "D-SLOT-2"', '"fault": ""'))
    assert cli.main(["gpu", "--replay", str(unplanted)]) == 3
    assert "not reproduced" in capsys.readouterr().out


def test_without_a_file_the_last_line_finds_it_again():
    _, example = example_of("D-SLOT-2")
    console = Console(width=200, record=True, file=io.StringIO())
    terminal.show(console, example)
    last = console.export_text().rstrip().splitlines()[-1]
    assert last == "kvproof gpu --fault D-SLOT-2 --run fa4-m4-n2 --seed 0"
    assert cli.main(last.split()[1:]) == 2


def test_a_row_that_runs_over_ends_with_the_append_that_the_model_refuses():
    _, example = example_of("D-ROW-1")
    assert example.legal is False
    assert example.outcomes[-1].code == "row-capacity"
    assert example.law in ("TB-11", "TB-13")
    assert len(example.actions) <= 3


def test_every_part_has_a_law_or_a_rule_with_a_sentence():
    for law in (*counterexamples.LAW_OF_PART.values(), "RQ-1", "CC-1", "CC-2", "CC-5", "CC-6", "DS-5"):
        assert counterexamples.sentence_of(law) == (rules.SENTENCES.get(law) or laws.by_id(law).sentence)


@pytest.mark.parametrize(
    ("place", "action", "law"),
    [
        ((("tier", "host"), ("position", 3)), act.RunStore(0), "CC-5"),
        ((("tier", "device"), ("position", 3)), act.RunLoad(0), "CC-6"),
        ((("tier", "device"), ("position", 3)), act.Execute("copy"), "DS-5"),
        ((("tier", "device"), ("position", 3)), act.Execute("forward"), "CC-1"),
        ((("tier", "device"), ("boundary", 4)), act.Execute("forward"), "CC-2"),
    ],
)
def test_who_wrote_the_bytes_decides_on_the_law(place, action, law):
    assert counterexamples.law_of(Difference("bytes", 1, 2, place), action) == law
    assert counterexamples.law_of(Difference("computed", 1, 2), action) == "RQ-1"


def test_the_pasted_test_fails_with_the_fault_planted_and_passes_without():
    _, example = example_of("D-SLOT-2")
    names: dict[str, Any] = {}
    exec(as_test.render(example), names)
    [test] = [value for name, value in names.items() if name.startswith("test_")]
    test()
    with faults.planted(faults.by_id("D-SLOT-2")), pytest.raises(AssertionError, match="bytes"):
        test()
    assert "with faults.planted(faults.by_id('D-SLOT-2'))" in as_test.render(example)


def test_another_law_than_that_of_the_file_is_named(tmp_path, capsys):
    _, example = example_of("D-SLOT-2")
    file = tmp_path / "example.json"
    file.write_text(examples.dumps(evolve(example, law="PC-1")))
    assert cli.main(["gpu", "--replay", str(file)]) == 2
    assert "CC-1 breaks (the file says PC-1) at action " in capsys.readouterr().out
