"""Judging an implementation in one call: ``check_all_laws(adapter)``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvproof.spec.conformance.adapter import Adapter
from kvproof.spec.conformance.reports import DifferenceGroup, LawVerdict, Refuted, Report, ScopeRun, Verdict

__all__ = [
    "DifferenceGroup",
    "LawVerdict",
    "Refuted",
    "Report",
    "ScopeRun",
    "Verdict",
    "check_all_laws",
]

LIMIT = 10.0
"""Seconds within which an action must be answered."""


def check_all_laws(
    adapter: Adapter,
    *,
    laws: Sequence[str] | None = None,
    scopes: Sequence[str] | None = None,
    seed: int = 0,
    walks: int | None = None,
    steps: int | None = None,
    policies: Sequence[str] = (),
    isolation: bool = True,
    limit: float = LIMIT,
    progress: Callable[[str], None] = lambda doing: None,
) -> Report:
    """Judge an implementation by generated runs and return a verdict for every law.

    ``laws`` are ids or letters of families, ``scopes`` names of scopes (None: all of them, where the adapter supports the
    configuration); ``walks`` per scope and ``steps``, actions per walk, are the budget. ``policies`` are the settings that the
    implementation declares, as ``field=value``, beside what the adapter declares itself. With ``isolation`` the adapter runs in
    a forked process, so that a hang of more than ``limit`` seconds or a crash is a verdict (LV-9). ``progress`` is told what is
    being done. Raises UserError for unknown names, AdapterError if the adapter breaks its contract.
    """
    raise NotImplementedError
