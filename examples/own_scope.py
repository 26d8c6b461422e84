"""Explores a scope of one's own: a configuration with bounds that make its graph small. docs/explore.md goes through it."""

from __future__ import annotations

from kvproof.spec.engines.scope_parts import full, mamba
from kvproof.spec.exploring.bounds import Bounds
from kvproof.spec.exploring.jobs import Asked, Job, perform
from kvproof.spec.exploring.scope import Scope

MINE = Scope(
    "mine",
    (full(2), mamba(4)),
    Bounds(("aaaaa",), submits=2, outputs=1, alphabet=(0,)),
    {"max_model_len": 8, "num_blocks": 12, "max_running": 2},
)


def main() -> None:
    """Explore it, judged by all laws and for liveness, and say what was covered."""
    done = perform(Job(Asked(), MINE))
    found = done.certificate
    print(f"{found.end}: {found.orbits} orbits, {found.edges} edges, depth {found.depth}")
    print(f"violation: {done.example.law if done.example is not None else 'none'}")
    print("leaves out:", *found.leaves_out, sep="\n  ")
    print(f"{len(found.never)} laws were never judged, {len(found.witnesses)} situations were reached")


if __name__ == "__main__":
    main()
