"""Recording whatever makes schedulers: a block of code, a pytest session, a command with its processes."""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import shlex
import subprocess
import sys
import textwrap
import types
from pathlib import Path

import pytest

from kvproof.spec.cli import main
from kvproof.spec.exits import ExitCode, UserError
from kvproof.spec.recording import NoVllm, RecordingError, recording
from kvproof.spec.traces.read import read
from kvproof.spec.vllm.child import starting
from tests.spec.vllm import toys

ROOT = Path(__file__).resolve().parents[3]
USE_TOY = f"import sys; sys.path.insert(0, {str(toys.FAKE)!r})\nfrom vllm.v1.core.sched.scheduler import Request, Scheduler\n"
ONE = "scheduler = Scheduler()\nscheduler.add_request(Request('a', [1, 2, 3], 2, 2))\nscheduler.schedule()\n"


@pytest.fixture
def toy_path():
    with toys.toy_on_path():
        yield


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def ops(file: Path) -> list[str]:
    return [operation.op for operation in read(file).operations]


class TestABlockOfCode:
    def test_every_scheduler_made_inside_gets_a_file(self, toy_path, tmp_path):
        with recording(tmp_path / "new") as session:
            module = importlib.import_module(toys.MODULE)  # after the beginning
            toys.story(module, module.Scheduler())
            toys.step(module.AsyncScheduler())
        outside = module.Scheduler()
        assert "schedule" not in vars(outside)
        assert [file.name for file in session.files] == names(tmp_path / "new")
        assert len(session.files) == 2
        assert len(ops(session.files[0])) > 30
        assert ops(session.files[1]) == ["init", "step", "update"]
        assert session.problems == []

    def test_a_module_that_is_there_already_is_recorded_too(self, toy_path, tmp_path):
        module = importlib.import_module(toys.MODULE)
        constructors = module.Scheduler.__init__, module.AsyncScheduler.__init__
        with recording(tmp_path):
            late = module.AsyncScheduler()
            assert late.settings_came_late
            toys.step(late)
        assert (module.Scheduler.__init__, module.AsyncScheduler.__init__) == constructors
        assert len(names(tmp_path)) == 1

    def test_an_import_that_fails_is_tried_again(self, tmp_path):
        folder = tmp_path / "broken" / "vllm" / "v1" / "core" / "sched"
        folder.mkdir(parents=True)
        (folder / "scheduler.py").write_text("raise ImportError('not yet')\n")
        with toys.toy_on_path(tmp_path / "broken"), recording(tmp_path / "out") as session:
            with pytest.raises(ImportError, match="not yet"):
                importlib.import_module(toys.MODULE)
            (folder / "scheduler.py").write_text("Scheduler = 'no class'  # but there\n")
            importlib.invalidate_caches()
            importlib.import_module(toys.MODULE)
        assert session.problems == [f"nothing was recorded: {toys.MODULE} has no class Scheduler"]

    def test_a_block_that_never_imports_it_leaves_nothing_behind(self, toy_path, tmp_path):
        before = list(sys.meta_path)
        with recording(tmp_path) as session:
            assert sys.meta_path != before
        assert sys.meta_path == before
        assert session.files == []
        assert names(tmp_path) == []

    def test_an_exception_leaves_complete_recordings(self, toy_path, tmp_path):
        module = importlib.import_module(toys.MODULE)

        def fail() -> None:
            with recording(tmp_path):
                toys.step(module.Scheduler())
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert [ops(tmp_path / name) for name in names(tmp_path)] == [["init", "step", "update"]]

    def test_a_scheduler_that_outlives_the_block_goes_on_unrecorded(self, toy_path, tmp_path):
        module = importlib.import_module(toys.MODULE)
        with recording(tmp_path) as session:
            scheduler = module.Scheduler()
        toys.submit(module, scheduler, "a", [1, 2, 3])
        assert toys.step(scheduler) == {"a": 3}
        assert ops(session.files[0]) == ["init"]

    def test_one_file_and_its_followers(self, toy_path, tmp_path):
        module = importlib.import_module(toys.MODULE)
        for _ in range(2):  # the named file is written anew, the others are not touched
            with recording(tmp_path / "mine.ndjson"):
                module.Scheduler()
                module.Scheduler()
        assert names(tmp_path) == ["mine-2.ndjson", "mine-3.ndjson", "mine.ndjson"]
        assert (tmp_path / "mine.ndjson").read_text().startswith('{"format":"kv-trace"')

    def test_a_scheduler_that_is_gone_has_a_complete_file(self, toy_path, tmp_path):
        module = importlib.import_module(toys.MODULE)
        with recording(tmp_path) as session:
            toys.step(module.Scheduler())
            gc.collect()
            assert names(tmp_path) == [session.files[0].name]

    def test_states_of_calls_on_demand(self, toy_path, tmp_path):
        module = importlib.import_module(toys.MODULE)
        with recording(tmp_path, call_states=True) as session:
            toys.story(module, module.Scheduler())
        calls = [call for operation in read(session.files[0]).operations for call in operation.calls]
        assert calls
        assert all(call.change is not None for call in calls)

    def test_what_cannot_be_recorded_is_said(self, toy_path, tmp_path):
        module = importlib.import_module(toys.MODULE)
        with recording(tmp_path) as session:
            module.Scheduler(is_encoder_decoder=True)
            toys.submit(module, module.Scheduler(), "a", [1], cache_salt="x")
        assert session.problems[0] == (
            "a scheduler was not recorded: this scheduler has an encoder-decoder model, which the format does not know"
        )
        assert session.problems[1].endswith("request a has a cache salt, which the format does not know")
        assert len(names(tmp_path)) == 1

    def test_modules_of_the_program_keep_their_names(self, toy_path, tmp_path, monkeypatch):
        own = types.ModuleType("hooks")
        monkeypatch.setitem(sys.modules, "hooks", own)
        starting.recorder.cache_clear()
        module = importlib.import_module(toys.MODULE)
        path = list(sys.path)
        with recording(tmp_path) as session:
            toys.step(module.Scheduler())
        assert sys.modules["hooks"] is own
        assert "dump" not in sys.modules
        assert sys.path == path
        assert len(session.files) == 1

    def test_without_vllm_there_is_nothing_to_record(self, tmp_path, monkeypatch):
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(NoVllm, match="there is no vLLM to record"), recording(tmp_path):
            raise AssertionError
        assert issubclass(NoVllm, UserError)

    def test_a_folder_that_cannot_be_made_is_refused(self, toy_path, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(RecordingError, match="cannot be made"), recording(tmp_path / "file" / "folder"):
            raise AssertionError


def record(tmp_path: Path, monkeypatch, code: str, *options: str) -> int:
    """Run `kvproof record` on a script that uses the toy."""
    script = tmp_path / "script.py"
    script.write_text(USE_TOY + textwrap.dedent(code))
    monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)
    return main(["record", *options, str(tmp_path / "out"), "--", sys.executable, str(script)])


class TestACommand:
    def test_its_schedulers_are_recorded_and_its_status_passed_on(self, tmp_path, monkeypatch, capfd):
        assert record(tmp_path, monkeypatch, ONE + "sys.exit(5)") == 5
        assert names(tmp_path / "out") == ["script-1.ndjson.gz"]
        assert ops(tmp_path / "out" / "script-1.ndjson.gz") == ["init", "submit", "step"]
        told = capfd.readouterr().out
        assert "1 recording in" in told
        assert "script-1.ndjson.gz  vllm 9.9.9, 3 operations" in told
        assert "no profile of its own is known: vllm 9.9.9\n" in told
        assert told.endswith(f"judge them:\nkvproof replay --follow {tmp_path / 'out'}\n")

    def test_the_line_that_it_prints_works(self, tmp_path, monkeypatch, capfd):
        assert record(tmp_path, monkeypatch, ONE) == ExitCode.HOLDS
        line = capfd.readouterr().out.splitlines()[-1]
        assert line.startswith("kvproof replay ")
        assert main(shlex.split(line)[1:]) == ExitCode.HOLDS
        assert "laws" in capfd.readouterr().out

    def test_a_release_with_a_profile_is_replayed_by_it(self, tmp_path, monkeypatch, capfd):
        of_a_release = "import vllm; vllm.__version__ = '0.33.0'\n" + ONE
        assert record(tmp_path, monkeypatch, of_a_release) == ExitCode.HOLDS
        told = capfd.readouterr().out
        assert "script-1.ndjson.gz  vllm 0.33.0, 3 operations" in told
        assert told.endswith(f"judge them:\nkvproof replay {tmp_path / 'out'}\n")
        assert "no profile" not in told

    def test_states_of_calls_on_demand(self, tmp_path, monkeypatch):
        assert record(tmp_path, monkeypatch, ONE, "--calls") == ExitCode.HOLDS
        calls = read(tmp_path / "out" / "script-1.ndjson.gz").operations[2].calls
        assert all(call.change is not None for call in calls)

    @pytest.mark.parametrize("method", ["fork", "spawn"])
    def test_processes_of_the_command_are_recorded(self, tmp_path, monkeypatch, method):
        code = f"""
        import multiprocessing, os

        def work(name):
            scheduler = Scheduler()
            scheduler.add_request(Request(name, [1, 2, 3], 2, 2))

        if __name__ == "__main__":
            work("parent")
            context = multiprocessing.get_context({method!r})
            one = context.Process(target=work, args=("child",))
            one.start()
            one.join()
            sys.exit(one.exitcode)
        """
        assert record(tmp_path, monkeypatch, code) == ExitCode.HOLDS
        found = {read(tmp_path / "out" / name).operations[1].args.request for name in names(tmp_path / "out")}
        assert found == {"parent", "child"}

    def test_a_killed_one_leaves_a_part(self, tmp_path, monkeypatch, capfd):
        assert record(tmp_path, monkeypatch, ONE + "import os; os.kill(os.getpid(), 9)") == 128 + 9
        assert names(tmp_path / "out") == ["script-1.ndjson.gz.part"]
        assert "script-1.ndjson.gz.part: incomplete" in capfd.readouterr().err

    def test_problems_are_told(self, tmp_path, monkeypatch, capfd):
        assert record(tmp_path, monkeypatch, "scheduler = Scheduler(is_encoder_decoder=True)") == ExitCode.ERROR
        told = capfd.readouterr().err
        assert "a scheduler was not recorded: this scheduler has an encoder-decoder model" in told
        assert "nothing was recorded" in told

    def test_the_sitecustomize_of_the_environment_still_runs(self, tmp_path, monkeypatch):
        site = tmp_path / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text("import builtins\nbuiltins.customized = True\n")
        monkeypatch.setenv("PYTHONPATH", str(site))
        assert record(tmp_path, monkeypatch, ONE + "assert customized\n") == ExitCode.HOLDS

    def test_a_command_that_is_none(self, tmp_path, capsys):
        assert main(["record", str(tmp_path), "--", str(tmp_path / "nothing")]) == ExitCode.ERROR
        assert "cannot be run" in capsys.readouterr().err
        assert main(["record", str(tmp_path), "--calls", "python"]) == ExitCode.ERROR
        assert "options of record itself come before DIR" in capsys.readouterr().err
        assert main(["record", str(tmp_path)]) == ExitCode.ERROR


TESTS = """
import pytest

@pytest.mark.parametrize("length", [3, 5])
def test_it(length):
    scheduler = Scheduler()
    scheduler.add_request(Request("a", list(range(length)), 2, 2))
    assert scheduler.schedule().total_num_scheduled_tokens == length
"""


def run_pytest(
    folder: Path, *arguments: str, prefix: tuple[str, ...] = (), vllm: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run pytest on a test file of its own in a process of its own."""
    folder.mkdir(exist_ok=True)
    (folder / "test_mine.py").write_text((USE_TOY if vllm else "") + TESTS)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    paths = [str(ROOT / "tests" / "_path"), *([str(toys.FAKE)] if vllm else [])]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    command = [*prefix, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), *arguments]
    return subprocess.run(
        [*command, str(folder)], cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False
    )


class TestPytest:
    def test_the_option_records_each_test(self, tmp_path):
        out = tmp_path / "out"
        done = run_pytest(tmp_path / "mine", "-p", "kvproof.spec.recording_plugin", "--kvproof-record", str(out))
        assert done.returncode == 0, done.stdout + done.stderr
        assert names(out) == ["test_mine.py_test_it_3-1.ndjson.gz", "test_mine.py_test_it_5-1.ndjson.gz"]
        assert f"2 recordings in {out}" in done.stdout
        assert len(ops(out / names(out)[0])) == 3

    def test_without_the_option_nothing_happens(self, tmp_path):
        done = run_pytest(tmp_path / "mine", "-p", "kvproof.spec.recording_plugin")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "kvproof" not in done.stdout

    def test_a_folder_that_cannot_be_made_is_a_usage_error(self, tmp_path):
        (tmp_path / "out").write_text("")
        out = str(tmp_path / "out" / "x")
        done = run_pytest(tmp_path / "mine", "-p", "kvproof.spec.recording_plugin", "--kvproof-record", out)
        assert done.returncode == pytest.ExitCode.USAGE_ERROR
        assert "cannot be made" in done.stderr

    @pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="this Python has vLLM")
    def test_without_vllm_it_is_a_usage_error_too(self, tmp_path):
        arguments = ("-p", "kvproof.spec.recording_plugin", "--kvproof-record", str(tmp_path / "out"))
        done = run_pytest(tmp_path / "mine", *arguments, vllm=False)
        assert done.returncode == pytest.ExitCode.USAGE_ERROR
        assert "there is no vLLM to record" in done.stderr

    def test_a_command_that_is_pytest_names_its_tests_too(self, tmp_path):
        prefix = (sys.executable, "-m", "kvproof.spec", "record", "out", "--")
        done = run_pytest(tmp_path, prefix=prefix)
        assert done.returncode == 0, done.stdout + done.stderr
        assert names(tmp_path / "out") == ["test_mine.py_test_it_3-1.ndjson.gz", "test_mine.py_test_it_5-1.ndjson.gz"]


def test_the_settings_in_the_environment(tmp_path, toy_path, monkeypatch):
    monkeypatch.delenv(starting.SETTINGS, raising=False)
    assert starting.from_environment() is None
    settings = {"folder": str(tmp_path), "call_states": False, "notes": str(tmp_path)}
    monkeypatch.setenv(starting.SETTINGS, json.dumps(settings))
    session = starting.from_environment()
    assert session is not None
    importlib.import_module(toys.MODULE).Scheduler(is_encoder_decoder=True)
    session.end()
    assert names(tmp_path) == [f"{os.getpid()}.txt"]


def test_an_option_that_is_none_is_no_folder(tmp_path, monkeypatch, capsys):
    """It would be made a folder of that name, and the rest the command."""
    monkeypatch.chdir(tmp_path)
    assert main(["record", "--out", "here", "--", "true"]) == ExitCode.ERROR
    assert "No such option '--out'" in capsys.readouterr().err
    assert main(["record", "--", "--out", "--", "true"]) == ExitCode.ERROR
    assert "no such option: --out" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
