"""docs/record.md says what is true: its Python runs, its options exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from kvproof.spec.cli import main
from kvproof.spec.exits import ExitCode
from tests.spec.vllm import toys

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "record.md").read_text(encoding="utf-8")


def test_the_python_runs(tmp_path, monkeypatch, capsys):
    code = TEXT.split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    with toys.toy_on_path():

        def make_scheduler():
            return importlib.import_module(toys.MODULE).Scheduler()

        exec(compile(code, "record.md", "exec"), {"make_scheduler": make_scheduler})
    assert len(list((tmp_path / "recordings").iterdir())) == 1
    assert capsys.readouterr().out.endswith("[]\n")


@pytest.mark.parametrize("command", ["record", "replay"])
def test_the_options_exist(command, capsys):
    assert main([command, "--help"]) == ExitCode.HOLDS
    said = capsys.readouterr().out
    asked = {"record": ["--calls"], "replay": ["--profile"]}[command]
    assert all(option in said for option in asked)
    assert all(option in TEXT for option in asked)


def test_the_options_of_pytest_exist():
    source = (Path(__file__).resolve().parents[3] / "spec" / "recording_plugin.py").read_text(encoding="utf-8")
    assert set(re.findall(r"--kvproof-record(?:-calls)?", TEXT)) == {"--kvproof-record", "--kvproof-record-calls"}
    assert 'OPTION = "--kvproof-record"' in source
    assert "{OPTION}-calls" in source


def test_the_arguments_of_the_recorder_are_these():
    import inspect

    from kvproof.spec.vllm.child import starting

    told = re.search(r"`attach\((.*?)\)`", TEXT)
    assert told is not None
    names = [part.partition("=")[0].strip() for part in told.group(1).split(",")]
    assert names == list(inspect.signature(starting.recorder().attach).parameters)
