"""The result of a check as rows of a table, as JSON, and as files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from attrs import frozen

from kvproof.spec import counterexample as examples
from kvproof.spec import distribution, faults
from kvproof.spec.check import Done, Result, expected_of
from kvproof.spec.engines import rules, witnesses
from kvproof.spec.exits import ExitCode
from kvproof.spec.report import files

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
        "kvproof": distribution.version(),
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


def write(result: Result, folder: Path) -> list[Path]:
    """Write check.json and every counterexample as JSON and Markdown; return the JSON files of the counterexamples."""
    return files.write(result.found, as_dict(result), folder, SUMMARY)
