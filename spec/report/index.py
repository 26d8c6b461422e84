"""The page of a whole run: laws, faults, scopes, recordings or releases, and links to the report of each counterexample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen
from markupsafe import Markup

from kvproof.spec import laws as all_laws
from kvproof.spec.engines import rules
from kvproof.spec.report import labels, runs, templating
from kvproof.spec.report.runs import Run


@frozen(slots=True)
class Row:
    """A law of the page: its sentence, what stands behind it anywhere (label), and what this run says of it."""

    law: str
    sentence: str
    label: str
    verdict: str
    judged: int


def render(document: Mapping[str, Any], files: Sequence[Path], stamp: str = "") -> str:
    """Return the page of a summary; ``files`` are the JSON files of its counterexamples, in order.

    ``stamp`` is shown at the end if it is given (a date, a build): nothing else differs between two equal runs.
    """
    run = runs.of(document)
    return templating.render(
        "index.html.j2",
        run=run,
        rows=rows(run),
        links=[_links(file) for file in files],
        stamp=stamp,
        counted=runs.counted,
        counts=_counts(run),
        style=Markup(templating.source("style.css") + templating.source("index.css")),
    )


def of_adapters(reports: Sequence[Path]) -> str:
    """Return the page of a folder with reports on several adapters; each has a page of its own beside its JSON file."""
    read = [(file.with_suffix(".html").name, runs.read(file)) for file in reports]
    return templating.render(
        "adapters.html.j2",
        reports=[(page, run, _counts(run)) for page, run in read],
        counted=runs.counted,
        style=Markup(templating.source("style.css") + templating.source("index.css")),
    )


def _counts(run: Run) -> str:
    """Return how much of everything there is in the run, in a line."""
    reached = 0 if run.situations is None else run.situations[0]
    said = [
        runs.counted(number, *names)
        for number, names in (
            (len(run.found), ("counterexample",)),
            (0 if run.planted else len(run.faults), ("planted fault",)),
            (len(run.scopes), (run.unit,)),
            (len(run.releases), ("release",)),
            (run.recordings, ("recording",)),
            (reached, ("situation reached", "situations reached")),
        )
        if number
    ]
    if run.laws:
        judged = sum(1 for row in run.laws.values() if row.judged)
        said.insert(bool(run.found), f"{judged:,} of {runs.counted(len(run.laws), 'law')} judged")
    return ", ".join([*said, *([f"kvproof {run.kvproof}"] if run.kvproof else [])])


def rows(run: Run) -> list[Row]:
    """Return the laws of a run with their sentences, in the order of the semantics."""
    sentences = {law.id: law.sentence for law in all_laws.ALL}
    sentences |= {rule: text for rule, text in rules.SENTENCES.items() if rule not in sentences}
    known = [law for law in sentences if law in run.laws]
    found = [*known, *(law for law in run.laws if law not in sentences)]
    label = labels.read()
    return [Row(law, sentences.get(law, ""), label.get(law, ""), run.laws[law].verdict, run.laws[law].judged) for law in found]


def _links(file: Path) -> dict[str, str]:
    """Return the forms of a counterexample that stand beside its JSON file."""
    names = {"JSON": ".json", "report": ".html", "picture": ".svg", "Markdown": ".md", "for reviewers": ".reviewer.md"}
    return {what: file.with_suffix(suffix).name for what, suffix in names.items() if file.with_suffix(suffix).is_file()}
