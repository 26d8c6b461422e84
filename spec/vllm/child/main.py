"""The process of a release: answers requests, one JSON object per line on standard input, with JSON lines on standard output.

Requests and answers:
    {"do": "hello"}      {"version", "missing": packages that this Python lacks, "replaced": stand-ins that are in use}
    {"do": "run", "config", "script", "call_states"}
                         {"line": text} per line of the recording, then {"end": {"steps", "skipped", ...}}; "unsupported" in it
                         says what the release does not have, "traceback" that it (or, without a last line that says so, the
                         driver) raised, "problem" why the recording ends early
    {"do": "geometry", "config"}          one answer of ``geometry.answer``
    {"do": "rows", "config", "appends"}   an answer of ``rows.answer`` per append
A request that fails otherwise gets {"raised": text, "traceback": text}, and the next one is read. What a release prints goes to
standard error.
"""

from __future__ import annotations

import gc
import importlib
import importlib.metadata
import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

Answer = dict[str, Any]

NEEDED = (
    "torch",
    "annotated_types",
    "cachetools",
    "cbor2",
    "einops",
    "msgspec",
    "numpy",
    "packaging",
    "psutil",
    "pydantic",
    "pydantic_core",
    "regex",
    "typing_inspection",
    "urllib3",
    "yaml",
    "zmq",
)
"""Modules without which no release can be imported."""


def hello() -> Answer:
    """Return the release's version, what is missing to import it, and which stand-ins it uses."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if not missing:
        try:
            importlib.import_module("vllm.v1.core.sched.scheduler")
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] == "vllm":
                raise
            missing = [error.name.partition(".")[0]]
    # what was imported stays: a collection after every run looks at that run alone
    gc.freeze()
    stand_ins = importlib.import_module("stand_ins")
    return {"version": version(), "missing": missing, "replaced": stand_ins.used()}


def version() -> str:
    """Return the release's version from its metadata, or from the checkout itself."""
    try:
        return importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        found = importlib.util.find_spec("vllm")
        return "unknown" if found is None else str(getattr(importlib.import_module("vllm"), "__version__", "unknown"))


def run(request: Answer, tell: Callable[[Answer], None]) -> None:
    """Build a scheduler, attach the recorder and run a script. Tells every line and the end."""
    drive = importlib.import_module("drive")
    hooks = importlib.import_module("hooks")
    config = request["config"]
    end: Answer = {"steps": 0, "skipped": 0}
    last = [""]

    def line(text: str) -> None:
        last[0] = text
        tell({"line": text})

    try:
        scheduler = drive.build(config)
        recorder = hooks.attach(
            scheduler,
            line,
            call_states=bool(request.get("call_states")),
            name=config.get("name"),
            seed=config.get("seed", 0),
        )
    except (drive.Unsupported, hooks.CannotRecord) as error:
        tell({"end": {**end, "unsupported": str(error)}})
        return
    driver = drive.Driver(scheduler, config)
    try:
        driver.run(request["script"])
    except Exception as error:  # whatever the release raises is its answer, not ours
        end |= {"raised": said(error), "traceback": traceback.format_exc()}
    finally:
        recorder.close()
    if recorder.problem is not None and "raised" not in json.loads(last[0]):
        end["problem"] = recorder.problem
    tell({"end": {**end, "steps": driver.steps, "skipped": driver.skipped}})


def said(error: BaseException) -> str:
    """Return an exception as recordings name it."""
    return f"{type(error).__name__}: {error}"


def geometry(request: Answer) -> Answer:
    """Return the sizes that the release derives from a configuration."""
    found: Answer = importlib.import_module("geometry").answer(request["config"])
    return found


def rows(request: Answer) -> Iterable[Answer]:
    """Return what the release's rows hold after every append."""
    found: Iterable[Answer] = importlib.import_module("rows").answer(request["config"], request["appends"])
    return found


def serve(lines: Iterable[str], tell: Callable[[Answer], None]) -> None:
    """Answer requests until there are no more."""
    unsupported = importlib.import_module("configuration").Unsupported
    for line in lines:
        if not line.strip():
            continue
        try:
            for answer in answers(json.loads(line), tell):
                tell(answer)
        except unsupported as error:
            tell({"unsupported": str(error)})
        except Exception as error:  # the next request may do better
            tell({"raised": said(error), "traceback": traceback.format_exc()})


def answers(request: Answer, tell: Callable[[Answer], None]) -> Iterator[Answer]:
    """Yield the answers to one request; a run tells its own. Raises ValueError for an unknown one."""
    what = request.get("do") if isinstance(request, dict) else None
    if what == "hello":
        yield hello()
    elif what == "run":
        run(request, tell)
        gc.collect()
    elif what == "geometry":
        yield geometry(request)
    elif what == "rows":
        yield from rows(request)
    else:
        raise ValueError(f"unknown request {what!r}; known are hello, run, geometry and rows")


def main() -> None:
    """Serve standard input. Standard output is kept for answers before anything of the release is imported."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    folder = str(Path(__file__).resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    importlib.import_module("stand_ins").install()

    def tell(answer: Answer) -> None:
        out.write(json.dumps(answer, separators=(",", ":")) + "\n")
        out.flush()

    serve(sys.stdin, tell)


if __name__ == "__main__":
    main()
