"""On what values the formulas of `grid` are compared with their functions: each point of the grid, small and large counts."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from typing import Any

from kvproof.proofs.lemmas.grid import GRID

DRAWS = 24
"""Comparisons of a formula with its function at each point of the grid."""

LONG = 100_000

Case = tuple[dict[str, Any], dict[str, Any]]
"""The arguments of a function by name: those that go by their place, and those that go by their name alone."""


def cases(function: Callable[..., Any]) -> tuple[Case, ...]:
    """Return arguments of a function at each point of the grid. Raises KeyError for a parameter that has no values here."""
    choice = random.Random(function.__name__)
    named = {name: one.kind is one.KEYWORD_ONLY for name, one in inspect.signature(function).parameters.items()}
    drawn = (values(choice, *point) for point in GRID for _ in range(DRAWS))
    return tuple(
        (
            {name: found[name] for name, alone in named.items() if not alone},
            {name: found[name] for name, alone in named.items() if alone},
        )
        for found in drawn
    )


def difference(name: str, case: Case, formula: Callable[..., Any], function: Callable[..., Any]) -> str:
    """Return in words where a formula and a function differ; empty where they do not. A formula takes all by their place."""
    placed, named = case
    real, made = function(*placed.values(), **named), formula(*placed.values(), *named.values())
    if real == made:
        return ""
    arguments = ", ".join(f"{parameter} = {value}" for parameter, value in {**placed, **named}.items())
    return f"{name}({arguments}) is {real}, and the formula says {made}"


def values(choice: random.Random, size: int, ranks: int, interleave: int) -> dict[str, Any]:
    """Return values for all arguments that a formula may have, for one point of the grid."""
    effective = size * ranks

    def count(least: int = 0) -> int:
        """Any number of tokens: few, many, or beside the end of a block."""
        edge = choice.randrange(4) * effective + choice.randrange(-1, 2)
        return max(least, choice.choice([choice.randrange(4 * effective), choice.randrange(LONG), edge]))

    return {
        "block_size": size,
        "dcp_size": ranks,
        "interleave": interleave,
        "sharded": choice.random() < 0.5,
        "position": count(),
        "rank": choice.randrange(ranks),
        "block_id": choice.randrange(1000),
        "block": choice.randrange(1000),
        "offset": choice.randrange(size),
        "num_tokens": count(),
        "max_model_len": count(1),
        "width": choice.randrange(1000),
        "token_alignment": 128,
        "num_speculative_blocks": choice.randrange(5),
        "j": choice.randrange(ranks),
        "factor": ranks,
        "index": choice.randrange(1000),
        "effective_size": effective,
        "hash_block": interleave,
        "chunk": choice.choice([choice.randrange(1, 1000), choice.randrange(1, 9)]),
        "hashes": effective // interleave,
        "tokens": count(),
        "aligned": effective * choice.randrange(1000),
        "external": count(1),
        "size": effective,
        "n": count(1),
        "unit": choice.choice([effective, interleave, size]),
        "eagle": choice.random() < 0.5,
        "fine_grained": choice.random() < 0.5,
        "scheduler_block": effective,
        "computed": choice.choice([count(), choice.randrange(20)]),
        "_computed": count(),
        "window": choice.randrange(1, 40),
        "extra": choice.randrange(3),
    }
