"""What vllm#54736 states and tests upstream: one test per row of the table of docs/semantics.md, section 8.1."""

from __future__ import annotations

from typing import Any

import pytest

from kvproof.core import actions as act
from kvproof.core.config import Group, Offload
from kvproof.core.offload import external
from tests.core.offload.loading import Loading
from tests.offloading import FULL, MAMBA, STABLE, hosted, outcomes, pairs


def fixture(base: int = 16, **settings: Any) -> Loading:
    """The sizes of the upstream fixture: attention blocks of the base, Mamba blocks of 4 times it, N=4, retention 0, 8 host blocks."""
    groups = (Group(FULL, base), Group(MAMBA, 4 * base))
    given: dict[str, Any] = {
        "dcp_size": 4,
        "retention": 0,
        "num_blocks": 16,
        "offload": Offload(num_blocks=8),
        "max_model_len": 512,
    }
    return Loading(hosted(*groups, **{**given, **settings}))


def fine(ranks: int = 4, **settings: Any) -> Loading:
    """FA16 and Mamba16: hits may end inside an attention block of several ranks."""
    given: dict[str, Any] = {"dcp_size": ranks, "retention": 0, **settings}
    return Loading(hosted(Group(FULL, 16), Group(MAMBA, 16), **given))


def test_hybrid_store_uses_resolved_group_block_sizes() -> None:
    """DS-1, LV-5: attention times N, a recurrent group as it is; the cursors are the confirmed tokens in blocks of each."""
    driver = fixture()
    assert driver.world.config.sizes == (64, 64)
    stable = Loading(hosted(Group(FULL, 16), Group(STABLE, 16), dcp_size=2))
    stable.submit(0, 70)
    stable.chunk(0, 64)
    stable.chunk(0, 6)
    assert stable.world.config.sizes == (32, 16)
    assert stable.cursors(0) == [2, 4]


def test_dcp_mixed_cache_loads_fine_grained_external_hit() -> None:
    """LD-1, G3: 48 tokens are one attention block of 64 and three state blocks of 16, of which the last is copied."""
    driver = fine()
    driver.submit(0, 50)
    driver.store(0, 48, 2)
    driver.wipe()
    driver.submit(1, 50)
    assert driver.load(1).pairs == ((0, 0, 3, 2), (1, 2, 4, 1))
    assert driver.tables(1) == [[3], [0, 0, 4]]


def test_finished_eager_store_caches_fa_partial_tail_for_hybrid_hit() -> None:
    """LV-6, G2: the attention block of 48 tokens is stored when its request finishes; the same and a longer prompt hit 48."""
    driver = fine()
    driver.submit(0, 50)
    driver.chunk(0, 48)
    driver.chunk(0, 2)
    assert driver.host_keys(0) == {}
    assert pairs(driver.do(act.Finish(0))) == [(1, 2)]
    driver.empty_step()
    driver.complete_stores()
    assert (driver.host_keys(0), driver.host_keys(1)) == ({48: [2]}, {48: [1]})
    driver.wipe()
    for number, tokens in ((1, tuple(range(1, 51))), (2, (*range(1, 51), 90, 91, 92))):
        driver.submit(number, tokens)
        driver.do(act.BeginStep())
        assert driver.do(act.Lookup(number)).local == 0
        assert driver.do(act.LookupExternal(number, 0)).external == 48
        driver.close()


def test_finished_eager_store_does_not_duplicate_completed_partial_tail() -> None:
    """HO-6, G4: decoding filled the block of the tail, and the scan picks it already: it is stored once, with both keys."""
    driver = Loading(hosted(Group(FULL, 64), Group(MAMBA, 64), hash_block_size=16))
    driver.submit(0, 50)
    for amount in (48, 2, *(1,) * 14):
        driver.chunk(0, amount)
    assert driver.do(act.Finish(0)).store_device == (1,)
    driver.empty_step()
    driver.complete_stores()
    assert driver.host_keys(0) == {48: [3], 64: [3]}


def test_external_lookup_rejects_misaligned_local_prefix() -> None:
    """CP-6: nothing is offered inside a scheduler block, one notice is given, and no block is pinned."""
    driver = fine()
    driver.submit(0, 50)
    driver.store(0, 48, 2)
    driver.submit(1, 50)
    driver.do(act.BeginStep())
    assert driver.do(act.Lookup(1)).local == 48
    first, second = (driver.do(act.LookupExternal(1, 48)) for _ in range(2))
    assert (first.external, first.notices, second.notices) == (0, (external.MISALIGNED,), ())
    assert (driver.host.pending, sum(driver.host.pool.ref)) == ((), 0)
    assert driver.do(act.LookupExternal(1, 0)).external == 48


@pytest.mark.parametrize(("mode", "offered"), [("eager", 48), ("lazy", 0)])
def test_fine_grained_external_hits_require_eager_offload(mode: str, offered: int) -> None:
    """HB-8, CP-10: in lazy mode a host that has 48 tokens of both groups offers whole scheduler blocks of 64 only."""
    offload = Offload(mode=mode, num_blocks=20)  # type: ignore[arg-type]
    driver = fine(offload=offload, num_blocks=7, max_chunk=64)
    driver.submit(0, 50)
    driver.store(0, 48, 2)
    assert (set(driver.host_keys(0)), set(driver.host_keys(1))) == ({48}, {48})
    driver.wipe()
    driver.submit(1, 50)
    driver.do(act.BeginStep(), act.Lookup(1))
    assert driver.do(act.LookupExternal(1, 0)).external == offered
    assert (driver.host.counters.published > 0) is (mode == "eager")


def test_eager_store_does_not_scan_mamba_blocks_positionally() -> None:
    """HO-8: the cursor of a Mamba-align group stays at 0, its states come by handoffs."""
    driver = fixture()
    driver.submit(0, 200)
    built = [driver.chunk(0, amount) for amount in (192, 8)]
    assert driver.cursors(0) == [3, 0]
    assert [(boundary, outcome) for record in built for _, boundary, outcome in outcomes(record)] == [(192, "stored")]


def test_boundary_handoff_keeps_block_meta_index_parallel() -> None:
    """IP-1, IP-4: what is said of a handoff is empty, and stands at its place in front of what the scan chose."""
    driver = fixture(events=True, retention=None, max_chunk=64)
    driver.submit(0, 200)
    driver.chunk(0, 64)
    record = driver.chunk(0, 64)
    assert record.store_meta is not None
    assert len(record.store_device) == len(record.store_host) == len(record.store_meta) == 2
    assert [len(entry) for entry in record.store_meta] == [0, 1]
    groups = [driver.world.pool.key_group[block] for block in record.store_device]
    assert groups == [1, 0]


def test_mamba_align_skips_positional_event_metadata() -> None:
    """IP-5: every block of a Mamba-align group in the metadata is a handoff of its step, and has no payload."""
    driver = fixture(events=True, retention=None, max_chunk=64)
    driver.submit(0, 200)
    built = [driver.chunk(0, amount) for amount in (64, 64, 64, 8)]
    told = 0
    for record in built:
        handed = {block for block, _, outcome in outcomes(record) if outcome == "stored"}
        for block, entry in zip(record.store_device, record.store_meta or (), strict=True):
            if driver.world.pool.key_group[block] == 1:
                assert block in handed
                assert entry == ()
                told += 1
    assert told == 3
