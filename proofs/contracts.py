"""Runs CrossHair over a file of contracts and reads its verdicts.

The exit code of CrossHair does not tell "confirmed" from "not confirmed", so the verdicts come from its text.
"""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

from kvproof.proofs import twins

CONFIRMED = "confirmed"
REFUTED = "refuted"
RAISED = "raised"
"""A function under contract raised instead of answering."""
UNDETERMINED = "undetermined"

_LINE = re.compile(r"^.+?:(\d+): (\w+): (.*)$")


def read_verdicts(source: str, output: str) -> dict[str, str]:
    """Verdict of each contract in `source`, in order, from the text that CrossHair printed about it.

    A contract that the text does not mention, or of which it says anything else, is undetermined.
    """
    spans = [(node.lineno, node.end_lineno or 0, node.name) for node in twins.contracts_of(ast.parse(source))]
    verdicts = {name: UNDETERMINED for _, _, name in spans}
    for line in output.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        number, level, message = int(match[1]), match[2], match[3]
        for first, last, name in spans:
            if first <= number <= last:
                if level == "error":
                    verdicts[name] = REFUTED if message.startswith("AssertionError") else RAISED
                elif message.startswith("Confirmed over all paths"):
                    verdicts[name] = CONFIRMED
    return verdicts


def check_file(path: Path, *, seconds: int, import_path: Path) -> dict[str, str]:
    """Verdicts of CrossHair for the contracts of one file, each given `seconds` of processor time.

    `import_path` is the folder under which `kvproof` is found. Raises RuntimeError with CrossHair's own words when it
    could not run at all.
    """
    command = [sys.executable, "-m", "crosshair", "check", "--analysis_kind=asserts", "--report_all"]
    ran = subprocess.run(
        [*command, "--per_condition_timeout", str(seconds), str(path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(import_path)},
    )
    if ran.returncode not in (0, 1):
        raise RuntimeError(f"CrossHair failed on {path.name}: {(ran.stderr or ran.stdout).strip()}")
    return read_verdicts(path.read_text(encoding="utf-8"), ran.stdout)
