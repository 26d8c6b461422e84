"""One-step claims of what the store side makes of handoffs (T24, T25)."""

from __future__ import annotations

from attrs import evolve

from kvproof.core.offload import handoffs
from kvproof.core.offload.state import Counters, Track
from kvproof.core.world import Plan
from kvproof.proofs.claim import claim
from kvproof.proofs.claims import holders
from kvproof.proofs.claims import hosts_of_four as tiers
from kvproof.proofs.claims import pools_of_four as four
from kvproof.proofs.claims.pools_of_four import Draft, Key


@claim(
    handoffs.offer,
    sizes="shape",
    bounds="four device and four host blocks, one key each, the host's on its first block or another; one store under way",
    laws=("HO-4", "HO-6", "IP-1", "IP-4", "PC-3", "CP-1", "CP-2", "CP-3", "CP-7"),
    deep=True,
)
def offer_a_handoff(draft: Draft, key: Key, queue: int, node: int, group: int, keyed: int, number: int, running: int) -> None:
    """A handoff is stored if T25 says so and the host has room. Its device block is pinned, the host block at the front
    is taken without a key, and one entry joins each of the parallel lists; otherwise nothing changes (T24, HO-4, IP-1,
    CP-2, CP-7).
    """
    assert four.legal(draft, key, free=2) & four.within(0, number, 3) & four.within(1, running, 3)
    assert four.within(0, queue, 3) & (node >= 0) & (group >= 0) & four.within(1, keyed, 2)
    old, host = four.pool_of(draft, key), four.pool_of(tiers.draft_of(queue), (node, group, 0, keyed))
    (block,) = holders.table_of(number)
    busy = four.block_of(running)
    choice = tiers.choice_of(old, host, busy)
    outcome = handoffs.offer(choice, (0, 1, block, 8))
    said = tiers.answer(old, host, block, busy)
    stored = (said == "ready") & (len(host.free) > 0)
    assert outcome == ("stored" if stored else "dropped_cpu_full" if said == "ready" else said)
    assert (choice.blocks, choice.meta, choice.owners) == (([block], [()], [0]) if stored else ([], [], []))
    assert choice.hosts == list(host.free[:1] if stored else ())
    assert choice.in_flight == [busy, *choice.blocks]
    assert four.sound(choice.device) & four.sound(choice.host)
    assert holders.accounted(choice.device, holders.others(old), tuple(choice.blocks))
    assert holders.accounted(choice.host, holders.others(host), tuple(choice.hosts))
    assert four.keys_kept(old, choice.device) & four.keys_kept(host, choice.host, *choice.hosts)
    assert four.every(four.unkeyed(choice.host, block) for block in choice.hosts)


@claim(
    handoffs.consume,
    sizes="shape",
    bounds="four device blocks of which one is keyed, four host blocks without keys; one handoff of a request that may be gone",
    laws=("HO-3", "HO-5"),
    deep=True,
)
def consume_one_handoff(draft: Draft, key: Key, queue: int, known: int, finished: bool, preempted: int, before: int) -> None:
    """A handoff of a request that the store side does not know, that has finished or that was preempted in or before the
    step is dropped, whatever its block; any other is stored if there is room. Exactly one counter says so (T24, HO-3,
    HO-5).
    """
    assert four.legal(draft, key, free=2) & four.within(0, queue, 3)
    assert (known >= 0) & (preempted >= 0) & (before >= 0)
    old, free = four.pool_of(draft, key), four.pool_of(tiers.draft_of(queue))
    block = old.entries[0][3]
    host = tiers.host_of(free, Track(known, (0, 0), finished=finished))
    plan = Plan(drained=((0, 1, block, 8),), preempted=(preempted,), preempted_before=(before,))
    choice = tiers.choice_of(old, free)
    after, outcomes, notices = handoffs.consume(evolve(tiers.HYBRID_WORLD, plan=plan), host, choice)
    gone = (known != 0) | finished | (preempted == 0) | (before == 0)
    full = (not gone) & (len(free.free) == 0)
    assert outcomes == ((0, 1, block, 8, "dropped_request_gone" if gone else "dropped_cpu_full" if full else "stored"),)
    assert choice.blocks == ([] if gone | full else [block])
    assert holders.accounted(choice.device, holders.others(old), tuple(choice.blocks))
    assert notices == (("dropped_cpu_full",) if full else ())
    assert after.counters == Counters(
        published=1,
        stored=int(not gone | full),
        dropped_cpu_full=int(full),
        dropped_request_gone=int(gone),
    )


@claim(
    handoffs.consume,
    sizes="shape",
    bounds="four device blocks with two keys, four host blocks without keys; two handoffs of one or two requests",
    laws=("HO-4", "HO-5", "HO-6", "IP-1", "CP-7", "CN-6"),
    deep=True,
)
def consume_two_handoffs(draft: Draft, key: Key, other: Key, queue: int, first: int, second: int) -> None:
    """Two handoffs share one budget of host blocks, no block is stored twice, each is counted once, and of being short of
    room a notice is given once (T24, HO-5, HO-6, CP-7, CN-6).
    """
    assert four.legal(draft, key, other, free=2) & four.within(0, queue, 3)
    assert four.within(0, first, 1) & four.within(0, second, 1)
    old, free = four.pool_of(draft, key, other), four.pool_of(tiers.draft_of(queue))
    blocks = (old.entries[0][3], old.entries[1][3])
    owners = (four.pick((0, 1), first), four.pick((0, 1), second))
    host = tiers.host_of(free, Track(0, (0, 0)), Track(1, (0, 0)))
    plan = Plan(drained=((owners[0], 1, blocks[0], 8), (owners[1], 1, blocks[1], 8)))
    choice = tiers.choice_of(old, free)
    after, outcomes, notices = handoffs.consume(evolve(tiers.HYBRID_WORLD, plan=plan), host, choice)
    distinct = blocks[:1] if blocks[0] == blocks[1] else blocks
    said = after.counters
    assert choice.blocks == list(distinct[: len(free.free)])
    assert choice.hosts == list(free.free[: len(choice.blocks)])
    assert choice.meta == [()] * len(choice.blocks)
    assert four.sound(choice.device) & four.sound(choice.host)
    assert holders.accounted(choice.device, holders.others(old), tuple(choice.blocks))
    assert holders.accounted(choice.host, holders.others(free), tuple(choice.hosts))
    assert (said.published == 2) & (said.stored == len(choice.blocks)) & (len(outcomes) == 2)
    assert said.stored + said.dropped_cpu_full + said.skipped_in_flight == 2
    assert notices == (("dropped_cpu_full",) if said.dropped_cpu_full else ())
