"""The files of a report on an adapter: the report as JSON and text, each counterexample as JSON and Markdown."""

from __future__ import annotations

import json
import re
from pathlib import Path

from kvproof.spec import counterexample, output
from kvproof.spec.conformance.reports import Report
from kvproof.spec.report import markdown


def stem(adapter: str) -> str:
    """Return how the files of an adapter begin."""
    return re.sub(r"[^\w.-]+", "-", adapter)


def write(report: Report, folder: str | Path, name: str = "") -> list[Path]:
    """Write a report into a folder, which is made, under a name (the adapter's). Raises OutputError."""
    target = output.make_folder(folder)
    name = name or stem(report.adapter)
    written = [target / f"{name}.txt", target / f"{name}.json"]
    output.write_atomically(written[0], report.text() + "\n")
    output.write_atomically(written[1], json.dumps(report.as_dict(), indent=1) + "\n")
    for example in report.counterexamples:
        file = target / f"{name}-{example.law}.json"
        output.write_atomically(file, counterexample.dumps(example))
        output.write_atomically(file.with_suffix(".md"), markdown.render(example, str(file)))
        written += [file, file.with_suffix(".md")]
    return written
