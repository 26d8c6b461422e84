"""The golden traces on tensors: the tests of the model run again with tensors beside it, and their values by hand."""

from __future__ import annotations

from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

from kvproof.gpu import differential, goldens  # noqa: E402
from tests.core import test_goldens as device_goldens  # noqa: E402
from tests.core.offload import test_golden_stores as host_goldens  # noqa: E402
from tests.driving import Driver  # noqa: E402
from tests.gpu.beside import with_tensors  # noqa: E402
from tests.offloading import Hosted  # noqa: E402


def golden_tests(module: ModuleType) -> dict[str, object]:
    return {name: value for name, value in vars(module).items() if name.startswith("test_g")}


@pytest.fixture(autouse=True)
def _tensors_beside(monkeypatch):
    monkeypatch.setattr(device_goldens, "Driver", with_tensors(Driver))
    monkeypatch.setattr(host_goldens, "Hosted", with_tensors(Hosted))


# Collected here once more; the fixture puts tensors beside the model in them.
globals().update(golden_tests(device_goldens))
globals().update(golden_tests(host_goldens))


def tables(both, request):
    return [holding.table.tolist() for holding in both.tensors.requests[request].groups]


@pytest.mark.parametrize("name", goldens.SCRIPTS)
def test_a_shipped_golden_trace_is_equal_on_tensors(name):
    script = goldens.SCRIPTS[name]()
    both = differential.run(script.config, script.actions)
    assert both.difference is None, both.difference.text()
    assert both.performed == len(script.actions)
    assert both.outputs


def through(script, kind, number, request=None):
    """The run up to the n-th action of a kind, and of a request, counted from 0."""
    found = [
        at
        for at, action in enumerate(script.actions)
        if type(action).__name__ == kind and (request is None or action.request == request)
    ]
    return differential.run(script.config, script.actions[: found[number] + 1])


def test_g6_the_tables_of_the_semantics():
    both = through(goldens.g6(), "Allocate", 0, 1)
    assert tables(both, 1) == [[1, 4], [0, 0, 3, 5]]
    both = through(goldens.g6(), "Drain", 2)
    assert [(int(source), int(copy)) for _, source, copy in both.tensors.plan.copies] == [(2, 4)]


def test_g13_the_queue_of_the_semantics():
    script = goldens.g13()
    both = differential.run(script.config, script.actions)
    assert both.tensors.pool.free.tolist() == [5, 4, 6, 7, 8, 9, 10, 11, 2, 1, 3]


def test_g3_the_loads_of_the_semantics():
    both = through(goldens.g2(), "Allocate", 2)
    assert tables(both, 1) == [[3], [0, 0, 4]]
    assert both.tensors.host is not None
    (load,) = both.tensors.host.loads
    assert (load.host.tolist(), load.device.tolist()) == ([2, 1], [3, 4])
    assert both.tensors.pool.ref[[3, 4]].tolist() == [2, 2]
    assert both.tensors.host.pool.ref[[1, 2]].tolist() == [1, 1]


def test_g11_the_relocation_of_the_semantics():
    script = goldens.g11()
    assert tables(through(script, "Output", 0), 0)[1] == [2, 3]
    assert tables(through(script, "Output", 1), 0)[1] == [2, 0, 0, 0, 3, 8]
    assert tables(through(script, "Output", 2), 0)[1] == [0, 0, 0, 0, 3, 0, 0, 0, 8, 13]
