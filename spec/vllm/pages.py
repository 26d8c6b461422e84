"""What a refuted law of a release looks like: a Markdown page, the case as JSON, the recording, and lines for a terminal."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kvproof.spec import laws as all_laws
from kvproof.spec import output
from kvproof.spec.laws.base import Law
from kvproof.spec.vllm import runs, shrink
from kvproof.spec.vllm.verdicts import Finding, Row, Table

SHOWN_TOKENS = 24
SHOWN_OPERATIONS = 80
SCRIPT_ENDING = ".script.json"


def operations(finding: Finding) -> list[tuple[str, str, str]]:
    """Return the recording's lines as rows: number, what was asked, what came of it; without one, the script's operations."""
    lines = finding.outcome.lines if finding.outcome is not None else b""
    if finding.case is None:
        return [(str(at), what, "") for at, what in enumerate(finding.about)]
    if not lines:
        return [(str(at), _operation(op), "") for at, op in enumerate(finding.case.script)]
    rows = [msgspec.json.decode(line) for line in lines.splitlines()[1:]]
    return [(str(row["i"]), _asked(row), _answered(row)) for row in rows]


WORDS = (
    "N: `decode_context_parallel_size`, ranks that share the positions of a sharded group; H: `hash_block_size`, tokens per "
    "prefix hash; S: `scheduler_block_size`; E: tokens of one entry of a group's table (docs/semantics.md, section 1)"
)
"""The letters of `described` and of the table of groups, in vLLM's names."""

SECTION = re.compile(r"\b[1-9]\.\d\b")


def sections(sentence: str) -> str:
    """Return where a law's sentence sends its reader, or nothing."""
    found = list(dict.fromkeys(SECTION.findall(sentence)))
    return f"docs/semantics.md, section{'s' * (len(found) > 1)} {', '.join(found)}" if found else ""


def cut(text: str, most: int) -> str:
    """Return a text of at most so many characters; a cut one says so."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text) - most:,} more characters)"


def derived(finding: Finding) -> list[str]:
    """Return what the release derives from the configuration otherwise than the semantics, by its recording's header."""
    lines = finding.outcome.lines if finding.outcome is not None else b""
    if finding.case is None or not lines:
        return []
    own = msgspec.json.decode(lines.splitlines()[0])["config"]
    ours = finding.case.scope.header()
    names = ("group_block_sizes", "scheduler_block_size", "clip_block_size", "fine_grained_hits")
    return [
        f"{name}: {json.dumps(own[name])}, by the semantics {json.dumps(ours[name])}"
        for name in names
        if name in own and own[name] != ours[name]
    ]


def together(finding: Finding, table: Table) -> list[str]:
    """Return the other laws that the same generated case refutes: they may share one cause."""
    if finding.case is None:
        return []
    return [other.law for other in table.findings if other.law != finding.law and other.origin == finding.origin]


def described(finding: Finding) -> str:
    """Return in a line where a finding was seen."""
    return f"asked of its {finding.subject}" if finding.case is None else shrink.described(finding.case.scope)


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


def page(finding: Finding, table: Table, again: str) -> str:
    """Return the Markdown page of a refuted law; its last line, ``again``, reproduces it."""
    law = law_of(finding)
    out = [f"# {finding.law} does not hold on vLLM {table.version}", "", f"> {law.sentence}", ""]
    where = f", at operation {finding.breach.operation}" if finding.breach.operation >= 0 else ""
    out += [f"{_text(finding.breach.message)}{where}.", ""]
    out += [f"- {name}: `{_code(value)}`" for name, value in finding.breach.values]
    where = sections(law.sentence)
    out += ["", f"({where})"] if where else []
    others = together(finding, table)
    if others:
        out += ["", f"The same generated case refutes {', '.join(others)}, too: they may share one cause."]
    out += ["", "## Geometry", "", f"{described(finding)}.", "", f"{WORDS}.", "", *_geometry(finding), "", "## Operations", ""]
    rows = operations(finding)
    if len(rows) > SHOWN_OPERATIONS:
        out += [f"The first {len(rows) - SHOWN_OPERATIONS} operations are in the recording.", ""]
    out += ["| | operation | answer |", "|---|---|---|"]
    out += [f"| {number} | {_text(asked)} | {_text(cut(said, 600))} |" for number, asked, said in rows[-SHOWN_OPERATIONS:]]
    values = dict(finding.breach.values)
    expected, actual = values.get("expected"), values.get("actual")
    said = [f"Expected: {law.sentence if expected is None else f'`{_code(expected)}`'}", ""]
    said += [f"Actual: {_text(finding.breach.message) + '.' if actual is None else f'`{_code(actual)}`'}", ""]
    out += ["", "## Expected and actual", "", *said]
    out += [f"Law {finding.law}, source {law.source} (docs/laws.md)."]
    row = table.row(finding.law)
    if row is not None:
        out.append(f"Judged {row.judged:,} times in {table.steps:,} scheduler steps, violated {row.broken:,} of these times.")
    if finding.outcome is not None and finding.outcome.traceback:
        out += ["", "```text", *finding.outcome.traceback.rstrip().splitlines(), "```"]
    out += ["", f"Beside this page: {beside(finding)}."]
    how = "" if finding.origin.startswith("--script") else " and made smaller"
    out += ["", f"Found by `{finding.origin}`{how}. To see it again:", "", f"    {again}"]
    return "\n".join(out) + "\n"


def beside(finding: Finding) -> str:
    """Return in words which files a report has beside the page of a finding."""
    if finding.case is None:
        return f"no case and no recording, since it was asked of its {finding.subject} without a run"
    recorded = finding.outcome is not None and finding.outcome.lines
    recording = f"the recording {finding.law}.ndjson.gz" if recorded else "no recording, since no line was written"
    return f"the case {finding.law}{SCRIPT_ENDING} and {recording}"


def law_of(finding: Finding) -> Law:
    """Return the law that a finding is about."""
    return next(law for law in all_laws.ALL if law.id == finding.law)


def _geometry(finding: Finding) -> list[str]:
    if finding.case is None:
        return [f"- {line}" for line in finding.about]
    config = finding.case.scope.config
    out = ["| group | kind | block | window | E |", "|---|---|---|---|---|"]
    for at, (group, size) in enumerate(zip(config.groups, config.group_block_sizes, strict=True)):
        out.append(f"| {at} | {group.kind} | {group.block_size} | {group.window or ''} | {size} |")
    own = derived(finding)
    if own:
        out += ["", "The release itself derives:", "", *(f"- {line}" for line in own)]
    return [
        *out,
        "",
        "What it was asked to run, with the sizes that the semantics derive:",
        "",
        "```json",
        json.dumps(finding.case.scope.header(), sort_keys=True),
        "```",
    ]


def write(table: Table, folder: Path, asked: str, budget: Sequence[str] = ()) -> list[Path]:
    """Write the page, the case and the recording of every refuted law; return the pages. Raises OutputError."""
    home = output.make_folder(folder / f"vllm-{table.version}")
    pages = []
    for finding in table.findings:
        file = None
        if finding.case is not None:
            file = home / f"{finding.law}{SCRIPT_ENDING}"
            case = finding.case.as_json() | {"law": finding.law, "release": table.version}
            output.write_atomically(file, json.dumps(case) + "\n")
        if finding.outcome is not None and finding.outcome.lines:
            output.write_bytes_atomically(home / f"{finding.law}.ndjson.gz", runs.packed(finding.outcome.lines))
        pages.append(home / f"{finding.law}.md")
        output.write_atomically(pages[-1], page(finding, table, reproduce(asked, finding, file, budget)))
    return pages


def reproduce(asked: str, finding: Finding, file: Path | None = None, budget: Sequence[str] = ()) -> str:
    """Return the command that shows a finding again.

    ``asked`` is how the release was named on the command line, ``budget`` what else of it decides how much is tried. A case in
    a file needs none of it.
    """
    words = [finding.origin, *budget]
    if finding.case is not None and file is not None:
        words = [f"--script {shlex.quote(str(file))}"]
    elif finding.origin.startswith("--script"):
        words = [finding.origin]
    elif finding.case is not None:
        words = [word for word in words if not word.startswith("--steps")]
    return " ".join(["kvproof conform vllm", asked, *words, f"--law {finding.law}"])


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
        "differences": dict(sorted(table.kinds.items())),
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
        "bent": row.bent,
        "why": row.why,
        "missing": dict(row.missing),
    }


def _finding_dict(finding: Finding) -> dict[str, Any]:
    return {
        "law": finding.law,
        "subject": finding.subject,
        "found_by": finding.origin,
        "operation": finding.breach.operation,
        "message": finding.breach.message,
        "values": dict(finding.breach.values),
        "case": None if finding.case is None else finding.case.as_json(),
        "about": list(finding.about),
    }


def _text(value: str) -> str:
    return value.replace("|", "\\|").replace("\n", " ")


def _code(value: str) -> str:
    text = value.replace("`", "'").replace("\n", " ")
    return cut(text, 600)
