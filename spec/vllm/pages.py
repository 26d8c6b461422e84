"""What a refuted law of a release looks like: a Markdown page, the case as JSON, the recording, and lines for a terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from kvproof.spec import laws as all_laws
from kvproof.spec import output
from kvproof.spec.vllm import runs, shrink
from kvproof.spec.vllm.verdicts import Finding, Row, Table

SHOWN_TOKENS = 24
SHOWN_OPERATIONS = 80


def operations(finding: Finding) -> list[tuple[str, str, str]]:
    """Return the recording's lines as rows: number, what was asked, what came of it; without one, the script's operations."""
    lines = finding.outcome.lines if finding.outcome is not None else b""
    if not lines:
        return [(str(at), _operation(op), "") for at, op in enumerate(finding.case.script)]
    rows = [msgspec.json.decode(line) for line in lines.splitlines()[1:]]
    return [(str(row["i"]), _asked(row), _answered(row)) for row in rows]


def _operation(op: tuple[Any, ...]) -> str:
    return f"{op[0]} {' '.join(_short(part) for part in op[1:])}".strip()


def _short(value: Any) -> str:
    if isinstance(value, list) and len(value) > SHOWN_TOKENS:
        return f"{len(value)} tokens: {', '.join(map(str, value[:SHOWN_TOKENS]))}, ..."
    return json.dumps(value)


def _asked(row: Mapping[str, Any]) -> str:
    args = row["args"]
    if row["op"] == "submit":
        return (
            f"submit {args['request']}: {_short(args['tokens'])} ({len(args['tokens'])} tokens), "
            f"at most {args['max_tokens']} more, priority {args['priority']}"
        )
    return " ".join([row["op"], *(f"{name}={_short(value)}" for name, value in args.items())])


def _answered(row: Mapping[str, Any]) -> str:
    """Return what came of a line, the state left out: what was scheduled, copied, stored and loaded, and the lookups."""
    if "raised" in row:
        return f"raised {row['raised']}"
    result = row["result"]
    parts = [
        f"{name} {json.dumps(value)}"
        for name, value in result.items()
        if name != "calls" and value not in (None, [], {}, False)
    ]
    for call in result.get("calls", []):
        if call["op"] in ("lookup", "lookup_external", "allocate"):
            shown = {name: value for name, value in call["result"].items() if value is not None}
            start = f" from {call['args']['from']}" if "from" in call["args"] else ""
            parts.append(f"{call['op']} {call['args']['request']}{start}: {json.dumps(shown)}")
    return "; ".join(parts)


def page(finding: Finding, table: Table, reproduce: str) -> str:
    """Return the Markdown page of a refuted law; its last line reproduces it."""
    law = next(law for law in all_laws.ALL if law.id == finding.law)
    row = table.row(finding.law)
    out = [f"# {finding.law} does not hold on vLLM {table.version}", "", f"> {law.sentence}", ""]
    where = f"operation {finding.breach.operation}" if finding.breach.operation >= 0 else "the run as a whole"
    out += [f"{_text(finding.breach.message)}, at {where}.", ""]
    out += [f"- {name}: `{_code(value)}`" for name, value in finding.breach.values]
    out += ["", "## Geometry", "", f"{shrink.described(finding.case.scope)}.", ""]
    out += ["| group | kind | block | window | E |", "|---|---|---|---|---|"]
    config = finding.case.scope.config
    for at, (group, size) in enumerate(zip(config.groups, config.group_block_sizes, strict=True)):
        out.append(f"| {at} | {group.kind} | {group.block_size} | {group.window or ''} | {size} |")
    out += ["", "```json", json.dumps(finding.case.scope.header(), sort_keys=True), "```", "", "## Operations", ""]
    out += ["| | operation | answer |", "|---|---|---|"]
    rows = operations(finding)
    for number, asked, answered in rows[-SHOWN_OPERATIONS:]:
        out.append(f"| {number} | {_text(asked)} | {_text(answered)[:600]} |")
    if len(rows) > SHOWN_OPERATIONS:
        out.append(f"\nThe first {len(rows) - SHOWN_OPERATIONS} operations are in the recording.")
    out += ["", "## Expected and actual", "", f"Expected: {law.sentence}", "", f"Actual: {_text(finding.breach.message)}.", ""]
    out += [f"Law {finding.law}, source {law.source} (docs/laws.md)."]
    if row is not None:
        out.append(f"Judged {row.judged:,} times in {table.steps:,} scheduler steps, violated {row.broken:,} times.")
    out += ["", f"The case was found by `{finding.case.origin}` and made smaller. To see it again:", "", f"    {reproduce}"]
    return "\n".join(out) + "\n"


def write(table: Table, folder: Path, asked: str) -> list[Path]:
    """Write the page, the case and the recording of every refuted law; return the pages. Raises OutputError."""
    home = output.make_folder(folder / f"vllm-{table.version}")
    pages = []
    for finding in table.findings:
        stem = home / finding.law
        case = stem.with_suffix(".script.json")
        output.write_atomically(
            case, json.dumps(finding.case.as_json() | {"law": finding.law, "release": table.version}) + "\n"
        )
        if finding.outcome is not None and finding.outcome.lines:
            output.write_bytes_atomically(stem.with_suffix(".ndjson.gz"), runs.packed(finding.outcome.lines))
        text = page(finding, table, reproduce(asked, finding, case))
        output.write_atomically(stem.with_suffix(".md"), text)
        pages.append(stem.with_suffix(".md"))
    return pages


def reproduce(asked: str, finding: Finding, file: Path | None = None) -> str:
    """Return the command that shows a finding again; ``asked`` is how the release was named on the command line."""
    if finding.subject != "scheduler":
        return f"kvproof conform vllm {asked} {finding.case.origin} --law {finding.law}"
    origin = f"--script {file}" if file is not None else finding.case.origin
    return f"kvproof conform vllm {asked} {origin} --law {finding.law}"


def as_dict(table: Table) -> dict[str, Any]:
    """Return a table as JSON knows it."""
    return {
        "release": table.version,
        "trusted": table.trusted,
        "unusable": table.unusable,
        "runs": table.runs,
        "steps": table.steps,
        "operations": table.operations,
        "laws": [_row_dict(row) for row in table.rows],
        "findings": [_finding_dict(finding) for finding in table.findings],
        "differing_runs": dict(sorted(table.differing.items())),
        "unsupported": dict(sorted(table.unsupported.items())),
        "failures": [{"case": case, "what": what} for case, what in table.failures],
        "problems": [{"case": case, "what": what} for case, what in table.problems],
        "stale": list(table.stale),
        "expired": list(table.expired),
    }


def _row_dict(row: Row) -> dict[str, Any]:
    return {
        "law": row.law,
        "verdict": row.verdict,
        "judged": row.judged,
        "broken": row.broken,
        "declared": row.declared,
        "why": row.why,
    }


def _finding_dict(finding: Finding) -> dict[str, Any]:
    return {
        "law": finding.law,
        "subject": finding.subject,
        "found_by": finding.case.origin,
        "operation": finding.breach.operation,
        "message": finding.breach.message,
        "values": dict(finding.breach.values),
        "case": finding.case.as_json(),
    }


def _text(value: str) -> str:
    return value.replace("|", "\\|").replace("\n", " ")


def _code(value: str) -> str:
    text = value.replace("`", "'").replace("\n", " ")
    return text if len(text) <= 600 else text[:597] + "..."
