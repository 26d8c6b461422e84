"""Bytes that move whole: zeroing, block copies small and large, and both directions between the tiers."""

import importlib.util
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from kvproof.core.config import Group, Offload, configure  # noqa: E402
from kvproof.gpu import bandwidth, copies, pool  # noqa: E402
from kvproof.gpu.world import new_world  # noqa: E402

CPU = torch.device("cpu")


def blocks(*ids):
    return pool.ids(ids, CPU)


def numbered(ranks=2, count=6, words=3):
    return torch.arange(ranks * count * words).view(ranks, count, words).clone()


def test_zeroing_touches_the_named_blocks_of_every_rank_alone():
    memory, before = numbered(), numbered()
    copies.zero(memory, blocks(1, 4))
    assert int(memory[:, [1, 4]].abs().sum()) == 0
    assert torch.equal(memory[:, [0, 2, 3, 5]], before[:, [0, 2, 3, 5]])


@pytest.mark.parametrize("words", [3, copies.LARGE // 8])
def test_copies_of_one_step_read_what_was_there_before_any_of_them(words):
    memory, before = numbered(words=words), numbered(words=words)
    copies.copy(memory, blocks(1, 2), blocks(2, 5))
    assert torch.equal(memory[:, 2], before[:, 1])
    assert torch.equal(memory[:, 5], before[:, 2])
    assert torch.equal(memory[:, [0, 1, 3, 4]], before[:, [0, 1, 3, 4]])


@pytest.mark.parametrize("words", [3, copies.LARGE // 8])
def test_a_copy_takes_every_slot_of_every_rank(words):
    memory, before = numbered(words=words), numbered(words=words)
    copies.copy(memory, blocks(3, 3), blocks(1, 5))
    assert torch.equal(memory[:, 1], before[:, 3])
    assert torch.equal(memory[:, 5], before[:, 3])
    assert torch.equal(memory[:, [0, 2, 3, 4]], before[:, [0, 2, 3, 4]])


def test_a_gather_collects_blocks_in_the_given_order():
    for words in (4, 3):
        memory = numbered(ranks=1, words=words)[0]
        out = torch.zeros(3, words, dtype=torch.int64)
        copies.gather(memory, torch.tensor([5, 0, 2]), out)
        assert torch.equal(out, memory[[5, 0, 2]])


def test_stores_and_loads_move_whole_blocks_of_every_rank():
    config = configure((Group("full_attention", 4),), dcp_size=2, num_blocks=6, offload=Offload(num_blocks=5))
    world = new_world(config, CPU)
    world.memory.copy_(numbered(words=4))
    before = numbered(words=4)
    copies.store(world, blocks(5, 2), blocks(1, 4))
    assert world.host is not None
    assert torch.equal(world.host.memory[:, [1, 4]], before[:, [5, 2]])
    assert int(world.host.memory[:, [0, 2, 3]].abs().sum()) == 0
    copies.load(world, blocks(4), blocks(3))
    assert torch.equal(world.memory[:, 3], before[:, 2])
    assert torch.equal(world.memory[:, [0, 1, 2, 4, 5]], before[:, [0, 1, 2, 4, 5]])


def test_bandwidth_is_of_bytes_that_arrived():
    found = bandwidth.measure(CPU, 1 << 20, times=1, sizes=(1 << 16,))
    assert [one.what for one in found] == ["plain copy", "block gather", "block copies"]
    assert {(one.block_bytes, one.moved_bytes) for one in found} == {(1 << 16, 1 << 20)}
    assert found[0].part == 1.0
    assert all(one.bytes_per_second > 0 and one.part > 0 for one in found)
    assert bandwidth.across(CPU, 1 << 20) == []


def test_bandwidth_of_blocks_that_do_not_arrive_is_an_error(monkeypatch):
    monkeypatch.setattr(copies, "straight", lambda source, sources, destination, destinations: None)
    with pytest.raises(AssertionError, match="did not arrive"):
        bandwidth.measure(CPU, 1 << 18, times=1, sizes=(1 << 16,))


@pytest.mark.parametrize("words", [3, copies.LARGE // 8])
def test_bytes_go_straight_from_one_pool_to_another(words):
    source, target = numbered(ranks=1, words=words)[0], torch.zeros(4, words, dtype=torch.int64)
    copies.straight(source, torch.tensor([5, 1]), target, torch.tensor([0, 3]))
    assert torch.equal(target[[0, 3]], source[[5, 1]])
    assert int(target[[1, 2]].abs().sum()) == 0


INTERPRETED = """
import torch
from kvproof.gpu import kernels
pool = torch.arange(9 * 1500).view(9, 1500).clone()
before = pool.clone()
kernels.copy_blocks(pool, pool, torch.tensor([3, 8], dtype=torch.int32), torch.tensor([1, 5], dtype=torch.int32))
assert torch.equal(pool[[1, 5]], before[[3, 8]])
rest = [0, 2, 3, 4, 6, 7, 8]
assert torch.equal(pool[rest], before[rest])
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed; it comes with torch for CUDA")
def test_the_kernel_copies_whole_blocks_and_nothing_else():
    code = f"import sys; sys.path[:0] = {sys.path!r}\n{INTERPRETED}"
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


def test_without_a_kernel_that_works_the_reason_is_told():
    # On a CPU the probe cannot succeed: Triton is missing, or has no driver.
    kernels, why = copies.tried(CPU)
    assert kernels is None
    assert why
    assert copies.kernels_on(CPU) is None
