"""Sizes that do not fit together are refused with a message that says what to do (HB-1)."""

from typing import Any

import pytest

from kvproof.core import geometry, reachability


def refused(pattern):
    return pytest.raises(geometry.GeometryError, match=pattern)


def test_a_geometry_error_is_a_value_error():
    assert issubclass(geometry.GeometryError, ValueError)


@pytest.mark.parametrize("sizes", [(), (0,), (16, -1)])
def test_scheduler_block_needs_positive_sizes(sizes):
    with refused("at least one"):
        geometry.scheduler_block_size(sizes)


def test_one_group_has_one_match_unit():
    with refused("ask for 32"):
        geometry.hash_block_size(sizes=(32,), cacheable=(True,), caching=True, requested=16)


@pytest.mark.parametrize("unit", [0, -8, 32, 3])
def test_match_unit_divides_every_cacheable_size(unit):
    with refused("divisor of 16"):
        geometry.hash_block_size(sizes=(32, 16), cacheable=(True, True), caching=True, requested=unit)


def test_one_flag_for_each_group():
    with pytest.raises(ValueError, match="shorter"):
        geometry.hash_block_size(sizes=(32, 16), cacheable=(True,), caching=True)


GOOD: dict[str, Any] = {
    "scheduler_block": 32,
    "hash_block": 16,
    "block_sizes": (16, 16),
    "sizes": (32, 16),
    "cacheable": (True, True),
}


@pytest.mark.parametrize(
    ("change", "pattern"),
    [
        ({"hash_block": 24}, "hash block 24 does not divide the scheduler block 32"),
        ({"block_sizes": (12, 16)}, "group 0: block size 12"),
        ({"sizes": (32, 24)}, "group 1: block size 16"),
        ({"hash_block": 32}, "group 1: hash block 32"),
    ],
)
def test_sizes_of_a_configuration(change, pattern):
    with refused(pattern):
        geometry.check_sizes(**{**GOOD, **change})


def test_sizes_that_fit_are_accepted():
    geometry.check_sizes(**GOOD)
    geometry.check_sizes(**{**GOOD, "hash_block": 32, "cacheable": (True, False)})


def test_state_compression():
    geometry.check_state_compression(4, 16)
    with refused("3 tokens per state"):
        geometry.check_state_compression(3, 16)


def test_sharding():
    geometry.check_group_sharding(full_attention=True, chunked_local=False, sharded=True, dcp_size=2)
    geometry.check_group_sharding(full_attention=False, chunked_local=False, sharded=False, dcp_size=2)
    geometry.check_group_sharding(full_attention=False, chunked_local=False, sharded=True, dcp_size=1)
    geometry.check_group_sharding(full_attention=False, chunked_local=True, sharded=False, dcp_size=1)
    with refused("replicate this group"):
        geometry.check_group_sharding(full_attention=False, chunked_local=False, sharded=True, dcp_size=2)
    with refused("chunked local"):
        geometry.check_group_sharding(full_attention=False, chunked_local=True, sharded=False, dcp_size=2)


def test_interleave():
    geometry.check_interleave(16, 4)
    geometry.check_interleave(16, 16)
    for interleave in (0, -1, 3, 32):
        with refused("choose a divisor"):
            geometry.check_interleave(16, interleave)


def test_prompt_tail_rule():
    with refused("P-1"):
        geometry.prompt_tail_boundary(50, 16, 3, "P+1")


@pytest.mark.parametrize("widths", [(), (8, 6)])
def test_wrapped_groups_agree_on_the_width(widths):
    with refused("one width"):
        geometry.shared_row_width(widths)


def test_chunk_settings():
    resolve = reachability.resolve_blocks_per_chunk
    assert resolve(blocks_per_chunk=None, chunk_size=None, block_tokens=(32, 16)) == 1
    assert resolve(blocks_per_chunk=3, chunk_size=None, block_tokens=(32, 16)) == 3
    assert resolve(blocks_per_chunk=None, chunk_size=64, block_tokens=(16, 16)) == 4
    assert resolve(blocks_per_chunk=1, chunk_size=None, block_tokens=(16,)) == 1
    assert resolve(blocks_per_chunk=None, chunk_size=1, block_tokens=(1,)) == 1
    with refused("not both"):
        resolve(blocks_per_chunk=1, chunk_size=16, block_tokens=(16,))
    with refused("at least one"):
        resolve(blocks_per_chunk=0, chunk_size=None, block_tokens=(16,))
    with refused("one size"):
        resolve(blocks_per_chunk=None, chunk_size=32, block_tokens=(32, 16))
    for size in (0, -16, 24):
        with refused("positive multiple"):
            resolve(blocks_per_chunk=None, chunk_size=size, block_tokens=(16, 16))


def test_hashes_of_a_chunk():
    with refused("hash block 24"):
        reachability.hashes_per_chunk(64, 32, 24)


def test_offloading_needs_a_group():
    with refused("no offloadable group"):
        reachability.alignment_tokens((), ())


@pytest.mark.parametrize("count", [0, -1, 101])
def test_host_pool_count(count):
    with refused("choose 1 to 100"):
        reachability.host_pool_size(explicit=count, capacity=100, worker_count=None, gpu_blocks=1, cpu_bytes=1, gpu_bytes=1)
