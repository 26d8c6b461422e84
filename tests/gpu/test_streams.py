"""Order between streams, on a stand-in for CUDA that writes down who waits for what."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

torch = pytest.importorskip("torch")

from kvproof.gpu import differential, goldens  # noqa: E402
from kvproof.gpu.streams import LOADS, STORES, Streams  # noqa: E402

CUDA = torch.device("cuda")


class FakeCuda:
    """Says what was asked of it, in order: streams by name, events by the stream that they were recorded on."""

    def __init__(self):
        self.said, self.made = [], 0
        self.current = FakeStream(self, "compute")

    def Stream(self, device):
        self.made += 1
        return FakeStream(self, f"side {self.made}")

    def Event(self):
        return FakeEvent()

    def current_stream(self, device):
        return self.current

    @contextmanager
    def stream(self, stream):
        before, self.current = self.current, stream
        yield
        self.current = before

    def synchronize(self, device):
        self.said.append("all done")


class FakeStream:
    def __init__(self, cuda, name):
        self.cuda, self.name = cuda, name

    def wait_stream(self, other):
        self.cuda.said.append(f"{self.name} waits for {other.name}")

    def wait_event(self, event):
        self.cuda.said.append(f"{self.name} waits for event of {event.stream.name}")


class FakeEvent:
    def record(self, stream):
        self.stream = stream


def test_a_transfer_waits_for_compute_and_compute_waits_for_it():
    cuda = FakeCuda()
    streams = Streams(CUDA, cuda)
    streams.compute()
    assert cuda.said == []
    with streams.transfer(STORES):
        assert cuda.current.name == "side 1"
    assert cuda.current.name == "compute"
    streams.compute()
    assert cuda.said == ["side 1 waits for compute", "compute waits for event of side 1"]


def test_transfers_of_both_directions_wait_for_each_other():
    cuda = FakeCuda()
    streams = Streams(CUDA, cuda)
    with streams.transfer(STORES):
        pass
    with streams.transfer(LOADS):
        assert cuda.current.name == "side 2"
    assert cuda.said[1:] == ["side 2 waits for compute", "side 2 waits for event of side 1"]
    cuda.said.clear()
    streams.compute()
    assert cuda.said == ["compute waits for event of side 1", "compute waits for event of side 2"]


def test_the_host_waits_only_where_it_settles():
    cuda = FakeCuda()
    streams = Streams(CUDA, cuda)
    with streams.transfer(LOADS):
        pass
    assert "all done" not in cuda.said
    streams.settle()
    assert cuda.said[-1] == "all done"


def test_on_a_cpu_nothing_waits():
    cuda = FakeCuda()
    streams = Streams(torch.device("cpu"), cuda)
    with streams.transfer(STORES):
        pass
    streams.compute()
    streams.settle()
    assert cuda.said == []
    assert cuda.made == 0


def golden_run(cuda):
    """The run of G2 and G3, with stores and a load, on CPU tensors whose streams are the stand-in's: actions and what was said."""
    script = goldens.g2()
    both = differential.begin(script.config)
    both.tensors.streams = Streams(CUDA, cuda)
    for action in script.actions:
        at = len(cuda.said)
        both.act(action)
        assert both.difference is None, both.difference.text()
        yield type(action).__name__, cuda.said[at:]


def test_every_part_of_a_step_waits_for_the_transfers_that_were_issued():
    cuda, issued = FakeCuda(), set()
    for kind, said in golden_run(cuda):
        issued |= {"RunStore": {"side 1"}, "RunLoad": {"side 2"}}.get(kind, set())
        waited = {line.rsplit("of ", 1)[1] for line in said if line.startswith("compute waits")}
        if kind == "Execute":
            assert waited == issued
        else:
            assert not waited or kind == "Output"
    assert issued == {"side 1", "side 2"}


def test_a_completion_waits_on_the_host_before_it_gives_anything_back():
    # Once for the completion, and once for the comparison behind every action.
    counts: dict[str, list[int]] = {"CompleteStore": [], "CompleteLoad": [], "RunStore": [], "BeginStep": []}
    for kind, said in golden_run(FakeCuda()):
        counts.setdefault(kind, []).append(said.count("all done"))
    assert set(counts["CompleteStore"]) == set(counts["CompleteLoad"]) == {2}
    assert set(counts["RunStore"]) == set(counts["BeginStep"]) == {1}
