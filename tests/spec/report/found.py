"""Counterexamples for the tests of reports: planted faults of several families, found by the explorer in small scopes."""

from __future__ import annotations

from functools import cache

from kvproof.spec.counterexample import Counterexample
from kvproof.spec.exploring import jobs, kills, scopes
from kvproof.spec.exploring.jobs import Asked, Job
from kvproof.spec.report import film as films
from kvproof.spec.report.rerun import Rerun, State

FAULTS = ("M-LRU-1", "M-COW-2", "M-HO-3", "M-TBL-1", "M-HIT-1", "M-POOL-2", "M-GEO-1")
"""Eviction, copy-on-write, handoffs, tables, hits, references, stores: each breaks a law of another family."""


@cache
def found(fault: str) -> Counterexample:
    """Return the shortest counterexample to a fault in its pinned scope."""
    kill = kills.table()[fault]
    scope = scopes.by_name(kill.scope)
    example = jobs.perform(Job(Asked(fault=fault, laws=(kill.law,)), scope, fault)).example
    assert example is not None
    return example


def taken_at_its_word(example: Counterexample) -> Rerun:
    """Return a counterexample as if its evidence were what its law gives: for pages of evidence that no fault here brings."""
    return Rerun(example, State.BREAKS, (), films.shoot(example))
