"""The worker's rows on tensors: one buffer per group, a guard, and writes that are staged (2.5, TB-11, TB-13)."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from kvproof.core.config import Group, Profile, configure  # noqa: E402
from kvproof.gpu import pool, rows  # noqa: E402
from kvproof.gpu.pool import TensorError  # noqa: E402

CPU = torch.device("cpu")


def table_of(**settings):
    given: dict[str, Any] = {"max_model_len": 8, "max_running": 3, "num_blocks": 40, **settings}
    return rows.new_rows(configure((Group("mamba_align", 4), Group("mamba_align", 8)), **given), CPU)


def blocks(*ids):
    return pool.ids(ids, CPU)


def entries(table, group, row):
    first = row * table.capacity[group]
    return table.buffers[group][first : first + table.counts[group][row]].tolist()


def test_appends_are_staged_and_written_at_once():
    table = table_of()
    assert table.capacity == (2, 1)
    rows.append(table, 1, [blocks(5, 6), blocks(7)])
    assert table.lengths.tolist() == [[0, 0, 0], [0, 0, 0]]
    assert table.buffers[0].sum() == 0
    rows.apply(table)
    assert table.lengths.tolist() == [[0, 2, 0], [0, 1, 0]]
    assert table.buffers[0].dtype == torch.int32
    assert entries(table, 0, 1) == [5, 6]
    assert entries(table, 1, 1) == [7]


def test_several_appends_of_one_dispatch_stand_behind_each_other():
    table = table_of(max_model_len=16)
    rows.append(table, 0, [blocks(1), blocks(2)])
    rows.append(table, 2, [blocks(8), blocks()])
    rows.append(table, 0, [blocks(3, 4), blocks(5)])
    rows.apply(table)
    assert (entries(table, 0, 0), entries(table, 1, 0)) == ([1, 3, 4], [2, 5])
    assert (entries(table, 0, 2), entries(table, 1, 2)) == ([8], [])


def test_tb_11_an_append_beyond_the_end_changes_no_row_and_no_count_of_any_group():
    table = table_of()
    with pytest.raises(TensorError, match="row 0 of group 1 holds 0 of 1 entries and cannot take 2 more"):
        rows.append(table, 0, [blocks(1), blocks(2, 3)])
    assert table.counts == [[0, 0, 0], [0, 0, 0]]
    assert table.staged == []


def test_under_the_guard_of_the_release_earlier_groups_are_staged():
    table = table_of(profile=Profile(append_guard="per_group"))
    with pytest.raises(TensorError, match="row 0 of group 1"):
        rows.append(table, 0, [blocks(1), blocks(2, 3)])
    assert table.counts == [[1, 0, 0], [0, 0, 0]]


def test_without_the_guard_a_row_runs_over_into_its_neighbour(monkeypatch):
    table = table_of()
    rows.append(table, 1, [blocks(7), blocks(8)])
    rows.apply(table)
    assert entries(table, 0, 1) == [7]
    monkeypatch.setattr(rows, "fits", lambda start, count, capacity: True)
    rows.append(table, 0, [blocks(1, 2, 3), blocks()])
    rows.apply(table)
    assert entries(table, 0, 1) == [3]


def test_manager_blocks_become_kernel_blocks_before_they_are_compared_with_the_capacity():
    table = table_of(append_expansion=2)
    assert table.capacity == (4, 2)
    rows.append(table, 0, [blocks(5, 9), blocks(3)])
    rows.apply(table)
    assert entries(table, 0, 0) == [10, 11, 18, 19]
    assert rows.blocks_of(table, 0, 0).tolist() == [5, 9]
    assert rows.block_at(table, 0, 0, 1).tolist() == [9]
    with pytest.raises(TensorError, match="has 2 columns, column 2 is needed"):
        rows.block_at(table, 0, 0, 2)
    with pytest.raises(TensorError, match="cannot take 2 more"):
        rows.append(table, 0, [blocks(), blocks(4)])


def test_a_block_that_moved_on_belongs_to_its_last_column_only():
    table = table_of(max_model_len=16)
    rows.append(table, 0, [blocks(4, 0, 4, 6), blocks()])
    rows.apply(table)
    assert [rows.own_block(table, 0, 0, column).tolist() for column in range(5)] == [[0], [0], [4], [6], [0]]


def test_the_column_of_a_state_and_of_the_running_one():
    assert [rows.column_of(boundary, 4) for boundary in (0, 1, 4, 5, 8)] == [-1, 0, 0, 1, 1]
    table = table_of()
    rows.seed(table, 2, 7, [3, 1])
    assert (table.owners, rows.state_column(table, 0, 2)) == ([-1, -1, 7], 3)
    table.accepted[2] = 3
    assert rows.state_column(table, 0, 2) == 5
    rows.clear(table, 2, -1)
    assert (table.owners, table.accepted) == ([-1, -1, -1], [1, 1, 1])
