"""``kvproof record``: run a command, and record every scheduler of vLLM that its processes make."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
from pathlib import Path

import click

from kvproof.spec import recording
from kvproof.spec.exits import CommandEnded, UserError
from kvproof.spec.traces import read
from kvproof.spec.traces.errors import TraceError
from kvproof.spec.traces.replay import PROFILE_OF_ENGINE
from kvproof.spec.vllm.child import starting

SITE = """\
# Written by `kvproof record` for the time of one command: lets Python record schedulers of vLLM, then does what the
# sitecustomize of this environment does.
import importlib.machinery, importlib.util, os, sys

here = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location("_kvproof_starting", {starting!r})
starting = importlib.util.module_from_spec(spec)
sys.modules["_kvproof_starting"] = starting
spec.loader.exec_module(starting)
session = starting.from_environment()

others = [path for path in sys.path if os.path.abspath(path or os.curdir) != here]
spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
if spec is not None and spec.loader is not None:
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
"""


@click.command(
    "record",
    short_help="Run a command and record the schedulers of vLLM in it.",
    context_settings={"allow_interspersed_args": False},
)
@click.option("--calls", "call_states", is_flag=True, help="Give nested calls their state differences as well.")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.argument("arguments", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def command(call_states: bool, folder: Path, arguments: tuple[str, ...]) -> None:
    """Run COMMAND (``python script.py``, ``pytest tests/...``) and record every Scheduler of vLLM in its Python processes.

    Each gets a file of its own in DIR, named after the running test or the program. The exit status is that of the command; 1
    if it succeeds and nothing could be recorded.
    """
    if str(folder).startswith("-"):
        raise click.UsageError(f"no such option: {folder} (a folder of that name is written ./{folder})")
    arguments = arguments[arguments[0] == "--" :]
    if not arguments or arguments[0].startswith("-"):
        raise click.UsageError("give the command after --; options of record itself come before DIR")
    recording.check_folder(folder)
    before = _recordings(folder)
    with tempfile.TemporaryDirectory(prefix="kvproof-record-") as temporary:
        code = _run(arguments, Path(temporary), folder.resolve(), call_states)
        problems = sorted(line for file in Path(temporary).glob("*.txt") for line in file.read_text("utf-8").splitlines())
    files = [file for file, changed in _recordings(folder).items() if before.get(file) != changed]
    for problem in problems:
        click.echo(problem, err=True)
    for part in sorted(folder.glob("*.part")):
        click.echo(f"{part.name}: incomplete, its process was killed or still runs", err=True)
    _tell(folder, sorted(files))
    if code:
        raise CommandEnded(code)
    if not files:
        raise UserError(
            "nothing was recorded: no Python process of the command made a scheduler of vLLM that can be recorded. Is vLLM "
            "installed for that Python, and is it started without -I, -E or -S and with the PYTHONPATH of the command? "
            "(kvproof conform starts its releases without: it records by itself, with --report DIR)"
        )


def _run(arguments: tuple[str, ...], temporary: Path, folder: Path, call_states: bool) -> int:
    """Run the command with the recorder on its path; return its exit status as a shell would give it. Raises UserError."""
    (temporary / "sitecustomize.py").write_text(SITE.format(starting=starting.__file__), encoding="utf-8")
    environment = dict(os.environ)
    path = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = str(temporary) if not path else os.pathsep.join((str(temporary), path))
    environment[starting.SETTINGS] = json.dumps({"folder": str(folder), "call_states": call_states, "notes": str(temporary)})
    try:
        process = subprocess.Popen(arguments, env=environment)
    except OSError as error:
        said = (error.strerror or str(error)).lower()
        raise UserError(f"{shlex.join(arguments)} cannot be run ({said}): give a command after --") from error
    while True:
        try:
            code = process.wait()
            break
        except KeyboardInterrupt:  # the command got it, too, and says what it makes of it
            continue
    return 128 - code if code < 0 else code


def _recordings(folder: Path) -> dict[Path, int]:
    """The recordings in a folder, and when each was last changed."""
    return {file: file.stat().st_mtime_ns for ending in starting.ENDINGS for file in folder.glob(f"*{ending}")}


def _tell(folder: Path, files: list[Path]) -> None:
    """Say which recordings were written and how to look at them."""
    if not files:
        return
    versions = set()
    click.echo(f"{len(files)} recording{'s' if len(files) > 1 else ''} in {folder}:")
    for file in files:
        try:
            found = read.read(file, check_sizes=False)
        except TraceError as error:
            click.echo(f"  {file.name}: {error}", err=True)
            continue
        engine = found.header.engine
        versions.add((engine.name, engine.version))
        click.echo(f"  {file.name}  {engine.name} {engine.version}, {len(found.operations)} operations")
    unknown = sorted(versions - PROFILE_OF_ENGINE.keys())
    if unknown:
        click.echo(f"no profile of its own is known: {', '.join(' '.join(version) for version in unknown)}")
    click.echo("judge them:")
    # Compared with the profile of another release a run ends at its first difference; followed, it is judged to its end.
    click.echo(f"kvproof replay{' --follow' if unknown else ''} {shlex.quote(str(folder))}")
