"""What stands beside the table of verdicts: why laws are undetermined, which evidence is weak, what the marks mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvproof.spec.conformance.reports import wrapped
from kvproof.spec.vllm.verdicts import Row, Table

FEW = 10
"""A law that was judged fewer times and never broken has weak evidence."""
WEAK = "*"
UNDETERMINED = (
    "undetermined: a law whose premise was never true, or that asked for something that cannot be seen; then it is not said to "
    "hold, however often it was judged. (N; judged M), and `undetermined M` in the table: N times it asked for what cannot be "
    "seen, M times it was judged and not broken. --json counts each part"
)
FEW_WORDS = f"{WEAK} weak evidence: judged fewer than {FEW} times in a release; with more --steps it is judged more often"


def is_weak(row: Row) -> bool:
    """Tell whether a law that is not refuted rests on few judgements; a violation needs no more than one."""
    return row.verdict in ("holds", "declared", "bent") and row.judged < FEW


def undetermined(tables: Sequence[Table]) -> Iterator[str]:
    """Yield lines that say of every undetermined law why it is, by reason; several releases that differ are named."""
    usable = [table for table in tables if not table.unusable]
    reasons: dict[tuple[str, str], list[str]] = {}
    for at, row in enumerate(usable[0].rows if usable else ()):
        whys: dict[tuple[str, str], list[str]] = {}
        for table in usable:
            cell = table.rows[at]
            if cell.verdict == "undetermined":
                whys.setdefault((_reason(cell), _count(cell)), []).append(table.version)
        for (reason, count), versions in whys.items():
            where = "" if len(versions) == len(usable) else f" in {', '.join(versions)}"
            reasons.setdefault((reason, where), []).append(row.law + (f" ({count})" if count else ""))
    for (reason, where), laws in sorted(reasons.items(), key=lambda item: -len(item[1])):
        yield from wrapped(f"undetermined{where}, {reason}: {', '.join(laws)}")


def _reason(row: Row) -> str:
    if not row.missing:
        return row.why
    return f"asked for what cannot be seen, {', '.join(what for what, _ in row.missing)}"


def _count(row: Row) -> str:
    """Return how often something was missing and how often the law was judged all the same, as ``UNDETERMINED`` says."""
    if not row.missing:
        return ""
    times = sum(count for _, count in row.missing)
    return f"{times:,}; judged {row.judged:,}"
