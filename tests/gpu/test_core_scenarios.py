"""Scenarios of the model's own tests, performed on tensors as well: corners that random runs reach seldom."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from tests.gpu.beside import DRIVERS, with_tensors  # noqa: E402

CORE = Path(__file__).parents[1] / "core"


def driving() -> list[str]:
    """The modules of the model's tests whose tests drive worlds with one of ``DRIVERS``, by themselves or by a helper."""
    found = []
    for path in sorted(CORE.rglob("test_*.py")):
        name = ".".join(path.relative_to(CORE.parents[1]).with_suffix("").parts)
        if any(vars(importlib.import_module(name)).get(driver.__name__) is driver for driver in DRIVERS):
            found.append(name)
    return found


MODULES = driving()


@pytest.fixture(autouse=True)
def _tensors_beside(monkeypatch):
    for name in MODULES:
        module = importlib.import_module(name)
        for driver in DRIVERS:
            if vars(module).get(driver.__name__) is driver:
                monkeypatch.setattr(module, driver.__name__, with_tensors(driver))


LONG = {
    "test_states_are_what_tables_and_keys_promise",
    "test_an_identical_resend_hits_the_checkpoint",
    "test_every_kind_keeps_its_promises",
}
"""Random runs of their own, of which there are enough, and runs over thousands of tokens."""


def scenarios():
    """The tests of the modules, under names that tell where they come from; none that plants a fault in the model."""
    for name in MODULES:
        for test, function in vars(importlib.import_module(name)).items():
            if test.startswith("test_") and test not in LONG and "monkeypatch" not in inspect.signature(function).parameters:
                yield f"{test}__{name.rpartition('test_')[2]}", function


# Collected here once more; the fixture puts tensors beside the model in them.
globals().update(scenarios())
