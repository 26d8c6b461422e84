"""Scenarios of the model's own tests, performed on tensors as well: corners that random runs reach seldom."""

from __future__ import annotations

import importlib
import inspect

import pytest

torch = pytest.importorskip("torch")

from tests.gpu.beside import DRIVERS, with_tensors  # noqa: E402

MODULES = [
    "tests.core.test_async",
    "tests.core.test_checkpoints",
    "tests.core.test_deferred_frees",
    "tests.core.test_execute",
    "tests.core.test_failed_loads",
    "tests.core.test_late_outputs",
    "tests.core.test_outputs",
    "tests.core.test_recurrent",
    "tests.core.offload.test_loads",
    "tests.core.offload.test_corrections",
]
"""Modules whose tests drive worlds with one of ``DRIVERS``."""


@pytest.fixture(autouse=True)
def _tensors_beside(monkeypatch):
    for name in MODULES:
        module = importlib.import_module(name)
        for driver in DRIVERS:
            if vars(module).get(driver.__name__) is driver:
                monkeypatch.setattr(module, driver.__name__, with_tensors(driver))


LONG = {"test_states_are_what_tables_and_keys_promise"}
"""Random runs of their own, of which there are enough."""


def scenarios():
    """The tests of the modules, under names that tell where they come from; none that plants a fault in the model."""
    for name in MODULES:
        for test, function in vars(importlib.import_module(name)).items():
            if test.startswith("test_") and test not in LONG and "monkeypatch" not in inspect.signature(function).parameters:
                yield f"{test}__{name.rpartition('test_')[2]}", function


# Collected here once more; the fixture puts tensors beside the model in them.
globals().update(scenarios())
