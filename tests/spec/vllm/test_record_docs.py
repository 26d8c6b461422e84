"""docs/record.md says what is true: its Python runs, its options exist."""

from __future__ import annotations

import gzip
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kvproof.spec.cli import main
from kvproof.spec.exits import ExitCode
from kvproof.spec.vllm import process
from tests.spec.vllm import toys

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "record.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "examples" / "record_release.py"


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


def recorded(run, folder):
    """Run the example under `kvproof record` on a release; return what was printed and the recording."""
    (version,) = re.findall(r"record_release\.py (\S+)\n", TEXT)
    unpacked = os.environ.get("KVPROOF_TEST_RELEASES")
    name = str(Path(unpacked) / version) if unpacked else version
    command = [sys.executable, "-m", "kvproof.spec", "record", str(folder), "--", sys.executable, str(EXAMPLE), name]
    done = run(command)
    assert done.returncode == 0, done.stderr
    (file,) = folder.iterdir()
    return done.stdout, file


@pytest.mark.vllm
def test_the_example_records_what_the_page_shows_and_it_replays(tmp_path, capsys):
    """With the extra `vllm` alone: record, replay, and the hit of the second request."""

    def run(command):
        path = os.pathsep.join((str(ROOT / "tests" / "_path"), str(ROOT)))
        kept = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
        settings = {**kept, "PYTHONPATH": path}
        return subprocess.run(command, env=settings, capture_output=True, text=True, timeout=300, check=False)

    out, file = recorded(run, tmp_path / "recordings")
    shown = TEXT.split("record_release.py 0.33.0\n")[1].split("```")[0]
    for line in shown.splitlines():
        if line.startswith(("  ", "1 recording")):
            assert line.replace("recordings:", f"{tmp_path / 'recordings'}:") in out
    text = gzip.decompress(file.read_bytes()).decode()
    assert all(line in text for line in shown.splitlines() if line.startswith('"op"'))
    assert shown.count('"op":"lookup"') == 3  # the command, and two lines of it
    assert main(["replay", str(tmp_path / "recordings")]) == ExitCode.HOLDS


def test_the_example_says_which_release_it_wants():
    assert EXAMPLE.is_file()
    assert f"examples/{EXAMPLE.name}" in TEXT
    assert len(EXAMPLE.read_text(encoding="utf-8").split('"""\n\n', 1)[1].splitlines()) <= 35


def test_what_conform_runs_is_not_recorded_from_outside(monkeypatch, tmp_path):
    """As the page says: a release's process gets nothing of this environment that could load the recorder."""
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    assert process.environment(tmp_path)["PYTHONPATH"] == str(tmp_path)


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
