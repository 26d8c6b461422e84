"""Ranks as processes: each has the bytes of its rank alone, and outputs are summed over them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from kvproof.core.config import Group, configure  # noqa: E402
from kvproof.gpu import differential, faults, ranks, sources  # noqa: E402
from kvproof.spec.engines import scopes  # noqa: E402
from kvproof.spec.exits import UserError  # noqa: E402


@pytest.mark.skipif(bool(ranks.available(ranks.GLOO, 2)), reason="this torch has no gloo")
def test_two_processes_are_equal_to_the_model_and_sum_their_outputs():
    first, second = ranks.run("fa4-m4-n2", 1, 120)
    assert (first.rank, second.rank) == (0, 1)
    assert (first.difference, second.difference) == ("", "")
    assert first.performed == second.performed > 60
    assert first.outputs == second.outputs > 3


@pytest.mark.parametrize("rank", [0, 1])
def test_one_rank_holds_its_bytes_alone(rank):
    scope = scopes.by_name("fa4-m4-n2")
    config = scope.config()
    actions = sources.walked(scope, 1, 80, "cpu").both.actions
    # Without the other rank an output is a part of the sum, so it is not compared here: nothing is summed.
    both = differential.begin(config, "cpu", (rank,), lambda values: values)
    for action in actions:
        both.act(action)
        if both.difference is not None:
            assert both.difference.part == "output"
            both.difference = None
    assert both.tensors.memory.shape[0] == 1


def test_the_parts_of_all_ranks_add_up():
    config = configure((Group("full_attention", 4), Group("mamba_align", 4)), dcp_size=2, num_blocks=40)
    whole = differential.begin(config)
    parts = [differential.begin(config, "cpu", (rank,), lambda values: values) for rank in range(2)]
    from kvproof.gpu.goldens import g6

    for action in g6().actions:
        for both in (whole, *parts):
            both.act(action)
            both.difference = None
    sums = [
        (one + other + 2**63) % 2**64 - 2**63
        for (_, _, one), (_, _, other) in zip(parts[0].outputs, parts[1].outputs, strict=True)
    ]
    assert sums == [value for _, _, value in whole.outputs]
    assert len(sums) == 4


def test_a_wrong_rank_is_named():
    config = configure((Group("full_attention", 4),), dcp_size=2, num_blocks=8)
    both = differential.begin(config, "cpu", (1,), lambda values: values)
    with faults.planted(faults.by_id("D-SLOT-2")):
        from kvproof.gpu.goldens import Script

        for action in Script(config).submit(0, 6).chunk(0, 6).actions:
            both.act(action)
            if both.difference is not None:
                break
    assert both.difference is not None
    assert dict(both.difference.place)["rank"] == 1


def test_nccl_needs_as_many_devices_as_ranks():
    if torch.cuda.device_count() >= 2:
        pytest.skip("there are two devices")
    assert "nccl needs 2 CUDA devices" in ranks.available(ranks.NCCL, 2)
    with pytest.raises(UserError, match="not run, nccl needs 2 CUDA devices"):
        ranks.run("fa4-m4-n2", 0, 5, ranks.NCCL)
