"""Claims about prefixes as keys, combined hits and capabilities, candidates for a store, and lists that run in parallel."""

from __future__ import annotations

from kvproof.core import connectors, lookup, prefixes
from kvproof.core.connectors import Connector
from kvproof.core.offload import admission, completion, handoffs, metadata
from kvproof.core.offload.state import Host, Queued, Store, Track
from kvproof.core.pool import NO_KEY, NULL_BLOCK, Pool
from kvproof.core.prefixes import Prefixes
from kvproof.core.world import Plan
from kvproof.proofs.claim import claim
from kvproof.proofs.claims import pools_of_four as four
from kvproof.proofs.claims.pools_of_four import Draft, Key, pick
from kvproof.proofs.refusing import refused

# --- prefixes as keys ---------------------------------------------------------------------------------------------

THREE = "a prefix of three tokens, any tokens and contexts"


@claim(prefixes.extend, prefixes.root, prefixes.child, sizes="shape", bounds=THREE, laws=("TB-9",))
def equal_prefixes_are_one_node(context: int, one: int, two: int) -> None:
    """The same tokens under the same context lead to the same node, however they were appended (2.3, TB-9)."""
    assert context >= 0
    assert (one >= 0) & (two >= 0)
    table, top = prefixes.root(Prefixes(), context)
    table, tip = prefixes.extend(table, top, (one, two))
    again, start = prefixes.root(table, context)
    again, middle = prefixes.extend(again, start, (one,))
    again, end = prefixes.extend(again, middle, (two,))
    assert again == table
    assert (start == top) & (end == tip)
    assert prefixes.child(table, middle, two) == tip


@claim(
    prefixes.extend, prefixes.root, sizes="shape", bounds="two prefixes of one token, any tokens and contexts", laws=("TB-9",)
)
def different_prefixes_are_different_nodes(context: int, other: int, one: int, two: int) -> None:
    """Prefixes that differ in a token or in their context lead to different nodes (2.3, TB-9)."""
    assert (context >= 0) & (other >= 0)
    assert (one >= 0) & (two >= 0)
    table, top = prefixes.root(Prefixes(), context)
    table, tip = prefixes.extend(table, top, (one,))
    table, base = prefixes.root(table, other)
    table, end = prefixes.extend(table, base, (two,))
    assert (tip == end) == ((context == other) & (one == two))


@claim(prefixes.extend, sizes="shape", bounds="a prefix of two tokens, extended by one that is new or known; any tokens")
def a_node_never_changes(one: int, two: int, new: int) -> None:
    """Appending leaves every node that there was as it is, so that ids stay valid in later worlds (2.3)."""
    assert (one >= 0) & (two >= 0) & (new >= 0)
    old, top = prefixes.root(Prefixes(), 0)
    old, _ = prefixes.extend(old, top, (one, two))
    table, tip = prefixes.extend(old, top, (new,))
    assert table.parent[:3] == old.parent
    assert table.token[:3] == old.token
    assert table.depth[:3] == old.depth
    assert (tip == 1) == (new == one)


@claim(prefixes.ancestor, prefixes.path, sizes="shape", bounds=THREE)
def ancestors_are_the_shorter_prefixes(one: int, two: int, depth: int) -> None:
    """The ancestor of a node at a depth is the node of so many leading tokens, also behind a branch (2.3)."""
    assert (one >= 0) & (two >= 0) & (one != two)
    assert 0 <= depth <= 3
    table, top = prefixes.root(Prefixes(), 0)
    table, first = prefixes.extend(table, top, (one,))
    table, _ = prefixes.extend(table, first, (one, one))
    table, middle = prefixes.extend(table, first, (two,))
    table, tip = prefixes.extend(table, middle, (one,))
    at = pick((0, 1, 2, 3), depth)
    found = prefixes.ancestor(table, tip, at)
    assert found == (top, first, middle, tip)[at]
    assert prefixes.path(table, tip, 0, 3) == [first, middle, tip]


@claim(prefixes.boundary_nodes, sizes="shape", bounds="a prefix of four tokens, units of 1 to 4 tokens; any tokens")
def the_hash_chain_has_a_node_per_unit(one: int, unit: int) -> None:
    """The hash chain of a prefix has its nodes at the multiples of the unit and no other (2.3)."""
    assert one >= 0
    assert 1 <= unit <= 4
    table, top = prefixes.root(Prefixes(), 0)
    table, tip = prefixes.extend(table, top, (one, one, one, one))
    step = pick((1, 2, 3, 4), unit - 1)
    chain = prefixes.boundary_nodes(table, tip, step)
    assert [table.depth[node] for node in chain] == list(range(step, 5, step))


# --- hits and capabilities ----------------------------------------------------------------------------------------


@claim(lookup.reconcile, sizes="all", bounds="any candidates", laws=("HB-15",))
def a_candidate_is_only_lowered(current: int, hit: int) -> None:
    """A class lowers the candidate of a joint hit to its own, and never raises it (T11, HB-15)."""
    assert current >= 0
    assert hit >= 0
    found = lookup.reconcile(current, hit)
    assert found <= current
    assert found <= hit
    assert (found == current) | (found == hit)


@claim(lookup.none_is_deeper, sizes="shape", bounds="three classes, any hits", laws=("CA-4",))
def divergence_needs_full_attention_to_be_deepest(one: int, two: int, three: int, deepest: int) -> None:
    """A hit may diverge only if no class hits more than full attention (T12)."""
    assert (one >= 0) & (two >= 0) & (three >= 0)
    assert deepest >= 0
    found = lookup.none_is_deeper((one, two, three), deepest)
    assert found == ((one <= deepest) & (two <= deepest) & (three <= deepest))


@claim(lookup.supports_divergence, sizes="shape", bounds="no, one, two and three connectors", settles=("CA-2",))
def several_connectors_can_only_what_all_can(one: bool, two: bool, three: bool) -> None:
    """Connectors support divergent hits only if there are some and all of them can (T13, CA-2)."""
    assert isinstance(one, bool)
    alone = lookup.supports_divergence((one,))
    pair = lookup.supports_divergence((one, two))
    all_three = lookup.supports_divergence((one, two, three))
    none = lookup.supports_divergence(())
    assert alone == one
    assert pair == (one and two)
    assert all_three == (one and two and three)
    assert not none


@claim(
    connectors.supports_divergent_hits,
    connectors.flags,
    sizes="shape",
    bounds="a MultiConnector of MoRIIO, NIXL and one that is unknown, or of the first two",
    laws=("CA-2",),
)
def a_multi_connector_asks_its_children(reads: bool, moves: bool, strange: bool) -> None:
    """A MultiConnector supports divergent hits if all its children do; MoRIIO if it reads and moves states (T13, CA-2)."""
    assert isinstance(reads, bool)
    moriio = Connector("MoRIIOConnector", reads=reads, moves_states=moves)
    others = (Connector("NixlConnector"), *((Connector("SomeConnector"),) if strange else ()))
    found = connectors.supports_divergent_hits(Connector("MultiConnector", children=(moriio, *others)))
    assert found == (reads and moves and not strange)


@claim(lookup.replaces_tail, sizes="all", bounds="any tail and number of external tokens", laws=("CA-7",))
def external_tokens_replace_a_tail_only_if_they_reach_further(tail: int, external: int) -> None:
    """External tokens take the place of a local tail exactly if they reach further (T14.3, CA-7)."""
    assert tail >= 0
    assert external >= 0
    replaced = lookup.replaces_tail(tail, external)
    assert replaced == (external > tail)


# --- candidates for a store ---------------------------------------------------------------------------------------


@claim(
    admission.classify,
    admission.is_in_flight,
    admission.is_on_host,
    sizes="shape",
    bounds="four blocks on each side, one key",
    deep=True,
)
def a_candidate_gets_the_first_answer_that_applies(draft: Draft, key: Key, number: int, known: bool, copied: bool) -> None:
    """A candidate for a store is null, without a key, on its way, on the host, or ready: the first that applies (T25)."""
    assert four.legal(draft, key)
    assert 0 <= number <= 3
    device = four.pool_of(draft, key)
    block = pick((0, 1, 2, 3), number)
    host = Pool(
        device.ref,
        device.key_node,
        device.key_group,
        device.key_tokens,
        device.free,
        device.entries if known else (),
        device.next_seq,
    )
    found = admission.classify(device, host, (block,) if copied else (), block)
    keyed = device.key_node[block] != NO_KEY
    assert (found == "dropped_null_block") == (block == NULL_BLOCK)
    assert (found == "dropped_not_hashed") == (block != NULL_BLOCK and not keyed)
    assert (found == "skipped_in_flight") == (keyed and copied)
    assert (found == "skipped_already_cached") == (keyed and not copied and known)
    assert (found == "ready") == (keyed and not copied and not known)


# --- handoffs -----------------------------------------------------------------------------------------------------


@claim(handoffs.by_request, sizes="shape", bounds="three handoffs of two requests, any blocks and boundaries", laws=("HO-2",))
def handoffs_go_request_by_request(one: bool, two: bool, three: bool, boundary: int) -> None:
    """Handoffs are taken request by request, in the order in which each request comes first, none lost (T23, T24)."""
    assert boundary >= 0
    given = tuple((int(who), 0, block, boundary) for block, who in ((1, one), (2, two), (3, three)))
    found = handoffs.by_request(given)
    order = [handoff[0] for handoff in found]
    assert sorted(handoff[2] for handoff in found) == [1, 2, 3]
    assert order[0] == given[0][0]
    assert order == sorted(order) or order == sorted(order, reverse=True)
    assert all(a[2] < b[2] for a in found for b in found if a[0] == b[0] and found.index(a) < found.index(b))


@claim(handoffs.is_gone, sizes="shape", bounds="two requests that the store side knows, any flags", laws=("HO-3",))
def a_request_is_gone_if_it_gave_its_blocks_up(request: int, finished: bool, now: bool, before: bool) -> None:
    """The handoffs of a request are dropped if it is unknown, finished, or preempted in this step (HO-3)."""
    assert 0 <= request <= 2
    number = pick((0, 1, 2), request)
    host = Host(
        Pool((0,), (NO_KEY,), (NO_KEY,), (NO_KEY,), ()), ((),), tracks=(Track(0, (0,)), Track(1, (0,), finished=finished))
    )
    plan = Plan(preempted=(0,) if now else (), preempted_before=(1,) if before else ())
    gone = handoffs.is_gone(plan, host, number)
    assert gone == (number == 2 or (number == 0 and now) or (number == 1 and (finished or before)))


# --- lists that run in parallel -----------------------------------------------------------------------------------


@claim(
    metadata.merged,
    sizes="shape",
    bounds="two blocks of a step and two finished requests of one block, any prefixes",
    laws=("IP-3",),
)
def what_events_say_stands_as_the_blocks_do(one: int, two: int, three: int, four_: int) -> None:
    """What events say of a step's blocks stands first, then that of each finished request, in their order (IP-3)."""
    assert (one >= 0) & (two >= 0)
    assert (three >= 0) & (four_ >= 0)
    chosen = (((one, 1),), ((two, 1),))
    queued = (Queued((1,), (1,), (((three, 1),),)), Queued((2,), (2,), (((four_, 1),),)))
    found = metadata.merged(chosen, queued)
    assert [meta[0][0] for meta in found] == [one, two, three, four_]


@claim(completion.check_parallel, completion.entry_of, sizes="shape", bounds="up to three blocks on each side", laws=("IP-1",))
def lists_of_a_store_have_one_length(device: int, host: int, said: int, events: bool) -> None:
    """A store whose lists have different lengths is refused, and no other; without events nothing is said of a block (IP-1)."""
    assert 1 <= device <= 3
    assert 1 <= host <= 3
    assert 1 <= said <= 3
    d, h, m = (pick(((1,), (1, 2), (1, 2, 3)), count - 1) for count in (device, host, said))
    store = Store(0, d, h, tuple(((block, 1),) for block in m) if events else None)
    no = refused(completion.check_parallel, store)
    entry = completion.entry_of(store, 0)
    assert no == (len(d) != len(h) or (events and len(d) != len(m)))
    assert entry == (((1, 1),) if events else ())


@claim(completion.keys_now, sizes="shape", bounds=four.TWO_KEYS_IDLE, laws=("CP-2",))
def the_keys_of_a_stored_block_come_primary_first(draft: Draft, key: Key, other: Key, number: int) -> None:
    """A stored block has the keys that it carries at completion, the primary first with its tokens, or none (T28)."""
    assert four.legal(draft, key, other, free=3)
    assert 1 <= number <= 3
    pool = four.pool_of(draft, key, other)
    block = four.block_of(number)
    found = completion.keys_now(pool, block)
    mine = four.entries_of(pool.entries, block)
    assert len(found) == len(mine)
    assert not found or found[0] == four.standing(pool, block)
    assert four.every(four.carries(pool, node, group, block) for node, group, _ in found)
