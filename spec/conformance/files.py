"""The files of a report on an adapter: the report as JSON, text and page, each counterexample as JSON and in its forms."""

from __future__ import annotations

import json
import re
from pathlib import Path

from kvproof.spec import output
from kvproof.spec.conformance.reports import Report
from kvproof.spec.report import files


def stem(adapter: str) -> str:
    """Return how the files of an adapter begin."""
    return re.sub(r"[^\w.-]+", "-", adapter)


def write(report: Report, folder: str | Path, name: str = "") -> list[Path]:
    """Write a report into a folder, which is made, under a name (the adapter's). Raises OutputError.

    ``NAME.html`` is its page, and ``index.html`` the same, or a list if there are reports on other adapters in the folder.
    """
    target = output.make_folder(folder)
    name = name or stem(report.adapter)
    document = report.as_dict()
    written = [target / f"{name}.txt", target / f"{name}.json"]
    output.write_atomically(written[0], report.text() + "\n")
    output.write_atomically(written[1], json.dumps(document, indent=1) + "\n")
    of_law: dict[str, Path] = {}
    for example in report.counterexamples:
        of_law[example.law] = target / f"{name}-{example.law}.json"
        written += files.write_one(example, of_law[example.law])
    # The page lists counterexamples in the order of the laws, as the document does.
    listed = [of_law[law.law] for law in report.laws if law.law in of_law]
    files.write_index(document, listed, target, f"{name}.html")
    files.write_index_of_adapters(document, listed, target)
    return [target / files.INDEX, target / f"{name}.html", *written]
