"""What the host's key map announces (3.7, T28): payloads from what was captured, and the order of the two media."""

from __future__ import annotations

from kvproof.core import actions as act
from kvproof.core.config import VLLM_0_33_0, Group, Offload
from kvproof.core.records import Record
from tests.offloading import FULL, MAMBA, STABLE, WINDOW, Hosted, hosted


def spoken(record: Record) -> list[tuple[str, str, int, int, int, tuple[int, ...]]]:
    """(medium, kind, group, boundary, size, payload) of each event."""
    return [(said.medium, said.kind, said.group, said.boundary, said.size, said.tokens) for said in record.events]


def test_full_and_inner_keys() -> None:
    """An attention block announces its full key with E tokens, and the prompt's tail inside it with H (EV-1, EV-2)."""
    driver = Hosted(hosted(Group(FULL, 8), Group(MAMBA, 8), hash_block_size=4, events=True))
    driver.submit(0, 7)
    driver.chunk(0, 4)
    driver.chunk(0, 3)
    driver.chunk(0, 1)
    built = driver.chunk(0, 1)
    assert built.store_device[-1] == 1
    for event in range(built.store_event):
        driver.complete(event)
    said = driver.complete(built.store_event)
    payload = tuple(range(1, 8))
    assert [entry for entry in spoken(said) if entry[2] == 0] == [
        ("host", "stored", 0, 8, 8, (*payload, 9)),
        ("host", "stored", 0, 4, 4, payload[:4]),
    ]
    assert [event.parent for event in said.events if event.group == 0] == [-1, -1]


def test_the_sizes_of_replicated_groups() -> None:
    """N=2: an attention block of 16 is announced with 32 tokens, a state of 16 with 16 (M-EVT-1)."""
    driver = Hosted(hosted(Group(FULL, 16), Group(STABLE, 16), dcp_size=2, events=True))
    driver.submit(0, 40)
    driver.chunk(0, 32)
    driver.chunk(0, 1)
    said = driver.complete(0)
    assert [entry[2:5] for entry in spoken(said)] == [(0, 32, 32), (1, 16, 16), (1, 32, 16)]
    depth = driver.world.prefixes.depth
    assert [depth[event.parent] if event.parent >= 0 else 0 for event in said.events] == [0, 0, 16]


def test_handoffs_and_tails_have_no_payload() -> None:
    """What is not captured is announced with its size and nothing else; a secondary key with size 0 (IP-4)."""
    driver = Hosted(hosted(Group(FULL, 64), Group(MAMBA, 64), hash_block_size=16, events=True))
    driver.submit(0, 50)
    driver.chunk(0, 48)
    driver.chunk(0, 2)
    driver.do(act.Finish(0))
    driver.empty_step()
    assert spoken(driver.complete(0)) == [("host", "stored", 1, 48, 64, ())]
    assert spoken(driver.complete(1)) == [("host", "stored", 0, 48, 64, ())]


def test_a_secondary_key_that_was_not_captured() -> None:
    """Lazy mode captures nothing: the primary key is announced with E tokens, the one inside with size 0 (T28)."""
    config = hosted(
        Group(FULL, 8),
        Group(MAMBA, 8),
        hash_block_size=4,
        events=True,
        max_chunk=64,
        offload=Offload(mode="lazy", num_blocks=20),
    )
    driver = Hosted(config)
    driver.submit(0, 7)
    for chunk in (4, 3, 1):
        driver.chunk(0, chunk)
    driver.do(act.Finish(0))
    assert driver.keys(0) == {4: [1], 8: [1]}
    for _ in range(4):
        driver.empty_step()
    said = [entry for event in range(driver.host.next_store) for entry in spoken(driver.complete(event))]
    assert [entry for entry in said if entry[2] == 0] == [
        ("host", "stored", 0, 8, 8, ()),
        ("host", "stored", 0, 4, 0, ()),
    ]


def test_a_host_block_that_is_taken_again() -> None:
    """A key that the host loses for another block is removed there; the device's records come first (3.7)."""
    driver = Hosted(hosted(Group(FULL, 4), events=True, offload=Offload(num_blocks=2)))
    driver.submit(0, 9)
    driver.chunk(0, 4)
    driver.chunk(0, 1)
    driver.complete(0)
    driver.do(act.Finish(0))
    driver.submit(1, (7,) * 9)
    driver.chunk(1, 4)
    driver.do(act.BeginStep(), act.Allocate(1, 4))
    driver.dispatch()
    assert spoken(driver.records[-2]) == [("host", "removed", 0, -1, 0, ())]
    assert driver.host.pool.notes == ()


def test_clearing_the_host() -> None:
    """A reset of the host tier announces it, whatever was in the map; one that fails says nothing (T34)."""
    driver = Hosted(hosted(Group(FULL, 4), events=True))
    assert spoken(driver.do(act.ResetHost())) == [("host", "cleared", -1, -1, 0, ())]
    driver.submit(0, 9)
    driver.chunk(0, 4)
    driver.chunk(0, 1)
    assert driver.do(act.ResetHost()).events == ()


def test_an_entry_that_its_block_has_left() -> None:
    """The release announces another request's key with the tokens of the entry it scanned (``positional_ids``, C-42)."""
    config = hosted(Group(FULL, 4), Group(WINDOW, 4, window=5), num_blocks=10, events=True, profile=VLLM_0_33_0)
    driver = Hosted(config)
    driver.submit(0, 16)
    driver.chunk(0, 12)
    driver.submit(1, (7,) * 4)
    driver.do(act.BeginStep(), act.Allocate(0, 4), act.Lookup(1), act.Allocate(1, 4))
    reused = driver.tables(1)[1][0]
    built = driver.close()
    at = built.store_device.index(reused)
    assert built.store_meta is not None
    assert len(built.store_meta[at]) == 2
    (said,) = (event for event in driver.complete(0).events if event.group == 1 and event.node == built.store_meta[at][-1][0])
    assert driver.spelled(said.node) == [7, 7, 7, 7]
    assert said.tokens == tuple(range(5, 9))
    assert driver.world.prefixes.depth[said.parent] == 4
