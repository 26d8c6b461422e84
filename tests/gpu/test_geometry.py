"""The tensor forms equal core/geometry.py for every position of a grid."""

import pytest

torch = pytest.importorskip("torch")

from kvproof.core import geometry  # noqa: E402
from kvproof.gpu import geometry as tensors  # noqa: E402

DTYPES = (torch.int32, torch.int64)
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]

# (block size, interleave) with the interleave dividing the block size
BLOCKS = [(b, i) for b in (1, 2, 4, 6, 16) for i in range(1, b + 1) if b % i == 0]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sharded", [True, False])
@pytest.mark.parametrize("dcp_size", [1, 2, 3, 4, 8])
def test_slot_mapping_equals_core_at_every_position(device, dtype, sharded, dcp_size):
    for block_size, interleave in BLOCKS:
        sizes = {"block_size": block_size, "sharded": sharded, "dcp_size": dcp_size}
        columns = 3
        count = columns * geometry.effective_block_size(**sizes)
        rows = [[7, 3, 12], [1, 0, 5]]
        positions = torch.arange(count, dtype=dtype, device=device).expand(2, count)
        table = torch.tensor(rows, dtype=dtype, device=device)
        for rank in range(dcp_size):
            got = tensors.slot_mapping(positions, table, rank, interleave=interleave, **sizes)
            assert got.dtype == dtype
            assert got.device.type == device
            expected = [
                [
                    geometry.slot_mapping(p, rank, row[geometry.block_column(p, **sizes)], interleave=interleave, **sizes)
                    for p in range(count)
                ]
                for row in rows
            ]
            assert got.tolist() == expected


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dcp_size", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("interleave", [1, 2, 4, 16])
def test_local_lengths_equal_core(device, dtype, dcp_size, interleave):
    lengths = torch.arange(3 * dcp_size * interleave + 2, dtype=dtype, device=device)
    got = tensors.local_lengths(lengths, dcp_size=dcp_size, interleave=interleave)
    assert got.dtype == dtype
    assert got.tolist() == [
        [geometry.local_length(n, rank, dcp_size, interleave) for rank in range(dcp_size)] for n in lengths.tolist()
    ]
    assert got.sum(-1).tolist() == lengths.tolist()
    assert tensors.has_context(lengths).tolist() == [geometry.has_context(n) for n in lengths.tolist()]


@pytest.mark.parametrize("device", DEVICES)
def test_large_positions_need_no_narrow_integer(device):
    # The last position of a million tokens in a block whose slots lie beyond 32 bits.
    block = 2**31
    position = 1_048_575
    table = torch.full((8192,), block, dtype=torch.int64, device=device)
    got = tensors.slot_mapping(
        torch.tensor([position], device=device), table, 7, block_size=16, sharded=True, dcp_size=8, interleave=16
    )
    assert got.tolist() == [geometry.slot_mapping(position, 7, block, block_size=16, sharded=True, dcp_size=8, interleave=16)]


def test_a_position_beyond_the_row_is_an_error():
    with pytest.raises((RuntimeError, IndexError)):
        tensors.slot_mapping(torch.tensor([32]), torch.tensor([4]), 0, block_size=16, sharded=True, dcp_size=2, interleave=1)
