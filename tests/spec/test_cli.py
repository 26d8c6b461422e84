from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata

import click
import pytest

from kvproof.spec import cli, distribution
from kvproof.spec.exits import ExitCode, UserError
from tests.tidy.sources import ROOT, pyproject

COMMANDS = sorted(pyproject()["project"]["entry-points"]["kvproof.commands"])


@pytest.fixture
def command(monkeypatch):
    """Registers a command under the name `trial` whose body is the given function."""

    def register(body):
        trial = click.Command("trial", callback=body, params=[click.Option(["--number"], type=int)])
        monkeypatch.setitem(cli.root.commands, "trial", trial)

    return register


def register_entry_point(monkeypatch, value: str) -> None:
    point = metadata.EntryPoint(name="trial", value=value, group=distribution.COMMANDS)
    monkeypatch.setattr(distribution, "command_entry_points", lambda: {"trial": point})


def kvproof(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests/_path")}
    return subprocess.run(
        [sys.executable, "-m", "kvproof.spec", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


def test_version_is_that_of_the_project(tmp_path):
    done = kvproof("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"kvproof {pyproject()['project']['version']}\n")


def test_help_names_every_command(capsys):
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"\n  {command}" in out for command in COMMANDS)


@pytest.mark.parametrize("arguments", [[], ["--nonsense"], ["nonsense"], ["nonsense", "--help"]], ids=" ".join)
def test_a_wrong_command_line_ends_with_1(arguments, capsys):
    assert cli.main(arguments) == 1
    assert "Usage: kvproof" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_a_wrong_option_of_any_command_ends_with_1(name, capsys):
    assert cli.main([name, "--no-such-option"]) == 1
    assert "--no-such-option" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name, capsys):
    assert cli.main([name, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"Usage: kvproof {name}")


@pytest.mark.parametrize("code", list(ExitCode))
def test_a_returned_code_becomes_the_exit_status(command, code):
    command(lambda number: code)
    assert cli.main(["trial"]) == code


@pytest.mark.parametrize("code", list(ExitCode))
def test_ctx_exit_becomes_the_exit_status(command, code):
    command(lambda number: click.get_current_context().exit(code))
    assert cli.main(["trial"]) == code


def test_no_code_means_that_it_holds(command):
    command(lambda number: None)
    assert cli.main(["trial"]) == 0


def raising(error: BaseException):
    def body(number):
        raise error

    return body


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (UserError("x.json: bad; do this"), "Error: x.json: bad; do this\n"),
        (click.UsageError("no such thing"), "no such thing"),
        (click.Abort(), "Interrupted"),
        (KeyboardInterrupt(), "Interrupted"),
        (ValueError("boom"), "Internal error in kvproof"),
        (AssertionError("boom"), "Internal error in kvproof"),
        (FileNotFoundError(2, "No such file", "x"), "Internal error in kvproof"),
        (ModuleNotFoundError("no", name="nonsense"), "Internal error in kvproof"),
        (ModuleNotFoundError("no", name="torch.cuda"), "pip install -e '.[gpu]' (in the clone)"),
        (SystemExit(2), ""),
        (SystemExit("text"), ""),
    ],
    ids=repr,
)
def test_errors_end_with_1_and_say_why(command, capsys, error, message):
    command(raising(error))
    assert cli.main(["trial"]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("value", [7, -1, "text", 2.5])
def test_a_code_that_does_not_exist_is_an_internal_error(command, capsys, value):
    command(lambda number: value)
    assert cli.main(["trial"]) == 1
    assert "Internal error" in capsys.readouterr().err


def test_a_wrong_value_of_an_option_ends_with_1(command, capsys):
    command(lambda number: None)
    assert cli.main(["trial", "--number", "x"]) == 1
    assert "'x' is not a valid integer" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["trial"], ["trial", "--help"], ["trial", "--any", "thing"]], ids=" ".join)
@pytest.mark.parametrize(("module", "extra"), [("torch", "gpu"), ("z3", "proofs"), ("crosshair", "proofs")])
def test_a_command_whose_extra_is_missing_says_how_to_add_it(monkeypatch, tmp_path, capsys, module, extra, arguments):
    (tmp_path / f"needs_{module}.py").write_text(f"import {module}.something\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, module, None)
    register_entry_point(monkeypatch, f"needs_{module}:command")
    assert cli.main(arguments) == 1
    assert f"pip install -e '.[{extra}]' (in the clone)" in capsys.readouterr().err
    assert cli.main(["--help"]) == 0
    assert f"-e '.[{extra}]'" in capsys.readouterr().out


def test_an_installed_copy_names_the_extra_of_the_project(monkeypatch):
    monkeypatch.setattr(distribution, "source_folder", lambda: None)
    said = distribution.missing_extra(ModuleNotFoundError("no", name="z3"))
    assert said == "needs the extra 'proofs': pip install 'kvproof[proofs]'"


@pytest.mark.parametrize("value", ["kvproof.spec.nowhere:command", "kvproof.spec.exits:ExitCode"])
def test_a_command_that_cannot_be_loaded_ends_with_1(monkeypatch, capsys, value):
    register_entry_point(monkeypatch, value)
    assert cli.main(["trial"]) == 1
    assert "trial cannot be loaded" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "bad"),
    [
        (["laws", "DS-1"], {"torch", "z3", "crosshair", "pytest", "kvproof.gpu", "kvproof.proofs"}),
        (["--help"], {"torch", "z3", "crosshair", "pytest"}),
        (["prove", "--help"], {"torch", "z3", "crosshair", "pytest"}),
    ],
    ids=["spec", "help", "help of a command of proofs"],
)
def test_neither_spec_nor_help_imports_an_extra(arguments, bad):
    program = (
        f"import sys; from kvproof.spec import cli; cli.main({arguments!r}); "
        f"bad = {bad!r} & set(sys.modules); sys.exit(str(bad) if bad else 0)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests/_path")}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_goes_away_is_no_traceback():
    program = f"{sys.executable} -m kvproof.spec --help | true"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests/_path")}
    done = subprocess.run(["bash", "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_full_disk_under_standard_output_ends_with_1():
    with open("/dev/full", "w") as full:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests/_path")}
        done = subprocess.run(
            [sys.executable, "-m", "kvproof.spec", "--help"],
            env=environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "Error: the output cannot be written: no space left on device\n")


def test_a_closed_standard_output_is_an_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Started with `>&-` the interpreter has no standard output: exit 1 with advice, no traceback."""
    monkeypatch.setattr("sys.stdout", None)
    assert cli.main(["laws"]) == ExitCode.ERROR
    assert "standard output is closed" in capsys.readouterr().err
