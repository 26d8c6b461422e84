"""A pretended release: it plays a shipped recording, if asked to with a state that no law allows."""

from __future__ import annotations

import contextlib
import json

from kvproof.spec.traces import archive
from kvproof.spec.vllm.process import ReleaseCrashed, ReleaseHung, ReleaseRaised, ReleaseUnusable

RECORDING = "s20032_fa_swa_dcp4"


def recorded_lines():
    """Return the lines of a shipped recording."""
    return archive.unpack(RECORDING).splitlines()


def broken_lines():
    """Return the same lines, block 3 with one reference too many after operation 60."""
    lines = recorded_lines()
    row = json.loads(lines[61])
    row["state"]["device"]["ref"]["3"] = row["state"]["device"]["ref"].get("3", 0) + 1
    return [*lines[:61], json.dumps(row), *lines[62:]]


class Raising:
    """A release that ends in an assertion without a message, by its statement, in a function of its scheduler."""

    def __init__(self, statement, function="schedule"):
        self.statement, self.function = statement, function

    def run(self, config, script, **options):
        lines = recorded_lines()
        steps = [at for at, line in enumerate(lines) if at and json.loads(line)["op"] == "step"]
        row = json.loads(lines[steps[3]])
        yield from ({"line": line} for line in lines[: steps[3]])
        yield {"line": json.dumps({"i": row["i"], "op": "step", "args": row["args"], "raised": "AssertionError: "})}
        trace = f'Traceback:\n  File "/x/vllm/v1/core/sched/scheduler.py", line 9, in {self.function}\n    {self.statement}\n'
        yield {"end": {"steps": 4, "raised": "AssertionError: ", "traceback": f"{trace}AssertionError\n"}}


class Pretended:
    """Answers runs like the process of a release. ``how``: holds, broken, hangs, crashes, raises, unusable, unsupported."""

    def __init__(self, how):
        self.how = how
        self.asked = []

    def run(self, config, script, **options):
        self.asked.append((config, list(script), options))
        if self.how == "raises":
            raise ReleaseRaised(version="0", doing="run", text="ValueError: no such thing")
        if self.how == "unusable":
            raise ReleaseUnusable(version="0", doing="hello", missing=("torch",))
        lines = broken_lines() if self.how == "broken" else recorded_lines()
        for at, line in enumerate(lines):
            if at == 5 and self.how == "hangs":
                raise ReleaseHung(version="0", doing="run", seconds=1.0)
            if at == 5 and self.how == "crashes":
                raise ReleaseCrashed(version="0", doing="run", code=-11)
            if self.how != "unsupported":
                yield {"line": line}
        end = {"unsupported": "no such group"} if self.how == "unsupported" else {}
        yield {"end": {"steps": 40, "skipped": 0, **end}}

    def geometry(self, config):
        raise ReleaseRaised(version="0", doing="geometry", text="ValueError: not here")

    def rows(self, config, appends):
        raise ReleaseRaised(version="0", doing="rows", text="ValueError: not here")


def opened(by_version):
    """Return what opens a pretended release per version."""

    @contextlib.contextmanager
    def open_runner(release):
        yield Pretended(by_version[release.version])

    return open_runner
