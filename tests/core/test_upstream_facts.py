"""What the four changes state and test upstream: one test per row of the tables of docs/semantics.md, section 8."""

from __future__ import annotations

import pytest

from kvproof.core import actions as act
from kvproof.core import connectors, geometry, lookup, native, reconciliation
from kvproof.core.config import Config, Group, configure
from kvproof.core.connectors import Connector
from kvproof.core.errors import RowCapacityExceeded
from kvproof.core.step import refusal
from kvproof.spec.engines import amounts
from tests.driving import Driver

FA, MAMBA = "full_attention", "mamba_align"


def hybrid(attention: int, mamba: int, **settings: object) -> Config:
    """One attention group and one Mamba-align group with these block sizes, dense retention."""
    return configure((Group(FA, attention), Group(MAMBA, mamba)), **{"num_blocks": 64, "max_model_len": 512, **settings})  # type: ignore[arg-type]


def computed(driver: Driver, request: int, tokens: int | tuple[int, ...]) -> list[int]:
    """Compute a whole prompt, each chunk as long as it may be; return where the chunks ended."""
    driver.submit(request, tokens)
    config, ends = driver.world.config, list[int]()
    while (left := driver.request(request).num_prompt - driver.request(request).computed) > 0:
        found = driver.request(request)
        driver.chunk(request, amounts.chunk(config, found, found.computed, min(left, config.max_chunk)))
        ends.append(driver.request(request).computed)
    return ends


# --- 8.2: vllm#50493 ------------------------------------------------------------------------------------------------


def test_initialize_kv_cache_does_not_dcp_shard_mamba_block_table() -> None:
    """2.5: 1,048,576 tokens, N=8, blocks of 16: 8,192 entries for attention, 65,536 for Mamba, eight times as many."""
    config = hybrid(16, 16, dcp_size=8, max_model_len=1 << 20)
    assert config.row_capacity == (8_192, 65_536)


def test_append_block_ids_rejects_write_past_row_capacity() -> None:
    """TB-11: what does not fit is refused by group, and neither a row nor a count of any group changes."""
    driver = Driver(hybrid(16, 16, max_model_len=32))
    capacity = driver.world.config.row_capacity
    assert capacity == (8, 2)
    refused = refusal(driver.world, act.AppendRows(0, ((1, 2, 3), (4, 5, 6))))
    assert isinstance(refused, RowCapacityExceeded)
    assert "group 1" in refused.message
    assert refused.world is None
    driver.do(act.AppendRows(0, ((1, 2, 3), (4, 5))))
    assert [rows[0] for rows in driver.world.worker.rows] == [(1, 2, 3), (4, 5)]


@pytest.mark.parametrize(
    ("block", "prompt", "eagle", "ends"),
    [
        (64, 50, False, [48, 50]),
        (64, 64, False, [48, 64]),
        (64, 65, False, [64, 65]),
        (64, 100, False, [64, 96, 100]),
        (64, 95, True, [64, 95]),
        (64, 100, True, [80, 100]),
        (64, 160, True, [64, 144, 160]),
    ],
)
def test_mamba_align_split_partial_tail_schedule(block: int, prompt: int, eagle: bool, ends: list[int]) -> None:
    """T22, with an ample budget."""
    assert computed(Driver(hybrid(block, block, hash_block_size=16, use_eagle=eagle)), 0, prompt) == ends


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_hybrid_partial_hash_hit_uses_cow_under_dcp(ranks: int) -> None:
    """COW-2: a hit of 12 tokens inside an attention block and inside a state block: both are copied, on any number of ranks.

    Without DCP the attention block is as large as four ranks make it here.
    """
    driver = Driver(hybrid(16 // ranks, 8, dcp_size=ranks, hash_block_size=4))
    assert computed(driver, 0, 14) == [8, 12, 14]
    driver.do(act.Finish(0))
    driver.submit(1, (*range(1, 13), 51, 52, 53, 54))
    hit = driver.do(act.BeginStep(), act.Lookup(1))
    assert hit.local == 12
    sources = (hit.lists[0][-1], hit.lists[1][-1])
    driver.do(act.Allocate(1, 4, 12))
    copies = driver.close().copies
    assert [(group, source) for group, source, _ in copies] == [(0, sources[0]), (1, sources[1])]
    tables = driver.tables(1)
    assert [tables[group][12 // driver.world.config.sizes[group]] for group in (0, 1)] == [copy for _, _, copy in copies]


@pytest.mark.parametrize("ranks", [2, 4])
def test_dcp_partial_hit_resumes_on_replicated_mamba_snapshot(ranks: int) -> None:
    """G6: all sizes 4, the attention block is copied and the Mamba snapshot, which ends a block, is not."""
    driver = Driver(hybrid(4, 4, dcp_size=ranks))
    computed(driver, 0, 14)
    driver.do(act.Finish(0))
    driver.submit(1, (*range(1, 13), 51, 52, 53, 54))
    hit = driver.do(act.BeginStep(), act.Lookup(1))
    assert hit.local == 12
    snapshot = hit.lists[1][2]
    driver.do(act.Allocate(1, 4, 12))
    assert [group for group, _, _ in driver.close().copies] == [0]
    assert driver.tables(1)[1][2] in (snapshot, 0)


@pytest.mark.parametrize("ranks", [2, 4])
def test_dcp_joint_hit_is_bounded_by_replicated_mamba_snapshots(ranks: int) -> None:
    """HB-12, G7: the state at 12 is gone, so the hit is 8, and 12 is the junction."""
    driver = Driver(hybrid(4, 4, dcp_size=ranks, max_chunk=4))
    driver.submit(0, 14)
    for amount in (4, 4, 4, 2):
        driver.chunk(0, amount)
    driver.do(act.Finish(0), act.EvictBlocks(tuple(driver.keys(1)[12])))
    driver.submit(1, 16)
    found = driver.do(act.BeginStep(), act.Lookup(1))
    assert (found.local, found.junction) == (8, 12)


@pytest.mark.parametrize(("attention", "ranks"), [(16, 2), (64, 1)])
def test_dcp_partial_hit_with_eagle(attention: int, ranks: int) -> None:
    """T35 with the chunk ends of T22: a resend of 100 tokens falls back one hash unit, to 80."""
    driver = Driver(hybrid(attention, 16 * (4 if ranks == 1 else 1), dcp_size=ranks, hash_block_size=16, use_eagle=True))
    assert computed(driver, 0, 100) == [80, 100]
    driver.do(act.Finish(0))
    driver.submit(1, 100)
    assert driver.do(act.BeginStep(), act.Lookup(1)).local == 80


@pytest.mark.parametrize("ranks", [1, 2])
def test_evict_cached_block_removes_full_hash_and_partial_entry(ranks: int) -> None:
    """HB-5, G8: a block that answers to its full and its partial key loses both."""
    driver = promoted(ranks)
    (block,) = driver.keys(0)[64]
    assert driver.keys(0)[48] == [block]
    driver.do(act.EvictBlocks((block,)))
    assert set(driver.keys(0)) == ({32} if ranks == 2 else set())


@pytest.mark.parametrize("ranks", [1, 2])
def test_partial_block_promotes_to_direct_full_block_hash(ranks: int) -> None:
    """HB-7, G8: the block that stands for 48 stands for 64 once it is full."""
    assert promoted(ranks, 50).world.pool.key_tokens[promoted(ranks, 50).keys(0)[48][0]] == 48
    driver = promoted(ranks)
    assert driver.world.pool.key_tokens[driver.keys(0)[64][0]] == 64


def promoted(ranks: int, until: int = 66) -> Driver:
    """A prompt of 50 tokens, then decoded: attention blocks of 64 on one rank, of 16 on two; H=16."""
    driver = Driver(hybrid(64 if ranks == 1 else 16, 64 if ranks == 1 else 16, dcp_size=ranks, hash_block_size=16))
    computed(driver, 0, 50)
    while driver.request(0).computed < until:
        driver.chunk(0, 1)
    return driver


def test_dcp_chunked_context_accepts_non_virtual_block_aligned_prefix() -> None:
    """DS-4, DS-10: a prefix of 50 tokens ends inside a virtual block of 64; every rank takes the same branch."""
    assert [geometry.local_length(50, rank, 4, 1) for rank in range(4)] == [13, 13, 12, 12]
    assert [geometry.local_length(16, rank, 4, 16) for rank in range(4)] == [16, 0, 0, 0]
    assert geometry.context_branches(16, 4) == (True,) * 4
    assert geometry.context_branches(0, 4) == (False,) * 4


def test_kimi_k3_dcp_partial_prefix_reuse() -> None:
    """CC-8, DS-9: one rank with attention blocks of 32 and two ranks with blocks of 16 hit the same, prompt by prompt."""
    hits = {}
    for ranks in (1, 2):
        driver = Driver(hybrid(32 // ranks, 32, dcp_size=ranks, hash_block_size=16, max_chunk=32))
        computed(driver, 0, 100)
        driver.do(act.Finish(0))
        found = []
        for number, shared in enumerate((16, 50, 70, 100), 1):
            driver.submit(number, (*range(1, shared + 1), *range(1000 * number, 1000 * number + 30)))
            found.append(driver.do(act.BeginStep(), act.Lookup(number)).local)
            driver.close()
        hits[ranks] = found
    assert hits[1] == hits[2] == [0, 32, 64, 96]


# --- 8.3: scaling of the native connector ---------------------------------------------------------------------------


def test_dcp_scales_attention_but_not_mamba_group_blocks() -> None:
    """DS-6, DS-7: 16-token blocks under N=2 are (32, 16), two Mamba chunks an alignment, of four the chunks 1 and 3 are reachable."""
    connector = native.resolve(hybrid(16, 16, dcp_size=2))
    mamba = connector.groups[1]
    assert tuple(chunked.block_tokens for chunked in connector.groups) == (32, 16)
    assert (connector.alignment or 0) // mamba.chunk_tokens == 2
    assert native.segment_chunks(connector, mamba, 4) == (1, 3)


# --- 8.4: vllm#50344 ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [(), (False,), (True, False)])
def test_connector_without_divergent_hit_support_uses_common_lookup(
    flags: tuple[bool, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CA-1: where not every connector can, the divergent lookup is not even called, and the hit is the common one."""

    def never(*_: object) -> None:
        raise AssertionError("the divergent lookup was called")

    driver = deeper_attention(flags, states=(16,))
    monkeypatch.setattr(lookup, "lookup_per_group", never)
    found = driver.do(act.Lookup(1))
    assert (found.local, found.diverged) == (16, False)
    with pytest.raises(AssertionError, match="was called"):
        deeper_attention((True,), states=(16,)).do(act.Lookup(1))


def test_capable_connector_uses_divergent_partial_hit_lookup() -> None:
    """T13: the hit of a capable connector is passed on though it ends inside a block: 6 with blocks of 4."""
    driver = Driver(hybrid(4, 4, hash_block_size=2, connectors=(True,)))
    assert computed(driver, 0, 7) == [4, 6, 7]
    driver.do(act.Finish(0), act.EvictBlocks(tuple(driver.keys(1)[6])))
    driver.submit(1, 12)
    found = driver.do(act.BeginStep(), act.Lookup(1))
    assert (found.local, found.diverged) == (6, True)
    assert [len(blocks) for blocks in found.lists] == [2, 1]
    config = driver.world.config
    assert driver.world.hit is not None
    assert reconciliation.accept(config, driver.world.hit, 4) == reconciliation.Accepted("tail replaced", 4, 4)
    assert reconciliation.accept(config, driver.world.hit, 2) == reconciliation.Accepted("looked up anew", 0, 0)


@pytest.mark.parametrize(
    ("capable", "offered", "local", "computed_at_start"),
    [(False, 16, 16, 32), (False, 0, 16, 16), (True, 16, 48, 64), (True, 0, 16, 16)],
)
def test_hybrid_fa_deeper_hit_respects_connector_lookup_policy(
    capable: bool, offered: int, local: int, computed_at_start: int
) -> None:
    """CA-1, CA-3: six blocks of 16, attention cached to 48, states to 16: (not capable, 16 offered) resumes at 32."""
    driver = deeper_attention((capable,), states=(16,))
    found = driver.do(act.Lookup(1))
    assert driver.world.hit is not None
    chosen = reconciliation.accept(driver.world.config, driver.world.hit, offered)
    if chosen.branch == "looked up anew":
        found = driver.do(act.Lookup(1, common=True))
    assert found.local == local
    admitted = driver.do(act.Allocate(1, 16, local, chosen.external))
    assert admitted.admitted
    assert driver.world.plan.scheduled[0].start == computed_at_start
    driver.close()


def deeper_attention(flags: tuple[bool, ...], states: tuple[int, ...]) -> Driver:
    """FA16 and Mamba16: attention cached to 48, of the states only these; a prompt of six blocks waits in an open plan."""
    driver = Driver(hybrid(16, 16, max_chunk=16, connectors=flags))
    driver.submit(0, 48)
    for _ in range(3):
        driver.chunk(0, 16)
    lost = [block for boundary, blocks in driver.keys(1).items() if boundary not in states for block in blocks]
    driver.do(act.Finish(0), act.EvictBlocks(tuple(lost)))
    driver.submit(1, 96)
    driver.do(act.BeginStep())
    return driver


def test_divergent_local_hybrid_hit_capability_is_conservative() -> None:
    """CA-2: nobody can who does not say so; several can if there are some and all can, however they are nested."""
    nixl, cpu = Connector("NixlConnector"), Connector("SimpleCPUOffloadConnector")
    assert connectors.flags((nixl, cpu, Connector("somebody's own"))) == (True, False, False)
    several = {(): False, (nixl,): True, (nixl, nixl): True, (nixl, cpu): False, (cpu,): False}
    for children, expected in several.items():
        multi = Connector("MultiConnector", children=children)
        assert connectors.supports_divergent_hits(multi) is expected, children
        assert connectors.supports_divergent_hits(Connector("MultiConnector", children=(multi, nixl))) is expected
        assert lookup.supports_divergence(connectors.flags(children)) is expected
    for reads, moves in ((False, False), (True, False), (False, True), (True, True)):
        moriio = Connector("MoRIIOConnector", reads=reads, moves_states=moves)
        assert connectors.supports_divergent_hits(moriio) is (reads and moves)
