"""One-step claims of selecting blocks to store: the scan by index, the prompt's tail, and taking what was picked (T26, T27)."""

from __future__ import annotations

from attrs import evolve

from kvproof.core.offload import choosing, positional, tails
from kvproof.core.offload.choosing import Picked
from kvproof.core.offload.state import Track
from kvproof.core.world import GroupState, Plan, Scheduled
from kvproof.proofs.claim import claim
from kvproof.proofs.claims import holders
from kvproof.proofs.claims import hosts_of_four as tiers
from kvproof.proofs.claims import pools_of_four as four
from kvproof.proofs.claims.pools_of_four import Draft, Key

COMPUTED = (3, 4, 8)
TIP = 8
"""The request's last node: it knows 8 tokens, whose hash boundaries have the nodes 4 and 8."""


@claim(
    positional.pick_group,
    sizes="shape",
    bounds="four device blocks of 4 tokens with one key, four host blocks with one; a table of two blocks, any cursor, "
    "3, 4 or 8 computed tokens, one store under way",
    laws=("HO-6", "HO-10", "IP-1", "IP-2", "CP-7"),
    deep=True,
)
def scan_a_table_of_two(
    draft: Draft, key: Key, first: int, second: int, cursor: int, computed: int, room: bool, node: int, running: int
) -> None:
    """The scan picks the full, keyed blocks of the table from the cursor on that are neither being stored nor on the
    host, as many as the host has room for, and describes each by its own key; the cursor stops at the first without room
    (T26).
    """
    assert four.legal(draft, key) & holders.held(draft, first, second) & four.within(1, first, 3) & four.within(1, second, 3)
    assert holders.own(first, second) & four.within(0, cursor, 2) & four.within(0, computed, 2) & four.within(1, running, 3)
    assert (node >= 0) & (key[1] == 0) & (key[0] == (4 if key[3] == first else 8))
    old = four.pool_of(draft, key)
    host = four.pool_of(tiers.draft_of(1 if room else 0), (node, 0, 0, 3))
    table, busy = holders.table_of(first, second), four.block_of(running)
    start, done = four.pick((0, 1, 2), cursor), four.pick(COMPUTED, computed)
    request = evolve(holders.request_of(GroupState(table)), tip=TIP, num_tokens=8, computed=done)
    choice = tiers.choice_of(old, host, busy)
    picked = Picked([start])
    positional.pick_group(tiers.FULL_WORLD, request, 0, table, choice, picked)
    ready = [index for index in range(start, done // 4) if tiers.answer(old, host, table[index], busy) == "ready"]
    taken = ready[: len(host.free)]
    assert picked.blocks == [table[index] for index in taken]
    assert picked.metas == [((4 * index + 4, 4),) for index in taken]
    assert picked.cursors == [ready[len(taken)] if len(taken) < len(ready) else max(start, done // 4)]
    assert (choice.device == old) & (choice.host == host) & (not choice.blocks)


@claim(
    positional.pick_group,
    sizes="shape",
    bounds="four device blocks of 4 tokens with one key, four empty host blocks; a table of two null entries, 8 tokens",
    laws=("HO-10", "IP-1", "IP-2"),
    deep=True,
)
def scan_behind_a_window(draft: Draft, key: Key, cursor: int) -> None:
    """A null entry denotes the block that still has the key of its end, if one has it: only that block is picked, under
    the index whose end it stands for (T26, HO-10).
    """
    assert four.legal(draft, key) & four.within(0, cursor, 2)
    old, host = four.pool_of(draft, key), four.pool_of(tiers.draft_of(3))
    start = four.pick((0, 1, 2), cursor)
    request = evolve(holders.request_of(GroupState((0, 0))), tip=TIP, num_tokens=8, computed=8)
    choice = tiers.choice_of(old, host)
    picked = Picked([start])
    positional.pick_group(tiers.FULL_WORLD, request, 0, (0, 0), choice, picked)
    node, group, _, block = old.entries[0]
    found = [index for index in range(start, 2) if (node == 4 * index + 4) & (group == 0)]
    assert picked.blocks == [block] * len(found)
    assert picked.metas == [((4 * index + 4, 4),) for index in found]
    assert picked.cursors == [2]


@claim(
    tails.add,
    sizes="shape",
    bounds="four device blocks of 8 tokens with one key, four host blocks with one; a prompt of 7 tokens, H of 4",
    laws=("HO-6", "IP-1", "IP-4", "CP-7"),
    deep=True,
)
def select_the_tail_of_a_prompt(draft: Draft, key: Key, first: int, room: bool, node: int, running: int, chosen: bool) -> None:
    """The block in which a prompt's last hash boundary lies is picked at the finish if it has that key, the host has not,
    no store of it runs, the scan did not pick it and there is room; nothing is said of it in events (T27, HO-6, IP-4).
    """
    assert four.legal(draft, key) & holders.held(draft, first) & four.within(1, first, 3) & four.within(1, running, 3)
    assert (node >= 0) & (key[0] == 4) & (key[1] == 0)
    old = four.pool_of(draft, key)
    host = four.pool_of(tiers.draft_of(2 if room else 1), (node, 0, 0, 3))
    (block,), busy = holders.table_of(first), four.block_of(running)
    request = evolve(holders.request_of(GroupState((block,)), GroupState()), tip=TIP, num_tokens=8, num_prompt=7, computed=8)
    choice = tiers.choice_of(old, host, busy)
    picked = Picked([0, 0], [block] if chosen else [3 if block != 3 else 2], [()])
    before = list(picked.blocks)
    tails.add(tiers.HYBRID_WORLD, request, choice, picked)
    worth = (not four.unkeyed(old, block)) & (node != 4) & (block != busy) & (block not in before) & (len(host.free) > 1)
    assert picked.blocks == ([*before, block] if worth else before)
    assert picked.metas == [()] * len(picked.blocks)
    assert picked.cursors == [0, 0]


@claim(
    choosing.store,
    sizes="shape",
    bounds="four device blocks without keys, four host blocks with one key; two blocks chosen",
    laws=("HO-4", "HO-6", "IP-1", "PC-3", "CP-1", "CP-2", "CP-3", "CP-7"),
    deep=True,
)
def choose_two_blocks(draft: Draft, queue: int, host_key: Key, first: int, second: int) -> None:
    """Chosen blocks are pinned, each gets a host block without keys, and the lists stay parallel; with too few free host
    blocks nothing is chosen at all (T24, T26, IP-1, CP-3).
    """
    assert four.legal(draft) & four.within(1, first, 3) & four.within(1, second, 3)
    assert first != second
    assert four.legal(tiers.draft_of(0), host_key) & four.within(0, queue, 3)
    old, host = four.pool_of(draft), four.pool_of(tiers.draft_of(queue), host_key)
    blocks = holders.table_of(first, second)
    choice = tiers.choice_of(old, host)
    done = tiers.chooses(choice, blocks)
    chosen = blocks if len(host.free) >= 2 else ()
    assert done == (chosen == blocks)
    assert (choice.blocks == list(chosen)) & (choice.in_flight == list(chosen)) & (choice.meta == [()] * len(chosen))
    assert choice.hosts == list(host.free[: len(chosen)])
    assert four.sound(choice.device) & four.sound(choice.host)
    assert holders.accounted(choice.device, holders.others(old), chosen)
    assert holders.accounted(choice.host, holders.others(host), tuple(choice.hosts))
    assert four.every(four.unkeyed(choice.host, block) for block in choice.hosts)
    assert four.keys_kept(host, choice.host, *choice.hosts)


@claim(
    positional.scan_step,
    positional.pick,
    positional.moved,
    sizes="shape",
    bounds="two requests with two blocks and one, all keyed; 0 to 3 free host blocks, any cursor of the first; the second is "
    "new or not, and known to the store side or not",
    laws=("CP-7", "HO-10", "LV-5"),
)
def a_step_is_scanned_request_by_request(cursor: int, room: int, fresh: bool, known: bool) -> None:
    """The requests of a step share the free host blocks in the order in which they are scanned. The cursor of each stops at its
    first block without room, and what is chosen is noted with its request; one without a record is passed (T26, CP-7).
    """
    assert 0 <= cursor <= 2
    assert 0 <= room <= 3
    start, free = four.pick((0, 1, 2), cursor), four.pick((0, 1, 2, 3), room)
    keys = ((4, 0, 0, 1), (8, 0, 1, 2), (4, 0, 2, 3))
    old = holders.referenced(four.pool_of(Draft(3, (1, 1, 1), (4, 8, 4), 3), *keys), (1, 2, 3))
    asked = (
        evolve(holders.request_of(GroupState((1, 2))), tip=TIP, num_tokens=8, computed=8),
        evolve(holders.request_of(GroupState((3,)), number=1), tip=TIP, num_tokens=8, computed=4),
    )
    planned = Scheduled(0, 7, 1, False, 7), Scheduled(1, 0, 4, fresh, 0)
    host = tiers.host_of(four.pool_of(tiers.draft_of(free)), Track(0, (start,)), *((Track(1, (0,)),) if known else ()))
    world = evolve(holders.world_of(tiers.FULL_WORLD, old, *asked), host=host, plan=Plan(scheduled=planned))
    choice = tiers.choice_of(old, host.pool)
    after = positional.scan_step(world, host, choice)
    mine, its = [(0, 1), (0, 2)][start:], [(1, 3)] if known else []
    taken = ([*its, *mine] if fresh else [*mine, *its])[:free]
    owners = [who for who, _ in taken]
    assert choice.blocks == [block for _, block in taken]
    assert choice.owners == list(dict.fromkeys(owners))
    assert after.tracks[0].cursors == (start + owners.count(0),)
    assert [track.cursors for track in after.tracks[1:]] == ([(owners.count(1),)] if known else [])
    assert len(choice.host.free) == free - len(taken)
