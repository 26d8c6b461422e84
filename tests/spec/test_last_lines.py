"""Every command that finds something ends with a line that is pasted into a shell as it is and finds it again."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from kvproof.spec import cli
from kvproof.spec.conformance.adapter import Observation, Shows
from kvproof.spec.exits import ExitCode
from kvproof.spec.traces import archive

PASTED = re.compile(r"^(?:[A-Z_]+=\S+ )*kvproof [a-z]+ .*$")
FAULT = ["check", "--fault", "M-EVICT-1", "--law", "PC-5", "--scope", "fa4"]


class Stillborn:
    """An adapter that cannot be started."""

    name = "stillborn"
    shows: frozenset[Shows] = frozenset()
    null_block = 0

    def start(self, config: object) -> None:
        raise RuntimeError("it does not start")

    def perform(self, action: object) -> Observation:
        raise AssertionError(action)


def diverging(folder: Path, name: str, change: str) -> str:
    """Write a shipped recording in which one state has a reference too many, or one answer is another."""
    lines = [json.loads(line) for line in archive.unpack(name).splitlines()]
    if change == "zeroed":
        lines[6]["result"]["zeroed"] = [2, 1]
    else:
        references = lines[61]["state"]["device"]["ref"]
        references["3"] = references.get("3", 0) + 1
    file = folder / "bad one.ndjson"
    file.write_text("\n".join(json.dumps(line) for line in lines) + "\n", encoding="utf-8")
    return str(file)


def counterexample(folder: Path) -> str:
    """Write a counterexample and return its file."""
    assert cli.main([*FAULT, "--report", str(folder / "out")]) == ExitCode.REFUTED
    (file,) = [path for path in (folder / "out").glob("*.json") if path.name != "check.json"]
    return str(file)


COMMANDS = {
    "check": lambda folder: FAULT,
    "check --report": lambda folder: [*FAULT, "--report", str(folder / "a folder")],
    "report": lambda folder: ["report", counterexample(folder), "--replay"],
    "replay": lambda folder: ["replay", diverging(folder, "d_cow_dcp2", "zeroed")],
    "replay --follow": lambda folder: ["replay", "--follow", diverging(folder, "s20032_fa_swa_dcp4", "references")],
    "conform adapter": lambda folder: [
        *("conform", "adapter", f"{__name__}:Stillborn", "--scope", "fa4", "--walks", "1", "--steps", "5"),
    ],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_last_line_is_a_command_that_finds_it_again(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = COMMANDS[name](tmp_path)
    capsys.readouterr()
    assert cli.main(words) == ExitCode.REFUTED
    last = capsys.readouterr().out.rstrip().splitlines()[-1]
    assert PASTED.match(last), last
    pasted = shlex.split(last)
    again = pasted[pasted.index("kvproof") + 1 :]
    assert cli.main(again) == ExitCode.REFUTED
    assert capsys.readouterr().out.rstrip().splitlines()[-1].endswith(last.partition("kvproof")[2])
