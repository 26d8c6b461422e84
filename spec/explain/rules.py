"""The rules that remove a candidate boundary, and per kind of group which of them does (T7 to T13, 2.4, 2.8, 2.9, T35).

A reader answers for one class of groups and one boundary of the second prompt: None if the class can resume there, else the
reason. Readers read keys, chunk ends and sizes only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Protocol

from attrs import field, frozen

from kvproof.spec import naive, naive_hits
from kvproof.spec.explain.view import View

Members = tuple[int, ...]

CAP = "cap"
NOT_SHARED = "not shared"
ALIGNMENT = "alignment"
EAGLE = "EAGLE drop"
NO_SNAPSHOT = "no snapshot"
RETENTION = "retention"
NO_KEY = "no key"
EVICTED = "evicted"
OTHER_GROUP = "other group"
CONNECTOR = "connector"
DIVERGENT = "divergent"
LOCAL = "local"
GAP = "gap"
HOST_EVICTED = "host evicted"
HOST_FULL = "host full"
LAZY = "lazy"
NOT_STORED = "not stored"
SHORTER = "shorter"
HIT = "hit"

MEANINGS: dict[str, str] = {
    CAP: "the last token is always recomputed, so a hit is at most n-1 (T11)",
    NOT_SHARED: "the first request did not compute this prefix",
    ALIGNMENT: "a hit ends at a multiple of the hit alignment A only (2.4)",
    EAGLE: "one unit is given up so that the drafter gets fresh hidden states (T35)",
    NO_SNAPSHOT: "no chunk ended here, so no recurrent state was kept (T10, T22)",
    RETENTION: "it was computed, and the retention setting does not keep it (2.9)",
    NO_KEY: "it was computed and got no key: only whole blocks and one boundary inside a block do (T9, T10, 2.8)",
    EVICTED: "it had a key and lost it: its block was given to somebody else (T1, T4), or --evict took the key away",
    LOCAL: "the device has it: the host is asked behind it (T14)",
    GAP: "the host has it, and lacks a block before it that is needed as well (T20)",
    HOST_EVICTED: "it was on the host, and its host block was given to a later store",
    HOST_FULL: "the host had no free block when it could have been stored (T24, T27, T33)",
    LAZY: "lazy mode copies a block only when it comes near the end of its time on the device (T33)",
    NOT_STORED: "the device had it, and nothing stored it (T24 to T27)",
    OTHER_GROUP: "this group could resume here, another one cannot (T11)",
    CONNECTOR: "as far as full attention reaches; no connector brings the missing recurrent state (T13)",
    DIVERGENT: "as far as full attention reaches; kept if the connector brings more tokens with their state (T13, T14)",
    SHORTER: "this group could resume here, but the hit is longer",
    HIT: "the joint hit",
}
"""What can be said of a candidate boundary, in the order in which the rules apply."""


@frozen(slots=True)
class Reason:
    """Why a boundary is not the hit: a rule of ``MEANINGS`` and the case at hand in words.

    Where other classes block, ``blocked`` names each with its rule; the text says the same, so it is not compared.
    """

    rule: str
    text: str
    blocked: tuple[tuple[str, str], ...] = field(default=(), eq=False)


class Reader(Protocol):
    """How a kind of group reads keys: made once for a class of a view."""

    @property
    def unit(self) -> int:
        """The distance of the candidate boundaries, in tokens."""
        ...

    def why_not(self, boundary: int) -> Reason | None:
        """Return why the class cannot resume at an aligned boundary below the cap, None if it can."""
        ...


def beyond(view: View, boundary: int) -> Reason | None:
    """Return why a boundary lies where no key can be: above the cap, or where the first prompt did not compute the prefix."""
    if boundary > view.limit:
        return Reason(CAP, f"above n-1 = {view.limit:,}: the last token is recomputed")
    if boundary > view.shared:
        if view.shared < min(view.prompt, view.total):
            return Reason(NOT_SHARED, f"the prompts differ behind {view.shared:,} token{'' if view.shared == 1 else 's'}")
        return Reason(NOT_SHARED, f"the first prompt ended at {view.prompt:,}")
    return None


def removed_by(view: View, reader: Reader, boundary: int) -> Reason | None:
    """Return the first rule that keeps a class from resuming at a boundary, None if it can.

    A reader that needs no key there (a chunk of local attention begins) can resume where the first prompt never was.
    """
    if 0 < boundary <= view.start:
        return Reason(LOCAL, f"the host is asked behind {view.start:,}")
    out = beyond(view, boundary)
    if out is not None and (out.rule == CAP or reader.why_not(boundary) is not None):
        return out
    if boundary % view.alignment:
        lazy = view.host is not None and view.host.mode == "lazy"
        size = f"S = {view.alignment:,}, which lazy mode asks for" if lazy else f"A = {view.alignment:,}"
        return Reason(ALIGNMENT, f"no multiple of {size}")
    return reader.why_not(boundary)


def fate(view: View, members: Members, boundary: int) -> Reason | None:
    """Return how the key of a boundary was lost, None if the groups that lack it never had it.

    On the host: how it was lost there, or why what the device had was not stored.
    """
    node = view.nodes[boundary]
    if view.host is not None:
        lacking = [group for group in members if (node, group) not in view.keyed]
        return next((Reason(*why) for group in lacking if (why := view.host.why((node, group), boundary)) is not None), None)
    losses = [view.lost[node, group] for group in members if (node, group) not in view.keyed and (node, group) in view.lost]
    if not losses:
        return None
    loss = losses[-1]
    if loss.request < 0:
        return Reason(EVICTED, f"the key of {boundary:,} was taken away by --evict")
    who = "the first prompt itself" if loss.request == 0 else "the prompt in between"
    return Reason(EVICTED, f"the block of {boundary:,} was reused by {who}, tokens {loss.start:,} to {loss.end:,}")


def missing_block(view: View, members: Members, edge: int, kept: Callable[[int], bool]) -> Reason:
    """Return why the full block that ends at ``edge`` has no key; ``kept`` tells what retention keeps."""
    out = beyond(view, edge)
    if out is not None:
        return Reason(out.rule, f"needs the block up to {edge:,}: {out.text}")
    lost = fate(view, members, edge)
    if lost is not None:
        return lost
    cached = view.cacheable(members)
    if edge > cached:
        return Reason(NO_KEY, f"only whole scheduler blocks of the first prompt are registered, {cached:,} tokens")
    if not kept(edge):
        return Reason(RETENTION, f"needs the block up to {edge:,}: {retention_text(view)}")
    return Reason(NO_KEY, f"the block up to {edge:,} was not registered")


def gap(view: View, members: Members, boundary: int, edge: int, why: Reason) -> Reason:
    """Return ``why`` the block up to ``edge`` lacks a key, as a gap if the host has the block of ``boundary`` behind it."""
    if view.host is None or boundary <= edge:
        return why
    span = view.spans[members[0]]
    whole = min(naive.floor_multiple(boundary + span - 1, span), len(view.nodes) - 1)
    ends = range(boundary, whole + 1)
    if not any(view.has(members, end) for end in ends):
        return why
    return Reason(GAP, f"it is on the host, the block up to {edge:,} before it is not: {why.rule}, {why.text}")


def retention_text(view: View) -> str:
    """Return what the retention setting keeps, in words."""
    points = _resume_points(view.resumes, view.kept)
    where = " and ".join(f"{point:,}" for point in points)
    if view.config.retention:
        return f"retention {view.config.retention:,} keeps its multiples and {where}"
    return f"retention 0 keeps {where} only"


@lru_cache(maxsize=8)
def _resume_points(resumes: tuple[int, ...], alignment: int) -> tuple[int, ...]:
    """Return where a resend may resume, in whole alignments; asked for again with every candidate."""
    return tuple(sorted({naive.floor_multiple(point, alignment) for point in resumes}))


def given_up(edge: int) -> Reason:
    """Return the EAGLE drop as the reason: the block behind the boundary lacks a key (T35)."""
    return Reason(EAGLE, f"the block up to {edge:,} would have to match and be given up")


class FullAttention:
    """Every block below the boundary must be keyed; inside a block only the first prompt's last boundary is (T9)."""

    def __init__(self, view: View, members: Members) -> None:
        self.view, self.members = view, members
        self.span = view.spans[members[0]]
        self.unit = min(view.kept, self.span)
        self.margin = view.margin(members)
        self.reach = naive_hits.attention_reach(
            view.keyed, view.nodes[: view.asked(members) + 1], members, self.span, view.unit
        )
        self.edge = naive.floor_multiple(self.reach, self.span) + self.span
        self.tail = naive.floor_multiple(view.prompt if self.margin else view.prompt - 1, view.unit)

    def why_not(self, boundary: int) -> Reason | None:
        """Return why the class cannot resume at a boundary, None if it can: everything below and the margin is keyed."""
        if boundary + self.margin <= self.reach:
            return None
        if boundary <= self.reach:
            return Reason(EAGLE, f"keyed up to {self.reach:,}, of which {self.margin:,} are given up")
        if boundary < self.edge:
            lost = fate(self.view, self.members, boundary)
            return lost or Reason(NO_KEY, f"inside a block only {self.tail:,} was registered, the first prompt's last boundary")
        why = missing_block(self.view, self.members, self.edge, lambda _: True)
        return gap(self.view, self.members, boundary, self.edge, why)


class AlignedStates:
    """Mamba align: a state lies only where a chunk ended, and retention chooses among those (T10, 2.9). No drop (T35)."""

    def __init__(self, view: View, members: Members) -> None:
        self.view, self.members = view, members
        self.size = view.spans[members[0]]
        self.unit = min(view.kept, self.size)
        self.tail = naive.checkpoint_boundary(view.prompt, view.unit, any(view.config.eagle))

    def why_not(self, boundary: int) -> Reason | None:
        """Return why the class has no state of a boundary, None if it has one."""
        view = self.view
        if view.has(self.members, boundary):
            return None
        lost = fate(view, self.members, boundary)
        if lost is not None:
            return lost
        out = beyond(view, boundary)
        if out is not None:
            return out
        if boundary not in view.ends:
            return Reason(NO_SNAPSHOT, "no chunk of the first prompt ended here")
        if boundary % self.size:
            return Reason(NO_KEY, f"inside a block only the prompt's checkpoint {self.tail:,} is registered")
        blocks = len(range(0, boundary, self.size))
        if blocks - 1 not in naive.mamba_kept(blocks, self.size, view.kept, view.config.retention, view.resumes):
            return Reason(RETENTION, f"a chunk ended here, but {retention_text(view)}")
        return Reason(NO_KEY, "a chunk ended here, but the state was not registered")


class StableStates:
    """A recurrent cache with a state per block: the block that ends at the boundary must be keyed. No drop (T35)."""

    def __init__(self, view: View, members: Members) -> None:
        self.view, self.members = view, members
        self.unit = view.spans[members[0]]

    def why_not(self, boundary: int) -> Reason | None:
        """Return why the class has no state of a boundary, None if it has one."""
        if boundary % self.unit == 0 and self.view.has(self.members, boundary):
            return None
        return missing_block(self.view, self.members, boundary, lambda _: True)


class SlidingWindow:
    """The blocks that the window reads before the boundary must be keyed, one more behind it with a drop (T11, 2.9)."""

    def __init__(self, view: View, members: Members) -> None:
        self.view, self.members = view, members
        self.unit = view.spans[members[0]]
        self.window = view.config.groups[members[0]].window or 1
        self.need = len(range(0, self.window - 1, self.unit))
        self.margin = view.margin(members)
        self.asked = view.asked(members)
        self.kept = naive.window_kept(
            len(range(0, view.prompt, self.unit)),
            window=self.window,
            effective_size=self.unit,
            alignment=view.kept,
            retention=view.config.retention,
            reach=view.resumes,
            eagle=bool(self.margin),
        )

    def edges(self, boundary: int) -> Iterable[int]:
        """Return the ends of the blocks that must be keyed for a boundary, the last one first."""
        first = max(boundary - self.need * self.unit, 0)
        return range(boundary + self.margin, first, -self.unit)

    def why_not(self, boundary: int) -> Reason | None:
        """Return why the class cannot resume at a boundary, None if it can."""
        for edge in self.edges(boundary):
            if edge > self.asked or not self.view.has(self.members, edge):
                behind = edge > boundary
                if behind:
                    return given_up(edge)
                return gap(self.view, self.members, boundary, edge, missing_block(self.view, self.members, edge, self._is_kept))
        return None

    def _is_kept(self, edge: int) -> bool:
        return len(range(0, edge, self.unit)) - 1 in self.kept


class ChunkedLocal:
    """The blocks of the boundary's own chunk must be keyed, one more behind it with a drop; earlier ones are not read (T11)."""

    def __init__(self, view: View, members: Members) -> None:
        self.view, self.members = view, members
        self.unit = view.spans[members[0]]
        self.chunk = view.config.groups[members[0]].window or 1
        self.margin = view.margin(members)
        self.asked = view.asked(members)
        self.holes: dict[int, int] = {}

    def hole(self, first: int) -> int:
        """Return the end of the first block without a key from the block of position ``first`` on, a chunk long."""
        if first not in self.holes:
            edge = first - first % self.unit + self.unit
            while edge <= min(first + self.chunk, self.asked) and self.view.has(self.members, edge):
                edge += self.unit
            self.holes[first] = edge
        return self.holes[first]

    def why_not(self, boundary: int) -> Reason | None:
        """Return why the class cannot resume at a boundary, None if it can."""
        hole = self.hole(boundary - boundary % self.chunk)
        if hole <= boundary:
            why = missing_block(self.view, self.members, hole, lambda _: True)
            return gap(self.view, self.members, boundary, hole, why)
        ahead = boundary + self.margin
        if self.margin and (ahead > self.asked or not self.view.has(self.members, ahead)):
            return given_up(ahead)
        return None


READERS: dict[str, Callable[[View, Members], Reader]] = {
    "full_attention": FullAttention,
    "mamba_align": AlignedStates,
    "mamba_stable": StableStates,
    "sliding_window": SlidingWindow,
    "chunked_local": ChunkedLocal,
}
"""Kind of group -> its reader; scratch groups are never cached and have none."""


def reader(view: View, members: Members) -> Reader:
    """Return the reader of a class. Raises KeyError for a kind that has none, which the tests exclude."""
    return READERS[view.config.groups[members[0]].kind](view, members)
