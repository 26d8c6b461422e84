"""Settings for all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

LINKS = Path(__file__).parent / "_path" / "kvproof"

for _name in ("core", "spec", "gpu", "proofs"):
    if not (LINKS / _name).is_dir():
        pytest.exit(
            f"{LINKS / _name} is not a link to the folder {_name}/. The checkout has no symbolic links: on Windows turn on "
            "developer mode, run `git config core.symlinks true` and check out again.",
            returncode=1,
        )

# Bounded by steps, never by time, and the same examples on every machine; `make deep` looks for new ones.
settings.register_profile("ci", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("deep", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
