"""Claims about events: what the key maps of both tiers announce, and with which payload (3.7, T28).

A request's tokens are any numbers; the node of each boundary has its number of tokens, so that what an event names can be
compared with the tokens themselves.
"""

from __future__ import annotations

from attrs import evolve

from kvproof.core import config as configs
from kvproof.core import events, prefixes
from kvproof.core import pool as pools
from kvproof.core import world as worlds
from kvproof.core.config import Group
from kvproof.core.offload import completion
from kvproof.core.pool import NO_KEY
from kvproof.core.prefixes import Prefixes
from kvproof.core.profiles import VLLM_0_33_0
from kvproof.core.records import Event, Record
from kvproof.proofs.claim import claim
from kvproof.proofs.claims import hosts_of_four as tiers
from kvproof.proofs.claims.pools_of_four import pick

MIXED = configs.configure(
    (Group("full_attention", 8), Group("mamba_align", 16)), hash_block_size=4, num_blocks=4, dcp_size=2, events=True
)
"""Two ranks, H of 4: a block of attention on both, or a state at the end of its block, is announced with 16 tokens."""
EIGHT = configs.configure((Group("full_attention", 8), Group("mamba_align", 8)), hash_block_size=4, num_blocks=4, events=True)
RELEASE = evolve(MIXED, profile=VLLM_0_33_0)
BOUNDS = "two ranks, attention and states in blocks of 16 tokens over both, H of 4"
WHATS = (pools.CLEARED, pools.LOST, pools.LEFT, pools.FULL, pools.PARTIAL, pools.RESTORED, pools.COPIED)


def told(*tokens: int) -> Prefixes:
    """Return the prefix table of one request with these tokens; the node of a boundary is its number of tokens."""
    table, root = prefixes.root(Prefixes(), 0)
    return prefixes.extend(table, root, tokens)[0]


# --- payload ------------------------------------------------------------------------------------------------------


@claim(
    events.payload_size,
    events.partial_size,
    sizes="grid",
    bounds=BOUNDS + "; any boundary of a hash block",
    laws=("EV-2", "EV-3"),
)
def a_payload_reaches_back_to_the_key_before(blocks: int, inside: int, group: int) -> None:
    """A full key is announced with the tokens of its block. An attention key inside a block is announced with those since
    the block's start, where the key before it is, a state with one hash block (3.7, EV-2, field ``partial_parent``).
    """
    assert blocks >= 0
    assert 0 <= group < 2
    assert 1 <= inside <= 4
    of, boundary = pick((0, 1), group), 16 * blocks + 4 * inside
    found = events.payload_size(MIXED, of, pools.FULL if inside == 4 else pools.PARTIAL, boundary)
    again = events.payload_size(MIXED, of, pools.RESTORED, boundary)
    release = events.payload_size(RELEASE, of, pools.PARTIAL, boundary)
    assert found == again
    assert found == (16 if inside == 4 else 4 * inside if of == 0 else 4)
    assert release == 4


@claim(events.parent_boundary, sizes="all", bounds="any boundary and size", laws=("EV-3",))
def a_parent_is_where_the_payload_begins(boundary: int, size: int) -> None:
    """The parent of an event lies as many tokens before its boundary as it carries, and is none at the start (3.7, EV-3)."""
    assert boundary >= 1
    assert size >= 1
    above = events.parent_boundary(MIXED, 0, boundary, size)
    assert 0 <= above < boundary
    assert above + size == boundary or (above == 0 and size > boundary)


@claim(events.payload, sizes="shape", bounds="a prefix of five tokens, any tokens, boundaries and sizes", laws=("EV-1",))
def a_payload_is_the_last_tokens_before_its_boundary(one: int, two: int, three: int, end: int, size: int) -> None:
    """A payload has the last tokens before its boundary in their order, as many as it has to have (3.7, EV-1)."""
    assert (one >= 0) & (two >= 0) & (three >= 0)
    assert 1 <= end <= 5
    assert 1 <= size <= end
    tokens = (one, two, three, one, two)
    boundary = pick((1, 2, 3, 4, 5), end - 1)
    count = pick((1, 2, 3, 4, 5), size - 1)
    found = events.payload(told(*tokens), boundary, boundary, count)
    assert len(found) == count
    assert all(found[count - back] == tokens[boundary - back] for back in range(1, count + 1))


@claim(
    events.event,
    events.payload,
    events.parent_boundary,
    sizes="shape",
    bounds="attention and states in blocks of 8 tokens, H of 4; a prefix of 16 tokens, any tokens; each boundary, either group",
    laws=("EV-1", "EV-2", "EV-3"),
)
def a_stored_event_names_its_tokens_and_its_parent(one: int, two: int, at: int, group: int) -> None:
    """What is announced of a registered key are the tokens from its parent to its boundary, and the parent is the node where
    they begin (3.7, EV-1, EV-3).
    """
    assert (one >= 0) & (two >= 0)
    assert 1 <= at <= 4
    assert 0 <= group < 2
    tokens = (one, two, one, one, two, two, one, two, *(one,) * 4, *(two,) * 4)
    boundary, of = pick((4, 8, 12, 16), at - 1), pick((0, 1), group)
    size = {4: 4, 8: 8, 12: 4, 16: 8}[boundary]
    what = pools.FULL if boundary % 8 == 0 else pools.PARTIAL
    found = events.event(EIGHT, told(*tokens), (what, boundary, of), events.DEVICE)
    parent = boundary - size if boundary > size else -1
    assert found == Event("stored", "device", of, boundary, boundary, parent, tokens[boundary - size : boundary], size)


@claim(
    events.event, sizes="shape", bounds="every note of a change that has no payload; any node and group", laws=("EV-1", "EV-4")
)
def an_event_without_payload_names_its_key_alone(node: int, group: int, what: int, size: int) -> None:
    """A key that goes is named, a copied one of which nothing is known with its size too, an emptied map not at all (3.7)."""
    assert 0 <= what < 4
    assert 0 <= node < 3
    assert (group >= 0) & (size >= 0)
    at = pick((0, 1, 2), node)
    note = pick(
        (
            (pools.CLEARED, at, group),
            (pools.LOST, at, group),
            (pools.LEFT, at, group),
            (pools.COPIED, at, group, size, 0, at),
        ),
        what,
    )
    found = events.event(MIXED, told(7, 7), note, events.HOST)
    wanted = pick(
        (
            Event("cleared", "host"),
            Event("removed", "host", group, at),
            Event("removed", "host", group, at),
            Event("stored", "host", group, at, at, size=size),
        ),
        what,
    )
    assert found == wanted


@claim(
    events.event,
    events.payload,
    events.parent_boundary,
    sizes="shape",
    bounds="a prefix of eight tokens, any tokens; a key at 4 or 8 of them, any payload within the tokens before 4 or 8",
    laws=("EV-1", "EV-3"),
)
def a_copied_event_has_the_tokens_that_were_captured(one: int, two: int, key: bool, behind: bool, size: int) -> None:
    """A copied key is announced under its own name with the tokens that were captured, as many as were, and the parent is the
    node where they begin, or none at the start (3.7, EV-1, EV-3).
    """
    assert (one >= 0) & (two >= 0)
    assert 1 <= size <= (8 if behind else 4)
    tokens = (one, two, one, one, two, two, one, two)
    node, end = (8 if key else 4), (8 if behind else 4)
    count = pick((1, 2, 3, 4, 5, 6, 7, 8), size - 1)
    found = events.event(MIXED, told(*tokens), (pools.COPIED, node, 1, 9, count, end), events.HOST)
    parent = end - count if end > count else -1
    assert found == Event("stored", "host", 1, node, node, parent, tokens[end - count : end], count)


@claim(events.is_said, sizes="shape", bounds="every kind of note; the sound profile and that of the release", laws=("EV-4",))
def a_key_is_removed_with_its_last_block(what: int) -> None:
    """Everything is announced but that a key has left one of several blocks; the release announces that, too (3.7, EV-4)."""
    assert 0 <= what < 7
    kind = pick(WHATS, what)
    said = events.is_said(MIXED, kind)
    release = events.is_said(RELEASE, kind)
    assert said == (kind != pools.LEFT)
    assert release


@claim(
    events.announced,
    events.announce,
    events.noted,
    sizes="shape",
    bounds="up to two notes on each side, any nodes",
    laws=("EV-5",),
)
def both_tiers_announce_in_their_order(node: int, other: int, device: int, host: int, left: bool) -> None:
    """What the device's key map noted is announced, then what the host's did, each in its order; no note stays (3.7)."""
    assert (node >= 0) & (other >= 0)
    assert 0 <= device < 3
    assert 0 <= host < 3
    what = pools.LEFT if left else pools.LOST
    notes = ((pools.LOST, node, 0), (what, other, 1))
    mine, its = notes[: pick((0, 1, 2), device)], notes[: pick((0, 1, 2), host)]
    old = evolve(
        worlds.new_world(MIXED),
        pool=pools.with_notes(pools.new_pool(4, True), mine),
        host=evolve(tiers.EMPTY, pool=pools.with_notes(pools.new_pool(4, True), its)),
    )
    some = events.noted(old)
    after, record = events.announced(old, Record("BuildMetadata"))
    said = [(medium, note) for medium, chosen in (("device", mine), ("host", its)) for note in chosen]
    wanted = [Event("removed", medium, note[2], note[1]) for medium, note in said if note[0] != pools.LEFT]
    assert some == bool(said)
    assert list(record.events) == wanted
    assert not events.noted(after)


# --- what a completed store announces -----------------------------------------------------------------------------


@claim(
    completion.payload_end,
    sizes="shape",
    bounds="blocks of 8 tokens, H of 4; up to three captured items, any nodes",
    laws=("EV-1",),
)
def a_copied_key_is_announced_with_its_own_tokens(first: int, second: int, third: int, count: int, node: int) -> None:
    """A key is announced with the tokens before it. Only of an entry that its block has left, one item more than it has
    boundaries, the last key is announced with those of the entry (3.1, field ``positional_ids``).
    """
    assert (first >= 0) & (second >= 0) & (third >= 0) & (node >= 0)
    assert 0 <= count <= 3
    meta = ((first, 4), (second, 8), (third, 8))[: pick((0, 1, 2, 3), count)]
    end = completion.payload_end(EIGHT, 0, meta, node)
    assert end == (second if len(meta) == 3 and node == third else node)


@claim(
    completion.notes,
    sizes="shape",
    bounds="blocks of 8 tokens; one or two keys and up to two captured items, any nodes and sizes",
    laws=("EV-2",),
)
def what_was_captured_in_another_size_has_no_payload(
    first: int, second: int, captured: int, size: int, count: int, several: bool
) -> None:
    """The primary key of a stored block is announced with the tokens of a block, another with what was captured of it, each
    with a payload only if it was captured in that size (3.7, EV-2).
    """
    assert (first >= 0) & (second >= 0) & (captured >= 0) & (size >= 1)
    assert first != second
    assert 0 <= count <= 2
    keys = ((first, 0, 8), (second, 0, NO_KEY)) if several else ((first, 0, 8),)
    meta = ((captured, size), (second, 4))[: pick((0, 1, 2), count)]
    found = completion.notes(EIGHT, keys, meta)
    none = completion.notes(EIGHT, (), meta)
    known = [size if captured == first and meta else 0, 4 if len(meta) == 2 else size if captured == second and meta else 0]
    assert none == ()
    assert [note[:3] for note in found] == [(pools.COPIED, node, 0) for node, _, _ in keys]
    assert [note[3] for note in found] == [8, known[1]][: len(keys)]
    assert [note[4] for note in found] == [8 if known[0] == 8 else 0, known[1]][: len(keys)]
    assert [note[5] for note in found] == [node for node, _, _ in keys]
