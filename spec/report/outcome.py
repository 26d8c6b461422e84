"""The result of a check as rows of a table, as JSON, and as files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from attrs import frozen

from kvproof.spec import counterexample as examples
from kvproof.spec import faults, output
from kvproof.spec.check import Done, Result, expected_of
from kvproof.spec.counterexample import Counterexample
from kvproof.spec.engines import rules, witnesses
from kvproof.spec.exits import ExitCode
from kvproof.spec.report import markdown

SUMMARY = "check.json"
ENGINES = (("walk", "walk"), ("machine", "hypothesis"), ("traces", "recordings"))


@frozen(slots=True)
class Row:
    """One row of the final table. ``judged`` says how many laws of the family had their premise true at least once."""

    family: str
    engine: str
    steps: int
    judged: str
    premises: int
    witnesses: str
    verdict: str


def family_of(law: str) -> str:
    """Return the family of a law id: the letters before the number."""
    return law.partition("-")[0]


def verdict_of(code: ExitCode) -> str:
    """Return the verdict in the word that reports use."""
    return {ExitCode.HOLDS: "holds", ExitCode.REFUTED: "refuted", ExitCode.UNDETERMINED: "undetermined"}[code]


def rows(result: Result) -> list[Row]:
    """Return the table: law families by engine, then faults and recordings."""
    found: list[Row] = []
    if not result.options.fault:
        families: dict[str, list[str]] = {}
        for law in result.judged_ids:
            families.setdefault(family_of(law), []).append(law)
        for family, ids in families.items():
            found += _family_rows(result, family, ids)
    if result.of("fault"):
        found += _fault_rows(result)
    if result.of("traces"):
        bad = bool(result.problems)
        count = sum(done.recordings for done in result.of("traces"))
        found.append(
            Row(
                "model", "recordings", result.steps("traces"), f"{count} runs", result.steps("traces"), "",
                "refuted" if bad else "holds" if count else "undetermined",
            )
        )  # fmt: skip
    return found


def _family_rows(result: Result, family: str, ids: list[str]) -> list[Row]:
    found = []
    for kind, engine in ENGINES:
        if not result.of(kind) or (kind == "traces" and family in rules.SENTENCES):
            continue
        premises = result.premises(kind)
        judged = sum(1 for law in ids if premises[law])
        broken = {example.law for done in result.of(kind) for example in done.found}
        wrong = broken & set(ids) or (kind == "traces" and any(f": {law}:" in p for law in ids for p in result.problems))
        total = sum(premises[law] for law in ids)
        seen = result.witnesses(kind)
        reached = sum(1 for name in witnesses.NAMES if seen[name])
        found.append(
            Row(
                family,
                engine,
                result.steps(kind),
                f"{judged} of {len(ids)}",
                total,
                f"{reached}/{len(witnesses.NAMES)}" if kind != "traces" else "",
                "refuted" if wrong else "holds" if judged else "undetermined",
            )
        )
    return found


def _fault_rows(result: Result) -> list[Row]:
    done = result.of("fault")
    if result.options.fault:
        return [_killed_row(result, done[0], law) for law in _expected(result, done[0])]
    survived = len(result.survivors)
    return [
        Row(
            "faults",
            "walk",
            result.steps("fault"),
            f"{len(done) - survived} of {len(done)} killed",
            sum(result.premises("fault").values()),
            "",
            "undetermined" if survived else "holds",
        )
    ]


def _expected(result: Result, done: Done) -> tuple[str, ...]:
    return expected_of(faults.by_id(done.job.fault), result.options)


def _killed_row(result: Result, done: Done, law: str) -> Row:
    scope = dict(done.killed).get(law)
    return Row(
        law,
        "walk",
        done.steps,
        f"in {scope}" if scope else "not found",
        done.premises.get(law, 0),
        "",
        "refuted" if scope else "undetermined",
    )


def legend(result: Result) -> list[str]:
    """Return the lines that say how to read the table (docs/check.md says it at length)."""
    if result.options.fault:
        return [
            "One row per law: steps of the whole search, the scope where the fault was caught, how often the premise was true;",
            "refuted: the law caught the fault, as it should; undetermined: it did not.",
        ]
    return [
        "steps and witnesses (situations reached) are the engine's; judged: laws whose premise was true / laws of the family;",
        "premises: how often. A family holds if no engine refutes it and every premise was true in some engine.",
    ]


def remarks(result: Result) -> list[str]:
    """Return one line for everything that keeps a check from holding, or that a reader should know."""
    found = list(result.problems)
    if result.never:
        found.append(f"premise never true: {', '.join(result.never)}")
    if result.unreached:
        found.append(f"situations never reached: {', '.join(result.unreached)}")
    found += [f"fault {fault} is not caught by {', '.join(missing)}" for fault, missing in result.survivors]
    return found


def as_dict(result: Result) -> dict[str, Any]:
    """Return everything for machines; the same seed gives the same value."""
    return {
        "verdict": verdict_of(result.verdict),
        "seed": result.options.seed,
        "quick": result.options.quick,
        "rows": [
            {
                "family": row.family,
                "engine": row.engine,
                "steps": row.steps,
                "judged": row.judged,
                "premises": row.premises,
                "verdict": row.verdict,
            }
            for row in rows(result)
        ],
        "premises": {engine: dict(sorted(result.premises(kind).items())) for kind, engine in ENGINES if result.of(kind)},
        "witnesses": dict(sorted(result.witnesses("walk", "machine").items())),
        "premise_never_true": result.never,
        "situations_never_reached": result.unreached,
        "faults": [{"id": done.job.fault, "killed": dict(done.killed), "steps": done.steps} for done in result.of("fault")],
        "faults_survived": dict(result.survivors),
        "recordings": sum(done.recordings for done in result.of("traces")),
        "operations": result.steps("traces"),
        "problems": result.problems,
        "counterexamples": [json.loads(examples.dumps(example)) for example in result.found],
    }


def stem(example: Counterexample, number: int) -> str:
    """Return the file name of a counterexample without its suffix."""
    parts = [f"{number:02}", example.law, example.fault, example.scope, example.engine]
    return "-".join(part for part in parts if part)


def write(result: Result, folder: Path) -> list[Path]:
    """Write check.json and every counterexample as JSON and Markdown; return the JSON files of the counterexamples.

    The counterexamples that an earlier check.json there lists, and nothing else, are removed before the new check.json
    takes its place. Raises OutputError; each file is whole or absent.
    """
    target = output.make_folder(folder)
    written = []
    for number, example in enumerate(result.found, 1):
        file = target / f"{stem(example, number)}.json"
        output.write_atomically(file, examples.dumps(example))
        output.write_atomically(file.with_suffix(".md"), markdown.render(example, str(file)))
        written.append(file)
    names = [file.name for file in written]
    for name in _earlier(target / SUMMARY):
        if name not in names:
            _remove(target / name)
            _remove((target / name).with_suffix(".md"))
    document = {**as_dict(result), "files": names}
    output.write_atomically(target / SUMMARY, json.dumps(document, indent=1, sort_keys=True) + "\n")
    return written


def _earlier(summary: Path) -> list[str]:
    """Return the names of the counterexamples that a check.json lists; what is not of our making lists none."""
    try:
        document = json.loads(summary.read_bytes())
    except (OSError, ValueError, RecursionError):
        return []
    names = document.get("files") if isinstance(document, dict) else None
    # A name as `stem` makes them leads nowhere else, whatever somebody wrote into the file.
    return [name for name in names if isinstance(name, str) and _OURS.fullmatch(name)] if isinstance(names, list) else []


_OURS = re.compile(r"[0-9]{2,}-[A-Za-z0-9-]+\.json")


def _remove(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        what = f"{error.strerror or error}".lower()
        raise output.OutputError(file, what, "it belongs to an earlier check: remove it, or name another folder") from error
