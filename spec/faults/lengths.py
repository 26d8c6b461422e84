"""Pinned lengths, in actions, of the shortest counterexample that shrinking has found for each fault.

A test in `make deep` finds and shrinks them again; a length that grew is a change of the model or of the engines.
"""

from __future__ import annotations

LENGTHS: dict[str, int] = {}
